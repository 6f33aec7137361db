//===- lathe_llm.hpp - serving from C++ -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thin wrapper over lathe_llm.h, as lathe.hpp is over lathe.h.
//
//   lathe::rt::Llm llm;
//   if (auto e = llm.create(engine)) return fail(e.message());
//   lathe::rt::LlmRequest request({1, 2, 3}, /*maxTokens=*/16);
//   request.temperature = 0.8f;
//   uint64_t id;
//   if (auto e = llm.submit(request, id)) return fail(e.message());
//   for (size_t left = 1; left;)
//     if (auto e = llm.step(left)) return fail(e.message());
//   lathe_llm_result answer;
//   if (auto e = llm.result(id, answer)) return fail(e.message());
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_LATHE_LLM_HPP
#define LATHE_RUNTIME_LATHE_LLM_HPP

#include "lathe/runtime/lathe.hpp"
#include "lathe/runtime/lathe_llm.h"

#include <utility>

namespace lathe::rt {

/// A lathe_llm_request with the memory that it points to: set its plain fields, and the lists by their names here.
struct LlmRequest : lathe_llm_request {
  LlmRequest(std::vector<uint32_t> prompt, uint32_t maxTokens) : lathe_llm_request{}, prompt(std::move(prompt)) {
    size = sizeof(lathe_llm_request);
    max_tokens = maxTokens;
  }
  std::vector<uint32_t> prompt, stops, allowedMask;
  std::vector<std::pair<uint32_t, float>> bias; ///< of tokens
};

class Llm {
public:
  Error create(const Engine &engine, const std::string &device = "cpu", lathe_llm_options options = {}) {
    options.size = sizeof options;
    lathe_llm *made = nullptr;
    Error error(lathe_llm_create(engine.get(), device.c_str(), &options, &made));
    held.reset(made);
    return error;
  }
  /// `id` is the first answer's; those of other samples follow it.
  Error submit(const LlmRequest &request, uint64_t &id) {
    std::vector<uint32_t> tokens;
    std::vector<float> values;
    for (const auto &[token, value] : request.bias) {
      tokens.push_back(token);
      values.push_back(value);
    }
    lathe_llm_request c = request;
    c.tokens = request.prompt.data();
    c.token_count = request.prompt.size();
    c.stop_tokens = request.stops.data();
    c.stop_count = request.stops.size();
    c.bias_tokens = tokens.data();
    c.bias_values = values.data();
    c.bias_count = tokens.size();
    c.allowed = request.allowedMask.empty() ? nullptr : request.allowedMask.data();
    c.allowed_words = request.allowedMask.size();
    return Error(lathe_llm_submit(held.get(), &c, &id));
  }
  /// `unfinished`: how many requests are.
  Error step(size_t &unfinished) { return Error(lathe_llm_step(held.get(), &unfinished)); }
  Error result(uint64_t id, lathe_llm_result &out) const { return Error(lathe_llm_result_of(held.get(), id, &out)); }
  /// Of token `index` of the answer, or of the prompt (from 1 on).
  Error logprobs(uint64_t id, bool ofPrompt, size_t index, lathe_llm_logprobs &out) const {
    return Error(lathe_llm_logprobs_of(held.get(), id, ofPrompt, index, &out));
  }
  Error cancel(uint64_t id) { return Error(lathe_llm_cancel(held.get(), id)); }
  Error release(uint64_t id) { return Error(lathe_llm_release(held.get(), id)); }
  Error setTenant(uint64_t tenant, lathe_llm_tenant options) {
    options.size = sizeof options;
    return Error(lathe_llm_set_tenant(held.get(), tenant, &options));
  }
  lathe_llm_counters counters() const {
    lathe_llm_counters c{};
    c.size = sizeof c;
    lathe_llm_get_counters(held.get(), &c);
    return c;
  }
  lathe_llm *get() const { return held.get(); }

private:
  struct Destroy {
    void operator()(lathe_llm *llm) const { lathe_llm_destroy(llm); }
  };
  std::unique_ptr<lathe_llm, Destroy> held;
};

} // namespace lathe::rt

#endif // LATHE_RUNTIME_LATHE_LLM_HPP
