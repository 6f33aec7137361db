// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

// CHECK-LABEL: func.func @rope
func.func @rope(%x: tensor<?x4x?x64xbf16, #lathe.t<[B, 4, S, 64]>>, %c: tensor<?x1x?x32xbf16, #lathe.t<[B, 1, S, 32]>>, %a: tensor<?x16xbf16, #lathe.t<[S, 16]>>) {
  // Halves of whole heads, an angle for each pair.
  // CHECK: lathe.rope %arg0, %arg1, %arg1 {rotary = 64 : i64} : {{.*}} -> tensor<?x4x?x64xbf16, #lathe.t<[B, 4, S, 64]>>
  %0 = lathe.rope %x, %c, %c {rotary = 64 : i64} : (tensor<?x4x?x64xbf16, #lathe.t<[B, 4, S, 64]>>, tensor<?x1x?x32xbf16, #lathe.t<[B, 1, S, 32]>>, tensor<?x1x?x32xbf16, #lathe.t<[B, 1, S, 32]>>) -> tensor<?x4x?x64xbf16, #lathe.t<[B, 4, S, 64]>>
  // Neighbours of a part, by angles themselves.
  // CHECK: lathe.rope %arg0, %arg2 {interleaved, rotary = 16 : i64}
  %1 = lathe.rope %x, %a {interleaved, rotary = 16 : i64} : (tensor<?x4x?x64xbf16, #lathe.t<[B, 4, S, 64]>>, tensor<?x16xbf16, #lathe.t<[S, 16]>>) -> tensor<?x4x?x64xbf16, #lathe.t<[B, 4, S, 64]>>
  return
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<?x8x?x32xf32, #lathe.t<[B, 8, S, 32]>>, %k: tensor<?x2x?x32xf32, #lathe.t<[B, 2, T, 32]>>, %v: tensor<?x2x?x16xf32, #lathe.t<[B, 2, T, 16]>>, %m: tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, T]>>) {
  // CHECK: lathe.attention {{.*}} -> tensor<?x8x?x16xf32, #lathe.t<[B, 8, S, 16]>>
  %0 = lathe.attention %q, %k, %v mask %m {scale = 0.125 : f64, causal} : (tensor<?x8x?x32xf32, #lathe.t<[B, 8, S, 32]>>, tensor<?x2x?x32xf32, #lathe.t<[B, 2, T, 32]>>, tensor<?x2x?x16xf32, #lathe.t<[B, 2, T, 16]>>, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, T]>>) -> tensor<?x8x?x16xf32, #lathe.t<[B, 8, S, 16]>>
  return
}

// The log-sum-exp of each row as a second result; of bfloat16 it is f32, of f64 f64.
// CHECK-LABEL: func.func @attention_sums
func.func @attention_sums(%q: tensor<?x8x?x32xbf16, #lathe.t<[B, 8, S, 32]>>, %k: tensor<?x2x?x32xbf16, #lathe.t<[B, 2, T, 32]>>, %v: tensor<?x2x?x16xbf16, #lathe.t<[B, 2, T, 16]>>, %d: tensor<1x2x3x4xf64>) {
  // CHECK: %{{.*}}, %{{.*}} = lathe.attention %{{.*}} {causal, log_sum_exp, scale = 1.250000e-01 : f64} : {{.*}} -> (tensor<?x8x?x16xbf16, #lathe.t<[B, 8, S, 16]>>, tensor<?x8x?xf32, #lathe.t<[B, 8, S]>>)
  %0, %1 = lathe.attention %q, %k, %v {scale = 0.125 : f64, causal, log_sum_exp} : (tensor<?x8x?x32xbf16, #lathe.t<[B, 8, S, 32]>>, tensor<?x2x?x32xbf16, #lathe.t<[B, 2, T, 32]>>, tensor<?x2x?x16xbf16, #lathe.t<[B, 2, T, 16]>>) -> (tensor<?x8x?x16xbf16, #lathe.t<[B, 8, S, 16]>>, tensor<?x8x?xf32, #lathe.t<[B, 8, S]>>)
  // CHECK: lathe.attention {{.*}} -> (tensor<1x2x3x4xf64>, tensor<1x2x3xf64>)
  %2, %3 = lathe.attention %d, %d, %d {scale = 1.0 : f64, log_sum_exp} : (tensor<1x2x3x4xf64>, tensor<1x2x3x4xf64>, tensor<1x2x3x4xf64>) -> (tensor<1x2x3x4xf64>, tensor<1x2x3xf64>)
  return
}

// Every operand in its place.
// CHECK-LABEL: func.func @attention_operands
func.func @attention_operands(%q: tensor<?x8x?x32xf32, #lathe.t<[B, 8, S, 32]>>, %k: tensor<?x2x?x32xf32, #lathe.t<[B, 2, T, 32]>>, %b: tensor<8x?x?xf32, #lathe.t<[8, S, T]>>, %m: tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, T]>>, %n: tensor<?xi64, #lathe.t<[B]>>, %i: tensor<i32>, %mine: tensor<?x?xi32, #lathe.t<[B, S]>>, %theirs: tensor<1x?xi32, #lathe.t<[1, T]>>, %s: tensor<8x1x1xf32>) {
  // CHECK: lathe.attention %arg0, %arg1, %arg1 bias %arg2 mask %arg3 starts %arg4 lengths %arg4 offset %arg5 documents %arg6, %arg7 sink %arg8 {causal, scale = 1.250000e-01 : f64, softcap = 3.000000e+01 : f64, window_left = 7 : i64, window_right = 0 : i64, zero_masked_rows}
  %0 = lathe.attention %q, %k, %k bias %b mask %m starts %n lengths %n offset %i documents %mine, %theirs sink %s {causal, scale = 0.125 : f64, softcap = 30.0 : f64, window_left = 7 : i64, window_right = 0 : i64, zero_masked_rows} : (tensor<?x8x?x32xf32, #lathe.t<[B, 8, S, 32]>>, tensor<?x2x?x32xf32, #lathe.t<[B, 2, T, 32]>>, tensor<?x2x?x32xf32, #lathe.t<[B, 2, T, 32]>>, tensor<8x?x?xf32, #lathe.t<[8, S, T]>>, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, T]>>, tensor<?xi64, #lathe.t<[B]>>, tensor<?xi64, #lathe.t<[B]>>, tensor<i32>, tensor<?x?xi32, #lathe.t<[B, S]>>, tensor<1x?xi32, #lathe.t<[1, T]>>, tensor<8x1x1xf32>) -> tensor<?x8x?x32xf32, #lathe.t<[B, 8, S, 32]>>
  return
}
