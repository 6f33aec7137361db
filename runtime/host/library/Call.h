//===- Call.h - what an op of the library sees ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operands and attributes of a call, checked where they are asked for; and the exception that ends one.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_HOST_LIBRARY_CALL_H
#define LATHE_RUNTIME_HOST_LIBRARY_CALL_H

#include "../HostAbi.h"
#include "lathe/support/DType.h"
#include "lathe/support/Status.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lathe::host {

/// Ends an op with an error; Library.cpp catches it.
struct Failure {
  ErrorCode code;
  std::string message;
};
[[noreturn]] inline void fail(std::string message, ErrorCode code = ErrorCode::RuntimeFailure) {
  throw Failure{code, std::move(message)};
}

class Call {
public:
  explicit Call(const LatheHostCall &call) : call(call) {}

  size_t inputs() const { return call.inputCount; }
  LatheStrings &strings() const { return *call.strings; }

  /// Numbers of strings (i64), or other elements of a type.
  template <typename T = int64_t> std::span<const T> input(size_t i, DType type = DType::I64) const {
    const LatheHostTensor &t = tensor(call.inputs, call.inputCount, i, type);
    return {static_cast<const T *>(t.data), count(t)};
  }
  template <typename T = int64_t> std::span<T> output(size_t i, DType type = DType::I64) const {
    const LatheHostTensor &t = tensor(call.outputs, call.outputCount, i, type);
    return {static_cast<T *>(t.data), count(t)};
  }
  const LatheHostTensor &inputTensor(size_t i) const { return tensor(call.inputs, call.inputCount, i, {}); }
  const LatheHostTensor &outputTensor(size_t i) const { return tensor(call.outputs, call.outputCount, i, {}); }
  static size_t count(const LatheHostTensor &t);

  std::string_view text(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;

private:
  /// Any type where none is given. Plans come from files, so that a call may be anything.
  static const LatheHostTensor &tensor(const LatheHostTensor *list, size_t count, size_t i,
                                       std::optional<DType> type);
  const LatheHostAttribute *find(std::string_view name) const;

  const LatheHostCall &call;
};

// The ops, by family.
void stringConcat(const Call &call);
void regexFullMatch(const Call &call);
void stringSplitCounts(const Call &call);
void stringSplit(const Call &call);
void stringTokenCounts(const Call &call);
void stringTokenize(const Call &call);
void stringNormalize(const Call &call);
void stringRank(const Call &call);
void stringParse(const Call &call);
void stringFormat(const Call &call);
void imageSize(const Call &call);
void imageDecode(const Call &call);

} // namespace lathe::host

#endif // LATHE_RUNTIME_HOST_LIBRARY_CALL_H
