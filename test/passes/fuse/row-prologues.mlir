// RUN: %lathe-opt --lathe-fuse --lathe-select %s | FileCheck %s

// A product of one row makes the norm of its row itself; one of several rows does not, and neither
// do products whose rows do not fit into one round of a block.

module attributes {lathe.target = "sm_90a"} {
  // Two products read the norm: each has it.
  // CHECK-LABEL: @one_row
  // CHECK-NOT: lathe.kernel {{.*}} reduction
  // CHECK: lathe.kernel "matmul{{.*}}" gemm
  // CHECK-SAME: gemv.row.
  // CHECK: lathe.reduce
  // CHECK: lathe.matmul
  // CHECK: lathe.kernel "matmul{{.*}}" gemm
  // CHECK-SAME: gemv.row.
  // CHECK: lathe.reduce
  // CHECK: lathe.matmul
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @one_row(%x: tensor<1x64xbf16>) -> (tensor<1x32xbf16>, tensor<1x16xbf16>) {
    %w = lathe.constant #lathe.joined<0, [dense<1.0> : tensor<16x64xbf16>, dense<2.0> : tensor<16x64xbf16>]> : tensor<32x64xbf16>
    %u = lathe.constant #lathe.joined<0, [dense<1.0> : tensor<8x64xbf16>, dense<2.0> : tensor<8x64xbf16>]> : tensor<16x64xbf16>
    %n = lathe.constant dense<64.0> : tensor<f32>
    %f = lathe.cast %x : (tensor<1x64xbf16>) -> tensor<1x64xf32>
    %q = lathe.mul %f, %f : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x64xf32>
    %s = lathe.reduce %q {axes = array<i64: 1>, keepdims = true, kind = #lathe.reduce_kind<sum>} : (tensor<1x64xf32>) -> tensor<1x1xf32>
    %d = lathe.div %s, %n : (tensor<1x1xf32>, tensor<f32>) -> tensor<1x1xf32>
    %r = lathe.rsqrt %d : (tensor<1x1xf32>) -> tensor<1x1xf32>
    %m = lathe.mul %f, %r : (tensor<1x64xf32>, tensor<1x1xf32>) -> tensor<1x64xf32>
    %y = lathe.cast %m : (tensor<1x64xf32>) -> tensor<1x64xbf16>
    %0 = lathe.matmul %y, %w {transpose_b} : (tensor<1x64xbf16>, tensor<32x64xbf16>) -> tensor<1x32xbf16>
    %1 = lathe.matmul %y, %u {transpose_b} : (tensor<1x64xbf16>, tensor<16x64xbf16>) -> tensor<1x16xbf16>
    return %0, %1 : tensor<1x32xbf16>, tensor<1x16xbf16>
  }

  // CHECK-LABEL: @rows
  // CHECK: lathe.kernel "{{.*}}" reduction
  func.func @rows(%x: tensor<2x64xbf16>) -> tensor<2x32xbf16> {
    %w = lathe.constant #lathe.joined<0, [dense<1.0> : tensor<16x64xbf16>, dense<2.0> : tensor<16x64xbf16>]> : tensor<32x64xbf16>
    %f = lathe.cast %x : (tensor<2x64xbf16>) -> tensor<2x64xf32>
    %s = lathe.reduce %f {axes = array<i64: 1>, keepdims = true, kind = #lathe.reduce_kind<sum>} : (tensor<2x64xf32>) -> tensor<2x1xf32>
    %m = lathe.mul %f, %s : (tensor<2x64xf32>, tensor<2x1xf32>) -> tensor<2x64xf32>
    %y = lathe.cast %m : (tensor<2x64xf32>) -> tensor<2x64xbf16>
    %0 = lathe.matmul %y, %w {transpose_b} : (tensor<2x64xbf16>, tensor<32x64xbf16>) -> tensor<2x32xbf16>
    return %0 : tensor<2x32xbf16>
  }

  // CHECK-LABEL: @deep
  // CHECK: lathe.kernel "{{.*}}" reduction
  func.func @deep(%x: tensor<1x4608xbf16>) -> tensor<1x32xbf16> {
    %w = lathe.constant #lathe.joined<0, [dense<1.0> : tensor<16x4608xbf16>, dense<2.0> : tensor<16x4608xbf16>]> : tensor<32x4608xbf16>
    %f = lathe.cast %x : (tensor<1x4608xbf16>) -> tensor<1x4608xf32>
    %s = lathe.reduce %f {axes = array<i64: 1>, keepdims = true, kind = #lathe.reduce_kind<sum>} : (tensor<1x4608xf32>) -> tensor<1x1xf32>
    %m = lathe.mul %f, %s : (tensor<1x4608xf32>, tensor<1x1xf32>) -> tensor<1x4608xf32>
    %y = lathe.cast %m : (tensor<1x4608xf32>) -> tensor<1x4608xbf16>
    %0 = lathe.matmul %y, %w {transpose_b} : (tensor<1x4608xbf16>, tensor<32x4608xbf16>) -> tensor<1x32xbf16>
    return %0 : tensor<1x32xbf16>
  }
}
