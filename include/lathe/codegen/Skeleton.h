//===- Skeleton.h - the descriptor of a family of kernels -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything that the compiler knows of one family of configurations: when it
// applies, what shared memory a block takes, which holes its device code has,
// how it is instantiated, how it may start. A skeleton's descriptor stands
// beside its source, codegen/device/NAME.cpp beside NAME.cuh; those of generated
// kernels in codegen/select/Generated.cpp, those of the CPU's skeletons in
// codegen/select/Schedules.cpp. Skeletons.def lists all of them.
//
// Nobody compares families by name, number or address: who needs to know
// something of a family reads it here (tools/layering.py).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_SKELETON_H
#define LATHE_CODEGEN_SKELETON_H

#include "lathe/codegen/Config.h"

#include <functional>
#include <optional>
#include <vector>

namespace lathe {

struct KernelDesc;
struct KernelSpec;
struct KernelVariant;
struct Target;
namespace select {
class AttentionChoice;
class ProductChoice;
}

/// Adds the variants of a kernel, for all sizes, if this family is the best for it on a GPU; the answer
/// says whether it is. The families are asked in the order of Skeletons.def until one is.
using Offer = Result<bool> (*)(const KernelDesc &, const Target &, std::vector<KernelVariant> &);

/// What the shared memory of a block depends on besides its configuration.
struct TileFacts {
  int64_t elementBytes = 2;     ///< products: of the operands
  int64_t steps = 0;            ///< windows: stages of the whole depth; 0: any number
  bool windows = false;         ///< products: rows are pixels of images
  int64_t resultBytes = 0;      ///< products: of an element that is staged in shared memory; 0: none is
  bool pair = false;            ///< products: a result is made of two columns of sums
  bool heads = false;           ///< products: results are stored head by head, with `pair` both halves
  int64_t headQK = 0, headV = 0; ///< attention: sizes of a head
  bool mask = false;            ///< attention: tiles of a mask are copied
  int64_t codeBits = 0;         ///< attention: keys and values are codes of so many bits with a scale a row
  int64_t channels = 0, lines = 0, columns = 0; ///< first layer: of the box of an image
};

/// A product as the time of its tiles sees it.
struct ProductSizes {
  int64_t m, n, k, batch;     ///< n: columns of all weights, of a gated pair both halves
  int64_t smCount;            ///< multiprocessors
  int64_t elementBytes = 2;   ///< of the operands
  int64_t rowAlignment = 128; ///< largest power of two, to 128, in the bytes of the operands' rows
  bool bAlongK = true;        ///< k is contiguous in B
  bool bare = true;           ///< results are the sums
  bool residual = false;      ///< results take a tensor of their shape that TMA brings
  double blocks = 0, steps = 0; ///< of weights with blocks of zeros (support/BlockSteps.h)
};

/// A convolution whose windows are rows of a product, as the time of its tiles sees it.
struct WindowSizes {
  double pixels;          ///< of all results
  double pixelsRead;      ///< of the images, for one of the results
  int64_t filters, groups, groupChannels; ///< filters: of a group
  int64_t depth, steps;   ///< of the product, in elements and in stages
  int64_t elementBytes;   ///< of images and filters
  int64_t smCount;        ///< multiprocessors
};

/// The text of an instantiation.
struct Instance {
  std::vector<std::string_view> modules; ///< of the device library, besides what they need
  std::string call;                      ///< "gemmSkinny<...>(h, ...);"
  /// The type whose SHARED_BYTES are what a block takes by the device's own count, which is compared
  /// with the launch's when the text is compiled; empty: it takes none or as much as the sizes say.
  std::string tile;
  std::string given = {};                ///< statements ahead of the call
  int64_t minBlocks = 0;                 ///< that shall share a multiprocessor; 0: as it comes
  std::vector<std::string> before = {};  ///< what each launch ahead calls, in their order
};

/// Tensor maps behind those of the operands, by their place in the kernel's list.
struct StoredByTma {
  std::vector<int> results; ///< none: results are not stored by TMA
  int residual = -1;        ///< what comes to them at their own places; -1: none is brought
  bool byHead = false;      ///< a map an output, each with heads of its own
};

/// What the text of an instantiation depends on besides the configuration: sizes as C++.
struct ProductText {
  std::string batch, m, n, k;
  std::optional<int64_t> depth; ///< k, where it is known
  int64_t weightBits = 16;      ///< of an element of B as it is stored
  StoredByTma tma;
  std::function<bool(int64_t)> dividesDepth; ///< whether k is a multiple, whatever the sizes are
};
/// Of kernels that memory bounds.
struct MemoryText {
  std::string rows, columns;
  std::string wanted = {}; ///< elements of a row
  std::string outer = {};  ///< reductions: results without columns
  std::string parts = {};  ///< of a row, where blocks of a launch ahead share it
};
struct ConvText {
  std::string window, sizes;
  std::string groups, pixels, filters, depth; ///< of the product that windows make
  std::string images;
  int64_t channels = 0;
  int64_t groupChannels = 0, groupFilters = 0;
  StoredByTma tma;
};
struct AttentionText {
  std::string batch, heads, queries, keys;
  bool maskTiles = false; ///< TMA brings tiles of a mask, by map3
  size_t launches = 1;
  int64_t listThreads = 0; ///< of the launch ahead
  int64_t blocks = 0;      ///< at most, among which a launch ahead deals tiles of queries out
};

/// What the struct of holes of a product needs to have (codegen/cuda/SkeletonGemm.cpp), and when the
/// product runs so.
struct ProductForm {
  enum class Units { Fma, Mma, Wgmma };
  Units units = Units::Fma;
  bool streamsWeights = false; ///< B is read in pieces as it lies; start() and wait() are holes
  bool acrossK = false;        ///< B's n is contiguous, not its k; else the other way, where it streams
  bool piecesOfA = false;      ///< A is read in pieces of 16 bytes; else element by element where rows
                               ///< are few or k is not contiguous
  bool fewRows = false;
  bool readsColumns = false;   ///< threads read and store config.lanes neighbouring columns
  bool takesCodes = false;    ///< B may be made of 8-bit elements, which `widened` turns
  bool widensToF32 = false;    ///< ... into f32, not the element type
  bool mixedInput = false;     ///< B must be: gemm_mixed.cuh, gemm_widened.cuh
  bool packed = false;         ///< B must be, as fragments (Packing.h): gemm_packed.cuh and those beside it
  bool sparse = false;         ///< B must be 2:4 sparse, packed as `sparse24` (Packing.h): gemm_sparse.cuh, gemm_sparse_few.cuh
  bool blockSparse = false;    ///< B must have blocks of zeros, packed as `bsr64` (Packing.h): gemm_bsr.cuh
  bool checksRows = false;     ///< ... a launch ahead finds infinities and NaN in A (finite_rows.cuh)
  bool pairs = false;          ///< kPair: a result may be made of two columns of sums
  int64_t interleave = 1;      ///< CPU: neighbours of K that an instruction multiplies and adds; with more
                               ///< than 1, both operands are integers of 8 bits
  bool leavesOutInputs = false; ///< one row: columns that its zeros meet are not read; on GPUs B must be packed as `panels`
  bool leavesOutZeros = false; ///< CPU: blocks of zeros in constant columns are not multiplied
  bool blockScales = false;    ///< scales sums by blocks of k, or computes operands element by element
  bool amax = false;           ///< finds the amax of blocks of results (lathe/ir/BlockAmax.h)
  int64_t epilogueLanes = 4;   ///< neighbouring results that are stored together, at most; 0: config.lanes

  /// What a product takes with a tile, in ns on the usual card: what ranks tiles of several families.
  /// Null: `offer` goes by rules.
  double (*time)(const KernelConfig &, const ProductSizes &) = nullptr;
  /// Whether B is packed without zeros, whichever way the matrix was stored.
  bool packsZerosAway() const { return sparse || blockSparse; }

  /// Adds the variants for the numbers of rows that this family is the best for. False: none are left.
  /// The families are asked in the order of Skeletons.def. Null: another descriptor's does it.
  bool (*offer)(select::ProductChoice &) = nullptr;
  /// The spec of a configuration that was asked for, which may leave parameters out; nothing where
  /// the product cannot run so. Null: this family cannot be asked for.
  std::optional<KernelSpec> (*asked)(const select::ProductChoice &, KernelConfig) = nullptr;
  Instance (*text)(const KernelConfig &, const ProductText &) = nullptr;
};

/// The forms of gemm_hopper.cuh and its neighbours, for products and for windows of images.
struct WgmmaForm {
  bool pingpong = false; ///< two warpgroups have tiles of their own and take turns; else they share one
  bool streamK = false;  ///< what is left after whole rounds of tiles is shared by all blocks
  bool splitK = false;   ///< the blocks of a cluster split the depth
  bool swapped = false;  ///< the columns of B are rows of the instruction
  bool promoted = false; ///< sums of 8-bit floats over more than 128 of k in f32 registers
  bool parts = false;    ///< a block sums as the blocks of a cluster that split the depth
  bool plain() const { return !streamK && !splitK && !swapped && !promoted && !parts; }
};

struct ConvForm {
  bool tensorCores = false;
  bool direct = false;    ///< a thread computes results by itself
  bool groups = false;    ///< small groups side by side, each with its own channels (conv_groups.cuh)
  bool depthwise = false; ///< ... of neighbouring channels, each a convolution of its own
  bool planes = false;    ///< direct: vectors of rows of channels first, each channel a convolution of its own (conv_planes.cuh)
  bool windows = false;   ///< rows of a product that TMA makes from images (HopperConv.h)
  bool stem = false;      ///< the first layer, from planes

  /// What a convolution takes with a tile on a GPU: what ranks tiles, in units of its own. Null:
  /// `offer` goes by rules.
  double (*time)(const KernelConfig &, const WindowSizes &) = nullptr;
  /// What a convolution of 3 x 3 takes on a CPU, in products of one row, all channels and all filters:
  /// a core's sums, or the memory that filters stream from, if that is slower.
  double (*products)(const KernelDesc &) = nullptr;
  /// Of convolutions. Null: another descriptor's does it, or the family is a CPU's.
  Offer offer = nullptr;
  Instance (*text)(const KernelConfig &, const ConvText &) = nullptr;
};

struct AttentionForm {
  bool tiles = false;   ///< tiles of 16-bit operands (attention_tile.cuh); else element by element
  bool groups = false;  ///< kGroup: query heads of a key head
  bool split = false;   ///< keys are split: sixteen rows of them together
  bool ragged = false;  ///< neighbours in the batch share keys, sixteen rows of them together; a launch ahead lists tiles
  bool early = false;   ///< keys are copied before the kernels ahead are over
  bool maps = false;    ///< operands come by tensor maps
  bool keyMask = false; ///< a mask that is the same for all queries is read once for a tile
  bool listed = false;  ///< on a CPU: what the mask hides from all queries of a chunk is left out

  /// Adds the variants for the sizes that this family is the best for. False: none are left. The
  /// families are asked in the order of Skeletons.def. Null: another descriptor's does it.
  bool (*offer)(select::AttentionChoice &) = nullptr;
  Instance (*text)(const KernelConfig &, const AttentionText &) = nullptr;
};

/// What memory bounds: kernels without a contraction.
struct MemoryForm {
  /// Of kernels that are not built around a contraction. Null: the family is none of these.
  Offer offer = nullptr;
  bool boxes = false;     ///< transposes: of known sizes and nothing else (TransposeTile.h)
  bool alongRows = false; ///< reductions: lanes and threads run along what is reduced, not along columns
  Instance (*text)(const KernelConfig &, const MemoryText &) = nullptr; ///< of a skeleton
};

struct Skeleton {
  std::string_view family; ///< "gemm.stream": the front of a configuration's name
  std::string_view block;  ///< what a block of the grid computes, and with which parameters

  /// Who writes the code: a schedule of codegen/tile, or the holes of codegen/cuda.
  enum class Code {
    Pointwise, Row, Scan, Scatter, OrderedScatter, UnorderedScatter, Transpose, CpuProduct, CpuConv, CpuAttention,
    Recurrent, InsertTopK, MergeTopK, RadixTopK, TopK, CpuNonzero, Nonzero, Nms, Columns, Interpolation, Fourier,
    Product, Conv, ImageProduct, Attention
  };
  Code code = Code::Pointwise;
  bool reducesRows = false; ///< a block has whole rows, which its threads reduce together

  /// Whether an output may lie in the memory of an input that is read at the same places.
  enum class InPlace { Never, OneThread, Always };
  InPlace inPlace = InPlace::Never;
  /// Whether a kernel of one launch starts while those ahead of it end: always, unless it takes so
  /// long that reading through the cache of constants is worth more, or as its chooser says.
  enum class Early { AsChosen, UnlessLong, Always };
  Early early = Early::AsChosen;
  bool waitsItself = false; ///< the device code waits for kernels ahead where it must

  /// Dynamic shared memory of a block in bytes; null: none, or as the sizes say.
  int64_t (*sharedBytes)(const KernelConfig &, const TileFacts &) = nullptr;
  /// Fills in what the name of a tile may leave out: threads, the depth of a stage, and as many stages
  /// as the target's shared memory holds. Null: `offer` does.
  KernelConfig (*complete)(KernelConfig, const TileFacts &, const Target &) = nullptr;
  /// Names of tiles that a kernel of this family could have as well; null: there are none.
  std::vector<std::string> (*tiles)() = nullptr;

  ProductForm product = {};
  WgmmaForm wgmma = {};
  ConvForm conv = {};
  AttentionForm attention = {};
  MemoryForm memory = {};
};

/// All descriptors, in the order of Skeletons.def.
const std::vector<const Skeleton *> &skeletons();
/// The family of this name, or null. The only place that compares families.
const Skeleton *skeletonNamed(std::string_view family);

#define LATHE_SKELETON(NAME) extern const Skeleton NAME;
#include "lathe/codegen/Skeletons.def"
#undef LATHE_SKELETON

inline bool isPingPong(const KernelConfig &c) { return c.form->wgmma.pingpong; }
inline bool isStreamK(const KernelConfig &c) { return c.form->wgmma.streamK; }
inline bool isSplit(const KernelConfig &c) { return c.form->wgmma.splitK; }
inline bool isSwapped(const KernelConfig &c) { return c.form->wgmma.swapped; }
/// Two blocks of a cluster have tiles one below the other, and load columns for each other.
inline bool isPaired(const KernelConfig &c) { return !isSplit(c) && !c.form->wgmma.parts && c.cluster == 2; }

} // namespace lathe

#endif // LATHE_CODEGEN_SKELETON_H
