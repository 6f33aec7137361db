//===- ChooseCpuConv.cpp - convolutions on CPUs ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which form a convolution has, Winograd's or the direct sum, and what a unit of
// work is: blocks that fit the caches of the target, and enough of them for its
// cores.
//
//===----------------------------------------------------------------------===//

#include "ChooseCpu.h"

#include "lathe/codegen/DirectConv.h"
#include "lathe/support/ConvGroups.h"
#include "lathe/support/Packing.h"
#include "lathe/support/Winograd.h"

#include <algorithm>
#include <cmath>

namespace lathe::select {
namespace {

/// About as many panels a unit as wanted, such that all units have equally many, and two workers equally
/// many units: otherwise all would wait for the worker with more.
int64_t evenPanels(int64_t wanted, int64_t panels, int64_t chunks) {
  int64_t best = wanted;
  double least = 0;
  int64_t most = std::min(panels, wanted * 4 / 3);
  for (int64_t each = std::max<int64_t>(1, wanted / 2); each <= most; ++each) {
    int64_t groups = (panels + each - 1) / each, units = groups * chunks;
    double odd = units % 2 ? 1 + 1 / double(units) : 1;
    double longest = double(groups * each) / double(panels) * odd;
    if (least == 0 || longest <= least)
      best = each, least = longest;
  }
  return best;
}

/// The largest divisor of a number in [least, most], if any.
std::optional<int64_t> divisorWithin(int64_t all, int64_t least, int64_t most) {
  for (int64_t d = std::min(all, most); d >= std::max<int64_t>(1, least); --d)
    if (all % d == 0)
      return d;
  return std::nullopt;
}

/// Winograd's tiles of an image: rows and columns of them.
DimExpr winogradTiles(const KernelDesc &desc, const winograd::Form &form) {
  size_t rank = desc.parallel.size();
  DimExpr tiles = 1;
  for (size_t d : {rank - 3, rank - 2})
    tiles = tiles * DimExpr::ceilDiv(desc.parallel[d], DimExpr(form.out));
  return tiles;
}

/// The forms of Winograd's algorithm that apply, the cheapest first; nothing in their place stands for the direct sum.
std::vector<std::optional<winograd::Form>> convForms(const KernelDesc &desc) {
  auto all = [](const std::vector<int64_t> &values, int64_t is) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == is; });
  };
  size_t rank = desc.parallel.size();
  int64_t filters = desc.parallel[rank - 1].constant().value_or(0);
  bool one = all(desc.strides, 1), two = all(desc.strides, 2);
  if (desc.window.size() != 2 || !all(desc.window, 3) || !(one || two) ||
      !all(desc.dilations, 1) || desc.groupChannels < 16 || filters < 16)
    return {std::nullopt};
  for (const ContractionOperand &o : desc.operands)
    if (o.dtype != DType::F32)
      return {std::nullopt};
  using Candidate = std::pair<double, std::optional<winograd::Form>>;
  std::vector<Candidate> candidates{{0.9 * kCpuConv.conv.products(desc), std::nullopt}};
  candidates.push_back({kCpuConvWinograd2.conv.products(desc), winograd::Form{2, two ? 2 : 1}});
  // F(4,3) only where the user allows its error.
  if (one && winograd::expectedError(desc.groupChannels) <= desc.winogradTolerance)
    candidates.push_back({kCpuConvWinograd4.conv.products(desc), winograd::Form{4}});
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate &a, const Candidate &b) { return a.first < b.first; });
  std::vector<std::optional<winograd::Form>> forms;
  for (const Candidate &candidate : candidates)
    forms.push_back(candidate.second);
  return forms;
}

/// What a unit of Winograd's algorithm works on.
struct WinogradWork {
  const winograd::Form &form;
  int64_t channels, panels; ///< panels: of all filters
  const KernelConfig &tile; ///< tileM, tileN

  /// Transformed filters of a panel.
  int64_t panelBytes() const { return form.filters() * channels * tile.tileN * 4; }

  /// Cycles of a core for `rows` tiles and `k` panels, `together` of them at a time (Form::scratchBytes), but for the
  /// transforms of inputs and results. Two FMAs of a vector a cycle make `channels` cycles of a register row. What the
  /// second-level cache does not hold, of which an eighth is left to all else, comes from the third; filters that
  /// neither holds come from memory. With one panel at a time inputs are read once a panel, with several once.
  double cycles(const Target &target, int64_t rows, int64_t k, int64_t together) const {
    constexpr double kSecond = 32, kThird = 10, kMemory = 5;
    double whole = double((rows + tile.tileM - 1) / tile.tileM * tile.tileM);
    double sums = double(form.points()) * double(channels) * whole * double(k);
    double scratch = double(form.scratchBytes(rows, channels, together * tile.tileN));
    double ofPoint = double(4 * rows * channels);
    double own = 0.875 * double(target.l2Bytes), third = double(target.l3Bytes);
    double working = scratch + double(panelBytes());
    // What is walked around a cache is lost as a whole when it is half as large again.
    auto lost = [](double bytes, double cache) { return std::clamp((bytes - cache) / (0.5 * cache), 0.0, 1.0); };
    double inputs = double(4 * form.points() * rows * channels), results = scratch - inputs;
    double moved = together > 1 ? 2 * inputs + 2 * results : double(k) * (inputs + 2 * results);
    double filters = double(panelBytes()) * double(k);
    double allFilters = double(panelBytes()) * double(panels);
    double fromThird = moved * lost(working, own);
    if (together > 1) // the rows of a point are read once for each of its panels
      fromThird += inputs * double(k - 1) * lost(ofPoint, own / 2);
    double fromMemory = filters * lost(allFilters, third);
    // Filters of a point stay in the first-level cache for its rows, and come again with the next rows.
    double fromSecond = 0;
    (allFilters + scratch > own ? fromThird : fromSecond) += filters;
    return sums + fromSecond / kSecond + fromThird / kThird + fromMemory / kMemory;
  }
};

void convWinograd(const KernelDesc &desc, const winograd::Form &form, KernelConfig c, const Target &target,
                  std::vector<KernelVariant> &out) {
  size_t rank = desc.parallel.size();
  c.form = form.out == 4 ? &kCpuConvWinograd4 : &kCpuConvWinograd2;
  DimExpr ofImage = winogradTiles(desc, form), tiles = desc.parallel[0] * ofImage;
  int64_t panels = (*desc.parallel[rank - 1].constant() + c.tileN - 1) / c.tileN;
  const WinogradWork work{form, desc.groupChannels, panels, c};
  const int64_t enough = unitsForCores(target, 4); // units: each group of panels transforms the inputs anew
  const std::optional<int64_t> count = tiles.constant(), image = ofImage.constant();
  // Tiles of a unit, and whether its panels come together: what takes the fewest cycles a tile. Of about equal ones
  // fewer tiles, which leave more units.
  constexpr int64_t kMostTiles = 128, kMostTogether = 64;
  constexpr double kAbout = 1.01;
  KernelConfig chosen = c;
  double least = 0;
  for (int64_t rows = c.tileM; rows <= kMostTiles; rows += c.tileM) {
    int64_t chunks = count && *count > 0 ? (*count + rows - 1) / rows : enough;
    int64_t k = panelsForWorkers(panels, chunks, enough);
    for (int64_t together : {int64_t(1), k}) {
      if (together > 1 && rows > kMostTogether)
        continue;
      double cycles = work.cycles(target, rows, k, together) / double(rows * k);
      if (least == 0 || cycles * kAbout < least)
        least = cycles, chosen.rows = rows, chosen.stages = together > 1 ? together : 0;
    }
  }
  c.rows = chosen.rows;
  int64_t chunks = enough;
  if (count && *count > 0) {
    chunks = (*count + c.rows - 1) / c.rows;
    // For two workers that finish together: each transforms half of the inputs, where that leaves many tiles
    // and the third-level cache nearly holds the filters, which both read.
    bool halves = *count >= 6 * c.tileM && panels * work.panelBytes() <= target.l3Bytes + target.l3Bytes / 2;
    chunks += chunks % 2 && (chunks > 2 || halves) ? 1 : 0;
    c.rows = std::max(c.tileM, (*count + chunks - 1) / chunks);
  } else if (image && *image > 0) {
    // Any number of images: whole ones or equal parts, so that the numbers of tiles are known.
    int64_t most = c.rows;
    c.rows = *image <= most ? most / *image * *image
                            : divisorWithin(*image, most / 2, most).value_or(most);
    chunks = (*image + c.rows - 1) / c.rows; // of one
  }
  c.tileK = panelsForWorkers(panels, chunks, enough);
  c.stages = chosen.stages ? c.tileK : 0;
  KernelConfig otherWay = c;
  otherWay.stages = c.stages ? 0 : c.tileK;
  c = askedFor(desc, otherWay, panels).value_or(askedOr(desc, c, panels));
  KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(tiles, DimExpr(c.rows)) *
                                         DimExpr((panels + c.tileK - 1) / c.tileK));
  spec.scratchBytes = DimExpr(form.scratchBytes(c.rows, desc.groupChannels,
                                                std::max<int64_t>(1, c.stages) * c.tileN));
  packWeight(spec, desc.operands[1],
             "winograd" + std::to_string(c.tileN) +
                 (form.out == 4 ? "f4" : form.stride == 2 ? "s2" : ""));
  addVariant(out, {}, std::move(spec));
}

/// At most `most` of the pixels a chunk, and chunks of nearly equal size: a short last one would stream
/// the weights for few pixels. Chunks are whole tiles where there are several: a part of a tile at the end of each takes
/// as long as a whole one, and code of its own. Where the number of images is not known, chunks have a size that divides an
/// image of `image` pixels, if there is one (0: the run knows how many).
int64_t evenRows(const KernelDesc &desc, int64_t image, int64_t most, int64_t tile) {
  if (!desc.parallel[0].isConstant() && image) {
    for (int64_t rows = most / tile * tile; rows >= most / 2; rows -= tile)
      if (image % rows == 0)
        return rows;
    return divisorWithin(image, most * 3 / 4, most).value_or(most);
  }
  int64_t all = desc.parallel[0].constant().value_or(0) * image, chunks = (all + most - 1) / most;
  if (chunks < 2)
    return chunks ? all : most;
  return (all + chunks * tile - 1) / (chunks * tile) * tile;
}

/// Rows of results of a block of padded rows: what the second-level cache takes, evenly.
int64_t rowsOfBlock(const ConvGeometry &g, int64_t images, const KernelConfig &c, const Target &target) {
  // Weights stream by in the rest of the cache.
  const int64_t cache = std::min<int64_t>(480 << 10, target.l2Bytes / 8 * 5);
  int64_t width = g.out[1].constant().value_or(64), height = g.out[0].constant().value_or(1 << 20);
  int64_t rows = 1;
  auto bytes = [&](int64_t rows) {
    int64_t high = g.rowsOfLayer(rows) * g.layer.window;
    return high * ((width - 1) * g.stride[1] + g.reach(1)) * g.channels * 4;
  };
  while (rows < height && rows * width < 4096 &&
         (rows * width < c.tileM || bytes(rows + 1) <= cache))
    ++rows;
  // Small images: some blocks for every worker, as long as tiles stay full.
  const int64_t enough = unitsForCores(target, 4);
  images *= g.layer.out.constant().value_or(1);
  bool few = g.out[0].constant() && images * ((height + rows - 1) / rows) < enough;
  if (few && width >= 4 * c.tileM)
    rows = std::max<int64_t>(1, std::min(rows, height * images / enough));
  int64_t blocks = (height + rows - 1) / rows;
  return g.out[0].constant() ? (height + blocks - 1) / blocks : rows;
}

/// Rows of a block whose results stay in the second-level cache until each panel has added its columns, evenly; of these
/// lines, fetched to be written, an eighth of it, so that what is fetched ahead has room.
int64_t rowsOfResults(const ConvGeometry &g, int64_t filters, const KernelConfig &c, const Target &target) {
  int64_t width = std::max<int64_t>(1, g.out[1].constant().value_or(64)), height = std::max<int64_t>(1, g.out[0].constant().value_or(64));
  int64_t most = std::max((c.tileM + width - 1) / width, target.l2Bytes / 8 / (4 * width * filters));
  int64_t blocks = (height + most - 1) / most;
  return (height + blocks - 1) / blocks;
}

/// Groups of several channels: panels of two vectors of filters or one, as they fit to the groups.
/// False when none does, and for groups of one channel, most of whose panels would be zeros.
bool convGroups(const KernelDesc &desc, KernelConfig c, const Target &target,
                std::vector<KernelVariant> &out) {
  if (desc.group < 2 || desc.groupChannels == 1)
    return false;
  // Panels that lie in one group hold no zeros.
  int64_t filters = desc.parallel.back().constant().value_or(0) / desc.group;
  int64_t first = filters % c.tileN && filters % c.lanes == 0 ? c.lanes : c.tileN;
  for (int64_t width : {first, c.lanes}) {
    c.tileN = width;
    std::string recipe = "groups" + std::to_string(width) + "x" + std::to_string(desc.group);
    KernelSpec spec = specFor(desc, c, DimExpr(1));
    packWeight(spec, desc.operands[1], recipe);
    const BufferArg &weight = spec.buffers[desc.operands[1].buffer];
    if (weight.packing.empty())
      continue;
    std::vector<int64_t> dims;
    for (const DimExpr &d : weight.dims)
      dims.push_back(*d.constant());
    Result<PanelLayout> layout = PanelLayout::of(recipe, dims);
    int64_t bytes = std::max<int64_t>(4, bitWidth(desc.operands[0].dtype) / 8);
    std::vector<DimExpr> sizes(desc.parallel.begin() + 1, desc.parallel.end() - 1);
    std::optional<ConvGeometry> g = ConvGeometry::of(
        sizes, sizes, desc.window, desc.strides, desc.pads, desc.dilations, desc.groupChannels);
    DimExpr units, scratch;
    if (g && layout->channels == desc.groupChannels) {
      // A group's channels of a block of rows are copied, for all its panels.
      c.stages = rowsOfBlock(*g, desc.parallel[0].constant().value_or(1) * desc.group, c, target);
      c.tileK = layout->panels() / desc.group;
      if (KernelConfig asked = askedOr(desc, c); asked.tileK == c.tileK)
        c = asked; // a unit has all panels of a group
      units = desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages)) *
              DimExpr(desc.group);
      scratch = g->scratchElements(c.stages) * DimExpr(bytes);
    } else {
      c.rows = rowsInScratch(layout->depth, c, target);
      c = askedOr(desc, c);
      DimExpr pixels = product({desc.parallel.begin(), desc.parallel.end() - 1});
      units = DimExpr(layout->panels()) * DimExpr::ceilDiv(pixels, DimExpr(c.rows));
      scratch = DimExpr(layout->depth * c.rows * bytes);
    }
    KernelSpec chosen = specFor(desc, c, units);
    chosen.scratchBytes = scratch;
    packWeight(chosen, desc.operands[1], recipe);
    addVariant(out, {}, std::move(chosen));
    return true;
  }
  return false;
}

/// Filters in parts: panels of two vectors or one, as they fit to the parts.
bool convParts(const KernelDesc &desc, KernelConfig c, const Target &target,
               std::vector<KernelVariant> &out) {
  if (desc.parts.empty())
    return false;
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  std::vector<DimExpr> sizes(desc.parallel.begin() + 1, desc.parallel.end() - 1);
  std::optional<ConvGeometry> g = ConvGeometry::of(
      sizes, sizes, desc.window, desc.strides, desc.pads, desc.dilations, desc.groupChannels);
  std::vector<int64_t> dims;
  for (const DimExpr &d : desc.buffers[w.buffer].dims)
    dims.push_back(d.constant().value_or(0));
  // A panel of one vector loads each pixel for half as many products.
  constexpr double kOneVector = 1.15;
  std::string recipe;
  int64_t panels = 0;
  double least = 0;
  for (int64_t width : {2 * c.lanes, c.lanes}) {
    std::string wanted = partsRecipe(width, desc.parts, desc.window.size());
    Result<PanelLayout> layout = PanelLayout::of(wanted, dims);
    if (!g || !layout || (width == c.lanes && layout->columns % width))
      continue;
    double cost = double(layout->elements()) * (width == c.lanes ? kOneVector : 1);
    if (!recipe.empty() && cost >= least)
      continue;
    recipe = wanted, least = cost, panels = layout->panels(), c.tileN = width;
  }
  if (recipe.empty())
    return false;
  c.stages = rowsOfBlock(*g, desc.parallel[0].constant().value_or(1), c, target);
  auto blocks = [&] { return desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages)); };
  c.tileK = panelsForWorkers(panels, blocks().constant().value_or(8), unitsForCores(target, 8));
  c = askedOr(desc, c, panels);
  KernelSpec spec = specFor(desc, c, blocks() * DimExpr((panels + c.tileK - 1) / c.tileK));
  spec.scratchBytes =
      g->scratchElements(c.stages) * DimExpr(std::max<int64_t>(4, bitWidth(x.dtype) / 8));
  packWeight(spec, w, recipe);
  if (spec.buffers[w.buffer].packing.empty())
    return false;
  addVariant(out, {}, std::move(spec));
  return true;
}

/// Pixels behind a depthwise convolution: blocks of rows, whose channels stay in cache for all filters.
void convPair(const KernelDesc &desc, KernelConfig c, const Target &target,
              std::vector<KernelVariant> &out) {
  auto size = [&](size_t d, int64_t unknown) {
    return std::max<int64_t>(1, desc.parallel[d].constant().value_or(unknown));
  };
  int64_t channels = desc.groupChannels, height = size(1, 64), width = size(2, 64);
  int64_t fit = std::max<int64_t>(1, residentBytes(target) / (4 * channels * width));
  const int64_t enough = unitsForCores(target, 4); // blocks
  int64_t blocks = std::max((height + fit - 1) / fit, std::min(height, enough / size(0, 1)));
  blocks += blocks > 1 && blocks * size(0, 1) % 2; // two workers finish together
  c.stages = (height + blocks - 1) / blocks;
  c.tileK = (desc.parallel[3].constant().value_or(c.tileN) + c.tileN - 1) / c.tileN;
  if (KernelConfig asked = askedOr(desc, c); asked.tileK == c.tileK)
    c = asked; // a unit has all panels
  KernelSpec spec = specFor(desc, c, desc.parallel[0] *
                                         DimExpr::ceilDiv(desc.parallel[1], DimExpr(c.stages)));
  spec.scratchBytes = desc.parallel[2] * DimExpr(4 * c.stages * channels);
  packWeight(spec, desc.operands[1], "filters" + std::to_string(c.tileN));
  packWeight(spec, *desc.depthwise, "taps");
  addVariant(out, {}, std::move(spec));
}

/// Filters in panels for pixels that are read where they lie, or in blocks of padded rows, or copied window by window.
void convDirect(const KernelDesc &desc, KernelConfig c, const Target &target, std::vector<KernelVariant> &variants) {
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  DimExpr filters = desc.parallel.back();
  DimExpr pixels = product({desc.parallel.begin(), desc.parallel.end() - 1});
  int64_t taps = 1;
  for (int64_t size : desc.window)
    taps *= size;
  int64_t depth = taps * desc.groupChannels;
  int64_t panels = (filters.constant().value_or(c.tileN) + c.tileN - 1) / c.tileN;
  std::vector<DimExpr> out(desc.parallel.begin() + 1, desc.parallel.end() - 1);
  // The sizes of the image play no part in the choice.
  std::optional<ConvGeometry> g = ConvGeometry::of(
      out, out, desc.window, desc.strides, desc.pads, desc.dilations, desc.groupChannels);
  bool wide = x.buffer >= 0 && isWide(x.dtype) &&
              desc.buffers[x.buffer].physical == desc.buffers[x.buffer].dims;
  DimExpr units;
  DimExpr scratch = 0;
  if (g && wide && g->unpadded()) {
    int64_t image = product({desc.parallel.begin() + 1, desc.parallel.end() - 1}).constant().value_or(0);
    c.rows = evenRows(desc, image, 8 * c.tileM, c.tileM);
    int64_t unknown = std::max<int64_t>(8, image / c.rows);
    int64_t chunks = DimExpr::ceilDiv(pixels, DimExpr(c.rows)).constant().value_or(unknown);
    c.tileK = evenPanels(panelsOfUnit(depth, panels * c.tileN, chunks, c, target), panels, chunks);
    c = askedOr(desc, c, panels);
    units = DimExpr::ceilDiv(pixels, DimExpr(c.rows));
  } else if (g) {
    int64_t images = desc.parallel[0].constant().value_or(1);
    c.stages = rowsOfBlock(*g, images, c, target);
    int64_t results = pixels.constant().value_or(0) * filters.constant().value_or(0);
    if (panels > 1 && resultsLead(depth, results, target))
      c.stages = std::min(c.stages, rowsOfResults(*g, *filters.constant(), c, target));
    auto blocks = [&] { return desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages)); };
    c.tileK = panelsForWorkers(panels, blocks().constant().value_or(8), unitsForCores(target, 8));
    c = askedOr(desc, c, panels);
    scratch = g->scratchElements(c.stages) * DimExpr(std::max<int64_t>(4, bitWidth(x.dtype) / 8));
    units = blocks();
  } else {
    c.rows = rowsInScratch(depth, c, target);
    units = DimExpr::ceilDiv(pixels, DimExpr(c.rows));
    c.tileK = panelsOfUnit(depth, panels * c.tileN, units.constant().value_or(8), c, target);
    c = askedOr(desc, c, panels);
    units = DimExpr::ceilDiv(pixels, DimExpr(c.rows));
    scratch = DimExpr(depth * c.rows * 4);
  }
  DimExpr groups = DimExpr::ceilDiv(filters, DimExpr(c.tileN * c.tileK));
  KernelSpec spec = specFor(desc, c, units * groups);
  spec.scratchBytes = scratch;
  packWeight(spec, w, "filters" + std::to_string(c.tileN));
  addVariant(variants, {}, std::move(spec));
}

/// A convolution of 8-bit integers: images are widened as they are copied, a block of rows at a time; unsigned
/// bytes in whole groups of four that nothing pads are read where they lie.
Status convCodes(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &variants) {
  KernelConfig c = productTile(target.hasByteProducts() ? kCpuConvBytes : kCpuConvPairs, target);
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  const int64_t each = c.form->product.interleave, pixel = (desc.groupChannels + each - 1) / each;
  int64_t filters = desc.parallel.back().constant().value_or(0), taps = 1;
  for (int64_t size : desc.window)
    taps *= size;
  std::vector<DimExpr> sizes(desc.parallel.begin() + 1, desc.parallel.end() - 1);
  std::optional<ConvGeometry> g =
      ConvGeometry::of(sizes, sizes, desc.window, desc.strides, desc.pads, desc.dilations, pixel);
  if (!g || filters < 1)
    return internalError("a convolution of integers has windows that lie together", "kernel " + desc.name);
  int64_t panels = (filters + c.tileN - 1) / c.tileN, images = desc.parallel[0].constant().value_or(1);
  int buffer = x.codes >= 0 ? x.codes : x.buffer;
  bool inPlace = each == 4 && buffer >= 0 && g->unpadded() && desc.groupChannels % each == 0 &&
                 desc.buffers[buffer].dtype == DType::UI8 &&
                 desc.buffers[buffer].physical == desc.buffers[buffer].dims;
  DimExpr units, scratch = 0;
  if (inPlace) {
    int64_t image = product(sizes).constant().value_or(0);
    c.rows = evenRows(desc, image, 16 * c.tileM, c.tileM);
    DimExpr pixels = desc.parallel[0] * product(sizes);
    int64_t unknown = std::max<int64_t>(8, image / c.rows), bytes = (taps * pixel * each + 3) / 4;
    int64_t chunks = DimExpr::ceilDiv(pixels, DimExpr(c.rows)).constant().value_or(unknown);
    c.tileK = evenPanels(panelsOfUnit(bytes, panels * c.tileN, chunks, c, target), panels, chunks);
    c = askedOr(desc, c, panels);
    units = DimExpr::ceilDiv(pixels, DimExpr(c.rows));
  } else {
    c.stages = rowsOfBlock(*g, images, c, target);
    auto blocks = [&] { return desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages)); };
    c.tileK = panelsForWorkers(panels, blocks().constant().value_or(8), unitsForCores(target, 8));
    c = askedOr(desc, c, panels);
    units = blocks();
    scratch = g->scratchElements(c.stages) * DimExpr(4);
  }
  KernelSpec spec = specFor(desc, c, units * DimExpr::ceilDiv(DimExpr(filters), DimExpr(c.tileN * c.tileK)));
  spec.scratchBytes = scratch;
  packWeight(spec, w, "filters" + std::to_string(c.tileN) + "x" + std::to_string(each));
  if (spec.buffers[w.buffer].packing.empty())
    return internalError("filters of integers are not packed", "kernel " + desc.name);
  addVariant(variants, {}, std::move(spec));
  return okStatus();
}

/// Whether a convolution is one of 8-bit integers, whose filters can be packed so.
bool multipliesCodes(const KernelDesc &desc, const Target &target) {
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  bool bytes = x.codes >= 0 ? isByte(desc.buffers[x.codes].dtype) : x.buffer < 0 || isByte(x.dtype);
  return bytes && target.hasPairProducts() && w.dtype == DType::I8 && w.isWeight && w.buffer >= 0 && desc.channelsLast &&
         desc.group == 1 && desc.buffers[w.buffer].physical == desc.buffers[w.buffer].dims;
}

} // namespace

Status chooseConv(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &variants) {
  size_t rank = desc.parallel.size();
  if (rank < 3 || desc.operands.size() < 2)
    return internalError("a convolution needs images, pixels, channels", "kernel " + desc.name);
  if (multipliesCodes(desc, target))
    return convCodes(desc, target, variants);
  DimExpr filters = desc.parallel[rank - 1];
  DimExpr pixels = product({desc.parallel.begin(), desc.parallel.end() - 1});
  KernelConfig c = productTile(kCpuConv, target);
  const ContractionOperand &w = desc.operands[1];
  if (desc.depthwise) {
    convPair(desc, c, target, variants);
    return okStatus();
  }
  bool skeleton = desc.channelsLast && w.isWeight && w.buffer >= 0 && desc.group == 1;
  if (skeleton && convParts(desc, c, target, variants))
    return okStatus();
  if (skeleton) {
    std::optional<size_t> best;
    for (const std::optional<winograd::Form> &form : convForms(desc)) {
      std::vector<KernelVariant> made;
      if (form)
        convWinograd(desc, *form, c, target, made);
      else
        convDirect(desc, c, target, made);
      // The cheapest form; of those that were asked for the one that is named first.
      const std::optional<size_t> place = placeAsked(desc, made);
      if (variants.empty() || (place && (!best || *place < *best))) {
        variants = std::move(made);
        best = place;
      }
      if (desc.wanted.empty())
        break;
    }
    return okStatus();
  }
  int64_t filtersOfGroup = filters.constant().value_or(0) / std::max<int64_t>(1, desc.group);
  bool inLanes = desc.channelsLast && desc.group > 1 && desc.window.size() <= 2 && filtersOfGroup > 0 &&
                 groupsFitLanes(desc.groupChannels, filtersOfGroup, c.lanes);
  if (!inLanes && desc.channelsLast && w.isWeight && w.buffer >= 0 && convGroups(desc, c, target, variants))
    return okStatus();
  KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(pixels * filters, DimExpr(kBlockElements)));
  if (inLanes)
    packWeight(spec, w, "taps"); // rows of pixels are dealt out, whatever the number of blocks
  addVariant(variants, {}, std::move(spec));
  return okStatus();
}

} // namespace lathe::select
