//===- nonzero.cpp - descriptor of nonzero.cuh: places of flags that are set, in order
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

namespace lathe {

using namespace select;

static Result<bool> offer(const KernelDesc &desc, const Target &, std::vector<KernelVariant> &out) {
  if (!desc.selection || desc.selection->kind != KernelDesc::Selection::Kind::Nonzero)
    return false;
  KernelConfig c{&kNonzero};
  c.threads = rangeOf(desc.selection->length, desc).hi <= 256 ? 256 : 1024;
  addVariant(out, {}, specFor(desc, c, DimExpr(1)));
  return true;
}

const Skeleton kNonzero = {
    .family = "nonzero",
    .block = "t: all flags, t at a time",
    .code = Skeleton::Code::Nonzero,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"nonzero"},
                                 "collectPlaces<" + joined({c.threads}) + ">(h, " + t.columns + ");",
                                 ""};
               }}};

} // namespace lathe
