//===- Status.h - typed, located errors without exceptions -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The error type of all that is free of MLIR: the kind (the exit code of the
// command line), what happened, and where: an ONNX node, a file offset, a symbol.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_STATUS_H
#define LATHE_SUPPORT_STATUS_H

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace lathe {

/// Kinds of failure; the numbers are the exit codes of `lathe`.
enum class ErrorCode : int {
  Ok = 0,
  Mismatch = 1,       ///< results differ from what was expected
  Usage = 2,          ///< wrong command line or wrong use of an API
  Invalid = 3,        ///< invalid model, IR or engine file
  Unsupported = 4,    ///< valid, but lathe or this machine cannot do it
  RuntimeFailure = 5, ///< a run failed: guard, index, memory, device
  Internal = 6,       ///< a defect of lathe itself
  Deadline = 7,       ///< a wait ended before what it waited for
  Cancelled = 8,      ///< by the caller, or because a step ahead failed
  PeerLost = 9,       ///< another rank of the mesh is gone
};

/// The name of an error code in lower case, as printed before messages.
const char *toString(ErrorCode code);

/// Success, or one error. Cheap to move; copying copies two strings.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(ErrorCode code, std::string message, std::string location = {})
      : errorCode(code), text(std::move(message)), place(std::move(location)) {}

  bool ok() const { return errorCode == ErrorCode::Ok; }
  ErrorCode code() const { return errorCode; }
  /// What happened, a sentence without the place.
  const std::string &message() const { return text; }
  /// Where: "node Conv_3", "model.lathe:+4096", "symbol B"; may be empty.
  const std::string &location() const { return place; }
  /// "<kind>: <location>: <message>" for people.
  std::string str() const;

private:
  ErrorCode errorCode = ErrorCode::Ok;
  std::string text;
  std::string place;
};

inline Status okStatus() { return {}; }
inline Status usageError(std::string m, std::string at = {}) {
  return {ErrorCode::Usage, std::move(m), std::move(at)};
}
inline Status invalidError(std::string m, std::string at = {}) {
  return {ErrorCode::Invalid, std::move(m), std::move(at)};
}
inline Status unsupportedError(std::string m, std::string at = {}) {
  return {ErrorCode::Unsupported, std::move(m), std::move(at)};
}
inline Status runtimeError(std::string m, std::string at = {}) {
  return {ErrorCode::RuntimeFailure, std::move(m), std::move(at)};
}
inline Status internalError(std::string m, std::string at = {}) {
  return {ErrorCode::Internal, std::move(m), std::move(at)};
}

/// A value or an error.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T v) : held(std::move(v)) {}
  Result(Status s) : error(std::move(s)) { assert(!error.ok()); }

  bool ok() const { return held.has_value(); }
  explicit operator bool() const { return ok(); }
  /// The error; ok() when there is a value.
  const Status &status() const { return error; }
  T &operator*() { return *held; }
  const T &operator*() const { return *held; }
  T *operator->() { return &*held; }
  const T *operator->() const { return &*held; }

private:
  std::optional<T> held;
  Status error;
};

} // namespace lathe

/// Returns the error of `expr` from the enclosing function.
#define LATHE_RETURN_IF_ERROR(expr)                                            \
  do {                                                                         \
    if (::lathe::Status latheStatus = (expr); !latheStatus.ok())               \
      return latheStatus;                                                      \
  } while (false)

#endif // LATHE_SUPPORT_STATUS_H
