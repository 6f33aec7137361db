// RUN: %lathe-opt --split-input-file --lathe-decompose-composites %s | FileCheck %s

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

// -----

module attributes {lathe.target = "sm_90a"} {
  // No kernel of attention holds heads of 512: two products around a softmax in f32.
  // CHECK-LABEL: @large_heads
  // CHECK: %[[S:.*]] = lathe.matmul %arg0, %arg1 {transpose_b} : {{.*}} -> tensor<2x1x64x64xf16>
  // CHECK: lathe.cast %[[S]]{{.*}} -> tensor<2x1x64x64xf32>
  // CHECK: lathe.mul
  // CHECK: lathe.add %{{.*}}, %{{.*}} : (tensor<2x1x64x64xf32>, tensor<64xf32>)
  // CHECK-COUNT-2: lathe.reduce
  // CHECK: %[[P:.*]] = lathe.cast %{{.*}} -> tensor<2x1x64x64xf16>
  // CHECK: lathe.matmul %[[P]], %arg2 : {{.*}} -> tensor<2x1x64x512xf16>
  func.func @large_heads(%q: tensor<2x1x64x512xf16>, %k: tensor<2x1x64x512xf16>, %v: tensor<2x1x64x512xf16>,
                         %b: tensor<64xf16>) -> tensor<2x1x64x512xf16> {
    %0 = lathe.attention %q, %k, %v bias %b {scale = 0.5 : f64}
        : (tensor<2x1x64x512xf16>, tensor<2x1x64x512xf16>, tensor<2x1x64x512xf16>, tensor<64xf16>) -> tensor<2x1x64x512xf16>
    return %0 : tensor<2x1x64x512xf16>
  }
  // CHECK-LABEL: @heads_that_fit
  // CHECK: lathe.attention
  func.func @heads_that_fit(%q: tensor<2x1x64x256xf16>, %k: tensor<2x1x64x256xf16>) -> tensor<2x1x64x256xf16> {
    %0 = lathe.attention %q, %k, %k {scale = 0.5 : f64}
        : (tensor<2x1x64x256xf16>, tensor<2x1x64x256xf16>, tensor<2x1x64x256xf16>) -> tensor<2x1x64x256xf16>
    return %0 : tensor<2x1x64x256xf16>
  }
  // A causal end is more than a scale, a bias and a softmax.
  // CHECK-LABEL: @causal
  // CHECK: lathe.attention
  func.func @causal(%q: tensor<2x1x64x512xf16>, %k: tensor<2x1x64x512xf16>) -> tensor<2x1x64x512xf16> {
    %0 = lathe.attention %q, %k, %k {scale = 0.5 : f64, causal}
        : (tensor<2x1x64x512xf16>, tensor<2x1x64x512xf16>, tensor<2x1x64x512xf16>) -> tensor<2x1x64x512xf16>
    return %0 : tensor<2x1x64x512xf16>
  }
}
