//===- Order.cpp - the order of steps -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The model's order is kept unless another topological order needs less memory
// at its peak: one that always takes the ready kernel that leaves least alive.
//
//   %a = k1 (big)                   %a = k1
//   %b = k2 (big)            =>     %s = k3 %a   (a dies, s is small)
//   %s = k3 %a, %t = k4 %b          %b = k2
//                                   %t = k4 %b
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

using namespace mlir;

namespace lathe::plan {

namespace {

/// Memory of kernel results at the sizes that memory is planned for.
class Peak {
public:
  Peak(Block &block, const std::map<std::string, int64_t> &point) : point(point) {
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
  }

  /// The value whose memory this is: views have none of their own.
  static Value rootOf(Value value) {
    while (Operation *op = value.getDefiningOp()) {
      if (!isView(op) && !isa<BindDimsOp>(op))
        break;
      value = op->getOperand(0);
    }
    return value;
  }

  double bytes(Value value) {
    auto [it, isNew] = sizes.try_emplace(value, 0);
    if (isNew && value.getDefiningOp<KernelOp>()) {
      auto size = bytesOf(value.getType()).evaluate(point);
      it->second = size.ok() ? double(*size) : 0;
    }
    return it->second;
  }

  /// Runs the ops in an order that `choose` picks from those that are ready.
  template <typename Choose> double run(SmallVectorImpl<Operation *> &order, Choose choose) {
    llvm::DenseMap<Operation *, unsigned> waiting;
    llvm::DenseMap<Value, unsigned> readers;
    std::vector<Operation *> ready;
    for (Operation *op : ops) {
      llvm::SmallPtrSet<Operation *, 8> producers;
      llvm::SmallPtrSet<void *, 8> seen;
      for (Value operand : op->getOperands()) {
        if (Operation *producer = operand.getDefiningOp())
          producers.insert(producer);
        if (!isView(op) && seen.insert(rootOf(operand).getAsOpaquePointer()).second)
          ++readers[rootOf(operand)];
      }
      waiting[op] = producers.size();
      if (producers.empty())
        ready.push_back(op);
    }
    for (Value result : ops.empty() ? ValueRange() : ops.back()->getBlock()->getTerminator()->getOperands())
      ++readers[rootOf(result)];
    double alive = 0, peak = 0;
    while (!ready.empty()) {
      size_t pick = choose(ready, readers);
      Operation *op = ready[pick];
      ready.erase(ready.begin() + pick);
      order.push_back(op);
      for (Value result : op->getResults())
        alive += bytes(result);
      peak = std::max(peak, alive);
      alive -= freed(op, readers);
      llvm::SmallPtrSet<void *, 8> seen;
      if (!isView(op))
        for (Value operand : op->getOperands())
          if (seen.insert(rootOf(operand).getAsOpaquePointer()).second)
            --readers[rootOf(operand)];
      llvm::SmallPtrSet<Operation *, 8> users(op->getUsers().begin(), op->getUsers().end());
      for (Operation *user : ops)
        if (users.contains(user) && --waiting[user] == 0)
          ready.push_back(user);
    }
    return peak;
  }

  /// Bytes whose last reader the op is.
  double freed(Operation *op, llvm::DenseMap<Value, unsigned> &readers) {
    if (isView(op))
      return 0;
    double total = 0;
    llvm::SmallPtrSet<void *, 8> seen;
    for (Value operand : op->getOperands()) {
      Value root = rootOf(operand);
      if (seen.insert(root.getAsOpaquePointer()).second && readers[root] == 1)
        total += bytes(root);
    }
    return total;
  }

  double made(Operation *op) {
    double total = 0;
    for (Value result : op->getResults())
      total += bytes(result);
    return total;
  }

  ArrayRef<Operation *> all() const { return ops; }

private:
  std::vector<Operation *> ops;
  const std::map<std::string, int64_t> &point;
  llvm::DenseMap<Value, double> sizes;
};

} // namespace

void orderForMemory(func::FuncOp func, const std::map<std::string, int64_t> &point) {
  Block &block = func.getBody().front();
  Peak model(block, point);
  llvm::DenseMap<Operation *, unsigned> position;
  for (auto [i, op] : llvm::enumerate(model.all()))
    position[op] = i;
  auto earliest = [&](const std::vector<Operation *> &ready, llvm::DenseMap<Value, unsigned> &) {
    size_t best = 0;
    for (size_t i = 1; i < ready.size(); ++i)
      if (position[ready[i]] < position[ready[best]])
        best = i;
    return best;
  };
  auto leastAlive = [&](const std::vector<Operation *> &ready,
                        llvm::DenseMap<Value, unsigned> &readers) {
    auto rank = [&](Operation *op) {
      return std::make_pair(model.made(op) - model.freed(op, readers), position[op]);
    };
    size_t best = 0;
    for (size_t i = 1; i < ready.size(); ++i)
      if (rank(ready[i]) < rank(ready[best]))
        best = i;
    return best;
  };
  SmallVector<Operation *> asWritten, greedy;
  double before = model.run(asWritten, earliest), after = model.run(greedy, leastAlive);
  if (after >= before)
    return;
  passedRemark(func.getLoc(), "Order")
      << ("another order of steps needs " + std::to_string(int64_t(after)) + " bytes at its peak, the model's " +
          std::to_string(int64_t(before)));
  for (Operation *op : greedy)
    op->moveBefore(block.getTerminator());
}

} // namespace lathe::plan
