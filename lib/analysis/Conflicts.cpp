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

bool occupies(const Buffer &b, bool lifetimes) {
  return b.size > 0 && (!lifetimes || b.begin < b.end);
}

bool sameGroup(const Buffer &a, const Buffer &b) {
  return a.aliasGroup >= 0 && a.aliasGroup == b.aliasGroup;
}

/// Never more than 2^40 for sane problems; checkProblem refuses the others.
bool commonMultiple(int64_t a, int64_t b, int64_t &into) {
  return !__builtin_mul_overflow(a / std::gcd(a, b), b, &into) && into <= (int64_t(1) << 40);
}

} // namespace

ConflictList conflictPairs(const Problem &problem) {
  const std::vector<Buffer> &buffers = problem.buffers;
  ConflictList pairs;
  if (problem.conflicts) {
    for (auto [a, b] : *problem.conflicts)
      if (a != b && occupies(buffers[a], false) && occupies(buffers[b], false) &&
          !sameGroup(buffers[a], buffers[b]))
        pairs.emplace_back(std::min(a, b), std::max(a, b));
  } else {
    std::vector<int> byBegin;
    for (int i = 0; i < static_cast<int>(buffers.size()); ++i)
      if (occupies(buffers[i], true))
        byBegin.push_back(i);
    std::sort(byBegin.begin(), byBegin.end(), [&](int a, int b) {
      return std::pair(buffers[a].begin, a) < std::pair(buffers[b].begin, b);
    });
    std::vector<int> live;
    for (int i : byBegin) {
      std::erase_if(live, [&](int j) { return buffers[j].end <= buffers[i].begin; });
      for (int j : live)
        if (!sameGroup(buffers[i], buffers[j]))
          pairs.emplace_back(std::min(i, j), std::max(i, j));
      live.push_back(i);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

std::vector<Item> makeItems(const Problem &problem) {
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
    }
    Item &item = items[index];
    itemOf[i] = index;
    item.buffers.push_back(i);
    item.size = std::max(item.size, b.size);
    item.alignment = std::lcm(item.alignment, b.alignment);
    item.begin = std::min(item.begin, b.begin);
    item.end = std::max(item.end, b.end);
    if (b.offset)
      item.offset = b.offset;
  }
  for (auto [a, b] : conflictPairs(problem)) {
    int64_t sizeA = problem.buffers[a].size, sizeB = problem.buffers[b].size;
    items[itemOf[a]].edges.push_back({itemOf[b], sizeA, sizeB});
    items[itemOf[b]].edges.push_back({itemOf[a], sizeB, sizeA});
  }
  return items;
}

Status checkProblem(const Problem &problem) {
  struct Group {
    std::optional<int64_t> offset;
    int64_t alignment = 1;
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
    if (b.offset && (*b.offset < 0 || *b.offset > INT64_MAX / 4))
      return invalidError("fixed offset is out of range", where);
    Group single;
    Group &group = b.aliasGroup >= 0 ? groups[b.aliasGroup] : single;
    if (!commonMultiple(group.alignment, b.alignment, group.alignment))
      return invalidError("alignments of its alias group have no common multiple", where);
    if (b.offset && group.offset && *b.offset != *group.offset)
      return invalidError("fixed offsets differ within an alias group", where);
    if (b.offset)
      group.offset = b.offset;
    if (group.offset && *group.offset % group.alignment != 0)
      return invalidError("fixed offset is misaligned", where);
    if (__builtin_add_overflow(total, b.size, &total) ||
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
