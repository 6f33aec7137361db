// RUN: %lathe-opt --lathe-shard %s | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: sed s/sm_90a/x86-64-v3/ %s | %lathe-opt --lathe-shard | FileCheck %s --check-prefixes=CHECK,CPU

// Two blocks with a norm between them. GPUs meet where a sum is whole, once a block: reading 32 MB once more takes them
// less than another meeting. CPUs divide the norm too, and meet for its mean.
// CHECK-LABEL: func.func @blocks
// GPU: lathe.all_reduce {{.*}} -> tensor<2048x4096xf32>
// GPU-NOT: lathe.reduce_scatter
// GPU: lathe.reduce
// GPU-NOT: tensor<2048x1xf32>) -> tensor<2048x1xf32>
// GPU: lathe.all_reduce {{.*}} -> tensor<2048x4096xf32>
// CPU: lathe.reduce_scatter
module attributes {lathe.options = {mesh = ["tp=2"], targets = ["sm_90a"]}} {
  func.func @blocks(%x: tensor<2048x4096xf32>) -> tensor<2048x4096xf32> {
    %w = lathe.constant dense<0.01> : tensor<4096x8192xf32>
    %v = lathe.constant dense<0.02> : tensor<8192x4096xf32>
    %w2 = lathe.constant dense<0.03> : tensor<4096x8192xf32>
    %v2 = lathe.constant dense<0.04> : tensor<8192x4096xf32>
    %0 = lathe.matmul %x, %w : (tensor<2048x4096xf32>, tensor<4096x8192xf32>) -> tensor<2048x8192xf32>
    %1 = lathe.tanh %0 : (tensor<2048x8192xf32>) -> tensor<2048x8192xf32>
    %2 = lathe.matmul %1, %v : (tensor<2048x8192xf32>, tensor<8192x4096xf32>) -> tensor<2048x4096xf32>
    %3 = lathe.add %2, %x : (tensor<2048x4096xf32>, tensor<2048x4096xf32>) -> tensor<2048x4096xf32>
    %4 = lathe.reduce %3 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<2048x4096xf32>) -> tensor<2048x1xf32>
    %5 = lathe.mul %3, %4 : (tensor<2048x4096xf32>, tensor<2048x1xf32>) -> tensor<2048x4096xf32>
    %6 = lathe.matmul %5, %w2 : (tensor<2048x4096xf32>, tensor<4096x8192xf32>) -> tensor<2048x8192xf32>
    %7 = lathe.tanh %6 : (tensor<2048x8192xf32>) -> tensor<2048x8192xf32>
    %8 = lathe.matmul %7, %v2 : (tensor<2048x8192xf32>, tensor<8192x4096xf32>) -> tensor<2048x4096xf32>
    %9 = lathe.add %8, %3 : (tensor<2048x4096xf32>, tensor<2048x4096xf32>) -> tensor<2048x4096xf32>
    return %9 : tensor<2048x4096xf32>
  }
}
