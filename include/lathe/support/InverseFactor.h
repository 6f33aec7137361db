//===- InverseFactor.h - the inverse of a Gram matrix, as a product -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What GPTQ and SparseGPT spread errors over inputs by.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_INVERSEFACTOR_H
#define LATHE_SUPPORT_INVERSEFACTOR_H

#include "lathe/support/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lathe {

struct InverseFactor {
  std::vector<double> upper; ///< U, [depth, depth] row-major
  double damping = 0;        ///< of the mean of the diagonal, as it was needed
  int64_t unseen = 0;        ///< inputs whose element of the diagonal is zero: it counts as the mean
};

/// U, upper, with inverse(H) = U^T U and H = gram + damping * mean(diagonal) * I. `damping` becomes ten times as large
/// until H is positive definite. `gram` [depth, depth], row-major, of sums x^T x. Invalid, located at `where`, where these
/// are not finite or no damping helps.
Result<InverseFactor> inverseFactor(std::vector<double> gram, int64_t depth, double damping, const std::string &where);

} // namespace lathe

#endif // LATHE_SUPPORT_INVERSEFACTOR_H
