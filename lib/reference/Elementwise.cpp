//===- Elementwise.cpp - reference of elementwise ops ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Unary, binary, comparison, selection and conversion ops with numpy broadcasting.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include "lathe/support/Integers.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace lathe::reference {
namespace {

void noComplex(Call &call) {
  for (const Tensor &input : call.inputs)
    if (isComplex(input.dtype))
      call.fail(unsupportedError("the reference computes no complex numbers",
                                 "lathe." + std::string(call.op)));
}

bool checkBroadcast(Call &call) {
  for (const Tensor &input : call.inputs)
    call.require(broadcastsTo(input.dims, call.out().dims), "operand does not broadcast to result");
  return call.ok();
}

//===--------------------------------------------------------------------===//
// One operand
//===--------------------------------------------------------------------===//

struct Unary {
  std::string_view op;
  double (*real)(double);
  int64_t (*integer)(int64_t); ///< null: through double
};

int64_t same(int64_t x) { return x; }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
double mish(double x) { return std::exp(x) == 0 ? -0.0 : x * std::tanh(std::log1p(std::exp(x))); }
/// Through e^-|x|, which never overflows.
double sigmoid(double x) {
  double z = std::exp(-std::fabs(x));
  return (x < 0 ? z : 1) / (1 + z);
}

constexpr Unary kUnary[] = {
    {"neg", [](double x) { return -x; },
     [](int64_t x) { return static_cast<int64_t>(0 - static_cast<uint64_t>(x)); }},
    {"abs", [](double x) { return std::fabs(x); },
     [](int64_t x) { return x < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(x)) : x; }},
    {"sign", sign, [](int64_t x) { return static_cast<int64_t>((x > 0) - (x < 0)); }},
    {"floor", [](double x) { return std::floor(x); }, same},
    {"ceil", [](double x) { return std::ceil(x); }, same},
    {"round", [](double x) { return std::nearbyint(x); }, same},
    {"trunc", [](double x) { return std::trunc(x); }, same},
    {"exp", [](double x) { return std::exp(x); }, nullptr},
    {"expm1", [](double x) { return std::expm1(x); }, nullptr},
    {"log", [](double x) { return std::log(x); }, nullptr},
    {"log1p", [](double x) { return std::log1p(x); }, nullptr},
    {"sqrt", [](double x) { return std::sqrt(x); }, nullptr},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, nullptr},
    {"recip", [](double x) { return 1 / x; }, nullptr},
    {"sin", [](double x) { return std::sin(x); }, nullptr},
    {"cos", [](double x) { return std::cos(x); }, nullptr},
    {"tan", [](double x) { return std::tan(x); }, nullptr},
    {"asin", [](double x) { return std::asin(x); }, nullptr},
    {"acos", [](double x) { return std::acos(x); }, nullptr},
    {"atan", [](double x) { return std::atan(x); }, nullptr},
    {"sinh", [](double x) { return std::sinh(x); }, nullptr},
    {"cosh", [](double x) { return std::cosh(x); }, nullptr},
    {"tanh", [](double x) { return std::tanh(x); }, nullptr},
    {"asinh", [](double x) { return std::asinh(x); }, nullptr},
    {"acosh", [](double x) { return x < 1 ? std::nan("") : std::acosh(x); }, nullptr}, // musl's takes -3
    {"atanh", [](double x) { return std::atanh(x); }, nullptr},
    {"erf", [](double x) { return std::erf(x); }, nullptr},
    {"sigmoid", sigmoid, nullptr},
    {"mish", mish, nullptr},
};

void unary(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  noComplex(call);
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  if (!call.require(x.dims == y.dims && x.dtype == y.dtype, "operand and result types differ"))
    return;
  for (const Unary &u : kUnary) {
    if (u.op != call.op)
      continue;
    for (int64_t i = 0, n = y.count(); i < n; ++i) {
      // The magnitude of an unsigned number needs no change of sign.
      bool asIs = isUnsigned(x.dtype) && (call.op == "abs");
      if (u.integer && !isFloat(x.dtype))
        y.setInteger(i, asIs ? x.integer(i)
                        : isUnsigned(x.dtype) && call.op == "sign" ? x.integer(i) != 0
                                                                   : u.integer(x.integer(i)));
      else
        y.setReal(i, u.real(x.real(i)));
    }
  }
}

void quickGelu(Call &call) {
  double alpha = call.real("alpha");
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(x.dims == y.dims && x.dtype == y.dtype, "operand and result types differ");
  if (!call.require(isFloat(x.dtype), "needs floating-point numbers"))
    return;
  for (int64_t i = 0, n = y.count(); i < n; ++i) {
    // Through e^-|alpha x|, which never overflows.
    double t = alpha * x.real(i), z = std::exp(-std::fabs(t));
    y.setReal(i, t < 0 ? z == 0 ? -0.0 : x.real(i) * (z / (1 + z)) : x.real(i) / (1 + z));
  }
}

void logicalNot(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(x.dims == y.dims && x.dtype == y.dtype, "operand and result types differ");
  if (!call.require(!isFloat(x.dtype) && !isComplex(x.dtype), "needs integers or booleans"))
    return;
  for (int64_t i = 0, n = y.count(); i < n; ++i)
    y.setInteger(i, x.dtype == DType::Bool ? !x.integer(i) : ~x.integer(i));
}

void isNan(Call &call) {
  if (!call.expectInputs(1, 1) ||
      !call.require(call.in(0).dims == call.out().dims, "operand and result sizes differ"))
    return;
  for (int64_t i = 0, n = call.out().count(); i < n; ++i)
    call.out().setInteger(i, std::isnan(call.in(0).real(i)));
}

void isInf(Call &call) {
  bool negative = call.integerOr("negative", 1), positive = call.integerOr("positive", 1);
  if (!call.expectInputs(1, 1) ||
      !call.require(call.in(0).dims == call.out().dims, "operand and result sizes differ"))
    return;
  for (int64_t i = 0, n = call.out().count(); i < n; ++i) {
    double x = call.in(0).real(i);
    call.out().setInteger(i, std::isinf(x) && (x < 0 ? negative : positive));
  }
}

//===--------------------------------------------------------------------===//
// Two operands
//===--------------------------------------------------------------------===//

double realBinary(std::string_view op, bool fmod, double a, double b) {
  if (op == "add")
    return a + b;
  if (op == "sub")
    return a - b;
  if (op == "mul")
    return a * b;
  if (op == "div")
    return a / b;
  if (op == "max")
    return combine(Combine::Max, a, b);
  if (op == "min")
    return combine(Combine::Min, a, b);
  // mod
  double r = std::fmod(a, b);
  if (fmod)
    return r;
  if (r != 0 && (r < 0) != (b < 0))
    return r + b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

/// Of numbers extended to 64 bits; the result wraps when it is stored.
int64_t integerBinary(Call &call, bool fmod, DType type, int64_t a, int64_t b) {
  std::string_view op = call.op;
  uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  bool isSigned = !isUnsigned(type);
  if (op == "add")
    return static_cast<int64_t>(x + y);
  if (op == "sub")
    return static_cast<int64_t>(x - y);
  if (op == "mul")
    return static_cast<int64_t>(x * y);
  if (op == "max" || op == "min")
    return combine(op == "max" ? Combine::Max : Combine::Min, type, a, b);
  if (op == "and")
    return a & b;
  if (op == "or")
    return a | b;
  if (op == "xor")
    return a ^ b;
  unsigned bits = bitWidth(type);
  if (op == "shl")
    return y >= bits ? 0 : static_cast<int64_t>(x << y);
  if (op == "shr") {
    if (y >= bits)
      return isSigned && a < 0 ? -1 : 0;
    return isSigned ? a >> y : static_cast<int64_t>(x >> y);
  }
  if (op == "div")
    return divideIntegers(a, b, isSigned);
  // mod
  int64_t r = remainderOfIntegers(a, b, isSigned);
  return isSigned && !fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

void binary(Call &call) {
  if (!call.expectInputs(2, 2))
    return;
  noComplex(call);
  const Tensor &a = call.in(0), &b = call.in(1);
  Tensor &y = call.out();
  bool fmod = call.integerOr("fmod", 0);
  bool bitwise = call.op == "and" || call.op == "or" || call.op == "xor" || call.op == "shl" ||
                 call.op == "shr";
  call.require(a.dtype == b.dtype && a.dtype == y.dtype, "element types differ");
  call.require(!bitwise || !isFloat(a.dtype), "needs integers or booleans");
  if (!checkBroadcast(call))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    int64_t p = broadcastPosition(a.dims, index), q = broadcastPosition(b.dims, index);
    if (isFloat(y.dtype))
      y.setReal(i, realBinary(call.op, fmod, a.real(p), b.real(q)));
    else
      y.setInteger(i, integerBinary(call, fmod, y.dtype, a.integer(p), b.integer(q)));
  });
}

/// Exact, and wraps. A negative exponent gives the quotient 1 / base^-exponent, 0 where the base is 0.
int64_t integerPower(int64_t base, int64_t exponent, bool isSigned) {
  if (isSigned && exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e; e >>= 1) {
    if (e & 1)
      result *= square;
    square *= square;
  }
  return static_cast<int64_t>(result);
}

/// Where an integer is wanted, the whole number next to x if that is nearer than libraries' pow is exact:
/// 3^1 may come out as the number before 3.
double wholeIfNear(double x, bool wanted) {
  double whole = std::nearbyint(x);
  return wanted && std::fabs(x - whole) <= std::fabs(whole) * 0x1p-50 ? whole : x;
}

void pow(Call &call) {
  if (!call.expectInputs(2, 2))
    return;
  noComplex(call);
  const Tensor &a = call.in(0), &b = call.in(1);
  Tensor &y = call.out();
  call.require(a.dtype == y.dtype, "base and result types differ");
  if (!checkBroadcast(call))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    int64_t p = broadcastPosition(a.dims, index), q = broadcastPosition(b.dims, index);
    if (!isFloat(a.dtype) && !isFloat(b.dtype))
      y.setInteger(i, integerPower(a.integer(p), b.integer(q), !isUnsigned(b.dtype)));
    else
      y.setReal(i, wholeIfNear(std::pow(a.real(p), b.real(q)), !isFloat(y.dtype)));
  });
}

void compare(Call &call) {
  std::string predicate = call.text("predicate");
  if (!call.expectInputs(2, 2))
    return;
  noComplex(call);
  const Tensor &a = call.in(0), &b = call.in(1);
  Tensor &y = call.out();
  static constexpr std::string_view known[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  bool found = false;
  for (std::string_view k : known)
    found |= k == predicate;
  call.require(found, "unknown predicate '" + predicate + "'");
  call.require(a.dtype == b.dtype, "element types differ");
  if (!checkBroadcast(call))
    return;
  auto decide = [&](auto p, auto q) {
    return predicate == "eq"   ? p == q
           : predicate == "ne" ? p != q
           : predicate == "lt" ? p < q
           : predicate == "le" ? p <= q
           : predicate == "gt" ? p > q
                               : p >= q;
  };
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    int64_t p = broadcastPosition(a.dims, index), q = broadcastPosition(b.dims, index);
    bool holds;
    if (isFloat(a.dtype))
      holds = decide(a.real(p), b.real(q));
    else if (isUnsigned(a.dtype))
      holds = decide(static_cast<uint64_t>(a.integer(p)), static_cast<uint64_t>(b.integer(q)));
    else
      holds = decide(a.integer(p), b.integer(q));
    y.setInteger(i, holds);
  });
}

void select(Call &call) {
  if (!call.expectInputs(3, 3))
    return;
  const Tensor &condition = call.in(0), &a = call.in(1), &b = call.in(2);
  Tensor &y = call.out();
  call.require(a.dtype == y.dtype && b.dtype == y.dtype, "element types differ");
  call.require(condition.dtype == DType::Bool, "condition is not boolean");
  if (!checkBroadcast(call))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    bool first = condition.integer(broadcastPosition(condition.dims, index));
    const Tensor &from = first ? a : b;
    copyElement(from, broadcastPosition(from.dims, index), y, i);
  });
}

//===--------------------------------------------------------------------===//
// Conversion
//===--------------------------------------------------------------------===//

/// A 64-bit integer as a double that rounds to the same narrower float: bits that
/// do not fit leave a mark below everything a narrower type keeps.
double narrowable(int64_t value, bool isUnsigned64) {
  uint64_t magnitude = static_cast<uint64_t>(value);
  bool negative = !isUnsigned64 && value < 0;
  if (negative)
    magnitude = 0 - magnitude;
  if (magnitude >> 53) {
    bool lost = magnitude & 0xfff;
    magnitude = (magnitude & ~uint64_t(0xfff)) | (lost ? 0x800 : 0);
  }
  double result = static_cast<double>(magnitude);
  return negative ? -result : result;
}

void cast(Call &call) {
  bool saturate = call.integerOr("saturate", 1);
  if (!call.expectInputs(1, 1) ||
      !call.require(call.in(0).dims == call.out().dims, "operand and result sizes differ"))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  if (isComplex(x.dtype) != isComplex(y.dtype))
    noComplex(call);
  bool narrow = isFloat(y.dtype) && bitWidth(y.dtype) <= 8;
  Overflow overflow = saturate && narrow ? Overflow::Saturate : Overflow::Special;
  for (int64_t i = 0, n = y.count(); i < n; ++i) {
    if (isComplex(x.dtype))
      y.setComplex(i, x.complexAt(i));
    else if (isFloat(x.dtype))
      y.setReal(i, x.real(i), overflow);
    else if (!isFloat(y.dtype))
      y.setInteger(i, x.integer(i));
    else if (y.dtype == DType::F64)
      y.setReal(i, x.real(i));
    else
      y.setReal(i, narrowable(x.integer(i), x.dtype == DType::UI64), overflow);
  }
}

void bitcast(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(x.dims == y.dims, "operand and result sizes differ");
  if (!call.require(bitWidth(x.dtype) == bitWidth(y.dtype), "widths differ"))
    return;
  y.data = x.data;
}

/// Those of kUnary, and these.
constexpr Entry kOps[] = {
    {"quick_gelu", quickGelu},
    {"not", logicalNot}, {"is_nan", isNan},  {"is_inf", isInf},  {"add", binary},
    {"sub", binary},     {"mul", binary},    {"div", binary},    {"mod", binary},
    {"max", binary},     {"min", binary},    {"and", binary},    {"or", binary},
    {"xor", binary},     {"shl", binary},    {"shr", binary},    {"pow", pow},
    {"compare", compare}, {"select", select}, {"cast", cast},    {"bitcast", bitcast},
};

std::vector<Entry> allOps() {
  std::vector<Entry> all(std::begin(kOps), std::end(kOps));
  for (const Unary &u : kUnary)
    all.push_back({u.op, unary});
  return all;
}

} // namespace

std::span<const Entry> elementwiseOps() {
  static const std::vector<Entry> all = allOps();
  return all;
}

} // namespace lathe::reference
