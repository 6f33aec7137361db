//===- RunTimeValues.cpp - sizes and axes that arrive with a run --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Integers that an op needs on the host, and that are elements of an input of the
// entry, or small arithmetic on such: each element becomes a symbol, so that the
// result's sizes are formulas as ever. What cannot be written as a short formula
// gets a name, a derived symbol, whose bounds are checked before the first kernel.
//
//   %y = "onnx.Expand"(%x, %shape)    =>   lathe.symbol @shape_0 {origin = "value of shape[0]"}
//                                          lathe.dim_from %shape {symbols = ["shape_0"]}
//                                          %y = lathe.broadcast_to %x : ... #lathe.t<[shape_0]>
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {

/// Elements of an input that are worth a symbol each.
static constexpr int64_t kMaxBound = 32;
/// Characters of a size's formula that the results of a node may have. Limits, which pools that round up put around
/// what they read twice, double it with each node; sums and products are what later nodes compare, and divide by.
static constexpr size_t kMaxSizeText = 300, kMaxLimitedText = 64;
/// Whether the formula of a size needs a name.
static bool isLongSize(const DimExpr &dim) {
  StringRef text = dim.str();
  bool isLimited = text.contains("min(") || text.contains("max(");
  return text.size() > (isLimited ? kMaxLimitedText : kMaxSizeText);
}
/// Ops between an input and where its elements are needed.
static constexpr int kMaxChain = 64;

SymbolOp Legalizer::declare(StringRef hint, int64_t min, int64_t max, int64_t opt, StringRef origin,
                            DimAttr value) {
  std::string base, name;
  for (char c : hint)
    base += llvm::isAlnum(c) ? c : '_';
  if (base.empty() || llvm::isDigit(base[0]))
    base.insert(0, "_");
  name = base;
  for (int n = 1; SymbolTable::lookupSymbolIn(module, name); ++n)
    name = base + "_" + std::to_string(n);
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  for (SymbolOp symbol : module.getOps<SymbolOp>())
    builder.setInsertionPointAfter(symbol);
  e.ranges[name] = {min == INT64_MIN + 1 ? INT64_MIN : min, max < 0 ? DimRange::kUnbounded : max};
  return SymbolOp::create(builder, e.loc, name, min, max, opt, 1, origin, value);
}

HostValue Legalizer::symbolsOf(RankedTensorType type, const std::string &name,
                               SmallVectorImpl<Attribute> &names) {
  // The least number is what stands for "not known" in the runtime.
  int64_t least = type.getElementTypeBitWidth() == 64 ? INT64_MIN + 1 : INT32_MIN;
  HostValue host{type.getElementType(), type.getShape().vec(), {}};
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    std::string at = std::to_string(i);
    SymbolOp symbol = declare(name + "_" + at, least, -1, 1,
                              SymbolOp::kValueOrigin.str() + name + "[" + at + "]", DimAttr());
    names.push_back(symbol.getSymNameAttr());
    host.values.push_back(DimExpr::symbol(symbol.getSymName().str()));
  }
  return host;
}

std::optional<HostValue> Legalizer::bindInput(BlockArgument input) {
  auto type = dyn_cast<RankedTensorType>(input.getType());
  if (input.getOwner() != &func.getBody().front() || !type || !type.hasStaticShape() ||
      type.getRank() > 1 || type.getNumElements() > kMaxBound || stringValues.contains(input) ||
      !(type.getElementType().isSignlessInteger(64) || type.getElementType().isSignlessInteger(32)))
    return std::nullopt;
  auto attr = func.getArgAttrOfType<StringAttr>(input.getArgNumber(), "lathe.name");
  std::string name = attr ? attr.str() : "input";
  SmallVector<Attribute> names;
  HostValue host = symbolsOf(type, name, names);
  if (!names.empty()) {
    OpBuilder builder = OpBuilder::atBlockBegin(&func.getBody().front());
    DimFromOp::create(builder, input.getLoc(), type, input, builder.getArrayAttr(names));
  }
  return host;
}

/// Few integers that the run computes: their values become sizes when they are there.
std::optional<HostValue> Legalizer::bindComputed(Value value) {
  constexpr int64_t kMost = 8;
  Value computed = data(value);
  auto type = computed ? dyn_cast<RankedTensorType>(computed.getType()) : RankedTensorType();
  if (!type || !type.hasStaticShape() || type.getRank() > 1 || type.getNumElements() > kMost ||
      type.getNumElements() < 1 || !computed.getDefiningOp() || stringValues.contains(computed) ||
      !(type.getElementType().isSignlessInteger(64) || type.getElementType().isSignlessInteger(32)))
    return std::nullopt;
  SmallVector<StringRef> nodes = nodeNames(value.getLoc());
  std::string name = nodes.empty() ? "value" : nodes.front().str();
  SmallVector<Attribute> names;
  HostValue host = symbolsOf(type, name, names);
  DimFromOp::create(e.b, e.loc, type, computed, e.b.getArrayAttr(names));
  track(value).host = host;
  return host;
}

std::optional<HostValue> Legalizer::bindHost(Value value, std::optional<int64_t> least,
                                             bool computed) {
  if (auto inner = branchValues.find(value); inner != branchValues.end() && !host(value)) {
    Value yielded = inner->second;
    if (std::optional<HostValue> known = bindHost(yielded, std::nullopt, computed))
      track(value).host = known;
  }
  std::optional<HostValue> result = host(value);
  if (!result) {
    if (auto input = dyn_cast<BlockArgument>(value)) {
      result = bindInput(input);
      if (result)
        track(value).host = result;
    } else if (Operation *producer = value.getDefiningOp(); producer && isSource(producer) &&
                                                            producer->getNumRegions() == 0 &&
                                                            chain < kMaxChain) {
      ++chain;
      Node node(*this, producer);
      bool known = true;
      for (unsigned i = 0; i < node.numInputs() && known; ++i)
        known = !node.has(i) || bindHost(producer->getOperand(i), std::nullopt, computed);
      if (known && node.numInputs() && succeeded(evaluateOnHost(node)))
        result = host(value);
      --chain;
    }
    // Of what a branch or a loop gives nothing is known but the number of elements: too little for
    // shapes.
    if (Operation *producer = value.getDefiningOp();
        !result && computed && producer && !producer->getNumRegions())
      result = bindComputed(value);
  }
  if (!result || !least)
    return result;
  for (const DimExpr &dim : result->values) {
    if (!dim.symbolName() || !isRunTimeValue(dim))
      continue; // a formula is checked where it is a size
    auto symbol = cast<SymbolOp>(SymbolTable::lookupSymbolIn(module, *dim.symbolName()));
    if (int64_t(symbol.getMin()) >= *least)
      continue;
    symbol.setMin(*least);
    symbol.setOpt(std::max<int64_t>(symbol.getOpt(), *least));
    e.ranges[*dim.symbolName()].lo = *least;
  }
  return result;
}

bool Legalizer::isRunTimeValue(const DimExpr &dim) {
  std::set<std::string> names;
  dim.collectSymbols(names);
  return llvm::any_of(names, [&](const std::string &name) {
    auto symbol = dyn_cast_or_null<SymbolOp>(SymbolTable::lookupSymbolIn(module, name));
    return symbol && symbol.getOrigin().starts_with(SymbolOp::kValueOrigin);
  });
}

DimExpr Legalizer::derive(StringRef hint, const DimExpr &formula, DimRange bounds) {
  DimRange known = formula.range(e.ranges);
  if (formula.isConstant() ||
      (formula.symbolName() && known.lo >= bounds.lo && known.hi <= bounds.hi))
    return formula;
  std::string key =
      formula.str() + " " + std::to_string(bounds.lo) + " " + std::to_string(bounds.hi);
  if (auto found = derived.find(key); found != derived.end())
    return found->second;
  std::map<std::string, int64_t> optima;
  for (SymbolOp symbol : module.getOps<SymbolOp>())
    optima[symbol.getSymName().str()] = symbol.getOpt();
  Result<int64_t> opt = formula.evaluate(optima);
  int64_t best = std::clamp(opt ? *opt : 1, bounds.lo, bounds.hi);
  SymbolOp symbol = declare(hint, bounds.lo, bounds.hi == DimRange::kUnbounded ? -1 : bounds.hi,
                            best, "derived", DimAttr::get(module.getContext(), formula));
  return derived.emplace(key, DimExpr::symbol(symbol.getSymName().str())).first->second;
}

DimExpr Legalizer::sizeOf(Value count, StringRef hint, const std::optional<DimExpr> &most) {
  std::map<std::string, int64_t> optima;
  for (SymbolOp symbol : module.getOps<SymbolOp>())
    optima[symbol.getSymName().str()] = symbol.getOpt();
  int64_t highest = most ? most->range(e.ranges).hi : DimRange::kUnbounded;
  Result<int64_t> usual = most ? most->evaluate(optima) : Result<int64_t>(128);
  int64_t opt = std::clamp<int64_t>(usual ? *usual : 1, 0, highest);
  SymbolOp symbol = declare(hint, 0, highest == DimRange::kUnbounded ? -1 : highest, opt,
                            SymbolOp::kValueOrigin.str() + hint.str(), DimAttr());
  DimFromOp::create(e.b, e.loc, count.getType(), count,
                    e.b.getArrayAttr({symbol.getSymNameAttr()}));
  return DimExpr::symbol(symbol.getSymName().str());
}

Dims Legalizer::sizesOf(Value sizes, StringRef hint) {
  constexpr int64_t kUsual = 16;
  Dims dims;
  SmallVector<Attribute> names;
  const int64_t rank = cast<RankedTensorType>(sizes.getType()).getNumElements();
  for (int64_t d = 0; d < rank; ++d) {
    std::string name = (hint + "_" + llvm::Twine(d)).str();
    SymbolOp symbol = declare(name, 0, -1, kUsual, SymbolOp::kValueOrigin.str() + name, DimAttr());
    names.push_back(symbol.getSymNameAttr());
    dims.push_back(DimExpr::symbol(symbol.getSymName().str()));
  }
  DimFromOp::create(e.b, e.loc, sizes.getType(), sizes, e.b.getArrayAttr(names));
  return dims;
}

DimExpr Node::sizeOf(Value count, const std::optional<DimExpr> &most) {
  SmallVector<StringRef> names = nodeNames(op->getLoc());
  return legalizer.sizeOf(count, ((names.empty() ? type : names.front()) + "_count").str(), most);
}

std::optional<HostValue> Node::bound(unsigned i, std::optional<int64_t> least) {
  return has(i) ? legalizer.bindHost(op->getOperand(i), least, /*computed=*/true) : std::nullopt;
}

std::optional<DimExpr> Node::whole(unsigned i) {
  if (std::optional<double> known = number(i);
      known && *known == std::floor(*known) && std::abs(*known) < double(int64_t(1) << 53))
    return DimExpr(int64_t(*known));
  std::optional<HostValue> value = bound(i, std::nullopt);
  Operation *cast = has(i) ? op->getOperand(i).getDefiningOp() : nullptr;
  if (!value && cast && cast->getName().getStringRef() == "onnx.Cast")
    value = legalizer.bindHost(cast->getOperand(0), std::nullopt);
  return value && value->values.size() == 1 ? std::optional(value->values[0]) : std::nullopt;
}

DimExpr Node::derive(llvm::Twine hint, const DimExpr &formula, DimRange bounds) {
  SmallVector<StringRef> names = nodeNames(op->getLoc());
  return legalizer.derive(((names.empty() ? type : names.front()) + "_" + hint).str(), formula,
                          bounds);
}

DimExpr equalDims(const DimExpr &a, const DimExpr &b) {
  return DimExpr::max(0, DimExpr(1) - DimExpr::max(a - b, b - a));
}

Dims Node::named(ArrayRef<DimExpr> axes, int64_t rank) {
  Dims result;
  DimExpr total = 0;
  for (int64_t d = 0; d < rank; ++d) {
    DimExpr here = 0;
    for (const DimExpr &axis : axes)
      here = here + equalDims(axis, d) + equalDims(axis, d - rank);
    result.push_back(derive("axis" + llvm::Twine(d), here, {0, 1}));
    total = total + result.back();
  }
  demandZero("axes", total - DimExpr(int64_t(axes.size())));
  return result;
}

DimExpr Node::kept(ArrayRef<DimExpr> dims, ArrayRef<DimExpr> dropped, int64_t i) {
  DimExpr size = 0, before = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    DimExpr keep = DimExpr(1) - dropped[d];
    size = size +
           dims[d] * keep *
               derive("at" + llvm::Twine(d) + "_" + llvm::Twine(i), equalDims(before, i), {0, 1});
    before = before + keep;
  }
  return derive("dim" + llvm::Twine(i), size, {0, DimRange::kUnbounded});
}

void Legalizer::nameLongSizes(const Node &node) {
  // Sizes of an iteration or of a branch have no value where names get theirs.
  if (!branches.empty() || !loops.empty())
    return;
  SmallVector<StringRef> names = nodeNames(node.op->getLoc());
  for (OpResult result : node.op->getResults()) {
    Value value = track(result).data;
    if (!value || stringValues.contains(value) || !isa<RankedTensorType>(value.getType()))
      continue;
    Dims dims = dimsOf(value);
    for (auto [d, dim] : llvm::enumerate(dims))
      if (isLongSize(dim)) {
        DimRange range = dim.range(e.ranges);
        std::string hint = ((names.empty() ? node.type : names.front()) + "_size" + llvm::Twine(d)).str();
        dim = derive(hint, dim, {std::max<int64_t>(range.lo, 0), range.hi});
      }
    track(result).data = e.bind(value, dims);
  }
}

void Node::demandZero(llvm::Twine hint, const DimExpr &formula) { derive(hint, formula, {0, 0}); }

} // namespace lathe::legal
