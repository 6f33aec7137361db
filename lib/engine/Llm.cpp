//===- Llm.cpp - the llm section as bytes -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The FlatBuffers verifier checks structure, this file meaning.
//
//===----------------------------------------------------------------------===//
#include "lathe/engine/Llm.h"

#include "lathe/engine/llm_generated.h"

namespace lathe::engine {

std::string packLlm(const LlmInfo &info) {
  flatbuffers::FlatBufferBuilder b;
  auto texts = [&](const std::vector<std::string> &list) { return b.CreateVectorOfStrings(list); };
  std::vector<flatbuffers::Offset<fb::KvGroup>> groups;
  for (const KvGroup &g : info.groups)
    groups.push_back(fb::CreateKvGroup(b, uint8_t(g.kind), g.layers, uint8_t(g.layout.dtype), g.layout.blockTokens,
                                       g.layout.heads, g.layout.headSizeK, g.layout.headSizeV,
                                       uint8_t(g.layout.order), uint8_t(g.layout.scales), g.window, g.sinks));
  auto entry = b.CreateString(info.entry);
  auto all = b.CreateVector(groups);
  auto proofs = texts(info.proofs), assumptions = texts(info.assumptions);
  b.Finish(fb::CreateLlm(b, entry, info.vocabulary, all, proofs, assumptions, info.batchInvariant), fb::LlmIdentifier());
  return {reinterpret_cast<const char *>(b.GetBufferPointer()), b.GetSize()};
}

Result<LlmInfo> parseLlm(std::string_view bytes, const std::string &where) {
  // FlatBuffers reads aligned numbers.
  std::vector<uint64_t> copy((bytes.size() + 7) / 8);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char *>(copy.data()));
  const auto *data = reinterpret_cast<const uint8_t *>(copy.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !fb::VerifyLlmBuffer(verifier))
    return invalidError("the llm section is damaged", where);
  const fb::Llm *source = fb::GetLlm(data);
  LlmInfo info;
  info.entry = source->entry()->str();
  info.vocabulary = source->vocabulary();
  info.batchInvariant = source->batch_invariant();
  auto number = [](uint8_t value, auto last) { return value <= static_cast<uint8_t>(last); };
  for (const fb::KvGroup *g : *source->groups()) {
    if (!number(g->kind(), KvGroupKind::Shared) || !number(g->dtype(), DType::C128) ||
        !number(g->order(), KvOrder::TokenHeadDim) ||
        (g->scales() != uint8_t(KvScales::None) && g->scales() != uint8_t(KvScales::HeadToken)) ||
        (g->window() != 0) != (g->kind() == uint8_t(KvGroupKind::Window)) || (g->sinks() && !g->window()))
      return invalidError("a group of the llm section has an unknown kind, type, order, form of scales, window or sinks", where);
    KvGroup group;
    group.kind = static_cast<KvGroupKind>(g->kind());
    group.layers = g->layers();
    group.window = g->window();
    group.sinks = g->sinks();
    group.layout.dtype = static_cast<DType>(g->dtype());
    group.layout.blockTokens = g->block_tokens();
    group.layout.heads = g->heads();
    group.layout.headSizeK = g->head_size_k();
    group.layout.headSizeV = g->head_size_v();
    group.layout.order = static_cast<KvOrder>(g->order());
    group.layout.scales = static_cast<KvScales>(g->scales()); // of f32
    group.layout.alignment = kPoolAlignment;
    info.groups.push_back(group);
  }
  if (info.groups.empty() || info.vocabulary == 0 || info.entry.empty())
    return invalidError("the llm section lacks a group, vocabulary or entry", where);
  if (Status valid = validate(info.groups); !valid.ok())
    return invalidError(valid.message(), where);
  for (const auto *text : *source->proofs())
    info.proofs.push_back(text->str());
  for (const auto *text : *source->assumptions())
    info.assumptions.push_back(text->str());
  return info;
}

} // namespace lathe::engine
