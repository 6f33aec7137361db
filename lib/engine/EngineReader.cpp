//===- EngineReader.cpp - reads untrusted engine files ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights are mapped privately where they lie; everything else is copied before it
// is checked, so that nobody can change it between check and use.
//
//===----------------------------------------------------------------------===//

#include "FileLayout.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/support/Sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lathe::engine {

/// Bytes of one section: a part of the file, or memory from aligned_alloc.
struct EngineReader::Mapping {
  void *base = nullptr;
  size_t bytes = 0;
  bool mapped = false;
  size_t ahead = 0; ///< mapped bytes in front of the section: where pages are larger than its alignment
  ~Mapping() {
    if (mapped)
      munmap(static_cast<char *>(base) - ahead, bytes + ahead);
    else
      std::free(base);
  }
};

EngineReader::~EngineReader() = default;

/// Where the bytes come from: a file descriptor or memory.
class EngineLoader {
public:
  EngineLoader(std::string where, EngineReader::Options options)
      : where(std::move(where)), options(options) {}
  ~EngineLoader() {
    if (fd >= 0)
      close(fd);
  }
  Status openFile(const std::string &path);
  void useMemory(std::string_view bytes) {
    memory = bytes;
    size = bytes.size();
  }
  Result<std::shared_ptr<const EngineReader>> load();

private:
  std::string where;
  EngineReader::Options options;
  int fd = -1;
  std::string_view memory;
  uint64_t size = 0;

  std::string at(uint64_t offset) const { return where + ":+" + std::to_string(offset); }
  Status read(uint64_t offset, void *to, size_t bytes);
  Status checkZero(uint64_t from, uint64_t to);
  Result<std::string> fixedText(const char (&field)[64], uint64_t offset);
  Result<std::unique_ptr<EngineReader::Mapping>> loadSection(const layout::SectionEntry &e);
};

Status EngineLoader::openFile(const std::string &path) {
  fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0)
    return runtimeError(std::string("cannot open the engine: ") + std::strerror(errno), path);
  if (!S_ISREG(info.st_mode))
    return runtimeError("not a regular file", path);
  size = static_cast<uint64_t>(info.st_size);
  return okStatus();
}

Status EngineLoader::read(uint64_t offset, void *to, size_t bytes) {
  if (offset > size || bytes > size - offset)
    return invalidError("the file is truncated", at(size));
  if (fd < 0) {
    if (bytes)
      std::memcpy(to, memory.data() + offset, bytes);
    return okStatus();
  }
  auto *p = static_cast<char *>(to);
  while (bytes) {
    ssize_t n = pread(fd, p, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return runtimeError(std::string("cannot read: ") + std::strerror(errno), at(offset));
    if (n == 0)
      return invalidError("the file is truncated", at(offset));
    p += n, offset += static_cast<uint64_t>(n), bytes -= static_cast<size_t>(n);
  }
  return okStatus();
}

Status EngineLoader::checkZero(uint64_t from, uint64_t to) {
  std::vector<char> gap(to - from);
  LATHE_RETURN_IF_ERROR(read(from, gap.data(), gap.size()));
  if (std::any_of(gap.begin(), gap.end(), [](char c) { return c != 0; }))
    return invalidError("bytes between sections are not zero", at(from));
  return okStatus();
}

Result<std::string> EngineLoader::fixedText(const char (&field)[64], uint64_t offset) {
  size_t length = strnlen(field, 64);
  for (size_t i = length; i < 64; ++i)
    if (length == 64 || field[i] != 0)
      return invalidError("a name in the section table is malformed", at(offset));
  return std::string(field, length);
}

Result<std::unique_ptr<EngineReader::Mapping>>
EngineLoader::loadSection(const layout::SectionEntry &e) {
  auto mapping = std::make_unique<EngineReader::Mapping>();
  mapping->bytes = e.length;
  bool isWeights = e.type == static_cast<uint32_t>(SectionType::Weights);
  if (fd >= 0 && isWeights && e.length > 0) {
    mapping->ahead = e.offset % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    void *base = mmap(nullptr, e.length + mapping->ahead, PROT_READ, MAP_PRIVATE, fd,
                      static_cast<off_t>(e.offset - mapping->ahead));
    if (base == MAP_FAILED)
      return runtimeError(std::string("cannot map: ") + std::strerror(errno), at(e.offset));
    mapping->base = static_cast<char *>(base) + mapping->ahead;
    mapping->mapped = true;
  } else {
    size_t rounded = (e.length / kSectionAlignment + 1) * kSectionAlignment;
    mapping->base = std::aligned_alloc(kSectionAlignment, rounded);
    if (!mapping->base)
      return runtimeError("out of memory", at(e.offset));
    LATHE_RETURN_IF_ERROR(read(e.offset, mapping->base, e.length));
  }
  if (isWeights && !options.checkWeights && !options.trusted)
    return mapping;
  Sha256 hash;
  hash.update(mapping->base, e.length);
  if (std::memcmp(hash.digest().data(), e.digest, 32) != 0)
    return invalidError("a section's digest is wrong: the file is damaged", at(e.offset));
  return mapping;
}

Result<std::shared_ptr<const EngineReader>> EngineLoader::load() {
  using namespace layout;
  Header h;
  if (size < sizeof h)
    return invalidError("not an engine: too short", where);
  LATHE_RETURN_IF_ERROR(read(0, &h, sizeof h));
  if (std::memcmp(h.magic, kMagic, 8) != 0)
    return invalidError("not an engine: the magic number is missing", where);
  bool versionMatches = h.version == kFormatVersion;
  Status otherVersion = invalidError("engine format " + std::to_string(h.version) +
                                         ", this runtime reads " + std::to_string(kFormatVersion) +
                                         ": compile the model again",
                                     where);
  bool hasSignature = h.totalBytes <= size && size - h.totalBytes == kSignatureBytes;
  if (h.sectionCount > kMaxSections || (h.totalBytes != size && !hasSignature))
    return versionMatches
               ? invalidError("the file has " + std::to_string(size) + " bytes, its header says " +
                                  std::to_string(h.totalBytes) + ": truncated or damaged",
                              where)
               : otherVersion;
  std::vector<SectionEntry> table(h.sectionCount);
  LATHE_RETURN_IF_ERROR(read(sizeof h, table.data(), table.size() * sizeof(SectionEntry)));
  Header unsignedHeader = h;
  std::memset(unsignedHeader.digest, 0, 32);
  Sha256 hash;
  hash.update(&unsignedHeader, sizeof h);
  hash.update(table.data(), table.size() * sizeof(SectionEntry));
  if (std::memcmp(hash.digest().data(), h.digest, 32) != 0)
    return versionMatches
               ? invalidError("the header's digest is wrong: the file is damaged", where)
               : otherVersion;
  if (!versionMatches)
    return otherVersion;
  if (strnlen(h.buildId, 32) == 32)
    return invalidError("the build id is malformed", where);

  std::shared_ptr<EngineReader> reader(new EngineReader());
  std::memcpy(reader->headerDigest.data(), h.digest, 32);
  if (hasSignature) {
    std::string block(kSignatureBytes, 0);
    LATHE_RETURN_IF_ERROR(read(h.totalBytes, block.data(), block.size()));
    Result<Signature> signature = Signature::parse(block, at(h.totalBytes));
    if (!signature)
      return signature.status();
    reader->signedBy = *signature;
  }
  if (options.trusted)
    LATHE_RETURN_IF_ERROR(
        checkSignature(*options.trusted, reader->signature(), reader->headerDigest, where));
  const uint64_t sectionsEnd = h.totalBytes;
  reader->where = where;
  reader->build = h.buildId;
  reader->totalBytes = size;
  uint64_t end = sizeof h + table.size() * sizeof(SectionEntry);
  for (size_t i = 0; i < table.size(); ++i) {
    const SectionEntry &e = table[i];
    uint64_t place = sizeof h + i * sizeof(SectionEntry);
    if (e.type < 1 || e.type > static_cast<uint32_t>(SectionType::Llm) || e.reserved != 0)
      return invalidError("unknown type of section", at(place));
    // One order of sections, no overlap, no gap of a page or more.
    if (e.offset % kSectionAlignment != 0 || e.offset < end || e.offset > sectionsEnd ||
        e.offset - end >= kSectionAlignment || e.length > sectionsEnd - e.offset)
      return invalidError("a section lies outside the file or over another", at(place));
    LATHE_RETURN_IF_ERROR(checkZero(end, e.offset));
    end = e.offset + e.length;
    EngineReader::Section section{static_cast<SectionType>(e.type), {}, {}, {}, {}};
    for (auto [field, text] :
         {std::pair(&e.name, &section.name), std::pair(&e.entry, &section.entry),
          std::pair(&e.target, &section.target)}) {
      Result<std::string> t = fixedText(*field, place);
      if (!t)
        return t.status();
      *text = *t;
    }
    if (reader->find(section.type, section.name, section.entry, section.target))
      return invalidError("two sections have the same name", at(place));
    auto mapping = loadSection(e);
    if (!mapping)
      return mapping.status();
    section.bytes = {static_cast<const char *>((*mapping)->base), e.length};
    reader->mappings.push_back(std::move(*mapping));
    reader->list.push_back(std::move(section));
  }
  if (end != sectionsEnd)
    return invalidError("bytes behind the last section", at(end));
  return std::shared_ptr<const EngineReader>(std::move(reader));
}

Result<std::shared_ptr<const EngineReader>> EngineReader::open(const std::string &path,
                                                               const Options &options) {
  EngineLoader loader(path, options);
  LATHE_RETURN_IF_ERROR(loader.openFile(path));
  return loader.load();
}

Result<std::shared_ptr<const EngineReader>> EngineReader::fromMemory(std::string_view bytes,
                                                                     const Options &options) {
  EngineLoader loader("engine in memory", options);
  loader.useMemory(bytes);
  return loader.load();
}

const EngineReader::Section *EngineReader::find(SectionType type, std::string_view name,
                                                std::string_view entry,
                                                std::string_view target) const {
  for (const Section &s : list)
    if (s.type == type && s.name == name && s.entry == entry && s.target == target)
      return &s;
  return nullptr;
}

const EngineReader::Section *EngineReader::kernels(std::string_view target) const {
  return find(SectionType::Kernels, "", "", target);
}

Result<std::vector<Plan>> EngineReader::plans() const {
  std::vector<Plan> out;
  for (const Section &s : list) {
    if (s.type != SectionType::Plan)
      continue;
    std::string at = where + ": plan '" + s.entry + "' for " + s.target;
    Result<Plan> plan = parse(s.bytes, at);
    if (!plan)
      return plan.status();
    if (plan->entry != s.entry || plan->target != s.target)
      return invalidError("the plan is for another entry or target", at);
    for (const Weight &w : plan->weights) {
      if (!w.random.empty())
        continue;
      for (int32_t rank = 0; rank < std::max(w.shards, 1); ++rank) {
        const Section *weights = find(
            SectionType::Weights, w.shards ? shardSection(w.section, rank) : w.section);
        if (!weights || w.bytes > weights->bytes.size() ||
            w.offset > weights->bytes.size() - w.bytes)
          return invalidError("weight '" + w.name + "' lies outside its section", at);
      }
    }
    const Section *image = kernels(plan->target);
    if (!image && !plan->kernels.empty())
      return invalidError("the kernels of the target are missing", at);
    if (image && plan->cuda) {
      Result<Archive> archive = parseArchive(image->bytes, where + ": kernels for " + s.target);
      if (!archive)
        return archive.status();
      std::set<std::string> names;
      for (const auto &item : *archive)
        names.insert(item.first);
      for (const Kernel &k : plan->kernels)
        for (const KernelVariant &v : k.variants)
          if (!names.count(v.image))
            return invalidError("kernel '" + k.name + "' has no image '" + v.image + "'", at);
    }
    out.push_back(std::move(*plan));
  }
  return out;
}

} // namespace lathe::engine
