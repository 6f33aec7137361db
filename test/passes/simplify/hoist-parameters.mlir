// RUN: %lathe-opt --lathe-defer-parameters --lathe-hoist-parameters --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-defer-parameters --lathe-hoist-parameters --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// The scale of a norm follows from two parameters and a number: it goes, and what meets the input stays.
// REMARK: g/div is computed when a parameter has changed, not in each run
// CHECK-LABEL: func.func @main(%arg0: tensor<3x4xf32> {lathe.name = "x"})
// CHECK-NEXT: %[[S:.*]] = lathe.constant #lathe.weight<"parameter:g/div", 0, 16, "{{0+}}"> : tensor<4xf32>
// CHECK-NEXT: lathe.mul %arg0, %[[S]]
// CHECK-LABEL: func.func @prepare(%arg0: tensor<4xf32> {lathe.name = "g"}, %arg1: tensor<4xf32> {lathe.name = "v"})
// CHECK-SAME: -> (tensor<4xf32> {lathe.name = "g/div"})
// CHECK: %[[E:.*]] = lathe.constant
// CHECK: %[[A:.*]] = lathe.add %arg1, %[[E]]
// CHECK: %[[Q:.*]] = lathe.sqrt %[[A]]
// CHECK: %[[D:.*]] = lathe.div %arg0, %[[Q]]
// CHECK: return %[[D]]
module attributes {lathe.options = {parameters = ["g", "v"]}} {
  func.func @main(%x: tensor<3x4xf32> {lathe.name = "x"}, %g: tensor<4xf32> {lathe.name = "g"}, %v: tensor<4xf32> {lathe.name = "v"}) -> tensor<3x4xf32> {
    %e = lathe.constant dense<1.0e-5> : tensor<f32>
    %0 = lathe.add %v, %e : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %1 = lathe.sqrt %0 : (tensor<4xf32>) -> tensor<4xf32>
    %2 = lathe.div %g, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %3 = lathe.mul %x, %2 : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    return %3 : tensor<3x4xf32>
  }
}

// -----

// A value that another hoisted one is made of is computed once, whoever else reads it.
// CHECK-LABEL: func.func @main
// CHECK-DAG: lathe.constant #lathe.weight<"parameter:w/exp"
// CHECK-DAG: lathe.constant #lathe.weight<"parameter:w/neg"
// CHECK-LABEL: func.func @prepare
// CHECK: %[[X:.*]] = lathe.exp
// CHECK-NEXT: %[[N:.*]] = lathe.neg %[[X]]
// CHECK-NEXT: return %[[X]], %[[N]]
module attributes {lathe.options = {parameters = ["w"]}} {
  func.func @main(%x: tensor<4xf32> {lathe.name = "x"}, %w: tensor<4xf32> {lathe.name = "w"}) -> tensor<4xf32> {
    %0 = lathe.exp %w : (tensor<4xf32>) -> tensor<4xf32>
    %1 = lathe.neg %0 : (tensor<4xf32>) -> tensor<4xf32>
    %2 = lathe.add %x, %0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %3 = lathe.mul %2, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}

// -----

// What would grow beyond what is worth keeping stays; so do codes, until products have been given them.
// CHECK-LABEL: func.func @main
// CHECK: lathe.broadcast_to
// CHECK: lathe.dequantize
module attributes {lathe.options = {parameters = ["w", "q", "s"]}} {
  func.func @main(%x: tensor<512x4x64xf32> {lathe.name = "x"}, %w: tensor<64xf32> {lathe.name = "w"}, %q: tensor<64x2xi8> {lathe.name = "q"}, %s: tensor<f32> {lathe.name = "s"}) -> (tensor<512x4x64xf32>, tensor<512x4x2xf32>) {
    %0 = lathe.broadcast_to %w : (tensor<64xf32>) -> tensor<512x4x64xf32>
    %1 = lathe.add %x, %0 : (tensor<512x4x64xf32>, tensor<512x4x64xf32>) -> tensor<512x4x64xf32>
    %2 = lathe.dequantize %q scale(%s) : (tensor<64x2xi8>, tensor<f32>) -> tensor<64x2xf32>
    %3 = lathe.matmul %x, %2 : (tensor<512x4x64xf32>, tensor<64x2xf32>) -> tensor<512x4x2xf32>
    return %1, %3 : tensor<512x4x64xf32>, tensor<512x4x2xf32>
  }
}
