//===- marks.cpp - descriptors of marks.cuh: places of flags that are set, counted first
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"
#include "lathe/support/FlagMarks.h"

namespace lathe {

using namespace select;

static constexpr int64_t kThreads = 256;

/// A block a share, one at least.
static Result<bool> offerShares(const Skeleton *form, KernelDesc::Selection::Kind kind, int64_t workOfBlock, const KernelDesc &desc,
                                std::vector<KernelVariant> &out) {
  if (!desc.selection || desc.selection->kind != kind)
    return false;
  KernelConfig c{form};
  c.threads = kThreads;
  const DimExpr blocks = DimExpr::max(DimExpr(1), DimExpr::ceilDiv(desc.selection->length, DimExpr(kFlagsOfShare)));
  KernelSpec spec = specFor(desc, c, blocks);
  if (workOfBlock)
    select::addWorkspace(spec, blocks * DimExpr(workOfBlock));
  addVariant(out, {}, std::move(spec));
  return true;
}

const Skeleton kFlagMarks = {
    .family = "marks",
    .block = "t: 16384 flags, which it counts and packs",
    .code = Skeleton::Code::Nonzero,
    .memory = {.offer = [](const KernelDesc &desc, const Target &, std::vector<KernelVariant> &out) {
                 return offerShares(&kFlagMarks, KernelDesc::Selection::Kind::Mark, 8, desc, out);
               },
               .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"marks"}, "markShares<" + joined({c.threads}) + ">(h, " + t.columns + ");", ""};
               }}};
const Skeleton kMarkedPlaces = {
    .family = "marks.places",
    .block = "t: 16384 flags, whose places it stores",
    .code = Skeleton::Code::Nonzero,
    .memory = {.offer = [](const KernelDesc &desc, const Target &, std::vector<KernelVariant> &out) {
                 return offerShares(&kMarkedPlaces, KernelDesc::Selection::Kind::MarkedPlaces, 0, desc, out);
               },
               .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"marks"}, "storePlaces<" + joined({c.threads}) + ">(h, " + t.columns + ", " + t.wanted + ");", ""};
               }}};

} // namespace lathe
