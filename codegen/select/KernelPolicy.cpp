//===- KernelPolicy.cpp - what kernels are for -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelPolicy.h"

#include "HopperConv.h"

#include "lathe/codegen/DirectConv.h"
#include "lathe/support/ConvGroups.h"

namespace lathe {

StoredWeightRows storedWeightRows(const Target &target, int64_t bits, bool bare, bool packed) {
  if (!target.hasTensorCores())
    return {};
  // gemm.packed, gemm.fragments and gemm.widened; for many more rows a copy of 16 bits takes no longer.
  if (target.hasWgmma() && packed && bits == 4)
    return {16, 256};
  // gemv.row and gemm.skinny; with wgmma, of bytes, gemm.mixed, where the operand that stands in
  // registers is what dequantizing makes.
  return {16, target.hasWgmma() && bits == 8 ? bare ? 512 : 64 : -1};
}

ConvOfCodes convOfCodes(const Target &target, const CodeWindows &conv) {
  if (target.isCuda()) // TMA brings whole pixels, whose channels are pieces of 16 bytes
    return target.hasWgmma() && conv.group == 1 && conv.groupChannels % 16 == 0 &&
                   select::fitsImageMaps(conv.window, conv.strides, conv.pads, conv.dilations)
               ? ConvOfCodes::Integers
               : ConvOfCodes::No;
  if (!target.hasPairProducts())
    return ConvOfCodes::No;
  if (conv.group > 1)
    return conv.window.size() <= 2 &&
                   groupsFitLanes(conv.groupChannels, conv.groupFilters, target.lanes(DType::F32))
               ? ConvOfCodes::Images
               : ConvOfCodes::No;
  std::vector<DimExpr> any(conv.window.size(), DimExpr(1));
  bool together =
      ConvGeometry::of(any, any, conv.window, conv.strides, conv.pads, conv.dilations, 1).has_value();
  return together ? ConvOfCodes::Integers : ConvOfCodes::No;
}

} // namespace lathe
