//===- Shard.cpp - one program for the ranks of a mesh --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each op gets the way that is cheapest in all (Choose.cpp), or that `--shard` asks for; then types
// become those of what a rank has, with collectives between (Localize.cpp).
//
//   %w1 = constant : 64x256             %w1 = constant #lathe.sharded<1, 2, ...> : 64x128
//   %w2 = constant : 256x64             %w2 = constant #lathe.sharded<0, 2, ...> : 128x64
//   %h = matmul %x, %w1           =>    %h = matmul %x, %w1 : 64x128
//   %y = matmul %h, %w2                 %p = matmul %h, %w2 : 64x64
//                                       %y = all_reduce %p {kind = sum, ranks = 2}
//
//===----------------------------------------------------------------------===//
#include "../Common.h"
#include "Localize.h"
#include "TellShardings.h"

#include "lathe/codegen/Target.h"
#include "lathe/ir/Collective.h"
#include "lathe/ir/Loops.h"
#include "lathe/ir/States.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_SHARDPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct ShardPass : impl::ShardPassBase<ShardPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    const int64_t ranks = meshRanks(module);
    if (ranks < 2) {
      if (module->hasAttr(kShardingsAttr))
        missedRemark(module.getLoc(), "Shard") << "the model says how it is divided among devices; --mesh follows that";
      return;
    }
    for (StateOp state : module.getOps<StateOp>())
      if (isOverwritten(state)) {
        state.emitError("unsupported: a state that entries overwrite, on a mesh of ranks");
        return signalPassFailure();
      }
    SmallVector<shard::Hint> hints;
    for (const std::string &text : optionStrings(module, kShardOption))
      hints.push_back(hintOf(text));
    std::optional<int64_t> rankBytes;
    for (const std::string &text : optionStrings(module, kRankMemoryOption))
      if (int64_t bytes = 0; !StringRef(text).getAsInteger(10, bytes))
        rankBytes = bytes;
    addHintsOfModel(module, ranks, hints);
    shard::StateLayouts states;
    const shard::Costs costs = costsOf(module);
    for (func::FuncOp func : module.getOps<func::FuncOp>()) {
      // Text that has been through here.
      if (func.walk([](Operation *op) {
                auto constant = dyn_cast<ConstantOp>(op);
                return collectiveOf(op) || (constant && isa<ShardedAttr>(constant.getValue())) ? WalkResult::interrupt()
                                                                                               : WalkResult::advance();
              }).wasInterrupted())
        continue;
      for (Operation &op : func.getBody().front())
        if (isa<ChooseOp, LoopBeginOp>(op)) {
          op.emitError("unsupported: an If or Loop on a mesh of ranks");
          return signalPassFailure();
        }
      Result<shard::Choice> choice =
          shard::choose(func, ranks, costs, hints, rankBytes, symbolOptima(module), states);
      if (!choice) {
        func.emitError("usage: ") << choice.status().location() << ": " << choice.status().message();
        return signalPassFailure();
      }
      if (auto list = module->getAttrOfType<ArrayAttr>(kFoundShardingsAttr); list && list.empty())
        module->setAttr(kFoundShardingsAttr, shard::tellShardings(func, ranks, choice->ways));
      shard::localize(func, ranks, choice->ways);
      tell(func, ranks, *choice);
    }
    for (StateOp state : module.getOps<StateOp>())
      if (auto found = states.find(state.getSymName().str()); found != states.end())
        state.setType(shard::localType(state.getType(), found->second, ranks));
  }

  /// Of GPUs where all targets are. A division is one for all targets, and goes by the first.
  static shard::Costs costsOf(ModuleOp module) {
    std::optional<Target> first;
    for (const std::string &name : optionStrings(module, "targets")) {
      Result<Target> target = Target::parse(name);
      if (!target || !target->isCuda())
        return {};
      if (!first)
        first = *target;
    }
    return first ? shard::Costs::ofGpus(ratesOf(*first)) : shard::Costs();
  }

  static shard::Hint hintOf(StringRef text) {
    auto [name, layout] = text.rsplit('=');
    shard::Hint hint{name.str(), text.str(), std::nullopt};
    int64_t dim = 0;
    if (layout.consume_front("dim:") && !layout.getAsInteger(10, dim))
      hint.dim = dim;
    return hint;
  }

  /// What the user says of a name goes ahead of what the model says.
  static void addHintsOfModel(ModuleOp module, int64_t ranks, SmallVector<shard::Hint> &hints) {
    auto list = module->getAttrOfType<ArrayAttr>(kShardingsAttr);
    for (StringRef text : list ? llvm::to_vector(list.getAsValueRange<StringAttr>()) : SmallVector<StringRef>()) {
      auto [hintText, shards] = text.rsplit('/');
      int64_t parts = 0;
      const bool isDivided = hintText.contains("=dim:") && !shards.getAsInteger(10, parts);
      shard::Hint hint = hintOf(isDivided ? hintText : text);
      hint.isOfModel = true;
      if (isDivided && parts != ranks)
        missedRemark(module.getLoc(), "Shard")
            << ("the model divides '" + hint.name + "' in " + Twine(parts) + ", not among " + Twine(ranks) + " ranks")
                   .str();
      else if (llvm::none_of(hints, [&](const shard::Hint &other) { return other.name == hint.name; }))
        hints.push_back(std::move(hint));
    }
  }

  static void tell(func::FuncOp func, int64_t ranks, const shard::Choice &choice) {
    for (const std::string &text : choice.leftOut)
      missedRemark(func.getLoc(), "Shard") << text;
    std::map<std::string, int64_t> counts;
    for (Operation &op : func.getBody().front())
      if (std::optional<Collective> collective = collectiveOf(&op)) {
        ++counts[collective->name];
        std::string sizes;
        for (const DimExpr &dim : dimsOf(op.getOperand(0)))
          sizes += (sizes.empty() ? "" : ", ") + dim.str();
        passedRemark(op.getLoc(), "Shard") << collective->name + " of [" + sizes + "]";
      }
    std::string text;
    for (const auto &[name, count] : counts)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
    passedRemark(func.getLoc(), "Shard")
        << ("entry '" + func.getSymName() + "' on " + Twine(ranks) + " ranks: " +
            (text.empty() ? "no collectives" : text) +
            llvm::formatv("; estimated {0:f3} us and {1} bytes of a rank", choice.seconds * 1e6, choice.bytes) +
            (choice.exact ? "" : ", by local search"))
               .str();
  }
};

} // namespace

} // namespace lathe
