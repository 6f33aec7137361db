//===- FusionGraph.h - ops, kernels in the making, dependences --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fuse reasons over: the ops of one entry in order, and groups that will
// become kernels. A group owns ops, each once. An op that no group owns is
// free: it may be computed again inside any group that reads it, or get a group
// of its own. Ownership keeps the graph of groups free of cycles.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_FUSE_FUSIONGRAPH_H
#define LATHE_PASSES_FUSE_FUSIONGRAPH_H

#include "../Common.h"

#include "lathe/ir/SizeSources.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace lathe::fuse {

struct Group {
  RegionKind kind = RegionKind::Pointwise;
  mlir::Operation *anchor = nullptr;
  llvm::SmallVector<mlir::Operation *> members; ///< in program order
  /// Sizes over which members iterate: of the result, or for a reduction of its operand.
  std::vector<DimExpr> space;
  /// Reduction: whether a dimension of `space` is reduced; whether all blocks of a card share the terms of
  /// a result, so that nothing of the size of `space` can be computed behind it in the same kernel.
  std::vector<bool> reduced;
  bool shared = false;

  bool isContraction() const {
    return kind == RegionKind::Gemm || kind == RegionKind::Conv || kind == RegionKind::Attention;
  }
};

class FusionGraph {
public:
  FusionGraph(mlir::func::FuncOp func, std::map<std::string, int64_t> optima);

  llvm::ArrayRef<mlir::Operation *> ops() const { return program; }
  Group *ownerOf(mlir::Operation *op) const { return owners.lookup(op); }
  bool isFree(mlir::Operation *op) const { return classOf(op) && !owners.count(op); }
  const std::vector<std::unique_ptr<Group>> &groups() const { return all; }

  /// A new group around `anchor`.
  Group &create(mlir::Operation *anchor, RegionKind kind);
  /// Whether the group may own the op too: no value would have to leave and come back.
  bool mayOwn(mlir::Operation *op, const Group &group) const;
  void own(mlir::Operation *op, Group &group);
  /// Gives up the ownership of a member that is not the anchor.
  void release(mlir::Operation *op, Group &group);
  /// Puts the amax of blocks into the group in the place of `amax`, a member; what is left to reduce is free.
  void splitAmax(mlir::Operation *amax, Group &group);

  /// Results of members that something outside reads. `inside` tells ops that are
  /// computed again within the group alone.
  llvm::SmallVector<mlir::Value>
  outputs(const Group &group,
          llvm::function_ref<bool(mlir::Operation *)> inside = nullptr) const;

  /// Elements at the sizes that are optimised for.
  double count(llvm::ArrayRef<DimExpr> dims) const;
  /// Operations per result element, an addition being 1.
  double workOfElement(mlir::Operation *op) const;

private:
  void readProgram();

  mlir::Block &block;
  std::vector<mlir::Operation *> program;
  llvm::DenseMap<mlir::Operation *, unsigned> order;
  llvm::DenseMap<mlir::Operation *, Group *> owners;
  std::vector<std::unique_ptr<Group>> all;
  llvm::DenseMap<mlir::Operation *, llvm::SetVector<mlir::Operation *>> loops; ///< around ops
  std::optional<SizeSources> sizes; ///< that come in the middle of a run
  std::map<std::string, int64_t> optima;
};

/// Contractions take what follows them, point by point, and the re-indexing of
/// what they store.
void growContractions(FusionGraph &graph, const Target &target);
/// Whether a tile of the product can have pairs of columns far from each other: operands of 16 bits that
/// tensor maps describe whatever the number of rows is, weights that are constant.
bool hasPairs(mlir::Operation *product, const Target &target);
/// A product whose columns are heads takes what follows them, head by head, with a result for each
/// slice of heads: where some are rotated by their positions, or appended to a state. Whether it did.
bool takeHeads(FusionGraph &graph, Group &group, const Target &target);
/// A cast of 16-bit floats to f32 or f64 that kernels alone read.
bool isUpcast(mlir::Operation *op);
/// 8-bit codes less a zero point (QuantizedConvs), which convolutions of a CPU take away as they read images: of
/// integers as they copy rows, of groups that a vector of results covers in registers.
bool isImageOfCodes(mlir::Operation *op);
/// A group for a depthwise convolution together with the convolution of pixels behind it, which is
/// the anchor; if they cannot be one after all, for the latter alone. Null where there is none or it
/// is not worth it.
Group *pairConvs(FusionGraph &graph, mlir::Operation *op, const Target &target);
/// Reductions gather the ops over the same rows.
void growReductions(FusionGraph &graph, const Target &target);
/// Window ops, scans and scatters with what follows them point by point.
void growWindows(FusionGraph &graph, const Target &target);
/// Whether each element of the operand is asked for once, in order.
bool readsOnce(mlir::OpOperand &use);

/// Constants that count from 0 become iotas, which kernels need not read.
void restorePositions(mlir::func::FuncOp func);

/// What became of each free op.
struct Resolution {
  /// Computed again inside these groups; no kernel or memory of its own.
  llvm::DenseMap<mlir::Operation *, llvm::SetVector<Group *>> inlined;
};
/// Decides for every free op: inside its readers, a member of one, or a kernel. On CUDA what
/// attention adds to its scores is made there where that is cheap, score by score. `module` has the
/// symbols.
Resolution resolveFreeOps(FusionGraph &graph, const Target &target, mlir::ModuleOp module);

/// Replaces the groups by lathe.kernel ops.
void outline(mlir::func::FuncOp func, FusionGraph &graph, const Resolution &resolution);

/// Same sizes, dimension by dimension.
inline bool hasDims(mlir::Value value, const std::vector<DimExpr> &dims) {
  return dimsOf(value) == dims;
}

} // namespace lathe::fuse

#endif // LATHE_PASSES_FUSE_FUSIONGRAPH_H
