//===- RecognizePackedCodes.cpp - raise codes unpacked from bytes ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exporters without tensors of 4 bits store two codes in a byte, and the graph takes them apart by
// shifts and masks or by divisions and remainders. The bytes become a constant of ui4, in the order
// in which the graph joins the codes: neighbours, halves of rows, or one matrix behind the other.
//
//   %l = and %bytes, 15                     (or mod %bytes, 16)
//   %h = shr %bytes, 4                      (or div %bytes, 16)
//   %q = reshape (concat %l, %h)       =>   %q = cast %codes : ui4 -> ui8
//
// Codes that stay packed although they reach a product are named in a remark with the reason.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/Rewrite.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_RECOGNIZEPACKEDCODESPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// The same bits of each word of a tensor, shifted to the lowest.
struct Field {
  Value words; ///< null: the value is no such field
  int64_t bits = 0, shift = 0;
};

std::optional<int64_t> wholeNumberOf(Value v) {
  auto constant = v.getDefiningOp<ConstantOp>();
  std::optional<double> number = constant && isNumber(constant) ? numberOf(v) : std::nullopt;
  return number ? std::optional(int64_t(*number)) : std::nullopt;
}

/// log2 of a power of two.
std::optional<int64_t> exponentOf(std::optional<int64_t> number) {
  if (!number || *number < 1 || (*number & (*number - 1)))
    return std::nullopt;
  return llvm::Log2_64(*number);
}

Value stripViews(Value v) {
  while (auto view = v.getDefiningOp<ReshapeOp>())
    v = view.getX();
  return v;
}

/// What is masked out of the words by `and` or `mod`, or left of them by `shr` or `div` alone.
Field fieldOf(Value v) {
  v = stripViews(v);
  Field field;
  if (auto mask = v.getDefiningOp<AndOp>()) {
    bool second = wholeNumberOf(mask.getA()).has_value();
    std::optional<int64_t> ones = wholeNumberOf(second ? mask.getA() : mask.getB());
    std::optional<int64_t> bits = exponentOf(ones ? std::optional(*ones + 1) : std::nullopt);
    if (!bits || *bits == 0)
      return {};
    field.bits = *bits;
    v = second ? mask.getB() : mask.getA();
  } else if (auto rest = v.getDefiningOp<ModOp>()) {
    std::optional<int64_t> bits = exponentOf(wholeNumberOf(rest.getB()));
    if (!bits || *bits == 0 || !elementTypeOf(v).isUnsignedInteger())
      return {};
    field.bits = *bits;
    v = rest.getA();
  }
  v = stripViews(v);
  bool isUnsigned = elementTypeOf(v).isUnsignedInteger();
  if (auto shift = v.getDefiningOp<ShrOp>()) {
    field.shift = wholeNumberOf(shift.getB()).value_or(0);
    v = shift.getA();
  } else if (auto quotient = v.getDefiningOp<DivOp>(); quotient && isUnsigned) {
    field.shift = exponentOf(wholeNumberOf(quotient.getB())).value_or(0);
    v = quotient.getA();
  }
  auto word = dyn_cast<IntegerType>(elementTypeOf(v));
  if (!word || word.getWidth() < 8)
    return {};
  if (field.bits == 0 && isUnsigned && field.shift > 0) // a mask is not needed above
    field.bits = word.getWidth() - field.shift;
  if (field.bits <= 0 || field.bits >= word.getWidth())
    return {};
  field.words = v;
  return field;
}

/// The constant whose nibbles a concat joins, and which of them comes first.
struct Joined {
  ConstantOp bytes;
  bool upperFirst = false;
};

std::optional<Joined> joinedBy(ConcatOp op, std::string &why) {
  auto none = [&](const Twine &reason) {
    why = reason.str();
    return std::nullopt;
  };
  Field first = fieldOf(op.getInputs()[0]);
  if (!first.words)
    return std::nullopt;
  Field second = op.getInputs().size() == 2 ? fieldOf(op.getInputs()[1]) : Field();
  unsigned width = elementTypeOf(first.words).getIntOrFloatBitWidth();
  if (width != 8)
    return none("they lie in words of " + Twine(width) + " bits");
  if (first.bits != 4)
    return none("they have " + Twine(first.bits) + " bits, not 4");
  if (second.words != first.words || second.bits != 4 || first.shift + second.shift != 4 ||
      first.shift == second.shift)
    return none("what is joined is not the two codes of each byte");
  auto bytes = first.words.getDefiningOp<ConstantOp>();
  if (!bytes || !cast<TensorType>(bytes.getType()).hasStaticShape())
    return none("the bytes are no constant");
  return Joined{bytes, first.shift == 4};
}

struct JoinNibbles : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConcatOp op, PatternRewriter &rewriter) const override {
    std::string why = "joins no codes of bytes";
    std::optional<Joined> joined = joinedBy(op, why);
    if (!joined)
      return rewriter.notifyMatchFailure(op, why);
    auto &weights = getContext()->getLoadedDialect<LatheDialect>()->weights();
    auto bytes = constantBytes(joined->bytes.getValue(), weights);
    if (!bytes.ok())
      return rewriter.notifyMatchFailure(op, bytes.status().message());
    // Reshapes keep the order of bytes: `run` of them one after another give their lower codes, then
    // as many their upper ones.
    auto input = cast<TensorType>(op.getInputs()[0].getType());
    size_t run = 1;
    for (int64_t size : input.getShape().drop_front(op.getAxis()))
      run *= size;
    std::vector<std::byte> codes(bytes->size());
    size_t at = 0;
    auto put = [&](std::byte code) {
      codes[at / 2] |= at % 2 ? code << 4 : code;
      ++at;
    };
    for (size_t from = 0; run && from + run <= bytes->size(); from += run)
      for (bool upper : {joined->upperFirst, !joined->upperFirst})
        for (size_t i = from; i < from + run; ++i)
          put(upper ? (*bytes)[i] >> 4 : (*bytes)[i] & std::byte(15));
    // A reshape that follows becomes the constant's, so that a product sees a matrix.
    Operation *last = op;
    while (last->hasOneUse() && isa<ReshapeOp>(*last->user_begin()))
      last = *last->user_begin();
    auto type = cast<TensorType>(last->getResult(0).getType());
    if (!type.hasStaticShape())
      return rewriter.notifyMatchFailure(op, "of symbolic sizes");
    Type ui4 = IntegerType::get(getContext(), 4, IntegerType::Unsigned);
    rewriter.setInsertionPoint(last);
    Value constant = ConstantOp::create(rewriter, joined->bytes.getLoc(),
                                        constantAttr(tensorType(ui4, dimsOf(last->getResult(0))), codes, weights));
    passedRemark(op.getLoc(), "PackedCodes") << "codes of 4 bits are read as they lie in bytes";
    rewriter.replaceOpWithNewOp<CastOp>(last, type, constant, true);
    return success();
  }
};

/// Why codes that a product needs are unpacked in each run.
std::string whyPacked(Operation *unpack) {
  Value v = unpack->getResult(0);
  while (v.hasOneUse() && isa<ReshapeOp>(*v.user_begin()))
    v = v.user_begin()->getResult(0);
  std::string why;
  for (Operation *user : v.getUsers())
    if (auto concat = dyn_cast<ConcatOp>(user); concat && !joinedBy(concat, why) && why.empty())
      why = "what is joined is not the two codes of each byte";
  return why.empty() ? "no concat joins the codes of a byte" : why;
}

struct RecognizePackedCodesPass : impl::RecognizePackedCodesPassBase<RecognizePackedCodesPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<JoinNibbles>(&getContext());
    if (failed(rewriteToTheEnd(getOperation(), FrozenRewritePatternSet(std::move(patterns)))))
      return signalPassFailure();
    std::set<std::pair<void *, std::string>> said; // once for all codes of a word
    getOperation().walk([&](Operation *op) {
      Field field = isa<AndOp, ModOp, ShrOp, DivOp>(op) ? fieldOf(op->getResult(0)) : Field();
      bool inner = llvm::any_of(op->getUsers(), [](Operation *user) {
        return isa<AndOp, ModOp>(user) && fieldOf(user->getResult(0)).words;
      });
      if (!field.words || inner || field.bits > 8 || !reachesProduct(op->getResult(0)))
        return;
      std::string why = whyPacked(op);
      if (said.insert({field.words.getAsOpaquePointer(), why}).second)
        missedRemark(op->getLoc(), "PackedCodes") << ("codes are unpacked in each run: " + why);
    });
  }
};

} // namespace

} // namespace lathe
