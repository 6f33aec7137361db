//===- Schedule.cpp - the order of steps that needs least memory ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stages, each accepted only if the arena that is planned for it is lower:
//
//   written     the order as given, each value with memory of its own
//   order       another topological order (ScheduleSearch.cpp)
//   in place    results in the memory of operands that die
//   recompute   cheap values made again before later readers
//
// Recomputing: where the live bytes are highest, a cheap value that lies idle across
// all such steps is made again before its next reader. Several values may be needed
// before the peak falls; what does not help is taken back.
//
//===----------------------------------------------------------------------===//
#include "ScheduleSearch.h"

#include <algorithm>
#include <numeric>

namespace lathe::analysis {
namespace {

int64_t alignUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Where each value begins to live and from where on it does not: [begin, end) in positions.
struct Lifetimes {
  std::vector<int64_t> begin, end;

  Lifetimes(const ScheduleGraph &graph, const std::vector<int> &order,
            const std::vector<int> &memoryOf) {
    size_t n = graph.values.size();
    begin.assign(n, INT64_MAX);
    end.assign(n, 0);
    for (size_t at = 0; at < order.size(); ++at) {
      const ScheduleStep &step = graph.steps[order[at]];
      for (const std::vector<int> *list : {&step.reads, &step.writes})
        for (int v : *list) {
          int root = memoryOf.empty() ? v : memoryOf[v];
          begin[root] = std::min(begin[root], static_cast<int64_t>(at));
          end[root] = std::max(end[root], static_cast<int64_t>(at) + 1);
        }
    }
    for (size_t v = 0; v < n; ++v) {
      int root = memoryOf.empty() ? static_cast<int>(v) : memoryOf[v];
      if (graph.values[v].kept && end[root] > 0)
        end[root] = static_cast<int64_t>(order.size());
    }
    for (size_t v = 0; v < n; ++v)
      begin[v] = std::min(begin[v], end[v]);
  }
};

/// Bytes alive at each position.
std::vector<int64_t> liveBytes(const ScheduleGraph &graph, const std::vector<int> &order,
                               const std::vector<int> &memoryOf) {
  Lifetimes life(graph, order, memoryOf);
  std::vector<int64_t> live(order.size() + 1, 0);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!memoryOf.empty() && memoryOf[v] != static_cast<int>(v))
      continue;
    int64_t size = alignUp(graph.values[v].bytes, graph.alignment);
    live[life.begin[v]] += size;
    live[life.end[v]] -= size;
  }
  for (size_t i = 0; i < order.size(); ++i)
    live[i + 1] += live[i];
  live.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    live[i] += alignUp(graph.steps[order[i]].workspace, graph.alignment);
  return live;
}

int64_t highest(const std::vector<int64_t> &live) {
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

class Recomputer {
public:
  Recomputer(const ScheduleGraph &given, const ScheduleOptions &options, std::vector<int> order)
      : given(given), graph(given), order(std::move(order)), leastGain(options.recomputeGain / 4),
        useInPlace(options.inPlace) {
    int64_t total = 0;
    for (const ScheduleStep &step : given.steps)
      total += step.traffic;
    budget = static_cast<int64_t>(options.recompute * static_cast<double>(total));
    writer.assign(given.values.size(), -1);
    for (size_t s = 0; s < given.steps.size(); ++s)
      for (int v : given.steps[s].writes)
        writer[v] = static_cast<int>(s);
  }

  /// Lowers the peak as long as that succeeds.
  void run() {
    int64_t peak = peakNow();
    while (improve(peak))
      ;
  }

  const ScheduleGraph &given;
  ScheduleGraph graph;
  std::vector<int> order;
  std::vector<Recompute> recomputes;

private:
  std::vector<int> memory() const {
    return useInPlace ? takeMemory(graph, order) : std::vector<int>();
  }
  int64_t peakNow() const { return highest(liveBytes(graph, order, memory())); }

  struct Saved {
    ScheduleGraph graph;
    std::vector<int> order;
    std::vector<Recompute> recomputes;
    int64_t budget;
  };

  bool improve(int64_t &peak) {
    Saved saved{graph, order, recomputes, budget};
    std::vector<bool> tried(given.values.size(), false);
    for (;;) {
      int value = candidate(tried);
      if (value < 0)
        break;
      tried[value] = true;
      std::vector<int64_t> live = liveBytes(graph, order, memory());
      Saved before{graph, order, recomputes, budget};
      split(value, live, highest(live));
      int64_t now = budget < 0 ? INT64_MAX : peakNow();
      // A step that runs again shall be worth it each time.
      if (static_cast<double>(now) < static_cast<double>(peak) * (1 - leastGain)) {
        peak = now;
        return true;
      }
      if (now > peak)
        restore(before);
    }
    restore(saved);
    return false;
  }

  void restore(const Saved &saved) {
    graph = saved.graph;
    order = saved.order;
    recomputes = saved.recomputes;
    budget = saved.budget;
  }

  /// The largest cheap value that lies idle at the first of the highest positions.
  int candidate(const std::vector<bool> &tried) const {
    std::vector<int64_t> live = liveBytes(graph, order, memory());
    auto at = static_cast<int64_t>(std::max_element(live.begin(), live.end()) - live.begin());
    Lifetimes life(graph, order, {});
    int best = -1;
    for (size_t v = 0; v < given.values.size(); ++v) {
      if (tried[v] || given.values[v].kept || writer[v] < 0 || given.values[v].bytes == 0 ||
          !given.steps[writer[v]].cheap || given.steps[writer[v]].writes.size() != 1)
        continue;
      if (life.begin[v] >= at || life.end[v] <= at + 1 || touches(order[at], static_cast<int>(v)))
        continue;
      if (best < 0 || given.values[v].bytes > given.values[best].bytes)
        best = static_cast<int>(v);
    }
    return best;
  }

  bool touches(int step, int v) const {
    const ScheduleStep &s = graph.steps[step];
    return std::find(s.reads.begin(), s.reads.end(), v) != s.reads.end();
  }

  /// Makes the value again before each reader that follows a position of these live bytes.
  void split(int value, const std::vector<int64_t> &live, int64_t peak) {
    int source = writer[value], current = value, sourceAt = 0;
    std::vector<int> rewritten;
    bool crossed = false;
    for (size_t at = 0; at < order.size(); ++at) {
      int s = order[at];
      bool reads = touches(s, value);
      if (s == source)
        sourceAt = static_cast<int>(at);
      if (reads && crossed && sourceAt < static_cast<int>(at)) {
        current = static_cast<int>(graph.values.size());
        graph.values.push_back(given.values[value]);
        graph.steps.push_back(given.steps[source]);
        graph.steps.back().writes = {current};
        for (InPlace &p : graph.steps.back().inPlace)
          p.write = current;
        budget -= given.steps[source].traffic;
        recomputes.push_back({source, current, s, {}});
        rewritten.push_back(static_cast<int>(graph.steps.size()) - 1);
        crossed = false;
      }
      crossed |= !reads && live[at] >= peak;
      if (current != value && reads) {
        std::replace(graph.steps[s].reads.begin(), graph.steps[s].reads.end(), value, current);
        for (InPlace &p : graph.steps[s].inPlace)
          if (p.read == value)
            p.read = current;
        recomputes.back().readers.push_back(s);
      }
      if (!rewritten.empty() && reads && recomputes.back().before == s)
        fresh.emplace_back(s, rewritten.back());
      else
        fresh.emplace_back(s, -1);
    }
    std::vector<int> next;
    for (auto [s, clone] : fresh) {
      if (clone >= 0)
        next.push_back(clone);
      next.push_back(s);
    }
    fresh.clear();
    order = std::move(next);
  }

  double leastGain;
  bool useInPlace;
  int64_t budget = 0;
  std::vector<int> writer; ///< of the given graph
  std::vector<std::pair<int, int>> fresh;
};

} // namespace

Status checkGraph(const ScheduleGraph &graph) {
  int n = static_cast<int>(graph.values.size());
  std::vector<int> writer(n, -1), reader(n, INT32_MAX);
  if (graph.alignment < 1)
    return invalidError("the alignment is below 1", "schedule");
  for (const ScheduleValue &v : graph.values)
    if (v.bytes < 0 || v.bytes > INT64_MAX / 4)
      return invalidError("a value of a negative or too large size", "schedule");
  for (size_t i = 0; i < graph.steps.size(); ++i) {
    const ScheduleStep &step = graph.steps[i];
    std::string where = "step " + std::to_string(i);
    auto known = [&](int v) { return v >= 0 && v < n; };
    if (step.workspace < 0 || step.traffic < 0)
      return invalidError("negative size", where);
    for (int v : step.reads) {
      if (!known(v))
        return invalidError("reads a value that does not exist", where);
      reader[v] = std::min(reader[v], static_cast<int>(i));
    }
    for (int v : step.writes) {
      if (!known(v))
        return invalidError("writes a value that does not exist", where);
      if (writer[v] >= 0)
        return invalidError("writes a value that step " + std::to_string(writer[v]) + " writes",
                            where);
      if (reader[v] <= static_cast<int>(i))
        return invalidError("writes a value that is read before", where);
      writer[v] = static_cast<int>(i);
    }
    for (int s : step.after)
      if (s < 0 || s >= static_cast<int>(i))
        return invalidError("comes after a step that does not come before it", where);
    for (InPlace p : step.inPlace)
      if (std::find(step.writes.begin(), step.writes.end(), p.write) == step.writes.end() ||
          std::find(step.reads.begin(), step.reads.end(), p.read) == step.reads.end() ||
          graph.values[p.write].bytes != graph.values[p.read].bytes)
        return invalidError("shares memory of values that it does not read and write alike", where);
  }
  return okStatus();
}

ScheduleGraph extendedGraph(const ScheduleGraph &graph, const std::vector<Recompute> &recomputes) {
  ScheduleGraph out = graph;
  for (const Recompute &r : recomputes) {
    int value = graph.steps[r.step].writes.at(0);
    out.values.push_back(graph.values[value]);
    out.steps.push_back(graph.steps[r.step]);
    out.steps.back().writes = {r.value};
    for (InPlace &p : out.steps.back().inPlace)
      p.write = r.value;
    for (int s : r.readers) {
      std::replace(out.steps[s].reads.begin(), out.steps[s].reads.end(), value, r.value);
      for (InPlace &p : out.steps[s].inPlace)
        if (p.read == value)
          p.read = r.value;
    }
  }
  return out;
}

std::vector<int> takeMemory(const ScheduleGraph &graph, const std::vector<int> &order) {
  std::vector<int> memoryOf(graph.values.size());
  std::iota(memoryOf.begin(), memoryOf.end(), 0);
  // The last position that reads a value; a root's is the last of all that have its memory.
  std::vector<int> last(graph.values.size(), -1), written(graph.values.size(), -1);
  for (size_t at = 0; at < order.size(); ++at) {
    for (int v : graph.steps[order[at]].reads)
      last[v] = static_cast<int>(at);
    for (int v : graph.steps[order[at]].writes)
      written[v] = static_cast<int>(at);
  }
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].kept)
      last[v] = INT32_MAX;
  std::vector<bool> taken(graph.values.size(), false);
  for (size_t at = 0; at < order.size(); ++at)
    for (InPlace p : graph.steps[order[at]].inPlace) {
      // A value without a writer lives elsewhere, one without bytes nowhere.
      if (written[p.read] < 0 || graph.values[p.read].bytes == 0 || taken[p.read] ||
          last[p.read] != static_cast<int>(at) || memoryOf[p.write] != p.write)
        continue;
      taken[p.read] = true;
      memoryOf[p.write] = memoryOf[p.read];
    }
  return memoryOf;
}

Problem scheduleProblem(const ScheduleGraph &graph, const std::vector<int> &order,
                        const std::vector<int> &memoryOf) {
  Lifetimes life(graph, order, memoryOf);
  Problem problem;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    Buffer b;
    b.alignment = graph.alignment;
    if (memoryOf.empty() || memoryOf[v] == static_cast<int>(v)) {
      b.size = graph.values[v].bytes;
      b.begin = life.begin[v];
      b.end = life.end[v];
    }
    problem.buffers.push_back(b);
  }
  for (size_t at = 0; at < order.size(); ++at)
    if (int64_t bytes = graph.steps[order[at]].workspace) {
      Buffer b;
      b.size = bytes;
      b.alignment = graph.alignment;
      b.begin = static_cast<int64_t>(at);
      b.end = b.begin + 1;
      problem.buffers.push_back(b);
    }
  return problem;
}

int64_t schedulePeak(const ScheduleGraph &graph, const std::vector<int> &order,
                     const std::vector<int> &memoryOf) {
  return highest(liveBytes(graph, order, memoryOf));
}

Result<SchedulePlan> planSchedule(const ScheduleGraph &graph, const ScheduleOptions &options) {
  LATHE_RETURN_IF_ERROR(checkGraph(graph));
  SchedulePlan plan;
  Status status;
  int64_t height = INT64_MAX;
  // Plans one stage; what it gives is taken when the arena is lower than before.
  auto offer = [&](const char *name, const ScheduleGraph &g, const std::vector<int> &order,
                   const std::vector<int> &memoryOf, int64_t gain = 1) {
    int64_t peak = schedulePeak(g, order, memoryOf);
    if (!status.ok() || peak > height - gain)
      return false;
    Result<Solution> solution = planMemory(scheduleProblem(g, order, memoryOf), options.plan);
    if (!solution) {
      status = solution.status();
      return false;
    }
    if (solution->height > height - gain)
      return false;
    height = solution->height;
    plan.stages.push_back({name, peak, height});
    plan.order = order;
    plan.memoryOf = memoryOf;
    return true;
  };
  std::vector<int> own(graph.values.size()), order(graph.steps.size());
  std::iota(own.begin(), own.end(), 0);
  std::iota(order.begin(), order.end(), 0);
  offer("written", graph, order, own);
  std::vector<int> found = order;
  if (options.reorder) {
    FoundOrder best = searchOrder(graph, options);
    plan.exact = best.exact;
    found = best.order;
    if (found != order && offer("order", graph, found, own))
      order = found;
  }
  if (options.inPlace) {
    offer("in place", graph, order, takeMemory(graph, order));
    // An order may pay only together with the memory that it lets results take.
    if (found != order && offer("order", graph, found, takeMemory(graph, found)))
      order = found;
  }
  if (options.rematerialise && status.ok()) {
    Recomputer again(graph, options, order);
    again.run();
    if (!again.recomputes.empty()) {
      std::vector<int> memoryOf(again.graph.values.size());
      std::iota(memoryOf.begin(), memoryOf.end(), 0);
      if (options.inPlace)
        memoryOf = takeMemory(again.graph, again.order);
      auto part = static_cast<int64_t>(options.recomputeGain * static_cast<double>(height));
      if (offer("recompute", again.graph, again.order, memoryOf,
                std::max({int64_t(1), part, options.recomputeBytes})))
        plan.recomputes = again.recomputes;
    }
  }
  if (!status.ok())
    return status;
  return plan;
}

} // namespace lathe::analysis
