//===- Makers.h - what random graphs are made of ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A maker adds the nodes of one op (now and then with what the op needs around it) to a graph, over
// values that are there. It gives false, having added nothing, where it finds none that fit.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_FUZZ_MAKERS_H
#define LATHE_TEST_FUZZ_MAKERS_H

#include "GraphBuilder.h"

namespace lathe::fuzz {

struct Maker {
  const char *name;
  int weight; ///< how often, compared with the others
  bool (*make)(GraphBuilder &);
};

void addElementwise(std::vector<Maker> &makers);
void addReductions(std::vector<Maker> &makers);
void addMovement(std::vector<Maker> &makers);
void addIndexing(std::vector<Maker> &makers);
void addProducts(std::vector<Maker> &makers);
void addWindows(std::vector<Maker> &makers);
void addNorms(std::vector<Maker> &makers);
void addQuantization(std::vector<Maker> &makers);
void addControlFlow(std::vector<Maker> &makers);

/// One more maker's nodes; whether any maker found what it needs.
bool makeOne(GraphBuilder &b);

//===--- conditions on operands --------------------------------------------===//

inline bool isFloatValue(const Value &v) { return isFloat(v.dtype) && bitWidth(v.dtype) >= 16; }
inline bool isIntegerValue(const Value &v) { return isInteger(v.dtype) && bitWidth(v.dtype) >= 8; }
inline bool isNumber(const Value &v) { return isFloatValue(v) || isIntegerValue(v); }
inline bool isBool(const Value &v) { return v.dtype == DType::Bool; }
inline bool isKnown(const Value &v) { return v.isKnown(); }

/// A float that is there or new, of known sizes and a rank in the range.
Value pickFloat(GraphBuilder &b, int64_t minRank = 0, int64_t maxRank = 5);
/// An axis of a value of rank 1 or more, now and then counted from the end.
int64_t axisOf(GraphBuilder &b, const Value &v);
inline int64_t positive(int64_t axis, const Value &v) { return axis < 0 ? axis + v.rank() : axis; }

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_MAKERS_H
