// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=gemm.simt.t128.m64.n64.k16 --grid="ceildiv(B*S, 64)" | FileCheck %s
// Rows of two run-time axes that a product folded into one: where they lie one after the other no index is taken
// apart into batch and step only to be put together again.

!x = tensor<?x?x64xf32, #lathe.t<[B, S, 64]>>
!y = tensor<?x?x32xf32, #lathe.t<[B, S, 32]>>

// CHECK: struct Holes {
// CHECK-NOT: {{(div|rem)Index}}
// CHECK: i64 offsetA(i64 b) const {
// CHECK-NEXT: return 0ll;
// CHECK: f32 loadA(i64 b, i64 m, i64 k) const {
// CHECK-NEXT: = m * 64ll;
// CHECK: void write(i64 b, i64 m, i64 piece, Vec<f32, 4> acc) const {
// CHECK: = m * 32ll;
// CHECK-NOT: {{(div|rem)Index}}
// CHECK: storeVec(out0 +
// CHECK: gemmSimt<
func.func @linear(%x: !x, %w: tensor<32x64xf32>, %r: !y) -> !y {
  %0 = lathe.matmul %x, %w {transpose_b} : (!x, tensor<32x64xf32>) -> !y
  %1 = lathe.add %0, %r : (!y, !y) -> !y
  return %1 : !y
}
