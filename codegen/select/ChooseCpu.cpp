//===- ChooseCpu.cpp - configurations on CPUs --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block is what a worker claims at once: some thousands of elements, so that
// claiming costs little and other workers make up for a slow one. Vectors are full
// registers of f32; constant weights of products are packed into panels in the
// order in which they are read.
//
//===----------------------------------------------------------------------===//

#include "Choose.h"

#include "lathe/codegen/DirectConv.h"
#include "lathe/support/Packing.h"
#include "lathe/support/Winograd.h"

#include <algorithm>
#include <cmath>

namespace lathe::select {
namespace {

constexpr int64_t kBlockElements = 4096;

int64_t lanesFor(const Target &target) { return target.lanes(DType::F32); }

/// Whether a kernel reads one input and transposes it, with both sides long enough for squares of vectors.
bool isTransposed(const KernelDesc &desc, int64_t lanes) {
  if (desc.inputContiguous < 0 || bitWidth(desc.inputContiguousType) < 8 ||
      desc.inputContiguousType == DType::Bool)
    return false;
  int large = 0;
  for (int i = 0; i < desc.numInputs; ++i)
    large += std::count_if(desc.buffers[i].dims.begin(), desc.buffers[i].dims.end(),
                           [](const DimExpr &d) { return !(d == DimExpr(1)); }) > 1;
  auto size = [&](const DimExpr &d) { return d.constant().value_or(lanes); };
  DimExpr behind = 1; // the result's neighbours: what follows the input's
  for (size_t d = desc.inputContiguous + 1; d < desc.parallel.size(); ++d)
    behind = behind * desc.parallel[d];
  DimExpr before = product({desc.parallel.begin(), desc.parallel.begin() + desc.inputContiguous + 1});
  return large == 1 && size(before) >= lanes && size(behind) >= lanes;
}

void pointwise(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  KernelConfig c;
  c.form = isTransposed(desc, lanesFor(target)) ? &kTranspose : &kPointwise;
  c.lanes = lanesFor(target);
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(kBlockElements))));
}

void reduction(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  KernelConfig c;
  c.lanes = lanesFor(target);
  DimExpr outer = product(desc.parallel);
  if (desc.rowsContiguous) {
    c.form = &kRow;
    int64_t length = std::max<int64_t>(1, product(desc.reduction).constant().value_or(512));
    c.rows = std::clamp<int64_t>(kBlockElements / length, 1, 64);
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.rows))));
  } else {
    c.form = &kRow;
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.lanes))));
  }
}

/// Register tile: rows by two registers of columns, accumulators below the
/// register count with room for operands.
KernelConfig productTile(const Skeleton &form, const Target &target) {
  KernelConfig c;
  c.form = &form;
  c.lanes = lanesFor(target);
  c.tileM = target.vectorRegisters >= 32 ? 8 : 6;
  c.tileN = 2 * c.lanes;
  return c;
}

/// Lets a constant operand be packed, or the codes that it is made of, where the recipe takes it:
/// static sizes that are not 0; numbers of whole bytes.
void packWeight(KernelSpec &spec, const ContractionOperand &w, const std::string &recipe) {
  int buffer = w.codes >= 0 ? w.codes : w.buffer, least = w.codes >= 0 ? 4 : 8;
  if (buffer < 0 || !w.isWeight)
    return;
  BufferArg &arg = spec.buffers[buffer];
  std::vector<int64_t> dims;
  for (const DimExpr &d : arg.dims)
    dims.push_back(d.constant().value_or(0));
  if (arg.physical == arg.dims && int(bitWidth(arg.dtype)) >= least && PanelLayout::of(recipe, dims).ok())
    arg.packing = recipe;
}

/// Bytes of scratch memory and of weights that a unit of work may touch again and
/// again: a share of the second-level cache.
constexpr int64_t kResident = 256 << 10;

/// Panels of so many columns. Without columns there is no work; a unit of it would still walk one.
int64_t panelsOf(int64_t columns, const KernelConfig &c) {
  return std::max<int64_t>(1, (columns + c.tileN - 1) / c.tileN);
}

/// Panels of weights that one unit walks: as many as stay in cache beside its rows,
/// but few enough that there are some units for every worker.
int64_t panelsOfUnit(int64_t depth, int64_t columns, int64_t units, const KernelConfig &c) {
  int64_t panels = panelsOf(columns, c);
  int64_t fit = std::max<int64_t>(1, kResident / std::max<int64_t>(1, depth * c.tileN * 4));
  constexpr int64_t kEnough = 64;
  int64_t share = units >= kEnough ? panels : std::max<int64_t>(1, panels * units / kEnough);
  return std::clamp<int64_t>(std::min(fit, share), 1, panels);
}

/// Panels of a unit that streams them from memory: all, as long as there are `enough` units for the workers.
int64_t panelsForWorkers(int64_t panels, int64_t blocks, int64_t enough) {
  int64_t groups = std::min(panels, (enough + blocks - 1) / std::max<int64_t>(1, blocks));
  return std::max<int64_t>(1, groups ? (panels + groups - 1) / groups : 0);
}

/// Rows of a unit whose rows are computed into scratch memory.
int64_t rowsInScratch(int64_t depth, const KernelConfig &c) {
  int64_t rows = kResident / std::max<int64_t>(1, depth * 4) / c.tileM * c.tileM;
  return std::clamp<int64_t>(rows, c.tileM, 8 * c.tileM);
}

bool isByte(DType type) { return type == DType::I8 || type == DType::UI8; }

/// Whether a product is one of 8-bit integers whose right ones are packed, neighbours of K together.
bool multipliesPairs(const KernelDesc &desc, const Target &target) {
  const ContractionOperand &a = desc.operands[0], &b = desc.operands[1];
  if (!target.hasPairProducts() || !isByte(a.dtype) || !isByte(b.dtype) || b.buffer < 0 || !b.isWeight)
    return false;
  const BufferArg &weight = desc.buffers[b.buffer];
  return weight.physical == weight.dims && product(weight.dims).constant().value_or(0) > 0;
}

/// The product of multipliesPairs: rows are widened into scratch memory, once for all panels of a unit. Unsigned
/// bytes in whole groups of four are read where they lie.
void gemmPairs(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  const ContractionOperand &b = desc.operands[1];
  bool bytes = target.hasByteProducts() && b.dtype == DType::I8;
  KernelConfig c = productTile(bytes ? kCpuGemmBytes : kCpuGemmPairs, target);
  const int64_t interleave = c.form->product.interleave;
  size_t rank = desc.parallel.size();
  DimExpr m = desc.parallel[rank - 2], n = desc.parallel[rank - 1];
  DimExpr batch = product({desc.parallel.begin(), desc.parallel.end() - 2});
  const std::vector<DimExpr> &w = desc.buffers[b.buffer].dims;
  bool folded = product({w.begin(), w.end() - 2}) == DimExpr(1);
  DimExpr rows = folded ? batch * m : m, batches = folded ? DimExpr(1) : batch;
  int64_t depth = *desc.reduction[0].constant(), groups = (depth + interleave - 1) / interleave;
  std::string recipe = "panels" + std::to_string(c.tileN) + "x" + std::to_string(interleave) +
                       (b.transposed ? "t" : "");
  const ContractionOperand &a = desc.operands[0];
  const bool inPlace = interleave == 4 && a.buffer >= 0 && !a.transposed && a.dtype == DType::UI8 &&
                       depth % interleave == 0 && desc.buffers[a.buffer].physical == desc.buffers[a.buffer].dims;
  auto variant = [&](KernelConfig config, std::vector<DimCondition> guard) {
    KernelSpec spec = specFor(desc, config, batches * DimExpr::ceilDiv(rows, DimExpr(config.rows)) *
                                                DimExpr::ceilDiv(n, DimExpr(config.tileN * config.tileK)));
    if (!inPlace)
      spec.scratchBytes = spec.scratchBytes + DimExpr(groups * config.rows * 4);
    packWeight(spec, b, recipe);
    addVariant(out, std::move(guard), std::move(spec));
  };
  KernelConfig one = c;
  one.tileM = one.rows = 1;
  one.tileK = 4; // panels that share the widened row
  if (rows == DimExpr(1))
    return variant(one, {});
  if (!rows.isConstant() && rows.range(desc.symbols).lo <= 1)
    variant(one, {{DimCondition::Kind::Equal, rows, DimExpr(1)}});
  c.rows = inPlace ? 16 * c.tileM : rowsInScratch(groups, c);
  int64_t all = (batches * rows).constant().value_or(1), wide = n.constant().value_or(c.tileN);
  c.tileK = panelsOfUnit((depth + 3) / 4, wide, std::max<int64_t>(1, all / c.rows), c); // bytes, not floats
  variant(c, {});
}

bool isWide(DType type) { return !isFloat(type) || bitWidth(type) >= 32; }

Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() < 2 || desc.operands.size() < 2 || desc.reduction.size() != 1)
    return internalError("a product needs M, N, K and two operands", "kernel " + desc.name);
  size_t rank = desc.parallel.size();
  DimExpr m = desc.parallel[rank - 2], n = desc.parallel[rank - 1], k = desc.reduction[0];
  DimExpr batch = product({desc.parallel.begin(), desc.parallel.end() - 2});
  if (multipliesPairs(desc, target)) {
    gemmPairs(desc, target, out);
    return okStatus();
  }
  if (chooseBlocks(desc, target, out))
    return okStatus();
  KernelConfig c = productTile(kCpuGemm, target);
  c.rows = 8 * c.tileM; // eight register tiles share a panel in cache
  c.stages = desc.batchInvariant;
  const ContractionOperand &a = desc.operands[0], &b = desc.operands[1];
  int64_t depth = k.constant().value_or(256);
  // Rows that are not read where they lie, and right operands that lie transposed,
  // go through scratch memory.
  bool rowsCopied = a.buffer < 0 || a.transposed || !isWide(a.dtype);
  bool panelsCopied = b.buffer < 0 || (b.transposed && !b.isWeight) || bitWidth(b.dtype) < 8;
  if (rowsCopied)
    c.rows = rowsInScratch(depth, c);
  // Without batches in the right operand the rows of all batches are one.
  bool stored = b.codes >= 0;
  bool folded = stored || (b.buffer >= 0 && product({desc.buffers[b.buffer].dims.begin(),
                                                     desc.buffers[b.buffer].dims.end() - 2}) == DimExpr(1));
  DimExpr rows = folded ? batch * m : m, batches = folded ? DimExpr(1) : batch;
  // One row dequantizes what it streams in registers; more of them share a panel of numbers.
  bool single = stored && !rowsCopied && rows == DimExpr(1);
  if (single)
    c.tileM = c.rows = 1, panelsCopied = false;
  int64_t all = (batches * rows).constant().value_or(1), wide = n.constant().value_or(c.tileN);
  int64_t units = std::max<int64_t>(1, all / c.rows);
  c.tileK = single ? 1 : panelsOfUnit(depth, wide, units, c);
  // More rows than the second-level cache holds: as many as it holds stay there while many panels are
  // streamed for them.
  constexpr int64_t kOwn = 512 << 10, kWhole = 2 << 20, kMost = 24, kEnough = 32;
  if (!rowsCopied && batches == DimExpr(1) && all * depth * 4 > kWhole) {
    c.rows = std::clamp(kOwn / (depth * 4) / c.tileM * c.tileM, c.tileM, 16 * c.tileM);
    int64_t chunks = (all + c.rows - 1) / c.rows;
    c.tileK = std::min(kMost, panelsForWorkers(panelsOf(wide, c), chunks, kEnough));
  }
  KernelSpec spec = specFor(desc, c, batches * DimExpr::ceilDiv(rows, DimExpr(c.rows)) *
                                         DimExpr::ceilDiv(n, DimExpr(c.tileN * c.tileK)));
  int64_t bytes = 4;
  for (const ContractionOperand &o : desc.operands)
    bytes = std::max<int64_t>(bytes, bitWidth(o.dtype) / 8);
  if (rowsCopied)
    spec.scratchBytes = spec.scratchBytes + k * DimExpr(c.rows * bytes);
  if (panelsCopied)
    spec.scratchBytes = spec.scratchBytes + k * DimExpr(c.tileN * bytes);
  std::string recipe = "panels" + std::to_string(c.tileN) + (b.transposed ? "t" : "");
  packWeight(spec, b, recipe);
  // One row streams the panels: a kernel of its own, with as many units as there are panels.
  if (!rowsCopied && (!panelsCopied || stored) && !rows.isConstant() &&
      rows.range(desc.symbols).lo <= 1) {
    KernelConfig one = c;
    one.tileM = one.rows = one.tileK = 1;
    KernelSpec row = specFor(desc, one, batches * DimExpr::ceilDiv(n, DimExpr(one.tileN)));
    packWeight(row, b, recipe);
    addVariant(out, {{DimCondition::Kind::Equal, rows, DimExpr(1)}}, std::move(row));
  }
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

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

/// The form of Winograd's algorithm that applies and saves time, if any.
std::optional<winograd::Form> winogradForm(const KernelDesc &desc) {
  auto all = [](const std::vector<int64_t> &values, int64_t is) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == is; });
  };
  size_t rank = desc.parallel.size();
  int64_t filters = desc.parallel[rank - 1].constant().value_or(0);
  bool one = all(desc.strides, 1), two = all(desc.strides, 2);
  if (desc.window.size() != 2 || !all(desc.window, 3) || !(one || two) ||
      !all(desc.dilations, 1) || desc.groupChannels < 16 || filters < 16)
    return std::nullopt;
  for (const ContractionOperand &o : desc.operands)
    if (o.dtype != DType::F32)
      return std::nullopt;
  std::optional<winograd::Form> best;
  double least = 0.9 * kCpuConv.conv.products(desc);
  auto consider = [&](const Skeleton &family, const winograd::Form &form) {
    if (double cost = family.conv.products(desc); cost < least) {
      least = cost;
      best = form;
    }
  };
  consider(kCpuConvWinograd2, {2, two ? 2 : 1});
  // F(4,3) only where the user allows its error.
  if (one && winograd::expectedError(desc.groupChannels) <= desc.winogradTolerance)
    consider(kCpuConvWinograd4, {4});
  return best;
}

void convWinograd(const KernelDesc &desc, const winograd::Form &form, KernelConfig c,
                  std::vector<KernelVariant> &out) {
  size_t rank = desc.parallel.size();
  c.form = form.out == 4 ? &kCpuConvWinograd4 : &kCpuConvWinograd2;
  DimExpr ofImage = winogradTiles(desc, form), tiles = desc.parallel[0] * ofImage;
  int64_t panels = (*desc.parallel[rank - 1].constant() + c.tileN - 1) / c.tileN;
  // Tiles whose inputs and products stay in the second-level cache while one panel streams by.
  // Where the third-level cache does not hold all filters, more tiles share them, and each point's inputs
  // are read once for several panels.
  constexpr int64_t kCache = 896 << 10, kBehind = 2 << 20, kMost = 64;
  int64_t each = form.scratchBytes(1, desc.groupChannels, c.tileN);
  int64_t panel = form.filters() * desc.groupChannels * c.tileN * 4;
  bool stream = panels * panel > kBehind;
  c.rows = stream ? kMost : std::clamp<int64_t>((kCache - panel) / each, c.tileM, 2 * kMost);
  constexpr int64_t kEnough = 4; // units: each group of panels transforms the inputs anew
  int64_t chunks = kEnough;
  if (auto count = tiles.constant(); count && *count > 0) {
    chunks = (*count + c.rows - 1) / c.rows;
    // For two workers that finish together: each transforms half of the inputs, where that leaves many tiles
    // and the third-level cache nearly holds the filters, which both read.
    bool halves = *count >= 6 * c.tileM && panels * panel <= kBehind + kBehind / 2;
    chunks += chunks % 2 && (chunks > 2 || halves) ? 1 : 0;
    c.rows = std::max(c.tileM, (*count + chunks - 1) / chunks);
  } else if (auto image = ofImage.constant(); image && *image > 0) {
    // Any number of images: whole ones or equal parts, so that the numbers of tiles are known.
    int64_t most = c.rows;
    c.rows = *image <= most ? most / *image * *image
                            : divisorWithin(*image, most / 2, most).value_or(most);
    chunks = (*image + c.rows - 1) / c.rows; // of one
  }
  c.tileK = panelsForWorkers(panels, chunks, kEnough);
  if (stream)
    c.stages = c.tileK;
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
/// the weights for few pixels. Where the number of images is not known, chunks have a size that divides an
/// image of `image` pixels, if there is one (0: the run knows how many).
int64_t evenRows(const KernelDesc &desc, int64_t image, int64_t most) {
  if (!desc.parallel[0].isConstant() && image)
    return divisorWithin(image, most * 3 / 4, most).value_or(most);
  int64_t all = desc.parallel[0].constant().value_or(0) * image, chunks = (all + most - 1) / most;
  return chunks ? (all + chunks - 1) / chunks : most;
}

/// Rows of results of a block of padded rows: what the second-level cache takes, evenly.
int64_t rowsOfBlock(const ConvGeometry &g, int64_t images, const KernelConfig &c) {
  constexpr int64_t kCache = 480 << 10;
  int64_t width = g.out[1].constant().value_or(64), height = g.out[0].constant().value_or(1 << 20);
  int64_t rows = 1;
  auto bytes = [&](int64_t rows) {
    int64_t high = g.rowsOfLayer(rows) * g.layer.window;
    return high * ((width - 1) * g.stride[1] + g.reach(1)) * g.channels * 4;
  };
  while (rows < height && rows * width < 4096 &&
         (rows * width < c.tileM || bytes(rows + 1) <= kCache))
    ++rows;
  // Small images: some blocks for every worker, as long as tiles stay full.
  constexpr int64_t kEnough = 4;
  images *= g.layer.out.constant().value_or(1);
  bool few = g.out[0].constant() && images * ((height + rows - 1) / rows) < kEnough;
  if (few && width >= 4 * c.tileM)
    rows = std::max<int64_t>(1, std::min(rows, height * images / kEnough));
  int64_t blocks = (height + rows - 1) / rows;
  return g.out[0].constant() ? (height + blocks - 1) / blocks : rows;
}

/// Groups of several channels: panels of two vectors of filters or one, as they fit to the groups.
/// False when none does, and for groups of one channel, most of whose panels would be zeros.
bool convGroups(const KernelDesc &desc, KernelConfig c, std::vector<KernelVariant> &out) {
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
      c.stages = rowsOfBlock(*g, desc.parallel[0].constant().value_or(1) * desc.group, c);
      c.tileK = layout->panels() / desc.group;
      units = desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages)) *
              DimExpr(desc.group);
      scratch = g->scratchElements(c.stages) * DimExpr(bytes);
    } else {
      c.rows = rowsInScratch(layout->depth, c);
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
bool convParts(const KernelDesc &desc, KernelConfig c, std::vector<KernelVariant> &out) {
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
  c.stages = rowsOfBlock(*g, desc.parallel[0].constant().value_or(1), c);
  DimExpr blocks = desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages));
  c.tileK = panelsForWorkers(panels, blocks.constant().value_or(8), 8);
  KernelSpec spec = specFor(desc, c, blocks * DimExpr((panels + c.tileK - 1) / c.tileK));
  spec.scratchBytes =
      g->scratchElements(c.stages) * DimExpr(std::max<int64_t>(4, bitWidth(x.dtype) / 8));
  packWeight(spec, w, recipe);
  if (spec.buffers[w.buffer].packing.empty())
    return false;
  addVariant(out, {}, std::move(spec));
  return true;
}

/// Pixels behind a depthwise convolution: blocks of rows, whose channels stay in cache for all filters.
void convPair(const KernelDesc &desc, KernelConfig c, std::vector<KernelVariant> &out) {
  auto size = [&](size_t d, int64_t unknown) {
    return std::max<int64_t>(1, desc.parallel[d].constant().value_or(unknown));
  };
  int64_t channels = desc.groupChannels, height = size(1, 64), width = size(2, 64);
  int64_t fit = std::max<int64_t>(1, kResident / (4 * channels * width));
  constexpr int64_t kEnough = 4; // blocks, for the workers
  int64_t blocks = std::max((height + fit - 1) / fit, std::min(height, kEnough / size(0, 1)));
  blocks += blocks > 1 && blocks * size(0, 1) % 2; // two workers finish together
  c.stages = (height + blocks - 1) / blocks;
  c.tileK = (desc.parallel[3].constant().value_or(c.tileN) + c.tileN - 1) / c.tileN;
  KernelSpec spec = specFor(desc, c, desc.parallel[0] *
                                         DimExpr::ceilDiv(desc.parallel[1], DimExpr(c.stages)));
  spec.scratchBytes = desc.parallel[2] * DimExpr(4 * c.stages * channels);
  packWeight(spec, desc.operands[1], "filters" + std::to_string(c.tileN));
  packWeight(spec, *desc.depthwise, "taps");
  addVariant(out, {}, std::move(spec));
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
    c.rows = evenRows(desc, image, 16 * c.tileM);
    units = DimExpr::ceilDiv(desc.parallel[0] * product(sizes), DimExpr(c.rows));
    int64_t chunks = units.constant().value_or(std::max<int64_t>(8, image / c.rows));
    c.tileK = evenPanels(panelsOfUnit((taps * pixel * each + 3) / 4, panels * c.tileN, chunks, c), panels, chunks);
  } else {
    c.stages = rowsOfBlock(*g, images, c);
    units = desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages));
    c.tileK = panelsForWorkers(panels, units.constant().value_or(8), 8);
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

Status conv(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &variants) {
  size_t rank = desc.parallel.size();
  if (rank < 3 || desc.operands.size() < 2)
    return internalError("a convolution needs images, pixels, channels", "kernel " + desc.name);
  if (multipliesCodes(desc, target))
    return convCodes(desc, target, variants);
  DimExpr filters = desc.parallel[rank - 1];
  DimExpr pixels = product({desc.parallel.begin(), desc.parallel.end() - 1});
  KernelConfig c = productTile(kCpuConv, target);
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  int64_t taps = 1;
  for (int64_t size : desc.window)
    taps *= size;
  int64_t depth = taps * desc.groupChannels;
  if (desc.depthwise) {
    convPair(desc, c, variants);
    return okStatus();
  }
  bool skeleton = desc.channelsLast && w.isWeight && w.buffer >= 0 && desc.group == 1;
  if (skeleton && convParts(desc, c, variants))
    return okStatus();
  if (std::optional<winograd::Form> form; skeleton && (form = winogradForm(desc))) {
    convWinograd(desc, *form, c, variants);
    return okStatus();
  }
  if (skeleton) {
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
      c.rows = evenRows(desc, image, 8 * c.tileM);
      units = DimExpr::ceilDiv(pixels, DimExpr(c.rows));
      int64_t chunks = units.constant().value_or(std::max<int64_t>(8, image / c.rows));
      c.tileK = evenPanels(panelsOfUnit(depth, panels * c.tileN, chunks, c), panels, chunks);
    } else if (g) {
      int64_t images = desc.parallel[0].constant().value_or(1);
      c.stages = rowsOfBlock(*g, images, c);
      DimExpr blocks =
          desc.parallel[0] * g->layer.out * DimExpr::ceilDiv(g->out[0], DimExpr(c.stages));
      c.tileK = panelsForWorkers(panels, blocks.constant().value_or(8), 8);
      scratch = g->scratchElements(c.stages) * DimExpr(std::max<int64_t>(4, bitWidth(x.dtype) / 8));
      units = blocks;
    } else {
      c.rows = rowsInScratch(depth, c);
      units = DimExpr::ceilDiv(pixels, DimExpr(c.rows));
      c.tileK = panelsOfUnit(depth, panels * c.tileN, units.constant().value_or(8), c);
      scratch = DimExpr(depth * c.rows * 4);
    }
    DimExpr groups = DimExpr::ceilDiv(filters, DimExpr(c.tileN * c.tileK));
    KernelSpec spec = specFor(desc, c, units * groups);
    spec.scratchBytes = scratch;
    packWeight(spec, w, "filters" + std::to_string(c.tileN));
    addVariant(variants, {}, std::move(spec));
    return okStatus();
  }
  int64_t filtersOfGroup = filters.constant().value_or(0) / std::max<int64_t>(1, desc.group);
  bool inLanes = desc.channelsLast && desc.group > 1 && desc.window.size() <= 2 && filtersOfGroup > 0 &&
                 groupsFitLanes(desc.groupChannels, filtersOfGroup, c.lanes);
  if (!inLanes && desc.channelsLast && w.isWeight && w.buffer >= 0 && convGroups(desc, c, variants))
    return okStatus();
  KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(pixels * filters, DimExpr(kBlockElements)));
  if (inLanes)
    packWeight(spec, w, "taps"); // rows of pixels are dealt out, whatever the number of blocks
  addVariant(variants, {}, std::move(spec));
  return okStatus();
}

Status attention(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() != 4)
    return internalError("attention needs B, H, S, E", "kernel " + desc.name);
  KernelConfig c = productTile(kCpuAttention, target);
  // Rows of queries that share transposed keys; their scores stay in scratch memory.
  c.rows = 4 * c.tileM;
  DimExpr chunks = desc.parallel[0] * DimExpr::ceilDiv(desc.parallel[2], DimExpr(c.rows));
  // Tokens of a prompt that lie one after another are rows of the batch with the same keys. Few tokens a unit leave
  // units for all workers where each is of another sequence, and two full tiles are enough to pay for the keys.
  auto queries = desc.parallel[2].constant();
  if (desc.sharesKeys && queries && *queries > 0 && *queries <= 2 * c.tileM) {
    c.tileK = 2 * c.tileM / *queries;
    c.rows = c.tileK * *queries;
    c.stages = 1; // what shares a tile is chance, and must not be seen in the bits
    chunks = DimExpr::ceilDiv(desc.parallel[0], DimExpr(c.tileK));
  }
  KernelSpec spec = specFor(desc, c, chunks * desc.parallel[1]);
  if (desc.reduction.size() == 2)
    spec.scratchBytes = attentionScratchBytes(c, desc.reduction[0], desc.reduction[1]);
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

/// Rows of a batch that share the weights of a step; the steps themselves depend on each other.
Status recurrence(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  auto hidden = desc.reduction[1].constant();
  BufferArg weights = desc.buffers[desc.operands[1].buffer];
  if (!hidden || *hidden < 1)
    return internalError("a recurrence needs a known width", "kernel " + desc.name);
  KernelConfig c;
  c.form = &kCpuRecurrent;
  c.lanes = lanesFor(target);
  c.rows = target.vectorRegisters >= 32 ? 4 : 2;
  KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(desc.parallel[0], DimExpr(c.rows)));
  int64_t padded = (*hidden + c.lanes - 1) / c.lanes * c.lanes;
  // Where there are more threads than rows, several share the panels of a step, provided that each has at
  // least a microsecond of work in a step, and some fifty in all steps.
  constexpr int64_t kStepShare = 1 << 16, kShare = 1 << 22;
  int64_t work = 2 * *hidden * weights.dims[0].constant().value_or(0);
  int64_t members = std::min({int64_t(16), padded / c.lanes, work / kStepShare});
  DimExpr busy = DimExpr::min(members, DimExpr::floorDiv(desc.reduction[0] * DimExpr(work), kShare));
  if (members > 1 && !(busy.constant() && *busy.constant() <= 1)) {
    spec.launches[0].grid[1] = DimExpr::max(1, busy);
    spec.launches[0].cluster[1] = members;
  }
  // The hidden state before and after a step, and the cell or what is reset.
  spec.scratchBytes = DimExpr(3 * c.rows * padded * 4);
  spec.buffers[desc.operands[1].buffer].packing =
      "gates" + std::to_string(*weights.dims[0].constant() / *hidden) + "x" + std::to_string(c.lanes);
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

/// Few places: the best so far are kept in order, and most elements are no better than the last of
/// them. Many: rows are sorted.
void topK(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  constexpr int64_t kFew = 48;
  const KernelDesc::Selection &s = *desc.selection;
  const DimExpr keyBytes = s.keyBits / 8, placeBytes = 8, slack = 64;
  auto spec = [&](const Skeleton &form, const DimExpr &entries) {
    KernelConfig c;
    c.form = &form;
    c.lanes = lanesFor(target);
    KernelSpec result = specFor(desc, c, s.rows);
    result.scratchBytes = entries * (placeBytes + keyBytes) + slack;
    return result;
  };
  DimRange count = rangeOf(s.count, desc);
  DimCondition few{DimCondition::Kind::LessEqual, s.count, DimExpr(kFew)};
  if (count.lo <= kFew)
    addVariant(out, count.hi <= kFew ? std::vector<DimCondition>() : std::vector{few},
               spec(kCpuTopKInsert, s.count));
  if (count.hi > kFew)
    addVariant(out, {}, spec(kCpuTopKMerge, s.length * DimExpr(2)));
}

void selection(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  using Kind = KernelDesc::Selection::Kind;
  if (desc.selection->kind == Kind::TopK)
    return topK(desc, target, out);
  bool nms = desc.selection->kind == Kind::Nms;
  KernelConfig c{nms ? &kNms : &kCpuNonzero};
  addVariant(out, {}, specFor(desc, c, nms ? desc.selection->rows : DimExpr(1)));
}

} // namespace

Variants chooseCpu(const KernelDesc &desc, const Target &target) {
  std::vector<KernelVariant> out;
  if (desc.serial) {
    KernelConfig c;
    c.form = &kScatter;
    c.lanes = lanesFor(target);
    addVariant(out, {}, specFor(desc, c, DimExpr(1)));
    return out;
  }
  switch (desc.kind) {
  case KernelDesc::Kind::Reduction:
    reduction(desc, target, out);
    break;
  case KernelDesc::Kind::Scan: {
    if (desc.selection) {
      selection(desc, target, out);
      break;
    }
    if (!desc.operands.empty()) {
      LATHE_RETURN_IF_ERROR(recurrence(desc, target, out));
      break;
    }
    KernelConfig c;
    c.form = &kScan;
    c.lanes = lanesFor(target);
    DimExpr elements = product(desc.parallel) * product(desc.reduction);
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(elements, DimExpr(c.lanes))));
    break;
  }
  case KernelDesc::Kind::Gemm:
    LATHE_RETURN_IF_ERROR(gemm(desc, target, out));
    break;
  case KernelDesc::Kind::Conv:
    LATHE_RETURN_IF_ERROR(conv(desc, target, out));
    break;
  case KernelDesc::Kind::Attention:
    LATHE_RETURN_IF_ERROR(attention(desc, target, out));
    break;
  default:
    pointwise(desc, target, out);
    break;
  }
  return out;
}

} // namespace lathe::select
