//===- fourier.cpp - descriptor of fourier.cuh: discrete Fourier transforms of rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"
#include "lathe/support/FastTransform.h"

namespace lathe {

using namespace select;

/// Rows for a block of 128 threads, eight elements a thread; of long rows one, by more threads with four.
static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (!desc.transform)
    return false;
  const KernelDesc::Transform &t = *desc.transform;
  const int64_t points = pointsOfTransform(t.length, t.complexRows);
  constexpr int64_t kThreads = 128, kMostThreads = 512, kElements = 8, kOfLong = 4, kBlocks = 3;
  KernelConfig c{&kFourier};
  c.rows = std::max<int64_t>(1, kThreads * kElements / points);
  c.threads = kThreads;
  while (c.threads < kMostThreads && c.threads * kOfLong < points)
    c.threads *= 2;
  if (c.rows > 1 && t.rows.constant()) // few rows: some blocks for each multiprocessor rather than full ones
    c.rows = std::clamp<int64_t>(*t.rows.constant() / (kBlocks * target.smCount), 1, c.rows);
  while (c.rows > 1 && transformBytes(points, c.rows, t.realBytes) > target.sharedPerBlock)
    c.rows /= 2;
  if (!hasFastTransform(t.length, t.complexRows, t.realBytes, target.sharedPerBlock))
    return false;
  KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(t.rows, DimExpr(c.rows)));
  spec.launches[0].sharedBytes = DimExpr(transformBytes(points, c.rows, t.realBytes));
  addVariant(out, {}, std::move(spec));
  return true;
}

const Skeleton kFourier = {
    .family = "fourier",
    .block = "t r: the transforms of r rows",
    .code = Skeleton::Code::Fourier,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"fourier"},
                                 "transformRows<" + joined({c.rows, c.threads}) + ">(h, " + t.rows + ");",
                                 "FourierTile<" + joined({c.rows}) + ", Holes>"};
               }}};

} // namespace lathe
