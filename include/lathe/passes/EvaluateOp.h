//===- EvaluateOp.h - a lathe op through the reference ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bridge from IR to lib/reference: for constant folding and for replaying
// kernels in `lathe compare`.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_EVALUATEOP_H
#define LATHE_PASSES_EVALUATEOP_H

#include "lathe/ir/Lathe.h"
#include "lathe/reference/Reference.h"

namespace lathe {

/// Results of one op for these operand values; sizes in types and attributes are
/// evaluated with `symbols`. Constants need no inputs. Errors as
/// reference::evaluate, and Unsupported for attributes it has no form for.
Result<std::vector<HostTensor>> evaluateOp(mlir::Operation *op, std::span<const HostTensor> inputs,
                                           const std::map<std::string, int64_t> &symbols = {});

/// Outputs of a kernel region (block arguments = inputs, lathe.yield = outputs).
Result<std::vector<HostTensor>> evaluateRegion(mlir::Block &body,
                                               std::span<const HostTensor> inputs,
                                               const std::map<std::string, int64_t> &symbols);

/// Elements of a constant attribute; sizes must be static. `rank`: whose part of a sharded one, which
/// without it is an error.
Result<HostTensor> hostTensorOf(mlir::Attribute value, mlir::Type type, mlir::MLIRContext *context,
                                std::optional<int64_t> rank = std::nullopt);

} // namespace lathe

#endif // LATHE_PASSES_EVALUATEOP_H
