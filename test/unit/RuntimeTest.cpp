//===- RuntimeTest.cpp - running engines through the C interface *- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RuntimeFixture.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;

namespace {

using Dims = std::vector<int64_t>;

/// An engine of plans and a context on the CPU.
struct Cpu {
  rt::Engine engine;
  rt::Context context;
  explicit Cpu(const std::vector<Plan> &plans, int threads = 2)
      : engine(openEngine(makeEngine(plans, cpuImage()))) {
    rt::Error e = context.create(engine, "cpu", threads);
    EXPECT_FALSE(e) << e.message();
  }
  std::string run(std::initializer_list<lathe_tensor> inputs, std::span<lathe_tensor> outputs,
                  lathe_code expected = LATHE_OK, const std::string &entry = "") {
    rt::Error e = context.run(entry, {inputs.begin(), inputs.size()}, outputs);
    EXPECT_EQ(e.code(), expected) << (e ? e.message() : "success");
    return e ? e.message() : "";
  }
};

struct HostTensor {
  std::vector<float> data;
  Dims dims;
  explicit HostTensor(Dims d) : dims(std::move(d)) {
    int64_t count = 1;
    for (int64_t n : dims)
      count *= n;
    data.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(i % 11) - 5;
  }
  lathe_tensor tensor() { return rt::tensor(data, dims); }
};

std::vector<float> values(const lathe_tensor &t) {
  const auto *p = static_cast<const float *>(t.data);
  return {p, p + lathe_tensor_bytes(t.dtype, t.rank, t.dims) / 4};
}

std::vector<float> expectedScale(const std::vector<float> &x) {
  std::vector<float> y;
  for (size_t i = 0; i < x.size(); ++i)
    y.push_back(std::max(0.0f, x[i] * static_cast<float>(i % 4 + 1) + x[i]));
  return y;
}

Plan scalePlan() { return makeScalePlan("x86-64-v2", false); }

TEST(Runtime, RunsAtManyShapes) {
  for (int threads : {1, 2, 5}) {
    Cpu cpu({scalePlan()}, threads);
    for (int64_t b : {1, 3, 512, 0, 97, 1}) {
      HostTensor x({b, 4});
      lathe_tensor y{};
      cpu.run({x.tensor()}, {&y, 1});
      ASSERT_EQ(y.rank, 2);
      EXPECT_EQ(y.dims[0], b);
      EXPECT_EQ(values(y), expectedScale(x.data)) << b;
    }
    lathe_counters c = cpu.context.counters();
    EXPECT_EQ(c.runs, 6u);
    EXPECT_EQ(c.launches, 10u) << "none for no rows";
    EXPECT_EQ(c.weight_bytes, 16u);
    EXPECT_GE(c.arena_bytes, 512u * 16);
  }
}

TEST(Runtime, DescribesTheEngine) {
  Cpu cpu({makeAppendPlan("prefill"), makeAppendPlan("decode")});
  const lathe_engine *e = cpu.engine.get();
  EXPECT_STREQ(lathe_engine_build_id(e), "runtime test");
  EXPECT_EQ(lathe_engine_entry_count(e), 2u);
  EXPECT_STREQ(lathe_engine_entry_name(e, 0), "prefill") << "in the order of the compiler";
  EXPECT_EQ(lathe_engine_entry_name(e, 2), nullptr);
  EXPECT_STREQ(lathe_engine_target_name(e, 0), "x86-64-v2");
  EXPECT_STREQ(lathe_engine_state_name(e, 0), "kv");
  const lathe_port *x = lathe_engine_input(e, "prefill", 0);
  EXPECT_STREQ(x->name, "x");
  EXPECT_STREQ(x->dims[1], "S");
  EXPECT_STREQ(x->dims[2], "4");
  EXPECT_STREQ(lathe_engine_output(e, nullptr, 0)->dims[1], "P + S");
  EXPECT_EQ(lathe_engine_input(e, "other", 0), nullptr);
  EXPECT_STREQ(lathe_engine_symbol(e, nullptr, 0)->name, "B");
  EXPECT_STREQ(lathe_context_target(cpu.context.get()), "x86-64-v2");
}

TEST(Runtime, RefusesWrongInputsWithTheirNames) {
  Cpu cpu({scalePlan()});
  HostTensor x({2, 4}), tooMany({513, 4}), beyond({1001, 4}), wide({2, 5}), flat({8});
  lathe_tensor y{};
  EXPECT_EQ(cpu.run({tooMany.tensor()}, {&y, 1}, LATHE_RUNTIME_FAILURE),
            "node Mul_0: at most 512 rows");
  EXPECT_EQ(cpu.run({beyond.tensor()}, {&y, 1}, LATHE_RUNTIME_FAILURE),
            "input 'x': axis 0 is 1001; this engine takes B = 0 to 1000");
  EXPECT_EQ(cpu.run({wide.tensor()}, {&y, 1}, LATHE_RUNTIME_FAILURE),
            "input 'x': axis 1 has size 5, expected 4");
  cpu.run({flat.tensor()}, {&y, 1}, LATHE_USAGE);
  cpu.run({}, {&y, 1}, LATHE_USAGE);
  lathe_tensor t = x.tensor();
  t.dtype = LATHE_I32;
  EXPECT_EQ(cpu.run({t}, {&y, 1}, LATHE_USAGE),
            "input 'x': element type is i32, expected f32");
  t = x.tensor();
  t.data = nullptr;
  cpu.run({t}, {&y, 1}, LATHE_USAGE);
  t = x.tensor();
  t.bytes = 31;
  cpu.run({t}, {&y, 1}, LATHE_USAGE);
  EXPECT_NE(cpu.run({x.tensor()}, {&y, 1}, LATHE_USAGE, "other").find("it has main"),
            std::string::npos);
  cpu.run({x.tensor()}, {&y, 1});
}

TEST(Runtime, TakesUnalignedStridedAndOverlappingMemory) {
  Cpu cpu({scalePlan()});
  HostTensor x({6, 4});
  std::vector<float> expected = expectedScale(x.data);
  // One element off any alignment.
  std::vector<float> moved(25);
  std::copy(x.data.begin(), x.data.end(), moved.begin() + 1);
  lathe_tensor in = x.tensor(), y{};
  in.data = moved.data() + 1;
  cpu.run({in}, {&y, 1});
  EXPECT_EQ(values(y), expected);
  EXPECT_GT(cpu.context.counters().bytes_staged, 0u);
  // Columns first.
  std::vector<float> transposed(24);
  for (int r = 0; r < 6; ++r)
    for (int c = 0; c < 4; ++c)
      transposed[c * 6 + r] = x.data[r * 4 + c];
  Dims strides = {1, 6};
  in = x.tensor();
  in.data = transposed.data();
  in.strides = strides.data();
  y = {};
  cpu.run({in}, {&y, 1});
  EXPECT_EQ(values(y), expected);
  // The caller's memory for the result, here the input's own.
  HostTensor both = x;
  in = both.tensor();
  lathe_tensor out = both.tensor();
  cpu.run({in}, {&out, 1});
  EXPECT_EQ(both.data, expected);
  // Too little of it.
  out.bytes = 95;
  EXPECT_NE(cpu.run({in}, {&out, 1}, LATHE_USAGE).find("96 bytes"), std::string::npos);
  // Not wanted.
  out = {};
  out.memory = LATHE_DISCARD;
  cpu.run({in}, {&out, 1});
  EXPECT_EQ(out.data, nullptr);
  EXPECT_EQ(out.dims[0], 6);
  cpu.run({in}, {});
}

TEST(Runtime, ChoosesVariantsBySize) {
  Plan p = scalePlan();
  KernelVariant small = p.kernels[1].variants[0];
  small.guard = {{Condition::Kind::LessEqual, DimExpr::symbol("n"), 4}};
  small.launches[0].function = "relu_small";
  p.kernels[1].variants.insert(p.kernels[1].variants.begin(), small);
  Cpu cpu({p});
  HostTensor one({1, 4}), two({2, 4});
  lathe_tensor y{};
  cpu.run({one.tensor()}, {&y, 1});
  EXPECT_EQ(values(y)[0], -1);
  y = {};
  cpu.run({two.tensor()}, {&y, 1});
  EXPECT_EQ(values(y)[0], 0);
}

long pageFaults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

/// lathe_warm() makes the memory of a run with all its pages; the run itself then faults no more.
TEST(Runtime, WarmsMemoryBeforeTheFirstRun) {
  Plan p = scalePlan();
  p.symbols[0].max = 1 << 24;
  p.guards.clear();
  HostTensor x({int64_t(3) << 20, 4}); // 48 MB for the arena, as much for the result
  std::vector<float> expected = expectedScale(x.data);
  long faults[2];
  for (bool warm : {false, true}) {
    Cpu cpu({p}, 1);
    lathe_tensor in = x.tensor(), y{};
    if (warm) {
      rt::Error e = cpu.context.warm("", {&in, 1}, {&y, 1});
      ASSERT_FALSE(e) << e.message();
      EXPECT_EQ(cpu.context.counters().runs, 0u);
      EXPECT_GE(cpu.context.counters().arena_bytes, uint64_t(48) << 20);
    }
    long before = pageFaults();
    cpu.run({in}, {&y, 1});
    faults[warm] = pageFaults() - before;
    EXPECT_EQ(values(y), expected);
  }
  EXPECT_GT(faults[0], 20);
  EXPECT_LT(faults[1], faults[0] / 4);
}

/// With the option, memory that a run has to make comes with its pages, too.
TEST(Runtime, TakesPrefaultAsAnOption) {
  rt::Engine engine = openEngine(makeEngine({scalePlan()}, cpuImage()));
  lathe_options options{};
  options.size = sizeof options;
  options.prefault = 1;
  rt::Context context;
  rt::Error e = context.create(engine, "cpu", options);
  ASSERT_FALSE(e) << e.message();
  HostTensor x({5, 4});
  lathe_tensor in = x.tensor(), y{};
  e = context.run({in}, {&y, 1});
  ASSERT_FALSE(e) << e.message();
  EXPECT_EQ(values(y), expectedScale(x.data));
}

TEST(Runtime, ReportsBadIndicesWithTheNode) {
  Cpu cpu({makeLookUpPlan()});
  HostTensor table({5});
  std::vector<int64_t> index = {4, 0, 2};
  Dims dims = {3};
  lathe_tensor out{};
  cpu.run({table.tensor(), rt::tensor(index, dims)}, {&out, 1});
  EXPECT_EQ(values(out), (std::vector<float>{-1, -5, -3}));
  index[1] = 17;
  EXPECT_EQ(cpu.run({table.tensor(), rt::tensor(index, dims)}, {&out, 1}, LATHE_RUNTIME_FAILURE),
            "node Gather_7 (kernel 'look_up'): index 17 is out of range");
  index[1] = -1;
  cpu.run({table.tensor(), rt::tensor(index, dims)}, {&out, 1}, LATHE_RUNTIME_FAILURE);
  index[1] = 1; // and the context is usable
  out = {};
  cpu.run({table.tensor(), rt::tensor(index, dims)}, {&out, 1});
  EXPECT_EQ(values(out)[1], -4);
}

TEST(Runtime, KeepsStatesAcrossEntries) {
  Cpu cpu({makeAppendPlan("prefill"), makeAppendPlan("decode")});
  lathe_context *c = cpu.context.get();
  int64_t length = -1, capacity = -1;
  ASSERT_EQ(lathe_state_length(c, "kv", &length), nullptr);
  ASSERT_EQ(lathe_state_capacity(c, "kv", &capacity), nullptr);
  EXPECT_EQ(length, 0);
  EXPECT_EQ(capacity, 8);

  HostTensor prompt({2, 5, 4}), token({2, 1, 4}), long_({2, 4, 4}), other({3, 1, 4});
  lathe_tensor present{};
  cpu.run({prompt.tensor()}, {&present, 1}, LATHE_OK, "prefill");
  EXPECT_EQ(present.dims[1], 5);
  EXPECT_EQ(present.strides[0], 32) << "a view of the state, not a copy";
  present = {};
  cpu.run({token.tensor()}, {&present, 1}, LATHE_OK, "decode");
  EXPECT_EQ(present.dims[1], 6);
  const auto *kv = static_cast<const float *>(present.data);
  EXPECT_EQ(kv[0], prompt.data[0]);
  EXPECT_EQ(kv[32 + 4 * 4 + 1], prompt.data[20 + 4 * 4 + 1]);
  EXPECT_EQ(kv[32 + 5 * 4 + 3], token.data[7]);
  lathe_counters counters = cpu.context.counters();
  EXPECT_EQ(counters.state_bytes_appended, 6u * 2 * 16);
  EXPECT_EQ(counters.state_bytes_copied, 0u);
  EXPECT_EQ(counters.state_bytes, 2u * 8 * 16);
  lathe_state_length(c, "kv", &length);
  EXPECT_EQ(length, 6);

  // The caller's memory gets a dense copy, and the counter says so.
  std::vector<float> dense(2 * 7 * 4);
  Dims unused = {56};
  lathe_tensor copy = rt::tensor(dense, unused);
  cpu.run({token.tensor()}, {&copy, 1}, LATHE_OK, "decode");
  EXPECT_EQ(dense[28 + 6 * 4], token.data[4]);
  EXPECT_EQ(cpu.context.counters().state_bytes_copied, dense.size() * 4);

  // Full: an error that leaves the state.
  EXPECT_EQ(cpu.run({long_.tensor()}, {&present, 1}, LATHE_RUNTIME_FAILURE, "prefill")
                .find("state 'kv'"),
            std::string::npos)
      << "the view is too small before the state is";
  lathe_state_length(c, "kv", &length);
  EXPECT_EQ(length, 7);
  EXPECT_FALSE(cpu.context.truncate("kv", 2));
  EXPECT_EQ(cpu.context.truncate("kv", 3).code(), LATHE_USAGE);
  present = {};
  cpu.run({token.tensor()}, {&present, 1}, LATHE_OK, "decode");
  EXPECT_EQ(present.dims[1], 3);
  EXPECT_NE(cpu.run({other.tensor()}, {&present, 1}, LATHE_USAGE, "decode").find("reset"),
            std::string::npos);
  EXPECT_FALSE(cpu.context.reset());
  present = {};
  cpu.run({other.tensor()}, {&present, 1}, LATHE_OK, "decode");
  EXPECT_EQ(present.dims[0], 3);
  EXPECT_EQ(present.dims[1], 1);
}

/// A kernel that writes through a view at the state's length: the view reaches the end
/// of the state only with its last row.
TEST(Runtime, WritesStatesThroughWindows) {
  DimExpr past = DimExpr::symbol("P");
  Plan p = makeAppendPlan("main");
  Buffer window = makeBuffer("window", BufferKind::View, 1, DType::F32, {2, 1, 4}, past * 16);
  window.physical = {2, 8, 4};
  window.bytes = 2 * 8 * 16;
  window.alignment = 16;
  p.buffers.push_back(window);
  auto &launch = std::get<LaunchStep>(p.blocks[0][0].op);
  launch.buffers[1] = 3;
  launch.symbols = {DimExpr::symbol("B"), 0, 1, 8}; // at the start of the window
  Cpu cpu({p});
  HostTensor token({2, 1, 4});
  lathe_tensor present{};
  for (int i = 0; i < 8; ++i) {
    token.data[4] = static_cast<float>(100 + i);
    cpu.run({token.tensor()}, {&present, 1});
  }
  EXPECT_EQ(static_cast<const float *>(present.data)[32], 100);
  EXPECT_EQ(static_cast<const float *>(present.data)[32 + 7 * 4], 107);
  cpu.run({token.tensor()}, {&present, 1}, LATHE_RUNTIME_FAILURE);
}

TEST(Runtime, RefusesToOverfillAState) {
  Plan p = makeAppendPlan("main");
  p.outputs.clear(); // no view that would notice first
  p.buffers.pop_back();
  Cpu cpu({p});
  HostTensor five({1, 5, 4});
  cpu.run({five.tensor()}, {});
  EXPECT_EQ(cpu.run({five.tensor()}, {}, LATHE_RUNTIME_FAILURE),
            "state 'kv': the state is full: 5 of 8 are used, 5 more do not fit");
}

TEST(Runtime, BindsSizesAtRunTime) {
  Cpu cpu({makePackPlan()});
  for (int64_t n : {1000, 3, 5000}) {
    HostTensor x({n});
    std::vector<float> expected;
    for (float v : x.data)
      if (v > 0)
        expected.push_back(v);
    lathe_tensor packed{};
    cpu.run({x.tensor()}, {&packed, 1});
    EXPECT_EQ(packed.dims[0], static_cast<int64_t>(expected.size()));
    EXPECT_EQ(values(packed), expected);
    // Into the caller's memory, and into too little of it.
    std::vector<float> mine(expected.size() + 1);
    Dims unused = {1};
    lathe_tensor out = rt::tensor(mine, unused);
    cpu.run({x.tensor()}, {&out, 1});
    EXPECT_EQ(values(out), expected);
  }
  Plan limited = makePackPlan();
  limited.symbols[1].max = 4;
  Cpu small({limited});
  HostTensor x({100});
  lathe_tensor packed{};
  EXPECT_NE(small.run({x.tensor()}, {&packed, 1}, LATHE_RUNTIME_FAILURE).find("node NonZero_1"),
            std::string::npos);
}

TEST(Runtime, ChecksSizesThatAreDerived) {
  Plan plan = makePackPlan();
  plan.symbols.push_back({"room", 0, DimRange::kUnbounded, 1, 1, SymbolOrigin::Derived, -1, -1,
                          DimExpr(4) - DimExpr::symbol("K")});
  Cpu cpu({plan});
  HostTensor few({3}), many({100});
  lathe_tensor packed{};
  cpu.run({few.tensor()}, {&packed, 1});
  EXPECT_NE(cpu.run({many.tensor()}, {&packed, 1}, LATHE_RUNTIME_FAILURE).find("room = 0 to any"),
            std::string::npos);
}

TEST(Runtime, BranchesAndLoops) {
  Cpu cpu({makeLoopPlan()});
  HostTensor x({4});
  for (bool go : {true, false})
    for (int64_t trips : {0, 1, 7}) {
      lathe_tensor count{&trips, 8, LATHE_I64, LATHE_HOST, 0, nullptr, nullptr};
      lathe_tensor condition{&go, 1, LATHE_BOOL, LATHE_HOST, 0, nullptr, nullptr};
      lathe_tensor y{};
      cpu.run({x.tensor(), count, condition}, {&y, 1});
      EXPECT_EQ(values(y)[0], x.data[0] + static_cast<float>(go ? trips : 0));
    }
  int64_t trips = 1000; // beyond the bound of the iteration symbol
  bool go = true;
  lathe_tensor y{};
  cpu.run({x.tensor(), {&trips, 8, LATHE_I64, LATHE_HOST, 0, nullptr, nullptr},
           {&go, 1, LATHE_BOOL, LATHE_HOST, 0, nullptr, nullptr}},
          {&y, 1}, LATHE_RUNTIME_FAILURE);
}

TEST(Runtime, DonatesInputsToOutputs) {
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F32, {4});
  Buffer view = makeBuffer("y", BufferKind::View, x, DType::F32, {4});
  int32_t y = addBuffer(p, view);
  p.outputs.push_back({"y", DType::F32, {4}, y, -1});
  p.inputs[0].donatedTo = 0;
  p.kernels.push_back(makeKernel("increment", 1));
  p.blocks[0].push_back(Step{LaunchStep{0, {y}, {4}}, {"Add_0"}});
  Cpu cpu({p});
  alignas(64) float data[4] = {1, 2, 3, 4};
  Dims dims = {4};
  lathe_tensor in = rt::tensor(std::span<float>(data), std::span<const int64_t>(dims));
  lathe_tensor out{};
  cpu.run({in}, {&out, 1});
  EXPECT_EQ(values(out)[0], 2);
  EXPECT_EQ(data[0], 1) << "without consent the input stays";
  out = in;
  cpu.run({in}, {&out, 1});
  EXPECT_EQ(data[0], 2) << "in place";
  EXPECT_EQ(out.data, data);
}

/// sum = x + x on the host through a host op, then a custom call on it.
Plan makeHostPlan() {
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::I64, {3}, true);
  p.arenas.push_back({64, true});
  int32_t sum = addBuffer(p, makeBuffer("sum", BufferKind::Host, 0, DType::I64, {3}));
  int32_t y = addOutput(p, "y", DType::I64, {3});
  p.buffers[y].onHost = true;
  p.blocks[0] = {Step{HostOpStep{"add", {}, {x, x}, {sum}}, {"Add_0"}},
                 Step{TapStep{sum, "sum"}, {"Add_0"}},
                 Step{CustomCallStep{"reverse", {{"factor", {10}, {}, ""}}, {sum}, {y}},
                      {"Reverse_1"}}};
  return p;
}

TEST(Runtime, CallsTheHost) {
  Cpu cpu({makeHostPlan()});
  std::vector<int64_t> x = {1, 2, 3};
  Dims dims = {3};
  lathe_tensor y{};
  EXPECT_EQ(cpu.run({rt::tensor(x, dims)}, {&y, 1}, LATHE_USAGE),
            "node Reverse_1: the custom call 'reverse' is not registered");
  struct State {
    lathe_context *context;
    lathe_code nested = LATHE_OK;
    bool fail = false;
    std::vector<int64_t> tapped;
  } state{cpu.context.get()};
  auto reverse = [](void *user, const lathe_call *call) -> const char * {
    auto &s = *static_cast<State *>(user);
    if (s.fail)
      return "told to fail";
    // A context in use is refused, not deadlocked or corrupted.
    lathe_error *e = lathe_run(s.context, nullptr, nullptr, 0, nullptr, 0);
    s.nested = lathe_error_code(e);
    lathe_error_free(e);
    const auto *in = static_cast<const int64_t *>(call->inputs[0].data);
    auto *out = static_cast<int64_t *>(call->outputs[0].data);
    for (int i = 0; i < 3; ++i)
      out[i] = in[2 - i] * call->attributes[0].ints[0];
    return nullptr;
  };
  ASSERT_EQ(lathe_context_register_call(cpu.context.get(), "reverse", reverse, &state), nullptr);
  lathe_context_set_tap(
      cpu.context.get(),
      [](void *user, const lathe_tap *tap) {
        EXPECT_STREQ(tap->name, "sum");
        const auto *p = static_cast<const int64_t *>(tap->tensors[0].data);
        static_cast<State *>(user)->tapped.assign(p, p + 3);
      },
      &state);
  cpu.run({rt::tensor(x, dims)}, {&y, 1});
  const auto *out = static_cast<const int64_t *>(y.data);
  EXPECT_EQ(std::vector<int64_t>(out, out + 3), (std::vector<int64_t>{60, 40, 20}));
  EXPECT_EQ(state.nested, LATHE_USAGE);
  EXPECT_EQ(state.tapped, (std::vector<int64_t>{2, 4, 6}));
  state.fail = true;
  EXPECT_EQ(cpu.run({rt::tensor(x, dims)}, {&y, 1}, LATHE_RUNTIME_FAILURE),
            "node Reverse_1: custom call 'reverse': told to fail");
}

TEST(Runtime, ShowsAndTimesKernels) {
  Cpu cpu({scalePlan()});
  HostTensor x({2, 4});
  struct Seen {
    std::string kind, name, nodes;
    std::vector<float> last;
  };
  std::vector<Seen> seen;
  lathe_context_set_tap(
      cpu.context.get(),
      [](void *user, const lathe_tap *tap) {
        EXPECT_TRUE(tap->written[tap->count - 1]);
        EXPECT_EQ(tap->symbols[0], 8);
        static_cast<std::vector<Seen> *>(user)->push_back(
            {tap->kind == LATHE_TAP_BEFORE ? "before" : "after", tap->name, tap->nodes,
             values(tap->tensors[tap->count - 1])});
      },
      &seen);
  lathe_context_profile(cpu.context.get(), 1);
  lathe_tensor y{};
  cpu.run({x.tensor()}, {&y, 1});
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[1].kind, "after");
  EXPECT_EQ(seen[1].name, "scale_add");
  EXPECT_EQ(seen[1].nodes, "Mul_0, Add_1");
  EXPECT_EQ(seen[3].last, expectedScale(x.data));
  lathe_context_set_tap(cpu.context.get(), nullptr, nullptr);
  cpu.run({x.tensor()}, {&y, 1});
  EXPECT_EQ(seen.size(), 4u);
  size_t count = 0;
  const lathe_profile_row *rows = lathe_context_profile_rows(cpu.context.get(), &count);
  ASSERT_EQ(count, 2u);
  EXPECT_STREQ(rows[1].kernel, "relu");
  EXPECT_STREQ(rows[1].nodes, "Relu_2");
  EXPECT_EQ(rows[1].calls, 2u);
  EXPECT_GT(rows[1].seconds, 0);
  double sum = rows[1].seconds;
  // The calls one by one: those of a row add up to it, and none begins before the one ahead of it ended.
  const lathe_profile_event *events = lathe_context_profile_events(cpu.context.get(), &count);
  ASSERT_EQ(count, 4u);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(events[i].row, i % 2);
    EXPECT_GE(events[i].begin, i ? events[i - 1].begin + events[i - 1].seconds : 0.0);
  }
  EXPECT_DOUBLE_EQ(events[1].seconds + events[3].seconds, sum);
  lathe_context_profile(cpu.context.get(), 1);
  EXPECT_EQ((lathe_context_profile_events(cpu.context.get(), &count), count), 0u);
}

TEST(Runtime, SharesEnginesBetweenThreads) {
  rt::Engine engine = openEngine(makeEngine({scalePlan()}, cpuImage()));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      rt::Context context;
      if (context.create(engine, "cpu", 1 + t % 2)) {
        ++wrong;
        return;
      }
      for (int64_t b = 1; b < 50; ++b) {
        HostTensor x({b + t, 4});
        lathe_tensor y{};
        if (context.run({x.tensor()}, {&y, 1}) || values(y) != expectedScale(x.data))
          ++wrong;
      }
    });
  for (std::thread &t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Runtime, OutlivesItsEngine) {
  rt::Context context;
  {
    rt::Engine engine = openEngine(makeEngine({scalePlan()}, cpuImage()));
    ASSERT_FALSE(context.create(engine, "cpu"));
  }
  HostTensor x({3, 4});
  lathe_tensor y{};
  ASSERT_FALSE(context.run({x.tensor()}, {&y, 1}));
  EXPECT_EQ(values(y), expectedScale(x.data));
}

TEST(Runtime, ExchangesDlpack) {
  Cpu cpu({scalePlan()});
  HostTensor x({2, 4});
  DLManagedTensor in{};
  in.dl_tensor = {x.data.data(), {1, 0}, 2, {2, 32, 1}, x.dims.data(), nullptr, 0};
  lathe_tensor t{}, y{};
  ASSERT_EQ(lathe_tensor_from_dlpack(&in, &t), nullptr);
  cpu.run({t}, {&y, 1});
  DLManagedTensor *out = nullptr;
  ASSERT_EQ(lathe_tensor_to_dlpack(cpu.context.get(), &y, &out), nullptr);
  HostTensor other({4, 4});
  cpu.run({other.tensor()}, {&y, 1}); // overwrites the context's memory
  EXPECT_EQ(out->dl_tensor.ndim, 2);
  EXPECT_EQ(out->dl_tensor.shape[0], 2);
  EXPECT_EQ(out->dl_tensor.dtype.code, 2);
  const auto *p = static_cast<const float *>(out->dl_tensor.data);
  EXPECT_EQ(std::vector<float>(p, p + 8), expectedScale(x.data));
  out->deleter(out);
  // Sizes that are missing, or none.
  const int64_t none[] = {2, -4};
  for (const int64_t *dims : {static_cast<const int64_t *>(nullptr), none}) {
    lathe_tensor wrong = y;
    wrong.dims = dims;
    for (bool take : {false, true}) {
      lathe_error *e = take ? lathe_tensor_take_dlpack(cpu.context.get(), &wrong, &out)
                            : lathe_tensor_to_dlpack(cpu.context.get(), &wrong, &out);
      EXPECT_EQ(lathe_error_code(e), LATHE_USAGE);
      lathe_error_free(e);
    }
  }
  in.dl_tensor.dtype.lanes = 4;
  lathe_error *e = lathe_tensor_from_dlpack(&in, &t);
  EXPECT_EQ(lathe_error_code(e), LATHE_UNSUPPORTED);
  lathe_error_free(e);
}

TEST(Runtime, RefusesWhatItCannotRun) {
  rt::Engine engine = openEngine(makeEngine({scalePlan()}, cpuImage()));
  rt::Context context;
  EXPECT_EQ(context.create(engine, "tpu").code(), LATHE_USAGE);
  EXPECT_EQ(context.create(engine, "cpu:x").code(), LATHE_USAGE);
  EXPECT_EQ(context.create(engine, "fake:0").code(), LATHE_UNSUPPORTED);
  Plan future = scalePlan();
#if defined(__aarch64__)
  future.cpuFeatures = {"neon", "quantum"};
#else
  future.cpuFeatures = {"sse2", "quantum"};
#endif
  rt::Error e = context.create(openEngine(makeEngine({future}, cpuImage())), "cpu");
  EXPECT_EQ(e.code(), LATHE_UNSUPPORTED);
  EXPECT_NE(e.message().find("this CPU has no quantum"), std::string::npos);
  Plan missing = scalePlan();
  missing.kernels[0].variants[0].launches[0].function = "not_there";
  e = context.create(openEngine(makeEngine({missing}, cpuImage())), "cpu");
  EXPECT_EQ(e.code(), LATHE_INVALID);
  e = context.create(openEngine(makeEngine({scalePlan()}, "no image")), "cpu");
  EXPECT_EQ(e.code(), LATHE_INVALID);
  Plan unknownOp = makeHostPlan();
  std::get<HostOpStep>(unknownOp.blocks[0][0].op).name = "conjure";
  std::string bytes = makeEngine({unknownOp}, cpuImage());
  EXPECT_EQ(rt::Engine().openMemory(std::as_bytes(std::span(bytes))).code(), LATHE_INVALID);
}

/// The program of runtime/example, on an engine in a file.
TEST(Runtime, EmbedsInAProgram) {
  std::string path = ::testing::TempDir() + "embed" + std::to_string(getpid()) + ".lathe";
  std::ofstream(path, std::ios::binary) << makeEngine({scalePlan()}, cpuImage());
  FILE *pipe = popen((std::string(LATHE_EMBED) + " " + path).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char line[200] = "";
  EXPECT_NE(fgets(line, sizeof line, pipe), nullptr);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_STREQ(line, "y f32[1,4] 0 0 0 0\n");
  unlink(path.c_str());
}

/// A verified plan can still have sizes that lead out of its memory.
/// As scalePlan, with another kernel between: t = x * w + x, u = relu(t), y = u * w + u. `apart`:
/// bytes between t and u.
Plan overlappingPlan(int64_t apart) {
  Plan p = scalePlan();
  DimExpr b = DimExpr::symbol("B");
  p.arenas[0].bytes = b * 16 + 64 + apart;
  p.buffers[2].offset = 0;
  p.buffers.push_back(makeBuffer("u", BufferKind::Arena, 0, DType::F32, {b, 4}, apart));
  p.blocks[0] = {Step{LaunchStep{0, {0, 1, 2}, {b * 4}}, {"Mul_0"}},
                 Step{LaunchStep{1, {2, 4}, {b * 4}}, {"Relu_1"}},
                 Step{LaunchStep{0, {4, 1, 3}, {b * 4}}, {"Mul_2"}}};
  return p;
}

TEST(Runtime, SharesMemoryOnlyWhereTheKernelAllows) {
  std::vector<float> want;
  HostTensor x({8, 4});
  for (size_t i = 0; i < x.data.size(); ++i) {
    float w = static_cast<float>(i % 4 + 1), t = x.data[i] * w + x.data[i], u = std::max(0.0f, t);
    want.push_back(u * w + u);
  }
  for (bool allowed : {false, true})
    for (int64_t apart : {0, 64, 128}) {
      Plan p = overlappingPlan(apart);
      if (allowed)
        p.kernels[1].aliases = {-1, 0};
      Cpu cpu({p});
      lathe_tensor y{};
      bool fits = apart == 128 || (allowed && apart == 0);
      cpu.run({x.tensor()}, {&y, 1}, fits ? LATHE_OK : LATHE_INVALID);
      if (fits) {
        EXPECT_EQ(values(y), want) << apart;
      }
    }
}

TEST(Runtime, StopsPlansThatLeaveTheirMemory) {
  struct Case {
    const char *what;
    std::function<void(Plan &)> change;
  };
  std::vector<Case> cases = {
      {"arena", [](Plan &p) { p.buffers[2].offset = 1 << 20; }},
      {"arena size", [](Plan &p) { p.arenas[0].bytes = 64; }},
      {"bytes", [](Plan &p) { p.buffers[2].bytes = 16; }},
      {"weight", [](Plan &p) { p.buffers[1].bytes = 32; }},
      {"input", [](Plan &p) { p.buffers[0].bytes = p.buffers[0].bytes * 2; }},
  };
  for (const Case &c : cases) {
    Plan p = scalePlan();
    c.change(p);
    Cpu cpu({p});
    HostTensor x({300, 4});
    lathe_tensor y{};
    cpu.run({x.tensor()}, {&y, 1}, LATHE_INVALID);
  }
}

} // namespace
