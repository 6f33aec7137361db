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

// A GPU keeps the order of the model for 32-bit images.
// CHECK-LABEL: module @gpu
// CHECK-NOT: lathe.transpose
// CHECK: lathe.pool %arg0 {{.*}}layout = #lathe.conv_layout<nchw>
module @gpu attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<1x16x8x8xf32>) -> tensor<1x16x4x4xf32> {
    %0 = lathe.pool %x {kind = #lathe.pool_kind<max>, kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf32>) -> tensor<1x16x4x4xf32>
    return %0 : tensor<1x16x4x4xf32>
  }
}

// sm_90a turns 16-bit images: windows of one pixel are products, nothing is transposed between layers.
// CHECK-LABEL: module @half
// CHECK: %[[T:.*]] = lathe.transpose %arg0 {perm = array<i64: 0, 2, 3, 1>}
// CHECK: %[[W:.*]] = lathe.reshape %arg1 : (tensor<16x16x1x1xf16>) -> tensor<16x16xf16>
// CHECK: %[[A:.*]] = lathe.matmul %[[T]], %[[W]] {transpose_b}
// CHECK: %[[R:.*]] = lathe.max %[[A]]
// CHECK: %[[C:.*]] = lathe.conv %[[R]], %arg2 {{.*}}layout = #lathe.conv_layout<nhwc>
// CHECK: %[[S:.*]] = lathe.add %[[C]], %[[A]]
// CHECK: %[[P:.*]] = lathe.pool %[[S]] {{.*}}layout = #lathe.conv_layout<nhwc>
// CHECK-NOT: lathe.transpose
// CHECK: lathe.reduce %[[P]] {axes = array<i64: 1, 2>
module @half attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<1x16x8x8xf16>, %w: tensor<16x16x1x1xf16>, %v: tensor<16x16x3x3xf16>) -> tensor<1x16xf16> {
    %zero = lathe.constant dense<0.0> : tensor<f16>
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf16>, tensor<16x16x1x1xf16>) -> tensor<1x16x8x8xf16>
    %1 = lathe.max %0, %zero : (tensor<1x16x8x8xf16>, tensor<f16>) -> tensor<1x16x8x8xf16>
    %2 = lathe.conv %1, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf16>, tensor<16x16x3x3xf16>) -> tensor<1x16x8x8xf16>
    %3 = lathe.add %2, %0 : (tensor<1x16x8x8xf16>, tensor<1x16x8x8xf16>) -> tensor<1x16x8x8xf16>
    %4 = lathe.pool %3 {kind = #lathe.pool_kind<max>, kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf16>) -> tensor<1x16x4x4xf16>
    %5 = lathe.reduce %4 {kind = #lathe.reduce_kind<max>, axes = array<i64: 2, 3>, keepdims = false} : (tensor<1x16x4x4xf16>) -> tensor<1x16xf16>
    return %5 : tensor<1x16xf16>
  }
}

// Convolutions of codes of 8 bits are turned there, too, where a pixel's channels are pieces of 16 bytes.
// CHECK-LABEL: module @codes
// CHECK: %[[D:.*]] = lathe.dequantize %arg0
// CHECK: %[[T:.*]] = lathe.transpose %[[D]] {perm = array<i64: 0, 2, 3, 1>}
// CHECK: lathe.conv %[[T]], {{.*}}layout = #lathe.conv_layout<nhwc>
// CHECK: lathe.conv %arg1, {{.*}}layout = #lathe.conv_layout<nchw>
module @codes attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<1x16x8x8xui8>, %z: tensor<1x8x8x8xf32>, %w: tensor<16x16x3x3xi8>, %v: tensor<16x8x3x3xf32>) -> (tensor<1x16x6x6xf32>, tensor<1x16x6x6xf32>) {
    %s = lathe.constant dense<0.5> : tensor<f32>
    %0 = lathe.dequantize %x scale(%s) : (tensor<1x16x8x8xui8>, tensor<f32>) -> tensor<1x16x8x8xf32>
    %1 = lathe.dequantize %w scale(%s) : (tensor<16x16x3x3xi8>, tensor<f32>) -> tensor<16x16x3x3xf32>
    %2 = lathe.conv %0, %1 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x6x6xf32>
    %3 = lathe.conv %z, %v {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x8x8xf32>, tensor<16x8x3x3xf32>) -> tensor<1x16x6x6xf32>
    return %2, %3 : tensor<1x16x6x6xf32>, tensor<1x16x6x6xf32>
  }
}

// Patches of three channels are brought together and multiplied; channels that are no whole pieces stay first.
// CHECK-LABEL: module @patches
// CHECK: %[[S:.*]] = lathe.reshape %arg0 : (tensor<2x3x8x12xf16>) -> tensor<2x3x2x4x3x4xf16>
// CHECK: %[[M:.*]] = lathe.transpose %[[S]] {perm = array<i64: 0, 2, 4, 1, 3, 5>}
// CHECK: %[[R:.*]] = lathe.reshape %[[M]] : (tensor<2x2x3x3x4x4xf16>) -> tensor<2x2x3x48xf16>
// CHECK: lathe.matmul %[[R]], {{.*}} {transpose_b}
// CHECK: lathe.conv %arg2, {{.*}}layout = #lathe.conv_layout<nchw>
module @patches attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<2x3x8x12xf16>, %w: tensor<32x3x4x4xf16>, %z: tensor<2x12x8x8xf16>, %v: tensor<16x12x3x3xf16>) -> (tensor<2x32x2x3xf16>, tensor<2x16x8x8xf16>) {
    %0 = lathe.conv %x, %w {strides = array<i64: 4, 4>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x3x8x12xf16>, tensor<32x3x4x4xf16>) -> tensor<2x32x2x3xf16>
    %1 = lathe.conv %z, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x12x8x8xf16>, tensor<16x12x3x3xf16>) -> tensor<2x16x8x8xf16>
    return %0, %1 : tensor<2x32x2x3xf16>, tensor<2x16x8x8xf16>
  }
}

// Four groups of four channels: an instance norm over rows of channels and pixels. Both are kept apart, and pixels lie
// where the convolutions have them.
// CHECK-LABEL: module @groups
// CHECK: %[[C:.*]] = lathe.conv {{.*}}layout = #lathe.conv_layout<nhwc>
// CHECK-NOT: lathe.transpose
// CHECK: %[[G:.*]] = lathe.reshape %[[C]] : (tensor<2x8x8x16xf16>) -> tensor<2x8x8x4x4xf16>
// CHECK: %[[S:.*]] = lathe.reduce %[[G]] {axes = array<i64: 1, 2, 4>, keepdims = true{{.*}} -> tensor<2x1x1x4x1xf16>
// CHECK: %[[D:.*]] = lathe.sub %[[G]], %[[S]]
// CHECK: lathe.mul %[[D]], %{{.*}} : (tensor<2x8x8x4x4xf16>, tensor<1x1x1x4x1xf16>)
// CHECK-NOT: lathe.transpose
// CHECK: lathe.conv {{.*}}layout = #lathe.conv_layout<nhwc>
module @groups attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<2x16x8x8xf16>, %v: tensor<16x16x3x3xf16>, %s: tensor<1x4x1xf16>) -> tensor<2x16x8x8xf16> {
    %0 = lathe.conv %x, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x8x8xf16>, tensor<16x16x3x3xf16>) -> tensor<2x16x8x8xf16>
    %1 = lathe.reshape %0 : (tensor<2x16x8x8xf16>) -> tensor<2x4x256xf16>
    %2 = lathe.reduce %1 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 2>, keepdims = true} : (tensor<2x4x256xf16>) -> tensor<2x4x1xf16>
    %3 = lathe.sub %1, %2 : (tensor<2x4x256xf16>, tensor<2x4x1xf16>) -> tensor<2x4x256xf16>
    %4 = lathe.mul %3, %s : (tensor<2x4x256xf16>, tensor<1x4x1xf16>) -> tensor<2x4x256xf16>
    %5 = lathe.reshape %4 : (tensor<2x4x256xf16>) -> tensor<2x16x8x8xf16>
    %6 = lathe.conv %5, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x8x8xf16>, tensor<16x16x3x3xf16>) -> tensor<2x16x8x8xf16>
    return %6 : tensor<2x16x8x8xf16>
  }
}

// What else reads the rows, here an output, keeps the norm as it was written.
// CHECK-LABEL: module @rows_escape
// CHECK: lathe.reduce {{.*}} {axes = array<i64: 2>, keepdims = true{{.*}} -> tensor<2x4x1xf16>
module @rows_escape attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<2x16x8x8xf16>, %v: tensor<16x16x3x3xf16>) -> (tensor<2x16x8x8xf16>, tensor<2x4x256xf16>) {
    %0 = lathe.conv %x, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x8x8xf16>, tensor<16x16x3x3xf16>) -> tensor<2x16x8x8xf16>
    %1 = lathe.reshape %0 : (tensor<2x16x8x8xf16>) -> tensor<2x4x256xf16>
    %2 = lathe.reduce %1 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 2>, keepdims = true} : (tensor<2x4x256xf16>) -> tensor<2x4x1xf16>
    %3 = lathe.sub %1, %2 : (tensor<2x4x256xf16>, tensor<2x4x1xf16>) -> tensor<2x4x256xf16>
    %4 = lathe.reshape %3 : (tensor<2x4x256xf16>) -> tensor<2x16x8x8xf16>
    return %4, %3 : tensor<2x16x8x8xf16>, tensor<2x4x256xf16>
  }
}

// Pixels that are gathered between two convolutions, as a resize does.
// CHECK-LABEL: module @gathered
// CHECK: %[[C:.*]] = lathe.conv {{.*}}layout = #lathe.conv_layout<nhwc>
// CHECK: lathe.gather %[[C]], %arg2 {axis = 1 : i64} : (tensor<2x8x8x16xf16>, tensor<8xi64>) -> tensor<2x8x8x16xf16>
// CHECK-NOT: lathe.transpose
// CHECK: lathe.conv
module @gathered attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<2x16x8x8xf16>, %v: tensor<16x16x3x3xf16>, %i: tensor<8xi64>) -> tensor<2x16x8x8xf16> {
    %0 = lathe.conv %x, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x8x8xf16>, tensor<16x16x3x3xf16>) -> tensor<2x16x8x8xf16>
    %1 = lathe.gather %0, %i {axis = 2 : i64} : (tensor<2x16x8x8xf16>, tensor<8xi64>) -> tensor<2x16x8x8xf16>
    %2 = lathe.conv %1, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x8x8xf16>, tensor<16x16x3x3xf16>) -> tensor<2x16x8x8xf16>
    return %2 : tensor<2x16x8x8xf16>
  }
}

// One operand of the select would be free, another one not: all stays, and rewriting ends.
// CHECK-LABEL: module @half_free
// CHECK: %[[C:.*]] = lathe.conv {{.*}}layout = #lathe.conv_layout<nhwc>
// CHECK: %[[T:.*]] = lathe.transpose %[[C]]
// CHECK: lathe.select %arg2, %[[T]], %arg3
module @half_free attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<2x9x8xf32>, %w: tensor<2x9x4xf32>, %c: tensor<1x2x1xi1>, %y: tensor<2x2x10xf32>) -> tensor<2x2x10xf32> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 4, 4>, dilations = array<i64: 2>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x9x8xf32>, tensor<2x9x4xf32>) -> tensor<2x2x10xf32>
    %1 = lathe.select %c, %0, %y : (tensor<1x2x1xi1>, tensor<2x2x10xf32>, tensor<2x2x10xf32>) -> tensor<2x2x10xf32>
    return %1 : tensor<2x2x10xf32>
  }
}

// A gate: halves of the channels are cut where they lie, every second row of the first, and no transpose stands between
// the convolutions.
// CHECK-LABEL: module @halves
// CHECK: lathe.transpose %arg0 {perm = array<i64: 0, 2, 3, 1>}
// CHECK: %[[H:.*]] = lathe.conv
// CHECK-NOT: lathe.transpose
// CHECK-DAG: lathe.slice %[[H]] {starts = [#lathe.dim<0>, #lathe.dim<1>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 2, 1, 1>} : (tensor<1x8x6x16xf32>) -> tensor<1x4x6x8xf32>
// CHECK-DAG: lathe.slice %[[H]] {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<8>], steps = array<i64: 1, 2, 1, 1>} : (tensor<1x8x6x16xf32>) -> tensor<1x4x6x8xf32>
// CHECK: lathe.mul
// CHECK: lathe.conv
module @halves attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x16x8x6xf32>, %w: tensor<16x16x1x1xf32>, %v: tensor<16x8x1x1xf32>) -> tensor<1x16x4x6xf32> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x16x8x6xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x8x6xf32>
    %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>, #lathe.dim<0>], steps = array<i64: 1, 1, 2, 1>} : (tensor<1x16x8x6xf32>) -> tensor<1x8x4x6xf32>
    %2 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<8>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 2, 1>} : (tensor<1x16x8x6xf32>) -> tensor<1x8x4x6xf32>
    %3 = lathe.mul %1, %2 : (tensor<1x8x4x6xf32>, tensor<1x8x4x6xf32>) -> tensor<1x8x4x6xf32>
    %4 = lathe.conv %3, %v {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x4x6xf32>, tensor<16x8x1x1xf32>) -> tensor<1x16x4x6xf32>
    return %4 : tensor<1x16x4x6xf32>
  }
}

// Depthwise convolutions between what is given and what is asked for alone keep their channels first.
// CHECK-LABEL: module @alone
// CHECK-NOT: lathe.transpose
// CHECK: lathe.conv %arg0, %arg1 {{.*}}layout = #lathe.conv_layout<nchw>
// CHECK: lathe.conv {{.*}}layout = #lathe.conv_layout<nchw>
// CHECK-NOT: lathe.transpose
module @alone attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<2x16x99xf16>, %w: tensor<16x1x7xf16>, %b: tensor<16x1xf16>) -> tensor<2x16x99xf16> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 3, 3>, dilations = array<i64: 1>, group = 16 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x99xf16>, tensor<16x1x7xf16>) -> tensor<2x16x99xf16>
    %1 = lathe.add %0, %b : (tensor<2x16x99xf16>, tensor<16x1xf16>) -> tensor<2x16x99xf16>
    %2 = lathe.conv %1, %w {strides = array<i64: 1>, pads = array<i64: 6, 6>, dilations = array<i64: 2>, group = 16 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x99xf16>, tensor<16x1x7xf16>) -> tensor<2x16x99xf16>
    return %2 : tensor<2x16x99xf16>
  }
}

// Behind another convolution they follow it.
// CHECK-LABEL: module @not_alone
// CHECK: lathe.conv {{.*}}group = 1 : i64, layout = #lathe.conv_layout<nhwc>
// CHECK-NOT: lathe.transpose
// CHECK: lathe.conv {{.*}}group = 16 : i64, layout = #lathe.conv_layout<nhwc>
module @not_alone attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<2x16x99xf16>, %v: tensor<16x16x3xf16>, %w: tensor<16x1x7xf16>) -> tensor<2x16x99xf16> {
    %0 = lathe.conv %x, %v {strides = array<i64: 1>, pads = array<i64: 1, 1>, dilations = array<i64: 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x99xf16>, tensor<16x16x3xf16>) -> tensor<2x16x99xf16>
    %1 = lathe.tanh %0 : (tensor<2x16x99xf16>) -> tensor<2x16x99xf16>
    %2 = lathe.conv %1, %w {strides = array<i64: 1>, pads = array<i64: 3, 3>, dilations = array<i64: 1>, group = 16 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<2x16x99xf16>, tensor<16x1x7xf16>) -> tensor<2x16x99xf16>
    return %2 : tensor<2x16x99xf16>
  }
}
