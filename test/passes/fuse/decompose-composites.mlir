// RUN: %lathe-opt --lathe-decompose-composites %s | FileCheck %s

module attributes {lathe.target = "x86-64-v3"} {
  // CHECK-LABEL: @softmax
  // CHECK: %[[M:.*]] = lathe.reduce %arg0 {axes = array<i64: 1>, keepdims = true, kind = #lathe.reduce_kind<max>}
  // CHECK: %[[D:.*]] = lathe.sub %arg0, %[[M]]
  // CHECK: %[[E:.*]] = lathe.exp %[[D]]
  // CHECK: %[[S:.*]] = lathe.reduce %[[E]] {{.*}}kind = #lathe.reduce_kind<sum>
  // CHECK: lathe.div %[[E]], %[[S]]
  func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = lathe.softmax %x {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
  // 16-bit rows are computed in f32.
  // CHECK-LABEL: @rms_norm
  // CHECK: lathe.cast %arg0{{.*}} : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  // CHECK: lathe.rsqrt
  // CHECK: lathe.cast {{.*}}(tensor<4x8xf32>) -> tensor<4x8xbf16>
  func.func @rms_norm(%x: tensor<4x8xbf16>, %w: tensor<8xbf16>) -> tensor<4x8xbf16> {
    %0 = lathe.rms_norm %x, %w {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<4x8xbf16>, tensor<8xbf16>) -> tensor<4x8xbf16>
    return %0 : tensor<4x8xbf16>
  }
  // CHECK-LABEL: @layer_norm
  // CHECK-COUNT-2: lathe.reduce
  // CHECK: lathe.add %{{.*}}, %arg2
  func.func @layer_norm(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
    %0 = lathe.layer_norm %x, %w, %b {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
