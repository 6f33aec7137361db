//===- Strategies.cpp - the ways to run an op on several ranks ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Queries.h"

#include "lathe/ir/Collective.h"

using namespace mlir;

namespace lathe::shard {
namespace {

/// One iterator that ranks may share: the dimension of each operand and result that it indexes, or -1.
struct Factor {
  int64_t size = 0;
  std::vector<int64_t> operands, results;
  std::optional<ReduceKind> combiner; ///< of a reduction
  bool even = false;                  ///< ranks must have equal parts
  bool zeroed = false;                ///< or zeros in their place, as both operands of a product may have
};

/// Where iterator `i` of extent `size` indexes a tensor: a dimension, -1 for none; nothing where it
/// does in a way that a part of it cannot. `scaled`: as i / c.
std::optional<int64_t> placeIn(AffineMap map, unsigned i, Value value, int64_t size, bool &scaled) {
  int64_t found = -1;
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    if (!expr.isFunctionOfDim(i))
      continue;
    std::optional<int64_t> extent = dimOf(value, d).constant();
    if (found >= 0 || !extent)
      return std::nullopt;
    found = int64_t(d);
    if (isa<AffineDimExpr>(expr)) {
      if (*extent != size) // a slice of it
        return std::nullopt;
      continue;
    }
    auto quotient = dyn_cast<AffineBinaryOpExpr>(expr);
    if (!quotient || quotient.getKind() != AffineExprKind::FloorDiv ||
        !isa<AffineDimExpr>(quotient.getLHS()))
      return std::nullopt;
    auto by = dyn_cast<AffineConstantExpr>(quotient.getRHS());
    if (!by || *extent * by.getValue() != size)
      return std::nullopt;
    if (*extent == 1) { // all read the same
      found = -1;
      continue;
    }
    scaled = true;
  }
  return found;
}

/// Where parallel iterator `i` indexes an operand without an access map.
std::optional<int64_t> placeWithoutMap(StructuredOpInterface op, unsigned k, unsigned i, int64_t size) {
  Value operand = op->getOperand(k);
  OperandAccess access = op.getAccess(k);
  const int64_t rank = cast<TensorType>(operand.getType()).getRank();
  // As the result's dimensions, aligned at the last; what is not there or 1 is broadcast.
  const int64_t d = int64_t(i) + rank - cast<TensorType>(op->getResult(0).getType()).getRank();
  const bool isThere = d >= 0 && dimOf(operand, d) != DimExpr(1), isDim = isThere && dimOf(operand, d) == DimExpr(size);
  switch (access.kind) {
  case OperandAccess::Kind::Rows: // whole along its own dimensions, elsewhere as the result
    if (!isThere)
      return -1;
    return isDim && !llvm::is_contained(access.dims, d) ? std::optional<int64_t>(d) : std::nullopt;
  case OperandAccess::Kind::Piece:
    return isDim && access.starts[d] == DimExpr(0) ? std::optional<int64_t>(d) : std::nullopt;
  case OperandAccess::Kind::Whole: // the parameters of an op on rows
    return k > 0 && op.getAccess(0).kind == OperandAccess::Kind::Rows ? std::optional<int64_t>(-1)
                                                                      : std::nullopt;
  default:
    return std::nullopt;
  }
}

/// y[a.., i.., b..] = x[a.., indices[i..], b..]: all but the dimension that data index.
std::vector<Factor> gatherFactors(GatherOp gather) {
  std::vector<Factor> factors;
  int64_t axis = gather.getAxis(), inner = cast<TensorType>(gather.getIndices().getType()).getRank();
  for (int64_t d = 0, rank = cast<TensorType>(gather.getY().getType()).getRank(); d < rank; ++d)
    if (std::optional<int64_t> size = dimOf(gather.getY(), d).constant(); size && *size > 1) {
      bool ahead = d < axis, index = !ahead && d < axis + inner;
      factors.push_back({*size, {ahead ? d : index ? -1 : d - inner + 1, index ? d - axis : -1}, {d}, {}, false});
    }
  return factors;
}

std::vector<Factor> factorsOf(Operation *op) {
  auto structured = dyn_cast<StructuredOpInterface>(op);
  if (!structured || !isPure(op) || op->getNumRegions())
    return {};
  if (auto gather = dyn_cast<GatherOp>(op))
    return gatherFactors(gather);
  OpClass kind = structured.getOpClass();
  if (kind == OpClass::Source || keepsOrder(op)) // depends on places; reshape has a rule of its own
    return {};
  SmallVector<utils::IteratorType> iterators = structured.getIterators();
  SmallVector<AffineMap> maps = structured.getAccessMaps();
  ArrayRef<AffineMap> results = ArrayRef(maps).drop_front(op->getNumOperands());
  std::vector<Factor> factors;
  for (unsigned i = 0; i < iterators.size(); ++i) {
    const bool reduces = iterators[i] == utils::IteratorType::reduction;
    Factor factor;
    factor.even = reduces;
    factor.zeroed = reduces && (kind == OpClass::Gemm || kind == OpClass::Conv);
    if (reduces && !(factor.combiner = structured.getCombiner()))
      continue;
    if (kind == OpClass::Attention && i > 1 && (i > 2 || !isa<AttentionOp>(op) || !mayDivideQueries(cast<AttentionOp>(op))))
      continue;
    // The extent, from any tensor that the iterator indexes directly.
    for (unsigned t = 0; t < maps.size() && !factor.size; ++t)
      for (unsigned d = 0; maps[t] && d < maps[t].getNumResults(); ++d)
        if (auto dim = dyn_cast<AffineDimExpr>(maps[t].getResult(d)); dim && dim.getPosition() == i) {
          Value value = t < op->getNumOperands() ? op->getOperand(t) : op->getResult(t - op->getNumOperands());
          // A slice iterates over a part of its operand.
          if (t >= op->getNumOperands() || reduces || structured.coversOperands())
            factor.size = dimOf(value, d).constant().value_or(0);
        }
    if (factor.size < 2)
      continue;
    bool possible = true;
    for (auto [k, operand] : llvm::enumerate(op->getOperands())) {
      std::optional<int64_t> place;
      if (maps[k])
        place = placeIn(maps[k], i, operand, factor.size, factor.even);
      else if (!reduces)
        place = placeWithoutMap(structured, k, i, factor.size);
      possible &= place.has_value();
      factor.operands.push_back(place.value_or(-1));
    }
    for (auto [r, result] : llvm::enumerate(op->getResults())) {
      std::optional<int64_t> place =
          results[r] ? placeIn(results[r], i, result, factor.size, factor.even) : std::nullopt;
      possible &= place.has_value() && (reduces ? *place < 0 : *place >= 0);
      factor.results.push_back(place.value_or(-1));
    }
    if (possible)
      factors.push_back(std::move(factor));
  }
  return factors;
}

/// Of a slice with steps of 1 the dimension that it cuts, where it begins and ends; none where it
/// cuts several.
struct Cut {
  int64_t dim, begin, end;
};
std::optional<Cut> cutOf(Operation *op) {
  std::optional<Box> box = boxOf(op);
  if (!box)
    return std::nullopt;
  std::optional<Cut> cut;
  for (size_t d = 0; d < box->starts.size(); ++d) {
    DimExpr from = dimOf(op->getOperand(0), d), to = dimOf(op->getResult(0), d);
    if (from == to && box->starts[d] == 0 && box->steps[d] == 1)
      continue;
    if (cut || box->steps[d] != 1 || !from.isConstant() || !to.isConstant())
      return std::nullopt;
    cut = Cut{int64_t(d), box->starts[d], box->starts[d] + *to.constant()};
  }
  return cut;
}

/// The blocks that a cut takes; none where it takes parts of some.
std::optional<Parts> blocksIn(const Parts &parts, const Cut &cut) {
  Parts taken{{}, parts.unit};
  int64_t at = 0;
  bool begins = false, ends = false;
  if (parts.mirrored)
    return std::nullopt;
  for (int64_t block : parts.blocks) {
    const int64_t size = block * parts.unit;
    begins |= at == cut.begin;
    if (at >= cut.begin && at + size <= cut.end)
      taken.blocks.push_back(block);
    at += size;
    ends |= at == cut.end;
  }
  return begins && ends ? std::optional(taken) : std::nullopt;
}

/// The same blocks in units; none where they are no multiples of it.
std::optional<Parts> inUnits(const Parts &parts, int64_t unit) {
  Parts found{{}, unit, parts.mirrored};
  for (int64_t block : parts.blocks) {
    if (block * parts.unit % unit)
      return std::nullopt;
    found.blocks.push_back(block * parts.unit / unit);
  }
  return found;
}

/// Whether each rank gets something of each block.
bool reachAll(const Parts &parts, int64_t ranks) {
  return llvm::all_of(parts.blocks, [&](int64_t block) { return block >= ranks || isShared(block, ranks); });
}

/// Of an operand that is read as i / c, where iterator i has these parts: a rank reads whole elements.
std::optional<Parts> scaledParts(const Parts &parts, int64_t extent, int64_t ranks) {
  if (parts.blocks.size() != 1 || parts.unit != 1 || !parts.isEven(ranks))
    return std::nullopt;
  const bool isWhole = extent % ranks == 0 || (extent < ranks && ranks % extent == 0);
  return isWhole ? std::optional(Parts{{extent}, 1}) : std::nullopt;
}

} // namespace

StringRef stateOf(Operation *op) {
  if (auto read = dyn_cast<StateReadOp>(op))
    return read.getState();
  auto append = dyn_cast<StateAppendOp>(op);
  return append ? append.getState() : StringRef();
}

BlockTable findBlocks(Block &block, int64_t ranks) {
  BlockTable table;
  // Where slices cut a value along a dimension.
  llvm::MapVector<std::pair<Value, int64_t>, std::set<int64_t>> cuts;
  for (Operation &op : block)
    if (std::optional<Cut> cut = cutOf(&op))
      cuts[{op.getOperand(0), cut->dim}].insert({cut->begin, cut->end});
  for (auto &[place, ends] : cuts) {
    Parts parts;
    int64_t at = 0;
    ends.insert(*dimOf(place.first, place.second).constant());
    for (int64_t end : ends)
      if (end > at) {
        parts.blocks.push_back(end - at);
        at = end;
      }
    if (parts.blocks.size() > 1 && reachAll(parts, ranks))
      table[place.first].insert({place.second, parts});
  }
  for (auto attention : block.getOps<AttentionOp>())
    if (std::optional<Parts> parts = zigzagQueries(attention, ranks))
      table[attention.getY()].insert({2, *parts});
  // From value to value along factors, reshapes and slices, back and forth until nothing is new.
  auto add = [&](Value value, int64_t dim, const Parts &parts) {
    const bool isUsual = parts.blocks.size() == 1 && parts.unit == 1 && parts.blocks[0] >= ranks;
    return !isUsual && table[value].insert({dim, parts}).second;
  };
  auto addLayout = [&](Value value, const std::optional<Layout> &layout) {
    return layout && layout->isSplit() && add(value, layout->dim, layout->parts);
  };
  for (bool changed = true; changed;) {
    changed = false;
    auto visit = [&](Operation &op) {
      if (keepsOrder(&op)) {
        Value x = op.getOperand(0), y = op.getResult(0);
        for (auto [from, to] : {std::pair(x, y), std::pair(y, x)}) {
          for (const auto &[dim, parts] : table.lookup(from)) // a copy, which `add` leaves alone
            changed |= addLayout(to, reshaped(Layout::split(dim, parts), dimsOf(from), dimsOf(to), ranks));
          // A product of several sizes is cut in as many blocks as stand ahead of a split dimension, and
          // in units of what stands behind it.
          std::vector<DimExpr> dims = dimsOf(from);
          for (size_t d = 0; d < dims.size(); ++d)
            if (std::optional<int64_t> size = dims[d].constant(); size && *size >= ranks)
              changed |= addLayout(to, reshaped(Layout::split(d, *size), dims, dimsOf(to), ranks));
        }
        return;
      }
      if (std::optional<Cut> cut = cutOf(&op)) {
        Value x = op.getOperand(0), y = op.getResult(0);
        for (const auto &[dim, taken] : table.lookup(y))
          for (const auto &[whole, parts] : table.lookup(x))
            if (dim == cut->dim && whole == dim)
              if (std::optional<Parts> fine = inUnits(parts, taken.unit);
                  fine && blocksIn(*fine, *cut) == taken && reachAll(*fine, ranks))
                changed |= add(x, dim, fine->canonical(ranks));
        for (const auto &[dim, parts] : table.lookup(x))
          if (dim == cut->dim)
            if (std::optional<Parts> taken = blocksIn(parts, *cut); taken && Layout::split(dim, *taken).isSplit())
              changed |= add(y, dim, taken->canonical(ranks));
      }
      for (const Factor &factor : factorsOf(&op)) {
        std::set<Parts> all;
        auto collect = [&](ValueRange values, const std::vector<int64_t> &places) {
          for (auto [value, place] : llvm::zip(values, places))
            for (const auto &[dim, parts] : table.lookup(value))
              if (dim == place && dimOf(value, place) == DimExpr(factor.size))
                all.insert(parts);
        };
        collect(op.getOperands(), factor.operands);
        collect(op.getResults(), factor.results);
        for (auto [value, place] : llvm::zip(op.getOperands(), factor.operands))
          if (place >= 0 && dimOf(value, place) != DimExpr(factor.size)) // heads of keys, which some ranks share
            if (auto parts = scaledParts(Parts{{factor.size}, 1}, *dimOf(value, place).constant(), ranks))
              changed |= add(value, place, *parts);
        for (const Parts &parts : all) {
          for (auto [value, place] : llvm::zip(op.getOperands(), factor.operands))
            if (place >= 0 && dimOf(value, place) == DimExpr(factor.size))
              changed |= add(value, place, parts);
          for (auto [value, place] : llvm::zip(op.getResults(), factor.results))
            if (place >= 0)
              changed |= add(value, place, parts);
        }
      }
    };
    for (Operation &op : llvm::reverse(block))
      visit(op);
    for (Operation &op : block)
      visit(op);
  }
  return table;
}

std::vector<Strategy> strategiesOf(Operation *op, int64_t ranks, const BlockTable &table) {
  std::vector<Strategy> found = {{std::vector<Layout>(op->getNumOperands()),
                                  std::vector<Layout>(op->getNumResults()), false}};
  auto add = [&](Strategy strategy) {
    if (!llvm::is_contained(found, strategy))
      found.push_back(std::move(strategy));
  };
  auto partsOf = [&](Value value, int64_t dim, std::set<Parts> &into) {
    for (const auto &[d, parts] : table.lookup(value))
      if (d == dim)
        into.insert(parts);
  };
  if (StringRef state = stateOf(op); !state.empty()) {
    // Along any dimension but the one that grows. All that reads or extends a state has it alike (Choose.cpp).
    auto declared = SymbolTable::lookupNearestSymbolFrom<StateOp>(op, StringAttr::get(op->getContext(), state));
    std::vector<DimExpr> dims = dimsOf(op->getResult(0));
    for (size_t d = 0; declared && d < dims.size(); ++d)
      if (std::optional<int64_t> size = dims[d].constant();
          size && *size >= ranks && *size % ranks == 0 && int64_t(d) != int64_t(declared.getAxis()))
        add({std::vector<Layout>(op->getNumOperands(), Layout::split(d, *size)), {Layout::split(d, *size)}, true});
    return found;
  }
  if (!isPure(op) || op->getNumRegions())
    return found;
  if (keepsOrder(op)) {
    std::vector<DimExpr> from = dimsOf(op->getOperand(0)), to = dimsOf(op->getResult(0));
    for (size_t d = 0; d < from.size(); ++d) {
      std::optional<int64_t> size = from[d].constant();
      if (!size || *size < 2)
        continue;
      std::set<Parts> all = {{{*size}, 1}};
      partsOf(op->getOperand(0), d, all);
      for (const Parts &parts : all)
        if (auto layout = reshaped(Layout::split(d, parts), from, to, ranks); layout && layout->isSplit())
          add({{Layout::split(d, parts)}, {*layout}, true});
    }
    return found;
  }
  if (std::optional<Cut> cut = cutOf(op)) {
    std::set<Parts> all;
    partsOf(op->getOperand(0), cut->dim, all);
    for (const Parts &parts : all)
      if (auto taken = blocksIn(parts, *cut))
        add({{Layout::split(cut->dim, parts)}, {Layout::split(cut->dim, taken->canonical(ranks))}, true});
  }
  for (const Factor &factor : factorsOf(op)) {
    std::set<Parts> all;
    if (factor.size >= ranks)
      all.insert({{factor.size}, 1});
    for (auto [value, place] : llvm::zip(op->getOperands(), factor.operands))
      if (place >= 0 && dimOf(value, place) == DimExpr(factor.size))
        partsOf(value, place, all);
    for (auto [value, place] : llvm::zip(op->getResults(), factor.results))
      if (place >= 0)
        partsOf(value, place, all);
    for (const Parts &parts : all) {
      const bool isEven = parts.isEven(ranks), pads = factor.zeroed && !isEven;
      if ((factor.even && !isEven && !pads) || (pads && (!parts.isApart(ranks) || parts.mirrored)))
        continue;
      auto attention = dyn_cast<AttentionOp>(op);
      if (attention && isOfQueries(Layout::split(factor.operands[0], parts)) && !mayDivideQueries(attention, parts))
        continue;
      Strategy strategy;
      strategy.divided = true;
      bool possible = true;
      for (auto [value, place] : llvm::zip(op->getOperands(), factor.operands)) {
        std::optional<Parts> mine = parts;
        if (place >= 0 && dimOf(value, place) != DimExpr(factor.size)) // read as i / c
          mine = scaledParts(parts, *dimOf(value, place).constant(), ranks);
        possible &= mine.has_value();
        strategy.operands.push_back(place >= 0 && mine ? Layout::split(place, *mine).withZeros(pads) : Layout());
      }
      for (int64_t place : factor.results)
        strategy.results.push_back(place >= 0 ? Layout::split(place, parts) : Layout::partial(*factor.combiner));
      if (possible)
        add(std::move(strategy));
    }
  }
  return found;
}

void keepPartial(Operation *op, std::vector<Strategy> &ways, PartialTable &partials) {
  std::set<ReduceKind> kept;
  const bool moves = op->getNumOperands() == 1 && (keepsOrder(op) || permutationOf(op) || boxOf(op));
  if (moves)
    kept = partials.lookup(op->getOperand(0));
  else if (std::optional<ReduceKind> combiner = combinerOf(op))
    if (llvm::all_of(op->getOperands(), [&](Value operand) { return partials.lookup(operand).count(*combiner); }))
      kept.insert(*combiner);
  for (ReduceKind kind : kept)
    ways.push_back({std::vector<Layout>(op->getNumOperands(), Layout::partial(kind)), {Layout::partial(kind)}, false});
  for (const Strategy &way : ways)
    for (auto [result, layout] : llvm::zip(op->getResults(), way.results))
      if (layout.kind == Layout::Kind::Partial)
        partials[result].insert(layout.reduction);
}

} // namespace lathe::shard
