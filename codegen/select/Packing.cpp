//===- Packing.cpp - weights in the order in which kernels read --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Packing.h"

#include "lathe/codegen/Winograd.h"

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
  if (order == Order::Rows)
    return (n * taps + k / channels) * paddedChannels() + k % channels;
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
  bool points = !matrix && !filters && !taps && starts("winograd");
  bool rows = !matrix && !filters && !taps && !points && starts("rows");
  bool groups = !matrix && !filters && !taps && !points && !rows && starts("groups");
  size_t rank = dims.size();
  if ((!matrix && !filters && !taps && !points && !rows && !groups) || rank < 2)
    return internalError("no such packing for a weight of rank " + std::to_string(rank), where);
  if (!taps) {
    auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), layout.panel);
    if (ec != std::errc() || layout.panel < 2 || layout.panel % 2)
      return internalError("the width of a panel must be an even number", where);
    rest.remove_prefix(end - rest.data());
  }
  bool transposed = matrix && starts("t");
  if (points && starts("f4"))
    layout.tile = 4;
  if (groups && starts("x")) {
    auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), layout.groups);
    if (ec != std::errc() || layout.groups < 1)
      return internalError("the number of groups must be positive", where);
    rest.remove_prefix(end - rest.data());
  }
  if (!rest.empty())
    return internalError("trailing text", where);
  if (matrix) {
    layout.order = transposed ? Order::MatrixTransposed : Order::Matrix;
    for (size_t d = 0; d + 2 < rank; ++d)
      layout.batch *= dims[d];
    layout.depth = dims[rank - (transposed ? 1 : 2)];
    layout.columns = dims[rank - (transposed ? 2 : 1)];
  } else {
    layout.order = filters  ? Order::Filters
                   : points ? Order::Winograd
                   : rows   ? Order::Rows
                   : groups ? Order::Groups
                            : Order::Taps;
    layout.columns = dims[0];
    layout.channels = dims[1];
    for (size_t d = 2; d < rank; ++d)
      layout.taps *= dims[d];
    if (points) {
      if (rank != 4 || dims[2] != 3 || dims[3] != 3)
        return internalError("Winograd takes filters of 3 x 3", where);
      layout.taps = winograd::Form{layout.tile}.points();
    }
    if (groups) {
      int64_t each = layout.columns / layout.groups;
      bool whole = each > 0 && layout.panel % each == 0, part = each % layout.panel == 0;
      if (layout.columns % layout.groups || layout.columns % layout.panel || !(whole || part))
        return internalError("a panel must lie in one group or be of whole groups", where);
      layout.groupChannels = dims[1];
      layout.channels = dims[1] * (whole ? layout.panel / each : 1);
    }
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

/// All filters transformed, G g G^T, in double precision.
static void packWinograd(const PanelLayout &l, std::span<const std::byte> bytes,
                         std::span<std::byte> out) {
  const winograd::Form form{l.tile};
  std::array<double, 3> rows[winograd::kMaxIn];
  for (int64_t i = 0; i < form.in(); ++i)
    rows[i] = form.filterRow(i);
  for (int64_t n = 0; n < l.columns; ++n)
    for (int64_t c = 0; c < l.channels; ++c) {
      float g[9];
      std::memcpy(g, bytes.data() + (n * l.channels + c) * sizeof g, sizeof g);
      for (int64_t i = 0; i < form.in(); ++i) {
        double half[3];
        for (int s = 0; s < 3; ++s)
          half[s] = rows[i][0] * g[s] + rows[i][1] * g[3 + s] + rows[i][2] * g[6 + s];
        for (int64_t j = 0; j < form.in(); ++j) {
          auto v = static_cast<float>(half[0] * rows[j][0] + half[1] * rows[j][1] + half[2] * rows[j][2]);
          int64_t point = i * form.in() + j;
          std::memcpy(out.data() + l.offset(0, point * l.channels + c, n) * sizeof v, &v, sizeof v);
        }
      }
    }
}

/// gates<G>x<W>.
static Result<PackedWeight> packGates(std::string_view recipe, std::span<const std::byte> bytes,
                                      DType dtype, const std::vector<int64_t> &dims) {
  std::string where = "packing " + std::string(recipe);
  int64_t gates = 0, lanes = 0, size = bitWidth(dtype) / 8;
  const char *end = recipe.data() + recipe.size();
  auto first = std::from_chars(recipe.data() + sizeof "gates" - 1, end, gates);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == 'x')
    first = std::from_chars(first.ptr + 1, end, lanes);
  if (first.ptr != end || gates < 1 || lanes < 1 || dims.size() != 2 || dims[0] < 1 ||
      dims[1] < 1 || dims[0] % gates || bitWidth(dtype) % 8 || size == 0 ||
      static_cast<int64_t>(bytes.size()) != dims[0] * dims[1] * size)
    return internalError("no such packing for this weight", where);
  int64_t hidden = dims[0] / gates, depth = dims[1], panels = (hidden + lanes - 1) / lanes;
  PackedWeight out;
  out.dims = {panels * depth * gates * lanes};
  out.bytes.resize(out.dims[0] * size);
  for (int64_t g = 0; g < gates; ++g)
    for (int64_t j = 0; j < hidden; ++j)
      for (int64_t k = 0; k < depth; ++k) {
        int64_t to = ((j / lanes * depth + k) * gates + g) * lanes + j % lanes;
        std::memcpy(out.bytes.data() + to * size, bytes.data() + ((g * hidden + j) * depth + k) * size,
                    size);
      }
  return out;
}

/// groups<NR>x<G>.
static Result<PackedWeight> packGroups(const PanelLayout &l, std::span<const std::byte> bytes,
                                       int64_t size) {
  if (static_cast<int64_t>(bytes.size()) != l.columns * l.groupChannels * l.taps * size)
    return internalError("the weight has other sizes than its packing");
  PackedWeight out;
  out.dims = {l.elements()};
  out.bytes.resize(l.elements() * size);
  int64_t each = l.columns / l.groups; // filters of a group
  for (int64_t n = 0; n < l.columns; ++n) {
    int64_t first = (n / each - n / l.panel * l.panel / each) * l.groupChannels; // in the panel
    for (int64_t c = 0; c < l.groupChannels; ++c)
      for (int64_t t = 0; t < l.taps; ++t)
        std::memcpy(out.bytes.data() + l.offset(0, t * l.channels + first + c, n) * size,
                    bytes.data() + ((n * l.groupChannels + c) * l.taps + t) * size, size);
  }
  return out;
}

Result<PackedWeight> packWeight(std::string_view recipe, std::span<const std::byte> bytes,
                                DType dtype, const std::vector<int64_t> &dims) {
  if (recipe.starts_with("gates"))
    return packGates(recipe, bytes, dtype, dims);
  Result<PanelLayout> made = PanelLayout::of(recipe, dims);
  if (!made)
    return made.status();
  const PanelLayout &l = *made;
  int64_t size = bitWidth(dtype) / 8;
  std::string where = "packing " + std::string(recipe);
  if (bitWidth(dtype) % 8 != 0 || size == 0)
    return internalError("elements smaller than a byte are not packed", where);
  using Order = PanelLayout::Order;
  bool points = l.order == Order::Winograd;
  if (points && dtype != DType::F32)
    return internalError("Winograd takes filters in f32", where);
  if (l.order == Order::Groups)
    return packGroups(l, bytes, size);
  int64_t depth = points ? 9 * l.channels : l.depth;
  if (static_cast<int64_t>(bytes.size()) != l.batch * depth * l.columns * size)
    return internalError("the weight has " + std::to_string(bytes.size()) + " bytes, not those of its sizes",
                         where);
  PackedWeight out;
  out.dims = {l.elements()};
  out.bytes.resize(l.elements() * size);
  if (points) {
    packWinograd(l, bytes, out.bytes);
    return out;
  }
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
        case Order::Groups:
        case Order::Rows:
        case Order::Taps:
        case Order::Winograd:
          from = (n * l.channels + k % l.channels) * l.taps + k / l.channels;
          break;
        }
        std::memcpy(out.bytes.data() + l.offset(b, k, n) * size, bytes.data() + from * size, size);
      }
  return out;
}

} // namespace lathe
