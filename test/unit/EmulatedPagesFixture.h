//===- EmulatedPagesFixture.h - a decoder over pages on the fake device ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A decoder as an exporter writes it, compiled with `paged` for a CPU and for a GPU, whose kernels are the generated CUDA
// text under emulation; and requests to it.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_EMULATEDPAGESFIXTURE_H
#define LATHE_TEST_EMULATEDPAGESFIXTURE_H

#include "EmulatedKernels.h"

#include "../../runtime/device/FakeDriver.h"

#include "lathe/codegen/Nvrtc.h"
#include "lathe/compiler/Compiler.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/engine/SampleAbi.h"
#include "lathe/runtime/lathe_llm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <unistd.h>

namespace lathe::test {
namespace fs = std::filesystem;

constexpr int kVocabulary = 97, kWidth = 64, kHeads = 4, kKeyHeads = 2, kHead = 16, kUp = 96;

/// What layers of a decoder see: with a window the last so many tokens, and beside it the first `sinks`.
struct Sees {
  int window = 0; ///< 0: all
  int sinks = 0;
};

/// Two layers with grouped keys, rotated by positions that follow from sizes alone, weights drawn so that answers
/// are not one token for ever. `second`: what the second layer sees; the first sees all.
inline std::string decoder(const std::string &element, Sees second = {}) {
  const std::string to = element == "float16" ? "10" : "1";
  std::ostringstream weights, body;
  std::mt19937 gen(5);
  auto matrix = [&](const std::string &name, int rows, int columns, double deviation) {
    std::normal_distribution<float> draw(0, float(deviation));
    weights << ", float[" << rows << "," << columns << "] " << name << "32 = {";
    for (int i = 0; i < rows * columns; ++i)
      weights << (i ? "," : "") << draw(gen);
    weights << "}";
    body << "  " << name << " = Cast<to = " << to << ">(" << name << "32)\n";
  };
  const double in = 1 / std::sqrt(double(kWidth));
  matrix("embed", kVocabulary, kWidth, 1);
  matrix("head", kWidth, kVocabulary, in);
  body << R"(  past = Shape<start = 2, end = 3>(k0)
  count = Shape<start = 1, end = 2>(ids)
  pastS = Squeeze(past)
  countS = Squeeze(count)
  total = Add(pastS, countS)
  places = Range(pastS, total, one)
  every = Range(zero, total, one)
  column = Unsqueeze(places, last)
  seen = LessOrEqual(every, column)
  exponents = Cast<to = 1>(halves)
  steps = Mul(exponents, rate)
  frequencies = Exp(steps)
  places32 = Cast<to = 1>(column)
  angles = Mul(places32, frequencies)
  cos32 = Cos(angles)
  sin32 = Sin(angles)
  cosT = Cast<to = )" << to << R"(>(cos32)
  sinT = Cast<to = )" << to << R"(>(sin32)
  cos = Unsqueeze(cosT, batch)
  sin = Unsqueeze(sinT, batch)
  x0 = Gather(embed, ids)
)";
  if (second.window)
    body << R"(  behind = Sub(column, window)
  recent = Greater(every, behind)
  leading = Less(every, sinks)
  either = Or(recent, leading)
  narrow = And(seen, either)
)";
  for (int layer = 0; layer < 2; ++layer) {
    auto named = [&](std::string text) { // $ is the number of the layer, % the next one's
      for (char &c : text)
        if (c == '$' || c == '%')
          c = char('0' + layer + (c == '%'));
      return text;
    };
    matrix(named("wq$"), kWidth, kHeads * kHead, 2.0 * in);
    matrix(named("wk$"), kWidth, kKeyHeads * kHead, 2.0 * in);
    matrix(named("wv$"), kWidth, kKeyHeads * kHead, in);
    matrix(named("wo$"), kHeads * kHead, kWidth, in);
    matrix(named("up$"), kWidth, kUp, in);
    matrix(named("down$"), kUp, kWidth, in);
    body << named(std::string(R"(
  n$ = RMSNormalization(x$, ones)
  qm$ = MatMul(n$, wq$)
  km$ = MatMul(n$, wk$)
  vm$ = MatMul(n$, wv$)
  qr$ = Reshape(qm$, queries)
  kr$ = Reshape(km$, keys)
  vr$ = Reshape(vm$, keys)
  qt$ = Transpose<perm = [0,2,1,3]>(qr$)
  kt$ = Transpose<perm = [0,2,1,3]>(kr$)
  vt$ = Transpose<perm = [0,2,1,3]>(vr$)
  q$ = RotaryEmbedding(qt$, cos, sin)
  kn$ = RotaryEmbedding(kt$, cos, sin)
  pk$ = Concat<axis = 2>(k$, kn$)
  pv$ = Concat<axis = 2>(v$, vt$)
  a$ = Attention(q$, pk$, pv$, )") + (layer && second.window ? "narrow" : "seen") + R"()
  at$ = Transpose<perm = [0,2,1,3]>(a$)
  ar$ = Reshape(at$, joined)
  o$ = MatMul(ar$, wo$)
  y$ = Add(x$, o$)
  m$ = RMSNormalization(y$, ones)
  u$ = MatMul(m$, up$)
  g$ = Sigmoid(u$)
  h$ = Mul(u$, g$)
  d$ = MatMul(h$, down$)
  x% = Add(y$, d$)
)");
  }
  body << "  n2 = RMSNormalization(x2, ones)\n  logits = MatMul(n2, head)\n";
  auto ports = [&](const std::string &prefix, const std::string &size) {
    std::string text;
    for (const char *port : {"k0", "v0", "k1", "v1"})
      text += ", " + element + "[B,2," + size + ",16] " + prefix + port;
    return text;
  };
  std::ostringstream text;
  text << "<ir_version: 10, opset_import: [\"\" : 23]>\ndecoder (int64[1,S] ids" << ports("", "P") << ")\n  => ("
       << element << "[1,S,97] logits" << ports("p", "U") << ")\n"
       << "<int64 window = {" << second.window << "}, int64 sinks = {" << second.sinks
       << "}, int64 zero = {0}, int64 one = {1}, int64[1] last = {1}, int64[1] batch = {0}, "
       << "int64[4] queries = {0, 0, 4, 16}, int64[4] keys = {0, 0, 2, 16}, int64[3] joined = {0, 0, 64}, "
       << "int64[8] halves = {0, 1, 2, 3, 4, 5, 6, 7}, float rate = {-1.0}, float[64] ones32 = {";
  for (int i = 0; i < kWidth; ++i)
    text << (i ? "," : "") << 1;
  text << "}" << weights.str() << ">\n{\n  ones = Cast<to = " << to << ">(ones32)\n" << body.str() << "}\n";
  std::string all = text.str();
  for (size_t at; (at = all.find("[B,")) != std::string::npos;)
    all.replace(at, 3, "[1,");
  return all;
}

struct Prompt {
  std::vector<uint32_t> tokens;
  uint32_t answer;
};

inline std::vector<Prompt> prompts() {
  std::mt19937 gen(3);
  std::vector<uint32_t> begin(33);
  for (uint32_t &token : begin)
    token = gen() % kVocabulary;
  std::vector<Prompt> all;
  for (uint32_t length : {1u, 5u, 40u, 17u, 36u, 34u}) {
    Prompt p{{}, 20 + length % 5};
    for (uint32_t i = 0; i < length; ++i)
      p.tokens.push_back(length > 33 && i < begin.size() ? begin[i] : gen() % kVocabulary);
    all.push_back(p);
  }
  return all;
}

struct Answers {
  std::string error;
  std::vector<std::vector<uint32_t>> tokens;
  std::vector<float> logprobs;
  std::vector<uint32_t> ranks; ///< and likeliest tokens
  lathe_llm_counters counters = {};
};

/// `ask` says what is wanted of a request beside its tokens, `set` of all of them.
inline Answers generate(const lathe_engine *engine, const char *device, const std::vector<Prompt> &prompts,
                 uint64_t poolBytes, const std::function<void(size_t, lathe_llm_request &)> &ask = {},
                 const std::function<void(lathe_llm_options &)> &set = {}) {
  Answers out;
  auto failed = [&](lathe_error *e) {
    if (e)
      out.error = std::string(lathe_error_location(e)) + ": " + lathe_error_message(e);
    lathe_error_free(e);
    return e != nullptr;
  };
  lathe_llm_options options = {};
  options.size = sizeof options;
  options.threads = 1;
  options.kv_bytes = poolBytes;
  options.max_sequence_tokens = 64;
  options.max_step_tokens = 24;
  options.no_graphs = 1; // a captured launch of a real cubin keeps no parameters here
  if (set)
    set(options);
  lathe_llm *llm = nullptr;
  if (failed(lathe_llm_create(engine, device, &options, &llm)))
    return out;
  std::vector<uint64_t> ids;
  for (const Prompt &p : prompts) {
    lathe_llm_request request = {};
    request.size = sizeof request;
    request.max_tokens = p.answer;
    request.tokens = p.tokens.data();
    request.token_count = p.tokens.size();
    if (ask)
      ask(ids.size(), request);
    ids.push_back(0);
    if (failed(lathe_llm_submit(llm, &request, &ids.back())))
      break;
  }
  for (size_t unfinished = ids.size(); out.error.empty() && unfinished;)
    failed(lathe_llm_step(llm, &unfinished));
  for (uint64_t id : ids) {
    lathe_llm_result result = {};
    if (out.error.empty() && !failed(lathe_llm_result_of(llm, id, &result)))
      out.tokens.emplace_back(result.tokens, result.tokens + result.token_count);
    lathe_llm_logprobs one = {};
    for (int32_t ofPrompt : {0, 1})
      for (size_t i = size_t(ofPrompt);; ++i) {
        lathe_error *e = lathe_llm_logprobs_of(llm, id, ofPrompt, i, &one);
        lathe_error_free(e);
        if (e)
          break;
        out.logprobs.push_back(one.logprob);
        out.ranks.push_back(one.rank);
        for (size_t t = 0; t < one.top_count; ++t)
          out.ranks.push_back(one.top[t].token);
      }
  }
  out.counters.size = sizeof out.counters;
  lathe_llm_get_counters(llm, &out.counters);
  lathe_llm_destroy(llm);
  return out;
}

/// Whether steps are launched before the ones ahead of them are waited for.
inline void alone(lathe_llm_options &options) { options.overlap = -1; }
inline void overlapping(lathe_llm_options &options) { options.overlap = 1; }

inline bool launched(const char *function) {
  const std::vector<runtime::cuda::FakeLaunch> &launches = runtime::cuda::fakeGpu().launches;
  return std::any_of(launches.begin(), launches.end(), [&](const auto &l) { return l.function == function; });
}

class EmulatedPages : public ::testing::Test {
protected:
  void SetUp() override {
    if (auto nvrtc = nvrtc::Compiler::open(); !nvrtc)
      GTEST_SKIP() << nvrtc.status().str();
    char name[] = "/tmp/lathe-pages-XXXXXX";
    folder = mkdtemp(name);
  }
  void TearDown() override {
    lathe_engine_close(engine);
    if (!folder.empty())
      fs::remove_all(folder);
  }

  /// Compiles the decoder for a CPU and a GPU, and gives the fake device its kernels.
  void open(const std::string &element, const std::string &gpu, const std::string &kvCodes = {}, bool batchInvariant = false) {
    CompileOptions options;
    options.batchInvariant = batchInvariant;
    options.kvCodes = kvCodes;
    open(decoder(element), gpu, options);
  }
  void open(const std::string &text, const std::string &gpu, CompileOptions options) {
    fs::path model = folder / "decoder.onnxtxt";
    std::ofstream(model) << text;
    options.targets = {"x86-64-v3", gpu};
    options.paged = true;
    options.dumpDir = folder / "dump";
    Result<CompileResult> made = compileModel(model, options);
    ASSERT_TRUE(made.ok()) << made.status().str();
    compiled = std::move(made->bytes);
    // The kernels that draw are of no program.
    auto reader = engine::EngineReader::fromMemory(compiled);
    ASSERT_TRUE(reader.ok()) << reader.status().str();
    if (const auto *section = (*reader)->find(engine::SectionType::Debug, "sources", {}, gpu)) {
      auto sources = engine::parseArchive(section->bytes);
      ASSERT_TRUE(sources.ok()) << sources.status().str();
      for (const auto &[name, text] : *sources)
        if (name == engine::kSampleKernel)
          std::ofstream(folder / "dump" / "kernels" / "sample.cu") << text;
        else if (name == engine::kSampleClusterKernel) // clusters are not emulated; the last function is for blocks
          std::ofstream(folder / "dump" / "kernels" / "sample.cu")
              << "\n// Kernel " << name << "\n\n" << text.substr(text.rfind("extern \"C\""));
    }
    EmulatedKernels kernels;
    ASSERT_EQ(kernels.build(folder / "dump", folder), "");
    ASSERT_EQ(kernels.install([](const std::string &name, const std::string &message) {
                ADD_FAILURE() << name << ": " << message;
              }),
              "");
    lathe_error *e = lathe_engine_open_memory(compiled.data(), compiled.size(), &engine);
    ASSERT_EQ(e, nullptr) << lathe_error_message(e);
  }

  fs::path folder;
  std::string compiled; ///< outlives the engine
  lathe_engine *engine = nullptr;
};

} // namespace lathe::test

#endif // LATHE_TEST_EMULATEDPAGESFIXTURE_H
