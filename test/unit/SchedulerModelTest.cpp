//===- SchedulerModelTest.cpp - random events on a virtual clock ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Requests of all kinds come and go while steps fail: the model, a copy of a block, the n-th allocation of memory, the
// n-th block of the cache. What must hold: a step keeps its budget; a failed one changes nothing; each answer is, bit
// for bit, what its tokens alone come to, and none fails but those whose logits are no numbers; quotas hold; there
// is progress in each step; when all is over no block is held.
// LATHE_SERVE_EVENTS=10000000 for a long run, which `tools/check --full` has; LATHE_SERVE_WORLD is the number of the first
// world of a thousand events, so that several processes share a longer one.
//
//===----------------------------------------------------------------------===//
#include "ServingFixture.h"

#include "../../runtime/memory/kv/Faults.h"

#include <cstdio>
#include <cstdlib>
#include <new>

namespace {
thread_local long allocationsLeft = -1; ///< the one that comes at 0 fails; negative: none does
} // namespace

void *operator new(size_t size) {
  if (allocationsLeft >= 0 && allocationsLeft-- == 0)
    throw std::bad_alloc();
  if (void *memory = std::malloc(size ? size : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace lathe::serve {
namespace {

bool same(const std::vector<Logprobs> &a, const std::vector<Logprobs> &b, size_t count) {
  if (a.size() < count || b.size() < count)
    return false;
  for (size_t i = 0; i < count; ++i) {
    auto equal = [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); };
    if (!equal(a[i].logprob, b[i].logprob) || a[i].rank != b[i].rank || a[i].top.size() != b[i].top.size())
      return false;
    for (size_t t = 0; t < a[i].top.size(); ++t)
      if (a[i].top[t].token != b[i].top[t].token || !equal(a[i].top[t].logprob, b[i].top[t].logprob))
        return false;
  }
  return true;
}

struct Totals {
  uint64_t events = 0, steps = 0, failures = 0, cancels = 0, preemptions = 0, swaps = 0, hits = 0, forks = 0, finished = 0,
           failed = 0, fed = 0;
};

/// A scheduler of random limits, and what its users know.
class World {
public:
  explicit World(uint32_t seed) : random(seed), serving(draw()) {
    serving.scheduler->setTenant(1, {2, 2, 0}).ok();
    serving.scheduler->setTenant(2, {1, 0, 60}).ok();
  }

  void run(uint32_t events, Totals &totals) {
    for (uint32_t event = 0; event < events && !testing::Test::HasFailure(); ++event) {
      const uint32_t kind = random() % 100;
      if (kind < 20 && live.size() < 40)
        submit();
      else if (kind < 30 && !live.empty())
        cancel(totals);
      else if (kind < 38)
        plant();
      else
        step(totals);
    }
    disarm();
    uint64_t work = 100;
    for (const auto &[id, user] : live)
      work += 4 * (user.options.prompt.size() + user.options.maxTokens);
    for (uint64_t steps = 0; serving.scheduler->unfinished() && !testing::Test::HasFailure(); ++steps) {
      step(totals);
      ASSERT_LE(steps, work) << "somebody starves";
    }
    while (!live.empty())
      ASSERT_NO_FATAL_FAILURE(end(live.begin(), totals));
    serving.expectNoLeaks();
    totals.events += events;
    const SchedulerCounters &c = serving.scheduler->counters();
    totals.steps += c.steps;
    totals.preemptions += c.preemptions;
    totals.swaps += c.swaps;
    totals.forks += c.forks;
    totals.hits += serving.scheduler->blocks().counters().hitTokens;
    totals.fed += serving.model.fed;
  }

private:
  struct User {
    RequestOptions options;
    uint32_t sample;
    Expected wanted;
    bool cancelled = false;
  };
  using Live = std::map<uint64_t, User>;

  Sight someWindow() { return {1 + uint32_t(random() % 40), random() % 2 ? uint32_t(random() % 20) : 0}; }

  Sizes draw() {
    Sizes sizes;
    sizes.stepTokens = 2 + random() % 40;
    sizes.requests = 1 + random() % std::min(sizes.stepTokens, 12u);
    sizes.prefixCache = random() % 4 != 0;
    sizes.watermark = random() % 2 ? 0.1 : 0;
    if (random() % 2) {
      sizes.hostBlocks = 1 + random() % 40;
      sizes.swap = random() % 2 ? Swap::Always : Swap::ByCost;
    }
    draws = sizes.draws = random() % 2;
    overlaps = sizes.overlap = random() % 2;
    // All tokens, a window of them, or groups of layers that see one or the other.
    if (random() % 3 == 0)
      sizes.sights = {someWindow()};
    while (random() % 3 == 0 && sizes.sights.size() < 4)
      sizes.sights.push_back(random() % 2 ? Sight{} : someWindow());
    sights = sizes.sights;
    sizes.blocks = sizes.blocksOfSequence() + random() % 40;
    mostRequests = sizes.requests;
    return sizes;
  }

  void submit() {
    RequestOptions options;
    options.prompt = randomPrompt(random, 90);
    options.maxTokens = 1 + random() % 30;
    options.tenant = random() % 4;
    options.priority = random() % 8 == 0 ? int32_t(random() % 3) - 1 : 0;
    options.sampling.seed = random();
    if (random() % 2)
      options.sampling.temperature = 0.5f + float(random() % 4);
    if (random() % 4 == 0)
      options.sampling.topK = 1 + random() % 20;
    if (random() % 4 == 0)
      options.sampling.topP = 0.8f;
    if (random() % 4 == 0)
      options.sampling.repetitionPenalty = 1.2f, options.sampling.frequencyPenalty = 0.3f;
    if (random() % 4 == 0)
      options.sampling.minTokens = random() % (options.maxTokens + 1);
    if (random() % 3 == 0)
      options.stopTokens = {uint32_t(random() % kVocabulary), uint32_t(random() % kVocabulary)};
    if (random() % 4 == 0)
      options.logprobs = random() % 4;
    if (random() % 8 == 0)
      options.promptLogprobs = random() % 4;
    if (random() % 6 == 0)
      options.samples = 1 + uint32_t(random() % std::min<size_t>(4, limitOfRequests()));
    Result<uint64_t> id(0);
    const size_t before = serving.scheduler->unfinished();
    try {
      allocationsLeft = memory;
      id = serving.scheduler->submit(options);
      allocationsLeft = -1;
    } catch (const std::bad_alloc &) {
      allocationsLeft = -1;
      EXPECT_EQ(serving.scheduler->unfinished(), before);
      memory = -1;
      return;
    }
    memory = -1;
    ASSERT_TRUE(id.ok()) << id.status().str();
    for (uint32_t sample = 0; sample < options.samples; ++sample)
      live.emplace(*id + sample, User{options, sample, expect(options, sample, sights, draws)});
  }

  size_t limitOfRequests() const { return mostRequests; }

  void cancel(Totals &totals) {
    auto it = std::next(live.begin(), int64_t(random() % live.size()));
    ++totals.cancels;
    if (random() % 2) {
      EXPECT_TRUE(serving.scheduler->release(it->first));
      EXPECT_EQ(serving.scheduler->find(it->first), nullptr);
      live.erase(it);
      return;
    }
    it->second.cancelled |= serving.scheduler->find(it->first)->finish == Finish::None;
    EXPECT_TRUE(serving.scheduler->cancel(it->first));
    ASSERT_NO_FATAL_FAILURE(end(it, totals));
  }

  void plant() {
    switch (random() % 7) {
    case 0:
      serving.model.fails = 1;
      return;
    case 1:
      serving.model.copyFails = 1;
      return;
    case 2:
      serving.model.swapFails = 1;
      return;
    case 3:
      memory = long(random() % 12);
      return;
    case 4:
      serving.model.waitFails = 1;
      return;
    case 5:
      serving.model.drawFails = 1;
      return;
    default:
      kv::failAfter = long(random() % 4);
    }
  }
  void disarm() {
    serving.model.fails = serving.model.copyFails = serving.model.swapFails = 0;
    serving.model.waitFails = serving.model.drawFails = 0;
    memory = kv::failAfter = -1;
  }

  void step(Totals &totals) {
    const Scheduler &scheduler = *serving.scheduler;
    std::vector<std::pair<size_t, Finish>> before;
    for (const auto &[id, user] : live)
      before.push_back({scheduler.find(id)->tokens.size(), scheduler.find(id)->finish});
    const size_t unfinished = scheduler.unfinished();
    allocationsLeft = memory;
    Status status = serving.scheduler->step();
    allocationsLeft = -1;
    if (!status.ok()) {
      ++totals.failures;
      disarm();
      size_t i = 0;
      for (const auto &[id, user] : live) {
        EXPECT_EQ(scheduler.find(id)->tokens.size(), before[i].first);
        EXPECT_EQ(scheduler.find(id)->finish, before[i++].second);
      }
    } else if (!overlaps) {
      EXPECT_EQ(scheduler.lastBatch().tokens.empty(), unfinished == 0);
    }
    uint32_t running[4] = {}, tokens = 0;
    for (const auto &[id, user] : live) {
      const Request &request = *scheduler.find(id);
      if (request.sequence == kv::kNoSequence)
        continue;
      ++running[user.options.tenant];
      tokens += user.options.tenant == 2 ? uint32_t(user.options.prompt.size()) + user.options.maxTokens : 0;
    }
    EXPECT_LE(running[1], 2u);
    EXPECT_TRUE(tokens <= 60 || running[2] <= 1);
    EXPECT_EQ(running[0] + running[1] + running[2] + running[3], scheduler.runningRequests());
    if (random() % 64 == 0)
      EXPECT_TRUE(kv::validate(scheduler.blocks().snapshot()).empty());
    for (auto it = live.begin(); it != live.end();) {
      auto next = std::next(it);
      if (scheduler.find(it->first)->finish != Finish::None && random() % 2)
        ASSERT_NO_FATAL_FAILURE(end(it, totals));
      it = next;
    }
  }

  /// It has finished: all of it, or its beginning, is as wanted.
  void end(Live::iterator it, Totals &totals) {
    const User &user = it->second;
    const Request &request = *serving.scheduler->find(it->first);
    std::span<const uint32_t> answer = request.answer();
    ASSERT_NE(request.finish, Finish::None);
    if (user.cancelled) {
      EXPECT_EQ(request.finish, Finish::Cancelled);
      ASSERT_LE(answer.size(), user.wanted.answer.size());
    } else {
      EXPECT_EQ(request.finish, user.wanted.finish) << "request " << it->first;
      ASSERT_EQ(answer.size(), user.wanted.answer.size());
      EXPECT_TRUE(same(request.promptLogprobs, user.wanted.promptLogprobs, user.wanted.promptLogprobs.size()));
      ++totals.finished;
      totals.failed += request.finish == Finish::Failed;
    }
    EXPECT_TRUE(std::equal(answer.begin(), answer.end(), user.wanted.answer.begin())) << "request " << it->first;
    if (user.options.logprobs)
      EXPECT_TRUE(same(request.logprobs, user.wanted.logprobs, answer.size()));
    EXPECT_TRUE(serving.scheduler->release(it->first));
    live.erase(it);
  }

  std::mt19937 random;
  size_t mostRequests = 0; ///< set by draw()
  bool draws = false, overlaps = false; ///< also
  Sights sights;           ///< also
  Serving serving;
  Live live;
  long memory = -1; ///< which allocation of the next call fails
};

TEST(SchedulerModel, KeepsItsWordWhateverHappens) {
  auto number = [](const char *name, uint64_t otherwise) {
    const char *text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const uint64_t events = number("LATHE_SERVE_EVENTS", 100000);
  Totals totals;
  for (auto seed = uint32_t(number("LATHE_SERVE_WORLD", 1)); totals.events < events && !HasFailure(); ++seed) {
    SCOPED_TRACE("world " + std::to_string(seed));
    World(seed).run(1000, totals);
  }
  std::printf("%llu events: %llu steps, %llu failures, %llu cancels, %llu preemptions, %llu swaps, %llu tokens found, %llu forks, "
              "%llu tokens fed, %llu requests finished, %llu without a token\n",
              static_cast<unsigned long long>(totals.events), static_cast<unsigned long long>(totals.steps),
              static_cast<unsigned long long>(totals.failures), static_cast<unsigned long long>(totals.cancels),
              static_cast<unsigned long long>(totals.preemptions), static_cast<unsigned long long>(totals.swaps),
              static_cast<unsigned long long>(totals.hits),
              static_cast<unsigned long long>(totals.forks), static_cast<unsigned long long>(totals.fed),
              static_cast<unsigned long long>(totals.finished),
              static_cast<unsigned long long>(totals.failed));
  for (uint64_t count : {totals.failures, totals.cancels, totals.preemptions, totals.swaps, totals.hits, totals.forks,
                         totals.fed, totals.finished, totals.failed})
    EXPECT_GT(count, 0u); // it all happened
}

} // namespace
} // namespace lathe::serve
