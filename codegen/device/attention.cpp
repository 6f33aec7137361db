//===- attention.cpp - descriptors of attention.cuh: f32, operands of any kind
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/AttentionChoice.h"

#include <algorithm>

namespace lathe {

using select::AttentionChoice;

/// Few queries have a block each, whose warps take keys in turn.
static bool offerDecode(AttentionChoice &a) {
  constexpr int64_t kFewQueries = 8;
  if (splitTakes(a) || a.queryRange.lo > kFewQueries)
    return true;
  KernelConfig c{&kAttentionDecode};
  c.threads = 256;
  std::vector<DimCondition> guard;
  if (a.queryRange.hi > kFewQueries)
    guard.push_back({DimCondition::Kind::LessEqual, a.queries, DimExpr(kFewQueries)});
  return a.add(std::move(guard), a.specByHeads(c, a.queries));
}

/// The last that is asked: all that is left.
static bool offerStream(AttentionChoice &a) {
  KernelConfig c{&kAttentionStream};
  c.threads = 128;
  c.rows = 4;
  KernelSpec spec =
      a.specByHeads(c, DimExpr::ceilDiv(a.queries, DimExpr(c.threads / 32 * c.rows)));
  spec.launches[0].sharedBytes = a.sharedBytes(c);
  return a.add({}, std::move(spec));
}

const Skeleton kAttentionStream = {
    .family = "attention.stream",
    .block = "t r: t/32*r queries of head (axis 1) and batch (axis 2)",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .sharedBytes =
        [](const KernelConfig &c, const TileFacts &f) {
          int64_t queries = c.threads / 32 * c.rows, keys = 32;
          int64_t stride = std::max(f.headQK, f.headV) + 1;
          return 4 * (2 * keys * stride + queries * f.headQK + queries * keys);
        },
    .attention = {.offer = offerStream, .text = [](const KernelConfig &c, const AttentionText &t) {
                    std::string tile = "AttentionTile<" + joined({c.threads / 32, c.rows}) + ">";
                    return Instance{
                        {"attention"},
                        "attentionSimt<" + tile + ">(h, " + t.queries + ", " + t.keys + ");",
                        "AttentionShared<" + tile + ", Holes::kHeadQK, Holes::kHeadV>"};
                  }}};

const Skeleton kAttentionDecode = {
    .family = "attention.decode",
    .block = "t: one query of head (axis 1) and batch (axis 2)",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .attention = {.offer = offerDecode, .text = [](const KernelConfig &c, const AttentionText &t) {
                    return Instance{
                        {"attention"},
                        "attentionDecode<" + joined({c.threads / 32}) + ">(h, " + t.keys + ");",
                        ""};
                  }}};

} // namespace lathe
