// RUN: %lathe-opt --lathe-merge-products %s | FileCheck %s

// Queries and keys of one value: one product, and strided views of it, transposed by attention alone.
// CHECK-LABEL: module @cuda
// CHECK: %[[W:.*]] = lathe.constant #lathe.joined<1, [dense<1.000000e+00> : tensor<64x128xf16>, dense<2.000000e+00> : tensor<64x64xf16>]> : tensor<64x192xf16>
// CHECK: %[[M:.*]] = lathe.matmul %arg0, %[[W]]
// CHECK: %[[B:.*]] = lathe.constant #lathe.joined<0, [dense<3.000000e+00> : tensor<128xf16>, dense<4.000000e+00> : tensor<64xf16>]> : tensor<192xf16>
// CHECK: %[[A:.*]] = lathe.add %[[M]], %[[B]]
// CHECK: %[[R:.*]] = lathe.reshape %[[A]] : (tensor<2x5x192xf16>) -> tensor<2x5x6x32xf16>
// CHECK: %[[Q:.*]] = lathe.slice %[[R]] {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>
// CHECK-SAME: tensor<2x5x4x32xf16, #lathe.t<[2, 5, 4, 32], layout = #lathe.phys<[2, 5, 6, 32]>>>
// CHECK: lathe.transpose %[[Q]] {perm = array<i64: 0, 2, 1, 3>}
// CHECK: %[[K:.*]] = lathe.slice %[[R]] {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<4>
// CHECK: lathe.transpose %[[K]] {perm = array<i64: 0, 2, 1, 3>}
// CHECK-NOT: lathe.matmul
module @cuda attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<2x5x64xf16>) -> tensor<2x4x5x32xf16> {
    %wq = lathe.constant dense<1.0> : tensor<64x128xf16>
    %wk = lathe.constant dense<2.0> : tensor<64x64xf16>
    %bq = lathe.constant dense<3.0> : tensor<128xf16>
    %bk = lathe.constant dense<4.0> : tensor<64xf16>
    %0 = lathe.matmul %x, %wq : (tensor<2x5x64xf16>, tensor<64x128xf16>) -> tensor<2x5x128xf16>
    %1 = lathe.add %0, %bq : (tensor<2x5x128xf16>, tensor<128xf16>) -> tensor<2x5x128xf16>
    %2 = lathe.reshape %1 : (tensor<2x5x128xf16>) -> tensor<2x5x4x32xf16>
    %3 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x32xf16>) -> tensor<2x4x5x32xf16>
    %4 = lathe.matmul %x, %wk : (tensor<2x5x64xf16>, tensor<64x64xf16>) -> tensor<2x5x64xf16>
    %5 = lathe.add %4, %bk : (tensor<2x5x64xf16>, tensor<64xf16>) -> tensor<2x5x64xf16>
    %6 = lathe.reshape %5 : (tensor<2x5x64xf16>) -> tensor<2x5x2x32xf16>
    %7 = lathe.transpose %6 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x2x32xf16>) -> tensor<2x2x5x32xf16>
    %8 = lathe.attention %3, %7, %7 {scale = 1.0 : f64} : (tensor<2x4x5x32xf16>, tensor<2x2x5x32xf16>, tensor<2x2x5x32xf16>) -> tensor<2x4x5x32xf16>
    return %8 : tensor<2x4x5x32xf16>
  }
}

// Slices that a model cuts are views too; a caller gets no view.
// CHECK-LABEL: module @split
// CHECK: lathe.reshape %arg0
// CHECK-NEXT: lathe.transpose
// CHECK: lathe.slice {{.*}}lathe.view
// CHECK: lathe.slice {{.*}}lathe.view
// CHECK-LABEL: @caller
// CHECK-NOT: lathe.view
// CHECK: return
module @split attributes {lathe.target = "sm_90a"} {
  func.func @main(%y: tensor<1x5x128xf16>) -> (tensor<1x2x5x32xf16>, tensor<1x2x5x32xf16>) {
    %0 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1>} : (tensor<1x5x128xf16>) -> tensor<1x5x64xf16>
    %1 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<64>], steps = array<i64: 1, 1, 1>} : (tensor<1x5x128xf16>) -> tensor<1x5x64xf16>
    %2 = lathe.reshape %0 : (tensor<1x5x64xf16>) -> tensor<1x5x2x32xf16>
    %3 = lathe.reshape %1 : (tensor<1x5x64xf16>) -> tensor<1x5x2x32xf16>
    %4 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x5x2x32xf16>) -> tensor<1x2x5x32xf16>
    %5 = lathe.transpose %3 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x5x2x32xf16>) -> tensor<1x2x5x32xf16>
    %6 = lathe.neg %4 : (tensor<1x2x5x32xf16>) -> tensor<1x2x5x32xf16>
    %7 = lathe.neg %5 : (tensor<1x2x5x32xf16>) -> tensor<1x2x5x32xf16>
    return %6, %7 : tensor<1x2x5x32xf16>, tensor<1x2x5x32xf16>
  }
  func.func @caller(%y: tensor<1x5x128xf16>) -> (tensor<1x5x2x32xf16>, tensor<1x5x2x32xf16>) {
    %0 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1>} : (tensor<1x5x128xf16>) -> tensor<1x5x64xf16>
    %1 = lathe.slice %y {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<64>], steps = array<i64: 1, 1, 1>} : (tensor<1x5x128xf16>) -> tensor<1x5x64xf16>
    %2 = lathe.reshape %0 : (tensor<1x5x64xf16>) -> tensor<1x5x2x32xf16>
    %3 = lathe.reshape %1 : (tensor<1x5x64xf16>) -> tensor<1x5x2x32xf16>
    return %2, %3 : tensor<1x5x2x32xf16>, tensor<1x5x2x32xf16>
  }
}

// A gate and what it gates: halves of one product, where there are many rows or one.
// CHECK-LABEL: module @gated
// CHECK: %[[J:.*]] = lathe.constant #lathe.joined<0, [dense<1.000000e+00> : tensor<32x64xf16>, dense<2.000000e+00> : tensor<32x64xf16>]> : tensor<64x64xf16>
// CHECK: %[[P:.*]] = lathe.matmul %arg0, %[[J]] {transpose_b} : (tensor<1x40x64xf16>, tensor<64x64xf16>) -> tensor<1x40x64xf16>
// CHECK-DAG: lathe.slice %[[P]] {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>]
// CHECK-DAG: lathe.slice %[[P]] {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>]
// CHECK-LABEL: @row
// CHECK: lathe.matmul {{.*}} -> tensor<1x1x64xf16>
// CHECK-NOT: lathe.matmul
// CHECK-LABEL: @rows
// CHECK-COUNT-2: lathe.matmul
module @gated attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<1x40x64xf16>) -> tensor<1x40x32xf16> {
    %wg = lathe.constant dense<1.0> : tensor<32x64xf16>
    %wu = lathe.constant dense<2.0> : tensor<32x64xf16>
    %0 = lathe.matmul %x, %wg {transpose_b} : (tensor<1x40x64xf16>, tensor<32x64xf16>) -> tensor<1x40x32xf16>
    %1 = lathe.sigmoid %0 : (tensor<1x40x32xf16>) -> tensor<1x40x32xf16>
    %2 = lathe.mul %0, %1 : (tensor<1x40x32xf16>, tensor<1x40x32xf16>) -> tensor<1x40x32xf16>
    %3 = lathe.matmul %x, %wu {transpose_b} : (tensor<1x40x64xf16>, tensor<32x64xf16>) -> tensor<1x40x32xf16>
    %4 = lathe.mul %2, %3 : (tensor<1x40x32xf16>, tensor<1x40x32xf16>) -> tensor<1x40x32xf16>
    return %4 : tensor<1x40x32xf16>
  }
  func.func @row(%x: tensor<1x1x64xf16>) -> tensor<1x1x32xf16> {
    %wg = lathe.constant dense<1.0> : tensor<32x64xf16>
    %wu = lathe.constant dense<2.0> : tensor<32x64xf16>
    %0 = lathe.matmul %x, %wg {transpose_b} : (tensor<1x1x64xf16>, tensor<32x64xf16>) -> tensor<1x1x32xf16>
    %1 = lathe.sigmoid %0 : (tensor<1x1x32xf16>) -> tensor<1x1x32xf16>
    %2 = lathe.matmul %x, %wu {transpose_b} : (tensor<1x1x64xf16>, tensor<32x64xf16>) -> tensor<1x1x32xf16>
    %3 = lathe.mul %1, %2 : (tensor<1x1x32xf16>, tensor<1x1x32xf16>) -> tensor<1x1x32xf16>
    return %3 : tensor<1x1x32xf16>
  }
  func.func @rows(%x: tensor<1x2x64xf16>) -> tensor<1x2x32xf16> {
    %wg = lathe.constant dense<1.0> : tensor<32x64xf16>
    %wu = lathe.constant dense<2.0> : tensor<32x64xf16>
    %0 = lathe.matmul %x, %wg {transpose_b} : (tensor<1x2x64xf16>, tensor<32x64xf16>) -> tensor<1x2x32xf16>
    %1 = lathe.sigmoid %0 : (tensor<1x2x32xf16>) -> tensor<1x2x32xf16>
    %2 = lathe.matmul %x, %wu {transpose_b} : (tensor<1x2x64xf16>, tensor<32x64xf16>) -> tensor<1x2x32xf16>
    %3 = lathe.mul %1, %2 : (tensor<1x2x32xf16>, tensor<1x2x32xf16>) -> tensor<1x2x32xf16>
    return %3 : tensor<1x2x32xf16>
  }
}

// How many rows there are is known when it runs. Halves meet where weights are streamed for few rows; weights with
// contiguous n are not.
// CHECK-LABEL: module @any_rows
// CHECK-LABEL: @streamed
// CHECK: lathe.matmul {{.*}} -> tensor<?x8192xf16, #lathe.t<[T, 8192]>>
// CHECK-NOT: lathe.matmul
// CHECK-LABEL: @across
// CHECK-COUNT-2: lathe.matmul
// Rows of tokens that no batch holds are split into heads: queries, keys and values are one product.
// CHECK-LABEL: @tokens
// CHECK: %[[Y:.*]] = lathe.matmul {{.*}} -> tensor<1x?x256xf16, #lathe.t<[1, T, 256]>>
// CHECK-NOT: lathe.matmul
// CHECK: %[[H:.*]] = lathe.reshape %[[Y]] {{.*}} -> tensor<?x8x32xf16, #lathe.t<[T, 8, 32]>>
// CHECK-DAG: lathe.slice %[[H]] {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>]
// CHECK-DAG: lathe.slice %[[H]] {starts = [#lathe.dim<0>, #lathe.dim<4>, #lathe.dim<0>]
// CHECK-DAG: lathe.slice %[[H]] {starts = [#lathe.dim<0>, #lathe.dim<6>, #lathe.dim<0>]
!x = tensor<?x1024xf16, #lathe.t<[T, 1024]>>
!h = tensor<?x4096xf16, #lathe.t<[T, 4096]>>
!rows = tensor<1x?x64xf16, #lathe.t<[1, T, 64]>>
!wide = tensor<1x?x128xf16, #lathe.t<[1, T, 128]>>
!four = tensor<?x4x32xf16, #lathe.t<[T, 4, 32]>>
!two = tensor<?x2x32xf16, #lathe.t<[T, 2, 32]>>
module @any_rows attributes {lathe.target = "sm_90a"} {
  lathe.symbol @T {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "x[0]"}
  func.func @streamed(%x: !x) -> !h {
    %wg = lathe.constant dense<1.0> : tensor<4096x1024xf16>
    %wu = lathe.constant dense<2.0> : tensor<4096x1024xf16>
    %0 = lathe.matmul %x, %wg {transpose_b} : (!x, tensor<4096x1024xf16>) -> !h
    %1 = lathe.sigmoid %0 : (!h) -> !h
    %2 = lathe.matmul %x, %wu {transpose_b} : (!x, tensor<4096x1024xf16>) -> !h
    %3 = lathe.mul %1, %2 : (!h, !h) -> !h
    return %3 : !h
  }
  func.func @across(%x: !x) -> !h {
    %wg = lathe.constant dense<1.0> : tensor<1024x4096xf16>
    %wu = lathe.constant dense<2.0> : tensor<1024x4096xf16>
    %0 = lathe.matmul %x, %wg : (!x, tensor<1024x4096xf16>) -> !h
    %1 = lathe.sigmoid %0 : (!h) -> !h
    %2 = lathe.matmul %x, %wu : (!x, tensor<1024x4096xf16>) -> !h
    %3 = lathe.mul %1, %2 : (!h, !h) -> !h
    return %3 : !h
  }
  func.func @tokens(%x: !rows) -> (!four, !two, !two) {
    %wq = lathe.constant dense<1.0> : tensor<128x64xf16>
    %wk = lathe.constant dense<2.0> : tensor<64x64xf16>
    %wv = lathe.constant dense<3.0> : tensor<64x64xf16>
    %q = lathe.matmul %x, %wq {transpose_b} : (!rows, tensor<128x64xf16>) -> !wide
    %k = lathe.matmul %x, %wk {transpose_b} : (!rows, tensor<64x64xf16>) -> !rows
    %v = lathe.matmul %x, %wv {transpose_b} : (!rows, tensor<64x64xf16>) -> !rows
    %qh = lathe.reshape %q : (!wide) -> !four
    %kh = lathe.reshape %k : (!rows) -> !two
    %vh = lathe.reshape %v : (!rows) -> !two
    %qn = lathe.neg %qh : (!four) -> !four
    %kn = lathe.exp %kh : (!two) -> !two
    %vn = lathe.neg %vh : (!two) -> !two
    return %qn, %kn, %vn : !four, !two, !two
  }
}
