//===- SkeletonGemm.cpp - matrix products ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills gemm.cuh, gemv.cuh, skinny.cuh and stream.cuh; what the copy engine brings is
// SkeletonGemmHopper.cpp's. Operands that lie in memory in rows of whole 16-byte pieces are read
// from there; others are computed element by element. Weights of 8 bits that become 16 are read as
// they lie by the forms of few rows, which then ask for a piece of them as the product takes it.
//
//===----------------------------------------------------------------------===//

#include "GemmHoles.h"

#include "lathe/ir/NarrowWeights.h"

using namespace mlir;

namespace lathe::codegen {

void Gemm::describe(GemmOperand &s, Value v, bool isA, bool transposed, Type element) {
  s.value = v;
  s.isA = isA;
  s.transposed = transposed;
  auto arg = dyn_cast<BlockArgument>(v);
  if (Value data = !isA && (isSkinny(holes.config) || isWidened(holes.config)) ? narrowWeights(v) : Value()) {
    arg = dyn_cast<BlockArgument>(data);
    s.narrow = true;
  }
  s.storage = Evaluator::storageType(elementTypeOf(s.narrow && arg ? arg : v));
  if (!arg)
    return;
  s.argument = arg.getArgNumber();
  s.buffer = &holes.kernel.spec->buffers[s.argument];
  if (!s.buffer->packing.empty() || (s.storage != element && !s.narrow) ||
      s.buffer->alignment % 16 != 0)
    return;
  std::vector<DimExpr> dims = dimsOf(v);
  // Folded rows need one distance between all rows.
  if (folded && isA)
    for (size_t d = 1; d + 1 < dims.size(); ++d)
      if (s.buffer->physical[d] != dims[d])
        return;
  int64_t piece = 128 / s.storage.getIntOrFloatBitWidth();
  s.plain = s.buffer->physical.back().exactDiv(DimExpr(piece)).has_value();
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
    holes.line("LATHE_METHOD const " + type + " *base" + name + "(i64 b) const { return in" +
               std::to_string(s.argument) + " + offset" + name + "(b); }");
    holes.line("LATHE_METHOD i64 stride" + name + "() const { return " +
               holes.dim(s.buffer->physical.back()) + "; }");
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

/// The method that makes a piece of weights of 8 bits what the product multiplies: rounded to its
/// element type, or f32 where it multiplies in f32.
void Gemm::widening(const GemmOperand &s) {
  constexpr int64_t kPiece = 16;
  Value data = narrowWeights(s.value);
  NarrowFactors factors = narrowFactors(s.value);
  Type element = elementTypeOf(s.value);
  if (holes.config.family == "gemv.row")
    element = Float32Type::get(element.getContext());
  // Codes alone are exact in either type.
  if (factors.bare) {
    StringRef how = elementTypeOf(data).isUnsignedInteger() ? "widenUnsigned" : "widenCodes";
    std::string type = Holes::typeText(element);
    holes.line("static LATHE_METHOD Vec<" + type + ", 16> widened(i64, i64, const Vec<Weight, 16> &codes) { return " + how +
               "<" + type + ">(codes); }");
    return;
  }
  holes.method(
      "widened", {"n", "piece", "codes"}, VectorType::get({kPiece}, element), kPiece,
      [&](Evaluator &e, ValueRange p) {
        Indices at = {Index(p[0]), Index(e.ix.mul(p[1], kPiece), 1)};
        e.bind(data, at, e.fromStorage(p[2], elementTypeOf(data)));
        return e.toStorage(e.splat(e.eval(factors.multiplied, at)), element);
      },
      s.storage);
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

void Gemm::findHalves() {
  DimExpr columns = dimsOf(op.getResult()).back();
  if ((heads = headPairs(op, /*inKernel=*/true))) {
    if (!heads->neighbours)
      n = DimExpr(heads->heads * heads->size / 2);
    return;
  }
  for (Operation *user : op.getResult().getUsers()) {
    auto slice = dyn_cast<SliceOp>(user);
    if (!slice || dimsOf(slice.getY()).back() == columns)
      return;
    DimExpr first = cast<DimAttr>(slice.getStarts().getValue().back()).expr();
    halves[first == DimExpr(0) ? 0 : 1].push_back(slice);
  }
  if (!halves[0].empty())
    n = dimsOf(halves[0][0].getY()).back();
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
          if (heads) {
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
  if (Value scale = b.narrow ? narrowFactors(b.value).scale : Value()) {
    holes.method(
        "write", {"b", "m", "piece", "acc"}, Type(), lanes,
        [&](Evaluator &e, ValueRange p) {
          Index column(e.ix.mul(p[2], lanes), lanes > 1 ? 1 : 0), zero(e.ix.cst(0));
          Indices of(dimsOf(scale).size(), zero);
          if (of.size() == 2)
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

LogicalResult Gemm::build() {
  op = heartOf<MatmulOp>(holes.kernel);
  if (!op)
    return failure();
  std::vector<DimExpr> ad = dimsOf(op.getA()), yd = dimsOf(op.getResult());
  batch.assign(yd.begin(), yd.end() - 2);
  m = yd[yd.size() - 2];
  n = yd.back();
  findHalves();
  k = op.getTransposeA() ? ad[ad.size() - 2] : ad.back();
  // The same rule as in select: rows of all batches are one matrix when the other
  // operand is one matrix in memory.
  Value narrow = narrowWeights(op.getB());
  auto weight = dyn_cast<BlockArgument>(narrow ? narrow : op.getB());
  folded = !batch.empty() && weight && dimsOf(op.getB()).size() == 2 && !op.getTransposeA();
  accumulator = Evaluator::computeType(elementTypeOf(op.getResult()));

  Type at = elementTypeOf(op.getA()), bt = elementTypeOf(op.getB());
  bool mma = llvm::StringRef(holes.config.family) == "gemm.mma";
  Type element = at == bt && isa<FloatType>(at) ? Evaluator::storageType(at) : accumulator;
  if (mma && !(at == bt && (at.isF16() || at.isBF16())))
    return op.emitError("CUDA text: matrix units take two operands of f16 or bf16");
  bool wgmma = isWgmma(holes.config);
  if (wgmma)
    element = Evaluator::storageType(at);
  describe(a, op.getA(), true, op.getTransposeA(), element);
  describe(b, op.getB(), false, op.getTransposeB(), wgmma ? Evaluator::storageType(bt) : element);
  bool gemv = llvm::StringRef(holes.config.family).starts_with("gemv");
  bool along = llvm::StringRef(holes.config.family) == "gemv.along";
  bool skinny = isSkinny(holes.config);
  if (gemv && (!skinny || !a.alongK()))
    a.plain = false; // few rows: read by element, from the first-level cache
  bool columns = holes.config.family == "gemv.columns";
  bool stream = isStream(holes.config), skinnyRows = stream || holes.config.family == "gemm.skinny";
  int64_t atMost = skinnyRows ? 2
                   : along || skinny                    ? 1
                   : gemv                               ? holes.config.lanes
                   : mma                                ? 8
                                                        : 4;
  int64_t lanes = hasNeighbours() ? 2 : Holes::epilogueLanes(op.getResult(), n, atMost);
  if (skinny) {
    // Where a row begins tells where the matrix does: there are no batches.
    if (!b.plain || b.alongK() == columns || !(element.isF16() || element.isBF16()) ||
        (skinnyRows && !(a.plain && a.alongK())) || (stream && b.narrow))
      return op.emitError("CUDA text: '")
             << holes.config.family << "' needs 16-bit weights with contiguous "
             << (columns ? "n" : "k");
    holes.line(std::string("static LATHE_METHOD void start() {") +
               (holes.programmatic() ? " dependentsMayStart(); }" : "}"));
    holes.line(std::string("static LATHE_METHOD void wait() {") +
               (holes.programmatic() ? " dependenciesWait(); }" : "}"));
  } else if (gemv && !along && b.plain && lanes != holes.config.lanes)
    return op.emitError("CUDA text: ") << holes.config.lanes << " lanes do not divide the columns";
  if (gemv && !along && !skinny && b.alongK())
    b.plain = false; // columns are neighbours there

  holes.line("typedef " + Holes::typeText(element) + " Element;");
  if (skinny || isWidened(holes.config))
    holes.line("typedef " + Holes::typeText(b.storage) + " Weight;");
  holes.line("typedef " + Holes::typeText(accumulator) + " Acc;");
  bool swapped = wgmma && isSwapped(holes.config);
  holes.line(Twine("static constexpr Operand kA = ") + kindText(swapped ? b : a) +
             ", kB = " + kindText(swapped ? a : b) + ";");
  if (wgmma)
    return buildWgmma();
  if (isWidened(holes.config))
    return buildWidened();
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  if (stream || holes.config.family == "gemv.row") {
    holes.line(Twine("static constexpr bool kPair = ") + (inPairs() ? "true" : "false") + ";");
    holes.line("static constexpr int kPairHead = " + Twine(heads ? heads->size : 0) + ";");
    if (heads)
      aheadOfHeads();
  }
  operand(a, element);
  operand(b, element);
  if (b.narrow)
    widening(b);
  write(lanes);
  return success();
}

std::string tileText(const KernelConfig &c, bool mma) {
  auto join = [](std::initializer_list<int64_t> values) {
    std::string out;
    for (int64_t v : values)
      out += (out.empty() ? "" : ", ") + std::to_string(v);
    return out;
  };
  if (mma) {
    MmaWarps w = mmaWarps(c);
    return "MmaTile<" + join({c.tileM, c.tileN, c.tileK, w.m, w.n, c.stages}) + ">";
  }
  // Square pieces for each thread.
  int64_t side = 1;
  while (side * side * c.threads < c.tileM * c.tileN)
    side *= 2;
  return "SimtTile<" +
         join({c.tileM, c.tileN, c.tileK, side, c.tileM * c.tileN / (c.threads * side)}) + ">";
}

FailureOr<std::string> gemmText(const KernelSource &kernel, const KernelConfig &config) {
  Gemm gemm(kernel, config);
  if (failed(gemm.build()))
    return failure();
  StringRef family = config.family;
  DimExpr rows = gemm.folded ? lathe::product(gemm.batch) * gemm.m : gemm.m;
  std::string sizes = "h, " + gemm.holes.dim(rows) + ", " + gemm.holes.dim(gemm.n) + ", " +
                      gemm.holes.dim(gemm.k) + ");";
  std::string r = std::to_string(config.rows), warps = std::to_string(config.threads / 32);
  if (isStream(config)) {
    std::optional<int64_t> depth = gemm.k.constant();
    if (!depth)
      return gemm.op.emitError("CUDA text: 'gemm.stream' needs a depth that is known");
    int64_t share = streamDepth(config), steps = (*depth + share - 1) / share;
    std::string tile = warps;
    for (int64_t v : {config.rows / 8, steps, config.stages})
      tile += ", " + std::to_string(v);
    return gemm.holes.text({"stream"}, "gemmStream<" + tile + (*depth == share * steps ? ", true>(" : ", false>(") + sizes);
  }
  if (isSkinny(config)) {
    std::string shape = family == "gemv.row" ? std::to_string(config.tileN)
                                             : std::to_string(config.tileN / 16) + ", " +
                                                   std::to_string(config.rows / 8);
    shape += ", " + warps + ", " + std::to_string(config.stages);
    std::string n = gemm.holes.dim(gemm.n), k = gemm.holes.dim(gemm.k);
    std::string call = "gemvRow<" + shape + ">(h, " + n + ", " + k + ");";
    if (family == "gemv.columns")
      call = "gemvColumns<" + std::to_string(config.tileN) + ", " + warps + ", " +
             std::to_string(config.tileK) + ", " + std::to_string(config.stages) + ">(h, " + n +
             ", " + k + ");";
    if (family == "gemm.skinny") {
      int64_t piece = 128 / gemm.b.storage.getIntOrFloatBitWidth();
      bool whole = gemm.k.exactDiv(DimExpr(config.threads / 8 * piece * config.stages)).has_value();
      call = "gemmSkinny<" + shape + (whole ? ", true" : ", false") + ">(" + sizes;
    }
    return gemm.holes.text({"skinny"}, call);
  }
  if (isWidened(config)) {
    std::string tile;
    for (int64_t v : {config.tileM, config.tileN, config.stages, config.cluster})
      tile += (tile.empty() ? "" : ", ") + std::to_string(v);
    return gemm.holes.text({"gemm_widened"},
                           "gemmWidened<WidenedTile<" + tile + ">>(h, map0, map1" + sizes.substr(1));
  }
  if (family == "gemv.along")
    return gemm.holes.text({"gemv"}, "gemvAlongK<" + r + ", " + warps + ">(" + sizes);
  if (family == "gemv.across")
    return gemm.holes.text({"gemv"}, "gemvAcrossK<" + r + ", " + warps + ", " +
                                         std::to_string(config.lanes) + ">(" + sizes);
  if (isWgmma(config)) {
    int64_t rowsLoaded = config.rows > 1 ? config.rows : config.tileM;
    std::string tile;
    for (int64_t v : {config.tileM, config.tileN, config.stages, rowsLoaded})
      tile += std::to_string(v) + ", ";
    DimExpr batches = gemm.folded ? DimExpr(1) : lathe::product(gemm.batch);
    size_t maps = kernel.spec->tensorMaps.size();
    std::string result = maps >= 3 ? "map2" : "map0", beside = maps == 4 && !gemm.heads ? "map3" : result;
    std::string holes = "h", given;
    if (gemm.heads && maps >= 3) {
      holes = "pairs";
      given = "Holes pairs = h;\n";
      for (size_t n = 2; n < maps; ++n)
        given += "  pairs.maps[" + std::to_string(n - 2) + "] = &map" + std::to_string(n) + ";\n";
      given += "  ";
    }
    bool promoted = family == "gemm.promoted";
    if (isSwapped(config)) {
      tile.clear();
      for (int64_t v : {config.tileN, config.tileM, config.stages, config.tileN})
        tile += std::to_string(v) + ", ";
      return gemm.holes.text({"gemm_hopper"},
                             "gemmWgmma<WgmmaTile<" + tile + (inTurns(config) ? "true" : "false") +
                                 ", Holes>>(h, map1, map0, " + result + ", " + beside + ", " +
                                 gemm.holes.dim(batches) + ", " + gemm.holes.dim(gemm.n) + ", " +
                                 gemm.holes.dim(rows) + ", " + gemm.holes.dim(gemm.k) + ");");
    }
    if (isSplit(config)) {
      tile.clear();
      for (int64_t v : {config.tileN, config.stages, rowsLoaded, config.cluster})
        tile += std::to_string(v) + ", ";
      return gemm.holes.text({"gemm_split"}, "gemmSplit<SplitTile<" + tile +
                                                 (family.ends_with("promoted") ? "Holes>, true" : "Holes>") +
                                                 ">(h, map0, map1" + sizes.substr(1));
    }
    return gemm.holes.text({promoted ? "gemm_narrow" : "gemm_hopper"},
                           given + (promoted ? "gemmPromoted<WgmmaTile<" : "gemmWgmma<WgmmaTile<") + tile +
                               (inTurns(config) ? "true" : "false") +
                               ", Holes" + (isShared(config)         ? ", true"
                                             : config.cluster > 1 ? ", false, 2"
                                                                  : "") +
                               ">>(" + holes + ", map0, map1, " + result + ", " + beside + ", " +
                               gemm.holes.dim(batches) + sizes.substr(1));
  }
  bool mma = family == "gemm.mma";
  return gemm.holes.text({"gemm"}, std::string(mma ? "gemmMma<" : "gemmSimt<") +
                                       tileText(config, mma) + ">(" + sizes);
}

} // namespace lathe::codegen
