//===- ScheduleSearch.cpp - orders with a low peak --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A cut is a step that every other one comes before or after. What is alive at a cut
// is the same in all orders, so the segments between cuts are searched on their own:
// level by level, a state being the set of steps that have run (its live bytes follow
// from the set, so of two ways to a set the one of lower peak is kept). With all states
// of a level the search is exact; where they are too many, the best by (peak, live
// bytes) stay: a beam, and with one state list scheduling by net bytes freed.
//
// A ready step that frees at least what it makes, without going above the peak so far,
// runs at once: no order is better for waiting (dominance).
//
// The search over prefixes follows Ahn et al., "Ordering Chaos: Memory-Aware Scheduling
// of Irregularly Wired Neural Networks for Edge Devices" (MLSys 2020).
//
//===----------------------------------------------------------------------===//
#include "ScheduleSearch.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace lathe::analysis {
namespace {

int64_t alignUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Steps and values of one segment, numbered from 0, and the search over its orders.
class Segment {
public:
  Segment(const ScheduleGraph &graph, const std::vector<std::vector<int>> &readers, int first,
          int last)
      : first(first), count(last - first) {
    auto size = [&](int v) { return alignUp(graph.values[v].bytes, graph.alignment); };
    std::unordered_map<int, int> local;
    auto number = [&](int v) {
      auto [it, fresh] = local.try_emplace(v, static_cast<int>(bytes.size()));
      if (fresh) {
        bytes.push_back(size(v));
        // Readers behind the segment count as one that never comes.
        int inside = 0;
        bool outside = graph.values[v].kept;
        for (int r : readers[v])
          (r >= last ? outside = true : (r >= first ? (++inside, false) : false));
        remaining.push_back(static_cast<uint32_t>(inside + outside));
      }
      return it->second;
    };
    steps.resize(count);
    successors.resize(count);
    waiting.resize(count, 0);
    for (int s = 0; s < count; ++s) {
      const ScheduleStep &from = graph.steps[first + s];
      Step &to = steps[s];
      to.workspace = alignUp(from.workspace, graph.alignment);
      for (int v : from.reads)
        if (graph.values[v].bytes > 0)
          to.reads.push_back(number(v));
      for (int v : from.writes)
        if (graph.values[v].bytes > 0) {
          to.writes.push_back(number(v));
          to.made += size(v);
        }
      for (InPlace p : from.inPlace)
        if (graph.values[p.read].bytes > 0 && !graph.values[p.read].kept)
          to.inPlace.emplace_back(number(p.write), number(p.read));
    }
  }

  /// Steps of the segment that come before `s`, and after: local numbers.
  void addEdge(int before, int after) {
    successors[before].push_back(after);
    ++waiting[after];
  }

  /// Bytes that are alive in step `s` whatever the order.
  int64_t floor(int s) const {
    const Step &step = steps[s];
    int64_t sum = step.made + step.workspace - shared(step, [](int) { return true; });
    for (int v : step.reads)
      sum += bytes[v];
    return sum;
  }

  struct State {
    std::vector<uint64_t> done;
    std::vector<uint32_t> remaining, waiting;
    int64_t live = 0, peak = 0;
    int node = -1;
  };

  State start(int64_t live) const {
    State s;
    s.done.assign((count + 63) / 64, 0);
    s.remaining = remaining;
    s.waiting = waiting;
    s.live = live;
    return s;
  }

  /// Runs a step: live bytes and peak afterwards.
  void advance(State &s, int step) const {
    const Step &what = steps[step];
    s.peak = std::max(s.peak, during(s, step));
    s.live += net(s, step);
    for (int v : what.reads)
      --s.remaining[v];
    s.done[step / 64] |= uint64_t(1) << (step % 64);
    for (int next : successors[step])
      --s.waiting[next];
  }

  /// The lowest peak below `limit` from a state of these live bytes, at most `width`
  /// states a level; empty when there is none. `truncated` is set where states were left out.
  std::vector<int> search(int64_t live, int64_t floor, int64_t limit, size_t width, int64_t &work,
                          bool &truncated) const {
    std::vector<State> level{start(live)};
    level[0].peak = floor;
    std::vector<std::pair<int, int>> nodes; // parent, step
    for (int length = 0; length < count; ++length) {
      std::vector<State> next;
      std::unordered_map<std::string, size_t> index;
      for (const State &s : level) {
        if (work < 0) {
          truncated = true;
          return {};
        }
        for (int step : candidates(s, work)) {
          int64_t peak = std::max(s.peak, during(s, step));
          if (peak >= limit)
            continue;
          std::vector<uint64_t> done = s.done;
          done[step / 64] |= uint64_t(1) << (step % 64);
          std::string key(reinterpret_cast<const char *>(done.data()), done.size() * 8);
          auto [it, fresh] = index.try_emplace(std::move(key), next.size());
          if (!fresh && next[it->second].peak <= peak)
            continue;
          nodes.emplace_back(s.node, step);
          if (!fresh) {
            next[it->second].peak = peak;
            next[it->second].node = static_cast<int>(nodes.size()) - 1;
            continue;
          }
          next.push_back(s);
          advance(next.back(), step);
          next.back().node = static_cast<int>(nodes.size()) - 1;
          work -= static_cast<int64_t>(count) / 8 + 8;
        }
      }
      if (next.size() > width) {
        truncated = true;
        std::sort(next.begin(), next.end(), [](const State &a, const State &b) {
          return std::tuple(a.peak, a.live, a.node) < std::tuple(b.peak, b.live, b.node);
        });
        next.resize(width);
      }
      level = std::move(next);
      if (level.empty())
        return {};
    }
    const State *best = &level[0]; // all of them are the whole set: there is one
    std::vector<int> order;
    for (int node = best->node; node >= 0; node = nodes[node].first)
      order.push_back(nodes[node].second);
    std::reverse(order.begin(), order.end());
    return order;
  }

  const int first, count;

private:
  struct Step {
    std::vector<int> reads, writes;
    std::vector<std::pair<int, int>> inPlace; ///< write, read
    int64_t made = 0, workspace = 0;
  };

  template <typename Dies> int64_t shared(const Step &step, Dies dies) const {
    int64_t sum = 0;
    std::vector<int> taken;
    for (auto [write, read] : step.inPlace)
      if (dies(read) && std::find(taken.begin(), taken.end(), read) == taken.end() &&
          std::find(taken.begin(), taken.end(), ~write) == taken.end()) {
        taken.push_back(read);
        taken.push_back(~write);
        sum += bytes[write];
      }
    return sum;
  }

  int64_t during(const State &s, int step) const {
    const Step &what = steps[step];
    return s.live + what.made + what.workspace -
           shared(what, [&](int v) { return s.remaining[v] == 1; });
  }

  int64_t net(const State &s, int step) const {
    int64_t sum = steps[step].made;
    for (int v : steps[step].reads)
      if (s.remaining[v] == 1)
        sum -= bytes[v];
    for (int v : steps[step].writes)
      if (s.remaining[v] == 0)
        sum -= bytes[v];
    return sum;
  }

  /// Ready steps; only one where one dominates.
  std::vector<int> candidates(const State &s, int64_t &work) const {
    std::vector<int> ready;
    for (int step = 0; step < count; ++step) {
      if (s.waiting[step] || (s.done[step / 64] >> (step % 64) & 1))
        continue;
      work -= static_cast<int64_t>(steps[step].reads.size()) + 2;
      if (net(s, step) <= 0 && during(s, step) <= s.peak)
        return {step};
      ready.push_back(step);
    }
    work -= count / 16;
    return ready;
  }

  std::vector<Step> steps;
  std::vector<std::vector<int>> successors;
  std::vector<uint32_t> waiting, remaining;
  std::vector<int64_t> bytes;
};

/// Predecessors of each step, sorted.
std::vector<std::vector<int>> predecessors(const ScheduleGraph &graph,
                                           const std::vector<int> &writer) {
  std::vector<std::vector<int>> out(graph.steps.size());
  for (size_t s = 0; s < graph.steps.size(); ++s) {
    out[s] = graph.steps[s].after;
    for (int v : graph.steps[s].reads)
      if (writer[v] >= 0)
        out[s].push_back(writer[v]);
    std::sort(out[s].begin(), out[s].end());
    out[s].erase(std::unique(out[s].begin(), out[s].end()), out[s].end());
  }
  return out;
}

/// Ends of segments: one behind each cut, and the number of steps.
std::vector<int> segmentEnds(const std::vector<std::vector<int>> &before) {
  int n = static_cast<int>(before.size());
  std::vector<int> firstAfter(n, n), lastBefore(n, -1);
  for (int s = 0; s < n; ++s)
    for (int p : before[s]) {
      firstAfter[p] = std::min(firstAfter[p], s);
      lastBefore[s] = std::max(lastBefore[s], p);
    }
  // c is a cut when each step before it leads on within [0, c], and each behind it comes
  // from within [c, n).
  std::vector<int> suffix(n + 1, n);
  for (int s = n - 1; s >= 0; --s)
    suffix[s] = std::min(suffix[s + 1], lastBefore[s]);
  std::vector<int> ends;
  int reach = 0;
  for (int c = 0; c < n; ++c) {
    if (reach <= c && suffix[c + 1] >= c)
      ends.push_back(c + 1);
    reach = std::max(reach, firstAfter[c]);
  }
  if (ends.empty() || ends.back() != n)
    ends.push_back(n);
  return ends;
}

} // namespace

FoundOrder searchOrder(const ScheduleGraph &graph, const ScheduleOptions &options) {
  int n = static_cast<int>(graph.steps.size());
  std::vector<std::vector<int>> readers(graph.values.size());
  std::vector<int> writer(graph.values.size(), -1);
  for (int s = 0; s < n; ++s) {
    for (int v : graph.steps[s].reads)
      readers[v].push_back(s);
    for (int v : graph.steps[s].writes)
      writer[v] = s;
  }
  std::vector<std::vector<int>> before = predecessors(graph, writer);

  struct Part {
    Segment segment;
    int64_t live = 0, written = 0, best = 0;
    std::vector<int> order; ///< local; empty: as written
    bool exact = true;
  };
  std::vector<Part> parts;
  int64_t floor = 0;
  std::vector<int> ends = segmentEnds(before);
  // What is alive at the start of each segment.
  std::vector<int64_t> change(n + 1, 0);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (writer[v] < 0 || graph.values[v].bytes == 0)
      continue;
    int64_t size = alignUp(graph.values[v].bytes, graph.alignment);
    int last = readers[v].empty() ? writer[v] : readers[v].back();
    change[writer[v] + 1] += size;
    if (!graph.values[v].kept)
      change[last + 1] -= size;
  }
  std::vector<int64_t> live(n + 1, 0);
  for (int s = 0; s < n; ++s)
    live[s + 1] = live[s] + change[s + 1];
  int begin = 0;
  for (int end : ends) {
    parts.push_back({Segment(graph, readers, begin, end)});
    Part &part = parts.back();
    part.live = live[begin];
    for (int s = begin; s < end; ++s)
      for (int p : before[s])
        if (p >= begin)
          part.segment.addEdge(p - begin, s - begin);
    Segment::State state = part.segment.start(part.live);
    for (int s = 0; s < end - begin; ++s) {
      floor = std::max(floor, part.segment.floor(s));
      part.segment.advance(state, s);
    }
    part.written = part.best = state.peak;
    begin = end;
  }

  // The highest first: nothing below the best of it needs a search.
  std::vector<size_t> byPeak(parts.size());
  std::iota(byPeak.begin(), byPeak.end(), size_t(0));
  std::sort(byPeak.begin(), byPeak.end(), [&](size_t a, size_t b) {
    return std::pair(-parts[a].written, a) < std::pair(-parts[b].written, b);
  });
  FoundOrder found;
  found.exact = true;
  int64_t target = floor, work = options.work;
  for (size_t index : byPeak) {
    Part &part = parts[index];
    if (part.written <= target)
      break;
    std::vector<size_t> widths = {1, static_cast<size_t>(std::max(1, options.beam))};
    if (part.segment.count <= 64)
      widths.push_back(static_cast<size_t>(std::max(1, options.exactStates)));
    part.exact = false;
    for (size_t width : widths) {
      if (part.best <= target || work < 0)
        break;
      bool truncated = false;
      std::vector<int> order =
          part.segment.search(part.live, target, part.best, width, work, truncated);
      if (!order.empty()) {
        Segment::State state = part.segment.start(part.live);
        for (int step : order)
          part.segment.advance(state, step);
        part.best = state.peak;
        part.order = std::move(order);
      }
      if ((part.exact = !truncated))
        break;
    }
    part.exact |= part.best <= target;
    found.exact &= part.exact;
    target = std::max(target, part.best);
  }
  for (const Part &part : parts) {
    bool asWritten = part.order.empty() || part.written <= target;
    for (int i = 0; i < part.segment.count; ++i)
      found.order.push_back(part.segment.first + (asWritten ? i : part.order[i]));
  }
  return found;
}

} // namespace lathe::analysis
