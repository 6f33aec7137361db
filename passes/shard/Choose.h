//===- Choose.h - a strategy for each op at least cost ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SHARD_CHOOSE_H
#define LATHE_PASSES_SHARD_CHOOSE_H

#include "Strategies.h"

#include "lathe/codegen/TargetRates.h"
#include "lathe/support/Status.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lathe::shard {

/// What estimates of time go by. Choices hang on ratios, and on weights that are not replicated where they need not be.
/// By itself the order of things on a CPU whose ranks are threads.
struct Costs {
  /// Of GPUs with tensor cores that reach each other's memory over links of hundreds of GB a second. A meeting is a
  /// kernel of some microseconds, and one boundary more that nothing fuses over.
  static Costs ofGpus(const TargetRates &rates) {
    return {.flops = 5e14, .bytes = 3e12, .meetingSeconds = 8e-6, .exchangedBytes = rates.exchangedBytesPerSecond};
  }

  double flops = 5e10;        ///< a second, of a rank
  double bytes = 1e10;        ///< a second that a rank reads or writes
  double meetingSeconds = 2e-5; ///< of a collective, whatever its size
  double exchangedBytes = 5e9;  ///< a second that a rank gets from others
  /// For each byte of a product's weights that every rank has all of: a rank is to hold its share.
  double replicatedByte = 1e-6;
  /// Tests: each way of an op costs up to so many seconds more, drawn from a seed, so that all ways are taken sometime.
  double drawnSeconds = 0;
  uint64_t drawSeed = 0;
};

/// What was said of a value: of constants and results by this name.
struct Hint {
  std::string name, text;
  std::optional<int64_t> dim; ///< none: replicated
  bool isOfModel = false; ///< and not of the user: it is left out where it cannot hold
};

/// The way of each op of an entry but constants and the terminator.
using Strategies = llvm::DenseMap<mlir::Operation *, Strategy>;

struct Choice {
  Strategies ways;
  double seconds = 0; ///< what the estimate says of them, hints or not
  std::vector<std::string> leftOut; ///< hints of the model that cannot hold, and why
  bool exact = true;  ///< no other ways that the hints allow, and that fit, have less
  int64_t bytes = 0;  ///< of a rank at the fullest step, by the estimate of Memory.h
};

/// How states lie, by name: entries share them.
using StateLayouts = std::map<std::string, Layout>;

/// `rankBytes`: that a rank has for weights, states and what lives at once. `states`: of entries before this one, which it
/// follows, and adds its own to. Errors: Usage for hints that name nothing, or that no strategy fits, and where nothing that
/// fits into memory was found.
Result<Choice> choose(mlir::func::FuncOp func, int64_t ranks, const Costs &costs, llvm::ArrayRef<Hint> hints,
                      std::optional<int64_t> rankBytes, const std::map<std::string, int64_t> &optima,
                      StateLayouts &states);

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_CHOOSE_H
