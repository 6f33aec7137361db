//===- PlanWrite.cpp - engine::Plan to FlatBuffers --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Deterministic: tables are written in the order of the plan, and each formula is
// stored once, in the order of first use.
//
//===----------------------------------------------------------------------===//

#include "lathe/engine/Plan.h"
#include "lathe/engine/plan_generated.h"

#include <map>

namespace lathe::engine {
namespace {

using flatbuffers::Offset;
using flatbuffers::String;
using flatbuffers::Vector;

class Writer {
public:
  std::string write(const Plan &plan);

private:
  flatbuffers::FlatBufferBuilder b{4096};
  std::map<std::string, uint32_t> formulaIds;
  std::vector<std::string> formulas;

  uint32_t formula(const DimExpr &e) {
    auto [it, isNew] = formulaIds.try_emplace(e.str(), static_cast<uint32_t>(formulas.size()));
    if (isNew)
      formulas.push_back(e.str());
    return it->second;
  }
  Offset<Vector<uint32_t>> list(const std::vector<DimExpr> &exprs) {
    std::vector<uint32_t> ids;
    for (const DimExpr &e : exprs)
      ids.push_back(formula(e));
    return b.CreateVector(ids);
  }
  Offset<String> text(const std::string &s) { return b.CreateString(s); }
  Offset<Vector<Offset<String>>> texts(const std::vector<std::string> &list) {
    return b.CreateVectorOfStrings(list);
  }
  /// A vector of tables made by `make` from each element.
  template <typename T, typename F> auto tables(const std::vector<T> &items, F make) {
    std::vector<decltype(make(items[0]))> offsets;
    for (const T &item : items)
      offsets.push_back(make(item));
    return b.CreateVector(offsets);
  }

  fb::Condition condition(const Condition &c) {
    uint32_t lhs = formula(c.lhs), rhs = formula(c.rhs);
    return {lhs, rhs, static_cast<uint8_t>(c.kind)};
  }
  Offset<fb::Guard> guard(const Guard &g) {
    fb::Condition c = condition(g.condition);
    auto message = text(g.message), location = text(g.location);
    return fb::CreateGuard(b, &c, message, location);
  }
  Offset<fb::Port> port(const Port &p) {
    auto name = text(p.name);
    auto dims = list(p.dims);
    return fb::CreatePort(b, name, static_cast<uint8_t>(p.dtype), dims, p.buffer, p.donatedTo);
  }
  Offset<fb::Buffer> buffer(const Buffer &v) {
    auto name = text(v.name);
    auto dims = list(v.dims), physical = list(v.physical);
    uint32_t bytes = formula(v.bytes), offset = formula(v.offset);
    return fb::CreateBuffer(b, name, static_cast<uint8_t>(v.kind), v.index,
                            static_cast<uint8_t>(v.dtype), dims, physical, bytes, offset,
                            v.alignment, v.onHost);
  }
  Offset<fb::Weight> weight(const Weight &w) {
    auto name = text(w.name), section = text(w.section);
    auto dims = b.CreateVector(w.dims);
    auto sha = text(w.sha256), packing = text(w.packing);
    std::vector<fb::RandomPart> parts;
    for (const RandomPart &p : w.random)
      parts.emplace_back(p.spread.stream, p.rows, p.columns, p.first, p.pitch, p.spread.center,
                         p.spread.reach);
    std::vector<fb::RandomSlice> slices;
    for (const RandomPart &p : w.random)
      if (w.shards)
        slices.emplace_back(p.from, p.fromPitch, p.rank);
    auto random = b.CreateVectorOfStructs(parts);
    auto randomSlices = slices.empty() ? 0 : b.CreateVectorOfStructs(slices);
    return fb::CreateWeight(b, name, section, w.offset, w.bytes, static_cast<uint8_t>(w.dtype),
                            dims, sha, packing, random, w.shards, randomSlices);
  }
  Offset<fb::State> state(const State &s) {
    auto name = text(s.name), length = text(s.lengthSymbol);
    auto physical = list(s.physical);
    return fb::CreateState(b, name, static_cast<uint8_t>(s.dtype), physical, s.axis, length,
                           formula(s.capacity), s.zeroInit, s.initial);
  }
  Offset<fb::TensorMap> tensorMap(const TensorMap &m) {
    auto dims = list(m.dims), strides = list(m.strides);
    auto box = b.CreateVector(m.box);
    auto lower = b.CreateVector(m.lowerCorner), upper = b.CreateVector(m.upperCorner);
    auto steps = b.CreateVector(m.steps);
    return fb::CreateTensorMap(b, m.buffer, dims, strides, box, m.swizzleBytes, m.im2col, lower,
                               upper, steps, m.elementBytes);
  }
  Offset<fb::Launch> launch(const Launch &l) {
    auto function = text(l.function);
    auto grid = list({l.grid.begin(), l.grid.end()});
    auto block = b.CreateVector(l.block.data(), 3), cluster = b.CreateVector(l.cluster.data(), 3);
    std::vector<fb::KernelArg> args;
    for (const KernelArg &a : l.args)
      args.emplace_back(a.index, static_cast<uint8_t>(a.kind));
    auto argsOffset = b.CreateVectorOfStructs(args);
    return fb::CreateLaunch(b, function, grid, block, cluster, formula(l.sharedBytes),
                            l.programmaticDependent, argsOffset);
  }
  Offset<fb::KernelVariant> variant(const KernelVariant &v) {
    std::vector<fb::Condition> conditions;
    for (const Condition &c : v.guard)
      conditions.push_back(condition(c));
    auto guard = b.CreateVectorOfStructs(conditions);
    auto config = text(v.config), image = text(v.image);
    auto maps = tables(v.tensorMaps, [&](const TensorMap &m) { return tensorMap(m); });
    auto launches = tables(v.launches, [&](const Launch &l) { return launch(l); });
    uint32_t workspace = formula(v.workspaceBytes), scratch = formula(v.scratchBytes);
    return fb::CreateKernelVariant(b, guard, config, image, maps, launches, workspace, scratch,
                                   v.status);
  }
  Offset<fb::Kernel> kernel(const Kernel &k) {
    auto name = text(k.name);
    auto symbols = texts(k.symbols);
    auto writes = b.CreateVector(k.writes);
    auto aliases = b.CreateVector(k.aliases);
    auto variants = tables(k.variants, [&](const KernelVariant &v) { return variant(v); });
    uint32_t flops = formula(k.flops), bytes = formula(k.bytes);
    return fb::CreateKernel(b, name, symbols, k.numBuffers, writes, variants, flops, bytes,
                            aliases);
  }
  Offset<fb::Symbol> symbol(const Symbol &s) {
    auto name = text(s.name);
    uint32_t value = s.origin == SymbolOrigin::Derived ? formula(s.value) : 0;
    return fb::CreateSymbol(b, name, s.min, s.max, s.opt, s.multipleOf,
                            static_cast<uint8_t>(s.origin), s.index, s.axis, value);
  }
  auto attributes(const std::vector<Attribute> &list) {
    return tables(list, [&](const Attribute &a) {
      auto name = text(a.name);
      auto ints = b.CreateVector(a.ints);
      auto floats = b.CreateVector(a.floats);
      auto value = text(a.text);
      return fb::CreateAttribute(b, name, ints, floats, value);
    });
  }

  using Op = std::pair<fb::StepOp, Offset<void>>;
  Op operator()(const LaunchStep &s) {
    auto buffers = b.CreateVector(s.buffers);
    auto symbols = list(s.symbols);
    return {fb::StepOp::LaunchStep, fb::CreateLaunchStep(b, s.kernel, buffers, symbols).Union()};
  }
  Op operator()(const HostOpStep &s) {
    auto name = text(s.name);
    auto attrs = attributes(s.attributes);
    auto in = b.CreateVector(s.inputs), out = b.CreateVector(s.outputs);
    return {fb::StepOp::HostOpStep, fb::CreateHostOpStep(b, name, attrs, in, out).Union()};
  }
  Op operator()(const CopyStep &s) {
    return {fb::StepOp::CopyStep, fb::CreateCopyStep(b, s.source, s.target).Union()};
  }
  Op operator()(const BindStep &s) {
    return {fb::StepOp::BindStep,
            fb::CreateBindStep(b, s.symbol, s.buffer, s.element, formula(s.value)).Union()};
  }
  Op operator()(const GuardStep &s) {
    return {fb::StepOp::GuardStep, fb::CreateGuardStep(b, guard(s.guard)).Union()};
  }
  Op operator()(const AdvanceStateStep &s) {
    return {fb::StepOp::AdvanceStateStep,
            fb::CreateAdvanceStateStep(b, s.state, formula(s.by)).Union()};
  }
  Op operator()(const TapStep &s) {
    return {fb::StepOp::TapStep, fb::CreateTapStep(b, s.buffer, text(s.name)).Union()};
  }
  Op operator()(const CustomCallStep &s) {
    auto name = text(s.name);
    auto attrs = attributes(s.attributes);
    auto in = b.CreateVector(s.inputs), out = b.CreateVector(s.outputs);
    return {fb::StepOp::CustomCallStep, fb::CreateCustomCallStep(b, name, attrs, in, out).Union()};
  }
  Op operator()(const IfStep &s) {
    return {fb::StepOp::IfStep,
            fb::CreateIfStep(b, s.condition, s.thenBlock, s.elseBlock).Union()};
  }
  Op operator()(const LoopStep &s) {
    return {fb::StepOp::LoopStep,
            fb::CreateLoopStep(b, s.tripCount, s.condition, s.iteration, s.body).Union()};
  }
  Op operator()(const CollectiveStep &s) {
    auto name = text(s.name);
    auto in = b.CreateVector(s.inputs), out = b.CreateVector(s.outputs);
    return {fb::StepOp::CollectiveStep,
            fb::CreateCollectiveStep(b, name, s.order, in, out,
                                     static_cast<uint8_t>(s.reduction), s.dim)
                .Union()};
  }
  Offset<fb::Block> block(const Block &steps) {
    auto list = tables(steps, [&](const Step &s) {
      auto [type, op] = std::visit([&](const auto &o) { return (*this)(o); }, s.op);
      auto nodes = texts(s.nodes);
      auto waits = s.waits.empty() ? 0 : b.CreateVector(s.waits);
      return fb::CreateStep(b, type, op, nodes, s.stream, waits, s.signal);
    });
    return fb::CreateBlock(b, list);
  }
};

std::string Writer::write(const Plan &p) {
  auto entry = text(p.entry), target = text(p.target);
  auto features = texts(p.cpuFeatures);
  auto symbols = tables(p.symbols, [&](const Symbol &s) { return symbol(s); });
  auto inputs = tables(p.inputs, [&](const Port &v) { return port(v); });
  auto outputs = tables(p.outputs, [&](const Port &v) { return port(v); });
  auto guards = tables(p.guards, [&](const Guard &g) { return guard(g); });
  std::vector<fb::Arena> arenaList;
  for (const Arena &a : p.arenas)
    arenaList.emplace_back(formula(a.bytes), a.onHost, a.device);
  auto arenas = b.CreateVectorOfStructs(arenaList);
  auto buffers = tables(p.buffers, [&](const Buffer &v) { return buffer(v); });
  auto weights = tables(p.weights, [&](const Weight &w) { return weight(w); });
  auto states = tables(p.states, [&](const State &s) { return state(s); });
  auto kernels = tables(p.kernels, [&](const Kernel &k) { return kernel(k); });
  auto blocks = tables(p.blocks, [&](const Block &s) { return block(s); });
  auto streams = b.CreateVector(p.resources.streams);
  auto strings = p.strings.empty() ? 0 : texts(p.strings);
  auto formulaTexts = texts(formulas); // last: all formulas are known now
  fb::FinishPlanBuffer(b, fb::CreatePlan(b, entry, target, p.cuda, features, formulaTexts, symbols,
                                         inputs, outputs, guards, arenas, buffers, weights, states,
                                         kernels, blocks, p.resources.devices, streams,
                                         p.resources.events, p.ranks, strings));
  return {reinterpret_cast<const char *>(b.GetBufferPointer()), b.GetSize()};
}

} // namespace

Result<std::string> serialize(const Plan &plan) {
  LATHE_RETURN_IF_ERROR(verify(plan, "plan '" + plan.entry + "' for " + plan.target));
  return Writer().write(plan);
}

} // namespace lathe::engine
