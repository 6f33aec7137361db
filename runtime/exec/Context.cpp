//===- Context.cpp - runs entries on one device -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Context.h"
#include "Exclusive.h"
#include "Run.h"
#include "Tensors.h"

#include "../device/OpenDevice.h"
#include "../device/ThreadPool.h"

#include <algorithm>

namespace lathe::runtime {

Result<std::shared_ptr<Context>> Context::create(std::shared_ptr<const Engine> engine,
                                                 const std::string &deviceName,
                                                 const Options &options) {
  if (const int64_t ranks = engine->ranks(); ranks != (options.communicator ? options.communicator->ranks() : 1))
    return usageError("the engine is for a mesh of " + std::to_string(ranks) + " ranks: as many devices make a group, "
                      "or as many processes a world (lathe run --ranks=" + std::to_string(ranks) + ")");
  Result<std::unique_ptr<Device>> device = openDevice(deviceName, options.device);
  if (!device)
    return device.status();
  Result<std::string> target = engine->chooseTarget(**device, options.target);
  if (!target)
    return target.status();
  // The image outlives contexts, so it has a device of its own: same memory, no workers.
  DeviceOptions loader;
  loader.threads = 1;
  Result<std::unique_ptr<Device>> owner = openDevice(deviceName, loader);
  if (!owner)
    return owner.status();
  std::shared_ptr<PeerArenas> peers = options.peers;
  const bool isApart = options.world.communicator && !(*device)->isHost();
  if (isApart) {
    Result<std::shared_ptr<PeerArenas>> joined =
        PeerArenas::join(deviceName, options.world, "target " + *target, options.patience);
    if (!joined)
      return joined.status();
    peers = std::move(*joined);
  }
  // A rank that is a process may lose the others, and go on with new ones on the weights that it has.
  auto image = engine->image(*target, std::move(*owner), options.communicator ? options.communicator->rank() : 0,
                             /*stays=*/isApart);
  if (isApart) {
    // Weights may take longer to come than a step: ranks wait as long as the slowest is there.
    options.world.communicator->setPatience(-1);
    LATHE_RETURN_IF_ERROR(options.world.communicator->begin("weights", image.status(), {}));
    options.world.communicator->setPatience(options.patience);
  }
  if (!image)
    return image.status();
  (*device)->setPatience(options.patience);
  std::shared_ptr<Context> c(new Context());
  c->engine = std::move(engine);
  c->device = std::move(*device);
  c->image = std::move(*image);
  c->communicator = options.communicator;
  c->peers = std::move(peers);
  c->tellsAll = c->peers || options.world.communicator;
  if (isApart)
    c->world = options.world.communicator;
  c->targetName = *target;
  c->graphsWanted = options.graphs;
  c->overlapWanted = options.overlap;
  c->prefaultWanted = options.device.prefault;
  c->states = std::make_unique<StateStore>(*c->device);
  c->patience = options.patience;
  c->graphs.setLimits(options.limits);
  c->sums.weight_bytes = c->image->weightBytes();
  return c;
}

Result<std::shared_ptr<Context>> Context::createRank(std::shared_ptr<const Engine> engine,
                                                     const std::string &device, Options options, World world) {
  world.expected = engine->ranks();
  world.patience = options.patience;
  world.endsLater = deviceKind(device) != "cpu"; // steps of GPUs are enqueued behind each other
  constexpr char kDigits[] = "0123456789abcdef";
  for (uint8_t byte : engine->file().digest())
    world.identity += {kDigits[byte >> 4], kDigits[byte & 15]};
  Result<Joined> joined = joinWorld(world);
  if (!joined)
    return joined.status();
  options.communicator = joined->communicator;
  options.world = *joined;
  if (joined->onThisHost > 1) {
    // All ranks compute at the same time: each has its share of the cores, unless told how many.
    if (!options.device.threads)
      options.device.threads = std::max(1, numberOfWorkers(0) / int(joined->onThisHost));
    options.device.pinThreads = false;
  }
  Result<std::string> own = deviceAt(device, joined->placeOnHost);
  // What one rank has not the others would wait for.
  auto check = [&]() -> Status {
    if (!own)
      return own.status();
    auto opened = openDevice(*own, options.device);
    return opened ? engine->chooseTarget(**opened, options.target).status() : opened.status();
  };
  if (world.endsLater)
    LATHE_RETURN_IF_ERROR(joined->communicator->begin("devices", check(), {}));
  if (!own)
    return own.status();
  return create(std::move(engine), *own, options);
}

void Context::close(std::shared_ptr<Context> context) {
  Context &c = *context;
  c.cancel(0);
  std::unique_lock lock(c.mutex);
  c.stopping = true;
  c.changed.notify_all();
  if (!c.worker.joinable())
    return;
  Deadline deadline = Deadline::in(c.expired ? 0 : c.patience);
  auto isIdle = [&] { return !c.workerHasWork; };
  bool idle = deadline.time() == Deadline::Clock::time_point::max()
                  ? (c.changed.wait(lock, isIdle), true)
                  : c.changed.wait_until(lock, deadline.time(), isIdle);
  if (idle) {
    lock.unlock();
    c.worker.join();
    return;
  }
  // Code that does not end cannot be stopped: what it works on lives as long as it does.
  c.worker.detach();
  c.self = context;
}

Context::~Context() {
  // The kernel of a rank that is gone may still wait for one that this rank will not launch; its GPU is free for another
  // process when it has ended.
  if (world && !world->lost().ok())
    peers->abort();
  // Freeing waits for the device, and that must not be for ever.
  device->setPatience(expired ? 1000000 : patience);
  if (device->sync().code() == ErrorCode::Deadline) {
    device->abandon();
    image->abandon();
    if (peers)
      peers->abandon();
  }
  flights.clear();
  for (auto &item : entries) {
    for (auto &kept : item.second.shapes.all())
      for (Graph &graph : kept.second->graphs)
        dropGraph(graph.handle);
    for (auto &kept : item.second.segments)
      dropGraph(kept.second.handle);
  }
  for (Slot &slot : slots)
    device->destroyMark(slot.mark);
}

namespace {
Status noState(const std::string &name) {
  return usageError("the engine has no state '" + name + "'");
}
} // namespace

Status Context::seed(uint64_t value) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  drawSeed = value;
  nextDraw = 0;
  return okStatus();
}

Result<int64_t> Context::stateLength(const std::string &name) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  const auto &names = engine->states();
  if (std::find(names.begin(), names.end(), name) == names.end())
    return noState(name);
  const StateSlot *slot = states->find(name);
  return slot ? slot->length : 0;
}

Result<int64_t> Context::stateCapacity(const std::string &name) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  if (const StateSlot *slot = states->find(name))
    return slot->capacity();
  for (const Program *p : engine->programsOf(targetName))
    for (const engine::State &s : p->plan.states)
      if (s.name == name) {
        if (std::optional<int64_t> c = s.capacity.constant())
          return *c;
        return usageError("the capacity depends on sizes that the first run decides",
                          "state '" + name + "'");
      }
  return noState(name);
}

Status Context::truncateState(const std::string &name, int64_t length) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  StateSlot *slot = states->find(name);
  if (!slot)
    return length == 0 ? okStatus() : noState(name);
  if (slot->axis < 0)
    return usageError("the state has no length; it can only be reset", "state '" + name + "'");
  if (length < 0 || length > slot->length)
    return usageError("cannot truncate from " + std::to_string(slot->length) + " to " +
                          std::to_string(length),
                      "state '" + name + "'");
  slot->length = length;
  return okStatus();
}

Status Context::resetStates(const std::string &name) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  const auto &names = engine->states();
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
    return noState(name);
  for (auto &[slotName, slot] : states->all())
    if (name.empty() || slotName == name)
      LATHE_RETURN_IF_ERROR(states->reset(slot));
  return okStatus();
}

/// A state without axis, made where no run has made it yet.
Result<StateSlot *> Context::wholeState(const std::string &name) {
  const std::string where = "state '" + name + "'";
  if (StateSlot *slot = states->find(name)) {
    if (slot->axis >= 0)
      return usageError("the state grows with the runs: outputs show it", where);
    return slot;
  }
  for (const Program *p : engine->programsOf(targetName))
    for (const engine::State &s : p->plan.states) {
      if (s.name != name)
        continue;
      if (s.axis >= 0)
        return usageError("the state grows with the runs: outputs show it", where);
      std::vector<int64_t> dims;
      for (const DimExpr &dim : s.physical) {
        if (!dim.constant())
          return usageError("its sizes are those that the first run decides", where);
        dims.push_back(*dim.constant());
      }
      int64_t count = 1;
      for (int64_t dim : dims)
        if (__builtin_mul_overflow(count, dim, &count))
          return invalidError("the sizes overflow", where);
      bool moved = false;
      Result<StateSlot *> slot = states->prepare(s, dims, static_cast<size_t>(byteSize(s.dtype, count)),
                                                 image->initial(p->plan, s), moved);
      generation += moved;
      return slot;
    }
  return noState(name);
}

Status Context::readState(const std::string &name, lathe_tensor &value) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  Result<StateSlot *> slot = wholeState(name);
  if (!slot)
    return slot.status();
  const StateSlot &state = **slot;
  if (value.data && (value.memory != LATHE_HOST || value.bytes < state.bytes))
    return usageError("the value needs " + std::to_string(state.bytes) + " bytes of host memory",
                      "state '" + name + "'");
  value.dtype = static_cast<lathe_dtype>(state.dtype);
  value.rank = static_cast<int32_t>(state.physical.size());
  value.dims = state.physical.data();
  value.strides = nullptr;
  value.bytes = state.bytes;
  if (!value.data || !state.bytes)
    return okStatus();
  LATHE_RETURN_IF_ERROR(device->copy(value.data, state.memory.data(), state.bytes, CopyKind::DeviceToHost));
  return device->sync();
}

Status Context::writeState(const std::string &name, const lathe_tensor &value) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  Result<StateSlot *> slot = wholeState(name);
  if (!slot)
    return slot.status();
  StateSlot &state = **slot;
  const std::string where = "state '" + name + "'";
  const auto dims = value.dims ? std::span(value.dims, static_cast<size_t>(value.rank)) : std::span<const int64_t>();
  if (static_cast<DType>(value.dtype) != state.dtype || !std::ranges::equal(dims, state.physical))
    return usageError("the value is of another type or other sizes", where);
  if (value.memory != LATHE_HOST || !isRowMajor(value) || (value.bytes && value.bytes < state.bytes) ||
      (!value.data && state.bytes))
    return usageError("the value is taken from host memory, row-major, of " + std::to_string(state.bytes) + " bytes",
                      where);
  state.written = true;
  if (!state.bytes)
    return okStatus();
  LATHE_RETURN_IF_ERROR(device->copy(state.memory.data(), value.data, state.bytes, CopyKind::HostToDevice));
  return device->sync();
}

Status Context::registerCall(const std::string &name, CustomCall call) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(drain());
  if (!call.function)
    return usageError("no function for custom call '" + name + "'");
  calls[name] = call;
  return okStatus();
}

void Context::setTap(lathe_tap_function function, void *user) {
  (void)drain();
  tap = function;
  tapUser = user;
}

void Context::setProfiling(bool on) {
  (void)drain();
  profiling = on;
  if (!on)
    return;
  timedCalls.clear();
  for (auto &item : entries)
    item.second.profile.clear();
  profileStart = std::chrono::steady_clock::now();
}

void Context::timeGraphs(bool on) {
  (void)drain();
  timingGraphs = on;
}

const std::vector<lathe_profile_row> &Context::profileRows() {
  (void)drain();
  rows.clear();
  for (auto &[program, memory] : entries)
    for (const auto &block : program->blocks)
      for (const CompiledStep &step : block) {
        auto it = memory.profile.find(&step);
        if (it == memory.profile.end())
          continue;
        ProfileEntry &p = it->second;
        p.row = rows.size();
        rows.push_back({program->plan.entry.c_str(), p.name.c_str(), p.config.c_str(),
                        step.nodes.c_str(), p.calls, p.seconds, p.flops, p.bytes});
      }
  return rows;
}

const std::vector<lathe_profile_event> &Context::profileEvents() {
  (void)profileRows();
  profiledEvents.clear();
  for (const TimedCall &call : timedCalls)
    profiledEvents.push_back({call.of->row, call.begin, call.seconds});
  return profiledEvents;
}

lathe_counters Context::counters() const {
  std::lock_guard lock(mutex);
  return sums;
}

void Context::resetCounters() {
  std::lock_guard lock(mutex);
  lathe_counters fresh{};
  fresh.arena_bytes = sums.arena_bytes;
  fresh.state_bytes = sums.state_bytes;
  fresh.weight_bytes = sums.weight_bytes;
  fresh.graphs = sums.graphs;
  fresh.graph_bytes = sums.graph_bytes;
  sums = fresh;
}

Result<void *> Context::handOver(const lathe_tensor &t, size_t bytes) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  if (device->isHost() || t.memory != LATHE_DEVICE || !t.data || t.rank < 0 || t.rank > LATHE_MAX_RANK || !isRowMajor(t))
    return nullptr;
  LATHE_RETURN_IF_ERROR(drain());
  for (auto &[program, memory] : entries)
    for (PortMemories &ports : memory.ports)
      for (size_t i = 0; i < ports.outputs.size(); ++i) {
        Block &block = ports.outputs[i].device;
        if (block.data() != t.data || !block.ofResults() || bytes > block.bytes() || block.bytes() / 2 > std::max<size_t>(bytes, 64))
          continue; // of a block that was made for more most would lie idle
        const auto lieThere = std::ranges::count_if(program->plan.outputs, [&](const engine::Port &port) {
          const engine::Buffer &root = program->plan.buffers[program->buffers[port.buffer].root];
          return root.kind == engine::BufferKind::Output && root.index == static_cast<int32_t>(i);
        });
        return lieThere > 1 ? nullptr : block.handOver();
      }
  return nullptr;
}

Result<void *> Context::copyOut(const lathe_tensor &t, size_t bytes) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  bool onHost = device->isHost() || t.memory == LATHE_HOST;
  // What is on the host beside a GPU is nobody's but the caller's: steps may go on.
  bool besideDevice = onHost && !device->isHost();
  bool workerOwns;
  {
    std::lock_guard lock(mutex);
    workerOwns = workerHasWork;
  }
  if (!besideDevice || workerOwns)
    LATHE_RETURN_IF_ERROR(drain());
  if (t.rank < 0 || t.rank > LATHE_MAX_RANK || (t.rank > 0 && !t.dims) || !t.data)
    return usageError("a tensor without data or sizes");
  std::vector<int64_t> dims(t.dims, t.dims + t.rank);
  std::vector<int64_t> strides =
      t.strides ? std::vector<int64_t>(t.strides, t.strides + t.rank) : denseStrides(dims);
  size_t room = std::max<size_t>(bytes, 64);
  Result<void *> memory = onHost ? device->allocateHost(room) : device->allocateResult(room);
  if (!memory)
    return memory;
  Status s;
  if (besideDevice && isDense(dims, strides))
    std::copy_n(static_cast<const char *>(t.data), bytes, static_cast<char *>(*memory));
  else if (besideDevice)
    s = unsupportedError("strides in host memory beside a GPU");
  else
    s = copyToDense(*device, *memory, t.data, static_cast<DType>(t.dtype), dims, strides,
                    CopyKind::DeviceToDevice);
  if (s.ok() && !besideDevice)
    s = device->sync();
  if (!s.ok()) {
    onHost ? device->freeHost(*memory) : device->freeResult(*memory);
    return s;
  }
  return memory;
}

} // namespace lathe::runtime
