// RUN: sed s/TARGET/sm_90a/ %s | %lathe-opt --lathe-fuse --lathe-name-kernels | FileCheck %s
// RUN: sed s/TARGET/sm_80/ %s | %lathe-opt --lathe-fuse --lathe-name-kernels | FileCheck %s --check-prefix=APART

// Two halves of the columns that meet point by point are one result where a tile can have columns
// of both; else the product is a kernel by itself.
// CHECK-LABEL: func.func @gate
// CHECK: lathe.kernel {{.*}} gemm
// CHECK-NOT: lathe.kernel
// CHECK: lathe.matmul
// CHECK: lathe.slice
// CHECK: lathe.slice
// CHECK: lathe.mul
// CHECK-NOT: lathe.kernel
// CHECK: return
// APART-LABEL: func.func @gate
// APART: lathe.kernel {{.*}} gemm
// APART: lathe.kernel {{.*}} pointwise
module attributes {lathe.target = "TARGET"} {
  func.func @gate(%a: tensor<64x256xbf16>) -> tensor<64x384xbf16> {
    %w = lathe.constant #lathe.weight<"random", 0, 393216, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<768x256xbf16>
    %0 = lathe.matmul %a, %w {transpose_b} : (tensor<64x256xbf16>, tensor<768x256xbf16>) -> tensor<64x768xbf16>
    %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<64x768xbf16>) -> tensor<64x384xbf16>
    %2 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<384>], steps = array<i64: 1, 1>} : (tensor<64x768xbf16>) -> tensor<64x384xbf16>
    %3 = lathe.sigmoid %1 : (tensor<64x384xbf16>) -> tensor<64x384xbf16>
    %4 = lathe.mul %1, %3 : (tensor<64x384xbf16>, tensor<64x384xbf16>) -> tensor<64x384xbf16>
    %5 = lathe.mul %4, %2 : (tensor<64x384xbf16>, tensor<64x384xbf16>) -> tensor<64x384xbf16>
    return %5 : tensor<64x384xbf16>
  }
}
