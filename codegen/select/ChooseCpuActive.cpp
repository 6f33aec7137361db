//===- ChooseCpuActive.cpp - one row, of inputs that are often zero -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// gemm.active: a unit lists the elements of the row that are not zero and reads those weights alone. What a row of a
// panel has lies together, so the wider panels are, the less is fetched for nothing: of a page no prefetcher leaves.
//
//===----------------------------------------------------------------------===//

#include "ChooseCpu.h"

#include <algorithm>

namespace lathe::select {

bool chooseActive(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (!desc.operands[0].inactive || desc.batchInvariant)
    return false;
  std::string why;
  std::optional<WeightProduct> sizes = productByWeights(desc, why);
  // Weights are stored once, and several rows want narrower panels.
  if (!sizes || !sizes->isOne || sizes->depth < 1 || sizes->columns < 1)
    return false;
  KernelConfig c;
  c.form = &kCpuGemmActive;
  c.lanes = lanesFor(target);
  c.tileM = c.rows = c.tileK = 1;
  // A page of f32, if all cores have one.
  constexpr int64_t kPage = 1024, kLeast = 8;
  const int64_t share = (sizes->columns + target.cores - 1) / std::max<int64_t>(1, target.cores);
  c.tileN = c.lanes * std::max<int64_t>((std::min(share, kPage) + c.lanes - 1) / c.lanes, kLeast);
  if (!desc.wanted.empty() && !askedFor(desc, c)) // a dense one may be
    return false;
  KernelSpec spec = specFor(desc, c, DimExpr(panelsOf(sizes->columns, c)));
  // Behind the row, where that is computed, the list: elements and their places; and the sums of a panel.
  spec.scratchBytes = DimExpr(4 * (sizes->depth * (sizes->rowsCopied ? 3 : 2) + c.tileN));
  packWeight(spec, desc.operands[1], "panels" + std::to_string(c.tileN) + (desc.operands[1].transposed ? "t" : ""));
  addVariant(out, {}, std::move(spec));
  return true;
}

} // namespace lathe::select
