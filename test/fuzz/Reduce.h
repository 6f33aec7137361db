//===- Reduce.h - a failing model made small --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_FUZZ_REDUCE_H
#define LATHE_TEST_FUZZ_REDUCE_H

#include "Generator.h"

#include <functional>

namespace lathe::fuzz {

/// Values of all results of nodes of the model, by name; fewer where they cannot be had.
using Evaluate = std::function<std::vector<std::pair<std::string, HostTensor>>(const TestModel &)>;

/// The smallest model found for which `fails`: fewer outputs, fewer nodes, results of nodes as inputs. Each step is
/// kept only where it still fails; `tries` at most.
TestModel reduce(const TestModel &model, const std::function<bool(const TestModel &)> &fails, const Evaluate &evaluate,
                 int tries);

/// The model with every result of a node of its graph as an output, and their names; and without its other outputs. No names where
/// shape inference fails.
TestModel withAllResults(const TestModel &model, std::vector<std::string> &names);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_REDUCE_H
