//===- StreamChoice.cpp - which steps run beside each other ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order is cut where one step stands between all that is before it and all that is
// behind it; between cuts are the regions. Steps that are shorter than an event and that
// nobody waits for, or that wait for nobody, cut nothing off: moving them gains nothing.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/StreamChoice.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

namespace lathe::analysis {
namespace {

/// A set of steps.
class Bits {
public:
  explicit Bits(size_t size) : words((size + 63) / 64) {}
  void set(int i) { words[i / 64] |= uint64_t(1) << (i % 64); }
  bool has(int i) const { return words[i / 64] >> (i % 64) & 1; }
  void add(const Bits &other) {
    for (size_t w = 0; w < words.size(); ++w)
      words[w] |= other.words[w];
  }
  /// Whether all of this set are in the other.
  bool isIn(const Bits &other) const {
    for (size_t w = 0; w < words.size(); ++w)
      if (words[w] & ~other.words[w])
        return false;
    return true;
  }

private:
  std::vector<uint64_t> words;
};

class Chooser {
public:
  Chooser(const std::vector<TimedStep> &steps, const StreamCosts &costs)
      : steps(steps), costs(costs), count(int(steps.size())) {}

  StreamChoice run() {
    choice.streams.assign(count, 0);
    choice.waits.resize(count);
    if (costs.streams > 1) {
      std::vector<bool> cuts = findCuts();
      for (int first = 0; first < count;) {
        int end = first;
        while (end < count && !cuts[end])
          ++end;
        if (end - first > 1)
          weigh(first, end);
        first = end + 1;
      }
    }
    placeWaits();
    return std::move(choice);
  }

  std::vector<std::vector<int>> waits(const std::vector<int> &streams) {
    choice.streams = streams;
    choice.waits.resize(count);
    placeWaits();
    return std::move(choice.waits);
  }

private:
  /// Steps that all earlier ones lead to and all later ones come from.
  std::vector<bool> findCuts() {
    std::vector<Bits> before(count, Bits(count)), behind(count, Bits(count));
    std::vector<bool> isRead(count);
    for (int i = 0; i < count; ++i)
      for (int ahead : steps[i].after) {
        before[i].add(before[ahead]);
        before[i].set(ahead);
        isRead[ahead] = true;
      }
    for (int i = count; i-- > 0;)
      for (int ahead : steps[i].after) {
        behind[ahead].add(behind[i]);
        behind[ahead].set(i);
      }
    auto isShort = [&](int i) { return steps[i].seconds <= costs.eventSeconds; };
    // Steps before and behind the one at hand that count.
    std::vector<bool> cuts(count);
    Bits earlier(count);
    for (int i = 0; i < count; ++i) {
      cuts[i] = earlier.isIn(before[i]);
      if (isRead[i] || !isShort(i))
        earlier.set(i);
    }
    Bits later(count);
    for (int i = count; i-- > 0;) {
      cuts[i] = cuts[i] && later.isIn(behind[i]);
      if (!steps[i].after.empty() || !isShort(i))
        later.set(i);
    }
    return cuts;
  }

  void weigh(int first, int end) {
    StreamRegion region{first, end, 0, 0, 1, false};
    for (int i = first; i < end; ++i)
      region.before += steps[i].seconds;
    region.after = region.before;
    std::vector<int> best;
    for (int streams = 2; streams <= std::min(costs.streams, end - first); ++streams) {
      std::vector<int> spread = spreadOver(first, end, streams);
      double seconds = timeOf(first, end, spread, streams);
      if (seconds < region.after * 0.98) { // one more stream has to be worth it
        region.after = seconds;
        region.streams = streams;
        best = std::move(spread);
      }
    }
    region.used = !best.empty() && region.before >= costs.gain * region.after;
    if (region.used)
      std::copy(best.begin(), best.end(), choice.streams.begin() + first);
    choice.regions.push_back(region);
  }

  /// Each step where it can begin first; of equal ones, behind what it waits for, then the lowest.
  std::vector<int> spreadOver(int first, int end, int streams) const {
    std::vector<int> spread(end - first);
    std::vector<double> ends(end - first), ready(streams, costs.eventSeconds);
    std::vector<int> newest(streams, -1);
    ready[0] = 0;
    for (int i = first; i < end; ++i) {
      double least = std::numeric_limits<double>::infinity();
      int chosen = 0;
      bool follows = false;
      for (int s = 0; s < streams; ++s) {
        double begin = ready[s];
        bool behind = false;
        for (int ahead : steps[i].after) {
          if (ahead < first)
            continue;
          bool same = spread[ahead - first] == s;
          begin = std::max(begin, ends[ahead - first] + (same ? 0 : costs.eventSeconds));
          behind |= newest[s] == ahead;
        }
        if (begin < least || (begin == least && behind && !follows)) {
          least = begin;
          chosen = s;
          follows = behind;
        }
      }
      spread[i - first] = chosen;
      ends[i - first] = ready[chosen] = least + steps[i].seconds;
      newest[chosen] = i;
    }
    return spread;
  }

  /// When all streams have ended and stream 0 knows of it.
  double timeOf(int first, int end, const std::vector<int> &spread, int streams) const {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<std::vector<int>> queues(streams);
    for (int i = first; i < end; ++i)
      queues[spread[i - first]].push_back(i);
    std::vector<size_t> at(streams, 0);
    std::vector<double> left(end - first), ended(end - first, kNever);
    for (int i = first; i < end; ++i)
      left[i - first] = steps[i].seconds;
    // The time from which on the step at the front of a stream may run, as far as it is known.
    auto beginOf = [&](int s) {
      int i = queues[s][at[s]];
      double begin = s ? costs.eventSeconds : 0;
      for (int ahead : steps[i].after)
        if (ahead >= first)
          begin = std::max(begin, ended[ahead - first] +
                                      (spread[ahead - first] == s ? 0 : costs.eventSeconds));
      return begin;
    };
    double now = 0, last = 0;
    for (int done = 0; done < end - first;) {
      double share = 0, next = kNever;
      std::vector<int> running;
      for (int s = 0; s < streams; ++s) {
        if (at[s] == queues[s].size())
          continue;
        double begin = beginOf(s);
        if (begin > now) {
          next = std::min(next, begin);
          continue;
        }
        running.push_back(s);
        share += steps[queues[s][at[s]]].share;
      }
      double rate = share > 1 ? 1 / share : 1;
      double until = next;
      for (int s : running)
        until = std::min(until, now + left[queues[s][at[s]] - first] / rate);
      for (int s : running) {
        double &rest = left[queues[s][at[s]] - first];
        if (now + rest / rate > until) {
          rest -= (until - now) * rate;
          continue;
        }
        ended[queues[s][at[s]] - first] = until;
        last = std::max(last, until + (s ? costs.eventSeconds : 0));
        ++at[s];
        ++done;
      }
      now = until;
    }
    return last;
  }

  /// What each step has to wait for, without what it knows of already.
  void placeWaits() {
    int streams = 1 + (count ? *std::max_element(choice.streams.begin(), choice.streams.end()) : 0);
    if (streams == 1)
      return;
    // Of the streams: their newest steps, and how many steps of each have surely ended for the next.
    std::vector<int> newest(streams, -1);
    std::vector<std::vector<int>> known(streams, std::vector<int>(streams, -1));
    std::vector<std::vector<int>> ended(count); // the same when a step has ended
    size_t region = 0;
    for (int i = 0; i < count; ++i) {
      while (region < choice.regions.size() &&
             (!choice.regions[region].used || choice.regions[region].end < i))
        ++region;
      const StreamRegion *around =
          region < choice.regions.size() ? &choice.regions[region] : nullptr;
      int own = choice.streams[i];
      std::vector<int> wanted(streams, -1);
      for (int ahead : steps[i].after)
        wanted[choice.streams[ahead]] = std::max(wanted[choice.streams[ahead]], ahead);
      if (own && around && newest[own] < around->first) // begins behind what is ahead of the region
        for (int ahead = around->first; ahead-- > 0;)
          if (choice.streams[ahead] == 0) {
            wanted[0] = std::max(wanted[0], ahead);
            break;
          }
      if (around && around->end == i) // the region is over
        for (int s = 1; s < streams; ++s)
          wanted[s] = std::max(wanted[s], newest[s]);
      // The newest first: it may know of the others.
      std::vector<int> order;
      for (int s = 0; s < streams; ++s)
        if (s != own && wanted[s] >= 0)
          order.push_back(wanted[s]);
      std::sort(order.rbegin(), order.rend());
      for (int ahead : order) {
        if (known[own][choice.streams[ahead]] >= ahead)
          continue;
        choice.waits[i].push_back(ahead);
        for (int s = 0; s < streams; ++s)
          known[own][s] = std::max(known[own][s], ended[ahead][s]);
      }
      std::sort(choice.waits[i].begin(), choice.waits[i].end());
      known[own][own] = i;
      ended[i] = known[own];
      newest[own] = i;
    }
  }

  const std::vector<TimedStep> &steps;
  const StreamCosts &costs;
  const int count;
  StreamChoice choice;
};

} // namespace

Result<StreamChoice> chooseStreams(const std::vector<TimedStep> &steps, const StreamCosts &costs) {
  for (size_t i = 0; i < steps.size(); ++i) {
    std::string at = "step " + std::to_string(i);
    if (!(steps[i].seconds >= 0 && steps[i].seconds < 1e9))
      return invalidError("takes " + std::to_string(steps[i].seconds) + " seconds", at);
    if (!(steps[i].share > 0 && steps[i].share <= 1))
      return invalidError("takes a share of " + std::to_string(steps[i].share), at);
    for (int ahead : steps[i].after)
      if (ahead < 0 || ahead >= int(i))
        return invalidError("comes after step " + std::to_string(ahead) + ", which is not earlier",
                            at);
  }
  return Chooser(steps, costs).run();
}

std::vector<std::vector<int>> waitsOf(const std::vector<TimedStep> &steps, const std::vector<int> &streams) {
  return Chooser(steps, {}).waits(streams);
}

} // namespace lathe::analysis
