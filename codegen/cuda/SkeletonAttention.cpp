//===- SkeletonAttention.cpp - attention -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills attention.cuh. Scale, soft cap and mask are the score hole; causality
// is the end of the keys that a query sees.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct Attention {
  Holes holes;
  AttentionOp op;

  Attention(const KernelSource &kernel, const KernelConfig &config) : holes(kernel, config) {}
  LogicalResult build();
  Index keyHead(Evaluator &e, Value head);
  Value score(Evaluator &e, ValueRange p);
};

Index Attention::keyHead(Evaluator &e, Value head) {
  DimExpr heads = dimOf(op.getQ(), 1), keyHeads = dimOf(op.getK(), 1);
  if (heads == keyHeads)
    return Index(head);
  return e.ix.divRem(Index(head), DimExpr::floorDiv(heads, keyHeads)).first;
}

Value Attention::score(Evaluator &e, ValueRange p) {
  Type f = e.b.getF32Type();
  Value v = e.make<arith::MulFOp>(p[4], e.constant(f, op.getScale().convertToDouble()));
  if (op.getSoftcap()) {
    Value cap = e.constant(f, op.getSoftcap()->convertToDouble());
    v = e.make<arith::MulFOp>(e.make<math::TanhOp>(e.make<arith::DivFOp>(v, cap)), cap);
  }
  Value mask = op.getMask();
  if (!mask)
    return v;
  std::vector<DimExpr> full = dimsOf(op.getResult());
  full[3] = dimOf(op.getK(), 2);
  Indices at{Index(p[0]), Index(p[1]), Index(p[2]), Index(p[3])};
  Value m = e.eval(mask, batchIndex(e, dimsOf(mask), full, at));
  if (m.getType().isInteger(1))
    return e.select(m, v, e.constant(f, -std::numeric_limits<double>::infinity()));
  return e.make<arith::AddFOp>(v, m);
}

LogicalResult Attention::build() {
  op = heartOf<AttentionOp>(holes.kernel);
  if (!op)
    return failure();
  std::vector<DimExpr> qd = dimsOf(op.getQ()), yd = dimsOf(op.getResult());
  auto headQK = qd[3].constant(), headV = yd[3].constant();
  Type f32 = Float32Type::get(op.getContext());
  if (!headQK || !headV)
    return op.emitError("CUDA text: the head size must be known");
  for (Value v : {op.getQ(), op.getK(), op.getV()})
    if (Evaluator::computeType(elementTypeOf(v)) != f32)
      return op.emitError("CUDA text: the attention skeletons compute in f32");
  holes.line("static constexpr int kHeadQK = " + Twine(*headQK) + ", kHeadV = " + Twine(*headV) +
             ";");
  holes.line(Twine("static constexpr bool kZeroMasked = ") +
             (op.getZeroMaskedRows() ? "true" : "false") + ";");
  holes.method("loadQ", {"b", "h", "q", "d"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return e.eval(op.getQ(), {Index(p[0]), Index(p[1]), Index(p[2]), Index(p[3])});
  });
  holes.method("loadK", {"b", "h", "k", "d"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return e.eval(op.getK(), {Index(p[0]), keyHead(e, p[1]), Index(p[2]), Index(p[3])});
  });
  holes.method("loadV", {"b", "h", "k", "d"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return e.eval(op.getV(), {Index(p[0]), keyHead(e, p[1]), Index(p[2]), Index(p[3])});
  });
  holes.method(
      "score", {"b", "h", "q", "k", "dot"}, f32, 1,
      [&](Evaluator &e, ValueRange p) { return score(e, p); }, f32);
  holes.method("keyEnd", {"b", "h", "q"}, IndexType::get(op.getContext()), 1,
               [&](Evaluator &e, ValueRange p) -> Value {
                 Value keys = e.ix.dim(dimOf(op.getK(), 2));
                 if (!op.getCausal())
                   return keys;
                 Value seen =
                     e.ix.add(e.ix.sub(keys, e.ix.dim(qd[2])), e.ix.add(p[2], e.ix.cst(1)));
                 return e.ix.max(e.ix.min(keys, seen), e.ix.cst(0));
               });
  holes.method(
      "store", {"b", "h", "q", "d", "value"}, Type(), 1,
      [&](Evaluator &e, ValueRange p) {
        Holes::storeResult(e, op.getResult(), {Index(p[0]), Index(p[1]), Index(p[2]), Index(p[3])},
                           p[4]);
        return Value();
      },
      f32);
  return success();
}

} // namespace

FailureOr<std::string> attentionText(const KernelSource &kernel, const KernelConfig &config) {
  Attention attention(kernel, config);
  if (failed(attention.build()))
    return failure();
  std::string warps = std::to_string(config.threads / 32);
  std::string queries = attention.holes.dim(dimOf(attention.op.getQ(), 2));
  std::string keys = attention.holes.dim(dimOf(attention.op.getK(), 2));
  std::string call = config.family == "attention.decode"
                         ? "attentionDecode<" + warps + ">(h, " + keys + ");"
                         : "attentionSimt<AttentionTile<" + warps + ", " +
                               std::to_string(config.rows) + ">>(h, " + queries + ", " + keys +
                               ");";
  return attention.holes.text({"attention"}, call);
}

} // namespace lathe::codegen
