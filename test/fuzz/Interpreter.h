//===- Interpreter.h - a legalized model, op by op --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs what legalize leaves through lib/reference. With noise it runs as a machine could that
// rounds in another way: what then differs, no compiler has to keep.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_FUZZ_INTERPRETER_H
#define LATHE_TEST_FUZZ_INTERPRETER_H

#include "lathe/ir/Lathe.h"
#include "lathe/support/HostTensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>
#include <vector>

namespace lathe::fuzz {

struct Interpreted {
  HostTensor tensor;
  bool inexact = false; ///< what it is depends on how something was rounded
};

/// Results of a function of phase legalize. `noise`: the seed of what rounding errors are.
///
/// Every read of a value that is the result of inexact arithmetic, and every term of a sum, is off by up to four
/// units of rounding of its type; each read by itself, since a compiler may compute a value again in another way. Values
/// that are moved, compared, negated or the like stay what they are.
/// Unsupported where the reference knows no such op, RuntimeFailure where values are at fault.
Result<std::vector<Interpreted>> interpret(mlir::func::FuncOp main, const std::vector<HostTensor> &inputs,
                                           std::optional<uint64_t> noise);

/// Results of a function behind shard on each rank of a mesh, op by op: [rank][result]. What ranks exchange is
/// reduced in their order. Internal where an op reaches beyond the ranks.
Result<std::vector<std::vector<HostTensor>>> interpretRanks(mlir::func::FuncOp main, int64_t ranks,
                                                            const std::vector<HostTensor> &inputs);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_INTERPRETER_H
