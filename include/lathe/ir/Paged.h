//===- Paged.h - keys and values in pages -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of an entry that serves several sequences at once: lathe.kv_append writes the keys and
// values of new tokens where the allocator of pages says (lathe/runtime/KvCache.h),
// lathe.paged_attention reads them there. page-states makes them (passes/simplify), expand-pages
// gives them to fusion as scatters, gathers and attention (passes/fuse).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_PAGED_H
#define LATHE_IR_PAGED_H

#include "lathe/ir/Lathe.h"

#define GET_OP_CLASSES
#include "lathe/ir/LathePagedOps.h.inc"

namespace lathe {

/// The dimensions of a pool, [pages, layers, 2, tokens of a page, heads, head size].
enum PoolDim : size_t { PoolPages, PoolLayers, PoolParts, PoolTokens, PoolHeads, PoolDepth, PoolRank };

/// Bits of a code of a pool that has scales: those of i8 are 8, those of ui8, two a byte, 4. 0 for other types.
inline int64_t codeBitsOf(mlir::Value pool) {
  mlir::Type element = elementTypeOf(pool);
  return element.isSignlessInteger(8) ? 8 : element.isUnsignedInteger(8) ? 4 : 0;
}

} // namespace lathe

#endif // LATHE_IR_PAGED_H
