//===- Emitter.h - short words for making lathe ops -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every function gives null when an operand is null or the op's own inference
// refuses; the reason is then in `error`. So handlers build a whole formula and
// check the last value alone.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_LEGALIZE_EMITTER_H
#define LATHE_PASSES_LEGALIZE_EMITTER_H

#include "lathe/ir/Lathe.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe::legal {

using Dims = std::vector<DimExpr>;
using Ints = std::vector<int64_t>;

class Emitter {
public:
  explicit Emitter(mlir::MLIRContext *context) : b(context), loc(b.getUnknownLoc()) {}

  mlir::OpBuilder b;
  mlir::Location loc;
  std::string error;                      ///< why the last null came about
  std::map<std::string, DimRange> ranges; ///< bounds of the module's symbols

  /// An op whose result type it infers itself: infer<MatmulOp>(a, b).
  template <typename OpTy, typename... Args> mlir::Value infer(Args &&...args) {
    if ((isNull(args) || ...))
      return {};
    mlir::OperationState state(loc, OpTy::getOperationName());
    OpTy::build(b, state, b.getNoneType(), args...);
    return create<OpTy>(state);
  }

  /// The op of a state built with some result type; the type is inferred.
  template <typename OpTy> mlir::Value create(mlir::OperationState &state) {
    return finish(state, [&](llvm::SmallVectorImpl<mlir::Type> &types) {
      return OpTy::inferReturnTypes(b.getContext(), loc, state.operands,
                                    state.attributes.getDictionary(b.getContext()),
                                    state.getRawProperties(), {}, types);
    });
  }

  template <typename OpTy> mlir::Value unary(mlir::Value x) {
    return x ? OpTy::create(b, loc, x.getType(), x).getResult() : mlir::Value();
  }
  mlir::Value add(mlir::Value a, mlir::Value b) { return infer<AddOp>(a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return infer<SubOp>(a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return infer<MulOp>(a, b); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return infer<DivOp>(a, b); }
  mlir::Value max(mlir::Value a, mlir::Value b) { return infer<MaxOp>(a, b); }
  mlir::Value min(mlir::Value a, mlir::Value b) { return infer<MinOp>(a, b); }
  mlir::Value compare(mlir::Value a, mlir::Value b, Predicate p) {
    return infer<CompareOp>(a, b, p);
  }
  mlir::Value select(mlir::Value c, mlir::Value a, mlir::Value b) {
    return infer<SelectOp>(c, a, b);
  }
  // With a number that takes the other operand's element type.
  mlir::Value add(mlir::Value a, double v) { return add(a, like(a, v)); }
  mlir::Value mul(mlir::Value a, double v) { return mul(a, like(a, v)); }
  mlir::Value div(mlir::Value a, double v) { return div(a, like(a, v)); }
  mlir::Value max(mlir::Value a, double v) { return max(a, like(a, v)); }
  mlir::Value min(mlir::Value a, double v) { return min(a, like(a, v)); }
  mlir::Value compare(mlir::Value a, double v, Predicate p) { return compare(a, like(a, v), p); }

  /// A constant of rank 0.
  mlir::Value scalar(double value, mlir::Type element);
  mlir::Value like(mlir::Value x, double value) {
    return x ? scalar(value, elementTypeOf(x)) : mlir::Value();
  }
  mlir::Value ints(llvm::ArrayRef<int64_t> values, llvm::ArrayRef<int64_t> shape,
                   mlir::Type element);
  mlir::Value floats(llvm::ArrayRef<double> values, llvm::ArrayRef<int64_t> shape,
                     mlir::Type element);
  /// A size as data of rank 0: a constant or a dim_value.
  mlir::Value dimScalar(const DimExpr &dim, mlir::Type element);
  mlir::Value dimTensor(llvm::ArrayRef<DimExpr> dims, llvm::ArrayRef<int64_t> shape,
                        mlir::Type element);

  mlir::Value cast(mlir::Value x, mlir::Type element, bool saturate = true);
  /// Codes less their zero point, times their scale; either may be null. The operands broadcast, or
  /// parameters have an element a block.
  mlir::Value dequantize(mlir::Value data, mlir::Value scale, mlir::Value zero, mlir::Type element,
                         llvm::ArrayRef<int64_t> block = {});
  /// x as codes of a type; `zero` may be null.
  mlir::Value quantize(mlir::Value x, mlir::Value scale, mlir::Value zero, mlir::Type element,
                       bool saturate = true, llvm::ArrayRef<int64_t> block = {});
  mlir::Value reshape(mlir::Value x, const Dims &dims);
  mlir::Value broadcastTo(mlir::Value x, const Dims &dims);
  mlir::Value transpose(mlir::Value x, llvm::ArrayRef<int64_t> perm);
  mlir::Value slice(mlir::Value x, const Dims &starts, const Dims &sizes,
                    llvm::ArrayRef<int64_t> steps);
  /// Elements [start, start + size) of one axis.
  mlir::Value sliceAxis(mlir::Value x, int64_t axis, const DimExpr &start, const DimExpr &size);
  mlir::Value pad(mlir::Value x, mlir::Value value, const Dims &low, const Dims &high,
                  PadMode mode);
  mlir::Value concat(llvm::ArrayRef<mlir::Value> xs, int64_t axis);
  mlir::Value iota(const Dims &dims, int64_t axis, mlir::Type element);
  mlir::Value reduce(mlir::Value x, ReduceKind kind, llvm::ArrayRef<int64_t> axes,
                     bool keepdims = true);
  /// Sum divided by the number of elements; sums of narrow floats are kept in f32,
  /// where they neither overflow nor round.
  mlir::Value mean(mlir::Value x, llvm::ArrayRef<int64_t> axes, bool keepdims = true);
  mlir::Value matmul(mlir::Value a, mlir::Value b, bool transposeA = false,
                     bool transposeB = false);
  mlir::Value unsqueeze(mlir::Value x, llvm::ArrayRef<int64_t> axes);
  /// The value with sizes claimed, checked at run time; the value when they are its own.
  mlir::Value bind(mlir::Value x, const Dims &dims);

  bool provablyNonNegative(const DimExpr &e) const { return e.range(ranges).lo >= 0; }
  /// max(e, 0), or e where that is known to be no less than 0.
  DimExpr clampAtZero(const DimExpr &e) const;
  /// min(a, b), decided by bounds where possible.
  DimExpr minOf(const DimExpr &a, const DimExpr &b) const;
  mlir::ArrayAttr dimArray(const Dims &dims);
  mlir::Value fail(llvm::Twine why);

private:
  mlir::Value table(mlir::DenseElementsAttr dense);
  static bool isNull(mlir::Value v) { return !v; }
  static bool isNull(const std::vector<mlir::Value> &vs) {
    return llvm::is_contained(vs, mlir::Value());
  }
  static bool isNull(llvm::ArrayRef<mlir::Value> vs) {
    return llvm::is_contained(vs, mlir::Value());
  }
  /// An operand that the op takes as optional is passed through this type.
  template <typename T> static bool isNull(const T &) { return false; }
  mlir::Value
  finish(mlir::OperationState &state,
         llvm::function_ref<mlir::LogicalResult(llvm::SmallVectorImpl<mlir::Type> &)> inferTypes);
};

inline int64_t rankOf(mlir::Value v) { return llvm::cast<TensorType>(v.getType()).getRank(); }
/// Floats of 16 bits and less.
inline bool isNarrow(mlir::Type t) {
  return llvm::isa<mlir::FloatType>(t) && t.getIntOrFloatBitWidth() < 32;
}
inline bool isFloat(mlir::Type t) { return llvm::isa<mlir::FloatType>(t); }
inline bool isInt(mlir::Type t) { return t.isInteger() && !t.isInteger(1); }

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_EMITTER_H
