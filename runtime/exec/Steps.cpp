//===- Steps.cpp - submitting steps and waiting for them --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step whose program is nothing but launches and copies is enqueued by the thread that
// submits it. All others (every step of the CPU, host ops, sizes and conditions that come
// with the run) are worked off in order by a thread of the context. Nothing here waits
// without a deadline.
//
//===----------------------------------------------------------------------===//

#include "Exclusive.h"
#include "Run.h"
#include "Tensors.h"

#include "lathe/engine/Draws.h"

#include <cstdlib>

namespace lathe::runtime {

namespace {

constexpr size_t kMaxSteps = 64; ///< submitted and not waited for
constexpr size_t kMaxUnsettled = 8; ///< of them, until a submission looks how far the device is

Status cancelledError(uint64_t step, uint64_t failed, const Status &why) {
  std::string text = "step " + std::to_string(step) + " is cancelled";
  if (!why.ok())
    text += ": step " + std::to_string(failed) + " failed: " +
            (why.location().empty() ? "" : why.location() + ": ") + why.message();
  return Status(ErrorCode::Cancelled, text);
}

} // namespace

Status QueuedStep::keep(std::span<const lathe_tensor> given) {
  for (const lathe_tensor &t : given) {
    lathe_tensor own = t;
    bool isTensor = t.rank >= 0 && t.rank <= LATHE_MAX_RANK && (t.rank == 0 || t.dims) &&
                    lathe_dtype_name(t.dtype);
    if (isTensor && t.rank > 0) {
      sizes.emplace_back(t.dims, t.dims + t.rank);
      own.dims = sizes.back().data();
    }
    if (isTensor && t.dtype == LATHE_STRING && t.data) {
      data.emplace_back(std::malloc(t.bytes + 1), &std::free);
      if (!data.back())
        return runtimeError("out of memory: " + std::to_string(t.bytes) + " bytes");
      std::memcpy(data.back().get(), t.data, t.bytes);
      own.data = data.back().get();
    } else if (isTensor && t.memory == LATHE_HOST && t.data) {
      std::vector<int64_t> dims(t.dims, t.dims + t.rank);
      std::vector<int64_t> strides =
          t.strides ? std::vector<int64_t>(t.strides, t.strides + t.rank) : denseStrides(dims);
      auto dtype = static_cast<DType>(t.dtype);
      for (int64_t d : dims)
        if (d < 0)
          return usageError("a size is negative");
      Result<int64_t> bytes = denseBytes(dtype, dims, "an input");
      if (!bytes)
        return bytes.status();
      if (t.bytes && isDense(dims, strides) && t.bytes < static_cast<uint64_t>(*bytes))
        return usageError(std::to_string(t.bytes) + " bytes are given, the sizes need " +
                          std::to_string(*bytes));
      size_t room = (static_cast<size_t>(*bytes) + 64) / 64 * 64;
      data.emplace_back(std::aligned_alloc(64, room), &std::free);
      if (!data.back())
        return runtimeError("out of memory: " + std::to_string(room) + " bytes");
      if (*bytes)
        LATHE_RETURN_IF_ERROR(gatherOnHost(data.back().get(), t.data, dtype, dims, strides));
      own.data = data.back().get();
      own.bytes = static_cast<uint64_t>(*bytes);
      own.strides = nullptr;
    } else if (isTensor && t.strides) {
      sizes.emplace_back(t.strides, t.strides + t.rank);
      own.strides = sizes.back().data();
    }
    inputs.push_back(own);
  }
  return okStatus();
}

DrawnInputs::DrawnInputs(const Program &program, std::span<const lathe_tensor> inputs, uint64_t seed,
                         uint64_t run)
    : words{static_cast<int64_t>(seed), static_cast<int64_t>(run)}, given(inputs) {
  if (!engine::draws(program.plan))
    return;
  list.assign(inputs.begin(), inputs.end());
  list.push_back({words, sizeof words, LATHE_I64, LATHE_HOST, 1, kDims, nullptr});
  given = list;
}

Result<const Program *> Context::programOf(const std::string &entry) const {
  if (const Program *program = engine->program(entry, targetName))
    return program;
  std::string known;
  for (const std::string &name : engine->entries())
    known += (known.empty() ? "" : ", ") + name;
  return usageError("the engine has no entry '" + entry + "' (it has " + known + ")");
}

/// Whether a step can be enqueued as a whole, without the host.
bool Context::streams(const Program &program) const {
  return !device->isHost() && program.capturable && !tap && !profiling && !timingGraphs;
}

Flight *Context::find(uint64_t step) {
  for (auto &flight : flights)
    if (flight->number == step)
      return flight.get();
  return nullptr;
}

/// Whether the device has surely done all of a step that has been started.
bool Context::isOver(uint64_t step) const {
  std::lock_guard lock(mutex);
  for (const auto &flight : flights)
    if (flight->state == Flight::State::Started)
      return step < flight->number;
  return true;
}

/// A place that nobody has, which is taken then.
Result<int> Context::takeSlot() {
  std::lock_guard lock(mutex);
  size_t free = 0;
  while (free < slots.size() && slots[free].taken)
    ++free;
  if (free == slots.size()) {
    Result<MarkHandle> mark = device->makeMark();
    if (!mark)
      return mark.status();
    slots.emplace_back();
    slots.back().mark = *mark;
    slots.back().status = Block(*device, true);
  }
  slots[free].taken = true;
  return static_cast<int>(free);
}

Slot &Context::slotAt(int slot) {
  std::lock_guard lock(mutex);
  return slots[slot];
}

void Context::freeSlot(int slot) {
  std::lock_guard lock(mutex);
  slots[slot].taken = false;
}

void Context::count(const lathe_counters &step) {
  uint64_t arenaBytes = 0;
  for (std::vector<Block> *list : {&arenas, &hostArenas})
    for (const Block &b : *list)
      arenaBytes += b.bytes();
  std::lock_guard lock(mutex);
  sums.runs += step.runs;
  sums.launches += step.launches;
  sums.graph_launches += step.graph_launches;
  sums.graphs_captured += step.graphs_captured;
  sums.graph_nodes_updated += step.graph_nodes_updated;
  sums.host_steps += step.host_steps;
  sums.bytes_to_device += step.bytes_to_device;
  sums.bytes_from_device += step.bytes_from_device;
  sums.bytes_staged += step.bytes_staged;
  sums.state_bytes_appended += step.state_bytes_appended;
  sums.state_bytes_copied += step.state_bytes_copied;
  sums.graph_seconds += step.graph_seconds;
  sums.arena_bytes = arenaBytes;
  sums.state_bytes = states->totalBytes();
  sums.weight_bytes = image->weightBytes();
  sums.graphs = graphs.count();
  sums.graph_bytes = graphs.bytes();
}

Status Context::startFlight(Flight &flight, const Program &program,
                            std::span<const lathe_tensor> inputs, std::span<lathe_tensor> outputs,
                            const Events &events) {
  auto run = std::make_unique<Run>(*this, program, flight.number, flight.slot);
  Status status = run->start(inputs, outputs, events);
  count(std::exchange(run->sums, {}));
  if (status.ok()) {
    std::lock_guard lock(mutex);
    flight.run = std::move(run);
    flight.state = Flight::State::Started;
  }
  return status;
}

void Context::endFlight(Flight &flight, Status outcome) {
  std::lock_guard lock(mutex);
  flight.outcome = std::move(outcome);
  flight.state = Flight::State::Ended;
  changed.notify_all();
}

/// The first flight that is started has failed or is cancelled, and with it all that are started
/// behind it. False while the device has not done with them.
Result<bool> Context::cancelBehind(Status outcome) {
  std::vector<Flight *> started;
  {
    std::lock_guard lock(mutex);
    for (auto &flight : flights)
      if (flight->state == Flight::State::Started)
        started.push_back(flight.get());
  }
  for (size_t i = 1; i < started.size(); ++i) {
    Result<bool> over = started[i]->run->over();
    if (over && !*over)
      return false; // nothing may be undone under its feet; a lost device does nothing any more
  }
  bool byCaller = outcome.code() == ErrorCode::Cancelled;
  uint64_t number = started.front()->number;
  for (size_t i = started.size(); i-- > 0;)
    started[i]->run->undo();
  {
    std::lock_guard lock(mutex);
    if (!byCaller && !failedStep) {
      failedStep = number;
      failure = outcome;
    }
  }
  for (Flight *flight : started)
    endFlight(*flight, flight == started.front() ? outcome
                       : byCaller ? cancelledError(flight->number, 0, okStatus())
                                  : cancelledError(flight->number, number, outcome));
  return true;
}

Status Context::lookAhead(uint64_t number) {
  if (Result<bool> all = advanceFlights(); !all)
    return all.status();
  std::lock_guard lock(mutex);
  if (failedStep && failedStep < number)
    return cancelledError(number, failedStep, failure);
  Flight *flight = find(number);
  return flight ? flight->behind : okStatus();
}

/// Ends the flights that are over, in order. True when none is started any more.
Result<bool> Context::advanceFlights() {
  for (;;) {
    Flight *front = nullptr;
    {
      std::lock_guard lock(mutex);
      for (size_t i = 0; i < flights.size() && !front; ++i)
        if (flights[i]->state == Flight::State::Started)
          front = flights[i].get();
    }
    if (!front)
      return true;
    if (!front->decided) {
      Result<bool> over = front->run->over();
      if (over && !*over)
        return false;
      Status outcome = over.status();
      if (outcome.ok() && isCancelled(front->number) && !endsTogether()) // what ranks have agreed on stays
        outcome = cancelledError(front->number, 0, okStatus());
      if (outcome.ok())
        outcome = front->run->finish();
      count(std::exchange(front->run->sums, {}));
      if (outcome.ok()) {
        endFlight(*front, okStatus());
        continue;
      }
      front->outcome = outcome;
      front->decided = true;
    }
    Result<bool> undone = cancelBehind(front->outcome);
    if (!undone || !*undone)
      return undone;
  }
}

Result<uint64_t> Context::admit(const Program &program, std::span<const lathe_tensor> given,
                                std::span<lathe_tensor> outputs, const Events &events, bool here) {
  auto flight = std::make_unique<Flight>();
  flight->number = submitted + 1;
  const bool whole = streams(program);
  bool workerOwns = false;
  size_t live = 0;
  uint64_t failed = 0;
  auto look = [&] {
    std::lock_guard lock(mutex);
    workerOwns = workerHasWork;
    live = flights.size();
    failed = failedStep;
  };
  look();
  if (!workerOwns && here && !whole) {
    // The host takes part in the step: what is ahead comes to its end first.
    LATHE_RETURN_IF_ERROR(drain());
    look();
  } else if (!workerOwns && live >= kMaxUnsettled) {
    // Waits ask the device what has ended. A submission does where nobody waits, so that graphs of
    // steps that are over can make room for others.
    if (Result<bool> settled = advanceFlights(); !settled)
      return settled.status();
    look();
  }
  if (live >= kMaxSteps)
    return usageError(std::to_string(kMaxSteps) + " steps are submitted: wait for one of them");
  if (failed) {
    // Its caller did not know yet what it stands behind.
    std::lock_guard lock(mutex);
    flight->outcome = flight->behind = cancelledError(flight->number, failed, failure);
  }
  if (failed && !tellsAll) { // else the worker tells the other ranks
    std::lock_guard lock(mutex);
    flight->state = Flight::State::Ended;
    flights.push_back(std::move(flight));
    return ++submitted;
  }
  DrawnInputs drawn(program, given, drawSeed, nextDraw);
  nextDraw += engine::draws(program.plan);
  std::span<const lathe_tensor> inputs = drawn.all();
  // A step of a mesh begins when all ranks do, which the thread that submits to one after another cannot wait for.
  if (!workerOwns && !failed && (here || (whole && !communicator))) {
    Result<int> slot = takeSlot();
    if (!slot)
      return slot.status();
    flight->slot = *slot;
    Flight &added = *flight;
    {
      std::lock_guard lock(mutex);
      flights.push_back(std::move(flight));
    }
    ++submitted;
    Status status;
    if (whole) {
      DeviceUse use(*device);
      status = startFlight(added, program, inputs, outputs, events);
    } else { // functions of the application may run in it
      status = startFlight(added, program, inputs, outputs, events);
    }
    if (status.ok())
      return submitted.load();
    if (status.code() == ErrorCode::Deadline)
      expired = true;
    std::lock_guard lock(mutex);
    slots[*slot].taken = false;
    flights.pop_back();
    --submitted;
    return status;
  }
  auto queued = std::make_unique<QueuedStep>();
  queued->program = &program;
  queued->outputs = outputs;
  queued->waits.assign(events.waits.begin(), events.waits.end());
  queued->record = events.record;
  LATHE_RETURN_IF_ERROR(queued->keep(inputs));
  flight->queued = std::move(queued);
  // Taken now: a place that becomes free by a wait behind this still holds results that the caller
  // reads, until it submits again.
  Result<int> slot = takeSlot();
  if (!slot)
    return slot.status();
  flight->slot = *slot;
  std::lock_guard lock(mutex);
  flights.push_back(std::move(flight));
  workerHasWork = true;
  if (!worker.joinable())
    worker = std::thread([this] { workerMain(); });
  changed.notify_all();
  return ++submitted;
}

/// Works off queued steps in order.
void Context::workerMain() {
  std::unique_lock lock(mutex);
  for (;;) {
    if (peers && !workerHasWork && !stopping) {
      const uint64_t seen = submitted;
      lock.unlock();
      for (Deadline sleep = Deadline::in(kAwake); submitted == seen && !sleep.passed();)
        std::this_thread::yield();
      lock.lock();
    }
    changed.wait(lock, [&] { return workerHasWork || stopping; });
    if (stopping && !workerHasWork)
      break;
    Flight *next = nullptr;
    for (auto &flight : flights)
      if (!next && flight->state == Flight::State::Queued)
        next = flight.get();
    // The other processes wait for the end of a step on this rank, whether its caller does or not.
    if (!next && world && std::any_of(flights.begin(), flights.end(), [](const auto &flight) {
          return flight->state == Flight::State::Started;
        })) {
      lock.unlock();
      Result<bool> moved = pollUntil(Deadline::in(patience), [&]() -> Result<bool> {
        Result<bool> all = advanceFlights();
        if (!all || *all)
          return all;
        std::lock_guard guard(mutex);
        return std::any_of(flights.begin(), flights.end(),
                           [](const auto &flight) { return flight->state == Flight::State::Queued; });
      });
      lock.lock();
      if (moved && *moved)
        continue;
    }
    if (!next) {
      workerHasWork = false;
      changed.notify_all();
      continue;
    }
    lock.unlock();
    // Where the host takes part, what is enqueued ahead comes to its end first, so that its errors cancel this one;
    // else they end all that is enqueued behind it.
    const bool whole = streams(*next->queued->program);
    Result<bool> clear =
        whole ? advanceFlights() : pollUntil(Deadline::in(patience), [&] { return advanceFlights(); });
    Status status = clear.status();
    if (clear && !*clear && !whole)
      status = Status(ErrorCode::Deadline, "the steps ahead did not end");
    lock.lock();
    if (status.ok() && failedStep && failedStep < next->number)
      status = cancelledError(next->number, failedStep, failure);
    if (status.ok())
      status = next->behind;
    lock.unlock();
    if (status.ok() && isCancelled(next->number))
      status = cancelledError(next->number, 0, okStatus());
    if (!status.ok() && tellsAll)
      (void)communicator->begin("", status, [&] {
        return isCancelled(next->number) ? cancelledError(next->number, 0, okStatus()) : okStatus();
      });
    if (status.ok()) {
      const QueuedStep &q = *next->queued;
      if (whole) {
        DeviceUse use(*device);
        status = startFlight(*next, *q.program, q.inputs, q.outputs, {q.waits, q.record});
      } else {
        status = startFlight(*next, *q.program, q.inputs, q.outputs, {q.waits, q.record});
      }
      if (status.ok() && !whole) {
        clear = pollUntil(Deadline::in(patience), [&] { return advanceFlights(); });
        (void)clear; // the flight says how it went, or is still started: waits find it
      }
    }
    if (!status.ok()) {
      if (status.code() != ErrorCode::Cancelled) {
        lock.lock();
        if (!failedStep) {
          failedStep = next->number;
          failure = status;
        }
        lock.unlock();
      }
      endFlight(*next, status);
    }
    lock.lock();
  }
  // A context that was given up goes with its worker.
  std::shared_ptr<Context> last = std::move(self);
  lock.unlock();
}

/// Until the step has ended; a deadline error leaves everything as it is.
Status Context::awaitEnd(uint64_t step, Deadline deadline) {
  for (;;) {
    {
      std::unique_lock lock(mutex);
      auto isEnded = [&] {
        Flight *flight = find(step);
        return !flight || flight->state == Flight::State::Ended;
      };
      if (deadline.time() == Deadline::Clock::time_point::max())
        changed.wait(lock, [&] { return isEnded() || !workerHasWork; });
      else
        changed.wait_until(lock, deadline.time(), [&] { return isEnded() || !workerHasWork; });
      if (isEnded())
        return okStatus();
      if (workerHasWork)
        break;
    }
    // The worker has nothing to do: what is started is this thread's to look after.
    Result<bool> ended = pollUntil(deadline, [&]() -> Result<bool> {
      Result<bool> all = advanceFlights();
      if (!all)
        return all;
      std::lock_guard lock(mutex);
      Flight *flight = find(step);
      return !flight || flight->state == Flight::State::Ended;
    });
    if (!ended)
      return ended.status();
    if (!*ended)
      break;
  }
  expired = true;
  return Status(ErrorCode::Deadline, "step " + std::to_string(step) +
                                    " has not ended within the time that was given");
}

/// Until nothing is under way; what the steps came to is kept for their waits.
Status Context::drain() { return awaitEnd(submitted, Deadline::in(patience)); }

Status Context::settle(uint64_t step, Deadline deadline) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  return settleHere(step, deadline);
}

Status Context::settleHere(uint64_t step, Deadline deadline) {
  if (step > submitted)
    return usageError("step " + std::to_string(step) + " was never submitted");
  return awaitEnd(step, deadline);
}

/// Forgets all steps up to one that has ended; its own outcome.
Status Context::releaseHere(uint64_t step) {
  Status outcome;
  std::lock_guard lock(mutex);
  if (auto it = untold.find(step); it != untold.end()) {
    outcome = std::move(it->second);
    untold.erase(it);
  }
  while (!flights.empty() && flights.front()->number <= step &&
         flights.front()->state == Flight::State::Ended) {
    Flight &flight = *flights.front();
    if (flight.slot >= 0)
      slots[flight.slot].taken = false;
    if (flight.number == step)
      outcome = flight.outcome;
    else if (!flight.outcome.ok())
      untold[flight.number] = flight.outcome;
    flights.pop_front();
  }
  while (untold.size() > kMaxSteps)
    untold.erase(untold.begin());
  // The caller knows: what it submits from now on is not behind the failure, but what it has submitted is.
  if (failedStep && failedStep <= step) {
    for (auto &flight : flights)
      if (flight->state == Flight::State::Queued)
        flight->behind = cancelledError(flight->number, failedStep, failure);
    failedStep = 0;
  }
  if (flights.empty())
    cancelFrom = UINT64_MAX;
  return outcome;
}

Status Context::outcomeOf(uint64_t step) {
  std::lock_guard lock(mutex);
  Flight *flight = find(step);
  return flight ? flight->outcome : okStatus();
}

Status Context::release(uint64_t step) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  return releaseHere(step);
}

/// A step of a group failed elsewhere: this member's, and those behind it, have not been.
Status Context::takeBack(uint64_t step, const Status &why, Deadline deadline) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(awaitEnd(submitted, deadline));
  std::lock_guard lock(mutex);
  for (size_t i = flights.size(); i-- > 0;) {
    Flight &flight = *flights[i];
    if (flight.number < step || !flight.outcome.ok() || !flight.run)
      continue;
    flight.run->undo();
    flight.outcome = cancelledError(flight.number, step, why);
  }
  return okStatus();
}

Status Context::rest(Deadline deadline) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  LATHE_RETURN_IF_ERROR(awaitEnd(submitted, deadline));
  return device->sync();
}

Status Context::run(const std::string &entry, std::span<const lathe_tensor> inputs,
                    std::span<lathe_tensor> outputs) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  Result<const Program *> program = programOf(entry);
  if (!program)
    return program.status();
  Result<uint64_t> step = admit(**program, inputs, outputs, {}, /*here=*/true);
  if (!step)
    return step.status();
  LATHE_RETURN_IF_ERROR(awaitEnd(*step, Deadline::in(patience)));
  return releaseHere(*step);
}

Result<uint64_t> Context::submit(const std::string &entry, std::span<const lathe_tensor> inputs,
                                 std::span<lathe_tensor> outputs, const Events &events) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  Result<const Program *> program = programOf(entry);
  if (!program)
    return program.status();
  if (device->isHost() && (!events.waits.empty() || events.record))
    return unsupportedError("events of the caller on a device without streams");
  return admit(**program, inputs, outputs, events, /*here=*/false);
}

Status Context::wait(uint64_t step, int64_t nanoseconds) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  if (step == 0)
    step = submitted;
  LATHE_RETURN_IF_ERROR(
      settleHere(step, Deadline::in(nanoseconds < 0 ? patience : nanoseconds)));
  return releaseHere(step);
}

Result<bool> Context::ended(uint64_t step) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  if (step > submitted)
    return usageError("step " + std::to_string(step) + " was never submitted");
  {
    std::lock_guard lock(mutex);
    Flight *flight = find(step);
    if (!flight || flight->state == Flight::State::Ended)
      return true;
    if (workerHasWork)
      return false;
  }
  if (Result<bool> all = advanceFlights(); !all)
    return all;
  std::lock_guard lock(mutex);
  Flight *flight = find(step);
  return !flight || flight->state == Flight::State::Ended;
}

/// Any thread.
void Context::cancel(uint64_t step) {
  std::lock_guard lock(mutex);
  cancelTo = submitted.load();
  cancelFrom = std::min(cancelFrom.load(), step);
}

Status Context::warm(const std::string &entry, std::span<const lathe_tensor> inputs,
                     std::span<const lathe_tensor> outputs) {
  Exclusive exclusive(busy);
  LATHE_RETURN_IF_ERROR(exclusive.status());
  Result<const Program *> program = programOf(entry);
  if (!program)
    return program.status();
  LATHE_RETURN_IF_ERROR(drain());
  if (!streams(**program) && !device->isHost())
    return okStatus(); // nothing to capture
  Result<int> slot = takeSlot();
  if (!slot)
    return slot.status();
  std::vector<lathe_tensor> results(outputs.begin(), outputs.end());
  Run run(*this, **program, 0, *slot);
  DrawnInputs drawn(**program, inputs, drawSeed, 0);
  Status status = run.warm(drawn.all(), results);
  count(run.sums);
  freeSlot(*slot);
  return status;
}

} // namespace lathe::runtime
