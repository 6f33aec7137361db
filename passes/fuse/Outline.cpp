//===- Outline.cpp - groups to lathe.kernel -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the kernels down: members and copies of the free ops that they read go
// into a region, everything else that is read becomes an input. Kernels get
// readable names that are unique in their module; equal regions get equal names
// in plan.
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

#include "lathe/ir/BlockAmax.h"
#include "lathe/ir/SizeSources.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace lathe::fuse {

namespace {

class Outliner {
public:
  Outliner(FusionGraph &graph, const Resolution &resolution, Group &group, Operation *before)
      : graph(graph), resolution(resolution), group(group), builder(before) {}

  void run() {
    SmallVector<Value> outputs = graph.outputs(group, [&](Operation *user) {
      auto found = resolution.inlined.find(user);
      return found != resolution.inlined.end() && found->second.size() == 1 &&
             found->second.front() == &group;
    });
    // What follows from the anchor's first result comes first, then what it gives beside that, or amax.
    std::stable_partition(outputs.begin(), outputs.end(), [&](Value v) {
      bool beside = v.getDefiningOp() == group.anchor && v != group.anchor->getResult(0);
      return !beside && !(group.isContraction() && blockAmax(v));
    });
    SmallVector<Type> types;
    SmallVector<Location> locations;
    for (Value output : outputs)
      types.push_back(output.getType());
    for (Operation *member : group.members)
      locations.push_back(member->getLoc());

    body = new Block();
    inside.setInsertionPointToEnd(body);
    for (Operation *member : group.members)
      place(member);
    SmallVector<Value> yielded;
    for (Value output : outputs)
      yielded.push_back(mapping.lookup(output));
    Location loc = FusedLoc::get(builder.getContext(), locations);
    YieldOp::create(inside, loc, yielded);

    SmallVector<Attribute> nodes;
    for (StringRef node : nodeNames(loc))
      nodes.push_back(builder.getStringAttr(node));
    auto kernel = KernelOp::create(builder, loc, types, inputs.getArrayRef(),
                                   builder.getStringAttr(name()),
                                   RegionKindAttr::get(builder.getContext(), group.kind),
                                   nodes.empty() ? ArrayAttr() : builder.getArrayAttr(nodes),
                                   /*variants=*/ArrayAttr(), /*roles=*/RolesAttr());
    kernel.getBody().push_back(body);
    for (auto [output, kernelResult] : llvm::zip(outputs, kernel.getResults()))
      output.replaceUsesWithIf(kernelResult, [&](OpOperand &use) {
        return graph.ownerOf(use.getOwner()) != &group && use.getOwner() != kernel.getOperation();
      });
  }

private:
  /// Puts the op into the region, after what it reads.
  void place(Operation *op) {
    for (Value operand : op->getOperands()) {
      if (mapping.contains(operand))
        continue;
      Operation *producer = operand.getDefiningOp();
      if (producer && graph.ownerOf(producer) == &group) {
        place(producer);
      } else if (producer && (isNumber(producer) || resolution.inlined.count(producer))) {
        place(producer);
      } else {
        inputs.insert(operand);
        mapping.map(operand, body->addArgument(operand.getType(), operand.getLoc()));
      }
    }
    if (!mapping.contains(op->getResult(0)))
      inside.clone(*op, mapping);
  }

  /// The ops inside, the anchor first: conv_add_max. A C identifier.
  std::string name() {
    std::string text(group.anchor->getName().stripDialect());
    unsigned parts = 1;
    bool sawAnchor = false;
    for (Operation &op : *body) {
      std::string part(op.getName().stripDialect());
      if (!sawAnchor && part == text && (sawAnchor = true))
        continue;
      std::optional<OpClass> kind = classOf(&op);
      if (!kind || *kind == OpClass::Movement || *kind == OpClass::Source)
        continue;
      if (++parts > 4)
        break;
      text += "_" + part;
    }
    return text;
  }

  FusionGraph &graph;
  const Resolution &resolution;
  Group &group;
  OpBuilder builder, inside{builder.getContext()};
  Block *body = nullptr;
  IRMapping mapping;
  llvm::SetVector<Value> inputs;
};

} // namespace

void outline(func::FuncOp func, FusionGraph &graph, const Resolution &resolution) {
  Block &block = func.getBody().front();
  // A later group sees the results of earlier kernels in the place of their members.
  SmallVector<Group *> groups;
  for (const std::unique_ptr<Group> &group : graph.groups())
    groups.push_back(group.get());
  llvm::sort(groups, [](Group *a, Group *b) { return a->anchor->isBeforeInBlock(b->anchor); });
  for (Group *group : groups)
    Outliner(graph, resolution, *group, block.getTerminator()).run();
  // The originals are dead now, users first.
  for (Operation *op : llvm::reverse(graph.ops()))
    if (classOf(op) && op->use_empty())
      op->erase();
  sortBlock(block);
}

} // namespace lathe::fuse
