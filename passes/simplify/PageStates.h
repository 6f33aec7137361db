//===- PageStates.h - what page-states knows of a decoder -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each obligation is a check in a file of its own; what it finds out is in Decoder. A check that fails
// has said why, at the node (refuse).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_SIMPLIFY_PAGESTATES_H
#define LATHE_PASSES_SIMPLIFY_PAGESTATES_H

#include "../Common.h"

#include "mlir/IR/Diagnostics.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

#include <memory>

namespace lathe::paging {

/// Keys or values of one attention: `added` follow those of before, which the caller passes and gets back.
struct Cache {
  mlir::BlockArgument past;          ///< none: the function takes whole sequences
  mlir::Value added;                 ///< sizes B, G, S and D in some order
  llvm::SmallVector<int64_t> order;  ///< which dimensions of `added` are B, G, S and D
  std::optional<unsigned> output;    ///< where past and new ones leave, if there are past ones
};

struct Layer {
  AttentionOp attention;
  Cache keys, values;
  std::optional<int64_t> window; ///< tokens before its own that one sees; none: all
  int64_t sinks = 0;             ///< with a window: first tokens of the sequence that one sees, too
  size_t group = 0, number = 0;  ///< of those whose pages a table names, and among the group's layers
  mlir::Value slopes;            ///< ALiBi: numbers of heads by which scores fall with distance, if they do
};

/// Layers that give up pages behind the same window; `window` as Layer has it.
struct Group {
  int64_t layers = 0;
  std::optional<int64_t> window;
  int64_t sinks = 0;
};

/// A function that is a decoder, and what is proved of it.
struct Decoder {
  mlir::func::FuncOp func;
  llvm::SmallVector<Layer> layers; ///< in program order
  std::vector<Group> groups;       ///< of these, where they are proved
  DimExpr batch, tokens;           ///< sizes: B, 1 or a symbol; S, a symbol
  /// Tokens of before, P: 0 without caches, the size of caches that grow, kPast where caches have room for more.
  DimExpr past;
  DimExpr keys;                    ///< size of what attention reads: P + S, or the room of the caches
  std::optional<DimExpr> room;     ///< of caches that have room for more than P
  /// What other sizes and numbers of the caller are, as formulas of P and S: those that say where new keys are
  /// written, and those that assumptions list.
  std::map<std::string, DimExpr> known;
  /// What makes past and new keys one value, which is gone over pages.
  llvm::SetVector<mlir::Operation *> writes;
  unsigned logits = 0;             ///< the output that is no present
  mlir::BlockArgument ids;         ///< [B, S]: tokens
  std::vector<std::string> proofs, assumptions;

  /// Inputs [B, S] or [S] of integers beside `ids`: the caller feeds places of tokens.
  bool isPositions(mlir::Value value) const;
  /// Inputs [B, keys] of integers or booleans: 1 where a key counts. Without padding all do. Of whole sequences,
  /// where positions have the same sizes, those which nothing but masks read.
  bool isPadding(mlir::Value value) const;
  /// The name in `known` of an input [B], [1] or [] of integers; none for others.
  std::optional<std::string> numberName(mlir::Value value) const;
};

enum class Obligation {
  Tokens,    ///< O1: nothing but attention mixes tokens or rows
  Caches,    ///< O2: present is past and new, and attention reads those
  Masks,     ///< O3: a token sees the keys up to its own
  Positions, ///< O4: positions are P + i
  Sizes,     ///< O5: P, S and B are no data
  Logits,    ///< O6: logits are per token
  States,    ///< O7: no other state passes from step to step
};

/// Whether a size is the step's own: T tokens, R requests, N pages of the pool; M, M1 and so on, pages of a row of the
/// tables of a group.
inline bool isStepSize(llvm::StringRef name) {
  if (name == "T" || name == "R" || name == "N")
    return true;
  return name.consume_front("M") && llvm::all_of(name, llvm::isDigit);
}

/// Begins the error of a check that fails.
mlir::InFlightDiagnostic refuse(mlir::Location loc, Obligation obligation);
/// Name of an input or output, for messages.
std::string nameOf(mlir::BlockArgument argument);

/// O2, O7: finds layers, caches, sizes and logits.
mlir::LogicalResult findCaches(Decoder &decoder);
/// O1, O6: follows tokens from `ids`, which it finds, to the logits.
mlir::LogicalResult followTokens(Decoder &decoder);
/// O3: what each attention sees.
mlir::LogicalResult proveMasks(Decoder &decoder);
/// Which layers share a table of pages.
void groupLayers(Decoder &decoder);
/// O4: values that are positions, whatever they are computed from; where masks are gone already.
mlir::LogicalResult findPositions(Decoder &decoder, llvm::SetVector<mlir::Value> &positions);
/// O5: where caches, masks and positions are gone already.
mlir::LogicalResult checkSizes(Decoder &decoder);

//===----------------------------------------------------------------------===//
// Elements (PageStatesElements.cpp)
//===----------------------------------------------------------------------===//

/// Index variables of scores, in formulas beside the sizes of the decoder.
inline constexpr const char *kBatch = "_batch", *kHead = "_head", *kQuery = "_query", *kKey = "_key",
                            *kDepth = "_depth";
/// How numbers of the caller are called, before the number of the input.
inline constexpr const char *kNumberPrefix = "_input";
/// What is added to a score and is not above this hides its key: about the least number of f16.
inline constexpr double kHides = -1e4;
/// P, where it is the size of nothing.
inline constexpr const char *kPast = "_past";

/// A formula of conditions `expr <= 0`.
struct Condition {
  enum class Kind { True, False, AtMostZero, And, Or } kind = Kind::True;
  DimExpr expr;
  std::vector<Condition> parts; ///< of And and Or, two or more, none of their parent's kind
  std::string str() const;
};

/// One element of a tensor as a formula over its index.
struct Element {
  enum class Kind { Integer, Real, Truth, Choice, Datum } kind = Kind::Integer;
  DimExpr integer;
  double real = 0;
  Condition truth;                          ///< Truth; of Choice, when it is `yes`
  std::shared_ptr<const Element> yes, no;   ///< Choice
  mlir::Value source;                       ///< Datum: the element `at` of a value, times `integer`
  std::vector<DimExpr> at;
};

/// Computes elements of what comes to the scores, without padding.
class Elements {
public:
  /// `data`: those of caches, too, which are data of inputs or of new tokens.
  explicit Elements(const Decoder &decoder, bool data = false) : decoder(decoder), data(data) {}

  /// The element of a value at an index, or none, with `stuck` and `reason`.
  std::optional<Element> of(mlir::Value value, llvm::ArrayRef<DimExpr> index);
  /// The same where `value` broadcasts to the sizes `to`, whose index is given.
  std::optional<Element> broadcast(mlir::Value value, llvm::ArrayRef<DimExpr> to, llvm::ArrayRef<DimExpr> index);
  std::optional<Condition> truth(const Element &element);

  Condition atMostZero(const DimExpr &expr) const;
  Condition both(Condition a, Condition b) const;
  Condition either(Condition a, Condition b) const;
  Condition negated(const Condition &condition) const;
  /// The element where all of `facts` are at most 0.
  Element given(const Element &element, llvm::ArrayRef<DimExpr> facts) const;
  /// The greatest value that an expression of sizes, query and key can have; none where no bound is known.
  std::optional<int64_t> upperBound(DimExpr expr) const;
  /// A size by what is known of it: of the caller's numbers, and that there is a row and a new token.
  DimExpr known(const DimExpr &expr) const;

  mlir::Operation *stuck = nullptr;
  std::string reason;
  llvm::SetVector<mlir::Operation *> moves; ///< the ops through which data came
  std::optional<DimExpr> heads;             ///< how many there are: 0 <= kHead < heads

private:
  std::optional<Element> fail(mlir::Operation *op, const std::string &why);
  std::optional<Element> argument(mlir::BlockArgument argument, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> constant(ConstantOp op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> moved(mlir::Operation *op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> gathered(mlir::Operation *op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> padded(PadOp op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> scattered(mlir::Operation *op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> counted(ScanOp op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> summed(ReduceOp op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> readAt(mlir::Value x, std::vector<DimExpr> at, size_t axis, const Element &place);
  std::optional<Element> computed(mlir::Operation *op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> apply(mlir::Operation *op, const Element &a, const Element &b);
  std::optional<Element> converted(CastOp op, const Element &x);
  DimExpr quotient(const DimExpr &flat, const DimExpr &by) const;
  Condition join(Condition::Kind kind, Condition a, Condition b) const;
  bool follows(const Condition &part, const Condition &from) const;
  Condition given(const Condition &condition, llvm::ArrayRef<DimExpr> facts) const;
  Element choose(const Condition &condition, const Element &yes, const Element &no) const;
  std::vector<DimExpr> sizes(mlir::Value value) const;

  const Decoder &decoder;
  const bool data;
};

/// Whether a value of these sizes at this index has the elements of new tokens, one for each row, head, token
/// and number of a head; and which dimensions those are.
std::optional<llvm::SmallVector<int64_t>> orderOfRows(const Decoder &decoder, llvm::ArrayRef<DimExpr> dims,
                                                      llvm::ArrayRef<DimExpr> index);

} // namespace lathe::paging

#endif // LATHE_PASSES_SIMPLIFY_PAGESTATES_H
