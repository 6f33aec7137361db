//===- LatencyTable.h - measured times of layers by their forms -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A model whose groups of layers come in several forms (widths, formats) is measured in some combinations of them; of
// others the time is predicted as the sum of what kernels took where their own groups had these forms.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_LATENCYTABLE_H
#define LATHE_TOOLS_LATHE_LATENCYTABLE_H

#include "Profile.h"

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe::cli {

class LatencyTable {
public:
  /// The groups, by number, that each node of the model has to do with; others change nothing.
  explicit LatencyTable(std::map<std::string, std::set<int>> groupsOfNodes) : groupsOfNodes(std::move(groupsOfNodes)) {}

  /// Measures a model of these forms, one a group, in turn with the one that all times refer to, for `seconds`, 7 times at
  /// least, of which the least times count.
  Status measure(const OpenEngine &reference, const OpenEngine &engine, const std::vector<int> &forms,
                 const std::vector<HostTensor> &inputs, double seconds);

  /// One or two groups that kernels have to do with; the second is -1, or larger than the first. A kernel with more
  /// counts for the two that most of its nodes have to do with.
  using Groups = std::array<int, 2>;
  std::vector<Groups> groups() const;
  /// What kernels of these groups take together, where they have these forms: as measured; where no model had both
  /// forms, the mean of models that had one of them. 0 where none had either.
  double seconds(const Groups &groups, int first, int second) const;
  /// What is left of a run: kernels that no group changes, and all that is beside kernels.
  double rest() const;
  /// A run of the reference.
  double referenceSeconds() const;
  size_t models() const { return measured.size(); }

private:
  struct Measured {
    std::vector<int> forms;
    std::map<Groups, double> seconds;
    double run = 0, reference = 0;
  };
  Groups groupsOf(const KernelTime &kernel) const;
  /// By what times of this model are multiplied to be those of a machine as fast as in the median.
  double scale(const Measured &one) const { return one.reference > 0 ? referenceSeconds() / one.reference : 1; }

  const std::map<std::string, std::set<int>> groupsOfNodes;
  std::vector<Measured> measured;
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_LATENCYTABLE_H
