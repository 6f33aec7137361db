//===- UnitDims.cpp - dimensions of size 1 that come and go ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/UnitDims.h"

using namespace llvm;

namespace lathe {

std::optional<SmallVector<int64_t>> unitMap(ArrayRef<DimExpr> from, ArrayRef<DimExpr> to) {
  SmallVector<int64_t> map;
  size_t f = 0;
  for (const DimExpr &dim : to) {
    if (dim == DimExpr(1)) {
      bool kept = f < from.size() && from[f] == DimExpr(1);
      map.push_back(kept ? int64_t(f++) : -1);
      continue;
    }
    while (f < from.size() && from[f] == DimExpr(1) && from[f] != dim)
      ++f;
    if (f == from.size() || from[f] != dim)
      return std::nullopt;
    map.push_back(f++);
  }
  for (; f < from.size(); ++f)
    if (from[f] != DimExpr(1))
      return std::nullopt;
  return map;
}

} // namespace lathe
