//===- PlanRead.cpp - engine::Plan from untrusted bytes ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three gates: the FlatBuffers verifier (structure), this file (numbers that are
// indices into the formulas, enum values, formula texts that are exactly what
// DimExpr prints), and PlanVerify.cpp (meaning). Nothing is used before its gate.
//
//===----------------------------------------------------------------------===//

#include "lathe/engine/Plan.h"
#include "lathe/engine/plan_generated.h"

#include <cctype>
#include <cstring>

namespace lathe::engine {
namespace {

constexpr size_t kMaxFormulaChars = 1 << 18; // a product of four sizes that a reshape computes in the run takes 21,000
constexpr int kMaxFormulaNesting = 24;

/// Canonical text has parentheses only after a function name, so that parsing never
/// multiplies sums out: a hostile formula costs no more than its length.
bool looksCanonical(std::string_view text) {
  if (text.empty() || text.size() > kMaxFormulaChars)
    return false;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' && (i == 0 || !std::isalpha(static_cast<unsigned char>(text[i - 1])) ||
                           ++depth > kMaxFormulaNesting))
      return false;
    if (text[i] == ')' && --depth < 0)
      return false;
  }
  return depth == 0;
}

class Reader {
public:
  explicit Reader(const std::string &where) : where(where) {}
  Result<Plan> read(const fb::Plan &source);

private:
  std::string where;
  std::vector<DimExpr> formulas;
  Status status;

  void fail(const std::string &message) {
    if (status.ok())
      status = invalidError(message, where);
  }
  DimExpr formula(uint32_t id) {
    if (id < formulas.size())
      return formulas[id];
    fail("a formula number is out of range");
    return {};
  }
  template <typename E> E enumeration(uint8_t value, E last, const char *what) {
    if (value > static_cast<uint8_t>(last)) {
      fail(std::string("unknown ") + what + " " + std::to_string(value));
      return last;
    }
    return static_cast<E>(value);
  }
  DType dtype(uint8_t value) { return enumeration(value, DType::String, "element type"); }

  static std::string text(const flatbuffers::String *s) { return s->str(); }
  static std::vector<std::string>
  texts(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>> *v) {
    std::vector<std::string> out;
    for (const auto *s : *v)
      out.push_back(s->str());
    return out;
  }
  std::vector<DimExpr> list(const flatbuffers::Vector<uint32_t> *v) {
    std::vector<DimExpr> out;
    out.reserve(v->size());
    for (uint32_t id : *v)
      out.push_back(formula(id));
    return out;
  }
  /// By memcpy: the verifier does not check the alignment of vector elements.
  template <typename T> static std::vector<T> numbers(const flatbuffers::Vector<T> *v) {
    std::vector<T> out(v->size());
    if (!out.empty())
      std::memcpy(out.data(), v->Data(), out.size() * sizeof(T));
    return out;
  }
  template <typename Out, typename Vec, typename F> std::vector<Out> tables(const Vec *v, F make) {
    std::vector<Out> out;
    for (const auto *item : *v)
      out.push_back(make(*item));
    return out;
  }

  /// By memcpy, as numbers are.
  static std::vector<RandomPart> randomParts(const fb::Weight &w) {
    std::vector<RandomPart> out;
    for (size_t i = 0; w.random() && i < w.random()->size(); ++i) {
      fb::RandomPart p;
      std::memcpy(&p, w.random()->Data() + i * sizeof(p), sizeof(p));
      out.push_back({{p.stream(), p.center(), p.reach()}, p.rows(), p.columns(), p.first(),
                     p.pitch()});
      if (w.random_slices() && i < w.random_slices()->size()) {
        fb::RandomSlice s;
        std::memcpy(&s, w.random_slices()->Data() + i * sizeof(s), sizeof(s));
        out.back().from = s.from();
        out.back().fromPitch = s.from_pitch();
        out.back().rank = s.rank();
      }
    }
    return out;
  }

  Condition condition(const fb::Condition &c) {
    return {enumeration(c.kind(), Condition::Kind::Divisible, "condition"), formula(c.lhs()),
            formula(c.rhs())};
  }
  Guard guard(const fb::Guard &g) {
    return {condition(*g.condition()), text(g.message()), text(g.location())};
  }
  Port port(const fb::Port &p) {
    return {text(p.name()), dtype(p.dtype()), list(p.dims()), p.buffer(), p.donated_to()};
  }
  TensorMap tensorMap(const fb::TensorMap &m) {
    return {m.buffer(),        list(m.dims()),        list(m.strides()),
            numbers(m.box()),  m.swizzle_bytes(),     m.im2col(),
            numbers(m.lower_corner()), numbers(m.upper_corner()),
            m.steps() ? numbers(m.steps()) : std::vector<int64_t>{}, m.element_bytes()};
  }
  Launch launch(const fb::Launch &l);
  KernelVariant variant(const fb::KernelVariant &v);
  std::vector<Attribute> attributes(
      const flatbuffers::Vector<flatbuffers::Offset<fb::Attribute>> *list) {
    return tables<Attribute>(list, [&](const fb::Attribute &a) {
      return Attribute{text(a.name()), numbers(a.ints()), numbers(a.floats()), text(a.text())};
    });
  }
  Step step(const fb::Step &s);
};

Launch Reader::launch(const fb::Launch &l) {
  Launch out;
  out.function = text(l.function());
  if (l.grid()->size() != 3 || l.block()->size() != 3 || l.cluster()->size() != 3) {
    fail("a launch needs three grid, block and cluster sizes");
    return out;
  }
  std::vector<int64_t> block = numbers(l.block()), cluster = numbers(l.cluster());
  for (unsigned i = 0; i < 3; ++i) {
    out.grid[i] = formula(l.grid()->Get(i));
    out.block[i] = block[i];
    out.cluster[i] = cluster[i];
  }
  out.sharedBytes = formula(l.shared_bytes());
  out.programmaticDependent = l.programmatic_dependent();
  for (const fb::KernelArg *a : *l.args())
    out.args.push_back(
        {enumeration(a->kind(), KernelArg::Kind::Status, "kernel argument"), a->index()});
  return out;
}

KernelVariant Reader::variant(const fb::KernelVariant &v) {
  KernelVariant out;
  for (const fb::Condition *c : *v.guard())
    out.guard.push_back(condition(*c));
  out.config = text(v.config());
  out.image = text(v.image());
  out.tensorMaps =
      tables<TensorMap>(v.tensor_maps(), [&](const fb::TensorMap &m) { return tensorMap(m); });
  out.launches = tables<Launch>(v.launches(), [&](const fb::Launch &l) { return launch(l); });
  out.workspaceBytes = formula(v.workspace_bytes());
  out.scratchBytes = formula(v.scratch_bytes());
  out.status = v.status();
  return out;
}

Step Reader::step(const fb::Step &s) {
  Step out;
  out.nodes = texts(s.nodes());
  switch (s.op_type()) {
  case fb::StepOp::LaunchStep: {
    const auto *o = s.op_as_LaunchStep();
    out.op = LaunchStep{o->kernel(), numbers(o->buffers()), list(o->symbols())};
    break;
  }
  case fb::StepOp::HostOpStep: {
    const auto *o = s.op_as_HostOpStep();
    out.op = HostOpStep{text(o->name()), attributes(o->attributes()), numbers(o->inputs()),
                        numbers(o->outputs())};
    break;
  }
  case fb::StepOp::CopyStep: {
    const auto *o = s.op_as_CopyStep();
    out.op = CopyStep{o->source(), o->target()};
    break;
  }
  case fb::StepOp::BindStep: {
    const auto *o = s.op_as_BindStep();
    out.op = BindStep{o->symbol(), o->buffer(), o->element(), formula(o->value())};
    break;
  }
  case fb::StepOp::GuardStep:
    out.op = GuardStep{guard(*s.op_as_GuardStep()->guard())};
    break;
  case fb::StepOp::AdvanceStateStep: {
    const auto *o = s.op_as_AdvanceStateStep();
    out.op = AdvanceStateStep{o->state(), formula(o->by())};
    break;
  }
  case fb::StepOp::TapStep: {
    const auto *o = s.op_as_TapStep();
    out.op = TapStep{o->buffer(), text(o->name())};
    break;
  }
  case fb::StepOp::CustomCallStep: {
    const auto *o = s.op_as_CustomCallStep();
    out.op = CustomCallStep{text(o->name()), attributes(o->attributes()), numbers(o->inputs()),
                            numbers(o->outputs())};
    break;
  }
  case fb::StepOp::IfStep: {
    const auto *o = s.op_as_IfStep();
    out.op = IfStep{o->condition(), o->then_block(), o->else_block()};
    break;
  }
  case fb::StepOp::LoopStep: {
    const auto *o = s.op_as_LoopStep();
    out.op = LoopStep{o->trip_count(), o->condition(), o->iteration(), o->body()};
    break;
  }
  case fb::StepOp::CollectiveStep: {
    const auto *o = s.op_as_CollectiveStep();
    out.op = CollectiveStep{text(o->name()), o->order(), numbers(o->inputs()),
                            numbers(o->outputs()),
                            enumeration(o->reduction(), Reduction::Min, "reduction"), o->dim()};
    break;
  }
  default:
    fail("unknown kind of step");
  }
  out.stream = s.stream();
  if (s.waits())
    out.waits = numbers(s.waits());
  out.signal = s.signal();
  return out;
}

Result<Plan> Reader::read(const fb::Plan &p) {
  for (const auto *s : *p.formulas()) {
    std::string_view source = s->string_view();
    std::string at = where + ": formula '" + std::string(source.substr(0, 80)) + "'";
    if (!looksCanonical(source))
      return invalidError("malformed formula", at);
    Result<DimExpr> e = DimExpr::parse(source);
    if (!e)
      return invalidError(e.status().message(), at);
    if (e->str() != source)
      return invalidError("formula is not in canonical form", at);
    formulas.push_back(*e);
  }
  Plan out;
  out.entry = text(p.entry());
  out.target = text(p.target());
  out.cuda = p.cuda();
  out.cpuFeatures = texts(p.cpu_features());
  out.resources.devices = p.devices();
  out.resources.streams = numbers(p.streams());
  out.resources.events = p.events();
  out.ranks = p.ranks();
  if (p.strings())
    out.strings = texts(p.strings());
  out.symbols = tables<Symbol>(p.symbols(), [&](const fb::Symbol &s) {
    auto origin = enumeration(s.origin(), SymbolOrigin::Derived, "symbol origin");
    return Symbol{text(s.name()), s.min(),   s.max(),  s.opt(),
                  s.multiple_of(), origin, s.index(), s.axis(),
                  origin == SymbolOrigin::Derived ? formula(s.value()) : DimExpr()};
  });
  out.inputs = tables<Port>(p.inputs(), [&](const fb::Port &v) { return port(v); });
  out.outputs = tables<Port>(p.outputs(), [&](const fb::Port &v) { return port(v); });
  out.guards = tables<Guard>(p.guards(), [&](const fb::Guard &g) { return guard(g); });
  out.arenas = tables<Arena>(p.arenas(), [&](const fb::Arena &a) {
    return Arena{formula(a.bytes()), a.on_host(), a.device()};
  });
  out.buffers = tables<Buffer>(p.buffers(), [&](const fb::Buffer &v) {
    return Buffer{text(v.name()),
                  enumeration(v.kind(), BufferKind::View, "kind of buffer"),
                  v.index(),
                  dtype(v.dtype()),
                  list(v.dims()),
                  list(v.physical()),
                  formula(v.bytes()),
                  formula(v.offset()),
                  v.alignment(),
                  v.on_host()};
  });
  out.weights = tables<Weight>(p.weights(), [&](const fb::Weight &w) {
    return Weight{text(w.name()),     text(w.section()),   w.offset(),
                  w.bytes(),          dtype(w.dtype()),    numbers(w.dims()),
                  text(w.sha256()),   text(w.packing()),   randomParts(w), w.shards()};
  });
  out.states = tables<State>(p.states(), [&](const fb::State &s) {
    return State{text(s.name()), dtype(s.dtype()),        list(s.physical()),
                 s.axis(),       text(s.length_symbol()), formula(s.capacity()),
                 s.zero_init(),  s.initial()};
  });
  out.kernels = tables<Kernel>(p.kernels(), [&](const fb::Kernel &k) {
    Kernel kernel;
    kernel.name = text(k.name());
    kernel.symbols = texts(k.symbols());
    kernel.numBuffers = k.num_buffers();
    for (uint8_t w : *k.writes())
      kernel.writes.push_back(w != 0);
    if (k.aliases())
      kernel.aliases.assign(k.aliases()->begin(), k.aliases()->end());
    kernel.variants = tables<KernelVariant>(
        k.variants(), [&](const fb::KernelVariant &v) { return variant(v); });
    kernel.flops = formula(k.flops());
    kernel.bytes = formula(k.bytes());
    return kernel;
  });
  out.blocks = tables<Block>(p.blocks(), [&](const fb::Block &v) {
    return tables<Step>(v.steps(), [&](const fb::Step &s) { return step(s); });
  });
  LATHE_RETURN_IF_ERROR(status);
  return out;
}

} // namespace

Result<Plan> parse(std::string_view bytes, const std::string &where) {
  // The verifier and the accessors need the alignment of 8 that a section has.
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  if (!bytes.empty())
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
  const auto *data = reinterpret_cast<const uint8_t *>(aligned.data());
  constexpr flatbuffers::uoffset_t kMaxDepth = 32, kMaxTables = 4'000'000;
  if (bytes.size() < 8 || bytes.size() > FLATBUFFERS_MAX_BUFFER_SIZE - 8)
    return invalidError("a plan of this size cannot be", where);
  flatbuffers::Verifier verifier(data, bytes.size(), kMaxDepth, kMaxTables);
  if (!fb::VerifyPlanBuffer(verifier))
    return invalidError("the plan is damaged", where);
  Result<Plan> plan = Reader(where).read(*fb::GetPlan(data));
  if (!plan)
    return plan;
  LATHE_RETURN_IF_ERROR(verify(*plan, where));
  return plan;
}

} // namespace lathe::engine
