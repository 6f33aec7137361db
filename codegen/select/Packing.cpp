//===- Packing.cpp - weights in the order in which kernels read --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Packing.h"

#include <charconv>
#include <cstring>
#include <string>

namespace lathe {

int64_t PanelLayout::lastWidth() const {
  int64_t rest = columns - (panels() - 1) * panel;
  if (order == Order::Taps)
    return rest;
  return (rest + lanes() - 1) / lanes() * lanes();
}

int64_t PanelLayout::offset(int64_t b, int64_t k, int64_t n) const {
  int64_t p = n / panel;
  int64_t width = p == panels() - 1 ? lastWidth() : panel;
  return b * depth * paddedColumns() + p * depth * panel + k * width + n % panel;
}

Result<PanelLayout> PanelLayout::of(std::string_view recipe, const std::vector<int64_t> &dims) {
  std::string where = "packing " + std::string(recipe);
  PanelLayout layout;
  std::string_view rest = recipe;
  auto starts = [&](std::string_view name) {
    if (rest.substr(0, name.size()) != name)
      return false;
    rest.remove_prefix(name.size());
    return true;
  };
  bool matrix = starts("panels"), filters = !matrix && starts("filters");
  bool taps = !matrix && !filters && starts("taps");
  size_t rank = dims.size();
  if ((!matrix && !filters && !taps) || rank < 2)
    return internalError("no such packing for a weight of rank " + std::to_string(rank), where);
  if (!taps) {
    auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), layout.panel);
    if (ec != std::errc() || layout.panel < 2 || layout.panel % 2)
      return internalError("the width of a panel must be an even number", where);
    rest.remove_prefix(end - rest.data());
  }
  bool transposed = matrix && starts("t");
  if (!rest.empty())
    return internalError("trailing text", where);
  if (matrix) {
    layout.order = transposed ? Order::MatrixTransposed : Order::Matrix;
    for (size_t d = 0; d + 2 < rank; ++d)
      layout.batch *= dims[d];
    layout.depth = dims[rank - (transposed ? 1 : 2)];
    layout.columns = dims[rank - (transposed ? 2 : 1)];
  } else {
    layout.order = filters ? Order::Filters : Order::Taps;
    layout.columns = dims[0];
    layout.channels = dims[1];
    for (size_t d = 2; d < rank; ++d)
      layout.taps *= dims[d];
    layout.depth = layout.taps * layout.channels;
    if (taps) {
      if (dims[1] != 1)
        return internalError("a depthwise filter has one channel", where);
      layout.panel = layout.columns;
    }
  }
  if (layout.columns <= 0 || layout.depth <= 0 || layout.batch <= 0)
    return internalError("an empty weight is not packed", where);
  return layout;
}

Result<PackedWeight> packWeight(std::string_view recipe, std::span<const std::byte> bytes,
                                DType dtype, const std::vector<int64_t> &dims) {
  Result<PanelLayout> made = PanelLayout::of(recipe, dims);
  if (!made)
    return made.status();
  const PanelLayout &l = *made;
  int64_t size = bitWidth(dtype) / 8;
  std::string where = "packing " + std::string(recipe);
  if (bitWidth(dtype) % 8 != 0 || size == 0)
    return internalError("elements smaller than a byte are not packed", where);
  if (static_cast<int64_t>(bytes.size()) != l.batch * l.depth * l.columns * size)
    return internalError("the weight has " + std::to_string(bytes.size()) + " bytes, not those of its sizes",
                         where);
  PackedWeight out;
  out.dims = {l.elements()};
  out.bytes.resize(l.elements() * size);
  using Order = PanelLayout::Order;
  for (int64_t b = 0; b < l.batch; ++b)
    for (int64_t k = 0; k < l.depth; ++k)
      for (int64_t n = 0; n < l.columns; ++n) {
        int64_t from = 0;
        switch (l.order) {
        case Order::Matrix:
          from = (b * l.depth + k) * l.columns + n;
          break;
        case Order::MatrixTransposed:
          from = (b * l.columns + n) * l.depth + k;
          break;
        case Order::Filters:
        case Order::Taps:
          from = (n * l.channels + k % l.channels) * l.taps + k / l.channels;
          break;
        }
        std::memcpy(out.bytes.data() + l.offset(b, k, n) * size, bytes.data() + from * size, size);
      }
  return out;
}

} // namespace lathe
