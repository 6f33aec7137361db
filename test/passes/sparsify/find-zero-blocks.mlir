// RUN: %lathe-opt --lathe-find-zero-blocks --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-find-zero-blocks --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: %lathe-opt --lathe-find-zero-blocks --split-input-file %s | %lathe-opt --split-input-file --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --remarks-filter=lathe --remark-policy=all 2>&1 | FileCheck %s --check-prefix=SELECT

// Of 4 x 18 the blocks are 4 x 2 of one row, the last 2 columns wide, and 2 of four rows. 1, 2, 7 and -0 make
// three blocks of one row that are not all zero. What a sum of the weight is stays the same.
// CHECK-LABEL: func.func @zeros
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.nonzero_blocks = array<i64: 3, 2>}
// Stored the other way round it is another matrix: 18 x 4 with one panel.
// CHECK: lathe.matmul %arg1, %{{.*}} {lathe.nonzero_blocks = array<i64: 3, -1>, transpose_b}
// A weight without blocks of zeros, a number, an input, integers: nothing is noted.
// CHECK: lathe.matmul %arg2, %{{[a-z0-9_]*}} : 
// CHECK: lathe.matmul %arg2, %{{[a-z0-9_]*}} : 
// CHECK: lathe.matmul %arg2, %arg3 : 
// Both blocks are read for 16-bit weights that become f32 on the way.
// CHECK: lathe.matmul %arg2, %{{.*}} {lathe.nonzero_blocks = array<i64: 1, -1>}
// SELECT: matmul_0: 62 % of the blocks of 1x16 of its weights are zero; without those of 1x16 it takes 2.76 of its time by estimate: they are multiplied
module attributes {lathe.target = "x86-64-v3"} {
  func.func @zeros(%x: tensor<3x4xf32>, %z: tensor<3x18xf32>, %u: tensor<3x2xf32>, %v: tensor<2x16xf32>) -> (tensor<3x18xf32>, tensor<3x4xf32>, tensor<3x16xf32>, tensor<3x16xf32>, tensor<3x16xf32>, tensor<3x16xf32>) {
    %w = lathe.constant dense<[
      [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0],
      [0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
      [-0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
      [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0]]> : tensor<4x18xf32>
    %dense = lathe.constant dense<[
      [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
      [0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]> : tensor<2x16xf32>
    %half = lathe.constant dense<[
      [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
      [0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]> : tensor<2x16xf16>
    %number = lathe.constant dense<0.0> : tensor<2x16xf32>
    %wide = lathe.cast %half : (tensor<2x16xf16>) -> tensor<2x16xf32>
    %0 = lathe.matmul %x, %w : (tensor<3x4xf32>, tensor<4x18xf32>) -> tensor<3x18xf32>
    %1 = lathe.matmul %z, %w {transpose_b} : (tensor<3x18xf32>, tensor<4x18xf32>) -> tensor<3x4xf32>
    %2 = lathe.matmul %u, %dense : (tensor<3x2xf32>, tensor<2x16xf32>) -> tensor<3x16xf32>
    %3 = lathe.matmul %u, %number : (tensor<3x2xf32>, tensor<2x16xf32>) -> tensor<3x16xf32>
    %4 = lathe.matmul %u, %v : (tensor<3x2xf32>, tensor<2x16xf32>) -> tensor<3x16xf32>
    %5 = lathe.matmul %u, %wide : (tensor<3x2xf32>, tensor<2x16xf32>) -> tensor<3x16xf32>
    return %0, %1, %2, %3, %4, %5 : tensor<3x18xf32>, tensor<3x4xf32>, tensor<3x16xf32>, tensor<3x16xf32>, tensor<3x16xf32>, tensor<3x16xf32>
  }
}

// -----

// Nobody asks for it.
// CHECK-LABEL: func.func @never
// CHECK-NOT: nonzero_blocks
// CHECK: return
module attributes {lathe.target = "x86-64-v3", lathe.options = {sparse_weights = ["never"]}} {
  func.func @never(%u: tensor<3x2xf32>) -> tensor<3x16xf32> {
    %w = lathe.constant dense<[
      [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
      [0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]> : tensor<2x16xf32>
    %0 = lathe.matmul %u, %w : (tensor<3x2xf32>, tensor<2x16xf32>) -> tensor<3x16xf32>
    return %0 : tensor<3x16xf32>
  }
}

// -----

// The ranks of a mesh have parts of it, whose blocks are others.
// REMARK: its weights have blocks of zeros, which ranks of a mesh multiply
// CHECK-LABEL: func.func @divided
// CHECK-NOT: nonzero_blocks
// CHECK: return
module attributes {lathe.target = "x86-64-v3", lathe.options = {mesh = ["tp=2"]}} {
  func.func @divided(%u: tensor<3x2xf32>) -> tensor<3x16xf32> {
    %w = lathe.constant dense<[
      [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
      [0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]> : tensor<2x16xf32>
    %0 = lathe.matmul %u, %w : (tensor<3x2xf32>, tensor<2x16xf32>) -> tensor<3x16xf32>
    return %0 : tensor<3x16xf32>
  }
}

// -----

// Of each four neighbours along K at most two are other than zero: along the rows of the first weight, down the columns
// of the second, nowhere in the third, where one group of ten has three. 32-bit weights are not looked at.
// CHECK-LABEL: func.func @two_of_four
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.two_of_four, transpose_b}
// CHECK: lathe.matmul %arg1, %{{[a-z0-9_]*}} {lathe.two_of_four} :
// CHECK: lathe.matmul %arg0, %{{[a-z0-9_]*}} {transpose_b} :
// CHECK: lathe.matmul %arg2, %{{[a-z0-9_]*}} {lathe.nonzero_blocks = array<i64: 4, 2>, transpose_b} :
// REMARK: its weights are 2:4 sparse but for some groups of four, the first of which has its third element other than zero at k 6, column 1: they are multiplied as they are
// SELECT: matmul_0: its weights are 2:4 sparse: their zeros are left out
// SELECT: matmul_0: gemm.sparse.pingpong
// SELECT: matmul_1: its weights are 2:4 sparse: they are multiplied as they are, because no kernel without the zeros takes these sizes
module attributes {lathe.target = "sm_90a", lathe.options = {sparse_weights = ["always"]}} {
  func.func @two_of_four(%x: tensor<64x8xbf16>, %z: tensor<64x4xf16>, %f: tensor<64x8xf32>) -> (tensor<64x8xbf16>, tensor<64x8xf16>, tensor<64x5xbf16>, tensor<64x1xf32>) {
    %w = lathe.constant dense<[
      [1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0], [0.0, 2.0, 4.0, 0.0, 0.0, 0.0, 5.0, 1.0],
      [1.0, 0.0, 0.0, 9.0, 3.0, 2.0, 0.0, 0.0], [0.0, 2.0, 4.0, -0.0, 0.0, 0.0, 0.0, 1.0],
      [1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0], [0.0, 2.0, 4.0, 0.0, 0.0, 0.0, 5.0, 1.0],
      [1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0], [0.0, 2.0, 4.0, 0.0, 0.0, 0.0, 5.0, 1.0]]> : tensor<8x8xbf16>
    %down = lathe.constant dense<[
      [1.0, 0.0, 3.0, 0.0, 1.0, 1.0, 1.0, 1.0], [0.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0],
      [1.0, 5.0, 0.0, 9.0, 3.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, -0.0, 0.0, 0.0, 0.0, 1.0]]> : tensor<4x8xf16>
    %almost = lathe.constant dense<[
      [1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0], [0.0, 2.0, 4.0, 0.0, 1.0, 1.0, 5.0, 0.0],
      [1.0, 0.0, 0.0, 9.0, 3.0, 2.0, 0.0, 0.0], [0.0, 2.0, 4.0, -0.0, 0.0, 0.0, 0.0, 1.0],
      [1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0]]> : tensor<5x8xbf16>
    %wide = lathe.constant dense<[[1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0]]> : tensor<1x8xf32>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<64x8xbf16>, tensor<8x8xbf16>) -> tensor<64x8xbf16>
    %1 = lathe.matmul %z, %down : (tensor<64x4xf16>, tensor<4x8xf16>) -> tensor<64x8xf16>
    %2 = lathe.matmul %x, %almost {transpose_b} : (tensor<64x8xbf16>, tensor<5x8xbf16>) -> tensor<64x5xbf16>
    %3 = lathe.matmul %f, %wide {transpose_b} : (tensor<64x8xf32>, tensor<1x8xf32>) -> tensor<64x1xf32>
    return %0, %1, %2, %3 : tensor<64x8xbf16>, tensor<64x8xf16>, tensor<64x5xbf16>, tensor<64x1xf32>
  }
}
