//===- SpreadConvs.cpp - convolutions of spread images ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A transposed convolution with stride s comes as a convolution of the image with
// s - 1 zeros between its pixels. Results whose positions are alike modulo s (a
// phase) meet the same taps of the window, every s-th of them, and pixels side by
// side. So all phases together are one convolution of the image as it is, with s
// filters for each one of the model, and a change of order (Shi et al., 2016, call
// it sub-pixel convolution). The windows of the phases begin at different pixels:
// the filters are as large as all of them together, and zero outside their own,
// which the attribute `lathe.parts` says.
//
//   %s = (zeros between the pixels of %x)      %t = transpose %x to channels last
//   %y = conv %s, %w : 1x8x9x9             =>  %c = conv %t, %v {lathe.parts} : 1x5x5x32
//                                              %d = order of phases %c : 1x9x9x8
//                                              %y = transpose %d to channels first
//
// Pointwise ops behind the convolution, whose other operands have one value a
// channel, are computed before the change of order. Windows that do not overlap
// come as such a convolution already, but with these ops behind.
//
//===----------------------------------------------------------------------===//
#include "SpreadConvs.h"

#include "ConvProducts.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"

#include <cstring>

using namespace mlir;

namespace lathe {
namespace {

int64_t floorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
int64_t ceilDiv(int64_t a, int64_t b) { return -floorDiv(-a, b); }

/// Along one dimension: result o is the sum over taps t of pixel i, where stride * i + t = o + pad.
struct Axis {
  int64_t stride = 1, kernel = 1, pad = 0;
  int64_t beyond = 0; ///< size of the result = stride * size of the image + beyond

  int64_t lowest(int64_t phase) const { return ceilDiv(phase + pad - kernel + 1, stride); }
  int64_t highest(int64_t phase) const { return floorDiv(phase + pad, stride); }
  /// Pixels that results of this phase meet, from that of the result on; none when lowest >
  /// highest.
  bool isEmpty(int64_t phase) const { return lowest(phase) > highest(phase); }

  int64_t first = 0, window = 1; ///< of all phases together
  bool measure() {
    bool any = false;
    int64_t last = 0;
    for (int64_t r = 0; r < stride; ++r) {
      if (isEmpty(r))
        continue;
      first = any ? std::min(first, lowest(r)) : lowest(r);
      last = any ? std::max(last, highest(r)) : highest(r);
      any = true;
    }
    window = last - first + 1;
    return any && lowPad() >= 0 && highPad() >= 0;
  }
  int64_t positions() const { return ceilDiv(beyond, stride); } ///< beyond those of the image
  int64_t lowPad() const { return -first; }
  int64_t highPad() const { return positions() + window - 1 - lowPad(); }
  /// The tap of the model's window that a phase meets at a tap of the common one; maybe outside.
  int64_t tap(int64_t phase, int64_t at) const { return phase + pad - stride * (first + at); }
};

struct Spread {
  Value x;
  Value result;     ///< the model's, channels first
  Value filters;    ///< with one for each phase already; or null
  int64_t each = 0; ///< filters of the model in a group
  SmallVector<Axis> axes;
  int64_t phases() const {
    int64_t all = 1;
    for (const Axis &a : axes)
      all *= a.stride;
    return all;
  }
};

std::optional<SmallVector<int64_t>> constants(ArrayAttr dims) {
  SmallVector<int64_t> values;
  for (Attribute dim : dims) {
    auto value = cast<DimAttr>(dim).expr().constant();
    if (!value)
      return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

/// Known amounts of zeros around a value.
bool padsWithZeros(PadOp pad) {
  return pad.getMode() == PadMode::Constant &&
         (!pad.getValue() || numberOf(pad.getValue()) == 0.0) && constants(pad.getLow()) &&
         constants(pad.getHigh());
}

bool all(ArrayRef<int64_t> values, int64_t is) {
  return llvm::all_of(values, [&](int64_t v) { return v == is; });
}

/// What the legalizer made of a transposed convolution:
/// conv(pad(reshape(pad(reshape(x), zeros behind each pixel)))).
std::optional<Spread> spreadOf(ConvOp op) {
  int64_t rank = dimsOf(op.getX()).size(), count = rank - 2;
  auto weights = cast<TensorType>(op.getW().getType());
  if (op.getLayout() != ConvLayout::ChannelsFirst || !weights.hasStaticShape() ||
      !op.getW().getDefiningOp<ConstantOp>() || !all(op.getStrides(), 1) ||
      !all(op.getDilations(), 1))
    return std::nullopt;
  SmallVector<int64_t> low(rank, 0), high(rank, 0);
  Value from = op.getX();
  if (auto border = from.getDefiningOp<PadOp>()) {
    if (!padsWithZeros(border))
      return std::nullopt;
    low = *constants(border.getLow());
    high = *constants(border.getHigh());
    from = border.getX();
  }
  auto joined = from.getDefiningOp<ReshapeOp>();
  auto zeros = joined ? joined.getX().getDefiningOp<PadOp>() : PadOp();
  auto apart = zeros ? zeros.getX().getDefiningOp<ReshapeOp>() : ReshapeOp();
  if (!apart || !padsWithZeros(zeros) || low[0] || low[1] || high[0] || high[1])
    return std::nullopt;
  Spread spread{apart.getX(), op.getY(), {}, weights.getDimSize(0) / int64_t(op.getGroup()), {}};
  std::vector<DimExpr> image = dimsOf(spread.x), pixels = dimsOf(apart.getY()), all{image};
  if (int64_t(image.size()) != rank || int64_t(pixels.size()) != rank + count ||
      !::lathe::all(*constants(zeros.getLow()), 0))
    return std::nullopt;
  SmallVector<int64_t> behind = *constants(zeros.getHigh());
  if (pixels[0] != image[0] || pixels[1] != image[1] || behind[0] || behind[1])
    return std::nullopt;
  for (int64_t d = 0; d < count; ++d) {
    if (pixels[2 + 2 * d] != image[2 + d] || pixels[3 + 2 * d] != DimExpr(1) || behind[2 + 2 * d])
      return std::nullopt;
    Axis axis;
    axis.stride = behind[3 + 2 * d] + 1;
    axis.kernel = weights.getDimSize(2 + d);
    int64_t before = low[2 + d] + op.getPads()[d];
    axis.pad = axis.kernel - 1 - before;
    axis.beyond = before + high[2 + d] + op.getPads()[count + d] - axis.kernel + 1;
    if (!axis.measure())
      return std::nullopt;
    all[2 + d] = image[2 + d] * DimExpr(axis.stride);
    spread.axes.push_back(axis);
  }
  if (dimsOf(joined.getY()) != all || spread.phases() == 1)
    return std::nullopt;
  return spread;
}

template <typename OpTy> OpTy onlyUser(Value v) {
  return v.hasOneUse() ? dyn_cast<OpTy>(*v.user_begin()) : OpTy();
}

/// What the legalizer made of windows that do not overlap: one pixel's filters for each tap, and
/// their order.
std::optional<Spread> tilesOf(ConvOp op) {
  std::vector<DimExpr> dims = dimsOf(op.getY());
  int64_t rank = dims.size(), count = rank - 2;
  for (int64_t d = 0; d < count; ++d)
    if (dimOf(op.getW(), 2 + d) != DimExpr(1))
      return std::nullopt;
  if (op.getLayout() != ConvLayout::ChannelsFirst || op.getGroup() != 1 ||
      !all(op.getStrides(), 1) || !all(op.getPads(), 0))
    return std::nullopt;
  auto last = onlyUser<TransposeOp>(op.getY());
  auto split = last ? onlyUser<ReshapeOp>(last.getY()) : ReshapeOp();
  auto order = split ? onlyUser<TransposeOp>(split.getY()) : TransposeOp();
  auto merged = order ? onlyUser<ReshapeOp>(order.getY()) : ReshapeOp();
  auto first = merged ? onlyUser<TransposeOp>(merged.getY()) : TransposeOp();
  if (!first || last.getPerm() != ArrayRef(channelsToLast(rank)) ||
      first.getPerm() != ArrayRef(inversePermutation(channelsToLast(rank))))
    return std::nullopt;
  std::vector<DimExpr> parts = dimsOf(split.getY()), whole = dimsOf(merged.getY());
  if (int64_t(parts.size()) != rank + count || int64_t(whole.size()) != rank ||
      !parts.back().isConstant())
    return std::nullopt;
  Spread spread{op.getX(), first.getY(), op.getW(), *parts.back().constant(), {}};
  SmallVector<int64_t> perm{0};
  bool same = parts[0] == dims[0] && whole[0] == dims[0] && whole.back() == parts.back();
  for (int64_t d = 0; d < count; ++d) {
    auto size = parts[1 + count + d].constant();
    same &= size && parts[1 + d] == dims[2 + d] &&
            whole[1 + d] == dims[2 + d] * DimExpr(size.value_or(0));
    perm.append({1 + d, 1 + count + d});
    Axis axis;
    axis.stride = axis.kernel = size.value_or(1);
    spread.axes.push_back(axis);
  }
  perm.push_back(1 + 2 * count);
  if (!same || order.getPerm() != ArrayRef(perm) ||
      dims[1] != DimExpr(spread.phases() * spread.each))
    return std::nullopt;
  return spread;
}

/// Calls `body` with each index of these sizes, the last dimension fastest.
void forEachIndex(ArrayRef<int64_t> sizes, llvm::function_ref<void(ArrayRef<int64_t>)> body) {
  SmallVector<int64_t> at(sizes.size(), 0);
  while (true) {
    body(at);
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1])
      at[--d] = 0;
    if (d == 0)
      return;
  }
}

struct Rewriter {
  ConvOp op;
  Spread spread;
  OpBuilder b;
  int64_t groups, each, channels; ///< filters of the model and channels of a group
  SmallVector<int64_t> phases, window;

  int64_t lanes;

  Rewriter(ConvOp op, Spread s, int64_t lanes) : op(op), spread(std::move(s)), b(op), lanes(lanes) {
    groups = op.getGroup();
    each = spread.each;
    channels = cast<TensorType>(op.getW().getType()).getDimSize(1);
    for (const Axis &a : spread.axes) {
      phases.push_back(a.stride);
      window.push_back(a.window);
    }
  }

  Location loc() { return op.getLoc(); }
  Value reshape(Value v, const std::vector<DimExpr> &dims) {
    return ReshapeOp::create(b, loc(), tensorType(elementTypeOf(v), dims), v);
  }

  /// Filters [group][phase][each] with the common window. Those of the model are flipped.
  Value filters() {
    auto constant = op.getW().getDefiningOp<ConstantOp>();
    auto from = hostTensorOf(constant.getValue(), constant.getType(), b.getContext());
    std::optional<DType> dtype = dtypeOf(elementTypeOf(op.getW()));
    if (!from.ok() || !dtype || bitWidth(*dtype) < 8)
      return {};
    int64_t size = bitWidth(*dtype) / 8, taps = 1, oldTaps = 1, of = spread.phases();
    for (const Axis &a : spread.axes) {
      taps *= a.window;
      oldTaps *= a.kernel;
    }
    std::vector<int64_t> dims{groups * of * each, channels};
    dims.insert(dims.end(), window.begin(), window.end());
    HostTensor to(*dtype, dims);
    int64_t phase = 0;
    forEachIndex(phases, [&](ArrayRef<int64_t> r) {
      int64_t tap = 0;
      forEachIndex(window, [&](ArrayRef<int64_t> at) {
        int64_t old = 0;
        bool inside = true;
        for (auto [d, a] : llvm::enumerate(spread.axes)) {
          int64_t t = a.tap(r[d], at[d]);
          inside &= t >= 0 && t < a.kernel;
          old = old * a.kernel + a.kernel - 1 - t;
        }
        for (int64_t m = 0; inside && m < groups * each; ++m)
          for (int64_t c = 0; c < channels; ++c) {
            int64_t filter = (m / each * of + phase) * each + m % each;
            std::memcpy(to.data.data() + ((filter * channels + c) * taps + tap) * size,
                        from->data.data() + ((m * channels + c) * oldTaps + old) * size, size);
          }
        ++tap;
      });
      ++phase;
    });
    auto type = RankedTensorType::get(dims, elementTypeOf(op.getW()));
    auto &weights = b.getContext()->getLoadedDialect<LatheDialect>()->weights();
    return ConstantOp::create(b, loc(), constantAttr(type, to.data, weights));
  }

  /// Boxes of taps of the phases; the filters of a group lie between those of the next, so only one
  /// group has parts.
  void markParts(ConvOp conv) {
    if (groups != 1)
      return;
    SmallVector<int64_t> boxes;
    forEachIndex(phases, [&](ArrayRef<int64_t> r) {
      for (auto [d, a] : llvm::enumerate(spread.axes)) {
        bool empty = a.isEmpty(r[d]);
        boxes.push_back(empty ? 0 : a.lowest(r[d]) - a.first);
        boxes.push_back(empty ? 1 : a.highest(r[d]) - a.lowest(r[d]) + 1);
      }
    });
    conv->setAttr(kPartsAttr, b.getDenseI64ArrayAttr(boxes));
  }

  /// Whether an operand of a pointwise op over the model's result has one value, or one a channel.
  bool isPerChannel(Value operand) {
    std::vector<DimExpr> dims = dimsOf(operand);
    int64_t rank = spread.axes.size() + 2, shift = rank - int64_t(dims.size());
    for (auto [d, dim] : llvm::enumerate(dims))
      if (shift < 0 ||
          (dim != DimExpr(1) && (int64_t(d) + shift != 1 || dim != DimExpr(groups * each))))
        return false;
    return true;
  }

  /// Such an operand for the same over all phases.
  Value perPhase(Value operand) {
    std::vector<DimExpr> dims = dimsOf(operand);
    if (product(dims) == DimExpr(1))
      return dims.empty() ? operand : reshape(operand, {DimExpr(1)});
    DimExpr g(groups), of(spread.phases()), m(each);
    Value apart = reshape(operand, {g, DimExpr(1), m});
    Value wide =
        BroadcastToOp::create(b, loc(), tensorType(elementTypeOf(operand), {g, of, m}), apart);
    return reshape(wide, {g * of * m});
  }

  /// The op behind one of the model's values that is computed before the change of order, if any.
  Operation *pointwiseBehind(Value last) {
    // Vectors that are filled in part would do more work.
    if (!last.hasOneUse() || groups * spread.phases() * each < lanes)
      return nullptr;
    Operation *user = *last.user_begin();
    bool fits =
        isClass(user, OpClass::Pointwise) && user->getNumResults() == 1 &&
        dimsOf(user->getResult(0)) == dimsOf(spread.result) &&
        llvm::all_of(user->getOperands(), [&](Value v) { return v == last || isPerChannel(v); });
    return fits ? user : nullptr;
  }

  /// Clones these ops behind `y`, and gives what is behind them; `last` is the model's value there.
  Value pointwise(Value y, Value &last) {
    while (Operation *user = pointwiseBehind(last)) {
      b.setInsertionPoint(user);
      SmallVector<Value> operands;
      for (Value operand : user->getOperands())
        operands.push_back(operand == last ? y : perPhase(operand));
      Operation *clone = b.clone(*user);
      clone->setOperands(operands);
      last = user->getResult(0);
      clone->getResult(0).setType(tensorType(elementTypeOf(last), dimsOf(y)));
      y = clone->getResult(0);
    }
    return y;
  }

  /// [n, positions.., (group, phases.., each)] to the pixels of the result.
  Value inOrder(Value y, const std::vector<DimExpr> &wanted) {
    std::vector<DimExpr> dims = dimsOf(y);
    int64_t count = spread.axes.size();
    std::vector<DimExpr> split(dims.begin(), dims.end() - 1), merged{dims[0]};
    SmallVector<int64_t> perm{0};
    bool apart = groups > 1;
    if (apart)
      split.push_back(DimExpr(groups));
    for (int64_t d = 0; d < count; ++d) {
      perm.append({1 + d, int64_t(split.size())});
      split.push_back(DimExpr(phases[d]));
      merged.push_back(dims[1 + d] * DimExpr(phases[d]));
    }
    if (apart)
      perm.push_back(1 + count);
    perm.push_back(split.size());
    split.push_back(DimExpr(each));
    merged.push_back(DimExpr(groups * each));
    y = reshape(y, split);
    if (!llvm::is_sorted(perm))
      y = TransposeOp::create(b, loc(), y, perm);
    y = reshape(y, merged);
    // Positions behind the last whole group of phases.
    std::vector<DimExpr> sizes = merged;
    for (int64_t d = 0; d < count; ++d)
      if (spread.axes[d].beyond % phases[d])
        sizes[1 + d] = wanted[2 + d];
    if (sizes == merged)
      return y;
    SmallVector<Attribute> starts(sizes.size(), DimAttr::get(b.getContext(), DimExpr(0)));
    return SliceOp::create(b, loc(), tensorType(elementTypeOf(y), sizes), y, b.getArrayAttr(starts),
                           SmallVector<int64_t>(sizes.size(), 1));
  }

  void run() {
    Value w = spread.filters ? spread.filters : filters();
    if (!w)
      return;
    int64_t rank = spread.axes.size() + 2;
    SmallVector<int64_t> pads, ones(rank - 2, 1);
    for (const Axis &a : spread.axes)
      pads.push_back(a.lowPad());
    for (const Axis &a : spread.axes)
      pads.push_back(a.highPad());
    Value x = TransposeOp::create(b, loc(), spread.x, channelsToLast(rank));
    auto conv = ConvOp::create(b, loc(), x, w, ones, pads, ones, uint64_t(groups),
                               ConvLayout::ChannelsLast);
    if (!spread.filters)
      markParts(conv);
    Value last = spread.result, y = pointwise(conv.getY(), last);
    b.setInsertionPointAfterValue(last);
    y = TransposeOp::create(b, loc(), inOrder(y, dimsOf(last)),
                            inversePermutation(channelsToLast(rank)));
    last.replaceAllUsesWith(y);
    passedRemark(loc(), "SpreadConvs")
        << ("one convolution for " + std::to_string(spread.phases()) + " phases of the result");
  }
};

} // namespace

void rewriteSpreadConvs(ModuleOp module, int64_t lanes) {
  SmallVector<ConvOp> convs;
  module.walk([&](ConvOp op) { convs.push_back(op); });
  for (ConvOp op : convs) {
    if (std::optional<Spread> spread = spreadOf(op)) {
      Rewriter(op, std::move(*spread), lanes).run();
    } else if (std::optional<Spread> tiles = tilesOf(op)) {
      Rewriter rewriter(op, std::move(*tiles), lanes);
      if (rewriter.pointwiseBehind(rewriter.spread.result))
        rewriter.run();
    }
  }
}

} // namespace lathe
