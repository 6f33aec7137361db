// RUN: %lathe-translate --tile-to-llvm %s | FileCheck %s
// Threads that share a block: who this one is, and the function in which all wait, come with the
// arguments. What others wrote to scratch memory is loaded behind the call.

// CHECK: define void @k(ptr %[[ARGS:.*]], i64 %{{.*}}, i64 %{{.*}})
// CHECK: define internal void @k.body(ptr noalias %[[Y:.*]], ptr %{{.*}}, ptr %{{.*}}, ptr %[[SCRATCH:.*]], ptr %[[TEAM:.*]], i64 %{{.*}}, i64 %{{.*}})
// CHECK-DAG: %[[MEMBER:.*]] = load i64, ptr %[[TEAM]]
// CHECK-DAG: %[[COUNT:.*]] = getelementptr i8, ptr %[[TEAM]], i32 8
// CHECK-DAG: load i64, ptr %[[COUNT]]
// CHECK: store float
// CHECK: %[[PLACE:.*]] = getelementptr i8, ptr %[[TEAM]], i32 16
// CHECK: %[[MEET:.*]] = load ptr, ptr %[[PLACE]]
// CHECK: call void %[[MEET]](ptr %[[TEAM]])
// CHECK: load float
func.func @k(%y: memref<?xf32>) attributes {tile.kernel = #tile.launch<threads = 1, target = "x86-64-v3">} {
  %member, %members = tile.member
  %s = tile.scratch {byte_offset = 0 : i64} : memref<?xf32>
  %one = arith.constant 1.0 : f32
  tile.store %one, %s[%member] : f32, memref<?xf32>
  tile.meet
  %last = arith.subi %members, %member : index
  %v = tile.load %s[%last] : memref<?xf32> -> f32
  tile.store %v, %y[%member] : f32, memref<?xf32>
  return
}
