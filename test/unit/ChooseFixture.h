//===- ChooseFixture.h - kernels to choose configurations for ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_UNIT_CHOOSEFIXTURE_H
#define LATHE_TEST_UNIT_CHOOSEFIXTURE_H

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"

#include <gtest/gtest.h>

namespace lathe::test {

inline DimExpr dim(const char *text) { return *DimExpr::parse(text); }

inline KernelDesc desc(KernelDesc::Kind kind, DType type, std::vector<DimExpr> parallel,
                std::vector<DimExpr> reduction = {}) {
  KernelDesc d;
  d.name = "k";
  d.kind = kind;
  d.parallel = parallel;
  d.reduction = reduction;
  d.numInputs = d.numOutputs = 1;
  BufferArg b;
  b.dtype = type;
  b.dims = b.physical = parallel;
  d.buffers = {b, b};
  for (const DimExpr &e : parallel) {
    std::set<std::string> names;
    e.collectSymbols(names);
    for (const std::string &n : names)
      d.symbols[n] = DimRange{0, 4096};
  }
  return d;
}

/// A product of M rows by constant weights [K, N], all of f32; "M" is the only size that may be unknown.
inline KernelDesc productByWeights(DimExpr m, int64_t n, int64_t k) {
  KernelDesc d;
  d.name = "k";
  d.kind = KernelDesc::Kind::Gemm;
  d.parallel = {m, n};
  d.reduction = {k};
  BufferArg buffer;
  buffer.dtype = DType::F32;
  for (std::vector<DimExpr> dims : {std::vector<DimExpr>{m, k}, {k, n}, {m, n}}) {
    buffer.dims = buffer.physical = dims;
    d.buffers.push_back(buffer);
  }
  d.numInputs = 2;
  d.numOutputs = 1;
  if (!m.isConstant())
    d.symbols["M"] = DimRange{0, 4096};
  d.operands.resize(2);
  d.operands[0].buffer = 0;
  d.operands[1] = {.buffer = 1, .isWeight = true};
  return d;
}

/// The variant that a run with these sizes takes.
inline const KernelVariant &pick(const std::vector<KernelVariant> &all, std::map<std::string, int64_t> sizes) {
  for (const KernelVariant &v : all) {
    bool holds = true;
    for (const DimCondition &c : v.guard) {
      int64_t l = *c.lhs.evaluate(sizes), r = *c.rhs.evaluate(sizes);
      holds &= c.kind == DimCondition::Kind::LessEqual ? l <= r
               : c.kind == DimCondition::Kind::Equal   ? l == r
                                                       : l % r == 0;
    }
    if (holds)
      return v;
  }
  ADD_FAILURE() << "no variant holds";
  return all.back();
}

inline std::string familyOf(const KernelVariant &v) { return std::string(KernelConfig::parse(v.spec.config)->family()); }

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_CHOOSEFIXTURE_H
