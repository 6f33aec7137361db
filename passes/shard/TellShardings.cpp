//===- TellShardings.cpp - the found division by names --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TellShardings.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace lathe::shard {
namespace {

/// The one name of an op; empty for several: whose layout it is then, nobody can say.
StringRef nameOf(Operation *op) {
  SmallVector<StringRef> names = nodeNames(op->getLoc());
  return names.size() == 1 ? names.front() : StringRef();
}

struct Found {
  Value value;
  Layout layout;
  bool isOne = true; ///< all readers of a constant want it alike
};

} // namespace

ArrayAttr tellShardings(func::FuncOp func, int64_t ranks, const Strategies &chosen) {
  llvm::MapVector<StringRef, Found> found;
  for (Operation &op : func.getBody().front().without_terminator()) {
    auto way = chosen.find(&op);
    if (way == chosen.end())
      continue;
    for (auto [operand, layout] : llvm::zip(op.getOperands(), way->second.operands))
      if (auto constant = operand.getDefiningOp<ConstantOp>(); constant && !nameOf(constant).empty()) {
        auto [it, isNew] = found.insert({nameOf(constant), {operand, layout.withZeros(false)}});
        it->second.isOne &= isNew || (it->second.value == operand && it->second.layout == layout.withZeros(false));
      }
    // Of the ops of a node the last, whose result is the node's.
    const StringRef name = nameOf(&op);
    const bool isLast = llvm::none_of(op.getUsers(), [&](Operation *user) {
      return llvm::is_contained(nodeNames(user->getLoc()), name) && chosen.contains(user);
    });
    if (!name.empty() && isLast && op.getNumResults() == 1)
      found[name] = {op.getResult(0), way->second.results[0].withZeros(false)};
  }
  Builder b(func.getContext());
  SmallVector<Attribute> list;
  for (auto &[name, one] : found) {
    if (!one.isOne || one.layout.kind == Layout::Kind::Partial)
      continue;
    NamedAttrList fields;
    fields.set("name", b.getStringAttr(name));
    SmallVector<int64_t> dims;
    for (const DimExpr &dim : dimsOf(one.value))
      dims.push_back(dim.constant().value_or(-1));
    fields.set("dims", b.getDenseI64ArrayAttr(dims));
    const Parts parts = one.layout.parts.canonical(ranks);
    if (one.layout.isSplit() && parts.blocks.size() == 1 && parts.isEven(ranks))
      fields.set("dim", b.getI64IntegerAttr(one.layout.dim));
    else if (one.layout.isSplit())
      fields.set("cannot", b.getStringAttr("ONNX has no words for parts along " + one.layout.str()));
    list.push_back(fields.getDictionary(b.getContext()));
  }
  return b.getArrayAttr(list);
}

} // namespace lathe::shard
