//===- GenerateRequests.h - what lathe generate is asked for ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One request is a JSON object, whose keys are those of lathe_llm_request. Options of the command and the model's
// generation_config.json are such objects too, of what is usual.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_GENERATEREQUESTS_H
#define LATHE_TOOLS_LATHE_GENERATEREQUESTS_H

#include "Options.h"

#include "lathe/runtime/lathe_llm.h"

#include "llvm/Support/JSON.h"

namespace lathe::cli {

/// A request with the memory that it points to.
struct GenerateRequest {
  lathe_llm_request c = {};
  std::vector<uint32_t> prompt, stops, biasTokens, allowed;
  std::vector<float> biasValues;

  GenerateRequest() { c.size = sizeof c; }
  /// Valid as long as this is neither moved nor changed.
  const lathe_llm_request *view();

private:
  std::vector<uint32_t> mask;
};

/// Takes over what the object says; usage error, with `where`, for what it may not say.
Status readRequest(const llvm::json::Object &object, GenerateRequest &into, const std::string &where);

/// Takes over what a generation_config.json of transformers says: do_sample, temperature, top_k, top_p, min_p,
/// repetition_penalty, eos_token_id, max_new_tokens, min_new_tokens. Unsupported where it asks for something that changes
/// answers and that lathe does not do, such as beams.
Status readGenerationConfig(const std::string &path, GenerateRequest &into);

/// Declares the options that say what requests usually want; they fill `into`.
void addSamplingOptions(Parser &parser, llvm::json::Object &into);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_GENERATEREQUESTS_H
