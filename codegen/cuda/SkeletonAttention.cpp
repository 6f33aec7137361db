//===- SkeletonAttention.cpp - attention -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills attention.cuh, and for 16-bit operands attention_mma.cuh,
// attention_split.cuh, attention_ragged.cuh, and attention_wgmma.cuh with the lists of
// attention_blocks.cuh. Scale, soft cap and mask are the score hole
// (AttentionScores.cpp); causality is the end of the keys that a query sees.
//
//===----------------------------------------------------------------------===//

#include "AttentionHoles.h"
#include "Wgmma.h"

#include "lathe/ir/AttentionOperands.h"

#include "llvm/Support/Format.h"

using namespace mlir;

namespace lathe::codegen {

Index Attention::keyHead(Evaluator &e, Value head) {
  DimExpr heads = dimOf(op.getQ(), 1), keyHeads = dimOf(op.getK(), 1);
  if (heads == keyHeads)
    return Index(head);
  return e.ix.divRem(Index(head), DimExpr::floorDiv(heads, keyHeads)).first;
}

/// What all skeletons share.
LogicalResult Attention::common() {
  op = anchorOf<AttentionOp>(holes.kernel);
  if (!op)
    return failure();
  std::vector<DimExpr> qd = dimsOf(op.getQ()), yd = dimsOf(op.getY());
  auto headQK = qd[3].constant(), headV = yd[3].constant();
  Type f32 = Float32Type::get(op.getContext());
  if (!headQK || !headV)
    return op.emitError("CUDA text: the head size must be known");
  for (Value v : {op.getQ(), op.getK(), op.getV()})
    if (Evaluator::computeType(elementTypeOf(v)) != f32)
      return op.emitError("CUDA text: the attention skeletons compute in f32");
  holes.line("static constexpr int kHeadQK = " + Twine(*headQK) + ", kHeadV = " + Twine(*headV) +
             ";");
  holes.line(Twine("static constexpr bool kZeroMasked = ") +
             (op.getZeroMaskedRows() ? "true" : "false") + ";");
  holes.method(
      "score", {"b", "h", "q", "k", "dot"}, f32, 1,
      [&](Evaluator &e, ValueRange p) {
        return score(e, {Index(p[0]), Index(p[1]), Index(p[2]), Index(p[3])}, p[4]);
      },
      f32);
  holes.line(Twine("static constexpr bool kSink = ") + (op.getSink() ? "true" : "false") + ";");
  if (op.getSink())
    holes.method("sink", {"b", "h", "q"}, f32, 1, [&](Evaluator &e, ValueRange p) {
      return attentionSink(e, op, Index(p[0]), Index(p[1]), Index(p[2]));
    });
  else
    holes.line("static LATHE_METHOD f32 sink(i64, i64, i64) { return 0.0f; }");
  holes.method("keyEnd", {"b", "h", "q"}, IndexType::get(op.getContext()), 1,
               [&](Evaluator &e, ValueRange p) -> Value {
                 return attentionEnd(e, op, Index(p[0]), p[2]);
               });
  holes.method("keyBegin", {"b", "h", "q"}, IndexType::get(op.getContext()), 1,
               [&](Evaluator &e, ValueRange p) -> Value {
                 return attentionBegin(e, op, Index(p[0]), p[2]);
               });
  logSumExpHole();
  return success();
}

/// Where the second result goes, if there is one.
void Attention::logSumExpHole() {
  Value lse = op.getLse();
  bool stored = lse && llvm::is_contained(holes.kernel.body->getTerminator()->getOperands(), lse);
  holes.line(Twine("static constexpr bool kLogSumExp = ") + (stored ? "true" : "false") + ";");
  if (!stored) {
    holes.line("static LATHE_METHOD void storeLogSumExp(i64, i64, i64, f32) {}");
    return;
  }
  holes.method(
      "storeLogSumExp", {"b", "h", "q", "value"}, Type(), 1,
      [&](Evaluator &e, ValueRange p) {
        Indices at{Index(p[0]), Index(p[1]), Index(p[2])};
        for (auto [n, output] : llvm::enumerate(holes.kernel.body->getTerminator()->getOperands()))
          if (output == lse)
            e.store(p[3], lse, e.outputArg(n), at);
        return Value();
      },
      Float32Type::get(op.getContext()));
}

/// Operands and results element by element.
void Attention::scalarHoles() {
  Type f32 = Float32Type::get(op.getContext());
  holes.method("loadQ", {"b", "h", "q", "d"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return e.eval(op.getQ(), {Index(p[0]), Index(p[1]), Index(p[2]), Index(p[3])});
  });
  holes.method("loadK", {"b", "h", "k", "d"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return e.eval(op.getK(), {Index(p[0]), keyHead(e, p[1]), Index(p[2]), Index(p[3])});
  });
  holes.method("loadV", {"b", "h", "k", "d"}, f32, 1, [&](Evaluator &e, ValueRange p) {
    return e.eval(op.getV(), {Index(p[0]), keyHead(e, p[1]), Index(p[2]), Index(p[3])});
  });
  holes.method(
      "store", {"b", "h", "q", "d", "value"}, Type(), 1,
      [&](Evaluator &e, ValueRange p) {
        Holes::storeResult(e, op.getY(), {Index(p[0]), Index(p[1]), Index(p[2]), Index(p[3])},
                           p[4]);
        return Value();
      },
      f32);
}

/// Rows of an operand where they lie, and its elements by themselves.
void Attention::operandHoles(StringRef name, unsigned operand) {
  MLIRContext *context = op.getContext();
  const OperandRole &role = holes.kernel.roles.operands[operand];
  Value v = op->getOperand(operand);
  const bool isKey = operand > 0;
  Type element = Evaluator::storageType(elementTypeOf(v));
  auto at = [&](Evaluator &e, ValueRange p, const Index &d) {
    return Indices{Index(p[0]), isKey ? keyHead(e, p[1]) : Index(p[1]), Index(p[2]), d};
  };
  const bool tokensFirst = role.storage == OperandRole::Storage::TokensFirst;
  const BufferArg *buffer = role.input >= 0 ? &holes.kernel.spec->buffers[role.input] : nullptr;
  bool rows = buffer && buffer->packing.empty() && buffer->alignment % 16 == 0 &&
              buffer->physical.back().exactDiv(DimExpr(8)) && dimOf(v, 3).exactDiv(DimExpr(8));
  holes.line("static constexpr bool kRows" + name + " = " + (rows ? "true" : "false") + ";");
  if (rows)
    holes.method(("place" + name).str(), {"b", "h", "i"}, IndexType::get(context), 1,
                 [&](Evaluator &e, ValueRange p) {
                   Indices row = at(e, p, Index(e.ix.cst(0)));
                   if (tokensFirst)
                     std::swap(row[1], row[2]);
                   return e.offset(buffer->physical, row).base;
                 });
  std::string row = "nullptr";
  if (rows)
    row = "in" + std::to_string(role.input) + " + place" + name.str() + "(b, h, i)";
  holes.line("LATHE_METHOD const Element *row" + name + "(i64 b, i64 h, i64 i) const { return " +
             row + "; }");
  holes.method(("element" + name).str(), {"b", "h", "i", "d"}, element, 1,
               [&](Evaluator &e, ValueRange p) {
                 return e.toStorage(e.eval(v, at(e, p, Index(p[3]))), elementTypeOf(v));
               });
}

/// The input that an element is loaded from by itself, and where from; null when it is not.
static tile::LoadOp loadOf(Value element) {
  Operation *load = element.getDefiningOp();
  while (load && !isa<tile::LoadOp>(load) && load->getNumOperands() == 1)
    load = load->getOperand(0).getDefiningOp();
  return dyn_cast_or_null<tile::LoadOp>(load);
}

/// The hole that says where the first element of the row 16 n of `rows` [B, G, T, ..] is loaded from.
void Attention::sixteenPlace(StringRef name, Value rows) {
  holes.method(name.str(), {"b", "h", "n"}, IndexType::get(op.getContext()), 1, [&](Evaluator &e, ValueRange p) -> Value {
    tile::LoadOp load = loadOf(e.eval(rows, {Index(p[0]), keyHead(e, p[1]), Index(e.ix.mul(p[2], 16)), Index(e.ix.cst(0))}));
    return load ? load.getOffset() : e.fail(op, "has rows of keys that are not loaded");
  });
}

/// Sixteen scales of rows that are codes, which lie together.
void Attention::scaleHoles(StringRef name, Value scales) {
  Value memory = scales;
  while (Operation *way = memory.getDefiningOp())
    memory = way->getOperand(0);
  auto input = dyn_cast<BlockArgument>(memory);
  if (!input) {
    op.emitError("CUDA text: scales of keys and values do not lie in rows");
    return;
  }
  sixteenPlace(("scalePlace" + name).str(), scales);
  holes.line("LATHE_METHOD const f32 *scales" + name + "(i64 b, i64 h, i64 n) const { return in" +
             Twine(input.getArgNumber()) + " + scalePlace" + name + "(b, h, n); }");
}

/// Sixteen rows of keys or values that lie a stride apart, maybe in pages.
void Attention::sixteenHoles(StringRef name, unsigned operand) {
  const OperandRole &role = holes.kernel.roles.operands[operand];
  const int64_t input = role.pages >= 0 ? role.pages : role.input;
  if (input < 0) {
    op.emitError("CUDA text: keys and values do not lie in rows");
    return;
  }
  std::optional<CodedRows> coded = codedRows(op->getOperand(operand));
  Value v = coded ? coded->codes : op->getOperand(operand);
  // The dimension whose neighbours are the rows.
  const int64_t rows = role.pages >= 0                                        ? role.pagesDim
                       : role.storage == OperandRole::Storage::TokensFirst ? 1
                                                                              : 2;
  const BufferArg &buffer = holes.kernel.spec->buffers[input];
  sixteenPlace(("sixteenPlace" + name).str(), v);
  if (coded)
    scaleHoles(name, coded->scales);
  std::string at = "in" + std::to_string(input);
  holes.line(Twine("LATHE_METHOD const ") + (coded ? "u8" : "Element") + " *sixteen" + name +
             "(i64 b, i64 h, i64 n) const { return " + (coded ? "(const u8 *)" : "") + at + " + sixteenPlace" + name +
             "(b, h, n); }");
  DimExpr stride = 1;
  for (size_t d = rows + 1; d < buffer.physical.size(); ++d)
    stride = stride * buffer.physical[d];
  holes.line("LATHE_METHOD i64 stride" + name + "() const { return " + holes.dim(stride) + "; }");
}

/// By which number neighbours in the batch find their keys.
LogicalResult Attention::keysOfHole() {
  Value numbers = keysFoundBy(op);
  if (!numbers)
    return op.emitError("CUDA text: keys of neighbours are not found by a number");
  Type index = IndexType::get(op.getContext());
  holes.method("keysOf", {"b"}, index, 1,
               [&](Evaluator &e, ValueRange p) { return e.toIndex(e.eval(numbers, {Index(p[0])}), false); });
  return success();
}

/// The holes of attention_tile.cuh.
LogicalResult Attention::tileHoles() {
  Type f32 = Float32Type::get(op.getContext()), element = elementTypeOf(op.getQ());
  if (!(element.isF16() || element.isBF16()) || elementTypeOf(op.getK()) != element ||
      elementTypeOf(op.getV()) != element)
    return op.emitError("CUDA text: tensor cores take operands of f16 or bf16");
  if (hasKeyMask() && !holes.kernel.roles.keyMask)
    return op.emitError("CUDA text: the mask is not the same for all queries");
  double scale = op.getScale().convertToDouble();
  int64_t lanes = dimOf(op.getY(), 3).exactDiv(DimExpr(8)) ? 8 : 1;
  holes.line("typedef " + Holes::typeText(Evaluator::storageType(element)) + " Element;");
  holes.line(Twine("static constexpr bool kPlainScore = ") + (isPlain() ? "true" : "false") +
             ", kMaskOnly = " + (isMaskOnly() ? "true" : "false") +
             ", kCausal = " + (op.endsPerQuery() ? "true" : "false") + ";");
  bool wholeTiles = holes.config.tileN > 0 &&
                    dimOf(op.getK(), 2).exactDiv(DimExpr(holes.config.tileN)).has_value();
  holes.line(Twine("static constexpr bool kKeyMask = ") + (hasKeyMask() ? "true" : "false") + ";");
  holes.line(Twine("static constexpr bool kWholeTiles = ") + (wholeTiles ? "true" : "false") + ";");
  std::string number;
  llvm::raw_string_ostream(number) << llvm::format("%.9g", scale);
  holes.line("static constexpr f32 kScale = (f32)" + number + ";");
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  // Masks of even rows are read for two keys at a time.
  bool pairs = op.hasScoreOperands() && !op.getSoftcap() &&
               dimOf(op.getK(), 2).exactDiv(DimExpr(2));
  holes.line(Twine("static constexpr bool kPairs = ") + (pairs ? "true" : "false") + ";");
  auto pair = [&](Evaluator &e, ValueRange p) {
    return Indices{Index(p[0]), Index(p[1]), Index(p[2]), Index(e.ix.mul(p[3], 2), 1)};
  };
  Type flag = IntegerType::get(op.getContext(), 1);
  if (isMaskOnly()) {
    holes.method("seen", {"b", "h", "q", "k"}, flag, 1, [&](Evaluator &e, ValueRange p) {
      return seenAt(e, {Index(p[0]), Index(p[1]), Index(p[2]), Index(p[3])});
    });
    if (pairs)
      holes.method("seenPair", {"b", "h", "q", "pair"}, VectorType::get({2}, flag), 2,
                   [&](Evaluator &e, ValueRange p) { return e.splat(seenAt(e, pair(e, p))); });
  } else if (pairs) {
    holes.method(
        "scorePair", {"b", "h", "q", "pair", "dots"}, VectorType::get({2}, f32), 2,
        [&](Evaluator &e, ValueRange p) { return e.splat(score(e, pair(e, p), p[4])); }, f32);
  }
  operandHoles("Q", 0);
  operandHoles("K", 1);
  operandHoles("V", 2);
  holes.method(
      "put", {"b", "h", "q", "piece", "value"}, Type(), lanes,
      [&](Evaluator &e, ValueRange p) {
        Index d(e.ix.mul(p[3], lanes), lanes > 1 ? 1 : 0);
        Holes::storeResult(e, op.getY(), {Index(p[0]), Index(p[1]), Index(p[2]), d},
                           e.fromStorage(p[4], element));
        return Value();
      },
      Evaluator::storageType(element));
  holes.line("LATHE_METHOD void store(i64 b, i64 h, i64 q, i64 d, const Vec<Element, kLanes> &v) "
             "const { put(b, h, q, d / kLanes, " +
             Twine(lanes > 1 ? "v" : "v.v[0]") + "); }");
  return success();
}

/// Rows of results where they lie.
void Attention::resultRows() {
  std::optional<unsigned> output = Holes::outputOf(holes.kernel, op.getY());
  const KernelSpec &spec = *holes.kernel.spec;
  const BufferArg &buffer = spec.buffers[spec.numInputs + output.value_or(0)];
  bool rows = Holes::isPlainResult(holes.kernel, op.getY()) && buffer.alignment % 16 == 0 &&
              buffer.physical.back().exactDiv(DimExpr(8)) &&
              dimOf(op.getY(), 3).exactDiv(DimExpr(8));
  holes.line(Twine("static constexpr bool kRowsO = ") + (rows ? "true" : "false") + ";");
  if (rows)
    holes.method("placeO", {"b", "h", "q"}, IndexType::get(op.getContext()), 1,
                 [&](Evaluator &e, ValueRange p) {
                   return Holes::resultPlace(
                       e, op.getY(),
                       {Index(p[0]), Index(p[1]), Index(p[2]), Index(e.ix.cst(0))});
                 });
  holes.line(Twine("LATHE_METHOD Element *rowO(i64 b, i64 h, i64 q) const { return ") +
             (rows ? "out" + std::to_string(*output) + " + placeO(b, h, q)" : "nullptr") + "; }");
}

/// The holes of attention_wgmma.cuh.
void Attention::wgmmaHoles() {
  resultRows();
  const bool pages = inPages(1);
  holes.line(Twine("static constexpr bool kPages = ") + (pages ? "true" : "false") + ";");
  if (hasMaskTiles())
    maskHoles();
  if (hasKeyMask())
    keyMaskHole();
  if (pages) {
    sixteenHoles("K", 1);
    sixteenHoles("V", 2);
  }
  bool listed = holes.kernel.spec->launches.size() > 1;
  holes.line(Twine("static constexpr bool kListed = ") + (listed ? "true" : "false") + ";");
  if (listed)
    listHoles();
  std::string_view element = elementTypeOf(op.getQ()).isBF16() ? "bf16" : "f16";
  int headV = *dimOf(op.getY(), 3).constant(), keys = holes.config.tileN;
  int headQK = *dimOf(op.getQ(), 3).constant();
  // Four steps of sixteen columns a chunk of 64 queries or all keys; of sixteen keys for values.
  WgmmaShape scores{keys, element}, results{headV, element, true, false, true};
  for (int i = 0; i < (headQK + 15) / 16; ++i)
    scores.steps.push_back({i / 4 * (64 * 8) + i % 4 * 2, i / 4 * (keys * 8) + i % 4 * 2});
  for (int i = 0; i < keys / 16; ++i)
    results.steps.push_back({0, 128 * i});
  // Of the largest heads a loop over the chunks: NVRTC would take too long over the text of all
  // steps, three times (test/perf/gpu/compile_cost.py), and the loop costs them about a percent.
  if (headQK > 192 && headQK % 64 == 0) {
    scores.steps.resize(4);
    holes.line(wgmmaMethod("chunkQK", scores));
    holes.line("static LATHE_METHOD void productQK(f32 (&d)[" + Twine(keys / 2) +
               "], u64 a, u64 b, u32 add) {\n#pragma unroll 1\n    for (u32 c = 0; c < " +
               Twine(headQK / 64) + "; ++c) chunkQK(d, a + c * 512, b + c * " + Twine(keys * 8) +
               ", add | c);\n  }");
  } else {
    holes.line(wgmmaMethod("productQK", scores));
  }
  holes.line(wgmmaMethod("productPV", results));
  holes.line("static LATHE_METHOD i32 keyHead(i32 h) { return h / " + Twine(group()) + "; }");
}

LogicalResult Attention::build() {
  if (failed(common()))
    return failure();
  if (!form.tiles) {
    scalarHoles();
    return success();
  }
  if (failed(tileHoles()))
    return failure();
  if (form.split) {
    holes.line(Twine("static constexpr bool kEarly = ") + (form.early ? "true" : "false") + ";");
    sixteenHoles("K", 1);
    sixteenHoles("V", 2);
    bool paged = inPages(1) || inPages(2);
    holes.line(Twine("static constexpr bool kPaged = ") + (paged ? "true" : "false") + ";");
    std::optional<CodedRows> coded = codedRows(op.getK());
    holes.line("static constexpr int kCodeBits = " + Twine(coded ? coded->bits : 16) + ";");
  }
  if (form.ragged) {
    sixteenHoles("K", 1);
    sixteenHoles("V", 2);
    if (failed(keysOfHole()))
      return failure();
  }
  if (form.groups)
    holes.line("static constexpr int kGroup = " + Twine(group()) + ";");
  if (form.maps)
    wgmmaHoles();
  return success();
}

FailureOr<std::string> attentionText(const KernelSource &kernel, const KernelConfig &config) {
  Attention attention(kernel, config);
  if (failed(attention.build()))
    return failure();
  AttentionOp op = attention.op;
  Holes &holes = attention.holes;
  const std::vector<LaunchSpec> &launches = kernel.spec->launches;
  AttentionText text{.batch = holes.dim(dimOf(op.getQ(), 0)),
                     .heads = holes.dim(dimOf(op.getQ(), 1)),
                     .queries = holes.dim(dimOf(op.getQ(), 2)),
                     .keys = holes.dim(dimOf(op.getK(), 2)),
                     .maskTiles = attention.hasMaskTiles(),
                     .launches = launches.size(),
                     .listThreads = launches.front().block[0],
                     .blocks = kernel.target->smCount};
  return holes.text(config.form->attention.text(config, text));
}

} // namespace lathe::codegen
