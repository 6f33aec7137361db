//===- DeviceSampler.cpp - draws where the logits are -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DeviceSampler.h"

#include <algorithm>
#include <cstring>

namespace lathe::serve {

using namespace engine;
using runtime::CopyKind;

namespace {

/// Of a function with so many buffers, and the symbols `vocabulary` and `inShared`.
Launch specOf(const char *function, int32_t buffers, int64_t blocks) {
  Launch spec;
  spec.function = function;
  spec.block[0] = kSampleThreads;
  spec.cluster[0] = blocks;
  for (int32_t i = 0; i < buffers; ++i)
    spec.args.push_back({KernelArg::Kind::Buffer, i});
  for (int32_t i = 0; i < 2; ++i)
    spec.args.push_back({KernelArg::Kind::Symbol, i});
  spec.args.push_back({KernelArg::Kind::Status, 0});
  return spec;
}

Status reserve(runtime::Block &block, size_t bytes) {
  bool moved = false;
  return block.reserve(runtime::Block::roomFor(bytes, block.bytes()), moved);
}

} // namespace

Result<std::unique_ptr<DeviceSampler>> DeviceSampler::create(std::shared_ptr<const runtime::Engine> engine,
                                                             const std::string &target, runtime::Device &device,
                                                             uint32_t vocabulary) {
  std::unique_ptr<DeviceSampler> sampler(new DeviceSampler(std::move(engine), device, vocabulary));
  const auto *section = sampler->engine->file().kernels(target);
  if (device.isHost() || !section || vocabulary >= kMostSampled)
    return std::unique_ptr<DeviceSampler>();
  Result<Archive> images = parseArchive(section->bytes, "kernels of " + target);
  if (!images)
    return images.status();
  auto has = [&](const char *name) {
    return std::any_of(images->begin(), images->end(), [&](const auto &image) { return image.first == name; });
  };
  const bool clusters = has(kSampleClusterKernel);
  if (!clusters && !has(kSampleKernel))
    return std::unique_ptr<DeviceSampler>();
  Result<std::unique_ptr<runtime::Module>> module = device.load(section->bytes);
  if (!module)
    return module.status();
  sampler->module = std::move(*module);
  LATHE_RETURN_IF_ERROR(sampler->load(clusters));
  return sampler;
}

Status DeviceSampler::load(bool clusters) {
  const int64_t blocks = clusters ? kSampleBlocks : 1;
  constexpr int64_t kMostShared = 208 << 10; // of a block on sm_90 and sm_100
  inShared = blocks > 1 && samplePart(vocabulary, blocks) * 4 + kSampleFixedBytes <= kMostShared;
  sampleSpec = specOf("sampleRows", 6, blocks);
  rankSpec = specOf("rankRows", 6, blocks);
  for (auto [spec, into] : {std::pair(&sampleSpec, &sample), {&rankSpec, &rank}}) {
    Result<runtime::Function *> function = module->function(clusters ? kSampleClusterKernel : kSampleKernel, *spec);
    if (!function)
      return function.status();
    *into = *function;
  }
  LATHE_RETURN_IF_ERROR(reserve(powers, sizeof powersOfTwo()));
  LATHE_RETURN_IF_ERROR(
      device.copy(powers.data(), powersOfTwo().data(), sizeof powersOfTwo(), CopyKind::HostToDevice));
  return device.sync();
}

Status DeviceSampler::launch(const Launch &spec, runtime::Function *function, std::span<void *const> buffers,
                             size_t rows) {
  const KernelVariant variant;
  const std::vector<DType> dtypes(buffers.size(), DType::UI8);
  const int64_t symbols[] = {int64_t(vocabulary), int64_t(inShared)};
  runtime::LaunchCommand command;
  command.function = function;
  command.spec = &spec;
  command.variant = &variant;
  command.grid[0] = int64_t(rows) * spec.cluster[0];
  command.sharedBytes =
      kSampleFixedBytes + (inShared ? samplePart(vocabulary, spec.cluster[0]) * int64_t(sizeof(uint32_t)) : 0);
  command.mayOverlap = false;
  command.buffers = buffers;
  command.dtypes = dtypes;
  command.symbols = symbols;
  return device.launch(command);
}

Status DeviceSampler::draw(const void *logits, const DrawList &list, std::span<int64_t> tokens,
                           std::span<RankResult> ranked) {
  const size_t draws = list.draws().size(), ranks = list.ranks().size();
  const size_t up = list.draws().size_bytes() + list.ranks().size_bytes() + list.words().size_bytes();
  const size_t down = tokens.size_bytes() + ranked.size_bytes();
  LATHE_RETURN_IF_ERROR(reserve(given, up));
  LATHE_RETURN_IF_ERROR(reserve(taken, down));
  LATHE_RETURN_IF_ERROR(reserve(staged, up + down));
  if (!inShared)
    LATHE_RETURN_IF_ERROR(reserve(spare, std::max(draws, ranks) * vocabulary * sizeof(uint32_t)));
  auto *host = static_cast<std::byte *>(staged.data()), *in = static_cast<std::byte *>(given.data()),
       *out = static_cast<std::byte *>(taken.data());
  std::byte *at[4] = {in}; // draws, ranks, words, and their end
  size_t part = 0;
  auto put = [&](auto values) {
    if (!values.empty())
      std::memcpy(host + (at[part] - in), values.data(), values.size_bytes());
    at[part + 1] = at[part] + values.size_bytes();
    ++part;
  };
  put(list.draws());
  put(list.ranks());
  put(list.words());
  LATHE_RETURN_IF_ERROR(device.copy(in, host, up, CopyKind::HostToDevice));
  void *from = const_cast<void *>(logits);
  std::byte *results = out + tokens.size_bytes();
  if (draws) {
    void *const buffers[] = {from, at[0], at[2], powers.data(), spare.data(), out};
    LATHE_RETURN_IF_ERROR(launch(sampleSpec, sample, buffers, draws));
  }
  if (ranks) {
    void *const buffers[] = {from, at[1], powers.data(), spare.data(), out, results};
    LATHE_RETURN_IF_ERROR(launch(rankSpec, rank, buffers, ranks));
  }
  LATHE_RETURN_IF_ERROR(device.copy(host + up, out, down, CopyKind::DeviceToHost));
  LATHE_RETURN_IF_ERROR(device.sync());
  if (draws)
    std::memcpy(tokens.data(), host + up, tokens.size_bytes());
  if (ranks)
    std::memcpy(ranked.data(), host + up + tokens.size_bytes(), ranked.size_bytes());
  return okStatus();
}

} // namespace lathe::serve
