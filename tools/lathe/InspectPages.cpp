//===- InspectPages.cpp - the pages of a paged decoder --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "InspectTables.h"
#include "Results.h"

#include <algorithm>
#include <cstdio>

namespace lathe::cli {
namespace {

namespace json = llvm::json;

/// Of a step, as lathe_llm.h has it without another wish.
constexpr uint32_t kStepTokens = 64;
/// So long that a window decides what a sequence holds.
constexpr uint32_t kLongTokens = 1u << 30;

/// Of all layers of the largest group: a page of the pool is any group's.
int64_t pageBytes(const engine::LlmInfo &info) {
  int64_t most = 0;
  for (const engine::KvGroup &group : info.groups)
    if (Result<engine::KvOffsets> offsets = engine::kvOffsets(group.layout))
      most = std::max(most, offsets->bytes * group.layers);
  return most;
}

/// Pages that a sequence holds, however long it gets; 0: as many as it has tokens for.
uint32_t mostPages(const engine::KvGroup &group) {
  return group.kind == engine::KvGroupKind::Window ? engine::kvBlocksPerSequence(group, kLongTokens, kStepTokens) : 0;
}

} // namespace

void printPages(const engine::LlmInfo &info) {
  const auto bytes = double(pageBytes(info));
  for (const engine::KvGroup &group : info.groups) {
    std::printf("keys and values of %u layers: pages of %u tokens, %s each\n", group.layers,
                group.layout.blockTokens, describeBytes(bytes).c_str());
    const std::string sinks = group.sinks ? " and the first " + std::to_string(group.sinks) : "";
    if (const uint32_t most = mostPages(group))
      std::printf("  a window of %u tokens%s: a sequence holds %u pages at most in steps of %u tokens, %s\n",
                  group.window, sinks.c_str(), most, kStepTokens, describeBytes(double(most) * bytes).c_str());
  }
}

json::Array pagesArray(const engine::LlmInfo &info) {
  json::Array groups;
  for (const engine::KvGroup &group : info.groups) {
    json::Object object{{"layers", group.layers},
                        {"page_tokens", group.layout.blockTokens},
                        {"page_bytes", pageBytes(info)}};
    if (const uint32_t most = mostPages(group)) {
      object["window"] = group.window;
      object["sinks"] = group.sinks;
      object["most_pages_of_a_sequence"] = most;
      object["step_tokens"] = kStepTokens;
    }
    groups.push_back(std::move(object));
  }
  return groups;
}

} // namespace lathe::cli
