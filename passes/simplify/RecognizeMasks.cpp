//===- RecognizeMasks.cpp - masks of attention as its operands ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exporters write which keys a query sees as comparisons of positions, joined and made numbers.
// Attention has operands for what they mean: lengths, starts, causality, windows, documents, and one
// mask for the rest. What a select of -inf hides is a mask; a mask that is the same for all queries has
// one element for all.
//
//   %a = compare le %keys, (add %queries, %past)     (%keys, %queries: iota, reshaped)
//   %b = compare lt %keys, %length
//   %c = and (and %a, %b), %padding
//   attention .. bias (select %c, 0, -inf)  =>  attention .. mask %padding lengths %length
//                                                             offset %past {causal}
//
// A finite number instead of -inf stays a bias: a row that sees nothing is an average of all values
// then.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/UnitDims.h"
#include "lathe/passes/EvaluateOp.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_RECOGNIZEMASKSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

//===- Positions --------------------------------------------------------------===//

/// key * t + query * s + number + the sum of `batch`, where t and s count keys and queries. Each value
/// of `batch` has one number for a batch, or for all.
struct Position {
  int64_t key = 0, query = 0;
  DimExpr number = 0;
  std::vector<std::pair<Value, int64_t>> batch; ///< and its factor

  Position times(int64_t factor) const {
    Position p{key * factor, query * factor, number * DimExpr(factor), batch};
    for (auto &[value, by] : p.batch)
      by *= factor;
    return p;
  }
  Position operator+(const Position &other) const {
    Position p{key + other.key, query + other.query, number + other.number, batch};
    for (auto [value, by] : other.batch) {
      auto it = llvm::find_if(p.batch, [&, v = value](auto &entry) { return entry.first == v; });
      if (it == p.batch.end())
        p.batch.push_back({value, by});
      else if ((it->second += by) == 0)
        p.batch.erase(it);
    }
    return p;
  }
  Position operator-(const Position &other) const { return *this + other.times(-1); }
  bool isNumber() const { return key == 0 && query == 0 && batch.empty(); }
};

/// What the integers of a mask's operands are, whose last dimensions are [B, H, S, T].
class Positions {
public:
  Positions(AttentionOp op) : queries(dimOf(op.getQ(), 2)), keys(dimOf(op.getK(), 2)) {}

  /// None, with a reason, where a value is no such sum.
  std::optional<Position> of(Value v) {
    SmallVector<int64_t> places;
    int64_t rank = dimsOf(v).size();
    for (int64_t d = 0; d < rank; ++d)
      places.push_back(4 - rank + d);
    return of(v, places);
  }
  const char *reason = "its positions are not sums of numbers of keys, queries and batches";

private:
  /// `places`: of each dimension of v that of [B, H, S, T].
  std::optional<Position> of(Value v, ArrayRef<int64_t> places) {
    std::vector<DimExpr> dims = dimsOf(v);
    if (!isa<IntegerType>(elementTypeOf(v)) || elementTypeOf(v).isInteger(1))
      return std::nullopt;
    if (auto number = numberOf(v); number && std::abs(*number) < 1e15)
      return Position{0, 0, DimExpr(int64_t(*number)), {}};
    Operation *op = v.getDefiningOp();
    auto operand = [&](Value x) {
      return of(x, places.take_back(dimsOf(x).size()));
    };
    if (auto iota = dyn_cast_or_null<IotaOp>(op))
      return counting(dims[iota.getAxis()], places[iota.getAxis()], 0, 1);
    if (auto constant = dyn_cast_or_null<ConstantOp>(op))
      return counted(constant, dims, places);
    if (auto value = dyn_cast_or_null<DimValueOp>(op); value && value.getDims().size() == 1)
      return Position{0, 0, cast<DimAttr>(value.getDims()[0]).expr(), {}};
    if (auto cast = dyn_cast_or_null<CastOp>(op)) {
      Type from = elementTypeOf(cast.getX()), to = elementTypeOf(v);
      bool kept = isa<IntegerType>(from) && from.getIntOrFloatBitWidth() >= 32 && to.getIntOrFloatBitWidth() >= 32;
      if (auto inner = kept ? operand(cast.getX()) : std::nullopt; inner && inner->batch.empty())
        return inner;
    } else if (isa_and_nonnull<AddOp, SubOp>(op)) {
      auto a = operand(op->getOperand(0)), b = operand(op->getOperand(1));
      if (a && b)
        return isa<AddOp>(op) ? *a + *b : *a - *b;
    } else if (isa_and_nonnull<NegOp>(op)) {
      if (auto a = operand(op->getOperand(0)))
        return a->times(-1);
    } else if (isa_and_nonnull<BroadcastToOp>(op)) {
      if (auto a = operand(op->getOperand(0)))
        return a;
    } else if (auto reshape = dyn_cast_or_null<ReshapeOp>(op)) {
      std::vector<DimExpr> from = dimsOf(reshape.getX());
      if (auto map = unitMap(from, dims)) {
        SmallVector<int64_t> inner(from.size(), 1); // a size of 1 may stand anywhere
        for (auto [d, source] : llvm::enumerate(*map))
          if (source >= 0)
            inner[source] = places[d];
        if (auto a = of(reshape.getX(), inner); a && a->batch.empty())
          return a;
      }
    } else if (auto transpose = dyn_cast_or_null<TransposeOp>(op)) {
      SmallVector<int64_t> inner(places.size());
      for (auto [d, source] : llvm::enumerate(transpose.getPerm()))
        inner[source] = places[d];
      if (auto a = of(transpose.getX(), inner); a && a->batch.empty())
        return a;
    }
    // A number for each batch, whatever it is.
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] != DimExpr(1) && places[d] != 0) {
        if (places[d] == 2)
          reason = "the places of queries come with the run";
        return std::nullopt;
      }
    return Position{0, 0, 0, {{v, 1}}};
  }

  std::optional<Position> counting(const DimExpr &size, int64_t place, int64_t first, int64_t step) {
    if (size == DimExpr(1))
      return Position{0, 0, DimExpr(first), {}};
    if (place == 3 && size == keys)
      return Position{step, 0, DimExpr(first), {}};
    if (place == 2 && size == queries)
      return Position{0, step, DimExpr(first), {}};
    return std::nullopt;
  }

  /// A constant whose numbers grow evenly along one dimension.
  std::optional<Position> counted(ConstantOp constant, const std::vector<DimExpr> &dims, ArrayRef<int64_t> places) {
    auto dense = dyn_cast<DenseIntElementsAttr>(constant.getValue());
    if (!dense || dense.isSplat())
      return std::nullopt;
    std::optional<size_t> along;
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] != DimExpr(1)) {
        if (along)
          return std::nullopt;
        along = d;
      }
    auto numbers = dense.getValues<APInt>();
    int64_t first = (*numbers.begin()).getSExtValue(), step = (*(numbers.begin() + 1)).getSExtValue() - first;
    int64_t expected = first;
    for (const APInt &number : numbers) {
      if (number.getSExtValue() != expected)
        return std::nullopt;
      expected += step;
    }
    return counting(dims[*along], places[*along], first, step);
  }

  DimExpr queries, keys;
};

//===- Conditions -------------------------------------------------------------===//

/// What a boolean mask says, taken apart.
struct Conditions {
  SmallVector<Value> masks;
  std::vector<Position> ends, begins; ///< key < end, key >= begin
  std::optional<Position> center;     ///< |key - center| <= reach
  int64_t reach = 0;
  Value queryDocuments, keyDocuments;
};

/// Which of [B, H, S, T] a value has more than one element along.
std::vector<bool> spreadOf(Value v) {
  std::vector<DimExpr> dims = dimsOf(v);
  std::vector<bool> spread(4, false);
  for (size_t d = 0; d < dims.size() && dims.size() <= 4; ++d)
    spread[4 - dims.size() + d] = dims[d] != DimExpr(1);
  return spread;
}

/// The keys that a constant lets through, [S, T] with sizes of 1 ahead, if those are a range that is
/// the same for all queries or moves with them. `isSeen`: of an element.
bool readConstant(AttentionOp op, Value mask, Conditions &found, function_ref<std::optional<bool>(double)> isSeen) {
  constexpr int64_t kMany = 1 << 24;
  auto constant = mask.getDefiningOp<ConstantOp>();
  auto type = constant ? dyn_cast<TensorType>(constant.getType()) : TensorType();
  auto keys = dimOf(op.getK(), 2).constant(), all = dimOf(op.getQ(), 2).constant();
  if (!type || !keys || !all || !type.hasStaticShape() || type.getNumElements() > kMany || *keys < 2 ||
      (type.getNumElements() != *keys && type.getNumElements() != *keys * *all) || type.getShape().back() != *keys)
    return false;
  auto host = hostTensorOf(constant.getValue(), type, op->getContext());
  if (!host.ok())
    return false;
  const int64_t queries = type.getNumElements() / *keys;
  std::vector<std::pair<int64_t, int64_t>> ranges; // of each query
  for (int64_t i = 0; i < queries; ++i) {
    int64_t first = *keys, last = 0, count = 0;
    for (int64_t t = 0; t < *keys; ++t) {
      std::optional<bool> seen = isSeen(host->real(i * *keys + t));
      if (!seen)
        return false;
      if (!*seen)
        continue;
      first = std::min(first, t);
      last = t + 1;
      ++count;
    }
    if (count != std::max<int64_t>(0, last - first))
      return false;
    ranges.push_back({first, last});
  }
  // A side of the range where one query shows it: the same for all, or moving with the query.
  struct Side {
    bool known = false, moves = false;
    int64_t at = 0;
    int64_t of(int64_t query, int64_t otherwise) const { return known ? at + (moves ? query : 0) : otherwise; }
  };
  auto sidesOf = [&](bool ends) {
    SmallVector<Side, 2> sides;
    for (auto [i, range] : llvm::enumerate(ranges)) {
      int64_t at = ends ? range.second : range.first;
      if (range.first >= range.second || at == (ends ? *keys : 0))
        continue;
      sides.push_back({true, false, at});
      if (queries > 1)
        sides.push_back({true, true, at - int64_t(i)});
      return sides;
    }
    sides.push_back({});
    return sides;
  };
  auto fits = [&](const Side &end, const Side &begin) {
    for (auto [i, range] : llvm::enumerate(ranges)) {
      int64_t last = std::min(*keys, end.of(i, *keys)), first = std::max<int64_t>(0, begin.of(i, 0));
      if (first >= last ? range.first < range.second : range != std::pair(first, last))
        return false;
    }
    return true;
  };
  for (const Side &end : sidesOf(true))
    for (const Side &begin : sidesOf(false))
      if (fits(end, begin)) {
        if (end.known)
          found.ends.push_back({0, end.moves, DimExpr(end.at), {}});
        if (begin.known)
          found.begins.push_back({0, begin.moves, DimExpr(begin.at), {}});
        return true;
      }
  return false;
}

class MaskReader {
public:
  MaskReader(AttentionOp op) : op(op), positions(op) {}

  void read(Value mask, Conditions &found) {
    while (auto broadcast = mask.getDefiningOp<BroadcastToOp>())
      mask = broadcast.getX();
    if (auto both = mask.getDefiningOp<AndOp>()) {
      read(both.getA(), found);
      read(both.getB(), found);
      return;
    }
    if (auto sure = numberOf(mask); sure && *sure != 0)
      return;
    if (readConstant(op, mask, found, [](double seen) { return seen != 0; }))
      return;
    bool inverse = false;
    Value inner = mask;
    while (auto no = inner.getDefiningOp<NotOp>()) {
      inner = no->getOperand(0);
      inverse = !inverse;
    }
    auto compare = inner.getDefiningOp<CompareOp>();
    if (!compare) {
      if (inner.getDefiningOp<ConstantOp>())
        stays(inner, "a constant mask stays: the keys that a query sees are no range that moves with it");
      else if (auto either = inner.getDefiningOp<OrOp>();
               either && (either.getA().getDefiningOp<CompareOp>() || either.getB().getDefiningOp<CompareOp>()))
        stays(inner, "comparisons stay a mask: one of them is enough for a key to be seen");
    }
    if (!compare || !comparison(compare, inverse, found))
      found.masks.push_back(mask);
  }

private:
  bool comparison(CompareOp compare, bool inverse, Conditions &found) {
    Value a = compare.getA(), b = compare.getB();
    if (!isa<IntegerType>(elementTypeOf(a)))
      return stays(compare, "a comparison stays a mask: it is one of floats");
    Predicate predicate = compare.getPredicate();
    if (predicate == Predicate::Eq || predicate == Predicate::Ne)
      return ((predicate == Predicate::Eq) != inverse && documents(a, b, found)) ||
             stays(compare, "a comparison stays a mask: it is not whether query and key are of one document");
    if (around(a, b, predicate, inverse, found))
      return true;
    auto pa = positions.of(a), pb = pa ? positions.of(b) : std::nullopt;
    if (!pb)
      return stays(compare, Twine("a comparison stays a mask: ") + positions.reason);
    // difference < 0 or <= 0.
    bool greater = predicate == Predicate::Gt || predicate == Predicate::Ge;
    bool equal = predicate == Predicate::Le || predicate == Predicate::Ge;
    Position difference = greater ? *pb - *pa : *pa - *pb;
    if (inverse) {
      difference = difference.times(-1);
      equal = !equal;
    }
    if (equal) // x <= 0 is x - 1 < 0
      difference.number = difference.number - DimExpr(1);
    if (difference.key == 0 && difference.query <= 0 && difference.batch.empty() && isBelowZero(difference.number))
      return true; // all queries pass
    Position rest = difference;
    rest.key = 0;
    if (difference.key == 1 && (difference.query == 0 || difference.query == -1)) {
      found.ends.push_back(rest.times(-1)); // key < -rest
      return true;
    }
    if (difference.key == -1 && (difference.query == 0 || difference.query == 1)) {
      rest.number = rest.number + DimExpr(1); // rest < key is key >= rest + 1
      found.begins.push_back(rest);
      return true;
    }
    return stays(compare, "a comparison stays a mask: it compares no key with a place that grows with the query");
  }

  /// |key - place| < number.
  bool around(Value a, Value b, Predicate predicate, bool inverse, Conditions &found) {
    bool swapped = b.getDefiningOp<AbsOp>();
    auto distance = (swapped ? b : a).getDefiningOp<AbsOp>();
    std::optional<double> number = numberOf(swapped ? a : b);
    bool lower = predicate == (swapped ? Predicate::Gt : Predicate::Lt);
    bool equal = predicate == (swapped ? Predicate::Ge : Predicate::Le);
    if (!distance || !number || !(lower || equal) || inverse || found.center)
      return false;
    auto p = positions.of(distance->getOperand(0));
    int64_t reach = int64_t(*number) - lower;
    if (!p || std::abs(p->key) != 1 || p->query != -p->key || reach < 0)
      return false;
    Position rest = *p;
    rest.key = 0;
    found.center = rest.times(-p->key);
    found.reach = reach;
    return true;
  }

  static bool isBelowZero(const DimExpr &number) {
    auto constant = number.constant();
    return constant && *constant < 0;
  }

  /// Numbers of queries and keys that are the same.
  bool documents(Value a, Value b, Conditions &found) {
    if (spreadOf(a)[3])
      std::swap(a, b);
    std::vector<bool> mine = spreadOf(a), theirs = spreadOf(b);
    if (dimsOf(a).size() > 4 || dimsOf(b).size() > 4 || mine[1] || mine[3] || theirs[1] || theirs[2] ||
        !mine[2] || !theirs[3] || found.queryDocuments || op.getQueryDocuments() ||
        elementTypeOf(a) != elementTypeOf(b))
      return false;
    found.queryDocuments = a;
    found.keyDocuments = b;
    return true;
  }

  bool stays(Value mask, const Twine &why) {
    missedRemark(mask.getLoc(), "Mask") << why.str();
    return false;
  }

  AttentionOp op;
  Positions positions;
};

//===- One element for all queries --------------------------------------------===//

/// Whether the dimension ahead of the last counts queries; else there is one element for all.
bool hasQueries(Value v) {
  std::vector<DimExpr> dims = dimsOf(v);
  return dims.size() >= 2 && dims[dims.size() - 2] != DimExpr(1);
}

/// A comparison of positions, which begin at 0, with a number that all of them pass.
bool isAlwaysTrue(CompareOp compare) {
  Value position = compare.getOperand(0);
  while (auto reshape = position.getDefiningOp<ReshapeOp>())
    position = reshape.getX();
  std::optional<double> number = numberOf(compare.getOperand(1));
  if (!position.getDefiningOp<IotaOp>() || !number)
    return false;
  return (compare.getPredicate() == Predicate::Ge && *number <= 0) ||
         (compare.getPredicate() == Predicate::Gt && *number < 0);
}

/// `v` with one element for all queries where each has the same, maybe of fewer dimensions; null
/// where that is not seen. Nothing is made unless `builder` is given.
Value forOneQuery(Value v, OpBuilder *builder) {
  if (!hasQueries(v))
    return v;
  Operation *op = v.getDefiningOp();
  if (!op)
    return {};
  if (auto broadcast = dyn_cast<BroadcastToOp>(op))
    return forOneQuery(broadcast.getX(), builder);
  if (auto compare = dyn_cast<CompareOp>(op); compare && isAlwaysTrue(compare)) {
    if (!builder)
      return v;
    auto one = DenseElementsAttr::get(tensorType(elementTypeOf(v), ArrayRef<int64_t>()), true);
    return ConstantOp::create(*builder, op->getLoc(), one);
  }
  if (!isClass(op, OpClass::Pointwise) || op->getNumResults() != 1 || op->getNumRegions() != 0)
    return {};
  SmallVector<Value> operands;
  std::vector<std::vector<DimExpr>> shapes;
  for (Value operand : op->getOperands()) {
    operands.push_back(forOneQuery(operand, builder));
    if (!operands.back())
      return {};
    shapes.push_back(dimsOf(operands.back()));
  }
  if (!builder)
    return v;
  OperationState state(op->getLoc(), op->getName(), operands,
                       tensorType(elementTypeOf(v), *broadcastDims(shapes)), op->getAttrs());
  return builder->create(state)->getResult(0);
}


/// A bias or mask with one element for all queries, if each has the same; else `v`.
Value withoutQueries(Value v, const DimExpr &keys, OpBuilder &b) {
  if (!v || !hasQueries(v) || !forOneQuery(v, nullptr))
    return v;
  Location loc = v.getLoc();
  v = forOneQuery(v, &b);
  std::vector<DimExpr> dims = dimsOf(v);
  if (dims.empty() || dims.back() != keys) { // the same for all keys too
    dims.resize(std::max<size_t>(dims.size(), 1), keys);
    dims.back() = keys;
    v = BroadcastToOp::create(b, loc, tensorType(elementTypeOf(v), dims), v);
  }
  passedRemark(loc, "Mask") << "the mask is the same for all queries";
  return v;
}

//===- The pass ---------------------------------------------------------------===//

struct RecognizeMasksPass : impl::RecognizeMasksPassBase<RecognizeMasksPass> {
  void runOnOperation() override {
    getOperation().walk([](AttentionOp op) { raise(op); });
  }

private:
  static void raise(AttentionOp op) {
    OpBuilder b(op);
    takeHidden(op, b);
    DimExpr keys = dimOf(op.getK(), 2);
    Conditions found;
    auto isSeen = [](double added) -> std::optional<bool> {
      bool hidden = added == -std::numeric_limits<double>::infinity();
      return hidden || added == 0 ? std::optional(!hidden) : std::nullopt;
    };
    if (op.getBias() && readConstant(op, op.getBias(), found, isSeen))
      op.getBiasMutable().clear();
    if (op.getMask() || !found.ends.empty() || !found.begins.empty()) {
      if (op.getMask())
        MaskReader(op).read(op.getMask(), found);
      place(op, found, b);
      Value rest;
      for (Value mask : found.masks)
        rest = rest ? AndOp::create(b, op.getLoc(), rest, mask).getResult() : mask;
      set(op.getMaskMutable(), rest);
      // Boolean conditions of floats or of other dimensions may still widen it.
      set(op.getMaskMutable(), withoutQueries(op.getMask(), keys, b));
    }
    set(op.getBiasMutable(), withoutQueries(op.getBias(), keys, b));
  }

  static void set(MutableOperandRange operand, Value v) {
    if (v)
      operand.assign(v);
    else
      operand.clear();
  }

  /// A select between the bias of a key and -inf is a mask.
  static void takeHidden(AttentionOp op, OpBuilder &b) {
    constexpr double kHidden = -std::numeric_limits<double>::infinity(), kLow = -1e4;
    while (Value bias = op.getBias()) {
      while (auto broadcast = bias.getDefiningOp<BroadcastToOp>())
        bias = broadcast.getX();
      auto average = [](Operation *at) {
        missedRemark(at->getLoc(), "Mask")
            << "a bias stays as it is: it hides keys by a finite number, and a row that sees none is an "
               "average then";
      };
      if (auto mul = bias.getDefiningOp<MulOp>()) { // (1 - mask) * -1e4
        auto by = numberOf(mul.getB()) ? numberOf(mul.getB()) : numberOf(mul.getA());
        if (by && *by <= kLow)
          average(mul);
      }
      auto select = bias.getDefiningOp<SelectOp>();
      if (!select)
        return;
      auto a = numberOf(select.getA()), c = numberOf(select.getB());
      bool hides = a && *a <= kLow;
      std::optional<double> hidden = hides ? a : c;
      Value rest = hides ? select.getB() : select.getA();
      if (!hidden || *hidden > kLow)
        return;
      if (*hidden != kHidden)
        return average(select);
      Value seen = select.getCondition();
      if (hides)
        seen = NotOp::create(b, select.getLoc(), seen).getResult();
      if (op.getMask())
        seen = AndOp::create(b, op.getLoc(), op.getMask(), seen).getResult();
      op.getMaskMutable().assign(seen);
      set(op.getBiasMutable(), numberOf(rest) == 0.0 ? Value() : rest);
      passedRemark(select.getLoc(), "Mask") << "what a select hides is a mask";
    }
  }

  /// Puts what is known of positions into operands; what does not fit goes back to the masks.
  static void place(AttentionOp op, Conditions &found, OpBuilder &b) {
    if (op.getLengths() || op.getStarts() || op.getOffset() || op.endsPerQuery() || op.getWindowLeft())
      return back(op, found, withCenter(found, found.ends, true), withCenter(found, found.begins, false), b,
                  "the attention already has a range of keys");
    // The first end that grows with the query is the causal one; the first that does not is the length.
    std::optional<Position> causal, length, left, start;
    std::vector<Position> ends, begins;
    for (const Position &end : found.ends) {
      std::optional<Position> &slot = end.query ? causal : length;
      slot ? ends.push_back(end) : void(slot = end);
    }
    for (const Position &begin : found.begins) {
      std::optional<Position> &slot = begin.query ? left : start;
      slot ? begins.push_back(begin) : void(slot = begin);
    }
    if (found.center && (causal || left)) {
      ends = withCenter(found, ends, true);
      begins = withCenter(found, begins, false);
      found.center.reset();
    }
    DimExpr queries = dimOf(op.getQ(), 2), keys = dimOf(op.getK(), 2);
    // The place of the first query among the keys: what is causal ends one key behind it.
    Position last{0, 0, keys - queries, {}};
    if (length)
      last = *length + Position{0, 0, DimExpr(0) - queries, {}};
    std::optional<Position> place;
    if (causal) {
      place = *causal;
      place->query = 0;
      place->number = place->number - DimExpr(1);
    }
    std::optional<int64_t> window;
    if (found.center) {
      place = *found.center;
      place->query = 0;
      window = found.reach;
      op.setWindowRight(found.reach);
    }
    if (left) {
      Position first = *left;
      first.query = 0;
      Position back = (place ? *place : last) - first;
      window = back.isNumber() ? back.number.constant() : std::nullopt;
      if (!window && !place) {
        place = first;
        window = 0;
      }
      if (!window || *window < 0) {
        begins.push_back(*left);
        left.reset();
        window.reset();
      }
    }
    if (length)
      op.getLengthsMutable().assign(operandOf(op, *length, b));
    if (start)
      op.getStartsMutable().assign(operandOf(op, *start, b));
    Position distance = place ? *place - last : Position();
    if (place && !(distance.isNumber() && distance.number == DimExpr(0)))
      op.getOffsetMutable().assign(operandOf(op, *place, b));
    if (causal)
      op.setCausal(true);
    if (window)
      op.setWindowLeft(*window);
    if (found.queryDocuments) {
      op.getQueryDocumentsMutable().assign(withoutDims(found.queryDocuments, 2, b));
      op.getKeyDocumentsMutable().assign(withoutDims(found.keyDocuments, 3, b));
    }
    if (length || start || causal || window || found.queryDocuments)
      passedRemark(op.getLoc(), "Mask") << "the keys that a query sees are operands";
    if (!ends.empty() || !begins.empty())
      back(op, found, ends, begins, b, "there is a narrower one of its kind, or its place is another");
  }

  static std::vector<Position> withCenter(const Conditions &found, std::vector<Position> sides, bool ends) {
    if (found.center)
      sides.push_back(ends ? *found.center + Position{0, 0, DimExpr(found.reach + 1), {}}
                           : *found.center - Position{0, 0, DimExpr(found.reach), {}});
    return sides;
  }

  /// Comparisons that no operand says.
  static void back(AttentionOp op, Conditions &found, ArrayRef<Position> ends, ArrayRef<Position> begins,
                   OpBuilder &b, StringRef why) {
    auto compare = [&](const Position &with, Predicate predicate) {
      missedRemark(op.getLoc(), "Mask") << ("a comparison stays a mask: " + why).str();
      Type index = b.getI64Type();
      DimExpr queries = dimOf(op.getQ(), 2), keys = dimOf(op.getK(), 2);
      Value key = IotaOp::create(b, op.getLoc(), tensorType(index, {DimExpr(1), DimExpr(1), DimExpr(1), keys}),
                                 b.getI64IntegerAttr(3));
      Position rest = with;
      rest.query = 0;
      Value end = operandOf(op, rest, b, /*rank=*/4);
      if (with.query) {
        Value query = IotaOp::create(
            b, op.getLoc(), tensorType(index, {DimExpr(1), DimExpr(1), queries, DimExpr(1)}), b.getI64IntegerAttr(2));
        end = AddOp::create(b, op.getLoc(), query, end);
      }
      found.masks.push_back(CompareOp::create(b, op.getLoc(), key, end, predicate));
    };
    for (const Position &end : ends)
      compare(end, Predicate::Lt);
    for (const Position &begin : begins)
      compare(begin, Predicate::Ge);
  }

  /// Numbers [B] (or one for all), i64; or of rank 4, [B, 1, 1, 1].
  static Value operandOf(AttentionOp op, const Position &p, OpBuilder &b, int64_t rank = 1) {
    Type index = b.getI64Type();
    Location loc = op.getLoc();
    Value sum;
    auto add = [&](Value v) { sum = sum ? AddOp::create(b, loc, sum, v).getResult() : v; };
    for (auto [value, factor] : p.batch) {
      Value v = value;
      if (elementTypeOf(v) != index)
        v = CastOp::create(b, loc, withElementType(v.getType(), index), v, true);
      std::vector<DimExpr> dims = dimsOf(v), to(rank, DimExpr(1));
      if (dims.size() == 4)
        to[0] = dims[0];
      if (dims != to)
        v = ReshapeOp::create(b, loc, tensorType(index, to), v);
      if (factor != 1)
        v = MulOp::create(b, loc, v, number(loc, DimExpr(factor), b));
      add(v);
    }
    if (!sum || p.number != DimExpr(0))
      add(number(loc, p.number, b));
    return sum;
  }
  static Value number(Location loc, const DimExpr &dim, OpBuilder &b) {
    auto type = tensorType(b.getI64Type(), ArrayRef<int64_t>());
    if (auto constant = dim.constant())
      return ConstantOp::create(b, loc, DenseElementsAttr::get(type, b.getI64IntegerAttr(*constant)));
    return DimValueOp::create(b, loc, type, b.getArrayAttr(DimAttr::get(b.getContext(), dim)));
  }

  /// [B, 1, S, 1] or [B, 1, 1, T] as [B, S] or [B, T].
  static Value withoutDims(Value v, int64_t place, OpBuilder &b) {
    std::vector<DimExpr> dims = dimsOf(v), to;
    int64_t first = 4 - int64_t(dims.size());
    to.push_back(first == 0 ? dims[0] : DimExpr(1));
    to.push_back(dims[place - first]);
    return dims == to ? v : ReshapeOp::create(b, v.getLoc(), tensorType(elementTypeOf(v), to), v).getResult();
  }
};

} // namespace

} // namespace lathe
