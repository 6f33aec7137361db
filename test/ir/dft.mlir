// RUN: %lathe-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @dft
// CHECK: lathe.dft %arg0, %arg2 {length = 8 : i64, onesided} : (tensor<3x8x1xf64>, tensor<8x2xf64>) -> tensor<3x5x2xf64>
// CHECK: lathe.dft %arg1, %arg2 {inverse, length = 8 : i64, onesided} : (tensor<3x5x2xf32>, tensor<8x2xf64>) -> tensor<3x8x1xf32>
func.func @dft(%x: tensor<3x8x1xf64>, %h: tensor<3x5x2xf32>, %r: tensor<8x2xf64>) -> (tensor<3x5x2xf64>, tensor<3x8x1xf32>) {
  %0 = lathe.dft %x, %r {length = 8 : i64, onesided} : (tensor<3x8x1xf64>, tensor<8x2xf64>) -> tensor<3x5x2xf64>
  %1 = lathe.dft %h, %r {inverse, length = 8 : i64, onesided} : (tensor<3x5x2xf32>, tensor<8x2xf64>) -> tensor<3x8x1xf32>
  return %0, %1 : tensor<3x5x2xf64>, tensor<3x8x1xf32>
}

// -----

func.func @dft_c1(%x: tensor<3x8x3xf64>, %r: tensor<8x2xf64>) -> tensor<3x8x2xf64> {
  // expected-error @+2 {{dft_c1: x is no tensor of f32 or f64}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.dft %x, %r {length = 8 : i64} : (tensor<3x8x3xf64>, tensor<8x2xf64>) -> tensor<3x8x2xf64>
  return %0 : tensor<3x8x2xf64>
}

// -----

func.func @dft_c2(%x: tensor<3x8x1xf64>, %r: tensor<7x2xf64>) -> tensor<3x8x2xf64> {
  // expected-error @+2 {{dft_c2: a length of 8 needs as many roots}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.dft %x, %r {length = 8 : i64} : (tensor<3x8x1xf64>, tensor<7x2xf64>) -> tensor<3x8x2xf64>
  return %0 : tensor<3x8x2xf64>
}
