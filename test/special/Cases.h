//===- Cases.h - every op on special values ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise ops, conversions, reductions, scans and norms of every element type, over NaN,
// infinities, zeros of both signs, denormals, extremes, divisors of 0, shifts that are too far and
// powers of what has none. Cases over one set of inputs are one model: a group.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_SPECIAL_CASES_H
#define LATHE_TEST_SPECIAL_CASES_H

#include "lathe/support/HostTensor.h"

#include <string>
#include <vector>

namespace lathe::special {

/// One op with its attributes on one set of types: one result of its group.
struct Case {
  std::string name;  ///< "cast f32 -> i8"
  std::string op;    ///< as in test/tolerances.tsv: "Sin"
  DType dtype;       ///< of the result
  bool eitherZero = false; ///< the op may give +0 for -0 and the other way round
};

struct Group {
  std::string name; ///< "cast_f32"
  std::vector<HostTensor> inputs;
  std::vector<Case> cases;
  std::string text; ///< the model after legalize
};

std::vector<Group> makeGroups();

} // namespace lathe::special

#endif // LATHE_TEST_SPECIAL_CASES_H
