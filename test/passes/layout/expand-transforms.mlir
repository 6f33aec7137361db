// RUN: %lathe-opt --lathe-expand-transforms --split-input-file %s | FileCheck %s

// On a CPU: real rows of an even length are folded in the middle, others are products with both tables; half a
// spectrum gives real numbers alone, and of rows that are shorter tables have no more rows than they.
// CHECK-LABEL: func.func @products
// CHECK: lathe.gather {{.*}}, tensor<5xi64>) -> tensor<3x5xf64>
// CHECK-COUNT-2: lathe.matmul {{.*}} tensor<5x5xf64>
// CHECK: lathe.concat {{.*}} -> tensor<3x5x2xf64>
// CHECK-COUNT-4: lathe.matmul {{.*}} tensor<6x7xf64>
// CHECK: lathe.concat {{.*}} -> tensor<3x7x2xf64>
// CHECK-COUNT-2: lathe.matmul {{.*}} tensor<5x8xf64>
// CHECK-NOT: lathe.concat
// CHECK: return
module attributes {lathe.target = "x86-64-v3"} {
  func.func @products(%x: tensor<3x8x1xf64>, %c: tensor<3x6x2xf64>, %h: tensor<3x9x2xf64>, %r8: tensor<8x2xf64>, %r7: tensor<7x2xf64>) -> (tensor<3x5x2xf64>, tensor<3x7x2xf64>, tensor<3x8x1xf64>) {
    %0 = lathe.dft %x, %r8 {length = 8 : i64, onesided} : (tensor<3x8x1xf64>, tensor<8x2xf64>) -> tensor<3x5x2xf64>
    %1 = lathe.dft %c, %r7 {length = 7 : i64} : (tensor<3x6x2xf64>, tensor<7x2xf64>) -> tensor<3x7x2xf64>
    %2 = lathe.dft %h, %r8 {inverse, length = 8 : i64, onesided} : (tensor<3x9x2xf64>, tensor<8x2xf64>) -> tensor<3x8x1xf64>
    return %0, %1, %2 : tensor<3x5x2xf64>, tensor<3x7x2xf64>, tensor<3x8x1xf64>
  }
}

// -----

// A GPU has a kernel for lengths without large prime factors.
// CHECK-LABEL: func.func @fast
// CHECK: lathe.dft {{.*}} {length = 26
// CHECK: lathe.matmul
// CHECK-NOT: lathe.dft
// CHECK: return
module attributes {lathe.target = "sm_90a"} {
  func.func @fast(%x: tensor<3x26x2xf64>, %r26: tensor<26x2xf64>, %p: tensor<3x17x2xf64>, %r17: tensor<17x2xf64>) -> (tensor<3x26x2xf64>, tensor<3x17x2xf64>) {
    %0 = lathe.dft %x, %r26 {length = 26 : i64} : (tensor<3x26x2xf64>, tensor<26x2xf64>) -> tensor<3x26x2xf64>
    %1 = lathe.dft %p, %r17 {length = 17 : i64} : (tensor<3x17x2xf64>, tensor<17x2xf64>) -> tensor<3x17x2xf64>
    return %0, %1 : tensor<3x26x2xf64>, tensor<3x17x2xf64>
  }
}
