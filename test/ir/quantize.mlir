// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s
// RUN: %lathe-opt %s --lathe-simplify | FileCheck %s --check-prefix=FOLD

// CHECK-LABEL: func.func @dequantize
func.func @dequantize(%q: tensor<?x64xi4, #lathe.t<[B, 64]>>, %s: tensor<?x2xf16, #lathe.t<[B, 2]>>, %z: tensor<?x2xi4, #lathe.t<[B, 2]>>, %o: tensor<f32>, %c: tensor<16xf16>, %i: tensor<4x8xui8>, %n: tensor<i32>) {
  // CHECK: lathe.dequantize %arg0 scale(%arg1) zero(%arg2) {block = array<i64: 1, 32>}
  %0 = lathe.dequantize %q scale(%s) zero(%z) {block = array<i64: 1, 32>} : (tensor<?x64xi4, #lathe.t<[B, 64]>>, tensor<?x2xf16, #lathe.t<[B, 2]>>, tensor<?x2xi4, #lathe.t<[B, 2]>>) -> tensor<?x64xf16, #lathe.t<[B, 64]>>
  // CHECK: lathe.dequantize %arg0 scale(%arg1) outer(%arg3) codebook(%arg4) {block = array<i64: 1, 32>}
  %1 = lathe.dequantize %q scale(%s) outer(%o) codebook(%c) {block = array<i64: 1, 32>} : (tensor<?x64xi4, #lathe.t<[B, 64]>>, tensor<?x2xf16, #lathe.t<[B, 2]>>, tensor<f32>, tensor<16xf16>) -> tensor<?x64xf16, #lathe.t<[B, 64]>>
  // CHECK: lathe.dequantize %arg5 zero(%arg6) : (tensor<4x8xui8>, tensor<i32>) -> tensor<4x8xi32>
  %2 = lathe.dequantize %i zero(%n) : (tensor<4x8xui8>, tensor<i32>) -> tensor<4x8xi32>
  return
}

// CHECK-LABEL: func.func @quantize
func.func @quantize(%x: tensor<4x8xf32>, %s: tensor<8xf32>, %z: tensor<ui8>, %t: tensor<2x1xf32>) {
  // CHECK: lathe.quantize %arg0 scale(%arg1) zero(%arg2) : (tensor<4x8xf32>, tensor<8xf32>, tensor<ui8>) -> tensor<4x8xui8>
  %0 = lathe.quantize %x scale(%s) zero(%z) : (tensor<4x8xf32>, tensor<8xf32>, tensor<ui8>) -> tensor<4x8xui8>
  // CHECK: lathe.quantize %arg0 scale(%arg3) {block = array<i64: 3, 8>, saturate = false}
  %1 = lathe.quantize %x scale(%t) {block = array<i64: 3, 8>, saturate = false} : (tensor<4x8xf32>, tensor<2x1xf32>) -> tensor<4x8xf8E4M3FN>
  return
}

// Scales that are codes with one scale are scales of two levels; what is rounded between is not.
// FOLD-LABEL: func.func @scales
// FOLD: lathe.dequantize %arg0 scale(%arg1) outer(%arg2) {block = array<i64: 1, 16>}
// FOLD: %[[T:.*]] = lathe.dequantize %arg1 scale(%arg2) {{.*}} -> tensor<4x2xf16>
// FOLD: lathe.dequantize %arg0 scale(%[[T]]) {block = array<i64: 1, 16>}
func.func @scales(%q: tensor<4x32xf4E2M1FN>, %s: tensor<4x2xf8E4M3FN>, %t: tensor<f32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %0 = lathe.dequantize %s scale(%t) : (tensor<4x2xf8E4M3FN>, tensor<f32>) -> tensor<4x2xf32>
  %1 = lathe.dequantize %q scale(%0) {block = array<i64: 1, 16>} : (tensor<4x32xf4E2M1FN>, tensor<4x2xf32>) -> tensor<4x32xf32>
  %2 = lathe.dequantize %s scale(%t) : (tensor<4x2xf8E4M3FN>, tensor<f32>) -> tensor<4x2xf16>
  %3 = lathe.dequantize %q scale(%2) {block = array<i64: 1, 16>} : (tensor<4x32xf4E2M1FN>, tensor<4x2xf16>) -> tensor<4x32xf32>
  return %1, %3 : tensor<4x32xf32>, tensor<4x32xf32>
}

// Constants fold through the reference.
// FOLD-LABEL: func.func @constants
// FOLD: dense<[2.000000e+00, -2.000000e+00, 1.000000e+00]> : tensor<3xf32>
// FOLD: dense<[7, -8, 2]> : tensor<3xi4>
func.func @constants() -> (tensor<3xf32>, tensor<3xi4>) {
  %q = lathe.constant dense<[5, 1, 4]> : tensor<3xui8>
  %s = lathe.constant dense<[1.0, 1.0, 1.0]> : tensor<3xf32>
  %z = lathe.constant dense<3> : tensor<ui8>
  %x = lathe.constant dense<[900.0, -900.0, 2.5]> : tensor<3xf32>
  %0 = lathe.dequantize %q scale(%s) zero(%z) : (tensor<3xui8>, tensor<3xf32>, tensor<ui8>) -> tensor<3xf32>
  %1 = lathe.quantize %x scale(%s) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi4>
  return %0, %1 : tensor<3xf32>, tensor<3xi4>
}
