// RUN: %lathe-opt --lathe-fuse --lathe-name-kernels %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

module attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @B {min = 0, max = 64, opt = 16, multiple_of = 1, origin = "x[0]"}

  // A product takes what follows it point by point.
  // CHECK-LABEL: @epilogue
  // CHECK: lathe.kernel "matmul_add_max_{{[0-9]+}}" gemm
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  // REMARK: fused into the contraction before it
  func.func @epilogue(%x: tensor<?x64xf32, #lathe.t<[B, 64]>>, %w: tensor<64x64xf32>, %b: tensor<64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>> {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %0 = lathe.matmul %x, %w : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<64x64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %1 = lathe.add %0, %b : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %2 = lathe.max %1, %zero : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<f32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    return %2 : tensor<?x64xf32, #lathe.t<[B, 64]>>
  }

  // Two values would leave the kernel: the second op stays outside, with a reason.
  // CHECK-LABEL: @two_values
  // CHECK: lathe.kernel "matmul_{{[0-9]+}}" gemm
  // CHECK: lathe.kernel "exp_{{[0-9]+}}" pointwise
  // REMARK: more than one value would leave the kernel
  func.func @two_values(%x: tensor<?x64xf32, #lathe.t<[B, 64]>>, %w: tensor<64x64xf32>) -> (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x64xf32, #lathe.t<[B, 64]>>) {
    %0 = lathe.matmul %x, %w : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<64x64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %1 = lathe.exp %0 : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    return %0, %1 : tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x64xf32, #lathe.t<[B, 64]>>
  }

  // An operand that depends on the product through another kernel.
  // CHECK-LABEL: @cycle
  // CHECK: "matmul_{{[0-9]+}}" gemm
  // CHECK: "reduce_mul_{{[0-9]+}}" reduction
  // REMARK: an operand depends on its result through another kernel
  func.func @cycle(%x: tensor<?x64xf32, #lathe.t<[B, 64]>>, %w: tensor<64x64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>> {
    %0 = lathe.matmul %x, %w : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<64x64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %1 = lathe.reduce %0 {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = true} : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x1xf32, #lathe.t<[B, 1]>>
    %2 = lathe.mul %0, %1 : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x1xf32, #lathe.t<[B, 1]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    return %2 : tensor<?x64xf32, #lathe.t<[B, 64]>>
  }

  // The result is split into heads and stored in their order at once.
  // CHECK-LABEL: @output_map
  // CHECK: gemm {{.*}} -> (tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>)
  // CHECK: lathe.reshape
  // CHECK: lathe.transpose
  // CHECK: attention
  // REMARK: the kernel before stores its result in this order
  lathe.symbol @S {min = 1, max = 64, opt = 16, multiple_of = 1, origin = "x[1]"}
  func.func @output_map(%x: tensor<?x?x64xf32, #lathe.t<[B, S, 64]>>, %w: tensor<64x64xf32>) -> tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>> {
    %0 = lathe.matmul %x, %w : (tensor<?x?x64xf32, #lathe.t<[B, S, 64]>>, tensor<64x64xf32>) -> tensor<?x?x64xf32, #lathe.t<[B, S, 64]>>
    %1 = lathe.reshape %0 : (tensor<?x?x64xf32, #lathe.t<[B, S, 64]>>) -> tensor<?x?x4x16xf32, #lathe.t<[B, S, 4, 16]>>
    %2 = lathe.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x4x16xf32, #lathe.t<[B, S, 4, 16]>>) -> tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>
    %3 = lathe.attention %2, %2, %2 {scale = 0.25 : f64} : (tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>, tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>, tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>) -> tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>
    return %3 : tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>
  }

  // What follows from attention's first result is fused into it; its log-sum-exp is stored beside that.
  // CHECK-LABEL: @attention_sums
  // CHECK: %[[A:.*]]:2 = lathe.kernel "attention_add_{{[0-9]+}}" attention {{.*}} -> (tensor<2x4x8x16xf32>, tensor<2x8x4xf32>)
  // CHECK: %[[Y:.*]], %[[L:.*]] = lathe.attention
  // CHECK: lathe.yield %{{.*}}, %[[L]]
  // CHECK: return %[[A]]#1, %[[A]]#0
  func.func @attention_sums(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>) -> (tensor<2x8x4xf32>, tensor<2x4x8x16xf32>) {
    %y, %l = lathe.attention %q, %k, %k {scale = 0.25 : f64, log_sum_exp} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x4xf32>)
    %r = lathe.add %y, %q : (tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>) -> tensor<2x8x4x16xf32>
    %t = lathe.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
    return %l, %t : tensor<2x8x4xf32>, tensor<2x4x8x16xf32>
  }

  // Rows: softmax is one kernel; the sum that feeds it is stored on the way.
  // CHECK-LABEL: @rows
  // CHECK: %{{.*}}:2 = lathe.kernel "reduce_{{.*}}" reduction
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @rows(%x: tensor<?x64xf32, #lathe.t<[B, 64]>>, %y: tensor<?x64xf32, #lathe.t<[B, 64]>>) -> (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x64xf32, #lathe.t<[B, 64]>>) {
    %0 = lathe.add %x, %y : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %m = lathe.reduce %0 {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = true} : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x1xf32, #lathe.t<[B, 1]>>
    %d = lathe.sub %0, %m : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x1xf32, #lathe.t<[B, 1]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %e = lathe.exp %d : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %s = lathe.reduce %e {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x1xf32, #lathe.t<[B, 1]>>
    %z = lathe.div %e, %s : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x1xf32, #lathe.t<[B, 1]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    return %0, %z : tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x64xf32, #lathe.t<[B, 64]>>
  }

  // Movement is an index map of its reader.
  // CHECK-LABEL: @movement
  // CHECK: lathe.kernel "add_{{[0-9]+}}" pointwise
  // CHECK: lathe.transpose
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @movement(%x: tensor<64x?xf32, #lathe.t<[64, B]>>, %y: tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>> {
    %0 = lathe.transpose %x {perm = array<i64: 1, 0>} : (tensor<64x?xf32, #lathe.t<[64, B]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %1 = lathe.add %0, %y : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    return %1 : tensor<?x64xf32, #lathe.t<[B, 64]>>
  }

  // A reshape between kernels is a view.
  // CHECK-LABEL: @view
  // CHECK: %[[K:.*]] = lathe.kernel
  // CHECK: %[[V:.*]] = lathe.reshape %[[K]]
  // CHECK: gemm (%{{.*}} = %[[V]]
  func.func @view(%x: tensor<?x8x8xf32, #lathe.t<[B, 8, 8]>>, %w: tensor<64x64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>> {
    %0 = lathe.exp %x : (tensor<?x8x8xf32, #lathe.t<[B, 8, 8]>>) -> tensor<?x8x8xf32, #lathe.t<[B, 8, 8]>>
    %1 = lathe.reshape %0 : (tensor<?x8x8xf32, #lathe.t<[B, 8, 8]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    %2 = lathe.matmul %1, %w : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<64x64xf32>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
    return %2 : tensor<?x64xf32, #lathe.t<[B, 64]>>
  }

  // Sums of three neighbours along each axis: an element of the last needs nine of the first, which is stored.
  // CHECK-LABEL: @places
  // CHECK: lathe.kernel {{.*}} pointwise
  // CHECK-COUNT-3: lathe.gather {{.*}} {axis = 0 : i64}
  // CHECK: lathe.kernel {{.*}} pointwise
  // CHECK-COUNT-3: lathe.gather {{.*}} {axis = 1 : i64}
  // CHECK-NOT: lathe.kernel
  // CHECK-COUNT-3: lathe.gather {{.*}} {axis = 2 : i64}
  // CHECK: return
  // REMARK: each element of a reader would need it at 9 places
  func.func @places(%x: tensor<64x64x64xf32>, %i0: tensor<64xi64>, %i1: tensor<64xi64>, %i2: tensor<64xi64>) -> tensor<64x64x64xf32> {
    %g00 = lathe.gather %x, %i0 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %g01 = lathe.gather %x, %i1 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %g02 = lathe.gather %x, %i2 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %p0 = lathe.add %g00, %g01 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %s0 = lathe.add %p0, %g02 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %g10 = lathe.gather %s0, %i0 {axis = 1 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %g11 = lathe.gather %s0, %i1 {axis = 1 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %g12 = lathe.gather %s0, %i2 {axis = 1 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %p1 = lathe.add %g10, %g11 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %s1 = lathe.add %p1, %g12 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %g20 = lathe.gather %s1, %i0 {axis = 2 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %g21 = lathe.gather %s1, %i1 {axis = 2 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %g22 = lathe.gather %s1, %i2 {axis = 2 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %p2 = lathe.add %g20, %g21 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %s2 = lathe.add %p2, %g22 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    return %s2 : tensor<64x64x64xf32>
  }

  // What is made of nine elements is stored ahead of a reduction, which would make it in each pass; of three it is not.
  // CHECK-LABEL: @many_reads
  // CHECK: lathe.kernel {{.*}} pointwise
  // CHECK-COUNT-6: lathe.gather
  // CHECK: lathe.kernel {{.*}} reduction
  // CHECK-NOT: lathe.gather
  // CHECK: return
  // REMARK: a reduction would make it of more than 8 elements in each pass
  func.func @many_reads(%x: tensor<64x64x64xf32>, %i0: tensor<64xi64>, %i1: tensor<64xi64>, %i2: tensor<64xi64>) -> tensor<64x64x64xf32> {
    %a0 = lathe.gather %x, %i0 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %a1 = lathe.gather %x, %i1 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %a2 = lathe.gather %x, %i2 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %b0 = lathe.add %a0, %a1 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %b = lathe.add %b0, %a2 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %c0 = lathe.gather %b, %i0 {axis = 1 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %c1 = lathe.gather %b, %i1 {axis = 1 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %c2 = lathe.gather %b, %i2 {axis = 1 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %d0 = lathe.add %c0, %c1 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %d = lathe.add %d0, %c2 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %m = lathe.reduce %d {kind = #lathe.reduce_kind<max>, axes = array<i64: 2>, keepdims = true} : (tensor<64x64x64xf32>) -> tensor<64x64x1xf32>
    %y = lathe.sub %d, %m : (tensor<64x64x64xf32>, tensor<64x64x1xf32>) -> tensor<64x64x64xf32>
    return %y : tensor<64x64x64xf32>
  }

  // CHECK-LABEL: @few_reads
  // CHECK: lathe.kernel {{.*}} reduction
  // CHECK-COUNT-3: lathe.gather
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @few_reads(%x: tensor<64x64x64xf32>, %i0: tensor<64xi64>, %i1: tensor<64xi64>, %i2: tensor<64xi64>) -> tensor<64x64x64xf32> {
    %a0 = lathe.gather %x, %i0 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %a1 = lathe.gather %x, %i1 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %a2 = lathe.gather %x, %i2 {axis = 0 : i64} : (tensor<64x64x64xf32>, tensor<64xi64>) -> tensor<64x64x64xf32>
    %b0 = lathe.add %a0, %a1 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %d = lathe.add %b0, %a2 : (tensor<64x64x64xf32>, tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %m = lathe.reduce %d {kind = #lathe.reduce_kind<max>, axes = array<i64: 2>, keepdims = true} : (tensor<64x64x64xf32>) -> tensor<64x64x1xf32>
    %y = lathe.sub %d, %m : (tensor<64x64x64xf32>, tensor<64x64x1xf32>) -> tensor<64x64x64xf32>
    return %y : tensor<64x64x64xf32>
  }

  // Rows that lie across memory are turned once, and not gathered in each pass.
  // CHECK-LABEL: @turned_rows
  // CHECK: lathe.kernel {{.*}} copy
  // CHECK: lathe.transpose
  // CHECK: lathe.kernel {{.*}} reduction
  // CHECK-NOT: lathe.transpose
  // CHECK: return
  // REMARK: a reduction would gather its rows in each pass
  func.func @turned_rows(%x: tensor<64x64x64xf32>) -> tensor<64x64x64xf32> {
    %d = lathe.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<64x64x64xf32>) -> tensor<64x64x64xf32>
    %m = lathe.reduce %d {kind = #lathe.reduce_kind<max>, axes = array<i64: 2>, keepdims = true} : (tensor<64x64x64xf32>) -> tensor<64x64x1xf32>
    %y = lathe.sub %d, %m : (tensor<64x64x64xf32>, tensor<64x64x1xf32>) -> tensor<64x64x64xf32>
    return %y : tensor<64x64x64xf32>
  }
}
