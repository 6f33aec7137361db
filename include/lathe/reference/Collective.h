//===- Collective.h - what ranks exchange, in plain C++ ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_REFERENCE_COLLECTIVE_H
#define LATHE_REFERENCE_COLLECTIVE_H

#include "lathe/reference/Reference.h"

namespace lathe::reference {

/// The result of each member of a group from the operands of all, in their order: all_reduce, all_gather,
/// reduce_scatter. `kind`: sum, prod, max or min, of those that reduce; `dim`: of those that join or cut.
/// Floats are combined in double and rounded once; integers wrap. Errors: Unsupported for other names,
/// Invalid for operands that do not fit.
Result<std::vector<Tensor>> evaluateCollective(std::string_view op, const std::string &kind, int64_t dim,
                                               std::span<const Tensor> members);

} // namespace lathe::reference

#endif // LATHE_REFERENCE_COLLECTIVE_H
