//===- Values.h - the special values of each element type --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_SPECIAL_VALUES_H
#define LATHE_TEST_SPECIAL_VALUES_H

#include "lathe/support/HostTensor.h"

namespace lathe::special {

/// For ops of one operand and conversions: also the edges of every integer type. One dimension.
HostTensor allValues(DType type);
/// The fewer that ops of two operands take in all pairs.
HostTensor fewValues(DType type);
/// All pairs of two lists: first of each pair, second of each.
std::pair<HostTensor, HostTensor> pairsOf(const HostTensor &first, const HostTensor &second);
/// For reductions: rows of `length` elements, each with something special in it.
/// `squared`: the squares of large floats are finite, and so are sums of them.
HostTensor rowsOf(DType type, int64_t length, bool squared = false);
/// Rows become columns.
HostTensor transposed(const HostTensor &rows);

} // namespace lathe::special

#endif // LATHE_TEST_SPECIAL_VALUES_H
