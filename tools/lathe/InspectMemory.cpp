//===- InspectMemory.cpp - the memory of a plan for people, JSON and SVG --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "InspectTables.h"
#include "Results.h"

#include "lathe/analysis/MemoryDrawing.h"
#include "lathe/engine/CollectiveAbi.h"
#include "lathe/engine/KernelAbi.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

namespace lathe::cli {
namespace {

namespace json = llvm::json;
using namespace engine;

/// Values of a formula at some sizes; -1 when it has none there.
class Sizes {
public:
  enum Which { Smallest, Usual, Largest };
  explicit Sizes(const Plan &plan, Which which = Usual) {
    std::vector<int64_t> optima = optimalSizes(plan);
    for (size_t i = 0; i < plan.symbols.size(); ++i) {
      const Symbol &symbol = plan.symbols[i];
      values[symbol.name] = which == Smallest ? symbol.min : which == Usual ? optima[i] : symbol.max;
      bounded &= symbol.max != DimRange::kUnbounded;
    }
    bounded |= which != Largest;
  }
  /// False for the largest sizes when there are none.
  bool bounded = true;
  int64_t operator()(const DimExpr &expr) const {
    Result<int64_t> value = expr.evaluate(values);
    return value ? *value : -1;
  }
  std::string str() const {
    std::string out;
    for (const auto &[name, value] : values)
      out += (out.empty() ? "" : ", ") + name + "=" + std::to_string(value);
    return out;
  }

private:
  std::map<std::string, int64_t> values;
};

const char *kindName(BufferKind kind) {
  constexpr const char *names[] = {"arena",  "input", "output",    "weight",
                                   "state",  "host",  "workspace", "view"};
  return names[size_t(kind)];
}

/// First and last step that touches each buffer (through views too), -1 when none does.
std::vector<std::pair<int, int>> lifetimes(const Plan &plan) {
  std::vector<std::pair<int, int>> life(plan.buffers.size(), {-1, -1});
  int step = 0;
  auto touch = [&](int32_t index) {
    while (index >= 0) {
      auto &[first, last] = life[size_t(index)];
      first = first < 0 ? step : first;
      last = step;
      const Buffer &buffer = plan.buffers[size_t(index)];
      index = buffer.kind == BufferKind::View ? buffer.index : -1;
    }
  };
  auto touchAll = [&](const std::vector<int32_t> &indices) {
    for (int32_t index : indices)
      touch(index);
  };
  for (const Block &block : plan.blocks)
    for (const Step &s : block) {
      if (const auto *launch = std::get_if<LaunchStep>(&s.op))
        touchAll(launch->buffers);
      else if (const auto *host = std::get_if<HostOpStep>(&s.op))
        touchAll(host->inputs), touchAll(host->outputs);
      else if (const auto *call = std::get_if<CustomCallStep>(&s.op))
        touchAll(call->inputs), touchAll(call->outputs);
      else if (const auto *copy = std::get_if<CopyStep>(&s.op))
        touch(copy->source), touch(copy->target);
      else if (const auto *bind = std::get_if<BindStep>(&s.op); bind && bind->buffer >= 0)
        touch(bind->buffer);
      ++step;
    }
  return life;
}

int64_t weightBytes(const Plan &plan) {
  int64_t sum = 0;
  std::set<std::pair<std::string, uint64_t>> seen;
  for (const Weight &weight : plan.weights)
    if (seen.insert({weight.section, weight.offset}).second)
      sum += int64_t(weight.bytes);
  return sum;
}

std::string bytesAt(int64_t bytes) { return bytes < 0 ? "?" : describeBytes(double(bytes)); }

/// Bytes of all arenas together.
DimExpr arenaFormula(const Plan &plan) {
  DimExpr sum = 0;
  for (const Arena &arena : plan.arenas)
    sum = sum + arena.bytes;
  return sum;
}

/// What a launch on a CPU wants of scratch memory by variant, the first whose guard holds; over the plan's symbols.
struct Scratch {
  std::string kernel;
  std::vector<std::pair<std::vector<Condition>, DimExpr>> variants;
  bool operator==(const Scratch &) const = default;
};

std::vector<Scratch> scratchOf(const Plan &plan) {
  std::vector<Scratch> all;
  for (const Block &block : plan.blocks)
    for (const Step &step : block) {
      const auto *launch = std::get_if<LaunchStep>(&step.op);
      if (!launch)
        continue;
      const Kernel &kernel = plan.kernels[size_t(launch->kernel)];
      std::map<std::string, DimExpr> sizes;
      for (size_t i = 0; i < kernel.symbols.size(); ++i)
        sizes.emplace(kernel.symbols[i], launch->symbols[i]);
      Scratch scratch{kernel.name, {}};
      bool any = false;
      for (const KernelVariant &variant : kernel.variants) {
        std::vector<Condition> guard = variant.guard;
        for (Condition &c : guard)
          c = {c.kind, c.lhs.substitute(sizes), c.rhs.substitute(sizes)};
        scratch.variants.emplace_back(std::move(guard), variant.scratchBytes.substitute(sizes));
        any |= variant.scratchBytes != DimExpr(0);
      }
      if (any && std::find(all.begin(), all.end(), scratch) == all.end())
        all.push_back(std::move(scratch));
    }
  return all;
}

/// Words on the host in which launches say that something is wrong.
int64_t statusBytes(const Plan &plan) {
  int64_t words = 0;
  for (const Block &block : plan.blocks)
    for (const Step &step : block)
      if (const auto *launch = std::get_if<LaunchStep>(&step.op)) {
        const auto &variants = plan.kernels[size_t(launch->kernel)].variants;
        words += std::any_of(variants.begin(), variants.end(), [](const KernelVariant &v) { return v.status; });
      } else {
        words += plan.cuda && std::holds_alternative<CollectiveStep>(step.op);
      }
  return words * int64_t(sizeof(LatheStatusWord));
}

/// Through which the kernels of a mesh exchange, of each rank; shared by all entries.
int64_t exchangeBytes(const Plan &plan) {
  return plan.cuda && plan.ranks > 1 ? arenaOperandOffset(plan.ranks) : 0;
}

json::Array scratchArray(const Plan &plan) {
  json::Array list;
  for (const Scratch &scratch : scratchOf(plan)) {
    json::Array variants;
    for (const auto &[guard, bytes] : scratch.variants)
      variants.push_back(json::Object{{"guard", describeGuard(guard)}, {"formula", bytes.str()}});
    list.push_back(json::Object{{"kernel", scratch.kernel}, {"variants", std::move(variants)}});
  }
  return list;
}

constexpr std::pair<Sizes::Which, const char *> kSizes[] = {
    {Sizes::Smallest, "smallest"}, {Sizes::Usual, "usual"}, {Sizes::Largest, "largest"}};

} // namespace

void printMemory(const Plan &plan) {
  Sizes sizes(plan);
  std::printf("  memory at %s\n", sizes.str().empty() ? "fixed sizes" : sizes.str().c_str());
  for (size_t i = 0; i < plan.arenas.size(); ++i)
    std::printf("  %s arena %zu: %s = %s\n", plan.arenas[i].onHost ? "host" : "device", i,
                bytesAt(sizes(plan.arenas[i].bytes)).c_str(), plan.arenas[i].bytes.str().c_str());
  DimExpr peak = arenaFormula(plan);
  std::printf("  peak of the arenas: %s bytes\n", peak.str().c_str());
  for (auto [which, name] : kSizes)
    if (Sizes at(plan, which); at.bounded && !plan.symbols.empty())
      std::printf("    at the %s sizes (%s): %lld bytes\n", name, at.str().c_str(),
                  static_cast<long long>(at(peak)));
  for (const Scratch &scratch : scratchOf(plan))
    for (const auto &[guard, bytes] : scratch.variants)
      std::printf("  scratch of a thread for %s: %s = %s%s%s\n", scratch.kernel.c_str(), bytesAt(sizes(bytes)).c_str(),
                  bytes.str().c_str(), scratch.variants.size() > 1 ? ", where " : "",
                  scratch.variants.size() > 1 ? describeGuard(guard).c_str() : "");
  if (int64_t bytes = statusBytes(plan))
    std::printf("  status words: %lld bytes\n", static_cast<long long>(bytes));
  if (int64_t bytes = exchangeBytes(plan))
    std::printf("  slots of collectives: %s, of all entries\n", describeBytes(double(bytes)).c_str());
  std::printf("  weights: %s in %zu pieces\n", describeBytes(double(weightBytes(plan))).c_str(),
              plan.weights.size());
  for (const State &state : plan.states) {
    DimExpr elements = product(state.physical);
    std::printf("  state %s: %s = %s of %s\n", state.name.c_str(),
                bytesAt(sizes(elements) < 0 ? -1 : byteSize(state.dtype, sizes(elements))).c_str(),
                elements.str().c_str(), std::string(name(state.dtype)).c_str());
  }
  std::vector<std::pair<int, int>> life = lifetimes(plan);
  std::printf("  %-9s %-9s %10s %10s  %-24s %s\n", "kind", "steps", "offset", "bytes", "value",
              "offset = , bytes = ");
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer &buffer = plan.buffers[i];
    if (buffer.kind == BufferKind::Weight)
      continue;
    std::string steps = life[i].first < 0 ? "-"
                                          : std::to_string(life[i].first) + "-" +
                                                std::to_string(life[i].second);
    std::printf("  %-9s %-9s %10lld %10lld  %-24s %s, %s\n", kindName(buffer.kind), steps.c_str(),
                static_cast<long long>(sizes(buffer.offset)),
                static_cast<long long>(sizes(buffer.bytes)), buffer.name.c_str(),
                buffer.offset.str().c_str(), buffer.bytes.str().c_str());
  }
}

json::Object memoryObject(const Plan &plan) {
  Sizes sizes(plan);
  json::Array arenas, buffers;
  json::Object peak{{"formula", arenaFormula(plan).str()}};
  for (auto [which, name] : kSizes)
    if (Sizes at(plan, which); at.bounded)
      peak[name] = json::Object{{"sizes", at.str()}, {"bytes", at(arenaFormula(plan))}};
  for (const Arena &arena : plan.arenas)
    arenas.push_back(json::Object{{"formula", arena.bytes.str()},
                                  {"bytes", sizes(arena.bytes)},
                                  {"on_host", arena.onHost}});
  std::vector<std::pair<int, int>> life = lifetimes(plan);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer &buffer = plan.buffers[i];
    buffers.push_back(json::Object{{"name", json::fixUTF8(buffer.name)},
                                   {"kind", kindName(buffer.kind)},
                                   {"index", buffer.index},
                                   {"dtype", std::string(name(buffer.dtype))},
                                   {"dims", dimsArray(buffer.dims)},
                                   {"offset_formula", buffer.offset.str()},
                                   {"bytes_formula", buffer.bytes.str()},
                                   {"offset", sizes(buffer.offset)},
                                   {"bytes", sizes(buffer.bytes)},
                                   {"first_step", life[i].first},
                                   {"last_step", life[i].second}});
  }
  return json::Object{{"sizes", sizes.str()},
                      {"peak", std::move(peak)},
                      {"arenas", std::move(arenas)},
                      {"scratch", scratchArray(plan)},
                      {"status_bytes", statusBytes(plan)},
                      {"exchange_bytes", exchangeBytes(plan)},
                      {"weight_bytes", weightBytes(plan)},
                      {"buffers", std::move(buffers)}};
}

std::string memorySvg(const Plan &plan) {
  Sizes sizes(plan);
  analysis::Drawing drawing;
  drawing.height = sizes(arenaFormula(plan));
  drawing.title = "entry " + plan.entry + " for " + plan.target + ": " +
                  std::to_string(drawing.height) + " bytes" +
                  (sizes.str().empty() ? "" : " at " + sizes.str() + ", in all sizes " +
                                                  arenaFormula(plan).str());
  std::vector<std::pair<int, int>> life = lifetimes(plan);
  std::vector<int64_t> base; // arenas stand on each other
  int64_t top = 0;
  for (const Arena &arena : plan.arenas) {
    base.push_back(top);
    top += std::max<int64_t>(0, sizes(arena.bytes));
  }
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer &b = plan.buffers[i];
    bool inArena = b.kind == BufferKind::Arena || b.kind == BufferKind::Workspace ||
                   b.kind == BufferKind::Host;
    if (inArena && life[i].first >= 0)
      drawing.buffers.push_back({b.name, life[i].first, life[i].second + 1,
                                 base[size_t(b.index)] + sizes(b.offset), sizes(b.bytes)});
  }
  for (const Block &block : plan.blocks)
    for (const Step &step : block) {
      const auto *launch = std::get_if<LaunchStep>(&step.op);
      drawing.steps.push_back(launch ? plan.kernels[size_t(launch->kernel)].name : "");
    }
  return analysis::drawSvg(drawing);
}

} // namespace lathe::cli
