//===- Program.cpp - a plan made ready to run -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Program.h"

#include <cstdlib>

#include "../comm/Communicator.h"

#include <algorithm>

namespace lathe::runtime {

using namespace engine;

Result<bool> CompiledCondition::holds(Values symbols, std::string_view what) const {
  Result<int64_t> l = lhs.value(symbols, what), r = rhs.value(symbols, what);
  if (!l || !r)
    return l ? r.status() : l.status();
  switch (kind) {
  case Condition::Kind::LessEqual:
    return *l <= *r;
  case Condition::Kind::Equal:
    return *l == *r;
  case Condition::Kind::Divisible:
    return *r > 0 && *l % *r == 0;
  }
  return false;
}

std::string join(const std::vector<std::string> &texts) {
  std::string out;
  for (const std::string &t : texts)
    out += (out.empty() ? "" : ", ") + t;
  return out;
}

int32_t Program::symbol(const std::string &name) const {
  auto it = std::find(symbolNames.begin(), symbolNames.end(), name);
  return it == symbolNames.end() ? -1 : static_cast<int32_t>(it - symbolNames.begin());
}

namespace {

/// Compiles formulas over one set of names and keeps the first error.
class Compiler {
public:
  explicit Compiler(const std::vector<std::string> &names) : names(names) {}
  Status status;

  ExprProgram one(const DimExpr &e) {
    Result<ExprProgram> p = ExprProgram::compile(e, names);
    if (p)
      return std::move(*p);
    if (status.ok())
      status = p.status();
    return {};
  }
  std::vector<ExprProgram> all(const std::vector<DimExpr> &list) {
    std::vector<ExprProgram> out;
    for (const DimExpr &e : list)
      out.push_back(one(e));
    return out;
  }
  CompiledCondition condition(const Condition &c) { return {c.kind, one(c.lhs), one(c.rhs)}; }

private:
  const std::vector<std::string> &names;
};

CompiledVariant compileVariant(const KernelVariant &v, Compiler &c) {
  CompiledVariant out;
  for (const Condition &g : v.guard)
    out.guard.push_back(c.condition(g));
  for (const TensorMap &m : v.tensorMaps)
    for (const std::vector<DimExpr> *list : {&m.dims, &m.strides})
      for (const DimExpr &e : *list)
        out.tensorMapSizes.push_back(c.one(e));
  for (const Launch &l : v.launches)
    out.launches.push_back(
        {{c.one(l.grid[0]), c.one(l.grid[1]), c.one(l.grid[2])}, c.one(l.sharedBytes)});
  out.workspaceBytes = c.one(v.workspaceBytes);
  out.scratchBytes = c.one(v.scratchBytes);
  return out;
}

std::unique_ptr<const CompiledCollective> compileCollective(const CollectiveStep &step, const Plan &plan,
                                                            int statusSlot) {
  auto out = std::make_unique<CompiledCollective>();
  const DType dtype = plan.buffers[step.inputs[0]].dtype;
  out->image = collectiveImage(step, dtype);
  out->statusSlot = statusSlot;
  const bool reduces = step.name == "all_reduce";
  // As the compiler writes them: where the target has launches that begin early, kernels wait themselves.
  const bool programmatic = std::atoi(plan.target.substr(std::min<size_t>(plan.target.size(), 3)).c_str()) >= 90;
  for (std::string_view function : collectiveFunctions(step, dtype)) {
    Launch launch;
    launch.function = function;
    launch.programmaticDependent = programmatic;
    for (int32_t i = 0; i < 3; ++i) // in, out, arenas
      launch.args.push_back({KernelArg::Kind::Buffer, i});
    for (int32_t i = 0; i < (reduces ? 5 : 6); ++i) // size of an arena, rank, one or two sizes, timeout, step
      launch.args.push_back({KernelArg::Kind::Symbol, i});
    launch.args.push_back({KernelArg::Kind::Status, 0});
    out->launches.push_back(std::move(launch));
  }
  return out;
}

} // namespace

Result<std::unique_ptr<const Program>> Program::compile(Plan source) {
  std::unique_ptr<Program> p(new Program());
  p->plan = std::move(source);
  const Plan &plan = p->plan;
  for (const Symbol &s : plan.symbols) {
    p->symbolNames.push_back(s.name);
    p->isStatic &= s.origin != SymbolOrigin::Bound && s.origin != SymbolOrigin::Iteration;
  }
  if (plan.resources.devices != 1)
    return unsupportedError("a plan for " + std::to_string(plan.resources.devices) +
                            " devices: this runtime runs those of one");
  Compiler c(p->symbolNames);
  for (const Symbol &s : plan.symbols)
    p->derived.push_back(s.origin == SymbolOrigin::Derived ? std::optional(c.one(s.value))
                                                           : std::nullopt);
  for (const Guard &g : plan.guards)
    p->guards.push_back(c.condition(g.condition));
  for (const Arena &a : plan.arenas)
    p->arenaBytes.push_back(c.one(a.bytes));
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer &b = plan.buffers[i];
    int32_t root = b.kind == BufferKind::View ? p->buffers[b.index].root : static_cast<int32_t>(i);
    p->buffers.push_back({c.one(b.bytes), c.one(b.offset), c.all(b.dims), c.all(b.physical), root});
  }
  for (const State &s : plan.states)
    p->states.push_back({c.all(s.physical)});
  for (const Port &port : plan.inputs)
    p->inputDims.push_back(c.all(port.dims));
  for (const Port &port : plan.outputs)
    p->outputDims.push_back(c.all(port.dims));
  for (const Kernel &k : plan.kernels) {
    Compiler kc(k.symbols);
    CompiledKernel out;
    for (const KernelVariant &v : k.variants)
      out.variants.push_back(compileVariant(v, kc));
    out.flops = kc.one(k.flops);
    out.bytes = kc.one(k.bytes);
    LATHE_RETURN_IF_ERROR(kc.status);
    p->kernels.push_back(std::move(out));
  }
  LATHE_RETURN_IF_ERROR(p->openHostLibrary());
  p->beside = buffersBeside(plan);
  p->capturable = p->isStatic;
  for (size_t block = 0; block < plan.blocks.size(); ++block) {
    std::vector<CompiledStep> steps;
    for (const Step &s : plan.blocks[block]) {
      CompiledStep out;
      out.step = &s;
      out.nodes = join(s.nodes);
      if (const auto *o = std::get_if<LaunchStep>(&s.op)) {
        LaunchSite site;
        site.step = o;
        site.symbols = c.all(o->symbols);
        for (int32_t b : o->buffers)
          site.dtypes.push_back(plan.buffers[b].dtype);
        const auto &variants = plan.kernels[o->kernel].variants;
        out.launch = static_cast<int>(p->sites.size());
        if (std::any_of(variants.begin(), variants.end(),
                        [](const KernelVariant &v) { return v.status; })) {
          site.statusSlot = static_cast<int>(p->statusUsers.size());
          p->statusUsers.push_back({out.nodes, plan.kernels[o->kernel].name});
        }
        site.nodes = out.nodes;
        p->sites.push_back(std::move(site));
      } else if (const auto *o = std::get_if<HostOpStep>(&s.op)) {
        out.hostOp = findHostOp(o->name);
        if (isOfHostLibrary(o->name))
          out.hostLibraryOp = p->hostLibrary->find(o->name);
        if (!out.hostOp && !out.hostLibraryOp)
          return invalidError("this runtime has no host op '" + o->name + "'", out.nodes);
        p->capturable = false;
      } else if (const auto *o = std::get_if<CopyStep>(&s.op)) {
        p->capturable &= !plan.buffers[o->source].onHost && !plan.buffers[o->target].onHost;
      } else if (const auto *o = std::get_if<GuardStep>(&s.op)) {
        out.condition = c.condition(o->guard.condition);
      } else if (const auto *o = std::get_if<AdvanceStateStep>(&s.op)) {
        out.by = c.one(o->by);
      } else if (const auto *o = std::get_if<CollectiveStep>(&s.op)) {
        if (plan.ranks == 1)
          return unsupportedError("this runtime has no collective '" + o->name + "' of one rank", out.nodes);
        if (DType dtype = plan.buffers[o->inputs[0]].dtype; o->name != "all_gather" && !isReducible(dtype))
          return unsupportedError("no reduction of " + std::string(name(dtype)) + " over ranks", out.nodes);
        if (!plan.cuda) {
          p->capturable = false;
        } else if (plan.buffers[o->inputs[0]].onHost || plan.buffers[o->outputs[0]].onHost) {
          return unsupportedError("a collective of values on the host, beside GPUs", out.nodes);
        } else {
          out.collective = compileCollective(*o, plan, static_cast<int>(p->statusUsers.size()));
          p->statusUsers.push_back({out.nodes, o->name, true});
        }
      } else if (!std::holds_alternative<TapStep>(s.op)) {
        if (const auto *o = std::get_if<BindStep>(&s.op))
          out.by = c.one(o->value);
        p->capturable = false; // binds, custom calls, control flow
      }
      steps.push_back(std::move(out));
    }
    p->blocks.push_back(std::move(steps));
  }
  LATHE_RETURN_IF_ERROR(c.status);
  p->findBound();
  p->segments.resize(plan.blocks.size());
  if (plan.cuda && !p->capturable && plan.resources.streams.size() == 1)
    p->findSegments();
  return std::unique_ptr<const Program>(std::move(p));
}

void Program::findBound() {
  boundIn.resize(plan.blocks.size());
  for (size_t block = plan.blocks.size(); block-- > 0;) { // a block stands behind its user
    std::vector<int32_t> &bound = boundIn[block];
    auto add = [&](int32_t child) {
      if (child >= 0)
        bound.insert(bound.end(), boundIn[child].begin(), boundIn[child].end());
    };
    for (const Step &step : plan.blocks[block])
      if (const auto *bind = std::get_if<BindStep>(&step.op)) {
        bound.push_back(bind->symbol);
      } else if (const auto *branch = std::get_if<IfStep>(&step.op)) {
        add(branch->thenBlock);
        add(branch->elseBlock);
      } else if (const auto *loop = std::get_if<LoopStep>(&step.op)) {
        add(loop->body);
      }
  }
}

Status Program::openHostLibrary() {
  std::string user = plan.strings.empty() ? "" : "entry '" + plan.entry + "'";
  for (const Block &block : plan.blocks)
    for (const Step &step : block)
      if (const auto *op = std::get_if<HostOpStep>(&step.op); op && isOfHostLibrary(op->name) && user.empty())
        user = "node " + join(step.nodes);
  if (user.empty())
    return okStatus();
  if (plan.cuda)
    return unsupportedError("strings and images on a GPU", user);
  Result<std::shared_ptr<const HostLibrary>> opened = HostLibrary::open();
  if (!opened)
    return Status(opened.status().code(), opened.status().message(), user);
  hostLibrary = std::move(*opened);
  return okStatus();
}

/// What lies between steps of the host, from two launches and copies on: fewer gain nothing.
void Program::findSegments() {
  // Memory of the device, or memory of the host that is the context's own and pinned.
  auto isKept = [&](int32_t b) {
    const Buffer &root = plan.buffers[buffers[b].root];
    return !root.onHost || root.kind == BufferKind::Host;
  };
  int count = 0;
  for (size_t block = 0; block < blocks.size(); ++block) {
    Segment now;
    std::vector<ExprProgram> formulas;
    size_t commands = 0;
    auto close = [&](size_t end) {
      if (commands > 1) {
        now.end = end;
        now.number = count++;
        for (int32_t b : now.buffers)
          for (int32_t at = b;; at = plan.buffers[at].index) {
            formulas.push_back(buffers[at].bytes);
            formulas.push_back(buffers[at].offset);
            if (plan.buffers[at].kind != BufferKind::View)
              break;
          }
        for (const ExprProgram &formula : formulas)
          now.symbols.insert(now.symbols.end(), formula.symbols().begin(),
                             formula.symbols().end());
        std::sort(now.symbols.begin(), now.symbols.end());
        now.symbols.erase(std::unique(now.symbols.begin(), now.symbols.end()), now.symbols.end());
        segments[block].push_back(std::move(now));
      }
      now = {};
      now.first = end + 1;
      formulas.clear();
      commands = 0;
    };
    for (size_t i = 0; i < blocks[block].size(); ++i) {
      const CompiledStep &step = blocks[block][i];
      if (const auto *launch = std::get_if<LaunchStep>(&step.step->op)) {
        const LaunchSite &site = sites[step.launch];
        formulas.insert(formulas.end(), site.symbols.begin(), site.symbols.end());
        now.buffers.insert(now.buffers.end(), launch->buffers.begin(), launch->buffers.end());
        ++commands;
      } else if (const auto *copy = std::get_if<CopyStep>(&step.step->op);
                 copy && isKept(copy->source) && isKept(copy->target) &&
                 !(plan.buffers[copy->source].onHost && plan.buffers[copy->target].onHost)) {
        now.buffers.insert(now.buffers.end(), {copy->source, copy->target});
        ++commands;
      } else if (!std::holds_alternative<TapStep>(step.step->op)) {
        close(i);
      }
    }
    close(blocks[block].size());
  }
}

} // namespace lathe::runtime
