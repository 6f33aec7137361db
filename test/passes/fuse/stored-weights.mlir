// RUN: sed s/TARGET/sm_90a/ %s | %lathe-opt --lathe-expand-blocks --lathe-fuse --split-input-file | FileCheck %s
// RUN: sed s/TARGET/sm_80/ %s | %lathe-opt --lathe-expand-blocks --lathe-fuse --split-input-file | FileCheck %s --check-prefixes=FEW

// Weights of 8 bits are dequantized inside the product: of any number of rows where they may be the
// operand in registers, else of few.
// CHECK-LABEL: func.func @few
// CHECK: lathe.kernel {{.*}} gemm (%{{.*}} = %arg0 : tensor<5x64xbf16>, %{{.*}} = %arg1 : tensor<48x64xi8>, %{{.*}} = %arg2 : tensor<48x1xf32>)
// CHECK-NOT: lathe.kernel
// FEW-LABEL: func.func @few
// FEW: lathe.kernel {{.*}} gemm (
// FEW-NOT: lathe.kernel
module attributes {lathe.target = "TARGET"} {
  func.func @few(%x: tensor<5x64xbf16>, %q: tensor<48x64xi8>, %s: tensor<48x1xf32>) -> tensor<5x48xbf16> {
    %2 = lathe.dequantize %q scale(%s) : (tensor<48x64xi8>, tensor<48x1xf32>) -> tensor<48x64xbf16>
    %3 = lathe.matmul %x, %2 {transpose_b} : (tensor<5x64xbf16>, tensor<48x64xbf16>) -> tensor<5x48xbf16>
    return %3 : tensor<5x48xbf16>
  }
}

// -----

// Scales of blocks of 32 of k, a zero point for each.
// CHECK-LABEL: func.func @blocks
// CHECK: lathe.kernel {{.*}} gemm (
// CHECK: lathe.dequantize {{.*}} {block = array<i64: 1, 32>}
// CHECK: lathe.matmul
// CHECK-NOT: lathe.kernel
// CHECK: return
// FEW-LABEL: func.func @blocks
// FEW: lathe.kernel {{.*}} pointwise
// FEW: lathe.kernel {{.*}} gemm (
module attributes {lathe.target = "TARGET"} {
  func.func @blocks(%x: tensor<60x64xf16>, %q: tensor<96x64xui8>, %z: tensor<96x1xf32>, %s: tensor<96x2xf32>) -> tensor<60x96xf16> {
    %6 = lathe.dequantize %q scale(%s) zero(%z) {block = array<i64: 1, 32>} : (tensor<96x64xui8>, tensor<96x2xf32>, tensor<96x1xf32>) -> tensor<96x64xf16>
    %7 = lathe.matmul %x, %6 {transpose_b} : (tensor<60x64xf16>, tensor<96x64xf16>) -> tensor<60x96xf16>
    return %7 : tensor<60x96xf16>
  }
}

// -----

// Scales that differ within a piece of k, rows that are no whole pieces, weights across k:
// dequantized by a kernel of their own.
// CHECK-LABEL: func.func @refused
// CHECK: lathe.kernel {{.*}} pointwise
// CHECK: lathe.kernel {{.*}} gemm (
// CHECK: lathe.kernel {{.*}} pointwise
// CHECK: lathe.kernel {{.*}} gemm (
// CHECK: lathe.kernel {{.*}} pointwise
// CHECK: lathe.kernel {{.*}} gemm (
// FEW-LABEL: func.func @refused
module attributes {lathe.target = "TARGET"} {
  func.func @refused(%x: tensor<5x64xbf16>, %q: tensor<48x64xi8>, %s: tensor<64xf32>, %y: tensor<5x40xbf16>, %r: tensor<48x40xi8>, %t: tensor<48x1xf32>, %v: tensor<64x48xi8>, %u: tensor<48xf32>) -> (tensor<5x48xbf16>, tensor<5x48xbf16>, tensor<5x48xbf16>) {
    %2 = lathe.dequantize %q scale(%s) : (tensor<48x64xi8>, tensor<64xf32>) -> tensor<48x64xbf16>
    %3 = lathe.matmul %x, %2 {transpose_b} : (tensor<5x64xbf16>, tensor<48x64xbf16>) -> tensor<5x48xbf16>
    %6 = lathe.dequantize %r scale(%t) : (tensor<48x40xi8>, tensor<48x1xf32>) -> tensor<48x40xbf16>
    %7 = lathe.matmul %y, %6 {transpose_b} : (tensor<5x40xbf16>, tensor<48x40xbf16>) -> tensor<5x48xbf16>
    %10 = lathe.dequantize %v scale(%u) : (tensor<64x48xi8>, tensor<48xf32>) -> tensor<64x48xbf16>
    %11 = lathe.matmul %x, %10 : (tensor<5x64xbf16>, tensor<64x48xbf16>) -> tensor<5x48xbf16>
    return %3, %7, %11 : tensor<5x48xbf16>, tensor<5x48xbf16>, tensor<5x48xbf16>
  }
}

// -----

// Codes of both operands whose sums are scaled: one kernel, behind the one that makes the codes and their scales.
// CHECK-LABEL: func.func @scaled
// CHECK: lathe.kernel {{.*}} -> (tensor<32x256xf8E4M3FN>)
// CHECK: lathe.kernel {{.*}} gemm (%{{.*}} = %{{.*}} : tensor<32x256xf8E4M3FN>, %{{.*}} = %{{.*}} : tensor<32x2xf32>, %{{.*}} = %arg2 : tensor<128x256xf8E4M3FN>, %{{.*}} = %arg3 : tensor<1x2xf32>)
// CHECK-NOT: lathe.quantize
// CHECK: return
// FEW-LABEL: func.func @scaled
module attributes {lathe.target = "TARGET"} {
  func.func @scaled(%x: tensor<32x256xf32>, %s: tensor<32x2xf32>, %w: tensor<128x256xf8E4M3FN>, %t: tensor<1x2xf32>) -> tensor<32x128xf32> {
    %q = lathe.quantize %x scale(%s) {block = array<i64: 1, 128>} : (tensor<32x256xf32>, tensor<32x2xf32>) -> tensor<32x256xf8E4M3FN>
    %0 = lathe.dequantize %q scale(%s) {block = array<i64: 1, 128>} : (tensor<32x256xf8E4M3FN>, tensor<32x2xf32>) -> tensor<32x256xf32>
    %1 = lathe.dequantize %w scale(%t) {block = array<i64: 128, 128>} : (tensor<128x256xf8E4M3FN>, tensor<1x2xf32>) -> tensor<128x256xf32>
    %2 = lathe.matmul %0, %1 {transpose_b} : (tensor<32x256xf32>, tensor<128x256xf32>) -> tensor<32x128xf32>
    return %2 : tensor<32x128xf32>
  }
}
