//===- Aten.h - arguments of torch's operators, family by family -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Handlers of the aten dialect. An op that means the same as one of ONNX is composed of that
// (`onnx`), so that there is one lowering; sizes come from the types that torch states
// (`resultDims`).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_LEGALIZE_ATEN_ATEN_H
#define LATHE_PASSES_LEGALIZE_ATEN_ATEN_H

#include "../Formulas.h"

namespace lathe::legal::aten {

// Each adds handlers keyed "aten.name" or "aten.name.overload".
void addElementwise(Handlers &);
void addMovement(Handlers &);
void addGathers(Handlers &);
void addReductions(Handlers &);
void addProducts(Handlers &);
void addWindows(Handlers &);
void addNormalizations(Handlers &);
void addFourier(Handlers &);

/// What torch states of a result; null, and no sizes, for results that are no tensors.
mlir::Type resultElement(Node &n, unsigned i = 0);
Dims resultDims(Node &n, unsigned i = 0);
/// The type in which torch computes an op of operands of different types.
mlir::Type computeType(Node &n);

/// Arguments that are no tensors, by their names in torch's schema; none, or `otherwise`, where not
/// given.
std::optional<int64_t> integer(Node &n, llvm::StringRef name);
double number(Node &n, llvm::StringRef name, double otherwise);
bool flag(Node &n, llvm::StringRef name, bool otherwise = false);
std::optional<DimExpr> size(Node &n, llvm::StringRef name);
Ints integers(Node &n, llvm::StringRef name);
std::optional<Dims> sizes(Node &n, llvm::StringRef name);
/// A list of one number for each of `count` dimensions, where one number stands for all.
Ints perDimension(Node &n, llvm::StringRef name, size_t count, int64_t otherwise);
/// `dim` and the like: an axis of a tensor of this rank (a scalar counts as of rank 1); all axes of
/// a list, or of the rank where none is named.
std::optional<int64_t> axisOf(Node &n, llvm::StringRef name, int64_t rank, int64_t otherwise);
std::optional<Ints> axesOf(Node &n, llvm::StringRef name, int64_t rank);
/// A number as a tensor without dimensions; null with a reason when it is not given.
mlir::Value scalar(Node &n, llvm::StringRef name, mlir::Type element);
/// Operand i, or the number of that name in its place.
mlir::Value operand(Node &n, unsigned i, llvm::StringRef name, mlir::Type element);
/// Conversion as torch's: to bool is a test for zero.
mlir::Value castTo(Emitter &e, mlir::Value x, mlir::Type element);
/// The operands of argument `i`, which is a list; the place of the first.
std::pair<unsigned, unsigned> segment(Node &n, unsigned i);

/// The result of an op of ONNX; null when it failed, or when an operand did (absent operands are
/// `absent()`).
struct Operand {
  mlir::Value value;
  bool isAbsent = false;
  Operand(mlir::Value value) : value(value) {}
  static Operand absent() {
    Operand none{mlir::Value()};
    none.isAbsent = true;
    return none;
  }
};
mlir::Value onnx(Node &n, llvm::StringRef type, llvm::ArrayRef<Operand> operands,
                 llvm::ArrayRef<mlir::NamedAttribute> attributes = {});
std::vector<mlir::Value> onnxResults(Node &n, llvm::StringRef type,
                                     llvm::ArrayRef<Operand> operands,
                                     llvm::ArrayRef<mlir::NamedAttribute> attributes,
                                     unsigned results);
mlir::NamedAttribute attr(Node &n, llvm::StringRef name, int64_t value);
mlir::NamedAttribute attr(Node &n, llvm::StringRef name, const Ints &values);
mlir::NamedAttribute real(Node &n, llvm::StringRef name, double value);
mlir::NamedAttribute text(Node &n, llvm::StringRef name, llvm::StringRef value);

} // namespace lathe::legal::aten

#endif // LATHE_PASSES_LEGALIZE_ATEN_ATEN_H
