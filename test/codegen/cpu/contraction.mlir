// RUN: %lathe-opt %s --lathe-emit-tile="config=pointwise.v8 grid=4" | %lathe-translate --tile-to-llvm | FileCheck %s
// Sums of products may become fused multiply-adds. A rotation's do not: its two products cancel, and each is
// rounded as ONNX's definition says.

// CHECK-LABEL: define internal void @sum.body
// CHECK: %[[P:.*]] = fmul contract <8 x float>
// CHECK: fadd contract <8 x float> %[[P]]
func.func @sum(%x: tensor<4x16xf32>, %y: tensor<4x16xf32>, %z: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = lathe.mul %x, %y : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %1 = lathe.add %0, %z : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  return %1 : tensor<4x16xf32>
}

// CHECK-LABEL: define internal void @rotation.body
// CHECK-NOT: contract
// CHECK: fmul <8 x float>
// CHECK-NOT: contract
// CHECK: fmul <8 x float>
// CHECK-NOT: contract
// CHECK: fadd <8 x float>
// CHECK-NOT: contract
// CHECK: ret void
func.func @rotation(%x: tensor<4x16xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %0 = lathe.rope %x, %cos, %sin {rotary = 16 : i64} : (tensor<4x16xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}
