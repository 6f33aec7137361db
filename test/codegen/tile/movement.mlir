// RUN: %lathe-opt %s --lathe-emit-tile="config=pointwise.v8" | FileCheck %s
// Movement is index arithmetic: one load, one store.
// CHECK-LABEL: func.func @heads
// CHECK: tile.load {{.*}} -> vector<8xf32>
// CHECK-NOT: tile.load
// CHECK: tile.store {{.*}} : vector<8xf32>
func.func @heads(%x: tensor<2x9x64xf32>) -> tensor<2x4x9x16xf32> {
  %0 = lathe.reshape %x : (tensor<2x9x64xf32>) -> tensor<2x9x4x16xf32>
  %1 = lathe.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x9x4x16xf32>) -> tensor<2x4x9x16xf32>
  return %1 : tensor<2x4x9x16xf32>
}
// CHECK-LABEL: func.func @take
// CHECK: %[[I:.*]] = tile.load {{.*}} : memref<?xi64> -> i64
// CHECK: %[[ROW:.*]] = tile.check_index %[[I]], %c100 : i64
// CHECK: arith.muli %[[ROW]], %c32
// CHECK: tile.load {{.*}} -> vector<8xf32>
func.func @take(%x: tensor<100x32xf32>, %i: tensor<7xi64>) -> tensor<7x32xf32> {
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<100x32xf32>, tensor<7xi64>) -> tensor<7x32xf32>
  return %0 : tensor<7x32xf32>
}
