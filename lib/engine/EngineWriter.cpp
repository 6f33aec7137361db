//===- EngineWriter.cpp - writes engine files -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FileLayout.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/engine/Llm.h"
#include "lathe/support/Parallel.h"
#include "lathe/support/Sha256.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <tuple>

namespace lathe::engine {
namespace {

uint64_t roundUp(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }

/// Weights are made, hashed and written in blocks that end at multiples of this in the file: the
/// system keeps what is written so in huge pages, and maps them when the engine runs. Larger ones cut
/// fewer panels in two, which then are packed twice.
constexpr uint64_t kBlockBytes = 4 << 20;

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
  return add({SectionType::Plan, "", plan.entry, plan.target, std::move(*bytes), 0, {}, 0});
}

Status EngineWriter::addKernels(std::string target, std::string bytes) {
  return add({SectionType::Kernels, "", "", std::move(target), std::move(bytes), 0, {}, 0});
}

Result<uint64_t> EngineWriter::addWeight(const std::string &name, const std::string &key,
                                         WeightBytes weight) {
  auto [it, isNew] = weightOffsets[name].try_emplace(key, 0);
  if (!isNew)
    return it->second;
  auto section = std::find_if(sections.begin(), sections.end(), [&](const Section &s) {
    return s.type == SectionType::Weights && s.name == name;
  });
  if (section == sections.end()) {
    Section fresh{};
    fresh.type = SectionType::Weights;
    fresh.name = name;
    LATHE_RETURN_IF_ERROR(add(std::move(fresh)));
    section = sections.end() - 1;
  }
  it->second = roundUp(section->length, 64);
  section->length = it->second + weight.bytes;
  if (weight.bytes)
    section->weights[it->second] = std::move(weight);
  return it->second;
}

Result<uint64_t> EngineWriter::addWeight(const std::string &name, std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  auto copy = std::make_shared<const std::string>(bytes);
  return addWeight(name, hash.hex(),
                   {bytes.size(), [copy](uint64_t at, std::span<std::byte> out) {
                      std::memcpy(out.data(), copy->data() + at, out.size());
                    }});
}

uint64_t EngineWriter::addRandomWeight(DType type, const std::vector<RandomPart> &parts,
                                       uint64_t bytes) {
  std::string key = std::to_string(static_cast<int>(type)) + ":" + std::to_string(bytes);
  for (const RandomPart &p : parts)
    for (uint64_t number : {p.rows, p.columns, p.first, p.pitch, p.from, p.fromPitch, uint64_t(p.rank + 1)})
      key += ":" + std::to_string(number) + p.spread.text();
  auto [it, isNew] = randomOffsets.try_emplace(key, randomEnd);
  if (isNew)
    randomEnd = roundUp(randomEnd + bytes, 256);
  return it->second;
}

Status EngineWriter::addDebug(std::string name, std::string target, std::string bytes) {
  return add({SectionType::Debug, std::move(name), "", std::move(target), std::move(bytes), 0, {}, 0});
}

Status EngineWriter::addMetadata(std::string name, std::string json) {
  return add({SectionType::Metadata, std::move(name), "", "", std::move(json), 0, {}, 0});
}

Status EngineWriter::addLlm(std::string bytes) {
  return add({SectionType::Llm, kLlmSection, "", "", std::move(bytes), 0, {}, 0});
}

/// Bytes of a Weights section that are made together.
struct EngineWriter::Block {
  Section *section = nullptr;
  uint64_t begin = 0, end = 0; ///< in the section
  uint64_t offset = 0;         ///< of `begin` in the file
  size_t index = 0;            ///< of the section
};

std::vector<EngineWriter::Block> EngineWriter::cutBlocks(Section &section, uint64_t offset) {
  std::vector<Block> blocks;
  for (uint64_t at = 0; at < section.length;) {
    uint64_t end = std::min(section.length, at + kBlockBytes - (offset + at) % kBlockBytes);
    blocks.push_back({&section, at, end, offset + at, 0});
    at = end;
  }
  return blocks;
}

void EngineWriter::fill(const Block &block, std::span<std::byte> out) {
  std::memset(out.data(), 0, out.size());
  const auto &weights = block.section->weights;
  for (auto it = std::prev(weights.upper_bound(block.begin));
       it != weights.end() && it->first < block.end; ++it) {
    const auto &[first, weight] = *it;
    uint64_t from = std::max(block.begin, first), to = std::min(block.end, first + weight.bytes);
    if (from < to)
      weight.make(from - first, out.subspan(from - block.begin, to - from));
  }
}

Result<uint64_t> EngineWriter::write(ByteSink &sink) {
  using namespace layout;
  if (sections.size() > kMaxSections || buildId.size() > 31)
    return usageError("too many sections, or the build id is too long");
  std::sort(sections.begin(), sections.end(), [](const Section &a, const Section &b) {
    return std::tie(a.type, a.order, a.name, a.target) <
           std::tie(b.type, b.order, b.name, b.target);
  });
  std::vector<SectionEntry> table;
  std::vector<Block> blocks;
  uint64_t end = sizeof(Header) + sections.size() * sizeof(SectionEntry);
  for (Section &s : sections) {
    SectionEntry e{};
    e.type = static_cast<uint32_t>(s.type);
    e.offset = roundUp(end, kSectionAlignment);
    e.length = s.bytes.size() + s.length;
    end = e.offset + e.length;
    std::memcpy(e.name, s.name.data(), s.name.size());
    std::memcpy(e.entry, s.entry.data(), s.entry.size());
    std::memcpy(e.target, s.target.data(), s.target.size());
    for (Block block : cutBlocks(s, e.offset)) {
      block.index = table.size();
      blocks.push_back(block);
    }
    table.push_back(e);
  }
  LATHE_RETURN_IF_ERROR(sink.begin(end));

  std::vector<Sha256> digests(sections.size());
  for (size_t i = 0; i < sections.size(); ++i) {
    digests[i].update(sections[i].bytes);
    LATHE_RETURN_IF_ERROR(sink.put(table[i].offset, sections[i].bytes));
  }
  std::mutex mutex;
  std::condition_variable turned;
  size_t turn = 0; // blocks are hashed in their order
  Status status;
  BufferPool buffers;
  inParallel(blocks.size(), [&](size_t i) {
    const Block &block = blocks[i];
    std::vector<std::byte> buffer = buffers.take(block.end - block.begin);
    std::span<std::byte> bytes(buffer.data(), block.end - block.begin);
    fill(block, bytes);
    std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    Status written = sink.put(block.offset, text);
    std::unique_lock lock(mutex);
    turned.wait(lock, [&] { return turn == i; });
    lock.unlock();
    digests[block.index].update(text);
    lock.lock();
    ++turn;
    if (status.ok())
      status = written;
    turned.notify_all();
    lock.unlock();
    buffers.give(std::move(buffer));
  });
  LATHE_RETURN_IF_ERROR(status);

  Header h{};
  std::memcpy(h.magic, kMagic, 8);
  h.version = kFormatVersion;
  h.sectionCount = static_cast<uint32_t>(sections.size());
  h.totalBytes = end;
  std::memcpy(h.buildId, buildId.data(), buildId.size());
  for (size_t i = 0; i < table.size(); ++i)
    std::memcpy(table[i].digest, digests[i].digest().data(), 32);
  Sha256 hash;
  hash.update(&h, sizeof h);
  hash.update(table.data(), table.size() * sizeof(SectionEntry));
  std::memcpy(h.digest, hash.digest().data(), 32);
  std::string head(reinterpret_cast<const char *>(&h), sizeof h);
  head.append(reinterpret_cast<const char *>(table.data()), table.size() * sizeof(SectionEntry));
  LATHE_RETURN_IF_ERROR(sink.put(0, head));
  sections.clear();
  weightOffsets.clear();
  return end;
}

Result<std::string> EngineWriter::str() {
  StringSink file;
  Result<uint64_t> size = write(file);
  return size ? Result<std::string>(std::move(file.bytes)) : Result<std::string>(size.status());
}

} // namespace lathe::engine
