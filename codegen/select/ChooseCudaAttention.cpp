//===- ChooseCudaAttention.cpp - attention on GPUs ------------------ -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks the descriptors of attention, in their order, which sizes each is the best
// for: few queries have blocks or clusters of their own, more stream over the keys
// in tiles.
//
//===----------------------------------------------------------------------===//

#include "ChooseCuda.h"

#include "lathe/codegen/AttentionChoice.h"

namespace lathe::select {

AttentionChoice::AttentionChoice(const KernelDesc &desc, const Target &target, int64_t headQK,
                                 int64_t headV, bool half, std::vector<KernelVariant> &out)
    : desc(desc), target(target), queries(desc.parallel[2]), keys(desc.reduction[0]),
      headQK(headQK), headV(headV), codeBits(desc.operands[1].codeBits), half(half), queryRange(rangeOf(queries, desc)),
      keyRange(rangeOf(keys, desc)), out(out) {}

std::optional<AttentionChoice> AttentionChoice::of(const KernelDesc &desc, const Target &target,
                                                   std::vector<KernelVariant> &out) {
  std::optional<int64_t> headV = desc.parallel[3].constant(), headQK = desc.reduction[1].constant();
  if (!headV || !headQK || *headV > kLargestAttentionHead || *headQK > kLargestAttentionHead ||
      desc.operands[0].dtype == DType::F64)
    return {};
  bool half = isHalf(desc.operands[0].dtype);
  for (size_t i = 1; i < 3; ++i)
    half &= desc.operands[i].dtype == desc.operands[0].dtype;
  return AttentionChoice(desc, target, *headQK, *headV, half, out);
}

bool AttentionChoice::add(std::vector<DimCondition> guard, KernelSpec spec) {
  const bool all = guard.empty();
  addVariant(out, std::move(guard), std::move(spec));
  return !all;
}

KernelSpec AttentionChoice::specByHeads(const KernelConfig &config, const DimExpr &blocks) const {
  KernelSpec spec = specFor(desc, config, blocks);
  spec.launches[0].grid[1] = desc.parallel[1];
  spec.launches[0].grid[2] = desc.parallel[0];
  return spec;
}

int64_t AttentionChoice::sharedBytes(const KernelConfig &config, bool mask) const {
  return config.form->sharedBytes(config, {.headQK = headQK, .headV = headV, .mask = mask, .codeBits = codeBits});
}

bool AttentionChoice::inPieces(size_t operand) const {
  if (desc.operands[operand].buffer < 0)
    return false;
  const BufferArg &b = desc.buffers[desc.operands[operand].buffer];
  return b.dims.size() == 4 && b.physical.size() == 4 && b.alignment % 16 == 0 &&
         b.packing.empty() && divides(8, b.physical[3]) && divides(8, b.dims[3]);
}

Result<bool> attention(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() != 4 || desc.reduction.size() != 2)
    return internalError("attention needs B, H, S, E and T, D", "kernel " + desc.name);
  std::optional<AttentionChoice> choice = AttentionChoice::of(desc, target, out);
  if (!choice)
    return false;
  for (const Skeleton *skeleton : skeletons())
    if (skeleton->attention.offer && !skeleton->attention.offer(*choice))
      return true;
  return internalError("no form for all sizes of an attention", "kernel " + desc.name);
}

} // namespace lathe::select
