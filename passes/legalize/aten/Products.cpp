//===- Products.cpp - matrix products and attention -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

using namespace mlir;

namespace lathe::legal::aten {
namespace {

/// x * weight^T + bias, the weight [out, in].
LogicalResult linear(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), weight = n.in(1);
  if (!x || !weight)
    return failure();
  if (rankOf(weight) == 1)
    weight = e.reshape(weight, {1, dimOf(weight, 0)});
  bool vector = rankOf(x) == 1;
  if (vector)
    x = e.reshape(x, {1, dimOf(x, 0)});
  Value y = e.matmul(x, weight, false, true);
  if (n.has(2))
    y = e.add(y, n.in(2));
  return n.done(e.reshape(y, resultDims(n)));
}

LogicalResult matmul(Node &n) { return n.done(matmulOf(n, n.in(0), n.in(1))); }

/// beta * c + alpha * a b
LogicalResult addProduct(Node &n) {
  Emitter &e = n.e;
  Value c = n.in(0), y = e.matmul(n.in(1), n.in(2));
  if (double alpha = number(n, "alpha", 1); alpha != 1)
    y = e.mul(y, alpha);
  double beta = number(n, "beta", 1);
  if (beta == 0)
    return n.done(y);
  return n.done(e.add(y, beta == 1 ? c : e.mul(c, beta)));
}
LogicalResult addVectorProduct(Node &n) {
  return n.done(n.e.add(n.in(0), matmulOf(n, n.in(1), n.in(2))));
}

LogicalResult einsum(Node &n) {
  std::vector<Operand> operands;
  for (unsigned i = 0; i < n.numInputs(); ++i)
    operands.push_back(n.in(i));
  return n.done(onnx(n, "Einsum", operands, {text(n, "equation", n.strAttr("equation", ""))}));
}

LogicalResult outer(Node &n) {
  Value a = n.in(0), b = n.in(1);
  return n.done(n.e.mul(n.e.unsqueeze(a, {1}), n.e.unsqueeze(b, {0})));
}

/// A tensor of rank 4: of rank 3 it has one head, of rank 2 one batch too.
Value withHeads(Emitter &e, Value x) {
  if (!x || rankOf(x) > 3 || rankOf(x) < 2)
    return x;
  x = e.unsqueeze(x, {rankOf(x) - 2});
  return rankOf(x) == 3 ? e.unsqueeze(x, {0}) : x;
}

/// [B, H, L, E] and [B, H, S, E]; without heads or batch too.
LogicalResult attention(Node &n) {
  Emitter &e = n.e;
  if (number(n, "dropout_p", 0) != 0)
    return n.fail("attribute", "attention that drops", "dropout_p = 0",
                  "module.eval() before exporting");
  Value qkv[3];
  for (unsigned i = 0; i < 3; ++i) {
    qkv[i] = n.in(i);
    if (!qkv[i])
      return failure();
    if (rankOf(qkv[i]) > 4)
      return n.fail("shape", "attention over tensors of rank " + llvm::Twine(rankOf(qkv[i])),
                    "rank 2 to 4");
    qkv[i] = withHeads(e, qkv[i]);
  }
  SmallVector<NamedAttribute> attributes;
  if (flag(n, "is_causal"))
    attributes.push_back(attr(n, "is_causal", 1));
  if (n.hasAttr("scale"))
    attributes.push_back(real(n, "scale", number(n, "scale", 1)));
  Operand mask = !n.has(3)       ? Operand::absent()
                 : n.rank(0) < 4 ? Operand(withHeads(e, n.in(3)))
                                 : Operand(n.in(3));
  return n.done(
      e.reshape(onnx(n, "Attention", {qkv[0], qkv[1], qkv[2], mask}, attributes), resultDims(n)));
}

} // namespace

void addProducts(Handlers &h) {
  h["aten.linear"] = linear;
  for (StringRef name : {"matmul", "mm", "bmm", "mv", "dot", "vdot"})
    h[("aten." + name).str()] = matmul;
  h["aten.addmm"] = h["aten.baddbmm"] = addProduct;
  h["aten.addmv"] = addVectorProduct;
  h["aten.einsum"] = einsum;
  h["aten.outer"] = outer;
  h["aten.scaled_dot_product_attention"] = attention;
}

} // namespace lathe::legal::aten
