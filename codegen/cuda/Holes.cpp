//===- Holes.cpp - evaluating and printing holes -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   matmul, add %bias      =>   LATHE_METHOD void write(i64 b, i64 m, i64 n, Vec<f32, 8> acc) const
//   { (epilogue)                    const Vec<bf16, 8> v0 = loadVec<bf16, 8>(in2 + ...);
//                                 ...
//                                 storeVec(out0 + ..., ...);
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

#include "lathe/codegen/DeviceLibrary.h"

#include "mlir/IR/Dominance.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

using namespace mlir;

namespace lathe::codegen {

Holes::Holes(const KernelSource &kernel, const KernelConfig &config)
    : kernel(kernel), config(config), args(ArgumentNames::of(kernel)),
      module(ModuleOp::create(kernel.body->getTerminator()->getLoc())) {
  // A kernel that starts while the one before still writes must not read through the cache of
  // constants, which may hold what lay there before.
  if (programmatic())
    args.shareAll();
}

bool Holes::programmatic() const { return kernel.spec->launches.back().programmaticDependent; }

bool Holes::halfResults(const KernelSource &kernel) {
  bool any = false;
  for (int i = 0; i < kernel.spec->numOutputs; ++i) {
    DType t = kernel.spec->buffers[kernel.spec->numInputs + i].dtype;
    if (t == DType::F32 || t == DType::F64)
      return false;
    any |= t == DType::F16 || t == DType::BF16;
  }
  return any;
}

std::string Holes::typeText(Type storage) {
  std::string none;
  llvm::raw_string_ostream os(none);
  return Printer(os, {}).type(storage, UnknownLoc::get(storage.getContext()));
}

std::string Holes::dim(const DimExpr &e) const {
  const std::vector<std::string> &symbols = kernel.spec->symbols;
  return dimText(e, [&](const std::string &name) -> std::string {
    auto it = llvm::find(symbols, name);
    return it == symbols.end() ? name
                               : args.names[kernel.spec->buffers.size() + (it - symbols.begin())];
  });
}

static Type storageOf(const KernelSource &kernel, size_t i) {
  const KernelSpec &spec = *kernel.spec;
  size_t inputs = spec.numInputs, named = inputs + spec.numOutputs;
  Operation *yield = kernel.body->getTerminator();
  Type element = i < inputs  ? elementTypeOf(kernel.body->getArgument(i))
                 : i < named ? elementTypeOf(yield->getOperand(i - inputs))
                             : typeOf(yield->getContext(), spec.buffers[i].dtype);
  return Evaluator::storageType(element);
}

void Holes::method(StringRef name, ArrayRef<std::string> params, Type result, int64_t lanes,
                   Body body, Type accumulator, Type before) {
  if (failed)
    return;
  const KernelSpec &spec = *kernel.spec;
  OpBuilder b(module->getContext());
  Location loc = module->getLoc();
  SmallVector<Type> types;
  for (size_t i = 0; i < spec.buffers.size(); ++i)
    types.push_back(MemRefType::get({ShapedType::kDynamic}, storageOf(kernel, i)));
  types.append(spec.symbols.size() + params.size(), b.getIndexType());
  auto lanesOf = [&](Type type) { return lanes > 1 ? Type(VectorType::get({lanes}, type)) : type; };
  if (accumulator)
    types.back() = lanesOf(accumulator);
  if (before)
    types[types.size() - 2] = lanesOf(before);
  SmallVector<Type> results;
  if (result)
    results.push_back(result);
  b.setInsertionPointToEnd(module->getBody());
  auto fn = func::FuncOp::create(b, loc, name, b.getFunctionType(types, results));
  b.setInsertionPointToStart(fn.addEntryBlock());
  auto end = func::ReturnOp::create(b, loc);
  b.setInsertionPoint(end);

  Evaluator e(b, fn, kernel, lanes, 1);
  Value value = body(e, fn.getArguments().take_back(params.size()));
  if (e.failed) {
    failed = true;
    return;
  }
  if (result) {
    b.setInsertionPoint(end);
    func::ReturnOp::create(b, loc, value);
    end.erase();
  }
  IRRewriter rewriter(module->getContext());
  DominanceInfo dominance(fn);
  eliminateCommonSubExpressions(rewriter, dominance, fn);
  fn.walk([](LoopLikeOpInterface loop) { moveLoopInvariantCode(loop); });
  if (mlir::failed(verify(fn))) {
    failed = true;
    return;
  }
  Printer::Options options;
  options.fastMath = halfResults(kernel);
  options.step = kernel.stepId;
  llvm::raw_string_ostream os(members);
  failed = mlir::failed(Printer(os, options).method(fn, name, args, params));
}

std::string Holes::arguments(bool types, bool maps) const {
  const KernelSpec &spec = *kernel.spec;
  std::string out;
  for (size_t i = 0; i < args.names.size(); ++i) {
    if (i == spec.buffers.size() && maps)
      out += mapArguments();
    if (types && i < spec.buffers.size())
      out +=
          std::string(i < static_cast<size_t>(spec.numInputs) && !args.shared[i] ? "const " : "") +
          typeText(storageOf(kernel, i)) + (args.shared[i] ? " *" : " *__restrict__ ");
    else if (types)
      out += "i64 ";
    out += args.names[i] + ", ";
  }
  if (args.names.size() == spec.buffers.size() && maps)
    out += mapArguments();
  return out + (types ? "StatusWord *status" : "status");
}

std::string Holes::mapArguments() const {
  std::string out;
  for (size_t i = 0; i < kernel.spec->tensorMaps.size(); ++i)
    out += "const __grid_constant__ TensorMap map" + std::to_string(i) + ", ";
  return out;
}

std::string Holes::function(const LaunchSpec &launch, const std::string &call,
                            int64_t minBlocks) const {
  return "\nextern \"C\" __global__ void __launch_bounds__(" + std::to_string(launch.block[0]) +
         (minBlocks > 0 ? ", " + std::to_string(minBlocks) : "") + ")\n" + launch.function + "(" +
         arguments(true, true) + ") {\n  const Holes h{" + arguments(false, false) + "};\n  " +
         call + "\n}\n";
}

FailureOr<std::string> Holes::text(const Instance &instance) {
  if (failed)
    return failure();
  // Products and convolutions wait where they read what others write, weights before that; decoding
  // lets the next kernel start when it has read its keys.
  const char *wait = programmatic() && !config.form->waitsItself
                         ? "dependentsMayStart();\n  dependenciesWait();\n  "
                         : "";
  // Registers move between warps where one block has a multiprocessor for itself.
  int64_t minBlocks = instance.minBlocks;
  if (!kernel.spec->tensorMaps.empty() && minBlocks == 0)
    minBlocks = 1;
  std::string fields = arguments(true, false);
  for (size_t at = 0; (at = fields.find(", ", at)) != std::string::npos;)
    fields.replace(at, 2, ";\n  ");
  const std::vector<LaunchSpec> &launches = kernel.spec->launches;
  std::string check;
  if (std::optional<int64_t> given = launches.back().sharedBytes.constant();
      given && !instance.tile.empty())
    check = "static_assert(" + instance.tile + "::SHARED_BYTES == " + std::to_string(*given) +
            ", \"shared memory of a block\");\n";
  std::string ahead;
  for (size_t i = 0; i < instance.before.size(); ++i)
    ahead += function(launches[i], instance.before[i], instance.minBlocks);
  return devicePrelude(instance.modules) + "\n// Kernel " + kernel.name.str() + ", configuration " +
         kernel.spec->config + "\nstruct Holes {\n  " + fields + ";\n" + members + "};\n" + check + ahead +
         function(launches.back(), wait + instance.given + instance.call, minBlocks);
}

//===- Epilogues --------------------------------------------------------------===//

/// The values from the anchor's result to the output that only split and permute it, output last: all movements at the
/// end of the way, as far as what they begin with has the anchor's sizes. Sizes alone do not tell where the way begins:
/// a square result has the same on both sides of a transpose, and is made anew for each element if it is taken for the
/// anchor's.
static SmallVector<Value> outputChain(Value output, Value anchor) {
  SmallVector<Value> chain; // output first
  Value from = output;
  while (from != anchor && isa_and_nonnull<ReshapeOp, TransposeOp>(from.getDefiningOp())) {
    chain.push_back(from);
    from = from.getDefiningOp()->getOperand(0);
  }
  while (!chain.empty() && dimsOf(from) != dimsOf(anchor))
    from = chain.pop_back_val();
  std::reverse(chain.begin(), chain.end());
  return chain;
}

/// Where the element at `idx` of the operand goes in the result of a movement op.
static FailureOr<Indices> forward(Evaluator &e, Operation *op, const Indices &idx) {
  Value from = op->getOperand(0), to = op->getResult(0);
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    Indices out;
    for (int64_t d : transpose.getPerm())
      out.push_back(idx[d]);
    return out;
  }
  if (isa<ReshapeOp>(op))
    return reshapeIndex(e, dimsOf(from), dimsOf(to), idx);
  return failure();
}

/// Says what the anchor's result is at `idx`; the evaluator asks with index 0 where a size is 1.
static Indices bindResult(Evaluator &e, Value anchor, const Indices &idx, Value value) {
  Indices at = idx;
  for (auto [d, size] : llvm::enumerate(dimsOf(anchor)))
    if (size == DimExpr(1))
      at[d] = Index(e.ix.cst(0));
  e.bind(anchor, at, value);
  return at;
}

/// Whether a value is another result of the anchor's op.
static bool isBeside(Value v, Value anchor) {
  return v != anchor && v.getDefiningOp() == anchor.getDefiningOp();
}

std::optional<unsigned> Holes::outputOf(const KernelSource &kernel, Value anchor) {
  std::optional<unsigned> found;
  for (auto [n, output] : llvm::enumerate(kernel.body->getTerminator()->getOperands())) {
    if (isBeside(output, anchor))
      continue;
    if (found)
      return std::nullopt;
    found = n;
  }
  return found;
}

void Holes::storeResult(Evaluator &e, Value anchor, const Indices &idx, Value value) {
  Indices at = bindResult(e, anchor, idx, value);
  for (auto [n, output] : llvm::enumerate(e.kernel.body->getTerminator()->getOperands())) {
    if (isBeside(output, anchor))
      continue;
    SmallVector<Value> chain = outputChain(output, anchor);
    Value inside = chain.empty() ? output : chain.front().getDefiningOp()->getOperand(0);
    if (dimsOf(inside) != dimsOf(anchor)) {
      e.fail(anchor.getDefiningOp(), "has an epilogue that does not keep its sizes");
      return;
    }
    Value v = e.eval(inside, at);
    Indices to = at;
    for (Value step : chain) {
      FailureOr<Indices> next = forward(e, step.getDefiningOp(), to);
      if (mlir::failed(next)) {
        e.fail(step.getDefiningOp(), "cannot be the way of a result to its place");
        return;
      }
      to = *next;
    }
    e.store(v, output, e.outputArg(n), to);
  }
}

void Holes::storeColumns(
    Value anchor, int64_t lanes, Type accumulator,
    llvm::function_ref<Indices(Evaluator &, Value, Value, const Index &)> place) {
  method(
      "write", {"b", "m", "piece", "acc"}, Type(), lanes,
      [&](Evaluator &e, ValueRange p) {
        Index column(e.ix.mul(p[2], lanes), lanes > 1 ? 1 : 0);
        storeResult(e, anchor, place(e, p[0], p[1], column), p[3]);
        return Value();
      },
      accumulator);
  std::string sums = lanes > 1 ? "sums" : "sums.v[0]";
  line("LATHE_METHOD void epilogue(i64 b, i64 m, i64 n, const Vec<Acc, kLanes> &sums) const { "
       "write(b, m, n / kLanes, " +
       sums + "); }");
}

Value Holes::valueAt(Evaluator &e, Value anchor, const Indices &idx, Value value, Value wanted) {
  return e.eval(wanted, bindResult(e, anchor, idx, value));
}

Value Holes::resultValue(Evaluator &e, Value anchor, const Indices &idx, Value value, bool stored) {
  Indices at = bindResult(e, anchor, idx, value);
  Value output = e.outputValue(0);
  SmallVector<Value> chain = outputChain(output, anchor);
  Value inside = chain.empty() ? output : chain.front().getDefiningOp()->getOperand(0);
  if (dimsOf(inside) != dimsOf(anchor) ||
      llvm::any_of(chain, [](Value v) { return !isa<ReshapeOp, TransposeOp>(v.getDefiningOp()); }))
    return e.fail(anchor.getDefiningOp(), "has a result that does not lie as its sums do");
  Value v = e.eval(inside, at);
  if (!stored)
    return v;
  return e.toStorage(e.width > 1 ? e.splat(v) : v, elementTypeOf(output));
}

bool Holes::isPlainResult(const KernelSource &kernel, Value anchor) {
  std::optional<unsigned> place = outputOf(kernel, anchor);
  if (!place)
    return false;
  Value output = kernel.body->getTerminator()->getOperand(*place);
  if (output == anchor)
    return true;
  SmallVector<Value> chain = outputChain(output, anchor);
  if (chain.empty() || chain.front().getDefiningOp()->getOperand(0) != anchor)
    return false;
  DimExpr last = dimsOf(anchor).back();
  return llvm::all_of(chain, [&](Value v) {
    auto transpose = v.getDefiningOp<TransposeOp>();
    int64_t rank = dimsOf(v).size();
    return dimsOf(v).back() == last && (!transpose || transpose.getPerm()[rank - 1] == rank - 1);
  });
}

Value Holes::resultPlace(Evaluator &e, Value anchor, const Indices &idx) {
  Indices to = idx;
  const unsigned place = outputOf(e.kernel, anchor).value_or(0);
  Value output = e.outputValue(place);
  if (output != anchor)
    for (Value step : outputChain(output, anchor)) {
      FailureOr<Indices> next = forward(e, step.getDefiningOp(), to);
      if (mlir::failed(next)) {
        e.fail(step.getDefiningOp(), "cannot be the way of a result to its place");
        break;
      }
      to = *next;
    }
  return e.offset(e.bufferArg(e.outputArg(place)).physical, to).base;
}

int64_t Holes::epilogueLanes(Value anchor, const DimExpr &last, int64_t atMost) {
  int64_t lanes = atMost;
  while (lanes > 1 && !last.exactDiv(DimExpr(lanes)))
    lanes /= 2;
  return lanes;
}

StoredByTma storedByTma(const KernelSpec &spec, bool byHead) {
  StoredByTma stored{.results = spec.mapsOf(TensorMapArg::Role::Result)};
  stored.byHead = byHead && !stored.results.empty();
  if (std::vector<int> residual = spec.mapsOf(TensorMapArg::Role::Residual); !residual.empty())
    stored.residual = residual.front();
  return stored;
}

} // namespace lathe::codegen
