//===- ConflictingSet.cpp - why a problem does not fit ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts from buffers that cannot fit together, those that their sizes alone forbid if
// there are any, and leaves out as many as it can, in ever smaller groups, the smallest
// buffers first. What stays is needed.
//
// Up to six buffers with lifetimes fit whenever the bytes alive at each time do: all graphs
// of so few intervals are comparability graphs (the test counts through them), and along
// the longest weighted paths of a transitive orientation each buffer gets an offset whose
// path is a clique. So a set of at most seven is a smallest one as soon as no fewer are too
// many at one time. Otherwise a set of fewer buffers is looked for by hitting sets: of a plan of some buffers, grown as
// far as it goes, every set that does not fit has at least one buffer that is not in it. A
// smallest set with one of each of those either fits, and gives another such plan, or it is
// a smallest set that does not fit. The search follows Ignatiev et al., "Smallest MUS
// Extraction with Minimal Hitting Set Dualization" (CP 2015).
//
//===----------------------------------------------------------------------===//
#include "Planners.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace lathe::analysis {
namespace {

constexpr size_t kAlwaysFit = 6;         ///< buffers, when what is alive together fits
constexpr int kMostPlans = 400;          ///< that the hitting sets are made of
constexpr int64_t kMostSteps = 2'000'000; ///< of the search for one hitting set

/// The smallest set with one member of each of some sets: by branching on a set that has
/// none yet.
class HittingSet {
public:
  HittingSet(const std::vector<std::vector<int>> &sets, size_t numbers)
      : sets(sets), chosen(numbers, 0), touched(numbers, 0) {}

  /// Nothing when all have `limit` members or more, or when it took too long.
  std::optional<std::vector<int>> run(size_t limit) {
    best = limit;
    extend();
    if (best == limit || steps > kMostSteps)
      return std::nullopt;
    return found;
  }
  bool complete() const { return steps <= kMostSteps; }

private:
  void extend() {
    if (++steps > kMostSteps)
      return;
    // Sets without a member that have none in common each need one more.
    ++stamp;
    size_t needed = 0;
    const std::vector<int> *smallest = nullptr;
    for (const std::vector<int> &set : sets) {
      if (std::any_of(set.begin(), set.end(), [&](int v) { return chosen[v] > 0; }))
        continue;
      if (!smallest || set.size() < smallest->size())
        smallest = &set;
      if (std::none_of(set.begin(), set.end(), [&](int v) { return touched[v] == stamp; })) {
        ++needed;
        for (int v : set)
          touched[v] = stamp;
      }
    }
    if (current.size() + needed >= best)
      return;
    if (!smallest) {
      best = current.size();
      found = current;
      return;
    }
    // What was branched on before may not come again: its sets are done.
    std::vector<int> barred;
    for (int v : *smallest) {
      if (chosen[v] < 0)
        continue;
      chosen[v] = 1;
      current.push_back(v);
      extend();
      current.pop_back();
      chosen[v] = -1;
      barred.push_back(v);
    }
    for (int v : barred)
      chosen[v] = 0;
  }

  const std::vector<std::vector<int>> &sets;
  std::vector<char> chosen; ///< 1: in the set, -1: out of it
  std::vector<int> touched;
  std::vector<int> current, found;
  size_t best = 0;
  int64_t steps = 0;
  int stamp = 0;
};

/// Questions about parts of one space, on a common budget of nodes.
class Shrinker {
public:
  Shrinker(const Problem &problem, const PlanOptions &options)
      : problem(problem), options(options) {
    if (options.nodes < 0)
      this->options.nodes = quickNodes(problem);
    nodesLeft = 8 * this->options.nodes;
    this->options.firstFit = true;
    this->options.work = std::min<int64_t>(options.work, 100'000);
  }

  /// Nothing when the space fits, or when nobody knows.
  Result<std::optional<ConflictingSet>> run() {
    std::vector<int> bySize(problem.buffers.size());
    std::iota(bySize.begin(), bySize.end(), 0);
    std::sort(bySize.begin(), bySize.end(), [&](int a, int b) {
      int64_t x = problem.buffers[a].size, y = problem.buffers[b].size;
      return x != y ? x > y : a < b;
    });
    std::vector<int> set = bySize;
    if (heightLowerBound(problem) > problem.capacity) {
      // The fewest of the largest that are too many.
      size_t low = 0, high = bySize.size();
      while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        set.assign(bySize.begin(), bySize.begin() + static_cast<int64_t>(middle));
        (heightLowerBound(selectBuffers(problem, set)) > problem.capacity ? high : low) = middle;
      }
      set.assign(bySize.begin(), bySize.begin() + static_cast<int64_t>(high));
      std::vector<int> together = fewestTogether();
      if (together.size() < set.size() &&
          heightLowerBound(selectBuffers(problem, together)) > problem.capacity)
        set = std::move(together);
    } else {
      Result<Answer> all = ask(set);
      if (!all)
        return all.status();
      unknown = *all == Answer::Unknown;
      if (*all != Answer::No)
        return std::optional<ConflictingSet>();
    }
    ConflictingSet result;
    for (size_t group = std::max<size_t>(set.size() / 2, 1);; group = (group + 1) / 2) {
      unanswered = false;
      for (size_t end = set.size(); end > 0;) {
        size_t begin = end - std::min(group, end);
        std::vector<int> rest(set.begin(), set.begin() + static_cast<int64_t>(begin));
        rest.insert(rest.end(), set.begin() + static_cast<int64_t>(end), set.end());
        Result<Answer> fits = ask(rest);
        if (!fits)
          return fits.status();
        unanswered |= *fits == Answer::Unknown;
        if (*fits == Answer::No)
          set = std::move(rest);
        end = begin;
      }
      if (group == 1)
        break;
    }
    result.minimal = !unanswered;
    Result<bool> smallest = findSmallest(set, bySize);
    if (!smallest)
      return smallest.status();
    result.smallest = *smallest;
    result.minimal |= result.smallest;
    result.buffers = std::move(set);
    return std::optional<ConflictingSet>(std::move(result));
  }

  /// Whether nobody knows if the space fits.
  bool unknown = false;

private:
  enum class Answer { Yes, No, Unknown };

  /// The fewest buffers alive at one time that are more than the capacity; the largest first.
  std::vector<int> fewestTogether() const {
    std::vector<std::tuple<int64_t, bool, int>> events; // time, birth, buffer
    for (int i = 0; i < static_cast<int>(problem.buffers.size()); ++i)
      if (occupiesMemory(problem, i) && !problem.conflicts)
        for (Interval steps : liveParts(problem.buffers[i])) {
          events.emplace_back(steps.begin, true, i);
          events.emplace_back(steps.end, false, i);
        }
    std::sort(events.begin(), events.end());
    std::set<std::pair<int64_t, int>> live; // minus the size, buffer
    std::vector<int> best(problem.buffers.size());
    std::iota(best.begin(), best.end(), 0);
    for (auto [time, birth, i] : events) {
      std::pair<int64_t, int> entry(-problem.buffers[i].size, i);
      if (!birth) {
        live.erase(entry);
        continue;
      }
      live.insert(entry);
      int64_t sum = 0;
      std::vector<int> largest;
      for (auto it = live.begin(); it != live.end() && largest.size() + 1 < best.size(); ++it) {
        largest.push_back(it->second);
        if ((sum -= it->first) > problem.capacity) {
          best = largest;
          break;
        }
      }
    }
    return best;
  }

  /// Whether buffers have nothing but lifetimes, and sizes that keep them aligned.
  bool isPlain() const {
    int64_t alignment = problem.buffers.empty() ? 1 : problem.buffers[0].alignment;
    return !problem.conflicts &&
           std::all_of(problem.buffers.begin(), problem.buffers.end(), [&](const Buffer &b) {
             return !b.offset && b.aliasGroup < 0 && b.gaps.empty() && b.alignment == alignment &&
                    b.size % alignment == 0;
           });
  }

  /// Whether these fit together.
  Result<Answer> ask(const std::vector<int> &chosen, bool quickly = false) {
    Problem part = selectBuffers(problem, chosen);
    if (heightLowerBound(part) > part.capacity)
      return Answer::No;
    PlanOptions now = options;
    now.nodes = quickly ? 0 : std::clamp<int64_t>(nodesLeft, 0, options.nodes);
    if (quickly)
      now.work = 0;
    Result<Solution> plan = planSpace(part, now);
    if (!plan)
      return plan.status();
    nodesLeft -= plan->nodes;
    return plan->height <= part.capacity       ? Answer::Yes
           : plan->lowerBound > part.capacity ? Answer::No
                                                : Answer::Unknown;
  }

  /// Replaces a set that does not fit by a smallest one; true when it is one.
  Result<bool> findSmallest(std::vector<int> &set, const std::vector<int> &bySize) {
    if (set.size() <= (isPlain() ? kAlwaysFit + 1 : 1))
      return true;
    std::vector<std::vector<int>> escapes; ///< a set that does not fit has one of each
    for (int plans = 0; plans < kMostPlans; ++plans) {
      HittingSet search(escapes, problem.buffers.size());
      std::optional<std::vector<int>> hit = search.run(set.size());
      if (!search.complete())
        return false;
      if (!hit)
        return true;
      Result<Answer> fits = ask(*hit);
      if (!fits)
        return fits.status();
      if (*fits == Answer::No) {
        set = *hit;
        return true;
      }
      if (*fits == Answer::Unknown || nodesLeft <= 0)
        return false;
      // The smallest buffers first, so that few are left.
      std::vector<char> inside(problem.buffers.size(), 0);
      for (int b : *hit)
        inside[b] = 1;
      std::vector<int> others, outside;
      for (auto b = bySize.rbegin(); b != bySize.rend(); ++b)
        if (!inside[*b])
          others.push_back(*b);
      LATHE_RETURN_IF_ERROR(grow(*hit, others.data(), others.data() + others.size(), outside));
      escapes.push_back(std::move(outside));
    }
    return false;
  }

  /// Adds what fits with a set that does; `outside` is the rest.
  Status grow(std::vector<int> &set, const int *begin, const int *end, std::vector<int> &outside) {
    if (begin == end)
      return okStatus();
    std::vector<int> more = set;
    more.insert(more.end(), begin, end);
    Result<Answer> fits = ask(more, end - begin > 1);
    if (!fits)
      return fits.status();
    if (*fits == Answer::Yes) {
      set = std::move(more);
    } else if (end - begin == 1) {
      outside.push_back(*begin);
    } else {
      const int *middle = begin + (end - begin) / 2;
      LATHE_RETURN_IF_ERROR(grow(set, begin, middle, outside));
      LATHE_RETURN_IF_ERROR(grow(set, middle, end, outside));
    }
    return okStatus();
  }

  const Problem &problem;
  PlanOptions options;
  int64_t nodesLeft = 0;
  bool unanswered = false; ///< in the last round: neither a plan nor a proof
};

} // namespace

Result<std::optional<ConflictingSet>> findConflictingSet(const Problem &problem,
                                                         const PlanOptions &options) {
  LATHE_RETURN_IF_ERROR(checkProblem(problem));
  std::optional<ConflictingSet> best;
  bool allKnown = true;
  for (int space = 0; space < spaceCount(problem); ++space) {
    std::vector<int> members;
    Problem own = extractSpace(problem, space, members);
    Shrinker shrinker(own, options);
    Result<std::optional<ConflictingSet>> found = shrinker.run();
    if (!found)
      return found;
    allKnown &= !shrinker.unknown;
    if (!*found)
      continue;
    allKnown &= (*found)->smallest;
    if (best && best->buffers.size() <= (*found)->buffers.size())
      continue;
    best = **found;
    for (int &b : best->buffers)
      b = members[b];
    std::sort(best->buffers.begin(), best->buffers.end());
  }
  if (best)
    best->smallest = allKnown;
  return best;
}

} // namespace lathe::analysis
