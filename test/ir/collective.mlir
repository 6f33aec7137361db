// RUN: %lathe-opt %s | FileCheck %s

// CHECK-LABEL: func.func @collectives
// CHECK: lathe.all_reduce %{{.*}} {kind = #lathe.reduce_kind<max>, ranks = 4 : i64} : (tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK: lathe.all_gather %{{.*}} {dim = 1 : i64, ranks = 4 : i64} : (tensor<8x6xf32>) -> tensor<8x24xf32>
// CHECK: lathe.reduce_scatter %{{.*}} {dim = 0 : i64, kind = #lathe.reduce_kind<sum>, ranks = 4 : i64} : (tensor<8x6xf32>) -> tensor<2x6xf32>
// CHECK: lathe.constant #lathe.sharded<1, 2, [2, 3], dense<{{.*}}> : tensor<1x5xf32>> : tensor<1x3xf32>
func.func @collectives(%x: tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x24xf32>, tensor<2x6xf32>, tensor<1x3xf32>) {
  %0 = lathe.all_reduce %x {kind = #lathe.reduce_kind<max>, ranks = 4 : i64} : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %1 = lathe.all_gather %x {dim = 1 : i64, ranks = 4 : i64} : (tensor<8x6xf32>) -> tensor<8x24xf32>
  %2 = lathe.reduce_scatter %x {kind = #lathe.reduce_kind<sum>, dim = 0 : i64, ranks = 4 : i64} : (tensor<8x6xf32>) -> tensor<2x6xf32>
  %3 = lathe.constant #lathe.sharded<1, 2, [2, 3], dense<[[1.0, 2.0, 3.0, 4.0, 5.0]]> : tensor<1x5xf32>> : tensor<1x3xf32>
  return %0, %1, %2, %3 : tensor<8x6xf32>, tensor<8x24xf32>, tensor<2x6xf32>, tensor<1x3xf32>
}

// CHECK: exec.program @main
// CHECK: exec.collective "all_gather" %{{.*}} to %{{.*}} {dim = 0 : i64, kind = #lathe.reduce_kind<sum>} : tensor<4xf32>, tensor<8xf32>
exec.program @main {
  %0 = exec.buffer "x" {kind = #exec.kind<input>} : tensor<4xf32>
  %1 = exec.buffer "y" {kind = #exec.kind<output>} : tensor<8xf32>
  exec.input "x" %0 : tensor<4xf32>
  exec.output "y" %1 : tensor<8xf32>
  exec.collective "all_gather" %0 to %1 {dim = 0 : i64, kind = #lathe.reduce_kind<sum>} : tensor<4xf32>, tensor<8xf32>
}
