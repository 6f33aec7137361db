//===- CodeGroups.cpp - rows of bytes for products of integers ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CodeGroups.h"

#include "Rules.h"

using namespace mlir;

namespace lathe::codegen {

Value CodeGroups::splatOf(Value scalar, int64_t lanes) {
  return e.make<vector::BroadcastOp>(VectorType::get({lanes}, scalar.getType()), scalar);
}

/// Codes that are signed are 128 more as unsigned ones.
static constexpr int64_t kSign = 128;

Value CodeGroups::outside() {
  Value none = e.constantInt(i32(), 0);
  if (each == 2)
    return none;
  if (zero)
    none = zero;
  if (!from.isUnsignedInteger())
    none = e.make<arith::AddIOp>(none, e.constantInt(i32(), kSign));
  return e.make<arith::MulIOp>(none, e.constantInt(i32(), 0x01010101));
}

Value CodeGroups::ofColumnSums() {
  if (each == 2 || (!zero && from.isUnsignedInteger()))
    return {};
  Value less = e.constantInt(i32(), from.isUnsignedInteger() ? 0 : -kSign);
  return zero ? Value(e.make<arith::SubIOp>(less, zero)) : less;
}

Value CodeGroups::pack(Value codes) {
  auto type = cast<VectorType>(codes.getType());
  int64_t count = type.getNumElements();
  VectorType lanes = VectorType::get({count / each}, i32());
  if (each == 4) {
    if (!from.isUnsignedInteger())
      codes = e.make<arith::XOrIOp>(codes, splatOf(e.constantInt(e.b.getI8Type(), -kSign), count));
    return e.make<vector::BitCastOp>(lanes, codes);
  }
  Value wide = widen(e, codes, from, part());
  if (zero)
    wide = e.make<arith::SubIOp>(wide, splatOf(e.make<arith::TruncIOp>(part(), zero), count));
  return e.make<vector::BitCastOp>(lanes, wide);
}

Value CodeGroups::group(llvm::function_ref<Value(const Index &)> code, const Index &k, int64_t members) {
  const int64_t bits = 32 / each;
  auto all = [&](Value like, Value c) { return e.isVector(like) ? e.splat(c) : c; };
  auto number = [&](Value like, int64_t v) { return all(like, e.constantInt(i32(), v)); };
  Value result;
  for (int64_t j = 0; j < members; ++j) {
    Value v = widen(e, code(e.ix.add(k, Index(e.ix.cst(j)))), from, i32());
    if (each == 2 && zero)
      v = e.make<arith::SubIOp>(v, all(v, zero));
    if (each == 4 && !from.isUnsignedInteger())
      v = e.make<arith::XOrIOp>(v, number(v, kSign));
    v = e.make<arith::AndIOp>(v, number(v, (int64_t(1) << bits) - 1));
    if (j)
      v = e.make<arith::ShLIOp>(v, number(v, j * bits));
    if (result)
      e.unify(result, v);
    result = result ? Value(e.make<arith::OrIOp>(result, v)) : v;
  }
  return result;
}

Value CodeGroups::atByte(Value memory, Value offset, int64_t groups) {
  return pack(e.make<tile::LoadOp>(VectorType::get({groups * each}, e.b.getI8Type()), memory, offset, nullptr));
}

void CodeGroups::copy(const DimExpr &groups, Value memory, Value offset, Value scratch, Value at) {
  IndexMath &ix = e.ix;
  e.overRow(groups, [&](const Index &c) {
    bool one = c.uniform();
    Value v = atByte(memory, ix.add(offset, ix.mul(c.base, each)), one ? 1 : e.active);
    if (one)
      v = e.make<vector::ExtractOp>(v, int64_t(0));
    tile::StoreOp::create(e.b, e.loc, v, scratch, ix.add(at, c.base), nullptr);
  });
}

void CodeGroups::write(int64_t count, Value memory, Value offset,
                       llvm::function_ref<Value(const Index &)> code, Value scratch, Value at) {
  IndexMath &ix = e.ix;
  const int64_t whole = count / each;
  auto put = [&](const Index &i, int64_t members) {
    e.storeAt(group(code, ix.mul(i, each), members), i32(), scratch, ix.add(Index(at), i));
  };
  if (memory)
    copy(DimExpr(whole), memory, offset, scratch, at);
  else
    e.overRow(DimExpr(whole), [&](const Index &i) { put(i, each); });
  if (count % each)
    put(Index(ix.cst(whole)), count % each);
}

} // namespace lathe::codegen
