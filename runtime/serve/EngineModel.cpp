//===- EngineModel.cpp - the steps of an engine -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EngineModel.h"
#include "../Handles.h"
#include "../exec/Context.h"
#include "lathe/support/HostTensor.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lathe::serve {

namespace {

/// Products take rows in register tiles of 8, or 6 where there are few registers (codegen/select/ChooseCpu.cpp), and
/// sum in the same order in all of them; rows that fill no tile, or stand alone, are summed in another.
constexpr size_t kRowsOfTiles = 24;
constexpr const char *kInputs[] = {"tokens", "positions", "requests", "slots", "tables", "rows", "pool", "scales"};

/// Takes the error over.
Status statusOf(lathe_error *error) {
  if (!error)
    return okStatus();
  Status status(static_cast<ErrorCode>(lathe_error_code(error)), lathe_error_message(error),
                lathe_error_location(error));
  lathe_error_free(error);
  return status;
}

lathe_tensor numbers(std::span<const int64_t> values, const int64_t *dims, int32_t rank) {
  lathe_tensor tensor = {};
  tensor.data = const_cast<int64_t *>(values.data());
  tensor.bytes = values.size_bytes();
  tensor.dtype = LATHE_I64;
  tensor.memory = LATHE_HOST;
  tensor.rank = rank;
  tensor.dims = dims;
  return tensor;
}

} // namespace

Result<std::unique_ptr<EngineModel>> EngineModel::create(const lathe_engine *engine, const engine::LlmInfo &info,
                                                         const EngineModelOptions &wanted) {
  if (info.groups.size() != 1)
    return unsupportedError("caches of several forms", "llm section");
  const char *name = info.entry.c_str();
  const bool coded = info.groups[0].layout.scales != engine::KvScales::None;
  const size_t inputs = std::size(kInputs) - !coded;
  const DType stored = info.groups[0].layout.dtype;
  bool fits = coded == (stored == DType::I8 || stored == DType::I4) && lathe_engine_input_count(engine, name) == inputs &&
              lathe_engine_output_count(engine, name) == (coded ? 4u : 3u);
  for (size_t i = 0; fits && i < inputs; ++i)
    fits = std::strcmp(lathe_engine_input(engine, name, i)->name, kInputs[i]) == 0;
  if (!fits)
    return invalidError("has other inputs or outputs than a step", "entry '" + info.entry + "'");
  std::unique_ptr<EngineModel> model(new EngineModel);
  lathe_options options = {};
  options.size = sizeof options;
  options.threads = wanted.threads;
  options.no_graphs = !wanted.graphs;
  LATHE_RETURN_IF_ERROR(statusOf(lathe_context_create(engine, wanted.device.c_str(), &options, &model->context)));
  model->device = runtime::contextOf(model->context)->deviceHandle();
  if (wanted.batchInvariant && !info.batchInvariant && !model->device->isHost())
    return unsupportedError("products of a GPU sum in an order that depends on the tokens of a step: compile with "
                            "--batch-invariant",
                            "device " + wanted.device);
  const engine::KvGroup &group = info.groups[0];
  const engine::KvLayout &layout = group.layout;
  model->entry = info.entry;
  model->logitType = lathe_engine_output(engine, name, 0)->dtype;
  // Two codes of 4 bits are a byte of the pool.
  const bool halves = coded && layout.dtype == DType::I4;
  model->dtype = static_cast<lathe_dtype>(halves ? DType::UI8 : layout.dtype);
  model->padTo = wanted.batchInvariant && !info.batchInvariant ? kRowsOfTiles : 1;
  model->buckets = !model->device->isHost();
  // Blocks behind the cache's, for tokens that pad a step.
  size_t most = 0;
  for (size_t tokens = 1; tokens <= wanted.stepTokens; ++tokens)
    most = std::max(most, model->rounded(tokens) - tokens);
  const int64_t spare = int64_t(most + layout.blockTokens - 1) / layout.blockTokens;
  model->poolDims = {int64_t(wanted.blocks) + spare, group.layers, 2, layout.blockTokens, layout.heads,
                     layout.headSizeK / (halves ? 2 : 1)};
  if (coded)
    model->scaleDims = {model->poolDims[0], group.layers, 2, layout.heads, layout.blockTokens};
  model->spareSlot = int64_t(wanted.blocks) * layout.blockTokens;
  LATHE_RETURN_IF_ERROR(model->makePool(wanted.hostBlocks));
  auto sampler = DeviceSampler::create(runtime::engineOf(engine), runtime::contextOf(model->context)->target(),
                                       *model->device, info.vocabulary);
  if (!sampler)
    return sampler.status();
  model->sampler = std::move(*sampler);
  return model;
}

Status EngineModel::makePool(uint32_t hostBlocks) {
  poolBytes = lathe_tensor_bytes(dtype, int32_t(poolDims.size()), poolDims.data());
  if (!poolBytes)
    return unsupportedError("the pool is larger than memory can be", "llm section");
  blockBytes = poolBytes / uint64_t(poolDims[0]);
  pool = runtime::Block(*device, /*onHost=*/false);
  bool moved = false;
  if (Status status = pool.reserve(poolBytes, moved); !status.ok())
    return Status(status.code(), status.message(), "a pool of " + std::to_string(poolBytes) + " bytes");
  // What lies behind a sequence's last token is read, and weighed with 0: it must be a number.
  LATHE_RETURN_IF_ERROR(device->zero(pool.data(), poolBytes));
  if (!scaleDims.empty()) {
    scaleBytes = lathe_tensor_bytes(LATHE_F32, int32_t(scaleDims.size()), scaleDims.data());
    blockScales = scaleBytes / uint64_t(scaleDims[0]);
    scales = runtime::Block(*device, /*onHost=*/false);
    if (Status status = scales.reserve(scaleBytes, moved); !status.ok())
      return Status(status.code(), status.message(), "scales of " + std::to_string(scaleBytes) + " bytes");
    LATHE_RETURN_IF_ERROR(device->zero(scales.data(), scaleBytes));
  }
  if (hostBlocks) {
    const uint64_t bytes = hostBlocks * (blockBytes + blockScales);
    swapSpace = runtime::Block(*device, /*onHost=*/true);
    if (Status status = swapSpace.reserve(bytes, moved); !status.ok())
      return Status(status.code(), status.message(), "host memory of " + std::to_string(bytes) + " bytes for blocks");
  }
  return device->sync();
}

EngineModel::~EngineModel() {
  if (context)
    lathe_context_destroy(context);
}

/// How many tokens, or requests, a step has for so many. A GPU keeps a graph for each combination of sizes: there
/// are two sizes from one power of two to the next.
size_t EngineModel::rounded(size_t count) const {
  if (!buckets)
    return (count + padTo - 1) / padTo * padTo;
  const size_t power = std::bit_ceil(count);
  return power > 8 && count <= power / 4 * 3 ? power / 4 * 3 : power;
}

/// Repeats the first request and its first token, with keys and values in slots that nobody reads.
void EngineModel::pad(const Batch &given) {
  padded.tokens = given.tokens;
  padded.positions = given.positions;
  padded.requests = given.requests;
  padded.slots = given.slots;
  padded.rows = given.rows;
  const size_t tokens = rounded(given.tokens.size()), rows = rounded(given.rows.size());
  padded.tokens.resize(tokens, given.tokens[0]);
  padded.positions.resize(tokens, 0);
  padded.requests.resize(tokens, 0);
  for (int64_t slot = spareSlot; padded.slots.size() < tokens; ++slot)
    padded.slots.push_back(slot);
  padded.rows.resize(rows, given.rows[0]);
  padded.pages = buckets ? int64_t(std::bit_ceil(uint64_t(given.pages))) : given.pages;
  padded.tables.assign(rows * size_t(padded.pages), 0);
  for (size_t r = 0; r < rows; ++r)
    std::copy_n(given.tables.begin() + (r < given.rows.size() ? int64_t(r) * given.pages : 0), given.pages,
                padded.tables.begin() + int64_t(r) * padded.pages);
}

Status EngineModel::run(const Batch &given, std::span<float> logits, std::span<int64_t> best) {
  if (padTo == 1 && !buckets)
    return runPadded(given, logits, best);
  pad(given);
  all.resize(logits.size() / given.rows.size() * padded.rows.size());
  allBest.resize(padded.rows.size());
  LATHE_RETURN_IF_ERROR(runPadded(padded, all, allBest));
  std::copy_n(all.begin(), logits.size(), logits.begin());
  std::copy_n(allBest.begin(), best.size(), best.begin());
  return okStatus();
}

Status EngineModel::runPadded(const Batch &batch, std::span<float> logits, std::span<int64_t> best) {
  const int64_t tokens = int64_t(batch.tokens.size()), rows = int64_t(batch.rows.size());
  const int64_t tables[] = {rows, batch.pages};
  auto inPlace = [](runtime::Block &block, uint64_t bytes, lathe_dtype type, const std::vector<int64_t> &dims) {
    lathe_tensor memory = {};
    memory.data = block.data();
    memory.bytes = bytes;
    memory.dtype = type;
    memory.memory = LATHE_DEVICE; // read and written where it is
    memory.rank = int32_t(dims.size());
    memory.dims = dims.data();
    return memory;
  };
  const size_t coded = scaleDims.empty() ? 0 : 1;
  const lathe_tensor memory = inPlace(pool, poolBytes, dtype, poolDims);
  const lathe_tensor scale = coded ? inPlace(scales, scaleBytes, LATHE_F32, scaleDims) : lathe_tensor{};
  lathe_tensor inputs[] = {numbers(batch.tokens, &tokens, 1),   numbers(batch.positions, &tokens, 1),
                           numbers(batch.requests, &tokens, 1), numbers(batch.slots, &tokens, 1),
                           numbers(batch.tables, tables, 2),    numbers(batch.rows, &rows, 1),
                           memory, scale};
  const int64_t logitDims[] = {rows, rows ? int64_t(logits.size()) / rows : 0};
  narrow.resize(logitType == LATHE_F32 ? 0 : lathe_tensor_bytes(logitType, 2, logitDims));
  lathe_tensor outputs[] = {{}, numbers(best, &rows, 1), memory, scale};
  if (logits.empty()) {
    outputs[0].memory = LATHE_DEVICE; // where it stays
  } else {
    outputs[0].data = narrow.empty() ? static_cast<void *>(logits.data()) : narrow.data();
    outputs[0].bytes = narrow.empty() ? logits.size_bytes() : narrow.size();
  }
  LATHE_RETURN_IF_ERROR(
      statusOf(lathe_run(context, entry.c_str(), inputs, std::size(kInputs) - 1 + coded, outputs, 3 + coded)));
  const lathe_tensor &found = outputs[0];
  logitsAt = found.memory == LATHE_DEVICE ? found.data : nullptr;
  if (found.rank != 2 || found.dims[0] != rows || (!logits.empty() && rows * found.dims[1] != int64_t(logits.size())))
    return internalError("logits of other sizes than requests and vocabulary", "entry '" + entry + "'");
  for (size_t i = 0; i < (narrow.empty() ? 0 : logits.size()); ++i)
    logits[i] = float(loadReal(static_cast<DType>(logitType), narrow.data(), int64_t(i)));
  return okStatus();
}

Status EngineModel::draw(const DrawList &list, std::span<int64_t> tokens, std::span<engine::RankResult> ranked) {
  if (!sampler || !logitsAt)
    return internalError("there are no logits to draw from");
  return sampler->draw(logitsAt, list, tokens, ranked);
}

Status EngineModel::copyBlock(kv::BlockId from, kv::BlockId to) {
  auto copy = [&](runtime::Block &block, uint64_t bytes) {
    auto *first = static_cast<std::byte *>(block.data());
    return device->copy(first + to * bytes, first + from * bytes, bytes, runtime::CopyKind::DeviceToDevice);
  };
  LATHE_RETURN_IF_ERROR(copy(pool, blockBytes));
  return scaleDims.empty() ? okStatus() : copy(scales, blockScales);
}

Status EngineModel::swapBlock(kv::BlockId deviceBlock, kv::BlockId host, SwapWay way) {
  // In host memory a block's scales stand behind it.
  auto *here = static_cast<std::byte *>(swapSpace.data()) + host * (blockBytes + blockScales);
  auto move = [&](runtime::Block &block, std::byte *host, uint64_t bytes) {
    auto *there = static_cast<std::byte *>(block.data()) + deviceBlock * bytes;
    return way == SwapWay::ToHost ? device->copy(host, there, bytes, runtime::CopyKind::DeviceToHost)
                                  : device->copy(there, host, bytes, runtime::CopyKind::HostToDevice);
  };
  LATHE_RETURN_IF_ERROR(move(pool, here, blockBytes));
  return scaleDims.empty() ? okStatus() : move(scales, here + blockBytes, blockScales);
}

} // namespace lathe::serve
