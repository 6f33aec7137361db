//===- EngineWriter.cpp - writes engine files -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FileLayout.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/support/Sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

namespace lathe::engine {
namespace {

std::array<uint8_t, 32> digestOf(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.digest();
}

uint64_t roundUp(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }

/// Appends the bytes piece by piece and gives their pages back meanwhile: the weights of a large
/// model are never there twice.
void moveInto(std::string &file, std::string &bytes) {
  constexpr size_t kPiece = 16 << 20;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    size_t count = std::min(kPiece, bytes.size() - at);
    file.append(bytes, at, count);
    uintptr_t begin = roundUp(reinterpret_cast<uintptr_t>(bytes.data()) + at, page);
    uintptr_t end = (reinterpret_cast<uintptr_t>(bytes.data()) + at + count) / page * page;
    if (begin < end)
      (void)madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
  }
  std::string().swap(bytes);
}

} // namespace

Status EngineWriter::add(Section section) {
  for (const std::string *s : {&section.name, &section.entry, &section.target})
    if (s->size() > kMaxSectionName || s->find('\0') != std::string::npos)
      return usageError("'" + *s + "' is longer than " + std::to_string(kMaxSectionName) +
                        " characters or holds a zero byte");
  for (const Section &s : sections)
    if (std::tie(s.type, s.name, s.entry, s.target) ==
        std::tie(section.type, section.name, section.entry, section.target))
      return usageError("section '" + s.name + s.entry + "' for target '" + s.target +
                        "' is there twice");
  if (section.type == SectionType::Plan)
    section.order = sections.size();
  sections.push_back(std::move(section));
  return okStatus();
}

Status EngineWriter::addPlan(const Plan &plan) {
  Result<std::string> bytes = serialize(plan);
  if (!bytes)
    return bytes.status();
  return add({SectionType::Plan, "", plan.entry, plan.target, std::move(*bytes)});
}

Status EngineWriter::addKernels(std::string target, std::string bytes) {
  return add({SectionType::Kernels, "", "", std::move(target), std::move(bytes)});
}

Result<uint64_t> EngineWriter::addWeight(const std::string &name, std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  auto &known = weightOffsets[name];
  auto [it, isNew] = known.try_emplace(hash.hex(), 0);
  if (!isNew)
    return it->second;
  auto section = std::find_if(sections.begin(), sections.end(), [&](const Section &s) {
    return s.type == SectionType::Weights && s.name == name;
  });
  if (section == sections.end()) {
    LATHE_RETURN_IF_ERROR(add({SectionType::Weights, name, "", "", ""}));
    section = sections.end() - 1;
  }
  uint64_t begin = roundUp(section->bytes.size(), 64), needed = begin + bytes.size();
  if (needed > section->bytes.capacity()) {
    std::string larger;
    larger.reserve(std::max<uint64_t>(needed, 2 * section->bytes.capacity()));
    moveInto(larger, section->bytes);
    section->bytes = std::move(larger);
  }
  section->bytes.resize(begin);
  it->second = begin;
  section->bytes += bytes;
  return it->second;
}

uint64_t EngineWriter::addRandomWeight(DType type, const std::vector<RandomPart> &parts,
                                       uint64_t bytes) {
  std::string key = std::to_string(static_cast<int>(type)) + ":" + std::to_string(bytes);
  for (const RandomPart &p : parts)
    for (uint64_t number : {p.rows, p.columns, p.first, p.pitch})
      key += ":" + std::to_string(number) + p.spread.text();
  auto [it, isNew] = randomOffsets.try_emplace(key, randomEnd);
  if (isNew)
    randomEnd = roundUp(randomEnd + bytes, 256);
  return it->second;
}

Status EngineWriter::addDebug(std::string name, std::string target, std::string bytes) {
  return add({SectionType::Debug, std::move(name), "", std::move(target), std::move(bytes)});
}

Status EngineWriter::addMetadata(std::string name, std::string json) {
  return add({SectionType::Metadata, std::move(name), "", "", std::move(json)});
}

Result<std::string> EngineWriter::str() {
  using namespace layout;
  if (sections.size() > kMaxSections || buildId.size() > 31)
    return usageError("too many sections, or the build id is too long");
  std::sort(sections.begin(), sections.end(), [](const Section &a, const Section &b) {
    return std::tie(a.type, a.order, a.name, a.target) <
           std::tie(b.type, b.order, b.name, b.target);
  });
  std::vector<SectionEntry> table;
  uint64_t end = sizeof(Header) + sections.size() * sizeof(SectionEntry);
  for (const Section &s : sections) {
    SectionEntry e{};
    e.type = static_cast<uint32_t>(s.type);
    e.offset = roundUp(end, kSectionAlignment);
    e.length = s.bytes.size();
    end = e.offset + e.length;
    std::array<uint8_t, 32> digest = digestOf(s.bytes);
    std::memcpy(e.digest, digest.data(), 32);
    std::memcpy(e.name, s.name.data(), s.name.size());
    std::memcpy(e.entry, s.entry.data(), s.entry.size());
    std::memcpy(e.target, s.target.data(), s.target.size());
    table.push_back(e);
  }
  Header h{};
  std::memcpy(h.magic, kMagic, 8);
  h.version = kFormatVersion;
  h.sectionCount = static_cast<uint32_t>(sections.size());
  h.totalBytes = end;
  std::memcpy(h.buildId, buildId.data(), buildId.size());
  Sha256 hash;
  hash.update(&h, sizeof h);
  hash.update(table.data(), table.size() * sizeof(SectionEntry));
  std::array<uint8_t, 32> digest = hash.digest();
  std::memcpy(h.digest, digest.data(), 32);

  std::string file;
  file.reserve(end);
  file.append(reinterpret_cast<const char *>(&h), sizeof h);
  file.append(reinterpret_cast<const char *>(table.data()), table.size() * sizeof(SectionEntry));
  for (size_t i = 0; i < table.size(); ++i) {
    file.resize(table[i].offset);
    moveInto(file, sections[i].bytes);
  }
  sections.clear();
  return file;
}

Status EngineWriter::write(const std::string &path) {
  Result<std::string> file = str();
  if (!file)
    return file.status();
  std::string temporary = path + ".XXXXXX";
  int fd = mkostemp(temporary.data(), O_CLOEXEC);
  auto failed = [&](const char *what) {
    std::string reason = std::strerror(errno);
    if (fd >= 0) {
      close(fd);
      unlink(temporary.c_str());
    }
    return runtimeError(std::string(what) + ": " + reason, path);
  };
  if (fd < 0)
    return failed("cannot create the file");
  std::string_view rest = *file;
  while (!rest.empty()) {
    ssize_t n = ::write(fd, rest.data(), rest.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return failed("cannot write");
    rest.remove_prefix(static_cast<size_t>(n));
  }
  if (fchmod(fd, 0644) != 0 || fsync(fd) != 0 || rename(temporary.c_str(), path.c_str()) != 0)
    return failed("cannot write");
  close(fd);
  return okStatus();
}

} // namespace lathe::engine
