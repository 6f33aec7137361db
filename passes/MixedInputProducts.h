//===- MixedInputProducts.h - which products read stored weights -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_MIXEDINPUTPRODUCTS_H
#define LATHE_PASSES_MIXEDINPUTPRODUCTS_H

#include "Common.h"

namespace lathe {

/// Whether the tensor cores of a target multiply the codes of both operands of a product as they are, and scale
/// sums by blocks of the depth (lathe/ir/BlockScales.h). `relaid`: what the answer would be if the right
/// operand, a constant, had the order of dimensions that it needs. `why`: as blockScales has it.
bool multipliesBlocks(MatmulOp product, const Target &target, bool relaid = false, std::string *why = nullptr);

/// Whether an op dequantizes codes for such products alone, which read them and their scales from memory.
bool isMultipliedAsCodes(mlir::Operation *op, const Target &target);

/// Answers for one module whether a product reads its right operand in the form in which it is stored
/// (lathe/ir/StorageOperand.h) and dequantizes it in registers, or in the cache of a core.
class MixedInputProducts {
public:
  MixedInputProducts(const Target &target, mlir::ModuleOp module)
      : target(target), symbols(symbolRanges(module)), optima(symbolOptima(module)) {}

  /// Whether kernels of this target want the depth of the stored matrix last, [N, K].
  bool wantsDepthLast() const { return target.isCuda(); }
  /// `relaid`: what the answer would be if the codes had that order.
  /// `why`: the reason, where the answer is no.
  bool takes(MatmulOp product, bool relaid = false, std::string *why = nullptr) const;

private:
  bool takesOnCpu(MatmulOp product, std::string &why) const;
  bool takesOnCuda(MatmulOp product, int64_t depth, std::string &why) const;

  const Target &target;
  std::map<std::string, DimRange> symbols;
  std::map<std::string, int64_t> optima;
};

} // namespace lathe

#endif // LATHE_PASSES_MIXEDINPUTPRODUCTS_H
