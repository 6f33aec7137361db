// RUN: %lathe-opt --lathe-verify-fused --verify-diagnostics %s

module attributes {lathe.target = "x86-64-v3"} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{stands between kernels after fuse}}
    %0 = lathe.exp %x : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
