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

// -----

// Many steps, or as many as the run says, are a loop over one; in reverse, its rows are turned round.
// CHECK-LABEL: @many
// CHECK: %[[BEGIN:.*]]:2 = lathe.loop_begin(%{{.*}}, %arg1)
// CHECK: %[[LAST:.*]] = lathe.dim_value {dims = [#lathe.dim<S - 1>]}
// CHECK: %[[AT:.*]] = lathe.sub %[[LAST]], %[[BEGIN]]#0
// CHECK: lathe.gather %arg0, %{{.*}} {axis = 0 : i64}
// CHECK: lathe.matmul %[[BEGIN]]#1,
// CHECK: %[[S:.*]] = lathe.dim_value {dims = [#lathe.dim<S>]}
// CHECK: %[[END:.*]]:3 = lathe.loop_end %[[BEGIN]]#0 : tensor<i64> trips %[[S]] {{.*}}{iteration = "step"}
// CHECK: lathe.slice %[[END]]#2 {starts = [#lathe.dim<S - 1>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: -1, 1, 1>}
module attributes {lathe.target = "sm_90a"} {
  lathe.symbol @S {min = 1, max = 640, opt = 8, multiple_of = 1, origin = "x[0]"}
  func.func @many(%x: tensor<?x1x6xf32, #lathe.t<[S, 1, 6]>>, %h: tensor<1x2xf32>) -> tensor<?x1x2xf32, #lathe.t<[S, 1, 2]>> {
    %r = lathe.constant dense<1.0> : tensor<6x2xf32>
    %y = lathe.recurrent %x, %r, %h {reverse, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<?x1x6xf32, #lathe.t<[S, 1, 6]>>, tensor<6x2xf32>, tensor<1x2xf32>) -> tensor<?x1x2xf32, #lathe.t<[S, 1, 2]>>
    return %y : tensor<?x1x2xf32, #lathe.t<[S, 1, 2]>>
  }
}
