//===- StreamOrder.cpp - steps of several streams ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a plan whose steps run on several streams without looking at how it was made: for
// each step a clock says how many steps of each stream have surely ended when it begins.
//
//===----------------------------------------------------------------------===//

#include "lathe/engine/Plan.h"

#include <algorithm>
#include <map>

namespace lathe::engine {
namespace {

int32_t rootOf(const Plan &plan, int32_t buffer) {
  while (plan.buffers[buffer].kind == BufferKind::View)
    buffer = plan.buffers[buffer].index;
  return buffer;
}

void sortOnce(std::vector<int32_t> &list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

Status stepError(const std::string &message, const std::string &where, size_t block, size_t step) {
  std::string at = "block " + std::to_string(block) + " step " + std::to_string(step);
  return invalidError(message, where.empty() ? at : where + ": " + at);
}

/// How many steps of each stream have surely ended.
using Clock = std::vector<int>;

bool isReached(const std::vector<int> &last, const Clock &clock) {
  for (size_t k = 0; k < last.size(); ++k)
    if (last[k] > clock[k])
      return false;
  return true;
}

/// Goes through a program of several streams. `visit(index, clock, number)`: what has ended when the
/// step begins, and its number on its stream, from 1.
template <typename Visit>
Status walkStreams(const Plan &plan, const std::string &where, Visit visit) {
  size_t streams = plan.resources.streams.size();
  const Block &program = plan.blocks[0];
  std::vector<Clock> now(streams, Clock(streams, 0)); // for the next of each stream
  std::vector<Clock> signalled(
      static_cast<size_t>(std::min<int64_t>(plan.resources.events, 1 << 20)));
  std::vector<int> counts(streams, 0);
  for (size_t i = 0; i < program.size(); ++i) {
    const Step &s = program[i];
    Clock &clock = now[s.stream];
    for (int32_t event : s.waits) {
      if (event < 0 || static_cast<size_t>(event) >= signalled.size() || signalled[event].empty())
        return stepError("waits for an event that no earlier step signals", where, 0, i);
      for (size_t k = 0; k < streams; ++k)
        clock[k] = std::max(clock[k], signalled[event][k]);
    }
    int number = ++counts[s.stream];
    LATHE_RETURN_IF_ERROR(visit(i, clock, number));
    clock[s.stream] = number;
    if (s.signal == -1)
      continue;
    if (s.signal < 0 || static_cast<size_t>(s.signal) >= signalled.size() ||
        !signalled[s.signal].empty())
      return stepError("signals an event twice, or none that there is", where, 0, i);
    signalled[s.signal] = clock;
  }
  return okStatus();
}

/// Buffers with known places must not overlap where steps touch them beside each other.
Status checkPlaces(const Plan &plan, const std::string &where) {
  std::map<std::string, int64_t> point;
  std::vector<int64_t> sizes = optimalSizes(plan);
  for (size_t i = 0; i < plan.symbols.size(); ++i)
    point[plan.symbols[i].name] = sizes[i];
  for (auto [a, b] : buffersBeside(plan)) {
    int64_t begins[2], ends[2];
    bool known = true;
    for (int side : {0, 1}) {
      const Buffer &buffer = plan.buffers[side ? b : a];
      Result<int64_t> offset = buffer.offset.evaluate(point), bytes = buffer.bytes.evaluate(point);
      known &= offset.ok() && bytes.ok() && !__builtin_add_overflow(*offset, *bytes, &ends[side]);
      begins[side] = known ? *offset : 0;
    }
    if (!known || begins[0] >= ends[1] || begins[1] >= ends[0] || begins[0] == ends[0] ||
        begins[1] == ends[1])
      continue; // sizes without a value are refused when they are run
    Status overlap = bufferOverlap(plan, a, b);
    return where.empty() ? overlap
                         : Status(overlap.code(), overlap.message(),
                                  where + ": " + overlap.location());
  }
  return okStatus();
}

} // namespace

Effects effectsOf(const Plan &plan, const Step &step) {
  Effects out;
  auto add = [&](std::vector<int32_t> &to, const std::vector<int32_t> &buffers) {
    for (int32_t b : buffers)
      if (b >= 0)
        to.push_back(rootOf(plan, b));
  };
  if (const auto *o = std::get_if<LaunchStep>(&step.op)) {
    const Kernel &kernel = plan.kernels[o->kernel];
    for (size_t i = 0; i < o->buffers.size(); ++i)
      add(kernel.writes[i] ? out.writes : out.reads, {o->buffers[i]});
  } else if (const auto *o = std::get_if<CopyStep>(&step.op)) {
    add(out.reads, {o->source});
    add(out.writes, {o->target});
    out.byHost = plan.buffers[o->source].onHost || plan.buffers[o->target].onHost;
  } else if (const auto *o = std::get_if<TapStep>(&step.op)) {
    add(out.reads, {o->buffer});
  } else if (const auto *o = std::get_if<CollectiveStep>(&step.op)) {
    add(out.reads, o->inputs);
    add(out.writes, o->outputs);
  } else {
    out.byHost = true;
    if (const auto *o = std::get_if<HostOpStep>(&step.op)) {
      add(out.reads, o->inputs);
      add(out.writes, o->outputs);
    } else if (const auto *o = std::get_if<CustomCallStep>(&step.op)) {
      add(out.reads, o->inputs);
      add(out.writes, o->outputs);
    } else if (const auto *o = std::get_if<BindStep>(&step.op)) {
      add(out.reads, {o->buffer});
    } else if (const auto *o = std::get_if<IfStep>(&step.op)) {
      add(out.reads, {o->condition});
    } else if (const auto *o = std::get_if<LoopStep>(&step.op)) {
      add(out.reads, {o->tripCount, o->condition});
    } else {
      out.byHost = false; // guards and lengths of states: numbers alone
    }
  }
  sortOnce(out.reads);
  sortOnce(out.writes);
  return out;
}

Status checkStreams(const Plan &plan, const std::string &where) {
  const Resources &r = plan.resources;
  if (r.devices < 1 || r.streams.empty() || r.streams.size() > 64 || r.events < 0)
    return invalidError("a plan has a device and a stream", where);
  for (int32_t device : r.streams)
    if (device < 0 || device >= r.devices)
      return invalidError("a stream of no device", where);
  size_t streams = r.streams.size();
  for (size_t b = 0; b < plan.blocks.size(); ++b)
    for (size_t i = 0; i < plan.blocks[b].size(); ++i) {
      const Step &s = plan.blocks[b][i];
      if (s.stream < 0 || static_cast<size_t>(s.stream) >= streams)
        return stepError("a step of no stream", where, b, i);
      if (b > 0 && (s.stream != 0 || !s.waits.empty() || s.signal != -1))
        return stepError("a block of a branch or loop is on one stream", where, b, i);
    }
  const Block &program = plan.blocks[0];
  int32_t meeting = -1;
  for (size_t i = 0; i < program.size(); ++i)
    if (std::holds_alternative<CollectiveStep>(program[i].op)) {
      if (meeting >= 0 && meeting != program[i].stream)
        return stepError("collectives on several streams, which nothing orders alike on all ranks", where, 0, i);
      meeting = program[i].stream;
    }
  if (streams == 1) {
    for (size_t i = 0; i < program.size(); ++i)
      if (!program[i].waits.empty() || program[i].signal != -1)
        return stepError("an event on a single stream", where, 0, i);
    return okStatus();
  }
  if (!plan.cuda)
    return invalidError("several streams on a device without them", where);

  // Of each buffer: the numbers of the last steps that have written and read it, one a stream.
  struct Use {
    std::vector<int> writes, reads;
  };
  std::vector<Use> uses(plan.buffers.size());
  LATHE_RETURN_IF_ERROR(
      walkStreams(plan, where, [&](size_t i, const Clock &clock, int number) -> Status {
        Effects effects = effectsOf(plan, program[i]);
        if (effects.byHost)
          return stepError("the host takes part in a program of several streams", where, 0, i);
        for (const std::vector<int32_t> *list : {&effects.reads, &effects.writes})
          for (int32_t buffer : *list)
            if (!isReached(uses[buffer].writes, clock) ||
                (list == &effects.writes && !isReached(uses[buffer].reads, clock)))
              return stepError("touches buffer '" + plan.buffers[buffer].name +
                                   "' beside a step of another stream",
                               where, 0, i);
        for (auto [list, use] : {std::pair(&effects.reads, &Use::reads),
                                 std::pair(&effects.writes, &Use::writes)})
          for (int32_t buffer : *list) {
            std::vector<int> &last = uses[buffer].*use;
            last.resize(streams, 0);
            last[program[i].stream] = number;
          }
        return okStatus();
      }));
  return checkPlaces(plan, where);
}

std::vector<std::pair<int32_t, int32_t>> buffersBeside(const Plan &plan) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  size_t streams = plan.resources.streams.size();
  if (streams == 1)
    return pairs;
  struct Use {
    std::vector<int> last; ///< number of the last step that touches it, one a stream
    Clock known;           ///< what has ended before any step touches it
  };
  std::map<int32_t, Use> uses;
  (void)walkStreams(plan, {}, [&](size_t i, const Clock &clock, int number) -> Status {
    const Step &step = plan.blocks[0][i];
    Effects effects = effectsOf(plan, step);
    for (const std::vector<int32_t> *list : {&effects.reads, &effects.writes})
      for (int32_t buffer : *list) {
        BufferKind kind = plan.buffers[buffer].kind;
        if (kind != BufferKind::Arena && kind != BufferKind::Workspace)
          continue;
        auto [it, isNew] = uses.try_emplace(buffer, Use{std::vector<int>(streams, 0), clock});
        it->second.last[step.stream] = number;
        for (size_t k = 0; k < streams; ++k)
          it->second.known[k] = std::min(it->second.known[k], clock[k]);
      }
    return okStatus();
  });
  for (auto a = uses.begin(); a != uses.end(); ++a)
    for (auto b = std::next(a); b != uses.end(); ++b)
      if (plan.buffers[a->first].index == plan.buffers[b->first].index &&
          !isReached(a->second.last, b->second.known) &&
          !isReached(b->second.last, a->second.known))
        pairs.push_back({a->first, b->first});
  return pairs;
}

Status bufferOverlap(const Plan &plan, int32_t a, int32_t b) {
  return invalidError("shares bytes with buffer '" + plan.buffers[a].name +
                          "', which steps that nothing orders touch",
                      "buffer " + std::to_string(b) + " '" + plan.buffers[b].name + "'");
}

} // namespace lathe::engine
