//===- Families.h - the domain com.microsoft, family by family --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_MICROSOFT_FAMILIES_H
#define LATHE_PASSES_LEGALIZE_MICROSOFT_FAMILIES_H

#include "../Formulas.h"

namespace lathe::legal::microsoft {

// Each adds handlers keyed "com.microsoft.Name".
void addActivations(Handlers &);
void addProducts(Handlers &);
void addNorms(Handlers &);
void addCodes(Handlers &);
void addWeights(Handlers &);
void addAttention(Handlers &);

/// The handler of the ONNX op of the same name, of the newest opset.
mlir::LogicalResult sameAsOnnx(Node &n);


} // namespace lathe::legal::microsoft

#endif // LATHE_PASSES_LEGALIZE_MICROSOFT_FAMILIES_H
