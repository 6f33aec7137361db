//===- Convolution.cpp - conv and transposed conv ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Formulas.h"
#include "Windows.h"

using namespace mlir;

namespace lathe::legal {
namespace {

/// Spatial sizes of weights [outputs, channels, window...], which `kernel_shape` may state; none when symbolic.
std::optional<Ints> kernelOf(Node &n, Value w) {
  if (std::optional<Ints> stated = n.intsAttr("kernel_shape"); stated && int64_t(stated->size()) == rankOf(w) - 2)
    for (auto [i, size] : llvm::enumerate(*stated))
      n.unify(dimOf(w, 2 + int64_t(i)), DimExpr(size));
  Ints kernel;
  for (int64_t d = 2; d < rankOf(w); ++d) {
    std::optional<int64_t> size = dimOf(w, d).constant();
    if (!size)
      return std::nullopt;
    kernel.push_back(*size);
  }
  return kernel;
}

/// A convolution, without pads, whose window only the run tells: a product of the weights with what each window reads,
/// which is gathered, [N, group, channels * window, places].
Value unfolded(Node &n, Value x, Value w, const DimExpr &group, const Ints &strides, const Ints &dilations) {
  Emitter &e = n.e;
  if (!x || !w)
    return {};
  const int64_t count = rankOf(x) - 2;
  Type index = e.b.getI64Type();
  Dims outs, windows;
  for (int64_t i = 0; i < count; ++i) {
    DimExpr window = dimOf(w, 2 + i), span = (window - DimExpr(1)) * DimExpr(dilations[i]) + DimExpr(1);
    windows.push_back(window);
    outs.push_back(e.clampAtZero(DimExpr::floorDiv(dimOf(x, 2 + i) - span, strides[i]) + DimExpr(1)));
  }
  Value y = x;
  Dims gathered = {dimOf(x, 0), group, dimOf(w, 1) * product(windows), product(outs)},
       sizes = {dimOf(x, 0), dimOf(w, 0)};
  Ints order = {0, 1};
  for (int64_t i = 0; i < count; ++i) { // [..., size, ...] -> [..., places, window, ...]
    Value place = e.mul(e.iota({outs[i], DimExpr(1)}, 0, index), double(strides[i]));
    Value inside = e.mul(e.iota({windows[i]}, 0, index), double(dilations[i]));
    y = e.infer<GatherOp>(y, e.add(place, inside), uint64_t(2 + 2 * i));
    order.push_back(3 + 2 * i);
    sizes.push_back(outs[i]);
  }
  for (int64_t i = 0; i < count; ++i)
    order.push_back(2 + 2 * i);
  Value filters = e.reshape(w, {group, DimExpr::floorDiv(dimOf(w, 0), group), gathered[2]});
  return e.reshape(e.matmul(filters, e.reshape(e.transpose(y, order), gathered)), sizes);
}

/// unfolded() of an input that is padded by the attributes of the node first.
Value unfoldedConv(Node &n, Value x, Value w, int64_t group) {
  Emitter &e = n.e;
  const int64_t count = rankOf(x) - 2;
  std::optional<Window> attributes = windowOf(n, x, Ints(count, 1)); // all but what the window decides
  if (!attributes)
    return {};
  std::string mode = n.strAttr("auto_pad", "NOTSET");
  Dims low(count + 2, DimExpr(0)), high = low;
  for (int64_t i = 0; i < count; ++i) {
    low[2 + i] = attributes->pads[i];
    high[2 + i] = attributes->pads[count + i];
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      DimExpr span = (dimOf(w, 2 + i) - DimExpr(1)) * DimExpr(attributes->dilations[i]) + DimExpr(1);
      DimExpr size = dimOf(x, 2 + i), stride = DimExpr(attributes->strides[i]);
      DimExpr last = (DimExpr::ceilDiv(size, attributes->strides[i]) - DimExpr(1)) * stride;
      DimExpr total = e.clampAtZero(last + span - size);
      DimExpr half = DimExpr::floorDiv(total, 2);
      low[2 + i] = mode == "SAME_UPPER" ? half : total - half;
      high[2 + i] = total - low[2 + i];
    }
  }
  return unfolded(n, e.pad(x, e.like(x, 0), low, high, PadMode::Constant), w, group, attributes->strides,
                  attributes->dilations);
}

LogicalResult conv(Node &n) {
  Value y = convOf(n, n.in(0), n.in(1));
  if (y && n.has(2))
    y = n.e.add(y, perChannel(n.e, n.in(2), rankOf(y)));
  return n.done(y);
}

LogicalResult convInteger(Node &n) {
  Emitter &e = n.e;
  Type i32 = e.b.getI32Type();
  Value w = n.in(1), zeroX, zeroW;
  if (n.has(2))
    zeroX = e.reshape(e.cast(n.in(2), i32), {});
  if (w && n.has(3)) {
    zeroW = e.cast(n.in(3), i32);
    Dims dims(rankOf(w), DimExpr(1));
    if (zeroW && rankOf(zeroW) == 1)
      dims[0] = dimOf(zeroW, 0);
    zeroW = e.reshape(zeroW, dims);
  }
  return n.done(convOf(n, e.dequantize(n.in(0), {}, zeroX, i32), e.dequantize(w, {}, zeroW, i32)));
}

/// A transposed convolution whose windows do not overlap: every pixel becomes a tile, so it
/// is a product of pixels and then a matter of order. Channels last, where tiles are rows
/// of channels.
Value tiles(Node &n, Value x, Value w, const Ints &kernel) {
  Emitter &e = n.e;
  size_t count = kernel.size(), rank = count + 2;
  Dims xd = dimsOf(x), wd = dimsOf(w);
  // Weights [C, M, k..] -> [k.. * M, C, 1..].
  Ints toRows, toLast = {0}, apart = {0}, toFirst = {0, int64_t(rank) - 1};
  for (size_t i = 0; i < count; ++i)
    toRows.push_back(2 + i);
  toRows.insert(toRows.end(), {1, 0});
  Dims filters(rank, DimExpr(1)), split = {xd[0]}, merged = {xd[0]};
  filters[0] = wd[1];
  filters[1] = wd[0];
  for (size_t i = 0; i < count; ++i) {
    filters[0] = filters[0] * DimExpr(kernel[i]);
    toLast.push_back(2 + i);
    split.push_back(xd[2 + i]);
    merged.push_back(xd[2 + i] * DimExpr(kernel[i]));
    apart.insert(apart.end(), {int64_t(1 + i), int64_t(1 + count + i)});
    toFirst.push_back(1 + i);
  }
  toLast.push_back(1);
  split.insert(split.end(), kernel.begin(), kernel.end());
  split.push_back(wd[1]);
  merged.push_back(wd[1]);
  apart.push_back(1 + 2 * count);
  Value y = e.infer<ConvOp>(x, e.reshape(e.transpose(w, toRows), filters), Ints(count, 1),
                            Ints(2 * count, 0), Ints(count, 1), uint64_t(1),
                            ConvLayout::ChannelsFirst);
  y = e.reshape(e.transpose(e.reshape(e.transpose(y, toLast), split), apart), merged);
  return e.transpose(y, toFirst);
}

/// Transposed convolution is a convolution of the input spread out by the
/// stride, with the window flipped.
LogicalResult convTranspose(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), w = n.in(1);
  if (!x || !w)
    return failure();
  size_t rank = rankOf(x), count = rank - 2;
  if (rank < 3 || rankOf(w) != int64_t(rank))
    return n.invalid("shape", "input and weights differ in rank");
  std::optional<Ints> known = kernelOf(n, w);
  Dims kernel;
  for (size_t i = 0; i < count; ++i)
    kernel.push_back(dimOf(w, 2 + int64_t(i)));
  auto list = [&](StringRef name, size_t size, int64_t otherwise) {
    return n.intsAttr(name).value_or(Ints(size, otherwise));
  };
  Ints strides = list("strides", count, 1), dilations = list("dilations", count, 1),
       stated = list("pads", 2 * count, 0), extra = list("output_padding", count, 0);
  if (strides.size() != count || dilations.size() != count || stated.size() != 2 * count ||
      extra.size() != count)
    return n.invalid("attribute", "attributes do not match the spatial dimensions");
  Dims pads(stated.begin(), stated.end());
  std::string mode = n.strAttr("auto_pad", "NOTSET");
  std::optional<Ints> wanted = n.intsAttr("output_shape");
  if (wanted && wanted->size() == rank)
    wanted->erase(wanted->begin(), wanted->begin() + 2);
  if (wanted || mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    if (wanted && wanted->size() != count)
      return n.invalid("attribute", "output_shape has another rank than the input");
    for (size_t i = 0; i < count; ++i) {
      DimExpr span = (kernel[i] - DimExpr(1)) * DimExpr(dilations[i]) + DimExpr(1);
      DimExpr total = span + DimExpr(extra[i] - strides[i]);
      if (wanted)
        total = DimExpr(strides[i]) * (dimOf(x, 2 + int64_t(i)) - DimExpr(1)) + DimExpr(extra[i]) + span -
                DimExpr((*wanted)[i]);
      // Rounded down: a negative total adds at the end.
      DimExpr half = DimExpr::floorDiv(total, 2);
      pads[i] = mode == "SAME_UPPER" ? half : total - half;
      pads[count + i] = total - pads[i];
    }
  } else if (mode == "VALID") {
    pads.assign(2 * count, DimExpr(0));
  }
  int64_t group = n.intAttr("group", 1);
  n.unify(dimOf(x, 1), dimOf(w, 0));
  x = n.in(0), w = n.in(1);
  const DimExpr channels = dimOf(w, 0), perGroup = dimOf(w, 1);
  if (group < 1 || (channels.isConstant() && *channels.constant() % group))
    return n.invalid("shape", "channels are not divisible by the group");

  auto all = [](const auto &values, int64_t is) {
    return llvm::all_of(values, [&](const DimExpr &v) { return v == DimExpr(is); });
  };
  if (group == 1 && known && *known == strides && all(pads, 0) && all(extra, 0) && all(dilations, 1) &&
      !all(strides, 1)) {
    Value y = tiles(n, x, w, *known);
    if (y && n.has(2))
      y = e.add(y, perChannel(e, n.in(2), rank));
    return n.done(y);
  }

  // Weights [C, M/g, k..] -> [M, C/g, k..], flipped in space.
  const DimExpr outputs = DimExpr(group) * perGroup, inputs = DimExpr::floorDiv(channels, group);
  Dims split = {group, inputs, perGroup}, merged = {outputs, inputs};
  Ints perm = {0, 2, 1};
  Dims starts(rank, DimExpr(0)), sizes = {outputs, inputs};
  Ints steps(rank, 1);
  for (size_t i = 0; i < count; ++i) {
    split.push_back(kernel[i]);
    merged.push_back(kernel[i]);
    sizes.push_back(kernel[i]);
    perm.push_back(3 + i);
    starts[2 + i] = kernel[i] - DimExpr(1);
    steps[2 + i] = -1;
  }
  w = e.slice(e.reshape(e.transpose(e.reshape(w, split), perm), merged), starts, sizes, steps);

  // Input with stride - 1 zeros between elements: pad each element, crop the last.
  Dims dims = dimsOf(x), apart = {dims[0], dims[1]}, high = {0, 0}, joined = {dims[0], dims[1]};
  Dims lowPad = {0, 0}, highPad = {0, 0};
  bool spread = false;
  for (size_t i = 0; i < count; ++i) {
    apart.insert(apart.end(), {dims[2 + i], 1});
    high.insert(high.end(), {0, strides[i] - 1});
    joined.push_back(dims[2 + i] * DimExpr(strides[i]));
    spread |= strides[i] != 1;
    DimExpr reach = DimExpr(dilations[i]) * (kernel[i] - DimExpr(1));
    lowPad.push_back(reach - pads[i]);
    highPad.push_back(reach - pads[count + i] + DimExpr(extra[i] - (strides[i] - 1)));
  }
  Value zero = e.like(x, 0);
  if (spread)
    x = e.reshape(
        e.pad(e.reshape(x, apart), zero, Dims(apart.size(), DimExpr(0)), high, PadMode::Constant),
        joined);
  x = e.pad(x, zero, lowPad, highPad, PadMode::Constant);
  const bool isWhole = known && channels.isConstant() && perGroup.isConstant();
  Value y = isWhole ? e.infer<ConvOp>(x, w, Ints(count, 1), Ints(2 * count, 0), dilations, uint64_t(group),
                                      ConvLayout::ChannelsFirst)
                    : unfolded(n, x, w, group, Ints(count, 1), dilations);
  if (y && n.has(2))
    y = e.add(y, perChannel(e, n.in(2), rank));
  return n.done(y);
}

/// A convolution of each channel by itself, over what came before: the window of a place ends at it.
LogicalResult causalConv(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), w = n.in(1);
  if (!x || !w || rankOf(x) != 3 || rankOf(w) != 3 || !n.unify(dimOf(w, 1), 1) || !n.unify(dimOf(w, 0), dimOf(x, 1)))
    return n.invalid("shape", "the input is [N, C, L], the weights are [C, 1, K]");
  x = n.in(0), w = n.in(1);
  if (dimOf(w, 0).isConstant() && dimOf(w, 2).isConstant() && dimOf(x, 1).isConstant()) {
    n.useBody = true;
    return failure();
  }
  std::string activation = n.strAttr("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    return n.invalid("attribute", "activation = '" + llvm::Twine(activation) + "'");
  const DimExpr before = dimOf(w, 2) - DimExpr(1);
  Value padded;
  if (n.has(3)) {
    Value past = n.in(3);
    if (!past || rankOf(past) != 3 || !n.unify(dimOf(past, 0), dimOf(x, 0)) || !n.unify(dimOf(past, 1), dimOf(x, 1)))
      return n.invalid("shape", "the past is [N, C, K - 1]");
    n.unify(dimOf(past, 2), before);
    x = n.in(0);
    padded = e.concat({e.bind(n.in(3), {dimOf(x, 0), dimOf(x, 1), dimOf(n.in(1), 2) - DimExpr(1)}), x}, 2);
  } else {
    padded = e.pad(x, e.like(x, 0), {0, 0, before}, Dims(3, DimExpr(0)), PadMode::Constant);
  }
  w = n.in(1);
  Value y = unfolded(n, padded, w, dimOf(w, 0), {1}, {1});
  if (y && n.has(2))
    y = e.add(y, perChannel(e, n.in(2), 3));
  if (y && activation != "none") {
    Value wide = e.cast(y, e.b.getF32Type());
    y = e.cast(e.mul(wide, e.unary<SigmoidOp>(wide)), elementTypeOf(y));
  }
  if (!padded || failed(n.done(y)))
    return failure();
  const DimExpr kept = dimOf(w, 2) - DimExpr(1);
  return n.set(1, e.sliceAxis(padded, 2, dimOf(padded, 2) - kept, kept));
}

} // namespace

Value convOf(Node &n, Value x, Value w) {
  if (!x || !w)
    return {};
  if (rankOf(x) < 3 || rankOf(w) != rankOf(x))
    return n.e.fail("input and weights have ranks " + llvm::Twine(rankOf(x)) + " and " +
                    llvm::Twine(rankOf(w)));
  int64_t group = n.intAttr("group", 1);
  if (group < 1)
    return n.e.fail("group is not positive");
  n.unify(dimOf(x, 1), dimOf(w, 1) * DimExpr(group));
  std::optional<Ints> kernel = kernelOf(n, w);
  if (!kernel || (group > 1 && !dimOf(w, 1).isConstant()))
    return unfoldedConv(n, x, w, group);
  std::optional<Window> window = windowOf(n, x, *kernel);
  if (!window)
    return {};
  return n.e.infer<ConvOp>(padded(n.e, x, *window, n.e.like(x, 0)), w, window->strides, window->pads, window->dilations,
                           uint64_t(group), ConvLayout::ChannelsFirst);
}

Value channelsFirst(Emitter &e, Value x) {
  if (!x)
    return {};
  Ints perm = {0, rankOf(x) - 1};
  for (int64_t d = 1; d + 1 < rankOf(x); ++d)
    perm.push_back(d);
  return e.transpose(x, perm);
}

Value channelsLast(Emitter &e, Value x) {
  if (!x)
    return {};
  Ints perm = {0};
  for (int64_t d = 2; d < rankOf(x); ++d)
    perm.push_back(d);
  perm.push_back(1);
  return e.transpose(x, perm);
}

void addConvolutions(Handlers &h) {
  h["Conv"] = conv;
  h["CausalConvWithState"] = causalConv;
  h["ConvInteger"] = convInteger;
  h["ConvTranspose"] = convTranspose;
}

} // namespace lathe::legal
