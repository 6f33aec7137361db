//===- Worker.cpp - checks in processes of their own ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Worker.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lathe::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
/// What a process may forget to free does not grow beyond this many models.
constexpr uint64_t kSeedsOfAChild = 64;
constexpr char kField = '\x1f', kEnd = '\x1e';

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void send(int pipe, const std::string &text) {
  for (size_t at = 0; at < text.size();) {
    ssize_t n = write(pipe, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      _exit(9);
    at += size_t(n);
  }
}

std::string pack(const Verdict &v) {
  std::string text;
  for (const std::string &part : {v.way, v.what, v.detail, v.refused, std::to_string(v.elements), std::to_string(v.open),
                                  std::to_string(v.collectives)})
    text += part + kField;
  return text;
}

Verdict unpack(const std::string &text) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == kField)
      parts.emplace_back();
    else
      parts.back() += c;
  parts.resize(std::max<size_t>(parts.size(), 7));
  Verdict v;
  v.way = parts[0];
  v.what = parts[1];
  v.detail = parts[2];
  v.refused = parts[3];
  v.elements = std::atoll(parts[4].c_str());
  v.open = std::atoll(parts[5].c_str());
  v.collectives = std::atoll(parts[6].c_str());
  return v;
}

/// A folder of this process, removed by the one that made it.
std::string makeFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lathe-fuzz-XXXXXX").string();
  return mkdtemp(pattern.data()) ? pattern : std::string();
}
void removeFolder(const std::string &folder) {
  std::error_code error;
  if (!folder.empty())
    std::filesystem::remove_all(folder, error);
}

std::string howItEnded(int status) {
  if (WIFSIGNALED(status))
    return std::string("signal ") + strsignal(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

struct Child {
  pid_t process = 0;
  int pipe = -1;
  std::string folder, text;       ///< what came of the message under way
  uint64_t seed = 0, last = 0;    ///< the one under way, and the last of this child
  bool busy = false;
  Clock::time_point begin;
};

/// Flushed first: what a child inherits in buffers it would write once more.
pid_t forkFlushed() {
  std::fflush(nullptr);
  return fork();
}

[[noreturn]] void checkAll(uint64_t first, uint64_t last, CheckOptions options, int pipe) {
  for (uint64_t seed = first; seed <= last; ++seed) {
    send(pipe, "B" + std::to_string(seed) + kEnd);
    Verdict verdict;
    Result<TestModel> model = generate(seed);
    options.meshSeed = seed;
    if (model)
      verdict = check(*model, options);
    else
      verdict.way = "generator", verdict.what = verdict.detail = model.status().message();
    send(pipe, "E" + std::to_string(model ? model->nodes : 0) + kField + pack(verdict) + kEnd);
  }
  _exit(0);
}

} // namespace

void checkSeeds(uint64_t first, uint64_t count, const WorkOptions &options,
                const std::function<void(const SeedResult &)> &report) {
  const uint64_t end = first + count;
  uint64_t next = first;
  std::vector<Child> children(static_cast<size_t>(std::max(1, options.jobs)));
  auto start = [&](Child &child, uint64_t from, uint64_t last) {
    int ends[2];
    child.folder = makeFolder();
    if (child.folder.empty() || pipe(ends) != 0) {
      std::perror("lathe-fuzz");
      std::exit(5);
    }
    child.last = last;
    child.text.clear();
    child.busy = false;
    child.begin = Clock::now();
    child.process = forkFlushed();
    if (child.process == 0) {
      close(ends[0]);
      for (const Child &other : children)
        if (other.pipe >= 0)
          close(other.pipe);
      CheckOptions own = options.check;
      own.folder = child.folder;
      checkAll(from, last, own, ends[1]);
    }
    close(ends[1]);
    child.pipe = ends[0];
  };
  auto startNext = [&](Child &child) {
    if (next >= end)
      return;
    uint64_t last = std::min(next + kSeedsOfAChild, end) - 1;
    start(child, next, last);
    next = last + 1;
  };
  auto message = [&](Child &child, const std::string &text) {
    if (text[0] == 'B') {
      child.seed = std::strtoull(text.c_str() + 1, nullptr, 10);
      child.busy = true;
      child.begin = Clock::now();
      return;
    }
    child.busy = false;
    SeedResult result{child.seed, std::atoll(text.c_str() + 1), secondsSince(child.begin),
                      unpack(text.substr(text.find(kField) + 1))};
    report(result);
  };
  // What a child leaves when it ends, for whatever reason; then the seeds that it had before it.
  auto over = [&](Child &child, const char *way, const std::string &what) {
    close(child.pipe);
    child.pipe = -1;
    removeFolder(child.folder);
    child.process = 0;
    uint64_t last = child.last, seed = child.seed;
    if (child.busy) {
      SeedResult result;
      result.seed = seed;
      result.seconds = secondsSince(child.begin);
      result.verdict.way = way;
      result.verdict.what = result.verdict.detail = what;
      report(result);
      if (seed < last)
        return start(child, seed + 1, last);
    }
    startNext(child);
  };
  for (Child &child : children)
    startNext(child);
  while (true) {
    std::vector<pollfd> polled;
    std::vector<Child *> owners;
    for (Child &child : children)
      if (child.process) {
        polled.push_back({child.pipe, POLLIN, 0});
        owners.push_back(&child);
      }
    if (polled.empty())
      return;
    poll(polled.data(), polled.size(), 500);
    for (size_t i = 0; i < polled.size(); ++i) {
      Child &child = *owners[i];
      if (polled[i].revents) {
        char buffer[4096];
        ssize_t n = read(child.pipe, buffer, sizeof buffer);
        if (n > 0) {
          child.text.append(buffer, size_t(n));
          for (size_t at; (at = child.text.find(kEnd)) != std::string::npos;) {
            std::string text = child.text.substr(0, at);
            child.text.erase(0, at + 1);
            message(child, text);
          }
        } else if (n == 0) {
          int status = 0;
          waitpid(child.process, &status, 0);
          over(child, "crash", howItEnded(status));
          continue;
        }
      }
      if (child.busy && secondsSince(child.begin) > options.deadline) {
        kill(child.process, SIGKILL);
        waitpid(child.process, nullptr, 0);
        over(child, "hang", "more than " + std::to_string(options.deadline) + " s");
      }
    }
  }
}

std::string inChild(int deadline, const std::function<std::string()> &work, std::string *ended) {
  int ends[2];
  if (pipe(ends) != 0)
    return {};
  pid_t process = forkFlushed();
  if (process == 0) {
    close(ends[0]);
    send(ends[1], work());
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  Clock::time_point begin = Clock::now();
  bool late = false;
  while (true) {
    pollfd polled{ends[0], POLLIN, 0};
    poll(&polled, 1, 200);
    char buffer[65536];
    ssize_t n = polled.revents ? read(ends[0], buffer, sizeof buffer) : -1;
    if (n > 0)
      text.append(buffer, size_t(n));
    else if (n == 0)
      break;
    else if ((late = secondsSince(begin) > deadline)) {
      kill(process, SIGKILL);
      break;
    }
  }
  close(ends[0]);
  int status = 0;
  waitpid(process, &status, 0);
  if (late || status != 0) {
    if (ended)
      *ended = late ? "hang" : howItEnded(status);
    return {};
  }
  return text;
}

Verdict checkAside(const TestModel &model, const WorkOptions &options) {
  CheckOptions own = options.check;
  own.folder = makeFolder();
  std::string ended;
  std::string text = inChild(options.deadline, [&] { return pack(check(model, own)); }, &ended);
  removeFolder(own.folder);
  if (!text.empty())
    return unpack(text);
  Verdict verdict;
  verdict.way = ended == "hang" ? "hang" : "crash";
  verdict.what = verdict.detail = ended == "hang" ? "more than " + std::to_string(options.deadline) + " s" : ended;
  return verdict;
}

} // namespace lathe::fuzz
