//===- SkeletonGemmHopper.cpp - matrix products of sm_90a --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills gemm_hopper.cuh and its neighbours gemm_narrow.cuh and gemm_split.cuh, and gemm_widened.cuh:
// operands that the copy engine brings, results that it stores.
//
//===----------------------------------------------------------------------===//

#include "GemmHoles.h"
#include "Wgmma.h"

#include "lathe/ir/BlockExtremes.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lathe::codegen {

/// What the product instruction calls an element type; empty: it takes none such.
static StringRef multipliedName(Type element) {
  if (auto integer = dyn_cast<IntegerType>(element); integer && integer.getWidth() == 8)
    return integer.isUnsigned() ? "u8" : "s8";
  return llvm::TypeSwitch<Type, StringRef>(element)
      .Case<BFloat16Type>([](Type) { return "bf16"; })
      .Case<Float16Type>([](Type) { return "f16"; })
      .Case<Float32Type>([](Type) { return "tf32"; })
      .Case<Float8E4M3FNType>([](Type) { return "e4m3"; })
      .Case<Float8E5M2Type>([](Type) { return "e5m2"; })
      .Default([](Type) { return ""; });
}

/// The holes of gemm_hopper.cuh. The spec's maps say what select has found: two for the
/// operands, a third where results take the way through shared memory.
LogicalResult Gemm::buildWgmma() {
  const std::vector<TensorMapArg> &maps = holes.kernel.spec->tensorMaps;
  StringRef nameA = multipliedName(elementTypeOf(op.getA())), nameB = multipliedName(elementTypeOf(op.getB()));
  bool narrow = a.storage.getIntOrFloatBitWidth() == 8, promoted = holes.config.family.ends_with("promoted");
  if (!a.plain || !b.plain || maps.size() < 2 || nameA.empty() || nameB.empty() ||
      (!narrow && nameA != nameB) || narrow != (b.storage.getIntOrFloatBitWidth() == 8) ||
      (promoted && !(narrow && isa<FloatType>(a.storage))))
    return op.emitError("CUDA text: '")
           << holes.config.family << "' needs two operands that matrix units multiply, with tensor maps";
  auto truth = [](bool b) { return b ? "true" : "false"; };
  bool split = isSplit(holes.config), staged = maps.size() >= 3, swapped = isSwapped(holes.config);
  bool turned = staged && !heads && maps[2].dims.size() == 4;
  // The operands in the order of the instruction.
  const GemmOperand &first = swapped ? b : a, &second = swapped ? a : b;
  if (swapped && (!staged || narrow || turned || inPairs()))
    return op.emitError("CUDA text: '")
           << holes.config.family << "' needs 16-bit results that the copy engine stores as they lie";
  bool half = holes.config.family == "gemm.promoted" && holes.config.tileN > 128; // of a tile's columns at a time
  holes.line(Twine("static constexpr bool kImages = false, kPair = ") + truth(inPairs()) +
             ", kBeside = " + truth(maps.size() == 4 && !heads) + ", kSwapped = " + truth(swapped) +
             ", kExtremes = " + truth(holes.kernel.spec->numOutputs == 2 && !heads) + ";");
  holes.line("static constexpr int kPairHead = " + Twine(heads ? heads->size : 0) + ";");
  bool late = wgmmaStartsLate(holes.config, k.constant().value_or(0));
  holes.line(Twine("static constexpr bool kProgrammatic = ") + truth(holes.programmatic() && !late) +
             ", kLate = " + truth(holes.programmatic() && late) + ";");
  holes.line(Twine("static constexpr bool kBatchA = ") + truth(maps[swapped].dims.size() == 3) +
             ", kBatchB = " + truth(maps[!swapped].dims.size() == 3) + ", kStaged = " + truth(staged) +
             ", kBatched = " + truth(staged && maps[2].dims.size() == 3) +
             ", kTurned = " + truth(turned) + ";");
  if (turned)
    holes.line("static constexpr u32 kHead = " + holes.dim(maps[2].dims[0]) +
               ";\n  LATHE_METHOD u32 tokens() const { return (u32)(" +
               holes.dim(maps[2].dims[1]) + "); }");
  int64_t columns = swapped ? holes.config.tileM : holes.config.tileN / (half ? 2 : 1);
  holes.line(wgmmaMethod("multiply", {.n = static_cast<int>(columns),
                                      .element = nameA,
                                      .aAcrossK = !first.alongK(),
                                      .bAcrossK = !second.alongK(),
                                      .elementB = nameB}));
  if (isShared(holes.config)) {
    if (holes.kernel.spec->workspaceBytes == DimExpr(0))
      return op.emitError("CUDA text: '") << holes.config.family << "' needs a workspace";
    holes.line("LATHE_METHOD u8 *work() const { return (u8 *)work0; }");
  }
  Type stored = Evaluator::storageType(elementTypeOf(holes.kernel.body->getTerminator()->getOperand(0)));
  holes.line("typedef " + Holes::typeText(stored) + " Result;");
  if (staged) {
    if (heads)
      writeHeads(stored);
    else
      writeStaged(stored);
    return success();
  }
  int64_t lanes = Holes::epilogueLanes(op.getResult(), n, split && !hasNeighbours() ? 4 : 2);
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  write(lanes);
  return success();
}

/// The holes of gemm_widened.cuh.
LogicalResult Gemm::buildWidened() {
  StringRef element = multipliedName(elementTypeOf(op.getA()));
  if (!a.plain || !a.alongK() || !b.plain || !b.narrow || !b.alongK() ||
      holes.kernel.spec->tensorMaps.size() != 2 || (element != "bf16" && element != "f16"))
    return op.emitError("CUDA text: '") << holes.config.family
           << "' needs weights of 8 bits that become 16, with contiguous k and tensor maps";
  holes.line(Twine("static constexpr bool kProgrammatic = ") +
             (holes.programmatic() ? "true;" : "false;"));
  holes.line(wgmmaMethod("multiply", {.n = static_cast<int>(holes.config.tileM),
                                      .element = element,
                                      .aInRegisters = true,
                                      .steps = {{0, 0}, {0, 2}, {0, 4}, {0, 6}}}));
  widening(b);
  int64_t lanes = Holes::epilogueLanes(op.getResult(), n, 4);
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  write(lanes);
  return success();
}

/// What lies beside the result is not read from its buffer but comes in `beside`.
void Gemm::bindBeside(Evaluator &e, const Indices &at, Value beside) {
  Value argument = holes.kernel.body->getArgument(holes.kernel.spec->tensorMaps[3].buffer);
  e.bind(argument, at, e.fromStorage(beside, elementTypeOf(argument)));
}

Value Gemm::besideValue(Evaluator &e, const Indices &at, Value beside, Value sums, bool stored) {
  bindBeside(e, at, beside);
  return Holes::resultValue(e, op.getResult(), at, sums, stored);
}

/// The method that gives two neighbouring results, or one before it is rounded where operands are
/// swapped: a thread's neighbouring sums lie in two rows there.
void Gemm::writeStaged(Type stored) {
  const std::vector<TensorMapArg> &maps = holes.kernel.spec->tensorMaps;
  bool pair = !halves[0].empty(), beside = maps.size() == 4;
  std::vector<std::string> params = {"b", "m", "pair"};
  if (pair || beside)
    params.push_back(pair ? "first" : "beside");
  params.push_back(pair ? "second" : "acc");
  Type before = pair ? accumulator : Type();
  if (beside)
    before = Evaluator::storageType(elementTypeOf(holes.kernel.body->getArgument(maps[3].buffer)));
  if (isSwapped(holes.config)) {
    params[2] = "n";
    holes.method(
        "value", params, accumulator, 1,
        [&](Evaluator &e, ValueRange p) {
          Indices at = resultIndex(e, p[0], p[1], Index(p[2]));
          return beside ? besideValue(e, at, p[3], p[4], /*stored=*/false)
                        : Holes::resultValue(e, op.getResult(), at, p[3], /*stored=*/false);
        },
        accumulator, before);
    return;
  }
  holes.method(
      "value", params, VectorType::get({2}, stored), 2,
      [&](Evaluator &e, ValueRange p) {
        Index column(e.ix.mul(p[2], 2), 1);
        Indices at = resultIndex(e, p[0], p[1], column);
        if (pair)
          return e.toStorage(e.splat(pairValue(e, at, p[3], p[4])), elementTypeOf(e.outputValue(0)));
        return beside ? besideValue(e, at, p[3], p[4])
                      : Holes::resultValue(e, op.getResult(), at, p[3]);
      },
      accumulator, before);
  if (holes.kernel.spec->numOutputs == 2)
    if (ReduceOp extremes = blockExtremes(holes.kernel.body->getTerminator()->getOperand(1)))
      writeExtremes(extremes, params, before);
}

/// The methods that give the further of two neighbours, `params` being those of `value`, and the further
/// of two such, and store that of a block.
void Gemm::writeExtremes(ReduceOp extremes, ArrayRef<std::string> params, Type before) {
  const bool pair = !halves[0].empty(), beside = holes.kernel.spec->tensorMaps.size() == 4;
  Value wanted = blockedValue(extremes);
  Type type = Evaluator::computeType(elementTypeOf(wanted));
  holes.method(
      "extreme", params, type, 2,
      [&](Evaluator &e, ValueRange p) {
        Indices at = resultIndex(e, p[0], p[1], Index(e.ix.mul(p[2], 2), 1));
        Value both;
        if (pair) {
          bindHalves(e, at, p[3], p[4]);
          both = e.eval(wanted, at);
        } else {
          if (beside)
            bindBeside(e, at, p[3]);
          both = Holes::valueAt(e, op.getResult(), at, p.back(), wanted);
        }
        return e.horizontal(extremes.getKind(), e.splat(both), /*isUnsigned=*/false);
      },
      accumulator, before);
  holes.line(Twine("static LATHE_METHOD f32 further(f32 a, f32 b) { return ") +
             (extremes.getKind() == ReduceKind::Max ? "maximum" : "minimum") + "(a, b); }");
  holes.method(
      "storeExtreme", {"row", "column", "value"}, Type(), 1,
      [&](Evaluator &e, ValueRange p) {
        e.store(p[2], e.outputValue(1), e.outputArg(1), {Index(p[0]), Index(p[1])});
        return Value();
      },
      type);
}

} // namespace lathe::codegen
