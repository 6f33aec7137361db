//===- Conflicts.cpp - which buffers may not overlap -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Problems to items and edges, and the checks of a problem's form.
//
//===----------------------------------------------------------------------===//
#include "Conflicts.h"

#include <algorithm>
#include <numeric>

namespace lathe::analysis {
namespace {

constexpr int kMaxSpaces = 1000;

bool sameGroup(const Buffer &a, const Buffer &b) {
  return a.aliasGroup >= 0 && a.aliasGroup == b.aliasGroup;
}

/// Never more than 2^40 for sane problems; checkProblem refuses the others.
bool commonMultiple(int64_t a, int64_t b, int64_t &into) {
  return !__builtin_mul_overflow(a / std::gcd(a, b), b, &into) && into <= (int64_t(1) << 40);
}

/// Calls `visit` for each pair of buffers with a common step, perhaps repeatedly.
template <typename Visit> void visitOverlaps(const Problem &problem, Visit visit) {
  struct Part {
    Interval steps;
    int buffer;
  };
  std::vector<Part> parts;
  for (int i = 0; i < static_cast<int>(problem.buffers.size()); ++i)
    if (occupiesMemory(problem, i))
      for (Interval steps : liveParts(problem.buffers[i]))
        parts.push_back({steps, i});
  std::sort(parts.begin(), parts.end(), [](const Part &a, const Part &b) {
    return std::tuple(a.steps.begin, a.buffer) < std::tuple(b.steps.begin, b.buffer);
  });
  std::vector<Part> live;
  for (const Part &p : parts) {
    std::erase_if(live, [&](const Part &q) { return q.steps.end <= p.steps.begin; });
    for (const Part &q : live)
      visit(p.buffer, q.buffer);
    live.push_back(p);
  }
}

/// Sorts pairs of numbers below `count`: by the second, then stably by the first.
void sortPairs(ConflictList &pairs, size_t count) {
  ConflictList sorted(pairs.size());
  auto pass = [&](int std::pair<int, int>::*by) {
    std::vector<size_t> place(count + 1, 0);
    for (const auto &pair : pairs)
      ++place[static_cast<size_t>(pair.*by) + 1];
    for (size_t i = 0; i < count; ++i)
      place[i + 1] += place[i];
    for (const auto &pair : pairs)
      sorted[place[static_cast<size_t>(pair.*by)]++] = pair;
    pairs.swap(sorted);
  };
  pass(&std::pair<int, int>::second);
  pass(&std::pair<int, int>::first);
}

bool mayConflict(const Buffer &a, const Buffer &b) {
  return a.space == b.space && !sameGroup(a, b);
}

} // namespace

bool occupiesMemory(const Problem &problem, int buffer) {
  const Buffer &b = problem.buffers[buffer];
  return b.size > 0 && (problem.conflicts || b.begin < b.end);
}

std::vector<Interval> liveParts(const Buffer &buffer) {
  std::vector<Interval> parts;
  int64_t begin = buffer.begin;
  for (Interval gap : buffer.gaps) {
    if (begin < gap.begin)
      parts.push_back({begin, gap.begin});
    begin = gap.end;
  }
  if (begin < buffer.end)
    parts.push_back({begin, buffer.end});
  return parts;
}

ConflictList conflictPairs(const Problem &problem) {
  const std::vector<Buffer> &buffers = problem.buffers;
  ConflictList pairs;
  auto add = [&](int a, int b) {
    if (a != b && mayConflict(buffers[a], buffers[b]))
      pairs.emplace_back(std::min(a, b), std::max(a, b));
  };
  if (problem.conflicts) {
    for (auto [a, b] : *problem.conflicts)
      if (occupiesMemory(problem, a) && occupiesMemory(problem, b))
        add(a, b);
  } else {
    visitOverlaps(problem, add);
  }
  sortPairs(pairs, buffers.size());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

int64_t countConflicts(const Problem &problem) {
  if (problem.conflicts)
    return static_cast<int64_t>(problem.conflicts->size());
  std::vector<int64_t> begins, ends;
  for (int i = 0; i < static_cast<int>(problem.buffers.size()); ++i)
    if (occupiesMemory(problem, i))
      for (Interval steps : liveParts(problem.buffers[i])) {
        begins.push_back(steps.begin);
        ends.push_back(steps.end);
      }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  int64_t count = 0;
  size_t ended = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    while (ends[ended] <= begins[i])
      ++ended;
    count += static_cast<int64_t>(i - ended);
  }
  return count;
}

std::vector<Item> makeItems(const Problem &problem, bool withEdges) {
  std::vector<Item> items;
  std::vector<int> itemOf(problem.buffers.size());
  std::map<int, int> groups;
  for (int i = 0; i < static_cast<int>(problem.buffers.size()); ++i) {
    const Buffer &b = problem.buffers[i];
    int index = static_cast<int>(items.size());
    if (b.aliasGroup >= 0)
      index = groups.try_emplace(b.aliasGroup, index).first->second;
    if (index == static_cast<int>(items.size())) {
      items.emplace_back();
      items.back().begin = b.begin;
      items.back().end = b.end;
      items.back().space = b.space;
    }
    Item &item = items[index];
    itemOf[i] = index;
    item.buffers.push_back(i);
    item.size = std::max(item.size, b.aliasOffset + b.size);
    item.alignment = std::lcm(item.alignment, b.alignment);
    item.begin = std::min(item.begin, b.begin);
    item.end = std::max(item.end, b.end);
    if (b.offset)
      item.offset = *b.offset - b.aliasOffset;
  }
  ConflictList pairs = withEdges ? conflictPairs(problem) : ConflictList();
  std::vector<size_t> degree(items.size(), 0);
  for (auto [a, b] : pairs) {
    ++degree[itemOf[a]];
    ++degree[itemOf[b]];
  }
  for (size_t i = 0; i < items.size(); ++i)
    items[i].edges.reserve(degree[i]);
  for (auto [a, b] : pairs) {
    int64_t lowA = problem.buffers[a].aliasOffset, highA = lowA + problem.buffers[a].size;
    int64_t lowB = problem.buffers[b].aliasOffset, highB = lowB + problem.buffers[b].size;
    items[itemOf[a]].edges.push_back({itemOf[b], lowA, highA, lowB, highB});
    items[itemOf[b]].edges.push_back({itemOf[a], lowB, highB, lowA, highA});
  }
  return items;
}

Problem selectBuffers(const Problem &problem, const std::vector<int> &chosen) {
  Problem part;
  part.capacity = problem.capacity;
  part.capacities = problem.capacities;
  std::vector<int> indexOf(problem.buffers.size(), -1);
  for (int b : chosen) {
    indexOf[b] = static_cast<int>(part.buffers.size());
    part.buffers.push_back(problem.buffers[b]);
  }
  if (problem.conflicts) {
    part.conflicts.emplace();
    for (auto [a, b] : *problem.conflicts)
      if (indexOf[a] >= 0 && indexOf[b] >= 0)
        part.conflicts->emplace_back(indexOf[a], indexOf[b]);
  }
  return part;
}

Problem extractSpace(const Problem &problem, int space, std::vector<int> &members) {
  members.clear();
  for (int i = 0; i < static_cast<int>(problem.buffers.size()); ++i)
    if (problem.buffers[i].space == space)
      members.push_back(i);
  Problem part = selectBuffers(problem, members);
  part.capacity = capacityOf(problem, space);
  part.capacities.clear();
  for (Buffer &b : part.buffers)
    b.space = 0;
  return part;
}

int spaceCount(const Problem &problem) {
  int count = 1;
  for (const Buffer &b : problem.buffers)
    count = std::max(count, b.space + 1);
  return count;
}

int64_t capacityOf(const Problem &problem, int space) {
  return space < static_cast<int>(problem.capacities.size()) ? problem.capacities[space]
                                                             : problem.capacity;
}

int64_t spaceHeight(const Problem &problem, const std::vector<int64_t> &offsets, int space) {
  int64_t height = 0;
  for (size_t i = 0; i < problem.buffers.size(); ++i)
    if (problem.buffers[i].space == space)
      height = std::max(height, offsets[i] + problem.buffers[i].size);
  return height;
}

Status checkProblem(const Problem &problem) {
  struct Group {
    std::optional<int64_t> offset; ///< of the group
    int64_t alignment = 1;
    int space = 0;
  };
  std::map<int, Group> groups;
  int64_t total = 0;
  int n = static_cast<int>(problem.buffers.size());
  for (int i = 0; i < n; ++i) {
    const Buffer &b = problem.buffers[i];
    std::string where = "buffer " + std::to_string(i);
    if (b.size < 0)
      return invalidError("negative size", where);
    if (b.alignment < 1 || b.alignment > (int64_t(1) << 40))
      return invalidError("alignment " + std::to_string(b.alignment) + " is out of range", where);
    if (b.begin > b.end)
      return invalidError("lifetime ends before it begins", where);
    if (b.aliasOffset < 0 || (b.aliasOffset > 0 && b.aliasGroup < 0))
      return invalidError("offset within an alias group is out of range", where);
    if (b.aliasOffset % b.alignment != 0)
      return invalidError("offset within its alias group is misaligned", where);
    if (b.offset && (*b.offset < b.aliasOffset || *b.offset > INT64_MAX / 4))
      return invalidError("fixed offset is out of range", where);
    if (b.space < 0 || b.space > kMaxSpaces)
      return invalidError("space " + std::to_string(b.space) + " is out of range", where);
    int64_t last = b.begin;
    for (Interval gap : b.gaps) {
      if (gap.begin < last || gap.begin > gap.end || gap.end > b.end)
        return invalidError("gaps are not sorted, disjoint and inside the lifetime", where);
      last = gap.end;
    }
    Group single{{}, 1, b.space};
    Group &group = b.aliasGroup >= 0 ? groups.try_emplace(b.aliasGroup, single).first->second
                                     : single;
    if (group.space != b.space)
      return invalidError("alias group is in two spaces", where);
    if (!commonMultiple(group.alignment, b.alignment, group.alignment))
      return invalidError("alignments of its alias group have no common multiple", where);
    if (b.offset && group.offset && *b.offset - b.aliasOffset != *group.offset)
      return invalidError("fixed offsets differ within an alias group", where);
    if (b.offset)
      group.offset = *b.offset - b.aliasOffset;
    if (group.offset && *group.offset % group.alignment != 0)
      return invalidError("fixed offset is misaligned", where);
    if (__builtin_add_overflow(total, b.size, &total) ||
        __builtin_add_overflow(total, b.aliasOffset, &total) ||
        __builtin_add_overflow(total, group.alignment, &total) || total > INT64_MAX / 4)
      return invalidError("sizes sum up to more than 2^61 bytes", where);
  }
  if (problem.conflicts)
    for (auto [a, b] : *problem.conflicts)
      if (a < 0 || b < 0 || a >= n || b >= n)
        return invalidError("conflict names a buffer that does not exist");
  return okStatus();
}

} // namespace lathe::analysis
