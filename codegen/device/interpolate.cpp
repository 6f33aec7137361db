//===- interpolate.cpp - descriptor of interpolate.cuh: weighted sums of neighbours along two axes
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

static Result<bool> offer(const KernelDesc &desc, const Target &, std::vector<KernelVariant> &out) {
  if (!desc.interpolation || desc.numOutputs > 1 || bitWidth(desc.buffers[desc.numInputs].dtype) < 8)
    return false;
  const KernelDesc::Interpolation &sizes = *desc.interpolation;
  // Channels that fill vectors are summed as fast where they are read, if there are few taps and no transpose. And of an
  // image that is made much smaller most rows are not needed.
  constexpr int64_t kVector = 8, kFewTaps = 2, kShrinks = 3;
  const int64_t columns = sizes.width * sizes.inner;
  const bool vectors = sizes.inner % kVector == 0 && std::max(sizes.tapsY, sizes.tapsX) <= kFewTaps && desc.inputContiguous < 0;
  if (vectors || sizes.height < 1 || columns < 1 || sizes.rowsRead > kShrinks * sizes.height)
    return false;
  KernelConfig c{&kInterpolate};
  c.tileM = 16;
  // The tile with the fewest columns beyond the end of a row. Two rows of threads, each with two columns, were best.
  auto tilesOf = [&](int64_t n) { return (columns + n - 1) / n; };
  for (int64_t n : {128, 64, 32})
    if (c.tileN == 0 || tilesOf(n) * n * 10 < tilesOf(c.tileN) * c.tileN * 9)
      c.tileN = n;
  c.threads = std::max<int64_t>(64, c.tileN);
  const DimExpr tiles(tilesOf(c.tileN) * ((sizes.height + c.tileM - 1) / c.tileM));
  addVariant(out, {}, specFor(desc, c, DimExpr::max(DimExpr(1), sizes.planes * tiles)));
  return true;
}

const Skeleton kInterpolate = {
    .family = "interpolate",
    .block = "t m n: m x n results of an image, each a sum of neighbours along its rows and columns",
    .code = Skeleton::Code::Interpolation,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"interpolate"},
                                 "interpolate<" + joined({c.threads, c.tileM, c.tileN}) + ">(h, " + t.outer + ", " + t.rows +
                                     ", " + t.columns + ", " + t.wanted + ");",
                                 ""};
               }}};

} // namespace lathe
