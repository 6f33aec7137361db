//===- Reference.h - what each op means, in plain C++ ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Slow, obviously right implementations of the lathe ops: the oracle of tests, of
// `lathe compare`, and the folder of small constants. Floating-point results are
// computed in double and rounded once, at the end; integers wrap. Never part of
// the runtime.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_REFERENCE_REFERENCE_H
#define LATHE_REFERENCE_REFERENCE_H

#include "lathe/support/HostTensor.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lathe::reference {

using Tensor = HostTensor;

struct TensorType {
  DType dtype = DType::F32;
  std::vector<int64_t> dims;
};

/// Attributes by the names of the op's definition. Booleans and unit attributes are
/// integers (1 when set), enums are their keywords ("sum", "lt", "nhwc"),
/// dimension expressions are their values.
using Attribute =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

/// The ops that evaluate knows, mnemonics without the dialect ("add", "conv"), sorted.
std::vector<std::string_view> knownOps();

/// Evaluates one op. Optional operands that are absent are left out (they are the
/// last ones). `results`: element types and sizes, as type inference gives them.
/// Errors: Unsupported for an op or element type the reference does not know;
/// Invalid for operands, attributes or result types that do not fit;
/// RuntimeFailure where the values are at fault (index out of range).
Result<std::vector<Tensor>> evaluate(std::string_view op, const Attributes &attributes,
                                     std::span<const Tensor> inputs,
                                     std::span<const TensorType> results);

} // namespace lathe::reference

#endif // LATHE_REFERENCE_REFERENCE_H
