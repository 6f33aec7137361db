//===- Assign.h - which layer gets which format -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layers have a choice of formats. Each choice loses something and costs something (seconds, or bytes); some pairs of
// layers cost more or less together than apart, as where one writes the codes that the other reads. What is wanted are
// the assignments that no other one beats in both.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_QUANTIZE_ASSIGN_H
#define LATHE_QUANTIZE_ASSIGN_H

#include "lathe/support/Status.h"

#include <cstddef>
#include <vector>

namespace lathe::quantize {

struct Choice {
  double loss = 0; ///< not below 0; infinite: not to be taken
  double cost = 0;
};

/// What two layers cost together beside what they cost apart: of each choice of the first and each of the second.
struct PairCost {
  size_t first = 0, second = 0; ///< first < second
  std::vector<std::vector<double>> cost;
};

struct Assignment {
  std::vector<size_t> choices; ///< of each layer
  double loss = 0, cost = 0;   ///< sums
};

/// The assignments that no other has less loss and no more cost than, or the reverse, by growing cost: the Pareto front of a
/// multiple-choice knapsack, by dynamic programming over the layers in their order (Nemhauser and Ullmann, "Discrete
/// dynamic programming and capital allocation", 1969), with a front for each combination of choices of those layers
/// that a later one has a pair with. Each layer has one choice at least. Exact as long as no front is longer than
/// `longest`; of a longer one the least loss is kept in each of `longest` equal steps of cost, so that an assignment
/// costs at most layers * (range of costs) / longest more than the best of its loss. Usage error for pairs that would
/// need more than 4096 fronts at once.
Result<std::vector<Assignment>> paretoFront(const std::vector<std::vector<Choice>> &layers,
                                            const std::vector<PairCost> &pairs, size_t longest = 4096);

} // namespace lathe::quantize

#endif // LATHE_QUANTIZE_ASSIGN_H
