// RUN: %lathe-opt --lathe-fuse --lathe-place-concats %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-place-concats --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --lathe-verify-planned %s | FileCheck %s --check-prefix=PLAN

module attributes {lathe.target = "x86-64-v3"} {
  // Both products are written into the whole, which no kernel copies.
  // CHECK-LABEL: @products
  // CHECK: %[[A:.*]] = lathe.kernel "matmul" gemm {{.*}} -> (tensor<4x32xf32, #lathe.t<[4, 32], layout = #lathe.phys<[4, 96]>>>)
  // CHECK: %[[B:.*]] = lathe.kernel "matmul" gemm {{.*}} -> (tensor<4x64xf32, #lathe.t<[4, 64], layout = #lathe.phys<[4, 96]>>>)
  // CHECK: lathe.kernel "concat" {{.*}}lathe.placed = 1
  // PLAN-LABEL: exec.program @products
  // PLAN: %[[C:.*]] = exec.buffer "" {kind = #exec.kind<arena>
  // PLAN: %[[A:.*]] = exec.buffer "" of %[[C]] {{.*}}kind = #exec.kind<view>}
  // PLAN: %[[B:.*]] = exec.buffer "" of %[[C]] {{.*}}offset = #lathe.dim<128>
  // PLAN: exec.launch @matmul_{{.*}}, %[[A]])
  // PLAN: exec.launch @matmul_{{.*}}, %[[B]])
  // PLAN-NEXT: exec.launch @matmul_{{[0-9]+}}(%[[C]],
  // PLAN-LABEL: exec.program @with_input
  func.func @products(%x: tensor<4x16xf32>, %a: tensor<16x32xf32>, %b: tensor<16x64xf32>,
                      %c: tensor<96x8xf32>) -> tensor<4x8xf32> {
    %0 = lathe.matmul %x, %a : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %1 = lathe.matmul %x, %b : (tensor<4x16xf32>, tensor<16x64xf32>) -> tensor<4x64xf32>
    %2 = lathe.concat %0, %1 {axis = 1 : i64} : (tensor<4x32xf32>, tensor<4x64xf32>) -> tensor<4x96xf32>
    %3 = lathe.matmul %2, %c : (tensor<4x96xf32>, tensor<96x8xf32>) -> tensor<4x8xf32>
    return %3 : tensor<4x8xf32>
  }

  // An input of the entry has a place of its own.
  // CHECK-LABEL: @with_input
  // CHECK-NOT: lathe.placed
  // CHECK: return
  func.func @with_input(%x: tensor<4x16xf32>, %a: tensor<16x32xf32>, %b: tensor<4x64xf32>,
                        %c: tensor<96x8xf32>) -> tensor<4x8xf32> {
    %0 = lathe.matmul %x, %a : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %2 = lathe.concat %0, %b {axis = 1 : i64} : (tensor<4x32xf32>, tensor<4x64xf32>) -> tensor<4x96xf32>
    %3 = lathe.matmul %2, %c : (tensor<4x96xf32>, tensor<96x8xf32>) -> tensor<4x8xf32>
    return %3 : tensor<4x8xf32>
  }

  // Read by others too: it stays dense.
  // CHECK-LABEL: @read_twice
  // CHECK-NOT: lathe.placed
  // CHECK: return
  func.func @read_twice(%x: tensor<4x16xf32>, %a: tensor<16x32xf32>, %b: tensor<32x64xf32>,
                        %c: tensor<96x8xf32>) -> tensor<4x8xf32> {
    %0 = lathe.matmul %x, %a : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %1 = lathe.matmul %0, %b : (tensor<4x32xf32>, tensor<32x64xf32>) -> tensor<4x64xf32>
    %2 = lathe.concat %0, %1 {axis = 1 : i64} : (tensor<4x32xf32>, tensor<4x64xf32>) -> tensor<4x96xf32>
    %3 = lathe.matmul %2, %c : (tensor<4x96xf32>, tensor<96x8xf32>) -> tensor<4x8xf32>
    return %3 : tensor<4x8xf32>
  }
}
