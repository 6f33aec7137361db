//===- scan.cpp - descriptors of scan.cuh: running reductions along rows ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

namespace lathe {

using namespace select;

/// A thread for each row walks it as fast as blocks do where rows are so many, or so short.
static constexpr int64_t kMostRows = 16384, kLeastLength = 64;
/// Elements of a block at least, and blocks for each multiprocessor at most.
static constexpr int64_t kLeastShare = 4096, kBlocks = 8;
/// Bytes of a running value at most.
static constexpr int64_t kValueBytes = 8;

/// Rows by several blocks each; with a guard where they may be many. Whether no sizes are left.
static bool addShares(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.batchInvariant)
    return false; // how many blocks share a row depends on how many rows there are
  const DimExpr rows = product(desc.parallel), length = product(desc.reduction);
  DimRange range = rangeOf(rows, desc);
  if (range.lo > kMostRows || rangeOf(length, desc).hi < kLeastLength)
    return false;
  KernelConfig c{&kScan};
  c.threads = 256;
  c.tileM = kLeastShare;
  DimExpr card = DimExpr::floorDiv(DimExpr(kBlocks * target.smCount), DimExpr::max(rows, DimExpr(1)));
  DimExpr parts = DimExpr::max(DimExpr(1), DimExpr::min(card, DimExpr::ceilDiv(length, DimExpr(kLeastShare))));
  KernelSpec spec = specFor(desc, c, rows * parts);
  if (parts != DimExpr(1)) {
    LaunchSpec first = spec.launches[0];
    first.function += "_totals";
    spec.launches.insert(spec.launches.begin(), first);
    select::addWorkspace(spec, rows * parts * DimExpr(kValueBytes));
  }
  std::vector<DimCondition> guard;
  if (range.hi > kMostRows)
    guard.push_back({DimCondition::Kind::LessEqual, rows, DimExpr(kMostRows)});
  addVariant(out, guard, std::move(spec));
  return guard.empty();
}

static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.kind != KernelDesc::Kind::Scan)
    return false;
  // A scan and nothing that reduces beside it.
  if (desc.operands.empty() && !desc.selection && desc.numReductions == 1 && addShares(desc, target, out))
    return true;
  KernelConfig c{&kScan};
  c.threads = 128;
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.threads))));
  return true;
}

static std::string call(const char *function, const KernelConfig &c, const MemoryText &t) {
  return std::string(function) + "<" + joined({c.threads}) + ">(h, " + t.columns + ", " + t.parts + ");";
}

const Skeleton kScan = {
    .family = "scan",
    .block = "t v: a share of what lies beside the scanned axis; with m: one of the shares of a row, of m elements or more "
             "where there are several",
    .code = Skeleton::Code::Scan,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 Instance made{{"scan"}, call("scanShares", c, t), ""};
                 if (t.parts != "1")
                   made.before = {call("scanTotals", c, t)};
                 return made;
               }}};

} // namespace lathe
