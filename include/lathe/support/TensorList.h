//===- TensorList.h - lists of tensors as tensors of an entry ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An input or output x that is a sequence, or an optional, whose length only the run knows is, for an engine, the tensors
//
//   x[]          the elements of all its tensors, one tensor after another, each row-major: [E]
//   x[].shapes   a row for each tensor, its rank and then its sizes, with 0 behind these: i64 [N, 1 + the highest rank]
//   x[].present  of an optional sequence alone, whether it has a value: bool, no dimensions
//
// An optional tensor without a value has no row.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_TENSORLIST_H
#define LATHE_SUPPORT_TENSORLIST_H

#include "lathe/support/HostTensor.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lathe {

/// What stands behind the name of a list in the names of its parts.
inline constexpr const char *kListValues = "[]", *kListShapes = "[].shapes", *kListPresent = "[].present";

/// The parts of a list, in the order of an entry; none: an optional without a value. `dtype` is that of its tensors, for a list
/// without one; Usage where a tensor has another.
Result<std::vector<HostTensor>> packList(const std::optional<std::vector<HostTensor>> &tensors, DType dtype, bool hasPresent);

} // namespace lathe

#endif // LATHE_SUPPORT_TENSORLIST_H
