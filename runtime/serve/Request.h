//===- Request.h - what is asked for, and how far it is ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_SERVE_REQUEST_H
#define LATHE_RUNTIME_SERVE_REQUEST_H

#include "Sampler.h"
#include "lathe/runtime/KvTypes.h"

#include <memory>
#include <optional>
#include <vector>

namespace lathe::serve {

enum class Finish : uint8_t { None, Length, Stop, Cancelled, Failed };

struct RequestOptions {
  std::vector<uint32_t> prompt, stopTokens;
  uint32_t maxTokens = 1;
  uint32_t samples = 1; ///< answers to the prompt, a request each
  Sampling sampling;
  std::optional<uint32_t> logprobs;       ///< of the answer's tokens, and of so many likeliest ones
  std::optional<uint32_t> promptLogprobs; ///< the same of the prompt's tokens but the first
  int32_t priority = 0; ///< a greater one goes first
  uint64_t tenant = 0;
};

struct Request {
  uint64_t id = 0;
  RequestOptions options;
  std::vector<uint32_t> tokens; ///< prompt and answer
  uint32_t promised = 0;        ///< tokens that steps under way will give it, behind those
  uint32_t computed = 0;        ///< of all these: their keys and values are in the cache, or will be, or are swapped
  uint32_t charged = 0;         ///< of tokens: the tenant has paid for their computation
  kv::SeqId sequence = kv::kNoSequence; ///< while it runs
  kv::SeqId swapped = kv::kNoSequence;  ///< while it waits: its keys and values are in host memory
  bool planned = false;  ///< in this step, or it takes no part in it
  uint32_t flights = 0;  ///< steps under way that name it
  bool unknown = false;  ///< the cache is to be provided with its next token
  int64_t source = -1;   ///< Batch::tokens: where the token that is promised will be; -1: not on the device
  Finish finish = Finish::None;
  int64_t submitted = 0, firstToken = -1, lastToken = -1; ///< by the clock, ns
  TokenCounts counts;
  std::vector<Logprobs> logprobs;       ///< of the answer
  std::vector<Logprobs> promptLogprobs; ///< entry i is of token i + 1
  uint32_t promisedLogprobs = 0;        ///< of the prompt, that steps under way will give
  std::vector<Request *> held;          ///< other answers to the prompt, until its keys and values are there

  std::span<const uint32_t> answer() const { return std::span(tokens).subspan(options.prompt.size()); }
  uint32_t pending() const { return uint32_t(tokens.size()) + promised - computed; }
  /// Whether its next token is one that a step under way gives.
  bool isFed() const { return computed == tokens.size(); }
  /// Logprobs of the prompt that are there or promised.
  uint32_t promptLogprobsAsked() const { return uint32_t(promptLogprobs.size()) + promisedLogprobs; }
  /// Tokens of the prompt whose logprobs no step has been asked for.
  uint32_t promptLogprobsLeft() const {
    return options.promptLogprobs ? uint32_t(options.prompt.size()) - 1 - promptLogprobsAsked() : 0;
  }
};

/// What one of many users of a scheduler may have.
struct TenantOptions {
  double weight = 1;        ///< share of the tokens, beside others who want them
  uint32_t maxRequests = 0; ///< that run at once; 0: all
  uint64_t maxTokens = 0;   ///< prompts and answers, as long as they may get, of those that run at once; 0: all
};

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_REQUEST_H
