//===- PageStatesGroups.cpp - layers that share a table of pages ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A page holds the keys and values of some layers, and goes back when none of them sees it any more. So layers with a
// window have pages of their own beside those that see all, which then keep less. As any page of the pool may be any
// group's, all groups have room for equally many layers:
//
//   layers 0 to 5 with a window, 6 without, 7 to 9 with one   =>   pages of one layer: 9 groups of one layer, or
//                                                                  pages of five:      6 .. | 0 1 2 3 4 | 5 7 8 9 .
//
// What a long sequence keeps decides, layers that pad a page among it.
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

#include "lathe/engine/KvLayout.h"

namespace lathe::paging {

/// So long that windows matter.
static constexpr int64_t kLongTokens = 32768;
/// That a group of layers can have; a wider one gives nothing up.
static constexpr int64_t kWidestWindow = int64_t(1) << 30;

namespace {

struct Kind {
  Group group; ///< with all layers of this window
  std::vector<size_t> layers;
};

int64_t keptTokens(const Group &group) {
  return group.window ? std::min(*group.window + 1 + group.sinks, kLongTokens) : kLongTokens;
}
int64_t groupsOf(const Kind &kind, int64_t layers) { return (kind.group.layers + layers - 1) / layers; }

} // namespace

void groupLayers(Decoder &decoder) {
  std::vector<Kind> kinds;
  Group widest{0, 0, 0}; // of all layers
  for (auto [i, layer] : llvm::enumerate(decoder.layers)) {
    Group own{0, layer.window, layer.sinks};
    if (own.window && std::max(*own.window + 1, own.sinks) > kWidestWindow)
      own = {};
    auto kind = llvm::find_if(kinds, [&](const Kind &k) { return k.group.window == own.window && k.group.sinks == own.sinks; });
    if (kind == kinds.end())
      kind = kinds.insert(kinds.end(), Kind{own, {}});
    ++kind->group.layers;
    kind->layers.push_back(i);
    ++widest.layers;
    widest.window = widest.window && own.window ? std::optional(std::max(*widest.window, *own.window)) : std::nullopt;
    widest.sinks = std::max(widest.sinks, own.sinks);
  }
  if (!widest.window)
    widest.sinks = 0;
  // Of one group, or of groups of so many layers.
  int64_t best = 0, least = widest.layers * keptTokens(widest), fewest = 1;
  for (int64_t size = 1; kinds.size() > 1 && size <= widest.layers; ++size) {
    int64_t kept = 0, groups = 0;
    for (const Kind &kind : kinds) {
      groups += groupsOf(kind, size);
      kept += groupsOf(kind, size) * size * keptTokens(kind.group);
    }
    if (groups > int64_t(engine::kMostKvGroups) || kept > least || (kept == least && groups >= fewest))
      continue;
    best = size;
    least = kept;
    fewest = groups;
  }
  decoder.groups.clear();
  if (best == 0) {
    decoder.groups.push_back(widest);
    for (auto [i, layer] : llvm::enumerate(decoder.layers))
      layer.group = 0, layer.number = i;
    return;
  }
  for (const Kind &kind : kinds)
    for (size_t k = 0; k < kind.layers.size(); ++k) {
      if (k % best == 0) {
        decoder.groups.push_back(kind.group);
        decoder.groups.back().layers = 0;
      }
      Layer &layer = decoder.layers[kind.layers[k]];
      layer.group = decoder.groups.size() - 1;
      layer.number = size_t(decoder.groups.back().layers++);
    }
}

} // namespace lathe::paging
