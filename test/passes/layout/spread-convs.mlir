// RUN: %lathe-opt --lathe-channels-last %s | FileCheck %s

// Windows of 4 x 4, stride 2: four phases of 2 x 2 taps each, which begin at different pixels; the bias
// is added, and the result bounded, before the phases go to their places.
// CHECK-LABEL: module @two
// CHECK-NOT: lathe.pad
// CHECK: %[[X:.*]] = lathe.transpose %arg0 {perm = array<i64: 0, 2, 3, 1>}
// CHECK: %[[Y:.*]] = lathe.conv %[[X]], %{{.*}} {dilations = array<i64: 1, 1>, group = 1 : i64, lathe.parts = array<i64: 0, 2, 0, 2, 0, 2, 1, 2, 1, 2, 0, 2, 1, 2, 1, 2>, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x4x5x8xf32>, tensor<64x8x3x3xf32>) -> tensor<1x4x5x64xf32>
// CHECK: %[[B:.*]] = lathe.add %[[Y]]
// CHECK: %[[R:.*]] = lathe.max %[[B]]
// CHECK: %[[S:.*]] = lathe.reshape %[[R]] : (tensor<1x4x5x64xf32>) -> tensor<1x4x5x2x2x16xf32>
// CHECK: %[[P:.*]] = lathe.transpose %[[S]] {perm = array<i64: 0, 1, 3, 2, 4, 5>}
// CHECK: %[[M:.*]] = lathe.reshape %[[P]] : (tensor<1x4x2x5x2x16xf32>) -> tensor<1x8x10x16xf32>
// CHECK: lathe.transpose %[[M]] {perm = array<i64: 0, 3, 1, 2>}
module @two attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x8x4x5xf32>, %b: tensor<1x16x1x1xf32>) -> tensor<1x16x8x10xf32> {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %w = lathe.constant dense<0.5> : tensor<16x8x4x4xf32>
    %0 = lathe.reshape %x : (tensor<1x8x4x5xf32>) -> tensor<1x8x4x1x5x1xf32>
    %1 = lathe.pad %0, %zero {low = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], high = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>, #lathe.dim<0>, #lathe.dim<1>], mode = #lathe.pad_mode<constant>} : (tensor<1x8x4x1x5x1xf32>, tensor<f32>) -> tensor<1x8x4x2x5x2xf32>
    %2 = lathe.reshape %1 : (tensor<1x8x4x2x5x2xf32>) -> tensor<1x8x8x10xf32>
    %3 = lathe.pad %2, %zero {low = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<2>, #lathe.dim<2>], high = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>, #lathe.dim<1>], mode = #lathe.pad_mode<constant>} : (tensor<1x8x8x10xf32>, tensor<f32>) -> tensor<1x8x11x13xf32>
    %4 = lathe.conv %3, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x11x13xf32>, tensor<16x8x4x4xf32>) -> tensor<1x16x8x10xf32>
    %5 = lathe.add %4, %b : (tensor<1x16x8x10xf32>, tensor<1x16x1x1xf32>) -> tensor<1x16x8x10xf32>
    %6 = lathe.max %5, %zero : (tensor<1x16x8x10xf32>, tensor<f32>) -> tensor<1x16x8x10xf32>
    return %6 : tensor<1x16x8x10xf32>
  }
}

// A line of a symbolic length with stride 3: what lies behind the last whole group of phases is cut
// off. Two groups: no parts, and phases stand inside of groups.
// CHECK-LABEL: module @line
// CHECK: %[[Y:.*]] = lathe.conv {{.*}} {dilations = array<i64: 1>, group = 2 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 1, 1>, strides = array<i64: 1>} : (tensor<1x?x8xf32, #lathe.t<[1, L, 8]>>, tensor<12x4x2xf32>) -> tensor<1x?x12xf32, #lathe.t<[1, L + 1, 12]>>
// CHECK: lathe.reshape {{.*}} -> tensor<1x?x2x3x2xf32, #lathe.t<[1, L + 1, 2, 3, 2]>>
// CHECK: lathe.transpose {{.*}} {perm = array<i64: 0, 1, 3, 2, 4>}
// CHECK: lathe.slice {{.*}} -> tensor<1x?x4xf32, #lathe.t<[1, 3*L + 1, 4]>>
module @line attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @L {max = 64, min = 1, multiple_of = 1, opt = 8, origin = "x[2]"}
  func.func @main(%x: tensor<1x8x?xf32, #lathe.t<[1, 8, L]>>) -> tensor<1x4x?xf32, #lathe.t<[1, 4, 3*L + 1]>> {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %w = lathe.constant dense<0.5> : tensor<4x4x4xf32>
    %0 = lathe.reshape %x : (tensor<1x8x?xf32, #lathe.t<[1, 8, L]>>) -> tensor<1x8x?x1xf32, #lathe.t<[1, 8, L, 1]>>
    %1 = lathe.pad %0, %zero {low = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], high = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<2>], mode = #lathe.pad_mode<constant>} : (tensor<1x8x?x1xf32, #lathe.t<[1, 8, L, 1]>>, tensor<f32>) -> tensor<1x8x?x3xf32, #lathe.t<[1, 8, L, 3]>>
    %2 = lathe.reshape %1 : (tensor<1x8x?x3xf32, #lathe.t<[1, 8, L, 3]>>) -> tensor<1x8x?xf32, #lathe.t<[1, 8, 3*L]>>
    %3 = lathe.pad %2, %zero {low = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<3>], high = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], mode = #lathe.pad_mode<constant>} : (tensor<1x8x?xf32, #lathe.t<[1, 8, 3*L]>>, tensor<f32>) -> tensor<1x8x?xf32, #lathe.t<[1, 8, 3*L + 4]>>
    %4 = lathe.conv %3, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, group = 2 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x?xf32, #lathe.t<[1, 8, 3*L + 4]>>, tensor<4x4x4xf32>) -> tensor<1x4x?xf32, #lathe.t<[1, 4, 3*L + 1]>>
    return %4 : tensor<1x4x?xf32, #lathe.t<[1, 4, 3*L + 1]>>
  }
}

// A GPU keeps the zeros, and so does a convolution whose filters only the run knows.
// CHECK-LABEL: module @gpu
// CHECK: lathe.pad
// CHECK: lathe.conv
module @gpu attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<1x8x4xf32>) -> tensor<1x4x8xf32> {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %w = lathe.constant dense<0.5> : tensor<4x8x2xf32>
    %0 = lathe.reshape %x : (tensor<1x8x4xf32>) -> tensor<1x8x4x1xf32>
    %1 = lathe.pad %0, %zero {low = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], high = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], mode = #lathe.pad_mode<constant>} : (tensor<1x8x4x1xf32>, tensor<f32>) -> tensor<1x8x4x2xf32>
    %2 = lathe.reshape %1 : (tensor<1x8x4x2xf32>) -> tensor<1x8x8xf32>
    %3 = lathe.conv %2, %w {strides = array<i64: 1>, pads = array<i64: 1, 0>, dilations = array<i64: 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x8xf32>, tensor<4x8x2xf32>) -> tensor<1x4x8xf32>
    return %3 : tensor<1x4x8xf32>
  }
}
// CHECK-LABEL: module @unknown
// CHECK: lathe.pad
module @unknown attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x8x4xf32>, %w: tensor<4x8x2xf32>) -> tensor<1x4x8xf32> {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %0 = lathe.reshape %x : (tensor<1x8x4xf32>) -> tensor<1x8x4x1xf32>
    %1 = lathe.pad %0, %zero {low = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], high = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], mode = #lathe.pad_mode<constant>} : (tensor<1x8x4x1xf32>, tensor<f32>) -> tensor<1x8x4x2xf32>
    %2 = lathe.reshape %1 : (tensor<1x8x4x2xf32>) -> tensor<1x8x8xf32>
    %3 = lathe.conv %2, %w {strides = array<i64: 1>, pads = array<i64: 1, 0>, dilations = array<i64: 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x8xf32>, tensor<4x8x2xf32>) -> tensor<1x4x8xf32>
    return %3 : tensor<1x4x8xf32>
  }
}

// Windows side by side are filters of one pixel already: what follows goes before their change of order.
// CHECK-LABEL: module @tiles
// CHECK: %[[Y:.*]] = lathe.conv {{.*}} -> tensor<1x4x5x32xf32>
// CHECK: %[[B:.*]] = lathe.broadcast_to {{.*}} -> tensor<1x4x8xf32>
// CHECK: %[[V:.*]] = lathe.reshape %[[B]] : (tensor<1x4x8xf32>) -> tensor<32xf32>
// CHECK: %[[A:.*]] = lathe.add %[[Y]], %[[V]]
// CHECK: lathe.reshape %[[A]] : (tensor<1x4x5x32xf32>) -> tensor<1x4x5x2x2x8xf32>
module @tiles attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x8x4x5xf32>, %w: tensor<32x8x1x1xf32>, %b: tensor<8x1x1xf32>) -> tensor<1x8x8x10xf32> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x4x5xf32>, tensor<32x8x1x1xf32>) -> tensor<1x32x4x5xf32>
    %1 = lathe.transpose %0 {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x32x4x5xf32>) -> tensor<1x4x5x32xf32>
    %2 = lathe.reshape %1 : (tensor<1x4x5x32xf32>) -> tensor<1x4x5x2x2x8xf32>
    %3 = lathe.transpose %2 {perm = array<i64: 0, 1, 3, 2, 4, 5>} : (tensor<1x4x5x2x2x8xf32>) -> tensor<1x4x2x5x2x8xf32>
    %4 = lathe.reshape %3 : (tensor<1x4x2x5x2x8xf32>) -> tensor<1x8x10x8xf32>
    %5 = lathe.transpose %4 {perm = array<i64: 0, 3, 1, 2>} : (tensor<1x8x10x8xf32>) -> tensor<1x8x8x10xf32>
    %6 = lathe.add %5, %b : (tensor<1x8x8x10xf32>, tensor<8x1x1xf32>) -> tensor<1x8x8x10xf32>
    return %6 : tensor<1x8x8x10xf32>
  }
}
