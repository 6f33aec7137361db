// RUN: %lathe-opt --lathe-channels-last %s | FileCheck %s

// Two convolutions with a residual: transposes are left at the borders alone.
// CHECK-LABEL: module @cpu
// CHECK: %[[T:.*]] = lathe.transpose %arg0 {perm = array<i64: 0, 2, 3, 1>}
// CHECK: %[[A:.*]] = lathe.conv %[[T]], %arg1 {{.*}}layout = #lathe.conv_layout<nhwc>
// CHECK: %[[R:.*]] = lathe.max %[[A]]
// CHECK: lathe.conv %[[R]], %arg1
// CHECK-NOT: lathe.transpose
// CHECK: %[[S:.*]] = lathe.add
// CHECK-DAG: lathe.reduce %[[S]] {axes = array<i64: 1, 2>
// CHECK-DAG: lathe.transpose %[[S]] {perm = array<i64: 0, 3, 1, 2>}
module @cpu attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x16x8x8xf32>, %w: tensor<16x16x1x1xf32>) -> (tensor<1x16x8x8xf32>, tensor<1x16xf32>) {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x8x8xf32>
    %1 = lathe.max %0, %zero : (tensor<1x16x8x8xf32>, tensor<f32>) -> tensor<1x16x8x8xf32>
    %2 = lathe.conv %1, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x8x8xf32>
    %3 = lathe.add %2, %0 : (tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>) -> tensor<1x16x8x8xf32>
    %4 = lathe.reduce %3 {kind = #lathe.reduce_kind<max>, axes = array<i64: 2, 3>, keepdims = false} : (tensor<1x16x8x8xf32>) -> tensor<1x16xf32>
    return %3, %4 : tensor<1x16x8x8xf32>, tensor<1x16xf32>
  }
}

// A dimension of 1 is dropped before the transpose, which then meets the reduction.
// CHECK-LABEL: module @squeeze
// CHECK: %[[C:.*]] = lathe.conv
// CHECK: %[[Q:.*]] = lathe.reshape %[[C]] : (tensor<1x8x1x16xf32>) -> tensor<1x8x16xf32>
// CHECK: lathe.reduce %[[Q]] {axes = array<i64: 1>
module @squeeze attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x16x8x1xf32>, %w: tensor<16x16x1x1xf32>) -> tensor<1x16xf32> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x1xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x8x1xf32>
    %1 = lathe.reshape %0 : (tensor<1x16x8x1xf32>) -> tensor<1x16x8xf32>
    %2 = lathe.reduce %1 {kind = #lathe.reduce_kind<max>, axes = array<i64: 2>, keepdims = false} : (tensor<1x16x8xf32>) -> tensor<1x16xf32>
    return %2 : tensor<1x16xf32>
  }
}

// Pixels repeated by reshapes and a broadcast between two convolutions: all of it channels last.
// CHECK-LABEL: module @repeat
// CHECK: %[[T:.*]] = lathe.transpose %arg0 {perm = array<i64: 0, 2, 3, 1>}
// CHECK: %[[A:.*]] = lathe.conv %[[T]]
// CHECK: %[[B:.*]] = lathe.reshape %[[A]] : (tensor<1x4x5x16xf32>) -> tensor<1x4x1x5x16xf32>
// CHECK: %[[C:.*]] = lathe.broadcast_to %[[B]] : (tensor<1x4x1x5x16xf32>) -> tensor<1x4x2x5x16xf32>
// CHECK: %[[D:.*]] = lathe.reshape %[[C]] : (tensor<1x4x2x5x16xf32>) -> tensor<1x8x5x16xf32>
// CHECK: lathe.conv %[[D]]
module @repeat attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x16x4x5xf32>, %w: tensor<16x16x1x1xf32>) -> tensor<1x16x8x5xf32> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x4x5xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x4x5xf32>
    %1 = lathe.reshape %0 : (tensor<1x16x4x5xf32>) -> tensor<1x16x4x1x5xf32>
    %2 = lathe.broadcast_to %1 : (tensor<1x16x4x1x5xf32>) -> tensor<1x16x4x2x5xf32>
    %3 = lathe.reshape %2 : (tensor<1x16x4x2x5xf32>) -> tensor<1x16x8x5xf32>
    %4 = lathe.conv %3, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x5xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x8x5xf32>
    return %4 : tensor<1x16x8x5xf32>
  }
}

// A reshape that merges what lies apart below keeps its transpose.
// CHECK-LABEL: module @apart
// CHECK: %[[A:.*]] = lathe.conv
// CHECK: %[[T:.*]] = lathe.transpose %[[A]]
// CHECK: lathe.reshape %[[T]] : (tensor<1x16x4x5xf32>) -> tensor<1x64x5xf32>
module @apart attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x16x4x5xf32>, %w: tensor<16x16x1x1xf32>) -> tensor<1x64x5xf32> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x4x5xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x4x5xf32>
    %1 = lathe.reshape %0 : (tensor<1x16x4x5xf32>) -> tensor<1x64x5xf32>
    return %1 : tensor<1x64x5xf32>
  }
}

// A GPU keeps the order of the model.
// CHECK-LABEL: module @gpu
// CHECK-NOT: lathe.transpose
// CHECK: lathe.pool %arg0 {{.*}}layout = #lathe.conv_layout<nchw>
module @gpu attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<1x16x8x8xf32>) -> tensor<1x16x4x4xf32> {
    %0 = lathe.pool %x {kind = #lathe.pool_kind<max>, kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf32>) -> tensor<1x16x4x4xf32>
    return %0 : tensor<1x16x4x4xf32>
  }
}
