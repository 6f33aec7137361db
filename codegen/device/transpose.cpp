//===- transpose.cpp - descriptor of transpose.cuh: rows become columns in tiles
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// A tile of input rows transposed in shared memory, for results whose neighbours lie far apart
/// in the input.
static Result<bool> offer(const KernelDesc &desc, const Target &,
                          std::vector<KernelVariant> &out) {
  if (desc.inputContiguous < 0 || bitWidth(desc.inputContiguousType) < 8)
    return false;
  DimExpr rows = desc.parallel[desc.inputContiguous], columns = lastOf(desc.parallel);
  int64_t piece = 16 / std::max<int64_t>(1, bitWidth(desc.inputContiguousType) / 8);
  KernelConfig c{&kTranspose};
  c.threads = 256;
  c.lanes = divides(piece, rows) && divides(piece, columns) ? piece : 1;
  c.tileM = c.lanes > 1 ? 16 * c.lanes : 32;
  DimExpr outer = 1;
  for (size_t d = 0; d + 1 < desc.parallel.size(); ++d)
    if (static_cast<int64_t>(d) != desc.inputContiguous)
      outer = outer * desc.parallel[d];
  addVariant(out, {},
             specFor(desc, c,
                     outer * DimExpr::ceilDiv(rows, DimExpr(c.tileM)) *
                         DimExpr::ceilDiv(columns, DimExpr(c.tileM))));
  return true;
}

const Skeleton kTranspose = {
    .family = "transpose",
    .block = "t v m: an m x m tile of the last dimension and the one contiguous in the input; CPU: a share of "
             "its squares of v x v",
    .code = Skeleton::Code::Transpose,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"transpose", "math"},
                                 std::string(c.lanes > 1 ? "transposeBlocks" : "transposeElements") +
                                     "(h, " + t.rows + ", " + t.columns + ");",
                                 ""};
               }}};

} // namespace lathe
