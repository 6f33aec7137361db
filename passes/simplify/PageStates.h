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

#include <memory>

namespace lathe::paging {

/// A cache that the caller passes and gets back: present = concat(past, added).
struct Cache {
  mlir::BlockArgument past;
  ConcatOp present;
  mlir::Value added;   ///< [B, G, S, D]
  unsigned output = 0; ///< where `present` leaves
};

struct Layer {
  AttentionOp attention;
  Cache keys, values;
  std::optional<int64_t> window; ///< tokens before its own that one sees; none: all
};

/// A function that is a decoder, and what is proved of it.
struct Decoder {
  mlir::func::FuncOp func;
  llvm::SmallVector<Layer> layers; ///< in program order
  DimExpr batch, tokens, past;     ///< sizes: B, a number or symbol; S and P, symbols
  unsigned logits = 0;             ///< the output that is no present
  mlir::BlockArgument ids;         ///< [B, S]: tokens
  std::vector<std::string> proofs, assumptions;

  /// Inputs [B, S] of integers beside `ids`: the caller feeds places of tokens.
  bool isPositions(mlir::Value value) const;
  /// Inputs [B, keys] of integers or booleans: 1 where a key counts. Without padding all do.
  bool isPadding(mlir::Value value) const;
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

/// Whether a size is the step's own: T tokens, R requests, M pages of a row of tables, N pages of the pool.
inline bool isStepSize(llvm::StringRef name) {
  return name == "T" || name == "R" || name == "M" || name == "N";
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
/// O4: values that are positions, whatever they are computed from; where masks are gone already.
mlir::LogicalResult findPositions(Decoder &decoder, llvm::SetVector<mlir::Value> &positions);
/// O5: where caches, masks and positions are gone already.
mlir::LogicalResult checkSizes(Decoder &decoder);

//===----------------------------------------------------------------------===//
// Elements (PageStatesElements.cpp)
//===----------------------------------------------------------------------===//

/// Index variables of scores, in formulas beside the sizes of the decoder.
inline constexpr const char *kBatch = "_batch", *kHead = "_head", *kQuery = "_query", *kKey = "_key";

/// A formula of conditions `expr <= 0`.
struct Condition {
  enum class Kind { True, False, AtMostZero, And, Or } kind = Kind::True;
  DimExpr expr;
  std::vector<Condition> parts; ///< of And and Or, two or more, none of their parent's kind
  std::string str() const;
};

/// One element of a tensor as a formula over its index.
struct Element {
  enum class Kind { Integer, Real, Truth, Choice } kind = Kind::Integer;
  DimExpr integer;
  double real = 0;
  Condition truth;                          ///< Truth; of Choice, when it is `yes`
  std::shared_ptr<const Element> yes, no;   ///< Choice
};

/// Computes elements of what comes to the scores, without padding.
class Elements {
public:
  explicit Elements(const Decoder &decoder) : decoder(decoder) {}

  /// The element of a value at an index, or none, with `stuck` and `reason`.
  std::optional<Element> of(mlir::Value value, llvm::ArrayRef<DimExpr> index);
  /// The same where `value` broadcasts to sizes whose index is given.
  std::optional<Element> broadcast(mlir::Value value, llvm::ArrayRef<DimExpr> index);
  std::optional<Condition> truth(const Element &element);

  Condition atMostZero(const DimExpr &expr) const;
  Condition both(Condition a, Condition b) const;
  Condition either(Condition a, Condition b) const;
  Condition negated(const Condition &condition) const;

  mlir::Operation *stuck = nullptr;
  std::string reason;

private:
  std::optional<Element> fail(mlir::Operation *op, const std::string &why);
  std::optional<Element> argument(mlir::BlockArgument argument, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> constant(ConstantOp op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> moved(mlir::Operation *op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> gathered(mlir::Operation *op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> computed(mlir::Operation *op, llvm::ArrayRef<DimExpr> index);
  std::optional<Element> apply(mlir::Operation *op, const Element &a, const Element &b);
  std::optional<Element> converted(CastOp op, const Element &x);
  DimExpr quotient(const DimExpr &flat, const DimExpr &by) const;
  std::optional<int64_t> upperBound(const DimExpr &expr) const;

  const Decoder &decoder;
};

} // namespace lathe::paging

#endif // LATHE_PASSES_SIMPLIFY_PAGESTATES_H
