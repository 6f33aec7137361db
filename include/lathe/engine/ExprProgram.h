//===- ExprProgram.h - formulas compiled for evaluation ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime evaluates hundreds of formulas per new shape; walking DimExpr with
// name look-ups would cost more than the kernels of a small model. An ExprProgram
// is the formula as postfix code over symbol numbers, with checked arithmetic and
// no allocation.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_EXPRPROGRAM_H
#define LATHE_ENGINE_EXPRPROGRAM_H

#include "lathe/support/DimExpr.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe::engine {

/// Value of a symbol that is not known yet.
inline constexpr int64_t kUnknownSymbol = INT64_MIN;

class ExprProgram {
public:
  /// The constant 0.
  ExprProgram() = default;

  /// Invalid when the formula uses a name that is not in `symbols` or nests too deep.
  static Result<ExprProgram> compile(const DimExpr &expr, std::span<const std::string> symbols);

  enum class Outcome : uint8_t { Ok, UnknownSymbol, Overflow, DivisionByZero, NoBroadcast };

  /// Value with symbols[i] = values[i]; `out` is written for Ok only.
  Outcome evaluate(std::span<const int64_t> values, int64_t &out) const;
  /// The same with an error that quotes `what`.
  Result<int64_t> value(std::span<const int64_t> values, std::string_view what) const;

  bool isConstant() const { return code.empty(); }
  /// Symbol numbers used, ascending.
  const std::vector<uint32_t> &symbols() const { return used; }

  static constexpr size_t kMaxDepth = 128; ///< of the evaluation stack

private:
  enum class Op : uint8_t { Constant, Symbol, Add, Mul, FloorDiv, CeilDiv, Mod, Min, Max, Bcast };
  struct Instr {
    Op op;
    int64_t operand; ///< constant or symbol number
  };
  struct Builder;

  std::vector<Instr> code; ///< empty: the constant below
  int64_t constantValue = 0;
  std::vector<uint32_t> used;
};

} // namespace lathe::engine

#endif // LATHE_ENGINE_EXPRPROGRAM_H
