//===- Trace.h - requests to a language model in a fixed order -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A trace is what a server saw: prompts begin, tokens are appended, requests
// finish, in one order that no cache policy changes. So every policy, and the
// clairvoyant optimum, meet the same requests with the same ones in flight.
//
// Text form, one line an entry, fields separated by tabs:
//
//   lathe-kv-trace 1 <name> <seed>
//   B <request> <tenant> <shared tokens> <prompt> <output>    a prompt begins
//   A <request> <tokens>                                      tokens are appended
//   F <request>                                               the request finishes
//
// <prompt> is a list `segment:tokens,...`, <output> one `segment:tokens`. A
// segment is a piece of text by number; token i of segment s is a function of
// (seed, s, i), so that equal segments are equal text.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_PERF_KV_TRACE_H
#define LATHE_TEST_PERF_KV_TRACE_H

#include "lathe/support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::kvperf {

/// The first `tokens` tokens of a piece of text.
struct Segment {
  uint32_t id = 0;
  uint32_t tokens = 0;
};

struct Request {
  uint32_t tenant = 0;
  /// Leading tokens that the sender knows to be shared by many (system prompt, tools): what a
  /// policy with priorities may be told.
  uint32_t sharedTokens = 0;
  std::vector<Segment> prompt;
  Segment output;

  uint32_t promptTokens() const;
};

struct Event {
  enum class Kind : uint8_t { Begin, Append, Finish };
  Kind kind;
  uint32_t request;
  uint32_t tokens = 0; ///< of Append
};

struct Trace {
  std::string name;
  uint64_t seed = 0;
  std::vector<Request> requests; ///< in the order of their Begin events
  std::vector<Event> events;

  /// Prompt and output of a request, one after the other.
  std::vector<uint32_t> tokens(const Request &request) const;
};

/// A statistically good, cheap bijection of 64 bits (the finalizer of SplitMix64).
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::string toText(const Trace &trace);

/// Reads the text form. Errors: Invalid, located by line: unknown entry, malformed number, request
/// out of order, tokens appended beyond the output, an entry after Finish.
Result<Trace> parseTrace(std::string_view text);

} // namespace lathe::kvperf

#endif // LATHE_TEST_PERF_KV_TRACE_H
