//===- Replay.cpp - a trace through the KV cache ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Replay.h"

#include "NanoAllocator.h"
#include "lathe/runtime/KvSnapshot.h"

#include <algorithm>
#include <chrono>

namespace lathe::kvperf {
namespace {

class Replayer {
public:
  Replayer(const Trace &trace, const ReplayOptions &options)
      : trace(trace), options(options), live(trace.requests.size()) {}

  Result<ReplayOutcome> run() {
    kv::Config config;
    config.groups[0].layout.blockTokens = options.blockTokens;
    config.blocks = options.blocks;
    config.hostBlocks = options.hostBlocks;
    config.eviction = options.eviction;
    config.hash = options.hash;
    uint32_t longest = 0;
    for (const Request &request : trace.requests)
      longest = std::max(longest, request.promptTokens() + request.output.tokens);
    config.maxSequenceTokens = config.maxStepTokens = longest;
    auto made = kv::Cache::create(config);
    if (!made.ok())
      return made.status();
    cache = std::move(*made);
    drained.resize(config.eventCapacity);

    for (size_t e = 0; e < trace.events.size(); ++e) {
      LATHE_RETURN_IF_ERROR(apply(trace.events[e]));
      LATHE_RETURN_IF_ERROR(drain());
      if (4 * e >= trace.events.size() && 4 * e < 3 * trace.events.size()) {
        kv::Counters now = cache->counters();
        result.slots += now.sequenceSlots;
        result.wastedSlots += now.sequenceSlots - now.sequenceTokens;
      }
      if (options.recountEvery && e % options.recountEvery == 0)
        LATHE_RETURN_IF_ERROR(recount());
    }
    LATHE_RETURN_IF_ERROR(recount());
    result.counters = cache->counters();
    return result;
  }

private:
  using Clock = std::chrono::steady_clock;
  struct Live {
    kv::SeqId sequence = kv::kNoSequence;
    uint32_t length = 0;
    std::vector<uint32_t> tokens;
  };

  Status apply(const Event &event) {
    const Request &request = trace.requests[event.request];
    Live &it = live[event.request];
    if (event.kind == Event::Kind::Begin)
      it.tokens = trace.tokens(request);
    Clock::time_point start = Clock::now();
    Status status;
    switch (event.kind) {
    case Event::Kind::Begin:
      status = begin(request, it);
      break;
    case Event::Kind::Append:
      status = step(it, event.tokens, nullptr);
      break;
    case Event::Kind::Finish:
      status = toStatus(cache->close(it.sequence));
      break;
    }
    result.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    if (event.kind == Event::Kind::Finish)
      it = {};
    return status;
  }

  Status begin(const Request &request, Live &it) {
    uint32_t prompt = request.promptTokens(), hit = 0, sharedHit = 0;
    uint32_t shared = request.sharedTokens / options.blockTokens * options.blockTokens;
    bool early = options.eviction == kv::Eviction::Priority && shared && shared < prompt;
    if (early) {
      // One token more than what is shared, as a prompt's last token is never a hit.
      Live first;
      first.tokens = it.tokens;
      LATHE_RETURN_IF_ERROR(toStatus(cache->open({.priority = 80}, first.sequence)));
      LATHE_RETURN_IF_ERROR(step(first, shared + 1, &sharedHit));
      LATHE_RETURN_IF_ERROR(toStatus(cache->close(first.sequence)));
    }
    LATHE_RETURN_IF_ERROR(toStatus(cache->open({}, it.sequence)));
    LATHE_RETURN_IF_ERROR(step(it, prompt, &hit));
    result.queryTokens += prompt;
    // What the first sequence has just stored is no hit.
    result.hitTokens += early && sharedHit < shared ? sharedHit : hit;
    return okStatus();
  }

  /// Appends tokens in a step of their own; those of a prompt may be found (`hit` is not null).
  Status step(Live &it, uint32_t tokens, uint32_t *hit) {
    std::span<const uint32_t> all = it.tokens;
    LATHE_RETURN_IF_ERROR(toStatus(cache->begin()));
    uint32_t found = 0;
    if (hit) {
      LATHE_RETURN_IF_ERROR(
          toStatus(cache->attach(it.sequence, all.first(tokens), found)));
      if (found >= tokens || found % options.blockTokens)
        return internalError("a hit of " + std::to_string(found) + " of " +
                             std::to_string(tokens) + " tokens");
      *hit = found;
      attachedTokens += tokens;
      attachedHits += found;
    }
    kv::Append rest{it.sequence, tokens - found};
    LATHE_RETURN_IF_ERROR(toStatus(
        cache->reserve({&rest, 1}, all.subspan(it.length + found, rest.tokens))));
    cache->clearTransfers();
    LATHE_RETURN_IF_ERROR(toStatus(cache->commit()));
    it.length += tokens;
    return okStatus();
  }

  /// Follows the event log as a router would.
  Status drain() {
    uint64_t lost = 0;
    size_t count = cache->events().read(nextEvent, drained, lost);
    if (lost)
      return internalError("events of one step do not fit into the log");
    std::span<const kv::Event> events(drained.data(), count);
    nextEvent += count;
    LATHE_RETURN_IF_ERROR(view.apply(events));
    if (options.events)
      log.insert(log.end(), events.begin(), events.end());
    return okStatus();
  }

  Status recount() {
    ++result.recounts;
    kv::Counters now = cache->counters();
    uint64_t sequences = 0, tokens = 0, slots = 0;
    for (const Live &it : live) {
      if (it.sequence == kv::kNoSequence)
        continue;
      ++sequences;
      tokens += it.length;
      slots += cache->table(it.sequence, 0).size() * options.blockTokens;
      if (cache->length(it.sequence) != it.length)
        return internalError("a sequence has another length than its request");
    }
    struct Pair {
      const char *name;
      uint64_t counted, expected;
    };
    std::vector<Pair> pairs = {
        {"sequences", now.sequences, sequences},
        {"sequenceTokens", now.sequenceTokens, tokens},
        {"sequenceSlots", now.sequenceSlots, slots},
        {"queryTokens", now.queryTokens, attachedTokens},
        {"hitTokens", now.hitTokens, attachedHits},
        {"hit tokens of the log", view.hitTokens(), attachedHits},
        {"events", now.events, nextEvent},
        {"blocks", now.freeBlocks + now.evictableBlocks + now.reservedBlocks + now.committedBlocks,
         options.blocks},
        {"cached - evicted blocks", now.storedBlocks + now.restoredBlocks - now.evictedBlocks,
         devicePresent()},
    };
    for (const Pair &pair : pairs)
      if (pair.counted != pair.expected)
        return internalError(std::string("the counter says ") + pair.name + " = " +
                             std::to_string(pair.counted) + ", the recount " +
                             std::to_string(pair.expected));
    if (options.validate)
      for (const kv::Violation &violation : kv::validate(cache->snapshot()))
        return internalError("invariant " + std::to_string(violation.invariant) + ": " +
                             violation.what);
    if (options.events) {
      options.events->clear();
      kv::serialize(log, *options.events);
    }
    return okStatus();
  }

  /// Blocks of the device tier that the snapshot has in its prefix tree.
  uint64_t devicePresent() const {
    uint64_t count = 0;
    for (const kv::Snapshot::Node &node : cache->snapshot().nodes)
      count += node.live && !node.root && node.blocks[0] != kv::kNoBlock;
    return count;
  }

  const Trace &trace;
  const ReplayOptions &options;
  std::unique_ptr<kv::Cache> cache;
  std::vector<Live> live;
  std::vector<kv::Event> drained, log;
  kv::EventView view;
  uint64_t nextEvent = 0, attachedTokens = 0, attachedHits = 0;
  ReplayOutcome result;
};

} // namespace

Result<ReplayOutcome> replay(const Trace &trace, const ReplayOptions &options) {
  return Replayer(trace, options).run();
}

Result<ReplayOutcome> replayNano(const Trace &trace, uint32_t blocks, uint32_t blockTokens) {
  NanoAllocator allocator(blocks, blockTokens);
  std::vector<NanoAllocator::Sequence> live(trace.requests.size());
  std::vector<std::vector<uint32_t>> tokens(trace.requests.size());
  ReplayOutcome result;
  for (size_t e = 0; e < trace.events.size(); ++e) {
    const Event &event = trace.events[e];
    const Request &request = trace.requests[event.request];
    NanoAllocator::Sequence &sequence = live[event.request];
    uint32_t prompt = request.promptTokens();
    bool done = true;
    if (event.kind == Event::Kind::Finish) {
      allocator.release(sequence);
      sequence = {};
      tokens[event.request] = {};
    } else if (event.kind == Event::Kind::Append) {
      for (uint32_t i = 0; i < event.tokens && done; ++i)
        done = allocator.append(sequence, tokens[event.request][sequence.tokens.size()]);
    } else {
      tokens[event.request] = trace.tokens(request);
      sequence.tokens.assign(tokens[event.request].begin(),
                             tokens[event.request].begin() + prompt);
      done = allocator.allocate(sequence);
      // It counts a prompt that is wholly cached as a hit to its last token.
      result.hitTokens += std::min(sequence.hitTokens, (prompt - 1) / blockTokens * blockTokens);
      result.queryTokens += prompt;
    }
    if (!done)
      return runtimeError("no block is left at event " + std::to_string(e));
  }
  return result;
}

} // namespace lathe::kvperf
