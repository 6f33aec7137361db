//===- Layouts.h - how values lie on the ranks of a mesh --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SHARD_LAYOUTS_H
#define LATHE_PASSES_SHARD_LAYOUTS_H

#include "lathe/ir/Lathe.h"

#include <string>
#include <vector>

namespace lathe::shard {

/// How ranks divide a dimension: of each block rank r has the r-th part, one block after another; usually there
/// is one. Blocks are of units, which stay together: a head and its elements. A block that is no multiple of the
/// ranks is padded at its end. One of fewer units than ranks is shared: each rank has one unit, as some others have
/// (lathe/ir/Collective.h: shardSize), which is how ranks beyond the heads of keys have these. Mirrored: of every second
/// block rank r has the r-th part from the end, as queries of causal attention are divided (Queries.h).
struct Parts {
  std::vector<int64_t> blocks; ///< sizes in units
  int64_t unit = 1;            ///< elements
  bool mirrored = false;
  bool operator==(const Parts &) const = default;
  auto operator<=>(const Parts &) const = default;

  int64_t size() const; ///< of the dimension
  /// Elements that a rank has.
  int64_t localSize(int64_t ranks) const;
  /// Which part of a block, by the block's number, a rank has.
  int64_t rankIn(size_t block, int64_t ranks, int64_t rank) const {
    return mirrored && block % 2 ? ranks - 1 - rank : rank;
  }
  /// Of each element that a rank has its place in the dimension; -1 for padding.
  llvm::SmallVector<int64_t> placesOf(int64_t ranks, int64_t rank) const;
  /// Each rank has as much as any other, and nobody else has it.
  bool isEven(int64_t ranks) const;
  /// The ranks' parts, one after another, are the dimension and padding behind it.
  bool isInOrder(int64_t ranks) const { return blocks.size() == 1 && isApart(ranks); }
  /// Nobody else has what a rank has, padding aside.
  bool isApart(int64_t ranks) const;
  /// Equal parts have equal forms: where units make no difference, they are elements.
  Parts canonical(int64_t ranks) const;
};

/// What each rank has of a value.
struct Layout {
  enum class Kind {
    Replicated, ///< all of it
    Split,      ///< a part along `dim`
    Partial,    ///< a tensor of its sizes; the value is the reduction of all
  };
  Kind kind = Kind::Replicated;
  int64_t dim = 0;
  Parts parts;         ///< Split
  bool zeroed = false; ///< Split: padding is zeros, the neutral element of products; otherwise nobody may read it
  ReduceKind reduction = ReduceKind::Sum; ///< Partial

  /// Replicated where every rank has all of the parts.
  static Layout split(int64_t dim, Parts parts) {
    if (llvm::all_of(parts.blocks, [](int64_t block) { return block == 1; }))
      return {};
    return {Kind::Split, dim, std::move(parts), false, ReduceKind::Sum};
  }
  static Layout split(int64_t dim, int64_t size) { return split(dim, Parts{{size}, 1}); }
  static Layout partial(ReduceKind reduction) { return {Kind::Partial, 0, {}, false, reduction}; }
  Layout withZeros(bool wanted = true) const {
    Layout layout = *this;
    layout.zeroed = wanted && isSplit();
    return layout;
  }
  bool isReplicated() const { return kind == Kind::Replicated; }
  bool isSplit() const { return kind == Kind::Split; }
  bool operator==(const Layout &) const = default;
  auto operator<=>(const Layout &) const = default;

  /// "all", "dim 1", "dim 1 in blocks 8+4", "dim 1 in blocks 71 of 4", "dim 2 in blocks 8+8 mirrored", "sum of all".
  std::string str() const;
};

/// The type that a rank has of a value.
TensorType localType(mlir::Type type, const Layout &layout, int64_t ranks);

/// The layout of a row-major tensor under sizes `to` of which sizes `from` have this Split layout; none
/// where parts of a rank do not stay together. Sizes are those of the whole.
std::optional<Layout> reshaped(const Layout &layout, llvm::ArrayRef<DimExpr> from,
                               llvm::ArrayRef<DimExpr> to, int64_t ranks);

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_LAYOUTS_H
