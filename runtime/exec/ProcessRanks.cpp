//===- ProcessRanks.cpp - ranks on GPUs that are processes ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps are enqueued behind each other: one begins on all ranks when each has said so, and ends when each has told how it
// went there, while others have begun. Kernels of a rank see the memory of another only after it was handed over, and
// begin anew after a failure only when nothing runs anywhere: what a rank wants of that it notes as a step begins, and
// all do it together.
//
// A rank that is gone is found by the communicator's watch, which ends the kernels that wait for it.
//
//===----------------------------------------------------------------------===//

#include "Run.h"

namespace lathe::runtime {

using namespace engine;

namespace {

/// What a rank notes as a step begins, and at collectives of sizes that come with the data.
enum Note : uint32_t {
  kBeginsAnew = 1, ///< kernels have given up, or may have: the arenas are to be prepared
  kHasFresh = 2,   ///< it has memory that the others do not know of
};

} // namespace

Status Run::lookAhead() const {
  Status ahead = context.lookAhead(number);
  return ahead.ok() ? cancelled() : ahead;
}

Status Run::startApart(const Status &ready, const Events &events) {
  WorldRank &world = *context.world;
  PeerArenas &peers = *context.peers;
  auto stop = [this] { return lookAhead(); };
  const Status own = ready.ok() ? makeCopies() : ready;
  const uint32_t note = (peers.isBroken() ? kBeginsAnew : 0) | (peers.hasFresh() ? kHasFresh : 0);
  uint32_t notes = 0;
  Status status = world.beginNoting(description(), own, stop, note, notes);
  const bool hasBegun = status.ok();
  if (hasBegun && notes)
    status = meetAgain(notes);
  meeting = world.step();
  if (!status.ok()) {
    status = placed(status, "begin");
  } else {
    status = runSteps(events);
    if (status.ok())
      return status;
    world.tellEnd(meeting, status, /*caused=*/false);
  }
  // Kernels elsewhere may wait for some that are not enqueued here; those of the steps ahead do not.
  if (hasBegun || (own.ok() && (status.code() == ErrorCode::Cancelled || status.code() == ErrorCode::Deadline))) {
    (void)pollUntil(Deadline::in(context.patience), [&] { return context.advanceFlights(); });
    peers.abort();
  }
  return status;
}

/// Memory for copies of operands, before the step begins: others have to know of it.
Status Run::makeCopies() {
  if (!shape || (shape->copiesAt == context.generation && shape->copiesOf == placement))
    return okStatus();
  for (const auto &block : program.blocks)
    for (const CompiledStep &step : block)
      if (step.collective)
        if (auto parts = collectiveParts(step); !parts)
          return parts.status();
  shape->copiesAt = context.generation;
  shape->copiesOf = placement;
  return okStatus();
}

/// What at least one rank has noted, on all. Whoever has begun takes part to the end: a rank that is cancelled has either
/// left before, so that all do, or fails the last meeting.
Status Run::meetAgain(uint32_t notes) {
  WorldRank &world = *context.world;
  auto progress = [this] { return context.advanceFlights().status(); };
  Status status;
  if (notes & kBeginsAnew) {
    auto rest = pollUntil(Deadline::in(context.patience), [&] { return context.advanceFlights(); });
    status = !rest   ? rest.status()
             : *rest ? device.sync()
                     : Status(ErrorCode::Deadline, "the steps ahead did not end");
  }
  LATHE_RETURN_IF_ERROR(world.meet("rest", status, progress));
  if (notes & kBeginsAnew)
    status = context.peers->prepare();
  if (notes & kHasFresh)
    if (Status shared = shareFresh(); status.ok())
      status = shared;
  if (status.ok())
    status = lookAhead();
  return world.meet("memory", status, progress);
}

Status Run::shareFresh() {
  return context.peers->shareFresh([this] { return context.world->lost(); });
}

/// The same of sizes that come with the data, in the middle of a step: all ranks are at this collective, and one alone
/// may have memory that the others do not know of.
Status Run::shareInStep(const std::string &nodes) {
  auto progress = [this] { return context.advanceFlights().status(); };
  uint32_t notes = 0;
  LATHE_RETURN_IF_ERROR(context.world->meetNoting("memory of node " + nodes, okStatus(), progress,
                                                  context.peers->hasFresh() ? kHasFresh : 0, notes));
  return notes & kHasFresh ? context.world->meet("memory", shareFresh(), progress) : okStatus();
}

/// This rank's part is over, or its device has failed: tells the others, and listens until all have told.
Result<bool> Run::overOnAllRanks(const Status &reached) {
  WorldRank &world = *context.world;
  if (!told) {
    own = reached.ok() ? cancelled() : reached;
    if (own.ok())
      own = checkStatus();
    // That a kernel has waited in vain follows from what went wrong elsewhere, which that rank tells.
    world.tellEnd(meeting, own, own.code() == ErrorCode::PeerLost);
    told = true;
  }
  if (isAgreed)
    return true;
  Status theirs;
  Result<bool> heard = world.heardEnd(meeting, theirs);
  if (heard && !*heard)
    return false;
  const bool waited = own.code() == ErrorCode::PeerLost;
  if (!heard)
    agreed = waited     ? Status(heard.status().code(), waitedIn + ": " + heard.status().message(), own.location())
             : own.ok() ? placed(heard.status(), "end")
                        : own;
  else
    agreed = own.ok() || (waited && !theirs.ok()) ? theirs : own;
  if (!agreed.ok())
    context.peers->noteBroken();
  return isAgreed = true;
}

/// Ends kernels that wait for a rank which has told that it failed, and could not end them itself.
void Run::watchOthers() {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (now - watched < 1ms || context.peers->isBroken())
    return;
  watched = now;
  if (context.world->hasFailed(meeting))
    context.peers->abort();
}

} // namespace lathe::runtime
