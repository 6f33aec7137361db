//===- Packing.cpp - weights in the order in which kernels read --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/Packing.h"

#include "lathe/support/TwoOfFour.h"
#include "lathe/support/Winograd.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>

namespace lathe {

int64_t PanelLayout::lastWidth() const {
  int64_t rest = columns - (panels() - 1) * panel;
  if (order == Order::Fragments)
    return panel;
  if (order == Order::Taps)
    return rest;
  return (rest + lanes() - 1) / lanes() * lanes();
}

/// Where the code of column n (0 to 15) at depth k (0 to 15) lies among the eight of its lane, and which lane.
static std::pair<int64_t, int64_t> fragmentPlace(int64_t n, int64_t k, int64_t bits) {
  int64_t lane = n % 8 * 4 + k % 8 / 2, reg = n / 8 + 2 * (k / 8), high = k % 2;
  return {lane, bits == 4 ? reg + 4 * high : reg / 2 * 4 + 2 * high + reg % 2};
}

int64_t PanelLayout::offset(int64_t b, int64_t k, int64_t n) const {
  if (order == Order::Fragments) {
    auto [lane, place] = fragmentPlace(n % 16, k % 16, codeBits);
    int64_t units = paddedDepth() / unit(), each = unit() / 2; // codes of a lane in a unit
    return ((n / 16 * units + k / unit()) * 32 + lane) * each + k % unit() / 16 * 8 + place;
  }
  if (order == Order::Rows)
    return (n * taps + k / channels) * paddedChannels() + k % channels;
  int64_t p = n / panel;
  int64_t width = p == panels() - 1 ? lastWidth() : panel;
  int64_t row = k / interleave * width + n % panel; // of neighbours in k
  return (b * paddedColumns() + p * panel) * paddedDepth() + row * interleave + k % interleave;
}

int64_t PanelLayout::Box::taps() const {
  int64_t all = 1;
  for (int64_t n : count)
    all *= n;
  return all;
}

std::string partsRecipe(int64_t panel, const std::vector<int64_t> &taps, size_t dimensions) {
  std::string text = "parts" + std::to_string(panel) + "x";
  for (size_t i = 0; i + 1 < taps.size(); i += 2) {
    if (i > 0)
      text += i / 2 % dimensions == 0 ? "," : ".";
    text += std::to_string(taps[i]) + "+" + std::to_string(taps[i + 1]);
  }
  return text;
}

std::string blocksRecipe(int64_t rows, int64_t capacity, bool transposed) {
  return "blocks" + std::to_string(kBlockColumns) + "x" + std::to_string(rows) + "c" + std::to_string(capacity) +
         (transposed ? "t" : "");
}

std::string bsrRecipe(int64_t capacity, bool transposed) {
  return "bsr64c" + std::to_string(capacity) + (transposed ? "t" : "");
}

static int64_t pairsOf(const PanelLayout &l) {
  return (l.columns + kPairedPanels * kBlockSide - 1) / (kPairedPanels * kBlockSide);
}

int64_t PanelLayout::bsrPanelsAt() const { return 4 * (4 + pairsOf(*this) + 1); }

int64_t PanelLayout::bsrBitsAt() const { return bsrPanelsAt() + 4 * kPairedPanels * pairsOf(*this); }

int64_t PanelLayout::bsrStepsAt() const {
  return (bsrBitsAt() + 4 * kPairedPanels * pairsOf(*this) * bsrWords() + 15) / 16 * 16;
}

int64_t PanelLayout::bsrBlocksAt() const { return (bsrStepsAt() + 8 * capacity + 127) / 128 * 128; }

std::string twoOfFourRecipe(bool transposed, int bits) {
  return std::string("sparse24") + (bits == 8 ? "x8" : "") + (transposed ? "t" : "");
}

namespace {

/// Depth and columns of the one matrix of a weight; false where there are several, or none.
bool matrixSizes(PanelLayout &l, const std::vector<int64_t> &dims) {
  const size_t rank = dims.size();
  if (rank < 2 || !std::all_of(dims.begin(), dims.end() - 2, [](int64_t d) { return d == 1; }))
    return false;
  l.depth = dims[rank - (l.fromTransposed ? 1 : 2)];
  l.columns = dims[rank - (l.fromTransposed ? 2 : 1)];
  return l.depth > 0 && l.columns > 0;
}

/// What follows the `sparse24` of a recipe: x8, t, both or nothing.
Result<PanelLayout> twoOfFourLayout(std::string_view rest, const std::vector<int64_t> &dims) {
  constexpr int64_t kColumns = 16; // of a warp's operand
  PanelLayout l;
  l.order = PanelLayout::Order::TwoOfFour;
  l.panel = kColumns;
  const bool bytes = rest.starts_with("x8");
  const std::string_view last = bytes ? rest.substr(2) : rest;
  l.codeBits = bytes ? 8 : 16;
  l.fromTransposed = last == "t";
  if (!(last.empty() || l.fromTransposed) || !matrixSizes(l, dims))
    return internalError("2:4 sparse weights are one matrix", "packing sparse24" + std::string(rest));
  return l;
}

/// What follows the `bsr64c` of a recipe: <C>, and t.
Result<PanelLayout> bsrLayout(std::string_view rest, const std::vector<int64_t> &dims) {
  constexpr int64_t kMostBlocks = int64_t(1) << 30; // whose numbers fit beside two bits
  PanelLayout l;
  l.order = PanelLayout::Order::Bsr;
  l.panel = kBlockSide;
  const char *end = rest.data() + rest.size(), *at = std::from_chars(rest.data(), end, l.capacity).ptr;
  l.fromTransposed = at != end && *at == 't';
  if (at == rest.data() || at + l.fromTransposed != end || !matrixSizes(l, dims) || l.capacity < 1 ||
      l.capacity >= kMostBlocks || l.capacity > BlockSteps::most(l.depth, l.columns).first)
    return internalError("no such blocks of this weight", "packing bsr64c" + std::string(rest));
  return l;
}

/// What follows the `blocks16` of a recipe: x<R>c<C>, and t.
Result<PanelLayout> blocksLayout(std::string_view recipe, std::string_view rest, const std::vector<int64_t> &dims) {
  PanelLayout l;
  l.order = PanelLayout::Order::Blocks;
  l.panel = kBlockColumns;
  const char *end = rest.data() + rest.size();
  auto number = [&](const char *at, int64_t &value) { return std::from_chars(at, end, value).ptr; };
  const char *at = number(rest.data(), l.blockRows);
  bool counted = at != end && *at == 'c';
  if (counted)
    at = number(at + 1, l.capacity);
  if (at != end && *at == 't')
    l.fromTransposed = true, ++at;
  if (at != end || !counted || !matrixSizes(l, dims) || (l.blockRows != 1 && l.blockRows != 4) ||
      l.depth % l.blockRows || l.capacity < 0 || l.capacity > l.depth / l.blockRows * l.panels() ||
      l.depth > UINT32_MAX || l.capacity > UINT32_MAX)
    return internalError("no such blocks of this weight", "packing " + std::string(recipe));
  return l;
}

/// Boxes of the parts, from what follows the x of `parts<NR>x`; empty when the text is none or a box
/// is no part of the window.
std::vector<PanelLayout::Box> parseBoxes(std::string_view text, const std::vector<int64_t> &window) {
  std::vector<PanelLayout::Box> boxes;
  const char *at = text.data(), *end = at + text.size();
  auto number = [&](int64_t &value) {
    auto read = std::from_chars(at, end, value);
    at = read.ptr;
    return read.ec == std::errc();
  };
  auto accept = [&](char c) { return at != end && *at == c && ++at; };
  do {
    PanelLayout::Box box;
    for (size_t d = 0; d < window.size(); ++d) {
      int64_t first = 0, count = 0;
      if ((d > 0 && !accept('.')) || !number(first) || !accept('+') || !number(count) || first < 0 ||
          count < 1 || first > window[d] - count)
        return {};
      box.first.push_back(first);
      box.count.push_back(count);
    }
    boxes.push_back(std::move(box));
  } while (accept(','));
  return at == end ? boxes : std::vector<PanelLayout::Box>();
}

/// The smallest box around both.
PanelLayout::Box around(const PanelLayout::Box &a, const PanelLayout::Box &b) {
  PanelLayout::Box box;
  for (size_t d = 0; d < a.first.size(); ++d) {
    box.first.push_back(std::min(a.first[d], b.first[d]));
    box.count.push_back(std::max(a.first[d] + a.count[d], b.first[d] + b.count[d]) - box.first[d]);
  }
  return box;
}

/// Panels of filters in parts. Distinct sizes of boxes need code of their own: beyond a few,
/// every panel has the whole window.
bool layParts(PanelLayout &l, const std::vector<PanelLayout::Box> &parts) {
  constexpr size_t kMaxSizes = 6;
  int64_t count = int64_t(parts.size());
  if (count == 0 || l.columns % count)
    return false;
  int64_t each = l.columns / count;
  std::vector<std::vector<int64_t>> sizes;
  for (int64_t p = 0; p < l.panels(); ++p) {
    int64_t first = p * l.panel, last = std::min(l.columns, first + l.panel) - 1;
    PanelLayout::Box box = parts[first / each];
    for (int64_t part = first / each + 1; part <= last / each; ++part)
      box = around(box, parts[part]);
    if (std::find(sizes.begin(), sizes.end(), box.count) == sizes.end())
      sizes.push_back(box.count);
    l.boxes.push_back(std::move(box));
  }
  if (sizes.size() > kMaxSizes)
    for (PanelLayout::Box &box : l.boxes)
      box = {std::vector<int64_t>(l.window.size(), 0), l.window};
  l.begins.push_back(0);
  for (int64_t p = 0; p < l.panels(); ++p) {
    int64_t width = p == l.panels() - 1 ? l.lastWidth() : l.panel;
    l.begins.push_back(l.begins.back() + l.boxes[p].taps() * l.channels * width);
  }
  return true;
}

} // namespace

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
  bool parts = !matrix && !filters && !taps && !points && !rows && !groups && starts("parts");
  size_t rank = dims.size();
  if (starts("blocks16x"))
    return blocksLayout(recipe, rest, dims);
  if (starts("bsr64c"))
    return bsrLayout(rest, dims);
  if (starts("sparse24"))
    return twoOfFourLayout(rest, dims);
  if (starts("fragments")) {
    if ((rest != "4" && rest != "8") || rank != 2 || dims[0] <= 0 || dims[1] <= 0)
      return internalError("fragments are of 4 or 8 bits, of a matrix", where);
    layout.order = Order::Fragments;
    layout.codeBits = rest == "4" ? 4 : 8;
    layout.columns = dims[0];
    layout.depth = dims[1];
    layout.panel = 16;
    layout.interleave = layout.unit();
    return layout;
  }
  if ((!matrix && !filters && !taps && !points && !rows && !groups && !parts) || rank < 2)
    return internalError("no such packing for a weight of rank " + std::to_string(rank), where);
  if (!taps) {
    auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), layout.panel);
    if (ec != std::errc() || layout.panel < 2 || layout.panel % 2)
      return internalError("the width of a panel must be an even number", where);
    rest.remove_prefix(end - rest.data());
  }
  if ((matrix || filters) && starts("x")) {
    auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), layout.interleave);
    if (ec != std::errc() || layout.interleave < 2 || layout.interleave > 64)
      return internalError("2 to 64 neighbours lie side by side", where);
    rest.remove_prefix(end - rest.data());
  }
  bool transposed = matrix && starts("t");
  if (points && starts("f4"))
    layout.tile = 4;
  else if (points && starts("s2"))
    layout.stride = 2;
  if (groups && starts("x")) {
    auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), layout.groups);
    if (ec != std::errc() || layout.groups < 1)
      return internalError("the number of groups must be positive", where);
    rest.remove_prefix(end - rest.data());
  }
  std::vector<Box> boxes;
  if (parts && starts("x")) {
    layout.window.assign(dims.begin() + 2, dims.end());
    boxes = parseBoxes(rest, layout.window);
    rest = {};
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
                   : parts  ? Order::Parts
                            : Order::Taps;
    layout.columns = dims[0];
    layout.channels = dims[1];
    for (size_t d = 2; d < rank; ++d)
      layout.taps *= dims[d];
    if (points) {
      if (rank != 4 || dims[2] != 3 || dims[3] != 3)
        return internalError("Winograd takes filters of 3 x 3", where);
      layout.taps = winograd::Form{layout.tile, layout.stride}.filters();
    }
    if (groups) {
      int64_t each = layout.columns / layout.groups;
      bool whole = each > 0 && layout.panel % each == 0, part = each % layout.panel == 0;
      if (layout.columns % layout.groups || layout.columns % layout.panel || !(whole || part))
        return internalError("a panel must lie in one group or be of whole groups", where);
      layout.groupChannels = dims[1];
      layout.channels = dims[1] * (whole ? layout.panel / each : 1);
    }
    if (filters) {
      layout.groupChannels = layout.channels;
      layout.channels = (layout.channels + layout.interleave - 1) / layout.interleave * layout.interleave;
    }
    layout.depth = layout.taps * layout.channels;
    if (taps)
      layout.panel = layout.columns;
  }
  if (layout.columns <= 0 || layout.depth <= 0 || layout.batch <= 0)
    return internalError("an empty weight is not packed", where);
  if (parts && !layParts(layout, boxes))
    return internalError("parts are equal, and each has a box of taps", where);
  return layout;
}

//===- Pieces -------------------------------------------------------------------===//

namespace {

/// Reads and writes elements of a type that need not be aligned: weights lie in a model file.
template <typename T> struct Elements {
  const std::byte *from;
  std::byte *to;
  void move(int64_t toIndex, int64_t fromIndex) const {
    std::memcpy(to + toIndex * int64_t(sizeof(T)), from + fromIndex * int64_t(sizeof(T)), sizeof(T));
  }
};

/// One panel of a matrix or of filters, `b` and `p` its batch and number; what no column fills is
/// zero already.
template <typename T>
void packPanel(const PanelLayout &l, int64_t b, int64_t p, const Elements<T> &e) {
  int64_t first = p * l.panel, width = p == l.panels() - 1 ? l.lastWidth() : l.panel;
  int64_t columns = std::min(l.panel, l.columns - first);
  if (l.order == PanelLayout::Order::Filters) {
    for (int64_t c = 0; c < l.groupChannels; ++c)
      for (int64_t n = 0; n < columns; ++n)
        for (int64_t t = 0; t < l.taps; ++t) {
          int64_t k = t * l.channels + c;
          e.move((k / l.interleave * width + n) * l.interleave + k % l.interleave,
                 ((first + n) * l.groupChannels + c) * l.taps + t);
        }
    return;
  }
  if (l.interleave > 1) {
    bool transposed = l.order == PanelLayout::Order::MatrixTransposed;
    for (int64_t n = 0; n < columns; ++n)
      for (int64_t k = 0; k < l.depth; ++k)
        e.move((k / l.interleave * width + n) * l.interleave + k % l.interleave,
               transposed ? (b * l.columns + first + n) * l.depth + k
                          : (b * l.depth + k) * l.columns + first + n);
    return;
  }
  if (l.order == PanelLayout::Order::Matrix) {
    for (int64_t k = 0; k < l.depth; ++k)
      std::memcpy(e.to + k * width * int64_t(sizeof(T)),
                  e.from + ((b * l.depth + k) * l.columns + first) * int64_t(sizeof(T)),
                  columns * sizeof(T));
    return;
  }
  if (l.order == PanelLayout::Order::MatrixTransposed) {
    constexpr int64_t kStrip = 64 / sizeof(T); // a line of the cache in each column
    for (int64_t strip = 0; strip < l.depth; strip += kStrip)
      for (int64_t n = 0; n < columns; ++n)
        for (int64_t k = strip; k < std::min(l.depth, strip + kStrip); ++k)
          e.move(k * width + n, (b * l.columns + first + n) * l.depth + k);
    return;
  }
  for (int64_t c = 0; c < l.channels; ++c)
    for (int64_t n = 0; n < columns; ++n)
      for (int64_t t = 0; t < l.taps; ++t)
        e.move((t * l.channels + c) * width + n, ((first + n) * l.channels + c) * l.taps + t);
}

/// The same of a matrix of codes below a byte.
void packCodes(const PanelLayout &l, int64_t b, int64_t p, int64_t bits, const std::byte *from,
               std::byte *to) {
  const int64_t each = 8 / bits;
  const auto mask = std::byte((1 << bits) - 1);
  int64_t first = p * l.panel, width = p == l.panels() - 1 ? l.lastWidth() : l.panel;
  bool transposed = l.order == PanelLayout::Order::MatrixTransposed;
  for (int64_t n = 0; n < std::min(l.panel, l.columns - first); ++n)
    for (int64_t k = 0; k < l.depth; ++k) {
      int64_t at = transposed ? (b * l.columns + first + n) * l.depth + k
                              : (b * l.depth + k) * l.columns + first + n;
      int64_t put = k * width + n;
      to[put / each] |= (from[at / each] >> (at % each * bits) & mask) << (put % each * bits);
    }
}

/// Sixteen columns as fragments.
void packFragments(const PanelLayout &l, int64_t p, const std::byte *from, std::byte *to) {
  const int64_t bits = l.codeBits, each = 8 / bits, mask = (1 << bits) - 1, base = l.offset(0, 0, p * 16);
  for (int64_t n = p * 16; n < std::min(l.columns, p * 16 + 16); ++n)
    for (int64_t k = 0; k < l.depth; ++k) {
      int64_t at = n * l.depth + k, put = l.offset(0, k, n) - base;
      auto code = std::to_integer<int64_t>(from[at / each]) >> (at % each * bits) & mask;
      to[put / each] |= std::byte(code << (put % each * bits));
    }
}

template <typename T> void packRow(const PanelLayout &l, int64_t n, const Elements<T> &e) {
  for (int64_t c = 0; c < l.channels; ++c)
    for (int64_t t = 0; t < l.taps; ++t)
      e.move(t * l.paddedChannels() + c, (n * l.channels + c) * l.taps + t);
}

template <typename T> void packGroups(const PanelLayout &l, int64_t p, const Elements<T> &e) {
  int64_t each = l.columns / l.groups; // filters of a group
  for (int64_t n = p * l.panel; n < (p + 1) * l.panel; ++n) {
    int64_t first = (n / each - p * l.panel / each) * l.groupChannels; // in the panel
    for (int64_t c = 0; c < l.groupChannels; ++c)
      for (int64_t t = 0; t < l.taps; ++t)
        e.move((t * l.channels + first + c) * l.panel + n - p * l.panel,
               (n * l.groupChannels + c) * l.taps + t);
  }
}

/// One panel of filters in parts: the taps of its box.
template <typename T> void packPart(const PanelLayout &l, int64_t p, const Elements<T> &e) {
  const PanelLayout::Box &box = l.boxes[p];
  int64_t first = p * l.panel, width = p == l.panels() - 1 ? l.lastWidth() : l.panel;
  for (int64_t t = 0, taps = box.taps(); t < taps; ++t) {
    int64_t whole = 0, rest = t, inner = taps; // the tap in the window
    for (size_t d = 0; d < l.window.size(); ++d) {
      inner /= box.count[d];
      whole = whole * l.window[d] + box.first[d] + rest / inner;
      rest %= inner;
    }
    for (int64_t c = 0; c < l.channels; ++c)
      for (int64_t n = first; n < std::min(l.columns, first + l.panel); ++n)
        e.move((t * l.channels + c) * width + n - first, (n * l.channels + c) * l.taps + whole);
  }
}

/// One panel of filters transformed, G g G^T, in double precision.
void packWinograd(const PanelLayout &l, int64_t p, const std::byte *from, std::byte *to) {
  const winograd::Form form{l.tile, l.stride};
  const int64_t side = form.filterSide();
  std::array<double, 3> rows[winograd::kMaxIn];
  for (int64_t i = 0; i < side; ++i)
    rows[i] = form.filterRow(i);
  int64_t first = p * l.panel, width = p == l.panels() - 1 ? l.lastWidth() : l.panel;
  for (int64_t n = 0; n < std::min(l.panel, l.columns - first); ++n)
    for (int64_t c = 0; c < l.channels; ++c) {
      float g[9];
      std::memcpy(g, from + ((first + n) * l.channels + c) * int64_t(sizeof g), sizeof g);
      for (int64_t i = 0; i < side; ++i) {
        double half[3];
        for (int s = 0; s < 3; ++s)
          half[s] = rows[i][0] * g[s] + rows[i][1] * g[3 + s] + rows[i][2] * g[6 + s];
        for (int64_t j = 0; j < side; ++j) {
          auto v = static_cast<float>(half[0] * rows[j][0] + half[1] * rows[j][1] + half[2] * rows[j][2]);
          int64_t filter = form.filter(i, j);
          std::memcpy(to + ((filter * l.channels + c) * width + n) * int64_t(sizeof v), &v, sizeof v);
        }
      }
    }
}

/// W rows of each of G gates.
template <typename T>
void packGates(const PanelLayout &l, int64_t p, const Elements<T> &e) {
  int64_t hidden = l.columns, gates = l.groups, lanes = l.panel;
  for (int64_t g = 0; g < gates; ++g)
    for (int64_t j = p * lanes; j < std::min(hidden, (p + 1) * lanes); ++j)
      for (int64_t k = 0; k < l.depth; ++k)
        e.move((k * gates + g) * lanes + j % lanes, (g * hidden + j) * l.depth + k);
}

/// gates<G>x<W>.
Result<PanelLayout> gatesLayout(std::string_view recipe, const std::vector<int64_t> &dims) {
  PanelLayout l;
  l.order = PanelLayout::Order::Gates;
  const char *end = recipe.data() + recipe.size();
  auto read = std::from_chars(recipe.data() + sizeof "gates" - 1, end, l.groups);
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == 'x')
    read = std::from_chars(read.ptr + 1, end, l.panel);
  if (read.ptr != end || l.groups < 1 || l.panel < 1 || dims.size() != 2 || dims[0] < 1 ||
      dims[1] < 1 || dims[0] % l.groups)
    return internalError("no such packing for this weight", "packing " + std::string(recipe));
  l.columns = dims[0] / l.groups;
  l.depth = dims[1];
  return l;
}

} // namespace

Result<WeightPacker> WeightPacker::of(std::string_view recipe, DType dtype,
                                      const std::vector<int64_t> &dims) {
  Result<PanelLayout> made =
      recipe.starts_with("gates") ? gatesLayout(recipe, dims) : PanelLayout::of(recipe, dims);
  if (!made)
    return made.status();
  WeightPacker packer;
  packer.layout = *made;
  packer.bits = bitWidth(dtype);
  packer.integers = !isFloat(dtype);
  std::string where = "packing " + std::string(recipe);
  const PanelLayout &l = packer.layout;
  using Order = PanelLayout::Order;
  bool matrix = l.order == Order::Matrix || l.order == Order::MatrixTransposed;
  if (l.order == Order::Fragments && packer.bits != l.codeBits)
    return internalError("fragments are of codes of " + std::to_string(l.codeBits) + " bits", where);
  if (!std::has_single_bit(uint64_t(packer.bits)) || packer.bits > 64 ||
      (packer.bits < 8 && l.order != Order::Fragments && !(matrix && l.interleave == 1 && l.lanes() * packer.bits % 8 == 0)))
    return internalError("elements of this width are not packed so", where);
  if (l.order == Order::Blocks && !(isFloat(dtype) && (packer.bits == 16 || packer.bits == 32)))
    return internalError("blocks are of floats of 16 or 32 bits", where);
  const bool multiplied = dtype == DType::I8 || dtype == DType::UI8 || dtype == DType::F8E4M3FN || dtype == DType::F8E5M2 ||
                          dtype == DType::F16 || dtype == DType::BF16;
  if (l.order == Order::TwoOfFour && !(multiplied && packer.bits == l.codeBits))
    return internalError("2:4 sparse weights of " + std::to_string(l.codeBits) + " bits are other elements", where);
  if (l.order == Order::Bsr && !(isFloat(dtype) && packer.bits == 16))
    return internalError("blocks of 64 x 64 are of floats of 16 bits", where);
  if (l.order == Order::Winograd && dtype != DType::F32)
    return internalError("Winograd takes filters in f32", where);
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= dim;
  packer.source = byteSize(dtype, count);
  return packer;
}

MatrixBytes WeightPacker::matrix(std::span<const std::byte> from) const {
  return {from, unsigned(bits), layout.depth, layout.columns, layout.fromTransposed, integers};
}

Status WeightPacker::prepare(std::span<const std::byte> from) {
  const PanelLayout &l = layout;
  if (l.order == PanelLayout::Order::TwoOfFour) {
    if (std::optional<TwoOfFourOffence> bad = firstOffence(matrix(from)))
      return internalError("the weight is not 2:4 sparse: the third of four is not zero at k " + std::to_string(bad->k) +
                           ", column " + std::to_string(bad->n));
    return okStatus();
  }
  auto tooMany = [&](int64_t count) {
    return internalError(std::to_string(count) + " blocks of the weight are not zero, more than the packing's " +
                         std::to_string(l.capacity));
  };
  if (l.order == PanelLayout::Order::Bsr) {
    blockSteps = BlockSteps::of(matrix(from));
    if (blockSteps.blocks > l.capacity)
      return tooMany(blockSteps.blocks);
    places.clear();
    for (size_t pair = 0; pair + 1 < blockSteps.begins.size(); ++pair)
      for (uint32_t s = blockSteps.begins[pair]; s < blockSteps.begins[pair + 1]; ++s)
        for (uint32_t i = 0; i < kPairedPanels; ++i)
          if (blockSteps.steps[s].has[i])
            places.push_back({blockSteps.steps[s].number, uint32_t(kPairedPanels * pair) + i});
    return okStatus();
  }
  if (l.order != PanelLayout::Order::Blocks)
    return okStatus();
  std::vector<uint8_t> flags = nonzeroRows(matrix(from));
  firsts.assign(1, 0);
  rows.clear();
  for (int64_t p = 0; p < l.panels(); ++p) {
    std::vector<uint32_t> blocks = nonzeroBlocks(std::span(flags).subspan(p * l.depth, l.depth), l.blockRows);
    rows.insert(rows.end(), blocks.begin(), blocks.end());
    firsts.push_back(uint32_t(rows.size()));
  }
  return int64_t(rows.size()) > l.capacity ? tooMany(int64_t(rows.size())) : okStatus();
}

/// Of `blocks`: the words, each panel's elements, what is left of the capacity.
void WeightPacker::makeBlocks(int64_t piece, const std::byte *from, std::byte *to) const {
  const PanelLayout &l = layout;
  const int64_t each = bits / 8, p = piece - 1;
  if (piece == 0) {
    std::memcpy(to, firsts.data(), firsts.size() * sizeof firsts[0]);
    if (!rows.empty())
      std::memcpy(to + firsts.size() * sizeof firsts[0], rows.data(), rows.size() * sizeof rows[0]);
    return;
  }
  if (p == l.panels())
    return;
  const int64_t column = p * l.panel, width = std::min(l.panel, l.columns - column);
  for (uint32_t b = firsts[p]; b < firsts[p + 1]; ++b)
    for (int64_t k = rows[b]; k < int64_t(rows[b]) + l.blockRows; ++k, to += l.panel * each)
      if (l.fromTransposed)
        for (int64_t n = 0; n < width; ++n)
          std::memcpy(to + n * each, from + ((column + n) * l.depth + k) * each, each);
      else
        std::memcpy(to, from + (k * l.columns + column) * each, width * each);
}

/// Of `sparse24`: the kept elements of each panel of columns, then the words of each.
void WeightPacker::makeTwoOfFour(int64_t piece, const std::byte *from, std::byte *to) const {
  constexpr int64_t kCoreBytes = 16;
  const PanelLayout &l = layout;
  const int64_t perStep = l.sparseStep() / kGroupOfFour, core = kCoreBytes * 8 / bits;
  const MatrixBytes m = matrix({from, source});
  const bool words = piece >= l.panels();
  const int64_t each = bits / 8, first = piece % l.panels() * l.panel;
  for (int64_t r = 0; r < l.panel; ++r)
    for (int64_t g = 0; g < l.sparseSteps() * perStep; ++g) {
      const int64_t n = first + r, step = g / perStep, inStep = g % perStep;
      const bool inside = n < l.columns && g * kGroupOfFour < l.depth;
      const std::array<int, kKeptOfFour> kept = inside ? keptOfFour(m, g, n) : std::array<int, kKeptOfFour>{0, 1};
      if (words) { // a byte holds two groups
        int64_t word, bit;
        if (bits == 16) { // four groups of two columns a lane
          word = step * 32 + r % 8 * 4 + inStep / 4;
          bit = r / 8 * 16 + inStep % 4 * 4;
        } else { // eight groups of a column in a word
          word = (step * 32 + r % 8 * 4 + inStep % 16 / 8 * 2 + r / 8) * 2 + inStep / 16;
          bit = inStep % 8 * 4;
        }
        to[word * 4 + bit / 8] |= std::byte((kept[0] | kept[1] << 2) << bit % 8);
        continue;
      }
      for (int i = 0; i < kKeptOfFour; ++i)
        if (const int64_t k = g * kGroupOfFour + kept[i], at = inStep * kKeptOfFour + i; inside && k < l.depth)
          std::memcpy(to + ((((step * 2 + r / 8) * 4 + at / core) * 8 + r % 8) * core + at % core) * each,
                      from + (l.fromTransposed ? n * l.depth + k : k * l.columns + n) * each, each);
    }
}

/// Of `bsr64`: what stands ahead of the blocks, then each block.
void WeightPacker::makeBsr(int64_t piece, const std::byte *from, std::byte *to) const {
  constexpr int64_t kPiece = 8; // elements
  const PanelLayout &l = layout;
  if (piece == 0) {
    const uint32_t at[] = {uint32_t(l.bsrBitsAt()), uint32_t(l.bsrStepsAt()), uint32_t(l.bsrBlocksAt()), uint32_t(l.bsrPanelsAt())};
    std::memcpy(to, at, sizeof at);
    std::memcpy(to + sizeof at, blockSteps.begins.data(), blockSteps.begins.size() * sizeof(uint32_t));
    std::memcpy(to + at[3], blockSteps.panels.data(), blockSteps.panels.size() * sizeof(uint32_t));
    for (const auto &[step, panel] : places)
      to[at[0] + panel * l.bsrWords() * 4 + step / 8] |= std::byte(1 << step % 8);
    to += at[1];
    for (const BlockSteps::Step &s : blockSteps.steps) {
      const uint32_t step[] = {s.number, s.first * 4 + s.has[0] + 2 * s.has[1]};
      std::memcpy(to, step, sizeof step);
      to += sizeof step;
    }
    return;
  }
  if (piece > int64_t(places.size()))
    return;
  const int64_t step = places[piece - 1].first, panel = blockSteps.panels[places[piece - 1].second];
  for (int64_t r = 0; r < std::min(kBlockSide, l.columns - panel * kBlockSide); ++r)
    for (int64_t c = 0; c < std::min(kBlockSide, l.depth - step * kBlockSide); ++c) {
      const int64_t n = panel * kBlockSide + r, k = step * kBlockSide + c;
      std::memcpy(to + (r * kBlockSide + (c / kPiece ^ r % 8) * kPiece + c % kPiece) * 2,
                  from + (l.fromTransposed ? n * l.depth + k : k * l.columns + n) * 2, 2);
    }
}

int64_t WeightPacker::pieces() const {
  using Order = PanelLayout::Order;
  if (layout.order == Order::Bsr)
    return 1 + layout.capacity;
  if (layout.order == Order::Blocks)
    return layout.panels() + 2;
  if (layout.order == Order::TwoOfFour)
    return 2 * layout.panels();
  return layout.order == Order::Rows ? layout.columns : layout.batch * layout.panels();
}

uint64_t WeightPacker::begin(int64_t piece) const {
  using Order = PanelLayout::Order;
  const PanelLayout &l = layout;
  if (l.order == Order::Blocks) {
    if (piece == 0)
      return 0;
    int64_t block = piece == pieces() ? l.capacity : int64_t(firsts[piece - 1]);
    return uint64_t((l.valuesAt(bits) + block * l.blockRows * l.panel) * bits / 8);
  }
  if (l.order == Order::Bsr)
    return piece == 0 ? 0 : uint64_t(l.bsrBlocksAt() + (piece - 1) * PanelLayout::kBsrBytes);
  if (l.order == Order::TwoOfFour) {
    const int64_t values = std::min(piece, l.panels());
    return uint64_t(values * l.sparseValueBytes() + (piece - values) * l.sparseWordBytes());
  }
  if (l.order == Order::Rows)
    return uint64_t(piece * l.taps * l.paddedChannels() * bits / 8);
  if (l.order == Order::Gates)
    return uint64_t(piece * l.depth * l.groups * l.panel * bits / 8);
  if (l.order == Order::Parts)
    return uint64_t(l.begins[piece] * bits / 8);
  int64_t b = piece / l.panels(), p = piece % l.panels();
  return uint64_t((b * l.paddedColumns() + p * l.panel) * l.paddedDepth() * bits / 8);
}

template <typename T>
void WeightPacker::make(int64_t piece, const std::byte *from, std::byte *to) const {
  using Order = PanelLayout::Order;
  const PanelLayout &l = layout;
  Elements<T> e{from, to};
  switch (l.order) {
  case Order::Rows:
    return packRow(l, piece, e);
  case Order::Groups:
    return packGroups(l, piece, e);
  case Order::Parts:
    return packPart(l, piece, e);
  case Order::Winograd:
    return packWinograd(l, piece, from, to);
  case Order::Gates:
    return packGates(l, piece, e);
  case Order::Fragments:
    return packFragments(l, piece, from, to);
  case Order::Blocks:
    return makeBlocks(piece, from, to);
  case Order::TwoOfFour:
    return makeTwoOfFour(piece, from, to);
  case Order::Bsr:
    return makeBsr(piece, from, to);
  case Order::Matrix:
  case Order::MatrixTransposed:
  case Order::Filters:
  case Order::Taps:
    return packPanel(l, piece / l.panels(), piece % l.panels(), e);
  }
}

void WeightPacker::pack(std::span<const std::byte> from, uint64_t at,
                        std::span<std::byte> out) const {
  // The piece that the first byte is in: all but the last of a batch are equally large.
  int64_t piece = 0;
  for (int64_t past = pieces(); past - piece > 1;) {
    int64_t middle = piece + (past - piece) / 2;
    (begin(middle) <= at ? piece : past) = middle;
  }
  std::vector<std::byte> whole;
  for (uint64_t end = at + out.size(); at < end; ++piece) {
    uint64_t first = begin(piece), last = begin(piece + 1), stop = std::min(last, end);
    bool inPlace = first == at && stop == last;
    if (!inPlace)
      whole.resize(last - first);
    std::byte *to = inPlace ? out.data() : whole.data();
    std::memset(to, 0, last - first);
    layout.order == PanelLayout::Order::Blocks      ? makeBlocks(piece, from.data(), to)
    : layout.order == PanelLayout::Order::TwoOfFour ? makeTwoOfFour(piece, from.data(), to)
    : layout.order == PanelLayout::Order::Fragments ? packFragments(layout, piece, from.data(), to)
    : bits < 8   ? packCodes(layout, piece / layout.panels(), piece % layout.panels(), bits, from.data(), to)
    : bits == 8  ? make<uint8_t>(piece, from.data(), to)
    : bits == 16 ? make<uint16_t>(piece, from.data(), to)
    : bits == 32 ? make<uint32_t>(piece, from.data(), to)
                 : make<uint64_t>(piece, from.data(), to);
    if (!inPlace)
      std::memcpy(out.data(), to + (at - first), stop - at);
    out = out.subspan(stop - at);
    at = stop;
  }
}

} // namespace lathe
