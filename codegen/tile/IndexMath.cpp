//===- IndexMath.cpp - index arithmetic with folding -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constants and then dimension expressions are created at the head of the
// function, wherever the builder stands, so that they dominate all uses.
//
//===----------------------------------------------------------------------===//

#include "IndexMath.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <numeric>

using namespace mlir;

namespace lathe::codegen {
namespace {
enum : int { kAdd, kSub, kMul, kDiv, kRem, kMin, kMax, kSelect, kSplat, kStep, kCmp = 100 };
}

IndexMath::IndexMath(OpBuilder &b, func::FuncOp fn, const std::vector<std::string> &names,
                     unsigned firstSymbolArg, int64_t width)
    : b(b), width(width), fn(fn) {
  for (auto [i, name] : llvm::enumerate(names))
    symbols[name] = fn.getArgument(firstSymbolArg + i);
  scopes.emplace_back();
}

Value IndexMath::constant(TypedAttr attr) {
  Value &v = constants[const_cast<void *>(attr.getAsOpaquePointer())];
  if (v)
    return v;
  OpBuilder::InsertionGuard guard(b);
  if (lastConstant)
    b.setInsertionPointAfter(lastConstant);
  else
    b.setInsertionPointToStart(&fn.front());
  v = arith::ConstantOp::create(b, fn.getLoc(), attr);
  lastConstant = v.getDefiningOp();
  return v;
}

Value IndexMath::cst(int64_t v) { return constant(b.getIndexAttr(v)); }

std::optional<int64_t> IndexMath::constantOf(Value v) {
  if (auto c = v.getDefiningOp<arith::ConstantOp>())
    if (auto i = dyn_cast<IntegerAttr>(c.getValue()))
      return i.getInt();
  return std::nullopt;
}

Value IndexMath::shared(int op, Value x, Value y, Value z, llvm::function_ref<Value()> make) {
  Key key{op, x.getAsOpaquePointer(), y.getAsOpaquePointer(), z.getAsOpaquePointer()};
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
    if (auto it = scope->find(key); it != scope->end())
      return it->second;
  return scopes.back()[key] = make();
}

Value IndexMath::add(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return cst(*cx + *cy);
  if (cx && !cy)
    return add(y, x);
  if (cy && *cy == 0)
    return x;
  // (a + c1) + c2 = a + (c1 + c2)
  if (cy)
    if (auto inner = x.getDefiningOp<arith::AddIOp>())
      if (auto c1 = constantOf(inner.getRhs()))
        return add(inner.getLhs(), cst(*c1 + *cy));
  return shared(kAdd, x, y, {}, [&] { return arith::AddIOp::create(b, fn.getLoc(), x, y); });
}

Value IndexMath::sub(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return cst(*cx - *cy);
  if (cy)
    return add(x, cst(-*cy));
  if (x == y)
    return cst(0);
  return shared(kSub, x, y, {}, [&] { return arith::SubIOp::create(b, fn.getLoc(), x, y); });
}

Value IndexMath::mul(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return cst(*cx * *cy);
  if (cx && !cy)
    return mul(y, x);
  if (cy && *cy == 0)
    return y;
  if (cy && *cy == 1)
    return x;
  return shared(kMul, x, y, {}, [&] { return arith::MulIOp::create(b, fn.getLoc(), x, y); });
}

Value IndexMath::div(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy && *cy > 0 && *cx >= 0)
    return cst(*cx / *cy);
  if ((cy && *cy == 1) || cx == 0)
    return x;
  // (a * c) / c = a, also below a sum whose other part stays under c.
  if (cy)
    if (auto m = x.getDefiningOp<arith::MulIOp>(); m && *cy != 0)
      if (auto c = constantOf(m.getRhs()); c && *c % *cy == 0)
        return mul(m.getLhs(), cst(*c / *cy));
  return shared(kDiv, x, y, {}, [&] { return arith::DivUIOp::create(b, fn.getLoc(), x, y); });
}

Value IndexMath::rem(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy && *cy > 0 && *cx >= 0)
    return cst(*cx % *cy);
  if (cx == 0)
    return x;
  if (cy && (*cy == 1 || (*cy != 0 && divisor(x) % *cy == 0)))
    return cst(0);
  return shared(kRem, x, y, {}, [&] { return arith::RemUIOp::create(b, fn.getLoc(), x, y); });
}

Value IndexMath::min(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return cst(std::min(*cx, *cy));
  if (x == y)
    return x;
  return shared(kMin, x, y, {}, [&] { return arith::MinSIOp::create(b, fn.getLoc(), x, y); });
}

Value IndexMath::max(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return cst(std::max(*cx, *cy));
  if (x == y)
    return x;
  return shared(kMax, x, y, {}, [&] { return arith::MaxSIOp::create(b, fn.getLoc(), x, y); });
}

Value IndexMath::cmp(arith::CmpIPredicate p, Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  auto holds = [&](int64_t at) {
    return arith::applyCmpPredicate(p, APInt(64, at, true), APInt(64, *cy, true));
  };
  if (cx && cy)
    return constant(b.getBoolAttr(holds(*cx)));
  bool ordered = p != arith::CmpIPredicate::eq && p != arith::CmpIPredicate::ne;
  if (auto range = cy && ordered ? rangeOf(x) : std::nullopt; range && range->first >= 0)
    if (bool first = holds(range->first); first == holds(range->second))
      return constant(b.getBoolAttr(first));
  return shared(kCmp + static_cast<int>(p), x, y, {},
                [&] { return arith::CmpIOp::create(b, fn.getLoc(), p, x, y); });
}

std::optional<std::pair<int64_t, int64_t>> IndexMath::rangeOf(Value v) const {
  if (auto it = limits.find(v.getAsOpaquePointer()); it != limits.end())
    return std::pair(int64_t(0), it->second - 1);
  auto sum = v.getDefiningOp<arith::AddIOp>();
  auto more = sum ? constantOf(sum.getRhs()) : std::nullopt;
  auto inner = more ? rangeOf(sum.getLhs()) : std::nullopt;
  if (!inner)
    return std::nullopt;
  return std::pair(inner->first + *more, inner->second + *more);
}

Value IndexMath::select(Value c, Value x, Value y) {
  if (x == y)
    return x;
  if (auto k = constantOf(c))
    return *k ? x : y;
  return shared(kSelect, c, x, y,
                [&] { return arith::SelectOp::create(b, fn.getLoc(), c, x, y); });
}

int64_t IndexMath::divisor(Value v) {
  if (auto c = constantOf(v))
    return std::abs(*c);
  if (auto arg = dyn_cast<BlockArgument>(v)) {
    auto loop = dyn_cast<scf::ForOp>(arg.getOwner()->getParentOp());
    if (loop && arg == loop.getInductionVar())
      return std::gcd(divisor(loop.getLowerBound()), divisor(loop.getStep()));
    return 1;
  }
  Operation *op = v.getDefiningOp();
  if (isa<arith::AddIOp, arith::SubIOp, arith::MinSIOp, arith::MaxSIOp>(op))
    return std::gcd(divisor(op->getOperand(0)), divisor(op->getOperand(1)));
  if (isa<arith::MulIOp>(op)) {
    int64_t x = divisor(op->getOperand(0)), y = divisor(op->getOperand(1));
    // Large factors only matter through their powers of two and small divisors.
    return x > (1 << 24) || y > (1 << 24) ? std::max(x, y) : x * y;
  }
  if (auto s = dyn_cast<arith::SelectOp>(op))
    return std::gcd(divisor(s.getTrueValue()), divisor(s.getFalseValue()));
  if (auto r = dyn_cast<arith::RemUIOp>(op))
    return std::gcd(divisor(r.getLhs()), divisor(r.getRhs()));
  return 1;
}

//===- Dimension expressions ----------------------------------------------===//

Value IndexMath::dim(const DimExpr &e) {
  if (auto c = e.constant())
    return cst(*c);
  if (auto name = e.symbolName())
    if (auto it = symbols.find(*name); it != symbols.end())
      return it->second;
  Value &v = dims[e.str()];
  if (v)
    return v;
  OpBuilder::InsertionGuard guard(b);
  if (!lastConstant)
    cst(0);
  b.setInsertionPointAfter(lastHead ? lastHead : lastConstant);
  // Expressions of the head are found by text; the scopes' caches must not hold
  // values made here nor give values from elsewhere.
  std::vector<std::map<Key, Value>> saved(1);
  std::swap(saved, scopes);
  Value made = dimHere(e);
  std::swap(saved, scopes);
  if (Operation *op = made.getDefiningOp(); op && !isa<arith::ConstantOp>(op))
    lastHead = op;
  return dims[e.str()] = made;
}

Value IndexMath::dimHere(const DimExpr &e) {
  auto fold = [&](auto &&f) {
    std::vector<DimExpr> parts = e.operands();
    Value v = dimHere(parts[0]);
    for (size_t i = 1; i < parts.size(); ++i)
      v = f(v, dimHere(parts[i]));
    return v;
  };
  if (auto c = e.constant())
    return cst(*c);
  Location loc = fn.getLoc();
  switch (e.kind()) {
  case DimExpr::Kind::Symbol: {
    auto it = symbols.find(*e.symbolName());
    // select lists every symbol of the sizes; a missing one is its defect.
    return it == symbols.end() ? cst(0) : it->second;
  }
  case DimExpr::Kind::Sum: {
    Value sum;
    for (const DimExpr::Term &term : e.terms()) {
      Value v = cst(term.coefficient);
      for (const DimExpr &atom : term.atoms)
        v = mul(v, dimHere(atom));
      sum = sum ? add(sum, v) : v;
    }
    return sum ? sum : cst(0);
  }
  case DimExpr::Kind::FloorDiv: {
    std::vector<DimExpr> p = e.operands();
    Value x = dimHere(p[0]), y = dimHere(p[1]);
    if (p[0].range().lo >= 0)
      return div(x, y);
    return arith::FloorDivSIOp::create(b, loc, x, y);
  }
  case DimExpr::Kind::CeilDiv: {
    std::vector<DimExpr> p = e.operands();
    Value x = dimHere(p[0]), y = dimHere(p[1]);
    return arith::FloorDivSIOp::create(b, loc, add(x, sub(y, cst(1))), y);
  }
  case DimExpr::Kind::Mod: {
    std::vector<DimExpr> p = e.operands();
    Value x = dimHere(p[0]), y = dimHere(p[1]);
    if (p[0].range().lo >= 0)
      return rem(x, y);
    return sub(x, mul(y, arith::FloorDivSIOp::create(b, loc, x, y).getResult()));
  }
  case DimExpr::Kind::Min:
    return fold([&](Value x, Value y) { return min(x, y); });
  case DimExpr::Kind::Max:
    return fold([&](Value x, Value y) { return max(x, y); });
  case DimExpr::Kind::Bcast:
    return fold([&](Value x, Value y) {
      return select(cmp(arith::CmpIPredicate::eq, x, cst(1)), y, x);
    });
  }
  return cst(0);
}

//===- Lanes ----------------------------------------------------------------===//

Value IndexMath::splat(Value scalar) {
  auto type = VectorType::get({width}, b.getIndexType());
  if (auto c = constantOf(scalar))
    return constant(DenseElementsAttr::get(type, b.getIndexAttr(*c)));
  return shared(kSplat, scalar, {}, {},
                [&] { return vector::BroadcastOp::create(b, fn.getLoc(), type, scalar); });
}

Value IndexMath::lanesOf(const Index &x) {
  if (x.lanes)
    return x.lanes;
  Value base = splat(x.base);
  if (x.stride == 0)
    return base;
  SmallVector<Attribute> steps;
  for (int64_t l = 0; l < width; ++l)
    steps.push_back(b.getIndexAttr(l * x.stride));
  Value step = constant(DenseElementsAttr::get(VectorType::get({width}, b.getIndexType()), steps));
  return shared(kStep, base, step, {},
                [&] { return arith::AddIOp::create(b, fn.getLoc(), base, step); });
}

Value IndexMath::lane(const Index &x, int64_t l) {
  if (!x.lanes)
    return add(x.base, cst(l * x.stride));
  return vector::ExtractOp::create(b, fn.getLoc(), x.lanes, l);
}

Index IndexMath::add(const Index &x, const Index &y) {
  if (!x.lanes && !y.lanes)
    return {add(x.base, y.base), x.stride + y.stride};
  Value u = lanesOf(x), v = lanesOf(y);
  return Index::ofLanes(arith::AddIOp::create(b, fn.getLoc(), u, v));
}

Index IndexMath::mul(const Index &x, const DimExpr &by) {
  auto c = by.constant();
  if (!x.lanes && (c || x.stride == 0))
    return {mul(x.base, dim(by)), x.stride * c.value_or(0)};
  Value u = lanesOf(x), v = splat(dim(by));
  return Index::ofLanes(arith::MulIOp::create(b, fn.getLoc(), u, v));
}

std::pair<Index, Index> IndexMath::divRem(const Index &x, const DimExpr &by) {
  auto c = by.constant();
  // Along no elements none is ever asked for.
  if (c && *c <= 1)
    return {x, Index(cst(0))};
  Value d = dim(by);
  if (x.uniform())
    return {Index(div(x.base, d)), Index(rem(x.base, d))};
  if (!x.lanes && c && x.stride > 0) {
    if (x.stride % *c == 0)
      return {Index(div(x.base, d), x.stride / *c), Index(rem(x.base, d))};
    // All lanes stay inside one multiple of the divisor.
    int64_t granule = std::gcd(divisor(x.base), *c);
    if (x.stride * (width - 1) < granule)
      return {Index(div(x.base, d)), Index(rem(x.base, d), x.stride)};
  }
  Value u = lanesOf(x), v = splat(d);
  return {Index::ofLanes(arith::DivUIOp::create(b, fn.getLoc(), u, v)),
          Index::ofLanes(arith::RemUIOp::create(b, fn.getLoc(), u, v))};
}

Index IndexMath::min(const Index &x, Value y) {
  if (x.uniform())
    return Index(min(x.base, y));
  return Index::ofLanes(arith::MinSIOp::create(b, fn.getLoc(), lanesOf(x), splat(y)));
}

Index IndexMath::max(const Index &x, Value y) {
  if (x.uniform())
    return Index(max(x.base, y));
  return Index::ofLanes(arith::MaxSIOp::create(b, fn.getLoc(), lanesOf(x), splat(y)));
}

Value IndexMath::cmp(arith::CmpIPredicate p, const Index &x, Value y) {
  if (x.uniform())
    return cmp(p, x.base, y);
  return arith::CmpIOp::create(b, fn.getLoc(), p, lanesOf(x), splat(y));
}

} // namespace lathe::codegen
