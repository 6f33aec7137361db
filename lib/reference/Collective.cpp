//===- Collective.cpp - what ranks exchange -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/reference/Collective.h"

#include <cmath>
#include <cstring>

namespace lathe::reference {
namespace {

double combine(const std::string &kind, double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::nan("");
  return kind == "sum" ? a + b : kind == "prod" ? a * b : kind == "max" ? std::max(a, b) : std::min(a, b);
}
int64_t combine(const std::string &kind, int64_t a, int64_t b) {
  auto wrap = [](uint64_t value) { return static_cast<int64_t>(value); };
  return kind == "sum"    ? wrap(uint64_t(a) + uint64_t(b))
         : kind == "prod" ? wrap(uint64_t(a) * uint64_t(b))
         : kind == "max"  ? std::max(a, b)
                          : std::min(a, b);
}

Tensor reduced(const std::string &kind, std::span<const Tensor> members) {
  Tensor sum = members[0];
  for (int64_t i = 0; i < sum.count(); ++i) {
    if (isFloat(sum.dtype)) {
      double value = members[0].real(i);
      for (const Tensor &other : members.subspan(1))
        value = combine(kind, value, other.real(i));
      sum.setReal(i, value);
    } else {
      int64_t value = members[0].integer(i);
      for (const Tensor &other : members.subspan(1))
        value = combine(kind, value, other.integer(i));
      sum.setInteger(i, value);
    }
  }
  return sum;
}

/// Rows of `run` bytes that a dimension of the tensor makes: the product of those ahead, and its own
/// with what is behind it.
std::pair<size_t, size_t> rowsOf(const Tensor &tensor, int64_t dim) {
  size_t rows = 1;
  for (int64_t d = 0; d < dim; ++d)
    rows *= size_t(tensor.dims[d]);
  return {rows, rows ? tensor.data.size() / rows : 0};
}

} // namespace

Result<std::vector<Tensor>> evaluateCollective(std::string_view op, const std::string &kind, int64_t dim,
                                               std::span<const Tensor> members) {
  if (members.empty())
    return invalidError("a collective of no members");
  for (const Tensor &member : members)
    if (member.dtype != members[0].dtype || member.dims != members[0].dims || bitWidth(member.dtype) % 8)
      return invalidError("members of a collective have different types, or elements below a byte");
  const bool reduces = op != "all_gather", moves = op != "all_reduce";
  if (reduces && kind != "sum" && kind != "prod" && kind != "max" && kind != "min")
    return invalidError("no reduction is called '" + kind + "'");
  if (moves && (dim < 0 || size_t(dim) >= members[0].dims.size()))
    return invalidError("dim is outside the rank");
  const size_t count = members.size();
  if (op == "all_reduce")
    return std::vector<Tensor>(count, reduced(kind, members));
  std::vector<int64_t> dims = members[0].dims;
  if (op == "all_gather") {
    auto [rows, run] = rowsOf(members[0], dim);
    dims[dim] *= int64_t(count);
    Tensor whole(members[0].dtype, dims);
    for (size_t row = 0; row < rows; ++row)
      for (size_t m = 0; m < count && run; ++m)
        std::memcpy(whole.data.data() + (row * count + m) * run, members[m].data.data() + row * run, run);
    return std::vector<Tensor>(count, whole);
  }
  if (op != "reduce_scatter")
    return unsupportedError("no collective is called '" + std::string(op) + "'");
  if (dims[dim] % int64_t(count))
    return invalidError("the size of dim is no multiple of the members");
  Tensor whole = reduced(kind, members);
  dims[dim] /= int64_t(count);
  std::vector<Tensor> parts(count, Tensor(whole.dtype, dims));
  auto [rows, run] = rowsOf(parts[0], dim);
  for (size_t row = 0; row < rows; ++row)
    for (size_t m = 0; m < count && run; ++m)
      std::memcpy(parts[m].data.data() + row * run, whole.data.data() + (row * count + m) * run, run);
  return parts;
}

} // namespace lathe::reference
