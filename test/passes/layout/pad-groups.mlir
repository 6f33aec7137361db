// RUN: %lathe-opt --lathe-channels-last %s | FileCheck %s

// Three groups of 12 filters, vectors of 8: 4 filters of zeros behind those of each group, whose results are cut off.
// CHECK-LABEL: module @twelve
// CHECK: %[[W:.*]] = lathe.constant {{.*}} : tensor<48x2x3x3xf32>
// CHECK: %[[X:.*]] = lathe.transpose %arg0 {perm = array<i64: 0, 2, 3, 1>}
// CHECK: %[[Y:.*]] = lathe.conv %[[X]], %[[W]] {{.*}}group = 3 : i64{{.*}} -> tensor<1x9x9x48xf32>
// CHECK: %[[A:.*]] = lathe.reshape %[[Y]] : (tensor<1x9x9x48xf32>) -> tensor<1x9x9x3x16xf32>
// CHECK: %[[S:.*]] = lathe.slice %[[A]] {{.*}} -> tensor<1x9x9x3x12xf32>
// CHECK: %[[R:.*]] = lathe.reshape %[[S]] : (tensor<1x9x9x3x12xf32>) -> tensor<1x9x9x36xf32>
// CHECK: %[[M:.*]] = lathe.max %[[R]]
// CHECK: lathe.transpose %[[M]] {perm = array<i64: 0, 3, 1, 2>}
module @twelve attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x6x9x9xf32>) -> tensor<1x36x9x9xf32> {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %w = lathe.constant dense<0.5> : tensor<36x2x3x3xf32>
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 3 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x6x9x9xf32>, tensor<36x2x3x3xf32>) -> tensor<1x36x9x9xf32>
    %1 = lathe.max %0, %zero : (tensor<1x36x9x9xf32>, tensor<f32>) -> tensor<1x36x9x9xf32>
    return %1 : tensor<1x36x9x9xf32>
  }
}

// Groups of 16 filters fill vectors, and groups of one channel have a kernel of their own.
// CHECK-LABEL: module @fit
// CHECK: lathe.conv {{.*}}group = 3 : i64{{.*}} -> tensor<1x9x9x48xf32>
// CHECK: lathe.conv {{.*}}group = 48 : i64{{.*}} -> tensor<1x9x9x144xf32>
// CHECK-NOT: lathe.slice
module @fit attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<1x6x9x9xf32>) -> tensor<1x144x9x9xf32> {
    %w = lathe.constant dense<0.5> : tensor<48x2x3x3xf32>
    %v = lathe.constant dense<0.5> : tensor<144x1x3x3xf32>
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 3 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x6x9x9xf32>, tensor<48x2x3x3xf32>) -> tensor<1x48x9x9xf32>
    %1 = lathe.conv %0, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 48 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x48x9x9xf32>, tensor<144x1x3x3xf32>) -> tensor<1x144x9x9xf32>
    return %1 : tensor<1x144x9x9xf32>
  }
}
