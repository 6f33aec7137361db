// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles %s | %lathe-opt | FileCheck %s
// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | FileCheck %s --check-prefix=FUNCTION

// What is what in a kernel: ops by their position, inputs and outputs by their place.

module attributes {lathe.target = "sm_90a"} {
  // FUNCTION: func.func @residual
  // FUNCTION-SAME: lathe.roles = #lathe.roles<anchor = 1, operands = [buffer 0, computed], residual = 1, in_place>
  // CHECK-LABEL: @residual
  // CHECK: lathe.kernel "matmul_add" gemm
  // CHECK-SAME: roles = #lathe.roles<anchor = 0, operands = [buffer 0, buffer 1 weight], residual = 2, in_place>
  func.func @residual(%x: tensor<64x32xbf16>, %r: tensor<64x64xbf16>) -> tensor<64x64xbf16> {
    %w = lathe.constant #lathe.weight<"m", 0, 4096, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<32x64xbf16>
    %0 = lathe.matmul %x, %w : (tensor<64x32xbf16>, tensor<32x64xbf16>) -> tensor<64x64xbf16>
    %1 = lathe.add %0, %r : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    return %1 : tensor<64x64xbf16>
  }

  // Rows of all batches are one matrix; the result goes to [B, heads, tokens, size].
  // CHECK-LABEL: @heads
  // CHECK: lathe.kernel "matmul" gemm
  // CHECK-SAME: roles = #lathe.roles<anchor = 0, operands = [buffer 0, buffer 1 weight], folded_rows, bare, heads_transposed>
  func.func @heads(%x: tensor<2x16x32xbf16>, %k: tensor<2x2x16x32xbf16>) -> tensor<2x2x16x32xbf16> {
    %w = lathe.constant #lathe.weight<"m", 0, 4096, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<32x64xbf16>
    %0 = lathe.matmul %x, %w : (tensor<2x16x32xbf16>, tensor<32x64xbf16>) -> tensor<2x16x64xbf16>
    %1 = lathe.reshape %0 : (tensor<2x16x64xbf16>) -> tensor<2x16x2x32xbf16>
    %2 = lathe.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x16x2x32xbf16>) -> tensor<2x2x16x32xbf16>
    %3 = lathe.attention %2, %k, %k {scale = 1.000000e+00 : f64} : (tensor<2x2x16x32xbf16>, tensor<2x2x16x32xbf16>, tensor<2x2x16x32xbf16>) -> tensor<2x2x16x32xbf16>
    return %3 : tensor<2x2x16x32xbf16>
  }

  // Columns of neighbours behind what is reduced, alone in their kernel.
  // CHECK-LABEL: @columns
  // CHECK: lathe.kernel "reduce" reduction
  // CHECK-SAME: roles = #lathe.roles<anchor = 0, operands = [buffer 0], columns = 1, in_place>
  func.func @columns(%x: tensor<64x32xf32>) -> tensor<32xf32> {
    %0 = lathe.reduce %x {axes = array<i64: 0>, keepdims = false, kind = #lathe.reduce_kind<sum>} : (tensor<64x32xf32>) -> tensor<32xf32>
    return %0 : tensor<32xf32>
  }

  // Input neighbours are not the output's. A kernel with nothing to say has no roles.
  // CHECK-LABEL: @transpose
  // CHECK: lathe.kernel "{{.*}}" {{.*}} attributes {roles = #lathe.roles<transpose = 0>}
  // CHECK-LABEL: @nothing
  // CHECK-NOT: roles
  // CHECK: return
  func.func @transpose(%x: tensor<64x32xf32>) -> tensor<32x64xf32> {
    %0 = lathe.transpose %x {perm = array<i64: 1, 0>} : (tensor<64x32xf32>) -> tensor<32x64xf32>
    return %0 : tensor<32x64xf32>
  }
  func.func @nothing(%x: tensor<64xf32>) -> tensor<64xf32> {
    %0 = lathe.neg %x : (tensor<64xf32>) -> tensor<64xf32>
    return %0 : tensor<64xf32>
  }

  // A bias with -inf for many heads hides tiles of keys; a row of keys is the same for all queries.
  // CHECK-LABEL: @masks
  // CHECK: lathe.kernel "attention{{.*}}" attention
  // CHECK-SAME: mask_hides>
  // CHECK: lathe.kernel "attention{{.*}}" attention
  // CHECK-SAME: key_mask>
  // CHECK: lathe.kernel "attention{{.*}}" attention
  // CHECK-NOT: mask
  // CHECK: return
  func.func @masks(%q: tensor<2x8x64x32xbf16>, %m: tensor<64x64xbf16>, %keys: tensor<2x8x1x64xbf16>) -> (tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>) {
    %0 = lathe.attention %q, %q, %q bias %m {scale = 1.000000e+00 : f64} : (tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>, tensor<64x64xbf16>) -> tensor<2x8x64x32xbf16>
    %1 = lathe.attention %q, %q, %q bias %keys {scale = 1.000000e+00 : f64} : (tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>, tensor<2x8x1x64xbf16>) -> tensor<2x8x64x32xbf16>
    %2 = lathe.attention %q, %q, %q {scale = 1.000000e+00 : f64} : (tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>) -> tensor<2x8x64x32xbf16>
    return %0, %1, %2 : tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>, tensor<2x8x64x32xbf16>
  }
}
