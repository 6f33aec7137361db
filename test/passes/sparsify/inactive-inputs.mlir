// RUN: %lathe-opt --lathe-find-zero-blocks --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-find-zero-blocks --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: %lathe-opt --lathe-find-zero-blocks --split-input-file %s | %lathe-opt --split-input-file --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select | FileCheck %s --check-prefix=SELECT

// A threshold of magnitudes, relu, relu with an upper end, also by weights of 16 bits.
// CHECK-LABEL: func.func @thresholds
// CHECK-COUNT-4: lathe.matmul %{{.*}} {lathe.inactive_inputs}
// Other values, an infinity among the weights, weights that are no constant: nothing is noted.
// CHECK-COUNT-3: lathe.matmul %{{[a-z0-9_]*}}, %{{[a-z0-9_]*}} :
// REMARK: many of its inputs may be zero, but its weights are no finite floats of 32 or 16 bits: all of them are read
// SELECT-LABEL: func.func @thresholds
// SELECT-COUNT-4: config \22gemm.active
// SELECT-NOT: gemm.active
// SELECT-LABEL: func.func @never
module attributes {lathe.target = "x86-64-v3", lathe.options = {sparse_weights = ["always"]}} {
  func.func @thresholds(%x: tensor<1x2xf32>, %z: tensor<2x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>) {
    %w = lathe.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>
    %half = lathe.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf16>
    %infinite = lathe.constant dense<[[1.0, 2.0, 3.0, 0x7F800000], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>
    %threshold = lathe.constant dense<0.5> : tensor<f32>
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %six = lathe.constant dense<6.0> : tensor<f32>
    %magnitude = lathe.abs %x : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %small = lathe.compare %magnitude, %threshold {predicate = #lathe.predicate<lt>} : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xi1>
    %active = lathe.select %small, %zero, %x : (tensor<1x2xi1>, tensor<f32>, tensor<1x2xf32>) -> tensor<1x2xf32>
    %relu = lathe.max %x, %zero : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
    %relu6 = lathe.min %relu, %six : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
    %wide = lathe.cast %half : (tensor<2x4xf16>) -> tensor<2x4xf32>
    %0 = lathe.matmul %active, %w : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    %1 = lathe.matmul %relu, %w : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    %2 = lathe.matmul %relu6, %w : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    %3 = lathe.matmul %relu, %wide : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    %4 = lathe.matmul %magnitude, %w : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    %5 = lathe.matmul %relu, %infinite : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    %6 = lathe.matmul %relu, %z : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    return %0, %1, %2, %3, %4, %5, %6 : tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>
  }
}

// -----

// Nobody asks for it.
// CHECK-LABEL: func.func @never
// CHECK-NOT: inactive_inputs
// CHECK: return
module attributes {lathe.target = "x86-64-v3", lathe.options = {sparse_weights = ["never"]}} {
  func.func @never(%x: tensor<1x2xf32>) -> tensor<1x4xf32> {
    %w = lathe.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %relu = lathe.max %x, %zero : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
    %0 = lathe.matmul %relu, %w : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    return %0 : tensor<1x4xf32>
  }
}

// -----

// Nothing is known of the zeros that relu makes.
// CHECK-LABEL: func.func @auto
// CHECK: lathe.matmul %{{.*}} {lathe.inactive_inputs}
// CHECK: lathe.matmul %{{[a-z0-9_]*}}, %{{[a-z0-9_]*}} :
module attributes {lathe.target = "x86-64-v3"} {
  func.func @auto(%x: tensor<1x2xf32>, %large: tensor<1x2xi1>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
    %w = lathe.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %active = lathe.select %large, %x, %zero : (tensor<1x2xi1>, tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
    %relu = lathe.max %x, %zero : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
    %0 = lathe.matmul %active, %w : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    %1 = lathe.matmul %relu, %w : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    return %0, %1 : tensor<1x4xf32>, tensor<1x4xf32>
  }
}

// -----

// A GPU lists what is not zero, too.
// SELECT-LABEL: func.func @gpu
// SELECT: config \22gemv.active.t256.n128.k1.s8\22
// SELECT-SAME: packing \22panels128\22
module attributes {lathe.target = "sm_90a", lathe.options = {sparse_weights = ["always"]}} {
  func.func @gpu(%x: tensor<1x2xf16>) -> tensor<1x4xf16> {
    %w = lathe.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf16>
    %zero = lathe.constant dense<0.0> : tensor<f16>
    %relu = lathe.max %x, %zero : (tensor<1x2xf16>, tensor<f16>) -> tensor<1x2xf16>
    %0 = lathe.matmul %relu, %w : (tensor<1x2xf16>, tensor<2x4xf16>) -> tensor<1x4xf16>
    return %0 : tensor<1x4xf16>
  }
}
