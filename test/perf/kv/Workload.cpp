//===- Workload.cpp - seeded traces of four kinds of traffic ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Workload.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>

namespace lathe::kvperf {
namespace {

class Random {
public:
  explicit Random(uint64_t seed) : state(mix(seed)) {}
  uint64_t bits() { return mix(state++); }
  /// Uniform in [0, 1).
  double unit() { return double(bits() >> 11) * 0x1p-53; }
  uint32_t below(uint32_t bound) { return uint32_t(unit() * bound); }
  /// Exponential with this mean, at least 1.
  uint32_t exponential(double mean) { return 1 + uint32_t(-(mean - 0.5) * std::log1p(-unit())); }

private:
  uint64_t state;
};

/// Draws 0, 1, ... with probabilities 1, 1/2, 1/3, ... of their sum.
class Zipf {
public:
  explicit Zipf(uint32_t count) {
    double sum = 0;
    for (uint32_t i = 1; i <= count; ++i)
      bounds.push_back(sum += 1.0 / i);
  }
  uint32_t draw(Random &random) const {
    double x = random.unit() * bounds.back();
    return uint32_t(std::upper_bound(bounds.begin(), bounds.end(), x) - bounds.begin());
  }

private:
  std::vector<double> bounds;
};

/// Lets requests that become ready at some time run beside each other and writes down what happens.
class Scheduler {
public:
  /// Called when request `id`, an index into the trace, finishes at `now`; may call `ready`.
  using Finished = std::function<void(uint32_t id, uint64_t now)>;

  Scheduler(Trace &trace, uint32_t maxLive) : trace(trace), maxLive(maxLive) {}

  /// `key` comes back in `keyOf` once the request has its number.
  void ready(uint64_t time, Request request, uint32_t key = 0) {
    queue.push({time, order++, Kind::Ready, uint32_t(pending.size())});
    pending.push_back({std::move(request), key});
  }

  void run(const Finished &finished) {
    while (!queue.empty()) {
      Entry entry = queue.top();
      queue.pop();
      if (entry.kind == Kind::Ready) {
        waiting.push_back(entry.index);
      } else if (grow(entry.index)) {
        queue.push({entry.time + chunk, order++, Kind::Grow, entry.index});
      } else {
        trace.events.push_back({Event::Kind::Finish, entry.index});
        --live;
        finished(entry.index, entry.time);
      }
      while (live < maxLive && !waiting.empty()) {
        begin(waiting.front(), entry.time);
        waiting.pop_front();
      }
    }
  }

  uint32_t keyOf(uint32_t id) const { return keys[id]; }

private:
  enum class Kind : uint8_t { Ready, Grow };
  struct Entry {
    uint64_t time, order;
    Kind kind;
    uint32_t index; ///< of pending, or a request
    bool operator<(const Entry &other) const { // the queue's top is its largest
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };
  struct Pending {
    Request request;
    uint32_t key;
  };
  static constexpr uint32_t chunk = 16; ///< steps between two Append events of a request

  void begin(uint32_t index, uint64_t now) {
    uint32_t id = uint32_t(trace.requests.size());
    left.push_back(pending[index].request.output.tokens);
    keys.push_back(pending[index].key);
    trace.requests.push_back(std::move(pending[index].request));
    trace.events.push_back({Event::Kind::Begin, id});
    ++live;
    queue.push({now + std::min(left[id], chunk), order++, Kind::Grow, id});
  }

  /// Appends what a request got since its last event; false when nothing is left to come.
  bool grow(uint32_t id) {
    uint32_t tokens = std::min(left[id], chunk);
    if (tokens == 0)
      return false;
    trace.events.push_back({Event::Kind::Append, id, tokens});
    left[id] -= tokens;
    return left[id] != 0;
  }

  Trace &trace;
  uint32_t maxLive, live = 0;
  uint64_t order = 0;
  std::priority_queue<Entry> queue;
  std::deque<uint32_t> waiting;
  std::vector<Pending> pending;
  std::vector<uint32_t> left, keys;
};

/// Numbers the pieces of text of a trace.
class Text {
public:
  Segment fresh(uint32_t tokens) { return {next++, tokens}; }

private:
  uint32_t next = 0;
};

void zipf(Trace &trace, uint32_t requests, Random &random) {
  Text text;
  std::vector<Segment> systems;
  for (int i = 0; i < 200; ++i)
    systems.push_back(text.fresh(random.exponential(1000)));
  Zipf popularity(uint32_t(systems.size()));
  Scheduler scheduler(trace, 16);
  for (uint32_t i = 0; i < requests; ++i) {
    uint32_t which = popularity.draw(random);
    Segment question = text.fresh(random.exponential(chatPromptTokens));
    Segment answer = text.fresh(random.exponential(chatOutputTokens));
    scheduler.ready(i, {which, systems[which].tokens, {systems[which], question}, answer});
  }
  scheduler.run([](uint32_t, uint64_t) {});
}

void chat(Trace &trace, uint32_t requests, Random &random) {
  constexpr double turns = 5, pause = 2000, conversations = 200;
  Text text;
  Segment system = text.fresh(400);
  Scheduler scheduler(trace, 64);
  auto turn = [&](uint64_t time, std::vector<Segment> prompt) {
    prompt.push_back(text.fresh(random.exponential(chatPromptTokens)));
    Segment answer = text.fresh(random.exponential(chatOutputTokens));
    scheduler.ready(time, {0, system.tokens, std::move(prompt), answer});
  };
  double interval = turns * (pause + chatOutputTokens) / conversations;
  uint64_t start = 0;
  for (uint32_t i = 0; i < requests / turns; ++i)
    turn(start += random.exponential(interval), {system});
  scheduler.run([&](uint32_t id, uint64_t now) {
    if (random.unit() < 1 / turns)
      return;
    std::vector<Segment> history = trace.requests[id].prompt;
    history.push_back(trace.requests[id].output);
    turn(now + random.exponential(pause), std::move(history));
  });
}

void agents(Trace &trace, uint32_t requests, Random &random) {
  constexpr uint32_t kinds = 8, maxDepth = 7, maxNodes = 24;
  Text text;
  std::vector<Segment> tools;
  for (uint32_t i = 0; i < kinds; ++i)
    tools.push_back(text.fresh(1500 + 250 * i));
  Zipf popularity(kinds);
  Scheduler scheduler(trace, 8);
  std::vector<uint32_t> nodes; // of each task
  uint32_t made = 0;
  auto call = [&](uint64_t time, uint32_t task, std::vector<Segment> prompt, uint32_t kind,
                  double mean) {
    prompt.push_back(text.fresh(random.exponential(mean)));
    Segment output = text.fresh(random.exponential(100));
    scheduler.ready(time, {kind, tools[kind].tokens, std::move(prompt), output}, task);
    ++made, ++nodes[task];
  };
  auto startTask = [&](uint64_t time) {
    uint32_t kind = popularity.draw(random);
    nodes.push_back(0);
    call(time, uint32_t(nodes.size() - 1), {tools[kind]}, kind, 300);
  };
  // 80 tasks are at work, or fewer in a short trace; one that has no call left makes room for the
  // next.
  std::vector<uint32_t> open;
  for (uint32_t i = 0; i < std::min(80u, 1 + requests / 12); ++i)
    startTask(random.below(4000));
  open.assign(nodes.size(), 1);
  scheduler.run([&](uint32_t id, uint64_t now) {
    uint32_t task = scheduler.keyOf(id);
    --open[task];
    Request parent = trace.requests[id];
    // The prompt of depth d has 2 d + 2 pieces.
    if (parent.prompt.size() < 2 * maxDepth + 2) {
      double x = random.unit();
      uint32_t children = x < 0.1 ? 0 : x < 0.6 ? 1 : x < 0.85 ? 2 : 3;
      std::vector<Segment> path = parent.prompt;
      path.push_back(parent.output);
      for (uint32_t i = 0; i < children && nodes[task] < maxNodes; ++i) {
        call(now + random.exponential(400), task, path, parent.tenant, 300);
        ++open[task];
      }
    }
    if (open[task] == 0 && made < requests) {
      startTask(now + random.exponential(400));
      open.push_back(1);
    }
  });
}

void thrash(Trace &trace, uint32_t requests, Random &random) {
  constexpr uint32_t documents = 64, hot = 4;
  Text text;
  std::vector<Segment> library;
  for (uint32_t i = 0; i < documents + hot; ++i)
    library.push_back(text.fresh(4096));
  Scheduler scheduler(trace, 4);
  for (uint32_t i = 0, cycle = 0; i < requests; ++i) {
    uint32_t which = i % 5 == 4 ? documents + random.below(hot) : cycle++ % documents;
    Segment question = text.fresh(random.exponential(32));
    Segment answer = text.fresh(random.exponential(64));
    scheduler.ready(i, {which, library[which].tokens, {library[which], question}, answer});
  }
  scheduler.run([](uint32_t, uint64_t) {});
}

void lengths(Trace &trace, uint32_t requests, Random &random) {
  Text text;
  Scheduler scheduler(trace, 256);
  for (uint32_t i = 0; i < requests; ++i) {
    Segment question = text.fresh(random.exponential(chatPromptTokens));
    Segment answer = text.fresh(random.exponential(chatOutputTokens));
    scheduler.ready(i, {i, 0, {question}, answer});
  }
  scheduler.run([](uint32_t, uint64_t) {});
}

} // namespace

Result<Trace> makeWorkload(std::string_view name, uint32_t requests, uint64_t seed) {
  Trace trace;
  trace.name = name;
  trace.seed = seed;
  Random random(seed);
  if (name == "zipf")
    zipf(trace, requests, random);
  else if (name == "chat")
    chat(trace, requests, random);
  else if (name == "agents")
    agents(trace, requests, random);
  else if (name == "thrash")
    thrash(trace, requests, random);
  else if (name == "lengths")
    lengths(trace, requests, random);
  else
    return usageError("no workload `" + std::string(name) +
                      "`; zipf, chat, agents, thrash and lengths exist");
  return trace;
}

} // namespace lathe::kvperf
