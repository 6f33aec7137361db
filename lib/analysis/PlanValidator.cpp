//===- PlanValidator.cpp - independent check of memory plans ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sweep over time keeps the occupied ranges of the arena sorted by offset, so
// that each buffer is compared with its two neighbours only.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/PlanValidator.h"

#include <algorithm>
#include <map>
#include <set>

namespace lathe::analysis {
namespace {

std::string label(int i) { return "buffer " + std::to_string(i); }

class Validator {
public:
  Validator(const Problem &problem, const Solution &solution)
      : buffers(problem.buffers), problem(problem), solution(solution) {}

  Status run() {
    if (solution.offsets.size() != buffers.size())
      return invalidError("plan has " + std::to_string(solution.offsets.size()) +
                          " offsets for " + std::to_string(buffers.size()) + " buffers");
    LATHE_RETURN_IF_ERROR(checkPlaces());
    return problem.conflicts ? checkPairs() : sweep();
  }

private:
  Status checkPlaces() {
    std::map<int, int> groups;
    int64_t height = 0;
    for (int i = 0; i < static_cast<int>(buffers.size()); ++i) {
      const Buffer &b = buffers[i];
      int64_t offset = solution.offsets[i], top;
      if (offset < 0 || b.size < 0 || __builtin_add_overflow(offset, b.size, &top))
        return invalidError("offset " + std::to_string(offset) + " is out of range", label(i));
      if (b.alignment < 1 || offset % b.alignment != 0)
        return invalidError("offset " + std::to_string(offset) + " is not a multiple of " +
                                std::to_string(b.alignment), label(i));
      if (b.offset && *b.offset != offset)
        return invalidError("offset " + std::to_string(offset) + " is not the fixed " +
                                std::to_string(*b.offset), label(i));
      if (b.aliasGroup >= 0) {
        auto [it, fresh] = groups.try_emplace(b.aliasGroup, i);
        if (!fresh && solution.offsets[it->second] != offset)
          return invalidError("does not stand where " + label(it->second) +
                                  " of its alias group does", label(i));
      }
      height = std::max(height, top);
    }
    if (height != solution.height)
      return invalidError("height is " + std::to_string(height) + ", the plan says " +
                          std::to_string(solution.height));
    if (height > problem.capacity)
      return invalidError("height " + std::to_string(height) + " is above the capacity " +
                          std::to_string(problem.capacity));
    return okStatus();
  }

  Status overlap(int a, int b) {
    auto range = [&](int i) {
      return "[" + std::to_string(solution.offsets[i]) + ", " +
             std::to_string(solution.offsets[i] + buffers[i].size) + ")";
    };
    return invalidError("overlaps " + label(std::min(a, b)) + " at " + range(std::min(a, b)) +
                            " while it is at " + range(std::max(a, b)),
                        label(std::max(a, b)));
  }

  Status checkPairs() {
    int n = static_cast<int>(buffers.size());
    for (auto [a, b] : *problem.conflicts) {
      if (a < 0 || b < 0 || a >= n || b >= n)
        return invalidError("conflict names a buffer that does not exist");
      bool together = buffers[a].aliasGroup >= 0 && buffers[a].aliasGroup == buffers[b].aliasGroup;
      if (a == b || together || buffers[a].size == 0 || buffers[b].size == 0)
        continue;
      if (solution.offsets[a] < solution.offsets[b] + buffers[b].size &&
          solution.offsets[b] < solution.offsets[a] + buffers[a].size)
        return overlap(a, b);
    }
    return okStatus();
  }

  Status sweep() {
    struct Event {
      int64_t time;
      bool starts;
      int buffer;
    };
    std::vector<Event> events;
    for (int i = 0; i < static_cast<int>(buffers.size()); ++i) {
      if (buffers[i].size == 0 || buffers[i].begin >= buffers[i].end)
        continue;
      events.push_back({buffers[i].begin, true, i});
      events.push_back({buffers[i].end, false, i});
    }
    // At one time ends come first: lifetimes are half-open.
    std::sort(events.begin(), events.end(), [](const Event &a, const Event &b) {
      return std::tuple(a.time, a.starts, a.buffer) < std::tuple(b.time, b.starts, b.buffer);
    });
    // By offset; at one offset only members of one alias group, by size.
    std::map<int64_t, std::set<std::pair<int64_t, int>>> live;
    for (const Event &e : events) {
      const Buffer &b = buffers[e.buffer];
      int64_t offset = solution.offsets[e.buffer];
      if (!e.starts) {
        auto it = live.find(offset);
        it->second.erase({b.size, e.buffer});
        if (it->second.empty())
          live.erase(it);
        continue;
      }
      auto [here, fresh] = live.try_emplace(offset);
      if (!fresh) {
        int other = here->second.rbegin()->second;
        if (b.aliasGroup < 0 || buffers[other].aliasGroup != b.aliasGroup)
          return overlap(e.buffer, other);
      }
      here->second.insert({b.size, e.buffer});
      if (here != live.begin()) {
        auto [size, other] = *std::prev(here)->second.rbegin();
        if (std::prev(here)->first + size > offset)
          return overlap(e.buffer, other);
      }
      auto next = std::next(here);
      if (next != live.end() && offset + b.size > next->first)
        return overlap(e.buffer, next->second.rbegin()->second);
    }
    return okStatus();
  }

  const std::vector<Buffer> &buffers;
  const Problem &problem;
  const Solution &solution;
};

} // namespace

Status validatePlan(const Problem &problem, const Solution &solution) {
  return Validator(problem, solution).run();
}

} // namespace lathe::analysis
