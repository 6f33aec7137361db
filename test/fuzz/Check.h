//===- Check.h - one model in four ways -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_FUZZ_CHECK_H
#define LATHE_TEST_FUZZ_CHECK_H

#include "Generator.h"

#include "lathe/support/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lathe::fuzz {

struct CheckOptions {
  std::string target = "x86-64-v3";
  std::string folder; ///< for the files of one check
  bool symbolic = true, unoptimized = true;
  enum class Mesh { None, Reference, Compiled };
  Mesh mesh = Mesh::None; ///< otherwise divided among ranks, in the place of the other ways
  uint64_t meshSeed = 0;  ///< decides how many ranks, and how ops are divided
};

/// What became of a model.
struct Verdict {
  std::string way;     ///< the first that went wrong: "optimized", "unoptimized", "symbolic", "reference"; or empty
  std::string what;    ///< "mismatch", or a Status without numbers; failures of one kind have one text
  std::string detail;  ///< for people
  std::string refused; ///< why there is no symbolic engine, or no mesh; empty: there is one
  int64_t collectives = 0; ///< of a mesh
  int64_t elements = 0, open = 0; ///< results, and those of them that rounding decides

  bool passed() const { return way.empty(); }
  /// One line that tells this failure from others.
  std::string kind() const { return way + ": " + what; }
};

/// Compares engines with the reference on the model's inputs: optimized; each op a kernel of its own, nothing
/// simplified across ops; and with all sizes of inputs symbolic. Or, with `mesh`, on 2, 3, 4 or 8 ranks, which divide
/// ops in ways drawn at random, op by op through the reference or as an engine; all ranks must have the same bits.
Verdict check(const TestModel &model, const CheckOptions &options);

/// What the reference computes for a model as a file.
Result<std::vector<HostTensor>> referenceResults(const std::string &path, const std::vector<HostTensor> &inputs);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_CHECK_H
