//===- Cases.cpp - every op on special values --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Cases.h"

#include "Values.h"

#include <limits>
#include <set>

namespace lathe::special {
namespace {

const std::vector<DType> kFloats = {DType::F32, DType::F64, DType::F16, DType::BF16};
const std::vector<DType> kInts = {DType::I8,  DType::I16,  DType::I32,  DType::I64,
                                  DType::UI8, DType::UI16, DType::UI32, DType::UI64};
const std::vector<DType> kFloats8 = {DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ,
                                     DType::F8E5M2FNUZ, DType::F8E8M0};

std::vector<DType> join(std::vector<DType> a, const std::vector<DType> &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string elementName(DType type) { return type == DType::Bool ? "i1" : std::string(name(type)); }

std::string typeName(DType type, const std::vector<int64_t> &dims) {
  std::string text = "tensor<";
  for (int64_t d : dims)
    text += std::to_string(d) + "x";
  return text + elementName(type) + ">";
}

/// Writes a group: inputs, constants, one op a case.
class Builder {
public:
  struct Value {
    std::string text;
    DType dtype;
    std::vector<int64_t> dims;
    std::string type() const { return typeName(dtype, dims); }
  };

  explicit Builder(std::string name) { group.name = std::move(name); }

  Value input(HostTensor data) {
    Value v{"%arg" + std::to_string(group.inputs.size()), data.dtype, data.dims};
    group.inputs.push_back(std::move(data));
    return v;
  }
  /// One number.
  Value number(DType type, double number) {
    char text[64];
    if (isFloat(type))
      std::snprintf(text, sizeof text, "%.17e", number);
    else
      std::snprintf(text, sizeof text, "%lld", static_cast<long long>(number));
    Value v{"%c" + std::to_string(numbers++), type, {}};
    body += "    " + v.text + " = lathe.constant dense<" + text + "> : " + v.type() + "\n";
    return v;
  }
  /// `tolerance`: the name in test/tolerances.tsv.
  void op(const std::string &mnemonic, const std::vector<Value> &operands, const std::string &attributes,
          DType result, const std::vector<int64_t> &dims, const std::string &tolerance,
          const std::string &what, bool eitherZero = false) {
    std::string type = typeName(result, dims), text = "%" + std::to_string(group.cases.size());
    line(text, mnemonic, operands, attributes, type);
    results += (results.empty() ? "" : ", ") + text;
    resultTypes += (resultTypes.empty() ? "" : ", ") + type;
    outputs += (outputs.empty() ? "" : ", ") + type + " {lathe.name = \"y" +
               std::to_string(group.cases.size()) + "\"}";
    group.cases.push_back({what, tolerance, result, eitherZero});
  }
  /// What only other ops read, so that kernels need not round it.
  Value between(const std::string &mnemonic, const Value &x) {
    Value v{"%v" + std::to_string(numbers++), x.dtype, x.dims};
    line(v.text, mnemonic, {x}, "", v.type());
    return v;
  }
  Group finish() {
    std::string arguments;
    for (size_t i = 0; i < group.inputs.size(); ++i)
      arguments += (i ? ", " : "") + std::string("%arg") + std::to_string(i) + ": " +
                   typeName(group.inputs[i].dtype, group.inputs[i].dims) + " {lathe.name = \"x" +
                   std::to_string(i) + "\"}";
    group.text = "module attributes {lathe.phase = \"legalize\"} {\n  func.func @main(" + arguments +
                 ") -> (" + outputs + ") attributes {lathe.entry} {\n" + body + "    return " + results +
                 " : " + resultTypes + "\n  }\n}\n";
    return std::move(group);
  }

private:
  void line(const std::string &text, const std::string &mnemonic, const std::vector<Value> &operands,
            const std::string &attributes, const std::string &type) {
    std::string types, names;
    for (const Value &v : operands) {
      names += (names.empty() ? "" : ", ") + v.text;
      types += (types.empty() ? "" : ", ") + v.type();
    }
    body += "    " + text + " = lathe." + mnemonic + " " + names +
            (attributes.empty() ? "" : " {" + attributes + "}") + " : (" + types + ") -> " + type + "\n";
  }

  Group group;
  int numbers = 0;
  std::string body, results, resultTypes, outputs;
};

/// An op's name in the table of tolerances: ONNX's where it has one.
std::string tableName(const std::string &mnemonic) {
  if (mnemonic == "recip")
    return "Reciprocal";
  std::string name;
  bool upper = true;
  for (char c : mnemonic) {
    if (c != '_')
      name += upper ? static_cast<char>(c - 'a' + 'A') : c;
    upper = c == '_';
  }
  return name;
}

std::string axisAttribute(int64_t axis) { return "axis = " + std::to_string(axis) + " : i64"; }

Group unaryFloats(DType t) {
  const std::string T = elementName(t);
  Builder b("unary_" + T);
  HostTensor values = allValues(t);
  Builder::Value x = b.input(values);
  auto one = [&](const std::string &op, const std::string &attributes, DType result,
                 const std::string &note = "") {
    b.op(op, {x}, attributes, result, values.dims, tableName(op), op + note + " " + T);
  };
  for (const char *op :
       {"neg",  "abs",  "sign", "floor", "ceil", "round", "trunc", "exp",   "expm1", "log",
        "log1p", "sqrt", "rsqrt", "recip", "sin",  "cos",   "tan",   "asin",  "acos",  "atan",
        "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",   "sigmoid", "mish", "probit"})
    one(op, "", t);
  one("quick_gelu", "alpha = 1.702 : f64", t);
  one("is_nan", "", DType::Bool);
  one("is_inf", "", DType::Bool);
  one("is_inf", "negative = false", DType::Bool, " +");
  one("is_inf", "positive = false", DType::Bool, " -");
  // Numbers that code generation knows.
  auto with = [&](const std::string &op, double number, bool first, bool eitherZero = false) {
    Builder::Value c = b.number(t, number);
    char text[32];
    std::snprintf(text, sizeof text, "%g", number);
    b.op(op, first ? std::vector{c, x} : std::vector{x, c}, "", t, values.dims, tableName(op),
         op + (first ? " of " : " by ") + text + " " + T, eitherZero);
  };
  for (double e : {-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0})
    with("pow", e, false);
  with("max", 0, false, true);
  with("max", -1, true, true);
  with("min", 0, true, true);
  with("min", 6, false, true);
  for (double c : {0.0, -0.0, 1.0})
    for (const char *op : {"add", "sub", "mul", "div"})
      with(op, c, false);
  return b.finish();
}

/// Functions less infinity, which is NaN where they are infinite: no sum may take in how a function scales its result.
/// (Of f16 kernels compute a chain in f32, whose range is wider.)
Group lessInfinity(DType t) {
  const std::string T = elementName(t);
  Builder b("less_infinity_" + T);
  HostTensor values = allValues(t), infinity(t, {1});
  infinity.setReal(0, std::numeric_limits<double>::infinity());
  Builder::Value x = b.input(values), y = b.input(infinity);
  for (const char *op : {"exp", "expm1", "log", "recip", "rsqrt", "sinh", "cosh"})
    b.op("sub", {b.between(op, x), y}, "", t, values.dims, tableName(op), std::string(op) + " less infinity " + T);
  return b.finish();
}

Group unaryInts(DType t) {
  const std::string T = elementName(t);
  Builder b("unary_" + T);
  HostTensor values = allValues(t);
  Builder::Value x = b.input(values);
  for (const char *op : {"neg", "abs", "sign", "floor", "ceil", "round", "trunc", "not"})
    b.op(op, {x}, "", t, values.dims, tableName(op), op + (" " + T));
  auto with = [&](const std::string &op, double number, const std::string &attributes = "") {
    b.op(op, {x, b.number(t, number)}, attributes, t, values.dims, tableName(op),
         op + (attributes.empty() ? " by " : " " + attributes + " by ") +
             std::to_string(static_cast<int64_t>(number)) + " " + T);
  };
  std::vector<double> numbers = {0, 1, 2, 3, 7, 100};
  if (!isUnsigned(t))
    numbers.insert(numbers.end(), {-1.0, -2.0, -3.0});
  for (double c : numbers) {
    with("div", c);
    with("mod", c);
    with("mod", c, "fmod");
    with("shl", c);
    with("shr", c);
    with("pow", c);
  }
  return b.finish();
}

Group binary(DType t) {
  const std::string T = elementName(t);
  Builder b("binary_" + T);
  auto [first, second] = pairsOf(fewValues(t), fewValues(t));
  HostTensor condition(DType::Bool, first.dims);
  for (int64_t i = 0; i < condition.count(); ++i)
    condition.setInteger(i, i % 3 == 0);
  Builder::Value x = b.input(first), y = b.input(second), c = b.input(condition);
  auto two = [&](const std::string &op, const std::string &attributes, DType result,
                 const std::string &note = "", bool eitherZero = false) {
    b.op(op, {x, y}, attributes, result, first.dims, tableName(op), op + note + " " + T, eitherZero);
  };
  const bool logical = t == DType::Bool;
  if (!logical) {
    for (const char *op : {"add", "sub", "mul", "div", "mod", "pow"})
      two(op, "", t);
    two("mod", "fmod", t, " fmod");
    two("max", "", t, "", true);
    two("min", "", t, "", true);
  }
  if (!isFloat(t))
    for (const char *op : {"and", "or", "xor"})
      two(op, "", t);
  if (isInteger(t))
    for (const char *op : {"shl", "shr"})
      two(op, "", t);
  for (const char *p : {"eq", "ne", "lt", "le", "gt", "ge"})
    two("compare", "predicate = #lathe.predicate<" + std::string(p) + ">", DType::Bool,
        " " + std::string(p));
  b.op("select", {c, x, y}, "", t, first.dims, "Where", "select " + T);
  if (logical)
    b.op("not", {x}, "", t, first.dims, "Not", "not " + T);
  return b.finish();
}

/// Powers whose base and exponent have different types.
Group mixedPowers(DType base) {
  const std::string T = elementName(base);
  Builder b("pow_" + T);
  for (DType exponent : {DType::I32, DType::I64, DType::UI8, DType::F32, DType::F64}) {
    if (exponent == base)
      continue;
    auto [first, second] = pairsOf(fewValues(base), fewValues(exponent));
    Builder::Value x = b.input(first), y = b.input(second);
    b.op("pow", {x, y}, "", base, first.dims, "Pow", "pow " + T + " by " + elementName(exponent));
  }
  return b.finish();
}

Group casts(DType from) {
  const std::string T = elementName(from);
  Builder b("cast_" + T);
  HostTensor values = allValues(from);
  Builder::Value x = b.input(values);
  auto one = [&](const std::string &op, const std::string &attributes, DType to, const std::string &note) {
    b.op(op, {x}, attributes, to, values.dims, "Cast", op + note + " " + T + " -> " + elementName(to));
  };
  for (DType to : join(join(join(kFloats, kInts), kFloats8), {DType::Bool}))
    if (to != from)
      one("cast", "", to, "");
  for (DType to : kFloats8)
    if (to != from)
      one("cast", "saturate = false", to, " unsaturated");
  for (DType to : join(join(kFloats, kInts), kFloats8))
    if (to != from && bitWidth(to) == bitWidth(from) && from != DType::Bool)
      one("bitcast", "", to, "");
  return b.finish();
}

/// Along the rows of a matrix, or along its columns.
Group reductions(DType t, int64_t length, bool columns) {
  const std::string T = elementName(t), form = (columns ? " columns of " : " rows of ") + std::to_string(length);
  Builder b("reduce_" + T + (columns ? "_columns_" : "_rows_") + std::to_string(length));
  HostTensor data = rowsOf(t, length);
  const int64_t rows = data.dims[0];
  if (columns)
    data = transposed(data);
  const std::vector<int64_t> dims = data.dims;
  const int64_t axis = columns ? 0 : 1;
  Builder::Value x = b.input(std::move(data));
  for (const char *kind : {"sum", "prod", "max", "min"}) {
    const std::string k = kind;
    bool extreme = k == "max" || k == "min";
    if (t == DType::Bool && !extreme)
      continue;
    b.op("reduce", {x},
         "axes = array<i64: " + std::to_string(axis) + ">, keepdims = false, kind = #lathe.reduce_kind<" + k + ">", t,
         {rows}, k == "sum" ? "ReduceSum" : k == "prod" ? "ReduceProd" : "ReduceMax", "reduce " + k + " " + T + form,
         extreme || k == "sum"); // of zeros alone
    if (t == DType::Bool)
      continue;
    for (const char *way : {"", ", exclusive", ", reverse"})
      b.op("scan", {x}, axisAttribute(axis) + ", kind = #lathe.reduce_kind<" + k + ">" + way, t, dims,
           k == "sum" ? "ReduceSum" : k == "prod" ? "ReduceProd" : "ReduceMax", "scan " + k + way + " " + T + form,
           extreme);
    if (extreme)
      for (const char *last : {"", ", last"})
        b.op("arg_reduce", {x}, axisAttribute(axis) + ", keepdims = false, kind = #lathe.reduce_kind<" + k + ">" + last,
             DType::I64, {rows}, "ArgMax", "arg_reduce " + k + last + " " + T + form);
  }
  if (isFloat(t)) {
    b.op("softmax", {x}, axisAttribute(axis), t, dims, "Softmax", "softmax " + T + form);
    b.op("softmax", {x}, axisAttribute(axis) + ", log", t, dims, "LogSoftmax", "log softmax " + T + form);
  }
  if (isFloat(t) && !columns) {
    HostTensor scale(t, {length});
    for (int64_t i = 0; i < length; ++i)
      scale.setReal(i, 1 + static_cast<double>(i % 4) / 2);
    Builder::Value s = b.input(std::move(scale));
    const std::string epsilon = axisAttribute(1) + ", epsilon = 1.0e-5 : f64";
    // Squares of the greatest numbers are infinite in the type that computes.
    Builder::Value n = b.input(rowsOf(t, length, /*squared=*/true));
    b.op("layer_norm", {n, s}, epsilon, t, dims, "LayerNormalization", "layer_norm " + T + form, true);
    b.op("rms_norm", {n, s}, epsilon, t, dims, "RMSNormalization", "rms_norm " + T + form);
  }
  return b.finish();
}

} // namespace

std::vector<Group> makeGroups() {
  std::vector<Group> groups;
  for (DType t : kFloats)
    groups.push_back(unaryFloats(t));
  for (DType t : {DType::F32, DType::F64})
    groups.push_back(lessInfinity(t));
  for (DType t : kInts)
    groups.push_back(unaryInts(t));
  for (DType t : join(join(kFloats, kInts), {DType::Bool}))
    groups.push_back(binary(t));
  for (DType t : join(kFloats, {DType::I32, DType::I64, DType::UI8}))
    groups.push_back(mixedPowers(t));
  for (DType t : join(join(join(kFloats, kInts), kFloats8), {DType::Bool}))
    groups.push_back(casts(t));
  for (DType t : join(join(kFloats, kInts), {DType::Bool}))
    for (bool columns : {false, true})
      groups.push_back(reductions(t, columns ? 9 : 37, columns));
  return groups;
}

} // namespace lathe::special
