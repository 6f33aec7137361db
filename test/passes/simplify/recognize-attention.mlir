// RUN: %lathe-opt --lathe-recognize-attention %s | FileCheck %s
// RUN: %lathe-opt --lathe-recognize-attention --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Grouped heads, the scale on the scores, an added mask, a guard against rows of NaN.
// CHECK-LABEL: @grouped
// CHECK: lathe.attention %arg0, %arg1, %arg2 bias %arg3 {scale = 2.500000e-01 : f64, zero_masked_rows}
func.func @grouped(%q: tensor<2x8x4x16xf32>, %k: tensor<2x2x6x16xf32>, %v: tensor<2x2x6x16xf32>, %mask: tensor<2x1x4x6xf32>) -> tensor<2x8x4x16xf32> {
  %k0 = lathe.reshape %k : (tensor<2x2x6x16xf32>) -> tensor<2x2x1x6x16xf32>
  %k1 = lathe.broadcast_to %k0 : (tensor<2x2x1x6x16xf32>) -> tensor<2x2x4x6x16xf32>
  %k2 = lathe.reshape %k1 : (tensor<2x2x4x6x16xf32>) -> tensor<2x8x6x16xf32>
  %v0 = lathe.reshape %v : (tensor<2x2x6x16xf32>) -> tensor<2x2x1x6x16xf32>
  %v1 = lathe.broadcast_to %v0 : (tensor<2x2x1x6x16xf32>) -> tensor<2x2x4x6x16xf32>
  %v2 = lathe.reshape %v1 : (tensor<2x2x4x6x16xf32>) -> tensor<2x8x6x16xf32>
  %s = lathe.matmul %q, %k2 {transpose_b} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x6xf32>
  %c = lathe.constant dense<0.25> : tensor<f32>
  %m = lathe.mul %s, %c : (tensor<2x8x4x6xf32>, tensor<f32>) -> tensor<2x8x4x6xf32>
  %a = lathe.add %m, %mask : (tensor<2x8x4x6xf32>, tensor<2x1x4x6xf32>) -> tensor<2x8x4x6xf32>
  %p = lathe.softmax %a {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %n = lathe.is_nan %p : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xi1>
  %zero = lathe.constant dense<0.0> : tensor<f32>
  %g = lathe.select %n, %zero, %p : (tensor<2x8x4x6xi1>, tensor<f32>, tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %g, %v2 : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}

// The scale split between queries and keys, keys transposed first.
// CHECK-LABEL: @split_scale
// CHECK: lathe.attention %arg0, %arg1, %arg2 {scale = 2.500000e-01 : f64}
func.func @split_scale(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %v: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
  %c = lathe.constant dense<0.5> : tensor<f32>
  %q0 = lathe.mul %q, %c : (tensor<2x8x4x16xf32>, tensor<f32>) -> tensor<2x8x4x16xf32>
  %kt = lathe.transpose %k {perm = array<i64: 0, 1, 3, 2>} : (tensor<2x8x6x16xf32>) -> tensor<2x8x16x6xf32>
  %k0 = lathe.mul %kt, %c : (tensor<2x8x16x6xf32>, tensor<f32>) -> tensor<2x8x16x6xf32>
  %s = lathe.matmul %q0, %k0 : (tensor<2x8x4x16xf32>, tensor<2x8x16x6xf32>) -> tensor<2x8x4x6xf32>
  %p = lathe.softmax %s {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %p, %v : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}

// Something between scores and softmax that attention does not know.
// CHECK-LABEL: @tanh
// CHECK-NOT: lathe.attention
// REMARK: not recognised as attention: the scores are no product of queries and keys
func.func @tanh(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %v: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
  %s = lathe.matmul %q, %k {transpose_b} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x6xf32>
  %t = lathe.tanh %s : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %p = lathe.softmax %t {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %p, %v : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}

// An attention whose heads are repeated in memory.
// CHECK-LABEL: @repeated
// CHECK: lathe.attention %arg0, %arg1, %arg2
func.func @repeated(%q: tensor<2x8x4x16xf32>, %k: tensor<2x2x6x16xf32>, %v: tensor<2x2x6x16xf32>) -> tensor<2x8x4x16xf32> {
  %k0 = lathe.reshape %k : (tensor<2x2x6x16xf32>) -> tensor<2x2x1x6x16xf32>
  %k1 = lathe.broadcast_to %k0 : (tensor<2x2x1x6x16xf32>) -> tensor<2x2x4x6x16xf32>
  %k2 = lathe.reshape %k1 : (tensor<2x2x4x6x16xf32>) -> tensor<2x8x6x16xf32>
  %v0 = lathe.reshape %v : (tensor<2x2x6x16xf32>) -> tensor<2x2x1x6x16xf32>
  %v1 = lathe.broadcast_to %v0 : (tensor<2x2x1x6x16xf32>) -> tensor<2x2x4x6x16xf32>
  %v2 = lathe.reshape %v1 : (tensor<2x2x4x6x16xf32>) -> tensor<2x8x6x16xf32>
  %y = lathe.attention %q, %k2, %v2 {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}

// The same as repeat_interleave writes it, with one more size of 1; tiled instead, they stay.
// CHECK-LABEL: @interleaved
// CHECK: %[[T:.*]] = lathe.reshape %{{.*}} : (tensor<2x4x2x6x16xf32>) -> tensor<2x8x6x16xf32>
// CHECK: lathe.attention %arg0, %arg1, %arg2 {
// CHECK: lathe.attention %arg0, %[[T]], %[[T]] {
func.func @interleaved(%q: tensor<2x8x4x16xf32>, %k: tensor<2x2x6x16xf32>, %v: tensor<2x2x6x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>) {
  %k0 = lathe.reshape %k : (tensor<2x2x6x16xf32>) -> tensor<2x2x1x1x6x16xf32>
  %k1 = lathe.broadcast_to %k0 : (tensor<2x2x1x1x6x16xf32>) -> tensor<2x2x4x1x6x16xf32>
  %k2 = lathe.reshape %k1 : (tensor<2x2x4x1x6x16xf32>) -> tensor<2x8x6x16xf32>
  %v0 = lathe.reshape %v : (tensor<2x2x6x16xf32>) -> tensor<2x2x1x1x6x16xf32>
  %v1 = lathe.broadcast_to %v0 : (tensor<2x2x1x1x6x16xf32>) -> tensor<2x2x4x1x6x16xf32>
  %v2 = lathe.reshape %v1 : (tensor<2x2x4x1x6x16xf32>) -> tensor<2x8x6x16xf32>
  %t0 = lathe.reshape %k : (tensor<2x2x6x16xf32>) -> tensor<2x1x2x6x16xf32>
  %t1 = lathe.broadcast_to %t0 : (tensor<2x1x2x6x16xf32>) -> tensor<2x4x2x6x16xf32>
  %t2 = lathe.reshape %t1 : (tensor<2x4x2x6x16xf32>) -> tensor<2x8x6x16xf32>
  %y = lathe.attention %q, %k2, %v2 {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  %z = lathe.attention %q, %t2, %t2 {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y, %z : tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>
}

// A sink of each head beside the mask, the largest score taken off, the sink cut off the weights.
// CHECK-LABEL: @sink
// CHECK: lathe.attention %arg0, %arg1, %arg2 bias %arg3 sink %arg4 {scale = 2.500000e-01 : f64}
func.func @sink(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %v: tensor<2x8x6x16xf32>, %mask: tensor<2x1x4x6xf32>, %sinks: tensor<1x8x1x1xf32>) -> tensor<2x8x4x16xf32> {
  %s = lathe.matmul %q, %k {transpose_b} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x6xf32>
  %c = lathe.constant dense<0.25> : tensor<f32>
  %m = lathe.mul %s, %c : (tensor<2x8x4x6xf32>, tensor<f32>) -> tensor<2x8x4x6xf32>
  %a = lathe.add %m, %mask : (tensor<2x8x4x6xf32>, tensor<2x1x4x6xf32>) -> tensor<2x8x4x6xf32>
  %b = lathe.broadcast_to %sinks : (tensor<1x8x1x1xf32>) -> tensor<2x8x4x1xf32>
  %j = lathe.concat %a, %b {axis = 3 : i64} : (tensor<2x8x4x6xf32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x7xf32>
  %l = lathe.reduce %j {kind = #lathe.reduce_kind<max>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x7xf32>) -> tensor<2x8x4x1xf32>
  %d = lathe.sub %j, %l : (tensor<2x8x4x7xf32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x7xf32>
  %p = lathe.softmax %d {axis = 3 : i64} : (tensor<2x8x4x7xf32>) -> tensor<2x8x4x7xf32>
  %w = lathe.slice %p {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x8x4x7xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %w, %v : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}

// Weights of which more than a sink is cut off.
// CHECK-LABEL: @no_sink
// CHECK-NOT: lathe.attention
func.func @no_sink(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %v: tensor<2x8x5x16xf32>) -> tensor<2x8x4x16xf32> {
  %s = lathe.matmul %q, %k {transpose_b} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x6xf32>
  %p = lathe.softmax %s {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %w = lathe.slice %p {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x5xf32>
  %y = lathe.matmul %w, %v : (tensor<2x8x4x5xf32>, tensor<2x8x5x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}

// The log-sum-exp of the scores is a second result, also for what reads it before the values do.
// CHECK-LABEL: @sums
// CHECK: %[[Y:.*]], %[[L:.*]] = lathe.attention %arg0, %arg1, %arg2 bias %arg3 {log_sum_exp, scale = 2.500000e-01 : f64}
// CHECK: %[[R:.*]] = lathe.reshape %[[L]]
// CHECK: %[[M:.*]] = lathe.reshape %[[R]]
// CHECK: %[[N:.*]] = lathe.neg %[[R]]
// CHECK: return %[[M]], %[[Y]], %[[N]]
// REMARK: matmul, softmax, log-sum-exp and matmul are one attention
func.func @sums(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %v: tensor<2x8x6x16xf32>, %mask: tensor<2x1x4x6xf32>) -> (tensor<2x8x4xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x1xf32>) {
  %s = lathe.matmul %q, %k {transpose_b} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x6xf32>
  %c = lathe.constant dense<0.25> : tensor<f32>
  %m = lathe.mul %s, %c : (tensor<2x8x4x6xf32>, tensor<f32>) -> tensor<2x8x4x6xf32>
  %a = lathe.add %m, %mask : (tensor<2x8x4x6xf32>, tensor<2x1x4x6xf32>) -> tensor<2x8x4x6xf32>
  %top = lathe.reduce %a {kind = #lathe.reduce_kind<max>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  %d = lathe.sub %a, %top : (tensor<2x8x4x6xf32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x6xf32>
  %e = lathe.exp %d : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %n = lathe.reduce %e {kind = #lathe.reduce_kind<sum>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  %g = lathe.log %n : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %l = lathe.add %top, %g : (tensor<2x8x4x1xf32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %r = lathe.reshape %l : (tensor<2x8x4x1xf32>) -> tensor<2x8x4xf32>
  %neg = lathe.neg %l : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %p = lathe.softmax %a {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %p, %v : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %r, %y, %neg : tensor<2x8x4xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x1xf32>
}

// Weights that are e^(score - log(sum(e^score))), without the largest score taken off.
// CHECK-LABEL: @weights
// CHECK: %[[Y:.*]], %[[L:.*]] = lathe.attention %arg0, %arg1, %arg2 {log_sum_exp, scale = 1.000000e+00 : f64}
// CHECK: %[[R:.*]] = lathe.reshape %[[L]]
// CHECK: return %[[R]], %[[Y]]
func.func @weights(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %v: tensor<2x8x6x16xf32>) -> (tensor<2x8x4x1xf32>, tensor<2x8x4x16xf32>) {
  %a = lathe.matmul %q, %k {transpose_b} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x6xf32>
  %e = lathe.exp %a : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %n = lathe.reduce %e {kind = #lathe.reduce_kind<sum>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  %l = lathe.log %n : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %d = lathe.sub %a, %l : (tensor<2x8x4x6xf32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x6xf32>
  %p = lathe.exp %d : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %p, %v : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %l, %y : tensor<2x8x4x1xf32>, tensor<2x8x4x16xf32>
}

// As ReduceLogSumExp comes: an infinite largest score is left out of the shift; of scores that are wider.
// CHECK-LABEL: @guarded
// CHECK: %[[Y:.*]], %[[L:.*]] = lathe.attention %arg0, %arg1, %arg2 {log_sum_exp, scale = 1.000000e+00 : f64}
// CHECK: %[[R:.*]] = lathe.reshape %[[L]] : (tensor<2x8x4xf32>) -> tensor<2x8x4x1xf32>
// CHECK: %[[M:.*]] = lathe.reshape %[[R]]
// CHECK: return %[[M]], %[[Y]]
func.func @guarded(%q: tensor<2x8x4x16xf16>, %k: tensor<2x8x6x16xf16>, %v: tensor<2x8x6x16xf16>) -> (tensor<2x8x4xf32>, tensor<2x8x4x16xf16>) {
  %a = lathe.matmul %q, %k {transpose_b} : (tensor<2x8x4x16xf16>, tensor<2x8x6x16xf16>) -> tensor<2x8x4x6xf16>
  %w = lathe.cast %a : (tensor<2x8x4x6xf16>) -> tensor<2x8x4x6xf32>
  %top = lathe.reduce %w {kind = #lathe.reduce_kind<max>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  %i = lathe.is_inf %top : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xi1>
  %zero = lathe.constant dense<0.0> : tensor<f32>
  %shift = lathe.select %i, %zero, %top : (tensor<2x8x4x1xi1>, tensor<f32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %d = lathe.sub %w, %shift : (tensor<2x8x4x6xf32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x6xf32>
  %e = lathe.exp %d : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %n = lathe.reduce %e {kind = #lathe.reduce_kind<sum>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  %g = lathe.log %n : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %l = lathe.add %g, %shift : (tensor<2x8x4x1xf32>, tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %r = lathe.reshape %l : (tensor<2x8x4x1xf32>) -> tensor<2x8x4xf32>
  %p = lathe.softmax %a {axis = 3 : i64} : (tensor<2x8x4x6xf16>) -> tensor<2x8x4x6xf16>
  %y = lathe.matmul %p, %v : (tensor<2x8x4x6xf16>, tensor<2x8x6x16xf16>) -> tensor<2x8x4x16xf16>
  return %r, %y : tensor<2x8x4xf32>, tensor<2x8x4x16xf16>
}

// Values that follow from the sum, and the sum of other scores: no second result.
// CHECK-LABEL: @other_sums
// CHECK: %[[Y:.*]] = lathe.attention %arg0, %arg1, %{{.*}} {scale = 1.000000e+00 : f64}
// CHECK-NOT: log_sum_exp
// CHECK: return
func.func @other_sums(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %v: tensor<2x8x6x16xf32>) -> (tensor<2x8x4x1xf32>, tensor<2x8x4x16xf32>) {
  %a = lathe.matmul %q, %k {transpose_b} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x6xf32>
  %e = lathe.exp %a : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %n = lathe.reduce %e {kind = #lathe.reduce_kind<sum>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  %l = lathe.log %n : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %all = lathe.reduce %l {kind = #lathe.reduce_kind<max>, axes = array<i64: 2>, keepdims = true} : (tensor<2x8x4x1xf32>) -> tensor<2x8x1x1xf32>
  %v0 = lathe.mul %v, %all : (tensor<2x8x6x16xf32>, tensor<2x8x1x1xf32>) -> tensor<2x8x6x16xf32>
  %twice = lathe.add %a, %a : (tensor<2x8x4x6xf32>, tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %e2 = lathe.exp %twice : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %n2 = lathe.reduce %e2 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 3>, keepdims = true} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x1xf32>
  %l2 = lathe.log %n2 : (tensor<2x8x4x1xf32>) -> tensor<2x8x4x1xf32>
  %p = lathe.softmax %a {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %p, %v0 : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %l2, %y : tensor<2x8x4x1xf32>, tensor<2x8x4x16xf32>
}

// A softmax whose product is none that attention says: of rank 3, of values that are transposed, over another
// dimension, behind a select of something else than NaN; and keys alone that are repeated.
// CHECK-LABEL: @rank
// CHECK-NOT: lathe.attention
// REMARK: not recognised as attention: weights and values do not have rank 4
func.func @rank(%s: tensor<8x4x6xf32>, %v: tensor<8x6x16xf32>) -> tensor<8x4x16xf32> {
  %p = lathe.softmax %s {axis = 2 : i64} : (tensor<8x4x6xf32>) -> tensor<8x4x6xf32>
  %y = lathe.matmul %p, %v : (tensor<8x4x6xf32>, tensor<8x6x16xf32>) -> tensor<8x4x16xf32>
  return %y : tensor<8x4x16xf32>
}
// CHECK-LABEL: @values_transposed
// CHECK-NOT: lathe.attention
// REMARK: not recognised as attention: weights or values are transposed
func.func @values_transposed(%s: tensor<2x8x4x6xf32>, %v: tensor<2x8x16x6xf32>) -> tensor<2x8x4x16xf32> {
  %p = lathe.softmax %s {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %p, %v {transpose_b} : (tensor<2x8x4x6xf32>, tensor<2x8x16x6xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}
// CHECK-LABEL: @over_queries
// CHECK-NOT: lathe.attention
// REMARK: not recognised as attention: the softmax is not over the keys
func.func @over_queries(%s: tensor<2x8x4x6xf32>, %v: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
  %p = lathe.softmax %s {axis = 2 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %p, %v : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}
// CHECK-LABEL: @dropout
// CHECK-NOT: lathe.attention
// REMARK: not recognised as attention: a select behind the softmax is no guard against NaN
func.func @dropout(%s: tensor<2x8x4x6xf32>, %keep: tensor<2x8x4x6xi1>, %v: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
  %p = lathe.softmax %s {axis = 3 : i64} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %zero = lathe.constant dense<0.0> : tensor<f32>
  %d = lathe.select %keep, %p, %zero : (tensor<2x8x4x6xi1>, tensor<2x8x4x6xf32>, tensor<f32>) -> tensor<2x8x4x6xf32>
  %y = lathe.matmul %d, %v : (tensor<2x8x4x6xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}
// CHECK-LABEL: @keys_repeated
// CHECK: lathe.broadcast_to
// REMARK: keys and values are repeated in memory: not both are, or not alike
func.func @keys_repeated(%q: tensor<2x8x4x16xf32>, %k: tensor<2x2x6x16xf32>, %v: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
  %k0 = lathe.reshape %k : (tensor<2x2x6x16xf32>) -> tensor<2x2x1x6x16xf32>
  %k1 = lathe.broadcast_to %k0 : (tensor<2x2x1x6x16xf32>) -> tensor<2x2x4x6x16xf32>
  %k2 = lathe.reshape %k1 : (tensor<2x2x4x6x16xf32>) -> tensor<2x8x6x16xf32>
  %y = lathe.attention %q, %k2, %v {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32>
  return %y : tensor<2x8x4x16xf32>
}

// Rows and heads merged around products of batches, as baddbmm has them; a slope a head in the bias.
// CHECK-LABEL: @merged_heads
// CHECK: %[[BIAS:.*]] = lathe.reshape %arg3 {{.*}} -> tensor<?x2x1x?xf32, #lathe.t<[B, 2, 1, T]>>
// CHECK: lathe.attention %arg0, %arg1, %arg2 bias %{{.*}} {scale = 2.500000e-01 : f64}
// CHECK-NOT: lathe.softmax
func.func @merged_heads(%q: tensor<?x2x?x16xf32, #lathe.t<[B, 2, S, 16]>>, %k: tensor<?x2x?x16xf32, #lathe.t<[B, 2, T, 16]>>, %v: tensor<?x2x?x16xf32, #lathe.t<[B, 2, T, 16]>>, %slopes: tensor<?x2x?xf32, #lathe.t<[B, 2, T]>>, %mask: tensor<?x1x?x?xf32, #lathe.t<[B, 1, S, T]>>) -> tensor<?x?x16xf32, #lathe.t<[2*B, S, 16]>> {
  %q0 = lathe.reshape %q : (tensor<?x2x?x16xf32, #lathe.t<[B, 2, S, 16]>>) -> tensor<?x?x16xf32, #lathe.t<[2*B, S, 16]>>
  %k0 = lathe.reshape %k : (tensor<?x2x?x16xf32, #lathe.t<[B, 2, T, 16]>>) -> tensor<?x?x16xf32, #lathe.t<[2*B, T, 16]>>
  %v0 = lathe.reshape %v : (tensor<?x2x?x16xf32, #lathe.t<[B, 2, T, 16]>>) -> tensor<?x?x16xf32, #lathe.t<[2*B, T, 16]>>
  %bias = lathe.reshape %slopes : (tensor<?x2x?xf32, #lathe.t<[B, 2, T]>>) -> tensor<?x1x?xf32, #lathe.t<[2*B, 1, T]>>
  %s = lathe.matmul %q0, %k0 {transpose_b} : (tensor<?x?x16xf32, #lathe.t<[2*B, S, 16]>>, tensor<?x?x16xf32, #lathe.t<[2*B, T, 16]>>) -> tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>
  %c = lathe.constant dense<0.25> : tensor<f32>
  %m = lathe.mul %s, %c : (tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>, tensor<f32>) -> tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>
  %a = lathe.add %bias, %m : (tensor<?x1x?xf32, #lathe.t<[2*B, 1, T]>>, tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>) -> tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>
  %w = lathe.reshape %a : (tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>) -> tensor<?x2x?x?xf32, #lathe.t<[B, 2, S, T]>>
  %x = lathe.add %w, %mask : (tensor<?x2x?x?xf32, #lathe.t<[B, 2, S, T]>>, tensor<?x1x?x?xf32, #lathe.t<[B, 1, S, T]>>) -> tensor<?x2x?x?xf32, #lathe.t<[B, 2, S, T]>>
  %p = lathe.softmax %x {axis = 3 : i64} : (tensor<?x2x?x?xf32, #lathe.t<[B, 2, S, T]>>) -> tensor<?x2x?x?xf32, #lathe.t<[B, 2, S, T]>>
  %p0 = lathe.reshape %p : (tensor<?x2x?x?xf32, #lathe.t<[B, 2, S, T]>>) -> tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>
  %y = lathe.matmul %p0, %v0 : (tensor<?x?x?xf32, #lathe.t<[2*B, S, T]>>, tensor<?x?x16xf32, #lathe.t<[2*B, T, 16]>>) -> tensor<?x?x16xf32, #lathe.t<[2*B, S, 16]>>
  return %y : tensor<?x?x16xf32, #lathe.t<[2*B, S, 16]>>
}

// The softmax on rows and heads as one, too.
// CHECK-LABEL: @merged_softmax
// CHECK: lathe.attention %arg0, %arg1, %arg2 {scale = 1.000000e+00 : f64}
func.func @merged_softmax(%q: tensor<3x2x4x16xf32>, %k: tensor<3x2x6x16xf32>, %v: tensor<3x2x6x16xf32>) -> tensor<3x2x4x16xf32> {
  %q0 = lathe.reshape %q : (tensor<3x2x4x16xf32>) -> tensor<6x4x16xf32>
  %k0 = lathe.reshape %k : (tensor<3x2x6x16xf32>) -> tensor<6x6x16xf32>
  %v0 = lathe.reshape %v : (tensor<3x2x6x16xf32>) -> tensor<6x6x16xf32>
  %s = lathe.matmul %q0, %k0 {transpose_b} : (tensor<6x4x16xf32>, tensor<6x6x16xf32>) -> tensor<6x4x6xf32>
  %p = lathe.softmax %s {axis = 2 : i64} : (tensor<6x4x6xf32>) -> tensor<6x4x6xf32>
  %y = lathe.matmul %p, %v0 : (tensor<6x4x6xf32>, tensor<6x6x16xf32>) -> tensor<6x4x16xf32>
  %z = lathe.reshape %y : (tensor<6x4x16xf32>) -> tensor<3x2x4x16xf32>
  return %z : tensor<3x2x4x16xf32>
}

// Queries and keys that merge unlike dimensions.
// CHECK-LABEL: @merged_unlike
// CHECK-NOT: lathe.attention
func.func @merged_unlike(%q: tensor<3x2x4x16xf32>, %k: tensor<2x3x6x16xf32>, %v: tensor<3x2x6x16xf32>) -> tensor<6x4x16xf32> {
  %q0 = lathe.reshape %q : (tensor<3x2x4x16xf32>) -> tensor<6x4x16xf32>
  %k0 = lathe.reshape %k : (tensor<2x3x6x16xf32>) -> tensor<6x6x16xf32>
  %v0 = lathe.reshape %v : (tensor<3x2x6x16xf32>) -> tensor<6x6x16xf32>
  %s = lathe.matmul %q0, %k0 {transpose_b} : (tensor<6x4x16xf32>, tensor<6x6x16xf32>) -> tensor<6x4x6xf32>
  %p = lathe.softmax %s {axis = 2 : i64} : (tensor<6x4x6xf32>) -> tensor<6x4x6xf32>
  %y = lathe.matmul %p, %v0 : (tensor<6x4x6xf32>, tensor<6x6x16xf32>) -> tensor<6x4x16xf32>
  return %y : tensor<6x4x16xf32>
}
