//===- Reference.cpp - finds and runs an op's implementation ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks operands and results once for all ops, then dispatches by name.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <algorithm>

namespace lathe::reference {
namespace {

std::vector<Entry> allEntries() {
  std::vector<Entry> all;
  for (auto family : {elementwiseOps(), movementOps(), gatherOps(), reductionOps(), samplingOps(), selectionOps(), fourierOps(),
                      contractionOps(), attentionOps(), pagedOps(), windowOps(), quantizeOps(), randomOps()})
    all.insert(all.end(), family.begin(), family.end());
  std::sort(all.begin(), all.end(), [](const Entry &a, const Entry &b) { return a.op < b.op; });
  return all;
}

const std::vector<Entry> &entries() {
  static const std::vector<Entry> all = allEntries();
  return all;
}

const Entry *find(std::string_view op) {
  auto it = std::lower_bound(entries().begin(), entries().end(), op,
                             [](const Entry &e, std::string_view name) { return e.op < name; });
  return it != entries().end() && it->op == op ? &*it : nullptr;
}

/// Refuses what could not be computed in reasonable time: loops run over parts of
/// the sizes also where another size is 0.
Status checkType(DType dtype, const std::vector<int64_t> &dims, const std::string &where) {
  Result<int64_t> count = checkedElementCount(dims);
  if (!count)
    return invalidError(count.status().message(), where);
  if (dtype == DType::String)
    return unsupportedError("the reference has no strings", where);
  int64_t extent = 1;
  for (int64_t d : dims)
    extent *= d ? d : 1;
  if (extent > (int64_t(1) << 32))
    return unsupportedError("tensor is too large for the reference", where);
  return okStatus();
}

} // namespace

std::vector<std::string_view> knownOps() {
  std::vector<std::string_view> names;
  for (const Entry &e : entries())
    names.push_back(e.op);
  return names;
}

Result<std::vector<Tensor>> evaluate(std::string_view op, const Attributes &attributes,
                                     std::span<const Tensor> inputs,
                                     std::span<const TensorType> results) {
  std::string where = "lathe." + std::string(op);
  const Entry *entry = find(op);
  if (!entry)
    return unsupportedError("the reference has no such op", where);
  for (const Tensor &input : inputs) {
    LATHE_RETURN_IF_ERROR(checkType(input.dtype, input.dims, where));
    if (static_cast<int64_t>(input.data.size()) != byteSize(input.dtype, input.count()))
      return invalidError("operand data do not match its sizes", where);
  }
  std::vector<Tensor> outputs;
  for (const TensorType &type : results) {
    LATHE_RETURN_IF_ERROR(checkType(type.dtype, type.dims, where));
    outputs.emplace_back(type.dtype, type.dims);
  }
  Call call(op, attributes, inputs, std::move(outputs));
  entry->run(call);
  if (!call.ok())
    return call.error;
  return std::move(call.results);
}

} // namespace lathe::reference
