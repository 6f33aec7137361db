//===- nonzero.cpp - descriptors of nonzero.cuh: places of flags that are set, in order
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

namespace lathe {

using namespace select;

/// Flags that one block goes through sooner than a second launch starts.
static constexpr int64_t kOneBlock = 16384;
/// Flags of a block at least, and blocks for each multiprocessor at most.
static constexpr int64_t kLeastShare = 4096, kBlocks = 8;

/// `blocks` counts, then a bit a flag.
static void addWorkspace(KernelSpec &spec, const DimExpr &blocks, const DimExpr &length) {
  select::addWorkspace(spec, (blocks + DimExpr::ceilDiv(length, DimExpr(32))) * DimExpr(4));
}

static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (!desc.selection || desc.selection->kind != KernelDesc::Selection::Kind::Nonzero)
    return false;
  const DimExpr &length = desc.selection->length;
  DimRange range = rangeOf(length, desc);
  if (range.lo <= kOneBlock) {
    KernelConfig c{&kNonzeroBlock};
    c.threads = range.hi <= 1024 ? 256 : 1024;
    KernelSpec spec = specFor(desc, c, DimExpr(1));
    addWorkspace(spec, DimExpr(1), length);
    std::vector<DimCondition> guard;
    if (range.hi > kOneBlock)
      guard.push_back({DimCondition::Kind::LessEqual, length, DimExpr(kOneBlock)});
    addVariant(out, guard, std::move(spec));
    if (guard.empty())
      return true;
  }
  KernelConfig c{&kNonzero};
  c.threads = 256;
  DimExpr blocks = DimExpr::max(DimExpr(1), DimExpr::min(DimExpr(kBlocks * target.smCount),
                                                         DimExpr::ceilDiv(length, DimExpr(kLeastShare))));
  KernelSpec spec = specFor(desc, c, blocks);
  LaunchSpec first = spec.launches[0];
  first.function += "_marks";
  spec.launches.insert(spec.launches.begin(), first);
  addWorkspace(spec, blocks, length);
  addVariant(out, {}, std::move(spec));
  return true;
}

static std::string mark(const KernelConfig &c, const MemoryText &t) {
  return "markFlags<" + joined({c.threads}) + ">(h, " + t.columns + ");";
}
static std::string collect(const char *function, const KernelConfig &c, const MemoryText &t) {
  return std::string(function) + "<" + joined({c.threads}) + ">(h, " + t.columns + ", " + t.wanted + ");";
}

const Skeleton kNonzeroBlock = {
    .family = "nonzero.block",
    .block = "t: all flags",
    .code = Skeleton::Code::Nonzero,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.text = [](const KernelConfig &c, const MemoryText &t) {
      return Instance{{"nonzero"}, mark(c, t) + "\n  __syncthreads();\n  " + collect("collectPlaces", c, t), ""};
    }}};
const Skeleton kNonzero = {
    .family = "nonzero",
    .block = "t: two launches: an equal share of the flags each, which are counted; then their places",
    .code = Skeleton::Code::Nonzero,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 Instance made{{"nonzero"}, collect("collectPlaces", c, t), ""};
                 made.before = {mark(c, t)};
                 return made;
               }}};

} // namespace lathe
