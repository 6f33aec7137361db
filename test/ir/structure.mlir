// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

// CHECK: lathe.symbol @B {max = -1 : i64, min = 0 : i64, multiple_of = 1 : i64, opt = 1 : i64, origin = "x[0]"}
lathe.symbol @B {min = 0 : i64, max = -1 : i64, opt = 1 : i64, multiple_of = 1 : i64, origin = "x[0]"}
// CHECK: lathe.state @k0
lathe.state @k0 {type = tensor<?x2x512x32xf32, #lathe.t<[B, 2, 512, 32]>>, axis = 2 : i64, length = "P", input = "k0", output = "pk0"}

!new = tensor<?x2x1x32xf32, #lathe.t<[B, 2, 1, 32]>>
!all = tensor<?x2x?x32xf32, #lathe.t<[B, 2, P + 1, 32], layout = #lathe.phys<[B, 2, 512, 32]>>>

// CHECK-LABEL: func.func @append
func.func @append(%x: !new) -> !all {
  %past = lathe.state_read @k0 : tensor<?x2x?x32xf32, #lathe.t<[B, 2, P, 32], layout = #lathe.phys<[B, 2, 512, 32]>>>
  // CHECK: lathe.state_append @k0, %arg0
  %all = lathe.state_append @k0, %x : (!new) -> !all
  return %all : !all
}

// CHECK-LABEL: func.func @kernel
func.func @kernel(%a: tensor<?xf32, #lathe.t<[B]>>) -> tensor<?xf32, #lathe.t<[B]>> {
  // CHECK: lathe.kernel "relu" pointwise (%[[X:.*]] = %arg0 : tensor<?xf32, #lathe.t<[B]>>) -> (tensor<?xf32, #lathe.t<[B]>>) attributes {nodes = ["Relu_0"]} {
  // CHECK-NEXT: lathe.constant
  // CHECK-NEXT: lathe.max %[[X]]
  // CHECK-NEXT: lathe.yield
  %r = lathe.kernel "relu" pointwise (%x = %a : tensor<?xf32, #lathe.t<[B]>>) -> (tensor<?xf32, #lathe.t<[B]>>) attributes {nodes = ["Relu_0"]} {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %y = lathe.max %x, %zero : (tensor<?xf32, #lathe.t<[B]>>, tensor<f32>) -> tensor<?xf32, #lathe.t<[B]>>
    lathe.yield %y : tensor<?xf32, #lathe.t<[B]>>
  }
  return %r : tensor<?xf32, #lathe.t<[B]>>
}

// CHECK-LABEL: func.func @custom
func.func @custom(%a: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: lathe.custom_call "my_op"(%arg0) {config = {alpha = 1 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  %0 = lathe.custom_call "my_op"(%a) {config = {alpha = 1 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Any onnx op is accepted.
// CHECK-LABEL: func.func @onnx
func.func @onnx(%a: tensor<*xf32>) -> tensor<*xf32> {
  // CHECK: "onnx.SomethingNew"(%arg0) {alpha = 1.000000e+00 : f32}
  %0 = "onnx.SomethingNew"(%a) {alpha = 1.0 : f32} : (tensor<*xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}
