//===- HoistParameters.cpp - what depends on parameters alone -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What follows from parameters and constants alone is the same in each run until a parameter changes. It is
// computed by the entry `prepare`, and a parameter itself to the entries that read it: norms' scales, transposed
// and converted weights, sums of biases.
//
//   func @main(%x) {                                     func @main(%x) {
//     %g = constant #lathe.weight<"parameter:g", ..>       %s = constant #lathe.weight<"parameter:g/sqrt", ..>
//     %s = sqrt %g                                 =>      %y = mul %x, %s .. }
//     %y = mul %x, %s .. }                               func @prepare(%g) { %s = sqrt %g
//                                                                            return %s {lathe.name = "g/sqrt"} }
//
// Runs again behind layout, which makes more of weights. Codes stay where they are until then: products may read
// them as they are stored.
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/ir/WeightStore.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_HOISTPARAMETERSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Results up to so many elements may be larger than what they are made of.
constexpr int64_t kMaxGrown = 64 << 10;

int64_t elementsOf(Value value) { return cast<TensorType>(value.getType()).getNumElements(); }

class Hoister {
public:
  Hoister(func::FuncOp entry, func::FuncOp prepare, bool keepCodes)
      : entry(entry), prepare(prepare), keepCodes(keepCodes) {}

  void run() {
    for (Operation &op : entry.getBody().front().without_terminator())
      if (auto constant = dyn_cast<ConstantOp>(op))
        known[constant] = WeightStore::parameterOf(constant.getValue()).has_value();
      else if (isFixed(&op))
        known[op.getResult(0)] = llvm::any_of(op.getOperands(), [&](Value v) { return known.lookup(v); });
    SmallVector<Value> wanted; // by what stays here
    for (Operation &op : entry.getBody().front().without_terminator())
      if (op.getNumResults() == 1 && !isa<ConstantOp>(op) && known.lookup(op.getResult(0)) &&
          llvm::any_of(op.getUsers(), [&](Operation *user) { return !isKnown(user); }))
        wanted.push_back(op.getResult(0));
    for (Value value : wanted)
      replace(value);
  }

private:
  bool isKnown(Operation *op) const { return op->getNumResults() == 1 && known.count(op->getResult(0)); }

  /// Whether an op's one result follows from constants, and may be computed ahead.
  bool isFixed(Operation *op) const {
    if (!isa<StructuredOpInterface>(op) || op->getNumResults() != 1 || op->getNumRegions() || !op->getNumOperands())
      return false;
    auto type = cast<TensorType>(op->getResult(0).getType());
    if (!type.hasStaticShape() || !isa<RankedTensorType>(type) || physicalDimsOf(type) != dimsOf(type) ||
        !llvm::all_of(op->getOperands(), [&](Value v) { return known.count(v); }))
      return false;
    auto codes = [](Value v) {
      Type element = elementTypeOf(v);
      return element.isIntOrFloat() && element.getIntOrFloatBitWidth() <= 8 && !element.isInteger(1);
    };
    if (keepCodes && (isa<DequantizeOp>(op) || llvm::any_of(op->getOperands(), codes)))
      return false;
    int64_t from = 0;
    for (Value operand : op->getOperands())
      from += elementsOf(operand);
    return type.getNumElements() <= std::max(kMaxGrown, from);
  }

  /// The value in `prepare`.
  Value prepared(Value value) {
    Value &made = moved[value];
    if (made)
      return made;
    OpBuilder b(prepare.getBody().front().getTerminator());
    if (auto constant = value.getDefiningOp<ConstantOp>()) {
      std::optional<StringRef> name = WeightStore::parameterOf(constant.getValue());
      if (!name)
        return made = b.clone(*constant)->getResult(0);
      Value from = byName(*name);
      if (from.getType() != value.getType())
        from = ReshapeOp::create(b, value.getLoc(), value.getType(), from);
      return made = from;
    }
    Operation *op = value.getDefiningOp();
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, prepared(operand));
    return moved[value] = b.clone(*op, mapping)->getResult(0);
  }

  /// The parameter of this name in `prepare`: an argument, or what it has been asked for before.
  Value byName(StringRef name) {
    for (unsigned i = 0; i < prepare.getNumArguments(); ++i)
      if (inputName(prepare, i) == name)
        return prepare.getArgument(i);
    for (unsigned i = 0; i < prepare.getNumResults(); ++i)
      if (outputName(prepare, i) == name)
        return prepare.getBody().front().getTerminator()->getOperand(i);
    llvm_unreachable("a parameter that prepare does not know");
  }

  /// A name that says what it is: the first parameter that it is made of, and the last op.
  std::string nameOf(Value value) {
    Value from = value;
    while (!from.getDefiningOp<ConstantOp>())
      from = *llvm::find_if(from.getDefiningOp()->getOperands(), [&](Value v) { return known.lookup(v); });
    std::string base = WeightStore::parameterOf(from.getDefiningOp<ConstantOp>().getValue())->str() + "/" +
                       value.getDefiningOp()->getName().stripDialect().str();
    auto taken = [&](const std::string &name) {
      for (unsigned i = 0; i < prepare.getNumResults(); ++i)
        if (outputName(prepare, i) == name)
          return true;
      for (func::FuncOp func : {prepare, entry})
        for (unsigned i = 0; i < func.getNumArguments(); ++i)
          if (inputName(func, i) == name)
            return true;
      return false;
    };
    std::string name = base;
    for (int i = 2; taken(name); ++i)
      name = base + "." + std::to_string(i);
    return name;
  }

  void replace(Value value) {
    std::string name = nameOf(value);
    OpBuilder b(value.getDefiningOp());
    Value result = prepared(value);
    (void)prepare.insertResult(prepare.getNumResults(), result.getType(),
                               b.getDictionaryAttr(b.getNamedAttr("lathe.name", b.getStringAttr(name))));
    Operation *end = prepare.getBody().front().getTerminator();
    end->insertOperands(end->getNumOperands(), result);
    WeightAttr parameter = WeightStore::parameter(cast<TensorType>(value.getType()), name);
    auto constant = ConstantOp::create(b, value.getLoc(), cast<TypedAttr>(Attribute(parameter)));
    passedRemark(value.getLoc(), "Parameters")
        << name + " is computed when a parameter has changed, not in each run";
    // What is hoisted behind it goes on with the ops, for names and what is moved already.
    value.replaceUsesWithIf(constant, [&](OpOperand &use) { return !isKnown(use.getOwner()); });
  }

  func::FuncOp entry, prepare;
  const bool keepCodes;
  llvm::DenseMap<Value, bool> known; ///< what follows from constants; whether parameters are among them
  llvm::DenseMap<Value, Value> moved; ///< to `prepare`
};

/// Ops whose results nobody reads, from the last one on.
void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (op.use_empty() && (isa<ConstantOp>(op) || (isa<StructuredOpInterface>(op) && isMemoryEffectFree(&op))))
      op.erase();
}

struct HoistParametersPass : impl::HoistParametersPassBase<HoistParametersPass> {
  void runOnOperation() override {
    SmallVector<ModuleOp> modules = targetModules(getOperation());
    const bool split = !modules.empty();
    if (!split)
      modules.push_back(getOperation());
    for (ModuleOp module : modules)
      if (func::FuncOp prepare = prepareEntry(module))
        for (func::FuncOp entry : module.getOps<func::FuncOp>())
          if (entry != prepare) {
            Hoister(entry, prepare, /*keepCodes=*/!split).run();
            eraseDead(entry.getBody().front());
          }
  }
};

} // namespace

} // namespace lathe
