// RUN: %lathe-opt %s --lathe-assign-roles=functions=true --lathe-emit-tile="config=gemm.v8.r48.m6.n16" | FileCheck %s
// Six rows by two vectors are twelve accumulators; bias and relu follow in registers.
// CHECK-LABEL: func.func @gemm
// CHECK: :12 = scf.for
// CHECK: vector.broadcast
// CHECK: math.fma
// CHECK: tile.load %arg2
// CHECK: arith.addf
// CHECK: arith.cmpf ogt
// CHECK: arith.select
// CHECK: tile.store {{.*}} %arg3
func.func @gemm(%a: tensor<6x32xf32>, %w: tensor<32x16xf32>, %bias: tensor<16xf32>) -> tensor<6x16xf32> {
  %z = lathe.constant dense<0.0> : tensor<f32>
  %0 = lathe.matmul %a, %w : (tensor<6x32xf32>, tensor<32x16xf32>) -> tensor<6x16xf32>
  %1 = lathe.add %0, %bias : (tensor<6x16xf32>, tensor<16xf32>) -> tensor<6x16xf32>
  %2 = lathe.max %1, %z : (tensor<6x16xf32>, tensor<f32>) -> tensor<6x16xf32>
  return %2 : tensor<6x16xf32>
}
