//===- ReplayMain.cpp - lathe-kv-replay -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hit rates, waste and event logs of the KV cache over traces; tables go to
// standard output.
//
//===----------------------------------------------------------------------===//

#include "Optimum.h"
#include "Replay.h"
#include "Workload.h"
#include "lathe/support/Files.h"

#include <charconv>
#include <cstdio>
#include <map>

using namespace lathe;
using namespace lathe::kvperf;

namespace {

constexpr const char *usageText =
    "lathe-kv-replay sweep [--requests=3000] [--seed=1] [--block=16] [--workload=NAME]\n"
    "    hit rate of each policy at capacities from just what is live upwards\n"
    "lathe-kv-replay waste [--requests=3000] [--seed=1]\n"
    "    unused slots of chat-like requests for each block size, from the live counters\n"
    "lathe-kv-replay trace NAME [--requests=3000] [--seed=1]\n"
    "    the trace of a workload: zipf, chat, agents, thrash or lengths\n"
    "lathe-kv-replay run TRACE --capacity=BLOCKS [--policy=lru|lfu|priority] [--block=16]\n"
    "    [--host=BLOCKS] [--hash=keyed|sha256] [--events=FILE]\n"
    "    one trace through the cache, recounting all the way\n"
    "lathe-kv-replay events FILE\n"
    "    what a reader learns from an event log\n";

struct Policy {
  const char *name;
  kv::Eviction eviction;
};
constexpr Policy policies[] = {{"lru", kv::Eviction::Lru},
                               {"lfu", kv::Eviction::Lfu},
                               {"priority", kv::Eviction::Priority}};

/// `--name=value` options and the rest.
class Arguments {
public:
  Arguments(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
      std::string_view word = argv[i];
      size_t equals = word.find('=');
      if (word.starts_with("--") && equals != word.npos)
        options[word.substr(2, equals - 2)] = word.substr(equals + 1);
      else
        words.push_back(word);
    }
  }

  /// What was asked for, or `otherwise`; remembered as known.
  std::string_view text(std::string_view name, std::string_view otherwise) {
    auto it = options.find(name);
    std::string_view value = it == options.end() ? otherwise : it->second;
    options.erase(name);
    return value;
  }
  Result<uint32_t> number(std::string_view name, uint32_t otherwise) {
    std::string_view value = text(name, "");
    if (value.empty())
      return otherwise;
    uint32_t parsed = 0;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size())
      return usageError("--" + std::string(name) + " wants a number");
    return parsed;
  }
  /// Usage error if an option was given that nobody asked for.
  Status done() const {
    if (options.empty())
      return okStatus();
    return usageError("unknown option --" + std::string(options.begin()->first));
  }

  std::vector<std::string_view> words;

private:
  std::map<std::string_view, std::string_view> options;
};

#define LATHE_NUMBER(variable, name, otherwise)                                                    \
  Result<uint32_t> variable##Result = arguments.number(name, otherwise);                           \
  if (!variable##Result.ok())                                                                      \
    return variable##Result.status();                                                              \
  uint32_t variable = *variable##Result

void printRow(const BlockTrace &blocks, uint32_t capacity, const char *policy, uint64_t hits,
              uint64_t best) {
  std::printf("%s\t%u\t%u\t%s\t%llu\t%llu\t%.4f\t%.4f\n", blocks.trace.name.c_str(),
              blocks.blockTokens, capacity, policy, (unsigned long long)blocks.queriedTokens,
              (unsigned long long)hits, double(hits) / double(blocks.queriedTokens),
              best ? double(hits) / double(best) : 1.0);
}

Status sweepWorkload(const Trace &trace, uint32_t blockTokens) {
  BlockTrace blocks(trace, blockTokens);
  uint64_t unbounded = idealScore(blocks, UINT32_MAX, Rule::Clairvoyant).hitTokens;
  // From what is live, and a little for the steps between, until least recently used is perfect.
  double capacity = blocks.peakHeld * 1.05 + 8;
  for (int i = 0; i < 12; ++i, capacity *= 1.4142135623730951) {
    uint32_t room = uint32_t(capacity);
    Score best = idealScore(blocks, room, Rule::Clairvoyant);
    if (!best.feasible)
      return internalError("the live requests of " + trace.name + " do not fit");
    printRow(blocks, room, "clairvoyant", best.hitTokens, best.hitTokens);
    uint64_t lowest = UINT64_MAX;
    for (const Policy &policy : policies) {
      ReplayOptions options;
      options.blockTokens = blockTokens;
      options.blocks = room;
      options.eviction = policy.eviction;
      auto outcome = replay(trace, options);
      if (!outcome.ok())
        return outcome.status();
      if (outcome->hitTokens > best.hitTokens)
        return internalError(std::string(policy.name) + " beats the optimum");
      printRow(blocks, room, policy.name, outcome->hitTokens, best.hitTokens);
      lowest = std::min(lowest, outcome->hitTokens);
    }
    // Blocks behind a miss are never shared there, so that what is live may need more room.
    if (auto nano = replayNano(trace, room, blockTokens); nano.ok())
      printRow(blocks, room, "nano", nano->hitTokens, best.hitTokens);
    printRow(blocks, room, "random", idealScore(blocks, room, Rule::Random).hitTokens,
             best.hitTokens);
    std::fflush(stdout);
    if (lowest == unbounded)
      break;
  }
  return okStatus();
}

Status sweep(Arguments &arguments) {
  LATHE_NUMBER(requests, "requests", 3000);
  LATHE_NUMBER(seed, "seed", 1);
  LATHE_NUMBER(block, "block", 16);
  std::string_view only = arguments.text("workload", "");
  LATHE_RETURN_IF_ERROR(arguments.done());
  std::puts("workload\tblock_tokens\tcapacity_blocks\tpolicy\tquery_tokens\thit_tokens\thit_rate\t"
            "of_optimum");
  for (std::string_view name : workloadNames) {
    if (!only.empty() && only != name)
      continue;
    auto trace = makeWorkload(name, requests, seed);
    if (!trace.ok())
      return trace.status();
    LATHE_RETURN_IF_ERROR(sweepWorkload(*trace, block));
  }
  return okStatus();
}

Status waste(Arguments &arguments) {
  LATHE_NUMBER(requests, "requests", 3000);
  LATHE_NUMBER(seed, "seed", 1);
  LATHE_RETURN_IF_ERROR(arguments.done());
  auto trace = makeWorkload("lengths", requests, seed);
  if (!trace.ok())
    return trace.status();
  double prompts = 0, outputs = 0;
  for (const Request &request : trace->requests) {
    prompts += request.promptTokens();
    outputs += request.output.tokens;
  }
  double count = double(trace->requests.size());
  std::printf("# %.0f requests, mean prompt %.1f, mean output %.1f tokens, 256 at a time\n", count,
              prompts / count, outputs / count);
  std::puts("block_tokens\twaste\trecounts");
  for (uint32_t blockTokens : {8u, 16u, 32u, 64u, 128u, 256u}) {
    ReplayOptions options;
    options.blockTokens = blockTokens;
    options.blocks = BlockTrace(*trace, blockTokens).peakHeld * 2;
    options.recountEvery = 100;
    auto outcome = replay(*trace, options);
    if (!outcome.ok())
      return outcome.status();
    std::printf("%u\t%.4f\t%u\n", blockTokens, outcome->waste(), outcome->recounts);
  }
  return okStatus();
}

Status writeTrace(Arguments &arguments) {
  LATHE_NUMBER(requests, "requests", 3000);
  LATHE_NUMBER(seed, "seed", 1);
  LATHE_RETURN_IF_ERROR(arguments.done());
  auto trace = makeWorkload(arguments.words[1], requests, seed);
  if (!trace.ok())
    return trace.status();
  std::string text = toText(*trace);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return okStatus();
}

Status runTrace(Arguments &arguments) {
  ReplayOptions options;
  LATHE_NUMBER(capacity, "capacity", 0);
  LATHE_NUMBER(block, "block", 16);
  LATHE_NUMBER(host, "host", 0);
  options.blocks = capacity;
  options.blockTokens = block;
  options.hostBlocks = host;
  std::string_view policy = arguments.text("policy", "lru");
  std::string_view hash = arguments.text("hash", "keyed");
  std::string eventFile(arguments.text("events", ""));
  LATHE_RETURN_IF_ERROR(arguments.done());
  bool known = false;
  for (const Policy &p : policies)
    if (policy == p.name) {
      options.eviction = p.eviction;
      known = true;
    }
  if (!known || (hash != "keyed" && hash != "sha256"))
    return usageError("no such policy or hash");
  options.hash = hash == "keyed" ? kv::HashKind::Keyed128 : kv::HashKind::Sha256;
  options.recountEvery = 1000;
  std::vector<uint8_t> events;
  if (!eventFile.empty())
    options.events = &events;
  auto text = readFile(std::string(arguments.words[1]));
  if (!text.ok())
    return text.status();
  auto trace = parseTrace(*text);
  if (!trace.ok())
    return trace.status();
  auto outcome = replay(*trace, options);
  if (!outcome.ok())
    return outcome.status();
  const kv::Counters &c = outcome->counters;
  std::printf("query tokens   %llu\nhit tokens     %llu (%.2f %%)\nevicted blocks %llu\n"
              "merged blocks  %llu\nhost hits      %llu tokens\nsteps          %llu in %.3f s\n",
              (unsigned long long)outcome->queryTokens, (unsigned long long)outcome->hitTokens,
              outcome->hitRate() * 100, (unsigned long long)c.evictedBlocks,
              (unsigned long long)c.mergedBlocks, (unsigned long long)c.hostHitTokens,
              (unsigned long long)c.steps, outcome->seconds);
  if (!eventFile.empty())
    return writeFileAtomically(
        eventFile, std::string_view(reinterpret_cast<const char *>(events.data()), events.size()));
  return okStatus();
}

Status readEvents(Arguments &arguments) {
  LATHE_RETURN_IF_ERROR(arguments.done());
  auto bytes = readFile(std::string(arguments.words[1]));
  if (!bytes.ok())
    return bytes.status();
  auto events = kv::parseEvents({reinterpret_cast<const uint8_t *>(bytes->data()), bytes->size()});
  if (!events.ok())
    return events.status();
  kv::EventView view;
  LATHE_RETURN_IF_ERROR(view.apply(*events));
  std::printf("events     %zu\nblocks     %zu\nhit tokens %llu\n", events->size(), view.size(),
              (unsigned long long)view.hitTokens());
  return okStatus();
}

} // namespace

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--help") {
      std::fputs(usageText, stdout);
      return 0;
    }
  Arguments arguments(argc, argv);
  std::string_view verb = arguments.words.empty() ? "" : arguments.words[0];
  size_t wanted = verb == "trace" || verb == "run" || verb == "events" ? 2 : 1;
  Status (*action)(Arguments &) = verb == "sweep"    ? sweep
                                  : verb == "waste"  ? waste
                                  : verb == "trace"  ? writeTrace
                                  : verb == "run"    ? runTrace
                                  : verb == "events" ? readEvents
                                                     : nullptr;
  if (!action || arguments.words.size() != wanted) {
    std::fputs(usageText, stderr);
    return int(ErrorCode::Usage);
  }
  Status status = action(arguments);
  if (!status.ok())
    std::fprintf(stderr, "%s\n", status.str().c_str());
  return int(status.code());
}
