//===- HostOps.cpp - operations on small host tensors -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   copy(x) -> y                      same dtype and count; sizes may differ (reshape)
//   cast(x) -> y                      between bool, integers, f32, f64
//   fill(value: ints|floats) -> y     every element
//   gather(x, i) {axis} -> y          ONNX Gather; negative indices count from the end
//   concat(x...) {axis} -> y
//   slice(x) {axis, start, step} -> y count is the output's size along the axis
//   add sub mul div mod min max(x, y) -> z    integers or floats; div and mod round down, integers
//                                     by 0 are 0
//   equal less and or(x, y) -> z              z is bool
//   not(x) -> y
//   select(c, x, y) -> z
//   reduce_sum reduce_prod(x) -> y    to one element
//   pack(x) {recipe: text} -> y       a weight in the order in which a kernel reads (support/Packing.h)
//   list_...                          ListOps.cpp
//
// Elementwise operands have the output's count or one element.
//
//===----------------------------------------------------------------------===//

#include "HostOps.h"

#include "ListOps.h"

#include "lathe/support/Integers.h"
#include "lathe/support/Packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace lathe::runtime {

std::span<const int64_t> HostCall::ints(std::string_view name) const {
  for (const engine::Attribute &a : attributes)
    if (a.name == name)
      return a.ints;
  return {};
}

int64_t HostCall::integer(std::string_view name, int64_t otherwise) const {
  std::span<const int64_t> values = ints(name);
  return values.empty() ? otherwise : values[0];
}

namespace {

Status wrong(const std::string &message) { return invalidError("host op: " + message); }

bool isFloating(DType t) { return t == DType::F32 || t == DType::F64; }
bool supported(DType t) {
  return isFloating(t) || (t >= DType::Bool && t <= DType::UI64);
}

template <typename T> T load(const HostView &v, int64_t i) {
  T x;
  std::memcpy(&x, static_cast<const char *>(v.data) + i * int64_t(sizeof(T)), sizeof(T));
  return x;
}
template <typename T> void store(const HostView &v, int64_t i, T x) {
  std::memcpy(static_cast<char *>(v.data) + i * int64_t(sizeof(T)), &x, sizeof(T));
}

int64_t loadInt(const HostView &v, int64_t i) {
  switch (v.dtype) {
  case DType::Bool:
    return load<uint8_t>(v, i) != 0;
  case DType::I8:
    return load<int8_t>(v, i);
  case DType::I16:
    return load<int16_t>(v, i);
  case DType::I32:
    return load<int32_t>(v, i);
  case DType::UI8:
    return load<uint8_t>(v, i);
  case DType::UI16:
    return load<uint16_t>(v, i);
  case DType::UI32:
    return load<uint32_t>(v, i);
  default:
    return load<int64_t>(v, i);
  }
}
void storeInt(const HostView &v, int64_t i, int64_t x) {
  switch (v.dtype) {
  case DType::Bool:
    return store<uint8_t>(v, i, x != 0);
  case DType::I8:
  case DType::UI8:
    return store<uint8_t>(v, i, static_cast<uint8_t>(x));
  case DType::I16:
  case DType::UI16:
    return store<uint16_t>(v, i, static_cast<uint16_t>(x));
  case DType::I32:
  case DType::UI32:
    return store<uint32_t>(v, i, static_cast<uint32_t>(x));
  default:
    return store<int64_t>(v, i, x);
  }
}
double loadFloat(const HostView &v, int64_t i) {
  return v.dtype == DType::F32   ? double(load<float>(v, i))
         : v.dtype == DType::F64 ? load<double>(v, i)
                                 : double(loadInt(v, i));
}
void storeFloat(const HostView &v, int64_t i, double x) {
  if (v.dtype == DType::F32)
    return store(v, i, static_cast<float>(x));
  if (v.dtype == DType::F64)
    return store(v, i, x);
  if (v.dtype == DType::Bool)
    return store<uint8_t>(v, i, x != 0);
  storeInt(v, i, truncateToInteger(v.dtype, x));
}

Status checkTypes(const HostCall &c, size_t inputs) {
  if (c.inputs.size() != inputs || c.outputs.size() != 1)
    return wrong("wrong number of operands");
  for (std::span<const HostView> list : {c.inputs, c.outputs})
    for (const HostView &v : list)
      if (!supported(v.dtype))
        return wrong("element type is not supported on the host");
  return okStatus();
}

Status copy(const HostCall &c) {
  if (c.inputs.size() != 1 || c.outputs.size() != 1 || c.inputs[0].dtype != c.outputs[0].dtype ||
      c.inputs[0].count() != c.outputs[0].count())
    return wrong("copy between different types");
  std::memmove(c.outputs[0].data, c.inputs[0].data,
               static_cast<size_t>(byteSize(c.outputs[0].dtype, c.outputs[0].count())));
  return okStatus();
}

Status cast(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkTypes(c, 1));
  const HostView &x = c.inputs[0], &y = c.outputs[0];
  if (x.count() != y.count())
    return wrong("cast between different sizes");
  for (int64_t i = 0; i < y.count(); ++i)
    if (isFloating(x.dtype))
      storeFloat(y, i, loadFloat(x, i));
    else if (isFloating(y.dtype))
      storeFloat(y, i, static_cast<double>(loadInt(x, i)));
    else
      storeInt(y, i, loadInt(x, i));
  return okStatus();
}

Status fill(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkTypes(c, 0));
  const HostView &y = c.outputs[0];
  for (const engine::Attribute &a : c.attributes) {
    if (a.name != "value")
      continue;
    for (int64_t i = 0; i < y.count(); ++i)
      if (!a.ints.empty() && !isFloating(y.dtype))
        storeInt(y, i, a.ints[0]);
      else if (!a.ints.empty() || !a.floats.empty())
        storeFloat(y, i, a.floats.empty() ? double(a.ints[0]) : a.floats[0]);
    return okStatus();
  }
  return wrong("fill without value");
}

/// Sizes around an axis: product before, at, product behind.
struct AxisSplit {
  int64_t outer = 1, middle = 1, inner = 1;
};
bool split(const HostView &v, int64_t axis, AxisSplit &s) {
  int64_t rank = static_cast<int64_t>(v.dims.size());
  if (axis < 0)
    axis += rank;
  if (axis < 0 || axis >= rank)
    return false;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t &part = i < axis ? s.outer : i == axis ? s.middle : s.inner;
    if (__builtin_mul_overflow(part, v.dims[i], &part))
      return false; // an empty tensor with absurd sizes
  }
  return true;
}
int64_t elementBytes(DType t) { return int64_t(bitWidth(t)) / 8; }

Status gather(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkTypes(c, 2));
  const HostView &x = c.inputs[0], &index = c.inputs[1], &y = c.outputs[0];
  AxisSplit s;
  if (x.dtype != y.dtype || isFloating(index.dtype) || !split(x, c.integer("axis", 0), s))
    return wrong("gather operands");
  int64_t n = index.count(), row = s.inner * elementBytes(x.dtype);
  if (y.count() != s.outer * n * s.inner)
    return wrong("gather sizes");
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < n; ++i) {
      int64_t at = loadInt(index, i);
      if (at < -s.middle || at >= s.middle)
        return runtimeError("index " + std::to_string(at) + " is out of range of " +
                            std::to_string(s.middle));
      if (at < 0)
        at += s.middle;
      std::memcpy(static_cast<char *>(y.data) + (o * n + i) * row,
                  static_cast<const char *>(x.data) + (o * s.middle + at) * row,
                  static_cast<size_t>(row));
    }
  return okStatus();
}

Status concat(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkTypes(c, c.inputs.size()));
  const HostView &y = c.outputs[0];
  int64_t axis = c.integer("axis", 0);
  AxisSplit out;
  if (!split(y, axis, out))
    return wrong("concat axis");
  int64_t size = elementBytes(y.dtype), done = 0;
  for (const HostView &x : c.inputs) {
    AxisSplit in;
    if (x.dtype != y.dtype || !split(x, axis, in) || in.outer != out.outer ||
        in.inner != out.inner || done + in.middle > out.middle)
      return wrong("concat sizes");
    int64_t run = in.middle * in.inner * size;
    for (int64_t o = 0; o < out.outer && run > 0; ++o)
      std::memcpy(static_cast<char *>(y.data) + (o * out.middle + done) * out.inner * size,
                  static_cast<const char *>(x.data) + o * run, static_cast<size_t>(run));
    done += in.middle;
  }
  return done == out.middle ? okStatus() : wrong("concat sizes");
}

Status slice(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkTypes(c, 1));
  const HostView &x = c.inputs[0], &y = c.outputs[0];
  int64_t axis = c.integer("axis", 0), start = c.integer("start", 0), step = c.integer("step", 1);
  AxisSplit in, out;
  if (x.dtype != y.dtype || !split(x, axis, in) || !split(y, axis, out) || in.outer != out.outer ||
      in.inner != out.inner)
    return wrong("slice sizes");
  int64_t row = in.inner * elementBytes(x.dtype);
  if (start < 0)
    start += in.middle;
  for (int64_t i = 0; i < out.middle; ++i) {
    int64_t at;
    if (__builtin_mul_overflow(i, step, &at) || __builtin_add_overflow(at, start, &at) || at < 0 ||
        at >= in.middle)
      return wrong("slice leaves the tensor");
    for (int64_t o = 0; o < out.outer; ++o)
      std::memcpy(static_cast<char *>(y.data) + (o * out.middle + i) * row,
                  static_cast<const char *>(x.data) + (o * in.middle + at) * row,
                  static_cast<size_t>(row));
  }
  return okStatus();
}

/// Index into an operand that has all elements or one.
Status checkElementwise(const HostCall &c, size_t inputs) {
  LATHE_RETURN_IF_ERROR(checkTypes(c, inputs));
  for (const HostView &x : c.inputs)
    if (x.count() != 1 && x.count() != c.outputs[0].count())
      return wrong("operand sizes");
  return okStatus();
}
int64_t pick(const HostView &v, int64_t i) { return v.count() == 1 ? 0 : i; }

int64_t wrapping(uint64_t v) { return static_cast<int64_t>(v); }

enum class Binary { Add, Sub, Mul, Div, Mod, Min, Max, Equal, Less, And, Or };

int64_t apply(Binary op, int64_t a, int64_t b) {
  uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
  case Binary::Add:
    return wrapping(ua + ub);
  case Binary::Sub:
    return wrapping(ua - ub);
  case Binary::Mul:
    return wrapping(ua * ub);
  case Binary::Div:
  case Binary::Mod: {
    int64_t r = remainderOfIntegers(a, b, /*isSigned=*/true);
    bool down = r != 0 && (r < 0) != (b < 0);
    return op == Binary::Div ? divideIntegers(a, b, /*isSigned=*/true) - down : down ? r + b : r;
  }
  case Binary::Min:
    return std::min(a, b);
  case Binary::Max:
    return std::max(a, b);
  case Binary::Equal:
    return a == b;
  case Binary::Less:
    return a < b;
  case Binary::And:
    return a && b;
  case Binary::Or:
    return a || b;
  }
  return 0;
}
double apply(Binary op, double a, double b) {
  switch (op) {
  case Binary::Add:
    return a + b;
  case Binary::Sub:
    return a - b;
  case Binary::Mul:
    return a * b;
  case Binary::Div:
    return a / b;
  case Binary::Mod:
    return a - std::floor(a / b) * b;
  case Binary::Min:
    return std::min(a, b);
  case Binary::Max:
    return std::max(a, b);
  case Binary::Equal:
    return a == b;
  case Binary::Less:
    return a < b;
  case Binary::And:
    return a != 0 && b != 0;
  case Binary::Or:
    return a != 0 || b != 0;
  }
  return 0;
}

template <Binary op> Status binary(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkElementwise(c, 2));
  const HostView &x = c.inputs[0], &y = c.inputs[1], &z = c.outputs[0];
  bool floating = isFloating(x.dtype) || isFloating(y.dtype);
  for (int64_t i = 0; i < z.count(); ++i) {
    if (floating) {
      storeFloat(z, i, apply(op, loadFloat(x, pick(x, i)), loadFloat(y, pick(y, i))));
      continue;
    }
    storeInt(z, i, apply(op, loadInt(x, pick(x, i)), loadInt(y, pick(y, i))));
  }
  return okStatus();
}

Status logicalNot(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkElementwise(c, 1));
  for (int64_t i = 0; i < c.outputs[0].count(); ++i)
    storeInt(c.outputs[0], i, loadInt(c.inputs[0], pick(c.inputs[0], i)) == 0);
  return okStatus();
}

Status select(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkElementwise(c, 3));
  const HostView &z = c.outputs[0];
  if (c.inputs[1].dtype != z.dtype || c.inputs[2].dtype != z.dtype)
    return wrong("select types");
  int64_t size = elementBytes(z.dtype);
  for (int64_t i = 0; i < z.count(); ++i) {
    const HostView &from = c.inputs[loadInt(c.inputs[0], pick(c.inputs[0], i)) ? 1 : 2];
    std::memcpy(static_cast<char *>(z.data) + i * size,
                static_cast<const char *>(from.data) + pick(from, i) * size,
                static_cast<size_t>(size));
  }
  return okStatus();
}

template <bool product> Status reduce(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(checkTypes(c, 1));
  const HostView &x = c.inputs[0], &y = c.outputs[0];
  if (y.count() != 1)
    return wrong("reduction to more than one element");
  if (isFloating(x.dtype)) {
    double sum = product;
    for (int64_t i = 0; i < x.count(); ++i)
      sum = product ? sum * loadFloat(x, i) : sum + loadFloat(x, i);
    storeFloat(y, 0, sum);
    return okStatus();
  }
  uint64_t sum = product;
  for (int64_t i = 0; i < x.count(); ++i) {
    auto v = static_cast<uint64_t>(loadInt(x, i));
    sum = product ? sum * v : sum + v;
  }
  storeInt(y, 0, wrapping(sum));
  return okStatus();
}

Status pack(const HostCall &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1)
    return wrong("wants one weight and one result");
  const HostView &x = call.inputs[0], &y = call.outputs[0];
  std::string recipe;
  for (const engine::Attribute &a : call.attributes)
    if (a.name == "recipe")
      recipe = a.text;
  Result<WeightPacker> packer = WeightPacker::of(recipe, x.dtype, x.dims);
  if (!packer)
    return packer.status();
  if (x.dtype != y.dtype || packer->elements() != y.count())
    return wrong("the result is not as large as the packed weight");
  std::span from(static_cast<const std::byte *>(x.data), packer->sourceBytes());
  LATHE_RETURN_IF_ERROR(packer->prepare(from));
  packer->pack(from, 0, {static_cast<std::byte *>(y.data), packer->bytes()});
  return okStatus();
}

const std::map<std::string_view, HostOp> &table() {
  static const std::map<std::string_view, HostOp> ops = {
      {"copy", copy},
      {"cast", cast},
      {"fill", fill},
      {"gather", gather},
      {"concat", concat},
      {"slice", slice},
      {"add", binary<Binary::Add>},
      {"sub", binary<Binary::Sub>},
      {"mul", binary<Binary::Mul>},
      {"div", binary<Binary::Div>},
      {"mod", binary<Binary::Mod>},
      {"min", binary<Binary::Min>},
      {"max", binary<Binary::Max>},
      {"equal", binary<Binary::Equal>},
      {"less", binary<Binary::Less>},
      {"and", binary<Binary::And>},
      {"or", binary<Binary::Or>},
      {"not", logicalNot},
      {"select", select},
      {"reduce_sum", reduce<false>},
      {"reduce_prod", reduce<true>},
      {"pack", pack},
  };
  return ops;
}

} // namespace

HostOp findHostOp(std::string_view name) {
  auto it = table().find(name);
  return it == table().end() ? findListOp(name) : it->second;
}

std::vector<std::string> hostOpNames() {
  std::vector<std::string> names;
  for (const auto &item : table())
    names.emplace_back(item.first);
  for (std::string &name : listOpNames())
    names.push_back(std::move(name));
  std::sort(names.begin(), names.end());
  return names;
}

} // namespace lathe::runtime
