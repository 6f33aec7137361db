// RUN: %lathe-opt --lathe-fuse --lathe-horizontal-fusion --lathe-assign-roles --lathe-select %s | FileCheck %s

// Small kernels over one value become one of several results, each with blocks of its own; not
// where one needs what another makes, nor on a CPU.

module attributes {lathe.target = "sm_90a"} {
  // CHECK-LABEL: @together
  // CHECK: lathe.kernel "{{.*}}" pointwise
  // CHECK-SAME: -> (tensor<1x512x32x128xbf16>, tensor<1x512x8x128xbf16>)
  // CHECK-SAME: grid [2560, 1, 1]
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @together(%y: tensor<1x512x48x128xbf16>) -> (tensor<1x512x32x128xbf16>, tensor<1x512x8x128xbf16>) {
    %0 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x512x48x128xbf16>) -> tensor<1x512x32x128xbf16>
    %1 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x512x48x128xbf16>) -> tensor<1x512x8x128xbf16>
    %2 = lathe.neg %0 : (tensor<1x512x32x128xbf16>) -> tensor<1x512x32x128xbf16>
    %3 = lathe.exp %1 : (tensor<1x512x8x128xbf16>) -> tensor<1x512x8x128xbf16>
    return %2, %3 : tensor<1x512x32x128xbf16>, tensor<1x512x8x128xbf16>
  }

  // The second reads a product of the first.
  // CHECK-LABEL: @apart
  // CHECK-COUNT-2: lathe.kernel "{{.*}}" pointwise
  func.func @apart(%y: tensor<64x64xf32>, %b: tensor<64x16xf32>) -> (tensor<64x16xf32>, tensor<64x16xf32>) {
    %0 = lathe.neg %y : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = lathe.matmul %0, %b : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
    %2 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<16>], steps = array<i64: 1, 1>} : (tensor<64x64xf32>) -> tensor<64x16xf32>
    %3 = lathe.matmul %1, %b {transpose_b} : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x64xf32>
    %4 = lathe.slice %3 {starts = [#lathe.dim<0>, #lathe.dim<16>], steps = array<i64: 1, 1>} : (tensor<64x64xf32>) -> tensor<64x16xf32>
    %5 = lathe.mul %2, %4 : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
    return %5, %1 : tensor<64x16xf32>, tensor<64x16xf32>
  }
}
