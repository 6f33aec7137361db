//===- FoundShardings.h - how the search divides a model --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_COMPILER_FOUNDSHARDINGS_H
#define LATHE_COMPILER_FOUNDSHARDINGS_H

#include "lathe/compiler/Compiler.h"
#include "lathe/import/ShardModel.h"

namespace lathe {

struct FoundPlan {
  int64_t ranks = 1;
  std::vector<FoundSharding> shardings; ///< of the first entry, each name once
};

/// How the initializers of a model and the results of its nodes lie on the ranks of `options.mesh`. Errors are those of
/// compiling it up to shard.
Result<FoundPlan> foundShardings(const std::string &model, const CompileOptions &options);

} // namespace lathe

#endif // LATHE_COMPILER_FOUNDSHARDINGS_H
