//===- Run.cpp - the steps of one run ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace lathe::runtime {

using namespace engine;

namespace {
constexpr size_t kKeptGraphs = 16;
}

Status Run::execute() {
  if (inputs.size() != plan.inputs.size())
    return usageError("entry '" + plan.entry + "' takes " + std::to_string(plan.inputs.size()) +
                      " inputs, not " + std::to_string(inputs.size()));
  if (!outputs.empty() && outputs.size() != plan.outputs.size())
    return usageError("entry '" + plan.entry + "' gives " + std::to_string(plan.outputs.size()) +
                      " outputs, not " + std::to_string(outputs.size()));
  if (entry.inputs.size() != plan.inputs.size() || entry.outputs.size() != plan.outputs.size())
    for (auto [list, count] : {std::pair(&entry.inputs, plan.inputs.size()),
                               std::pair(&entry.outputs, plan.outputs.size())})
      for (size_t i = 0; i < count; ++i)
        list->push_back({Block(device, false), Block(device, true), {}, {}});
  inputData.assign(plan.inputs.size(), nullptr);
  outputData.assign(plan.outputs.size(), nullptr);
  ++context.clock;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].data && isContextMemory(i))
      outputs[i].data = nullptr; // filled by an earlier run and passed again

  Status status = runToEnd();
  if (!status.ok()) {
    // Leave nothing in flight that uses the caller's memory.
    (void)device.sync();
    return status;
  }
  context.sums.runs += 1;
  context.sums.launches += launches;
  return okStatus();
}

Status Run::runToEnd() {
  LATHE_RETURN_IF_ERROR(bindSymbols());
  LATHE_RETURN_IF_ERROR(lay());
  LATHE_RETURN_IF_ERROR(checkStates());
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(placeInput(i));
  LATHE_RETURN_IF_ERROR(placeMemory());
  LATHE_RETURN_IF_ERROR(runProgram());
  for (size_t i = 0; i < outputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(deliver(i));
  LATHE_RETURN_IF_ERROR(device.sync());
  return commitStates();
}

bool Run::isContextMemory(size_t output) const {
  const void *data = outputs[output].data;
  const PortMemory &memory = entry.outputs[output];
  if (data == memory.host.data() || data == memory.device.data())
    return true;
  for (auto &item : context.states->all()) {
    const char *begin = static_cast<const char *>(item.second.memory.data());
    if (data >= begin && data < begin + item.second.memory.bytes())
      return true;
  }
  return false;
}

Status Run::runProgram() {
  // A kernel that fails half-way may have written: a state without length is not fresh.
  for (StateSlot *slot : states)
    slot->written |= slot->axis < 0;
  bool graph = context.graphsWanted && program.capturable && device.supportsGraphs() &&
               !context.tap && !context.profiling;
  if (graph) {
    LATHE_RETURN_IF_ERROR(runWithGraph());
  } else {
    LATHE_RETURN_IF_ERROR(startStatus());
    LATHE_RETURN_IF_ERROR(runBlock(0));
  }
  return checkStatus();
}

/// Captures the steps of a shape once; later runs with the same sizes and addresses are
/// one graph launch.
Status Run::runWithGraph() {
  std::vector<uint64_t> key(symbols.begin(), symbols.end());
  for (void *p : addresses)
    key.push_back(reinterpret_cast<uintptr_t>(p));
  // Nothing may be allocated during the capture.
  bool moved = false;
  LATHE_RETURN_IF_ERROR(
      context.status.reserve(program.statusSlots * sizeof(LatheStatusWord), moved));
  key.push_back(reinterpret_cast<uintptr_t>(context.status.data()));

  auto found = std::find_if(entry.graphs.begin(), entry.graphs.end(),
                            [&](const Graph &g) { return g.key == key; });
  if (found == entry.graphs.end()) {
    if (entry.graphs.size() < kKeptGraphs) {
      entry.graphs.emplace_back();
      found = entry.graphs.end() - 1;
    } else {
      found = std::min_element(
          entry.graphs.begin(), entry.graphs.end(),
          [](const Graph &a, const Graph &b) { return a.lastUse < b.lastUse; });
    }
    GraphHandle old = std::exchange(found->handle, nullptr);
    found->key.clear();
    LATHE_RETURN_IF_ERROR(device.beginCapture());
    launches = 0;
    Status status = startStatus();
    if (status.ok())
      status = runBlock(0);
    if (!status.ok()) {
      device.abandonCapture();
      device.destroyGraph(old);
      return status;
    }
    Result<GraphHandle> made = device.endCapture(old);
    if (!made)
      return made.status();
    found->handle = *made;
    found->key = std::move(key);
    found->launches = launches;
    ++context.sums.graphs_captured;
  } else {
    // AdvanceState steps do not run in a graph.
    for (const CompiledStep &step : program.blocks[0])
      if (std::holds_alternative<AdvanceStateStep>(step.step->op))
        LATHE_RETURN_IF_ERROR(runStep(step));
  }
  found->lastUse = context.clock;
  launches = found->launches;
  ++context.sums.graph_launches;
  deviceBusy = true;
  if (!context.timingGraphs)
    return device.launchGraph(found->handle);
  LATHE_RETURN_IF_ERROR(device.beginTiming());
  LATHE_RETURN_IF_ERROR(device.launchGraph(found->handle));
  Result<double> seconds = device.endTiming();
  if (seconds)
    context.sums.graph_seconds += *seconds;
  return seconds.status();
}

Status Run::startStatus() {
  if (program.statusSlots == 0)
    return okStatus();
  bool moved = false;
  size_t bytes = program.statusSlots * sizeof(LatheStatusWord);
  LATHE_RETURN_IF_ERROR(context.status.reserve(bytes, moved));
  return device.zero(context.status.data(), bytes);
}

Status Run::checkStatus() {
  if (program.statusSlots == 0)
    return okStatus();
  size_t bytes = program.statusSlots * sizeof(LatheStatusWord);
  const auto *words = static_cast<const LatheStatusWord *>(context.status.data());
  if (!device.isHost()) {
    bool moved = false;
    LATHE_RETURN_IF_ERROR(context.statusOnHost.reserve(bytes, moved));
    LATHE_RETURN_IF_ERROR(device.copy(context.statusOnHost.data(), context.status.data(), bytes,
                                      CopyKind::DeviceToHost));
    LATHE_RETURN_IF_ERROR(device.sync());
    words = static_cast<const LatheStatusWord *>(context.statusOnHost.data());
  }
  for (int i = 0; i < program.statusSlots; ++i) {
    if (words[i].code == 0)
      continue;
    const LaunchSite &site = program.sites[program.siteOfSlot[i]];
    auto value = static_cast<int32_t>(words[i].detail >> 32);
    std::string message = "the kernel reports error " + std::to_string(words[i].code) +
                          " with value " + std::to_string(value);
    if (words[i].code == 1)
      message = "index " + std::to_string(value) + " is out of range";
    else if (words[i].code == 2)
      message = "division by zero";
    return runtimeError(message, "node " + site.nodes + " (kernel '" +
                                     plan.kernels[site.step->kernel].name + "')");
  }
  return okStatus();
}

Status Run::waitForDevice() {
  if (!deviceBusy || device.isHost())
    return okStatus();
  deviceBusy = false;
  return device.sync();
}

Status Run::runBlock(int32_t index) {
  for (const CompiledStep &step : program.blocks[index])
    LATHE_RETURN_IF_ERROR(runStep(step));
  return okStatus();
}

Status Run::runStep(const CompiledStep &step) {
  const auto &op = step.step->op;
  if (std::holds_alternative<LaunchStep>(op))
    return launch(step);
  if (const auto *o = std::get_if<CopyStep>(&op)) {
    Status s = copy(*o);
    return s.ok() ? s : Status(s.code(), s.message(), "node " + step.nodes);
  }
  if (const auto *o = std::get_if<TapStep>(&op))
    return context.tap ? showTap(LATHE_TAP_VALUE, o->name, step, {&o->buffer, 1}, nullptr)
                       : okStatus();
  if (const auto *o = std::get_if<AdvanceStateStep>(&op)) {
    const State &state = plan.states[o->state];
    Result<int64_t> by = step.by.value(symbols, state.name);
    if (!by)
      return by.status();
    StateSlot &slot = *states[o->state];
    int64_t length = slot.length;
    for (const auto &[index, amount] : advances)
      length += index == o->state ? amount : 0;
    if (*by < 0 || *by > slot.capacity() - length)
      return runtimeError("the state is full: " + std::to_string(length) + " of " +
                              std::to_string(slot.capacity()) + " are used, " +
                              std::to_string(*by) + " more do not fit",
                          "state '" + state.name + "'");
    advances.emplace_back(o->state, *by);
    return okStatus();
  }
  if (const auto *o = std::get_if<GuardStep>(&op)) {
    Result<bool> holds = step.condition.holds(symbols, o->guard.location);
    if (!holds && holds.status().code() == ErrorCode::Invalid)
      return holds.status();
    return holds && *holds ? okStatus() : runtimeError(o->guard.message, o->guard.location);
  }
  // The rest happens on the host and may read what the device has written.
  LATHE_RETURN_IF_ERROR(waitForDevice());
  ++context.sums.host_steps;
  if (std::holds_alternative<HostOpStep>(op))
    return hostOp(step);
  if (const auto *o = std::get_if<BindStep>(&op))
    return bind(*o, step.nodes);
  if (std::holds_alternative<CustomCallStep>(op))
    return customCall(step);
  if (const auto *o = std::get_if<IfStep>(&op))
    return branch(*o);
  return loop(std::get<LoopStep>(op), step.nodes);
}

Status Run::launch(const CompiledStep &step) {
  const LaunchSite &site = program.sites[step.launch];
  SiteLaunch dynamic;
  const SiteLaunch *where = nullptr;
  if (program.isStatic) {
    where = &layout->sites[step.launch];
  } else {
    Result<SiteLaunch> made = evaluateSite(program, site, *layout);
    if (!made)
      return made.status();
    dynamic = std::move(*made);
    where = &dynamic;
  }
  const Kernel &kernel = plan.kernels[site.step->kernel];
  const KernelVariant &variant = kernel.variants[where->variant];
  std::vector<void *> buffers;
  buffers.reserve(site.step->buffers.size());
  for (int32_t b : site.step->buffers) {
    if (!addresses[b])
      return invalidError("a kernel uses a buffer without memory", "node " + site.nodes);
    buffers.push_back(addresses[b]);
  }
  if (context.tap)
    LATHE_RETURN_IF_ERROR(
        showTap(LATHE_TAP_BEFORE, kernel.name, step, site.step->buffers, where));
  if (context.profiling)
    LATHE_RETURN_IF_ERROR(device.beginTiming());
  LaunchCommand command;
  command.variant = &variant;
  // What a run reads of its inputs may still be written by what is ahead of the run; a kernel that
  // reads them before those ahead of it are over relies on the first having waited.
  command.mayOverlap = context.overlapWanted && launches > 0;
  command.scratchBytes = where->scratchBytes;
  command.buffers = buffers;
  command.dtypes = site.dtypes;
  command.symbols = where->symbols;
  command.tensorMapSizes = where->tensorMapSizes;
  if (variant.status)
    command.status = static_cast<LatheStatusWord *>(context.status.data()) + site.statusSlot;
  for (size_t i = 0; i < variant.launches.size(); ++i) {
    command.function = context.image->function(program, site.step->kernel, where->variant,
                                               static_cast<int>(i));
    command.spec = &variant.launches[i];
    std::copy_n(where->launches[i].grid, 3, command.grid);
    command.sharedBytes = where->launches[i].sharedBytes;
    Status s = device.launch(command);
    if (!s.ok())
      return Status(s.code(), s.message() + " in kernel '" + kernel.name + "'",
                    "node " + site.nodes);
    ++launches;
  }
  deviceBusy = true;
  if (context.profiling) {
    Result<double> seconds = device.endTiming();
    if (!seconds)
      return seconds.status();
    ProfileEntry &p = entry.profile[&step];
    const CompiledKernel &compiled = program.kernels[site.step->kernel];
    int64_t flops = 0, bytes = 0;
    (void)compiled.flops.evaluate(where->symbols, flops);
    (void)compiled.bytes.evaluate(where->symbols, bytes);
    p.name = kernel.name;
    p.config = variant.config;
    p.calls += 1;
    p.seconds += *seconds;
    p.flops = static_cast<double>(flops);
    p.bytes = static_cast<double>(bytes);
  }
  if (context.tap)
    return showTap(LATHE_TAP_AFTER, kernel.name, step, site.step->buffers, where);
  return okStatus();
}

Status Run::copy(const CopyStep &step) {
  const Place &from = layout->places[step.source], &to = layout->places[step.target];
  void *source = addresses[step.source], *target = addresses[step.target];
  if (!from.known() || !to.known() || from.bytes != to.bytes)
    return invalidError("a copy between buffers of different or unknown size");
  if (from.bytes == 0)
    return okStatus();
  if (!source || !target)
    return invalidError("a copy uses a buffer without memory");
  auto bytes = static_cast<size_t>(from.bytes);
  for (int32_t b : {step.source, step.target})
    if (plan.buffers[program.buffers[b].root].kind == BufferKind::State)
      context.sums.state_bytes_copied += bytes;
  bool fromHost = plan.buffers[step.source].onHost, toHost = plan.buffers[step.target].onHost;
  if (fromHost && toHost) {
    LATHE_RETURN_IF_ERROR(waitForDevice());
    std::memmove(target, source, bytes);
    return okStatus();
  }
  if (!device.isHost() && fromHost != toHost)
    (fromHost ? context.sums.bytes_to_device : context.sums.bytes_from_device) += bytes;
  deviceBusy = true;
  return device.copy(target, source, bytes,
                     fromHost ? CopyKind::HostToDevice
                     : toHost ? CopyKind::DeviceToHost
                              : CopyKind::DeviceToDevice);
}

/// After a symbol has got a value: sizes, memory and addresses that depend on it.
Status Run::relay() {
  LATHE_RETURN_IF_ERROR(waitForDevice());
  LATHE_RETURN_IF_ERROR(lay());
  return placeMemory();
}

Status Run::bind(const BindStep &step, const std::string &nodes) {
  const Buffer &buffer = plan.buffers[step.buffer];
  int64_t size = bitWidth(buffer.dtype) / 8, offset, value = 0;
  const Place &place = layout->places[step.buffer];
  if (!addresses[step.buffer] || __builtin_mul_overflow(step.element, size, &offset) ||
      offset > place.bytes - size)
    return invalidError("a bind step reads outside its buffer", "node " + nodes);
  const char *at = static_cast<const char *>(addresses[step.buffer]) + offset;
  if (buffer.dtype == DType::I64) {
    std::memcpy(&value, at, 8);
  } else if (buffer.dtype == DType::I32) {
    int32_t narrow;
    std::memcpy(&narrow, at, 4);
    value = narrow;
  } else {
    value = *at != 0;
  }
  LATHE_RETURN_IF_ERROR(bindSymbol(step.symbol, value,
                                   "the size " + plan.symbols[step.symbol].name, "node " + nodes));
  LATHE_RETURN_IF_ERROR(deriveSymbols());
  return relay();
}

Status Run::branch(const IfStep &step) {
  const void *condition = addresses[step.condition];
  if (!condition || layout->places[step.condition].bytes < 1)
    return invalidError("a condition has no memory");
  int32_t block = *static_cast<const char *>(condition) ? step.thenBlock : step.elseBlock;
  return block < 0 ? okStatus() : runBlock(block);
}

Status Run::loop(const LoopStep &step, const std::string &nodes) {
  int64_t trips = INT64_MAX;
  for (auto [buffer, bytes] : {std::pair(step.tripCount, 8), std::pair(step.condition, 1)})
    if (buffer >= 0 && (!addresses[buffer] || layout->places[buffer].bytes < bytes))
      return invalidError("a loop's operand has no memory", "node " + nodes);
  if (step.tripCount >= 0)
    std::memcpy(&trips, addresses[step.tripCount], 8);
  for (int64_t i = 0; i < trips; ++i) {
    LATHE_RETURN_IF_ERROR(waitForDevice());
    if (step.condition >= 0 && !*static_cast<const char *>(addresses[step.condition]))
      break;
    if (step.iteration >= 0) {
      LATHE_RETURN_IF_ERROR(bindSymbol(step.iteration, i, "the iteration", "node " + nodes));
      LATHE_RETURN_IF_ERROR(relay());
    }
    LATHE_RETURN_IF_ERROR(runBlock(step.body));
  }
  return okStatus();
}

} // namespace lathe::runtime
