//===- Ranks.cpp - a step that other ranks do too ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"

#include <numeric>

namespace lathe::runtime {

using namespace engine;

/// What all ranks must run alike.
std::string Run::description() const {
  std::string what = "entry " + plan.entry;
  for (size_t i = 0; i < symbols.size(); ++i)
    if (program.isStatic)
      what += ", " + program.symbolNames[i] + " = " + std::to_string(symbols[i]);
  return what;
}

/// What has no place is of the step as a whole.
Status Run::placed(const Status &status, const char *when) const {
  return status.ok() || !status.location().empty()
             ? status
             : Status(status.code(), status.message(), std::string(when) + " of entry '" + plan.entry + "'");
}

/// It begins on all of them, or on none. `own`: why this rank cannot, or ok. On the CPU it ends on all, too; GPUs meet
/// in their kernels, and those of a rank that fails take the others with them.
Status Run::startOnAllRanks(const Status &own, const Events &events) {
  Communicator &ranks = *context.communicator;
  auto stop = [this] { return cancelled(); };
  LATHE_RETURN_IF_ERROR(placed(ranks.begin(description(), own, stop), "begin"));
  Status status = runSteps(events);
  if (!context.peers) {
    // The others are told what kernels report, too: behind the end it would be an error of this rank alone.
    if (status.ok())
      status = checkStatus();
    return placed(ranks.end(status, stop), "end");
  }
  if (!status.ok()) // kernels elsewhere may wait for some that were not enqueued here
    context.peers->abort();
  return status;
}

/// What a collective of all moves, with this rank's operands.
Result<Exchange> Run::exchangeOf(const CompiledStep &compiled) {
  const auto &step = std::get<CollectiveStep>(compiled.step->op);
  const int32_t in = step.inputs[0], out = step.outputs[0];
  const int64_t ranks = context.communicator->ranks(), bytes = layout->places[in].bytes;
  const bool gathers = step.name == "all_gather", scatters = step.name == "reduce_scatter";
  Result<std::vector<int64_t>> dims = dimsOf(in);
  if (!dims)
    return dims.status();
  Exchange x;
  x.kind = gathers    ? Exchange::Kind::AllGather
           : scatters ? Exchange::Kind::ReduceScatter
                      : Exchange::Kind::AllReduce;
  static_assert(int(Reduction::Prod) == int(Exchange::Reduction::Prod) &&
                int(Reduction::Max) == int(Exchange::Reduction::Max) &&
                int(Reduction::Min) == int(Exchange::Reduction::Min));
  x.reduction = static_cast<Exchange::Reduction>(step.reduction);
  x.dtype = plan.buffers[in].dtype;
  for (int32_t d = 0; (gathers || scatters) && d < step.dim; ++d)
    x.rows *= (*dims)[d];
  x.run = x.rows ? bytes / (bitWidth(x.dtype) / 8) / x.rows / (scatters ? ranks : 1) : 0;
  x.in = addresses.empty() ? addressOf(in) : addresses[in];
  x.out = addresses.empty() ? addressOf(out) : addresses[out];
  const int64_t made = gathers ? bytes * ranks : scatters ? bytes / ranks : bytes;
  if (!x.in || !x.out || layout->places[out].bytes != made)
    return invalidError("a collective uses memory of another size than its own", "node " + compiled.nodes);
  return x;
}

/// This rank's part in it, on memory of the host.
Status Run::exchange(const CompiledStep &compiled) {
  Result<Exchange> x = exchangeOf(compiled);
  if (!x)
    return x.status();
  const auto &step = std::get<CollectiveStep>(compiled.step->op);
  std::vector<int64_t> members(static_cast<size_t>(context.communicator->ranks()));
  std::iota(members.begin(), members.end(), 0);
  Status status = context.communicator->exchange(members, *x, [this] { return cancelled(); });
  return status.ok() || !status.location().empty()
             ? status
             : Status(status.code(), step.name + ": " + status.message(), "node " + compiled.nodes);
}

} // namespace lathe::runtime
