//===- HostValues.cpp - shape arithmetic as expressions ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Integer tensors whose elements are known as dimension expressions are computed
// here, so that Shape -> Gather -> Mul -> Concat -> Reshape makes no op at all.
// Whatever cannot be decided for every value of the symbols is left to the
// ordinary handlers, which then work on data.
//
//===----------------------------------------------------------------------===//
#include "ConstantFloats.h"
#include "Node.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace lathe::legal {
namespace {

constexpr int64_t kMaxElements = 1024;

int64_t count(ArrayRef<int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape)
    n *= size;
  return n;
}

/// Row-major strides, 0 where the size is 1 (so that they broadcast).
Ints broadcastStrides(ArrayRef<int64_t> shape, size_t rank) {
  Ints strides(rank, 0);
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[rank - shape.size() + i] = shape[i] == 1 ? 0 : stride;
    stride *= shape[i];
  }
  return strides;
}

std::optional<Ints> broadcastShape(ArrayRef<Ints> shapes) {
  std::vector<Dims> dims;
  for (const Ints &shape : shapes)
    dims.emplace_back(shape.begin(), shape.end());
  std::optional<Dims> result = broadcastDims(dims);
  if (!result)
    return std::nullopt;
  Ints out;
  for (const DimExpr &dim : *result)
    out.push_back(*dim.constant());
  return out;
}

/// One result element from one element of each operand; none when undecided.
using Formula = llvm::function_ref<std::optional<DimExpr>(ArrayRef<DimExpr>)>;

LogicalResult pointwise(Node &n, ArrayRef<HostValue> inputs, Type element, Formula formula) {
  std::vector<Ints> shapes;
  for (const HostValue &input : inputs)
    shapes.push_back(input.shape);
  std::optional<Ints> shape = broadcastShape(shapes);
  if (!shape || count(*shape) > kMaxElements)
    return failure();
  std::vector<Ints> strides;
  for (const Ints &s : shapes)
    strides.push_back(broadcastStrides(s, shape->size()));
  HostValue result{element, *shape, {}};
  for (int64_t i = 0, total = count(*shape); i < total; ++i) {
    Dims elements;
    for (auto [input, stride] : llvm::zip(inputs, strides)) {
      int64_t rest = i, at = 0;
      for (size_t d = shape->size(); d-- > 0;) {
        at += rest % (*shape)[d] * stride[d];
        rest /= (*shape)[d];
      }
      elements.push_back(input.values[at]);
    }
    std::optional<DimExpr> value = formula(elements);
    if (!value)
      return failure();
    result.values.push_back(*value);
  }
  return n.setHost(0, std::move(result));
}

/// Wraps constants as the element type does; none when it does not hold them.
bool fits(const DimExpr &value, Type element) {
  std::optional<int64_t> constant = value.constant();
  auto integer = dyn_cast<IntegerType>(element);
  if (!integer)
    return false;
  unsigned width = integer.getWidth();
  if (width == 1)
    return constant && (*constant == 0 || *constant == 1);
  if (!constant)
    return width >= 32 && !integer.isUnsigned();
  if (width == 64)
    return !integer.isUnsigned() || *constant >= 0;
  int64_t low = integer.isUnsigned() ? 0 : -(int64_t(1) << (width - 1));
  int64_t high = int64_t(1) << (width - (integer.isUnsigned() ? 0 : 1));
  return *constant >= low && *constant < high;
}

LogicalResult arithmetic(Node &n, ArrayRef<HostValue> in) {
  Type element = in[0].element;
  if (!isInt(element) || llvm::any_of(in, [&](const HostValue &v) { return v.element != element; }))
    return failure();
  Emitter &e = n.e;
  StringRef type = n.type;
  auto fold =
      [&](llvm::function_ref<std::optional<DimExpr>(const DimExpr &, const DimExpr &)> step) {
        return pointwise(n, in, element, [&](ArrayRef<DimExpr> x) -> std::optional<DimExpr> {
          std::optional<DimExpr> value = x[0];
          for (const DimExpr &next : x.drop_front()) {
            value = step(*value, next);
            if (!value || !fits(*value, element))
              return std::nullopt;
          }
          return value;
        });
      };
  auto positive = [&](const DimExpr &d) { return d.range(e.ranges).lo >= 1; };
  if (type == "Add" || type == "Sum")
    return fold([](const DimExpr &a, const DimExpr &b) { return a + b; });
  if (type == "Sub")
    return fold([](const DimExpr &a, const DimExpr &b) { return a - b; });
  if (type == "Mul")
    return fold([](const DimExpr &a, const DimExpr &b) { return a * b; });
  if (type == "Max")
    return fold([&](const DimExpr &a, const DimExpr &b) {
      return e.minOf(a, b) == a ? b : e.minOf(a, b) == b ? a : DimExpr::max(a, b);
    });
  if (type == "Min")
    return fold([&](const DimExpr &a, const DimExpr &b) { return e.minOf(a, b); });
  if (type == "Div")
    return fold([&](const DimExpr &a, const DimExpr &b) -> std::optional<DimExpr> {
      if (a.isConstant() && b.isConstant() && *b.constant() != 0 && *b.constant() != -1)
        return DimExpr(*a.constant() / *b.constant());
      // Truncation is flooring where nothing is negative.
      if (e.provablyNonNegative(a) && (positive(b) || b.symbolName()))
        return DimExpr::floorDiv(a, b);
      return std::nullopt;
    });
  if (type == "Mod")
    return fold([&](const DimExpr &a, const DimExpr &b) -> std::optional<DimExpr> {
      if (e.provablyNonNegative(a) && positive(b))
        return DimExpr::mod(a, b);
      return std::nullopt;
    });
  return failure();
}

LogicalResult unary(Node &n, const HostValue &x) {
  return pointwise(n, x, x.element, [&](ArrayRef<DimExpr> v) -> std::optional<DimExpr> {
    std::optional<int64_t> c = v[0].constant();
    if (n.type == "Neg")
      return fits(DimExpr(0) - v[0], x.element) ? std::optional(DimExpr(0) - v[0]) : std::nullopt;
    if (n.type == "Not")
      return x.element.isInteger(1) ? std::optional(DimExpr(1) - v[0]) : std::nullopt;
    if (n.type == "Abs" && n.e.provablyNonNegative(v[0]))
      return v[0];
    if (n.type == "Sign" && c)
      return DimExpr(*c > 0 ? 1 : *c < 0 ? -1 : 0);
    return std::nullopt;
  });
}

/// Comparisons that hold, or fail, for every value of the symbols.
LogicalResult comparison(Node &n, const HostValue &a, const HostValue &b) {
  Type boolean = n.e.b.getI1Type();
  if (a.element != b.element)
    return failure();
  return pointwise(n, {a, b}, boolean, [&](ArrayRef<DimExpr> v) -> std::optional<DimExpr> {
    DimRange d = (v[0] - v[1]).range(n.e.ranges);
    std::optional<bool> less = d.hi < 0    ? std::optional(true)
                               : d.lo >= 0 ? std::optional(false)
                                           : std::nullopt;
    std::optional<bool> greater = d.lo > 0    ? std::optional(true)
                                  : d.hi <= 0 ? std::optional(false)
                                              : std::nullopt;
    std::optional<bool> result;
    if (n.type == "Equal") {
      if (v[0] == v[1])
        result = true;
      else if (d.lo > 0 || d.hi < 0)
        result = false;
    } else if (n.type == "Less") {
      result = less;
    } else if (n.type == "Greater") {
      result = greater;
    } else if (n.type == "LessOrEqual" && greater) {
      result = !*greater;
    } else if (n.type == "GreaterOrEqual" && less) {
      result = !*less;
    }
    return result ? std::optional(DimExpr(*result)) : std::nullopt;
  });
}

LogicalResult logic(Node &n, const HostValue &a, const HostValue &b) {
  if (!a.element.isInteger(1) || !b.element.isInteger(1))
    return failure();
  return pointwise(n, {a, b}, a.element, [&](ArrayRef<DimExpr> v) -> std::optional<DimExpr> {
    bool x = *v[0].constant(), y = *v[1].constant();
    return DimExpr(n.type == "And" ? x && y : n.type == "Or" ? x || y : x != y);
  });
}

/// The same elements under another shape.
LogicalResult reshaped(Node &n, HostValue x, Ints shape) {
  if (count(shape) != int64_t(x.values.size()))
    return failure();
  x.shape = std::move(shape);
  return n.setHost(0, std::move(x));
}

LogicalResult squeeze(Node &n, const HostValue &x, bool insert) {
  std::optional<Ints> axes = n.numInputs() > 1 && n.has(1) ? n.ints(1) : n.intsAttr("axes");
  int64_t rank = x.shape.size();
  if (!axes) {
    if (insert || n.has(1))
      return failure();
    axes.emplace();
    for (int64_t d = 0; d < rank; ++d)
      if (x.shape[d] == 1)
        axes->push_back(d);
  }
  int64_t full = insert ? rank + int64_t(axes->size()) : rank;
  for (int64_t &axis : *axes) {
    axis = axis < 0 ? axis + full : axis;
    if (axis < 0 || axis >= full || (!insert && x.shape[axis] != 1))
      return failure();
  }
  Ints shape;
  size_t next = 0;
  for (int64_t d = 0; d < full; ++d) {
    bool named = llvm::is_contained(*axes, d);
    if (insert && !named && next >= x.shape.size())
      return failure();
    if (insert)
      shape.push_back(named ? 1 : x.shape[next++]);
    else if (!named)
      shape.push_back(x.shape[d]);
  }
  return reshaped(n, x, shape);
}

LogicalResult gather(Node &n, const HostValue &x, const HostValue &indices) {
  std::optional<Ints> at = indices.constants();
  int64_t axis = n.intAttr("axis", 0);
  if (!at || x.shape.size() != 1 || (axis != 0 && axis != -1))
    return failure();
  HostValue result{x.element, indices.shape, {}};
  for (int64_t i : *at) {
    i = i < 0 ? i + x.shape[0] : i;
    if (i < 0 || i >= x.shape[0])
      return failure();
    result.values.push_back(x.values[i]);
  }
  return n.setHost(0, std::move(result));
}

/// One axis; the others stay whole.
LogicalResult slice(Node &n, const HostValue &x) {
  auto argument = [&](unsigned i, StringRef attr) {
    return n.has(i) ? n.ints(i) : n.intsAttr(attr);
  };
  std::optional<Ints> starts = argument(1, "starts"), ends = argument(2, "ends"),
                      axes = argument(3, "axes"), steps = argument(4, "steps");
  if (!starts || !ends || starts->size() != 1 || ends->size() != 1 || (n.has(3) && !axes) ||
      (n.has(4) && !steps) || (axes && axes->size() != 1))
    return failure();
  int64_t rank = x.shape.size(), axis = axes ? (*axes)[0] : 0;
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis >= rank)
    return failure();
  int64_t size = x.shape[axis], step = steps && !steps->empty() ? (*steps)[0] : 1,
          from = (*starts)[0], to = (*ends)[0];
  if (step == 0)
    return failure();
  auto normal = [&](int64_t v, int64_t low, int64_t high) {
    return std::clamp<int64_t>(v < 0 ? (v < -size ? low : v + size) : v, low, high);
  };
  from = step > 0 ? normal(from, 0, size) : normal(from, -1, size - 1);
  to = step > 0 ? normal(to, 0, size) : normal(to, -1, size - 1);
  int64_t outer = count(ArrayRef(x.shape).take_front(axis)),
          inner = count(ArrayRef(x.shape).drop_front(axis + 1));
  HostValue result{x.element, x.shape, {}};
  result.shape[axis] = 0;
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
    ++result.shape[axis];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < result.shape[axis]; ++i) {
      auto row = x.values.begin() + (o * size + from + i * step) * inner;
      result.values.insert(result.values.end(), row, row + inner);
    }
  return n.setHost(0, std::move(result));
}

LogicalResult transpose(Node &n, const HostValue &x) {
  int64_t rank = x.shape.size();
  Ints perm(rank);
  for (int64_t d = 0; d < rank; ++d)
    perm[d] = rank - 1 - d;
  perm = n.intsAttr("perm").value_or(perm);
  Ints sorted = perm;
  llvm::sort(sorted);
  for (int64_t d = 0; d < rank; ++d)
    if (int64_t(sorted.size()) != rank || sorted[d] != d)
      return failure();
  HostValue result{x.element, {}, {}};
  for (int64_t p : perm)
    result.shape.push_back(x.shape[p]);
  for (int64_t i = 0, total = x.values.size(); i < total; ++i) {
    int64_t rest = i, at = 0;
    for (int64_t d = rank; d-- > 0; rest /= result.shape[d])
      at += rest % result.shape[d] * count(ArrayRef(x.shape).drop_front(perm[d] + 1));
    result.values.push_back(x.values[at]);
  }
  return n.setHost(0, std::move(result));
}

LogicalResult concat(Node &n, ArrayRef<HostValue> in) {
  HostValue result{in[0].element, {0}, {}};
  for (const HostValue &x : in) {
    if (x.shape.size() != 1 || x.element != result.element)
      return failure();
    llvm::append_range(result.values, x.values);
  }
  result.shape[0] = result.values.size();
  return result.shape[0] > kMaxElements ? failure() : n.setHost(0, std::move(result));
}

LogicalResult split(Node &n, const HostValue &x) {
  if (x.shape.size() != 1)
    return failure();
  std::optional<Ints> sizes = n.numInputs() > 1 && n.has(1) ? n.ints(1) : n.intsAttr("split");
  if (!sizes) {
    if (n.has(1))
      return failure();
    int64_t parts = n.numOutputs(), each = (x.shape[0] + parts - 1) / parts;
    sizes.emplace();
    for (int64_t i = 0; i < parts; ++i)
      sizes->push_back(std::max<int64_t>(0, std::min(each, x.shape[0] - i * each)));
  }
  if (sizes->size() != n.numOutputs())
    return failure();
  int64_t at = 0;
  for (int64_t size : *sizes)
    if (size < 0 || (at += size) > x.shape[0])
      return failure();
  at = 0;
  for (auto [i, size] : llvm::enumerate(*sizes)) {
    HostValue part{x.element, {size}, Dims(x.values.begin() + at, x.values.begin() + at + size)};
    (void)n.setHost(i, std::move(part));
    at += size;
  }
  return success();
}

LogicalResult expand(Node &n, const HostValue &x) {
  std::optional<Ints> wanted = n.ints(1);
  std::optional<Ints> shape = wanted ? broadcastShape({x.shape, *wanted}) : std::nullopt;
  if (!shape || count(*shape) > kMaxElements)
    return failure();
  HostValue ones{x.element, *shape, Dims(count(*shape), DimExpr(0))};
  return pointwise(n, {x, ones}, x.element,
                   [](ArrayRef<DimExpr> v) { return std::optional(v[0]); });
}

LogicalResult reduce(Node &n, const HostValue &x) {
  std::optional<Ints> axes = n.numInputs() > 1 && n.has(1) ? n.ints(1) : n.intsAttr("axes");
  if (x.shape.size() != 1 || !isInt(x.element) || x.values.empty() || (n.has(1) && !axes) ||
      (axes && *axes != Ints{0} && *axes != Ints{-1} && !axes->empty()) ||
      ((!axes || axes->empty()) && n.intAttr("noop_with_empty_axes", 0)))
    return failure();
  DimExpr value = x.values[0];
  for (const DimExpr &v : ArrayRef(x.values).drop_front())
    value = n.type == "ReduceProd"  ? value * v
            : n.type == "ReduceSum" ? value + v
            : n.type == "ReduceMax" ? DimExpr::max(value, v)
                                    : DimExpr::min(value, v);
  Ints shape;
  if (n.intAttr("keepdims", 1))
    shape.push_back(1);
  return n.setHost(0, {x.element, shape, {value}});
}

LogicalResult range(Node &n, ArrayRef<HostValue> in) {
  std::optional<Ints> from = in[0].constants(), to = in[1].constants(), step = in[2].constants();
  if (!from || !to || !step || from->size() != 1 || to->size() != 1 || step->size() != 1 ||
      (*step)[0] == 0)
    return failure();
  HostValue result{in[0].element, {}, {}};
  for (int64_t v = (*from)[0]; (*step)[0] > 0 ? v < (*to)[0] : v > (*to)[0]; v += (*step)[0]) {
    if (result.values.size() >= 64)
      return failure();
    result.values.push_back(v);
  }
  result.shape = {int64_t(result.values.size())};
  return n.setHost(0, std::move(result));
}

LogicalResult shapeOf(Node &n) {
  if (!n.in(0))
    return failure();
  Dims dims = n.dims(0);
  int64_t rank = dims.size(), from = n.intAttr("start", 0), to = n.intAttr("end", rank);
  from = std::clamp<int64_t>(from < 0 ? from + rank : from, 0, rank);
  to = std::clamp<int64_t>(to < 0 ? to + rank : to, from, rank);
  if (from > to)
    return failure();
  return n.setHost(0,
                   {n.e.b.getI64Type(), {to - from}, Dims(dims.begin() + from, dims.begin() + to)});
}

LogicalResult constantOfShape(Node &n) {
  std::optional<Ints> shape = n.ints(0);
  auto value = n.op->getAttrOfType<DenseElementsAttr>("value");
  if (!shape || !value || !isa<IntegerType>(value.getElementType()) || value.getNumElements() != 1)
    return failure();
  int64_t total = 1;
  for (int64_t size : *shape)
    if (size < 0 || (total *= std::max<int64_t>(size, 0)) > kMaxElements)
      return failure();
  bool isUnsigned =
      value.getElementType().isUnsignedInteger() || value.getElementType().isInteger(1);
  APInt element = *value.value_begin<APInt>();
  int64_t number = isUnsigned ? int64_t(element.getZExtValue()) : element.getSExtValue();
  return n.setHost(0, {value.getElementType(), *shape, Dims(total, DimExpr(number))});
}

/// Floats that constants decide, cast to integers.
LogicalResult castFloats(Node &n) {
  bool like = n.type == "CastLike";
  std::optional<HostValue> other = like && n.numInputs() == 2 ? n.host(1) : std::nullopt;
  Type element = !like ? elementFor(n.op->getContext(), n.intAttr("to", 0))
                       : other ? other->element : Type();
  auto integer = dyn_cast_or_null<IntegerType>(element);
  if (!integer || integer.getWidth() == 1 || !n.in(0) || !isa<FloatType>(elementTypeOf(n.in(0))))
    return failure();
  std::optional<HostTensor> floats = constantFloats(n.in(0));
  if (!floats)
    return failure();
  HostValue result{element, floats->dims, {}};
  for (int64_t i = 0; i < floats->count(); ++i) {
    APFloat value(floats->real(i));
    APSInt whole(integer.getWidth(), integer.isUnsigned());
    bool exact = false;
    if (value.convertToInteger(whole, APFloat::rmTowardZero, &exact) & APFloat::opInvalidOp)
      return failure();
    result.values.push_back(whole.getExtValue());
  }
  return n.setHost(0, std::move(result));
}

/// Two such floats compared: converters write the conditions of loops so.
LogicalResult compareFloats(Node &n) {
  if (n.host(0) || n.host(1))
    return failure();
  std::optional<double> sides[2];
  for (unsigned i : {0, 1}) {
    auto type = n.numInputs() == 2 && n.in(i) ? dyn_cast<RankedTensorType>(n.in(i).getType()) : RankedTensorType();
    if (!type || type.getRank() != 0 || !isa<FloatType>(type.getElementType()))
      return failure();
    if (std::optional<HostTensor> known = constantFloats(n.in(i)))
      sides[i] = known->real(0);
    if (!sides[i])
      return failure();
  }
  const double a = *sides[0], b = *sides[1];
  bool holds = n.type == "Less"           ? a < b
               : n.type == "Greater"      ? a > b
               : n.type == "LessOrEqual"  ? a <= b
               : n.type == "GreaterOrEqual" ? a >= b
                                            : a == b;
  return n.setHost(0, {n.e.b.getI1Type(), {}, {DimExpr(holds)}});
}

} // namespace

std::optional<HostTensor> constantFloats(Value value, unsigned depth) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  Operation *op = value.getDefiningOp();
  if (!op || !type || !type.hasStaticShape() || type.getNumElements() > 64 || depth == 0 || op->getNumResults() != 1 ||
      op->getNumRegions() != 0)
    return std::nullopt;
  std::vector<HostTensor> operands;
  for (Value operand : op->getOperands()) {
    std::optional<HostTensor> known = constantFloats(operand, depth - 1);
    if (!known)
      return std::nullopt;
    operands.push_back(std::move(*known));
  }
  Result<std::vector<HostTensor>> results = evaluateOp(op, operands, {});
  return results.ok() && results->size() == 1 ? std::optional(std::move(results->front())) : std::nullopt;
}

LogicalResult evaluateOnHost(Node &n) {
  if (!n.domain.empty())
    return failure();
  if ((n.type == "Cast" || n.type == "CastLike") && !n.host(0))
    return castFloats(n);
  if (n.type == "Shape")
    return shapeOf(n);
  if (n.type == "Size") {
    if (!n.in(0))
      return failure();
    return n.setHost(0, {n.e.b.getI64Type(), {}, {product(n.dims(0))}});
  }
  if (n.type == "ConstantOfShape")
    return constantOfShape(n);

  enum { Other, Arithmetic, Unary, Compare, Logic, Move };
  int kind = llvm::StringSwitch<int>(n.type)
                 .Cases({"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Sum"}, Arithmetic)
                 .Cases({"Neg", "Abs", "Not", "Sign"}, Unary)
                 .Cases({"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}, Compare)
                 .Cases({"And", "Or", "Xor"}, Logic)
                 .Cases({"Gather", "Slice", "Concat", "Squeeze", "Unsqueeze", "Reshape", "Identity",
                         "Cast", "CastLike", "Split"},
                        Move)
                 .Cases({"Flatten", "Transpose", "Expand", "Where", "Range", "ReduceProd", "ReduceSum",
                         "ReduceMax", "ReduceMin"},
                        Move)
                 .Default(Other);
  if (kind == Other || n.numInputs() == 0)
    return failure();
  std::vector<HostValue> in;
  for (unsigned i = 0; i < n.numInputs(); ++i) {
    std::optional<HostValue> known = n.host(i);
    if (!known && n.has(i))
      return kind == Compare ? compareFloats(n) : failure();
    if (known)
      in.push_back(*known);
  }
  if (in.empty())
    return failure();
  switch (kind) {
  case Arithmetic:
    return n.intAttr("fmod", 0) ? failure() : arithmetic(n, in);
  case Unary:
    return unary(n, in[0]);
  case Compare:
    return in.size() == 2 ? comparison(n, in[0], in[1]) : failure();
  case Logic:
    return in.size() == 2 ? logic(n, in[0], in[1]) : failure();
  default:
    break;
  }
  if (n.type == "Gather")
    return in.size() == 2 ? gather(n, in[0], in[1]) : failure();
  if (n.type == "Slice")
    return slice(n, in[0]);
  if (n.type == "Transpose")
    return transpose(n, in[0]);
  if (n.type == "Concat")
    return concat(n, in);
  if (n.type == "Squeeze" || n.type == "Unsqueeze")
    return squeeze(n, in[0], n.type == "Unsqueeze");
  if (n.type == "Identity")
    return n.setHost(0, in[0]);
  if (n.type == "Split")
    return split(n, in[0]);
  if (n.type == "Expand")
    return expand(n, in[0]);
  if (n.type == "Range")
    return in.size() == 3 ? range(n, in) : failure();
  if (n.type.starts_with("Reduce"))
    return reduce(n, in[0]);
  if (n.type == "Flatten") {
    int64_t rank = in[0].shape.size(), axis = n.intAttr("axis", 1);
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis > rank)
      return failure();
    return reshaped(n, in[0],
                    {count(ArrayRef(in[0].shape).take_front(axis)),
                     count(ArrayRef(in[0].shape).drop_front(axis))});
  }
  if (n.type == "Reshape") {
    std::optional<Ints> shape = in.size() == 2 ? in[1].constants() : std::nullopt;
    if (!shape)
      return failure();
    int64_t known = 1, open = -1;
    for (size_t d = 0; d < shape->size(); ++d) {
      if ((*shape)[d] == 0 && !n.intAttr("allowzero", 0) && d < in[0].shape.size())
        (*shape)[d] = in[0].shape[d];
      if ((*shape)[d] < 0 && open >= 0)
        return failure();
      if ((*shape)[d] < 0)
        open = d;
      else
        known *= (*shape)[d];
    }
    if (open >= 0)
      (*shape)[open] = known ? int64_t(in[0].values.size()) / known : 0;
    return reshaped(n, in[0], *shape);
  }
  if (n.type == "Cast" || (n.type == "CastLike" && in.size() == 2)) {
    Type element = n.type == "Cast" ? elementFor(n.op->getContext(), n.intAttr("to", 0))
                                    : in[1].element;
    if (!element || !isa<IntegerType>(element))
      return failure();
    return pointwise(n, in[0], element, [&](ArrayRef<DimExpr> v) -> std::optional<DimExpr> {
      if (element.isInteger(1) && v[0].isConstant())
        return DimExpr(*v[0].constant() != 0);
      return fits(v[0], element) ? std::optional(v[0]) : std::nullopt;
    });
  }
  if (n.type == "Where" && in.size() == 3 && in[1].element == in[2].element && in[0].constants())
    return pointwise(n, in, in[1].element, [](ArrayRef<DimExpr> v) {
      return std::optional(*v[0].constant() ? v[1] : v[2]);
    });
  return failure();
}

} // namespace lathe::legal
