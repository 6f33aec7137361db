//===- SkeletonConvHopper.cpp - convolutions of sm_90a -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills conv_hopper.cuh: a product whose rows are the pixels of all results, of 16-bit floats or integers of 8 bits.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"
#include "Wgmma.h"

#include "lathe/codegen/WindowStages.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct HopperConv {
  Holes holes;
  ConvOp op;
  int64_t spatial, filters; ///< filters of a group
  int64_t channels = 64;    ///< of a tap in a step: 128 bytes, or 64 where a step has two
  bool twoTaps = false;
  int64_t depth = 0;        ///< taps times channels, these filled to whole steps
  std::vector<DimExpr> results;
  Type element, stored, sums;
  StringRef multiplied, multipliedW; ///< the instruction's names of the operands' types

  HopperConv(const KernelSource &kernel, const KernelConfig &config) : holes(kernel, config) {}
  LogicalResult build();
  std::string window(int64_t chunks);
  std::string sizes() const;
  void product();
  void stem();
  Indices place(Evaluator &e, Value group, Value pixel, const Index &filter);
};

const char *truth(bool b) { return b ? "true" : "false"; }

LogicalResult HopperConv::build() {
  op = anchorOf<ConvOp>(holes.kernel);
  if (!op)
    return failure();
  results = dimsOf(op.getResult());
  spatial = op.getStrides().size();
  element = Evaluator::storageType(elementTypeOf(op.getX()));
  stored = Evaluator::storageType(elementTypeOf(holes.kernel.body->getTerminator()->getOperand(0)));
  std::optional<int64_t> all = results.back().constant();
  multiplied = multipliedName(elementTypeOf(op.getX()));
  multipliedW = multipliedName(elementTypeOf(op.getW()));
  const bool halves = element.isF16() || element.isBF16(), bytes = element.isInteger(8);
  if (op.getLayout() != ConvLayout::ChannelsLast || !all || spatial > 3 || !(halves || bytes) ||
      (halves ? multipliedW != multiplied : !Evaluator::storageType(elementTypeOf(op.getW())).isInteger(8)))
    return op.emitError("CUDA text: '")
           << holes.config.family() << "' needs images of f16, bf16 or integers of 8 bits with channels last";
  const std::optional<int64_t> ofGroup = dimOf(op.getW(), 1).constant();
  twoTaps = ofGroup && tapsOfStage(bytes, op.getGroup(), *ofGroup) == 2;
  if (twoTaps && isSplit(holes.config))
    return op.emitError("CUDA text: '") << holes.config.family() << "' needs more than 64 channels of 8 bits";
  channels = halves || twoTaps ? 64 : 128;
  sums = halves ? Type(Float32Type::get(op.getContext())) : Type(IntegerType::get(op.getContext(), 32));
  filters = *all / int64_t(op.getGroup());
  holes.line("typedef " + Holes::typeText(element) + " Element;");
  holes.line(Twine("typedef ") + (halves ? "f32" : "i32") + " Acc;");
  holes.line(Twine("static constexpr bool kLate = false, kProgrammatic = ") + truth(holes.programmatic()) + ";");
  return success();
}

/// Dimensions outside of the image's own have one tap.
std::string HopperConv::window(int64_t chunks) {
  std::string text = "ImageWindow<" + std::to_string(spatial) + ", " + std::to_string(chunks) + ", " + std::to_string(channels);
  for (int64_t d = spatial - 3; d < spatial; ++d) {
    int64_t axis[4] = {1, 1, 1, 0};
    if (d >= 0) {
      axis[0] = *dimOf(op.getW(), 2 + d).constant();
      axis[1] = op.getStrides()[d];
      axis[2] = op.getDilations()[d];
      axis[3] = op.getPads()[d];
    }
    text += ", ImageAxis<" + std::to_string(axis[0]) + ", " + std::to_string(axis[1]) + ", " +
            std::to_string(axis[2]) + ", " + std::to_string(axis[3]) + ">";
  }
  if (twoTaps)
    text += ", " + std::to_string(holes.config.tileM * channels);
  return text + ">";
}

std::string HopperConv::sizes() const {
  std::string text = "ImageSizes{";
  for (int64_t d = spatial - 3; d < spatial; ++d)
    text += (d > spatial - 3 ? ", " : "") +
            (d < 0 ? std::string("1u") : "(u32)" + holes.dim(results[1 + d]));
  return text + "}";
}

Indices HopperConv::place(Evaluator &e, Value group, Value pixel, const Index &filter) {
  Indices idx = delinearize(e, Index(pixel), ArrayRef(results).drop_back());
  idx.push_back(op.getGroup() == 1 ? filter : e.ix.add(Index(e.ix.mul(group, filters)), filter));
  return idx;
}

/// The holes of a product.
void HopperConv::product() {
  const TensorMapArg *residual = holes.kernel.spec->mapOf(TensorMapArg::Role::Residual);
  bool staged = holes.kernel.spec->mapOf(TensorMapArg::Role::Result), groups = op.getGroup() > 1;
  bool swapped = isSwapped(holes.config); // filters are the rows of the instruction
  holes.line("typedef " + Holes::typeText(stored) + " Result;");
  holes.line("static constexpr Operand kA = Operand::AlongK, kB = Operand::AlongK;");
  holes.line(
      Twine("static constexpr bool kImages = true, kPair = false, kAmax = false, kSwapped = ") + truth(swapped) +
      ", kBatchA = " + truth(swapped && groups) + ", kBeside = " + truth(residual) +
      ", kBatchB = " + truth(!swapped && groups) + ", kStaged = " + truth(staged) +
      ", kBatched = " + truth(staged && groups) + ", kHeadRows = false;\n  static constexpr int kPairHead = 0;");
  int64_t chunks = (*dimOf(op.getW(), 1).constant() + channels - 1) / channels;
  depth = chunks * channels;
  for (int64_t d = 0; d < spatial; ++d)
    depth *= *dimOf(op.getW(), 2 + d).constant();
  holes.line("typedef " + window(chunks) + " Window;");
  holes.line("LATHE_METHOD void loadImages(SharedAddr to, const TensorMap &map, SharedAddr bar, "
             "u32 group, "
             "u32 pixel, u32 step) const {");
  holes.line("  loadWindows<Window>(to, map, bar, " + sizes() + ", group, pixel, step);");
  holes.line("}");
  holes.line(wgmmaMethod("multiply", {.n = static_cast<int>(swapped ? holes.config.tileM : holes.config.tileN),
                                      .element = multiplied,
                                      .elementB = multipliedW}));
  bool split = isSplit(holes.config);
  int64_t lanes =
      staged ? 2 : Holes::epilogueLanes(op.getResult(), DimExpr(filters), split ? 4 : 2);
  if (staged) {
    std::vector<std::string> params = {"b", "m", swapped ? "n" : "pair"};
    Value other = residual ? holes.kernel.body->getArgument(residual->buffer) : Value();
    if (residual)
      params.push_back("beside");
    params.push_back("acc");
    // Neighbouring sums of a thread are two filters of a pixel, or of two pixels.
    holes.method(
        "value", params, swapped ? sums : Type(VectorType::get({2}, stored)), swapped ? 1 : 2,
        [&](Evaluator &e, ValueRange p) {
          Index filter = swapped ? Index(p[2]) : Index(e.ix.mul(p[2], 2), 1);
          Indices at = place(e, p[0], p[1], filter);
          if (residual)
            e.bind(other, at, e.fromStorage(p[3], elementTypeOf(other)));
          return Holes::resultValue(e, op.getResult(), at, p.back(), /*stored=*/!swapped);
        },
        sums, residual ? Evaluator::storageType(elementTypeOf(other)) : Type());
    return;
  }
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  holes.storeColumns(op.getResult(), lanes, sums,
                     [&](Evaluator &e, Value group, Value pixel, const Index &filter) {
                       return place(e, group, pixel, filter);
                     });
}

/// The holes of the first layer.
void HopperConv::stem() {
  holes.line("typedef " + Holes::typeText(stored) + " Result;");
  holes.line(wgmmaMethod("multiply", {.n = static_cast<int>(holes.config.tileN),
                                      .element = multiplied,
                                      .aInRegisters = true}));
  auto weight = cast<BlockArgument>(op.getW());
  holes.line("LATHE_METHOD const u32 *weights() const { return reinterpret_cast<const u32 *>(in" +
             Twine(weight.getArgNumber()) + "); }");
  holes.method(
      "value", {"n", "k", "y", "x", "acc"}, stored, 1,
      [&](Evaluator &e, ValueRange p) {
        return Holes::resultValue(e, op.getResult(),
                                  {Index(p[0]), Index(p[2]), Index(p[3]), Index(p[1])}, p[4]);
      },
      Float32Type::get(op.getContext()));
}

} // namespace

FailureOr<std::string> convHopperText(const KernelSource &kernel, const KernelConfig &config) {
  HopperConv conv(kernel, config);
  if (failed(conv.build()))
    return failure();
  Holes &holes = conv.holes;
  ConvText text;
  text.tma = storedByTma(*kernel.spec);
  if (config.form->conv.stem) {
    conv.stem();
    text.channels = *dimOf(conv.op.getW(), 1).constant();
    text.window = conv.window(1);
    text.images = holes.dim(conv.results[0]);
    text.sizes = conv.sizes();
    text.filters = std::to_string(conv.filters) + "u";
  } else {
    conv.product();
    text.groups = std::to_string(conv.op.getGroup()) + "ll";
    text.pixels = holes.dim(lathe::product({conv.results.begin(), conv.results.end() - 1}));
    text.filters = std::to_string(conv.filters) + "ll";
    text.depth = std::to_string(conv.depth) + "ll";
  }
  return holes.text(config.form->conv.text(config, text));
}

} // namespace lathe::codegen
