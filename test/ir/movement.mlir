// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s
// RUN: %lathe-opt %s --canonicalize | FileCheck %s --check-prefix=FOLD

!x = tensor<?x4x6xf32, #lathe.t<[B, 4, 6]>>

// CHECK-LABEL: func.func @sources
func.func @sources() {
  // CHECK: lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
  %0 = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
  // CHECK: lathe.dim_value {dims = [#lathe.dim<B>, #lathe.dim<S + 1>]} : () -> tensor<2xi64>
  %1 = lathe.dim_value {dims = [#lathe.dim<B>, #lathe.dim<1 + S>]} : () -> tensor<2xi64>
  // CHECK: lathe.dim_from %{{.*}} {symbols = ["d0", "d1"]}
  %2 = lathe.dim_from %1 {symbols = ["d0", "d1"]} : (tensor<2xi64>) -> tensor<2xi64>
  return
}

// CHECK-LABEL: func.func @affine
func.func @affine(%x: !x, %c: tensor<f32>) {
  // CHECK: lathe.transpose {{.*}} -> tensor<6x?x4xf32, #lathe.t<[6, B, 4]>>
  %0 = lathe.transpose %x {perm = array<i64: 2, 0, 1>} : (!x) -> tensor<6x?x4xf32, #lathe.t<[6, B, 4]>>
  %1 = lathe.reshape %x : (!x) -> tensor<?x24xf32, #lathe.t<[B, 24]>>
  %2 = lathe.broadcast_to %c : (tensor<f32>) -> !x
  // CHECK: lathe.slice {{.*}} {starts = [#lathe.dim<B - 1>, #lathe.dim<3>, #lathe.dim<0>], steps = array<i64: 1, -1, 2>}
  %3 = lathe.slice %x {starts = [#lathe.dim<B - 1>, #lathe.dim<3>, #lathe.dim<0>], steps = array<i64: 1, -1, 2>} : (!x) -> tensor<1x4x3xf32>
  // CHECK: lathe.concat {{.*}} -> tensor<?x4x6xf32, #lathe.t<[2*B, 4, 6]>>
  %4 = lathe.concat %x, %x {axis = 0 : i64} : (!x, !x) -> tensor<?x4x6xf32, #lathe.t<[2*B, 4, 6]>>
  %5 = lathe.pad %x, %c {low = [#lathe.dim<0>, #lathe.dim<1>, #lathe.dim<0>], high = [#lathe.dim<0>, #lathe.dim<1>, #lathe.dim<0>], mode = #lathe.pad_mode<constant>} : (!x, tensor<f32>) -> tensor<?x6x6xf32, #lathe.t<[B, 6, 6]>>
  %6 = lathe.bind_dims %x : (!x) -> tensor<2x4x6xf32>
  return
}

// CHECK-LABEL: func.func @gathers
func.func @gathers(%x: !x, %i: tensor<5xi64>, %j: tensor<5x2xi64>, %u: tensor<5x6xf32>, %e: tensor<2x4x6xi64>, %v: tensor<2x4x6xf32>) {
  // CHECK: lathe.gather {{.*}} -> tensor<?x5x6xf32, #lathe.t<[B, 5, 6]>>
  %0 = lathe.gather %x, %i {axis = 1 : i64} : (!x, tensor<5xi64>) -> tensor<?x5x6xf32, #lathe.t<[B, 5, 6]>>
  %1 = lathe.gather_elements %x, %e {axis = 0 : i64} : (!x, tensor<2x4x6xi64>) -> tensor<2x4x6xf32>
  // CHECK: lathe.gather_nd {{.*}} -> tensor<5x6xf32>
  %2 = lathe.gather_nd %x, %j {batch_dims = 0 : i64} : (!x, tensor<5x2xi64>) -> tensor<5x6xf32>
  %3 = lathe.scatter_elements %x, %e, %v {axis = 1 : i64, reduction = #lathe.reduce_kind<sum>} : (!x, tensor<2x4x6xi64>, tensor<2x4x6xf32>) -> !x
  %4 = lathe.scatter_nd %x, %j, %u : (!x, tensor<5x2xi64>, tensor<5x6xf32>) -> !x
  return
}

// FOLD-LABEL: func.func @folds
func.func @folds(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<6xf32>, tensor<4xf32>) {
  %0 = lathe.transpose %x {perm = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = lathe.broadcast_to %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %3 = lathe.concat %x {axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = lathe.reshape %x : (tensor<2x3xf32>) -> tensor<3x2xf32>
  // FOLD: %[[CONSTANT:.*]] = lathe.constant dense<1.000000e+00> : tensor<4xf32>
  // FOLD: %[[FLAT:.*]] = lathe.reshape %arg0 : (tensor<2x3xf32>) -> tensor<6xf32>
  %5 = lathe.reshape %4 : (tensor<3x2xf32>) -> tensor<6xf32>
  %c = lathe.constant dense<1.0> : tensor<f32>
  %6 = lathe.broadcast_to %c : (tensor<f32>) -> tensor<4xf32>
  // FOLD: return %arg0, %arg0, %arg0, %arg0, %[[FLAT]], %[[CONSTANT]]
  return %0, %1, %2, %3, %5, %6 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<6xf32>, tensor<4xf32>
}
