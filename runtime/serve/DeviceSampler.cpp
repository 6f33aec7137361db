//===- DeviceSampler.cpp - draws where the logits are -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DeviceSampler.h"

#include <algorithm>
#include <cstring>

namespace lathe::serve {

using namespace engine;
using runtime::CopyKind;

namespace {

/// Of a function with so many buffers and symbols.
Launch specOf(const char *function, int32_t buffers, int32_t symbols, int64_t blocks) {
  Launch spec;
  spec.function = function;
  spec.block[0] = kSampleThreads;
  spec.cluster[0] = blocks;
  for (int32_t i = 0; i < buffers; ++i)
    spec.args.push_back({KernelArg::Kind::Buffer, i});
  for (int32_t i = 0; i < symbols; ++i)
    spec.args.push_back({KernelArg::Kind::Symbol, i});
  spec.args.push_back({KernelArg::Kind::Status, 0});
  return spec;
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
  sampleSpec = specOf("sampleRows", 6, 2, blocks);
  rankSpec = specOf("rankRows", 6, 2, blocks);
  feedSpec = specOf("feedTokens", 3, 1, 1);
  const char *image = clusters ? kSampleClusterKernel : kSampleKernel;
  for (auto [spec, into] : {std::pair(&sampleSpec, &sample), {&rankSpec, &rank}}) {
    Result<runtime::Function *> function = module->function(image, *spec);
    if (!function)
      return function.status();
    *into = *function;
  }
  if (Result<runtime::Function *> function = module->function(image, feedSpec)) // older engines have none
    feeder = *function;
  LATHE_RETURN_IF_ERROR(powers.reserveWithRoom(sizeof powersOfTwo()));
  LATHE_RETURN_IF_ERROR(
      device.copy(powers.data(), powersOfTwo().data(), sizeof powersOfTwo(), CopyKind::HostToDevice));
  return device.sync();
}

Status DeviceSampler::launch(const Launch &spec, runtime::Function *function, std::span<void *const> buffers,
                             std::span<const int64_t> symbols, size_t rows, int64_t sharedBytes) {
  const KernelVariant variant;
  const std::vector<DType> dtypes(buffers.size(), DType::UI8);
  runtime::LaunchCommand command;
  command.function = function;
  command.spec = &spec;
  command.variant = &variant;
  command.grid[0] = int64_t(rows) * spec.cluster[0];
  command.sharedBytes = sharedBytes;
  command.mayOverlap = false;
  command.buffers = buffers;
  command.dtypes = dtypes;
  command.symbols = symbols;
  return device.launch(command);
}

Status DeviceSampler::launchRows(const Launch &spec, runtime::Function *function, std::span<void *const> buffers,
                                 size_t rows) {
  const int64_t symbols[] = {int64_t(vocabulary), int64_t(inShared)};
  return launch(spec, function, buffers, symbols, rows,
                kSampleFixedBytes +
                    (inShared ? samplePart(vocabulary, spec.cluster[0]) * int64_t(sizeof(uint32_t)) : 0));
}

Status DeviceSampler::draw(const void *logits, const DrawList &list, runtime::Block &staged) {
  const size_t draws = list.draws().size(), ranks = list.ranks().size();
  const size_t up = list.draws().size_bytes() + list.ranks().size_bytes() + list.words().size_bytes();
  const size_t down = draws * sizeof(int64_t) + ranks * sizeof(RankResult);
  LATHE_RETURN_IF_ERROR(given.reserveWithRoom(up));
  LATHE_RETURN_IF_ERROR(taken.reserveWithRoom(down));
  LATHE_RETURN_IF_ERROR(staged.reserveWithRoom(down + up));
  if (!inShared)
    LATHE_RETURN_IF_ERROR(spare.reserveWithRoom(std::max(draws, ranks) * vocabulary * sizeof(uint32_t)));
  auto *back = static_cast<std::byte *>(staged.data()), *host = back + down;
  auto *in = static_cast<std::byte *>(given.data()), *out = static_cast<std::byte *>(taken.data());
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
  std::byte *results = out + draws * sizeof(int64_t);
  if (draws) {
    void *const buffers[] = {from, at[0], at[2], powers.data(), spare.data(), out};
    LATHE_RETURN_IF_ERROR(launchRows(sampleSpec, sample, buffers, draws));
  }
  if (ranks) {
    void *const buffers[] = {from, at[1], powers.data(), spare.data(), out, results};
    LATHE_RETURN_IF_ERROR(launchRows(rankSpec, rank, buffers, ranks));
  }
  return device.copy(back, out, down, CopyKind::DeviceToHost);
}

void DeviceSampler::read(const runtime::Block &staged, const DrawList &list, std::span<int64_t> tokens,
                         std::span<RankResult> ranked) {
  const auto *back = static_cast<const std::byte *>(staged.data());
  if (!tokens.empty())
    std::memcpy(tokens.data(), back, tokens.size_bytes());
  if (!ranked.empty())
    std::memcpy(ranked.data(), back + list.draws().size() * sizeof(int64_t), ranked.size_bytes());
}

Status DeviceSampler::feed(int64_t *tokens, const int64_t *best, size_t count) {
  auto *known = const_cast<int64_t *>(best);
  void *const buffers[] = {tokens, known, taken.data() ? taken.data() : known};
  const int64_t symbols[] = {int64_t(count)};
  return launch(feedSpec, feeder, buffers, symbols, (count + kSampleThreads - 1) / kSampleThreads, 0);
}

} // namespace lathe::serve
