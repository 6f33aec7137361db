//===- InspectSharding.cpp - what each rank of a mesh has -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "InspectTables.h"
#include "Results.h"

#include <cstdio>
#include <map>
#include <set>

namespace lathe::cli {

namespace json = llvm::json;
using namespace engine;

namespace {

struct Meeting {
  const CollectiveStep *step;
  const Step *where;
};

std::vector<Meeting> meetingsOf(const Plan &plan) {
  std::vector<Meeting> meetings;
  for (const Block &block : plan.blocks)
    for (const Step &step : block)
      if (const auto *collective = std::get_if<CollectiveStep>(&step.op))
        meetings.push_back({collective, &step});
  return meetings;
}

/// Each place in a section once: entries and kernels share weights.
std::vector<const Weight *> weightsOf(const Plan &plan) {
  std::vector<const Weight *> weights;
  std::set<std::tuple<std::string, int32_t, uint64_t>> seen;
  for (const Weight &weight : plan.weights)
    if (seen.insert({weight.section, weight.shards, weight.offset}).second)
      weights.push_back(&weight);
  return weights;
}

/// At the usual sizes.
double bytesOf(const Plan &plan, int32_t buffer) {
  std::map<std::string, int64_t> sizes;
  const std::vector<int64_t> optima = optimalSizes(plan);
  for (size_t i = 0; i < plan.symbols.size(); ++i)
    sizes[plan.symbols[i].name] = optima[i];
  Result<int64_t> bytes = plan.buffers[size_t(buffer)].bytes.evaluate(sizes);
  return bytes ? double(*bytes) : 0;
}

} // namespace

void printSharding(const Plan &plan) {
  if (plan.ranks == 1) {
    std::printf("  one rank: compiled without --mesh\n");
    return;
  }
  std::map<std::string, int> counts;
  const std::vector<Meeting> meetings = meetingsOf(plan);
  for (const Meeting &meeting : meetings)
    ++counts[meeting.step->name];
  std::vector<std::string> texts;
  for (const auto &[name, count] : counts)
    texts.push_back(std::to_string(count) + " " + name);
  std::printf("  %d ranks; they meet at %s\n", plan.ranks, texts.empty() ? "nothing" : joined(texts).c_str());
  std::printf("  %-16s %-24s %12s  %s\n", "collective", "of each rank", "usual bytes", "ONNX nodes");
  for (const Meeting &meeting : meetings) {
    const Buffer &buffer = plan.buffers[size_t(meeting.step->inputs[0])];
    std::printf("  %-16s %-24s %12s  %s\n", meeting.step->name.c_str(),
                (std::string(name(buffer.dtype)) + describeDims(buffer.dims)).c_str(),
                describeBytes(bytesOf(plan, meeting.step->inputs[0])).c_str(),
                joined(meeting.where->nodes).c_str());
  }
  double parts = 0, whole = 0;
  std::printf("  %-40s %-8s %12s\n", "weight", "a rank", "bytes of it");
  for (const Weight *weight : weightsOf(plan)) {
    (weight->shards ? parts : whole) += double(weight->bytes);
    std::printf("  %-40s %-8s %12s\n", weight->name.c_str(),
                weight->shards ? ("1/" + std::to_string(weight->shards)).c_str() : "all",
                describeBytes(double(weight->bytes)).c_str());
  }
  std::printf("  a rank has %s of parts and %s of what all have\n", describeBytes(parts).c_str(),
              describeBytes(whole).c_str());
}

json::Object shardingObject(const Plan &plan) {
  json::Array collectives, weights;
  for (const Meeting &meeting : meetingsOf(plan)) {
    json::Array nodes;
    for (const std::string &node : meeting.where->nodes)
      nodes.push_back(json::fixUTF8(node));
    collectives.push_back(json::Object{{"name", meeting.step->name},
                                       {"dims", dimsArray(plan.buffers[size_t(meeting.step->inputs[0])].dims)},
                                       {"bytes", bytesOf(plan, meeting.step->inputs[0])},
                                       {"nodes", std::move(nodes)}});
  }
  for (const Weight *weight : weightsOf(plan))
    weights.push_back(json::Object{{"name", json::fixUTF8(weight->name)},
                                   {"shards", weight->shards},
                                   {"bytes", int64_t(weight->bytes)},
                                   {"packing", weight->packing}});
  return json::Object{
      {"ranks", plan.ranks}, {"collectives", std::move(collectives)}, {"weights", std::move(weights)}};
}

} // namespace lathe::cli
