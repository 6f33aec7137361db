//===- LatheSamplingOps.td - read at places that values name -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops whose result elements look at many places of an operand, chosen by other values on the way.
//
//===----------------------------------------------------------------------===//
include "lathe/ir/LatheBase.td"

def Lathe_ArgPoolOp : Lathe_StructuredOp<"arg_pool"> {
  let summary = "y = the place (i64) in all of x, in row-major order, of the maximum of each window";
  let description = [{
    x [N, C, image...], y [N, C, places...] of lathe.pool with the same windows and kind max. Of equal
    elements the first counts, NaN is greater than all numbers; 0 where a window has no element.
    `column_major`: the pixels of a channel are counted with the first dimension innermost.
    arg_pool_c1: ranks are equal, 3 or more, y is i64; arg_pool_c2: attribute lengths match the spatial
    rank; arg_pool_c3: windows, strides and dilations are positive.
  }];
  let arguments = (ins Lathe_Tensor:$x, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations, UnitAttr:$column_major);
  let results = (outs Lathe_Tensor:$y);
  let hasVerifier = 1;
}

def Lathe_RoiAlignOp : Lathe_StructuredOp<"roi_align"> {
  let summary = "y[r, c, i, j] = mean or maximum of x, interpolated at a grid of places in bin (i, j) of region r";
  let description = [{
    x [N, C, H, W], rois [R, 4] with x1, y1, x2, y2, batch [R] (integers below N), y [R, C, rows, columns];
    He et al., Mask R-CNN, section 3. `channels_last`: x is [N, H, W, C] and y [R, rows, columns, C]. Corners are times `scale`; `half_pixel` takes 1/2 from them, otherwise
    a region is at least one pixel high and wide. A bin has `samples` places a side, or, of 0, as many as it
    has pixels, rounded up. A place more than one pixel outside gives 0. The maximum is that of the weighted
    neighbours. roi_align_c1: ranks are 4, 2, 1 and 4; roi_align_c2: sizes agree; roi_align_c3: x, rois and y
    are floats of one type; roi_align_c4: samples are not negative.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$rois, Lathe_Tensor:$batch, F64Attr:$scale,
                       I64Attr:$samples, UnitAttr:$half_pixel, UnitAttr:$maximum, UnitAttr:$channels_last);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    /// Which dimension of x and y has the channels, and which is the first of the image.
    unsigned channelDim() { return getChannelsLast() ? 3 : 1; }
    unsigned imageDim() { return getChannelsLast() ? 1 : 2; }
  }];
  let hasVerifier = 1;
}

def Lathe_TreeWalkOp : Lathe_StructuredOp<"tree_walk"> {
  let summary = "y[n, t] = the leaf (i32) that row n of x reaches in decision tree t";
  let description = [{
    x [N, F], of floats or of i32; nodes [M, 4] (i32): feature f, or -1 - f where NaN goes left; the bits of the split, of an
    x of f32 or i32; left; right. roots [T] (i32). splits [M]: of an x of other types. At node k a row goes left where x[n, feature] <= its
    split, else right; a number l below 0 is leaf -1 - l. A row takes `depth` steps, fewer where it is at a leaf before. Nodes name nodes and features
    that there are: who makes the op sees to it. `ends_at_nodes`: no such number is below 0, a leaf is a node that names
    itself on both sides, and y is its number. `walks_apart`: several values are read at each leaf, so that a
    kernel of its own walks, once.
    tree_walk_c1: ranks are 2, 2, 1, 1 and 2, and sizes agree; tree_walk_c2: nodes, roots and y are i32, x
    floats or i32; tree_walk_c3: there are splits where x is neither f32 nor i32, and they have its type.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$nodes, Lathe_Tensor:$roots, Optional<Lathe_Tensor>:$splits,
                       I64Attr:$depth, UnitAttr:$walks_apart, UnitAttr:$ends_at_nodes);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let hasVerifier = 1;
}
