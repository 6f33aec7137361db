//===- SkeletonConv.cpp - convolutions ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills conv.cuh, conv_groups.cuh, conv_group_line.cuh and conv_planes.cuh. One spatial dimension is a picture of one
// row. A volume is a picture for each plane of its results, whose channels are those of the volume in each plane of the
// window.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct Conv {
  Holes holes;
  ConvOp op;
  int64_t spatial = 2;
  bool channelsLast = false;
  Type element, accumulator;
  std::string window, sizes;

  Conv(const KernelSource &kernel, const KernelConfig &config) : holes(kernel, config) {}
  DimExpr planes = 1;   ///< of results
  int64_t tapPlanes = 1; ///< of the window
  int64_t groupChannels = 0, groupFilters = 0;

  LogicalResult build();
  void storePlanes();
  /// The index of x or y from image, channel, plane, row and column.
  Indices place(const Index &n, const Index &c, const Index &z, const Index &y,
                const Index &x) const;
  /// Image and plane of a picture of the results.
  std::pair<Index, Index> picture(Evaluator &e, Value n) const {
    return spatial == 3 ? e.ix.divRem(Index(n), planes)
                        : std::pair<Index, Index>(Index(n), Index(e.ix.cst(0)));
  }
  Value pixel(Evaluator &e, Value n, Value c, Value y, Value x);
  /// Of the last two dimensions; `otherwise` where there is only the last.
  template <typename T> T at(ArrayRef<T> values, int64_t axis, T otherwise) const {
    int64_t d = axis + spatial - 2;
    return d >= 0 ? values[d] : otherwise;
  }
};

Indices Conv::place(const Index &n, const Index &c, const Index &z, const Index &y,
                    const Index &x) const {
  Indices idx{n};
  if (!channelsLast)
    idx.push_back(c);
  if (spatial == 3)
    idx.push_back(z);
  if (spatial >= 2)
    idx.push_back(y);
  idx.push_back(x);
  if (channelsLast)
    idx.push_back(c);
  return idx;
}

/// An element of a picture's channel, in its compute type; planes outside of the volume are zero.
Value Conv::pixel(Evaluator &e, Value n, Value c, Value y, Value x) {
  auto [image, z] = picture(e, n);
  if (spatial < 3)
    return e.eval(op.getX(), place(image, Index(c), z, Index(y), Index(x)));
  IndexMath &ix = e.ix;
  auto [channel, tap] = ix.divRem(Index(c), DimExpr(tapPlanes));
  Index plane = ix.add(ix.mul(z, op.getStrides()[0]), ix.mul(tap, op.getDilations()[0]));
  plane = ix.add(plane, Index(ix.cst(-op.getPads()[0])));
  Value inside = ix.cmp(arith::CmpIPredicate::ult, plane,
                        ix.dim(dimOf(op.getX(), channelsLast ? 1 : 2))); // below 0 is large
  return e.ifElse(
      inside,
      [&] { return e.eval(op.getX(), place(image, channel, plane, Index(y), Index(x))); },
      [&] { return e.constant(Evaluator::computeType(elementTypeOf(op.getX())), 0); });
}

/// What conv_planes.cuh stores by itself: a result that lies as the convolution's does.
void Conv::storePlanes() {
  Value y = op.getResult(), output = holes.kernel.body->getTerminator()->getOperand(0);
  const KernelSpec &spec = *holes.kernel.spec;
  const BufferArg &buffer = spec.buffers[spec.numInputs];
  bool plain = spec.numOutputs == 1 && holes.kernel.roles.inPlace && dimsOf(output) == dimsOf(y) && buffer.physical == buffer.dims &&
               buffer.alignment % 16 == 0;
  Type stored = Evaluator::storageType(elementTypeOf(output));
  plain = plain && stored.isIntOrFloat() && stored.getIntOrFloatBitWidth() >= element.getIntOrFloatBitWidth();
  holes.line(Twine("static constexpr bool kPlainResults = ") + (plain ? "true" : "false") + ";");
  if (!plain)
    return;
  holes.line("typedef " + Holes::typeText(stored) + " Result;");
  holes.line("LATHE_METHOD Result *results() const { return out0; }");
  holes.method(
      "result", {"n", "k", "y", "x", "sum"}, stored, 1,
      [&](Evaluator &e, ValueRange p) {
        return Holes::resultValue(e, y, place(Index(p[0]), Index(p[1]), Index(), Index(p[2]), Index(p[3])), p[4]);
      },
      accumulator);
}

LogicalResult Conv::build() {
  op = anchorOf<ConvOp>(holes.kernel);
  if (!op)
    return failure();
  spatial = op.getStrides().size();
  channelsLast = op.getLayout() == ConvLayout::ChannelsLast;
  if (spatial < 1 || spatial > 3)
    return op.emitError("CUDA text: the convolution skeletons have up to three spatial dimensions");
  std::vector<DimExpr> xd = dimsOf(op.getX()), wd = dimsOf(op.getW()), yd = dimsOf(op.getResult());
  Type xt = elementTypeOf(op.getX()), wt = elementTypeOf(op.getW());
  accumulator = Evaluator::computeType(elementTypeOf(op.getResult()));
  element = xt == wt && isa<FloatType>(xt) ? Evaluator::storageType(xt) : accumulator;
  const ConvForm &form = holes.config.form->conv;
  bool mma = form.tensorCores, depthwise = form.depthwise, direct = form.direct;
  if (form.groups && (!channelsLast || spatial > 2 || !isa<BlockArgument>(op.getX()) || !isa<BlockArgument>(op.getW())))
    return op.emitError("CUDA text: '") << holes.config.family() << "' reads images with channels last and their filters as they lie";
  if (form.planes && (channelsLast || spatial > 2 || !isa<BlockArgument>(op.getX()) || element != Evaluator::storageType(xt)))
    return op.emitError("CUDA text: '") << holes.config.family() << "' reads images with channels first as they lie";
  if (mma && !element.isF16() && !element.isBF16())
    return op.emitError("CUDA text: tensor cores take two operands of f16 or bf16");

  int64_t first = channelsLast ? 1 : 2, channel = channelsLast ? spatial + 1 : 1;
  DimExpr one(1);
  auto size = [&](const std::vector<DimExpr> &d, int64_t axis) {
    return at<DimExpr>(ArrayRef(d).drop_front(first), axis, one);
  };
  auto number = [&](ArrayRef<int64_t> v, int64_t axis, int64_t otherwise) {
    return std::to_string(at<int64_t>(v, axis, otherwise));
  };
  std::vector<DimExpr> filter(wd.begin() + 2, wd.end());
  std::string filterSizes[2];
  for (int64_t axis : {0, 1}) {
    DimExpr extent = at<DimExpr>(filter, axis, one);
    if (!extent.constant())
      return op.emitError("CUDA text: the filter's size must be known");
    filterSizes[axis] = std::to_string(*extent.constant());
  }
  if (spatial == 3) {
    if (!filter[0].constant() || depthwise)
      return op.emitError("CUDA text: '") << holes.config.family() << "' cannot take this volume";
    planes = yd[first];
    tapPlanes = *filter[0].constant();
  }
  window = "ConvWindow<" + filterSizes[0] + ", " + filterSizes[1] + ", " +
           number(op.getStrides(), 0, 1) + ", " + number(op.getStrides(), 1, 1) + ", " +
           number(op.getDilations(), 0, 1) + ", " + number(op.getDilations(), 1, 1) + ">";
  sizes = "ConvSizes{" + holes.dim(xd[0] * planes) + ", " +
          holes.dim(xd[channel] * DimExpr(tapPlanes)) + ", " +
          holes.dim(size(xd, 0)) + ", " + holes.dim(size(xd, 1)) + ", " + holes.dim(yd[channel]) +
          ", " + std::to_string(op.getGroup()) + "ll, " + holes.dim(size(yd, 0)) + ", " +
          holes.dim(size(yd, 1)) + ", " + number(op.getPads(), 0, 0) + "ll, " +
          number(op.getPads(), 1, 0) + "ll}";

  // Lanes of the epilogue run along what is contiguous in the result; a tile of a
  // product stays inside one group.
  DimExpr filters = direct ? yd[channel] : DimExpr::floorDiv(yd[channel], DimExpr(op.getGroup()));
  DimExpr contiguous = channelsLast ? filters : size(yd, 1);
  int64_t lanes = Holes::epilogueLanes(op.getResult(), contiguous,
                                       mma           ? 8
                                       : form.planes ? 1
                                       : direct      ? holes.config.lanes
                                                     : 4);
  if (direct && !form.planes && lanes != holes.config.lanes)
    return op.emitError("CUDA text: ") << holes.config.lanes << " lanes do not divide the row";

  holes.line("typedef " + Holes::typeText(element) + " Element;");
  holes.line("typedef " + Holes::typeText(accumulator) + " Acc;");
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  holes.line(Twine("static constexpr bool kChannelsLast = ") + (channelsLast ? "true" : "false") +
             ";");
  // Weights that lie as [filters][channels, window] are rows of the product.
  auto weight = dyn_cast<BlockArgument>(op.getW());
  DimExpr row = lathe::product({wd.begin() + 1, wd.end()});
  bool plain = false;
  if (weight && !direct && !channelsLast && element == Evaluator::storageType(wt)) {
    const BufferArg &buffer = holes.kernel.spec->buffers[weight.getArgNumber()];
    int64_t piece = 128 / element.getIntOrFloatBitWidth();
    plain = buffer.packing.empty() && buffer.physical == wd && buffer.alignment % 16 == 0 &&
            row.exactDiv(DimExpr(piece)).has_value();
  }
  holes.line(Twine("static constexpr bool kPlainWeights = ") + (plain ? "true" : "false") + ";");
  holes.line("LATHE_METHOD const Element *weights() const { return " +
             (plain || form.groups ? "in" + std::to_string(weight.getArgNumber()) : std::string("nullptr")) +
             "; }");
  if (form.groups || form.planes)
    holes.line("LATHE_METHOD const Element *images() const { return in" +
               std::to_string(cast<BlockArgument>(op.getX()).getArgNumber()) + "; }");
  if (form.planes)
    storePlanes();
  if (form.groups) {
    groupChannels = wd[1].constant().value_or(0);
    groupFilters = yd[channel].constant().value_or(0) / int64_t(op.getGroup());
  }
  auto convertTo = [&](Evaluator &e, Value v, Type from) {
    if (isa<FloatType>(element) && element == Evaluator::storageType(from))
      return e.toStorage(v, element);
    return widen(e, v, from, element);
  };
  if (depthwise) {
    auto vector = VectorType::get({lanes}, element);
    auto channels = [&](Evaluator &e, Value piece) {
      return Index(e.ix.mul(piece, lanes), lanes > 1 ? 1 : 0);
    };
    holes.method("loadPixels", {"n", "piece", "y", "x"}, vector, lanes,
                 [&](Evaluator &e, ValueRange p) {
                   Indices idx = place(p[0], channels(e, p[1]), Index(), p[2], p[3]);
                   return e.splat(convertTo(e, e.eval(op.getX(), idx), xt));
                 });
    holes.method("loadTaps", {"piece", "r", "s"}, vector, lanes, [&](Evaluator &e, ValueRange p) {
      Indices idx{channels(e, p[0]), Index(e.ix.cst(0))};
      if (spatial == 2)
        idx.push_back(Index(p[1]));
      idx.push_back(Index(p[2]));
      return e.splat(convertTo(e, e.eval(op.getW(), idx), wt));
    });
  }
  holes.method("loadX", {"n", "c", "y", "x"}, element, 1, [&](Evaluator &e, ValueRange p) {
    return convertTo(e, pixel(e, p[0], p[1], p[2], p[3]), xt);
  });
  holes.method("loadW", {"k", "c", "r", "s"}, element, 1, [&](Evaluator &e, ValueRange p) {
    Indices idx{Index(p[0])};
    if (spatial == 3) {
      auto [c, tap] = e.ix.divRem(Index(p[1]), DimExpr(tapPlanes));
      idx.append({c, tap});
    } else {
      idx.push_back(Index(p[1]));
    }
    if (spatial >= 2)
      idx.push_back(Index(p[2]));
    idx.push_back(Index(p[3]));
    return convertTo(e, e.eval(op.getW(), idx), wt);
  });
  holes.method(
      "write", {"n", "k", "y", "x", "acc"}, Type(), lanes,
      [&](Evaluator &e, ValueRange p) {
        // The contiguous index counts whole vectors.
        Index k(p[1]), x(p[3]);
        Index &along = channelsLast ? k : x;
        along = Index(e.ix.mul(along.base, lanes), lanes > 1 ? 1 : 0);
        auto [n, z] = picture(e, p[0]);
        Holes::storeResult(e, op.getResult(), place(n, k, z, p[2], x), p[4]);
        return Value();
      },
      accumulator);
  std::string sums = lanes > 1 ? "sums" : "sums.v[0]";
  holes.line("LATHE_METHOD void epilogue(i64 n, i64 k, i64 y, i64 x, const Vec<Acc, kLanes> &sums) "
             "const { write(n, " +
             Twine(channelsLast ? "k / kLanes, y, x, " : "k, y, x / kLanes, ") + sums + "); }");
  return success();
}

} // namespace

FailureOr<std::string> convText(const KernelSource &kernel, const KernelConfig &config) {
  Conv conv(kernel, config);
  if (failed(conv.build()))
    return failure();
  ConvText text;
  text.window = conv.window;
  text.sizes = conv.sizes;
  text.groupChannels = conv.groupChannels;
  text.groupFilters = conv.groupFilters;
  return conv.holes.text(config.form->conv.text(config, text));
}

} // namespace lathe::codegen
