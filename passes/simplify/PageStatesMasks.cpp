//===- PageStatesMasks.cpp - what a token sees, and where it stands -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Without padding, which pages have none of, what hides keys must come to this alone, however it is
// written: key <= query + P, and maybe key >= query + P - w with a number w, the window, or key < s beside that,
// the first tokens that all see (sinks). What positions are computed from must come to query + P.
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

using namespace mlir;

namespace lathe::paging {

namespace {

/// When the score of (_batch, _head, _query, _key) counts.
class Sight {
public:
  Sight(Decoder &decoder, AttentionOp op)
      : decoder(decoder), op(op), elements(decoder), query(DimExpr::symbol(kQuery)), key(DimExpr::symbol(kKey)) {
    elements.heads = dimOf(op.getQ(), 1);
  }

  FailureOr<Condition> find() {
    const DimExpr scores[] = {DimExpr::symbol(kBatch), DimExpr::symbol(kHead), query, key};
    const DimExpr sizes[] = {decoder.batch, dimOf(op.getQ(), 1), decoder.tokens, decoder.keys};
    Condition seen;
    auto add = [&](Condition more) { seen = elements.both(seen, std::move(more)); };
    std::optional<DimExpr> lengths = place(op.getLengths(), decoder.keys);
    std::optional<DimExpr> starts = place(op.getStarts(), DimExpr(0));
    if (!lengths || !starts)
      return stuck();
    std::optional<DimExpr> offset = place(op.getOffset(), *lengths - decoder.tokens);
    if (!offset)
      return stuck();
    const DimExpr own = query + *offset;
    add(elements.atMostZero(key + DimExpr(1) - *lengths));
    add(elements.atMostZero(*starts - key));
    if (op.getCausal())
      add(elements.atMostZero(key - own));
    if (auto window = op.getWindowLeft())
      add(elements.atMostZero(own - DimExpr(int64_t(*window)) - key));
    if (auto window = op.getWindowRight())
      add(elements.atMostZero(key - own - DimExpr(int64_t(*window))));
    if (op.getMask()) {
      auto element = elements.broadcast(op.getMask(), sizes, scores);
      auto condition = element ? elements.truth(*element) : std::nullopt;
      if (!condition)
        return stuck();
      add(*condition);
    }
    if (op.getBias()) {
      auto element = elements.broadcast(op.getBias(), sizes, scores);
      auto condition = element ? unhidden(*element) : std::nullopt;
      if (condition && slopes && level) {
        elements.reason = "a bias of the scores falls with the distance of some keys alone";
        condition.reset();
      }
      if (!condition)
        return stuck();
      add(*condition);
    }
    if (op.getQueryDocuments()) {
      auto mine = elements.broadcast(op.getQueryDocuments(), {sizes[0], sizes[2]}, {scores[0], query}),
           theirs = mine ? elements.broadcast(op.getKeyDocuments(), {sizes[0], sizes[3]}, {scores[0], key})
                         : std::nullopt;
      if (!theirs || mine->kind != Element::Kind::Integer || theirs->kind != Element::Kind::Integer)
        return stuck();
      DimExpr apart = mine->integer - theirs->integer;
      add(elements.both(elements.atMostZero(apart), elements.atMostZero(DimExpr(0) - apart)));
    }
    return seen;
  }

private:
  std::optional<DimExpr> place(Value value, const DimExpr &otherwise) {
    if (!value)
      return otherwise;
    auto element = elements.broadcast(value, {decoder.batch}, {DimExpr::symbol(kBatch)});
    if (!element || element->kind != Element::Kind::Integer)
      return std::nullopt;
    return element->integer;
  }

  /// Where a bias is 0, or falls with distance, if it hides keys elsewhere.
  std::optional<Condition> unhidden(const Element &bias) {
    switch (bias.kind) {
    case Element::Kind::Choice: {
      auto yes = unhidden(*bias.yes), no = unhidden(*bias.no);
      if (!yes || !no)
        return std::nullopt;
      return elements.either(elements.both(bias.truth, *yes), elements.both(elements.negated(bias.truth), *no));
    }
    case Element::Kind::Integer:
    case Element::Kind::Real: {
      double value = bias.kind == Element::Kind::Real ? bias.real : double(bias.integer.constant().value_or(1));
      if (value == 0) {
        level = true;
        return Condition{};
      }
      if (value <= kHides) {
        if (std::isfinite(value))
          hidesBy = std::min(hidesBy, value);
        return Condition{Condition::Kind::False, {}, {}};
      }
      break;
    }
    case Element::Kind::Datum: {
      // slope * (key + something that is the same for all keys): softmax knows no difference from key - query - P.
      std::set<std::string> used;
      (bias.integer - key).collectSymbols(used);
      if (used.count(kKey) || used.count(kHead) || (slopes && slopes != bias.source) ||
          product(dimsOf(bias.source)) != dimOf(op.getQ(), 1))
        break;
      slopes = bias.source;
      return Condition{};
    }
    case Element::Kind::Truth:
      break;
    }
    elements.reason = "a bias of the scores is neither 0 nor a number that hides keys";
    return std::nullopt;
  }

  FailureOr<Condition> stuck() {
    Operation *at = elements.stuck && !isa<func::FuncOp>(elements.stuck) ? elements.stuck : op.getOperation();
    refuse(at->getLoc(), Obligation::Masks)
        << (elements.reason.empty() ? "what hides keys is no formula of positions" : elements.reason);
    return failure();
  }

  Decoder &decoder;
  AttentionOp op;
  Elements elements;
  DimExpr query, key;

public:
  double hidesBy = 0; ///< the least finite number that a bias hides keys by
  bool level = false; ///< whether it is 0 for some keys
  Value slopes;       ///< of heads, by which it falls with distance
};

} // namespace

/// What `seen` asks for beside `causal <= 0`, one condition or some of which one must be; none where it may hold
/// without that.
static std::optional<std::vector<Condition>> besideCausal(const Condition &seen, const DimExpr &causal) {
  auto isEnd = [&](const Condition &part) {
    return part.kind == Condition::Kind::AtMostZero && part.expr == causal;
  };
  if (isEnd(seen))
    return std::vector<Condition>{};
  if (seen.kind == Condition::Kind::And && seen.parts.size() == 2 && llvm::any_of(seen.parts, isEnd)) {
    const Condition &other = seen.parts[isEnd(seen.parts[0])];
    return other.kind == Condition::Kind::Or ? other.parts : std::vector{other};
  }
  if (seen.kind != Condition::Kind::Or)
    return std::nullopt;
  // Each part by itself.
  std::vector<Condition> all;
  for (const Condition &part : seen.parts) {
    auto beside = besideCausal(part, causal);
    if (!beside || beside->empty())
      return std::nullopt;
    llvm::append_range(all, *beside);
  }
  return all;
}

/// Whether `seen` is causal, maybe with a window, which is w in -w <= key - query - P <= 0, and then maybe with first
/// keys that count in any case.
static bool isCausal(const Decoder &decoder, const Condition &seen, Layer &layer) {
  const DimExpr key = DimExpr::symbol(kKey), causal = key - DimExpr::symbol(kQuery) - decoder.past;
  auto beside = besideCausal(seen, causal);
  if (!beside || beside->size() > 2)
    return false;
  int64_t sinks = 0;
  std::optional<int64_t> window;
  for (const Condition &part : *beside) {
    if (part.kind != Condition::Kind::AtMostZero)
      return false;
    std::optional<int64_t> behind = (part.expr + causal).constant(), above = (part.expr - key).constant();
    if (behind && *behind <= 0 && !window)
      window = -*behind;
    else if (above && *above <= 0 && !sinks)
      sinks = 1 - *above;
    else
      return false;
  }
  if (sinks && !window)
    return false; // the first keys alone
  layer.window = window;
  layer.sinks = sinks;
  return true;
}

LogicalResult proveMasks(Decoder &decoder) {
  for (Layer &layer : decoder.layers) {
    Sight sight(decoder, layer.attention);
    FailureOr<Condition> seen = sight.find();
    if (failed(seen))
      return failure();
    if (!isCausal(decoder, *seen, layer)) {
      const DimExpr causal = DimExpr::symbol(kKey) - DimExpr::symbol(kQuery) - decoder.past;
      Value mask = layer.attention.getMask() ? layer.attention.getMask() : layer.attention.getBias();
      Operation *at = mask && mask.getDefiningOp() ? mask.getDefiningOp() : layer.attention.getOperation();
      return refuse(at->getLoc(), Obligation::Masks)
             << "a key counts where " << seen->str() << ", not where " << causal.str()
             << " <= 0, as far back as a window of constant size, maybe with first keys beside it, or all";
    }
    layer.slopes = sight.slopes;
    if (layer.slopes && layer.sinks)
      return refuse(layer.attention.getLoc(), Obligation::Masks)
             << "scores fall with distance, and first keys count beside a window: their distance is not kept";
    if (sight.hidesBy < 0) {
      std::string text;
      llvm::raw_string_ostream(text) << "scores are far above " << sight.hidesBy << ", by which a bias hides keys";
      if (!llvm::is_contained(decoder.assumptions, text))
        decoder.assumptions.push_back(text);
    }
  }
  for (BlockArgument input : decoder.func.getArguments())
    if (decoder.isPadding(input))
      decoder.assumptions.push_back("input '" + nameOf(input) + "' is 1 everywhere: no sequence is padded");
  std::string windows;
  for (auto [i, layer] : llvm::enumerate(decoder.layers))
    if (layer.window)
      windows += (windows.empty() ? "; layers (from 0) see as many before it, and no more: " : ", ") + std::to_string(i) +
                 " " + std::to_string(*layer.window) +
                 (layer.sinks ? " and the first " + std::to_string(layer.sinks) : "");
  const bool sloped = llvm::any_of(decoder.layers, [](const Layer &layer) { return bool(layer.slopes); });
  decoder.proofs.push_back("O3: a token sees the keys of its sequence up to its own, and no others" + windows +
                           (sloped ? "; scores fall with distance, by a slope for each head" : ""));
  return success();
}

/// Whether an integer is computed from positions or sizes.
static bool isPlace(const Decoder &decoder, Value value) {
  SmallVector<Value> work{value};
  llvm::DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second || !isa<IntegerType>(elementTypeOf(v)))
      continue;
    if ((isa<BlockArgument>(v) && v != decoder.ids) || isa_and_nonnull<IotaOp, DimValueOp>(v.getDefiningOp()))
      return true;
    if (Operation *op = v.getDefiningOp())
      llvm::append_range(work, op->getOperands());
  }
  return false;
}

LogicalResult findPositions(Decoder &decoder, llvm::SetVector<Value> &positions) {
  const DimExpr expected = decoder.past + DimExpr::symbol(kQuery);
  for (Operation &op : decoder.func.getBody().front()) {
    for (OpOperand &use : op.getOpOperands()) {
      Value value = use.get();
      auto isInteger = [](Value v) { return isa<IntegerType>(elementTypeOf(v)); };
      // The last integer on the way: what reads it makes something else of it.
      if (!isInteger(value) || positions.contains(value) || !isPlace(decoder, value) || isa<AttentionOp>(op) ||
          (op.getNumResults() == 1 && isInteger(op.getResult(0))))
        continue;
      std::vector<DimExpr> index, dims = dimsOf(value);
      if (!llvm::is_contained(dims, decoder.tokens))
        continue; // a size, or nothing of the tokens: checkSizes, or an input that is left, says so
      for (const DimExpr &dim : dims) {
        bool token = dim == decoder.tokens, row = dim == decoder.batch;
        if (!token && !row && dim != DimExpr(1))
          return refuse(op.getLoc(), Obligation::Positions)
                 << "it reads places of sizes " << dim.str() << ", not of the new tokens";
        index.push_back(token                 ? DimExpr::symbol(kQuery)
                        : dim == DimExpr(1) ? DimExpr(0)
                                              : DimExpr::symbol(kBatch));
      }
      Elements elements(decoder);
      auto element = elements.of(value, index);
      if (!element || element->kind != Element::Kind::Integer) {
        Operation *at = elements.stuck && !isa<func::FuncOp>(elements.stuck) ? elements.stuck : &op;
        return refuse(at->getLoc(), Obligation::Positions)
               << "it makes a position of something else than P + i"
               << (elements.reason.empty() ? "" : ": " + elements.reason);
      }
      if (element->integer != expected)
        return refuse(value.getDefiningOp() ? value.getLoc() : op.getLoc(), Obligation::Positions)
               << "the position of a token is " << element->integer.str() << ", not " << expected.str();
      positions.insert(value);
    }
  }
  return success();
}

LogicalResult checkSizes(Decoder &decoder) {
  std::set<std::string> gone;
  for (const DimExpr &size : {decoder.past, decoder.tokens, decoder.batch})
    if (auto name = size.symbolName())
      gone.insert(*name);
  for (const auto &[name, what] : decoder.known)
    gone.insert(name);
  for (Operation &op : decoder.func.getBody().front()) {
    if (isa<IotaOp, DimValueOp>(op)) {
      std::set<std::string> used;
      for (const DimExpr &dim : dimsOf(op.getResult(0)))
        dim.collectSymbols(used);
      if (auto sizes = dyn_cast<DimValueOp>(op))
        for (Attribute dim : sizes.getDims())
          cast<DimAttr>(dim).expr().collectSymbols(used);
      for (const std::string &name : used)
        if (gone.count(name))
          return refuse(op.getLoc(), Obligation::Sizes)
                 << "the size " << name << " is data here: there is no such size where tokens of several "
                 << "sequences make a step";
    }
    for (Value result : op.getResults())
      for (const DimExpr &dim : dimsOf(result)) {
        std::set<std::string> used;
        dim.collectSymbols(used);
        for (const std::string &name : used)
          if (name != decoder.tokens.symbolName() && name != decoder.batch.symbolName() && !isStepSize(name))
            return refuse(op.getLoc(), Obligation::Sizes)
                   << "its result has the size " << dim.str() << ", which is none of rows and new tokens";
      }
  }
  return success();
}

} // namespace lathe::paging
