//===- EngineTest.cpp - engine files and plans ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "EngineBytes.h"
#include "PlanFixture.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/engine/ExprProgram.h"
#include "lathe/engine/Llm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <unistd.h>

using namespace lathe;
using namespace lathe::engine;
using lathe::test::makeBuffer;
using lathe::test::makeScalePlan;
using lathe::test::planRange;
using lathe::test::resign;

namespace {

/// A plan with every kind of step, buffer and symbol origin.
Plan makeFullPlan() {
  Plan p = makeScalePlan("x86-64-v3", false);
  DimExpr b = DimExpr::symbol("B"), s = DimExpr::symbol("P");
  p.symbols.push_back({"P", 0, 64, 0, 1, SymbolOrigin::StateLength, 0, -1});
  p.symbols.push_back({"N", 0, DimRange::kUnbounded, 8, 1, SymbolOrigin::Bound, -1, -1});
  p.symbols.push_back({"i", 0, 100, 0, 1, SymbolOrigin::Iteration, -1, -1});
  p.symbols.push_back({"K", 7, 7, 7, 7, SymbolOrigin::Constant, -1, -1});
  p.symbols.push_back({"D", -4, DimRange::kUnbounded, 13, 1, SymbolOrigin::Derived, -1, -1,
                       DimExpr::symbol("N") * 2 - 3});
  p.states.push_back({"kv", DType::F32, {b, 64, 4}, 1, "P", 64, true});
  p.states.push_back({"mean", DType::F32, {4}, -1, "", 0, true, 0});
  p.arenas.push_back({128, true});
  p.strings = {"", std::string("a\0b", 3)};
  int32_t next = static_cast<int32_t>(p.buffers.size());
  p.buffers.push_back(makeBuffer("kv", BufferKind::State, 0, DType::F32, {b, 64, 4}));
  p.buffers.push_back(makeBuffer("count", BufferKind::Host, 1, DType::I64, {}));
  p.buffers.push_back(makeBuffer("go", BufferKind::Host, 1, DType::Bool, {}, 64));
  p.buffers.push_back(makeBuffer("tail", BufferKind::View, next, DType::F32, {4}, 64));
  p.kernels[0].variants.insert(p.kernels[0].variants.begin(), p.kernels[0].variants[0]);
  p.kernels[0].variants[0].guard = {{Condition::Kind::Divisible, DimExpr::symbol("n"), 16}};
  Attribute axis{"axis", {0, -1}, {0.5}, "text"};
  Block &main = p.blocks[0];
  main.push_back(Step{HostOpStep{"copy", {axis}, {next + 1}, {next + 1}}, {"Shape_1"}});
  main.push_back(Step{BindStep{2, next + 1, 0}, {}});
  main.push_back(Step{GuardStep{{{Condition::Kind::Equal, s, s}, "message", "node X"}}, {}});
  main.push_back(Step{CopyStep{0, 3}, {}});
  main.push_back(Step{TapStep{3, "y"}, {}});
  main.push_back(Step{CustomCallStep{"mine", {axis}, {0}, {3}}, {}});
  main.push_back(Step{IfStep{next + 2, 1, -1}, {}});
  main.push_back(Step{LoopStep{next + 1, next + 2, 3, 2}, {}});
  main.push_back(Step{AdvanceStateStep{0, b}, {}});
  p.blocks.push_back({Step{TapStep{0, "then"}, {}}});
  p.blocks.push_back({Step{TapStep{0, "body"}, {}}});
  return p;
}

std::string makeEngine(const Plan &plan) {
  EngineWriter w("lathe test");
  float weights[4] = {1, 2, 3, 4};
  EXPECT_EQ(*w.addWeight("weights", {reinterpret_cast<char *>(weights), 16}), 0u);
  EXPECT_TRUE(w.addPlan(plan).ok());
  EXPECT_TRUE(w.addKernels(plan.target, "not loaded here").ok());
  EXPECT_TRUE(w.addDebug("sources", plan.target, packArchive({{"relu", "text"}})).ok());
  EXPECT_TRUE(w.addMetadata("options", "{}").ok());
  return *w.str();
}

/// Opens and parses everything; ok or the first error.
Status load(std::string_view bytes) {
  auto reader = EngineReader::fromMemory(bytes);
  if (!reader)
    return reader.status();
  auto plans = (*reader)->plans();
  return plans ? okStatus() : plans.status();
}

TEST(ExprProgram, AgreesWithDimExpr) {
  std::mt19937 random(7);
  std::vector<std::string> names = {"A", "B", "C"};
  std::function<DimExpr(int)> make = [&](int depth) -> DimExpr {
    int kind = static_cast<int>(random() % (depth ? 10 : 2));
    if (kind == 0)
      return DimExpr(int64_t(random() % 9) - 2);
    if (kind == 1)
      return DimExpr::symbol(names[random() % 3]);
    DimExpr x = make(depth - 1), y = make(depth - 1);
    switch (kind) {
    case 2:
      return x + y;
    case 3:
      return x - y;
    case 4:
      return x * y;
    case 5:
      return DimExpr::floorDiv(x, int64_t(random() % 5) + 1);
    case 6:
      return DimExpr::ceilDiv(x, int64_t(random() % 5) + 1);
    case 7:
      return DimExpr::mod(x, int64_t(random() % 5) + 1);
    case 8:
      return DimExpr::min(x, y);
    default:
      return random() % 2 ? DimExpr::max(x, y) : DimExpr::bcast(x, y);
    }
  };
  for (int round = 0; round < 2000; ++round) {
    DimExpr e = make(4);
    auto program = ExprProgram::compile(e, names);
    ASSERT_TRUE(program.ok()) << e.str();
    int64_t v[3];
    std::map<std::string, int64_t> values;
    for (int i = 0; i < 3; ++i)
      values[names[i]] = v[i] = static_cast<int64_t>(random() % 50);
    auto expected = e.evaluate(values);
    auto got = program->value(v, e.str());
    ASSERT_EQ(expected.ok(), got.ok()) << e.str();
    if (expected.ok())
      ASSERT_EQ(*expected, *got) << e.str();
  }
}

TEST(ExprProgram, ChecksArithmeticAndSymbols) {
  std::vector<std::string> names = {"A"};
  DimExpr a = DimExpr::symbol("A");
  auto square = *ExprProgram::compile(a * a, names);
  int64_t big = INT64_MAX / 2, unknown = kUnknownSymbol, out;
  EXPECT_EQ(square.evaluate({&big, 1}, out), ExprProgram::Outcome::Overflow);
  EXPECT_EQ(square.evaluate({&unknown, 1}, out), ExprProgram::Outcome::UnknownSymbol);
  EXPECT_FALSE(ExprProgram::compile(DimExpr::symbol("Z"), names).ok());
}

TEST(Plan, RoundTripsEverything) {
  Plan p = makeFullPlan();
  auto bytes = serialize(p);
  ASSERT_TRUE(bytes.ok()) << bytes.status().str();
  auto back = parse(*bytes);
  ASSERT_TRUE(back.ok()) << back.status().str();
  EXPECT_TRUE(*back == p);
  EXPECT_EQ(*serialize(*back), *bytes);
  EXPECT_EQ(optimalSizes(p), (std::vector<int64_t>{1, 0, 8, 0, 7, 13}));
}

TEST(Plan, VerifierNamesTheDefect) {
  struct Case {
    const char *message;
    std::function<void(Plan &)> break_;
  };
  DimExpr unknown = DimExpr::symbol("Q");
  std::vector<Case> cases = {
      {"unknown symbol 'Q'", [&](Plan &p) { p.buffers[2].bytes = unknown; }},
      {"unknown symbol 'Q'", [&](Plan &p) { p.guards[0].condition.lhs = unknown; }},
      {"the name 'B' appears twice", [](Plan &p) { p.symbols[1].name = "B"; }},
      {"bounds of a symbol", [](Plan &p) { p.symbols[0].min = 2000; }},
      {"the input dimension of a symbol", [](Plan &p) { p.symbols[0].axis = 1; }},
      {"axis out of range", [](Plan &p) { p.symbols[0].axis = 2; }},
      {"buffer number out of range", [](Plan &p) { p.outputs[0].buffer = 99; }},
      {"port and buffer differ", [](Plan &p) { p.outputs[0].dtype = DType::F16; }},
      {"storage that does not exist", [](Plan &p) { p.buffers[1].index = 1; }},
      {"storage that does not exist", [](Plan &p) { p.buffers[7].index = 7; }},
      {"offset is not aligned", [](Plan &p) { p.buffers[2].offset = 4; }},
      {"alignment out of range", [](Plan &p) { p.buffers[2].alignment = 48; }},
      {"different memories", [](Plan &p) { p.arenas[1].onHost = false; }},
      {"sizes and length of a weight", [](Plan &p) { p.weights[0].bytes = 12; }},
      {"out of range", [](Plan &p) { p.weights[0].offset = UINT64_MAX - 63; }},
      {"capacity", [](Plan &p) { p.states[0].capacity = 65; }},
      {"a state that grows has a first value", [](Plan &p) { p.states[0].initial = 0; }},
      {"weight number out of range", [](Plan &p) { p.states[1].initial = 7; }},
      {"its first value is of another type", [](Plan &p) { p.states[1].physical = {5}; }},
      {"last variant", [](Plan &p) { p.kernels[0].variants.pop_back(); }},
      {"may share memory", [](Plan &p) { p.kernels[0].aliases = {-1, 0, -1}; }},
      {"may share memory", [](Plan &p) { p.kernels[0].aliases = {-1, -1, 3}; }},
      {"may share memory", [](Plan &p) { p.kernels[0].aliases = {-1, -1, 2}; }},
      {"number of aliases", [](Plan &p) { p.kernels[0].aliases = {-1, -1}; }},
      {"argument names nothing",
       [](Plan &p) { p.kernels[0].variants[0].launches[0].args[0].index = 3; }},
      {"block or cluster size",
       [](Plan &p) { p.kernels[0].variants[0].launches[0].block[0] = 2048; }},
      {"wrong number of arguments",
       [](Plan &p) { std::get<LaunchStep>(p.blocks[0][0].op).buffers.pop_back(); }},
      {"a weight is written",
       [](Plan &p) { std::get<LaunchStep>(p.blocks[0][0].op).buffers[2] = 1; }},
      {"not donated", [](Plan &p) { std::get<LaunchStep>(p.blocks[0][1].op).buffers[1] = 0; }},
      {"device memory", [](Plan &p) { std::get<BindStep>(p.blocks[0][3].op).buffer = 0; }},
      {"bounds of a symbol", [](Plan &p) { p.symbols[0].min = -1; }},
      {"symbol 'D'", [](Plan &p) { p.symbols.back().value = DimExpr::symbol("D"); }},
      {"Bound symbol", [](Plan &p) { std::get<BindStep>(p.blocks[0][3].op).symbol = 0; }},
      {"a block is used twice", [](Plan &p) { std::get<IfStep>(p.blocks[0][8].op).elseBlock = 1; }},
      {"must come after", [](Plan &p) { std::get<LoopStep>(p.blocks[0][9].op).body = 0; }},
      {"a loop without end",
       [](Plan &p) {
         std::get<LoopStep>(p.blocks[0][9].op).tripCount = -1;
         std::get<LoopStep>(p.blocks[0][9].op).condition = -1;
       }},
      {"not used", [](Plan &p) { p.blocks.push_back({}); }},
      {"appears twice", [](Plan &p) { p.strings.push_back(p.strings.back()); }},
      {"first string is not empty", [](Plan &p) { p.strings.erase(p.strings.begin()); }},
      {"without a list of constants",
       [](Plan &p) {
         p.strings.clear();
         p.inputs[0].dtype = DType::String;
       }},
      {"differ in type", [](Plan &p) { p.inputs[0].dtype = DType::String; }},
  };
  ASSERT_TRUE(verify(makeFullPlan()).ok()) << verify(makeFullPlan()).str();
  for (const Case &c : cases) {
    Plan p = makeFullPlan();
    c.break_(p);
    Status s = verify(p);
    EXPECT_EQ(s.code(), ErrorCode::Invalid) << c.message;
    EXPECT_NE(s.message().find(c.message), std::string::npos) << c.message << " / " << s.str();
    EXPECT_FALSE(serialize(p).ok());
  }
}

TEST(Archive, RoundTripsAndRejectsTruncation) {
  std::string bytes = packArchive({{"a", "first"}, {"b", ""}, {"c", std::string(100, 'x')}});
  auto items = parseArchive(bytes);
  ASSERT_TRUE(items.ok());
  ASSERT_EQ(items->size(), 3u);
  EXPECT_EQ((*items)[0].second, "first");
  EXPECT_EQ((*items)[2].second, std::string(100, 'x'));
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(parseArchive(std::string_view(bytes).substr(0, n)).ok()) << n;
}

TEST(EngineFile, WritesDeterministicallyAndReads) {
  std::string file = makeEngine(makeFullPlan());
  EXPECT_EQ(file, makeEngine(makeFullPlan()));
  auto reader = EngineReader::fromMemory(file);
  ASSERT_TRUE(reader.ok()) << reader.status().str();
  EXPECT_EQ((*reader)->buildId(), "lathe test");
  ASSERT_TRUE((*reader)->kernels("x86-64-v3"));
  EXPECT_EQ((*reader)->find(SectionType::Metadata, "options")->bytes, "{}");
  auto plans = (*reader)->plans();
  ASSERT_TRUE(plans.ok()) << plans.status().str();
  EXPECT_TRUE((*plans)[0] == makeFullPlan());
}

TEST(EngineFile, OpensFilesAndMapsWeights) {
  std::string path = ::testing::TempDir() + "engine" + std::to_string(getpid()) + ".lathe";
  EngineWriter w("test");
  ASSERT_TRUE(w.addWeight("weights", std::string(100, 'w')).ok());
  EXPECT_EQ(*w.addWeight("weights", std::string(10, 'v')), 128u);
  EXPECT_EQ(*w.addWeight("weights", std::string(100, 'w')), 0u) << "equal bytes are stored once";
  FileSink file(path);
  ASSERT_TRUE(w.write(file).ok());
  ASSERT_TRUE(file.commit(FileSync::None).ok());
  auto reader = EngineReader::open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().str();
  std::string_view bytes = (*reader)->find(SectionType::Weights, "weights")->bytes;
  EXPECT_EQ(bytes.size(), 138u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 4096, 0u);
  unlink(path.c_str());
  EXPECT_EQ(EngineReader::open(path).status().code(), ErrorCode::RuntimeFailure);
}

TEST(EngineFile, RejectsPlansWithoutTheirSections) {
  EngineWriter w("test");
  ASSERT_TRUE(w.addPlan(makeFullPlan()).ok());
  EXPECT_NE(load(*w.str()).str().find("outside its section"), std::string::npos);
}

/// The smallest engine that has an entry.
std::string makeSmallEngine() {
  Plan p = makeScalePlan("x86-64-v3", false);
  p.kernels.clear();
  p.blocks = {{Step{CopyStep{0, 3}, {"Identity"}}}};
  EngineWriter w("lathe test");
  float weights[4] = {1, 2, 3, 4};
  EXPECT_TRUE(w.addWeight("weights", {reinterpret_cast<char *>(weights), 16}).ok());
  EXPECT_TRUE(w.addPlan(p).ok());
  return *w.str();
}

TEST(EngineFile, RejectsEveryTruncation) {
  std::string file = makeSmallEngine();
  for (size_t n = 0; n < file.size(); ++n)
    ASSERT_EQ(load(std::string_view(file).substr(0, n)).code(), ErrorCode::Invalid) << n;
  EXPECT_EQ(load(file + '\0').code(), ErrorCode::Invalid);
}

TEST(EngineFile, RejectsEveryFlippedBit) {
  std::string file = makeSmallEngine();
  ASSERT_TRUE(load(file).ok()) << load(file).str();
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    file[bit / 8] ^= static_cast<char>(1 << bit % 8);
    // Only the reader here: a flip must not get as far as the plans.
    auto reader = EngineReader::fromMemory(file);
    ASSERT_FALSE(reader.ok()) << bit;
    ASSERT_EQ(reader.status().code(), ErrorCode::Invalid) << bit;
    file[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
}

/// With the digests made right, the parser alone must hold: an error or a plan that
/// verifies, never a crash (this test runs under ASan and UBSan in check).
TEST(EngineFile, SurvivesFlipsBehindTheDigests) {
  std::string original = makeEngine(makeFullPlan());
  size_t rejected = 0, accepted = 0;
  auto tryFlips = [&](size_t from, size_t to) {
    for (size_t bit = from * 8; bit < to * 8; ++bit) {
      std::string file = original;
      file[bit / 8] ^= static_cast<char>(1 << bit % 8);
      resign(file);
      Status s = load(file);
      ASSERT_TRUE(s.ok() || s.code() == ErrorCode::Invalid) << bit << " " << s.str();
      ++(s.ok() ? accepted : rejected);
    }
  };
  auto [planBegin, planEnd] = planRange(original);
  tryFlips(0, lathe::test::tableEnd(original));
  tryFlips(planBegin, planEnd);
  EXPECT_GT(rejected, accepted);
}

TEST(EngineFile, NamesAnotherVersion) {
  std::string file = makeEngine(makeScalePlan("x86-64-v3", false));
  for (uint32_t version : {0u, kFormatVersion - 1, kFormatVersion + 1, 1000u}) {
    std::memcpy(file.data() + 8, &version, 4);
    resign(file);
    Status s = load(file);
    EXPECT_EQ(s.code(), ErrorCode::Invalid);
    EXPECT_NE(s.str().find("engine format " + std::to_string(version)), std::string::npos);
  }
}

/// The section of a paged decoder: what is written is read, and any changed byte gives an error or another
/// valid section, never a crash.
TEST(Engine, LlmSectionIsReadOrRefused) {
  LlmInfo info;
  info.entry = "step";
  info.vocabulary = 512;
  KvGroup group;
  group.layers = 2;
  group.layout = {DType::I8, 16, 2, 32, 32, KvOrder::TokenHeadDim, KvScales::HeadToken};
  group.layout.alignment = kPoolAlignment;
  group.kind = KvGroupKind::Window;
  group.window = 4096;
  group.sinks = 4;
  info.groups = {group};
  info.proofs = {"O3: a token sees the keys up to its own"};
  info.assumptions = {"no sequence is padded"};
  info.batchInvariant = true;
  const std::string bytes = packLlm(info);
  Result<LlmInfo> back = parseLlm(bytes);
  ASSERT_TRUE(back.ok()) << back.status().str();
  EXPECT_TRUE(back->batchInvariant);
  EXPECT_EQ(back->entry, "step");
  EXPECT_EQ(back->vocabulary, 512u);
  ASSERT_EQ(back->groups.size(), 1u);
  EXPECT_EQ(back->groups[0].layers, 2u);
  EXPECT_EQ(back->groups[0].kind, KvGroupKind::Window);
  EXPECT_EQ(back->groups[0].window, 4096u);
  EXPECT_EQ(back->groups[0].sinks, 4u);
  EXPECT_EQ(back->groups[0].layout, group.layout);
  EXPECT_EQ(back->proofs, info.proofs);
  EXPECT_EQ(back->assumptions, info.assumptions);
  size_t refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = char(damaged[i] ^ 0x5a);
    refused += !parseLlm(damaged).ok();
  }
  EXPECT_GT(refused, bytes.size() / 4);
  for (size_t i = 0; i + 16 <= bytes.size(); ++i)
    EXPECT_FALSE(parseLlm(std::string_view(bytes).substr(0, i)).ok()) << i;
  info.groups[0].kind = KvGroupKind::Full; // which has no window
  EXPECT_EQ(parseLlm(packLlm(info)).status().code(), ErrorCode::Invalid);
  info.groups[0].window = 0; // nor first tokens beside one
  EXPECT_EQ(parseLlm(packLlm(info)).status().code(), ErrorCode::Invalid);
  info.groups[0].sinks = 0;
  EXPECT_TRUE(parseLlm(packLlm(info)).ok());
  info.groups[0].layout.heads = 0;
  EXPECT_EQ(parseLlm(packLlm(info)).status().code(), ErrorCode::Invalid);
}

} // namespace
