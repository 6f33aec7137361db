//===- RuntimeFixture.h - engines made by hand ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans for each thing the runtime can do, over the kernels of CpuKernels.c, and engines
// from them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_RUNTIMEFIXTURE_H
#define LATHE_TEST_UNIT_RUNTIMEFIXTURE_H

#include "PlanFixture.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/runtime/lathe.hpp"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

namespace lathe::test {

inline std::string cpuImage() {
  std::ifstream file(LATHE_TEST_IMAGE, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// An engine of these plans; the weights are {1, 2, 3, 4}.
inline std::string makeEngine(const std::vector<Plan> &plans, const std::string &image) {
  EngineWriter w("runtime test");
  float weights[4] = {1, 2, 3, 4};
  EXPECT_TRUE(w.addWeight("weights", {reinterpret_cast<char *>(weights), 16}).ok());
  for (const Plan &p : plans) {
    Status s = w.addPlan(p);
    EXPECT_TRUE(s.ok()) << s.str();
  }
  EXPECT_TRUE(w.addKernels(plans[0].target, image).ok());
  return *w.str();
}

inline rt::Engine openEngine(const std::string &bytes) {
  rt::Engine engine;
  rt::Error e = engine.openMemory(std::as_bytes(std::span(bytes)));
  EXPECT_FALSE(e) << e.message();
  return engine;
}

/// Base of the plans below: nothing but names.
inline Plan emptyPlan(const std::string &entry = "main") {
  Plan p;
  p.entry = entry;
  p.target = "x86-64-v2";
  p.blocks.resize(1);
  return p;
}
inline int32_t addBuffer(Plan &p, Buffer b) {
  p.buffers.push_back(std::move(b));
  return static_cast<int32_t>(p.buffers.size()) - 1;
}
inline int32_t addInput(Plan &p, const std::string &name, DType dtype, std::vector<DimExpr> dims,
                        bool onHost = false) {
  auto index = static_cast<int32_t>(p.inputs.size());
  int32_t b = addBuffer(p, makeBuffer(name, BufferKind::Input, index, dtype, dims));
  p.buffers[b].onHost = onHost;
  p.inputs.push_back({name, dtype, dims, b, -1});
  for (size_t axis = 0; axis < dims.size(); ++axis)
    if (auto symbol = dims[axis].symbolName()) {
      bool known = false;
      for (const Symbol &s : p.symbols)
        known |= s.name == *symbol;
      if (!known)
        p.symbols.push_back({*symbol, 0, 1 << 20, 1, 1, SymbolOrigin::InputDim, index,
                             static_cast<int32_t>(axis)});
    }
  return b;
}
inline int32_t addOutput(Plan &p, const std::string &name, DType dtype,
                         std::vector<DimExpr> dims) {
  auto index = static_cast<int32_t>(p.outputs.size());
  int32_t b = addBuffer(p, makeBuffer(name, BufferKind::Output, index, dtype, dims));
  p.outputs.push_back({name, dtype, dims, b, -1});
  return b;
}

/// out = table[index], indices checked: f32 table[R], i64 index[N].
inline Plan makeLookUpPlan() {
  DimExpr n = DimExpr::symbol("N"), r = DimExpr::symbol("R");
  Plan p = emptyPlan();
  int32_t table = addInput(p, "table", DType::F32, {r});
  int32_t index = addInput(p, "index", DType::I64, {n});
  int32_t out = addOutput(p, "out", DType::F32, {n});
  Kernel k = makeKernel("look_up", 3);
  k.symbols = {"n", "rows"};
  k.variants[0].status = true;
  k.variants[0].launches[0].args.push_back({KernelArg::Kind::Symbol, 1});
  k.variants[0].launches[0].args.push_back({KernelArg::Kind::Status, 0});
  p.kernels.push_back(k);
  p.blocks[0].push_back(Step{LaunchStep{0, {table, index, out}, {n, r}}, {"Gather_7"}});
  return p;
}

/// State kv[B, 8, 4] of length P; input x[B, S, 4] is appended; output present is the
/// view kv[:, :P+S].
inline Plan makeAppendPlan(const std::string &entry) {
  DimExpr b = DimExpr::symbol("B"), s = DimExpr::symbol("S"), past = DimExpr::symbol("P");
  Plan p = emptyPlan(entry);
  int32_t x = addInput(p, "x", DType::F32, {b, s, 4});
  p.symbols.push_back({"P", 0, 8, 0, 1, SymbolOrigin::StateLength, 0, -1});
  p.states.push_back({"kv", DType::F32, {b, 8, 4}, 1, "P", 8, true});
  Buffer cache = makeBuffer("kv", BufferKind::State, 0, DType::F32, {b, 8, 4});
  int32_t kv = addBuffer(p, cache);
  Buffer view = makeBuffer("present", BufferKind::View, kv, DType::F32, {b, past + s, 4});
  view.physical = {b, 8, 4};
  view.bytes = cache.bytes;
  int32_t present = addBuffer(p, view);
  p.outputs.push_back({"present", DType::F32, {b, past + s, 4}, present, -1});
  Kernel k = makeKernel("append", 2);
  k.symbols = {"B", "P", "S", "C"};
  Launch &l = k.variants[0].launches[0];
  l.grid[0] = DimExpr::symbol("B");
  for (int32_t i = 1; i < 4; ++i)
    l.args.push_back({KernelArg::Kind::Symbol, i});
  p.kernels.push_back(k);
  p.blocks[0].push_back(Step{LaunchStep{0, {x, kv}, {b, past, s, 8}}, {"Concat_kv"}});
  p.blocks[0].push_back(Step{AdvanceStateStep{0, s}, {"Concat_kv"}});
  return p;
}

/// packed[K] = the positive elements of x[N]; K arrives at run time.
inline Plan makePackPlan() {
  DimExpr n = DimExpr::symbol("N"), k = DimExpr::symbol("K");
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F32, {n});
  p.symbols.push_back({"K", 0, 1 << 20, 1, 1, SymbolOrigin::Bound, -1, -1});
  int32_t out = addOutput(p, "packed", DType::F32, {k});
  p.arenas.push_back({64, false});
  p.arenas.push_back({64, true});
  int32_t count = addBuffer(p, makeBuffer("count", BufferKind::Arena, 0, DType::I64, {1}));
  int32_t onHost = addBuffer(p, makeBuffer("count", BufferKind::Host, 1, DType::I64, {1}));
  for (const char *name : {"count_positive", "pack_positive"}) {
    Kernel kernel = makeKernel(name, 2);
    kernel.variants[0].launches[0].grid[0] = 1;
    p.kernels.push_back(kernel);
  }
  p.blocks[0] = {Step{LaunchStep{0, {x, count}, {n}}, {"NonZero_1"}},
                 Step{CopyStep{count, onHost}, {"NonZero_1"}},
                 Step{BindStep{1, onHost, 0}, {"NonZero_1"}},
                 Step{LaunchStep{1, {x, out}, {n}}, {"NonZero_1"}}};
  return p;
}

/// y = x, then `trips` times y += 1; or nothing where `go` is false. x[4].
inline Plan makeLoopPlan() {
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F32, {4});
  int32_t trips = addInput(p, "trips", DType::I64, {}, true);
  int32_t go = addInput(p, "go", DType::Bool, {}, true);
  int32_t y = addOutput(p, "y", DType::F32, {4});
  Kernel k = makeKernel("increment", 1);
  p.kernels.push_back(k);
  p.symbols.push_back({"i", 0, 100, 0, 1, SymbolOrigin::Iteration, -1, -1});
  p.blocks = {{Step{CopyStep{x, y}, {"Identity_0"}}, Step{IfStep{go, 1, -1}, {"If_1"}}},
              {Step{LoopStep{trips, -1, 0, 2}, {"Loop_2"}}},
              {Step{LaunchStep{0, {y}, {4}}, {"Add_3"}}}};
  return p;
}

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_RUNTIMEFIXTURE_H
