// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4xf32>, %n: tensor<i64>, %c: tensor<i1>) -> (tensor<4xf32>, tensor<8x4xf32>) {
  %zero = lathe.constant dense<0> : tensor<i64>
  %one = lathe.constant dense<1> : tensor<i64>
  // CHECK: %[[L:.*]]:2 = lathe.loop_begin(%{{.*}}, %{{.*}}) : tensor<i64>, tensor<4xf32> -> tensor<i64>, tensor<4xf32>
  %i, %v = lathe.loop_begin(%zero, %x) : tensor<i64>, tensor<4xf32> -> tensor<i64>, tensor<4xf32>
  %next = lathe.add %i, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
  %w = lathe.neg %v : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: lathe.loop_end %[[L]]#0 : tensor<i64> trips %{{.*}} : tensor<i64> nexts(%{{.*}}, %{{.*}} : tensor<i64>, tensor<4xf32>) rows(%{{.*}} : tensor<4xf32>) {iteration = "i"} -> tensor<i64>, tensor<4xf32>, tensor<8x4xf32>
  %j, %y, %rows = lathe.loop_end %i : tensor<i64> trips %n : tensor<i64> nexts(%next, %w : tensor<i64>, tensor<4xf32>) rows(%w : tensor<4xf32>) {iteration = "i"} -> tensor<i64>, tensor<4xf32>, tensor<8x4xf32>
  // CHECK: lathe.loop_end %{{.*}} : tensor<i64> while %{{.*}} : tensor<i1> again %{{.*}} : tensor<i1> nexts(%{{.*}} : tensor<i64>) rows() -> tensor<i64>
  %k = lathe.loop_begin(%j) : tensor<i64> -> tensor<i64>
  %e = lathe.loop_end %k : tensor<i64> while %c : tensor<i1> again %c : tensor<i1> nexts(%k : tensor<i64>) rows() -> tensor<i64>
  return %y, %rows : tensor<4xf32>, tensor<8x4xf32>
}
