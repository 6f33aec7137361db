//===- EmulatedPagesTest.cpp - decoders over pages on a GPU without one ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A decoder as an exporter writes it, compiled with `paged` for a CPU and for a GPU, on the fake device, whose
// kernels are the generated CUDA text under emulation. In f32 it generates the same tokens as on the CPU: requests
// of several lengths share steps and pool, some prompts begin with the same pages, and the pool is small
// enough that requests give their pages up. In f16 single steps are compared, on sm_100a: wgmma and
// clusters, which sm_90a takes for some sizes of a step, are not emulated.
//
//===----------------------------------------------------------------------===//

#include "EmulatedPagesFixture.h"

#include "lathe/support/Half.h"

namespace lathe::test {
namespace {

TEST_F(EmulatedPages, GreedyTokensOfManyRequests) {
  ASSERT_NO_FATAL_FAILURE(open("float", "sm_90a"));
  constexpr uint64_t kPoolBytes = 7 * 16 * 2 * 2 * kKeyHeads * kHead * sizeof(float); // of seven blocks
  std::vector<Prompt> given = prompts();
  Answers want = generate(engine, "cpu", given, kPoolBytes), got = generate(engine, "fake:0", given, kPoolBytes, {}, alone);
  ASSERT_EQ(want.error, "");
  ASSERT_EQ(got.error, "");
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.counters.steps, want.counters.steps);
  for (const char *device : {"cpu", "fake:0"}) {
    Answers overlapped = generate(engine, device, given, kPoolBytes, {}, overlapping);
    ASSERT_EQ(overlapped.error, "");
    EXPECT_EQ(overlapped.tokens, want.tokens);
    EXPECT_GT(overlapped.counters.preemptions, 0u);
  }
  EXPECT_TRUE(launched("feedTokens"));
  EXPECT_GT(got.counters.preemptions, 0u);
  EXPECT_GT(got.counters.prompt_hits, 0u);
  std::set<uint32_t> various;
  for (const std::vector<uint32_t> &tokens : got.tokens)
    various.insert(tokens.begin(), tokens.end());
  EXPECT_GT(various.size(), 12u);
}

/// Keys and values as codes with scales: appended, read and shared.
TEST_F(EmulatedPages, GreedyTokensOverCodes) {
  ASSERT_NO_FATAL_FAILURE(open("float", "sm_90a", "int4"));
  constexpr uint64_t kPoolBytes = 12 * 16 * 2 * 2 * kKeyHeads * (kHead / 2 + sizeof(float));
  std::vector<Prompt> given = prompts();
  given.erase(given.begin() + 2, given.end() - 2); // of the longer ones two that begin with the same pages
  for (Prompt &p : given)
    p.answer = 6;
  Answers want = generate(engine, "cpu", given, kPoolBytes), got = generate(engine, "fake:0", given, kPoolBytes);
  ASSERT_EQ(want.error, "");
  ASSERT_EQ(got.error, "");
  EXPECT_EQ(got.tokens, want.tokens);
}

/// By the kernels that draw, of a GPU without clusters: the same tokens and logprobs as on the CPU, whatever is asked for.
TEST_F(EmulatedPages, SampledTokensOfManyRequests) {
  ASSERT_NO_FATAL_FAILURE(open("float", "sm_80"));
  runtime::cuda::fakeGpu().capability = 80;
  constexpr uint64_t kPoolBytes = 7 * 16 * 2 * 2 * kKeyHeads * kHead * sizeof(float);
  const uint32_t biased[] = {3, 5}, allowed[] = {0xfffffff0, 0xffffff7f, ~0u, 1};
  const float biases[] = {2, -INFINITY};
  auto ask = [&](size_t i, lathe_llm_request &r) {
    r.seed = 100 + i;
    r.temperature = i == 4 ? 0 : 0.5f + 0.25f * float(i);
    r.top_k = i % 2 ? 20 : 0;
    r.top_p = i % 3 == 1 ? 0.9f : 0;
    r.min_p = i == 3 ? 0.02f : 0;
    r.repetition_penalty = i == 2 ? 1.3f : 0;
    r.frequency_penalty = i >= 4 ? 0.3f : 0;
    r.samples = i == 1 ? 3 : 1;
    r.logprobs = i != 3;
    r.prompt_logprobs = i == 1;
    r.top_logprobs = uint32_t(i);
    if (i == 0) {
      r.bias_tokens = biased;
      r.bias_values = biases;
      r.bias_count = 2;
    }
    if (i == 5) {
      r.allowed = allowed;
      r.allowed_words = 4;
    }
  };
  std::vector<Prompt> given = prompts();
  Answers want = generate(engine, "cpu", given, kPoolBytes, ask);
  Answers got = generate(engine, "fake:0", given, kPoolBytes, ask, alone);
  ASSERT_EQ(want.error, "");
  ASSERT_EQ(got.error, "");
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.ranks, want.ranks);
  Answers overlapped = generate(engine, "fake:0", given, kPoolBytes, ask, overlapping);
  ASSERT_EQ(overlapped.error, "");
  EXPECT_EQ(overlapped.tokens, got.tokens);
  EXPECT_EQ(overlapped.ranks, got.ranks);
  ASSERT_EQ(overlapped.logprobs.size(), got.logprobs.size());
  for (size_t i = 0; i < got.logprobs.size(); ++i) // of steps of other sizes
    EXPECT_NEAR(overlapped.logprobs[i], got.logprobs[i], 1e-4) << i;
  EXPECT_TRUE(launched("feedTokens"));
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  ASSERT_GT(want.logprobs.size(), 100u);
  for (size_t i = 0; i < want.logprobs.size(); ++i) // of logits that kernels of both devices give
    EXPECT_NEAR(got.logprobs[i], want.logprobs[i], 1e-4) << i;
  const std::vector<runtime::cuda::FakeLaunch> &launches = runtime::cuda::fakeGpu().launches;
  EXPECT_GT(std::count_if(launches.begin(), launches.end(), [](const auto &l) { return l.function == "sampleRows"; }), 10);
}

/// The bits of answers do not depend on company, nor on how prompts are cut or cached.
TEST_F(EmulatedPages, BatchInvariantAnswersInHalves) {
  ASSERT_NO_FATAL_FAILURE(open("float16", "sm_80", /*kvCodes=*/{}, /*batchInvariant=*/true));
  runtime::cuda::fakeGpu().capability = 80;
  constexpr uint64_t kBlockBytes = 16 * 2 * 2 * kKeyHeads * kHead * sizeof(uint16_t);
  std::vector<Prompt> given;
  for (size_t i : {1, 2, 4}) {
    given.push_back(prompts()[i]);
    given.back().answer = 4;
  }
  auto run = [&](const std::vector<Prompt> &asked, size_t first, uint32_t requests, uint32_t stepTokens, uint64_t blocks, int32_t overlap) {
    auto ask = [&](size_t i, lathe_llm_request &r) {
      r.seed = 100 + first + i;
      r.temperature = 0.8f;
      r.logprobs = 1;
      r.top_logprobs = 3;
    };
    Answers answers = generate(engine, "fake:0", asked, blocks * kBlockBytes, ask, [&](lathe_llm_options &o) {
      o.batch_invariant = 1;
      o.overlap = overlap;
      o.max_requests = requests;
      o.max_step_tokens = stepTokens;
    });
    EXPECT_EQ(answers.error, "");
    return answers;
  };
  Answers alone;
  for (size_t i = 0; i < given.size(); ++i) {
    Answers one = run({given[i]}, i, 1, 64, 24, -1);
    alone.tokens.insert(alone.tokens.end(), one.tokens.begin(), one.tokens.end());
    alone.logprobs.insert(alone.logprobs.end(), one.logprobs.begin(), one.logprobs.end());
    alone.ranks.insert(alone.ranks.end(), one.ranks.begin(), one.ranks.end());
  }
  uint64_t hits = 0;
  for (auto [requests, stepTokens, blocks, overlap] :
       {std::tuple{3u, 23u, 5u, -1}, {3u, 64u, 24u, -1}, {3u, 23u, 5u, 1}}) {
    Answers together = run(given, 0, requests, stepTokens, blocks, overlap);
    EXPECT_EQ(together.tokens, alone.tokens);
    EXPECT_EQ(together.ranks, alone.ranks);
    ASSERT_EQ(together.logprobs.size(), alone.logprobs.size());
    for (size_t i = 0; i < alone.logprobs.size(); ++i)
      EXPECT_EQ(together.logprobs[i], alone.logprobs[i]) << i;
    hits += together.counters.prompt_hits;
  }
  EXPECT_EQ(alone.logprobs.size(), 12u);
  EXPECT_GT(hits, 0u);
}

struct Half {
  uint16_t bits = 0;
  double value() const { return decodeFloat(DType::F16, bits); }
};

/// Tokens of sequences from `first` to `end`, whose pages are given.
struct Piece {
  int64_t first, end;
  std::vector<int64_t> pages;
};

/// Runs a step on `pool`, memory of the device; "" or the error.
std::string step(lathe_context *context, const std::vector<Piece> &pieces, int64_t blocks, Half *pool,
                 std::vector<Half> &logits) {
  std::vector<int64_t> tokens, positions, requests, slots, rows, tables;
  int64_t width = 0;
  for (const Piece &p : pieces)
    width = std::max(width, int64_t(p.pages.size()));
  for (const Piece &p : pieces) {
    for (int64_t i = p.first; i < p.end; ++i) {
      tokens.push_back((int64_t(rows.size()) * 31 + i * 17 + i * i) % kVocabulary);
      positions.push_back(i);
      requests.push_back(int64_t(rows.size()));
      slots.push_back(p.pages[size_t(i / 16)] * 16 + i % 16);
    }
    rows.push_back(int64_t(tokens.size()) - 1);
    tables.insert(tables.end(), p.pages.begin(), p.pages.end());
    tables.resize(rows.size() * size_t(width), 0);
  }
  const int64_t t[] = {int64_t(tokens.size())}, r[] = {int64_t(rows.size())}, m[] = {r[0], width},
                n[] = {blocks, 2, 2, 16, kKeyHeads, kHead}, l[] = {r[0], kVocabulary};
  auto integers = [](std::vector<int64_t> &values, const int64_t *dims, int32_t rank) {
    return lathe_tensor{values.data(), values.size() * 8, LATHE_I64, LATHE_HOST, rank, dims, nullptr};
  };
  lathe_tensor memory{pool, uint64_t(n[0] * n[1] * n[2] * n[3] * n[4] * n[5]) * 2, LATHE_F16, LATHE_DEVICE, 6, n, nullptr};
  lathe_tensor in[] = {integers(tokens, t, 1), integers(positions, t, 1), integers(requests, t, 1),
                       integers(slots, t, 1),  integers(tables, m, 2),    integers(rows, r, 1), memory};
  logits.resize(size_t(l[0] * l[1]));
  lathe_tensor out[] = {{logits.data(), logits.size() * 2, LATHE_F16, LATHE_HOST, 2, l, nullptr}, {}, memory};
  lathe_error *e = lathe_run(context, nullptr, in, 7, out, 3);
  std::string why = e ? lathe_error_message(e) : "";
  lathe_error_free(e);
  return why;
}

/// Three prompts of a step, then their next tokens beside more prompts, in pages that are out of order.
TEST_F(EmulatedPages, StepsInHalves) {
  ASSERT_NO_FATAL_FAILURE(open("float16", "sm_100a"));
  runtime::cuda::fakeGpu().capability = 100;
  constexpr int64_t kBlocks = 10;
  constexpr size_t kPool = kBlocks * 2 * 2 * 16 * kKeyHeads * kHead;
  const std::vector<Piece> steps[] = {{{0, 18, {5, 2}}, {0, 1, {7}}, {0, 9, {3}}},
                                      {{18, 19, {5, 2}}, {1, 2, {7}}, {9, 19, {3, 8}}, {0, 71, {6, 1, 4, 0, 9}}}};
  std::unique_ptr<Half, decltype(&std::free)> pools[2] = {{nullptr, std::free}, {nullptr, std::free}};
  std::vector<Half> logits[2];
  lathe_context *contexts[2] = {};
  for (int side : {0, 1}) {
    pools[side].reset(static_cast<Half *>(std::aligned_alloc(256, kPool * sizeof(Half))));
    std::fill_n(pools[side].get(), kPool, Half{});
    lathe_options options = {};
    options.size = sizeof options;
    options.threads = 1;
    options.no_graphs = 1;
    ASSERT_EQ(lathe_context_create(engine, side ? "fake:0" : "cpu", &options, &contexts[side]), nullptr);
  }
  for (const std::vector<Piece> &pieces : steps) {
    for (int side : {0, 1})
      ASSERT_EQ(step(contexts[side], pieces, kBlocks, pools[side].get(), logits[side]), "");
    for (size_t i = 0; i < logits[0].size(); ++i)
      ASSERT_NEAR(logits[0][i].value(), logits[1][i].value(), 2e-2) << "logit " << i;
    size_t stored = 0;
    for (size_t i = 0; i < kPool; ++i) {
      ASSERT_NEAR(pools[0].get()[i].value(), pools[1].get()[i].value(), 2e-2) << "element of the pool " << i;
      stored += pools[1].get()[i].bits != 0;
    }
    size_t tokens = 28 + (&pieces == steps ? 0 : 83);
    EXPECT_GT(stored, tokens * 2 * 2 * kKeyHeads * kHead * 9 / 10);
    EXPECT_LE(stored, tokens * 2 * 2 * kKeyHeads * kHead);
  }
  for (lathe_context *context : contexts)
    lathe_context_destroy(context);
}

/// The next tokens of many sequences, one of which has most of the keys: they are shared by blocks that hand parts over.
TEST_F(EmulatedPages, AnswersOfManySequencesInHalves) {
  ASSERT_NO_FATAL_FAILURE(open("float16", "sm_100a"));
  runtime::cuda::fakeGpu().capability = 100;
  constexpr int64_t kSequences = 12, kLongest = 400;
  std::vector<Piece> pieces;
  int64_t blocks = 0;
  for (int64_t i = 0; i < kSequences; ++i) {
    const int64_t end = i == 5 ? kLongest : 1 + 3 * i;
    pieces.push_back({end - 1, end, {}});
    for (int64_t page = 0; page * 16 < end; ++page)
      pieces.back().pages.push_back(blocks++);
    std::reverse(pieces.back().pages.begin(), pieces.back().pages.end());
  }
  const size_t size = size_t(blocks) * 2 * 2 * 16 * kKeyHeads * kHead;
  std::unique_ptr<Half, decltype(&std::free)> pools[2] = {{nullptr, std::free}, {nullptr, std::free}};
  std::vector<Half> logits[2];
  for (int side : {0, 1}) {
    pools[side].reset(static_cast<Half *>(std::aligned_alloc(256, size * sizeof(Half))));
    std::mt19937 gen(11);
    for (size_t i = 0; i < size; ++i)
      pools[side].get()[i].bits = uint16_t(encodeFloat(DType::F16, std::normal_distribution<float>()(gen)));
    lathe_options options = {};
    options.size = sizeof options;
    options.threads = 1;
    options.no_graphs = 1;
    lathe_context *context = nullptr;
    ASSERT_EQ(lathe_context_create(engine, side ? "fake:0" : "cpu", &options, &context), nullptr);
    EXPECT_EQ(step(context, pieces, blocks, pools[side].get(), logits[side]), "");
    lathe_context_destroy(context);
  }
  const std::vector<runtime::cuda::FakeLaunch> &launches = runtime::cuda::fakeGpu().launches;
  EXPECT_TRUE(std::any_of(launches.begin(), launches.end(), [](const auto &l) {
    return l.function.starts_with("attention") && l.grid[0] == 2 * 148; // two blocks of a line a multiprocessor
  }));
  ASSERT_EQ(logits[0].size(), logits[1].size());
  for (size_t i = 0; i < logits[0].size(); ++i)
    ASSERT_NEAR(logits[0][i].value(), logits[1][i].value(), 2e-2) << "logit " << i;
  for (size_t i = 0; i < size; ++i)
    ASSERT_NEAR(pools[0].get()[i].value(), pools[1].get()[i].value(), 2e-2) << "element of the pool " << i;
}

} // namespace
} // namespace lathe::test
