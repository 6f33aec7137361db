//===- Interpreter.cpp - a legalized model, op by op -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Interpreter.h"
#include "Random.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/Loops.h"
#include "lathe/passes/EvaluateOp.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"

#include <cmath>

using namespace mlir;

namespace lathe::fuzz {
namespace {

/// How far one rounding is off, relative.
double roundingUnit(DType dtype) {
  switch (dtype) {
  case DType::F64: return 0x1p-53;
  case DType::F32: return 0x1p-24;
  case DType::F16: return 0x1p-11;
  case DType::BF16: return 0x1p-8;
  default: return 0;
  }
}

enum class Exactness {
  Moves,   ///< elements go elsewhere: nothing is rounded, nothing is read as a number
  Chooses, ///< a result is an operand, or its negative, or a whole number near to it
  Computes,
  Sums     ///< in an order of its own: what it reads is off too
};

Exactness exactnessOf(Operation *op) {
  static const llvm::StringSet<> moves = {
      "bind_dims", "dim_from", "transpose", "reshape", "broadcast_to", "slice", "concat", "pad", "gather",
      "gather_elements", "gather_nd", "bitcast", "iota", "dim_value"};
  static const llvm::StringSet<> chooses = {"neg", "abs", "sign", "floor", "ceil", "round", "trunc", "max", "min",
                                            "select", "compare", "is_nan", "is_inf", "cast", "topk", "arg_reduce",
                                            "nonzero", "mark_flags", "marked_places", "nms", "arg_pool", "not", "and", "or", "xor", "tree_walk"};
  static const llvm::StringSet<> computes = {
      "add", "sub", "mul", "div", "mod", "pow", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "recip", "sin", "cos",
      "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "quick_gelu",
      "mish", "probit", "quantize", "dequantize", "shl", "shr"};
  StringRef name = op->getName().stripDialect();
  if (auto kind = op->getAttrOfType<ReduceKindAttr>("kind"))
    if (kind.getValue() == ReduceKind::Max || kind.getValue() == ReduceKind::Min)
      return Exactness::Chooses;
  if (auto kind = op->getAttrOfType<PoolKindAttr>("kind"); kind && kind.getValue() == PoolKind::Max)
    return Exactness::Chooses;
  if (name.starts_with("scatter")) {
    auto reduction = op->getAttr("reduction");
    return reduction ? Exactness::Sums : Exactness::Moves;
  }
  return moves.contains(name)     ? Exactness::Moves
         : chooses.contains(name) ? Exactness::Chooses
         : computes.contains(name) ? Exactness::Computes
                                   : Exactness::Sums;
}

class Interpreter {
public:
  Interpreter(func::FuncOp main, std::optional<Noise> noise, std::optional<int64_t> rank = std::nullopt)
      : main(main), rank(rank), loops(loopsAround(main.getBody().front())) {
    late = noise && noise->rounding == Rounding::Late;
    if (noise && !late) {
      random.emplace(noise->seed);
      rounding = noise->rounding;
    }
  }

  Result<std::vector<Interpreted>> run(const std::vector<HostTensor> &inputs) {
    LATHE_RETURN_IF_ERROR(begin(inputs));
    Block &body = main.getBody().front();
    SmallVector<Operation *> program;
    for (Operation &op : body.without_terminator())
      program.push_back(&op);
    LATHE_RETURN_IF_ERROR(runRange(program));
    std::vector<Interpreted> results;
    for (Value value : body.getTerminator()->getOperands())
      results.push_back({as(values.at(value).tensor, dtypeOfElements(value)), values.at(value).inexact});
    return results;
  }

  Status begin(const std::vector<HostTensor> &inputs) {
    Block &body = main.getBody().front();
    if (body.getNumArguments() != inputs.size())
      return internalError("the entry takes " + std::to_string(body.getNumArguments()) + " inputs, not " +
                           std::to_string(inputs.size()));
    for (auto [argument, input] : llvm::zip(body.getArguments(), inputs)) {
      values[argument] = {held(input), false};
      for (auto [dim, size] : llvm::zip(dimsOf(argument), input.dims))
        if (std::optional<std::string> name = symbolName(dim))
          symbols[*name] = size;
    }
    derive();
    return okStatus();
  }

  Status runOp(Operation *op) {
    if (auto choose = dyn_cast<ChooseOp>(op))
      return runChoose(choose);
    if (auto constant = dyn_cast<ConstantOp>(op); constant && rank) {
      auto part = hostTensorOf(constant.getValue(), constant.getType(), op->getContext(), rank);
      if (!part)
        return part.status();
      values[constant] = {held(std::move(*part)), false};
      return okStatus();
    }
    Exactness exactness = exactnessOf(op);
    std::vector<HostTensor> operands;
    bool inexact = false;
    for (Value operand : op->getOperands()) {
      const Interpreted &held = values.at(operand);
      operands.push_back(held.tensor);
      inexact |= held.inexact;
      if (random && (exactness == Exactness::Sums || (exactness != Exactness::Moves && held.inexact)))
        disturb(operands.back());
    }
    // Its attributes are names, which the reference has no form for.
    auto results = isa<DimFromOp>(op) ? Result<std::vector<HostTensor>>(operands) : evaluate(op, operands);
    if (!results)
      return results.status();
    if (auto softmax = dyn_cast<SoftmaxOp>(op); random && softmax && softmax.getLog())
      disturb(results->front(), /*absolute=*/true);
    for (auto [result, value] : llvm::zip(op->getResults(), *results)) {
      bool rounds = exactness == Exactness::Computes || exactness == Exactness::Sums;
      values[result] = {std::move(value), inexact || rounds};
    }
    if (auto from = dyn_cast<DimFromOp>(op)) {
      const HostTensor &numbers = values.at(from.getX()).tensor;
      for (auto [i, name] : llvm::enumerate(from.getSymbols().getAsValueRange<StringAttr>()))
        symbols[name.str()] = numbers.integer(int64_t(i));
      derive();
    }
    return okStatus();
  }

  const HostTensor &tensor(Value value) const { return values.find(value)->second.tensor; }
  void set(Value value, HostTensor tensor) { values[value] = {std::move(tensor), true}; }

private:
  static bool isHalf(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }
  static DType dtypeOfElements(Value value) { return *dtypeOf(elementTypeOf(value)); }
  static HostTensor as(const HostTensor &tensor, DType dtype) {
    if (tensor.dtype == dtype)
      return tensor;
    HostTensor other(dtype, tensor.dims);
    for (int64_t i = 0, n = tensor.count(); i < n; ++i)
      other.setReal(i, tensor.real(i));
    return other;
  }
  /// As it is held between ops.
  HostTensor held(HostTensor tensor) const { return late && isHalf(tensor.dtype) ? as(tensor, DType::F32) : tensor; }

  Result<std::vector<HostTensor>> evaluate(Operation *op, std::vector<HostTensor> &operands) {
    if (!late)
      return evaluateOp(op, operands, symbols);
    // Conversions round, and bits are those of the type.
    const bool rounds = isa<CastOp, BitcastOp, ConstantOp>(op);
    if (isa<BitcastOp>(op))
      operands[0] = as(operands[0], dtypeOfElements(op->getOperand(0)));
    SmallVector<Type> types(op->getResultTypes());
    for (OpResult result : op->getResults())
      if (!rounds && isHalf(dtypeOfElements(result)))
        result.setType(withElementType(result.getType(), Float32Type::get(op->getContext())));
    auto results = evaluateOp(op, operands, symbols);
    for (auto [result, type] : llvm::zip(op->getResults(), types))
      result.setType(type);
    if (results)
      for (HostTensor &result : *results)
        result = held(std::move(result));
    return results;
  }

  static std::optional<std::string> symbolName(const DimExpr &dim) {
    std::string text = dim.str();
    bool name = !text.empty() && (isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_') &&
                llvm::all_of(text, [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$'; });
    return name ? std::optional<std::string>(text) : std::nullopt;
  }

  /// Symbols that are formulas of others.
  void derive() {
    auto module = main->getParentOfType<ModuleOp>();
    for (auto symbol : module.getOps<SymbolOp>())
      if (std::optional<DimAttr> formula = symbol.getValue())
        if (auto value = formula->expr().evaluate(symbols); value.ok())
          symbols[symbol.getSymName().str()] = *value;
  }

  /// A new value may move those that are there.
  void assign(Value to, Value from) {
    Interpreted copy = values.at(from);
    values[to] = std::move(copy);
  }

  Status runRange(ArrayRef<Operation *> program) {
    for (size_t i = 0; i < program.size(); ++i) {
      if (isa<LoopBeginOp>(program[i])) {
        size_t end = i + 1;
        while (end < program.size()) {
          auto last = dyn_cast<LoopEndOp>(program[end]);
          if (last && last.getBegin() == program[i])
            break;
          ++end;
        }
        if (end == program.size())
          return internalError("a loop has no end");
        // What stands within a loop by its place alone comes first: the loop may not run at all.
        SmallVector<Operation *> ahead, body;
        for (Operation *op : program.slice(i + 1, end - i - 1)) {
          auto around = loops.find(op);
          (around != loops.end() && around->second.contains(program[i]) ? body : ahead).push_back(op);
        }
        LATHE_RETURN_IF_ERROR(runRange(ahead));
        LATHE_RETURN_IF_ERROR(runLoop(cast<LoopBeginOp>(program[i]), cast<LoopEndOp>(program[end]), body));
        i = end;
      } else {
        LATHE_RETURN_IF_ERROR(runOp(program[i]));
      }
    }
    return okStatus();
  }

  Status runLoop(LoopBeginOp begin, LoopEndOp end, ArrayRef<Operation *> body) {
    constexpr int64_t kMaxTrips = 10000;
    for (auto [carried, init] : llvm::zip(begin.getCarried(), begin.getInits()))
      assign(carried, init);
    int64_t trips = end.getTrips() ? values.at(end.getTrips()).tensor.integer(0) : INT64_MAX;
    bool again = !end.getCondition() || values.at(end.getCondition()).tensor.integer(0);
    size_t rowCount = end.getRows().size();
    std::vector<std::vector<Interpreted>> rows(rowCount);
    int64_t iteration = 0;
    for (; iteration < trips && again; ++iteration) {
      if (iteration == kMaxTrips)
        return runtimeError("a loop does not end");
      if (end.getIteration())
        symbols[end.getIteration()->str()] = iteration;
      derive();
      LATHE_RETURN_IF_ERROR(runRange(body));
      for (auto [k, row] : llvm::enumerate(end.getRows()))
        rows[k].push_back(values.at(row));
      std::vector<Interpreted> nexts;
      for (Value next : end.getNexts())
        nexts.push_back(values.at(next));
      if (end.getAgain())
        again = values.at(end.getAgain()).tensor.integer(0);
      for (auto [carried, next] : llvm::zip(begin.getCarried(), nexts))
        values[carried] = std::move(next);
    }
    size_t carriedCount = end.getNexts().size();
    for (size_t k = 0; k < carriedCount; ++k)
      assign(end.getResult(unsigned(k)), begin.getResult(unsigned(k)));
    for (size_t k = 0; k < rowCount; ++k) {
      Value result = end.getResult(unsigned(carriedCount + k));
      auto sizes = sizesOf(result);
      if (!sizes)
        return sizes.status();
      Interpreted all{held(HostTensor(dtypeOfElements(result), *sizes)), false};
      int64_t at = 0;
      for (const Interpreted &row : rows[k])
        for (int64_t i = 0, n = row.tensor.count(); i < n; ++i, ++at, all.inexact |= row.inexact)
          copyElement(row.tensor, i, all.tensor, at);
      if (at != all.tensor.count())
        return internalError("a loop collects " + std::to_string(at) + " elements, not " + std::to_string(all.tensor.count()));
      values[result] = std::move(all);
    }
    return okStatus();
  }

  Result<std::vector<int64_t>> sizesOf(Value value) {
    std::vector<int64_t> sizes;
    for (const DimExpr &dim : dimsOf(value)) {
      auto size = dim.evaluate(symbols);
      if (!size.ok())
        return size.status();
      sizes.push_back(*size);
    }
    return sizes;
  }

  Status runChoose(ChooseOp choose) {
    bool taken = values.at(choose.getCondition()).tensor.integer(0);
    OperandRange side = taken ? choose.getThens() : choose.getElses();
    for (auto [result, value] : llvm::zip(choose.getYs(), side))
      assign(result, value);
    auto sizes = taken ? choose.getThenSizes() : choose.getElseSizes();
    if (choose.getSymbols() && sizes)
      for (auto [name, size] : llvm::zip(choose.getSymbols()->getAsValueRange<StringAttr>(), *sizes)) {
        auto value = cast<DimAttr>(size).expr().evaluate(symbols);
        if (!value.ok())
          return value.status();
        symbols[name.str()] = *value;
      }
    derive();
    return okStatus();
  }

  void disturb(HostTensor &tensor, bool absolute = false) {
    double unit = roundingUnit(tensor.dtype);
    if (unit == 0)
      return;
    for (int64_t i = 0, n = tensor.count(); i < n; ++i) {
      double x = tensor.real(i);
      bool up = rounding == Rounding::Drawn ? random->chance(50) : rounding == Rounding::Up;
      // Rounding to the type itself takes small noise away or doubles it: noise is of at least a unit.
      double off = 2 * (1 + 3 * random->unit()) * (up ? unit : -unit);
      if (std::isfinite(x))
        tensor.setReal(i, x + (absolute ? 1 : x) * off);
    }
  }

  func::FuncOp main;
  const std::optional<int64_t> rank;
  const DenseMap<Operation *, llvm::SetVector<Operation *>> loops;
  std::optional<Random> random;
  Rounding rounding = Rounding::Drawn;
  bool late = false;
  llvm::DenseMap<Value, Interpreted> values;
  std::map<std::string, int64_t> symbols;
};

/// What a collective gives the ranks, from what each brings.
std::vector<HostTensor> exchanged(const Collective &collective, const std::vector<const HostTensor *> &brought) {
  const size_t ranks = brought.size();
  const HostTensor &first = *brought[0];
  if (collective.name == "all_gather") {
    HostTensor all = first;
    all.dims[size_t(collective.dim)] *= int64_t(ranks);
    all = HostTensor(first.dtype, all.dims);
    int64_t run = 1;
    for (size_t d = size_t(collective.dim); d < first.dims.size(); ++d)
      run *= first.dims[d];
    for (size_t r = 0; r < ranks; ++r)
      for (int64_t i = 0, n = first.count(); i < n; ++i)
        copyElement(*brought[r], i, all, (i / run * int64_t(ranks) + int64_t(r)) * run + i % run);
    return std::vector<HostTensor>(ranks, all);
  }
  HostTensor sum(first.dtype, first.dims);
  auto combine = [&](auto a, auto b) {
    switch (collective.kind) {
    case ReduceKind::Max: return std::max(a, b);
    case ReduceKind::Min: return std::min(a, b);
    case ReduceKind::Prod: return a * b;
    default: return a + b;
    }
  };
  for (int64_t i = 0, n = first.count(); i < n; ++i) {
    if (isFloat(first.dtype)) {
      double value = first.real(i);
      for (size_t r = 1; r < ranks; ++r)
        value = combine(value, brought[r]->real(i));
      sum.setReal(i, value);
    } else {
      uint64_t value = uint64_t(first.integer(i)); // which wraps
      for (size_t r = 1; r < ranks; ++r) {
        const int64_t other = brought[r]->integer(i);
        const bool orders = collective.kind == ReduceKind::Max || collective.kind == ReduceKind::Min;
        value = orders ? uint64_t(combine(int64_t(value), other)) : combine(value, uint64_t(other));
      }
      sum.setInteger(i, int64_t(value));
    }
  }
  if (collective.name == "all_reduce")
    return std::vector<HostTensor>(ranks, sum);
  std::vector<HostTensor> parts;
  std::vector<int64_t> dims = first.dims;
  dims[size_t(collective.dim)] /= int64_t(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    HostTensor part(first.dtype, dims);
    int64_t run = 1;
    for (size_t d = size_t(collective.dim); d < dims.size(); ++d)
      run *= dims[d];
    for (int64_t i = 0, n = part.count(); i < n; ++i)
      copyElement(sum, (i / run * int64_t(ranks) + int64_t(r)) * run + i % run, part, i);
    parts.push_back(std::move(part));
  }
  return parts;
}

} // namespace

Result<std::vector<std::vector<HostTensor>>> interpretRanks(func::FuncOp main, int64_t ranks,
                                                            const std::vector<HostTensor> &inputs) {
  std::vector<Interpreter> each;
  for (int64_t r = 0; r < ranks; ++r) {
    each.emplace_back(main, std::nullopt, r);
    LATHE_RETURN_IF_ERROR(each.back().begin(inputs));
  }
  Block &body = main.getBody().front();
  for (Operation &op : body.without_terminator()) {
    std::optional<Collective> collective = collectiveOf(&op);
    if (!collective) {
      for (Interpreter &rank : each)
        LATHE_RETURN_IF_ERROR(rank.runOp(&op));
      continue;
    }
    std::vector<const HostTensor *> brought;
    for (const Interpreter &rank : each)
      brought.push_back(&rank.tensor(op.getOperand(0)));
    std::vector<HostTensor> results = exchanged(*collective, brought);
    for (int64_t r = 0; r < ranks; ++r)
      each[size_t(r)].set(op.getResult(0), std::move(results[size_t(r)]));
  }
  std::vector<std::vector<HostTensor>> all;
  for (const Interpreter &rank : each) {
    all.emplace_back();
    for (Value value : body.getTerminator()->getOperands())
      all.back().push_back(rank.tensor(value));
  }
  return all;
}

Result<std::vector<Interpreted>> interpret(func::FuncOp main, const std::vector<HostTensor> &inputs,
                                           std::optional<Noise> noise) {
  return Interpreter(main, noise).run(inputs);
}

} // namespace lathe::fuzz
