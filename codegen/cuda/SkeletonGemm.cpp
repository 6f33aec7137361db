//===- SkeletonGemm.cpp - matrix products ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills gemm.cuh, gemv.cuh, skinny.cuh and stream.cuh; what TMA brings is
// SkeletonGemmHopper.cpp's. Operands that lie in memory in rows of whole 16-byte pieces are read
// from there; others are computed element by element. Skeletons for few rows read weights of 8 or 4
// bits as they are stored, and call a hole that dequantizes a piece of them in registers
// (lathe/ir/StorageOperand.h).
//
//===----------------------------------------------------------------------===//

#include "GemmHoles.h"

using namespace mlir;

namespace lathe::codegen {

void Gemm::describe(GemmOperand &s, Value v, bool isA, bool transposed, Type element) {
  s.value = v;
  s.isA = isA;
  s.transposed = transposed;
  auto arg = dyn_cast<BlockArgument>(v);
  if (scales)
    arg = dyn_cast<BlockArgument>((isA ? scales->a : scales->b).getData());
  if (!isA && form.takesCodes)
    s.stored = storageOperand(v);
  if (s.stored) {
    arg = dyn_cast<BlockArgument>(s.stored->data());
    s.codes = 8 / s.stored->bits();
  }
  s.storage = Evaluator::storageType(elementTypeOf((s.stored || scales) && arg ? arg : v));
  if (!arg)
    return;
  s.argument = arg.getArgNumber();
  s.buffer = &holes.kernel.spec->buffers[s.argument];
  s.packed = form.packed && s.stored && !s.buffer->packing.empty();
  if (form.packsZerosAway() && !isA && !s.buffer->packing.empty()) {
    s.plain = s.packed = s.transposed = true; // whichever way the matrix was
    return;
  }
  if (form.leavesOutInputs && !isA)
    s.packed = !s.buffer->packing.empty() && s.storage == element;
  if (!s.buffer->packing.empty() || (s.storage != element && !s.stored) ||
      s.buffer->alignment % 16 != 0)
    return;
  std::vector<DimExpr> dims = dimsOf(v);
  // Folded rows need one distance between all rows.
  if (folded && isA)
    for (size_t d = 1; d + 1 < dims.size(); ++d)
      if (s.buffer->physical[d] != dims[d])
        return;
  int64_t piece = 128 / s.storage.getIntOrFloatBitWidth() * s.codes;
  // Of sizes that only a run knows the variant's guard says what its tensor maps need.
  const bool guarded = form.units == ProductForm::Units::Wgmma && holes.kernel.spec->tensorMaps.size() > 1;
  s.plain = guarded || s.buffer->physical.back().exactDiv(DimExpr(piece)).has_value();
}

Indices Gemm::operandIndex(Evaluator &e, const GemmOperand &s, Value b, const Index &row,
                           const Index &depth) {
  std::vector<DimExpr> dims = dimsOf(s.value);
  std::vector<DimExpr> outer(dims.begin(), dims.end() - 2);
  Index last = row;
  Indices out;
  if (folded && s.isA) {
    std::vector<DimExpr> rows = batch;
    rows.push_back(dimsOf(op.getResult())[batch.size()]);
    Indices split = delinearize(e, row, rows);
    last = split.pop_back_val();
    out = batchIndex(e, outer, batch, split);
  } else if (!folded) {
    out = batchIndex(e, outer, batch, delinearize(e, Index(b), batch));
  } else {
    out = Indices(outer.size(), Index(e.ix.cst(0)));
  }
  out.push_back(last);
  out.push_back(depth);
  // Stored as [.., row, k] when k is contiguous, else as [.., k, row].
  if (!s.alongK())
    std::swap(out[out.size() - 1], out[out.size() - 2]);
  return out;
}

void Gemm::operand(const GemmOperand &s, Type element) {
  MLIRContext *context = element.getContext();
  std::string name = s.name();
  if (s.plain) {
    // Where a batch begins; rows follow at a fixed distance.
    holes.method("offset" + name, {"b"}, IndexType::get(context), 1,
                 [&](Evaluator &e, ValueRange p) {
                   Index zero(e.ix.cst(0));
                   Indices idx = operandIndex(e, s, p[0], zero, zero);
                   return e.offset(s.buffer->physical, idx).base;
                 });
    std::string type = Holes::typeText(s.storage);
    std::string codes = s.codes > 1 ? " / " + std::to_string(s.codes) : "";
    holes.line("LATHE_METHOD const " + type + " *base" + name + "(i64 b) const { return in" +
               std::to_string(s.argument) + " + offset" + name + "(b)" + codes + "; }");
    holes.line("LATHE_METHOD i64 stride" + name + "() const { return " +
               holes.dim(s.buffer->physical.back()) + codes + "; }");
  }
  std::vector<std::string> params =
      s.isA ? std::vector<std::string>{"b", "m", "k"} : std::vector<std::string>{"b", "k", "n"};
  holes.method("load" + name, params, element, 1, [&](Evaluator &e, ValueRange p) {
    Indices idx = operandIndex(e, s, p[0], Index(p[s.isA ? 1 : 2]), Index(p[s.isA ? 2 : 1]));
    Value v = e.eval(s.value, idx);
    if (element == Evaluator::storageType(elementTypeOf(s.value)) && isa<FloatType>(element))
      return e.toStorage(v, element);
    return widen(e, v, elementTypeOf(s.value), element);
  });
}

/// The method that makes a piece of stored weights what the product multiplies: rounded to its
/// element type, or f32 where it multiplies in f32.
void Gemm::dequantizing(GemmOperand &s) {
  constexpr int64_t kPiece = 16, kDepth = 1;
  Value data = s.stored->data(), scale = s.stored->scaleOfSums(kDepth);
  Type element = elementTypeOf(s.value);
  if (form.widensToF32)
    element = Float32Type::get(element.getContext());
  std::string type = Holes::typeText(element);
  // Codes alone are exact in either type.
  if (s.stored->isBare(kDepth)) {
    StringRef how = elementTypeOf(data).isUnsignedInteger() ? "widenUnsigned" : "widenCodes";
    holes.line("static LATHE_METHOD Vec<" + type + ", 16> widened(i64, i64, const Vec<Weight, 16> &codes) { return " + how +
               "<" + type + ">(codes); }");
    return;
  }
  bool packed = s.codes > 1;
  holes.method(
      packed ? "dequantized" : "widened", {"n", "piece", "codes"},
      VectorType::get({kPiece}, element), kPiece,
      [&](Evaluator &e, ValueRange p) {
        Indices at = {Index(p[0]), Index(e.ix.mul(p[1], kPiece), 1)};
        Type code = elementTypeOf(data);
        e.bind(data, at, packed ? e.fromCode(p[2], code) : e.fromStorage(p[2], code));
        return e.toStorage(e.splat(dequantizedAt(e, s.stored->op, at, scale)), element);
      },
      s.storage);
  if (packed)
    holes.line("LATHE_METHOD Vec<" + type + ", 32> widened(i64 n, i64 piece, const Vec<Weight, 16> &codes) const { "
               "return joined(dequantized(n, 2 * piece, nibbles(codes, 0)), dequantized(n, 2 * piece + 1, nibbles(codes, 1))); }");
}

Type Gemm::multipliedType(bool isA) {
  if (scales)
    return elementTypeOf((isA ? scales->a : scales->b).getData());
  return elementTypeOf(isA ? op.getA() : op.getB());
}

/// The holes of block_scales.cuh.
void Gemm::scalesOfBlocks() {
  holes.line(Twine("static constexpr bool kBlockScales = ") + (scales ? "true;" : "false;"));
  if (!scales)
    return;
  Type f32 = Float32Type::get(op.getContext());
  auto scale = [&](DequantizeOp codes, Evaluator &e, const Indices &at) {
    return parameterAt(e, codes.getScale(), codes.getY(), codes.getBlock(), at, f32);
  };
  auto depth = [](Evaluator &e, Value step) { return Index(e.ix.mul(step, BlockScales::kDepth)); };
  holes.method("scaleA", {"b", "m", "step"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return scale(scales->a, e, operandIndex(e, a, p[0], Index(p[1]), depth(e, p[2])));
  });
  holes.method("scaleB", {"b", "step", "n"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return scale(scales->b, e, operandIndex(e, b, p[0], Index(p[2]), depth(e, p[1])));
  });
}

Indices Gemm::resultIndex(Evaluator &e, Value b, Value row, const Index &column) {
  Indices idx;
  if (folded) {
    std::vector<DimExpr> rows = batch;
    rows.push_back(dimsOf(op.getResult())[batch.size()]);
    idx = delinearize(e, Index(row), rows);
  } else {
    idx = delinearize(e, Index(b), batch);
    idx.push_back(Index(row));
  }
  idx.push_back(column);
  return idx;
}

static const char *kindText(const GemmOperand &s) {
  if (s.plain)
    return s.alongK() ? "Operand::AlongK" : "Operand::AcrossK";
  return s.alongK() ? "Operand::ComputedAlongK" : "Operand::ComputedAcrossK";
}

/// Results that are made of two sums have half the columns.
void Gemm::findPairs() {
  if (inPairs())
    n = *n.exactDiv(DimExpr(2));
  if (roles.pair == KernelRoles::Pair::Halves)
    for (bool second : {false, true})
      halves[second] = slicesOfHalf(op, second);
}

/// Says what the sums of both halves are at `at`.
void Gemm::bindHalves(Evaluator &e, const Indices &at, Value first, Value second) {
  for (SliceOp slice : halves[0])
    e.bind(slice.getY(), at, first);
  for (SliceOp slice : halves[1])
    e.bind(slice.getY(), at, second);
}

/// The result at `at` that follows from the sums of both halves there.
Value Gemm::pairValue(Evaluator &e, const Indices &at, Value first, Value second) {
  bindHalves(e, at, first, second);
  return e.eval(e.outputValue(0), at);
}

/// The method that stores `lanes` neighbouring results.
void Gemm::write(int64_t lanes) {
  if (inPairs()) {
    holes.method(
        "write", {"b", "m", "piece", "first", "second"}, Type(), lanes,
        [&](Evaluator &e, ValueRange p) {
          if (hasHeads()) {
            storeHeads(e, p, lanes);
            return Value();
          }
          Index column(e.ix.mul(p[2], lanes), lanes > 1 ? 1 : 0);
          Indices at = resultIndex(e, p[0], p[1], column);
          e.store(pairValue(e, at, p[3], p[4]), e.outputValue(0), e.outputArg(0), at);
          return Value();
        },
        accumulator, accumulator);
    std::string of = lanes > 1 ? "" : ".v[0]";
    holes.line("LATHE_METHOD void epilogue(i64 b, i64 m, i64 n, const Vec<Acc, kLanes> &first, const "
               "Vec<Acc, kLanes> &second) const { write(b, m, n / kLanes, first" + of + ", second" +
               of + "); }");
    return;
  }
  if (hasNeighbours()) {
    holes.method(
        "write", {"b", "m", "piece", "sums"}, Type(), lanes,
        [&](Evaluator &e, ValueRange p) {
          storeHeads(e, p, lanes);
          return Value();
        },
        accumulator);
    holes.line(
        "LATHE_METHOD void epilogue(i64 b, i64 m, i64 n, const Vec<Acc, kLanes> &sums) const { "
        "write(b, m, n / kLanes, sums); }");
    return;
  }
  const bool sumsScaled = form.packed && b.stored && b.stored->integerGroup(/*depth=*/1) > 0;
  if (Value scale = b.stored && !sumsScaled ? b.stored->scaleOfSums(/*depth=*/1) : Value()) {
    holes.method(
        "write", {"b", "m", "piece", "acc"}, Type(), lanes,
        [&](Evaluator &e, ValueRange p) {
          Index column(e.ix.mul(p[2], lanes), lanes > 1 ? 1 : 0), zero(e.ix.cst(0));
          Indices of(dimsOf(scale).size(), zero);
          if (of.size() == 2 && dimsOf(scale)[0] != DimExpr(1))
            of[0] = column;
          Value sums = p[3], factor = e.eval(scale, of);
          e.unify(sums, factor);
          Holes::storeResult(e, op.getResult(), resultIndex(e, p[0], p[1], column),
                             e.make<arith::MulFOp>(sums, factor));
          return Value();
        },
        accumulator);
    holes.line("LATHE_METHOD void epilogue(i64 b, i64 m, i64 n, const Vec<Acc, kLanes> &sums) const { "
               "write(b, m, n / kLanes, sums" + std::string(lanes > 1 ? "" : ".v[0]") + "); }");
    return;
  }
  holes.storeColumns(op.getResult(), lanes, accumulator,
                     [&](Evaluator &e, Value batch, Value row, const Index &column) {
                       return resultIndex(e, batch, row, column);
                     });
}

/// Where the next kernel may start, and where this one waits for those ahead.
void Gemm::startAndWait() {
  holes.line(std::string("static LATHE_METHOD void start() {") +
             (holes.programmatic() ? " dependentsMayStart(); }" : "}"));
  holes.line(std::string("static LATHE_METHOD void wait() {") +
             (holes.programmatic() ? " dependenciesWait(); }" : "}"));
}

/// The holes that give scales and zero points of the groups of packed weights.
void Gemm::parametersOfGroups() {
  constexpr int64_t kDepth = 1;
  StorageOperand &stored = *b.stored;
  const int64_t group = stored.integerGroup(kDepth);
  Value scale = stored.op.getScale(), zero = stored.op.getZero();
  Type f32 = Float32Type::get(op.getContext());
  auto parameter = [&](StringRef name, Value of) {
    holes.method(name, {"n", "group"}, f32, 1, [&](Evaluator &e, ValueRange p) {
      Indices at = {Index(p[0]), Index(e.ix.mul(p[1], group))};
      return parameterAt(e, of, stored.op.getY(), stored.op.getBlock(), at, f32);
    });
  };
  std::optional<double> same = zero ? splatOf(zero) : 0.0;
  holes.line("static constexpr int kGroup = " + Twine(group) + ", kZero = " + Twine(same ? int64_t(*same) : 0) +
             ";\n  static constexpr bool kZeros = " + (same ? "false;" : "true;"));
  // They are converted where they are used: who converted them where they are loaded would wait for them there.
  const DimExpr groups = DimExpr::ceilDiv(k, DimExpr(std::max<int64_t>(group, 1)));
  auto plainArgument = [&](Value v) -> std::optional<std::string> {
    auto argument = dyn_cast_or_null<BlockArgument>(v);
    const BufferArg *lies = argument ? &holes.kernel.spec->buffers[argument.getArgNumber()] : nullptr;
    if (group == 0 || !lies || !lies->packing.empty() || lies->dims != lies->physical ||
        lies->dims != std::vector<DimExpr>{n, groups})
      return std::nullopt;
    return "in" + std::to_string(argument.getArgNumber());
  };
  std::string place = "n * (u32)" + holes.dim(groups) + " + group";
  if (std::optional<std::string> in = plainArgument(scale)) {
    Type type = Evaluator::storageType(elementTypeOf(scale));
    holes.line("typedef " + Holes::typeText(type) + " Scale;\n  LATHE_METHOD Scale scaleAt(u32 n, u32 group) const { return " +
               *in + "[" + place + "]; }");
  } else {
    holes.line("typedef f32 Scale;");
    if (group > 0)
      parameter("scaleAt", scale);
  }
  std::optional<std::string> in = same ? std::nullopt : plainArgument(zero);
  if (in && elementTypeOf(zero).getIntOrFloatBitWidth() == 4) {
    const char *sign = elementTypeOf(zero).isUnsignedInteger() ? "" : " ^ 8) - (8";
    holes.line("typedef u8 Zero;\n  LATHE_METHOD Zero zeroAt(u32 n, u32 group) const { return ((const u8 *)" + *in + ")[(" +
               place + ") / 2]; }\n  LATHE_METHOD f32 zeroOf(Zero two, u32 n, u32 group) const { return (f32)(((int)two >> (" +
               place + ") % 2 * 4 & 15" + sign + ")); }");
    return;
  }
  holes.line("typedef f32 Zero;\n  LATHE_METHOD f32 zeroOf(Zero z, u32, u32) const { return z; }");
  if (!same)
    parameter("zeroAt", zero);
}

/// The holes of gemm_packed.cuh, gemm_fragments.cuh and gemm_widened.cuh.
LogicalResult Gemm::buildPacked(Type element, int64_t lanes) {
  if (!a.plain || !a.alongK() || !b.packed || !b.alongK() || b.stored->integerGroup(/*depth=*/1) < 0)
    return op.emitError("CUDA text: '") << holes.config.family()
           << "' needs integers of 4 or 8 bits that are packed as fragments, and rows of 16 bits";
  startAndWait();
  holes.line("typedef " + Holes::typeText(element) + " Element;");
  holes.line("typedef " + Holes::typeText(accumulator) + " Acc;");
  holes.line(Twine("static constexpr Operand kA = ") + kindText(a) + ";");
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ", kBits = " + Twine(b.stored->bits()) + ";");
  bool isSigned = !elementTypeOf(b.stored->data()).isUnsignedInteger();
  holes.line(Twine("static constexpr bool kSigned = ") + (isSigned ? "true;" : "false;"));
  holes.line("LATHE_METHOD const u8 *packed() const { return (const u8 *)in" + Twine(b.argument) + "; }");
  if (form.mixedInput)
    multiplyWidened(element, /*by16=*/true);
  else
    operand(a, element);
  parametersOfGroups();
  write(lanes);
  return success();
}

/// The holes of gemm_sparse_few.cuh.
LogicalResult Gemm::buildSparseFew(Type element, int64_t lanes) {
  if (!a.plain || !a.alongK() || !b.packed || !(element.isF16() || element.isBF16()))
    return op.emitError("CUDA text: '") << holes.config.family()
           << "' needs 2:4 sparse weights that are packed so, and rows of 16 bits";
  startAndWait();
  holes.line("typedef " + Holes::typeText(element) + " Element;");
  holes.line("typedef " + Holes::typeText(accumulator) + " Acc;");
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  holes.line("LATHE_METHOD const u8 *packed() const { return (const u8 *)in" + Twine(b.argument) + "; }");
  operand(a, element);
  write(lanes);
  return success();
}

/// The holes of gemv_active.cuh.
LogicalResult Gemm::buildActive(Type element, int64_t lanes) {
  if (!b.packed || !isa<FloatType>(element))
    return op.emitError("CUDA text: '") << holes.config.family() << "' needs weights of floats that are packed as panels";
  startAndWait();
  std::string type = Holes::typeText(element);
  holes.line("typedef " + type + " Element;");
  holes.line("typedef " + Holes::typeText(accumulator) + " Acc;");
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  holes.line("LATHE_METHOD const " + type + " *packed() const { return in" + Twine(b.argument) + "; }");
  operand(a, element);
  write(lanes);
  return success();
}

LogicalResult Gemm::build() {
  op = anchorOf<MatmulOp>(holes.kernel);
  if (!op)
    return failure();
  std::vector<DimExpr> ad = dimsOf(op.getA()), yd = dimsOf(op.getResult());
  batch.assign(yd.begin(), yd.end() - 2);
  m = yd[yd.size() - 2];
  n = yd.back();
  findPairs();
  k = op.getTransposeA() ? ad[ad.size() - 2] : ad.back();
  folded = roles.foldedRows;
  accumulator = Evaluator::computeType(elementTypeOf(op.getResult()));

  bool wgmma = form.units == ProductForm::Units::Wgmma;
  if (wgmma)
    scales = blockScales(op);
  Type at = multipliedType(/*isA=*/true), bt = multipliedType(/*isA=*/false);
  bool mma = form.units == ProductForm::Units::Mma;
  Type element = at == bt && isa<FloatType>(at) ? Evaluator::storageType(at) : accumulator;
  if (mma && !(at == bt && (at.isF16() || at.isBF16())))
    return op.emitError("CUDA text: tensor cores take two operands of f16 or bf16");
  if (wgmma)
    element = Evaluator::storageType(at);
  describe(a, op.getA(), true, op.getTransposeA(), element);
  describe(b, op.getB(), false, op.getTransposeB(), wgmma ? Evaluator::storageType(bt) : element);
  if (form.fewRows && (!form.streamsWeights || !a.alongK()))
    a.plain = false; // few rows: read by element, from the first-level cache
  int64_t atMost = form.epilogueLanes ? form.epilogueLanes : holes.config.lanes;
  int64_t lanes = hasNeighbours() ? 2 : Holes::epilogueLanes(op.getResult(), n, atMost);
  if (form.packed)
    return buildPacked(element, lanes);
  if (form.sparse && !wgmma)
    return buildSparseFew(element, lanes);
  if (form.leavesOutInputs)
    return buildActive(element, lanes);
  if (form.streamsWeights) {
    // Where a row begins tells where the matrix does: there are no batches.
    if (!b.plain || b.alongK() == form.acrossK || !(element.isF16() || element.isBF16()) ||
        (form.piecesOfA && !(a.plain && a.alongK())))
      return op.emitError("CUDA text: '")
             << holes.config.family() << "' needs 16-bit weights with contiguous "
             << (form.acrossK ? "n" : "k");
    startAndWait();
  } else if (form.readsColumns && b.plain && lanes != holes.config.lanes)
    return op.emitError("CUDA text: ") << holes.config.lanes << " lanes do not divide the columns";
  if (form.readsColumns && b.alongK())
    b.plain = false; // columns are neighbours there

  holes.line("typedef " + Holes::typeText(element) + " Element;");
  if (form.streamsWeights || form.mixedInput)
    holes.line("typedef " + Holes::typeText(b.storage) + " Weight;");
  if (form.streamsWeights && form.takesCodes)
    holes.line("static constexpr int kCodes = " + Twine(b.codes) + ";");
  holes.line("typedef " + Holes::typeText(accumulator) + " Acc;");
  bool swapped = wgmma && isSwapped(holes.config);
  holes.line(Twine("static constexpr Operand kA = ") + kindText(swapped ? b : a) +
             ", kB = " + kindText(swapped ? a : b) + ";");
  if (wgmma)
    return buildWgmma();
  if (form.mixedInput)
    return buildMixed();
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  if (form.streamsWeights && form.pairs) {
    holes.line(Twine("static constexpr bool kPair = ") + (inPairs() ? "true" : "false") + ";");
    holes.line("static constexpr int kPairHead = " + Twine(roles.headSize) + ";");
    if (hasHeads())
      aheadOfHeads();
  }
  operand(a, element);
  operand(b, element);
  if (b.stored)
    dequantizing(b);
  write(lanes);
  return success();
}

FailureOr<std::string> gemmText(const KernelSource &kernel, const KernelConfig &config) {
  Gemm gemm(kernel, config);
  if (failed(gemm.build()))
    return failure();
  Holes &holes = gemm.holes;
  DimExpr rows = gemm.folded ? lathe::product(gemm.batch) * gemm.m : gemm.m;
  ProductText text{
      .batch = holes.dim(gemm.folded ? DimExpr(1) : lathe::product(gemm.batch)),
      .m = holes.dim(rows),
      .n = holes.dim(gemm.n),
      .k = holes.dim(gemm.k),
      .depth = gemm.k.constant(),
      .weightBits = gemm.b.storage.getIntOrFloatBitWidth() / gemm.b.codes,
      .tma = storedByTma(*kernel.spec, gemm.hasHeads()),
      .dividesDepth = [&](int64_t d) { return gemm.k.exactDiv(DimExpr(d)).has_value(); }};
  Instance instance = config.form->product.text(config, text);
  if (instance.call.empty())
    return gemm.op.emitError("CUDA text: '") << config.family() << "' needs sizes that are known";
  return holes.text(instance);
}

} // namespace lathe::codegen
