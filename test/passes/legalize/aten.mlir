// Operators of torch: sizes come from the stated types, numbers stand for tensors, ONNX's lowering serves where
// the meaning is the same, and names of modules are locations.
// RUN: lathe-opt %s --lathe-legalize --mlir-print-debuginfo | FileCheck %s
// RUN: not lathe-opt %S/Inputs/aten-errors.mlir --lathe-legalize 2>&1 | FileCheck %s --check-prefix=ERRORS

lathe.symbol @B {max = 64 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 4 : i64, origin = "x[0]"}
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<?x6xf32, #lathe.t<[B, 6]>> {lathe.name = "x"}, %w: tensor<4x6xf32> {lathe.name = "w"},
                %i: tensor<?xi64, #lathe.t<[B]>> {lathe.name = "i"})
    -> (tensor<?x4xf32, #lathe.t<[B, 4]>>, tensor<?x2x3xf32, #lathe.t<[B, 2, 3]>>, tensor<?xf32, #lathe.t<[B]>>,
        tensor<?x6xf32, #lathe.t<[B, 6]>>) attributes {lathe.entry} {
  %none = "aten.none"() : () -> none
  // CHECK: lathe.matmul {{.*}}transpose_b{{.*}} loc(#[[LINEAR:.*]])
  %0 = "aten.linear"(%x, %w) : (tensor<?x6xf32, #lathe.t<[B, 6]>>, tensor<4x6xf32>) -> tensor<?x4xf32, #lathe.t<[B, 4]>> loc("encoder.dense/linear"("model.py":12:1))
  // CHECK: lathe.reshape {{.*}} -> tensor<?x2x3xf32, #lathe.t<[B, 2, 3]>>
  %1 = "aten.view"(%x) {size = array<i64: -1, 2, 3>} : (tensor<?x6xf32, #lathe.t<[B, 6]>>) -> tensor<?x2x3xf32, #lathe.t<[B, 2, 3]>>
  // An integer and a float are computed in floats; the number is a size.
  // CHECK: lathe.cast
  // CHECK: lathe.dim_value
  // CHECK: lathe.mul
  %2 = "aten.mul.Tensor"(%i, %none) {other = #lathe.dim<B>, promoted = f32} : (tensor<?xi64, #lathe.t<[B]>>, none) -> tensor<?xf32, #lathe.t<[B]>>
  // CHECK: lathe.softmax
  %3 = "aten.softmax.int"(%x) {dim = -1 : i64} : (tensor<?x6xf32, #lathe.t<[B, 6]>>) -> tensor<?x6xf32, #lathe.t<[B, 6]>>
  return %0, %1, %2, %3 : tensor<?x4xf32, #lathe.t<[B, 4]>>, tensor<?x2x3xf32, #lathe.t<[B, 2, 3]>>, tensor<?xf32, #lathe.t<[B]>>, tensor<?x6xf32, #lathe.t<[B, 6]>>
}
// CHECK: #[[LINEAR]] = loc("encoder.dense/linear"

// ERRORS: 'model/nobody_knows' (aten.nobody_knows): unsupported op: lathe does not know this op; remedy: express it by other operators of torch
// ERRORS: 'model/relu' (aten.relu): unsupported shape: a result of {{.*}} where torch states {{.*}}
// ERRORS: 'model/complex' (aten.fft): unsupported op: tensors of complex64
// ERRORS: 'model/dropout' (aten.dropout): unsupported attribute: dropout that drops
// ERRORS: in the function body of aten.layer_norm
// ERRORS-NOT: error
