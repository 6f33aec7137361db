//===- PruneSurgery.h - which units of a model can go -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_PRUNESURGERY_H
#define LATHE_TOOLS_LATHE_PRUNESURGERY_H

#include "PruneMeasure.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe::cli {

/// The families of a model that can become narrower, the scores of their units, and which of these go.
class Surgery {
public:
  Surgery(const PruneRequest &request, const std::string &path, std::set<sparsify::UnitKind> kinds)
      : request(request), path(path), kinds(std::move(kinds)) {}

  /// Reads options and model. Usage errors, and those of compiling it up to legalize.
  Status open();

  /// How many units of a family stay.
  using Stay = std::function<int64_t(const sparsify::Family &)>;
  /// Finds families and units that go, of those in which the new model has the sizes that it should; none where nothing
  /// can go. Unsupported where --only names what has to stay.
  Status choose(const Stay &stay);
  /// Says why nothing can go.
  Status nothing() const;

  /// The number that stays by a ratio, in multiples where units are single channels or columns.
  int64_t staying(const sparsify::Family &family, double ratio) const;
  static std::set<int64_t> all(const std::vector<std::set<int64_t>> &parts);
  /// Why columns of a layer stay; "" where they may go.
  std::string reasonOf(const sparsify::Coupling::Layer &layer) const;
  /// Whether --only lets a layer change.
  bool isWanted(const std::string &node) const;
  /// Whether a node stays as it is, for --keep or because its sizes do not follow.
  bool isKept(const std::string &node) const { return keeps.count(node); }
  /// The nodes that make or read one of these units.
  std::vector<std::string> nodesOf(const std::set<int64_t> &units) const;

  const PruneRequest &request;
  const std::string &path;
  SurgeryOptions options;
  sparsify::Coupling coupling;
  std::vector<sparsify::Family> families;
  std::vector<std::set<int64_t>> gone; ///< by family
  std::map<int64_t, double> scores;    ///< by unit

  /// A node whose operands and results must stay, and the reason; "" where there is none.
  struct Misfit {
    std::string node, why;
  };

private:
  Status couple();
  Result<Misfit> misfit(const std::set<int64_t> &units);
  Result<Misfit> offenderOf(const Status &status, const std::set<int64_t> &units) const;
  bool touches(const sparsify::Coupling::Tensor &tensor, const std::set<int64_t> &units) const;

  const std::set<sparsify::UnitKind> kinds;
  int64_t multiple = 8;
  std::map<std::string, std::string> keeps, constants; ///< nodes and constants whose units stay, and why
  std::map<int64_t, std::string> kept;                 ///< units
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_PRUNESURGERY_H
