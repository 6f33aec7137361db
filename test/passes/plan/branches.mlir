// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --lathe-verify-planned %s | FileCheck %s

module attributes {lathe.target = "x86-64-v3"} {
  // What both sides read runs before the branch; each side writes the result where it shall be.
  // CHECK-LABEL: exec.program @main
  // CHECK: exec.arena <{{.*}}> {on_host}
  // CHECK: %[[Y:.*]] = exec.buffer "y" {kind = #exec.kind<output>}
  // CHECK: %[[C:.*]] = exec.buffer {{.*}}kind = #exec.kind<host>
  // CHECK: exec.launch @matmul_{{[0-9]+}}({{.*}}, %[[S:.*]])
  // CHECK: exec.copy %{{.*}} to %[[C]]
  // CHECK-NEXT: exec.if %[[C]]
  // CHECK-NEXT: exec.launch @matmul_{{[0-9]+}}(%[[S]], %{{.*}}, %[[Y]])
  // CHECK-NEXT: exec.else
  // CHECK-NEXT: exec.copy %[[S]] to %[[Y]]
  // CHECK-NEXT: exec.end_if
  func.func @main(%x: tensor<64x64xf32> {lathe.name = "x"}, %c: tensor<i1> {lathe.name = "c"}) -> (tensor<64x64xf32> {lathe.name = "y"}) {
    %0 = lathe.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = lathe.matmul %0, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %2 = lathe.choose %c then (%1) else (%0) : tensor<i1>, (tensor<64x64xf32>), (tensor<64x64xf32>) -> (tensor<64x64xf32>)
    return %2 : tensor<64x64xf32>
  }
}
