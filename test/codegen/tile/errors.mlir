// RUN: not %lathe-opt %s --split-input-file --lathe-emit-tile="config=row.v8" 2>&1 | FileCheck %s
// CHECK: error: code generation: the row schedule needs a reduction
func.func @no_reduction(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = lathe.neg %x : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// -----
// CHECK: error: code generation: output 1 has neither the size of the data nor that of the rows
func.func @outside(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<3xf32>) {
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = false} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = lathe.slice %0 {starts = [#lathe.dim<0>], steps = array<i64: 1>} : (tensor<4xf32>) -> tensor<3xf32>
  return %0, %1 : tensor<4xf32>, tensor<3xf32>
}
