//===- CoupledDims.cpp - what of a model is made narrower together --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/compiler/CoupledDims.h"

#include "lathe/compiler/Compilation.h"
#include "lathe/passes/CoupledDims.h"

namespace lathe {

Result<sparsify::Coupling> coupledDims(const std::string &model, const CompileOptions &options) {
  Result<std::unique_ptr<Compilation>> compilation = Compilation::open(model, options);
  if (!compilation)
    return compilation.status();
  LATHE_RETURN_IF_ERROR((*compilation)->runTo(Phase::Legalize));
  return coupledDims((*compilation)->module());
}

} // namespace lathe
