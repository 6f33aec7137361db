//===- HostCpu.cpp - what this machine's processor has -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/HostCpu.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <set>
#include <sstream>
#include <unistd.h>

namespace lathe {
namespace {

/// The words of a small file; none where there is no such file.
std::vector<std::string> wordsOf(const std::string &path) {
  std::ifstream file(path);
  return {std::istream_iterator<std::string>(file), {}};
}

std::string wordOf(const std::string &path) {
  std::vector<std::string> words = wordsOf(path);
  return words.empty() ? std::string() : words.front();
}

/// "512K", "2M" or a plain number; 0 for anything else.
int64_t bytesOf(const std::string &text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, size_t(text.data() + text.size() - end));
  if (error != std::errc() || value < 0)
    return 0;
  if (unit.empty())
    return value;
  return unit == "K" ? value << 10 : unit == "M" ? value << 20 : unit == "G" ? value << 30 : 0;
}

/// "0-3,8" as numbers.
std::vector<int> listOf(const std::string &text) {
  constexpr int kMost = 1 << 16;
  std::vector<int> numbers;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    int first = -1, last = -1;
    const char *end = part.data() + part.size();
    auto [at, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc() || first < 0)
      continue;
    last = first;
    if (at != end && *at == '-')
      std::from_chars(at + 1, end, last);
    for (int i = first; i <= std::min(last, kMost); ++i)
      numbers.push_back(i);
  }
  return numbers;
}

/// Time that the control group of this process gets, in processors; 0: as much as there is. /proc names the group, in
/// each version's tree; those above it limit it as well, and the root that a container sees is its own.
double quotaOf(const std::string &root) {
  double least = 0;
  auto consider = [&](const std::string &quota, const std::string &period) {
    int64_t given = bytesOf(quota), of = bytesOf(period); // plain numbers; "max" and "-1" are none
    if (given > 0 && of > 0 && (least == 0 || double(given) / double(of) < least))
      least = double(given) / double(of);
  };
  auto upwards = [](std::string group, auto visit) {
    for (;; group.erase(group.rfind('/'))) {
      visit(group == "/" ? std::string() : group);
      if (group.find('/') == std::string::npos)
        return;
    }
  };
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::string tree = root + "/sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) { // NUMBER:CONTROLLERS:PATH
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,")
      upwards(line.substr(second + 1), [&](const std::string &group) {
        if (auto words = wordsOf(tree + group + "/cpu.max"); words.size() == 2)
          consider(words[0], words[1]);
      });
    else if (controllers.find(",cpu,") != std::string::npos)
      upwards(line.substr(second + 1), [&](const std::string &group) {
        std::string at = tree + "/cpu" + group;
        consider(wordOf(at + "/cpu.cfs_quota_us"), wordOf(at + "/cpu.cfs_period_us"));
      });
  }
  return least;
}

std::string sizeText(int64_t bytes) {
  if (bytes % (1 << 20) == 0)
    return std::to_string(bytes >> 20) + " MB";
  return std::to_string(bytes >> 10) + " KB";
}

} // namespace

int64_t HostCpu::share(int level) const {
  const Cache &cache = caches[size_t(level - 1)];
  int64_t bytes = cache.bytes / std::max<int64_t>(1, cache.cores), rounded = 1;
  if (bytes < 1)
    return 0;
  while (rounded * 2 <= bytes)
    rounded *= 2;
  return rounded + rounded / 2 <= bytes ? rounded + rounded / 2 : rounded;
}

int64_t HostCpu::usableCores() const {
  int64_t all = std::max<int64_t>(1, cores);
  return quota > 0 ? std::clamp<int64_t>(int64_t(std::ceil(quota)), 1, all) : all;
}

std::string HostCpu::str() const {
  std::string text;
  const char *names[] = {"first-level data cache", "second-level cache", "third-level cache"};
  for (size_t level = 0; level < caches.size(); ++level) {
    const Cache &c = caches[level];
    text += std::string(names[level]) + ": " + (c.bytes ? sizeText(c.bytes) : "unknown");
    if (c.bytes)
      text += c.cores > 1 ? ", shared by " + std::to_string(c.cores) + " cores" : " a core";
    text += "\n";
  }
  text += "processors: " + std::to_string(processors) + " on " + std::to_string(cores) + " cores, ";
  if (quota > 0) {
    std::ostringstream number;
    number << quota;
    text += "of which the control group gives the time of " + number.str() + "\n";
  } else {
    text += "without a limit of the control group\n";
  }
  text += "pages: " + (pageBytes ? sizeText(pageBytes) : "unknown");
  if (hugePageBytes)
    text += ", huge ones of " + sizeText(hugePageBytes) + " (" + (hugePages.empty() ? "unknown" : hugePages) + ")";
  return text + "\n";
}

HostCpu HostCpu::read(const std::string &root, std::vector<int> processors) {
  HostCpu host;
  if (processors.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
      for (int i = 0; i < CPU_SETSIZE; ++i)
        if (CPU_ISSET(i, &set))
          processors.push_back(i);
  }
  auto folder = [&](int cpu) { return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu); };
  /// The first thread of a processor's core stands for the core.
  auto coreOf = [&](int cpu) {
    std::vector<int> threads = listOf(wordOf(folder(cpu) + "/topology/thread_siblings_list"));
    return threads.empty() ? cpu : *std::min_element(threads.begin(), threads.end());
  };
  std::set<int> cores;
  for (int cpu : processors)
    cores.insert(coreOf(cpu));
  host.processors = int64_t(processors.size());
  host.cores = int64_t(cores.size());
  host.quota = quotaOf(root);
  // Of processors of several kinds, the smallest share: work is divided evenly.
  for (int cpu : cores)
    for (int index = 0; index < 8; ++index) {
      std::string at = folder(cpu) + "/cache/index" + std::to_string(index);
      int64_t level = bytesOf(wordOf(at + "/level")), bytes = bytesOf(wordOf(at + "/size"));
      if (level < 1 || level > 3 || bytes == 0 || wordOf(at + "/type") == "Instruction")
        continue;
      std::set<int> sharers;
      for (int other : listOf(wordOf(at + "/shared_cpu_list")))
        sharers.insert(coreOf(other));
      Cache found{bytes, std::max<int64_t>(1, int64_t(sharers.size()))};
      Cache &known = host.caches[size_t(level - 1)];
      if (known.bytes == 0 || found.bytes / found.cores < known.bytes / known.cores)
        known = found;
    }
  host.pageBytes = sysconf(_SC_PAGESIZE);
  host.hugePageBytes = bytesOf(wordOf(root + "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"));
  for (const std::string &word : wordsOf(root + "/sys/kernel/mm/transparent_hugepage/enabled"))
    if (word.size() > 2 && word.front() == '[')
      host.hugePages = word.substr(1, word.size() - 2);
  return host;
}

} // namespace lathe
