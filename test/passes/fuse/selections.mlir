// RUN: %lathe-opt %s --lathe-fuse --mlir-print-local-scope | FileCheck %s
// RUN: sed s/sm_90a/x86-64-v3/ %s | %lathe-opt --lathe-fuse --mlir-print-local-scope | FileCheck %s --check-prefix=CPU

// On a GPU what finds places stores the elements that are there as well; a gather of another tensor stays.
// CHECK-LABEL: func.func @main
// CHECK: %[[BOTH:.*]]:2 = lathe.kernel {{.*}} scan ({{.*}}tensor<4x3000xf32>) -> (tensor<4x50xi64>, tensor<4x50xf32>)
// CHECK-NEXT: lathe.topk
// CHECK-NEXT: lathe.gather_elements
// CHECK-NEXT: lathe.yield
// CHECK: lathe.kernel {{.*}} copy
// CHECK: lathe.gather_elements
// CHECK: return %[[BOTH]]#1, %[[BOTH]]#0
// CPU: lathe.kernel {{.*}} scan
// CPU-NEXT: lathe.topk
// CPU-NEXT: lathe.yield
// CHECK-LABEL: func.func @line
// CHECK: lathe.topk
// CHECK-NEXT: lathe.gather
// CHECK-NEXT: lathe.yield
module attributes {lathe.target = "sm_90a"} {
  func.func @main(%x: tensor<4x3000xf32>, %y: tensor<4x3000xf32>) -> (tensor<4x50xf32>, tensor<4x50xi64>, tensor<4x50xf32>) {
    %0 = lathe.topk %x {axis = 1 : i64, k = #lathe.dim<50>} : (tensor<4x3000xf32>) -> tensor<4x50xi64>
    %1 = lathe.gather_elements %x, %0 {axis = 1 : i64} : (tensor<4x3000xf32>, tensor<4x50xi64>) -> tensor<4x50xf32>
    %2 = lathe.gather_elements %y, %0 {axis = 1 : i64} : (tensor<4x3000xf32>, tensor<4x50xi64>) -> tensor<4x50xf32>
    return %1, %0, %2 : tensor<4x50xf32>, tensor<4x50xi64>, tensor<4x50xf32>
  }
  func.func @line(%x: tensor<3000xi32>) -> (tensor<3000xi32>, tensor<3000xi64>) {
    %0 = lathe.topk %x {axis = 0 : i64, k = #lathe.dim<3000>, smallest} : (tensor<3000xi32>) -> tensor<3000xi64>
    %1 = lathe.gather %x, %0 {axis = 0 : i64} : (tensor<3000xi32>, tensor<3000xi64>) -> tensor<3000xi32>
    return %1, %0 : tensor<3000xi32>, tensor<3000xi64>
  }
}
