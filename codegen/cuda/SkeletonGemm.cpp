//===- SkeletonGemm.cpp - matrix products ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills gemm.cuh, gemv.cuh, skinny.cuh, stream.cuh, gemm_hopper.cuh and its neighbours gemm_shares.cuh,
// gemm_narrow.cuh and gemm_split.cuh. Operands that lie in memory in rows of whole
// 16-byte pieces are read from there; others are computed element by element. Weights of 8 bits
// that become 16 are read as they lie by the forms of few rows, which then ask for a piece of them
// as the product takes it.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"
#include "Wgmma.h"

#include "lathe/ir/HeadPairs.h"
#include "lathe/ir/NarrowWeights.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

/// One operand: where it lies, or how it is computed.
struct Side {
  Value value;
  bool isA;
  bool transposed;                   ///< the last two dimensions are stored swapped
  const BufferArg *buffer = nullptr; ///< of a block argument
  unsigned argument = 0;
  bool plain = false; ///< may be read from memory in pieces
  bool narrow = false; ///< the buffer has 8 bits of each element (lathe/ir/NarrowWeights.h)
  Type storage;

  /// k is contiguous in memory (or would be).
  bool alongK() const { return isA ? !transposed : transposed; }
  const char *name() const { return isA ? "A" : "B"; }
};

struct Gemm {
  Holes holes;
  MatmulOp op;
  Side a, b;
  std::vector<DimExpr> batch; ///< of the result
  DimExpr m, n, k;
  bool folded = false; ///< batch and M are one dimension of rows
  /// Halves of the columns, of which results are made in pairs (KernelDesc::resultPair).
  SmallVector<SliceOp> halves[2];
  /// Or the columns as heads, whose halves make the pairs (KernelDesc::pairHead).
  std::optional<HeadPairs> heads;
  Type accumulator;

  Gemm(const KernelSource &kernel, const KernelConfig &config) : holes(kernel, config) {}
  LogicalResult build();
  void describe(Side &s, Value v, bool isA, bool transposed, Type element);
  Indices operandIndex(Evaluator &e, const Side &s, Value batchIndex, const Index &row,
                       const Index &depth);
  void operand(const Side &s, Type element);
  void widening(const Side &s);
  Indices resultIndex(Evaluator &e, Value batchIndex, Value row, const Index &column);
  void write(int64_t lanes);
  void findHalves();
  bool inPairs() const { return heads || !halves[0].empty(); }
  /// Where pairs go; see bindHeads.
  struct HeadPlaces {
    int64_t half = 0;
    Value inside;
    SmallVector<Indices> places;
    SmallVector<Value> has; ///< whether the output has this head
    Index last(IndexMath &ix, int64_t h, int64_t lanes) const {
      return Index(ix.add(inside, h * half), lanes > 1 ? 1 : 0);
    }
  };
  HeadPlaces bindHeads(Evaluator &e, ValueRange p, int64_t lanes);
  void storeHeads(Evaluator &e, ValueRange p, int64_t lanes);
  void writeHeads(Type stored);
  void aheadOfHeads();
  Value pairValue(Evaluator &e, const Indices &at, Value first, Value second);
  Value besideValue(Evaluator &e, const Indices &at, Value beside, Value sums, bool stored = true);
  LogicalResult buildWgmma();
  LogicalResult buildWidened();
  void writeStaged(Type stored);
};

bool isStream(const KernelConfig &config) { return config.family == "gemm.stream"; }
bool isSkinny(const KernelConfig &config) {
  return config.family == "gemv.row" || config.family == "gemv.columns" ||
         config.family == "gemm.skinny" || isStream(config);
}
bool isSplit(const KernelConfig &config) {
  return config.family == "gemm.split" || config.family == "gemm.split.promoted";
}
bool isWidened(const KernelConfig &config) { return config.family == "gemm.widened"; }
bool inTurns(const KernelConfig &config) { return config.family.starts_with("gemm.pingpong"); }
bool isShared(const KernelConfig &config) { return config.family.ends_with(".shared"); }
bool isSwapped(const KernelConfig &config) { return config.family.ends_with(".swapped"); }
bool isWgmma(const KernelConfig &config) {
  return inTurns(config) || config.family.starts_with("gemm.cooperative") ||
         config.family == "gemm.promoted" || isSplit(config);
}

/// What the product instruction calls an element type; empty: it takes none such.
StringRef multipliedName(Type element) {
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

void Gemm::describe(Side &s, Value v, bool isA, bool transposed, Type element) {
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

Indices Gemm::operandIndex(Evaluator &e, const Side &s, Value b, const Index &row,
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

void Gemm::operand(const Side &s, Type element) {
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
void Gemm::widening(const Side &s) {
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

const char *kindText(const Side &s) {
  if (s.plain)
    return s.alongK() ? "Operand::AlongK" : "Operand::AcrossK";
  return s.alongK() ? "Operand::ComputedAlongK" : "Operand::ComputedAcrossK";
}

void Gemm::findHalves() {
  DimExpr columns = dimsOf(op.getResult()).back();
  if ((heads = headPairs(op))) {
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

/// The result at `at` that follows from the sums of both halves there.
Value Gemm::pairValue(Evaluator &e, const Indices &at, Value first, Value second) {
  for (SliceOp slice : halves[0])
    e.bind(slice.getY(), at, first);
  for (SliceOp slice : halves[1])
    e.bind(slice.getY(), at, second);
  return e.eval(e.outputValue(0), at);
}

/// Says what the product's columns are where the pairs `first`, `second` of row m are, p being {b, m,
/// piece, first, second}, and where each output has them: but for the last index, which is that of `inside` or
/// half a head further.
Gemm::HeadPlaces Gemm::bindHeads(Evaluator &e, ValueRange p, int64_t lanes) {
  IndexMath &ix = e.ix;
  HeadPlaces found;
  found.half = heads->size / 2;
  Value pair = ix.mul(p[2], lanes), head = ix.div(pair, ix.cst(found.half));
  found.inside = ix.rem(pair, ix.cst(found.half));
  ix.limit(found.inside, found.half - lanes + 1);
  Indices at = resultIndex(e, p[0], p[1], Index(ix.cst(0)));
  const std::vector<DimExpr> split = dimsOf(heads->split.getY());
  at.resize(split.size() - 2, Index(ix.cst(0))); // of a single row there may be more sizes of 1
  at.insert(at.begin() + heads->axis, Index(head));
  for (auto [index, size] : llvm::zip(at, split))
    if (size == DimExpr(1))
      index = Index(ix.cst(0));
  at.push_back(Index());
  for (int64_t h : {0, 1}) {
    at.back() = found.last(ix, h, lanes);
    e.bind(op.getResult(), reshapeIndex(e, split, dimsOf(op.getResult()), at), p[3 + h]);
  }
  for (Value output : holes.kernel.body->getTerminator()->getOperands()) {
    std::optional<HeadPlace> place = headPlace(output, *heads);
    if (!place) {
      e.fail(op, "has heads that an output does not keep");
      break;
    }
    Indices to;
    for (int64_t d : place->dims)
      to.push_back(at[d]);
    Index &mine = to[llvm::find(place->dims, heads->axis) - place->dims.begin()];
    mine = Index(ix.sub(head, ix.cst(place->first)));
    // Heads below the first wrap around.
    found.has.push_back(ix.cmp(arith::CmpIPredicate::ult, mine.base, ix.cst(place->count)));
    found.places.push_back(to);
  }
  return found;
}

/// Stores what follows from pairs, each in the output that has their head.
void Gemm::storeHeads(Evaluator &e, ValueRange p, int64_t lanes) {
  HeadPlaces found = bindHeads(e, p, lanes);
  for (auto [n, has] : llvm::enumerate(found.has))
    e.ifThen(has, [&, n = n] {
      for (int64_t h : {0, 1}) {
        Indices to = found.places[n];
        to.back() = found.last(e.ix, h, lanes);
        Value output = e.outputValue(n);
        e.store(e.eval(output, to), output, e.outputArg(n), to);
      }
    });
}

/// The method that reads what `write` will read for a pair.
void Gemm::aheadOfHeads() {
  holes.method("beside", {"b", "m", "piece"}, accumulator, 1, [&](Evaluator &e, ValueRange p) {
    Value none = e.constant(accumulator, 0);
    HeadPlaces found = bindHeads(e, {p[0], p[1], p[2], none, none}, 1);
    std::function<Value(size_t)> sum = [&](size_t n) -> Value {
      if (n == found.places.size())
        return none;
      auto both = [&] {
        Value parts[2];
        for (int64_t h : {0, 1}) {
          found.places[n].back() = found.last(e.ix, h, 1);
          parts[h] = e.eval(e.outputValue(n), found.places[n]);
        }
        return e.make<arith::AddFOp>(parts[0], parts[1]);
      };
      return e.ifElse(found.has[n], both, [&] { return sum(n + 1); });
    };
    return sum(0);
  });
  holes.line("LATHE_METHOD void ahead(i64 n) const { needValue(beside(0, 0, n)); }");
}

/// The methods that give two neighbouring results and those half a head further, one for each output, which
/// heads that has, and how the copy engine stores 32 columns of 64 rows of both halves.
void Gemm::writeHeads(Type stored) {
  constexpr int64_t kLanes = 2;
  const std::string half = std::to_string(heads->size / 2);
  std::string stores, pairs, has;
  size_t n = 0, outputs = holes.kernel.spec->numOutputs;
  for (Value output : holes.kernel.body->getTerminator()->getOperands()) {
    const std::string number = std::to_string(n);
    holes.method(
        "pairs" + number, {"b", "m", "pair", "first", "second"}, VectorType::get({2 * kLanes}, stored), kLanes,
        [&](Evaluator &e, ValueRange p) {
          HeadPlaces found = bindHeads(e, p, kLanes);
          if (e.failed)
            return e.constant(VectorType::get({2 * kLanes}, stored), 0);
          SmallVector<Value> both;
          for (int64_t h : {0, 1}) {
            found.places[n].back() = found.last(e.ix, h, kLanes);
            both.push_back(e.toStorage(e.splat(e.eval(output, found.places[n])), elementTypeOf(output)));
          }
          return e.make<vector::ShuffleOp>(both[0], both[1], ArrayRef<int64_t>{0, 1, 2, 3});
        },
        accumulator, accumulator);
    std::optional<HeadPlace> place = headPlace(output, *heads);
    if (!place)
      return;
    std::string mine = "pair / " + half + " - " + std::to_string(place->first) + "u";
    std::string test = "    if constexpr (S == " + number + ") return ";
    pairs += test + "pairs" + number + "(b, m, pair, first, second);\n";
    has += test + mine + " < " + std::to_string(place->count) + "u;\n";
    const TensorMapArg &map = holes.kernel.spec->tensorMaps[2 + n];
    std::string tokens = "(u32)(" + holes.dim(map.dims[1]) + ")", head = "(i32)(" + mine + ")";
    bool one = map.dims[3] == DimExpr(1); // batch
    std::string where = one ? ", (i32)row, " + head + ", 0);"
                            : ", (i32)(row % " + tokens + "), " + head + ", (i32)(row / " + tokens + "));";
    stores += "    if (isIn<" + number + ">(pair)) {\n      tensorStore(*maps[" + number + "], one, column" + where +
              "\n      tensorStore(*maps[" + number + "], other, column + " + half + where + "\n    }\n";
    ++n;
  }
  holes.line("static constexpr int kOutputs = " + Twine(outputs) + ";\n  const TensorMap *maps[kOutputs];");
  holes.line("template <int S> LATHE_METHOD bool isIn(u32 pair) const {\n" + has + "  }");
  holes.line("template <int S> LATHE_METHOD auto pairs(i64 b, i64 m, i64 pair, const Vec<Acc, 2> &first, const "
             "Vec<Acc, 2> &second) const {\n" + pairs + "  }");
  holes.line("LATHE_METHOD void storePairs(SharedAddr one, SharedAddr other, u32 row, u32 pair) const {\n"
             "    const i32 column = pair % " + half + ";\n" + stores + "  }");
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
  const Side &first = swapped ? b : a, &second = swapped ? a : b;
  if (swapped && (!staged || narrow || turned || inPairs()))
    return op.emitError("CUDA text: '")
           << holes.config.family << "' needs 16-bit results that the copy engine stores as they lie";
  bool half = holes.config.family == "gemm.promoted" && holes.config.tileN > 128; // of a tile's columns at a time
  holes.line(Twine("static constexpr bool kImages = false, kPair = ") + truth(inPairs()) +
             ", kBeside = " + truth(maps.size() == 4 && !heads) + ", kSwapped = " + truth(swapped) + ";");
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
  int64_t lanes = Holes::epilogueLanes(op.getResult(), n, split ? 4 : 2);
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
Value Gemm::besideValue(Evaluator &e, const Indices &at, Value beside, Value sums, bool stored) {
  Value argument = holes.kernel.body->getArgument(holes.kernel.spec->tensorMaps[3].buffer);
  e.bind(argument, at, e.fromStorage(beside, elementTypeOf(argument)));
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
  int64_t lanes = Holes::epilogueLanes(op.getResult(), n, atMost);
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

} // namespace

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
