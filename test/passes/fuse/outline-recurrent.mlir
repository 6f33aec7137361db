// RUN: %lathe-opt --lathe-outline-recurrent --split-input-file %s | FileCheck %s

// CHECK-LABEL: @cpu
// CHECK: %[[K:.*]]:2 = lathe.kernel "lstm" scan
// CHECK: lathe.recurrent
// CHECK: return %[[K]]#0, %[[K]]#1
module attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @S {min = 1, max = 64, opt = 8, multiple_of = 1, origin = "x[0]"}
  func.func @cpu(%x: tensor<?x1x8xf32, #lathe.t<[S, 1, 8]>>, %h: tensor<1x2xf32>) -> (tensor<?x1x2xf32, #lathe.t<[S, 1, 2]>>, tensor<1x2xf32>) {
    %r = lathe.constant dense<1.0> : tensor<8x2xf32>
    %y:2 = lathe.recurrent %x, %r, %h, %h {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<?x1x8xf32, #lathe.t<[S, 1, 8]>>, tensor<8x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> (tensor<?x1x2xf32, #lathe.t<[S, 1, 2]>>, tensor<1x2xf32>)
    return %y#0, %y#1 : tensor<?x1x2xf32, #lathe.t<[S, 1, 2]>>, tensor<1x2xf32>
  }
}

// -----

// A GPU has no such kernel: steps are written out, the last first.
// CHECK-LABEL: @gpu
// CHECK-NOT: lathe.recurrent
// CHECK: lathe.slice %arg0 {starts = [#lathe.dim<1>, #lathe.dim<0>, #lathe.dim<0>]
// CHECK: lathe.slice %arg0 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>]
// CHECK: lathe.concat {{.*}} -> tensor<2x1x2xf32>
module attributes {lathe.target = "sm_90a"} {
  func.func @gpu(%x: tensor<2x1x6xf32>, %h: tensor<1x2xf32>) -> tensor<2x1x2xf32> {
    %r = lathe.constant dense<1.0> : tensor<6x2xf32>
    %y = lathe.recurrent %x, %r, %h {reverse, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<2x1x6xf32>, tensor<6x2xf32>, tensor<1x2xf32>) -> tensor<2x1x2xf32>
    return %y : tensor<2x1x2xf32>
  }
}
