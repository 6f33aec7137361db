//===- Donate.cpp - inputs that the entries give back ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Past and present become a state:
//
// An input that a graph only extends and gives back lives in the context
// instead: nothing is copied from call to call. The extended dimension is the
// state's length; its upper bound, which must be given, the capacity.
//
//   func @main(%past : [B, 2, P, 32], ...)      lathe.state @past {axis = 2, length = "P", ...}
//     %p = concat(%past, %new) {axis = 2}   =>  func @main(...)
//     return %p, ...                              %p = state_append @past, %new
//                                                 return ...
//
// An input of the output's sizes (a pool of pages) stays the caller's, who may give the same memory
// for both: the output is to lie where the input lies, and plan sees whether it can.
//
//   func @main(%pool)               =>          func @main(%pool {lathe.donated_to = "next"})
//
// Of a state without axis (lathe/ir/States.h) the input and the output are marked, for plan to take them away.
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/ir/States.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_DONATEPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct DonatePass : impl::DonatePassBase<DonatePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (StateOp state : module.getOps<StateOp>())
      if (isOverwritten(state) && failed(mark(module, state)))
        return signalPassFailure();
    for (const std::string &pair : optionStrings(module, "donate")) {
      auto [input, output] = StringRef(pair).split('=');
      if (isOutputFirst(module, input, output))
        std::swap(input, output);
      if (module.lookupSymbol<StateOp>(stateName(input)) || isMarked(module, input))
        continue; // text that has been through here
      if (failed(donate(module, input, output)))
        return signalPassFailure();
    }
  }

private:
  static std::string stateName(StringRef input) { return input.str(); }

  static bool isOutputFirst(ModuleOp module, StringRef first, StringRef second) {
    return llvm::any_of(module.getOps<func::FuncOp>(), [&](func::FuncOp func) {
      return !findInput(func, first) && findInput(func, second) && findOutput(func, first);
    });
  }

  static bool isMarked(ModuleOp module, StringRef input) {
    return llvm::any_of(module.getOps<func::FuncOp>(), [&](func::FuncOp func) {
      auto in = findInput(func, input);
      return in && func.getArgAttr(*in, kDonatedToAttr);
    });
  }

  static std::optional<unsigned> findInput(func::FuncOp func, StringRef name) {
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (inputName(func, i) == name)
        return i;
    return std::nullopt;
  }
  static std::optional<unsigned> findOutput(func::FuncOp func, StringRef name) {
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (outputName(func, i) == name)
        return i;
    return std::nullopt;
  }

  /// Marks what is the state in the entries; one that does not use it has neither.
  static LogicalResult mark(ModuleOp module, StateOp state) {
    for (func::FuncOp func : module.getOps<func::FuncOp>()) {
      auto in = findInput(func, state.getInput()), out = findOutput(func, state.getOutput());
      if (!in && !out)
        continue;
      if (!in || !out)
        return state.emitError("entry '")
               << func.getSymName() << "' has no " << (in ? "output '" : "input '")
               << (in ? state.getOutput() : state.getInput()) << "'";
      auto fits = [&](Type type) {
        return cast<TensorType>(type).getElementType() == cast<TensorType>(state.getType()).getElementType() &&
               dimsOf(type) == dimsOf(state.getType());
      };
      if (!fits(func.getArgumentTypes()[*in]) || !fits(func.getResultTypes()[*out]))
        return state.emitError("entry '") << func.getSymName() << "' has it with another type";
      func.setArgAttr(*in, kStateAttr, FlatSymbolRefAttr::get(state.getSymNameAttr()));
      func.setArgAttr(*in, kDonatedToAttr, state.getOutputAttr());
      func.setResultAttr(*out, kStateAttr, FlatSymbolRefAttr::get(state.getSymNameAttr()));
    }
    return success();
  }

  static LogicalResult donate(ModuleOp module, StringRef input, StringRef output) {
    // The entry that leaves the length open tells axis and symbol.
    StateOp state;
    bool sameSizes = true;
    SmallVector<func::FuncOp> entries(module.getOps<func::FuncOp>());
    llvm::erase_if(entries, [](func::FuncOp func) { return func->hasAttr(kPrepareAttr); });
    for (func::FuncOp func : entries) {
      auto in = findInput(func, input);
      auto out = findOutput(func, output);
      if (!in || !out)
        return func.emitError("usage: donation ") << input << "=" << output << ": entry '"
                                           << func.getSymName() << "' has no such "
                                           << (in ? "output" : "input");
      Value past = func.getArgument(*in);
      auto past_ = dimsOf(past), present = dimsOf(func.getResultTypes()[*out]);
      if (past_.size() != present.size())
        return func.emitError("usage: donation ") << input << "=" << output << ": ranks differ";
      sameSizes &= func.getArgumentTypes()[*in] == func.getResultTypes()[*out];
      for (size_t axis = 0; axis < past_.size() && !state; ++axis)
        if (past_[axis] != present[axis])
          if (auto length = past_[axis].symbolName())
            if (failed(declare(module, func, *in, *out, axis, *length, state)))
              return failure();
    }
    if (!state && sameSizes) {
      for (func::FuncOp func : entries)
        func.setArgAttr(*findInput(func, input), kDonatedToAttr,
                        StringAttr::get(module.getContext(), output));
      return success();
    }
    if (!state)
      return module.emitError("usage: donation ")
             << input << "=" << output
             << ": types differ, and no entry has a symbolic dimension that the output extends";
    for (func::FuncOp func : entries)
      if (failed(replace(func, state, *findInput(func, input), *findOutput(func, output))))
        return failure();
    return success();
  }

  static LogicalResult declare(ModuleOp module, func::FuncOp func, unsigned in, unsigned out,
                               int64_t axis, const std::string &length, StateOp &state) {
    auto symbol = module.lookupSymbol<SymbolOp>(length);
    std::string input = inputName(func, in);
    if (!symbol || int64_t(symbol.getMax()) < 0)
      return func.emitError("usage: donation of '")
             << input << "': the capacity is the upper bound of '" << length
             << "', which has none; give it with --dim " << length << "=LO:OPT:HI";
    Value past = func.getArgument(in);
    std::vector<DimExpr> dims = dimsOf(past);
    dims[axis] = int64_t(symbol.getMax());
    // States stand together, in the order of the option.
    Operation *last = symbol;
    for (StateOp other : module.getOps<StateOp>())
      last = other;
    OpBuilder builder(module.getContext());
    builder.setInsertionPointAfter(last);
    state = StateOp::create(builder, func.getLoc(), stateName(input),
                            tensorType(elementTypeOf(past), dims), axis, length,
                            input, outputName(func, out));
    return success();
  }

  /// Attention reads the strided memory; other ops get a dense view, since their results
  /// have their operands' types.
  static void replaceUses(Value value, Value inState, Operation *except) {
    Value dense;
    for (OpOperand &use : llvm::make_early_inc_range(value.getUses())) {
      if (use.getOwner() == except)
        continue;
      if (isa<AttentionOp>(use.getOwner())) {
        use.set(inState);
        continue;
      }
      if (!dense) {
        OpBuilder builder(value.getContext());
        builder.setInsertionPointAfterValue(inState);
        dense = ReshapeOp::create(builder, value.getLoc(),
                                  tensorType(elementTypeOf(value), dimsOf(value)), inState);
      }
      use.set(dense);
    }
  }

  static LogicalResult replace(func::FuncOp func, StateOp state, unsigned in, unsigned out) {
    Operation *end = func.getBody().front().getTerminator();
    Value past = func.getArgument(in), present = end->getOperand(out);
    int64_t axis = state.getAxis();
    auto concat = present.getDefiningOp<ConcatOp>();
    Value added;
    if (concat && int64_t(concat.getAxis()) == axis && concat.getInputs().size() == 2 &&
        concat.getInputs().front() == past)
      added = concat.getInputs().back();
    else if (dimOf(past, axis) == DimExpr(0) && present.getDefiningOp())
      added = present; // nothing was there before
    else
      return func.emitError("donation of '")
             << inputName(func, in) << "': output '" << outputName(func, out)
             << "' is not the input followed by something new along dimension " << axis;

    SmallVector<DimAttr> physical;
    for (const DimExpr &dim : dimsOf(state.getType()))
      physical.push_back(DimAttr::get(func.getContext(), dim));
    auto layout = PhysAttr::get(func.getContext(), physical);
    auto inState = [&](Value value) {
      return tensorType(elementTypeOf(value), dimsOf(value), layout);
    };
    OpBuilder builder(func.getContext());
    builder.setInsertionPointAfterValue(added);
    auto append = StateAppendOp::create(builder, present.getLoc(), inState(present),
                                        state.getSymName(), added);
    end->eraseOperand(out);
    replaceUses(present, append.getY(), append);
    if (llvm::any_of(past.getUsers(), [&](Operation *user) { return user != concat; })) {
      builder.setInsertionPointToStart(&func.getBody().front());
      auto read = StateReadOp::create(builder, past.getLoc(), inState(past), state.getSymName());
      replaceUses(past, read.getY(), concat);
    }
    if (concat && concat->use_empty())
      concat->erase();
    if (!past.use_empty())
      return func.emitError("donation of '") << inputName(func, in) << "': it is still read";
    if (failed(func.eraseArgument(in)) || failed(func.eraseResult(out)))
      return failure();
    return success();
  }
};

} // namespace

} // namespace lathe
