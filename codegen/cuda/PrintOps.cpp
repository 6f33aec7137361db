//===- PrintOps.cpp - arithmetic, conversions, vectors -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tables from op names to C++ operators and device functions. The device
// functions take scalars and Vec alike, so one entry serves both.
//
//===----------------------------------------------------------------------===//

#include "Printer.h"

#include "lathe/codegen/Uncontracted.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

bool isIndex(Type t) { return getElementTypeOrSelf(t).isIndex(); }
bool isBool(Type t) { return getElementTypeOrSelf(t).isInteger(1); }

/// Floating-point operators and functions of one, two or three operands.
struct Entry {
  const char *text;
  const char *fast = nullptr; ///< for results of 16 bits
};
const llvm::StringMap<Entry> &infixTable() {
  static const llvm::StringMap<Entry> table = {
      {"arith.addf", {"+"}}, {"arith.subf", {"-"}}, {"arith.mulf", {"*"}},  {"arith.andi", {"&"}},
      {"arith.ori", {"|"}},  {"arith.xori", {"^"}}, {"arith.shli", {"<<"}}, {"arith.shrsi", {">>"}},
  };
  return table;
}
const llvm::StringMap<Entry> &callTable() {
  static const llvm::StringMap<Entry> table = {
      {"arith.divf", {"divide", "fastDivide"}},
      {"arith.remf", {"mathFmod"}},
      {"arith.maximumf", {"maximum"}},
      {"arith.minimumf", {"minimum"}},
      {"arith.maxnumf", {"maxNum"}},
      {"arith.minnumf", {"minNum"}},
      {"arith.maxsi", {"maxNum"}},
      {"arith.minsi", {"minNum"}},
      {"arith.select", {"select"}},
      {"math.absf", {"mathAbs"}},
      {"math.absi", {"integerAbs"}},
      {"math.acos", {"mathAcos"}},
      {"math.acosh", {"mathAcosh"}},
      {"math.asin", {"mathAsin"}},
      {"math.asinh", {"mathAsinh"}},
      {"math.atan", {"mathAtan"}},
      {"math.atan2", {"mathAtan2"}},
      {"math.atanh", {"mathAtanh"}},
      {"math.cbrt", {"mathCbrt"}},
      {"math.ceil", {"mathCeil"}},
      {"math.copysign", {"mathCopysign"}},
      {"math.cos", {"mathCos"}},
      {"math.cosh", {"mathCosh"}},
      {"math.erf", {"mathErf", "fastErf"}},
      {"math.exp", {"mathExp", "fastExp"}},
      {"math.exp2", {"mathExp2"}},
      {"math.expm1", {"mathExpm1"}},
      {"math.floor", {"mathFloor"}},
      {"math.fma", {"mathFma"}},
      {"math.log", {"mathLog"}},
      {"math.log10", {"mathLog10"}},
      {"math.log1p", {"mathLog1p"}},
      {"math.log2", {"mathLog2"}},
      {"math.powf", {"mathPow"}},
      {"math.round", {"mathRound"}},
      {"math.roundeven", {"mathRoundEven"}},
      {"math.rsqrt", {"mathRsqrt"}},
      {"math.sin", {"mathSin"}},
      {"math.sinh", {"mathSinh"}},
      {"math.sqrt", {"mathSqrt"}},
      {"math.tan", {"mathTan"}},
      {"math.tanh", {"mathTanh", "fastTanh"}},
      {"math.trunc", {"mathTrunc"}},
      {"math.isnan", {"isNan"}},
      {"vector.fma", {"mathFma"}},
  };
  return table;
}

/// Integer ops by function: what indices use, what other integers use.
struct IntegerEntry {
  const char *index, *other;
};
const llvm::StringMap<IntegerEntry> &integerTable() {
  static const llvm::StringMap<IntegerEntry> table = {
      {"arith.divsi", {"divIndex", "safeDiv"}},
      {"arith.remsi", {"remIndex", "safeRem"}},
      {"arith.floordivsi", {"floorDiv", "safeFloorDiv"}},
      {"arith.ceildivsi", {"ceilDiv", nullptr}},
  };
  return table;
}
/// The same on unsigned values; an index is never negative.
const llvm::StringMap<IntegerEntry> &unsignedTable() {
  static const llvm::StringMap<IntegerEntry> table = {
      {"arith.divui", {"divIndex", "safeDiv"}},  {"arith.remui", {"remIndex", "safeRem"}},
      {"arith.ceildivui", {"ceilDiv", nullptr}}, {"arith.maxui", {"maxNum", "maxNum"}},
      {"arith.minui", {"minNum", "minNum"}},
  };
  return table;
}

const char *wrapping(StringRef name) {
  return llvm::StringSwitch<const char *>(name)
      .Case("arith.addi", "+")
      .Case("arith.subi", "-")
      .Case("arith.muli", "*")
      .Default(nullptr);
}

std::string list(ArrayRef<std::string> items) {
  std::string out;
  for (auto [i, s] : llvm::enumerate(items))
    out += (i ? ", " : "") + s;
  return out;
}

} // namespace

bool Printer::arithmeticOp(Operation &o) {
  StringRef name = o.getName().getStringRef();
  if (isa<arith::MulFOp>(o) && o.hasAttr(kUncontracted)) { // no sum takes this function in
    define(o.getResult(0), "mulRounded(" + use(o, 0) + ", " + use(o, 1) + ")");
    return true;
  }
  if (auto it = infixTable().find(name); it != infixTable().end()) {
    std::string text = use(o, 0) + " " + it->second.text + " " + use(o, 1);
    if (isBool(o.getResult(0).getType()) && !isa<VectorType>(o.getResult(0).getType()))
      text = "(bool)(" + text + ")";
    define(o.getResult(0), text);
    return true;
  }
  if (auto it = callTable().find(name); it != callTable().end()) {
    std::vector<std::string> operands;
    for (Value v : o.getOperands())
      operands.push_back(use(v));
    bool fast = options.fastMath && it->second.fast && !o.hasAttr("tile.exact") &&
                getElementTypeOrSelf(o.getResult(0).getType()).isF32();
    // One divisor for all lanes.
    if (fast && isa<arith::DivFOp>(o))
      if (auto all = o.getOperand(1).getDefiningOp<vector::BroadcastOp>())
        if (!isa<VectorType>(all.getSource().getType()))
          operands[1] = use(all.getSource());
    define(o.getResult(0),
           Twine(fast ? it->second.fast : it->second.text) + "(" + list(operands) + ")");
    return true;
  }
  if (name == "arith.negf") {
    define(o.getResult(0), "-" + use(o, 0));
    return true;
  }
  if (auto op = dyn_cast<arith::CmpFOp>(o)) {
    using P = arith::CmpFPredicate;
    const char *infix = nullptr, *call = nullptr;
    switch (op.getPredicate()) {
    case P::OEQ:
      infix = "==";
      break;
    case P::OGT:
      infix = ">";
      break;
    case P::OGE:
      infix = ">=";
      break;
    case P::OLT:
      infix = "<";
      break;
    case P::OLE:
      infix = "<=";
      break;
    case P::UNE:
      infix = "!=";
      break;
    case P::ONE:
      call = "orderedNotEqual";
      break;
    case P::ORD:
      call = "ordered";
      break;
    case P::UEQ:
      call = "unorderedOrEqual";
      break;
    case P::UGT:
      call = "unorderedOrGreater";
      break;
    case P::UGE:
      call = "unorderedOrGreaterEqual";
      break;
    case P::ULT:
      call = "unorderedOrLess";
      break;
    case P::ULE:
      call = "unorderedOrLessEqual";
      break;
    case P::UNO:
      call = "unordered";
      break;
    default:
      fail(o, "has a constant predicate");
      return true;
    }
    if (infix)
      define(op, use(o, 0) + " " + infix + " " + use(o, 1));
    else
      define(op, Twine(call) + "(" + use(o, 0) + ", " + use(o, 1) + ")");
    return true;
  }
  return false;
}

bool Printer::integerOp(Operation &o) {
  StringRef name = o.getName().getStringRef();
  if (const char *infix = wrapping(name)) {
    // Indices never overflow; other integers wrap, which C++ has for unsigned ones only.
    if (isIndex(o.getResult(0).getType()))
      define(o.getResult(0), use(o, 0) + " " + infix + " " + use(o, 1));
    else if (isBool(o.getResult(0).getType()))
      define(o.getResult(0),
             Twine("(bool)(") + use(o, 0) + (*infix == '*' ? " & " : " ^ ") + use(o, 1) + ")");
    else
      define(o.getResult(0),
             "asSigned(asUnsigned(" + use(o, 0) + ") " + infix + " asUnsigned(" + use(o, 1) + "))");
    return true;
  }
  bool isUnsigned = false;
  auto it = integerTable().find(name);
  if (it == integerTable().end()) {
    it = unsignedTable().find(name);
    isUnsigned = it != unsignedTable().end();
    if (!isUnsigned && name != "arith.shrui")
      if (!isa<arith::CmpIOp>(o))
        return false;
  }
  if (name == "arith.shrui") {
    define(o.getResult(0),
           "asSigned(asUnsigned(" + use(o, 0) + ") >> asUnsigned(" + use(o, 1) + "))");
    return true;
  }
  if (auto op = dyn_cast<arith::CmpIOp>(o)) {
    using P = arith::CmpIPredicate;
    const char *infix = "==";
    switch (op.getPredicate()) {
    case P::eq:
      infix = "==";
      break;
    case P::ne:
      infix = "!=";
      break;
    case P::slt:
      infix = "<";
      break;
    case P::sle:
      infix = "<=";
      break;
    case P::sgt:
      infix = ">";
      break;
    case P::sge:
      infix = ">=";
      break;
    case P::ult:
      infix = "<", isUnsigned = true;
      break;
    case P::ule:
      infix = "<=", isUnsigned = true;
      break;
    case P::ugt:
      infix = ">", isUnsigned = true;
      break;
    case P::uge:
      infix = ">=", isUnsigned = true;
      break;
    }
    if (isUnsigned)
      define(op, "asUnsigned(" + use(o, 0) + ") " + infix + " asUnsigned(" + use(o, 1) + ")");
    else
      define(op, use(o, 0) + " " + infix + " " + use(o, 1));
    return true;
  }
  bool index = isIndex(o.getResult(0).getType());
  // Constant divisors become shifts and multiplications, without a test for 32 bits.
  if (auto c = o.getNumOperands() == 2 ? o.getOperand(1).getDefiningOp<arith::ConstantOp>()
                                       : arith::ConstantOp())
    if (auto v = dyn_cast<IntegerAttr>(c.getValue());
        v && index && v.getInt() > 0 && (name == "arith.divui" || name == "arith.remui")) {
      define(o.getResult(0), Twine(name == "arith.divui" ? "divBy<" : "remBy<") +
                                 Twine(v.getInt()) + ">(" + use(o, 0) + ")");
      return true;
    }
  const char *call = index ? it->second.index : it->second.other;
  if (!call) {
    fail(o, "has no CUDA form for this type");
    return true;
  }
  if (isUnsigned && !index)
    define(o.getResult(0), Twine("asSigned(") + call + "(asUnsigned(" + use(o, 0) +
                               "), asUnsigned(" + use(o, 1) + ")))");
  else
    define(o.getResult(0), Twine(call) + "(" + use(o, 0) + ", " + use(o, 1) + ")");
  return true;
}

bool Printer::castOp(Operation &o) {
  enum class Form { None, Plain, FromUnsigned, ToUnsigned, Bits };
  Form form = llvm::StringSwitch<Form>(o.getName().getStringRef())
                  .Cases({"arith.extf", "arith.truncf", "arith.sitofp", "arith.fptosi",
                          "arith.extsi", "arith.trunci", "arith.index_cast"},
                         Form::Plain)
                  .Cases({"arith.extui", "arith.uitofp", "arith.index_castui"}, Form::FromUnsigned)
                  .Case("arith.fptoui", Form::ToUnsigned)
                  .Case("arith.bitcast", Form::Bits)
                  .Default(Form::None);
  if (form == Form::None)
    return false;
  Value result = o.getResult(0);
  // Rounding what was just widened from the same type changes nothing.
  if (isa<arith::TruncFOp>(o))
    if (auto wide = o.getOperand(0).getDefiningOp<arith::ExtFOp>();
        wide && wide.getIn().getType() == result.getType()) {
      names[result] = use(wide.getIn());
      return true;
    }
  Type from = o.getOperand(0).getType(), to = result.getType();
  std::string x = use(o, 0), again = o.hasAttr("tile.again") ? "again(" + x + ")" : x, target = type(getElementTypeOrSelf(to), o.getLoc());
  if (form == Form::Bits) {
    define(result, "bitCast<" + type(to, o.getLoc()) + ">(" + x + ")");
  } else if (isBool(from)) {
    // A set bit is -1 where it counts as a signed number.
    bool negative = form == Form::Plain;
    define(result, (negative ? "-convert<" : "convert<") + target + ">(" + x + ")");
  } else if (isBool(to) && !isa<FloatType>(getElementTypeOrSelf(from))) {
    define(result, "lowBit(" + x + ")");
  } else if (form == Form::FromUnsigned) {
    define(result, "convert<" + target + ">(asUnsigned(" + x + "))");
  } else if (form == Form::ToUnsigned) {
    define(result, "asSigned(convert<u" + target.substr(1) + ">(" + x + "))");
  } else {
    define(result, "convert<" + target + ">(" + again + ")");
  }
  return true;
}

bool Printer::vectorOp(Operation &o) {
  auto position = [&](OperandRange dynamic, ArrayRef<int64_t> fixed) {
    return fixed.size() == 1 && ShapedType::isDynamic(fixed[0])
               ? use(dynamic[0])
               : std::to_string(fixed.empty() ? 0 : fixed[0]);
  };
  if (auto op = dyn_cast<vector::BroadcastOp>(o)) {
    if (isa<VectorType>(op.getSource().getType()))
      names[op] = use(op.getSource());
    else
      define(op, "splat<" + Twine(op.getResultVectorType().getDimSize(0)) + ">(" +
                     use(op.getSource()) + ")");
  } else if (auto op = dyn_cast<vector::ExtractOp>(o)) {
    define(op, use(o, 0) + "[" + position(op.getDynamicPosition(), op.getStaticPosition()) + "]");
  } else if (auto op = dyn_cast<vector::InsertOp>(o)) {
    std::string name = variable(op, use(op.getDest()));
    line() << name << "[" << position(op.getDynamicPosition(), op.getStaticPosition())
           << "] = " << use(op.getValueToStore()) << ";\n";
  } else if (auto op = dyn_cast<vector::FromElementsOp>(o)) {
    std::vector<std::string> items;
    for (Value v : op.getElements())
      items.push_back(use(v));
    define(op, typeOf(op) + "{{" + list(items) + "}}");
  } else if (auto op = dyn_cast<vector::ToElementsOp>(o)) {
    for (auto [i, r] : llvm::enumerate(op.getResults()))
      names[r] = use(op.getSource()) + "[" + std::to_string(i) + "]";
  } else if (auto op = dyn_cast<vector::StepOp>(o)) {
    define(op, "iota<" + Twine(op.getType().getDimSize(0)) + ">(0ll)");
  } else if (auto op = dyn_cast<vector::ShuffleOp>(o)) {
    int64_t first = op.getV1VectorType().getDimSize(0);
    std::vector<std::string> items;
    for (int64_t i : op.getMask())
      items.push_back(i < first
                          ? use(op.getV1()) + "[" + std::to_string(std::max<int64_t>(i, 0)) + "]"
                          : use(op.getV2()) + "[" + std::to_string(i - first) + "]");
    define(op, typeOf(op) + "{{" + list(items) + "}}");
  } else if (auto op = dyn_cast<vector::ReductionOp>(o)) {
    using K = vector::CombiningKind;
    const char *kind = nullptr;
    switch (op.getKind()) {
    case K::ADD:
      kind = "SumOp";
      break;
    case K::MUL:
      kind = "ProdOp";
      break;
    case K::MAXSI:
    case K::MAXIMUMF:
      kind = "MaxOp";
      break;
    case K::MINSI:
    case K::MINIMUMF:
      kind = "MinOp";
      break;
    case K::MAXNUMF:
      kind = "MaxNumOp";
      break;
    case K::MINNUMF:
      kind = "MinNumOp";
      break;
    case K::AND:
      kind = "AndOp";
      break;
    case K::OR:
      kind = "OrOp";
      break;
    case K::XOR:
      kind = "XorOp";
      break;
    default:
      fail(o, "has a kind without CUDA form");
      return true;
    }
    std::string reduced = std::string("vecReduce<") + kind + ">(" + use(op.getVector()) + ")";
    if (op.getAcc())
      reduced = std::string(kind) + "::apply(" + use(op.getAcc()) + ", " + reduced + ")";
    define(op, reduced);
  } else {
    return false;
  }
  return true;
}

} // namespace lathe::codegen
