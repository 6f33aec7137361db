//===- KernelDesc.h - what select knows of a kernel -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The question that passes/select puts to codegen/select, free of MLIR: what a
// kernel region is built around, its sizes and its operands. The answer is a
// list of guarded KernelSpecs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_KERNELDESC_H
#define LATHE_CODEGEN_KERNELDESC_H

#include "lathe/codegen/KernelSpec.h"
#include "lathe/codegen/Target.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// An operand of the contraction at the anchor of a gemm, conv or attention
/// kernel: read straight from a buffer argument, or computed by a prologue.
struct ContractionOperand {
  int buffer = -1;          ///< input buffer argument read as it lies; -1: computed in the kernel
  bool isWeight = false;    ///< the buffer is a constant: it can be packed at compile time
  bool transposed = false;  ///< the last two dimensions are stored swapped
  bool sixteens = false;    ///< attention: sixteen rows lie a stride apart, in whole pieces of 16
                            ///< bytes, maybe in pages that a table names (RowsInMemory.h):
  int pages = -1;           ///< ... of this input buffer; else -1
  DimExpr pageStride, pageRows; ///< elements from a row of pages to the next, and how many there are
  int64_t codeBits = 0;     ///< ... which are codes of so many bits with a scale a row; 0: numbers
  bool tokensFirst = false; ///< attention: the buffer has [B, tokens, heads, size]
  DType dtype = DType::F32;
  /// Gemm, weights: the input buffer of codes that the operand is made of, element by element
  /// (lathe/ir/StorageOperand.h); -1: not so.
  int codes = -1;
  bool bareCodes = false; ///< they are bytes, and a scale a column is all that comes to them
  int64_t codeGroup = -1; ///< StorageOperand::integerGroup
  /// Gemm, weights: how many of their blocks of 1 x 16 and of 4 x 16 (columns last) are not all zero; -1: it is not
  /// known, or there are no such blocks.
  int64_t nonzeroBlocks1 = -1, nonzeroBlocks4 = -1;
  /// Gemm, weights of 16 bits: how many of their blocks of 64 x 64 and how many steps are multiplied where the others are
  /// left out (support/BlockSteps.h); -1: it is not known, or there are no others.
  int64_t blocks64 = -1, blockSteps = -1;
  /// Gemm, weights: of each four neighbours along K at most two are not zero (support/TwoOfFour.h).
  bool twoOfFour = false;
  /// Gemm, of operand 0: many elements may be zero in a run, and all of the other operand, weights, are finite, so that
  /// they add nothing where a zero meets them.
  bool inactive = false;
  /// Conv: the input buffer of images with channels first that the kernel reads as channels
  /// last; -1: not so.
  int planes = -1;
};

struct KernelDesc {
  enum class Kind { Pointwise, Reduction, Gemm, Conv, Attention, Scan, Copy, Host, Custom };

  std::string name;
  Kind kind = Kind::Pointwise;
  /// Inputs, then outputs, as the region has them. select copies them into the
  /// spec and may add packing and alignment.
  std::vector<BufferArg> buffers;
  int numInputs = 0, numOutputs = 0;
  /// Symbols that occur in the sizes, sorted, with their bounds.
  std::map<std::string, DimRange> symbols;
  /// Sizes of symbols that are optimised for, of all of them or none.
  std::map<std::string, int64_t> usual;

  /// Iteration space of the kernel's anchor.
  ///   Pointwise, Copy: parallel = sizes of the (first) output.
  ///   Reduction: parallel = outer sizes, reduction = reduced sizes (row length).
  ///   Gemm: parallel = batch sizes..., M, N; reduction = K.
  ///   Conv: parallel = N, spatial..., output channels; reduction = window..., channels / group.
  ///   Attention: parallel = B, H, S, E; reduction = T, D.
  ///   Scan: parallel = sizes beside the axis; reduction = the axis.
  ///   Scan with operands (a recurrence; x and r): parallel = B; reduction = steps, H.
  std::vector<DimExpr> parallel, reduction;
  /// Whether the reduced dimensions are the last ones of the data (rows that lie together).
  bool rowsContiguous = true;
  /// Reduction: whether the last dimension of the data is reduced, and maybe others that are no neighbours of it.
  bool reducesLast = true;
  /// Reduction, the only one of its kernel, whose results have the size of what is kept; how many of
  /// `parallel`, the last ones, lie behind all that is reduced; whether what is reduced are neighbouring
  /// dimensions.
  bool reducesAlone = false;
  int64_t columnDims = 0;
  bool reducesNeighbours = true;
  /// Pointwise, Copy: the output dimension along which the elements of a transposed input lie
  /// together, when it is not the last one; else -1. And the type of that input.
  int64_t inputContiguous = -1;
  DType inputContiguousType = DType::F32;
  /// Copy: a transpose alone, between dense tensors: the sizes of its result, where dimensions that stay neighbours are
  /// one, and which dimension of the operand each is. Empty: not so.
  std::vector<DimExpr> movedSizes;
  std::vector<int64_t> movedFrom;
  int numReductions = 0;    ///< dependent reductions in the region (softmax 2, layer norm 2), scans too
  bool dataIndices = false; ///< gathers or scatters: needs a status channel
  bool chainedReads = false; ///< reads where the values say that it has read just before, step by step (walks of trees)
  bool serial = false;      ///< cannot be split among threads (scatter with an order)
  /// Scatters in place whose updates have no order: their sizes, by output. Whether neighbours in
  /// the last dimension are written side by side, which they are where a kernel has several outputs.
  std::map<int, std::vector<DimExpr>> updates;
  bool updatesInRows = false;
  /// The only result is a scatter whose updates have an order: how many updates and places each element beside
  /// the indices has, and how many such elements there are; whether neighbours among these lie side by side.
  struct OrderedUpdates {
    DimExpr updates, places, columns;
    bool columnsLast = true;
  };
  std::optional<OrderedUpdates> ordered;

  /// Sums of neighbours with weights along two axes (lathe/ir/Interpolation.h): sizes of the result as planes of rows and
  /// columns with `inner` elements each, the rows that it is made of, and how many neighbours there are along each.
  struct Interpolation {
    DimExpr planes;
    int64_t height = 0, width = 0, inner = 1, rowsRead = 0, tapsY = 0, tapsX = 0;
  };
  std::optional<Interpolation> interpolation;

  /// Pointwise: the size of the result's last dimension but one, where gathers read places that do not depend on it; else 0.
  int64_t sharedRows = 0;

  /// Gemm: operands are codes of 8-bit floats, whose sums over 128 of k are scaled (lathe/ir/BlockScales.h).
  bool blockScales = false;
  /// Gemm: the only result has the anchor's elements in their order, perhaps in another shape.
  bool resultInPlace = false;
  /// Gemm: tokens, heads, size where the only result is [B, heads, tokens, size] and its rows are
  /// [B, tokens], its columns [heads, size]; else empty.
  std::vector<DimExpr> resultHeads;
  /// Gemm: nothing is computed of the anchor's elements before they are stored.
  bool resultBare = false;
  /// Gemm: behind the only result come the greatest (or least) elements of its blocks (lathe/ir/BlockAmax.h).
  bool resultAmax = false;
  /// Gemm: B is two matrices side by side, and a result follows from a sum of each; `parallel` has
  /// the columns of one.
  bool resultPair = false;
  /// Gemm: the columns are heads of so many, each in the output that it belongs to; 0: not so. With
  /// resultPair the matrices are the halves of each head, and a pair of sums makes a result for
  /// each of the two; without it two neighbours do.
  int64_t pairHead = 0;
  /// With pairHead, of each output: which heads it has, and which of its dimensions are batches, tokens
  /// and heads; empty where there are others.
  struct HeadResult {
    int64_t first = 0, count = 0;
    size_t batches = 0, tokens = 1, heads = 2;
  };
  std::vector<HeadResult> headResults;
  /// Gemm, conv: an input of 16-bit floats that is read at the result's place alone, or -1.
  int residual = -1;
  /// A configuration that was asked for, or several with commas between them, the most wanted first;
  /// "": the choice is free.
  std::string wanted;
  /// What the user gave up: f32 operands may lose all but 10 bits behind the point; sums of
  /// 8-bit floats may be kept in fewer bits than f32 has.
  bool allowTf32 = false, allowReducedSums = false;
  /// Zeros in weights, blocks or two of each four, and weights that zeros of inputs meet are left out wherever that is
  /// possible, whatever the estimate says.
  bool alwaysSparse = false;
  /// The bits of a row of a product's result, and of a row of a batch, do not depend on how many there are.
  bool batchInvariant = false;

  /// Scan: an op that compares the elements of rows with each other and gives places.
  struct Selection {
    enum class Kind { TopK, Nonzero, Nms, Mark, MarkedPlaces } kind = Kind::TopK;
    DimExpr rows, length; ///< of what is compared
    DimExpr count;        ///< places of a row that are wanted
    int64_t keyBits = 32; ///< of an integer that orders as the elements do
  };
  std::optional<Selection> selection;

  /// Scan: Fourier transforms of rows of a known length.
  struct Transform {
    DimExpr rows;
    int64_t length;
    bool complexRows;  ///< neither real nor half of a spectrum
    int64_t realBytes; ///< of what is computed with
  };
  std::optional<Transform> transform;

  std::vector<ContractionOperand> operands; ///< gemm: a, b; conv: x, w; attention: q, k, v, bias if there is one
  // Conv only.
  std::vector<int64_t> window, strides, pads, dilations;
  int64_t group = 1, groupChannels = 0; ///< channels / group
  bool channelsLast = false;
  /// Filters are equal parts, one after another, each with weights other than zero in a box of taps
  /// alone: first and count by dimension, part after part. Empty: nothing is known.
  std::vector<int64_t> parts;
  /// On a CPU: the filters of a depthwise convolution in the same kernel that makes the images.
  std::optional<ContractionOperand> depthwise;
  double winogradTolerance = 0; ///< largest relative error that F(4,3) may be expected to make
  // Attention only.
  int64_t headGroup = 1; ///< query heads per key head
  bool sharesKeys = false;  ///< neighbours in the batch may have the same keys and values (keysFoundBy)
  DimExpr sequences;        ///< sharesKeys: how many different keys there are at most
  bool plainScores = false; ///< nothing but a scale comes to the products of queries and keys
  /// Keys, values and all that says how many count are inputs of the program or constants: no kernel
  /// ahead of this one in a run writes them.
  bool keysFromOutside = false;
  /// B, H, S, T, each maybe 1, over which what comes to the scores differs (AttentionOp::scoreDims); empty
  /// without. "Mask" is all of that below.
  std::vector<DimExpr> maskDims;
  bool maskHides = false;   ///< the mask hides keys: whole tiles of them may not be seen
  bool maskFlags = false;   ///< the mask lets keys through or not, without a bias
  bool biasAlone = false;   ///< the mask is a bias, operand 3, and nothing else
  bool keyMask = false;     ///< the mask is the same for all queries; nothing else but a scale comes to the scores
};

/// What a product on a CPU gains where the blocks of zeros in its weights are left out, by estimate.
struct BlockGain {
  std::string why;        ///< it is not possible; else empty
  double zeros = 0;       ///< share of blocks of 1 x 16 that are all zero
  double share = 1;       ///< of the dense product's time, at the sizes that are optimised for
  int64_t rows = 1, blocks = 0; ///< of the blocks that take the least time; how many of them there are
  bool pays = false;
};
/// None for kernels that are no product, and where nothing is known of the weights.
std::optional<BlockGain> blockGain(const KernelDesc &desc, const Target &target);

/// The ordered variants for a target; the last guard is empty. An error when
/// the target cannot run the kernel at all.
Result<std::vector<KernelVariant>> chooseVariants(const KernelDesc &desc, const Target &target);

} // namespace lathe

#endif // LATHE_CODEGEN_KERNELDESC_H
