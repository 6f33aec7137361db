//===- gemv.cpp - descriptors of gemv.cuh: few rows, any types and places
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;
using select::specFor;

constexpr int64_t kFewRows = 4;

/// Whether rows are left that are better off so than as tiles by tensor maps.
static bool isLeft(const ProductChoice &p) {
  bool tiles = p.hasTensorMaps() && p.sizes.batch == DimExpr(1);
  return p.rows.lo <= kFewRows && p.covered < kFewRows && !tiles;
}

static bool runsAlong(const ProductChoice &p) { return p.b.buffer >= 0 && p.b.transposed; }

static bool offerAlong(ProductChoice &p) {
  if (!isLeft(p) || !runsAlong(p))
    return true;
  KernelConfig c{&kGemvAlong};
  c.rows = p.rows.hi <= 1 ? 1 : kFewRows;
  c.threads = 128;
  return p.add(specFor(p.desc, c, p.sizes.batch * p.sizes.n), c.rows);
}

static bool offerAcross(ProductChoice &p) {
  if (!isLeft(p) || runsAlong(p))
    return true;
  KernelConfig c{&kGemvAcross};
  c.rows = p.rows.hi <= 1 ? 1 : kFewRows;
  c.threads = 256;
  const DimExpr &n = p.sizes.n;
  int64_t lanes = 128 / std::max<int64_t>(8, bitWidth(p.b.dtype));
  while (lanes > 1 && !(p.b.buffer >= 0 && select::divides(lanes, n)))
    lanes /= 2;
  // Few columns would leave multiprocessors idle: narrower vectors, more blocks.
  while (lanes > 2 && n.constant() && *n.constant() / (32 * lanes) < p.target.smCount)
    lanes /= 2;
  c.lanes = lanes;
  return p.add(specFor(p.desc, c, p.sizes.batch * DimExpr::ceilDiv(n, DimExpr(32 * lanes))),
               c.rows);
}

const Skeleton kGemvAlong = {
    .family = "gemv.along",
    .block = "t r: one column of C, K split among the threads, up to r rows",
    .code = Skeleton::Code::Product,
    .product = {.fewRows = true,
                .epilogueLanes = 1,
                .offer = offerAlong,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  return Instance{{"gemv"},
                                  "gemvAlongK<" + joined({c.rows, c.threads / 32}) + ">(" +
                                      sizesOf(t) + ");",
                                  ""};
                }}};

const Skeleton kGemvAcross = {
    .family = "gemv.across",
    .block = "t v r: 32*v columns of C, K split among the warps, up to r rows",
    .code = Skeleton::Code::Product,
    .product = {.fewRows = true,
                .readsColumns = true,
                .epilogueLanes = 0,
                .offer = offerAcross,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  return Instance{{"gemv"},
                                  "gemvAcrossK<" + joined({c.rows, c.threads / 32, c.lanes}) +
                                      ">(" + sizesOf(t) + ");",
                                  ""};
                }}};

} // namespace lathe
