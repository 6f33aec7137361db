//===- Call.h - one evaluation of one op ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Private to the reference: operands, attributes and results of an op under
// evaluation, and index arithmetic. The first error is kept; after it, reads give
// harmless values, so that implementations check once, before they compute.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_REFERENCE_CALL_H
#define LATHE_LIB_REFERENCE_CALL_H

#include "lathe/reference/Reference.h"

#include <functional>

namespace lathe::reference {

using Index = std::vector<int64_t>;

class Call {
public:
  Call(std::string_view op, const Attributes &attributes, std::span<const Tensor> inputs,
       std::vector<Tensor> results)
      : op(op), inputs(inputs), results(std::move(results)), attributes(attributes) {}

  const std::string_view op;
  const std::span<const Tensor> inputs;
  std::vector<Tensor> results; ///< allocated, zero

  const Tensor &in(size_t i) const { return inputs[i]; }
  Tensor &out() { return results[0]; }
  bool hasInput(size_t i) const { return i < inputs.size(); }

  bool has(std::string_view name) const { return attributes.contains(name); }
  int64_t integer(std::string_view name);
  int64_t integerOr(std::string_view name, int64_t otherwise);
  double real(std::string_view name);
  std::string text(std::string_view name);
  /// A list of exactly `size` integers.
  std::vector<int64_t> integers(std::string_view name, size_t size);
  std::vector<int64_t> integers(std::string_view name);

  /// Between `low` and `high` operands and one result, or up to `mostResults`.
  bool expectInputs(size_t low, size_t high, size_t mostResults = 1);
  /// Records an Invalid error unless `condition`. Returns ok().
  bool require(bool condition, std::string_view message);
  void fail(Status status) {
    if (error.ok())
      error = std::move(status);
  }
  bool ok() const { return error.ok(); }
  Status error;

private:
  template <typename T> const T *find(std::string_view name, const char *what);
  const Attributes &attributes;
};

/// An implementation; false when it is not its op.
using Implementation = void (*)(Call &);
struct Entry {
  std::string_view op;
  Implementation run;
};
std::span<const Entry> elementwiseOps();
std::span<const Entry> movementOps();
std::span<const Entry> gatherOps();
std::span<const Entry> reductionOps();
std::span<const Entry> samplingOps();
std::span<const Entry> randomOps();
std::span<const Entry> selectionOps();
std::span<const Entry> fourierOps();
std::span<const Entry> contractionOps();
std::span<const Entry> attentionOps();
std::span<const Entry> pagedOps();
std::span<const Entry> windowOps();
std::span<const Entry> quantizeOps();

/// Calls `body` with each index of an array of these sizes, in row-major order.
void forEachIndex(const std::vector<int64_t> &dims,
                  const std::function<void(const Index &index, int64_t linear)> &body);

/// Row-major position of an index of the array's own rank.
int64_t position(const std::vector<int64_t> &dims, const Index &index);

/// Position in an array that is broadcast against a larger one: aligned at the last
/// dimension, 0 where the array's size is 1.
int64_t broadcastPosition(const std::vector<int64_t> &dims, const Index &index);

/// Whether `dims` broadcasts to `to`.
bool broadcastsTo(const std::vector<int64_t> &dims, const std::vector<int64_t> &to);

/// Product of dims[from, to).
int64_t countBetween(const std::vector<int64_t> &dims, size_t from, size_t to);

/// All elements as doubles.
std::vector<double> reals(const Tensor &tensor);

/// `axis` counted from the start, or -1 and an error.
int64_t normalizeAxis(Call &call, int64_t axis, int64_t rank);

/// One step of a reduction: "sum", "prod", "max", "min".
enum class Combine { Sum, Prod, Max, Min };
Combine parseCombine(Call &call, const std::string &kind);
double combine(Combine kind, double a, double b); ///< NaN wins max and min
int64_t combine(Combine kind, DType type, int64_t a, int64_t b); ///< wraps; compares as `type`
double neutralReal(Combine kind);
int64_t neutralInteger(Combine kind, DType type);

} // namespace lathe::reference

#endif // LATHE_LIB_REFERENCE_CALL_H
