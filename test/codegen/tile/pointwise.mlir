// RUN: %lathe-opt %s --lathe-emit-tile="config=pointwise.v8 grid=4" | FileCheck %s
// Dimensions that all accesses walk alike are one; a row's bias keeps them apart.

!x = tensor<?x3x5xf32, #lathe.t<[B, 3, 5]>>

// CHECK-LABEL: func.func @flat
// CHECK-SAME: %[[A:.*]]: memref<?xf32>, %[[B:.*]]: memref<?xf32>, %[[Y:.*]]: memref<?xf32>, %{{.*}}: index
// CHECK-SAME: tile.kernel = #tile.launch<threads = 1, target = "x86-64-v3">
// CHECK: tile.block_id
// CHECK: scf.for
// CHECK: %[[AT:.*]] = arith.muli %{{.*}}, %c8
// CHECK-NEXT: %[[U:.*]] = tile.load %[[A]][%[[AT]]] {aligned} : memref<?xf32> -> vector<8xf32>
// CHECK-NEXT: %[[V:.*]] = tile.load %[[B]][%[[AT]]] {aligned}
// CHECK-NEXT: %[[W:.*]] = arith.addf %[[U]], %[[V]]
// CHECK-NEXT: tile.store %[[W]], %[[Y]][%[[AT]]] {aligned}
// The last elements, of which there is a run-time number, one by one.
// CHECK: scf.if
// CHECK: scf.for
// CHECK: tile.load %{{.*}} : memref<?xf32> -> f32
// CHECK-NOT: scf.for
func.func @flat(%a: !x, %b: !x) -> !x {
  %0 = lathe.add %a, %b : (!x, !x) -> !x
  return %0 : !x
}

// Four of eight lanes are left in a row of 20.
// CHECK-LABEL: func.func @row
// CHECK: scf.for
// CHECK: scf.for
// CHECK: tile.load {{.*}} -> vector<8xf32>
// CHECK: scf.if
// CHECK: tile.load {{.*}} -> vector<4xf32>
// CHECK: tile.store {{.*}} : vector<4xf32>
func.func @row(%a: tensor<6x20xf32>, %bias: tensor<20xf32>) -> tensor<6x20xf32> {
  %0 = lathe.add %a, %bias : (tensor<6x20xf32>, tensor<20xf32>) -> tensor<6x20xf32>
  return %0 : tensor<6x20xf32>
}
