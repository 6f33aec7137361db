// RUN: %lathe-opt %s --lathe-emit-tile="config=row.t64.v4 target=sm_90a grid=B" | FileCheck %s
// A block takes a row; what a thread has read stays in registers for the second pass.
// CHECK-LABEL: func.func @norm
// CHECK: tile.load
// CHECK: tile.load
// CHECK: %[[SUM:.*]] = tile.block_reduce <sum> %{{.*}} : f32
// CHECK-NOT: tile.load
// CHECK: %[[S:.*]] = vector.broadcast %[[SUM]]
// CHECK: arith.subf %{{.*}}, %[[S]] : vector<4xf32>
// CHECK: tile.store
// CHECK: tile.store
!x = tensor<?x512xf32, #lathe.t<[B, 512]>>
!r = tensor<?x1xf32, #lathe.t<[B, 1]>>
func.func @norm(%x: !x) -> !x {
  %s = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (!x) -> !r
  %d = lathe.sub %x, %s : (!x, !r) -> !x
  return %d : !x
}
