//===- Elementwise.cpp - nodes that work element by element ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>
#include <cmath>

namespace lathe::fuzz {

Value pickFloat(GraphBuilder &b, int64_t minRank, int64_t maxRank) {
  return b.pickOr(
      [&](const Value &v) { return isFloatValue(v) && isKnown(v) && v.rank() >= minRank && v.rank() <= maxRank; },
      [&] { return b.fresh(b.floatType(), b.dims(b.random.between(minRank, std::min<int64_t>(maxRank, 4)))); });
}

int64_t axisOf(GraphBuilder &b, const Value &v) {
  int64_t axis = b.random.below(v.rank());
  return b.random.chance(25) ? axis - v.rank() : axis;
}

namespace {

/// A function of one float: what it wants of its operand, and the largest result it may give.
struct Unary {
  const char *op;
  double most;                 ///< of the operand; 0: any
  bool needsPositive;
  double (*bound)(double most); ///< of the result
  bool positive;               ///< the result
  Attrs (*attrs)(Random &);
};

double same(double m) { return m; }
double one(double) { return 1; }
double two(double) { return 2; }
double alpha(double m) { return 2 * m + 2; }
Attrs none(Random &) { return {}; }

const Unary kUnary[] = {
    {"Abs", 0, false, same, true, none},
    {"Neg", 0, false, same, false, none},
    {"Identity", 0, false, same, false, none},
    {"Floor", 0, false, [](double m) { return m + 1; }, false, none},
    {"Ceil", 0, false, [](double m) { return m + 1; }, false, none},
    {"Round", 0, false, [](double m) { return m + 1; }, false, none},
    {"Sign", 0, false, one, false, none},
    {"Exp", 6, false, [](double m) { return std::exp(m); }, true, none},
    {"Log", 0, true, [](double) { return 100.0; }, false, none},
    {"Sqrt", 0, true, [](double m) { return std::sqrt(m) + 1; }, true, none},
    {"Sin", 100, false, one, false, none},
    {"Cos", 100, false, one, false, none},
    {"Asin", 1, false, two, false, none},
    {"Acos", 1, false, [](double) { return 4.0; }, true, none},
    {"Atan", 0, false, two, false, none},
    {"Sinh", 6, false, [](double m) { return std::cosh(m); }, false, none},
    {"Cosh", 6, false, [](double m) { return std::cosh(m); }, true, none},
    {"Tanh", 0, false, one, false, none},
    {"Asinh", 0, false, [](double m) { return m; }, false, none},
    {"Erf", 0, false, one, false, none},
    {"Sigmoid", 0, false, one, true, none},
    {"Relu", 0, false, same, true, none},
    {"LeakyRelu", 0, false, same, false, [](Random &r) { return Attrs{{"alpha", 0.25 * double(r.between(0, 4))}}; }},
    {"Elu", 0, false, alpha, false, [](Random &r) { return Attrs{{"alpha", 0.5 * double(r.between(1, 4))}}; }},
    {"Selu", 0, false, alpha, false, none},
    {"Celu", 0, false, alpha, false, [](Random &r) { return Attrs{{"alpha", 0.5 * double(r.between(1, 4))}}; }},
    {"HardSigmoid", 0, false, one, true,
     [](Random &r) { return Attrs{{"alpha", 0.25 * double(r.between(1, 3))}, {"beta", 0.25 * double(r.between(0, 3))}}; }},
    {"HardSwish", 0, false, same, false, none},
    {"Softplus", 0, false, [](double m) { return m + 1; }, true, none},
    {"Softsign", 0, false, one, false, none},
    {"Gelu", 0, false, [](double m) { return m; }, false,
     [](Random &r) { return Attrs{{"approximate", std::string(r.chance(50) ? "tanh" : "none")}}; }},
    {"Mish", 0, false, [](double m) { return m; }, false, none},
    {"ThresholdedRelu", 0, false, same, true,
     [](Random &r) { return Attrs{{"alpha", 0.5 * double(r.between(0, 3))}}; }},
    {"Shrink", 0, false, [](double m) { return m + 1; }, false,
     [](Random &r) { return Attrs{{"lambd", 0.5 * double(r.between(0, 2))}, {"bias", 0.25 * double(r.between(0, 3))}}; }},
};

bool makeUnary(GraphBuilder &b) {
  const Unary &f = kUnary[b.random.below(std::size(kUnary))];
  std::string op = f.op;
  if ((op == "Gelu" || op == "Mish") && b.opset < 20)
    return false;
  // Before opset 22 these were of f32 and f16 alone, or their bodies are.
  bool wide = op == "Celu" || op == "Shrink" || op == "ThresholdedRelu" || op == "HardSwish";
  Value x = b.pickOr(
      [&](const Value &v) {
        return isFloatValue(v) && (f.most == 0 || v.most <= f.most) && (!f.needsPositive || v.positive) &&
               (!wide || v.dtype == DType::F32);
      },
      [&] {
        return b.fresh(wide ? DType::F32 : b.floatType(), b.dims(b.random.between(0, 4)), f.most == 1 ? 1 : 2,
                       Source::Any, f.needsPositive);
      });
  if (b.special && (f.most == 1 || op == "Round" || op == "Sign" || op == "ThresholdedRelu" || op == "HardSwish" ||
                    op == "Shrink" || op == "Celu" || op == "Elu" || op == "Selu" || op == "Softsign" || op == "Gelu" || op == "Mish"))
    return false;
  double most = f.bound(x.most);
  if (most > limitOf(x.dtype))
    return false;
  b.node(op, {x}, x.dtype, x.dims, most, f.attrs(b.random),
         f.positive || (x.positive && (op == "Identity" || op == "Floor" || op == "Ceil" || op == "Round")));
  return true;
}

/// Another operand that broadcasts against `x`: one that is there, or a new one with some sizes 1 or absent.
Value partner(GraphBuilder &b, const Value &x, const Condition &fits, const std::function<Value(Dims)> &make,
              Dims &result) {
  Value y = b.random.chance(50) ? b.pick([&](const Value &v) {
    Dims dims;
    return v.dtype == x.dtype && fits(v) && broadcast(x.dims, v.dims, dims) &&
           (!isKnown(v) || !isKnown(x) || product(dims) <= kMaxElements);
  })
                                : Value();
  if (!y) {
    Dims dims = x.dims;
    bool wider = x.isKnown() && b.random.chance(15);
    for (int64_t &size : dims)
      if (size == kUnknown || b.random.chance(25))
        size = 1;
      else if (wider && size == 1 && b.random.chance(50))
        size = b.random.between(2, 5);
    if (wider && dims.size() < 5 && b.random.chance(30))
      dims.insert(dims.begin(), b.random.between(1, 3));
    else if (!dims.empty() && b.random.chance(30))
      dims.erase(dims.begin(), dims.begin() + b.random.between(1, int64_t(dims.size())));
    y = make(dims);
  }
  if (!broadcast(x.dims, y.dims, result) || (x.isKnown() && y.isKnown() && product(result) > kMaxElements))
    return {};
  return y;
}

bool makeArithmetic(GraphBuilder &b) {
  std::string op = b.random.of({"Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "PRelu", "Pow"});
  bool both = op == "Add" || op == "Sub" || op == "Mul" || op == "Max" || op == "Min";
  if (b.special && (op == "Max" || op == "Min" || op == "Pow" || op == "PRelu" || op == "Mean"))
    return false;
  Value x = b.pickOr([&](const Value &v) { return both ? isNumber(v) : isFloatValue(v); },
                     [&] { return b.fresh(b.floatType(), b.dims(b.random.between(0, 4))); });
  if (op == "Pow" && !x.positive)
    return false;
  Dims dims;
  Value y = partner(
      b, x, [&](const Value &v) { return op == "Div" ? false : op == "Pow" ? v.most <= 2 : true; },
      [&](Dims d) {
        if (op != "Div")
          return b.fresh(x.dtype, d, isFloat(x.dtype) ? 2 : 5);
        // Away from 0.
        HostTensor t(x.dtype, d);
        for (int64_t i = 0, n = t.count(); i < n; ++i)
          t.setReal(i, (0.5 + b.random.unit()) * (b.random.chance(50) ? 1 : -1));
        return b.constant(t);
      },
      dims);
  if (!y)
    return false;
  if (op == "PRelu" && dims != x.dims)
    return false;
  bool wraps = isInteger(x.dtype);
  double most = op == "Mul"   ? x.most * y.most
                : op == "Div" ? x.most * 2
                : op == "Pow" ? std::pow(std::max(1.0, x.most), 2.0)
                : op == "PRelu" ? x.most * std::max(1.0, y.most)
                : op == "Max" || op == "Min" || op == "Mean" ? std::max(x.most, y.most)
                                                            : x.most + y.most;
  if (op == "Pow") // a base near 0 with a negative exponent
    return x.most <= 8 && [&] {
      Value base = b.node("Add", {x, b.scalar(x.dtype, 0.5)}, x.dtype, x.dims, x.most + 0.5, {}, true);
      b.node("Pow", {base, y}, x.dtype, dims, std::pow(std::max(2.0, base.most), std::max(2.0, y.most)), {}, true);
      return true;
    }();
  if (most > limitOf(x.dtype)) {
    if (!wraps)
      return false;
    most = std::ldexp(1, int(bitWidth(x.dtype)));
  }
  bool positive = x.positive && y.positive && op != "Sub" && op != "PRelu" && (!wraps || most <= limitOf(x.dtype));
  if (b.random.chance(30) && op != "Pow" && op != "PRelu" && op != "Div" && op != "Sub")
    std::swap(x, y);
  // Sub with operands the other way round means something else, which is as good.
  b.node(op, {x, y}, x.dtype, dims, most, {}, positive);
  return true;
}

/// Powers that are products or roots.
bool makePower(GraphBuilder &b) {
  if (b.special)
    return false;
  double exponent = b.random.of({1.0, 2.0, 3.0, 0.5, -1.0, -0.5});
  bool root = exponent != std::floor(exponent) || exponent < 0;
  Value x = b.pickOr([&](const Value &v) { return isFloatValue(v) && v.most <= 20 && (!root || v.positive); },
                     [&] { return b.fresh(b.floatType(), b.dims(b.random.between(0, 4)), 2, Source::Any, root); });
  if (root)
    x = b.node("Add", {x, b.scalar(x.dtype, 0.5)}, x.dtype, x.dims, x.most + 0.5, {}, true);
  double most = std::max(2.0, std::pow(std::max(1.0, x.most), std::max(1.0, exponent)));
  if (most > limitOf(x.dtype))
    return false;
  b.node("Pow", {x, b.scalar(x.dtype, exponent)}, x.dtype, x.dims, most, {}, root || x.positive || exponent == 2);
  return true;
}

bool makeInteger(GraphBuilder &b) {
  std::string op = b.random.of({"Mod", "Div", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Abs", "Neg", "BitwiseNot", "Sign"});
  bool shift = op == "BitShift";
  Value x = b.pickOr([&](const Value &v) { return isIntegerValue(v) && (!shift || isUnsigned(v.dtype)); },
                     [&] {
                       return b.fresh(shift ? b.random.of({DType::UI8, DType::UI16, DType::UI32, DType::UI64}) : b.integerType(),
                                      b.dims(b.random.between(0, 4)), 100);
                     });
  double whole = std::ldexp(1, int(bitWidth(x.dtype)));
  if (op == "Abs" || op == "Neg" || op == "BitwiseNot" || op == "Sign") {
    if ((op == "Neg" && isUnsigned(x.dtype)))
      return false;
    b.node(op, {x}, x.dtype, x.dims, op == "Sign" ? 1 : op == "BitwiseNot" ? whole : x.most, {}, op == "Abs" && x.most < limitOf(x.dtype));
    return true;
  }
  bool divides = op == "Mod" || op == "Div";
  Dims dims;
  Value y = partner(
      b, x, [&](const Value &) { return !divides && !shift; },
      [&](Dims d) {
        int64_t low = divides || isUnsigned(x.dtype) ? 1 : -9;
        Value v = b.integers(x.dtype, d, low, shift ? int64_t(bitWidth(x.dtype)) - 1 : 9);
        return v;
      },
      dims);
  if (!y)
    return false;
  Attrs attrs;
  if (shift)
    attrs = {{"direction", std::string(b.random.chance(50) ? "LEFT" : "RIGHT")}};
  if (op == "Mod" && b.random.chance(40))
    attrs = {{"fmod", int64_t(1)}};
  double most = divides ? (op == "Mod" ? 9 : x.most) : whole;
  b.node(op, {x, y}, x.dtype, dims, most, attrs, isUnsigned(x.dtype));
  return true;
}

bool makeCompare(GraphBuilder &b) {
  std::string op = b.random.of({"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"});
  Value x = b.pickOr(isNumber, [&] { return b.fresh(b.floatType(), b.dims(b.random.between(0, 4))); });
  Dims dims;
  Value y = partner(b, x, [](const Value &) { return true; }, [&](Dims d) { return b.fresh(x.dtype, d, std::min(x.most, 5.0)); }, dims);
  if (!y)
    return false;
  b.node(op, {x, y}, DType::Bool, dims, 1, {}, true);
  return true;
}

bool makeLogic(GraphBuilder &b) {
  Value x = b.pickOr(isBool, [&] { return b.fresh(DType::Bool, b.dims(b.random.between(0, 4))); });
  if (b.random.chance(25)) {
    b.node("Not", {x}, DType::Bool, x.dims, 1, {}, true);
    return true;
  }
  Dims dims;
  Value y = partner(b, x, isBool, [&](Dims d) { return b.fresh(DType::Bool, d); }, dims);
  if (!y)
    return false;
  b.node(b.random.of({"And", "Or", "Xor"}), {x, y}, DType::Bool, dims, 1, {}, true);
  return true;
}

bool makeTest(GraphBuilder &b) {
  Value x = b.pick([](const Value &v) { return isFloatValue(v) && v.dtype != DType::BF16; });
  if (!x)
    return false;
  if (b.random.chance(50))
    b.node("IsNaN", {x}, DType::Bool, x.dims, 1, {}, true);
  else if (x.dtype == DType::F32 || x.dtype == DType::F64)
    b.node("IsInf", {x}, DType::Bool, x.dims, 1,
           {{"detect_negative", b.random.below(2)}, {"detect_positive", b.random.below(2)}}, true);
  else
    return false;
  return true;
}

bool makeWhere(GraphBuilder &b) {
  Value x = b.pickOr([](const Value &v) { return isNumber(v) || isBool(v); },
                     [&] { return b.fresh(b.floatType(), b.dims(b.random.between(0, 4))); });
  Dims xy, dims;
  Value y = partner(b, x, [](const Value &) { return true; }, [&](Dims d) { return b.fresh(x.dtype, d); }, xy);
  if (!y)
    return false;
  Value whole{"", DType::Bool, xy, 1, true};
  Value condition = partner(b, whole, isBool, [&](Dims d) { return b.fresh(DType::Bool, d); }, dims);
  if (!condition)
    return false;
  b.node("Where", {condition, x, y}, x.dtype, dims, std::max(x.most, y.most), {}, x.positive && y.positive);
  return true;
}

bool makeClip(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr(isNumber, [&] { return b.fresh(b.floatType(), b.dims(b.random.between(0, 4))); });
  double low = isUnsigned(x.dtype) ? 1 : -1, high = isFloat(x.dtype) ? 1.5 : 3;
  Value least = b.random.chance(70) ? b.scalar(x.dtype, low) : Value();
  Value most = b.random.chance(70) ? b.scalar(x.dtype, high) : Value();
  b.node("Clip", {x, least, most}, x.dtype, x.dims, std::max(x.most, high), {}, x.positive || (least && low >= 0));
  return true;
}

bool makeCast(GraphBuilder &b) {
  Value x = b.pickOr([](const Value &v) { return isNumber(v) || isBool(v); },
                     [&] { return b.fresh(b.floatType(), b.dims(b.random.between(0, 4))); });
  DType to = b.random.chance(50)   ? b.floatType()
             : b.random.chance(60) ? b.integerType()
             : b.random.chance(50) ? DType::Bool
                                   : b.random.of({DType::F8E4M3FN, DType::F8E5M2});
  // ONNX leaves open what becomes of numbers that do not fit, and of NaN.
  if (to != DType::Bool && (x.most > limitOf(to) || (isUnsigned(to) && isFloat(x.dtype) && !x.positive)))
    return false;
  if (b.special && !isFloat(to))
    return false;
  double most = to == DType::Bool ? 1 : isUnsigned(to) && !x.positive ? std::ldexp(1, int(bitWidth(to))) : x.most;
  if (bitWidth(to) == 8 && isFloat(to)) { // nothing but casts takes these
    if (b.special || b.opset < 19 || !isFloat(x.dtype))
      return false;
    Value codes = b.node("Cast", {x}, to, x.dims, most, {{"to", int64_t(onnxType(to))}});
    b.node("Cast", {codes}, x.dtype, x.dims, most, {{"to", int64_t(onnxType(x.dtype))}}, x.positive);
    return true;
  }
  b.node("Cast", {x}, to, x.dims, most, {{"to", int64_t(onnxType(to))}}, x.positive || to == DType::Bool || isUnsigned(to));
  return true;
}

/// A cast, an op or none, and a cast back: what mixed precision makes of models.
bool makeCastBack(GraphBuilder &b) {
  DType from = b.random.chance(50) ? DType::F64 : b.floatType();
  DType to = b.random.of({DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64});
  Value x = b.pickOr([&](const Value &v) { return v.dtype == from; }, [&] { return b.fresh(from, b.dims(b.random.between(0, 3))); });
  if (x.dtype == to || x.most > limitOf(to))
    return false;
  Value y = b.node("Cast", {x}, to, x.dims, x.most, {{"to", int64_t(onnxType(to))}}, x.positive);
  if (b.random.chance(30))
    y = b.node(b.random.of({"Neg", "Relu"}), {y}, to, y.dims, y.most);
  b.node("Cast", {y}, from, y.dims, y.most, {{"to", int64_t(onnxType(from))}}, y.positive);
  return true;
}

/// A value and what was computed of it, together: residuals, gates, rotations of pairs, differences that an update made.
bool makeSkip(GraphBuilder &b) {
  auto source = [&](const Value &v) {
    for (const Value &u : b.visible())
      if (u.dtype == v.dtype && u.dims == v.dims && std::find(v.from.begin(), v.from.end(), u.name) != v.from.end())
        return u;
    return Value();
  };
  Value v = b.pick([&](const Value &u) { return isNumber(u) && !isUnsigned(u.dtype) && isKnown(u) && source(u); });
  if (!v)
    return false;
  Value u = source(v);
  for (Value next; b.random.chance(40) && (next = source(u));)
    u = next;
  std::string op = b.random.of({"Add", "Add", "Sub", "Mul", "Max"});
  if (b.special && op == "Max")
    return false;
  double most = op == "Mul" ? v.most * u.most : op == "Max" ? std::max(v.most, u.most) : v.most + u.most;
  if (most > limitOf(v.dtype))
    return false;
  bool positive = v.positive && u.positive && op != "Sub";
  if (b.random.chance(50))
    std::swap(u, v);
  b.node(op, {v, u}, v.dtype, v.dims, most, {}, positive);
  return true;
}

bool makeFloatMod(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pick([](const Value &v) { return v.dtype == DType::F32 && v.most < 1000; });
  if (!x)
    return false;
  b.node("Mod", {x, b.scalar(x.dtype, b.random.of({1.5, 2.0, 3.0, 0.75}))}, x.dtype, x.dims, 3, {{"fmod", int64_t(1)}}, x.positive);
  return true;
}

} // namespace

void addElementwise(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"unary", 18, makeUnary},
                               {"arithmetic", 18, makeArithmetic},
                               {"power", 2, makePower},
                               {"integer", 4, makeInteger},
                               {"compare", 3, makeCompare},
                               {"logic", 2, makeLogic},
                               {"test", 1, makeTest},
                               {"where", 4, makeWhere},
                               {"clip", 2, makeClip},
                               {"cast", 6, makeCast},
                               {"cast back", 4, makeCastBack},
                               {"skip", 6, makeSkip},
                               {"fmod", 1, makeFloatMod}});
}

} // namespace lathe::fuzz
