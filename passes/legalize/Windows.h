//===- Windows.h - attributes that conv and pool share ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_WINDOWS_H
#define LATHE_PASSES_LEGALIZE_WINDOWS_H

#include "Node.h"

namespace lathe::legal {

/// Window attributes with defaults filled in and auto_pad resolved. Where strides and a symbolic size decide how
/// much SAME pads, the pads are 0 and stand in `low` and `high`, which are else empty.
struct Window {
  Ints kernel, strides, pads, dilations;
  Dims low, high;
};

/// Of a node with input x [N, C, spatial...]; none after a report.
inline std::optional<Window> windowOf(Node &n, mlir::Value x, const Ints &kernel) {
  size_t count = rankOf(x) - 2;
  auto list = [&](llvm::StringRef name, size_t size, int64_t otherwise) {
    return n.intsAttr(name).value_or(Ints(size, otherwise));
  };
  Window w{kernel, list("strides", count, 1), list("pads", 2 * count, 0),
           list("dilations", count, 1)};
  if (kernel.size() != count || w.strides.size() != count || w.pads.size() != 2 * count ||
      w.dilations.size() != count) {
    (void)n.invalid("attribute",
                    "attributes do not match " + llvm::Twine(count) + " spatial dimensions");
    return std::nullopt;
  }
  for (size_t i = 0; i < count; ++i)
    if (w.kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1) {
      (void)n.invalid("attribute", "window sizes, strides and dilations are positive");
      return std::nullopt;
    }
  std::string mode = n.strAttr("auto_pad", "NOTSET");
  if (mode == "VALID") {
    w.pads.assign(2 * count, 0);
  } else if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    for (size_t i = 0; i < count; ++i) {
      int64_t stride = w.strides[i], span = (w.kernel[i] - 1) * w.dilations[i] + 1;
      DimExpr size = dimOf(x, 2 + i),
              total = (DimExpr::ceilDiv(size, stride) - DimExpr(1)) * DimExpr(stride) + DimExpr(span) - size;
      if (span < stride) // then some elements at the end may be under no window
        total = n.e.clampAtZero(total);
      DimExpr small = DimExpr::floorDiv(total, 2), large = total - small;
      DimExpr before = mode == "SAME_UPPER" ? small : large, after = mode == "SAME_UPPER" ? large : small;
      w.pads[i] = before.constant().value_or(0);
      w.pads[count + i] = after.constant().value_or(0);
      if (total.isConstant())
        continue;
      w.low.resize(count + 2, DimExpr(0));
      w.high.resize(count + 2, DimExpr(0));
      w.low[2 + i] = before;
      w.high[2 + i] = after;
    }
  } else if (mode != "NOTSET") {
    (void)n.invalid("attribute", "auto_pad = '" + llvm::Twine(mode) + "'");
    return std::nullopt;
  }
  return w;
}

/// x with the pads that Window keeps apart.
inline mlir::Value padded(Emitter &e, mlir::Value x, const Window &w, mlir::Value value) {
  return w.low.empty() ? x : e.pad(x, value, w.low, w.high, PadMode::Constant);
}

/// A vector of channels shaped to broadcast over [N, C, spatial...].
inline mlir::Value perChannel(Emitter &e, mlir::Value v, int64_t rank) {
  if (!v || rankOf(v) != 1)
    return e.fail("one value a channel is needed");
  Dims dims(rank, DimExpr(1));
  dims[rank > 1 ? 1 : 0] = dimOf(v, 0);
  return e.reshape(v, dims);
}

/// The convolution that the node's attributes describe, without bias.
mlir::Value convOf(Node &n, mlir::Value x, mlir::Value w);
/// QLinearConv: x, its scale and zero point, w, its scale and zero point (one a channel at most), y's
/// scale and zero point, and a bias in i32. `last`: the channels of x and y come last.
mlir::Value qLinearConvOf(Node &n, bool last = false);
/// The pooling that the node's attributes describe.
mlir::Value poolOf(Node &n, mlir::Value x, PoolKind kind);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_WINDOWS_H
