//===- Layouts.h - how values lie on the ranks of a mesh --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SHARD_LAYOUTS_H
#define LATHE_PASSES_SHARD_LAYOUTS_H

#include "lathe/ir/Lathe.h"

#include <string>
#include <vector>

namespace lathe::shard {

/// What each rank has of a value.
struct Layout {
  enum class Kind {
    Replicated, ///< all of it
    Split,      ///< a part along `dim`
    Partial,    ///< a tensor of its sizes; the value is the reduction of all
  };
  Kind kind = Kind::Replicated;
  int64_t dim = 0;
  /// Split: sizes that add up to the dimension's. Of each block rank r has the r-th part, one block after
  /// another; usually there is one. A block that is no multiple of the ranks is alone, and is
  /// padded at its end by elements that nobody may read.
  std::vector<int64_t> blocks;
  ReduceKind reduction = ReduceKind::Sum; ///< Partial

  static Layout split(int64_t dim, std::vector<int64_t> blocks) {
    return {Kind::Split, dim, std::move(blocks), ReduceKind::Sum};
  }
  static Layout partial(ReduceKind reduction) { return {Kind::Partial, 0, {}, reduction}; }
  bool isReplicated() const { return kind == Kind::Replicated; }
  bool isSplit() const { return kind == Kind::Split; }
  bool operator==(const Layout &) const = default;
  auto operator<=>(const Layout &) const = default;

  /// "all", "dim 1", "dim 1 in blocks 8+4", "sum of all".
  std::string str() const;
};

/// Whether each rank has as much as any other, without padding.
bool isEven(const std::vector<int64_t> &blocks, int64_t ranks);
/// Size of the dimension on a rank.
int64_t localSize(const std::vector<int64_t> &blocks, int64_t ranks);
/// The type that a rank has of a value.
TensorType localType(mlir::Type type, const Layout &layout, int64_t ranks);

/// The layout of a row-major tensor under sizes `to` of which sizes `from` have this Split layout; none
/// where parts of a rank do not stay together. Sizes are those of the whole.
std::optional<Layout> reshaped(const Layout &layout, llvm::ArrayRef<DimExpr> from,
                               llvm::ArrayRef<DimExpr> to, int64_t ranks);

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_LAYOUTS_H
