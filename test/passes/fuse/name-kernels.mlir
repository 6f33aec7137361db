// RUN: %lathe-opt --lathe-fuse --lathe-name-kernels %s | FileCheck %s

// Equal text, equal name; another size is another kernel.
// CHECK: "exp_0"
// CHECK: "exp_0"
// CHECK: "exp_1"
module attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<9xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<9xf32>) {
    %0 = lathe.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = lathe.exp %y : (tensor<8xf32>) -> tensor<8xf32>
    %2 = lathe.exp %z : (tensor<9xf32>) -> tensor<9xf32>
    return %0, %1, %2 : tensor<8xf32>, tensor<8xf32>, tensor<9xf32>
  }
}
