//===- Call.cpp - one evaluation of one op ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attribute access, index arithmetic, reduction steps.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe::reference {

template <typename T> const T *Call::find(std::string_view name, const char *what) {
  auto it = attributes.find(name);
  if (it == attributes.end()) {
    require(false, "lacks attribute " + std::string(name));
    return nullptr;
  }
  const T *value = std::get_if<T>(&it->second);
  require(value != nullptr, "attribute " + std::string(name) + " is not " + what);
  return value;
}

int64_t Call::integer(std::string_view name) {
  const int64_t *value = find<int64_t>(name, "an integer");
  return value ? *value : 0;
}
int64_t Call::integerOr(std::string_view name, int64_t otherwise) {
  return has(name) ? integer(name) : otherwise;
}
double Call::real(std::string_view name) {
  const double *value = find<double>(name, "a real number");
  return value ? *value : 0;
}
std::string Call::text(std::string_view name) {
  const std::string *value = find<std::string>(name, "a keyword");
  return value ? *value : std::string();
}
std::vector<int64_t> Call::integers(std::string_view name) {
  const auto *value = find<std::vector<int64_t>>(name, "a list of integers");
  return value ? *value : std::vector<int64_t>();
}
std::vector<int64_t> Call::integers(std::string_view name, size_t size) {
  std::vector<int64_t> value = integers(name);
  require(value.size() == size,
          "attribute " + std::string(name) + " needs " + std::to_string(size) + " values");
  value.resize(size);
  return value;
}

bool Call::require(bool condition, std::string_view message) {
  if (!condition)
    fail(invalidError(std::string(message), "lathe." + std::string(op)));
  return ok();
}

bool Call::expectInputs(size_t low, size_t high, size_t mostResults) {
  require(inputs.size() >= low && inputs.size() <= high,
          "has " + std::to_string(inputs.size()) + " operands");
  return require(!results.empty() && results.size() <= mostResults,
                 mostResults == 1 ? "needs one result type" : "has too many result types");
}

void forEachIndex(const std::vector<int64_t> &dims,
                  const std::function<void(const Index &, int64_t)> &body) {
  int64_t count = countBetween(dims, 0, dims.size());
  Index index(dims.size(), 0);
  for (int64_t linear = 0; linear < count; ++linear) {
    body(index, linear);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d])
        break;
      index[d] = 0;
    }
  }
}

int64_t position(const std::vector<int64_t> &dims, const Index &index) {
  int64_t result = 0;
  for (size_t d = 0; d < dims.size(); ++d)
    result = result * dims[d] + index[d];
  return result;
}

int64_t broadcastPosition(const std::vector<int64_t> &dims, const Index &index) {
  int64_t result = 0;
  size_t skip = index.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d)
    result = result * dims[d] + (dims[d] == 1 ? 0 : index[skip + d]);
  return result;
}

bool broadcastsTo(const std::vector<int64_t> &dims, const std::vector<int64_t> &to) {
  if (dims.size() > to.size())
    return false;
  size_t skip = to.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != 1 && dims[d] != to[skip + d])
      return false;
  return true;
}

int64_t countBetween(const std::vector<int64_t> &dims, size_t from, size_t to) {
  int64_t count = 1;
  for (size_t d = from; d < to; ++d)
    count *= dims[d];
  return count;
}

std::vector<double> reals(const Tensor &tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.count()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = tensor.real(static_cast<int64_t>(i));
  return values;
}

int64_t normalizeAxis(Call &call, int64_t axis, int64_t rank) {
  call.require(axis >= -rank && axis < rank, "axis is out of range");
  return call.ok() ? (axis < 0 ? axis + rank : axis) : -1;
}

Combine parseCombine(Call &call, const std::string &kind) {
  if (kind == "sum")
    return Combine::Sum;
  if (kind == "prod")
    return Combine::Prod;
  if (kind == "max")
    return Combine::Max;
  call.require(kind == "min", "unknown reduction '" + kind + "'");
  return Combine::Min;
}

double combine(Combine kind, double a, double b) {
  switch (kind) {
  case Combine::Sum:
    return a + b;
  case Combine::Prod:
    return a * b;
  case Combine::Max:
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<double>::quiet_NaN();
    // +0 is larger than -0, so that the result does not depend on the order.
    return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
  case Combine::Min:
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<double>::quiet_NaN();
    return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
  }
  return 0;
}

int64_t combine(Combine kind, DType type, int64_t a, int64_t b) {
  uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  bool less = isUnsigned(type) ? x < y : a < b;
  switch (kind) {
  case Combine::Sum:
    return static_cast<int64_t>(x + y);
  case Combine::Prod:
    return static_cast<int64_t>(x * y);
  case Combine::Max:
    return less ? b : a;
  case Combine::Min:
    return less ? a : b;
  }
  return 0;
}

double neutralReal(Combine kind) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return kind == Combine::Sum    ? 0
         : kind == Combine::Prod ? 1
         : kind == Combine::Max  ? -infinity
                                 : infinity;
}

int64_t neutralInteger(Combine kind, DType type) {
  if (kind == Combine::Sum || kind == Combine::Prod)
    return kind == Combine::Prod;
  bool max = kind == Combine::Max;
  if (type == DType::Bool)
    return !max;
  unsigned bits = bitWidth(type);
  if (isUnsigned(type))
    return max ? 0 : static_cast<int64_t>(~uint64_t(0) >> (64 - bits));
  int64_t lowest = static_cast<int64_t>(~uint64_t(0) << (bits - 1));
  return max ? lowest : ~lowest;
}

} // namespace lathe::reference
