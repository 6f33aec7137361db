// RUN: %lathe-opt %s --lathe-emit-tile="config=pointwise.v16 target=x86-64-v4 grid=2" | %lathe-translate --tile-to-llvm | FileCheck %s
// The exported function unpacks its arguments and loops over its blocks; the body
// has buffers that do not alias. An index out of range is reported once; sin is
// called through the helper table, so that no symbol is undefined: what is declared are intrinsics of LLVM.

// CHECK: define void @k(ptr %0, i64 %1, i64 %2) #[[ENTRY:[0-9]+]]
// CHECK: call void @k.body(
// CHECK: define internal void @k.body(ptr noalias %0, ptr noalias %1, ptr noalias %2, ptr %3, ptr %4, ptr %5, ptr %6, i64 %7, i64 %8) #[[BODY:[0-9]+]]
// CHECK: cmpxchg ptr %4, i64 0, i64 1 monotonic monotonic
// CHECK: [[SIN:%.*]] = load ptr, ptr %3
// CHECK: call double [[SIN]](double
// CHECK-NOT: declare {{[^@]*}}@{{[^l]|l[^l]}}
// CHECK-DAG: attributes #[[ENTRY]] = { nounwind {{.*}}"no-builtins" "prefer-vector-width"="512" }
// CHECK-DAG: attributes #[[BODY]] = { alwaysinline nounwind
func.func @k(%x: tensor<1024xf32>, %i: tensor<1024xi32>) -> tensor<1024xf32> {
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<1024xf32>, tensor<1024xi32>) -> tensor<1024xf32>
  %1 = lathe.sin %0 : (tensor<1024xf32>) -> tensor<1024xf32>
  return %1 : tensor<1024xf32>
}
