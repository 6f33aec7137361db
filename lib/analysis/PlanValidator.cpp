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
    std::map<int, int64_t> heights;
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
        int first = it->second;
        if (!fresh && (solution.offsets[first] - buffers[first].aliasOffset !=
                           offset - b.aliasOffset || buffers[first].space != b.space))
          return invalidError("does not stand where " + label(first) +
                                  " of its alias group does", label(i));
      }
      heights[b.space] = std::max(heights[b.space], top);
    }
    int64_t sum = 0;
    for (auto [space, height] : heights) {
      sum += height;
      int64_t capacity = space >= 0 && space < static_cast<int>(problem.capacities.size())
                             ? problem.capacities[space]
                             : problem.capacity;
      if (height > capacity)
        return invalidError("height " + std::to_string(height) + " is above the capacity " +
                            std::to_string(capacity));
    }
    if (sum != solution.height)
      return invalidError("height is " + std::to_string(sum) + ", the plan says " +
                          std::to_string(solution.height));
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
      if (a == b || together || buffers[a].space != buffers[b].space || buffers[a].size == 0 ||
          buffers[b].size == 0)
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
      const Buffer &b = buffers[i];
      if (b.size == 0)
        continue;
      int64_t begin = b.begin;
      for (size_t g = 0; g <= b.gaps.size(); ++g) {
        int64_t end = g < b.gaps.size() ? b.gaps[g].begin : b.end;
        if (begin < end) {
          events.push_back({begin, true, i});
          events.push_back({end, false, i});
        }
        if (g < b.gaps.size())
          begin = b.gaps[g].end;
      }
    }
    // At one time ends come first: lifetimes are half-open.
    std::sort(events.begin(), events.end(), [](const Event &a, const Event &b) {
      return std::tuple(a.time, a.starts, a.buffer) < std::tuple(b.time, b.starts, b.buffer);
    });
    for (const Event &e : events) {
      if (!e.starts)
        remove(e.buffer);
      else if (std::optional<int> other = insert(e.buffer))
        return overlap(e.buffer, *other);
    }
    return okStatus();
  }

  using Key = std::tuple<int, int64_t, int>; ///< space, low, buffer

  /// Nothing, or a buffer of another group that overlaps. Ranges in `live` overlap
  /// only within a group. So a conflicting one starts between low and high, or belongs
  /// to the group of the next foreign range below.
  std::optional<int> insert(int i) {
    const Buffer &b = buffers[i];
    int64_t low = solution.offsets[i], high = low + b.size;
    auto foreign = [&](int j) { return b.aliasGroup < 0 || buffers[j].aliasGroup != b.aliasGroup; };
    auto here = live.emplace(b.space, low, i).first;
    for (auto it = std::next(here); it != live.end() && std::get<0>(*it) == b.space &&
                                    std::get<1>(*it) < high; ++it)
      if (foreign(std::get<2>(*it)))
        return std::get<2>(*it);
    int below = -1;
    for (auto it = here; it != live.begin();) {
      --it;
      int j = std::get<2>(*it);
      if (std::get<0>(*it) != b.space)
        break;
      if (!foreign(j))
        continue;
      if (solution.offsets[j] + buffers[j].size > low)
        return j;
      bool sameGroup = below >= 0 && buffers[j].aliasGroup == buffers[below].aliasGroup;
      if (buffers[j].aliasGroup < 0 || (below >= 0 && !sameGroup))
        break;
      below = j;
    }
    return std::nullopt;
  }

  void remove(int i) { live.erase({buffers[i].space, solution.offsets[i], i}); }

  std::set<Key> live;
  const std::vector<Buffer> &buffers;
  const Problem &problem;
  const Solution &solution;
};

} // namespace

Status validatePlan(const Problem &problem, const Solution &solution) {
  return Validator(problem, solution).run();
}

} // namespace lathe::analysis
