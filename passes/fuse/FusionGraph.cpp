//===- FusionGraph.cpp - ownership without cycles -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FusionGraph.h"

#include "lathe/ir/BlockAmax.h"
#include "lathe/ir/Loops.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace lathe::fuse {

FusionGraph::FusionGraph(func::FuncOp func, std::map<std::string, int64_t> optima)
    : block(func.getBody().front()), optima(std::move(optima)) {
  readProgram();
}

void FusionGraph::readProgram() {
  program.clear();
  order.clear();
  for (Operation &op : block) {
    order[&op] = program.size();
    program.push_back(&op);
  }
  loops = loopsAround(block);
  sizes.emplace(block);
}

Group &FusionGraph::create(Operation *anchor, RegionKind kind) {
  all.push_back(std::make_unique<Group>());
  Group &group = *all.back();
  group.kind = kind;
  group.anchor = anchor;
  group.space = dimsOf(anchor->getResult(0));
  own(anchor, group);
  return group;
}

void FusionGraph::own(Operation *op, Group &group) {
  owners[op] = &group;
  group.members.push_back(op);
  llvm::sort(group.members, [&](Operation *a, Operation *b) { return order.at(a) < order.at(b); });
}

void FusionGraph::release(Operation *op, Group &group) {
  owners.erase(op);
  llvm::erase(group.members, op);
}

void FusionGraph::splitAmax(Operation *amax, Group &group) {
  release(amax, group);
  ReduceOp blocks = lathe::splitAmax(amax);
  readProgram();
  own(blocks.getX().getDefiningOp(), group);
  own(blocks, group);
}

bool FusionGraph::mayOwn(Operation *op, const Group &group) const {
  // A kernel runs in a loop or beside it.
  if (loops.lookup(op) != loops.lookup(group.anchor))
    return false;
  llvm::DenseSet<Operation *> inside(group.members.begin(), group.members.end());
  inside.insert(op);
  unsigned first = order.at(op);
  for (Operation *member : group.members)
    first = std::min(first, order.at(member));

  // Ancestors of what the group reads, a foreign group being one node.
  llvm::DenseSet<const void *> seen;
  SmallVector<Operation *> stack;
  auto pushProducers = [&](Operation *reader, bool readerInside) {
    llvm::append_range(stack, sizes->of(reader));
    for (Value operand : reader->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        if (!readerInside || !inside.contains(producer))
          stack.push_back(producer);
  };
  for (Operation *member : inside)
    pushProducers(member, true);
  while (!stack.empty()) {
    Operation *ancestor = stack.pop_back_val();
    if (inside.contains(ancestor))
      return false;
    Group *owner = ownerOf(ancestor);
    if (!seen.insert(owner ? static_cast<const void *>(owner) : ancestor).second)
      continue;
    if (!owner) {
      if (order.at(ancestor) > first)
        pushProducers(ancestor, false);
      continue;
    }
    if (order.at(owner->members.back()) < first)
      continue;
    for (Operation *member : owner->members)
      pushProducers(member, false);
  }
  return true;
}

SmallVector<Value> FusionGraph::outputs(const Group &group,
                                        function_ref<bool(Operation *)> inside) const {
  SmallVector<Value> values;
  for (Operation *member : group.members)
    for (Value result : member->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) {
            return ownerOf(user) != &group && !(inside && inside(user));
          }))
        values.push_back(result);
  return values;
}

double FusionGraph::count(ArrayRef<DimExpr> dims) const {
  double elements = 1;
  for (const DimExpr &dim : dims) {
    auto value = dim.evaluate(optima);
    elements *= value.ok() ? double(*value) : 128.0;
  }
  return elements;
}

double FusionGraph::workOfElement(Operation *op) const {
  // An index from data costs a bounds check and a dependent load.
  if (isClass(op, OpClass::Gather))
    return 8;
  auto flops = cast<StructuredOpInterface>(op).getFlops().evaluate(optima);
  double elements = std::max(1.0, count(dimsOf(op->getResult(0))));
  return flops.ok() ? std::max(1.0, double(*flops) / elements) : 1.0;
}

} // namespace lathe::fuse
