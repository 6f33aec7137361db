// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

// CHECK-LABEL: func.func @reductions
func.func @reductions(%x: tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>) {
  // CHECK: lathe.reduce {{.*}} -> tensor<?x4xf32, #lathe.t<[B, 4]>>
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 2>, keepdims = false} : (tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>) -> tensor<?x4xf32, #lathe.t<[B, 4]>>
  // CHECK: lathe.reduce {{.*}} -> tensor<1x4x1xf32>
  %1 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 0, 2>, keepdims = true} : (tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>) -> tensor<1x4x1xf32>
  %2 = lathe.arg_reduce %x {kind = #lathe.reduce_kind<min>, axis = 1 : i64, keepdims = false, last} : (tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>) -> tensor<?x?xi64, #lathe.t<[B, S]>>
  %3 = lathe.scan %x {kind = #lathe.reduce_kind<sum>, axis = 2 : i64, exclusive, reverse} : (tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>) -> tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>
  %4 = lathe.softmax %x {axis = 2 : i64, log} : (tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>) -> tensor<?x4x?xf32, #lathe.t<[B, 4, S]>>
  return
}

// CHECK-LABEL: func.func @norms
func.func @norms(%x: tensor<2x8xf32>, %s: tensor<8xf32>) {
  %0 = lathe.layer_norm %x, %s, %s {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %1 = lathe.layer_norm %x, %s {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  // CHECK: lathe.rms_norm
  %2 = lathe.rms_norm %x, %s {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return
}

// CHECK-LABEL: func.func @matmul
func.func @matmul(%a: tensor<?x1x?x64xf32, #lathe.t<[B, 1, S, 64]>>, %b: tensor<8x32x64xf32>, %i: tensor<2x3xi8>, %j: tensor<3x4xi8>) {
  // CHECK: lathe.matmul {{.*}} {transpose_b} : {{.*}} -> tensor<?x8x?x32xf32, #lathe.t<[B, 8, S, 32]>>
  %0 = lathe.matmul %a, %b {transpose_b} : (tensor<?x1x?x64xf32, #lathe.t<[B, 1, S, 64]>>, tensor<8x32x64xf32>) -> tensor<?x8x?x32xf32, #lathe.t<[B, 8, S, 32]>>
  // CHECK: lathe.matmul {{.*}} -> tensor<2x4xi32>
  %1 = lathe.matmul %i, %j : (tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<2x4xi32>
  return
}

// CHECK-LABEL: func.func @windows
func.func @windows(%x: tensor<?x3x?x?xf32, #lathe.t<[N, 3, H, W]>>, %w: tensor<8x3x3x3xf32>, %y: tensor<1x10x10x8xf32>, %d: tensor<8x1x3x3xf32>) {
  // CHECK: lathe.conv {{.*}} -> tensor<?x8x?x?xf32, #lathe.t<[N, 8, floordiv(H + 1, 2), floordiv(W + 1, 2)]>>
  %0 = lathe.conv %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<?x3x?x?xf32, #lathe.t<[N, 3, H, W]>>, tensor<8x3x3x3xf32>) -> tensor<?x8x?x?xf32, #lathe.t<[N, 8, floordiv(H + 1, 2), floordiv(W + 1, 2)]>>
  // CHECK: lathe.conv {{.*}} -> tensor<1x8x8x8xf32>
  %1 = lathe.conv %y, %d {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 8 : i64, layout = #lathe.conv_layout<nhwc>} : (tensor<1x10x10x8xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x8x8xf32>
  // CHECK: lathe.pool {{.*}} -> tensor<1x5x5x8xf32>
  %2 = lathe.pool %y {kind = #lathe.pool_kind<max>, kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil_mode = true, count_include_pad = false, layout = #lathe.conv_layout<nhwc>} : (tensor<1x10x10x8xf32>) -> tensor<1x5x5x8xf32>
  // Rounding toward zero: a window one larger than the image is there once.
  // CHECK: lathe.pool {{.*}} -> tensor<?x3x?x?xf32, #lathe.t<[N, 3, max(1, floordiv(H, 2)), W - 1]>>
  %3 = lathe.pool %x {kind = #lathe.pool_kind<max>, kernel = array<i64: 2, 2>, strides = array<i64: 2, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<?x3x?x?xf32, #lathe.t<[N, 3, H, W]>>) -> tensor<?x3x?x?xf32, #lathe.t<[N, 3, max(1, floordiv(H, 2)), W - 1]>>
  // CHECK: lathe.pool {{.*}} -> tensor<?x3x?x?xf32, #lathe.t<[N, 3, max(floordiv(H + 1, 2), min(1, floordiv(H, 2)) + 1) - 1, floordiv(W + 1, 2)]>>
  %4 = lathe.pool %x {kind = #lathe.pool_kind<max>, kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 0, 1, 0, 1>, dilations = array<i64: 1, 1>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<?x3x?x?xf32, #lathe.t<[N, 3, H, W]>>) -> tensor<?x3x?x?xf32, #lathe.t<[N, 3, max(floordiv(H - 1, 2), min(1, floordiv(H, 2))), floordiv(W + 1, 2)]>>
  return
}
