//===- Optima.cpp - usual sizes that the graph can have ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans are made at the usual size of each symbol. Where the user names none it is 128, which a graph may
// not take: with a table of 64 positions, x[:, :S] + table[:S] has no value at S = 128. The usual size of
// such a symbol becomes the largest one that all sizes of the graph have a value at; or a larger one, where a size
// would be less than 0, as behind a window of 200. Sizes that the user bounded stay; where they contradict each
// other at the usual size, the node is named.
//
//   lathe.symbol @S {opt = 128}                             lathe.symbol @S {opt = 64}
//   %p = lathe.slice %table ... #lathe.t<[min(S, 64), 8]>   the same
//   %y = lathe.add %x, %p ... #lathe.t<[bcast(S, min(S, 64)), 8]>
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"

using namespace mlir;

namespace lathe::legal {
namespace {

using Point = std::map<std::string, int64_t>;

constexpr int64_t kMaxUsual = int64_t(1) << 20;

/// Sizes that may have no value, each with the op that has it first.
struct Claims {
  std::vector<std::pair<DimExpr, Operation *>> list;
  std::set<std::string> seen;

  void add(const DimExpr &dim, Operation *op) {
    const bool maybe = dim.str().find("bcast") != std::string::npos || dim.str().find('-') != std::string::npos;
    if (maybe && seen.insert(dim.str()).second)
      list.push_back({dim, op});
  }
};

class Optima {
public:
  Optima(ModuleOp module, const Claims &claims) : module(module), claims(claims) {
    for (SymbolOp symbol : module.getOps<SymbolOp>()) {
      std::string name = symbol.getSymName().str();
      point[name] = symbol.getOpt();
      if (auto value = symbol.getValue())
        derived.push_back({name, value->expr(), int64_t(symbol.getMin()), int64_t(symbol.getMax())});
      if (symbol.getMin() == 0 && int64_t(symbol.getMax()) < 0 && !symbol.getValue() &&
          !symbol.isRunTimeValue())
        open.insert(name);
    }
  }

  /// The index of a claim without a value, or none.
  std::optional<size_t> settle() {
    for (size_t i = 0; i < claims.list.size(); ++i)
      if (!hasValue(claims.list[i].first, point) && !move(i)) {
        if (!claims.list[i].first.evaluate(point).ok())
          return i;
        negative.insert(i); // the run says so, where it is so then
      }
    for (SymbolOp symbol : module.getOps<SymbolOp>()) {
      std::string name = symbol.getSymName().str();
      if (auto value = symbol.getValue())
        if (Result<int64_t> at = value->expr().evaluate(point); at.ok()) {
          int64_t high = symbol.getMax();
          point[name] = std::max<int64_t>(*at, symbol.getMin());
          if (high >= 0)
            point[name] = std::min(point[name], high);
        }
      if (open.count(name) && point[name] != int64_t(symbol.getOpt()))
        symbol.emitRemark() << "the usual size " << symbol.getOpt() << " of " << name
                            << " does not fit the graph; taken to be " << point[name];
      symbol.setOpt(point[name]);
    }
    return std::nullopt;
  }

  /// The index of a claim without a value where bounded sizes have their greatest, or none.
  std::optional<size_t> atGreatest() {
    Point at = point;
    for (SymbolOp symbol : module.getOps<SymbolOp>())
      if (int64_t high = symbol.getMax(); high >= 0)
        at[symbol.getSymName().str()] = high;
    derive(at);
    for (size_t i = 0; i < claims.list.size(); ++i)
      if (!claims.list[i].first.evaluate(at).ok())
        return i;
    return std::nullopt;
  }

private:
  struct Derived {
    std::string name;
    DimExpr formula;
    int64_t min, max; ///< a max of -1: none
  };

  /// Sizes that have a name but follow from others become what these say.
  void derive(Point &at) const {
    for (const Derived &size : derived)
      if (Result<int64_t> value = size.formula.evaluate(at); value.ok()) {
        at[size.name] = std::max(*value, size.min);
        if (size.max >= 0)
          at[size.name] = std::min(at[size.name], size.max);
      }
  }

  /// Whether the size is there and not below 0, derived ones as they follow.
  bool hasValue(const DimExpr &dim, Point at) const {
    derive(at);
    Result<int64_t> value = dim.evaluate(at);
    return value.ok() && *value >= 0;
  }

  /// The symbols in it, and those that its derived ones follow from.
  std::set<std::string> symbolsOf(const DimExpr &dim) {
    std::set<std::string> names;
    dim.collectSymbols(names);
    for (const Derived &size : llvm::reverse(derived))
      if (names.count(size.name))
        size.formula.collectSymbols(names);
    return names;
  }

  /// Whether the first `count` claims have values.
  bool holds(size_t count, const Point &at) {
    for (size_t i = 0; i < count; ++i)
      if (!negative.count(i) && !hasValue(claims.list[i].first, at))
        return false;
    return true;
  }

  /// Lowers one size, with the others of the claim as they are or 1, or doubles it.
  bool move(size_t index) {
    const std::set<std::string> names = symbolsOf(claims.list[index].first);
    for (bool ones : {false, true})
      for (const std::string &name : names) {
        if (!open.count(name))
          continue;
        Point at = point;
        if (ones)
          for (const std::string &other : names)
            if (other != name && open.count(other))
              at[other] = 1;
        for (int64_t size = point[name]; size > 0; --size) {
          at[name] = size;
          if (hasValue(claims.list[index].first, at) && holds(index, at)) {
            point = at;
            return true;
          }
        }
      }
    for (const std::string &name : names) {
      if (!open.count(name))
        continue;
      Point at = point;
      for (int64_t size = std::max<int64_t>(point[name], 1); size < kMaxUsual; at[name] = size *= 2)
        if (hasValue(claims.list[index].first, at) && holds(index, at)) {
          point = at;
          return true;
        }
    }
    return false;
  }

  ModuleOp module;
  const Claims &claims;
  std::set<size_t> negative; ///< claims below 0 at sizes that are not open
  std::vector<Derived> derived; ///< each behind those that it follows from
  Point point;
  std::set<std::string> open; ///< symbols whose usual size nobody chose
};

} // namespace

LogicalResult settleOptima(ModuleOp module, LegalizeReport &report) {
  Claims claims;
  module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<TensorType>(type); tensor && tensor.hasRank())
        for (const DimExpr &dim : dimsOf(tensor))
          claims.add(dim, op);
  });
  auto refuse = [&](size_t index, StringRef where) {
    auto [dim, op] = claims.list[index];
    UnsupportedNode entry;
    SmallVector<StringRef> names = nodeNames(op->getLoc());
    entry.node = names.empty() ? "" : names.front().str();
    entry.cause = "shape";
    entry.message = ("the size " + dim.str() + " has no value at the " + where + " sizes").str();
    entry.remedy = "give sizes that fit with --dim NAME=LO:OPT:HI";
    mlir::emitError(op->getLoc()) << "'" << entry.node << "': " << entry.message
                                  << "; remedy: " << entry.remedy;
    report.nodes.push_back(std::move(entry));
    return failure();
  };
  Optima optima(module, claims);
  if (std::optional<size_t> at = optima.settle())
    return refuse(*at, "usual");
  // Plans are made at the greatest size where there is one.
  if (std::optional<size_t> at = optima.atGreatest())
    return refuse(*at, "greatest");
  return success();
}

} // namespace lathe::legal
