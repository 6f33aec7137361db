//===- PageStatesPairs.cpp - caches that pass from step to step -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A cache is an input whose elements an attention reads for the keys below P, and new tokens' for those from P on,
// where both leave as the next call's input: whatever joins them, and whatever the names are.
//
//   %present = concat(%past, %new) {axis = 2}      past/present
//   %present = scatter_nd(%past, %places, %new)    room for more than P: ScatterND, index_copy
//   %present = select(%inside, gather_elements(%new, ..), %past)   TensorScatter, GroupQueryAttention
//   attention .., %present, ..
//   return .., %present, ..
//
// A function without caches takes whole sequences: all keys are new ones.
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

using namespace mlir;

namespace lathe::paging {

namespace {

/// What a value that attention reads is, element by element.
struct Stored {
  BlockArgument past;
  std::vector<DimExpr> pastAt;
  Value added;
  std::vector<DimExpr> addedAt;
  llvm::SetVector<Operation *> moves;

  bool operator==(const Stored &other) const {
    return past == other.past && pastAt == other.pastAt && added == other.added && addedAt == other.addedAt;
  }
};

const DimExpr key = DimExpr::symbol(kKey);

/// The data that an element may be, and the symbols that decide.
struct Leaves {
  std::vector<const Element *> data;
  std::set<std::string> symbols;

  explicit Leaves(const Element &element) { add(element); }

private:
  void add(const Condition &condition) {
    condition.expr.collectSymbols(symbols);
    for (const Condition &part : condition.parts)
      add(part);
  }
  void add(const Element &element) {
    if (element.kind == Element::Kind::Choice) {
      add(element.truth);
      add(*element.yes);
      add(*element.no);
    }
    if (element.kind != Element::Kind::Datum)
      return;
    data.push_back(&element);
    for (const DimExpr &place : element.at)
      place.collectSymbols(symbols);
  }
};

class Caches {
public:
  explicit Caches(Decoder &decoder) : decoder(decoder), func(decoder.func) {}

  LogicalResult run() {
    WalkResult walked = func.walk([&](AttentionOp op) {
      return failed(checkForm(op)) || failed(addLayer(op)) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return failure();
    if (decoder.layers.empty()) {
      auto softmaxes = func.getBody().front().getOps<SoftmaxOp>();
      return refuse(softmaxes.empty() ? func.getLoc() : (*softmaxes.begin()).getLoc(), Obligation::Caches)
             << "no attention was recognised (--remarks says why)";
    }
    if (failed(checkReaders()) || failed(findLogits()))
      return failure();
    decoder.proofs.push_back("O2: " + std::to_string(decoder.layers.size()) +
                             (pasts.empty() ? " attentions read the keys and values of whole sequences"
                                            : " attentions read past and new keys and values, which leave as present"));
    decoder.proofs.push_back("O7: beside those the logits alone leave");
    for (auto &[name, what] : assumed)
      decoder.assumptions.push_back(name + " is " + what.str());
    return success();
  }

private:
  /// What attention does beside reading its cache that no kernel over pages has.
  LogicalResult checkForm(AttentionOp op) {
    std::vector<DimExpr> sink = op.getSink() ? dimsOf(op.getSink()) : std::vector<DimExpr>{};
    const DimExpr heads = dimOf(op.getQ(), 1), count = product(sink);
    const bool perHead = count == DimExpr(1) || (sink.size() >= 3 && sink[sink.size() - 3] == heads && count == heads);
    const char *lacks = !perHead               ? "a sink that is not a number for each head"
                        : op.getLogSumExp()    ? "a log-sum-exp"
                        : dimOf(op.getK(), 3) != dimOf(op.getV(), 3) ? "values of another depth than keys"
                                                                    : nullptr;
    if (lacks)
      return refuse(op.getLoc(), Obligation::Caches) << "attention with " << lacks << " does not read pages yet";
    return success();
  }

  LogicalResult addLayer(AttentionOp op) {
    const bool first = decoder.layers.empty();
    if (first) {
      decoder.batch = dimOf(op.getQ(), 0);
      decoder.tokens = dimOf(op.getQ(), 2);
      if (!decoder.tokens.symbolName() || !(decoder.batch.symbolName() || decoder.batch == DimExpr(1)))
        return refuse(op.getLoc(), Obligation::Caches)
               << "rows and new tokens have sizes " << decoder.batch.str() << " and " << decoder.tokens.str()
               << ": the second must be a size that the caller chooses, the first one too, or 1";
      findPast(op);
    }
    Layer layer;
    layer.attention = op;
    for (bool values : {false, true}) {
      FailureOr<Cache> cache = cacheOf(op, values ? op.getV() : op.getK(), values ? "values" : "keys");
      if (failed(cache))
        return failure();
      (values ? layer.values : layer.keys) = std::move(*cache);
    }
    AttentionOp front = first ? op : decoder.layers.front().attention;
    if (dimOf(op.getK(), 1) != dimOf(front.getK(), 1) || dimOf(op.getK(), 3) != dimOf(front.getK(), 3) ||
        elementTypeOf(op.getK()) != elementTypeOf(front.getK()))
      return refuse(op.getLoc(), Obligation::Caches)
             << "keys are " << op.getK().getType() << ", of the first attention " << front.getK().getType()
             << ": layers with caches of several forms are not paged yet";
    if (dimOf(op.getQ(), 2) != decoder.tokens || dimOf(op.getQ(), 0) != decoder.batch)
      return refuse(op.getLoc(), Obligation::Caches)
             << "it has queries of " << dimOf(op.getQ(), 2).str() << " tokens for " << decoder.tokens.str()
             << " new keys";
    decoder.layers.push_back(std::move(layer));
    return success();
  }

  static std::vector<DimExpr> indexOf(Value rows) {
    std::vector<DimExpr> index{DimExpr::symbol(kBatch), DimExpr::symbol(kHead), key, DimExpr::symbol(kDepth)};
    for (auto [d, dim] : llvm::enumerate(dimsOf(rows)))
      if (dim == DimExpr(1))
        index[d] = DimExpr(0);
    return index;
  }

  /// P, the keys that attention reads, and what the caller's numbers are of those, by the first attention's keys.
  /// What no formula is found for, cacheOf refuses.
  void findPast(AttentionOp op) {
    Value rows = op.getK();
    decoder.keys = dimOf(rows, 2);
    decoder.past = decoder.keys == decoder.tokens ? DimExpr(0) : DimExpr::symbol(kPast);
    if (decoder.keys == decoder.tokens)
      return;
    auto leavesOf = [&](std::optional<Element> &element) -> std::optional<Leaves> {
      Elements elements(decoder, /*data=*/true);
      element = elements.of(rows, indexOf(rows));
      return element ? std::optional(Leaves(*element)) : std::nullopt;
    };
    std::optional<Element> element;
    std::optional<Leaves> leaves = leavesOf(element);
    if (!leaves)
      return;
    std::optional<DimExpr> room, start;
    for (const Element *datum : leaves->data) {
      for (auto [d, place] : llvm::enumerate(datum->at)) {
        std::set<std::string> used;
        place.collectSymbols(used);
        if (!used.count(kKey))
          continue;
        if (isa<BlockArgument>(datum->source) && place == key)
          room = dimOf(datum->source, d);
        else if (DimExpr from = key - place; !start || start->isConstant())
          start = from;
      }
    }
    if (!room || !start)
      return;
    if (*start == *room && decoder.keys == *start + decoder.tokens && start->symbolName() && *start != decoder.tokens) {
      decoder.past = *start;
      return;
    }
    decoder.room = room;
    std::set<std::string> fixed{kPast, kKey, *decoder.tokens.symbolName()};
    if (auto batch = decoder.batch.symbolName())
      fixed.insert(*batch);
    // The number by which the first new key finds its place is some formula of P.
    std::set<std::string> used;
    start->collectSymbols(used);
    for (const std::string &name : used)
      if (!fixed.count(name) && isNumber(name) == llvm::any_of(used, isNumber)) {
        know(name, DimExpr::symbol(kPast) - (*start - DimExpr::symbol(name)), /*assume=*/isNumber(name));
        break;
      }
    decoder.keys = dimOf(rows, 2).substitute(decoder.known);
    // Another number that decides can but be that of all keys, as GroupQueryAttention is told both.
    leaves = leavesOf(element);
    if (auto name = room->symbolName())
      fixed.insert(*name);
    for (const std::string &name : leaves ? leaves->symbols : std::set<std::string>())
      if (!fixed.count(name) && (name[0] != '_' || isNumber(name))) // indices begin with _
        know(name, DimExpr::symbol(kPast) + decoder.tokens, /*assume=*/true);
    decoder.keys = dimOf(rows, 2).substitute(decoder.known);
  }

  static bool isNumber(StringRef name) { return name.starts_with(kNumberPrefix); }
  void know(const std::string &name, const DimExpr &what, bool assume) {
    std::set<std::string> used;
    what.collectSymbols(used);
    if (used.count(name)) // as where it is taken twice
      return;
    decoder.known[name] = what;
    if (assume)
      assumed.emplace_back(describe(name), what.substitute({{kPast, DimExpr::symbol("P")}}));
  }
  std::string describe(const std::string &name) {
    unsigned number = 0;
    if (isNumber(name) && !StringRef(name).drop_front(StringRef(kNumberPrefix).size()).getAsInteger(10, number))
      return "input '" + nameOf(func.getArgument(number)) + "'";
    return "size " + name;
  }

  /// What elements below P and from P on are; none, with the reason in `why`.
  std::optional<Stored> storedIn(Value value, ArrayRef<DimExpr> index, Operation *&at, std::string &why) {
    Elements elements(decoder, /*data=*/true);
    auto element = elements.of(value, index);
    if (!element) {
      at = elements.stuck;
      why = elements.reason;
      return std::nullopt;
    }
    const DimExpr first = decoder.past, end = first + decoder.tokens;
    Element old = elements.given(*element, {key + DimExpr(1) - first}),
            fresh = elements.given(*element, {first - key, key + DimExpr(1) - end});
    auto of = [&](const Element &e, bool input) {
      return e.kind == Element::Kind::Datum && e.integer == DimExpr(1) && isa<BlockArgument>(e.source) == input;
    };
    if (!of(old, true) || !of(fresh, false)) {
      why = of(old, true) ? "keys from P on are not those of the new tokens" : "keys below P are not those of an input";
      return std::nullopt;
    }
    // Each is at its own place: no key moves.
    if (!llvm::is_contained(old.at, key) || !llvm::is_contained(fresh.at, key - first)) {
      why = "past or new keys are at other places than they were";
      return std::nullopt;
    }
    return Stored{cast<BlockArgument>(old.source), old.at, fresh.source, fresh.at, elements.moves};
  }

  /// Keys or values of an attention; what else they are is refused.
  FailureOr<Cache> cacheOf(AttentionOp attention, Value rows, StringRef what) {
    Location loc = rows.getDefiningOp() ? rows.getLoc() : attention.getLoc();
    Cache cache;
    if (decoder.past == DimExpr(0)) {
      if (dimOf(rows, 2) != decoder.tokens || dimOf(rows, 0) != decoder.batch || isa<BlockArgument>(rows))
        return refuse(loc, Obligation::Caches) << "attention reads " << what << " of " << dimOf(rows, 2).str()
                                               << " tokens, the first one those of " << decoder.tokens.str();
      cache.added = rows;
      cache.order = {0, 1, 2, 3};
      return cache;
    }
    Operation *at = nullptr;
    std::string why;
    std::optional<Stored> stored = storedIn(rows, indexOf(rows), at, why);
    auto order = stored ? orderOfRows(decoder, dimsOf(stored->added), stored->addedAt) : std::nullopt;
    if (!order || dimOf(rows, 2).substitute(decoder.known) != decoder.keys)
      return refuse(at && !isa<func::FuncOp>(at) ? at->getLoc() : loc, Obligation::Caches)
             << "attention reads " << what << " that are not an input followed by new ones along the tokens"
             << (why.empty() ? "" : ": ") << why;
    cache.past = stored->past;
    cache.added = stored->added;
    cache.order = *order;
    llvm::SetVector<Operation *> moves = stored->moves;
    Operation *end = attention->getBlock()->getTerminator();
    for (OpOperand &operand : end->getOpOperands()) {
      Value out = operand.get();
      if (cache.output || outputs.contains(operand.getOperandNumber()) || !isa<FloatType>(elementTypeOf(out)) ||
          dimsOf(out).size() != stored->pastAt.size())
        continue;
      auto leaves = storedIn(out, stored->pastAt, at, why);
      if (!leaves || !(*leaves == *stored))
        continue;
      cache.output = operand.getOperandNumber();
      moves.insert(leaves->moves.begin(), leaves->moves.end());
    }
    if (!cache.output)
      return refuse(loc, Obligation::Caches)
             << "the " << what << " that attention reads do not leave as the present of '" << nameOf(cache.past) << "'";
    outputs.insert(*cache.output);
    std::string where; // a part of an input may be a cache
    for (const DimExpr &place : stored->pastAt)
      where += place.str() + " ";
    if (!pasts.insert({cache.past.getArgNumber(), where}).second)
      return refuse(attention.getLoc(), Obligation::Caches)
             << "'" << nameOf(cache.past) << "' is the cache of two attentions, or of keys and values";
    decoder.writes.insert(moves.begin(), moves.end());
    return cache;
  }

  /// Nobody reads past keys but what leads to their attentions and out again.
  LogicalResult checkReaders() {
    auto reads = [&](Operation *user) {
      return decoder.writes.contains(user) || isa<AttentionOp>(user) || user == func.getBody().front().getTerminator();
    };
    for (Operation *op : decoder.writes)
      for (OpOperand &use : op->getResult(0).getUses()) {
        auto attention = dyn_cast<AttentionOp>(use.getOwner());
        unsigned operand = use.getOperandNumber();
        bool rows = !attention || operand == attention.getKMutable().getOperandNumber() ||
                    operand == attention.getVMutable().getOperandNumber();
        if (!reads(use.getOwner()) || !rows)
          return refuse(use.getOwner()->getLoc(), Obligation::Caches)
                 << "it reads the keys or values of an attention, past ones among them";
      }
    for (const Layer &layer : decoder.layers)
      for (const Cache *cache : {&layer.keys, &layer.values})
        if (cache->past)
          for (Operation *user : cache->past.getUsers())
            if (!reads(user))
              return refuse(user->getLoc(), Obligation::Caches)
                     << "it reads '" << nameOf(cache->past) << "' beside attention";
    return success();
  }

  LogicalResult findLogits() {
    std::optional<unsigned> logits;
    for (unsigned i = 0; i < func.getNumResults(); ++i) {
      if (outputs.contains(i))
        continue;
      if (logits)
        return refuse(func.getBody().front().getTerminator()->getOperand(i).getLoc(), Obligation::States)
               << "output '" << outputName(func, i)
               << "' is neither the cache of an attention nor the only other one, the logits";
      logits = i;
    }
    if (!logits)
      return refuse(func.getLoc(), Obligation::Logits) << "no output has logits";
    decoder.logits = *logits;
    return success();
  }

  Decoder &decoder;
  func::FuncOp func;
  llvm::DenseSet<unsigned> outputs;
  std::set<std::pair<unsigned, std::string>> pasts;
  std::vector<std::pair<std::string, DimExpr>> assumed;
};

} // namespace

LogicalResult findCaches(Decoder &decoder) { return Caches(decoder).run(); }

} // namespace lathe::paging
