//===- RecurrentSchedule.cpp - an LSTM or GRU on the CPU ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A unit is r rows of the batch with all their steps: the hidden state and the
// cell stay in scratch memory, and the weights, packed so that a panel holds the
// gates of W hidden units side by side, are read once a step for all rows. What
// a step adds to the accumulators is turned into the new state in registers.
// Where a launch lets several threads take a block together, each has panels of
// its own in every step, states are in common, and all meet after a step.
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct Recurrence {
  Evaluator &e;
  IndexMath &ix;
  RecurrentOp op;
  int64_t W, H, gates, unitRows;
  Type f32;
  Value weights, scratch;
  bool together;            ///< with other threads:
  Value firstPanel, panels; ///< this one's, from and to
  Value backwards; ///< one row, every other step: begins with panels that are still in the cache

  int64_t padded() const { return (H + W - 1) / W * W; }
  int64_t stateSize() const { return unitRows * padded(); }
  bool lstm() const { return gates == 4; }

  // The unit in work.
  int64_t rows = 0;
  Value firstRow, before, after, third; ///< offsets of states; of the cell or what is reset
  Index step;

  Value place(Value state, int64_t row) { return ix.add(state, row * padded()); }
  Index rowIndex(int64_t row) { return Index(ix.add(firstRow, row)); }
  Value loadState(Value state, int64_t row, Value column) {
    return e.load(scratch, f32, Index(ix.add(place(state, row), column), 1));
  }
  void storeState(Value v, Value state, int64_t row, Value column) {
    e.storeAt(v, f32, scratch, Index(ix.add(place(state, row), column), 1));
  }

  Value add(Value x, Value y) { return e.make<arith::AddFOp>(x, y); }
  Value mul(Value x, Value y) { return e.make<arith::MulFOp>(x, y); }
  Value sigmoid(Value x) {
    Value one = e.splat(e.constant(f32, 1));
    return e.make<arith::DivFOp>(one, add(one, e.make<math::ExpOp>(e.make<arith::NegFOp>(x))));
  }
  Value tanh(Value x) { return e.make<math::TanhOp>(x); }
  /// Gate g of the step's input, for W units from `column` on.
  Value input(int64_t row, int64_t g, Value column) {
    return e.splat(e.eval(op.getX(), {step, rowIndex(row), Index(ix.add(column, g * H), 1)}));
  }

  /// Products of a state with gates [first, first + count) of a panel: row by row, gate by gate.
  SmallVector<Value> products(Value state, Value panel, int64_t first, int64_t count) {
    constexpr int64_t kUnroll = 4;
    int64_t per = rows * count, sets = per <= 4 ? 2 : 1;
    Value base = ix.mul(panel, H * gates * W);
    auto one = [&](SmallVector<Value> sums, Value k, int64_t set) {
      Value at = ix.add(base, ix.mul(k, gates * W));
      SmallVector<Value> w;
      for (int64_t g = 0; g < count; ++g)
        w.push_back(e.load(weights, f32, Index(ix.add(at, (first + g) * W), 1)));
      for (int64_t r = 0; r < rows; ++r) {
        Value h = e.splat(e.load(scratch, f32, Index(ix.add(place(state, r), k))));
        for (int64_t g = 0; g < count; ++g) {
          Value &sum = sums[set * per + r * count + g];
          sum = e.make<math::FmaOp>(h, w[g], sum);
        }
      }
      return sums;
    };
    // Weights fill whole vectors, whatever part of the last one counts.
    Evaluator::ActiveLanes all(e, W);
    SmallVector<Value> sums(per * sets, e.splat(e.constant(f32, 0)));
    int64_t whole = H / kUnroll * kUnroll;
    if (whole)
      sums = e.loop(ix.cst(0), ix.cst(whole), ix.cst(kUnroll), sums, [&](Value k, ValueRange args) {
        SmallVector<Value> now(args);
        for (int64_t u = 0; u < kUnroll; ++u)
          now = one(now, ix.add(k, u), u % sets);
        return now;
      });
    for (int64_t k = whole; k < H; ++k)
      sums = one(sums, ix.cst(k), k % sets);
    for (int64_t i = 0; sets == 2 && i < per; ++i)
      sums[i] = add(sums[i], sums[per + i]);
    sums.resize(per);
    return sums;
  }

  void finish(Value h, int64_t row, Value column) {
    storeState(h, after, row, column);
    e.store(h, op.getOutputs()[0], e.outputArg(0), {step, rowIndex(row), Index(column, 1)});
  }

  void lstmPanel(Value panel, Value column) {
    SmallVector<Value> sums = products(before, panel, 0, 4);
    for (int64_t r = 0; r < rows; ++r) {
      auto gate = [&](int64_t g) { return add(sums[r * 4 + g], input(r, g, column)); };
      Value in = sigmoid(gate(0)), out = sigmoid(gate(1)), forget = sigmoid(gate(2));
      Value kept = mul(forget, loadState(third, r, column));
      Value c = e.make<math::FmaOp>(in, tanh(gate(3)), kept);
      storeState(c, third, r, column);
      finish(mul(out, tanh(c)), r, column);
    }
  }

  /// (1 - z) n + z h
  Value mix(Value z, Value n, Value h) {
    Value one = e.splat(e.constant(f32, 1));
    return e.make<math::FmaOp>(z, h, mul(e.make<arith::SubFOp>(one, z), n));
  }

  /// A GRU that resets behind the product: one pass.
  void gruPanel(Value panel, Value column) {
    SmallVector<Value> sums = products(before, panel, 0, 3);
    for (int64_t r = 0; r < rows; ++r) {
      Value z = sigmoid(add(sums[r * 3], input(r, 0, column)));
      Value reset = sigmoid(add(sums[r * 3 + 1], input(r, 1, column)));
      Value product = sums[r * 3 + 2];
      if (op.getBias())
        product = add(product, e.splat(e.eval(op.getBias(), {Index(column, 1)})));
      Value n = tanh(e.make<math::FmaOp>(reset, product, input(r, 2, column)));
      finish(mix(z, n, loadState(before, r, column)), r, column);
    }
  }
  /// Else r h of all units comes first; z waits in the place of the new state.
  void gruGates(Value panel, Value column) {
    SmallVector<Value> sums = products(before, panel, 0, 2);
    for (int64_t r = 0; r < rows; ++r) {
      storeState(sigmoid(add(sums[r * 2], input(r, 0, column))), after, r, column);
      Value reset = sigmoid(add(sums[r * 2 + 1], input(r, 1, column)));
      storeState(mul(reset, loadState(before, r, column)), third, r, column);
    }
  }
  void gruValues(Value panel, Value column) {
    SmallVector<Value> sums = products(third, panel, 2, 1);
    for (int64_t r = 0; r < rows; ++r) {
      Value n = tanh(add(sums[r], input(r, 2, column)));
      finish(mix(loadState(after, r, column), n, loadState(before, r, column)), r, column);
    }
  }

  void split() {
    int64_t all = padded() / W;
    firstPanel = ix.cst(0), panels = ix.cst(all);
    if (!together)
      return;
    auto split = tile::MemberOp::create(e.b, e.loc);
    Value member = split.getMember(), members = split.getMembers();
    firstPanel = ix.div(ix.mul(member, all), members);
    panels = ix.div(ix.mul(ix.add(member, 1), all), members);
  }
  void meet() {
    if (together)
      tile::MeetOp::create(e.b, e.loc);
  }

  void overPanels(llvm::function_ref<void(Value panel, Value column)> body) {
    int64_t whole = H / W;
    Value end = ix.min(panels, ix.cst(whole));
    if (whole)
      e.loop(firstPanel, end, ix.cst(1), [&](Value i) {
        Value panel = i;
        if (backwards)
          panel = ix.select(backwards, ix.sub(ix.sub(ix.add(end, firstPanel), ix.cst(1)), i), i);
        body(panel, ix.mul(panel, W));
      });
    auto last = [&] {
      Evaluator::ActiveLanes some(e, H % W);
      body(ix.cst(whole), ix.cst(whole * W));
    };
    if (H % W && together)
      e.ifThen(ix.cmp(arith::CmpIPredicate::sgt, panels, ix.cst(whole)), last);
    else if (H % W)
      last();
  }

  void unit(int64_t count, Value first) {
    rows = count;
    firstRow = first;
    third = ix.cst(2 * stateSize());
    auto load = [&](Value from, Value state) {
      overPanels([&](Value, Value column) {
        for (int64_t r = 0; r < rows; ++r)
          storeState(e.splat(e.eval(from, {rowIndex(r), Index(column, 1)})), state, r, column);
      });
    };
    load(op.getH(), ix.cst(0));
    if (lstm())
      load(op.getC(), third);
    meet();
    Value steps = ix.dim(dimOf(op.getX(), 0));
    e.loop(ix.cst(0), steps, ix.cst(1), [&](Value i) {
      step = Index(op.getReverse() ? ix.sub(ix.sub(steps, ix.cst(1)), i) : i);
      Value odd = ix.sub(i, ix.mul(ix.div(i, ix.cst(2)), 2));
      if (rows == 1) // several are bound by arithmetic, and were 7 % slower so
        backwards = ix.cmp(arith::CmpIPredicate::ne, odd, ix.cst(0));
      before = ix.mul(odd, stateSize());
      after = ix.sub(ix.cst(stateSize()), before);
      if (lstm()) {
        overPanels([&](Value panel, Value column) { lstmPanel(panel, column); });
      } else if (op.getResetLast()) {
        overPanels([&](Value panel, Value column) { gruPanel(panel, column); });
      } else {
        overPanels([&](Value panel, Value column) { gruGates(panel, column); });
        meet();
        overPanels([&](Value panel, Value column) { gruValues(panel, column); });
      }
      meet();
    });
    backwards = {};
    if (lstm())
      overPanels([&](Value, Value column) {
        for (int64_t r = 0; r < rows; ++r)
          e.store(loadState(third, r, column), op.getOutputs()[1], e.outputArg(1),
                  {rowIndex(r), Index(column, 1)});
      });
  }
};

} // namespace

void scheduleRecurrent(Evaluator &e, const KernelConfig &config) {
  auto op = e.anchor<RecurrentOp>();
  if (!op)
    return;
  IndexMath &ix = e.ix;
  auto hidden = dimOf(op.getH(), 1).constant();
  auto r = dyn_cast<BlockArgument>(op.getR());
  int64_t gates = op.getC() ? 4 : 3;
  std::string packing = "gates" + std::to_string(gates) + "x" + std::to_string(e.width);
  bool narrow = llvm::any_of(op->getOperands(),
                             [](Value v) { return !elementTypeOf(v).isF32(); });
  if (!hidden || !r || narrow || e.width < 2 || e.bufferArg(r.getArgNumber()).packing != packing) {
    e.fail(op, "needs f32, a known width and packed weights");
    return;
  }
  Recurrence all{e, ix, op, e.width, *hidden, gates, std::max<int64_t>(1, config.rows),
                 e.b.getF32Type(), e.buffer(r.getArgNumber())};
  all.together = e.kernel.spec->launches[0].cluster[1] > 1;
  all.split();
  all.scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, all.f32), 0);
  DimExpr batch = dimOf(op.getH(), 0), rows(all.unitRows);
  auto known = batch.constant();
  overBlockShare(e, DimExpr::ceilDiv(batch, rows), [&](Value u) {
    Value first = ix.mul(u, all.unitRows), end = ix.dim(batch);
    auto whole = [&] { all.unit(all.unitRows, first); };
    auto single = [&] {
      e.loop(first, ix.min(end, ix.add(first, all.unitRows)), ix.cst(1),
             [&](Value row) { all.unit(1, row); });
    };
    if (known && *known % all.unitRows == 0)
      whole();
    else if (known && *known < all.unitRows)
      single();
    else
      e.ifThen(ix.cmp(arith::CmpIPredicate::sle, ix.add(first, all.unitRows), end), whole, single);
  });
}

} // namespace lathe::codegen
