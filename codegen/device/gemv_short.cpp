//===- gemv_short.cpp - descriptor of gemv_short.cuh: few rows, little depth
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

namespace lathe {

using select::ProductChoice;
using select::specFor;

/// Where gemv.along would leave three of its four warps without work.
static bool offer(ProductChoice &p) {
  constexpr int64_t kFewRows = 4, kLanes = 32, kThreads = 128;
  std::optional<int64_t> k = p.sizes.k.constant();
  bool tiles = p.hasTensorMaps() && p.sizes.batch == DimExpr(1);
  if (p.rows.lo > kFewRows || p.covered >= kFewRows || tiles || !k || *k < 1 || p.b.buffer < 0 ||
      !p.b.transposed || p.a.dtype != p.b.dtype || !isFloat(p.b.dtype))
    return true;
  const int64_t piece = 128 / bitWidth(p.b.dtype);
  if (bitWidth(p.b.dtype) < 16 || *k > kLanes * piece)
    return true;
  KernelConfig c{&kGemvShort};
  c.rows = p.rows.hi <= 1 ? 1 : kFewRows;
  c.threads = kThreads;
  int64_t group = 1;
  while (group * piece < *k)
    group *= 2;
  c.tileN = c.threads / group;
  return p.add(specFor(p.desc, c, DimExpr::ceilDiv(p.sizes.batch * p.sizes.n, DimExpr(c.tileN))),
               c.rows);
}

const Skeleton kGemvShort = {
    .family = "gemv.short",
    .block = "t n r: n columns of C of all batches, t/n lanes for each, which have K in one piece, up to r rows",
    .code = Skeleton::Code::Product,
    .product = {.fewRows = true,
                .epilogueLanes = 1,
                .offer = offer,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  return Instance{{"gemv_short"},
                                  "gemvShort<" + joined({c.rows, c.threads, c.threads / c.tileN}) +
                                      ">(h, " + t.batch + sizesOf(t).substr(1) + ");",
                                  ""};
                }}};

} // namespace lathe
