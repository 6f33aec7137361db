//===- AttentionScores.cpp - what becomes of products with keys --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The holes of attention that have to do with scores: scale, soft cap and mask, as one function, or
// the mask by itself where a skeleton reads it in another way: by tiles, as a row for all queries,
// or ahead, to list the keys that it lets through.
//
//===----------------------------------------------------------------------===//

#include "AttentionHoles.h"

#include "../tile/Ranges.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

/// Whether an i64 made of positions, small numbers and their sums fits into 32 bits: lengths do.
bool fitsWord(Value v, int depth = 8) {
  if (isa<BlockArgument>(v))
    return v.getType().isIndex();
  Operation *op = v.getDefiningOp();
  if (!op || depth == 0)
    return false;
  APInt number;
  if (matchPattern(v, m_ConstantInt(&number)))
    return number.abs().ult(1 << 24);
  DenseIntElementsAttr numbers;
  if (matchPattern(v, m_Constant(&numbers)))
    return llvm::all_of(numbers.getValues<APInt>(),
                        [](const APInt &n) { return n.abs().ult(1 << 24); });
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return fitsWord(select.getTrueValue(), depth - 1) && fitsWord(select.getFalseValue(), depth - 1);
  if (!isa<arith::IndexCastOp, arith::AddIOp, arith::SubIOp, vector::BroadcastOp, vector::StepOp>(
          op) &&
      !(isa<arith::MulIOp>(op) && llvm::any_of(op->getOperands(), [](Value factor) {
          APInt number;
          return matchPattern(factor, m_ConstantInt(&number)) && number.abs().ule(16);
        })))
    return false;
  return llvm::all_of(op->getOperands(), [&](Value x) { return fitsWord(x, depth - 1); });
}

/// Positions become numbers from 32 bits, and are compared by them, which takes one instruction.
void narrowPositions(func::FuncOp fn) {
  auto isLong = [](Value x) { return getElementTypeOrSelf(x.getType()).isInteger(64); };
  auto narrow = [](OpOperand &operand) {
    OpBuilder b(operand.getOwner());
    Value x = operand.get();
    Type word = b.getI32Type();
    if (auto vector = dyn_cast<VectorType>(x.getType()))
      word = vector.clone(word);
    operand.assign(arith::TruncIOp::create(b, operand.getOwner()->getLoc(), word, x));
  };
  fn.walk([&](arith::SIToFPOp op) {
    if (isLong(op.getIn()) && fitsWord(op.getIn()))
      narrow(op.getInMutable());
  });
  fn.walk([&](arith::CmpIOp op) {
    if (!isLong(op.getLhs()) || op.getPredicate() > arith::CmpIPredicate::sge || !fitsWord(op.getLhs()) || !fitsWord(op.getRhs()))
      return;
    narrow(op.getLhsMutable());
    narrow(op.getRhsMutable());
  });
}

} // namespace

/// The score of a product before a mask.
Value Attention::cappedScore(Evaluator &e, Value dot) {
  Type f = e.b.getF32Type();
  auto like = [&](double number) {
    Value c = e.constant(f, number);
    return e.isVector(dot) ? e.splat(c) : c;
  };
  Value v = e.make<arith::MulFOp>(dot, like(op.getScale().convertToDouble()));
  if (op.getSoftcap()) {
    Value cap = like(op.getSoftcap()->convertToDouble());
    Value x = e.make<arith::DivFOp>(v, cap), t;
    // An exponential of it follows: its absolute error is what counts (scoreTanh).
    if (form.tiles)
      t = func::CallOp::create(e.b, e.loc, "scoreTanh", TypeRange(f), ValueRange(x)).getResult(0);
    else
      t = e.make<math::TanhOp>(x);
    v = e.make<arith::MulFOp>(t, cap);
  }
  return v;
}

/// The score at `at` of a product; of two neighbouring keys where the evaluator has lanes.
Value Attention::score(Evaluator &e, const Indices &at, Value dot) {
  Value v = biasedScore(e, op, at, cappedScore(e, dot));
  narrowPositions(e.fn);
  return v;
}

/// Whether the query of a score sees its key, which hidesKeysInside() says something about.
Value Attention::seenAt(Evaluator &e, const Indices &at) {
  Value seen = attentionSeen(e, op, at);
  narrowPositions(e.fn);
  return seen;
}

/// The bias of a score, -inf where its key is hidden.
Value Attention::addedAt(Evaluator &e, const Indices &at) {
  Type f = e.b.getF32Type();
  Value added = attentionBias(e, op, at), seen = attentionSeen(e, op, at);
  if (!added)
    added = e.constant(f, 0.0);
  if (seen)
    added = e.select(seen, added, e.constant(f, -std::numeric_limits<double>::infinity()));
  narrowPositions(e.fn);
  return added;
}

/// Scores of a bias that is copied by tiles.
void Attention::maskHoles() {
  Type f32 = Float32Type::get(op.getContext());
  holes.method(
      "scoreWith", {"added", "dot"}, f32, 1,
      [&](Evaluator &e, ValueRange p) {
        return e.make<arith::AddFOp>(cappedScore(e, p[1]), p[0]);
      },
      f32, f32);
  holes.line(Twine("static LATHE_METHOD i32 maskHead(i32 h) { return ") +
             (sameAlong(3) ? "0" : "h") + "; }");
  holes.line(Twine("static LATHE_METHOD i32 maskBatch(i32 b) { return ") +
             (sameAlong(4) ? "0" : "b") + "; }");
}

/// Whether a key is seen and its bias is not -inf.
Value Attention::throughAt(Evaluator &e, const Indices &at) {
  Value through = attentionSeen(e, op, at);
  if (Value bias = attentionBias(e, op, at)) {
    Value hidden = e.constant(e.scalarType(bias), -std::numeric_limits<double>::infinity());
    if (e.isVector(bias))
      hidden = e.splat(hidden);
    Value finite = e.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, bias, hidden);
    if (through)
      e.unify(through, finite);
    through = through ? Value(e.make<arith::AndIOp>(through, finite)) : finite;
  }
  narrowPositions(e.fn);
  return through;
}

/// What is seen in boxes of queries and keys, as far as that can be told without looking score by score.
void Attention::boxHole() {
  constexpr int64_t kMost = 256; // a line of a tile, or as many blocks of a table
  const int64_t kLanes = holes.config.tileN % 32 ? 4 : 8; // divides a quarter of a tile's keys
  bool tells = false;
  holes.method("seenInBox", {"b", "h", "q", "lastQ", "k", "lastK"}, IntegerType::get(op.getContext(), 32), kLanes,
               [&](Evaluator &e, ValueRange p) -> Value {
                 IndexMath &ix = e.ix;
                 using P = arith::CmpIPredicate;
                 Extent queries(ix.mul(p[2], kLanes), p[3]), keys(ix.mul(p[4], kLanes), p[5]);
                 Box box{Extent(p[0]), Extent(p[1]), queries, keys};
                 std::vector<DimExpr> space = dimsOf(op.getY());
                 space[3] = dimOf(op.getK(), 2);
                 Ranges ranges(e, space[3], kMost);
                 Value no = ix.constant(e.b.getBoolAttr(false)), yes = ix.constant(e.b.getBoolAttr(true));
                 Ranges::Truth seen{yes, yes};
                 auto also = [&](Ranges::Truth more) { seen = {ranges.both(seen.all, more.all), ranges.both(seen.any, more.any)}; };
                 if (op.getMask())
                   also(ranges.truth(op.getMask(), ranges.broadcast(op.getMask(), space, box)));
                 if (Value mine = op.getQueryDocuments()) {
                   Value theirs = op.getKeyDocuments();
                   also(ranges.equal(mine, ranges.broadcast(mine, {space[0], space[2]}, {box[0], queries}), theirs,
                                     ranges.broadcast(theirs, {space[0], space[3]}, {box[0], keys})));
                 }
                 if (op.getStarts() || op.getWindowLeft()) { // later queries do not see earlier keys
                   Value first = attentionBegin(e, op, box[0].first, queries.first), last = attentionBegin(e, op, box[0].first, queries.last);
                   also({ix.cmp(P::sge, keys.first, last), ix.cmp(P::sge, keys.last, first)});
                 }
                 if (op.getBias())
                   also({no, yes});
                 tells = !IndexMath::constantOf(seen.any) || !IndexMath::constantOf(seen.all);
                 auto number = [&](int64_t n) { return e.constantInt(e.b.getI32Type(), n); };
                 return e.select(seen.all, number(1), e.select(seen.any, number(4), number(2)));
               });
  holes.line("static constexpr int kBoxLanes = " + Twine(tells ? kLanes : 0) + ";");
}

/// The holes of attention_blocks.cuh, and where the lists lie that it makes.
void Attention::listHoles() {
  boxHole();
  Type flag = IntegerType::get(op.getContext(), 1);
  int64_t lanes = Holes::epilogueLanes(op.getK(), dimOf(op.getK(), 2), 8);
  holes.line("static constexpr int kMaskLanes = " + Twine(lanes) + ";");
  Type result = lanes > 1 ? Type(VectorType::get({lanes}, flag)) : flag;
  holes.method("throughPiece", {"b", "h", "q", "piece"}, result, lanes,
               [&](Evaluator &e, ValueRange p) -> Value {
                 Index k = lanes > 1 ? Index(e.ix.mul(p[3], lanes), 1) : Index(p[3]);
                 Value through = throughAt(e, {Index(p[0]), Index(p[1]), Index(p[2]), k});
                 return lanes > 1 ? e.splat(through) : through;
               });
  holes.line(
      "LATHE_METHOD Vec<bool, kMaskLanes> through(i64 b, i64 h, i64 q, i64 piece) const { return " +
      Twine(lanes > 1 ? "throughPiece(b, h, q, piece)" : "{{throughPiece(b, h, q, piece)}}") +
      "; }");
  // Masks that are the same for all heads or batches have one list for all.
  std::string heads = sameAlong(3) ? "0" : "head", batch = sameAlong(4) ? "0" : "batch";
  std::string count = sameAlong(3) ? "1" : holes.dim(dimOf(op.getQ(), 1));
  holes.line("LATHE_METHOD const u16 *list(i64 head, i64 batch, u32 row, u32 rows, i64 keys, int "
             "tile) const {");
  // The order of tiles of queries lies ahead of the lists.
  const int64_t queries = (holes.config.threads / 128 - 1) * 64;
  const DimExpr tiles = DimExpr::ceilDiv(dimOf(op.getQ(), 2), DimExpr(queries)) * dimOf(op.getQ(), 1) * dimOf(op.getQ(), 0);
  holes.line("  return (const u16 *)(work0 + " + holes.dim(attentionOrderBytes(tiles, holes.kernel.target->smCount)) + ") + ((" +
             batch + " * " + count + " + " + heads + ") * rows + row) * attentionListSize(keys, tile);");
  holes.line("}");
  holes.line("LATHE_METHOD const u32 *order() const { return (const u32 *)work0; }");
}

/// What comes to the scores of a key where that is the same for all queries.
void Attention::keyMaskHole() {
  Type f32 = Float32Type::get(op.getContext());
  holes.method("keyMask", {"b", "h", "k"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return addedAt(e, {Index(p[0]), Index(p[1]), Index(e.ix.cst(0)), Index(p[2])});
  });
}

} // namespace lathe::codegen
