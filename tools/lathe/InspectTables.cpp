//===- InspectTables.cpp - parts of a plan for people and as JSON ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "InspectTables.h"

#include "Results.h"

#include <cstdio>
#include <map>
#include <set>

namespace lathe::cli {
namespace {

namespace json = llvm::json;
using namespace engine;

const char *originName(SymbolOrigin origin) {
  constexpr const char *names[] = {"input", "state length", "bound", "iteration", "constant", "derived"};
  static_assert(std::size(names) == size_t(SymbolOrigin::Derived) + 1);
  return names[size_t(origin)];
}

std::string bufferText(const Plan &plan, int32_t index) {
  const Buffer &buffer = plan.buffers[size_t(index)];
  return buffer.name + " " + std::string(name(buffer.dtype)) + describeDims(buffer.dims);
}

std::string buffersText(const Plan &plan, const std::vector<int32_t> &indices) {
  std::vector<std::string> texts;
  for (int32_t index : indices)
    texts.push_back(bufferText(plan, index));
  return joined(texts);
}

std::string stepText(const Plan &plan, const Step &step) {
  struct Visitor {
    const Plan &plan;
    std::string operator()(const LaunchStep &s) const {
      return "launch " + plan.kernels[size_t(s.kernel)].name + "(" + buffersText(plan, s.buffers) +
             ")";
    }
    std::string operator()(const HostOpStep &s) const {
      return "host " + s.name + "(" + buffersText(plan, s.inputs) + ") -> " +
             buffersText(plan, s.outputs);
    }
    std::string operator()(const CopyStep &s) const {
      return "copy " + bufferText(plan, s.source) + " to " + bufferText(plan, s.target);
    }
    std::string operator()(const BindStep &s) const {
      if (s.buffer < 0)
        return "bind " + plan.symbols[size_t(s.symbol)].name + " = " + s.value.str();
      return "bind " + plan.symbols[size_t(s.symbol)].name + " = " + bufferText(plan, s.buffer) +
             " at " + std::to_string(s.element);
    }
    std::string operator()(const GuardStep &s) const {
      return "guard " + describeGuard({s.guard.condition}) + ": " + s.guard.message;
    }
    std::string operator()(const AdvanceStateStep &s) const {
      return "advance " + plan.states[size_t(s.state)].name + " by " + s.by.str();
    }
    std::string operator()(const TapStep &s) const {
      return "tap " + s.name + " " + bufferText(plan, s.buffer);
    }
    std::string operator()(const CustomCallStep &s) const {
      return "call " + s.name + "(" + buffersText(plan, s.inputs) + ") -> " +
             buffersText(plan, s.outputs);
    }
    std::string operator()(const IfStep &s) const {
      return "if " + bufferText(plan, s.condition) + " block " + std::to_string(s.thenBlock) +
             " else block " + std::to_string(s.elseBlock);
    }
    std::string operator()(const LoopStep &s) const {
      return "loop block " + std::to_string(s.body);
    }
    std::string operator()(const CollectiveStep &s) const {
      return s.name + "(" + buffersText(plan, s.inputs) + ") -> " + buffersText(plan, s.outputs);
    }
  };
  std::string text = std::visit(Visitor{plan}, step.op);
  if (plan.resources.streams.size() > 1) {
    text += " on stream " + std::to_string(step.stream);
    for (int32_t event : step.waits)
      text += ", behind event " + std::to_string(event);
    if (step.signal >= 0)
      text += ", signals event " + std::to_string(step.signal);
  }
  return text;
}

/// Launches of each kernel in the plan, and the ONNX nodes of all of them.
struct KernelUse {
  int64_t launches = 0;
  std::vector<std::string> nodes;
};

std::vector<KernelUse> kernelUses(const Plan &plan) {
  std::vector<KernelUse> uses(plan.kernels.size());
  for (const Block &block : plan.blocks)
    for (const Step &step : block)
      if (const auto *launch = std::get_if<LaunchStep>(&step.op)) {
        KernelUse &use = uses[size_t(launch->kernel)];
        ++use.launches;
        use.nodes.insert(use.nodes.end(), step.nodes.begin(), step.nodes.end());
      }
  return uses;
}

std::string gridText(const KernelVariant &variant) {
  std::string out;
  for (const Launch &launch : variant.launches) {
    std::string grid = launch.grid[0].str();
    if (launch.grid[1].constant() != 1 || launch.grid[2].constant() != 1)
      grid += " x " + launch.grid[1].str() + " x " + launch.grid[2].str();
    out += (out.empty() ? "" : "; ") + grid;
    int64_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    if (threads != 1)
      out += " of " + std::to_string(threads);
  }
  return out;
}

json::Array portsArray(const std::vector<Port> &ports) {
  json::Array list;
  for (const Port &port : ports)
    list.push_back(json::Object{{"name", json::fixUTF8(port.name)},
                                {"dtype", std::string(name(port.dtype))},
                                {"dims", dimsArray(port.dims)}});
  return list;
}

json::Array nodesArray(const std::vector<std::string> &nodes) {
  json::Array list;
  for (const std::string &node : nodes)
    list.push_back(json::fixUTF8(node));
  return list;
}

} // namespace

std::string describeGuard(const std::vector<Condition> &guard) {
  std::string out;
  for (const Condition &condition : guard) {
    out += out.empty() ? "" : " && ";
    switch (condition.kind) {
    case Condition::Kind::LessEqual:
      out += condition.lhs.str() + " <= " + condition.rhs.str();
      break;
    case Condition::Kind::Equal:
      out += condition.lhs.str() + " == " + condition.rhs.str();
      break;
    case Condition::Kind::Divisible:
      out += condition.lhs.str() + " % " + condition.rhs.str() + " == 0";
      break;
    }
  }
  return out.empty() ? "otherwise" : out;
}

json::Array dimsArray(const std::vector<DimExpr> &dims) {
  json::Array list;
  for (const DimExpr &dim : dims)
    list.push_back(dim.str());
  return list;
}

std::string describeDims(const std::vector<DimExpr> &dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i)
    out += (i ? ", " : "") + dims[i].str();
  return out + "]";
}

void printEntry(const Plan &plan) {
  for (const Port &port : plan.inputs)
    std::printf("  input  %s %s%s\n", port.name.c_str(), std::string(name(port.dtype)).c_str(),
                describeDims(port.dims).c_str());
  for (const Port &port : plan.outputs)
    std::printf("  output %s %s%s\n", port.name.c_str(), std::string(name(port.dtype)).c_str(),
                describeDims(port.dims).c_str());
  for (const State &state : plan.states)
    std::printf("  state  %s %s%s, grows along axis %d\n", state.name.c_str(),
                std::string(name(state.dtype)).c_str(), describeDims(state.physical).c_str(),
                state.axis);
  for (const Symbol &symbol : plan.symbols) {
    std::string top = symbol.max == DimRange::kUnbounded ? "" : std::to_string(symbol.max);
    std::printf("  size   %s from %lld to %s, usually %lld (%s)\n", symbol.name.c_str(),
                static_cast<long long>(symbol.min), top.empty() ? "any" : top.c_str(),
                static_cast<long long>(symbol.opt), originName(symbol.origin));
  }
  for (const Guard &guard : plan.guards)
    std::printf("  guard  %s: %s%s%s\n", describeGuard({guard.condition}).c_str(),
                guard.message.c_str(), guard.location.empty() ? "" : ", at ",
                guard.location.c_str());
}

void printPlan(const Plan &plan) {
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    if (plan.blocks.size() > 1)
      std::printf("  block %zu\n", b);
    for (size_t i = 0; i < plan.blocks[b].size(); ++i) {
      const Step &step = plan.blocks[b][i];
      std::printf("  %4zu %s%s%s\n", i, stepText(plan, step).c_str(),
                  step.nodes.empty() ? "" : "  # ", joined(step.nodes).c_str());
    }
  }
}

void printKernels(const Plan &plan) {
  constexpr size_t kNodes = 4; // a layer's kernel has nodes of all layers; JSON has them
  std::vector<KernelUse> uses = kernelUses(plan);
  int64_t launches = 0;
  for (const KernelUse &use : uses)
    launches += use.launches;
  std::printf("  %zu kernels, %lld launches\n", plan.kernels.size(),
              static_cast<long long>(launches));
  std::printf("  %-24s %5s  %-24s %-28s %s\n", "kernel", "times", "configuration", "blocks",
              "when; ONNX nodes");
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const Kernel &kernel = plan.kernels[i];
    for (size_t v = 0; v < kernel.variants.size(); ++v) {
      const KernelVariant &variant = kernel.variants[v];
      std::string rest = kernel.variants.size() > 1 ? describeGuard(variant.guard) : "";
      if (v == 0)
        rest += (rest.empty() ? "" : "; ") + joined(uses[i].nodes, kNodes);
      std::string times = v == 0 ? std::to_string(uses[i].launches) : "";
      std::printf("  %-24s %5s  %-24s %-28s %s\n", v == 0 ? kernel.name.c_str() : "",
                  times.c_str(), variant.config.c_str(), gridText(variant).c_str(), rest.c_str());
    }
  }
}

json::Object entryObject(const Plan &plan) {
  json::Array symbols, states, guards;
  for (const Symbol &symbol : plan.symbols) {
    json::Object object{{"name", symbol.name},
                        {"min", symbol.min},
                        {"opt", symbol.opt},
                        {"multiple_of", symbol.multipleOf},
                        {"origin", originName(symbol.origin)}};
    object["max"] = symbol.max == DimRange::kUnbounded ? json::Value(nullptr)
                                                       : json::Value(symbol.max);
    symbols.push_back(std::move(object));
  }
  for (const State &state : plan.states)
    states.push_back(json::Object{{"name", json::fixUTF8(state.name)},
                                  {"dtype", std::string(name(state.dtype))},
                                  {"dims", dimsArray(state.physical)},
                                  {"axis", state.axis},
                                  {"capacity", state.capacity.str()}});
  for (const Guard &guard : plan.guards)
    guards.push_back(json::Object{{"condition", describeGuard({guard.condition})},
                                  {"message", json::fixUTF8(guard.message)},
                                  {"location", json::fixUTF8(guard.location)}});
  return json::Object{{"inputs", portsArray(plan.inputs)},
                      {"outputs", portsArray(plan.outputs)},
                      {"symbols", std::move(symbols)},
                      {"states", std::move(states)},
                      {"guards", std::move(guards)}};
}

json::Array planArray(const Plan &plan) {
  json::Array blocks;
  for (const Block &block : plan.blocks) {
    json::Array steps;
    for (const Step &step : block)
      steps.push_back(json::Object{{"step", json::fixUTF8(stepText(plan, step))},
                                   {"nodes", nodesArray(step.nodes)}});
    blocks.push_back(std::move(steps));
  }
  return blocks;
}

json::Array kernelArray(const Plan &plan) {
  std::vector<KernelUse> uses = kernelUses(plan);
  json::Array list;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const Kernel &kernel = plan.kernels[i];
    json::Array variants;
    for (const KernelVariant &variant : kernel.variants)
      variants.push_back(json::Object{{"guard", describeGuard(variant.guard)},
                                      {"config", variant.config},
                                      {"grid", gridText(variant)},
                                      {"workspace", variant.workspaceBytes.str()},
                                      {"status", variant.status}});
    list.push_back(json::Object{{"name", json::fixUTF8(kernel.name)},
                                {"launches", uses[i].launches},
                                {"flops", kernel.flops.str()},
                                {"bytes", kernel.bytes.str()},
                                {"nodes", nodesArray(uses[i].nodes)},
                                {"variants", std::move(variants)}});
  }
  return list;
}

} // namespace lathe::cli
