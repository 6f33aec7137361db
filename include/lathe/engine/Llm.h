//===- Llm.h - what an engine of a paged decoder says of itself -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An engine whose entry is a step over pages has a section `llm` beside its plans: how keys and values lie in
// the pool, and what was proved and assumed of the model. The entry takes, in this order and all i64 but the pool,
//
//   tokens [T]     of several sequences, one after another
//   positions [T]  place of each token in its sequence
//   requests [T]   row of `tables` of each token
//   slots [T]      where its keys and values go: page * blockTokens + place in the page
//   tables [R, M]  pages of each sequence in order; behind its last token any page. Of a group with a window
//                  (KvGroupKind::Window) the pages of its sinks, and those from the window of the first token on
//   places [T]     with a window alone: place of each token among those that `tables` names
//   slots1, tables1 [R, M1], slots2, ...   the same of each group of layers behind the first
//   rows [R]       the tokens whose logits are wanted, as numbers of `tokens`
//   pool [N, layers, 2, blockTokens, heads, headSize], with as many layers as the largest group, as a page is any
//                  group's; given the same memory as the output next_pool, and where keys
//                  and values are codes (KvScales::HeadToken: i8, or two of 4 bits in a ui8: headSize / 2 of them)
//   scales [N, layers, 2, heads, blockTokens], f32, given the same memory as next_scales,
//
// and gives logits [R, vocabulary], best [R] (i64: the token of the greatest logit, the lower of equals), next_pool
// and maybe next_scales. runtime/serve makes these of requests.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_LLM_H
#define LATHE_ENGINE_LLM_H

#include "lathe/engine/KvLayout.h"

#include <string>
#include <string_view>
#include <vector>

namespace lathe::engine {

/// Name of the section.
inline constexpr const char *kLlmSection = "llm";

/// Blocks follow each other in a pool, which is a dense tensor.
inline constexpr uint32_t kPoolAlignment = 16;

struct LlmInfo {
  std::string entry;           ///< of the step
  uint32_t vocabulary = 0;     ///< logits of a token
  std::vector<KvGroup> groups; ///< of layers, Full or Window, with one form of keys and values; all share the pool
  bool batchInvariant = false; ///< a token's logits have the same bits in every step
  std::vector<std::string> proofs;      ///< what is sure of the model, a sentence each
  std::vector<std::string> assumptions; ///< what the model's exporter did not say, and serving relies on
};

/// Bytes of the section; the groups are valid.
std::string packLlm(const LlmInfo &info);
/// Invalid, with `where`, for anything that packLlm does not write.
Result<LlmInfo> parseLlm(std::string_view bytes, const std::string &where = {});

} // namespace lathe::engine

#endif // LATHE_ENGINE_LLM_H
