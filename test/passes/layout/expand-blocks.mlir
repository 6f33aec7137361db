// RUN: %lathe-opt --lathe-expand-blocks --split-input-file %s | FileCheck %s

// Blocks of two dimensions, the last of them cut; a codebook; what has no blocks stays as it is.
// CHECK-LABEL: func.func @blocks
// CHECK: %[[A:.*]] = lathe.reshape %arg1 {{.*}} -> tensor<2x1x3xf32>
// CHECK: %[[B:.*]] = lathe.broadcast_to %[[A]] {{.*}} -> tensor<2x3x3xf32>
// CHECK: %[[C:.*]] = lathe.reshape %[[B]] {{.*}} -> tensor<6x3xf32>
// CHECK: %[[D:.*]] = lathe.slice %[[C]] {{.*}} -> tensor<5x3xf32>
// CHECK: lathe.reshape %[[D]] {{.*}} -> tensor<5x3x1xf32>
// CHECK: lathe.broadcast_to {{.*}} -> tensor<5x3x4xf32>
// CHECK: %[[S:.*]] = lathe.reshape {{.*}} -> tensor<5x12xf32>
// CHECK: lathe.dequantize %arg0 scale(%[[S]]) zero(%arg2) : (tensor<5x12xi8>, tensor<5x12xf32>, tensor<1x1xi8>)
// CHECK: %[[U:.*]] = lathe.bitcast %arg3 {{.*}} -> tensor<5x12xui4>
// CHECK: %[[I:.*]] = lathe.cast %[[U]] {{.*}} -> tensor<5x12xi64>
// CHECK: %[[G:.*]] = lathe.gather %arg4, %[[I]]
// CHECK: lathe.dequantize %[[G]] : (tensor<5x12xf32>) -> tensor<5x12xf16>
// CHECK: lathe.dequantize %arg0 zero(%arg2) : (tensor<5x12xi8>, tensor<1x1xi8>) -> tensor<5x12xf32>
// CHECK: lathe.quantize {{.*}} scale({{.*}}) : (tensor<5x12xf32>, tensor<5x12xf32>) -> tensor<5x12xi8>
module attributes {lathe.target = "sm_80"} {
  func.func @blocks(%q: tensor<5x12xi8>, %s: tensor<2x3xf32>, %z: tensor<1x1xi8>, %c: tensor<5x12xi4>, %b: tensor<16xf32>, %t: tensor<5x6xf32>) -> (tensor<5x12xf32>, tensor<5x12xf16>, tensor<5x12xi8>) {
    %0 = lathe.dequantize %q scale(%s) zero(%z) {block = array<i64: 3, 4>} : (tensor<5x12xi8>, tensor<2x3xf32>, tensor<1x1xi8>) -> tensor<5x12xf32>
    %1 = lathe.dequantize %c codebook(%b) : (tensor<5x12xi4>, tensor<16xf32>) -> tensor<5x12xf16>
    %2 = lathe.dequantize %q zero(%z) : (tensor<5x12xi8>, tensor<1x1xi8>) -> tensor<5x12xf32>
    %3 = lathe.add %0, %2 : (tensor<5x12xf32>, tensor<5x12xf32>) -> tensor<5x12xf32>
    %4 = lathe.quantize %3 scale(%t) {block = array<i64: 1, 2>} : (tensor<5x12xf32>, tensor<5x6xf32>) -> tensor<5x12xi8>
    return %0, %1, %4 : tensor<5x12xf32>, tensor<5x12xf16>, tensor<5x12xi8>
  }
}

// -----

// Codes of both operands that tensor cores multiply as they are keep their blocks; another reader gets them repeated.
// CHECK-LABEL: func.func @scaled
// CHECK-DAG: %[[A:.*]] = lathe.dequantize %arg0 scale(%arg1) {block = array<i64: 1, 128>}
// CHECK-DAG: %[[B:.*]] = lathe.dequantize %arg2 scale(%arg3) {block = array<i64: 128, 128>}
// CHECK-DAG: lathe.matmul %[[A]], %[[B]] {transpose_b}
// CHECK-DAG: %[[S:.*]] = lathe.reshape %{{.*}} : (tensor<4x2x128xf32>) -> tensor<4x256xf32>
// CHECK-DAG: %[[C:.*]] = lathe.dequantize %arg0 scale(%[[S]]) : (tensor<4x256xf8E4M3FN>, tensor<4x256xf32>) -> tensor<4x256xf32>
// CHECK: lathe.neg %[[C]]
module attributes {lathe.target = "sm_90a"} {
  func.func @scaled(%x: tensor<4x256xf8E4M3FN>, %s: tensor<4x2xf32>, %w: tensor<128x256xf8E4M3FN>, %t: tensor<1x2xf32>) -> (tensor<4x128xf32>, tensor<4x256xf32>) {
    %0 = lathe.dequantize %x scale(%s) {block = array<i64: 1, 128>} : (tensor<4x256xf8E4M3FN>, tensor<4x2xf32>) -> tensor<4x256xf32>
    %1 = lathe.dequantize %w scale(%t) {block = array<i64: 128, 128>} : (tensor<128x256xf8E4M3FN>, tensor<1x2xf32>) -> tensor<128x256xf32>
    %2 = lathe.matmul %0, %1 {transpose_b} : (tensor<4x256xf32>, tensor<128x256xf32>) -> tensor<4x128xf32>
    %3 = lathe.neg %0 : (tensor<4x256xf32>) -> tensor<4x256xf32>
    return %2, %3 : tensor<4x128xf32>, tensor<4x256xf32>
  }
}

// -----

// Elsewhere they are repeated.
// CHECK-LABEL: func.func @elsewhere
// CHECK-NOT: block =
module attributes {lathe.target = "sm_80"} {
  func.func @elsewhere(%x: tensor<4x256xf8E4M3FN>, %s: tensor<4x2xf32>, %w: tensor<128x256xf8E4M3FN>, %t: tensor<1x2xf32>) -> tensor<4x128xf32> {
    %0 = lathe.dequantize %x scale(%s) {block = array<i64: 1, 128>} : (tensor<4x256xf8E4M3FN>, tensor<4x2xf32>) -> tensor<4x256xf32>
    %1 = lathe.dequantize %w scale(%t) {block = array<i64: 128, 128>} : (tensor<128x256xf8E4M3FN>, tensor<1x2xf32>) -> tensor<128x256xf32>
    %2 = lathe.matmul %0, %1 {transpose_b} : (tensor<4x256xf32>, tensor<128x256xf32>) -> tensor<4x128xf32>
    return %2 : tensor<4x128xf32>
  }
}
