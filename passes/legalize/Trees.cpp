//===- Trees.cpp - ensembles of decision trees ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier of ai.onnx.ml become one walk over a table of nodes, which gives
// the leaf of each row in each tree, and a reduction over what the leaves weigh. All comparisons become
// x <= split: x < s is x <= the number before s, x >= s has its branches the other way round, x = s is two
// nodes, and membership in a set a chain of them.
//
//===----------------------------------------------------------------------===//
#include "Classes.h"
#include "Formulas.h"

#include "lathe/ir/Sampling.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/support/HostTensor.h"

#include "llvm/ADT/StringSwitch.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

using namespace mlir;

namespace lathe::legal {
namespace {

enum class Mode { LessEqual, Less, GreaterEqual, Greater, Equal, NotEqual, Member, Count };

/// A node as ONNX has it. A branch is the number of a node, or -1 - the number of a leaf.
struct Branching {
  Mode mode;
  int64_t feature;
  double split;
  bool nanTrue;
  int64_t yes, no;
  std::vector<double> members;
};

struct Forest {
  std::vector<Branching> nodes;
  Ints roots;
  struct Weight {
    int64_t leaf, target;
    double weight;
  };
  std::vector<Weight> weights;
  int64_t leaves = 0, targets = 0;
  std::vector<double> base;
  std::string aggregate, transform;
};

} // namespace

std::vector<double> numbersOf(Node &n, StringRef name) {
  std::vector<double> numbers;
  auto attr = dyn_cast_or_null<TypedAttr>(n.op->getAttr(name));
  auto type = attr ? dyn_cast<RankedTensorType>(attr.getType()) : RankedTensorType();
  std::optional<DType> dtype = type ? dtypeOf(type.getElementType()) : std::nullopt;
  if (!dtype)
    return numbers;
  auto &weights = n.op->getContext()->getOrLoadDialect<LatheDialect>()->weights();
  Result<std::vector<std::byte>> bytes = constantBytes(attr, weights);
  if (!bytes)
    return numbers;
  HostTensor tensor(*dtype, type.getShape().vec());
  if (tensor.data.size() != bytes->size())
    return numbers;
  if (!bytes->empty())
    std::memcpy(tensor.data.data(), bytes->data(), bytes->size());
  for (int64_t i = 0; i < tensor.count(); ++i)
    numbers.push_back(isFloat(type.getElementType()) ? tensor.real(i) : double(tensor.integer(i)));
  return numbers;
}

namespace {

/// A number of f32 as an integer, in the same order; zeros of either sign are one, NaN goes below all where it is a split.
int64_t orderOf(double v) {
  const auto bits = std::bit_cast<int32_t>(float(v));
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  return std::isnan(v) ? kLeast : bits < 0 ? kLeast - bits : bits;
}

/// Nodes that all compare by x <= split, as lathe.tree_walk takes them.
struct Table {
  Ints nodes; ///< feature, where NaN goes, left, right
  std::vector<double> splits;
  bool single; ///< whether features are f32

  int64_t add(int64_t feature, double split, bool nanLeft, int64_t left, int64_t right) {
    nodes.insert(nodes.end(), {feature, nanLeft, left, right});
    splits.push_back(split);
    return int64_t(splits.size()) - 1;
  }
  /// Nodes as lathe.tree_walk has them for floats.
  Ints packed() const {
    Ints rows = nodes;
    for (size_t i = 0; i < splits.size(); ++i) {
      if (nodes[i * 4 + 1])
        rows[i * 4] = -1 - nodes[i * 4];
      rows[i * 4 + 1] = single ? std::bit_cast<int32_t>(float(splits[i])) : 0;
    }
    return rows;
  }
  /// The same for so many features in order (inOrder).
  Ints packedInOrder(int64_t features) const {
    Ints rows = nodes;
    for (size_t i = 0; i < splits.size(); ++i) {
      rows[i * 4] += nodes[i * 4 + 1] ? features : 0;
      rows[i * 4 + 1] = orderOf(splits[i]);
    }
    return rows;
  }
  bool sendsNanLeft() const {
    for (size_t i = 0; i < nodes.size(); i += 4)
      if (nodes[i + 1])
        return true;
    return false;
  }
  /// The greatest number of the features' type below v.
  double before(double v) const {
    return single ? double(std::nextafterf(float(v), -std::numeric_limits<float>::infinity()))
                  : std::nextafter(v, -std::numeric_limits<double>::infinity());
  }
  void set(int64_t at, int64_t feature, double split, bool nanLeft, int64_t left, int64_t right) {
    std::copy_n(Ints{feature, nanLeft, left, right}.begin(), 4, nodes.begin() + at * 4);
    splits[at] = split;
  }
  /// x = split at node `at`.
  void setEqual(int64_t at, int64_t feature, double split, bool nanTrue, int64_t yes, int64_t no) {
    if (split == -std::numeric_limits<double>::infinity())
      return set(at, feature, split, nanTrue, yes, no);
    int64_t second = add(feature, before(split), !nanTrue, no, yes);
    set(at, feature, split, nanTrue, second, no);
  }
  void set(int64_t at, const Branching &b) {
    // NaN is no number less or equal; it differs from all.
    switch (b.mode) {
    case Mode::LessEqual:
      return set(at, b.feature, b.split, b.nanTrue, b.yes, b.no);
    case Mode::Greater:
      return set(at, b.feature, b.split, !b.nanTrue, b.no, b.yes);
    case Mode::Less:
    case Mode::GreaterEqual: {
      bool less = b.mode == Mode::Less;
      // No number is before the first, as none is less or equal to NaN.
      double split = b.split == -std::numeric_limits<double>::infinity()
                         ? std::numeric_limits<double>::quiet_NaN()
                         : before(b.split);
      return set(at, b.feature, split, less == b.nanTrue, less ? b.yes : b.no, less ? b.no : b.yes);
    }
    case Mode::Equal:
      return setEqual(at, b.feature, b.split, b.nanTrue, b.yes, b.no);
    case Mode::NotEqual:
      return setEqual(at, b.feature, b.split, false, b.no, b.yes);
    default:
      break;
    }
    if (b.members.empty()) // nothing is in the set
      return set(at, b.feature, std::numeric_limits<double>::quiet_NaN(), b.nanTrue, b.yes, b.no);
    for (size_t i = 0; i < b.members.size(); ++i) {
      bool last = i + 1 == b.members.size();
      int64_t next = last ? b.no : add(0, 0, false, 0, 0);
      setEqual(at, b.feature, b.members[i], b.nanTrue, b.yes, next);
      at = next;
    }
  }
};

/// Steps from the roots to the farthest leaf; none where a way leads back to where it was.
std::optional<int64_t> depthOf(const Table &table, ArrayRef<int64_t> roots) {
  constexpr int64_t kUnseen = -1, kOpen = -2;
  Ints depth(table.splits.size(), kUnseen);
  int64_t deepest = 0;
  std::vector<int64_t> stack;
  for (int64_t root : roots) {
    if (root >= 0)
      stack.push_back(root);
    while (!stack.empty()) {
      int64_t node = stack.back(), below = 0;
      if (depth[node] >= 0) {
        stack.pop_back();
        continue;
      }
      bool ready = true;
      for (int64_t next : {table.nodes[node * 4 + 2], table.nodes[node * 4 + 3]}) {
        if (next < 0)
          continue;
        if (depth[next] == kOpen)
          return std::nullopt;
        if (depth[next] == kUnseen) {
          stack.push_back(next);
          ready = false;
        } else {
          below = std::max(below, depth[next]);
        }
      }
      depth[node] = ready ? below + 1 : kOpen;
      if (ready)
        stack.pop_back();
    }
    if (root >= 0)
      deepest = std::max(deepest, depth[root]);
  }
  return deepest;
}

/// The same nodes with leaves among them, each a node that names itself, in the order in which walks meet them: one and the two
/// below it lie in one line of the cache. Of each row its leaf, or -1.
Ints layByWalks(Table &table, Ints &roots, int64_t leaves) {
  constexpr int64_t kRowsOfLine = 4, kNone = -1; // a row has four numbers of 32 bits
  const int64_t inner = int64_t(table.splits.size());
  auto numberOf = [&](int64_t to) { return to < 0 ? inner - 1 - to : to; }; // leaves behind nodes
  Ints placeOf(inner + leaves, kNone), leafOf, stack;
  Table laid{.nodes = {}, .splits = {}, .single = table.single};
  auto place = [&](int64_t number) {
    placeOf[number] = int64_t(leafOf.size());
    leafOf.push_back(number < inner ? kNone : number - inner);
    if (number >= inner) {
      laid.add(0, 0, false, placeOf[number], placeOf[number]);
      return;
    }
    const int64_t *row = &table.nodes[number * 4];
    laid.add(row[0], table.splits[number], row[1], kNone, kNone);
  };
  auto childrenOf = [&](int64_t number) {
    return number < inner ? Ints{numberOf(table.nodes[number * 4 + 2]), numberOf(table.nodes[number * 4 + 3])} : Ints();
  };
  for (int64_t root : roots) {
    stack.push_back(numberOf(root));
    while (!stack.empty()) {
      const int64_t top = stack.back();
      stack.pop_back();
      if (placeOf[top] != kNone)
        continue;
      Ints line = {top};
      for (int64_t child : childrenOf(top))
        if (placeOf[child] == kNone && !llvm::is_contained(line, child))
          line.push_back(child);
      while (int64_t(leafOf.size()) % kRowsOfLine + int64_t(line.size()) > kRowsOfLine) { // nobody comes here
        laid.add(0, 0, false, 0, 0);
        leafOf.push_back(kNone);
      }
      for (int64_t number : line)
        place(number);
      for (int64_t number : llvm::reverse(line)) { // the left ones first
        const Ints below = childrenOf(number);
        stack.insert(stack.end(), below.rbegin(), below.rend());
      }
    }
  }
  for (int64_t number = 0; number < inner; ++number)
    if (placeOf[number] != kNone)
      for (auto [side, child] : llvm::enumerate(childrenOf(number)))
        laid.nodes[placeOf[number] * 4 + 2 + int64_t(side)] = placeOf[child];
  for (int64_t &root : roots)
    root = placeOf[numberOf(root)];
  table = std::move(laid);
  return leafOf;
}

/// Features of f32 as integers in their order, [N, F]; with `lost` once more, [N, 2 F]: NaN is above all numbers in the first half
/// and below them in the second, as nodes want it that send NaN left.
Value inOrder(Emitter &e, Value x, bool lost) {
  constexpr double kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
  Type i32 = e.b.getI32Type();
  Value bits = BitcastOp::create(e.b, e.loc, withElementType(x.getType(), i32), x);
  Value order = e.select(e.compare(bits, 0.0, Predicate::Lt), e.sub(e.like(bits, kLeast), bits), bits), isNan = e.infer<IsNanOp>(x);
  Value high = e.select(isNan, e.like(bits, kMost), order);
  return lost ? e.concat({high, e.select(isNan, e.like(bits, kLeast), order)}, 1) : high;
}

/// The trees of each target, where no tree's leaves weigh for several, as in boosted classifiers of many classes: each
/// leaf then has one weight instead of a row of mostly zeros.
std::optional<std::vector<Ints>> treesOfTargets(const Table &table, const Forest &forest) {
  constexpr int64_t kNoTarget = -1;
  Ints targetOf(forest.leaves, kNoTarget);
  for (const Forest::Weight &w : forest.weights) {
    int64_t &target = targetOf[w.leaf];
    if (target != kNoTarget && target != w.target)
      return std::nullopt;
    target = w.target;
  }
  std::vector<Ints> groups(forest.targets);
  Ints stack, seenBy(table.splits.size(), -1);
  // Trees that share nodes are walked once each; where that is much, they stay as they are.
  int64_t left = 2 * int64_t(table.splits.size() + forest.roots.size());
  for (auto [tree, root] : llvm::enumerate(forest.roots)) {
    int64_t target = kNoTarget;
    stack.push_back(root);
    while (!stack.empty()) {
      int64_t at = stack.back();
      stack.pop_back();
      if (at < 0) {
        int64_t one = targetOf[-1 - at];
        if (one != kNoTarget && target != kNoTarget && one != target)
          return std::nullopt;
        target = one != kNoTarget ? one : target;
      } else if (seenBy[at] != int64_t(tree)) {
        if (--left < 0)
          return std::nullopt;
        seenBy[at] = int64_t(tree);
        stack.insert(stack.end(), {table.nodes[at * 4 + 2], table.nodes[at * 4 + 3]});
      }
    }
    groups[std::max<int64_t>(target, 0)].push_back(root);
  }
  return groups;
}

/// What the trees say for each target, [N, targets]; null after a report.
Value sumsOf(Node &n, Forest &forest, Type result) {
  auto invalid = [&](StringRef cause, llvm::Twine why) { return (void)n.invalid(cause, why), Value(); };
  constexpr int64_t kMaxWeights = int64_t(1) << 24;
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) > 2 || rankOf(x) < 1)
    return invalid("shape", "features are [N, F]");
  if (rankOf(x) == 1)
    x = e.unsqueeze(x, {0});
  bool isDouble = elementTypeOf(x).isF64();
  Type element = isDouble ? Type(e.b.getF64Type()) : Type(e.b.getF32Type()), i32 = e.b.getI32Type();
  x = e.cast(x, element);
  if (forest.roots.empty() || forest.targets < 1 || forest.leaves < 1)
    return invalid("attribute", "the ensemble has no tree, leaf or target");
  Table table;
  table.single = !isDouble;
  table.nodes.resize(forest.nodes.size() * 4);
  table.splits.resize(forest.nodes.size());
  int64_t features = 1, count = int64_t(forest.nodes.size());
  auto isBranch = [&](int64_t to) { return to < count && to >= -forest.leaves; };
  for (const Branching &b : forest.nodes) {
    if (b.feature < 0 || b.feature > INT32_MAX - 1 || !isBranch(b.yes) || !isBranch(b.no))
      return invalid("attribute", "a node names a feature, node or leaf that is not there");
    features = std::max(features, b.feature + 1);
  }
  for (int64_t root : forest.roots)
    if (!isBranch(root))
      return invalid("attribute", "a root names a node that is not there");
  for (auto [i, b] : llvm::enumerate(forest.nodes))
    table.set(int64_t(i), b);
  std::optional<int64_t> depth = depthOf(table, forest.roots);
  if (!depth)
    return invalid("attribute", "a tree leads back to a node that was passed");
  DimExpr columns = dimOf(x, 1);
  if (columns.isConstant() && *columns.constant() < features)
    return invalid("shape", "nodes ask for feature " + llvm::Twine(features - 1) + " of " +
                                  llvm::Twine(columns.str()));
  if (!columns.isConstant())
    n.derive("features", columns, {features, DimRange::kUnbounded});
  for (const Forest::Weight &w : forest.weights)
    if (w.leaf < 0 || w.leaf >= forest.leaves || w.target < 0 || w.target >= forest.targets)
      return invalid("attribute", "a leaf weighs for a target that is not there");
  const int64_t trees = int64_t(forest.roots.size());
  const bool tooMany = forest.leaves > kMaxWeights / forest.targets;
  std::optional<std::vector<Ints>> groups;
  size_t longest = 0;
  if (forest.targets > 1 && (groups = treesOfTargets(table, forest))) {
    for (const Ints &group : *groups)
      longest = std::max(longest, group.size());
    // Targets of fewer trees get trees that say nothing; a few of those cost less than the zeros.
    if (int64_t(longest) * forest.targets > (tooMany ? 4 * trees : trees + trees / 4))
      groups.reset();
  }
  if (groups) {
    forest.roots.clear();
    for (Ints &group : *groups) {
      group.resize(longest, -1 - forest.leaves);
      forest.roots.insert(forest.roots.end(), group.begin(), group.end());
    }
    ++forest.leaves;
  }
  const int64_t columnsOfWeights = groups ? 1 : forest.targets;
  if (table.splits.size() > size_t(INT32_MAX) / 4 || forest.leaves > kMaxWeights / columnsOfWeights)
    return (void)n.fail("shape", "an ensemble of more than 2^24 leaves times the targets that trees weigh for",
                        "smaller ensembles"), Value();
  // One weight a leaf: leaves are rows of the table, too, and features integers, of which a step takes half the instructions.
  const bool inRows = table.single && columnsOfWeights == 1;
  Ints leafOf;
  if (inRows)
    leafOf = layByWalks(table, forest.roots, forest.leaves);
  else
    for (int64_t leaf = 0; leaf < forest.leaves; ++leaf)
      leafOf.push_back(leaf);
  int64_t rows = int64_t(table.splits.size());
  if (rows == 0) { // every tree is a leaf
    table.add(0, 0, false, -1, -1);
    rows = 1;
  }
  if (inRows)
    x = inOrder(e, columns == DimExpr(features) ? x : e.sliceAxis(x, 1, 0, features), table.sendsNanLeft());
  Value nodes = e.ints(inRows ? table.packedInOrder(features) : table.packed(), {rows, 4}, i32),
        splits = isDouble ? e.floats(table.splits, {rows}, element) : Value(), roots = e.ints(forest.roots, {int64_t(forest.roots.size())}, i32);
  auto walk = TreeWalkOp::create(e.b, e.loc, tensorType(i32, {dimOf(x, 0), DimExpr(int64_t(forest.roots.size()))}), x,
                                 nodes, roots, splits, uint64_t(*depth), /*walks_apart=*/columnsOfWeights > 1, /*ends_at_nodes=*/inRows);
  Value leaf = walk.getY();
  bool isMin = forest.aggregate == "MIN", isMax = forest.aggregate == "MAX";
  double none = isMin   ? std::numeric_limits<double>::infinity()
                : isMax ? -std::numeric_limits<double>::infinity()
                        : 0;
  std::vector<double> ofLeaves(forest.leaves * columnsOfWeights, none), dense;
  for (const Forest::Weight &w : forest.weights) {
    double &at = ofLeaves[groups ? w.leaf : w.leaf * forest.targets + w.target];
    at = isMin ? std::min(at, w.weight) : isMax ? std::max(at, w.weight) : at + w.weight;
  }
  const int64_t ends = int64_t(leafOf.size()); // of walks
  for (int64_t leaf : leafOf)
    for (int64_t column = 0; column < columnsOfWeights; ++column)
      dense.push_back(leaf < 0 ? none : ofLeaves[leaf * columnsOfWeights + column]);
  Value parts;
  if (groups) {
    Value weights = e.floats(dense, {ends}, result);
    parts = e.reshape(e.infer<GatherOp>(weights, leaf, uint64_t(0)),
                      {dimOf(x, 0), DimExpr(forest.targets), DimExpr(int64_t(longest))});
  } else {
    Value weights = e.floats(dense, {ends, forest.targets}, result);
    parts = e.infer<GatherOp>(weights, leaf, uint64_t(0)); // [N, trees, targets]
  }
  Value y = e.reduce(parts, isMin ? ReduceKind::Min : isMax ? ReduceKind::Max : ReduceKind::Sum, {groups ? 2 : 1}, false);
  if (isMin || isMax) // a target for which no tree has a leaf
    y = e.select(e.infer<IsInfOp>(y, isMax, isMin), e.like(y, 0), y);
  if (forest.aggregate == "AVERAGE")
    y = e.div(y, double(trees));
  if (!forest.base.empty()) {
    if (int64_t(forest.base.size()) != forest.targets)
      return invalid("attribute", "as many base values as targets are needed");
    y = e.add(y, e.floats(forest.base, {forest.targets}, result));
  }
  return y;
}

/// From opset 5 on: nodes and leaves are two tables.
LogicalResult treeEnsemble(Node &n) {
  Forest forest;
  auto ints = [&](StringRef name) { return n.intsAttr(name).value_or(Ints()); };
  Ints yes = ints("nodes_truenodeids"), no = ints("nodes_falsenodeids"), yesLeaf = ints("nodes_trueleafs"),
       noLeaf = ints("nodes_falseleafs"), features = ints("nodes_featureids"), targets = ints("leaf_targetids"),
       nan = n.intsAttr("nodes_missing_value_tracks_true").value_or(Ints(yes.size(), 0));
  std::vector<double> splits = numbersOf(n, "nodes_splits"), modes = numbersOf(n, "nodes_modes"),
                      weights = numbersOf(n, "leaf_weights"), members = numbersOf(n, "membership_values");
  size_t count = yes.size();
  if (no.size() != count || yesLeaf.size() != count || noLeaf.size() != count || features.size() != count ||
      nan.size() != count || splits.size() != count || modes.size() != count ||
      targets.size() != weights.size())
    return n.invalid("attribute", "the tables of nodes or leaves have columns of different lengths");
  size_t member = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!(modes[i] >= 0 && modes[i] < double(Mode::Count)))
      return n.invalid("attribute", "a node of an unknown mode");
    Branching b{Mode(int(modes[i])), features[i], splits[i], bool(nan[i]),
                yesLeaf[i] ? -1 - yes[i] : yes[i], noLeaf[i] ? -1 - no[i] : no[i], {}};
    if (b.mode == Mode::Member) { // sets end with NaN
      for (; member < members.size() && !std::isnan(members[member]); ++member)
        b.members.push_back(members[member]);
      ++member;
    }
    if (yes[i] < 0 || no[i] < 0)
      return n.invalid("attribute", "a node names a node or leaf that is not there");
    forest.nodes.push_back(std::move(b));
  }
  forest.roots = ints("tree_roots");
  forest.leaves = int64_t(weights.size());
  forest.targets = n.intAttr("n_targets", 1);
  for (auto [leaf, weight] : llvm::enumerate(weights))
    forest.weights.push_back({int64_t(leaf), targets[leaf], weight});
  static constexpr const char *kAggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  static constexpr const char *kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  int64_t aggregate = n.intAttr("aggregate_function", 1), transform = n.intAttr("post_transform", 0);
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4)
    return n.invalid("attribute", "an unknown aggregate_function or post_transform");
  forest.aggregate = kAggregates[aggregate];
  forest.transform = kTransforms[transform];
  Value x = n.in(0);
  Value y = x ? transformed(n, sumsOf(n, forest, elementTypeOf(x)), forest.transform) : x;
  return y ? n.done(y) : failure();
}

/// Until opset 3: nodes have a tree and a number in it, a leaf is one of them. What leaves weigh stands in
/// attributes that begin with `weighs`, "target" or "class".
LogicalResult readNodes(Node &n, const std::string &weighs, Forest &forest) {
  auto ints = [&](const std::string &name) { return n.intsAttr(name).value_or(Ints()); };
  auto reals = [&](const std::string &name) {
    return n.floatsAttr(name).value_or(numbersOf(n, name + "_as_tensor"));
  };
  Ints tree = ints("nodes_treeids"), id = ints("nodes_nodeids"), yes = ints("nodes_truenodeids"),
       no = ints("nodes_falsenodeids"), features = ints("nodes_featureids"), targetTree = ints(weighs + "_treeids"),
       targetNode = ints(weighs + "_nodeids"), target = ints(weighs + "_ids"),
       nan = n.intsAttr("nodes_missing_value_tracks_true").value_or(Ints());
  std::vector<double> splits = reals("nodes_values"), weights = reals(weighs + "_weights");
  auto modes = n.op->getAttrOfType<ArrayAttr>("nodes_modes");
  size_t count = tree.size();
  if (nan.empty())
    nan.assign(count, 0);
  if (!modes || modes.size() != count || id.size() != count || yes.size() != count || no.size() != count ||
      features.size() != count || splits.size() != count || nan.size() != count ||
      targetNode.size() != targetTree.size() || target.size() != targetTree.size() ||
      weights.size() != targetTree.size())
    return n.invalid("attribute", "the tables of nodes or targets have columns of different lengths");
  auto modeOf = [&](size_t i) {
    auto text = dyn_cast<StringAttr>(modes[i]);
    return llvm::StringSwitch<std::optional<Mode>>(text ? text.getValue() : "")
        .Case("BRANCH_LEQ", Mode::LessEqual).Case("BRANCH_LT", Mode::Less)
        .Case("BRANCH_GTE", Mode::GreaterEqual).Case("BRANCH_GT", Mode::Greater)
        .Case("BRANCH_EQ", Mode::Equal).Case("BRANCH_NEQ", Mode::NotEqual)
        .Case("LEAF", Mode::Count).Default(std::nullopt);
  };
  std::map<std::pair<int64_t, int64_t>, int64_t> place; // node, or -1 - leaf
  int64_t inner = 0;
  for (size_t i = 0; i < count; ++i) {
    std::optional<Mode> mode = modeOf(i);
    if (!mode)
      return n.invalid("attribute", "a node of an unknown mode");
    int64_t at = *mode == Mode::Count ? -1 - forest.leaves++ : inner++;
    if (!place.try_emplace({tree[i], id[i]}, at).second)
      return n.invalid("attribute", "two nodes of a tree have one number");
    if (i == 0 || tree[i] != tree[i - 1]) // a tree begins with its root
      forest.roots.push_back(at);
  }
  for (size_t i = 0; i < count; ++i) {
    if (*modeOf(i) == Mode::Count)
      continue;
    auto left = place.find({tree[i], yes[i]}), right = place.find({tree[i], no[i]});
    if (left == place.end() || right == place.end())
      return n.invalid("attribute", "a node names a node that is not there");
    forest.nodes.push_back({*modeOf(i), features[i], splits[i], bool(nan[i]), left->second, right->second, {}});
  }
  for (size_t i = 0; i < target.size(); ++i) {
    auto leaf = place.find({targetTree[i], targetNode[i]});
    if (leaf == place.end() || leaf->second >= 0)
      return n.invalid("attribute", "a target weighs at what is no leaf");
    forest.weights.push_back({-1 - leaf->second, target[i], weights[i]});
  }
  forest.base = reals("base_values");
  forest.transform = n.strAttr("post_transform", "NONE");
  return success();
}

LogicalResult treeRegressor(Node &n) {
  Forest forest;
  if (failed(readNodes(n, "target", forest)))
    return failure();
  forest.targets = n.intAttr("n_targets", 1);
  forest.aggregate = n.strAttr("aggregate_function", "SUM");
  if (forest.aggregate != "SUM" && forest.aggregate != "AVERAGE" && forest.aggregate != "MIN" &&
      forest.aggregate != "MAX")
    return n.invalid("attribute", "aggregate_function '" + llvm::Twine(forest.aggregate) + "'");
  Value y = transformed(n, sumsOf(n, forest, n.e.b.getF32Type()), forest.transform);
  return y ? n.done(y) : failure();
}

/// Labels, and a score of each class: the label of the greatest. Where all leaves weigh for
/// one class of two, it is, as in onnxruntime, a matter of that score alone: of positive weights a probability,
/// else a margin. If that class is the first, the score counts for the second, and the first gets what is left, or
/// the score with the other sign.
LogicalResult treeClassifier(Node &n) {
  Emitter &e = n.e;
  Forest forest;
  if (failed(readNodes(n, "class", forest)))
    return failure();
  std::optional<ClassLabels> labels = classLabels(n, "classlabels_int64s");
  if (!labels)
    return failure();
  const int64_t classes = int64_t(labels->numbers.size());
  if (classes < 2 || classes > 2048)
    return n.fail("attribute", "labels fewer than 2 or more than 2048", "a label for each class");
  forest.aggregate = "SUM";
  forest.targets = classes;
  auto weighFor = [&](int64_t target) {
    return llvm::all_of(forest.weights, [&](const Forest::Weight &w) { return w.target == target; });
  };
  const bool first = forest.targets == 2 && weighFor(0), single = first || (forest.targets == 2 && weighFor(1));
  const bool positive = llvm::all_of(forest.weights, [](const Forest::Weight &w) { return w.weight >= 0; });
  if (first)
    forest.targets = 1;
  if (!forest.base.empty() && int64_t(forest.base.size()) != forest.targets)
    return n.fail("attribute", "base values of another number than the scores that leaves weigh for",
                  "a base value for each class, or one for one score");
  if (first && forest.transform == "PROBIT")
    return n.fail("attribute", "PROBIT of a score for two classes", "NONE, LOGISTIC");
  Value y = sumsOf(n, forest, e.b.getF32Type());
  if (!y)
    return failure();
  Value best, scores;
  if (single) {
    Value score = e.sliceAxis(y, 1, first ? 0 : 1, 1);
    best = e.cast(e.reshape(e.compare(score, positive ? 0.5 : 0.0, Predicate::Gt), {dimOf(y, 0)}), e.b.getI64Type());
  } else {
    // A class for which no leaf weighs is none.
    std::vector<double> weighed(forest.targets, -std::numeric_limits<double>::infinity());
    for (const Forest::Weight &w : forest.weights)
      weighed[w.target] = 0;
    best = e.add(y, e.floats(weighed, {forest.targets}, elementTypeOf(y)));
    best = e.infer<ArgReduceOp>(best, ReduceKind::Max, uint64_t(1), false, false);
  }
  if (first) {
    scores = e.concat({positive ? e.sub(e.like(y, 1), y) : e.unary<NegOp>(y), y}, 1);
    scores = positive || forest.transform != "LOGISTIC" ? scores : e.unary<SigmoidOp>(scores);
  } else {
    scores = transformed(n, y, forest.transform);
  }
  if (!scores || failed(setLabels(n, *labels, best)))
    return failure();
  return n.numOutputs() > 1 ? n.set(1, scores) : success();
}

} // namespace

void addTrees(Handlers &h) {
  h["ai.onnx.ml.TreeEnsemble"] = treeEnsemble;
  h["ai.onnx.ml.TreeEnsembleRegressor"] = treeRegressor;
  h["ai.onnx.ml.TreeEnsembleClassifier"] = treeClassifier;
}

} // namespace lathe::legal
