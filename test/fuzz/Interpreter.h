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

/// Which way roundings go: each at random, or all of them away from zero or towards it. Where a single rounding decides,
/// as in a quotient half-way between two codes, draws may all miss it; the two others do not. Late: no errors, but
/// results of f16 and bf16 stay in f32 until they are cast or given away, as within a kernel, so that they may be too large
/// or too small for their type.
enum class Rounding { Drawn, Up, Down, Late };

/// Rounding errors: every read of a value that is the result of inexact arithmetic, and every term of a sum, is off by
/// two to eight units of rounding of its type; each read by itself, since a compiler may compute a value again in
/// another way. Values that are moved, compared, negated or the like stay what they are. ONNX defines LogSoftmax as the
/// logarithm of a rounded Softmax, so its result is off by as much, absolutely.
struct Noise {
  uint64_t seed;
  Rounding rounding = Rounding::Drawn;
};

/// Results of a function of phase legalize.
/// Unsupported where the reference knows no such op, RuntimeFailure where values are at fault.
Result<std::vector<Interpreted>> interpret(mlir::func::FuncOp main, const std::vector<HostTensor> &inputs,
                                           std::optional<Noise> noise);

/// Results of a function behind shard on each rank of a mesh, op by op: [rank][result]. What ranks exchange is
/// reduced in their order. Internal where an op reaches beyond the ranks.
Result<std::vector<std::vector<HostTensor>>> interpretRanks(mlir::func::FuncOp main, int64_t ranks,
                                                            const std::vector<HostTensor> &inputs);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_INTERPRETER_H
