// RUN: %lathe-opt --lathe-fuse --lathe-horizontal-fusion --lathe-assign-roles --lathe-select %s | FileCheck %s

// Small kernels over one value become one of several results, each with blocks of its own; not
// where one needs what another makes, nor on a CPU.

!heads = tensor<?x48x128xbf16, #lathe.t<[T, 48, 128]>>
!queries = tensor<?x32x128xbf16, #lathe.t<[T, 32, 128]>>
!both = tensor<?x16x128xbf16, #lathe.t<[T, 16, 128]>>
!updates = tensor<?x2x8x128xbf16, #lathe.t<[T, 2, 8, 128]>>
!places = tensor<?x2x1xi64, #lathe.t<[T, 2, 1]>>
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

  // Rows that go to places of an input, in any order, have blocks beside those of another result: 2 T of 128 threads
  // for T * 2 * 8 * 128 elements and 4 T for T * 32 * 128, eight a thread. The input is written in place.
  // CHECK-LABEL: @beside_updates
  // CHECK: lathe.kernel "{{.*}}" pointwise
  // CHECK-SAME: buffer out readwrite bf16 [4096, 8, 128] align 64 alias
  // CHECK-SAME: grid [6*T, 1, 1]
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  // Where several updates may go to one place, they keep their order: a kernel of their own.
  // CHECK-LABEL: @beside_sums
  // CHECK-COUNT-2: lathe.kernel
  lathe.symbol @T {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "y[0]"}
  func.func @beside_updates(%y: !heads, %at: !places, %pool: tensor<4096x8x128xbf16>) -> (!queries, tensor<4096x8x128xbf16>) {
    %0 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1>} : (!heads) -> !queries
    %1 = lathe.abs %0 : (!queries) -> !queries
    %2 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<32>, #lathe.dim<0>], steps = array<i64: 1, 1, 1>} : (!heads) -> !both
    %3 = lathe.reshape %2 : (!both) -> !updates
    %4 = lathe.scatter_nd %pool, %at, %3 : (tensor<4096x8x128xbf16>, !places, !updates) -> tensor<4096x8x128xbf16>
    return %1, %4 : !queries, tensor<4096x8x128xbf16>
  }
  func.func @beside_sums(%y: !heads, %at: !places, %pool: tensor<4096x8x128xbf16>) -> (!queries, tensor<4096x8x128xbf16>) {
    %0 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1>} : (!heads) -> !queries
    %1 = lathe.exp %0 : (!queries) -> !queries
    %2 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<32>, #lathe.dim<0>], steps = array<i64: 1, 1, 1>} : (!heads) -> !both
    %3 = lathe.reshape %2 : (!both) -> !updates
    %4 = lathe.scatter_nd %pool, %at, %3 {reduction = #lathe.reduce_kind<sum>} : (tensor<4096x8x128xbf16>, !places, !updates) -> tensor<4096x8x128xbf16>
    return %1, %4 : !queries, tensor<4096x8x128xbf16>
  }
}
