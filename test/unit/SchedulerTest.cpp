//===- SchedulerTest.cpp - the rules of a scheduler, one by one -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ServingFixture.h"

namespace lathe::serve {
namespace {

TEST(Scheduler, AnswersAreTheSameInAnyCompany) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Sizes sizes;
    sizes.blocks = 16 + random() % 40; // one sequence of 128 takes 16
    sizes.stepTokens = 2 + random() % 40;
    sizes.requests = 1 + random() % std::min(sizes.stepTokens, 12u);
    sizes.prefixCache = random() % 2;
    Serving serving(sizes);
    std::map<uint64_t, std::vector<uint32_t>> wanted;
    for (int round = 0; round < 300 || serving.scheduler->unfinished(); ++round) {
      ASSERT_LT(round, 20000) << "seed " << seed;
      if (round < 300 && random() % 8 == 0) {
        std::vector<uint32_t> prompt = randomPrompt(random, 90);
        uint32_t count = 1 + random() % 30;
        std::vector<uint32_t> answer = expected(prompt, count);
        wanted.emplace(serving.submit(std::move(prompt), count), std::move(answer));
      }
      Status status = serving.scheduler->step();
      ASSERT_TRUE(status.ok()) << status.str();
    }
    for (auto &[id, answer] : wanted) {
      EXPECT_EQ(serving.answerOf(id), answer) << "seed " << seed << " request " << id;
      EXPECT_TRUE(serving.scheduler->release(id));
    }
    serving.expectNoLeaks();
  }
}

TEST(Scheduler, PreemptsTheYoungestAndComputesItAgain) {
  Sizes sizes;
  sizes.blocks = 16;
  sizes.prefixCache = false;
  Serving serving(sizes);
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 4; ++i) // four of them grow to 40 tokens each, five blocks: twenty of sixteen
    ids.push_back(serving.submit({i, i + 1, i + 2}, 37));
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  EXPECT_GT(serving.scheduler->counters().preemptions, 0u);
  EXPECT_GT(serving.scheduler->counters().computedTokens, 4u * 39);
  for (uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(serving.answerOf(ids[i]), expected({i, i + 1, i + 2}, 37));
  // The oldest never waits for the others.
  EXPECT_LT(serving.scheduler->find(ids[0])->lastToken, serving.scheduler->find(ids[3])->lastToken);
}

/// Two dozen that grow to five blocks each, where sixteen are there, and what they compute in all.
static SchedulerCounters manyInTooLittleRoom(Sizes sizes, int64_t swapCost, int swapFails = 0) {
  sizes.blocks = 16;
  sizes.prefixCache = false;
  Serving serving(sizes);
  serving.model.swapCost = swapCost;
  serving.model.swapFails = swapFails;
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 24; ++i)
    ids.push_back(serving.submit({i, i + 1, i + 2}, 37));
  int failures = 0;
  while (serving.scheduler->unfinished())
    failures += !serving.scheduler->step().ok();
  EXPECT_EQ(failures, swapFails != 0);
  for (uint32_t i = 0; i < 24; ++i)
    EXPECT_EQ(serving.answerOf(ids[i]), expected({i, i + 1, i + 2}, 37));
  SchedulerCounters counters = serving.scheduler->counters();
  for (uint64_t id : ids)
    serving.scheduler->release(id);
  serving.expectNoLeaks();
  return counters;
}

TEST(Scheduler, SwapsWhereThatTakesLessTime) {
  constexpr uint64_t kOnce = 24u * 39;
  Sizes sizes;
  sizes.hostBlocks = 20;
  SchedulerCounters cheap = manyInTooLittleRoom(sizes, 1);
  EXPECT_GT(cheap.swaps, 0u);
  EXPECT_EQ(cheap.swaps, cheap.preemptions);
  EXPECT_EQ(cheap.computedTokens, kOnce); // nothing twice
  // The first is tried, and then it is known what it takes.
  SchedulerCounters dear = manyInTooLittleRoom(sizes, 1000000);
  EXPECT_EQ(dear.swaps, 1u);
  EXPECT_GT(dear.preemptions, 1u);
  EXPECT_GT(dear.computedTokens, kOnce);
  sizes.swap = Swap::Always;
  SchedulerCounters always = manyInTooLittleRoom(sizes, 1000000);
  EXPECT_EQ(always.swaps, always.preemptions);
  EXPECT_EQ(always.computedTokens, kOnce);
  EXPECT_GT(always.swaps, sizes.requests); // which is how many may be swapped at once
  sizes.swap = Swap::Never;
  EXPECT_EQ(manyInTooLittleRoom(sizes, 1).swaps, 0u);
  // Without room on the host, and where a copy fails: computed again.
  sizes.swap = Swap::Always;
  sizes.hostBlocks = 1;
  SchedulerCounters full = manyInTooLittleRoom(sizes, 1);
  EXPECT_LT(full.swaps, full.preemptions);
  sizes.hostBlocks = 20;
  for (int at = 1; at <= 12; ++at)
    manyInTooLittleRoom(sizes, 1, at);
}

TEST(Scheduler, CountsWhatStepsWait) {
  for (bool overlap : {false, true}) {
    Sizes sizes;
    sizes.overlap = overlap;
    Serving serving(sizes);
    serving.model.waitCost = 1000;
    for (uint32_t i = 0; i < 3; ++i)
      serving.submit({i, i + 1}, 5 + i);
    while (serving.scheduler->unfinished())
      EXPECT_TRUE(serving.scheduler->step().ok());
    const SchedulerCounters &counters = serving.scheduler->counters();
    EXPECT_GT(counters.steps, 5u);
    EXPECT_EQ(counters.waitedNs, 1000 * counters.steps);
  }
}

TEST(Scheduler, CancelledWhileSwapped) {
  Sizes sizes;
  sizes.blocks = 16;
  sizes.hostBlocks = 20;
  sizes.swap = Swap::Always;
  Serving serving(sizes);
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 4; ++i)
    ids.push_back(serving.submit({i, i + 1, i + 2}, 37));
  while (serving.scheduler->counters().swaps == 0)
    ASSERT_TRUE(serving.scheduler->step().ok());
  const Request *waits = serving.scheduler->find(ids[3]);
  ASSERT_NE(waits->swapped, kv::kNoSequence);
  EXPECT_GT(serving.scheduler->blocks().counters().swappedHostBlocks, 0u);
  EXPECT_TRUE(serving.scheduler->release(ids[3]));
  EXPECT_EQ(serving.scheduler->blocks().counters().swappedHostBlocks, 0u);
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(serving.answerOf(ids[i]), expected({i, i + 1, i + 2}, 37));
  serving.expectNoLeaks();
}

/// While long prompts arrive without end, those that generate get a token a step, and prompts begin in the
/// order in which they came.
TEST(Scheduler, NobodyStarves) {
  Sizes sizes;
  sizes.blocks = 400;
  Serving serving(sizes);
  std::mt19937 random(7);
  uint64_t first = serving.submit({1, 2, 3}, 60);
  std::vector<uint64_t> ids;
  size_t tokens = 0;
  for (int round = 0; serving.scheduler->find(first)->finish == Finish::None; ++round) {
    ids.push_back(serving.submit(std::vector<uint32_t>(60, uint32_t(random() % kVocabulary)), 5));
    ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_EQ(serving.answerOf(first).size(), ++tokens) << "after " << round << " steps";
  }
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  int64_t before = 0;
  for (uint64_t id : ids) {
    int64_t begun = serving.scheduler->find(id)->firstToken;
    EXPECT_GE(begun, before);
    before = begun;
  }
  // Steps are full while there is work: 61 prompts of 60 tokens and their answers, in steps of 16.
  EXPECT_LE(serving.scheduler->counters().steps, (ids.size() * 65 + 62) / 10);
}

TEST(Scheduler, FailedStepChangesNothing) {
  for (int at = 1; at <= 20; ++at) {
    Sizes sizes;
    sizes.blocks = 18;
    Serving serving(sizes);
    serving.model.fails = at;
    std::mt19937 random(5);
    std::map<uint64_t, std::vector<uint32_t>> wanted;
    for (int i = 0; i < 5; ++i) {
      std::vector<uint32_t> prompt = randomPrompt(random, 40);
      std::vector<uint32_t> answer = expected(prompt, 20);
      wanted.emplace(serving.submit(std::move(prompt), 20), std::move(answer));
    }
    int failures = 0;
    while (serving.scheduler->unfinished())
      failures += !serving.scheduler->step().ok();
    EXPECT_EQ(failures, 1) << at;
    for (auto &[id, answer] : wanted) {
      EXPECT_EQ(serving.answerOf(id), answer) << at;
      serving.scheduler->release(id);
    }
    serving.expectNoLeaks();
  }
}

TEST(Scheduler, ReleasedRequestsLeaveNothing) {
  std::mt19937 random(11);
  Sizes sizes;
  sizes.blocks = 24;
  Serving serving(sizes);
  std::set<uint64_t> ids;
  for (int round = 0; round < 3000; ++round) {
    if (random() % 3 == 0)
      ids.insert(serving.submit(randomPrompt(random, 60), 1 + random() % 40));
    if (!ids.empty() && random() % 3 == 0) {
      auto it = std::next(ids.begin(), int64_t(random() % ids.size()));
      EXPECT_TRUE(serving.scheduler->release(*it));
      EXPECT_EQ(serving.scheduler->find(*it), nullptr);
      ids.erase(it);
    }
    ASSERT_TRUE(serving.scheduler->step().ok());
  }
  for (uint64_t id : ids)
    serving.scheduler->release(id);
  EXPECT_FALSE(serving.scheduler->release(1u << 30));
  serving.expectNoLeaks();
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Serving serving(Sizes{});
  auto refused = [&](std::vector<uint32_t> prompt, uint32_t count) {
    RequestOptions options;
    options.prompt = std::move(prompt);
    options.maxTokens = count;
    Result<uint64_t> id = serving.scheduler->submit(std::move(options));
    return id.ok() ? std::string() : id.status().str();
  };
  EXPECT_NE(refused({}, 1), "");
  EXPECT_NE(refused({1}, 0), "");
  EXPECT_NE(refused({kVocabulary}, 1).find("97"), std::string::npos);
  EXPECT_NE(refused(std::vector<uint32_t>(120, 1), 9).find("129, more than the 128"), std::string::npos);
  EXPECT_EQ(refused(std::vector<uint32_t>(120, 1), 8), "");
}

TEST(Scheduler, StopsAtAStopToken) {
  std::vector<uint32_t> answer = expected({5, 6}, 20);
  Serving serving(Sizes{});
  RequestOptions options;
  options.prompt = {5, 6};
  options.maxTokens = 20;
  options.stopTokens = {kVocabulary + 1, answer[6]};
  uint64_t id = *serving.scheduler->submit(options);
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  answer.resize(size_t(std::find(answer.begin(), answer.end(), answer[6]) - answer.begin()) + 1);
  EXPECT_EQ(serving.answerOf(id), answer);
  EXPECT_EQ(serving.scheduler->find(id)->finish, Finish::Stop);
}

//===----------------------------------------------------------------------===//
// Priorities, tenants, samples
//===----------------------------------------------------------------------===//

RequestOptions asking(std::vector<uint32_t> prompt, uint32_t count, uint64_t tenant = 0, int32_t priority = 0) {
  RequestOptions options;
  options.prompt = std::move(prompt);
  options.maxTokens = count;
  options.tenant = tenant;
  options.priority = priority;
  return options;
}

TEST(Scheduler, GreaterPriorityTakesTheirPlace) {
  for (uint32_t blocks : {20u, 200u}) { // blocks are short, or requests at once
    Sizes sizes;
    sizes.blocks = blocks;
    sizes.requests = 3;
    sizes.prefixCache = false;
    Serving serving(sizes);
    std::vector<uint64_t> low;
    for (uint32_t i = 0; i < 5; ++i)
      low.push_back(serving.submit(asking({i, 2, 3, 4, 5, 6, 7, 8, 9}, 30)));
    for (int i = 0; i < 6; ++i)
      ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_EQ(serving.scheduler->runningRequests(), 3u);
    // Ten steps for its prompt of ten pieces, one more token for each but the first; nobody delays it.
    std::vector<uint32_t> prompt(100, 7);
    const uint64_t high = serving.submit(asking(prompt, 5, 0, 1));
    const uint64_t before = serving.scheduler->counters().steps;
    while (serving.scheduler->find(high)->finish == Finish::None)
      ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_LE(serving.scheduler->counters().steps - before, 13u);
    EXPECT_GT(serving.scheduler->counters().preemptions, 0u);
    while (serving.scheduler->unfinished())
      ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_EQ(serving.answerOf(high), expected(prompt, 5));
    for (uint32_t i = 0; i < 5; ++i)
      EXPECT_EQ(serving.answerOf(low[i]), expected({i, 2, 3, 4, 5, 6, 7, 8, 9}, 30));
  }
}

/// Tokens of prompts whose answers began, and twice those of answers, which are computed and given.
uint64_t served(const Scheduler &scheduler, const std::vector<uint64_t> &ids) {
  uint64_t sum = 0;
  for (uint64_t id : ids)
    if (const Request *request = scheduler.find(id); !request->answer().empty())
      sum += request->options.prompt.size() + 2 * request->answer().size();
  return sum;
}

double jain(const std::vector<double> &shares) {
  double sum = 0, squares = 0;
  for (double share : shares)
    sum += share, squares += share * share;
  return sum * sum / (double(shares.size()) * squares);
}

/// Tenants whose requests differ in number, length and kind and who never idle get equal shares, or those of their
/// weights; one that comes late gets its share from then on and no more.
TEST(Scheduler, TenantsShareAlike) {
  for (bool weighted : {false, true}) {
    Sizes sizes;
    sizes.blocks = 300;
    sizes.prefixCache = false;
    Serving serving(sizes);
    std::mt19937 random(4);
    const uint32_t prompts[] = {4, 60, 20, 30}, answers[] = {40, 4, 20, 3}, backlog[] = {20, 3, 5, 50};
    // The first one's tokens are mostly answers, the second one's prompts.
    const double weights[] = {weighted ? 2. : 1., weighted ? 3. : 1., 1, weighted ? 2. : 1.};
    std::vector<std::vector<uint64_t>> ids(4);
    std::vector<size_t> open(4, 0);
    for (uint64_t tenant = 0; tenant < 4; ++tenant)
      EXPECT_TRUE(serving.scheduler->setTenant(tenant, {weights[tenant], 0, 0}).ok());
    auto refill = [&](uint64_t tenant) {
      size_t waits = 0;
      for (size_t i = open[tenant]; i < ids[tenant].size(); ++i)
        waits += serving.scheduler->find(ids[tenant][i])->finish == Finish::None;
      for (; waits < backlog[tenant]; ++waits)
        ids[tenant].push_back(serving.submit(asking(std::vector<uint32_t>(1 + random() % (2 * prompts[tenant] - 1), 3),
                                                    1 + uint32_t(random() % (2 * answers[tenant] - 1)), tenant)));
      while (open[tenant] < ids[tenant].size() &&
             serving.scheduler->find(ids[tenant][open[tenant]])->finish != Finish::None)
        ++open[tenant];
    };
    std::vector<double> early(4);
    for (int step = 0; step < 6000; ++step) {
      for (uint64_t tenant = 0; tenant < (step < 3000 ? 3 : 4); ++tenant)
        refill(tenant);
      if (step == 3000)
        for (uint64_t tenant = 0; tenant < 4; ++tenant)
          early[tenant] = double(served(*serving.scheduler, ids[tenant])) / weights[tenant];
      ASSERT_TRUE(serving.scheduler->step().ok());
    }
    std::vector<double> late;
    for (uint64_t tenant = 0; tenant < 4; ++tenant)
      late.push_back(double(served(*serving.scheduler, ids[tenant])) / weights[tenant] - early[tenant]);
    EXPECT_GE(jain({early[0], early[1], early[2]}), 0.995) << early[0] << " " << early[1] << " " << early[2];
    EXPECT_GE(jain(late), 0.995) << late[0] << " " << late[1] << " " << late[2] << " " << late[3];
  }
}

TEST(Scheduler, QuotasHold) {
  Sizes sizes;
  sizes.blocks = 200;
  sizes.requests = 16;
  Serving serving(sizes);
  EXPECT_TRUE(serving.scheduler->setTenant(1, {1, 2, 0}).ok());
  EXPECT_TRUE(serving.scheduler->setTenant(2, {1, 0, 40}).ok());
  EXPECT_FALSE(serving.scheduler->setTenant(2, {0, 0, 40}).ok());
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 12; ++i)
    ids.push_back(serving.submit(asking({1, i}, 10, 1 + i % 3)));
  ids.push_back(serving.submit(asking({1, 2, 3}, 50, 2))); // more than its tenant's quota: alone it may run
  uint32_t most[4] = {};
  while (serving.scheduler->unfinished()) {
    ASSERT_TRUE(serving.scheduler->step().ok());
    uint32_t count[4] = {}, tokens = 0;
    for (uint64_t id : ids)
      if (const Request *r = serving.scheduler->find(id); r->sequence != kv::kNoSequence) {
        ++count[r->options.tenant];
        tokens += r->options.tenant == 2 ? uint32_t(r->options.prompt.size()) + r->options.maxTokens : 0;
      }
    EXPECT_LE(count[1], 2u);
    EXPECT_TRUE(tokens <= 40 || count[2] == 1);
    for (int t = 1; t < 4; ++t)
      most[t] = std::max(most[t], count[t]);
  }
  EXPECT_EQ(most[1], 2u);
  EXPECT_EQ(most[2], 3u);
  EXPECT_EQ(most[3], 4u);

  // What has ended is given back: as many run at once again.
  ids.clear();
  for (uint32_t i = 0; i < 4; ++i)
    ids.push_back(serving.submit(asking({1, i}, 10, 2)));
  size_t again = 0;
  while (serving.scheduler->unfinished()) {
    ASSERT_TRUE(serving.scheduler->step().ok());
    again = std::max<size_t>(again, std::count_if(ids.begin(), ids.end(), [&](uint64_t id) {
      return serving.scheduler->find(id)->sequence != kv::kNoSequence;
    }));
  }
  EXPECT_EQ(again, 3u);
}

TEST(Scheduler, SamplesForkTheirPrompt) {
  for (uint32_t length : {5u, 16u, 21u}) {
    Serving serving(Sizes{});
    RequestOptions options = asking(std::vector<uint32_t>(length, 4), 12);
    options.sampling.temperature = 2;
    options.samples = 6;
    options.logprobs = 2;
    const uint64_t id = serving.submit(options);
    EXPECT_EQ(serving.scheduler->unfinished(), 6u);
    while (serving.scheduler->unfinished())
      ASSERT_TRUE(serving.scheduler->step().ok());
    std::set<std::vector<uint32_t>> different;
    uint64_t computed = length;
    for (uint32_t sample = 0; sample < 6; ++sample) {
      Expected wanted = expect(options, sample);
      EXPECT_EQ(serving.answerOf(id + sample), wanted.answer) << sample;
      EXPECT_EQ(serving.scheduler->find(id + sample)->logprobs.size(), wanted.answer.size());
      different.insert(wanted.answer);
      computed += wanted.answer.size() - (wanted.finish != Finish::Failed);
    }
    EXPECT_EQ(different.size(), 6u);
    EXPECT_EQ(serving.scheduler->counters().forks, 5u);
    EXPECT_EQ(serving.scheduler->counters().computedTokens, computed);
    for (uint32_t sample = 0; sample < 6; ++sample)
      serving.scheduler->release(id + sample);
    serving.expectNoLeaks();
  }
}

/// Those that are held go on when the one that computes their prompt is cancelled.
TEST(Scheduler, HeldSamplesOutliveTheFirst) {
  Sizes sizes;
  sizes.stepTokens = 8;
  Serving serving(sizes);
  RequestOptions options = asking(std::vector<uint32_t>(30, 4), 4);
  options.sampling.temperature = 2;
  options.samples = 4;
  const uint64_t id = serving.submit(options);
  ASSERT_TRUE(serving.scheduler->step().ok());
  EXPECT_TRUE(serving.scheduler->cancel(id));
  EXPECT_TRUE(serving.scheduler->release(id + 2));
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  EXPECT_EQ(serving.scheduler->find(id)->finish, Finish::Cancelled);
  EXPECT_EQ(serving.answerOf(id + 1), expect(options, 1).answer);
  EXPECT_EQ(serving.answerOf(id + 3), expect(options, 3).answer);
  for (uint64_t one : {id, id + 1, id + 3})
    EXPECT_TRUE(serving.scheduler->release(one));
  serving.expectNoLeaks();
}

/// Of 60 blocks each request takes three at once and one later.
TEST(Scheduler, WatermarkStaysFree) {
  for (bool with : {false, true}) {
    Sizes sizes;
    sizes.blocks = 60;
    sizes.stepTokens = 600;
    sizes.requests = 30;
    sizes.prefixCache = false;
    sizes.watermark = with ? 0.3 : 0;
    Serving serving(sizes);
    for (uint32_t i = 0; i < 30; ++i)
      serving.submit(std::vector<uint32_t>(24, i), 8);
    ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_EQ(serving.scheduler->runningRequests(), with ? 13u : 15u); // 4 + 18 <= 60 - 3 * 12, 4 + 14 <= 60 - 3 * 14
    while (serving.scheduler->unfinished())
      ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_EQ(serving.scheduler->counters().preemptions, 0u);
  }
}

TEST(Scheduler, LogprobsOfPromptsAreComplete) {
  Sizes sizes;
  sizes.blocks = 17;
  sizes.stepTokens = 7;
  sizes.requests = 4;
  Serving serving(sizes);
  std::vector<std::pair<uint64_t, RequestOptions>> all;
  for (uint32_t i = 0; i < 6; ++i) {
    RequestOptions options = asking(std::vector<uint32_t>(40 + i, i < 3 ? 5 : i), 20, 0, int32_t(i % 3));
    options.promptLogprobs = 3;
    options.logprobs = 0;
    all.push_back({serving.submit(options), options});
    for (int step = 0; step < 4; ++step)
      ASSERT_TRUE(serving.scheduler->step().ok());
  }
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  EXPECT_GT(serving.scheduler->counters().preemptions, 0u);
  for (const auto &[id, options] : all) {
    Expected wanted = expect(options);
    const Request &request = *serving.scheduler->find(id);
    ASSERT_EQ(request.promptLogprobs.size(), wanted.promptLogprobs.size());
    for (size_t i = 0; i < wanted.promptLogprobs.size(); ++i)
      EXPECT_EQ(request.promptLogprobs[i].logprob, wanted.promptLogprobs[i].logprob);
    EXPECT_EQ(serving.answerOf(id), wanted.answer);
  }
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

/// Blocks behind a window go to others, so that sequences far longer than the pool run in it.
TEST(Scheduler, WindowsGiveBlocksBack) {
  for (bool overlap : {false, true}) {
    Sizes sizes;
    sizes.sights = {{20}};
    sizes.sequenceTokens = 2000;
    sizes.blocks = 24; // 192 tokens; a sequence holds 6 blocks: 19 and 16 tokens that begin somewhere in a block
    sizes.prefixCache = false;
    sizes.overlap = overlap;
    Serving serving(sizes);
    std::vector<std::pair<uint64_t, RequestOptions>> all;
    for (uint32_t i = 0; i < 5; ++i) {
      RequestOptions options = asking(std::vector<uint32_t>(100 + 90 * i, 3 + i), 300);
      all.push_back({serving.submit(options), options});
    }
    uint64_t most = 0;
    while (serving.scheduler->unfinished()) {
      ASSERT_TRUE(serving.scheduler->step().ok());
      const kv::Counters c = serving.scheduler->blocks().counters();
      most = std::max(most, c.committedBlocks);
      EXPECT_LE(c.committedBlocks, 6 * serving.scheduler->runningRequests());
    }
    EXPECT_GT(most, 12u); // several at once
    for (const auto &[id, options] : all) {
      EXPECT_EQ(serving.answerOf(id), expect(options, 0, sizes.sights).answer);
      EXPECT_TRUE(serving.scheduler->release(id));
    }
    ASSERT_TRUE(serving.scheduler->step().ok());
    serving.expectNoLeaks();
  }
}

/// Layers with and without windows in one model: those with one give blocks back, but for their sinks, while the others
/// keep theirs.
TEST(Scheduler, GroupsOfLayersGiveBlocksBackApart) {
  for (bool overlap : {false, true}) {
    Sizes sizes;
    sizes.sights = {{}, {20}, {20, 9}};
    sizes.sequenceTokens = 800;
    sizes.blocks = 100 + 6 + 2 + 6; // one sequence at its longest; 300 blocks, if all groups kept all
    sizes.prefixCache = false;
    sizes.overlap = overlap;
    ASSERT_EQ(sizes.blocksOfSequence(), sizes.blocks);
    Serving serving(sizes);
    std::vector<std::pair<uint64_t, RequestOptions>> all;
    for (uint32_t i = 0; i < 4; ++i) {
      RequestOptions options = asking(std::vector<uint32_t>(100 + 90 * i, 3 + i), 300);
      all.push_back({serving.submit(options), options});
    }
    uint64_t most = 0;
    while (serving.scheduler->unfinished()) {
      ASSERT_TRUE(serving.scheduler->step().ok());
      uint64_t blocks = 0, running = 0;
      for (const auto &[id, options] : all) {
        const Request &request = *serving.scheduler->find(id);
        if (request.sequence == kv::kNoSequence)
          continue;
        ++running;
        blocks += (request.computed + kBlockTokens - 1) / kBlockTokens + 6 + 2 + 6;
      }
      EXPECT_LE(serving.scheduler->blocks().counters().committedBlocks, blocks);
      most = std::max(most, running);
    }
    EXPECT_GT(most, 1u);
    EXPECT_GT(serving.scheduler->counters().preemptions, 0u);
    for (const auto &[id, options] : all) {
      EXPECT_EQ(serving.answerOf(id), expect(options, 0, sizes.sights).answer);
      EXPECT_TRUE(serving.scheduler->release(id));
    }
    ASSERT_TRUE(serving.scheduler->step().ok());
    serving.expectNoLeaks();
  }
}

//===----------------------------------------------------------------------===//
// Steps that overlap
//===----------------------------------------------------------------------===//

Sizes overlapping(bool draws) {
  Sizes sizes;
  sizes.overlap = true;
  sizes.draws = draws;
  return sizes;
}

/// Greedy or drawn by the model, tokens go from step to step without the scheduler; a call later they are here.
TEST(Scheduler, OverlappingStepsFeedTokens) {
  for (bool draws : {false, true}) {
    Serving serving(overlapping(draws));
    std::vector<std::pair<uint64_t, RequestOptions>> all;
    for (uint32_t i = 0; i < 6; ++i) {
      RequestOptions options = asking({i, 2, 3, 4 + i}, 20);
      if (draws && i % 2)
        options.sampling.temperature = 2, options.sampling.frequencyPenalty = 0.5f, options.logprobs = 2;
      all.push_back({serving.submit(options), options});
    }
    ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_TRUE(serving.answerOf(all[0].first).empty()); // launched
    ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_EQ(serving.answerOf(all[0].first).size(), 1u);
    while (serving.scheduler->unfinished())
      ASSERT_TRUE(serving.scheduler->step().ok());
    uint64_t given = 0;
    for (const auto &[id, options] : all) {
      Expected wanted = expect(options);
      EXPECT_EQ(serving.answerOf(id), wanted.answer);
      given += wanted.answer.size();
      EXPECT_TRUE(serving.scheduler->release(id));
    }
    EXPECT_GE(serving.model.fed, given - all.size()); // all but the first of each
    serving.expectNoLeaks();
  }
}

/// No step is launched for an answer that its length ends; one that a stop token ends took part in one step more.
TEST(Scheduler, OverlappingStepsStopOneLate) {
  std::vector<uint32_t> answer = expected({5, 6}, 20);
  for (bool stops : {false, true}) {
    Serving serving(overlapping(false));
    RequestOptions options = asking({5, 6}, stops ? 20 : 7);
    if (stops)
      options.stopTokens = {answer[6]};
    const uint64_t id = serving.submit(options);
    while (serving.scheduler->unfinished())
      ASSERT_TRUE(serving.scheduler->step().ok());
    ASSERT_TRUE(serving.scheduler->step().ok()); // what is under way comes to its end
    const Expected wanted = expect(options);
    EXPECT_EQ(serving.answerOf(id), wanted.answer);
    EXPECT_EQ(serving.scheduler->find(id)->finish, stops ? Finish::Stop : Finish::Length);
    EXPECT_EQ(serving.scheduler->counters().steps, wanted.answer.size() + stops);
    EXPECT_EQ(serving.scheduler->counters().computedTokens, 1 + wanted.answer.size() + stops);
    EXPECT_TRUE(serving.scheduler->release(id));
    serving.expectNoLeaks();
  }
}

/// Draws of a scheduler that has to see the logits, blocks that are taken from others, and samples of a prompt wait
/// for the step under way.
TEST(Scheduler, OverlappingStepsWaitWhereTheyMust) {
  for (bool draws : {false, true}) {
    Sizes sizes = overlapping(draws);
    sizes.blocks = 20;
    Serving serving(sizes);
    std::vector<std::tuple<uint64_t, RequestOptions, uint32_t>> all;
    for (uint32_t i = 0; i < 6; ++i) {
      RequestOptions options = asking({i, 2, 3, 4 + i, 9, 9, 9}, 40, 0, int32_t(i % 2));
      options.sampling.temperature = i % 3 ? 2 : 0;
      options.samples = i == 4 ? 3 : 1;
      options.promptLogprobs = 1;
      const uint64_t id = serving.submit(options);
      for (uint32_t sample = 0; sample < options.samples; ++sample)
        all.push_back({id + sample, options, sample});
      ASSERT_TRUE(serving.scheduler->step().ok());
    }
    while (serving.scheduler->unfinished())
      ASSERT_TRUE(serving.scheduler->step().ok());
    ASSERT_TRUE(serving.scheduler->step().ok());
    for (const auto &[id, options, sample] : all) {
      EXPECT_EQ(serving.answerOf(id), expect(options, sample).answer) << id;
      EXPECT_EQ(serving.scheduler->find(id)->promptLogprobs.size(), sample ? 0 : 6u);
    }
    EXPECT_GT(serving.scheduler->counters().preemptions, 0u);
    EXPECT_GT(serving.scheduler->counters().forks, 0u);
    for (const auto &[id, options, sample] : all)
      EXPECT_TRUE(serving.scheduler->release(id));
    serving.expectNoLeaks();
  }
}

/// Requests may go while a step that names them is under way.
TEST(Scheduler, OverlappingStepsOutliveRequests) {
  std::mt19937 random(3);
  Sizes sizes = overlapping(true);
  sizes.blocks = 30;
  Serving serving(sizes);
  std::set<uint64_t> ids;
  for (int round = 0; round < 2000; ++round) {
    if (random() % 3 == 0) {
      RequestOptions options = asking(randomPrompt(random, 60), 1 + random() % 30);
      options.samples = 1 + random() % 3;
      options.sampling.temperature = 2;
      const uint64_t id = serving.submit(options);
      for (uint32_t sample = 0; sample < options.samples; ++sample)
        ids.insert(id + sample);
    }
    while (!ids.empty() && (random() % 3 == 0 || ids.size() > 12)) {
      auto it = std::next(ids.begin(), int64_t(random() % ids.size()));
      EXPECT_TRUE(serving.scheduler->release(*it));
      EXPECT_EQ(serving.scheduler->find(*it), nullptr);
      ids.erase(it);
    }
    ASSERT_TRUE(serving.scheduler->step().ok());
  }
  for (uint64_t id : ids)
    serving.scheduler->release(id);
  ASSERT_TRUE(serving.scheduler->step().ok());
  serving.expectNoLeaks();
}

/// Wherever a launch, its draws or the wait for it fails, one call says so and no answer is another.
TEST(Scheduler, FailedOverlappingStepsChangeNothing) {
  for (int FunctionModel::*fails : {&FunctionModel::fails, &FunctionModel::drawFails, &FunctionModel::waitFails})
    for (int at = 1; at <= 20; ++at) {
      Sizes sizes = overlapping(true);
      sizes.blocks = 18;
      Serving serving(sizes);
      serving.model.*fails = at;
      std::mt19937 random(5);
      std::vector<std::pair<uint64_t, RequestOptions>> all;
      for (int i = 0; i < 5; ++i) {
        RequestOptions options = asking(randomPrompt(random, 40), 20);
        options.sampling.temperature = i % 2 ? 0 : 1.5f;
        all.push_back({serving.submit(options), options});
      }
      int failures = 0;
      while (serving.scheduler->unfinished()) {
        std::vector<size_t> before;
        for (const auto &[id, options] : all)
          before.push_back(serving.answerOf(id).size());
        if (serving.scheduler->step().ok())
          continue;
        ++failures;
        for (size_t i = 0; i < all.size(); ++i)
          EXPECT_EQ(serving.answerOf(all[i].first).size(), before[i]);
      }
      EXPECT_EQ(failures, 1) << at;
      for (const auto &[id, options] : all) {
        EXPECT_EQ(serving.answerOf(id), expect(options).answer) << at;
        serving.scheduler->release(id);
      }
      ASSERT_TRUE(serving.scheduler->step().ok());
      serving.expectNoLeaks();
    }
}

} // namespace
} // namespace lathe::serve
