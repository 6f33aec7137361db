//===- Products.cpp - products with what follows them -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// FusedMatMul, FusedGemm and FusedConv are products with transposes, factors and activations as
// attributes; the Nhwc forms take and give channels last. All become the op and what follows it: lathe
// fuses them itself.
//
//===----------------------------------------------------------------------===//
#include "Families.h"

#include "../Windows.h"

#include <numeric>

using namespace mlir;

namespace lathe::legal::microsoft {
namespace {

/// A matrix product's operand as its attributes say: with transBatch the dimensions but the last are
/// permuted, so that the first becomes the rows.
Value permuted(Node &n, unsigned i, StringRef side) {
  Value x = n.in(i);
  if (!x)
    return {};
  int64_t rank = rankOf(x);
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (n.intAttr(("transBatch" + side).str(), 0) && rank > 2)
    std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (n.intAttr(("trans" + side).str(), 0) && rank > 1)
    std::swap(perm[rank - 1], perm[rank - 2]);
  return n.e.transpose(x, perm);
}

LogicalResult fusedMatmul(Node &n) {
  Emitter &e = n.e;
  Value y = matmulOf(n, permuted(n, 0, "A"), permuted(n, 1, "B"));
  double alpha = n.floatAttr("alpha", 1);
  if (alpha != 1)
    y = e.mul(y, alpha);
  return n.done(y);
}

std::optional<double> parameter(Node &n, StringRef name) {
  return n.hasAttr(name) ? std::optional(n.floatAttr(name, 0)) : std::nullopt;
}

LogicalResult fusedGemm(Node &n) {
  Value y = gemmOf(n);
  std::string name = n.strAttr("activation", "");
  if (!name.empty())
    y = activationOf(n.e, name, y, parameter(n, "activation_alpha"),
                     parameter(n, "activation_beta"));
  return n.done(y);
}

/// activation(conv(x, w) + bias + residual).
template <bool Last> LogicalResult fusedConv(Node &n) {
  Emitter &e = n.e;
  auto image = [&](unsigned i) { return Last ? channelsFirst(e, n.in(i)) : n.in(i); };
  Value y = convOf(n, image(0), n.in(1));
  if (y && n.has(2))
    y = e.add(y, perChannel(e, n.in(2), rankOf(y)));
  if (n.has(3))
    y = e.add(y, image(3));
  if (std::string name = n.strAttr("activation", ""); !name.empty()) {
    std::vector<double> given = n.floatsAttr("activation_params").value_or(std::vector<double>());
    given.resize(std::min<size_t>(given.size(), 2));
    auto at = [&](size_t i) { return i < given.size() ? std::optional(given[i]) : std::nullopt; };
    y = activationOf(e, name, y, at(0), at(1));
  }
  return n.done(Last ? channelsLast(e, y) : y);
}

LogicalResult nhwcMaxPool(Node &n) {
  Emitter &e = n.e;
  return n.done(channelsLast(e, poolOf(n, channelsFirst(e, n.in(0)), PoolKind::Max)));
}

/// The squared distance of each row of a, [M, N], to each of b, [K, N], or its root. Differences are
/// squared, not rows: points that are close keep their digits.
LogicalResult cdist(Node &n) {
  Emitter &e = n.e;
  Value a = n.in(0), b = n.in(1);
  std::string metric = n.strAttr("metric", "sqeuclidean");
  if (metric != "sqeuclidean" && metric != "euclidean")
    return n.fail("attribute", "metric = " + llvm::Twine(metric), "sqeuclidean and euclidean");
  if (!a || !b || rankOf(a) != 2 || rankOf(b) != 2)
    return n.invalid("shape", "CDist needs matrices");
  n.unify(dimOf(a, 1), dimOf(b, 1));
  Value apart = e.sub(e.unsqueeze(a, {1}), e.unsqueeze(b, {0}));
  Value y = e.reduce(e.mul(apart, apart), ReduceKind::Sum, {2}, /*keepdims=*/false);
  return n.done(metric == "euclidean" ? e.unary<SqrtOp>(y) : y);
}

} // namespace

void addProducts(Handlers &h) {
  h["com.microsoft.CDist"] = cdist;
  h["com.microsoft.FusedConv"] = fusedConv<false>;
  h["com.microsoft.FusedGemm"] = fusedGemm;
  h["com.microsoft.FusedMatMul"] = fusedMatmul;
  h["com.microsoft.NhwcConv"] = fusedConv<true>;
  h["com.microsoft.NhwcFusedConv"] = fusedConv<true>;
  h["com.microsoft.NhwcMaxPool"] = nhwcMaxPool;
  h["com.microsoft.TransposeMatMul"] = fusedMatmul;
}

} // namespace lathe::legal::microsoft
