// RUN: %lathe-opt --lathe-merge-products %s | FileCheck %s

// Weights side by side are 2:4 sparse where all of them are. A gate and what it gates stay two products where zeros are
// left out: no kernel that does so has two halves.
// CHECK-LABEL: func.func @main
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.two_of_four} : (tensor<2x5x64xf16>, tensor<64x192xf16>)
// CHECK-LABEL: func.func @some
// CHECK: lathe.matmul %arg0, %{{[a-z0-9_]*}} : (tensor<2x5x64xf16>, tensor<64x192xf16>)
// CHECK-LABEL: func.func @gate
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.two_of_four} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>)
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.two_of_four} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>)
// Blocks and steps add up; of weights without blocks of zeros, all of them. Pairs of panels must stay pairs.
// CHECK-LABEL: func.func @blocks
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.block_steps = array<i64: 6, 4>} : (tensor<2x5x128xf16>, tensor<128x256xf16>)
// CHECK-LABEL: func.func @broken_pairs
// CHECK: lathe.matmul %arg0, %{{[a-z0-9_]*}} : (tensor<2x5x128xf16>, tensor<128x192xf16>)
// CHECK-LABEL: func.func @gate_of_blocks
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.block_steps = array<i64: 40, 30>} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>)
// CHECK: lathe.matmul %arg0, %{{.*}} {lathe.block_steps = array<i64: 41, 30>} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>)
module attributes {lathe.target = "sm_90a", lathe.options = {sparse_weights = ["always"]}} {
  func.func @main(%x: tensor<2x5x64xf16>) -> tensor<2x4x5x32xf16> {
    %wq = lathe.constant dense<0.0> : tensor<64x128xf16>
    %wk = lathe.constant dense<0.0> : tensor<64x64xf16>
    %0 = lathe.matmul %x, %wq {lathe.two_of_four} : (tensor<2x5x64xf16>, tensor<64x128xf16>) -> tensor<2x5x128xf16>
    %2 = lathe.reshape %0 : (tensor<2x5x128xf16>) -> tensor<2x5x4x32xf16>
    %3 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x32xf16>) -> tensor<2x4x5x32xf16>
    %4 = lathe.matmul %x, %wk {lathe.two_of_four} : (tensor<2x5x64xf16>, tensor<64x64xf16>) -> tensor<2x5x64xf16>
    %6 = lathe.reshape %4 : (tensor<2x5x64xf16>) -> tensor<2x5x2x32xf16>
    %7 = lathe.transpose %6 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x2x32xf16>) -> tensor<2x2x5x32xf16>
    %8 = lathe.attention %3, %7, %7 {scale = 1.0 : f64} : (tensor<2x4x5x32xf16>, tensor<2x2x5x32xf16>, tensor<2x2x5x32xf16>) -> tensor<2x4x5x32xf16>
    return %8 : tensor<2x4x5x32xf16>
  }
  func.func @some(%x: tensor<2x5x64xf16>) -> tensor<2x4x5x32xf16> {
    %wq = lathe.constant dense<0.0> : tensor<64x128xf16>
    %wk = lathe.constant dense<1.0> : tensor<64x64xf16>
    %0 = lathe.matmul %x, %wq {lathe.two_of_four} : (tensor<2x5x64xf16>, tensor<64x128xf16>) -> tensor<2x5x128xf16>
    %2 = lathe.reshape %0 : (tensor<2x5x128xf16>) -> tensor<2x5x4x32xf16>
    %3 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x32xf16>) -> tensor<2x4x5x32xf16>
    %4 = lathe.matmul %x, %wk : (tensor<2x5x64xf16>, tensor<64x64xf16>) -> tensor<2x5x64xf16>
    %6 = lathe.reshape %4 : (tensor<2x5x64xf16>) -> tensor<2x5x2x32xf16>
    %7 = lathe.transpose %6 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x2x32xf16>) -> tensor<2x2x5x32xf16>
    %8 = lathe.attention %3, %7, %7 {scale = 1.0 : f64} : (tensor<2x4x5x32xf16>, tensor<2x2x5x32xf16>, tensor<2x2x5x32xf16>) -> tensor<2x4x5x32xf16>
    return %8 : tensor<2x4x5x32xf16>
  }
  func.func @gate(%x: tensor<64x1024xbf16>) -> tensor<64x512xbf16> {
    %wg = lathe.constant dense<0.0> : tensor<1024x512xbf16>
    %wu = lathe.constant dense<-0.0> : tensor<1024x512xbf16>
    %0 = lathe.matmul %x, %wg {lathe.two_of_four} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>) -> tensor<64x512xbf16>
    %1 = lathe.matmul %x, %wu {lathe.two_of_four} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>) -> tensor<64x512xbf16>
    %2 = lathe.sigmoid %0 : (tensor<64x512xbf16>) -> tensor<64x512xbf16>
    %3 = lathe.mul %2, %1 : (tensor<64x512xbf16>, tensor<64x512xbf16>) -> tensor<64x512xbf16>
    return %3 : tensor<64x512xbf16>
  }
  func.func @blocks(%x: tensor<2x5x128xf16>) -> tensor<2x4x5x32xf16> {
    %wq = lathe.constant dense<0.0> : tensor<128x128xf16>
    %wk = lathe.constant dense<1.0> : tensor<128x128xf16>
    %0 = lathe.matmul %x, %wq {lathe.block_steps = array<i64: 2, 2>} : (tensor<2x5x128xf16>, tensor<128x128xf16>) -> tensor<2x5x128xf16>
    %2 = lathe.reshape %0 : (tensor<2x5x128xf16>) -> tensor<2x5x4x32xf16>
    %3 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x32xf16>) -> tensor<2x4x5x32xf16>
    %4 = lathe.matmul %x, %wk : (tensor<2x5x128xf16>, tensor<128x128xf16>) -> tensor<2x5x128xf16>
    %6 = lathe.reshape %4 : (tensor<2x5x128xf16>) -> tensor<2x5x4x32xf16>
    %7 = lathe.transpose %6 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x32xf16>) -> tensor<2x4x5x32xf16>
    %8 = lathe.attention %3, %7, %7 {scale = 1.0 : f64} : (tensor<2x4x5x32xf16>, tensor<2x4x5x32xf16>, tensor<2x4x5x32xf16>) -> tensor<2x4x5x32xf16>
    return %8 : tensor<2x4x5x32xf16>
  }
  func.func @broken_pairs(%x: tensor<2x5x128xf16>) -> tensor<2x4x5x32xf16> {
    %wq = lathe.constant dense<0.0> : tensor<128x128xf16>
    %wk = lathe.constant dense<1.0> : tensor<128x64xf16>
    %0 = lathe.matmul %x, %wq {lathe.block_steps = array<i64: 2, 2>} : (tensor<2x5x128xf16>, tensor<128x128xf16>) -> tensor<2x5x128xf16>
    %2 = lathe.reshape %0 : (tensor<2x5x128xf16>) -> tensor<2x5x4x32xf16>
    %3 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x32xf16>) -> tensor<2x4x5x32xf16>
    %4 = lathe.matmul %x, %wk : (tensor<2x5x128xf16>, tensor<128x64xf16>) -> tensor<2x5x64xf16>
    %6 = lathe.reshape %4 : (tensor<2x5x64xf16>) -> tensor<2x5x2x32xf16>
    %7 = lathe.transpose %6 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x2x32xf16>) -> tensor<2x2x5x32xf16>
    %8 = lathe.attention %3, %7, %7 {scale = 1.0 : f64} : (tensor<2x4x5x32xf16>, tensor<2x2x5x32xf16>, tensor<2x2x5x32xf16>) -> tensor<2x4x5x32xf16>
    return %8 : tensor<2x4x5x32xf16>
  }
  func.func @gate_of_blocks(%x: tensor<64x1024xbf16>) -> tensor<64x512xbf16> {
    %wg = lathe.constant dense<0.0> : tensor<1024x512xbf16>
    %wu = lathe.constant dense<-0.0> : tensor<1024x512xbf16>
    %0 = lathe.matmul %x, %wg {lathe.block_steps = array<i64: 40, 30>} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>) -> tensor<64x512xbf16>
    %1 = lathe.matmul %x, %wu {lathe.block_steps = array<i64: 41, 30>} : (tensor<64x1024xbf16>, tensor<1024x512xbf16>) -> tensor<64x512xbf16>
    %2 = lathe.sigmoid %0 : (tensor<64x512xbf16>) -> tensor<64x512xbf16>
    %3 = lathe.mul %2, %1 : (tensor<64x512xbf16>, tensor<64x512xbf16>) -> tensor<64x512xbf16>
    return %3 : tensor<64x512xbf16>
  }
}
