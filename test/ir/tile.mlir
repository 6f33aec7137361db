// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

// CHECK-LABEL: func.func @row_sum
// CHECK-SAME: tile.kernel = #tile.launch<threads = 128, target = "sm_90a">
func.func @row_sum(%x: memref<?xf32>, %i: memref<?xi64>, %y: memref<?xf32>, %S: index) attributes {tile.kernel = #tile.launch<threads = 128, target = "sm_90a">} {
  // CHECK: tile.block_id
  %row = tile.block_id
  // CHECK: tile.first_block
  %first = tile.first_block
  %thread = tile.thread_id
  // CHECK: tile.load %{{.*}}[%{{.*}}] {aligned} : memref<?xf32> -> vector<4xf32>
  %v = tile.load %x[%thread] {aligned} : memref<?xf32> -> vector<4xf32>
  %s = vector.reduction <add>, %v : vector<4xf32> into f32
  // CHECK: tile.block_reduce <sum> %{{.*}} : f32
  %sum = tile.block_reduce <sum> %s : f32
  %shared = tile.scratch {byte_offset = 0 : i64} : memref<128xf32>
  tile.barrier
  %raw = tile.load %i[%row] : memref<?xi64> -> i64
  // CHECK: tile.check_index %{{.*}}, %{{.*}} : i64
  %at = tile.check_index %raw, %S : i64
  %four = arith.fptosi %v : vector<4xf32> to vector<4xi32>
  // CHECK: tile.saturate %{{.*}} unsigned : vector<4xi32> -> vector<4xi8>
  %bytes = tile.saturate %four unsigned : vector<4xi32> -> vector<4xi8>
  // CHECK: tile.store %{{.*}}, %{{.*}}[%{{.*}}] : f32, memref<?xf32>
  tile.store %sum, %y[%at] : f32, memref<?xf32>
  return
}
