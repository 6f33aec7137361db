//===- Status.cpp - typed, located errors without exceptions ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text of error kinds and of whole errors.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Status.h"

namespace lathe {

const char *toString(ErrorCode code) {
  switch (code) {
  case ErrorCode::Ok:
    return "ok";
  case ErrorCode::Mismatch:
    return "mismatch";
  case ErrorCode::Usage:
    return "usage error";
  case ErrorCode::Invalid:
    return "invalid input";
  case ErrorCode::Unsupported:
    return "unsupported";
  case ErrorCode::RuntimeFailure:
    return "runtime error";
  case ErrorCode::Internal:
    return "internal error";
  case ErrorCode::Deadline:
    return "deadline passed";
  case ErrorCode::Cancelled:
    return "cancelled";
  case ErrorCode::PeerLost:
    return "rank lost";
  }
  return "unknown error";
}

std::string Status::str() const {
  std::string result = toString(errorCode);
  if (!place.empty())
    result += ": " + place;
  if (!text.empty())
    result += ": " + text;
  return result;
}

} // namespace lathe
