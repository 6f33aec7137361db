//===- SizeSources.cpp - ops that wait for a size, not a value ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/SizeSources.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace lathe {

std::set<std::string> symbolsInside(Operation *op) {
  std::set<std::string> names;
  AttrTypeWalker walker;
  walker.addWalk([&](DimAttr dim) { dim.expr().collectSymbols(names); });
  op->walk([&](Operation *inner) {
    walker.walk(inner->getAttrDictionary());
    for (Type type : inner->getResultTypes())
      walker.walk(type);
  });
  return names;
}

SizeSources::SizeSources(Block &block) {
  for (auto from : block.getOps<DimFromOp>())
    if (from.getX().getDefiningOp())
      for (Attribute name : from.getSymbols())
        bound[cast<StringAttr>(name).str()].push_back(from);
  for (auto choose : block.getOps<ChooseOp>())
    if (ArrayAttr names = choose.getSymbolsAttr())
      for (Attribute name : names)
        bound[cast<StringAttr>(name).str()].push_back(choose);
  if (bound.empty())
    return;
  // A derived symbol stands behind those that it is made of.
  for (SymbolOp symbol : block.getParentOp()->getParentOfType<ModuleOp>().getOps<SymbolOp>())
    if (auto value = symbol.getValue()) {
      std::set<std::string> names;
      value->expr().collectSymbols(names);
      llvm::SetVector<Operation *> all;
      for (const std::string &name : names)
        if (auto found = bound.find(name); found != bound.end())
          all.insert(found->second.begin(), found->second.end());
      if (!all.empty())
        bound[symbol.getSymName().str()] = all.takeVector();
    }
  for (Operation &op : block) {
    llvm::SetVector<Operation *> needed;
    if (isa<ChooseOp>(op)) // the sizes of its sides are known where those are
      continue;
    for (const std::string &name : symbolsInside(&op))
      if (auto found = bound.find(name); found != bound.end())
        needed.insert(found->second.begin(), found->second.end());
    needed.remove(&op);
    if (needed.empty())
      continue;
    for (Operation *from : needed)
      readers[from].push_back(&op);
    sources[&op] = needed.takeVector();
  }
}

void sortBlock(Block &block) {
  SizeSources sizes(block);
  llvm::DenseSet<Operation *> done;
  auto isReady = [&](Operation *op) {
    auto stands = [&](Operation *producer) {
      return !producer || producer->getBlock() != &block || done.contains(producer);
    };
    return llvm::all_of(op->getOperands(), [&](Value v) { return stands(v.getDefiningOp()); }) &&
           llvm::all_of(sizes.of(op), stands);
  };
  Operation *end = block.mightHaveTerminator() ? block.getTerminator() : nullptr;
  auto last = end ? end->getIterator() : block.end();
  for (auto next = block.begin(); next != last;) {
    bool any = false;
    for (Operation &op : llvm::make_early_inc_range(llvm::make_range(next, last))) {
      if (!isReady(&op))
        continue;
      any = true;
      done.insert(&op);
      if (&op == &*next)
        ++next;
      else
        op.moveBefore(&*next);
    }
    if (!any)
      return; // a cycle, which the verifier finds
  }
}

} // namespace lathe
