//===- PruneSearch.cpp - lathe prune --budget latency= --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For each group of layers a width, or none where a residual branch goes whole, such that a run takes no longer
// than asked for and the results change least. What widths take is measured: of two groups that a kernel has to do
// with at all pairs of widths, by giving every second group one width and the others another. What they lose is the
// change of the results where that group alone is narrower. Choices are those of analysis::searchWithinBudget; what they
// take is measured again, and the budget corrected by what the prediction was off.
//
//===----------------------------------------------------------------------===//
#include "Calibrate.h"
#include "LatencyTable.h"
#include "Progress.h"
#include "PruneReport.h"
#include "PruneSurgery.h"

#include "lathe/analysis/BudgetSearch.h"
#include "lathe/import/DropBranches.h"
#include "lathe/import/ObserveModel.h"
#include "lathe/import/SliceModel.h"
#include "lathe/support/Files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>

namespace lathe::cli {
namespace {

using sparsify::Family;
using sparsify::UnitKind;

/// latency=60% or latency=2.5ms: a share of the dense one's, or seconds.
struct Budget {
  double amount = 0;
  bool isShare = false;

  static Result<Budget> parse(const std::string &text) {
    Budget budget;
    const std::string form = "wants latency=60% or latency=2.5ms, not '" + text + "'";
    const std::string_view prefix = "latency=";
    if (!text.starts_with(prefix))
      return usageError(form, "--budget");
    const char *end = text.data() + text.size();
    auto read = std::from_chars(text.data() + prefix.size(), end, budget.amount);
    const std::string_view unit(read.ptr, size_t(end - read.ptr));
    budget.isShare = unit == "%";
    if (read.ec != std::errc() || !(budget.amount > 0) || (unit != "%" && unit != "ms") || (budget.isShare && budget.amount >= 100))
      return usageError(form, "--budget");
    budget.amount /= budget.isShare ? 100 : 1000;
    return budget;
  }
};

/// Layers that become narrower together, a residual branch that can go, or both: the first group of a branch has the
/// choice that all of it goes.
struct Group {
  int family = -1, branch = -1; ///< -1: none
  bool ownsBranch = false;      ///< its last choice is without the branch
  std::vector<int64_t> stay;    ///< units, of each choice; rising losses
  int choices() const { return int(stay.size()) + ownsBranch; }
};

/// The eighths of units that choices leave. Fewer of channels, whose kernels have widths on both sides: as many models
/// are measured as there are pairs.
constexpr int kParts = 8;
constexpr int kFine[] = {8, 7, 6, 5, 4, 3, 2, 1}, kCoarse[] = {8, 6, 4, 3, 2, 1};

class LayerSearch : public Surgery {
public:
  LayerSearch(const PruneRequest &request, const std::string &path, std::set<UnitKind> kinds, bool dropsBranches)
      : Surgery(request, path, kinds), dropsBranches(dropsBranches) {}

  Status run() {
    Result<Budget> parsed = Budget::parse(request.budget);
    if (!parsed)
      return parsed.status();
    LATHE_RETURN_IF_ERROR(open());
    LATHE_RETURN_IF_ERROR(choose([&](const Family &family) { return staying(family, 1 - 1.0 / kParts); }));
    LATHE_RETURN_IF_ERROR(findGroups());
    if (groups.empty())
      return nothing();
    LATHE_RETURN_IF_ERROR(openDense());
    LATHE_RETURN_IF_ERROR(measureTimes());
    LATHE_RETURN_IF_ERROR(measureLosses());
    return searchAndWrite(*parsed);
  }

private:
  using Choices = std::vector<int>;

  /// One group a family, and one a branch that has none.
  Status findGroups() {
    if (dropsBranches) {
      Result<ResidualBranches> found = residualBranches(path, coupling, options.score, options.seed, options.gradients);
      if (!found)
        return found.status();
      branches = std::move(found->branches);
      std::erase_if(branches, [&](const ResidualBranch &branch) { return isKept(branch.add) || !isWanted(branch.add); });
    }
    std::vector<bool> owned(branches.size());
    for (size_t f = 0; f < families.size(); ++f) {
      Group group;
      group.family = int(f);
      const bool coarse = std::any_of(families.begin(), families.end(), [](const Family &one) { return one.kind == UnitKind::Channels; });
      for (int part : coarse ? std::span<const int>(kCoarse) : std::span<const int>(kFine)) {
        const int64_t stay = part == kParts ? int64_t(families[f].units.size()) : staying(families[f], 1 - double(part) / kParts);
        if (group.stay.empty() || stay < group.stay.back())
          group.stay.push_back(stay);
      }
      for (size_t b = 0; b < branches.size(); ++b) {
        const std::vector<std::string> &nodes = branches[b].nodes;
        if (std::all_of(families[f].layers.begin(), families[f].layers.end(),
                        [&](const std::string &layer) { return std::count(nodes.begin(), nodes.end(), layer); })) {
          group.branch = int(b);
          group.ownsBranch = !owned[b];
          owned[b] = true;
        }
      }
      groups.push_back(std::move(group));
    }
    for (size_t b = 0; b < branches.size(); ++b)
      if (!owned[b])
        groups.push_back({-1, int(b), true, {1}});
    return okStatus();
  }

  int ownerOf(int branch) const {
    for (size_t g = 0; g < groups.size(); ++g)
      if (branch >= 0 && groups[g].branch == branch && groups[g].ownsBranch)
        return int(g);
    return -1;
  }
  /// Whether the group goes with its branch.
  bool isDropped(int group, const Choices &choices) const {
    const int owner = ownerOf(groups[group].branch);
    return owner >= 0 && isGone(owner, choices[owner]);
  }

  /// The model of these choices, or the model of the old size with zeros in the place of what goes.
  Result<std::string> modelOf(const Choices &choices, bool inside, bool masked = false) const {
    std::set<int64_t> units;
    std::set<std::string> adds;
    for (size_t g = 0; g < groups.size(); ++g) {
      const Group &group = groups[g];
      if (isGone(int(g), choices[g]))
        adds.insert(branches[group.branch].add);
      if (group.family < 0 || isDropped(int(g), choices))
        continue;
      std::set<int64_t> least = leastUnits(families[group.family], scores, group.stay[choices[g]]);
      units.insert(least.begin(), least.end());
    }
    if (units.empty() && adds.empty() && !inside)
      return readFile(path);
    Result<std::string> narrower = (masked ? maskedModel : slicedModel)(path, coupling, units, inside || !adds.empty());
    if (!narrower || adds.empty())
      return narrower;
    Result<std::unique_ptr<TemporaryModel>> file = TemporaryModel::write("pruned.onnx", *narrower);
    if (!file)
      return file.status();
    return (masked ? modelWithZeroBranches : modelWithoutBranches)((*file)->path, adds, true);
  }

  struct Opened {
    std::unique_ptr<TemporaryModel> file;
    OpenEngine engine;
  };
  Result<std::unique_ptr<Opened>> openModel(const std::string &bytes) const {
    Result<std::unique_ptr<TemporaryModel>> plain = TemporaryModel::write("pruned.onnx", bytes);
    Result<std::string> named = plain ? namedModel((*plain)->path) : Result<std::string>(plain.status());
    Result<std::unique_ptr<TemporaryModel>> file =
        named ? TemporaryModel::write("pruned.onnx", *named) : Result<std::unique_ptr<TemporaryModel>>(named.status());
    if (!file)
      return file.status();
    CompileOptions compile = request.inputs.fixing(request.compile, path);
    compile.cache = false;
    Result<OpenEngine> engine = OpenEngine::open((*file)->path, compile, request.session);
    if (!engine)
      return engine.status();
    return std::make_unique<Opened>(Opened{std::move(*file), std::move(*engine)});
  }
  Result<std::unique_ptr<Opened>> openChoices(const Choices &choices) const {
    Result<std::string> bytes = modelOf(choices, /*inside=*/true);
    if (!bytes)
      return bytes.status();
    return openModel(*bytes);
  }

  Status openDense() {
    Result<std::unique_ptr<Opened>> opened = openChoices(Choices(groups.size()));
    if (!opened)
      return opened.status();
    dense = std::move(*opened);
    const engine::Plan &plan = *dense->engine.plan;
    if (!request.data.empty()) {
      Result<std::vector<Example>> examples = readExamples(request.data, plan);
      if (!examples)
        return examples.status();
      inputs = std::move(examples->front());
    } else {
      Result<std::vector<HostTensor>> made = makeInputs(request.inputs, {}, plan, dense->engine.session.stateLengths(plan), 0);
      if (!made)
        return made.status();
      inputs = std::move(*made);
    }
    Result<std::vector<HostTensor>> results = dense->engine.run(inputs);
    if (!results)
      return results.status();
    expected = std::move(*results);
    return okStatus();
  }

  /// The groups that a node has to do with: families whose units it makes or reads, and the owner of its branch.
  std::map<std::string, std::set<int>> groupsOfNodes() const {
    std::map<std::string, std::set<int>> of;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].family >= 0) {
        const std::vector<int64_t> &units = families[groups[g].family].units;
        for (const std::string &node : nodesOf({units.begin(), units.end()}))
          of[node].insert(int(g));
      }
      if (groups[g].ownsBranch)
        for (const std::string &node : branches[groups[g].branch].nodes)
          of[node].insert(int(g));
    }
    return of;
  }

  /// Gives neighbours different colours where that can be: groups that some node has to do with both.
  std::vector<int> colours(const std::map<std::string, std::set<int>> &of, bool &anyPairs) const {
    std::vector<std::set<int>> next(groups.size());
    for (const auto &[node, set] : of)
      for (int a : set)
        for (int b : set)
          if (a != b && groups[a].family >= 0 && groups[b].family >= 0)
            next[a].insert(b), anyPairs = true;
    std::vector<int> colour(groups.size(), -1);
    for (size_t start = 0; start < groups.size(); ++start) {
      if (colour[start] >= 0)
        continue;
      std::vector<int> queue = {int(start)};
      colour[start] = 0;
      for (size_t i = 0; i < queue.size(); ++i)
        for (int neighbour : next[queue[i]])
          if (colour[neighbour] < 0)
            colour[neighbour] = 1 - colour[queue[i]], queue.push_back(neighbour);
    }
    return colour;
  }

  Status measureTimes() {
    const std::map<std::string, std::set<int>> of = groupsOfNodes();
    bool anyPairs = false;
    const std::vector<int> colour = colours(of, anyPairs);
    std::vector<int> sizes;
    for (const Group &group : groups)
      sizes.push_back(int(group.stay.size()));
    table.emplace(of);
    const int most = *std::max_element(sizes.begin(), sizes.end());
    Progress progress;
    std::vector<Choices> designs;
    for (int a = 0; a < most; ++a)
      for (int b = 0; b < most; ++b)
        if (anyPairs || a == b) {
          Choices choices;
          for (size_t g = 0; g < groups.size(); ++g)
            choices.push_back(std::min(colour[g] ? b : a, sizes[g] - 1));
          if (std::find(designs.begin(), designs.end(), choices) == designs.end())
            designs.push_back(std::move(choices));
        }
    const double seconds = request.seconds / double(designs.size());
    for (size_t i = 0; i < designs.size(); ++i) {
      progress.show("measuring widths", int(i), int(designs.size()));
      Result<std::unique_ptr<Opened>> opened = openChoices(designs[i]);
      if (!opened)
        return opened.status();
      LATHE_RETURN_IF_ERROR(table->measure(dense->engine, (*opened)->engine, designs[i], inputs, seconds));
    }
    progress.finish();
    return okStatus();
  }

  /// The squared change of the results, in the mean over float outputs.
  Result<double> lossOf(const OpenEngine &engine) const {
    Result<std::vector<HostTensor>> results = engine.run(inputs);
    if (!results)
      return results.status();
    double sum = 0;
    const auto all = lathe::cli::losses(dense->engine, expected, *results);
    for (const auto &[output, change] : all)
      sum += change * change / double(all.size());
    if (all.empty())
      return unsupportedError("has no result of floats, by which it could be seen what widths lose", path);
    if (!std::isfinite(sum))
      return invalidError("its results are not finite on these inputs", path);
    return sum;
  }

  Status measureLosses() {
    Progress progress;
    int count = 0, done = 0;
    for (const Group &group : groups)
      count += group.choices() - 1;
    for (size_t g = 0; g < groups.size(); ++g) {
      lossesOf.push_back({0});
      for (int c = 1; c < groups[g].choices(); ++c) {
        progress.show("what widths lose", done++, count);
        Choices choices(groups.size());
        choices[g] = c;
        Result<std::unique_ptr<Opened>> opened = openChoices(choices);
        if (!opened)
          return opened.status();
        Result<double> loss = lossOf((*opened)->engine);
        if (!loss)
          return loss.status();
        lossesOf[g].push_back(*loss);
      }
    }
    progress.finish();
    return okStatus();
  }

  /// Whether this choice of a group is that its branch goes.
  bool isGone(int group, int choice) const {
    return group >= 0 && groups[group].ownsBranch && choice == int(groups[group].stay.size());
  }

  /// Groups that go with another group's branch lose nothing then, and their kernels take no time.
  analysis::BudgetProblem problem(double budget) const {
    analysis::BudgetProblem problem;
    problem.budget = budget - table->rest();
    for (size_t g = 0; g < groups.size(); ++g) {
      problem.costs.costs.emplace_back(groups[g].choices());
      problem.losses.costs.emplace_back(lossesOf[g]);
      const int owner = ownerOf(groups[g].branch);
      if (owner < 0 || owner == int(g))
        continue;
      auto &own = problem.losses.costs.back();
      analysis::StrategyProblem::Pair pair{int(g), owner, {}};
      for (int a = 0; a < groups[g].choices(); ++a)
        for (int b = 0; b < groups[owner].choices(); ++b)
          pair.costs.push_back(isGone(owner, b) ? 0 : own[a]);
      own.assign(own.size(), 0);
      problem.losses.pairs.push_back(std::move(pair));
    }
    for (const LatencyTable::Groups &cell : table->groups()) {
      const auto [a, b] = cell;
      auto time = [&, a = a, b = b](int x, int y) { return isGone(a, x) || isGone(b, y) ? 0.0 : table->seconds(cell, x, y); };
      if (b < 0) {
        for (int x = 0; x < groups[a].choices(); ++x)
          problem.costs.costs[a][x] += time(x, 0);
        continue;
      }
      analysis::StrategyProblem::Pair pair{a, b, {}};
      for (int x = 0; x < groups[a].choices(); ++x)
        for (int y = 0; y < groups[b].choices(); ++y)
          pair.costs.push_back(time(x, y));
      problem.costs.pairs.push_back(std::move(pair));
    }
    return problem;
  }

  Status searchAndWrite(const Budget &budget) {
    const double whole = table->referenceSeconds(), wanted = budget.isShare ? budget.amount * whole : budget.amount;
    PruneReport report{path, request.scheme, request.score, 0};
    report.target = dense->engine.session.target();
    std::optional<BothForms> both;
    Choices choices;
    double aim = wanted, predicted = 0;
    constexpr int kRounds = 4;
    constexpr double kStep = 1e-3; // less is another choice
    for (int round = 0; round < kRounds; ++round) {
      const analysis::BudgetProblem now = problem(aim);
      Result<analysis::BudgetSolution> found = analysis::searchWithinBudget(now);
      if (!found && found.status().code() == ErrorCode::Unsupported && both)
        break; // nothing is faster than what was measured above the budget, which the report says
      if (!found && found.status().code() == ErrorCode::Unsupported)
        return unsupportedError("no choice of widths is that fast: a run takes " + std::to_string(whole * 1e3) + " ms, " +
                                    std::to_string(table->rest() * 1e3) + " ms of which none changes; in seconds of the rest, " +
                                    found.status().message(),
                                "--budget " + request.budget);
      if (!found)
        return found.status();
      if (found->choices == choices)
        break;
      choices = found->choices;
      predicted = found->cost + table->rest();
      Result<std::string> bytes = modelOf(choices, true);
      if (!bytes)
        return bytes.status();
      Result<BothForms> opened = BothForms::openNamed(request, path, *bytes);
      if (!opened)
        return opened.status();
      both.emplace(std::move(*opened));
      Profile before(both->dense), after(both->pruned);
      LATHE_RETURN_IF_ERROR(measureInTurn(before, after, both->inputs, request.seconds / kRounds));
      // In seconds of the time when the table was made.
      const double measured = after.latency(Profile::Of::Least) / before.latency(Profile::Of::Least) * whole;
      // What a run usually takes has to fit, too: smaller kernels leave the same time beside them, and find less in caches.
      const double usual = std::max(measured, after.latency() / before.latency() * whole);
      report.searched = PruneReport::Searched{wanted, predicted, measured, usual, int(table->models())};
      if (usual <= wanted)
        break;
      aim = std::min(aim * wanted / usual, predicted * (1 - kStep));
    }
    addRows(choices, report);
    Result<std::string> masked = modelOf(choices, true, true);
    if (!masked)
      return masked.status();
    LATHE_RETURN_IF_ERROR(compareWithMasked(request, path, *both, *masked, report));
    Result<std::string> written = modelOf(choices, false), zeros = modelOf(choices, false, true);
    if (!written || !zeros)
      return written ? zeros.status() : written.status();
    return writePruned(request, report, *written, *zeros, "layers have the widths that lose least within " + request.budget);
  }

  /// What kernels of a group take.
  double secondsOf(int group, const Choices &choices) const {
    double sum = 0;
    for (const LatencyTable::Groups &cell : table->groups())
      if (cell[0] == group || cell[1] == group)
        sum += isGone(cell[0], choices[cell[0]]) || (cell[1] >= 0 && isGone(cell[1], choices[cell[1]]))
                   ? 0
                   : table->seconds(cell, choices[cell[0]], cell[1] < 0 ? 0 : choices[cell[1]]);
    return sum;
  }

  void addRows(const Choices &choices, PruneReport &report) const {
    for (size_t g = 0; g < groups.size(); ++g) {
      PruneReport::Width row;
      const Group &group = groups[g];
      row.layers = group.family >= 0 ? families[group.family].layers : std::vector<std::string>{branches[group.branch].add};
      row.units = group.stay[0];
      row.stay = isDropped(int(g), choices) ? 0 : group.stay[choices[g]];
      row.wide = group.family >= 0 ? families[group.family].wide : 1;
      row.score = std::sqrt(lossesOf[g][choices[g]]);
      row.denseMicroseconds = secondsOf(int(g), Choices(groups.size())) * 1e6;
      row.prunedMicroseconds = row.stay ? secondsOf(int(g), choices) * 1e6 : 0;
      row.applied = row.stay < row.units;
      if (!row.applied)
        row.why = "others lose less for the time they gain";
      report.widths.push_back(std::move(row));
    }
  }

  const bool dropsBranches;
  std::vector<ResidualBranch> branches;
  std::vector<Group> groups;
  std::unique_ptr<Opened> dense;
  std::vector<HostTensor> inputs, expected;
  std::optional<LatencyTable> table;
  std::vector<std::vector<double>> lossesOf; ///< of each group and choice, the squared change of results
};

} // namespace

Status pruneByBudget(const PruneRequest &request, const std::string &path) {
  std::set<UnitKind> kinds;
  bool branches = false;
  for (size_t at = 0; at <= request.scheme.size();) {
    const size_t comma = std::min(request.scheme.find(',', at), request.scheme.size());
    const std::string name = request.scheme.substr(at, comma - at);
    if (name == "blocks")
      branches = true;
    else if (auto kind = kindOf(name))
      kinds.insert(*kind);
    else
      return usageError("with --budget wants some of channels,heads,ffn,blocks, not '" + name + "'", "--scheme");
    at = comma + 1;
  }
  return LayerSearch(request, path, kinds, branches).run();
}

} // namespace lathe::cli
