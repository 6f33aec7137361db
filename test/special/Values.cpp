//===- Values.cpp - the special values of each element type ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Values.h"

#include "lathe/support/Half.h"

#include <cmath>
#include <limits>

namespace lathe::special {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

HostTensor listOf(DType type, const std::vector<double> &values) {
  HostTensor list(type, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    list.setReal(static_cast<int64_t>(i), values[i]);
  return list;
}

HostTensor listOf(DType type, const std::vector<int64_t> &values) {
  HostTensor list(type, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    list.setInteger(static_cast<int64_t>(i), values[i]);
  return list;
}

/// The floats of a type by their place: the least denormal number is the first above 0.
double nth(DType type, uint64_t n) { return decodeFloat(type, n); }

/// Greatest finite number, least normal one, least one; all of the type's bits.
struct Edges {
  double greatest, normal, least;
};
Edges edgesOf(DType type) {
  switch (type) {
  case DType::F64:
    return {std::numeric_limits<double>::max(), std::numeric_limits<double>::min(),
            std::numeric_limits<double>::denorm_min()};
  case DType::F32:
    return {nth(type, 0x7f7fffff), nth(type, 0x00800000), nth(type, 1)};
  case DType::F16:
    return {nth(type, 0x7bff), nth(type, 0x0400), nth(type, 1)};
  case DType::BF16:
    return {nth(type, 0x7f7f), nth(type, 0x0080), nth(type, 1)};
  case DType::F8E5M2:
    return {nth(type, 0x7b), nth(type, 0x04), nth(type, 1)};
  case DType::F8E4M3FN:
    return {nth(type, 0x7e), nth(type, 0x08), nth(type, 1)};
  default: // with NaN in the place of -0
    return {nth(type, 0x7f), nth(type, type == DType::F8E5M2FNUZ ? 0x04 : 0x08), nth(type, 1)};
  }
}

int64_t leastOf(DType type) {
  return isUnsigned(type) ? 0 : static_cast<int64_t>(~uint64_t(0) << (bitWidth(type) - 1));
}

} // namespace

HostTensor allValues(DType type) {
  if (type == DType::Bool)
    return listOf(type, std::vector<int64_t>{0, 1, 1, 0, 1});
  std::vector<double> magnitudes = {0,     0.25,  0.4999, 0.5,   0.75,  1,     1.5,   2,    2.5,
                                    3,     3.5,   7.3,    10,    44.4,  88.5,  100.7, 127,  127.5,
                                    128.5, 129,   200,    255,   255.5, 256,   300.7, 708,  710};
  for (int bits : {15, 16, 31, 32, 52, 53, 62, 63, 64, 65})
    for (double d : {-1.0, -0.5, -0x1p-24, 0.0, 0x1p-23, 0.5, 1.0})
      magnitudes.push_back(std::ldexp(1.0, bits) * (std::fabs(d) < 0.1 ? 1 + d : 1) +
                           (std::fabs(d) < 0.1 ? 0 : d));
  if (isFloat(type)) {
    Edges edge = edgesOf(type);
    for (double m : {edge.least, 2 * edge.least, edge.normal - edge.least, edge.normal,
                     std::sqrt(edge.normal), std::sqrt(edge.greatest), edge.greatest / 2,
                     edge.greatest, kInf, kNan})
      magnitudes.push_back(m);
    std::vector<double> values;
    for (double m : magnitudes) {
      values.push_back(m);
      values.push_back(-m);
    }
    return listOf(type, values);
  }
  std::vector<int64_t> values = {0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100};
  for (unsigned bits : {7u, 8u, 15u, 16u, 24u, 31u, 32u, 53u, 63u})
    for (int64_t d : {-1, 0, 1})
      for (int64_t sign : {1, -1})
        values.push_back(static_cast<int64_t>(static_cast<uint64_t>(sign) *
                                              ((uint64_t(1) << bits) + static_cast<uint64_t>(d))));
  values.push_back(leastOf(type));
  values.push_back(leastOf(type) + 1);
  values.push_back(~leastOf(type));
  return listOf(type, values);
}

HostTensor fewValues(DType type) {
  if (type == DType::Bool)
    return listOf(type, std::vector<int64_t>{0, 1});
  if (isFloat(type)) {
    Edges edge = edgesOf(type);
    std::vector<double> values;
    for (double m : {0.0, edge.least, edge.normal, 0.5, 1.0, 2.0, 3.0, 3.5, std::sqrt(edge.greatest),
                     edge.greatest, kInf}) {
      values.push_back(m);
      values.push_back(-m);
    }
    values.push_back(kNan);
    return listOf(type, values);
  }
  std::vector<int64_t> values = {0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100, -1, -2, -3, -8, -100};
  for (int64_t v : {leastOf(type), leastOf(type) + 1, ~leastOf(type), ~leastOf(type) - 1})
    values.push_back(v);
  return listOf(type, values);
}

std::pair<HostTensor, HostTensor> pairsOf(const HostTensor &first, const HostTensor &second) {
  int64_t n = first.count(), m = second.count();
  HostTensor a(first.dtype, {n * m}), b(second.dtype, {n * m});
  for (int64_t i = 0; i < n * m; ++i) {
    copyElement(first, i / m, a, i);
    copyElement(second, i % m, b, i);
  }
  return {a, b};
}

HostTensor rowsOf(DType type, int64_t length, bool squared) {
  std::vector<std::vector<std::pair<int64_t, double>>> special; // places and what stands there
  const int64_t last = length - 1, middle = length / 2;
  special.push_back({});
  if (isFloat(type)) {
    Edges edge = edgesOf(type);
    if (squared && type != DType::F16)
      edge.greatest = std::sqrt(edge.greatest) / static_cast<double>(length);
    special.push_back({{2, kNan}});
    special.push_back({{0, kNan}, {last, kNan}});
    special.push_back({{last, kNan}, {1, kInf}});
    special.push_back({{middle, kInf}});
    special.push_back({{1, -kInf}});
    special.push_back({{1, kInf}, {last, kInf}});
    special.push_back({{1, kInf}, {last, -kInf}});
    special.push_back({{0, edge.greatest}, {last, edge.greatest}});
    special.push_back({{3, -edge.greatest}, {middle, -edge.greatest}});
    special.push_back({{0, edge.least}, {last, -edge.least}});
  } else if (type != DType::Bool) {
    double least = static_cast<double>(leastOf(type));
    special.push_back({{1, least}, {last, least}});
    special.push_back({{0, isUnsigned(type) ? std::exp2(bitWidth(type)) - 1 : -least - 1},
                       {middle, isUnsigned(type) ? std::exp2(bitWidth(type)) - 1 : -least - 1}});
  }
  // Rows of one value alone.
  std::vector<double> constants = {0, 1};
  if (isFloat(type))
    constants = {0.0, -0.0, kNan, kInf, -kInf, edgesOf(type).least, 3};
  int64_t rows = static_cast<int64_t>(special.size() + constants.size());
  HostTensor all(type, {rows, length});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < length; ++k) {
      bool constant = r >= static_cast<int64_t>(special.size());
      // Small whole numbers, whose sums are exact in every type; few are not 1, for products.
      double v = constant ? constants[static_cast<size_t>(r) - special.size()]
                          : (k + r) % 5 == 0 ? 2 : (k + r) % 7 == 0 && !isUnsigned(type) ? -1 : 1;
      if (type == DType::Bool && !constant)
        v = (k + r) % 3 == 0;
      all.setReal(r * length + k, v);
    }
  for (size_t r = 0; r < special.size(); ++r)
    for (auto [place, value] : special[r]) {
      int64_t at = static_cast<int64_t>(r) * length + place;
      if (isFloat(type))
        all.setReal(at, value);
      else if (value >= 0x1p63)
        all.setInteger(at, isUnsigned(type) ? -1 : INT64_MAX);
      else
        all.setInteger(at, static_cast<int64_t>(value));
    }
  return all;
}

HostTensor transposed(const HostTensor &rows) {
  int64_t n = rows.dims[0], m = rows.dims[1];
  HostTensor columns(rows.dtype, {m, n});
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < m; ++k)
      copyElement(rows, i * m + k, columns, k * n + i);
  return columns;
}

} // namespace lathe::special
