//===- Packing.h - weights in the order in which kernels read ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A packing recipe (BufferArg::packing) rearranges a constant once, when the
// engine is built. Recipes, for a panel of NR columns:
//
//   panels<NR>    [batch.., K, N]    -> [batch][panel][K][NR]
//   panels<NR>t   [batch.., N, K]    -> the same
//   panels<NR>x<I>, panels<NR>x<I>t  -> [batch][panel][K / I][NR][I]: I neighbours of K side by side,
//                                       K filled with zeros to a multiple of I; whole bytes
//   filters<NR>   [N, C, taps..]     -> [panel][tap][C][NR]
//   filters<NR>x<I> [N, C, taps..]   -> [panel][tap][C / I][NR][I]: I neighbours of C side by side, C filled
//                                       with zeros to a multiple of I; whole bytes
//   winograd<NR>  [N, C, 3, 3]       -> [panel][filter][C][NR], f32, transformed for tiles of 2 x 2
//                                       results (Winograd.h); `winograd<NR>f4`: of 4 x 4;
//                                       `winograd<NR>s2`: of 2 x 2 with stride 2
//   groups<NR>x<G> [N, C/G, taps..]  -> [panel][tap][channels of the panel's groups][NR], zero for those
//                                       of other groups than the column's; N a multiple of NR, and a
//                                       panel in one group or of whole groups
//   parts<NR>x<B>,<B>.. [N, C, taps..] -> [panel][tap of its box][C][NR]: filters are so many equal
//                                       parts, each with weights other than zero in a box of taps alone:
//                                       B is <first>+<count> by dimension, as 0+2.1+2. A panel's box is
//                                       around those of its filters
//   taps          [N, C, taps..]     -> [tap][C][N]
//   gates<G>x<W>  [G * H, K]         -> [panel of W][K][G][W]: W rows of each of G gates
//   rows<P>       [N, C, taps..]     -> [N][tap][C], C filled with zeros to a multiple of P
//   blocks16x<R>c<C>  [1.., K, N]    -> what of the blocks of R rows and 16 columns is not all zero (below);
//   blocks16x<R>c<C>t [1.., N, K]    -> the same; R 1 or 4, which divides K
//   fragments<B>  [N, K]             -> [N / 16][K / U][lane of 32][16 bytes]: codes of B bits (4 or 8) in
//                                       the order of the tensor cores' operand of 16 x 16 (below), U = 256 / B;
//                                       both filled with zeros
//   sparse24      [1.., K, N]        -> the nonzero halves of a 2:4 sparse matrix (TwoOfFour.h), then where they were
//                                       (below); sparse24t [1.., N, K] -> the same. Floats of 16 bits
//   sparse24x8    [1.., K, N]        -> the same of floats and integers of 8 bits; sparse24x8t [1.., N, K]
//   bsr64c<C>     [1.., K, N]        -> the blocks of 64 x 64 that are not all zero (BlockSteps.h), and where they were
//                                       (below); bsr64c<C>t [1.., N, K] -> the same. Floats of 16 bits
//
// A lane of `fragments`, g = lane / 4 and t = lane % 4, has U / 16 neighbouring blocks of 16 x 16, eight codes of
// each: register r of the instruction (mma.m16n8k16, wgmma with A from registers) holds column g + 8 * (r % 2) at
// k = 2 * t + 8 * (r / 2) in its low half and k + 1 in the high one. Of 4 bits the low halves of registers 0 to 3
// come first, then the high ones, so that (word >> 4 * r) & 0x000f000f is register r; of 8 bits registers 0 and 1
// share a word, bytes 0 and 2 being those of register 0.
//
// `blocks` are words of 32 bits first: [panels + 1] the number of the first block of each panel and that of the end,
// [C] the first row of each block, filled up to 64 bytes; then [C][R][16] elements. Blocks of a panel lie in the
// order of their rows, and C is as many as there are or more: so it says what the data may be, which
// WeightPacker::prepare checks (support/ZeroBlocks.h counts them).
//
// `sparse24` is the two elements that are kept of each four of K, for N columns in P panels of 16 and K in Q steps of 64,
// both filled with zeros: [P][Q][2 halves of the panel][4 times 8 kept elements][8 columns][8], so that 8 x 8 of them, of
// 16 of K, are 128 bytes, a core matrix of tensor cores; then [P][Q][32] words of 32 bits for mma.sp and wgmma.sp, the word
// of a lane being its operand of both products by 32 of K in the step: columns lane / 4 (low half) and 8 further (high half)
// at k = 32 * (lane % 4 / 2) + 16 * (lane % 2) + 0 .. 15, four bits for each four of K from the lowest on: the place of the
// first element that is kept, then of the second. Weights that are not 2:4 are refused by WeightPacker::prepare.
// Of 8 bits (`sparse24x8`) steps are of 128 and core matrices of 8 x 16, so that elements take the same bytes; [P][Q][32][2]
// words are a lane's operands of the two products by 64 of K: of column lane / 4 + 8 * (lane % 2) at
// k = 64 * word + 32 * (lane % 4 / 2) + 0 .. 31.
//
// `bsr64` has words of 32 bits first: how many bytes on the bits of the panels begin, the steps, the blocks, and the panels
// of pairs; [pairs of panels + 1] the number of the first step of each pair and that of the end; [pairs][2] which panels of
// 64 columns they are; of each panel of a pair [K / 2048] words with a bit for each 64 of K in which it has a block, all
// filled up to 16 bytes. Then [C] steps, each a word that says which 64 of K it is and one with four times the number of its
// first block, plus 1 where the first panel has a block and 2 where the second has, filled up to 128 bytes; then [C] blocks
// of [64 columns][64 of K] elements, in which the piece of 16 bytes p of column n lies at p ^ n % 8, as the 128-byte swizzle
// of tensor maps has it. Blocks are filled with zeros beyond K and N. C is as many as there are or more, as of `blocks`.
//
// The last panel is only as wide as whole vectors (NR/2) need; what no column
// fills is zero. Elements keep their type, and all but `winograd` their values. Those
// below a byte take `panels` and `fragments` alone.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_PACKING_H
#define LATHE_SUPPORT_PACKING_H

#include "lathe/support/BlockSteps.h"
#include "lathe/support/DType.h"
#include "lathe/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// Where an element of a packed weight lies. `depth` counts k, or tap * C + c, or
/// point * C + c.
struct PanelLayout {
  enum class Order { Matrix, MatrixTransposed, Filters, Taps, Winograd, Rows, Groups, Parts, Gates, Fragments, Blocks, TwoOfFour, Bsr };
  /// Taps of a window by dimension: [first, first + count) of each.
  struct Box {
    std::vector<int64_t> first, count;
    int64_t taps() const;
    bool operator==(const Box &) const = default;
  };
  Order order = Order::Matrix;
  int64_t batch = 1, depth = 0, columns = 0;
  int64_t taps = 1, channels = 0; ///< Filters, Winograd: depth = taps (points) * channels
  int64_t panel = 0;              ///< NR; Rows: P; Gates: W
  int64_t interleave = 1;         ///< Matrix, MatrixTransposed, Filters: I
  int64_t groups = 1, groupChannels = 0; ///< Groups: G and C/G; `channels` are those of a panel; Gates: G;
                                         ///< Filters: C, which `channels` fills up to a multiple of I
  int64_t codeBits = 0;           ///< Fragments: B; TwoOfFour: of an element, 8 or 16
  int64_t blockRows = 1, capacity = 0; ///< Blocks: R and C; Bsr: C
  bool fromTransposed = false;    ///< Blocks, TwoOfFour, Bsr: of [N, K]
  int64_t tile = 2, stride = 1;   ///< Winograd: results along a side of a tile
  std::vector<int64_t> window;    ///< Parts: sizes of the whole window
  std::vector<Box> boxes;         ///< Parts: of each panel; `depth` is that of the whole window
  std::vector<int64_t> begins;    ///< Parts: element offset of each panel, and of the end

  int64_t lanes() const { return panel / 2; }
  int64_t panels() const { return (columns + panel - 1) / panel; }
  int64_t lastWidth() const;      ///< of the last panel, a multiple of lanes()
  int64_t paddedChannels() const { return (channels + panel - 1) / panel * panel; } ///< Rows
  int64_t paddedColumns() const { return (panels() - 1) * panel + lastWidth(); }
  int64_t paddedDepth() const { return (depth + interleave - 1) / interleave * interleave; }
  int64_t elements() const {
    return order == Order::Parts  ? begins.back()
           : order == Order::Rows ? columns * taps * paddedChannels()
                                  : batch * paddedDepth() * paddedColumns();
  }
  /// Fragments: elements of K in 16 bytes of each of 32 lanes.
  int64_t unit() const { return 256 / codeBits; }
  /// Blocks: where the words of rows and the elements of blocks begin, in elements of so many bits.
  int64_t rowsAt(int64_t bits) const { return (panels() + 1) * (32 / bits); }
  int64_t valuesAt(int64_t bits) const { return (panels() + 1 + capacity + 15) / 16 * 16 * (32 / bits); }
  /// TwoOfFour: steps of K, and bytes of a panel's elements and of its words.
  static constexpr int64_t kSparseStepBytes = 128; ///< of K in a step
  int64_t sparseStep() const { return kSparseStepBytes * 8 / codeBits; }
  int64_t sparseSteps() const { return (depth + sparseStep() - 1) / sparseStep(); }
  int64_t sparseValueBytes() const { return panel * sparseSteps() * kSparseStepBytes / 2; }
  int64_t sparseWordBytes() const { return sparseSteps() * sparseWordBytesOfStep(codeBits / 8); }
  /// Of a panel and a step, of elements of so many bytes.
  static constexpr int64_t sparseWordBytesOfStep(int64_t elementBytes) { return 32 * 4 * 2 / elementBytes; }
  /// Bsr: where the panels of pairs, their bits, steps and blocks begin, and what a block takes, in bytes; words of bits of a panel.
  static constexpr int64_t kBsrBytes = 64 * 64 * 2;
  int64_t bsrWords() const { return (depth + 2047) / 2048; }
  int64_t bsrPanelsAt() const;
  int64_t bsrBitsAt() const;
  int64_t bsrStepsAt() const;
  int64_t bsrBlocksAt() const;
  /// Element offset of column n at depth k; not of Parts, Blocks, TwoOfFour and Bsr.
  int64_t offset(int64_t b, int64_t k, int64_t n) const;

  /// An error for an unknown recipe, or sizes that it cannot take.
  static Result<PanelLayout> of(std::string_view recipe, const std::vector<int64_t> &dims);
};

/// The recipe of filters in parts: `taps` has first and count of each dimension of each part.
std::string partsRecipe(int64_t panel, const std::vector<int64_t> &taps, size_t dimensions);

/// The recipe of blocks of `rows` rows of which at most `capacity` are not all zero.
std::string blocksRecipe(int64_t rows, int64_t capacity, bool transposed);

/// The recipe of blocks of 64 x 64 of which at most `capacity` are packed.
std::string bsrRecipe(int64_t capacity, bool transposed);

/// The recipe of 2:4 sparse matrices of elements of 8 or 16 bits.
std::string twoOfFourRecipe(bool transposed, int bits = 16);

/// Packs one weight in pieces (panels, or rows), any of them at any time: an engine is written
/// without holding its weights twice.
class WeightPacker {
public:
  /// For a dense tensor of `dims`. Errors as PanelLayout::of; and for types that the recipe does not
  /// take.
  static Result<WeightPacker> of(std::string_view recipe, DType dtype,
                                 const std::vector<int64_t> &dims);

  /// Ahead of pack(): reads of the dense tensor what decides where its elements go. Nothing to do but for `blocks` and
  /// `bsr64`, Internal where they are more than the recipe's, and for `sparse24`, Internal where a group is not 2:4.
  Status prepare(std::span<const std::byte> from);

  uint64_t sourceBytes() const { return source; } ///< of the dense tensor
  uint64_t bytes() const { return begin(pieces()); }
  int64_t elements() const { return int64_t(bytes()) * 8 / bits; }
  /// Bytes [at, at + out.size()) of the packed weight; a piece that they have a part of is made
  /// whole. `from` holds sourceBytes(), aligned in no way. Any number of threads may call it.
  void pack(std::span<const std::byte> from, uint64_t at, std::span<std::byte> out) const;

private:
  int64_t pieces() const;
  uint64_t begin(int64_t piece) const;
  template <typename T> void make(int64_t piece, const std::byte *from, std::byte *to) const;
  void makeBlocks(int64_t piece, const std::byte *from, std::byte *to) const;
  void makeTwoOfFour(int64_t piece, const std::byte *from, std::byte *to) const;
  void makeBsr(int64_t piece, const std::byte *from, std::byte *to) const;
  MatrixBytes matrix(std::span<const std::byte> from) const;

  PanelLayout layout;
  int64_t bits = 0; ///< of an element; below 8 several lie in a byte, the first lowest
  bool integers = false;
  uint64_t source = 0;
  /// Blocks, once prepared: the first of each panel and the end; the first row of each.
  std::vector<uint32_t> firsts, rows;
  /// Bsr, once prepared: its steps; the step of 64 of K and the place of the panel among the pairs' of each block.
  BlockSteps blockSteps;
  std::vector<std::pair<uint32_t, uint32_t>> places;
};

} // namespace lathe

#endif // LATHE_SUPPORT_PACKING_H
