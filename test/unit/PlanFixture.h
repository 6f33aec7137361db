//===- PlanFixture.h - small plans made by hand -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans for tests of engine and runtime, which must not need the compiler.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_PLANFIXTURE_H
#define LATHE_TEST_UNIT_PLANFIXTURE_H

#include "lathe/engine/Plan.h"

namespace lathe::test {

using namespace lathe::engine;

inline Buffer makeBuffer(std::string name, BufferKind kind, int32_t index, DType dtype,
                         std::vector<DimExpr> dims, DimExpr offset = 0) {
  Buffer b;
  b.name = std::move(name);
  b.kind = kind;
  b.index = index;
  b.dtype = dtype;
  b.bytes = product(dims) * DimExpr(bitWidth(dtype) / 8);
  b.physical = dims;
  b.dims = std::move(dims);
  b.offset = offset;
  b.onHost = kind == BufferKind::Host;
  return b;
}

/// Kernel over `buffers` buffers (the last is written) and symbols {"n"}, one block
/// per `perBlock` elements.
inline Kernel makeKernel(std::string name, int32_t buffers, std::string image = "",
                         int64_t perBlock = 16) {
  Kernel k;
  k.name = name;
  k.symbols = {"n"};
  k.numBuffers = buffers;
  k.writes.assign(buffers, false);
  k.writes.back() = true;
  KernelVariant v;
  v.config = "test";
  v.image = std::move(image);
  Launch l;
  l.function = std::move(name);
  l.grid[0] = DimExpr::ceilDiv(DimExpr::symbol("n"), perBlock);
  for (int32_t i = 0; i < buffers; ++i)
    l.args.push_back({KernelArg::Kind::Buffer, i});
  l.args.push_back({KernelArg::Kind::Symbol, 0});
  v.launches.push_back(l);
  k.variants.push_back(v);
  return k;
}

/// y = relu(x * w + x): f32 x[B,4], weight w[4], a temporary in an arena, y[B,4].
inline Plan makeScalePlan(std::string target, bool cuda) {
  DimExpr b = DimExpr::symbol("B");
  Plan p;
  p.entry = "main";
  p.target = std::move(target);
  p.cuda = cuda;
  p.symbols.push_back({"B", 0, 1000, 1, 1, SymbolOrigin::InputDim, 0, 0});
  p.inputs.push_back({"x", DType::F32, {b, 4}, 0, -1});
  p.outputs.push_back({"y", DType::F32, {b, 4}, 3, -1});
  Guard guard{{Condition::Kind::LessEqual, b, 512}, "at most 512 rows", "node Mul_0"};
  p.guards.push_back(guard);
  p.arenas.push_back({b * 16 + 64, false});
  p.buffers.push_back(makeBuffer("x", BufferKind::Input, 0, DType::F32, {b, 4}));
  p.buffers.push_back(makeBuffer("w", BufferKind::Weight, 0, DType::F32, {4}));
  p.buffers.push_back(makeBuffer("t", BufferKind::Arena, 0, DType::F32, {b, 4}, 64));
  p.buffers.push_back(makeBuffer("y", BufferKind::Output, 0, DType::F32, {b, 4}));
  p.weights.push_back({"w", "weights", 0, 16, DType::F32, {4}, "", ""});
  p.kernels.push_back(makeKernel("scale_add", 3, cuda ? "scale_add" : ""));
  p.kernels.push_back(makeKernel("relu", 2, cuda ? "relu" : ""));
  p.blocks.push_back({Step{LaunchStep{0, {0, 1, 2}, {b * 4}}, {"Mul_0", "Add_1"}},
                      Step{LaunchStep{1, {2, 3}, {b * 4}}, {"Relu_2"}}});
  return p;
}

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_PLANFIXTURE_H
