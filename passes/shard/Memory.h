//===- Memory.h - what ways to run ops keep in a rank's memory --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An estimate of one entry, before anything is fused or placed: weights and states, as each rank has them, all the time; results
// from their op to their last reader, but for those that fuse with their only reader. What is brought together for one
// reader alone is not counted.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_SHARD_MEMORY_H
#define LATHE_PASSES_SHARD_MEMORY_H

#include "Strategies.h"

#include "lathe/analysis/LimitedSearch.h"

#include "llvm/ADT/SmallBitVector.h"

namespace lathe::shard {

/// Bytes of values at the usual sizes.
struct UsualSizes {
  int64_t ranks;
  const std::map<std::string, int64_t> &optima;

  double bytesOf(mlir::Type type) const;
  /// What a rank has of the value, of 1.
  double shareOf(mlir::Value value, const Layout &layout) const;
};

/// Whether a kernel takes this kind of op in beside what makes or reads its values, which then are nowhere.
bool fusesWithNeighbours(OpClass kind);

/// A value that several ops read, as a choice between forms of it: as its op leaves it, or all of it beside.
struct SharedValue {
  mlir::Value value;
  size_t form = 0;          ///< its number in the problem
  std::vector<bool> whole; ///< by choice: all of it is there, too
};

class RankMemory {
public:
  /// `ways` of `ops`, which are the first of the problem; weights and states become further ones, tied to them.
  RankMemory(const UsualSizes &sizes, llvm::ArrayRef<mlir::Operation *> ops,
             const std::vector<std::vector<Strategy>> &ways, llvm::ArrayRef<SharedValue> shared,
             analysis::StrategyProblem &problem, int64_t limit);

  const analysis::StrategyMemory &memory() const { return limits; }
  /// Bytes at the fullest step; `choices` of ops and shared values, those of weights follow.
  int64_t peak(std::vector<int> choices) const;

private:
  /// A constant, as a choice between the sets of layouts that a rank may have of it.
  struct Weight {
    size_t number = 0; ///< in the problem
    std::vector<Layout> layouts;
    std::vector<std::pair<size_t, size_t>> readers; ///< op, operand
    std::vector<llvm::SmallBitVector> sets;
  };

  void addResults();
  void addShared(llvm::ArrayRef<SharedValue> shared);
  void addWeights();
  void addStates();
  void add(size_t number, analysis::StrategyMemory::Lifetime life, std::vector<int64_t> bytes);
  analysis::StrategyMemory::Lifetime lifeOf(mlir::Value value) const;
  void tie(size_t op, size_t number, size_t choices, llvm::function_ref<bool(size_t, size_t)> fits);

  const UsualSizes &sizes;
  llvm::ArrayRef<mlir::Operation *> ops;
  const std::vector<std::vector<Strategy>> &ways;
  analysis::StrategyProblem &problem;
  llvm::DenseMap<mlir::Operation *, size_t> number;
  std::vector<Weight> weights;
  std::vector<std::pair<size_t, size_t>> states; ///< number, op
  analysis::StrategyMemory limits;
};

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_MEMORY_H
