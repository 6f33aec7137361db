// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=columns.t256.v8 --grid=4 | FileCheck %s
// Sums over rows: what lies in memory is loaded in pieces of 16 bytes, the mean is made where a
// column's sum is stored.

!x = tensor<512x1024xbf16>
!y = tensor<1024xbf16>

// CHECK: typedef f32 Acc;
// CHECK: typedef SumOp Op;
// CHECK: typedef bf16 Element;
// CHECK: void store(i64 outer, i64 column, f32 value) const {
// CHECK: = value * 0.001953125f;
// CHECK: Vec<Element, kLanes> load(i64 outer, i64 row, i64 column) const { return loadVecStreaming<true, Element, kLanes>(in0 +
// CHECK: reduceColumns<8, 1>(h, 512ll, 1024ll);
func.func @mean(%x: !x) -> !y {
  %c = lathe.constant dense<0.001953125> : tensor<bf16>
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 0>, keepdims = false} : (!x) -> !y
  %1 = lathe.mul %0, %c : (!y, tensor<bf16>) -> !y
  return %1 : !y
}
