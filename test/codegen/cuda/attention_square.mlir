// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=attention.mma.t128.n64 --grid=1 | FileCheck %s
// As many heads as queries: the sizes are the same on both sides of the transpose, and each result is stored where
// the transpose puts it, not computed again there.

!q = tensor<2x16x16x64xbf16>
!k = tensor<2x4x?x64xbf16, #lathe.t<[2, 4, T, 64]>>

// CHECK: void put(i64 b, i64 h, i64 q, i64 piece, Vec<bf16, 8> value) const {
// CHECK-NOT: for (
// CHECK-DAG: h * 64ll
// CHECK-DAG: q * 1024ll
// CHECK-NOT: for (
// CHECK: storeVec(out0 +
func.func @attention(%q: !q, %k: !k, %v: !k) -> !q {
  %0 = lathe.attention %q, %k, %v {scale = 0.125 : f64} : (!q, !k, !k) -> !q
  %1 = lathe.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (!q) -> !q
  return %1 : !q
}
