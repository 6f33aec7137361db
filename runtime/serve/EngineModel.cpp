//===- EngineModel.cpp - the steps of an engine -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EngineModel.h"
#include "../Handles.h"
#include "../exec/Context.h"
#include "lathe/support/HostTensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace lathe::serve {

namespace {

/// Products take rows in register tiles of 8, or 6 where there are few registers (codegen/select/ChooseCpu.cpp), and
/// sum in the same order in all of them; rows that fill no tile, or stand alone, are summed in another.
constexpr size_t kRowsOfTiles = 24;
/// Until a step is over, on a GPU.
constexpr int64_t kPatience = int64_t(60) * 1000000000;
constexpr uint64_t kUploadAlignment = 256; // of the parts of an upload, as of any memory that a device gives

/// What a step takes, by name and in order.
std::vector<std::string> namesOfInputs(std::span<const engine::KvGroup> groups, bool coded) {
  std::vector<std::string> names{"tokens", "positions", "requests"};
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string number = g ? std::to_string(g) : "";
    names.insert(names.end(), {"slots" + number, "tables" + number});
    if (groups[g].kind == engine::KvGroupKind::Window)
      names.push_back("places" + number);
  }
  names.insert(names.end(), {"rows", "pool"});
  if (coded)
    names.push_back("scales");
  return names;
}

/// Takes the error over.
Status statusOf(lathe_error *error) {
  if (!error)
    return okStatus();
  Status status(static_cast<ErrorCode>(lathe_error_code(error)), lathe_error_message(error),
                lathe_error_location(error));
  lathe_error_free(error);
  return status;
}

/// Memory of the context's device, read and written where it is.
lathe_tensor onDevice(const runtime::Block &block, uint64_t bytes, lathe_dtype type, std::span<const int64_t> dims) {
  lathe_tensor tensor = {};
  tensor.data = block.data();
  tensor.bytes = bytes;
  tensor.dtype = type;
  tensor.memory = LATHE_DEVICE;
  tensor.rank = int32_t(dims.size());
  tensor.dims = dims.data();
  return tensor;
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
  const engine::KvGroup &first = info.groups[0];
  uint32_t layers = 0; // of a page, which is any group's
  for (const engine::KvGroup &group : info.groups) {
    if (!(group.layout == first.layout) ||
        (group.kind != engine::KvGroupKind::Full && group.kind != engine::KvGroupKind::Window))
      return unsupportedError("caches of several forms", "llm section");
    layers = std::max(layers, group.layers);
  }
  const char *name = info.entry.c_str();
  const bool coded = first.layout.scales != engine::KvScales::None;
  const std::vector<std::string> names = namesOfInputs(info.groups, coded);
  const DType stored = first.layout.dtype;
  bool fits = coded == (stored == DType::I8 || stored == DType::I4) &&
              lathe_engine_input_count(engine, name) == names.size() &&
              lathe_engine_output_count(engine, name) == (coded ? 4u : 3u);
  for (size_t i = 0; fits && i < names.size(); ++i)
    fits = lathe_engine_input(engine, name, i)->name == names[i];
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
  const engine::KvLayout &layout = first.layout;
  model->inputs.resize(names.size());
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
  model->poolDims = {int64_t(wanted.blocks) + spare, layers, 2, layout.blockTokens, layout.heads,
                     layout.headSizeK / (halves ? 2 : 1)};
  if (coded)
    model->scaleDims = {model->poolDims[0], layers, 2, layout.heads, layout.blockTokens};
  model->spareSlot = int64_t(wanted.blocks) * layout.blockTokens;
  LATHE_RETURN_IF_ERROR(model->makePool(wanted.hostBlocks));
  auto sampler = DeviceSampler::create(runtime::engineOf(engine), runtime::contextOf(model->context)->target(),
                                       *model->device, info.vocabulary);
  if (!sampler)
    return sampler.status();
  model->sampler = std::move(*sampler);
  model->vocabulary = info.vocabulary;
  model->overlap = wanted.overlap && (model->sampler ? model->sampler->feeds() : model->device->isHost());
  if (!model->sampler)
    return model;
  for (runtime::Block *block : {&model->logitsOnDevice, &model->uploaded})
    *block = runtime::Block(*model->device, /*onHost=*/false);
  for (Flight &flight : model->flights) {
    for (runtime::Block *block : {&flight.upload, &flight.results, &flight.drawn})
      *block = runtime::Block(*model->device, /*onHost=*/true);
    // As much as a step may have: it never moves, as the step behind reads what this one has found.
    LATHE_RETURN_IF_ERROR(flight.results.reserveWithRoom(model->rounded(wanted.stepTokens) * sizeof(int64_t)));
    Result<runtime::MarkHandle> mark = model->device->makeMark();
    if (!mark)
      return mark.status();
    flight.mark = *mark;
  }
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
  if (!context)
    return;
  abandon();
  for (Flight &flight : flights)
    if (flight.mark)
      device->destroyMark(flight.mark);
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
void EngineModel::pad(Batch &batch) const {
  const size_t tokens = rounded(batch.tokens.size()), rows = rounded(batch.rows.size()), given = batch.rows.size();
  batch.tokens.resize(tokens, batch.tokens[0]);
  batch.positions.resize(tokens, 0);
  batch.requests.resize(tokens, 0);
  batch.rows.resize(rows, batch.rows[0]);
  for (Batch::Places &group : batch.groups) {
    for (int64_t slot = spareSlot; group.slots.size() < tokens; ++slot)
      group.slots.push_back(slot);
    if (!group.places.empty())
      group.places.resize(tokens, 0);
    group.tables.resize(rows * size_t(group.pages));
    for (size_t r = given; r < rows; ++r)
      std::copy_n(group.tables.begin(), group.pages, group.tables.begin() + int64_t(r) * group.pages);
  }
}

/// The numbers of a batch, whose sizes stay until the step has them, and the pool.
void EngineModel::giveInputs(const Flight &flight, const int64_t *tokens) {
  const Batch &batch = *flight.batch;
  size_t at = 0;
  auto give = [&](const lathe_tensor &tensor) { inputs[at++] = tensor; };
  for (const std::vector<int64_t> *values : {&batch.tokens, &batch.positions, &batch.requests})
    give(numbers(*values, tokens, 1));
  tableDims.clear();
  for (const Batch::Places &group : batch.groups)
    tableDims.push_back({flight.rows, group.pages});
  for (size_t g = 0; g < batch.groups.size(); ++g) {
    const Batch::Places &group = batch.groups[g];
    give(numbers(group.slots, tokens, 1));
    give(numbers(group.tables, tableDims[g].data(), 2));
    if (!group.places.empty())
      give(numbers(group.places, tokens, 1));
  }
  give(numbers(batch.rows, &flight.rows, 1));
  give(flight.outputs[2]);
  if (!scaleDims.empty())
    give(flight.outputs[3]);
}

int64_t EngineModel::roundedPages(int64_t pages) const {
  return buckets ? int64_t(std::bit_ceil(uint64_t(pages))) : pages;
}

/// On a CPU the step ahead is over: its tokens are known.
void EngineModel::tellTokens(Batch &batch) const {
  const StepResults *before = flights[placeOf(launchedSteps + 1)].into;
  for (int64_t &token : batch.tokens)
    if (token < 0)
      token = before->best[size_t(~token)];
}

Status EngineModel::launch(Batch &batch, StepResults &into) {
  if (padTo != 1 || buckets)
    pad(batch);
  if (!sampler)
    tellTokens(batch);
  Flight &flight = flightAt(launchedSteps);
  flight.batch = &batch;
  flight.into = &into;
  flight.draws = nullptr;
  flight.rows = int64_t(batch.rows.size());
  LATHE_RETURN_IF_ERROR(start(flight));
  ++launchedSteps;
  return okStatus();
}

Status EngineModel::start(Flight &flight) {
  const Batch &batch = *flight.batch;
  const int64_t tokens = int64_t(batch.tokens.size());
  const size_t coded = scaleDims.empty() ? 0 : 1;
  const lathe_tensor memory = onDevice(pool, poolBytes, dtype, poolDims);
  const lathe_tensor scale = coded ? onDevice(scales, scaleBytes, LATHE_F32, scaleDims) : lathe_tensor{};
  const bool reads = !flight.into->logits.empty();
  flight.logitDims[0] = flight.rows;
  flight.logitDims[1] = vocabulary;
  const uint64_t logitBytes = lathe_tensor_bytes(logitType, 2, flight.logitDims), bestBytes = uint64_t(flight.rows) * 8;
  flight.outputs[0] = flight.outputs[1] = {};
  flight.outputs[2] = memory;
  flight.outputs[3] = scale;
  giveInputs(flight, &tokens);
  std::optional<runtime::DeviceUse> use; // of one driver for all that is enqueued
  if (sampler) {
    use.emplace(*device);
    LATHE_RETURN_IF_ERROR(logitsOnDevice.reserveWithRoom(logitBytes));
    if (bestBytes > flight.results.bytes())
      return internalError("a step of more rows than tokens", "entry '" + entry + "'");
    flight.outputs[0] = onDevice(logitsOnDevice, logitBytes, logitType, flight.logitDims);
    flight.outputs[1] = onDevice(flight.results, bestBytes, LATHE_I64, {&flight.rows, 1});
    LATHE_RETURN_IF_ERROR(upload(flight));
    if (std::any_of(batch.tokens.begin(), batch.tokens.end(), [](int64_t t) { return t < 0; })) {
      const Flight &before = flightAt(launchedSteps - 1);
      LATHE_RETURN_IF_ERROR(sampler->feed(static_cast<int64_t *>(uploaded.data()),
                                          static_cast<const int64_t *>(before.results.data()), size_t(tokens)));
    }
  } else {
    flight.best.resize(size_t(flight.rows));
    flight.outputs[1] = numbers(flight.best, &flight.rows, 1);
    if (!reads) {
      flight.outputs[0].memory = LATHE_DEVICE; // where it stays
    } else if (logitType != LATHE_F32) {
      flight.narrow.resize(logitBytes);
      flight.outputs[0].data = flight.narrow.data();
    } else if (flight.isPadded()) {
      flight.logits.resize(size_t(flight.rows) * vocabulary);
      flight.outputs[0].data = flight.logits.data();
    } else {
      flight.outputs[0].data = flight.into->logits.data();
    }
    flight.outputs[0].bytes = reads ? logitBytes : 0;
  }
  const size_t taken = 3 + coded;
  if (device->isHost()) {
    flight.step = 0;
    LATHE_RETURN_IF_ERROR(statusOf(lathe_run(context, entry.c_str(), inputs.data(), inputs.size(), flight.outputs, taken)));
    return finish(flight);
  }
  return statusOf(lathe_submit(context, entry.c_str(), inputs.data(), inputs.size(), flight.outputs, taken, nullptr,
                               &flight.step));
}

/// All numbers that a step takes go to the device in one piece: tokens first, at multiples of kUploadAlignment.
Status EngineModel::upload(Flight &flight) {
  auto placeBehind = [](uint64_t bytes) { return (bytes + kUploadAlignment - 1) / kUploadAlignment * kUploadAlignment; };
  uint64_t bytes = 0;
  for (const lathe_tensor &input : inputs)
    bytes += input.memory == LATHE_HOST ? placeBehind(input.bytes) : 0;
  LATHE_RETURN_IF_ERROR(flight.upload.reserveWithRoom(bytes));
  LATHE_RETURN_IF_ERROR(uploaded.reserveWithRoom(bytes));
  uint64_t at = 0;
  for (lathe_tensor &input : inputs) {
    if (input.memory != LATHE_HOST)
      continue; // the pool
    std::memcpy(static_cast<std::byte *>(flight.upload.data()) + at, input.data, input.bytes);
    input.data = static_cast<std::byte *>(uploaded.data()) + at;
    input.memory = LATHE_DEVICE;
    at += placeBehind(input.bytes);
  }
  return device->copy(uploaded.data(), flight.upload.data(), bytes, runtime::CopyKind::HostToDevice);
}

Status EngineModel::draw(const DrawList &list) {
  if (!sampler || launchedSteps == waitedSteps)
    return internalError("there are no logits to draw from");
  Flight &flight = flightAt(launchedSteps - 1);
  LATHE_RETURN_IF_ERROR(sampler->draw(logitsOnDevice.data(), list, flight.drawn));
  flight.draws = &list;
  return device->setMark(flight.mark);
}

Status EngineModel::wait() {
  if (launchedSteps == waitedSteps)
    return internalError("no step is under way");
  Flight &flight = flightAt(waitedSteps++);
  if (!flight.step)
    return okStatus(); // on a CPU
  LATHE_RETURN_IF_ERROR(statusOf(lathe_wait(context, flight.step, -1)));
  if (flight.draws) {
    Result<bool> over =
        runtime::pollUntil(runtime::Deadline::in(kPatience), [&] { return device->reached(flight.mark); });
    if (!over)
      return over.status();
    if (!*over)
      return Status(ErrorCode::Deadline, "the draws of a step have not ended");
  }
  return finish(flight);
}

/// What is over: its results.
Status EngineModel::finish(Flight &flight) {
  StepResults &into = *flight.into;
  const lathe_tensor &found = flight.outputs[0];
  if (found.rank != 2 || found.dims[0] != flight.rows || found.dims[1] != int64_t(vocabulary))
    return internalError("logits of other sizes than requests and vocabulary", "entry '" + entry + "'");
  if (sampler) {
    std::memcpy(into.best.data(), flight.results.data(), into.best.size() * sizeof(int64_t));
    if (flight.draws)
      DeviceSampler::read(flight.drawn, *flight.draws, into.drawn, into.ranked);
    return okStatus();
  }
  std::copy_n(flight.best.begin(), into.best.size(), into.best.begin());
  if (logitType == LATHE_F32 && flight.isPadded())
    std::copy_n(flight.logits.begin(), into.logits.size(), into.logits.begin());
  else if (logitType != LATHE_F32)
    for (size_t i = 0; i < into.logits.size(); ++i)
      into.logits[i] = float(loadReal(static_cast<DType>(logitType), flight.narrow.data(), int64_t(i)));
  return okStatus();
}

void EngineModel::abandon() {
  for (; waitedSteps < launchedSteps; ++waitedSteps)
    if (const uint64_t step = flightAt(waitedSteps).step)
      (void)statusOf(lathe_wait(context, step, -1));
  (void)device->sync(); // draws, which may still write to memory of the host
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
