//===- Gather.cpp - indices that come as data -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Node.h"

using namespace mlir;

namespace lathe::legal {
namespace {

LogicalResult gather(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  // One known index is a slice, which fuses.
  std::optional<HostValue> known = n.host(1);
  if (known && known->values.size() == 1) {
    DimExpr at = known->values[0], size = dimOf(x, *axis);
    if (at.isConstant() && *at.constant() < 0)
      at = at + size;
    bool inside = n.e.provablyNonNegative(at) && (n.e.provablyNonNegative(size - at - DimExpr(1)));
    if (inside) {
      Dims dims = dimsOf(x);
      dims.erase(dims.begin() + *axis);
      dims.insert(dims.begin() + *axis, known->shape.begin(), known->shape.end());
      return n.done(n.e.reshape(n.e.sliceAxis(x, *axis, at, 1), dims));
    }
  }
  return n.done(n.e.infer<GatherOp>(x, n.in(1), uint64_t(*axis)));
}

LogicalResult gatherElements(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  return axis ? n.done(n.e.infer<GatherElementsOp>(x, n.in(1), uint64_t(*axis))) : failure();
}

LogicalResult gatherNd(Node &n) {
  return n.done(n.e.infer<GatherNdOp>(n.in(0), n.in(1), uint64_t(n.intAttr("batch_dims", 0))));
}

/// The reduction of a scatter: null for plain assignment.
std::optional<ReduceKindAttr> reductionOf(Node &n) {
  std::string name = n.strAttr("reduction", "none");
  std::optional<ReduceKind> kind = name == "add"   ? std::optional(ReduceKind::Sum)
                                   : name == "mul" ? std::optional(ReduceKind::Prod)
                                   : name == "max" ? std::optional(ReduceKind::Max)
                                   : name == "min" ? std::optional(ReduceKind::Min)
                                                   : std::nullopt;
  if (!kind && name != "none") {
    (void)n.fail("attribute", "reduction '" + llvm::Twine(name) + "'", "none, add, mul, max, min");
    return std::nullopt;
  }
  return kind ? ReduceKindAttr::get(n.op->getContext(), *kind) : ReduceKindAttr();
}

LogicalResult scatterElements(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  std::optional<ReduceKindAttr> reduction = reductionOf(n);
  if (!axis || !reduction)
    return failure();
  return n.done(n.e.infer<ScatterElementsOp>(x, n.in(1), n.in(2), uint64_t(*axis), *reduction));
}

LogicalResult scatterNd(Node &n) {
  std::optional<ReduceKindAttr> reduction = reductionOf(n);
  if (!reduction)
    return failure();
  return n.done(n.e.infer<ScatterNdOp>(n.in(0), n.in(1), n.in(2), *reduction));
}

/// on where the index (counted from the end when negative) is this position.
LogicalResult oneHot(Node &n) {
  Emitter &e = n.e;
  Value indices = n.in(0), values = n.in(2);
  if (!indices || !values)
    return failure();
  DimExpr depth;
  if (std::optional<HostValue> known = n.bound(1, 0); known && known->values.size() == 1)
    depth = known->values[0];
  else if (std::optional<double> number = n.number(1))
    depth = int64_t(*number);
  else
    return n.unknown({1}, "a depth");
  int64_t rank = rankOf(indices);
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", -1), rank + 1);
  if (!axis)
    return failure();
  Type index = e.b.getI64Type();
  Value at = e.unsqueeze(e.cast(indices, index), {*axis});
  at = e.select(e.compare(at, 0.0, Predicate::Lt), e.add(at, e.dimScalar(depth, index)), at);
  Dims line(rank + 1, DimExpr(1));
  line[*axis] = depth;
  Value hit = e.compare(at, e.iota(line, *axis, index), Predicate::Eq);
  Value off = e.reshape(e.sliceAxis(values, 0, 0, 1), {}),
        on = e.reshape(e.sliceAxis(values, 0, 1, 1), {});
  return n.done(e.select(hit, on, off));
}

} // namespace

void addGathers(Handlers &h) {
  h["Gather"] = gather;
  h["GatherElements"] = gatherElements;
  h["GatherND"] = gatherNd;
  h["ScatterElements"] = scatterElements;
  h["Scatter"] = scatterElements;
  h["ScatterND"] = scatterNd;
  h["OneHot"] = oneHot;
}

} // namespace lathe::legal
