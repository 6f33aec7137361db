//===- Culprits.h - which of many changes make a result wrong ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_QUANTIZE_CULPRITS_H
#define LATHE_QUANTIZE_CULPRITS_H

#include "lathe/support/Status.h"

#include <functional>
#include <vector>

namespace lathe::quantize {

/// Whether the result is wrong with these of the changes and without the others.
using IsWrong = std::function<Result<bool>(const std::vector<bool> &changes)>;

/// The changes that make a result wrong, in their order, of `count`; none where it is right with all of them. Each
/// is one with which the result is wrong and without which it is right, beside all that are no culprits and lie before
/// it; together without the culprits it is right. For k of them the question is asked at most k (log2 count + 1) + 2
/// times (group testing by binary splitting, Hwang 1972, where what needs a question less lies ahead, because the
/// changes that are left for the next culprit are then fewer for each that cost more). Errors are those of the question.
Result<std::vector<size_t>> findCulprits(size_t count, const IsWrong &isWrong);

} // namespace lathe::quantize

#endif // LATHE_QUANTIZE_CULPRITS_H
