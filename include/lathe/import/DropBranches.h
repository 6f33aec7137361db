//===- DropBranches.h - ONNX models without some residual branches -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   y = x + f(x)    =>    y = x
//
// where f ends in a product, convolution or batch norm by constants, also behind casts, reshapes, transposes and scales by
// constants: with zeros for these, f gives zeros. Nothing else reads what f ends in.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_DROPBRANCHES_H
#define LATHE_IMPORT_DROPBRANCHES_H

#include "lathe/import/QuantizeModel.h"
#include "lathe/sparsify/Coupling.h"
#include "lathe/support/HostTensor.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe {

struct ResidualBranch {
  std::string add;                    ///< the node that adds it, by its name or result
  std::vector<std::string> nodes;     ///< that nothing but the branch needs
  std::vector<std::string> constants; ///< that make it zero
  double score = 0;
};

struct ResidualBranches {
  std::vector<ResidualBranch> branches; ///< in the order of the graph
  KeptValues kept;                      ///< additions that are no such branch, and why
};

/// The branches of a model, whose sizes its coupling tells, and what they are worth: by the mean magnitude or square of the weights that end them, a
/// number drawn, or with gradients the magnitude of the sum of weight x gradient. Invalid where one of these is missing
/// or of other sizes.
Result<ResidualBranches> residualBranches(const std::string &path, const sparsify::Coupling &coupling,
                                          sparsify::Score score, uint64_t seed,
                                          const std::map<std::string, HostTensor> &gradients);

/// The model without the branches that these nodes add, and without what only they needed. `inside`: all weights come
/// inside.
Result<std::string> modelWithoutBranches(const std::string &path, const std::set<std::string> &adds, bool inside);
/// The model whose branches end in zeros.
Result<std::string> modelWithZeroBranches(const std::string &path, const std::set<std::string> &adds, bool inside);

} // namespace lathe

#endif // LATHE_IMPORT_DROPBRANCHES_H
