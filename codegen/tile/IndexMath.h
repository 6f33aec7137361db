//===- IndexMath.h - index arithmetic with folding --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds `index` arithmetic: constants fold, equal expressions give the same
// value (so that the evaluator's memo sees equal indices), dimension
// expressions are computed once at the head of the function. Quantities are
// sizes and offsets: never negative unless an operation says otherwise.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_INDEXMATH_H
#define LATHE_CODEGEN_TILE_INDEXMATH_H

#include "lathe/support/DimExpr.h"

#include "mlir/IR/Builders.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SmallVector.h"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace lathe::codegen {

/// One index of a tensor element for all lanes of a vector. Lane l is at
/// base + l * stride, or at element l of `lanes` when there is no such stride.
struct Index {
  mlir::Value base;       ///< index; of lane 0 (null when `lanes` is set)
  int64_t stride = 0;
  mlir::Value lanes;      ///< vector<Wxindex>, or null

  Index() = default;
  Index(mlir::Value b, int64_t s = 0) : base(b), stride(s) {}
  static Index ofLanes(mlir::Value v) {
    Index i;
    i.lanes = v;
    return i;
  }
  bool uniform() const { return !lanes && stride == 0; }
};
using Indices = llvm::SmallVector<Index, 6>;
inline bool uniform(const Indices &idx) {
  for (const Index &i : idx)
    if (!i.uniform())
      return false;
  return true;
}

class IndexMath {
public:
  /// `symbols` name the trailing index arguments of `fn`; `width` is the number of lanes.
  IndexMath(mlir::OpBuilder &b, mlir::func::FuncOp fn, const std::vector<std::string> &symbols,
            unsigned firstSymbolArg, int64_t width);

  mlir::OpBuilder &b;
  const int64_t width;

  mlir::Value cst(int64_t v);
  /// A constant at the head of the function, made once.
  mlir::Value constant(mlir::TypedAttr attr);
  static std::optional<int64_t> constantOf(mlir::Value v);
  mlir::Value add(mlir::Value x, mlir::Value y);
  mlir::Value sub(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, mlir::Value y);
  mlir::Value div(mlir::Value x, mlir::Value y); ///< x >= 0, y > 0
  mlir::Value rem(mlir::Value x, mlir::Value y); ///< x >= 0, y > 0
  mlir::Value ceilDiv(mlir::Value x, int64_t y) { return div(add(x, cst(y - 1)), cst(y)); }
  mlir::Value min(mlir::Value x, mlir::Value y); ///< signed
  mlir::Value max(mlir::Value x, mlir::Value y); ///< signed
  mlir::Value cmp(mlir::arith::CmpIPredicate p, mlir::Value x, mlir::Value y);
  mlir::Value select(mlir::Value c, mlir::Value x, mlir::Value y);
  mlir::Value add(mlir::Value x, int64_t y) { return add(x, cst(y)); }
  mlir::Value mul(mlir::Value x, int64_t y) { return mul(x, cst(y)); }
  /// The value of an expression, computed at the head of the function.
  mlir::Value dim(const DimExpr &e);
  /// Says that a value is never negative and stays below `below`: comparisons with constants fold.
  void limit(mlir::Value v, int64_t below) { limits[v.getAsOpaquePointer()] = below; }
  /// A number that is known to divide the value (0 divides everything: the constant 0).
  int64_t divisor(mlir::Value v);

  // Lane-wise forms.
  Index add(const Index &x, const Index &y);
  Index mul(const Index &x, const DimExpr &by);
  Index mul(const Index &x, int64_t by) { return mul(x, DimExpr(by)); }
  /// Quotient and remainder by a positive size.
  std::pair<Index, Index> divRem(const Index &x, const DimExpr &by);
  Index min(const Index &x, mlir::Value y);
  Index max(const Index &x, mlir::Value y);
  mlir::Value lanesOf(const Index &x);        ///< vector<Wxindex>
  mlir::Value lane(const Index &x, int64_t l); ///< index of lane l
  mlir::Value splat(mlir::Value scalar);       ///< vector<Wxindex>
  /// x PRED y: i1 when uniform, else vector<Wxi1>.
  mlir::Value cmp(mlir::arith::CmpIPredicate p, const Index &x, mlir::Value y);

  /// Equal expressions are shared inside a scope (a region) and those around it.
  void pushScope() { scopes.emplace_back(); }
  void popScope() { scopes.pop_back(); }

private:
  using Key = std::tuple<int, void *, void *, void *>;
  mlir::Value shared(int op, mlir::Value x, mlir::Value y, mlir::Value z,
                     llvm::function_ref<mlir::Value()> make);
  mlir::Value dimHere(const DimExpr &e);
  /// First and last number that a value may be, where both are known.
  std::optional<std::pair<int64_t, int64_t>> rangeOf(mlir::Value v) const;

  mlir::func::FuncOp fn;
  std::map<std::string, mlir::Value> symbols;
  std::map<void *, mlir::Value> constants;   ///< by attribute
  std::map<void *, int64_t> limits;
  std::map<std::string, mlir::Value> dims;
  std::vector<std::map<Key, mlir::Value>> scopes;
  mlir::Operation *lastConstant = nullptr;
  mlir::Operation *lastHead = nullptr;
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_INDEXMATH_H
