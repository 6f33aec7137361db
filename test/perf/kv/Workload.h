//===- Workload.h - seeded traces of four kinds of traffic ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Generators. Time is counted in decode steps: each live request gets a token
// a step; a prompt is prefilled at once. A limit on live requests holds later
// ones back, first come, first served. Lengths called chat-like are exponential
// with means of 161 prompt and 338 output tokens (ShareGPT as the PagedAttention
// paper reports it).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_PERF_KV_WORKLOAD_H
#define LATHE_TEST_PERF_KV_WORKLOAD_H

#include "Trace.h"

#include <array>

namespace lathe::kvperf {

constexpr uint32_t chatPromptTokens = 161, chatOutputTokens = 338;

/// Names that `makeWorkload` knows.
///
/// - `zipf`: one of 200 system prompts (exponential, mean 1,000 tokens), drawn by a Zipf law of
///   exponent 1, then a chat-like question and answer.
/// - `chat`: conversations of 5 turns in the mean (geometric) after one system prompt of 400
///   tokens; about 200 conversations at a time, pauses of 2,000 steps in the mean between turns.
/// - `agents`: trees. A task starts from one of 8 tool descriptions (1,500 to 3,250 tokens, Zipf);
///   each node's prompt is the path from the root, its parent's output and a tool result; one to
///   three children, depth 7 at most, 24 nodes at most.
/// - `thrash`: 64 documents of 4,096 tokens asked about in a cycle, so that least recently used
///   is the worst choice; every fifth question goes to one of 4 documents instead.
/// - `lengths`: chat-like requests that share nothing, 256 at a time, for measuring waste.
constexpr std::array<std::string_view, 4> workloadNames = {"zipf", "chat", "agents", "thrash"};

/// The trace of a kind of traffic with about `requests` requests; the same arguments give the same
/// trace. Errors: Usage for an unknown name.
Result<Trace> makeWorkload(std::string_view name, uint32_t requests, uint64_t seed);

} // namespace lathe::kvperf

#endif // LATHE_TEST_PERF_KV_WORKLOAD_H
