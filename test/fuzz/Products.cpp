//===- Products.cpp - matrix products and attention -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>

namespace lathe::fuzz {
namespace {

double summed(const Value &a, const Value &c, int64_t depth) { return a.most * c.most * double(std::max<int64_t>(1, depth)); }

bool makeMatMul(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return isFloatValue(v) && isKnown(v) && v.rank() >= 1 && v.rank() <= 4; },
                     [&] { return b.fresh(b.floatType(), b.dims(b.random.between(1, 4))); });
  int64_t depth = x.dims.back(), columns = b.random.chance(30) ? depth : b.size();
  Dims other;
  if (x.rank() > 2 && b.random.chance(40))
    for (int64_t i = b.random.below(x.rank() - 2); i < x.rank() - 2; ++i)
      other.push_back(b.random.chance(70) ? x.dims[size_t(i)] : 1);
  other.push_back(depth);
  bool isVector = other.size() == 1 && b.random.chance(15);
  if (!isVector)
    other.push_back(columns);
  Value y = b.pickOr([&](const Value &v) { return v.dtype == x.dtype && isKnown(v) && v.rank() >= 2 && v.rank() <= x.rank() && v.dims[v.dims.size() - 2] == depth && v.rank() == 2; },
                     [&] { return b.fresh(x.dtype, other, 1, b.random.chance(60) ? Source::Constant : Source::Any); });
  Dims xa = x.dims, ya = y.dims, dims;
  if (xa.size() == 1)
    xa.insert(xa.begin(), 1);
  if (ya.size() == 1)
    ya.push_back(1);
  if (!broadcast(Dims(xa.begin(), xa.end() - 2), Dims(ya.begin(), ya.end() - 2), dims))
    return false;
  if (x.rank() > 1)
    dims.push_back(xa[xa.size() - 2]);
  if (y.rank() > 1)
    dims.push_back(ya.back());
  double most = summed(x, y, depth);
  if (product(dims) > kMaxElements || product(dims) * depth > 200000 || most > limitOf(x.dtype))
    return false;
  b.node("MatMul", {x, y}, x.dtype, dims, most);
  return true;
}

bool makeGemm(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return isFloatValue(v) && isKnown(v) && v.rank() == 2; },
                     [&] { return b.fresh(b.floatType(), b.dims(2)); });
  bool ta = b.random.chance(35), tb = b.random.chance(50);
  int64_t m = x.dims[ta ? 1 : 0], k = x.dims[ta ? 0 : 1], n = b.random.chance(30) ? k : b.size();
  if (m * n > kMaxElements || m * n * k > 200000)
    return false;
  Value w = b.fresh(x.dtype, tb ? Dims{n, k} : Dims{k, n}, 1, b.random.chance(60) ? Source::Constant : Source::Any);
  Value bias;
  if (b.random.chance(70)) {
    Dims dims = b.random.of({0, 1, 2, 3, 4}) == 0 ? Dims{m, n} : b.random.chance(50) ? Dims{n} : b.random.chance(50) ? Dims{m, 1} : b.random.chance(50) ? Dims{1} : Dims{};
    bias = b.fresh(x.dtype, dims, 2);
  }
  Attrs attrs = {{"transA", int64_t(ta)}, {"transB", int64_t(tb)}};
  if (b.random.chance(30))
    attrs.push_back({"alpha", b.random.of({0.5, 1.5, -1.0})});
  if (b.random.chance(30))
    attrs.push_back({"beta", b.random.of({0.5, 2.0, 0.0})});
  double most = 1.5 * summed(x, w, k) + 4;
  if (most > limitOf(x.dtype))
    return false;
  b.node("Gemm", {x, w, bias}, x.dtype, {m, n}, most, attrs);
  return true;
}

bool makeEinsum(GraphBuilder &b) {
  if (b.special)
    return false;
  struct Form { const char *text; int64_t left, right; };
  static const Form forms[] = {{"ij,jk->ik", 2, 2}, {"bij,bjk->bik", 3, 3}, {"bij,bkj->bik", 3, 3}, {"ij,ij->i", 2, 2}, {"ij,kj->ki", 2, 2}, {"bhid,bhjd->bhij", 4, 4}, {"i,j->ij", 1, 1}, {"bij,jk->bki", 3, 2}};
  const Form &form = forms[b.random.below(std::size(forms))];
  int64_t sizes[26];
  for (int64_t &size : sizes)
    size = b.random.between(1, 9);
  std::string text = form.text;
  size_t comma = text.find(','), arrow = text.find("->");
  auto dimsOf = [&](const std::string &letters) {
    Dims dims;
    for (char c : letters)
      dims.push_back(sizes[c - 'a']);
    return dims;
  };
  DType dtype = b.random.chance(75) ? DType::F32 : DType::F64;
  Value x = b.fresh(dtype, dimsOf(text.substr(0, comma)), 2), y = b.fresh(dtype, dimsOf(text.substr(comma + 1, arrow - comma - 1)), 2);
  b.node("Einsum", {x, y}, dtype, dimsOf(text.substr(arrow + 2)), 400, {{"equation", text}});
  return true;
}

/// Attention as exporters spell it: scores, a scale, a mask, softmax, a product.
bool makeAttention(GraphBuilder &b) {
  if (b.special)
    return false;
  DType dtype = b.random.chance(80) ? DType::F32 : DType::F16;
  int64_t n = b.random.between(1, 2), h = b.random.between(1, 3), s = b.random.between(1, 9), t = b.random.between(1, 11), d = b.random.of<int64_t>({1, 3, 4, 8, 16});
  Value q = b.fresh(dtype, {n, h, s, d}, 1, Source::Input), k = b.fresh(dtype, {n, h, t, d}, 1, Source::Input), v = b.fresh(dtype, {n, h, t, d}, 1, Source::Input);
  if (b.opset >= 23 && b.random.chance(40)) {
    bool masked = b.random.chance(40);
    Value mask = masked ? b.fresh(dtype, b.random.chance(50) ? Dims{s, t} : Dims{n, 1, s, t}, 2) : Value();
    Attrs attrs;
    if (b.random.chance(30))
      attrs.push_back({"scale", 0.5});
    if (!masked && s <= t && b.random.chance(30))
      attrs.push_back({"is_causal", int64_t(1)});
    b.node("Attention", {q, k, v, mask}, dtype, {n, h, s, d}, 1, attrs);
    return true;
  }
  Value kt = b.node("Transpose", {k}, dtype, {n, h, d, t}, 1, {{"perm", Dims{0, 1, 3, 2}}});
  Value scores = b.node("MatMul", {q, kt}, dtype, {n, h, s, t}, double(d));
  if (b.random.chance(70))
    scores = b.node(b.random.chance(50) ? "Mul" : "Div", {scores, b.scalar(dtype, 2)}, dtype, scores.dims, 2 * double(d));
  if (b.random.chance(40))
    scores = b.node("Add", {scores, b.fresh(dtype, b.random.chance(50) ? Dims{s, t} : Dims{n, 1, 1, t}, 4)}, dtype, scores.dims, scores.most + 4);
  Value weights = b.node("Softmax", {scores}, dtype, scores.dims, 1, {{"axis", int64_t(-1)}}, true);
  Value result = b.node("MatMul", {weights, v}, dtype, {n, h, s, d}, 1);
  if (b.random.chance(50)) {
    Value rows = b.node("Transpose", {result}, dtype, {n, s, h, d}, 1, {{"perm", Dims{0, 2, 1, 3}}});
    b.node("Reshape", {rows, b.vector({0, 0, -1})}, dtype, {n, s, h * d}, 1);
  }
  return true;
}

} // namespace

void addProducts(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"matmul", 7, makeMatMul}, {"gemm", 4, makeGemm}, {"einsum", 2, makeEinsum}, {"attention", 1, makeAttention}});
}

} // namespace lathe::fuzz
