//===- MeshProgram.cpp - a plan as the mesh simulator takes it ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "MeshProgram.h"

#include "Results.h"

#include "lathe/codegen/Target.h"
#include "lathe/codegen/TargetRates.h"
#include "lathe/engine/CollectiveAbi.h"

#include <algorithm>
#include <tuple>

namespace lathe::cli {

using namespace engine;
using analysis::CollectiveAlgorithm;
using analysis::CollectiveCall;
using analysis::CollectiveKind;
using analysis::MeshStep;
using analysis::MeshTopology;

namespace {

using Sizes = std::map<std::string, int64_t>;

bool holds(const Condition &condition, const Sizes &sizes) {
  Result<int64_t> lhs = condition.lhs.evaluate(sizes), rhs = condition.rhs.evaluate(sizes);
  if (!lhs || !rhs)
    return false;
  switch (condition.kind) {
  case Condition::Kind::LessEqual:
    return *lhs <= *rhs;
  case Condition::Kind::Equal:
    return *lhs == *rhs;
  case Condition::Kind::Divisible:
    return *rhs != 0 && *lhs % *rhs == 0;
  }
  return false;
}

double valueOf(const DimExpr &formula, const Sizes &sizes) {
  Result<int64_t> value = formula.evaluate(sizes);
  return value ? double(std::max<int64_t>(*value, 0)) : 0;
}

class Program {
public:
  Program(const Plan &plan, const MeshTopology &topology, std::optional<CollectiveAlgorithm> allReduce)
      : plan(plan), topology(topology), allReduce(allReduce) {}

  Result<std::vector<MeshStep>> run(const Sizes &wanted) {
    LATHE_RETURN_IF_ERROR(setSizes(wanted));
    if (plan.ranks > topology.gpus())
      return usageError("the engine is for " + std::to_string(plan.ranks) + " ranks, the topology has " +
                            std::to_string(topology.gpus()) + " GPUs",
                        "--topology");
    if (Result<Target> parsed = Target::parse(plan.target))
      target = *parsed;
    for (const Step &step : plan.blocks.front())
      LATHE_RETURN_IF_ERROR(add(step));
    return std::move(steps);
  }

private:
  Status setSizes(const Sizes &wanted) {
    const std::vector<int64_t> usual = optimalSizes(plan);
    std::vector<std::string> known;
    for (size_t i = 0; i < plan.symbols.size(); ++i) {
      const Symbol &symbol = plan.symbols[i];
      int64_t size = usual[i];
      const bool isFree = symbol.origin != SymbolOrigin::Constant && symbol.origin != SymbolOrigin::Derived;
      if (isFree)
        known.push_back(symbol.name);
      if (auto asked = wanted.find(symbol.name); asked != wanted.end()) {
        if (!isFree || asked->second < symbol.min || asked->second > symbol.max || asked->second % symbol.multipleOf)
          return usageError("is from " + std::to_string(symbol.min) + " to " + std::to_string(symbol.max) +
                                (symbol.multipleOf > 1 ? ", a multiple of " + std::to_string(symbol.multipleOf) : "") +
                                (isFree ? "" : " and follows from the entry"),
                            "--size " + symbol.name + "=" + std::to_string(asked->second));
        size = asked->second;
      } else if (symbol.origin == SymbolOrigin::Derived) {
        if (Result<int64_t> value = symbol.value.evaluate(sizes))
          size = *value;
      }
      sizes[symbol.name] = size;
    }
    for (const auto &[name, size] : wanted)
      if (!sizes.count(name))
        return usageError("the entry has no such size; it has " + (known.empty() ? "none" : joined(known)), "--size " + name);
    return okStatus();
  }

  Status add(const Step &step) {
    MeshStep made;
    made.nodes = joined(step.nodes, 8);
    made.stream = step.stream;
    made.waits.assign(step.waits.begin(), step.waits.end());
    made.signal = step.signal;
    if (const auto *launch = std::get_if<LaunchStep>(&step.op)) {
      describe(*launch, made);
    } else if (const auto *copy = std::get_if<CopyStep>(&step.op)) {
      made.name = "copy";
      made.seconds = topology.kernels.seconds + 2 * bytesOf(copy->source) / topology.kernels.bytesPerSecond;
    } else if (const auto *collective = std::get_if<CollectiveStep>(&step.op)) {
      LATHE_RETURN_IF_ERROR(describe(*collective, made));
    } else if (std::holds_alternative<IfStep>(step.op) || std::holds_alternative<LoopStep>(step.op)) {
      return unsupportedError("an If or Loop: how often it runs is not known ahead", made.nodes);
    } else if (step.waits.empty() && step.signal < 0) {
      return okStatus(); // of the host
    } else {
      made.name = "host step";
    }
    steps.push_back(std::move(made));
    return okStatus();
  }

  double bytesOf(int32_t buffer) const { return valueOf(plan.buffers[size_t(buffer)].bytes, sizes); }

  /// A roofline at the topology's rates, and a time that each kernel takes beside its work.
  void describe(const LaunchStep &launch, MeshStep &made) const {
    const Kernel &kernel = plan.kernels[size_t(launch.kernel)];
    made.name = kernel.name;
    Sizes own;
    for (size_t i = 0; i < kernel.symbols.size(); ++i)
      own[kernel.symbols[i]] = int64_t(valueOf(launch.symbols[i], sizes));
    const KernelVariant *variant = &kernel.variants.back();
    for (auto it = kernel.variants.rbegin(); it != kernel.variants.rend(); ++it)
      if (std::all_of(it->guard.begin(), it->guard.end(), [&](const Condition &c) { return holds(c, own); }))
        variant = &*it;
    LaunchWork work = {1, valueOf(kernel.flops, own), valueOf(kernel.bytes, own)};
    for (const Launch &one : variant->launches) {
      double grid = 1;
      for (const DimExpr &size : one.grid)
        grid *= std::max(1.0, valueOf(size, own));
      work.blocks = std::max(work.blocks, grid);
    }
    const analysis::KernelRates &rates = topology.kernels;
    const double peak = target.isCuda() ? peakFlops(target, variant->config) / ratesOf(target).tensorCoreFlops : 1;
    made.seconds = rates.seconds + (target.isCuda() && goesThroughTiles(variant->config) ? rates.tileSeconds : 0) +
                   launchTime(target, work, peak * rates.flops, rates.bytesPerSecond).seconds;
  }

  Status describe(const CollectiveStep &step, MeshStep &made) {
    CollectiveCall call;
    const bool gathers = step.name == "all_gather";
    call.kind = gathers                         ? CollectiveKind::AllGather
                : step.name == "reduce_scatter" ? CollectiveKind::ReduceScatter
                                                : CollectiveKind::AllReduce;
    call.bytes = int64_t(bytesOf(gathers ? step.outputs[0] : step.inputs[0]));
    if (call.kind == CollectiveKind::AllReduce && allReduce) {
      call.algorithm = *allReduce;
    } else {
      const DType dtype = plan.buffers[size_t(step.inputs[0])].dtype;
      auto [known, isNew] = usual.try_emplace({call.kind, call.bytes, dtype});
      if (isNew) {
        Result<CollectiveAlgorithm> found = usualAlgorithm(topology, call.kind, call.bytes, dtype, plan.ranks);
        if (!found)
          return Status(found.status().code(), found.status().message(), made.nodes);
        known->second = *found;
      }
      call.algorithm = known->second;
    }
    made.name = step.name + " (" + std::string(nameOf(call.algorithm)) + ") of " + describeBytes(double(call.bytes));
    made.collective = call;
    return okStatus();
  }

  const Plan &plan;
  const MeshTopology &topology;
  const std::optional<CollectiveAlgorithm> allReduce;
  std::map<std::tuple<CollectiveKind, int64_t, DType>, CollectiveAlgorithm> usual; ///< layers meet alike
  Target target;
  Sizes sizes;
  std::vector<MeshStep> steps;
};

} // namespace

Result<CollectiveAlgorithm> usualAlgorithm(const MeshTopology &topology, CollectiveKind kind, int64_t bytes, DType dtype,
                                           int64_t ranks) {
  if (ranks <= topology.gpusPerHost) {
    if (kind != CollectiveKind::AllReduce)
      return CollectiveAlgorithm::Direct;
    if (ranks > kMostCollectiveRanks)
      return bytes <= kMostOneShotBytesOverSockets ? CollectiveAlgorithm::OneShot : CollectiveAlgorithm::TwoShot;
    switch (allReduceForm(bytes, ranks, dtype, /*inArena=*/true)) {
    case AllReduceForm::OneShot:
      return CollectiveAlgorithm::OneShot;
    case AllReduceForm::TwoShot:
      return CollectiveAlgorithm::TwoShot;
    case AllReduceForm::Direct:
      return CollectiveAlgorithm::Direct;
    }
  }
  if (kind != CollectiveKind::AllReduce || ranks % topology.gpusPerHost)
    return CollectiveAlgorithm::Ring;
  double least = 0;
  CollectiveAlgorithm best = CollectiveAlgorithm::Ring;
  for (CollectiveAlgorithm algorithm : {CollectiveAlgorithm::Ring, CollectiveAlgorithm::Tree}) {
    auto times = analysis::collectiveTimes(topology, {kind, algorithm, bytes}, std::vector<double>(size_t(ranks)));
    if (!times)
      return times.status();
    const double last = *std::max_element(times->begin(), times->end());
    if (algorithm == CollectiveAlgorithm::Ring || last < least)
      least = last, best = algorithm;
  }
  return best;
}

Result<std::vector<MeshStep>> meshProgram(const Plan &plan, const MeshTopology &topology, const Sizes &sizes,
                                          std::optional<CollectiveAlgorithm> allReduce) {
  return Program(plan, topology, allReduce).run(sizes);
}

} // namespace lathe::cli
