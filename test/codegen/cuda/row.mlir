// RUN: %lathe-translate --kernel-to-cuda --config=row.t64 --grid=M %s | FileCheck %s
// A block a row: reductions over its threads in a fixed order, f32 functions exact.

!x = tensor<?x?xf32, #lathe.t<[M, N]>>
!r = tensor<?x1xf32, #lathe.t<[M, 1]>>

// CHECK: softmax(const f32 *__restrict__ in0, f32 *__restrict__ out0, i64 dim_M, i64 dim_N, StatusWord *status) {
// CHECK: for (i64 [[I:iv[0-9]+]] = {{.*}}; [[I]] < dim_N; [[I]] += 64ll) {
// CHECK: maximum(
// CHECK: [[MAX:v[0-9]+]] = blockReduce<MaxOp, 64>(
// CHECK: - [[MAX]];
// CHECK: mathExp(
// CHECK: [[SUM:v[0-9]+]] = blockReduce<SumOp, 64>(
// CHECK: = divide({{.*}}, [[SUM]]);
// CHECK: out0[{{.*}}] =
func.func @softmax(%x: !x) -> !x {
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = true} : (!x) -> !r
  %1 = lathe.sub %x, %0 : (!x, !r) -> !x
  %2 = lathe.exp %1 : (!x) -> !x
  %3 = lathe.reduce %2 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (!x) -> !r
  %4 = lathe.div %2, %3 : (!x, !r) -> !x
  return %4 : !x
}
