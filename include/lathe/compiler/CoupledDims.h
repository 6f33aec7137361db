//===- CoupledDims.h - what of a model is made narrower together -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_COMPILER_COUPLEDDIMS_H
#define LATHE_COMPILER_COUPLEDDIMS_H

#include "lathe/compiler/Compiler.h"
#include "lathe/sparsify/Coupling.h"

namespace lathe {

/// Which elements of which dimensions of a model go together. Errors are those of compiling it up to legalize.
Result<sparsify::Coupling> coupledDims(const std::string &model, const CompileOptions &options);

} // namespace lathe

#endif // LATHE_COMPILER_COUPLEDDIMS_H
