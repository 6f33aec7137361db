// RUN: sed s/TARGET/sm_90a/ %s | %lathe-opt --lathe-decompose-composites --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --mlir-print-local-scope | FileCheck %s
// RUN: sed s/TARGET/sm_80/ %s | %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels | FileCheck %s --check-prefix=APART

// What a result will be quantized by next time is found by the product that quantizes it by what is known:
// blocks of 16 x 64 elements have theirs, and a small kernel behind takes the greatest of those.
// CHECK-LABEL: func.func @delayed
// CHECK: %[[ALL:.*]]:2 = lathe.kernel {{.*}} gemm
// CHECK-SAME: -> (tensor<512x384xf8E4M3FN>, tensor<32x6xbf16>)
// CHECK: lathe.matmul
// CHECK: lathe.div
// CHECK: lathe.cast
// CHECK: lathe.reshape {{.*}} -> tensor<32x16x6x64xbf16>
// CHECK: lathe.reduce {{.*}}axes = array<i64: 1, 3>
// CHECK: lathe.kernel {{.*}} reduction {{.*}}%[[ALL]]#1
// CHECK-NOT: lathe.kernel
// CHECK: return %[[ALL]]#0
// APART-LABEL: func.func @delayed
// APART: = lathe.kernel {{.*}} gemm {{.*}} -> (tensor<512x384xbf16>)
// APART: lathe.kernel {{.*}} reduction

// Or by the same result: it is stored, and its greatest element is known without reading it again.
// CHECK-LABEL: func.func @now
// CHECK: %[[ALL:.*]]:2 = lathe.kernel {{.*}} gemm {{.*}} -> (tensor<512x384xbf16>, tensor<32x6xbf16>)
// CHECK: %[[MOST:.*]] = lathe.kernel {{.*}} reduction {{.*}}%[[ALL]]#1
// CHECK: = lathe.kernel {{.*}} pointwise
// CHECK: return

// Of gated pairs, too.
// CHECK-LABEL: func.func @gated
// CHECK: :2 = lathe.kernel {{.*}} gemm
// CHECK-SAME: -> (tensor<512x192xf8E4M3FN>, tensor<32x3xbf16>)

// Rows or columns that are no whole blocks, few rows, and results that are not staged in blocks leave it to a
// reduction of their own.
// CHECK-LABEL: func.func @odd
// CHECK: = lathe.kernel {{.*}} gemm {{.*}} -> (tensor<510x384xbf16>)
// CHECK: lathe.kernel {{.*}} reduction
// CHECK-LABEL: func.func @few
// CHECK: = lathe.kernel {{.*}} gemm {{.*}} -> (tensor<64x384xbf16>)
// CHECK: lathe.kernel {{.*}} reduction
// CHECK-LABEL: func.func @wide
// CHECK: = lathe.kernel {{.*}} gemm {{.*}} -> (tensor<512x384xf32>)
// CHECK: lathe.kernel {{.*}} reduction

// Whether anything overflows is asked of numbers, and found on the way too.
// CHECK-LABEL: func.func @overflow
// CHECK: %[[ALL:.*]]:2 = lathe.kernel {{.*}} gemm {{.*}} -> (tensor<512x384xf16>, tensor<32x6xf32>)
// CHECK: lathe.is_inf
// CHECK: lathe.kernel {{.*}} reduction {{.*}}%[[ALL]]#1 {{.*}} -> (tensor<i1>)
// CHECK: return %[[ALL]]#0
module attributes {lathe.target = "TARGET"} {
  func.func @delayed(%a: tensor<512x256xbf16>, %s: tensor<bf16>) -> (tensor<512x384xf8E4M3FN>, tensor<bf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 196608, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<384x256xbf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<512x256xbf16>, tensor<384x256xbf16>) -> tensor<512x384xbf16>
    %1 = lathe.div %0, %s : (tensor<512x384xbf16>, tensor<bf16>) -> tensor<512x384xbf16>
    %2 = lathe.cast %1 : (tensor<512x384xbf16>) -> tensor<512x384xf8E4M3FN>
    %3 = lathe.abs %0 : (tensor<512x384xbf16>) -> tensor<512x384xbf16>
    %4 = lathe.reduce %3 {axes = array<i64: 0, 1>, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<512x384xbf16>) -> tensor<bf16>
    return %2, %4 : tensor<512x384xf8E4M3FN>, tensor<bf16>
  }
  func.func @now(%a: tensor<512x256xbf16>) -> (tensor<512x384xf8E4M3FN>, tensor<1x1xbf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 196608, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<384x256xbf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<512x256xbf16>, tensor<384x256xbf16>) -> tensor<512x384xbf16>
    %1 = lathe.abs %0 : (tensor<512x384xbf16>) -> tensor<512x384xbf16>
    %2 = lathe.reduce %1 {axes = array<i64: 0, 1>, keepdims = true, kind = #lathe.reduce_kind<max>} : (tensor<512x384xbf16>) -> tensor<1x1xbf16>
    %3 = lathe.div %0, %2 : (tensor<512x384xbf16>, tensor<1x1xbf16>) -> tensor<512x384xbf16>
    %4 = lathe.cast %3 : (tensor<512x384xbf16>) -> tensor<512x384xf8E4M3FN>
    return %4, %2 : tensor<512x384xf8E4M3FN>, tensor<1x1xbf16>
  }
  func.func @gated(%a: tensor<512x256xbf16>, %s: tensor<bf16>) -> (tensor<512x192xf8E4M3FN>, tensor<bf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 196608, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<384x256xbf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<512x256xbf16>, tensor<384x256xbf16>) -> tensor<512x384xbf16>
    %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<512x384xbf16>) -> tensor<512x192xbf16>
    %2 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<192>], steps = array<i64: 1, 1>} : (tensor<512x384xbf16>) -> tensor<512x192xbf16>
    %3 = lathe.mul %1, %2 : (tensor<512x192xbf16>, tensor<512x192xbf16>) -> tensor<512x192xbf16>
    %4 = lathe.abs %3 : (tensor<512x192xbf16>) -> tensor<512x192xbf16>
    %5 = lathe.reduce %4 {axes = array<i64: 0, 1>, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<512x192xbf16>) -> tensor<bf16>
    %6 = lathe.div %3, %s : (tensor<512x192xbf16>, tensor<bf16>) -> tensor<512x192xbf16>
    %7 = lathe.cast %6 : (tensor<512x192xbf16>) -> tensor<512x192xf8E4M3FN>
    return %7, %5 : tensor<512x192xf8E4M3FN>, tensor<bf16>
  }
  func.func @odd(%a: tensor<510x256xbf16>) -> (tensor<510x384xbf16>, tensor<bf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 196608, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<384x256xbf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<510x256xbf16>, tensor<384x256xbf16>) -> tensor<510x384xbf16>
    %1 = lathe.abs %0 : (tensor<510x384xbf16>) -> tensor<510x384xbf16>
    %2 = lathe.reduce %1 {axes = array<i64: 0, 1>, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<510x384xbf16>) -> tensor<bf16>
    return %0, %2 : tensor<510x384xbf16>, tensor<bf16>
  }
  func.func @few(%a: tensor<64x256xbf16>) -> (tensor<64x384xbf16>, tensor<bf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 196608, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<384x256xbf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<64x256xbf16>, tensor<384x256xbf16>) -> tensor<64x384xbf16>
    %1 = lathe.abs %0 : (tensor<64x384xbf16>) -> tensor<64x384xbf16>
    %2 = lathe.reduce %1 {axes = array<i64: 0, 1>, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<64x384xbf16>) -> tensor<bf16>
    return %0, %2 : tensor<64x384xbf16>, tensor<bf16>
  }
  func.func @wide(%a: tensor<512x256xbf16>) -> (tensor<512x384xf32>, tensor<f32>) {
    %w = lathe.constant #lathe.weight<"random", 0, 196608, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<384x256xbf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<512x256xbf16>, tensor<384x256xbf16>) -> tensor<512x384xbf16>
    %1 = lathe.cast %0 : (tensor<512x384xbf16>) -> tensor<512x384xf32>
    %2 = lathe.exp %1 : (tensor<512x384xf32>) -> tensor<512x384xf32>
    %3 = lathe.abs %2 : (tensor<512x384xf32>) -> tensor<512x384xf32>
    %4 = lathe.reduce %3 {axes = array<i64: 0, 1>, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<512x384xf32>) -> tensor<f32>
    return %2, %4 : tensor<512x384xf32>, tensor<f32>
  }
  func.func @overflow(%a: tensor<512x256xf16>, %r: tensor<512x384xf16>) -> (tensor<512x384xf16>, tensor<i1>) {
    %w = lathe.constant #lathe.weight<"random", 0, 196608, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<384x256xf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<512x256xf16>, tensor<384x256xf16>) -> tensor<512x384xf16>
    %1 = lathe.add %0, %r : (tensor<512x384xf16>, tensor<512x384xf16>) -> tensor<512x384xf16>
    %2 = lathe.is_inf %1 : (tensor<512x384xf16>) -> tensor<512x384xi1>
    %3 = lathe.reduce %2 {axes = array<i64: 0, 1>, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<512x384xi1>) -> tensor<i1>
    return %1, %3 : tensor<512x384xf16>, tensor<i1>
  }
}
