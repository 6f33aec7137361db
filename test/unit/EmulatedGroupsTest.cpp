//===- EmulatedGroupsTest.cpp - layers with and without windows -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A decoder whose second layer sees a window, maybe with first tokens beside it, has two groups of pages. On a CPU and
// on the fake GPU it gives the tokens that it gives where no page is given back, in a pool where all pages of all
// layers would find no room.
//
//===----------------------------------------------------------------------===//

#include "EmulatedPagesFixture.h"

#include "lathe/engine/Llm.h"

#include <utility>

namespace lathe::test {
namespace {

constexpr uint64_t kPageBytes = 16 * 2 * kKeyHeads * kHead * sizeof(float); // of one layer

/// Of 60 tokens in all, or a few.
std::vector<Prompt> longPrompts() {
  std::vector<Prompt> all = prompts();
  all.resize(4);
  for (Prompt &p : all)
    p.answer = std::min<uint32_t>(63 - uint32_t(p.tokens.size()), 26);
  return all;
}

class EmulatedGroups : public EmulatedPages {
protected:
  std::vector<engine::KvGroup> groups() {
    auto reader = engine::EngineReader::fromMemory(compiled);
    EXPECT_TRUE(reader.ok());
    const auto *section = (*reader)->find(engine::SectionType::Llm, engine::kLlmSection);
    EXPECT_NE(section, nullptr);
    Result<engine::LlmInfo> info = engine::parseLlm(section->bytes);
    EXPECT_TRUE(info.ok()) << info.status().str();
    return info->groups;
  }
};

void smallSteps(lathe_llm_options &options) { options.max_step_tokens = options.max_requests = 7; }

TEST_F(EmulatedGroups, LayersWithAndWithoutWindows) {
  for (auto [second, overlap] : {std::pair(Sees{9}, &alone), std::pair(Sees{6, 3}, &overlapping)}) {
    ASSERT_NO_FATAL_FAILURE(open(decoder("float", second), "sm_90a", CompileOptions()));
    const std::vector<engine::KvGroup> of = groups();
    ASSERT_EQ(of.size(), 2u);
    EXPECT_EQ(of[0].kind, engine::KvGroupKind::Full);
    EXPECT_EQ(of[0].layers, 1u);
    EXPECT_EQ(of[1].kind, engine::KvGroupKind::Window);
    EXPECT_EQ(of[1].window, uint32_t(second.window));
    EXPECT_EQ(of[1].sinks, uint32_t(second.sinks));
    const std::vector<Prompt> given = longPrompts();
    // A pool of plenty; and one of seven pages, of which a sequence takes four for the first layer, and two or three for
    // the second, where it would have to keep four of all its tokens.
    Answers want = generate(engine, "cpu", given, 64 * kPageBytes);
    ASSERT_EQ(want.error, "");
    for (const char *device : {"cpu", "fake:0"}) {
      Answers got = generate(engine, device, given, 7 * kPageBytes, {}, [set = overlap](lathe_llm_options &options) {
        smallSteps(options);
        set(options);
      });
      ASSERT_EQ(got.error, "");
      EXPECT_EQ(got.tokens, want.tokens) << device;
    }
    lathe_engine_close(std::exchange(engine, nullptr));
  }
}

/// The same tokens as of a decoder whose mask has the window.
TEST_F(EmulatedGroups, WindowsThatAreAskedFor) {
  CompileOptions options;
  options.kvWindow = "6:3";
  ASSERT_NO_FATAL_FAILURE(open(decoder("float"), "sm_90a", options));
  ASSERT_EQ(groups().size(), 1u);
  EXPECT_EQ(groups()[0].sinks, 3u);
  const std::vector<Prompt> given = longPrompts();
  Answers want = generate(engine, "cpu", given, 64 * 2 * kPageBytes);
  ASSERT_EQ(want.error, "");
  // Three pages hold any sequence: one of the first tokens, two of the last ones.
  for (const char *device : {"cpu", "fake:0"}) {
    Answers got = generate(engine, device, given, 3 * 2 * kPageBytes, {}, smallSteps);
    ASSERT_EQ(got.error, "");
    EXPECT_EQ(got.tokens, want.tokens) << device;
  }
}

/// Where a step fails behind its launch, the greatest tokens of the one under way are still those that the next takes.
TEST_F(EmulatedGroups, FailuresBehindALaunch) {
  ASSERT_NO_FATAL_FAILURE(open("float", "sm_90a"));
  std::vector<Prompt> given = prompts();
  given.resize(3);
  Answers want = generate(engine, "cpu", given, 64 * 2 * kPageBytes);
  ASSERT_EQ(want.error, "");
  lathe_llm_options options = {};
  options.size = sizeof options;
  options.kv_bytes = 64 * 2 * kPageBytes;
  options.max_sequence_tokens = 64;
  options.max_step_tokens = 24;
  options.no_graphs = 1;
  options.overlap = 1;
  lathe_llm *llm = nullptr;
  ASSERT_EQ(lathe_llm_create(engine, "fake:0", &options, &llm), nullptr);
  std::vector<uint64_t> ids(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    lathe_llm_request request = {};
    request.size = sizeof request;
    request.max_tokens = given[i].answer;
    request.tokens = given[i].tokens.data();
    request.token_count = given[i].tokens.size();
    ASSERT_EQ(lathe_llm_submit(llm, &request, &ids[i]), nullptr);
  }
  size_t unfinished = 1, failures = 0;
  for (int step = 0; unfinished; ++step) {
    ASSERT_LT(step, 200);
    runtime::cuda::fakeGpu().failingCall = step % 3 == 2 ? "cuEventRecord" : "";
    lathe_error *e = lathe_llm_step(llm, &unfinished);
    failures += e != nullptr;
    lathe_error_free(e);
    runtime::cuda::fakeGpu().failingCall.clear();
  }
  EXPECT_GT(failures, 5u);
  for (size_t i = 0; i < ids.size(); ++i) {
    lathe_llm_result result = {};
    ASSERT_EQ(lathe_llm_result_of(llm, ids[i], &result), nullptr);
    EXPECT_EQ(std::vector<uint32_t>(result.tokens, result.tokens + result.token_count), want.tokens[i]);
  }
  lathe_llm_destroy(llm);
}

} // namespace
} // namespace lathe::test
