//===- Run.cpp - the steps of one run ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"

#include "Nvtx.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace lathe::runtime {

using namespace engine;

Run::Run(Context &context, const Program &program, uint64_t number, int slot)
    : context(context), program(program), plan(program.plan), device(*context.device),
      entry(context.entries[&program]), slot(context.slotAt(slot)), ports(entry.portsOf(slot)),
      number(number), slotNumber(slot) {
  static_cast<StepLists &>(*this) = std::move(ports.lists);
  clear();
  if (ports.inputs.size() == plan.inputs.size() && ports.outputs.size() == plan.outputs.size())
    return;
  // Where addresses are looked up anew in each run, callers may keep the memory of results.
  const bool mayLeave = !program.capturable && !device.isHost() && !context.peers;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    ports.inputs.push_back({Block(device, false), Block(device, true), {}, {}});
  for (size_t i = 0; i < plan.outputs.size(); ++i)
    ports.outputs.push_back({mayLeave ? Block::ofResults(device) : Block(device, false), Block(device, true), {}, {}});
}

Status Run::prepare() {
  LATHE_RETURN_IF_ERROR(checkCounts());
  inputData.assign(plan.inputs.size(), nullptr);
  outputData.assign(plan.outputs.size(), nullptr);
  placement.assign(plan.inputs.size() + plan.outputs.size(), Own);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].data && isContextMemory(i))
      outputs[i].data = nullptr; // filled by an earlier step and passed again
  LATHE_RETURN_IF_ERROR(bindSizes());
  LATHE_RETURN_IF_ERROR(checkStates());
  return startHostValues();
}

Status Run::start(std::span<const lathe_tensor> in, std::span<lathe_tensor> out,
                  const Events &events) {
  NvtxRange range(plan.entry);
  inputs = in;
  outputs = out;
  Status status = startAll(events);
  inputs = {};
  entry.lists.clear(); // the host's part is over, and outputs are packed
  if (!status.ok()) {
    // Leave nothing in flight that uses the caller's memory.
    if (status.code() != ErrorCode::Deadline)
      (void)device.sync();
    undo();
  }
  return status;
}

Status Run::startAll(const Events &events) {
  Status status = makeReady(events);
  if (context.communicator)
    return context.world ? startApart(status, events) : startOnAllRanks(status, events);
  return status.ok() ? runSteps(events) : status;
}

Status Run::cancelled() const {
  return context.isCancelled(number) ? Status(ErrorCode::Cancelled, "cancelled while it ran") : okStatus();
}

/// Sizes, checks and memory: what may fail before anything is done.
Status Run::makeReady(const Events &events) {
  LATHE_RETURN_IF_ERROR(prepare());
  // Making memory and graphs may hold up the driver until the device is done: kernels that wait for those of other
  // ranks would wait for calls that are held up. What is made the first time is made when nothing runs.
  if (context.peers && !(shape && static_cast<size_t>(slotNumber) < shape->graphs.size() &&
                         shape->graphs[slotNumber].handle))
    LATHE_RETURN_IF_ERROR(device.sync());
  for (void *event : events.waits)
    LATHE_RETURN_IF_ERROR(device.waitForEvent(event));
  LATHE_RETURN_IF_ERROR(device.awaitInputs());
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(placeInput(i));
  LATHE_RETURN_IF_ERROR(placeMemory());
  LATHE_RETURN_IF_ERROR(startStatus());
  LATHE_RETURN_IF_ERROR(saveStates());
  // A kernel that fails half-way may have written: a state without length is not fresh.
  for (StateSlot *state : states)
    state->written |= state->axis < 0;
  return okStatus();
}

Status Run::runSteps(const Events &events) {
  if (wantsGraph()) {
    for (size_t i = 0; i < outputs.size(); ++i)
      LATHE_RETURN_IF_ERROR(planDelivery(i));
    LATHE_RETURN_IF_ERROR(runWithGraph(/*launchIt=*/true));
  } else {
    LATHE_RETURN_IF_ERROR(stageInputs());
    LATHE_RETURN_IF_ERROR(runBlock(0));
    for (size_t i = 0; i < outputs.size(); ++i)
      LATHE_RETURN_IF_ERROR(planDelivery(i));
    LATHE_RETURN_IF_ERROR(enqueueDeliveries(/*inGraph=*/true));
  }
  LATHE_RETURN_IF_ERROR(enqueueDeliveries(/*inGraph=*/false));
  LATHE_RETURN_IF_ERROR(device.setMark(slot.mark));
  if (events.record)
    LATHE_RETURN_IF_ERROR(device.recordEvent(events.record));
  for (const auto &[index, by] : advances)
    states[index]->length += by;
  advanced = true;
  if (shape)
    shape->lastStep = number;
  return okStatus();
}

Status Run::warm(std::span<const lathe_tensor> in, std::span<lathe_tensor> out) {
  inputs = in;
  outputs = out;
  if (device.isHost())
    return prefault();
  LATHE_RETURN_IF_ERROR(prepare());
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(placeInput(i));
  LATHE_RETURN_IF_ERROR(placeMemory());
  LATHE_RETURN_IF_ERROR(startStatus());
  if (!wantsGraph())
    return okStatus();
  for (size_t i = 0; i < outputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(planDelivery(i));
  return runWithGraph(/*launchIt=*/false);
}

/// All memory that a step of these sizes will use, with its pages. Sizes that data decide are not
/// known before the step.
Status Run::prefault() {
  device.setPrefault(true);
  Status status = prepare();
  for (size_t i = 0; i < plan.inputs.size() && status.ok(); ++i)
    status = placeInput(i);
  if (status.ok())
    status = placeMemory();
  if (status.ok())
    status = startStatus();
  if (status.ok() && program.isStatic)
    for (const SiteLaunch &site : layout->sites)
      if (status.ok())
        status = device.prepareScratch(site.scratchBytes);
  device.setPrefault(context.prefaultWanted);
  return status;
}

Result<bool> Run::over() {
  Result<bool> reached = device.reached(slot.mark);
  if (!context.world)
    return reached;
  if (!reached || *reached)
    return overOnAllRanks(reached.status());
  watchOthers();
  return false;
}

Status Run::finish() {
  LATHE_RETURN_IF_ERROR(context.world ? agreed : checkStatus());
  for (size_t i = 0; i < outputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(finishDelivery(i));
  for (const auto &[index, by] : advances)
    sums.state_bytes_appended += static_cast<uint64_t>(by * states[index]->bytesPerStep());
  sums.runs += 1;
  sums.launches += launches;
  return okStatus();
}

Status Run::saveStates() {
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i]->axis >= 0)
      continue; // what is behind its length is nobody's
    while (ports.before.size() <= i)
      ports.before.emplace_back(device, false);
    bool moved = false;
    LATHE_RETURN_IF_ERROR(ports.before[i].reserve(states[i]->bytes, moved));
    LATHE_RETURN_IF_ERROR(device.copy(ports.before[i].data(), states[i]->memory.data(),
                                      states[i]->bytes, CopyKind::DeviceToDevice));
    saved.resize(states.size());
    saved[i] = true;
  }
  return okStatus();
}

void Run::undo() {
  if (advanced)
    for (const auto &[index, by] : advances)
      states[index]->length -= by;
  advanced = false;
  for (size_t i = 0; i < saved.size(); ++i)
    if (saved[i])
      (void)device.copy(states[i]->memory.data(), ports.before[i].data(), states[i]->bytes,
                        CopyKind::DeviceToDevice);
  saved.clear();
  if (slot.status.data()) // errors of a step that nobody asks for
    std::memset(slot.status.data(), 0, slot.status.bytes());
}

bool Run::isContextMemory(size_t output) const {
  const void *data = outputs[output].data;
  for (const PortMemories &other : entry.ports)
    if (output < other.outputs.size() && (data == other.outputs[output].host.data() ||
                                          data == other.outputs[output].device.data()))
      return true;
  for (auto &item : context.states->all()) {
    const char *begin = static_cast<const char *>(item.second.memory.data());
    if (data >= begin && data < begin + item.second.memory.bytes())
      return true;
  }
  return false;
}

bool Run::wantsGraph() const {
  return context.graphsWanted && program.capturable && device.supportsGraphs() && !context.tap &&
         !context.profiling;
}

bool Run::wantsSegments() const {
  return context.graphsWanted && !program.capturable && device.supportsGraphs() && !context.tap &&
         !context.profiling && !context.timingGraphs;
}

/// Words that kernels write to only when something is wrong, in pinned memory: the host looks
/// at them when the step is over, and no copy brings them.
Status Run::startStatus() {
  if (program.statusUsers.empty())
    return okStatus();
  size_t bytes = program.statusUsers.size() * sizeof(LatheStatusWord);
  bool moved = false;
  LATHE_RETURN_IF_ERROR(slot.status.reserve(bytes, moved));
  if (moved) {
    ++context.generation;
    std::memset(slot.status.data(), 0, slot.status.bytes());
  }
  return okStatus();
}

Status Run::checkStatus() {
  auto *words = static_cast<LatheStatusWord *>(slot.status.data());
  for (size_t i = 0; i < program.statusUsers.size(); ++i) {
    if (words[i].code == 0)
      continue;
    LatheStatusWord found = words[i];
    std::memset(words, 0, slot.status.bytes()); // for the next step in this place
    const StatusUser &user = program.statusUsers[i];
    auto value = static_cast<int32_t>(found.detail >> 32);
    std::string message = "the kernel reports error " + std::to_string(found.code) +
                          " with value " + std::to_string(value);
    if (found.code == 1)
      message = "index " + std::to_string(value) + " is out of range";
    else if (found.code == 2)
      message = "division by zero";
    if (user.isCollective && found.code == kStatusPeerLost) {
      context.peers->noteBroken();
      waitedIn = user.kernel;
      return Status(ErrorCode::PeerLost,
                    user.kernel + ": rank " + std::to_string(value) + " has not come within " +
                        std::to_string(context.peers->timeout() / 1000000) + " ms, or a rank has given up",
                    "node " + user.nodes);
    }
    return runtimeError(message, "node " + user.nodes + " (kernel '" + user.kernel + "')");
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
  if (index > 0 || plan.resources.streams.size() == 1 || !layout->usesStreams) {
    const std::vector<CompiledStep> &steps = program.blocks[index];
    size_t next = 0;
    auto runUpTo = [&](size_t end) -> Status {
      for (; next < end; ++next)
        LATHE_RETURN_IF_ERROR(runStep(steps[next]));
      return okStatus();
    };
    if (wantsSegments())
      for (const Segment &segment : program.segments[index]) {
        LATHE_RETURN_IF_ERROR(runUpTo(segment.first));
        LATHE_RETURN_IF_ERROR(runSegment(index, segment));
        next = segment.end;
      }
    return runUpTo(steps.size());
  }
  // Other streams begin where the first is now, and what follows on that waits for all of them.
  const int begin = plan.resources.events;
  std::vector<bool> begun(plan.resources.streams.size());
  begun[0] = true;
  LATHE_RETURN_IF_ERROR(device.signal(begin));
  for (const CompiledStep &step : program.blocks[index]) {
    const Step &s = *step.step;
    LATHE_RETURN_IF_ERROR(device.useStream(s.stream));
    if (!begun[s.stream])
      LATHE_RETURN_IF_ERROR(device.await(begin));
    begun[s.stream] = true;
    for (int32_t event : s.waits)
      LATHE_RETURN_IF_ERROR(device.await(event));
    // A kernel may begin before the one ahead on its stream is over, not before what an event says.
    overlaps = s.stream == stream && s.waits.empty();
    stream = s.stream;
    Status status = runStep(step);
    if (status.ok() && s.signal >= 0)
      status = device.signal(s.signal);
    if (!status.ok()) {
      (void)device.useStream(0);
      return status;
    }
  }
  for (int k = 1; k < static_cast<int>(begun.size()); ++k) {
    if (!begun[k])
      continue;
    LATHE_RETURN_IF_ERROR(device.useStream(k));
    LATHE_RETURN_IF_ERROR(device.signal(begin + k));
    LATHE_RETURN_IF_ERROR(device.useStream(0));
    LATHE_RETURN_IF_ERROR(device.await(begin + k));
  }
  return device.useStream(0);
}

Status Run::runStep(const CompiledStep &step) {
  const auto &op = step.step->op;
  NvtxRange range(step.nodes);
  LATHE_RETURN_IF_ERROR(cancelled());
  if (std::holds_alternative<LaunchStep>(op))
    return launch(step);
  if (std::holds_alternative<CopyStep>(op)) {
    Status s = copy(step);
    return s.ok() ? s : Status(s.code(), s.message(), "node " + step.nodes);
  }
  if (const auto *o = std::get_if<TapStep>(&op))
    return context.tap ? showTap(LATHE_TAP_VALUE, o->name, step, {&o->buffer, 1}, nullptr)
                       : okStatus();
  if (std::holds_alternative<AdvanceStateStep>(op))
    return advance(step);
  if (const auto *o = std::get_if<GuardStep>(&op)) {
    Result<bool> holds = step.condition.holds(symbols, o->guard.location);
    if (!holds && holds.status().code() == ErrorCode::Invalid)
      return holds.status();
    return holds && *holds ? okStatus() : runtimeError(o->guard.message, o->guard.location);
  }
  if (step.collective)
    return exchangeOnDevice(step);
  // The rest happens on the host and may read what the device has written.
  LATHE_RETURN_IF_ERROR(waitForDevice());
  ++sums.host_steps;
  if (std::holds_alternative<CollectiveStep>(op))
    return exchange(step);
  if (std::holds_alternative<HostOpStep>(op))
    return hostOp(step);
  if (std::holds_alternative<BindStep>(op))
    return bind(step);
  if (std::holds_alternative<CustomCallStep>(op))
    return customCall(step);
  if (const auto *o = std::get_if<IfStep>(&op))
    return branch(*o);
  return loop(std::get<LoopStep>(op), step.nodes);
}

Status Run::advance(const CompiledStep &step) {
  const auto &op = std::get<AdvanceStateStep>(step.step->op);
  const State &state = plan.states[op.state];
  Result<int64_t> by = step.by.value(symbols, state.name);
  if (!by)
    return by.status();
  StateSlot &slot = *states[op.state];
  int64_t length = slot.length;
  for (const auto &[index, amount] : advances)
    length += index == op.state ? amount : 0;
  if (*by < 0 || *by > slot.capacity() - length)
    return runtimeError("the state is full: " + std::to_string(length) + " of " +
                            std::to_string(slot.capacity()) + " are used, " + std::to_string(*by) +
                            " more do not fit",
                        "state '" + state.name + "'");
  advances.emplace_back(op.state, *by);
  return okStatus();
}

/// The addresses of a launch, in the kernel's order.
Status Run::gatherBuffers(const CompiledStep &step) {
  const LaunchSite &site = program.sites[step.launch];
  launchBuffers.clear();
  for (int32_t b : site.step->buffers) {
    void *address = addresses.empty() ? addressOf(b) : addresses[b];
    if (!address)
      return invalidError("a kernel uses a buffer without memory", "node " + site.nodes);
    launchBuffers.push_back(address);
  }
  return okStatus();
}

LaunchCommand Run::commandOf(const CompiledStep &step, const SiteLaunch &where, size_t launch) {
  const LaunchSite &site = program.sites[step.launch];
  const KernelVariant &variant = plan.kernels[site.step->kernel].variants[where.variant];
  LaunchCommand command;
  command.function = context.image->function(program, site.step->kernel, where.variant,
                                             static_cast<int>(launch));
  command.spec = &variant.launches[launch];
  command.variant = &variant;
  std::copy_n(where.launches[launch].grid, 3, command.grid);
  command.sharedBytes = where.launches[launch].sharedBytes;
  command.scratchBytes = where.scratchBytes;
  command.buffers = launchBuffers;
  command.dtypes = site.dtypes;
  command.symbols = where.symbols;
  command.tensorMapSizes = where.tensorMapSizes;
  if (variant.status)
    command.status = static_cast<LatheStatusWord *>(slot.status.data()) + site.statusSlot;
  return command;
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
  if (where->isEmpty)
    return okStatus();
  const Kernel &kernel = plan.kernels[site.step->kernel];
  const KernelVariant &variant = kernel.variants[where->variant];
  LATHE_RETURN_IF_ERROR(gatherBuffers(step));
  if (context.tap)
    LATHE_RETURN_IF_ERROR(
        showTap(LATHE_TAP_BEFORE, kernel.name, step, site.step->buffers, where));
  if (context.profiling)
    LATHE_RETURN_IF_ERROR(device.beginTiming());
  // What a run reads of its inputs may still be written by what is ahead of the run; a kernel that
  // reads them before those ahead of it are over relies on the first having waited.
  bool mayOverlap = context.overlapWanted && launches > 0 && overlaps;
  for (size_t i = 0; i < variant.launches.size(); ++i) {
    LaunchCommand command = commandOf(step, *where, i);
    command.mayOverlap = mayOverlap;
    size_t before = device.capturedNodes();
    Status s = device.launch(command);
    if (!s.ok())
      return Status(s.code(), s.message() + " in kernel '" + kernel.name + "'",
                    "node " + site.nodes);
    noteNode(before, step, static_cast<int>(i), mayOverlap, site.step->buffers);
    ++launches;
  }
  deviceBusy = true;
  if (context.profiling) {
    Result<double> seconds = device.endTiming();
    if (!seconds)
      return seconds.status();
    ProfileEntry &p = timed(step, *seconds);
    const CompiledKernel &compiled = program.kernels[site.step->kernel];
    int64_t flops = 0, bytes = 0;
    (void)compiled.flops.evaluate(where->symbols, flops);
    (void)compiled.bytes.evaluate(where->symbols, bytes);
    p.name = kernel.name;
    p.config = variant.config;
    p.flops = static_cast<double>(flops);
    p.bytes = static_cast<double>(bytes);
  }
  if (context.tap)
    return showTap(LATHE_TAP_AFTER, kernel.name, step, site.step->buffers, where);
  return okStatus();
}

Status Run::copy(const CompiledStep &compiled) {
  const auto &step = std::get<CopyStep>(compiled.step->op);
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
      sums.state_bytes_copied += bytes;
  bool fromHost = plan.buffers[step.source].onHost, toHost = plan.buffers[step.target].onHost;
  if (fromHost && toHost) {
    LATHE_RETURN_IF_ERROR(waitForDevice());
    std::memmove(target, source, bytes);
    return okStatus();
  }
  if (!device.isHost() && fromHost != toHost)
    (fromHost ? sums.bytes_to_device : sums.bytes_from_device) += bytes;
  deviceBusy = true;
  size_t before = device.capturedNodes();
  LATHE_RETURN_IF_ERROR(device.copy(target, source, bytes,
                                    fromHost ? CopyKind::HostToDevice
                                    : toHost ? CopyKind::DeviceToHost
                                             : CopyKind::DeviceToDevice));
  const int32_t buffers[] = {step.source, step.target};
  noteNode(before, compiled, -1, false, buffers);
  return okStatus();
}

/// After a symbol has got a value: sizes, memory and addresses that depend on it.
Status Run::relay() {
  LATHE_RETURN_IF_ERROR(waitForDevice());
  LATHE_RETURN_IF_ERROR(lay());
  return placeMemory();
}

Status Run::bind(const CompiledStep &compiled) {
  const auto &step = std::get<BindStep>(compiled.step->op);
  const std::string &nodes = compiled.nodes;
  if (step.buffer < 0) {
    Result<int64_t> value = compiled.by.value(symbols, plan.symbols[step.symbol].name);
    return value ? bindLate(step.symbol, *value, nodes) : value.status();
  }
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
  return bindLate(step.symbol, value, nodes);
}

/// A symbol gets a value in the middle of a run, perhaps not for the first time, as in a loop: what is
/// derived of it follows.
Status Run::bindLate(int32_t symbol, int64_t value, const std::string &nodes) {
  LATHE_RETURN_IF_ERROR(
      bindSymbol(symbol, value, "the size " + plan.symbols[symbol].name, "node " + nodes));
  forgetDerived({&symbol, 1});
  LATHE_RETURN_IF_ERROR(deriveSymbols());
  return relay();
}

/// What is derived of these symbols has no value any more.
void Run::forgetDerived(std::span<const int32_t> of) {
  std::vector<bool> changed(symbols.size());
  for (int32_t symbol : of)
    changed[symbol] = true;
  for (size_t i = 0; i < symbols.size(); ++i) { // behind what they are derived of
    if (!program.derived[i])
      continue;
    for (uint32_t s : program.derived[i]->symbols())
      changed[i] = changed[i] || changed[s];
    if (changed[i])
      symbols[i] = kUnknownSymbol;
  }
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
    // Sizes of the iteration before say nothing of this one: together with those that it binds first they may not fit.
    for (int32_t bound : program.boundIn[step.body])
      symbols[bound] = kUnknownSymbol;
    forgetDerived(program.boundIn[step.body]);
    if (step.iteration >= 0) {
      LATHE_RETURN_IF_ERROR(bindSymbol(step.iteration, i, "the iteration", "node " + nodes));
      LATHE_RETURN_IF_ERROR(relay());
    }
    LATHE_RETURN_IF_ERROR(runBlock(step.body));
  }
  return okStatus();
}

} // namespace lathe::runtime
