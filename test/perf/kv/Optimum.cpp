//===- Optimum.cpp - the best hit rate any policy can reach -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Optimum.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace lathe::kvperf {
namespace {

constexpr uint32_t never = UINT32_MAX;

/// Held and present blocks while a trace is replayed; who leaves is somebody else's choice.
class Model {
public:
  explicit Model(const BlockTrace &trace)
      : trace(trace), holders(trace.nodeCount), present(trace.nodeCount),
        length(trace.nodes.size()) {}

  /// Nodes that got their first holder, and nodes that lost their last, deepest first.
  std::vector<uint32_t> acquired, released;

  /// Applies an event. Returns the hit in blocks, 0 for events other than Begin.
  uint32_t apply(const Event &event) {
    const std::vector<uint32_t> &nodes = trace.nodes[event.request];
    uint32_t before = length[event.request], hit = 0;
    acquired.clear();
    released.clear();
    if (event.kind == Event::Kind::Finish) {
      partials -= before % trace.blockTokens != 0;
      for (uint32_t i = before / trace.blockTokens; i-- > 0;)
        if (--holders[nodes[i]] == 0)
          released.push_back(nodes[i]);
      return 0;
    }
    uint32_t tokens = event.tokens;
    if (event.kind == Event::Kind::Begin) {
      tokens = trace.trace.requests[event.request].promptTokens();
      while (hit < (tokens - 1) / trace.blockTokens && present[nodes[hit]])
        ++hit;
    }
    uint32_t after = before + tokens;
    length[event.request] = after;
    partials -= before % trace.blockTokens != 0;
    partials += after % trace.blockTokens != 0;
    for (uint32_t i = before / trace.blockTokens; i < after / trace.blockTokens; ++i) {
      if (holders[nodes[i]]++ == 0)
        acquired.push_back(nodes[i]);
      presentCount += !present[nodes[i]];
      present[nodes[i]] = true;
    }
    return hit;
  }

  void evict(uint32_t node) {
    present[node] = false;
    --presentCount;
  }
  bool held(uint32_t node) const { return holders[node] != 0; }
  bool isPresent(uint32_t node) const { return present[node]; }
  uint32_t used() const { return presentCount + partials; }

private:
  const BlockTrace &trace;
  std::vector<uint32_t> holders;
  std::vector<bool> present;
  std::vector<uint32_t> length; ///< tokens of each request so far
  uint32_t presentCount = 0, partials = 0;
};

/// For each node the Begin events at which it can be part of a hit, in order.
class Uses {
public:
  explicit Uses(const BlockTrace &trace) : events(trace.nodeCount), cursor(trace.nodeCount) {
    for (uint32_t e = 0; e < trace.trace.events.size(); ++e) {
      const Event &event = trace.trace.events[e];
      if (event.kind != Event::Kind::Begin)
        continue;
      uint32_t prompt = trace.trace.requests[event.request].promptTokens();
      for (uint32_t i = 0; i < (prompt - 1) / trace.blockTokens; ++i)
        events[trace.nodes[event.request][i]].push_back(e);
    }
  }

  /// The first use of `node` after event `now`; `now` must not decrease from call to call.
  uint32_t next(uint32_t node, uint32_t now) {
    uint32_t &at = cursor[node];
    while (at < events[node].size() && events[node][at] <= now)
      ++at;
    return at < events[node].size() ? events[node][at] : never;
  }

private:
  std::vector<std::vector<uint32_t>> events;
  std::vector<uint32_t> cursor;
};

/// Tries every victim at every moment that asks for one; a moment with the same blocks present is
/// tried once.
class Exhaustive {
public:
  Exhaustive(const BlockTrace &trace, uint32_t capacity) : trace(trace), capacity(capacity) {}

  /// The most blocks that can be hit from event number `event` on.
  uint64_t best(const Model &model, uint32_t event) {
    if (model.used() <= capacity) {
      if (event == trace.trace.events.size())
        return 0;
      Model next = model;
      uint32_t hit = next.apply(trace.trace.events[event]);
      return hit + best(next, event + 1);
    }
    std::vector<bool> present(trace.nodeCount);
    for (uint32_t node = 0; node < trace.nodeCount; ++node)
      present[node] = model.isPresent(node);
    if (auto known = memo.find({event, present}); known != memo.end())
      return known->second;
    uint64_t most = 0;
    for (uint32_t node = 0; node < trace.nodeCount; ++node) {
      if (!present[node] || model.held(node))
        continue;
      Model next = model;
      next.evict(node);
      most = std::max(most, best(next, event));
    }
    memo.emplace(std::pair(event, std::move(present)), most);
    return most;
  }

private:
  const BlockTrace &trace;
  uint32_t capacity;
  std::map<std::pair<uint32_t, std::vector<bool>>, uint64_t> memo;
};

} // namespace

BlockTrace::BlockTrace(const Trace &trace, uint32_t blockTokens)
    : trace(trace), blockTokens(blockTokens) {
  std::unordered_map<uint64_t, uint32_t> known;
  for (const Request &request : trace.requests) {
    queriedTokens += request.promptTokens();
    std::vector<uint32_t> tokens = trace.tokens(request);
    std::vector<uint32_t> &chain = nodes.emplace_back();
    uint64_t hash = 0;
    for (size_t end = blockTokens; end <= tokens.size(); end += blockTokens) {
      for (size_t i = end - blockTokens; i < end; ++i)
        hash = mix(hash + tokens[i]);
      auto [entry, isNew] = known.try_emplace(hash, nodeCount);
      if (isNew) {
        depth.push_back(uint32_t(chain.size()));
        ++nodeCount;
      }
      chain.push_back(entry->second);
    }
  }
  // With no room for others, what is present is what is held.
  Model model(*this);
  for (const Event &event : trace.events) {
    model.apply(event);
    for (uint32_t node : model.released)
      model.evict(node);
    peakHeld = std::max(peakHeld, model.used());
  }
}

Score idealScore(const BlockTrace &trace, uint32_t capacity, Rule rule) {
  Model model(trace);
  Uses uses(trace);
  // Blocks that nobody holds; the first of the set leaves first.
  std::set<std::pair<uint64_t, uint32_t>> idle;
  std::vector<uint64_t> key(trace.nodeCount);
  Score score;
  uint64_t clock = 0;
  for (uint32_t e = 0; e < trace.trace.events.size(); ++e) {
    score.hitTokens += uint64_t(model.apply(trace.trace.events[e])) * trace.blockTokens;
    for (uint32_t node : model.acquired)
      idle.erase({key[node], node});
    for (uint32_t node : model.released) {
      uint32_t next = rule == Rule::Clairvoyant ? uses.next(node, e) : 0;
      if (next == never) {
        model.evict(node);
        continue;
      }
      // Later and deeper first; `released` has the deepest first.
      key[node] = rule == Rule::Clairvoyant
                      ? (uint64_t(never - next) << 32) | (never - trace.depth[node])
                  : rule == Rule::Lru ? clock++
                                      : mix(clock++);
      idle.insert({key[node], node});
    }
    while (model.used() > capacity) {
      if (idle.empty())
        return {};
      model.evict(idle.begin()->second);
      idle.erase(idle.begin());
    }
  }
  score.feasible = true;
  return score;
}

uint64_t exhaustiveHitTokens(const BlockTrace &trace, uint32_t capacity) {
  return Exhaustive(trace, capacity).best(Model(trace), 0) * trace.blockTokens;
}

} // namespace lathe::kvperf
