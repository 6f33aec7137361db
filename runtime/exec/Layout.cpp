//===- Layout.cpp - sizes and places for one shape --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Layout.h"

#include <algorithm>

namespace lathe::runtime {

using namespace engine;

namespace {

/// Every buffer ends well below this, so sums of two sizes cannot overflow.
constexpr int64_t kMaxBytes = int64_t(1) << 60;

bool known(const ExprProgram &e, Values symbols) {
  for (uint32_t s : e.symbols())
    if (symbols[s] == kUnknownSymbol)
      return false;
  return true;
}
bool known(const std::vector<ExprProgram> &list, Values symbols) {
  return std::all_of(list.begin(), list.end(),
                     [&](const ExprProgram &e) { return known(e, symbols); });
}

Result<int64_t> size(const ExprProgram &e, Values symbols, std::string_view what) {
  Result<int64_t> v = e.value(symbols, what);
  if (v && (*v < 0 || *v > kMaxBytes))
    return runtimeError("a size of " + std::to_string(*v) + " is out of range", std::string(what));
  return v;
}

/// Bytes behind the root of a buffer, or -1 when that is not known yet.
int64_t rootBytes(const Plan &plan, const Layout &layout, const Buffer &b, int64_t ownBytes) {
  switch (b.kind) {
  case BufferKind::Arena:
  case BufferKind::Workspace:
  case BufferKind::Host:
    return layout.arenaBytes[b.index];
  case BufferKind::Weight:
    return static_cast<int64_t>(plan.weights[b.index].bytes);
  case BufferKind::State:
    return layout.stateBytes[b.index];
  case BufferKind::Input: // memory of this size is provided
  case BufferKind::Output:
    return ownBytes;
  case BufferKind::View:
    return layout.places[b.index].bytes;
  }
  return -1;
}

/// A written buffer and another one of a launch that lie in one arena. Views of states and
/// outputs are the plan's own business: their elements interleave.
bool overlap(const Program &p, const Layout &layout, int32_t a, int32_t b) {
  auto arena = [&](int32_t index) {
    const Buffer &root = p.plan.buffers[p.buffers[index].root];
    bool inArena = root.kind == BufferKind::Arena || root.kind == BufferKind::Workspace ||
                   root.kind == BufferKind::Host;
    return inArena ? root.index : -1;
  };
  const Place &x = layout.places[a], &y = layout.places[b];
  return arena(a) >= 0 && arena(a) == arena(b) && x.offset < y.offset + y.bytes &&
         y.offset < x.offset + x.bytes;
}

/// Kernels read what they do not write as if nobody wrote it, but for the memory that they
/// are known to share.
Status checkOverlaps(const Program &p, const LaunchSite &site, const Layout &layout) {
  const Kernel &kernel = p.plan.kernels[site.step->kernel];
  const std::vector<int32_t> &buffers = site.step->buffers;
  for (size_t i = 0; i < buffers.size(); ++i)
    for (size_t j = 0; kernel.writes[i] && j < buffers.size(); ++j) {
      if (i == j || (kernel.writes[j] && j < i) || !overlap(p, layout, buffers[i], buffers[j]))
        continue;
      const Place &out = layout.places[buffers[i]], &in = layout.places[buffers[j]];
      bool shared = !kernel.aliases.empty() && kernel.aliases[i] == static_cast<int32_t>(j);
      if (!shared || out.offset != in.offset || out.bytes != in.bytes)
        return invalidError("kernel '" + kernel.name + "' writes buffer '" +
                                p.plan.buffers[buffers[i]].name + "' over '" +
                                p.plan.buffers[buffers[j]].name + "'",
                            site.nodes);
    }
  return okStatus();
}

/// Bytes from the first to behind the last element of `dims` within `physical`, whose
/// product fits unless a size is 0.
int64_t reach(DType dtype, const std::vector<int64_t> &dims, const std::vector<int64_t> &physical) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end())
    return 0;
  int64_t last = 0, stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    last += (dims[i] - 1) * stride;
    stride *= physical[i];
  }
  return byteSize(dtype, last + 1);
}

Status placeBuffer(const Program &p, Layout &layout, size_t index) {
  const Buffer &b = p.plan.buffers[index];
  const CompiledBuffer &c = p.buffers[index];
  Values symbols = layout.symbols;
  const std::string &what = b.name;
  if (!p.isStatic && (!known(c.bytes, symbols) || !known(c.offset, symbols) ||
                      !known(c.dims, symbols) || !known(c.physical, symbols)))
    return okStatus();
  Result<int64_t> bytes = size(c.bytes, symbols, what), offset = size(c.offset, symbols, what);
  if (!bytes || !offset)
    return bytes ? offset.status() : bytes.status();
  Result<std::vector<int64_t>> dims = evaluateDims(c.dims, symbols, what),
                               physical = evaluateDims(c.physical, symbols, what);
  if (!dims || !physical)
    return dims ? physical.status() : dims.status();
  for (size_t i = 0; i < dims->size(); ++i)
    if ((*dims)[i] > (*physical)[i])
      return runtimeError("axis " + std::to_string(i) + " of size " + std::to_string((*dims)[i]) +
                              " exceeds the " + std::to_string((*physical)[i]) + " allocated",
                          "buffer " + what);
  Result<int64_t> needed = denseBytes(b.dtype, *physical, what);
  if (!needed)
    return needed.status();
  int64_t available = rootBytes(p.plan, layout, b, *bytes);
  if (available < 0)
    return okStatus();
  if (b.kind == BufferKind::View && *offset <= available) {
    // A window into a larger tensor: its last row ends before the tensor would.
    needed = reach(b.dtype, *dims, *physical);
    bytes = std::min(*bytes, available - *offset);
  }
  if (*needed > *bytes || *offset > available || *bytes > available - *offset)
    return invalidError("a buffer of " + std::to_string(*bytes) + " bytes at " +
                            std::to_string(*offset) + " leaves its memory of " +
                            std::to_string(available),
                        "buffer " + what);
  if (*offset % b.alignment != 0)
    return invalidError("offset is not aligned", "buffer " + what);
  int64_t base = b.kind == BufferKind::View ? layout.places[b.index].offset : 0;
  layout.places[index] = {*bytes, base + *offset};
  return okStatus();
}

} // namespace

Result<std::vector<int64_t>> evaluateDims(const std::vector<ExprProgram> &dims, Values symbols,
                                          std::string_view what) {
  std::vector<int64_t> out;
  out.reserve(dims.size());
  for (const ExprProgram &e : dims) {
    Result<int64_t> v = size(e, symbols, what);
    if (!v)
      return v.status();
    out.push_back(*v);
  }
  return out;
}

Result<int64_t> denseBytes(DType dtype, const std::vector<int64_t> &dims, std::string_view what) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t d : dims) {
    empty |= d == 0;
    if (d > 0 && __builtin_mul_overflow(count, d, &count))
      count = kMaxBytes + 1;
    count = std::min(count, kMaxBytes + 1);
  }
  if (empty)
    return int64_t(0);
  if (count > kMaxBytes / 16)
    return runtimeError("a tensor is too large", std::string(what));
  return byteSize(dtype, count);
}

/// Whether launches or copies of other streams than the first, if there are any, have something to do.
static bool usesStreams(const Program &p, const Layout &layout) {
  bool any = false;
  for (const CompiledStep &step : p.blocks[0])
    if (step.step->stream > 0 && !step.collective) {
      if (step.launch < 0 || !layout.sites[size_t(step.launch)].isEmpty)
        return true;
      any = true;
    }
  return !any;
}

Result<Layout> evaluateLayout(const Program &p, std::vector<int64_t> symbols) {
  Layout layout;
  layout.symbols = std::move(symbols);
  layout.places.resize(p.plan.buffers.size());
  for (const ExprProgram &e : p.arenaBytes) {
    if (!p.isStatic && !known(e, layout.symbols)) {
      layout.arenaBytes.push_back(-1);
      continue;
    }
    Result<int64_t> bytes = size(e, layout.symbols, "arena");
    if (!bytes)
      return bytes.status();
    layout.arenaBytes.push_back(*bytes);
  }
  for (size_t i = 0; i < p.states.size(); ++i) {
    const State &s = p.plan.states[i];
    auto dims = evaluateDims(p.states[i].physical, layout.symbols, s.name);
    if (!dims)
      return dims.status();
    Result<int64_t> bytes = denseBytes(s.dtype, *dims, s.name);
    if (!bytes)
      return bytes.status();
    layout.stateBytes.push_back(*bytes);
  }
  for (size_t i = 0; i < p.plan.buffers.size(); ++i)
    LATHE_RETURN_IF_ERROR(placeBuffer(p, layout, i));
  for (auto [a, b] : p.beside)
    if (layout.places[a].bytes > 0 && layout.places[b].bytes > 0 && overlap(p, layout, a, b))
      return bufferOverlap(p.plan, a, b);
  if (p.isStatic) {
    for (const LaunchSite &site : p.sites) {
      Result<SiteLaunch> launch = evaluateSite(p, site, layout);
      if (!launch)
        return launch.status();
      layout.sites.push_back(std::move(*launch));
    }
    layout.usesStreams = usesStreams(p, layout);
  }
  return layout;
}

/// Whether all results of a launch are tensors without elements.
static bool writesNothing(const Program &p, const LaunchSite &site, const Layout &layout) {
  const Kernel &kernel = p.plan.kernels[site.step->kernel];
  bool any = false;
  for (size_t i = 0; i < kernel.writes.size(); ++i) {
    const int32_t buffer = site.step->buffers[i];
    if (!kernel.writes[i] || p.plan.buffers[buffer].kind == BufferKind::Workspace)
      continue;
    if (!layout.places[buffer].known() || layout.places[buffer].bytes > 0)
      return false;
    any = true;
  }
  return any;
}

Result<SiteLaunch> evaluateSite(const Program &p, const LaunchSite &site, const Layout &layout) {
  const Kernel &kernel = p.plan.kernels[site.step->kernel];
  const CompiledKernel &compiled = p.kernels[site.step->kernel];
  SiteLaunch out;
  out.isEmpty = writesNothing(p, site, layout);
  if (out.isEmpty)
    return out;
  for (const ExprProgram &e : site.symbols) {
    Result<int64_t> v = e.value(layout.symbols, kernel.name);
    if (!v)
      return v.status();
    out.symbols.push_back(*v);
  }
  for (; out.variant + 1 < static_cast<int>(compiled.variants.size()); ++out.variant) {
    bool all = true;
    for (const CompiledCondition &c : compiled.variants[out.variant].guard) {
      Result<bool> holds = c.holds(out.symbols, kernel.name);
      if (!holds)
        return holds.status();
      all &= *holds;
    }
    if (all)
      break;
  }
  const CompiledVariant &v = compiled.variants[out.variant];
  for (const ExprProgram &e : v.tensorMapSizes) {
    Result<int64_t> value = size(e, out.symbols, kernel.name);
    if (!value)
      return value.status();
    out.tensorMapSizes.push_back(*value);
  }
  for (const CompiledLaunch &l : v.launches) {
    SiteLaunch::One one{};
    for (int i = 0; i < 3; ++i) {
      Result<int64_t> g = size(l.grid[i], out.symbols, kernel.name);
      if (!g)
        return g.status();
      one.grid[i] = *g;
    }
    Result<int64_t> shared = size(l.sharedBytes, out.symbols, kernel.name);
    if (!shared)
      return shared.status();
    one.sharedBytes = *shared;
    out.launches.push_back(one);
  }
  Result<int64_t> scratch = size(v.scratchBytes, out.symbols, kernel.name),
                  workspace = size(v.workspaceBytes, out.symbols, kernel.name);
  if (!scratch || !workspace)
    return scratch ? workspace.status() : scratch.status();
  out.scratchBytes = *scratch;
  for (int32_t b : site.step->buffers)
    if (!layout.places[b].known())
      return invalidError("a kernel uses a buffer before its size is known", site.nodes);
  LATHE_RETURN_IF_ERROR(checkOverlaps(p, site, layout));
  if (*workspace > 0 && layout.places[site.step->buffers.back()].bytes < *workspace)
    return invalidError("the workspace of kernel '" + kernel.name + "' is too small", site.nodes);
  return out;
}

} // namespace lathe::runtime
