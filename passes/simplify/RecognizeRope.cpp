//===- RecognizeRope.cpp - rotary embedding from its parts ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exporters write rotary embedding as slices, products and concatenations: with all columns at once
// (rotate_half, rotate_every_two) or pair by pair (complex numbers, ONNX's function body), of halves or
// of neighbours, stacked or strided, for whole heads or a part of each. One op says it all.
//
//   %h = concat (neg (slice %x [D/2..])), (slice %x [..D/2])
//   %y = add (mul %x, %cos), (mul %h, %sin)                      =>  %y = rope %x, %cos, %sin
//
//   %f = sub (mul %a, %cos), (mul %b, %sin)     (%a, %b columns of %x)
//   %g = add (mul %a, %sin), (mul %b, %cos)
//   %y = reshape (concat (reshape %f), (reshape %g))             =>  %y = rope ... {interleaved}
//
//   %y = concat (rope (slice %x [..R])), (slice %x [R..])        =>  %y = rope %x, ... {rotary = R}
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/UnitDims.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_RECOGNIZEROPEPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Where an element of the last dimensions of a value comes from: a column of `of`, maybe negated.
struct Column {
  Value of;
  int64_t number = 0;
  bool negated = false;

  bool operator==(const Column &) const = default;
};
using Columns = std::vector<Column>;

/// Elements of the last `count` dimensions; none where they are not known or too many.
std::optional<int64_t> elementsOf(const std::vector<DimExpr> &dims, size_t count) {
  constexpr int64_t kMany = 1024;
  if (dims.size() < count)
    return std::nullopt;
  auto elements = product({dims.end() - count, dims.end()}).constant();
  return elements && *elements >= 1 && *elements <= kMany ? elements : std::nullopt;
}

Columns columnsOf(Value v, size_t inner);

/// The columns of an op that only moves or negates them; empty for any other.
Columns columnsBehind(Operation *op, size_t inner) {
  Value v = op->getResult(0);
  std::vector<DimExpr> to = dimsOf(v);
  const size_t outer = to.size() - inner;
  if (isa<NegOp>(op)) {
    Columns columns = columnsOf(op->getOperand(0), inner);
    for (Column &column : columns)
      column.negated = !column.negated;
    return columns;
  }
  if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    std::vector<DimExpr> from = dimsOf(reshape.getX());
    auto elements = elementsOf(to, inner);
    for (size_t before = 1; elements && before <= from.size(); ++before)
      if (elementsOf(from, before) == elements &&
          unitMap(ArrayRef(from).drop_back(before), ArrayRef(to).drop_back(inner)))
        return columnsOf(reshape.getX(), before);
    return {};
  }
  if (auto slice = dyn_cast<SliceOp>(op)) {
    std::vector<DimExpr> from = dimsOf(slice.getX());
    Columns all = elementsOf(from, inner) ? columnsOf(slice.getX(), inner) : Columns(), taken;
    if (all.empty())
      return {};
    std::vector<int64_t> at(1, 0); // places of what is taken
    for (size_t d = 0; d < to.size(); ++d) {
      auto start = cast<DimAttr>(slice.getStarts()[d]).expr().constant();
      int64_t step = slice.getSteps()[d];
      if (d < outer) {
        if (from[d] != to[d] || step != 1)
          return {};
        continue;
      }
      if (!start)
        return {};
      std::vector<int64_t> next;
      for (int64_t place : at)
        for (int64_t i = 0; i < *to[d].constant(); ++i)
          next.push_back(place * *from[d].constant() + *start + i * step);
      at = std::move(next);
    }
    for (int64_t place : at)
      taken.push_back(all[place]);
    return taken;
  }
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    size_t axis = concat.getAxis();
    if (axis < outer)
      return {};
    std::vector<Columns> parts;
    std::vector<int64_t> sizes; // elements of a part from the axis on
    int64_t rows = 1;
    for (size_t d = outer; d < axis; ++d)
      rows *= to[d].constant().value_or(0);
    for (Value input : concat.getInputs()) {
      if (!elementsOf(dimsOf(input), inner))
        return {};
      parts.push_back(columnsOf(input, inner));
      sizes.push_back(rows ? int64_t(parts.back().size()) / rows : 0);
      if (parts.back().empty())
        return {};
    }
    Columns joined;
    for (int64_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < parts.size(); ++i)
        joined.insert(joined.end(), parts[i].begin() + row * sizes[i],
                      parts[i].begin() + (row + 1) * sizes[i]);
    return joined;
  }
  return {};
}

/// The elements of the last `inner` dimensions, whose number is known, one after another.
Columns columnsOf(Value v, size_t inner) {
  if (Operation *op = v.getDefiningOp(); op && op->getNumResults() == 1)
    if (Columns behind = columnsBehind(op, inner); !behind.empty())
      return behind;
  Columns own;
  for (int64_t i = 0, n = elementsOf(dimsOf(v), inner).value_or(0); i < n; ++i)
    own.push_back({v, i, false});
  return own;
}
Columns lastColumns(Value v) {
  return dimsOf(v).empty() || !elementsOf(dimsOf(v), 1) ? Columns() : columnsOf(v, 1);
}

/// Whether these are columns of one value; its first column is `front`'s number and they follow it.
bool areNeighbours(const Columns &columns) {
  for (size_t i = 0; i < columns.size(); ++i)
    if (columns[i] != Column{columns[0].of, columns[0].number + int64_t(i), columns[0].negated})
      return false;
  return !columns.empty();
}

/// The other column of a pair, and whether `column` is the first of it.
std::pair<size_t, bool> pairOf(size_t column, size_t rotary, bool interleaved) {
  bool first = interleaved ? column % 2 == 0 : column < rotary / 2;
  size_t distance = interleaved ? 1 : rotary / 2;
  return {first ? column + distance : column - distance, first};
}

struct RecognizeRopePass : impl::RecognizeRopePassBase<RecognizeRopePass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<AddOp, SubOp, ConcatOp, ReshapeOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) { // in program order: parts ahead of the whole
      OpBuilder b(op);
      if (isa<AddOp, SubOp>(op))
        allColumns(op, b);
      else if (!pairs(op, b))
        if (auto concat = dyn_cast<ConcatOp>(op))
          part(concat, b);
    }
    IRRewriter rewriter(&getContext());
    (void)runRegionDCE(rewriter, getOperation()->getRegions());
  }

private:
  static void missed(Operation *op, StringRef reason) {
    missedRemark(op->getLoc(), "Rope") << ("not recognised as rotary embedding: " + reason).str();
  }

  static void replace(Operation *op, OpBuilder &b, Value x, Value cos, Value sin, int64_t rotary,
                      bool interleaved) {
    auto flag = interleaved ? b.getUnitAttr() : UnitAttr();
    auto rope = RopeOp::create(b, op->getLoc(), x.getType(), x, cos, sin, b.getI64IntegerAttr(rotary), flag);
    passedRemark(op->getLoc(), "Rope") << (interleaved ? "neighbouring columns are rotated by one op"
                                                       : "halves of heads are rotated by one op");
    op->getResult(0).replaceAllUsesWith(rope.getY());
  }

  /// Why these cannot be the angles of x; null when they can.
  static const char *whyNoAngles(Value x, Value cos, Value sin, int64_t rotary) {
    std::vector<DimExpr> c = dimsOf(cos), s = dimsOf(sin), whole = dimsOf(x);
    if (c != s)
      return "cosines and sines have different sizes";
    if (c.empty() || (c.back() != DimExpr(rotary) && c.back() != DimExpr(rotary / 2)))
      return "there is not an angle for each column or pair";
    whole.pop_back();
    c.pop_back();
    if (broadcastDims({whole, c}) != whole)
      return "the angles are larger than what they rotate";
    return nullptr;
  }

  /// x * cos + (x with the columns of each pair exchanged, one of them negated) * sin.
  static void allColumns(Operation *op, OpBuilder &b) {
    MulOp products[] = {op->getOperand(0).getDefiningOp<MulOp>(), op->getOperand(1).getDefiningOp<MulOp>()};
    if (!products[0] || !products[1])
      return;
    for (int which : {1, 0})
      for (int side : {0, 1}) {
        if (isa<SubOp>(op) && which == 0)
          continue;
        Value exchanged = products[which]->getOperand(side), sin = products[which]->getOperand(1 - side);
        Columns to = lastColumns(exchanged);
        if (to.empty() || to[0].of == exchanged || dimsOf(exchanged) != dimsOf(op->getResult(0)))
          continue;
        for (int other : {0, 1}) {
          Value x = products[1 - which]->getOperand(other), cos = products[1 - which]->getOperand(1 - other);
          Columns from = lastColumns(x);
          // The columns of x in another order.
          std::vector<int64_t> numbers;
          for (const Column &c : to)
            if (!from.empty() && c.of == from[0].of)
              numbers.push_back(c.number - from[0].number);
          llvm::sort(numbers);
          bool same = numbers.size() == from.size() && dimsOf(x) == dimsOf(op->getResult(0)) &&
                      areNeighbours(from) && from != to;
          for (size_t i = 0; same && i < numbers.size(); ++i)
            same = numbers[i] == int64_t(i);
          if (!same)
            continue;
          return exchange(op, b, x, from, to, cos, sin);
        }
      }
  }

  static void exchange(Operation *op, OpBuilder &b, Value x, const Columns &from, const Columns &to, Value cos,
                       Value sin) {
    const bool less = isa<SubOp>(op);
    const size_t rotary = from.size();
    if (rotary % 2)
      return missed(op, "the number of columns is odd");
    bool moved = true, unsignedMove = true;
    for (bool interleaved : {false, true}) {
      bool fits = true;
      moved = true;
      unsignedMove = true;
      for (size_t i = 0; i < rotary; ++i) {
        auto [pair, first] = pairOf(i, rotary, interleaved);
        moved &= to[i].number == from[pair].number;
        unsignedMove &= to[i].negated == from[pair].negated;
        fits &= moved && (to[i].negated != from[pair].negated) == (first != less);
      }
      if (fits) {
        if (const char *reason = whyNoAngles(x, cos, sin, rotary))
          return missed(op, reason);
        return replace(op, b, x, cos, sin, rotary, interleaved);
      }
      if (moved)
        break;
    }
    missed(op, !moved          ? "columns change places, but not within halves or neighbours"
               : unsignedMove ? "the columns of a pair change places without a change of sign"
                              : "other columns are negated than the first of each pair");
  }

  /// A product of columns of some value and a table.
  struct Term {
    Value columns, table;
  };
  static SmallVector<Term, 2> termsOf(Value product) {
    if (auto mul = product.getDefiningOp<MulOp>())
      return {{mul.getA(), mul.getB()}, {mul.getB(), mul.getA()}};
    return {};
  }

  /// a cos - b sin and a sin + b cos, put together in the order of a and b.
  static bool pairs(Operation *op, OpBuilder &b) {
    Columns whole = lastColumns(op->getResult(0));
    if (whole.empty() || whole.size() % 2 || whole[0].of == op->getResult(0))
      return false;
    const size_t rotary = whole.size();
    for (bool interleaved : {false, true}) {
      Value f = whole[0].of, g = whole[interleaved ? 1 : rotary / 2].of;
      bool ordered = f != g;
      for (size_t i = 0; ordered && i < rotary; ++i) {
        auto [pair, first] = pairOf(i, rotary, interleaved);
        ordered = whole[i] == Column{first ? f : g, int64_t(interleaved ? i / 2 : i % (rotary / 2)), false};
      }
      auto sub = ordered ? f.getDefiningOp<SubOp>() : SubOp();
      auto add = ordered ? g.getDefiningOp<AddOp>() : AddOp();
      if (sub && add && dimsOf(f) == dimsOf(g) && rotatePairs(op, b, sub, add, rotary, interleaved))
        return true;
    }
    return false;
  }

  static bool rotatePairs(Operation *op, OpBuilder &b, SubOp sub, AddOp add, size_t rotary, bool interleaved) {
    std::vector<DimExpr> rows = dimsOf(sub.getY());
    const bool stacked = rows.back() == DimExpr(1); // [.., rotary / 2, 1]
    const size_t inner = stacked ? 2 : 1;
    bool complex = false;
    const char *reason = nullptr;
    for (Term ac : termsOf(sub.getA()))
      for (Term bs : termsOf(sub.getB()))
        for (bool swap : {false, true})
          for (Term as : termsOf(swap ? add.getB() : add.getA()))
            for (Term bc : termsOf(swap ? add.getA() : add.getB())) {
              if (as.columns != ac.columns || bc.columns != bs.columns || as.table != bs.table ||
                  bc.table != ac.table)
                continue;
              complex = true;
              if (dimsOf(ac.columns) != rows || dimsOf(bs.columns) != rows) {
                if (!reason)
                  reason = "the angles are larger than what they rotate";
                continue;
              }
              Columns first = columnsOf(ac.columns, inner), second = columnsOf(bs.columns, inner), all;
              if (first.size() != rotary / 2 || second.size() != rotary / 2) {
                reason = "there is not a column for each pair";
                continue;
              }
              for (size_t i = 0; i < rotary; ++i) {
                size_t at = interleaved ? i / 2 : i % (rotary / 2);
                all.push_back(pairOf(i, rotary, interleaved).second ? first[at] : second[at]);
              }
              if (!areNeighbours(all) || all[0].negated) {
                reason = "pairs are stored in another order than they are taken in";
                continue;
              }
              Value x = valueOf(b, op, all), cos = ac.table, sin = bs.table;
              if (stacked) {
                cos = withoutLast(b, cos);
                sin = withoutLast(b, sin);
              }
              if (!x || !cos || !sin) {
                reason = "their columns are not the last dimension of a value";
                continue;
              }
              if (const char *why = whyNoAngles(x, cos, sin, rotary)) {
                reason = why;
                continue;
              }
              replace(op, b, x, cos, sin, rotary, interleaved);
              return true;
            }
    if (complex && reason)
      missed(op, reason);
    return false;
  }

  /// The value in the result's sizes whose columns these are.
  static Value valueOf(OpBuilder &b, Operation *op, const Columns &columns) {
    std::vector<DimExpr> to = dimsOf(op->getResult(0));
    Value of = columns[0].of;
    std::vector<DimExpr> from = dimsOf(of), whole = to;
    // The base has all its columns in the last dimensions; as one they are the last of x.
    for (size_t inner = 1; inner <= from.size(); ++inner) {
      auto elements = elementsOf(from, inner);
      if (!elements || columns.back().number >= *elements ||
          !unitMap(ArrayRef(from).drop_back(inner), ArrayRef(to).drop_back()))
        continue;
      whole.back() = *elements;
      Value x = of;
      if (from != whole)
        x = ReshapeOp::create(b, op->getLoc(), tensorType(elementTypeOf(of), whole), of);
      if (whole == to)
        return x;
      SmallVector<Attribute> starts(to.size(), DimAttr::get(b.getContext(), DimExpr(0)));
      starts.back() = DimAttr::get(b.getContext(), DimExpr(columns[0].number));
      return SliceOp::create(b, op->getLoc(), op->getResult(0).getType(), x, b.getArrayAttr(starts),
                             SmallVector<int64_t>(to.size(), 1));
    }
    return {};
  }
  static Value withoutLast(OpBuilder &b, Value table) {
    std::vector<DimExpr> dims = dimsOf(table);
    if (dims.empty() || dims.back() != DimExpr(1))
      return {};
    dims.pop_back();
    return ReshapeOp::create(b, table.getLoc(), tensorType(elementTypeOf(table), dims), table);
  }

  /// Rotated columns, and those behind them as they are.
  static void part(ConcatOp op, OpBuilder &b) {
    RopeOp rope;
    Columns whole = lastColumns(op.getY());
    for (const Column &column : whole)
      if (auto made = column.of.getDefiningOp<RopeOp>(); made && !rope)
        rope = made;
    if (!rope || dimsOf(rope.getY()).size() != dimsOf(op.getY()).size())
      return;
    const size_t rotary = dimsOf(rope.getY()).back().constant().value_or(0);
    Columns before = lastColumns(rope.getX());
    if (int64_t(rope.getRotary()) != int64_t(rotary) || before.size() != rotary || whole.size() <= rotary)
      return missed(op, "a part of what is rotated already stands beside other columns");
    for (size_t i = 0; i < whole.size(); ++i) {
      bool rotated = i < rotary;
      Column wanted = rotated ? Column{rope.getY(), int64_t(i), false}
                              : Column{before[0].of, before[0].number + int64_t(i), false};
      if (whole[i] != wanted)
        return missed(op, "what stands beside the rotated columns are not those behind them");
    }
    Columns all = before;
    all.insert(all.end(), whole.begin() + rotary, whole.end());
    Value x = areNeighbours(all) && !all[0].negated ? valueOf(b, op, all) : Value();
    if (!x)
      return missed(op, "their columns are not the last dimension of a value");
    replace(op, b, x, rope.getCos(), rope.getSin(), rotary, rope.getInterleaved());
  }
};

} // namespace

} // namespace lathe
