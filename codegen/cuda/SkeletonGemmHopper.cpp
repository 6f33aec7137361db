//===- SkeletonGemmHopper.cpp - matrix products of sm_90a --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills gemm_hopper.cuh and its neighbours gemm_promoted.cuh, gemm_bsr.cuh, gemm_sparse.cuh and gemm_split.cuh, and
// gemm_mixed.cuh: operands that TMA brings, results that it stores.
//
//===----------------------------------------------------------------------===//

#include "GemmHoles.h"
#include "Wgmma.h"

#include "lathe/ir/BlockAmax.h"

using namespace mlir;

namespace lathe::codegen {

/// The holes of gemm_hopper.cuh. The roles of the spec's maps say what select has found: two are of the
/// operands, others of results that take the way through shared memory and of a residual.
LogicalResult Gemm::buildWgmma() {
  const std::vector<TensorMapArg> &maps = holes.kernel.spec->tensorMaps;
  const TensorMapArg *result = holes.kernel.spec->mapOf(TensorMapArg::Role::Result);
  StringRef nameA = multipliedName(multipliedType(/*isA=*/true)), nameB = multipliedName(multipliedType(/*isA=*/false));
  bool narrow = a.storage.getIntOrFloatBitWidth() == 8, promoted = holes.config.form->wgmma.promoted;
  if (!a.plain || !b.plain || maps.size() < 2 || nameA.empty() || nameB.empty() ||
      (!narrow && nameA != nameB) || narrow != (b.storage.getIntOrFloatBitWidth() == 8) ||
      (promoted && !(narrow && isa<FloatType>(a.storage))))
    return op.emitError("CUDA text: '")
           << holes.config.family() << "' needs two operands that tensor cores multiply, with tensor maps";
  auto truth = [](bool b) { return b ? "true" : "false"; };
  bool split = isSplit(holes.config), staged = result, swapped = isSwapped(holes.config);
  bool transposed = staged && !hasHeads() && result->dims.size() == 4;
  // The operands in the order of the instruction.
  const GemmOperand &first = swapped ? b : a, &second = swapped ? a : b;
  if (swapped && (!staged || (narrow && !form.sparse) || transposed || inPairs()))
    return op.emitError("CUDA text: '")
           << holes.config.family() << "' needs 16-bit results that TMA stores as they lie";
  if (form.packsZerosAway() && ((narrow && form.blockSparse) || !b.packed || maps.size() < (form.sparse ? 3 : 2)))
    return op.emitError("CUDA text: '")
           << holes.config.family() << "' needs sparse weights that are packed so, with tensor maps";
  bool half = promoted && !split && holes.config.tileN > 128; // of a tile's columns at a time
  holes.line(Twine("static constexpr bool kImages = false, kPair = ") + truth(inPairs()) +
             ", kBeside = " + truth(residualMap()) + ", kSwapped = " + truth(swapped) +
             ", kAmax = " + truth(roles.amax >= 0) + ";");
  holes.line("static constexpr int kPairHead = " + Twine(roles.headSize) + ";");
  if (promoted && !swapped)
    scalesOfBlocks();
  else if (scales)
    return op.emitError("CUDA text: '") << holes.config.family() << "' has no sums by blocks to scale";
  bool late = wgmmaStartsLate(holes.config, k.constant().value_or(0));
  holes.line(Twine("static constexpr bool kProgrammatic = ") + truth(holes.programmatic() && !late) +
             ", kLate = " + truth(holes.programmatic() && late) + ";");
  holes.line(Twine("static constexpr bool kBatchA = ") + truth(!form.packsZerosAway() && maps[swapped].dims.size() == 3) +
             ", kBatchB = " + truth(maps[!swapped].dims.size() == 3) + ", kStaged = " + truth(staged) +
             ", kBatched = " + truth(staged && result->dims.size() == 3) +
             ", kHeadRows = " + truth(transposed) + ";");
  if (transposed)
    holes.line("static constexpr u32 kHead = " + holes.dim(result->dims[0]) +
               ";\n  LATHE_METHOD u32 tokens() const { return (u32)(" +
               holes.dim(result->dims[1]) + "); }");
  int64_t columns = swapped ? holes.config.tileM : holes.config.tileN / (half ? 2 : 1);
  holes.line(wgmmaMethod("multiply", {.n = static_cast<int>(columns),
                                      .element = swapped ? nameB : nameA,
                                      .aAcrossK = !first.alongK(),
                                      .bAcrossK = !second.alongK(),
                                      .elementB = swapped ? nameA : nameB,
                                      .steps = form.blockSparse ? std::vector<std::pair<int, int>>{{0, 0}, {2, 2}, {4, 4}, {6, 6}}
                                                                : std::vector<std::pair<int, int>>{},
                                      .sparse = form.sparse}));
  if (form.blockSparse)
    holes.line(Twine("static constexpr bool kChecked = ") + truth(form.checksRows) + ";");
  if (form.checksRows) {
    if (holes.kernel.spec->workspaceBytes == DimExpr(0) || holes.kernel.spec->launches.size() != 2)
      return op.emitError("CUDA text: '") << holes.config.family() << "' needs a workspace and a launch ahead";
    holes.line("LATHE_METHOD const u32 *nonfinite() const { return (const u32 *)work0; }");
    operand(a, Evaluator::storageType(elementTypeOf(op.getA())));
  }
  if (form.blockSparse)
    holes.line("LATHE_METHOD const u8 *packed() const { return (const u8 *)in" + Twine(b.argument) + "; }");
  if (isStreamK(holes.config)) {
    if (holes.kernel.spec->workspaceBytes == DimExpr(0))
      return op.emitError("CUDA text: '") << holes.config.family() << "' needs a workspace";
    holes.line("LATHE_METHOD u8 *work() const { return (u8 *)work0; }");
  }
  Type stored = Evaluator::storageType(elementTypeOf(holes.kernel.body->getTerminator()->getOperand(0)));
  holes.line("typedef " + Holes::typeText(stored) + " Result;");
  if (staged) {
    if (hasHeads())
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

/// The product of weights that were widened in registers, by 16 of K or by 64.
void Gemm::multiplyWidened(Type element, bool by16) {
  holes.line(Twine("static constexpr bool kProgrammatic = ") +
             (holes.programmatic() ? "true;" : "false;"));
  std::vector<std::pair<int, int>> steps;
  if (!by16)
    steps = {{0, 0}, {0, 2}, {0, 4}, {0, 6}};
  holes.line(wgmmaMethod("multiply", {.n = static_cast<int>(holes.config.tileM),
                                      .element = multipliedName(element),
                                      .aInRegisters = true,
                                      .steps = std::move(steps)}));
}

/// The holes of gemm_mixed.cuh.
LogicalResult Gemm::buildMixed() {
  StringRef element = multipliedName(elementTypeOf(op.getA()));
  if (!a.plain || !a.alongK() || !b.plain || !b.stored || !b.alongK() ||
      holes.kernel.spec->tensorMaps.size() != 2 || (element != "bf16" && element != "f16"))
    return op.emitError("CUDA text: '") << holes.config.family()
           << "' needs weights of 8 bits that become 16, with contiguous k and tensor maps";
  multiplyWidened(elementTypeOf(op.getA()), /*by16=*/false);
  dequantizing(b);
  int64_t lanes = Holes::epilogueLanes(op.getResult(), n, 4);
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  write(lanes);
  return success();
}

/// The residual is not read from its buffer: its elements come in `residual`.
void Gemm::bindResidual(Evaluator &e, const Indices &at, Value residual) {
  Value argument = holes.kernel.body->getArgument(residualMap()->buffer);
  e.bind(argument, at, e.fromStorage(residual, elementTypeOf(argument)));
}

Value Gemm::withResidual(Evaluator &e, const Indices &at, Value residual, Value sums, bool stored) {
  bindResidual(e, at, residual);
  return Holes::resultValue(e, op.getResult(), at, sums, stored);
}

/// The method that gives two neighbouring results, or one before it is rounded where operands are
/// swapped: a thread's neighbouring sums lie in two rows there.
void Gemm::writeStaged(Type stored) {
  const bool pair = !halves[0].empty(), residual = residualMap();
  std::vector<std::string> params = {"b", "m", "pair"};
  if (pair || residual)
    params.push_back(pair ? "first" : "beside");
  params.push_back(pair ? "second" : "acc");
  Type before = pair ? accumulator : Type();
  if (residual)
    before = Evaluator::storageType(
        elementTypeOf(holes.kernel.body->getArgument(residualMap()->buffer)));
  if (isSwapped(holes.config)) {
    params[2] = "n";
    holes.method(
        "value", params, Evaluator::computeType(stored), 1,
        [&](Evaluator &e, ValueRange p) {
          Indices at = resultIndex(e, p[0], p[1], Index(p[2]));
          return residual ? withResidual(e, at, p[3], p[4], /*stored=*/false)
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
        return residual ? withResidual(e, at, p[3], p[4])
                        : Holes::resultValue(e, op.getResult(), at, p[3]);
      },
      accumulator, before);
  if (roles.amax >= 0)
    writeAmax(params, before);
}

/// The methods that give the further of two neighbours, `params` being those of `value`, and the further
/// of two such, and store that of a block.
void Gemm::writeAmax(ArrayRef<std::string> params, Type before) {
  auto amax = holes.kernel.body->getTerminator()->getOperand(roles.amax).getDefiningOp<ReduceOp>();
  const bool pair = !halves[0].empty(), residual = residualMap();
  Value wanted = blockedValue(amax);
  Type type = Evaluator::computeType(elementTypeOf(wanted));
  holes.method(
      "amax", params, type, 2,
      [&](Evaluator &e, ValueRange p) {
        Indices at = resultIndex(e, p[0], p[1], Index(e.ix.mul(p[2], 2), 1));
        Value both;
        if (pair) {
          bindHalves(e, at, p[3], p[4]);
          both = e.eval(wanted, at);
        } else {
          if (residual)
            bindResidual(e, at, p[3]);
          both = Holes::valueAt(e, op.getResult(), at, p.back(), wanted);
        }
        return e.horizontal(amax.getKind(), e.splat(both), /*isUnsigned=*/false);
      },
      accumulator, before);
  holes.line(Twine("static LATHE_METHOD f32 further(f32 a, f32 b) { return ") +
             (amax.getKind() == ReduceKind::Max ? "maximum" : "minimum") + "(a, b); }");
  holes.method(
      "storeAmax", {"row", "column", "value"}, Type(), 1,
      [&](Evaluator &e, ValueRange p) {
        e.store(p[2], e.outputValue(roles.amax), e.outputArg(roles.amax), {Index(p[0]), Index(p[1])});
        return Value();
      },
      type);
}

} // namespace lathe::codegen
