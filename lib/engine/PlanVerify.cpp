//===- PlanVerify.cpp - what a plan must mean -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The semantic gate for plans from files and from the compiler: after it, every
// index of a plan is in range, every formula uses declared symbols, views and blocks
// form trees, and kernels write only what may be written. What depends on sizes
// (offsets within arenas, grid limits) is checked by the runtime per shape.
//
//===----------------------------------------------------------------------===//

#include "lathe/engine/ExprProgram.h"
#include "lathe/engine/Plan.h"

#include <algorithm>
#include <set>

namespace lathe::engine {
namespace {

constexpr size_t kMaxRank = 32;
constexpr int kMaxBlockDepth = 32;
constexpr int32_t kMaxRanks = 1 << 16;

class Verifier {
public:
  Verifier(const Plan &plan, const std::string &where) : p(plan), where(where) {}
  Status run();

private:
  const Plan &p;
  std::string where;
  Status status;
  std::vector<std::string> names; ///< of the plan's symbols
  std::vector<int> blockUses;
  int32_t lastCollective = -1;

  /// Records the first failure; `at` says which item. Returns the condition.
  bool check(bool condition, const std::string &message, const std::string &at) {
    if (!condition && status.ok())
      status = invalidError(message, where.empty() ? at : where + ": " + at);
    return condition;
  }
  template <typename T> static bool inRange(int64_t index, const std::vector<T> &list) {
    return index >= 0 && static_cast<uint64_t>(index) < list.size();
  }
  void formula(const DimExpr &e, std::span<const std::string> symbols, const std::string &at) {
    Result<ExprProgram> program = ExprProgram::compile(e, symbols);
    if (!program)
      check(false, program.status().message(), at);
    else if (std::optional<int64_t> c = e.constant())
      check(*c >= 0, "a size or offset is negative", at);
  }
  void sizes(const std::vector<DimExpr> &dims, const std::string &at) {
    check(dims.size() <= kMaxRank, "rank is too high", at);
    for (const DimExpr &d : dims)
      formula(d, names, at);
  }
  void condition(const Condition &c, std::span<const std::string> symbols, const std::string &at) {
    for (const DimExpr *e : {&c.lhs, &c.rhs})
      if (Result<ExprProgram> program = ExprProgram::compile(*e, symbols); !program)
        check(false, program.status().message(), at);
    if (c.kind == Condition::Kind::Divisible)
      check(!c.rhs.constant() || *c.rhs.constant() > 0, "a divisor must be positive", at);
  }
  void storable(DType type, const std::string &at) {
    check(bitWidth(type) != 0, "element type cannot be stored", at);
  }
  static bool powerOfTwo(int64_t v) { return v > 0 && (v & (v - 1)) == 0; }
  void uniqueNames(std::set<std::string> &seen, const std::string &name, const std::string &at) {
    check(!name.empty(), "a name is empty", at);
    check(seen.insert(name).second, "the name '" + name + "' appears twice", at);
  }
  /// The buffer behind a chain of views.
  const Buffer &root(int32_t index) const {
    while (p.buffers[index].kind == BufferKind::View)
      index = p.buffers[index].index;
    return p.buffers[index];
  }
  void writable(int32_t index, const std::string &at) {
    const Buffer &b = root(index);
    check(b.kind != BufferKind::Weight, "a weight is written", at);
    check(b.kind != BufferKind::Input || p.inputs[b.index].donatedTo >= 0,
          "an input that is not donated is written", at);
  }
  void hostBuffer(int32_t index, const std::string &at) {
    if (check(inRange(index, p.buffers), "buffer number out of range", at))
      check(p.buffers[index].onHost, "the host uses a buffer in device memory", at);
  }
  void hostScalar(int32_t index, std::initializer_list<DType> types, const std::string &at) {
    hostBuffer(index, at);
    if (status.ok())
      check(std::find(types.begin(), types.end(), p.buffers[index].dtype) != types.end(),
            "wrong element type of a host scalar", at);
  }

  void symbols();
  void strings();
  void ports();
  void storage();
  void buffers();
  void kernel(const Kernel &k);
  void launch(const Kernel &k, const KernelVariant &v, const Launch &l, const std::string &at);
  void tensorMap(const Kernel &k, const TensorMap &m, const std::string &at);
  void block(int32_t index, int depth);
  void step(const Step &s, int32_t blockIndex, int depth, const std::string &at);
  void collective(const CollectiveStep &c, const std::string &at);
  void childBlock(int32_t child, int32_t parent, int depth, const std::string &at);
  void hostCall(const std::string &name, const std::vector<int32_t> &inputs,
                const std::vector<int32_t> &outputs, const std::string &at);
};

void Verifier::symbols() {
  std::set<std::string> seen;
  for (const Symbol &s : p.symbols) {
    std::string at = "symbol '" + s.name + "'";
    uniqueNames(seen, s.name, at);
    bool isValue = s.origin == SymbolOrigin::Bound || s.origin == SymbolOrigin::Derived;
    check((s.min >= 0 || isValue) && s.min <= s.max, "bounds of a symbol are empty", at);
    check((s.opt >= 0 || isValue) && s.multipleOf >= 1,
          "opt or multiple of a symbol is out of range", at);
    if (s.origin == SymbolOrigin::Derived)
      if (Result<ExprProgram> program = ExprProgram::compile(s.value, names); !program)
        check(false, program.status().message(), at);
    names.push_back(s.name);
    if (s.origin == SymbolOrigin::InputDim) {
      if (check(inRange(s.index, p.inputs), "input number out of range", at) &&
          check(inRange(s.axis, p.inputs[s.index].dims), "axis out of range", at))
        check(p.inputs[s.index].dims[s.axis] == DimExpr::symbol(s.name),
              "the input dimension of a symbol is not the symbol", at);
    } else if (s.origin == SymbolOrigin::StateLength) {
      if (check(inRange(s.index, p.states), "state number out of range", at))
        check(p.states[s.index].lengthSymbol == s.name, "the state has another length", at);
    }
  }
}

void Verifier::strings() {
  std::set<std::string> seen;
  for (const std::string &text : p.strings)
    check(seen.insert(text).second, "the string '" + text + "' appears twice", "strings");
  auto isStrings = [](const Port &port) { return port.dtype == DType::String; };
  check(!p.strings.empty() || !(std::any_of(p.inputs.begin(), p.inputs.end(), isStrings) ||
                                std::any_of(p.outputs.begin(), p.outputs.end(), isStrings)),
        "strings without a list of constants", "strings");
  check(p.strings.empty() || p.strings.front().empty(), "the first string is not empty", "strings");
}

void Verifier::ports() {
  std::set<std::string> inputNames, outputNames;
  for (size_t i = 0; i < p.inputs.size() && status.ok(); ++i) {
    const Port &v = p.inputs[i];
    std::string at = "input '" + v.name + "'";
    uniqueNames(inputNames, v.name, at);
    storable(storedAs(v.dtype), at);
    sizes(v.dims, at);
    check(v.donatedTo == -1 || v.dtype != DType::String, "strings cannot be donated", at);
    check(v.donatedTo == -1 || inRange(v.donatedTo, p.outputs), "output number out of range", at);
    if (v.buffer == -1)
      continue; // unused by the program; still checked against dims
    if (check(inRange(v.buffer, p.buffers), "buffer number out of range", at)) {
      const Buffer &b = p.buffers[v.buffer];
      check(b.kind == BufferKind::Input && b.index == static_cast<int32_t>(i),
            "an input needs its own Input buffer", at);
      check(b.dtype == storedAs(v.dtype) && b.dims == v.dims, "port and buffer differ in type", at);
    }
  }
  for (size_t i = 0; i < p.outputs.size() && status.ok(); ++i) {
    const Port &v = p.outputs[i];
    std::string at = "output '" + v.name + "'";
    uniqueNames(outputNames, v.name, at);
    storable(storedAs(v.dtype), at);
    sizes(v.dims, at);
    check(v.donatedTo == -1, "an output cannot be donated", at);
    if (check(inRange(v.buffer, p.buffers), "buffer number out of range", at)) {
      const Buffer &b = p.buffers[v.buffer];
      check(b.kind != BufferKind::Output || b.index == static_cast<int32_t>(i),
            "the Output buffer belongs to another output", at);
      check(b.dtype == storedAs(v.dtype) && b.dims == v.dims, "port and buffer differ in type", at);
    }
  }
}

void Verifier::storage() {
  for (const Arena &a : p.arenas) {
    formula(a.bytes, names, "arena");
    check(a.device >= 0 && a.device < p.resources.devices, "an arena of no device", "arena");
  }
  for (const Weight &w : p.weights) {
    std::string at = "weight '" + w.name + "'";
    storable(w.dtype, at);
    uint64_t end;
    check(w.offset % 64 == 0 && !__builtin_add_overflow(w.offset, w.bytes, &end) &&
              end <= static_cast<uint64_t>(INT64_MAX),
          "offset or length of a weight is out of range", at);
    check(w.dims.size() <= kMaxRank, "rank is too high", at);
    int64_t count = 1;
    for (int64_t d : w.dims)
      check(d >= 0 && !__builtin_mul_overflow(count, d, &count), "size out of range", at);
    if (!status.ok())
      return;
    check(count <= INT64_MAX / 16 && byteSize(w.dtype, count) == static_cast<int64_t>(w.bytes),
          "sizes and length of a weight disagree", at);
    check(w.sha256.empty() || w.sha256.size() == 64, "malformed digest", at);
    check((w.section == kRandomSection) == !w.random.empty(), "no parts, or bytes beside them", at);
    check(w.random.empty() || isRandomType(w.dtype), "elements that cannot be random", at);
    check(w.shards == 0 || w.shards == p.ranks,
          "a weight has another number of shards than the mesh has ranks", at);
    for (const RandomPart &part : w.random) {
      uint64_t last;
      check(part.rows > 0 && part.columns > 0 &&
                !__builtin_mul_overflow(part.rows - 1, part.pitch, &last) &&
                !__builtin_add_overflow(last, part.first, &last) &&
                !__builtin_add_overflow(last, part.columns, &last) &&
                last <= static_cast<uint64_t>(count),
            "a random part leaves the weight", at);
      check(w.shards ? part.rank >= 0 && part.rank < w.shards
                     : part.rank == -1 && part.from == 0 && part.fromPitch == 0,
            "a random part is of a rank that the weight has no shard for", at);
    }
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < p.states.size() && status.ok(); ++i) {
    const State &s = p.states[i];
    std::string at = "state '" + s.name + "'";
    uniqueNames(seen, s.name, at);
    storable(s.dtype, at);
    sizes(s.physical, at);
    formula(s.capacity, names, at);
    if (s.axis == -1) {
      check(s.lengthSymbol.empty(), "a state without axis has a length", at);
      if (s.initial != -1 && check(inRange(s.initial, p.weights), "weight number out of range", at)) {
        const Weight &w = p.weights[s.initial];
        check(w.random.empty() && !w.shards, "its first value is not in the file", at);
        check(w.dtype == s.dtype && std::equal(w.dims.begin(), w.dims.end(), s.physical.begin(), s.physical.end(),
                                               [](int64_t a, const DimExpr &b) { return b == DimExpr(a); }),
              "its first value is of another type", at);
      }
      continue;
    }
    check(s.initial == -1, "a state that grows has a first value", at);
    if (check(inRange(s.axis, s.physical), "axis out of range", at))
      check(s.physical[s.axis] == s.capacity, "capacity is not the size of the axis", at);
    bool found = false;
    for (const Symbol &symbol : p.symbols)
      found |= symbol.name == s.lengthSymbol && symbol.origin == SymbolOrigin::StateLength;
    check(found, "the length of a state is no symbol of a state", at);
  }
}

void Verifier::buffers() {
  for (size_t i = 0; i < p.buffers.size() && status.ok(); ++i) {
    const Buffer &b = p.buffers[i];
    std::string at = "buffer " + std::to_string(i) + " '" + b.name + "'";
    storable(b.dtype, at);
    check(b.dims.size() == b.physical.size(), "logical and physical rank differ", at);
    sizes(b.dims, at);
    sizes(b.physical, at);
    formula(b.bytes, names, at);
    formula(b.offset, names, at);
    // What every allocation of the device has.
    if (!check(powerOfTwo(b.alignment) && b.alignment <= (p.cuda ? 256 : 4096),
               "alignment out of range", at))
      return;
    if (std::optional<int64_t> offset = b.offset.constant())
      check(*offset % b.alignment == 0, "offset is not aligned", at);
    bool ok = false;
    switch (b.kind) {
    case BufferKind::Arena:
    case BufferKind::Workspace:
    case BufferKind::Host:
      ok = inRange(b.index, p.arenas);
      if (ok) {
        check(p.arenas[b.index].onHost == (b.kind == BufferKind::Host) &&
                  b.onHost == p.arenas[b.index].onHost,
              "buffer and arena are in different memories", at);
        continue;
      }
      break;
    case BufferKind::Input:
      ok = inRange(b.index, p.inputs) && p.inputs[b.index].buffer == static_cast<int32_t>(i);
      break;
    case BufferKind::Output:
      ok = inRange(b.index, p.outputs) && p.outputs[b.index].buffer == static_cast<int32_t>(i);
      break;
    case BufferKind::Weight:
      ok = inRange(b.index, p.weights);
      if (ok)
        check(p.weights[b.index].offset % static_cast<uint64_t>(b.alignment) == 0,
              "the weight is not aligned", at);
      break;
    case BufferKind::State:
      ok = inRange(b.index, p.states);
      check(!b.onHost, "a state is in host memory", at);
      break;
    case BufferKind::View:
      ok = b.index >= 0 && b.index < static_cast<int32_t>(i);
      if (ok)
        check(p.buffers[b.index].onHost == b.onHost, "a view is in another memory", at);
      break;
    }
    check(ok, "a buffer names storage that does not exist", at);
    check(b.kind == BufferKind::View || b.offset == DimExpr(0), "an offset without base", at);
  }
}

void Verifier::tensorMap(const Kernel &k, const TensorMap &m, const std::string &at) {
  check(m.buffer >= 0 && m.buffer < k.numBuffers, "tensor map of no buffer", at);
  size_t rank = m.dims.size();
  check(rank >= 1 && rank <= 5 && m.strides.size() + 1 == rank, "tensor map rank", at);
  check(m.box.size() == (m.im2col ? 2 : rank), "tensor map box", at);
  for (int64_t edge : m.box)
    check(edge >= 1 && edge <= (m.im2col ? 1024 : 256), "tensor map box", at);
  size_t corners = m.im2col && rank >= 3 ? rank - 2 : 0;
  check(!m.im2col || rank >= 3, "im2col needs rank 3 to 5", at);
  check(m.lowerCorner.size() == corners && m.upperCorner.size() == corners,
        "tensor map corners", at);
  for (const std::vector<int64_t> *corner : {&m.lowerCorner, &m.upperCorner})
    for (int64_t c : *corner)
      check(c >= INT16_MIN && c <= INT16_MAX, "tensor map corners", at);
  check(m.steps.empty() || m.steps.size() == rank, "tensor map steps", at);
  for (int64_t step : m.steps)
    check(step >= 1 && step <= 8, "tensor map steps", at);
  check(m.elementBytes == 0 || m.elementBytes == 8, "tensor map elements", at);
  check(m.swizzleBytes == 0 || m.swizzleBytes == 32 || m.swizzleBytes == 64 ||
            m.swizzleBytes == 128,
        "tensor map swizzle", at);
  for (const DimExpr &d : m.dims)
    formula(d, k.symbols, at);
  for (const DimExpr &d : m.strides)
    formula(d, k.symbols, at);
}

void Verifier::launch(const Kernel &k, const KernelVariant &v, const Launch &l,
                      const std::string &at) {
  check(!l.function.empty(), "a launch without function", at);
  int64_t threads = 1, cluster = 1;
  for (int i = 0; i < 3; ++i) {
    formula(l.grid[i], k.symbols, at);
    check(l.block[i] >= 1 && l.block[i] <= 1024 && l.cluster[i] >= 1 && l.cluster[i] <= 16,
          "block or cluster size out of range", at);
    if (!status.ok())
      return;
    threads *= l.block[i];
    cluster *= l.cluster[i];
  }
  check(threads <= 1024 && cluster <= 16, "block or cluster size out of range", at);
  formula(l.sharedBytes, k.symbols, at);
  for (const KernelArg &a : l.args) {
    int64_t count = a.kind == KernelArg::Kind::Buffer      ? k.numBuffers
                    : a.kind == KernelArg::Kind::TensorMap ? int64_t(v.tensorMaps.size())
                    : a.kind == KernelArg::Kind::Symbol    ? int64_t(k.symbols.size())
                                                           : 1;
    check(a.index >= 0 && a.index < count, "a kernel argument names nothing", at);
  }
}

void Verifier::kernel(const Kernel &k) {
  std::string at = "kernel '" + k.name + "'";
  std::set<std::string> seen;
  for (const std::string &s : k.symbols)
    uniqueNames(seen, s, at);
  check(k.numBuffers >= 0 && k.writes.size() == static_cast<size_t>(k.numBuffers),
        "number of buffers is inconsistent", at);
  check(k.aliases.empty() || k.aliases.size() == k.writes.size(), "number of aliases is inconsistent", at);
  for (size_t i = 0; i < k.aliases.size() && status.ok(); ++i)
    check(k.aliases[i] == -1 || (inRange(k.aliases[i], k.writes) && k.writes[i] &&
                                 !k.writes[k.aliases[i]]),
          "only what is written may share memory, with what is read", at);
  if (!check(!k.variants.empty() && k.variants.back().guard.empty(),
             "the last variant must have no guard", at))
    return;
  formula(k.flops, k.symbols, at);
  formula(k.bytes, k.symbols, at);
  for (const KernelVariant &v : k.variants) {
    for (const Condition &c : v.guard)
      condition(c, k.symbols, at);
    for (const TensorMap &m : v.tensorMaps)
      tensorMap(k, m, at);
    check(!v.launches.empty(), "a variant launches nothing", at);
    for (const Launch &l : v.launches)
      launch(k, v, l, at);
    formula(v.workspaceBytes, k.symbols, at);
    formula(v.scratchBytes, k.symbols, at);
    check(v.workspaceBytes == DimExpr(0) || k.numBuffers > 0, "workspace without buffer", at);
    check(p.cuda || v.tensorMaps.empty(), "tensor maps on a CPU", at);
  }
}

void Verifier::hostCall(const std::string &name, const std::vector<int32_t> &inputs,
                        const std::vector<int32_t> &outputs, const std::string &at) {
  check(!name.empty(), "a call without name", at);
  for (const std::vector<int32_t> *list : {&inputs, &outputs})
    for (int32_t b : *list)
      check(inRange(b, p.buffers), "buffer number out of range", at);
  for (int32_t b : outputs)
    if (status.ok())
      writable(b, at);
}

void Verifier::collective(const CollectiveStep &c, const std::string &at) {
  const bool gathers = c.name == "all_gather", scatters = c.name == "reduce_scatter";
  if (!check(gathers || scatters || c.name == "all_reduce", "an unknown collective", at) ||
      !check(c.inputs.size() == 1 && c.outputs.size() == 1 && inRange(c.inputs[0], p.buffers) &&
                 inRange(c.outputs[0], p.buffers),
             "a collective has one buffer as input and one as output", at))
    return;
  const Buffer &in = p.buffers[c.inputs[0]], &out = p.buffers[c.outputs[0]];
  writable(c.outputs[0], at);
  check(in.dtype == out.dtype && bitWidth(in.dtype) % 8 == 0, "element types of a collective", at);
  check(in.dims.size() == out.dims.size(), "a collective keeps the number of dimensions", at);
  if ((gathers || scatters) && status.ok())
    check(c.dim >= 0 && static_cast<size_t>(c.dim) < in.dims.size(),
          "a collective has no such dimension", at);
  for (size_t d = 0; d < in.dims.size() && status.ok(); ++d) {
    bool along = (gathers || scatters) && d == static_cast<size_t>(c.dim);
    check((scatters && along ? out.dims[d] * DimExpr(p.ranks) : out.dims[d]) ==
              (gathers && along ? in.dims[d] * DimExpr(p.ranks) : in.dims[d]),
          "sizes of a collective do not fit", at);
  }
}

void Verifier::childBlock(int32_t child, int32_t parent, int depth, const std::string &at) {
  if (check(inRange(child, p.blocks) && child > parent, "a block must come after its user", at) &&
      check(++blockUses[child] == 1, "a block is used twice", at))
    block(child, depth + 1);
}

void Verifier::step(const Step &s, int32_t blockIndex, int depth, const std::string &at) {
  if (const auto *o = std::get_if<LaunchStep>(&s.op)) {
    if (!check(inRange(o->kernel, p.kernels), "kernel number out of range", at))
      return;
    const Kernel &k = p.kernels[o->kernel];
    check(o->buffers.size() == static_cast<size_t>(k.numBuffers) &&
              o->symbols.size() == k.symbols.size(),
          "a launch of kernel '" + k.name + "' has the wrong number of arguments", at);
    for (size_t i = 0; i < o->buffers.size() && status.ok(); ++i) {
      if (!check(inRange(o->buffers[i], p.buffers), "buffer number out of range", at))
        return;
      check(!p.cuda || !p.buffers[o->buffers[i]].onHost, "a kernel uses host memory", at);
      if (k.writes[i])
        writable(o->buffers[i], at);
    }
    for (const DimExpr &e : o->symbols)
      formula(e, names, at);
  } else if (const auto *o = std::get_if<HostOpStep>(&s.op)) {
    hostCall(o->name, o->inputs, o->outputs, at);
  } else if (const auto *o = std::get_if<CustomCallStep>(&s.op)) {
    hostCall(o->name, o->inputs, o->outputs, at);
  } else if (const auto *o = std::get_if<CopyStep>(&s.op)) {
    if (check(inRange(o->source, p.buffers) && inRange(o->target, p.buffers),
              "buffer number out of range", at))
      writable(o->target, at);
  } else if (const auto *o = std::get_if<BindStep>(&s.op)) {
    if (o->buffer == -1)
      formula(o->value, names, at);
    else
      hostScalar(o->buffer, {DType::I64, DType::I32, DType::Bool}, at);
    check(inRange(o->symbol, p.symbols) && p.symbols[o->symbol].origin == SymbolOrigin::Bound &&
              o->element >= 0,
          "a bind step needs a Bound symbol", at);
  } else if (const auto *o = std::get_if<GuardStep>(&s.op)) {
    condition(o->guard.condition, names, at);
  } else if (const auto *o = std::get_if<AdvanceStateStep>(&s.op)) {
    if (check(inRange(o->state, p.states) && blockIndex == 0, "cannot advance this state", at))
      check(p.states[o->state].axis >= 0, "a state without axis cannot advance", at);
    formula(o->by, names, at);
  } else if (const auto *o = std::get_if<TapStep>(&s.op)) {
    check(inRange(o->buffer, p.buffers), "buffer number out of range", at);
  } else if (const auto *o = std::get_if<IfStep>(&s.op)) {
    hostScalar(o->condition, {DType::Bool}, at);
    for (int32_t child : {o->thenBlock, o->elseBlock})
      if (child != -1 && status.ok())
        childBlock(child, blockIndex, depth, at);
  } else if (const auto *o = std::get_if<CollectiveStep>(&s.op)) {
    check(!o->name.empty() && blockIndex == 0, "a collective has a name and its place is the program",
          at);
    check(o->order > lastCollective, "collectives are out of order", at);
    lastCollective = o->order;
    collective(*o, at);
  } else if (const auto *o = std::get_if<LoopStep>(&s.op)) {
    check(o->tripCount != -1 || o->condition != -1, "a loop without end", at);
    if (o->tripCount != -1)
      hostScalar(o->tripCount, {DType::I64}, at);
    if (o->condition != -1)
      hostScalar(o->condition, {DType::Bool}, at);
    check(o->iteration == -1 || (inRange(o->iteration, p.symbols) &&
                                 p.symbols[o->iteration].origin == SymbolOrigin::Iteration),
          "a loop needs an Iteration symbol", at);
    if (status.ok())
      childBlock(o->body, blockIndex, depth, at);
  }
}

void Verifier::block(int32_t index, int depth) {
  if (!check(depth <= kMaxBlockDepth, "blocks nest too deep", "block " + std::to_string(index)))
    return;
  for (size_t i = 0; i < p.blocks[index].size() && status.ok(); ++i)
    step(p.blocks[index][i], index, depth,
         "block " + std::to_string(index) + " step " + std::to_string(i));
}

Status Verifier::run() {
  check(!p.entry.empty(), "the entry has no name", "plan");
  check(!p.target.empty(), "the plan has no target", "plan");
  check(p.ranks >= 1 && p.ranks <= kMaxRanks, "number of ranks out of range", "plan");
  symbols();
  strings();
  ports();
  storage();
  if (status.ok())
    buffers();
  for (const Guard &g : p.guards)
    condition(g.condition, names, "guard '" + g.message + "'");
  for (const Kernel &k : p.kernels)
    if (status.ok())
      kernel(k);
  if (!status.ok() || !check(!p.blocks.empty(), "the plan has no program", "plan"))
    return status;
  blockUses.assign(p.blocks.size(), 0);
  block(0, 0);
  for (size_t i = 1; i < p.blocks.size(); ++i)
    check(blockUses[i] == 1, "a block is not used", "block " + std::to_string(i));
  return status.ok() ? checkStreams(p, where) : status;
}

} // namespace

Status verify(const Plan &plan, const std::string &where) { return Verifier(plan, where).run(); }

std::vector<int64_t> optimalSizes(const Plan &plan) {
  std::vector<int64_t> sizes;
  for (const Symbol &s : plan.symbols)
    sizes.push_back(s.origin == SymbolOrigin::Constant ? s.min : s.opt);
  return sizes;
}

} // namespace lathe::engine
