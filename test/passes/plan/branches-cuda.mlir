// RUN: %lathe-opt --lathe-fuse --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --lathe-verify-planned %s | FileCheck %s

module attributes {lathe.target = "sm_90a"} {
  // A condition that the run computes on the GPU comes back to pinned memory before the branch; what
  // follows is enqueued when it is known.
  // CHECK-LABEL: exec.program @main
  // CHECK: exec.arena <{{.*}}> {on_host}
  // CHECK: %[[D:.*]] = exec.buffer "" {kind = #exec.kind<arena>{{.*}} : tensor<i1>
  // CHECK: %[[C:.*]] = exec.buffer {{.*}}kind = #exec.kind<host>
  // CHECK: exec.launch @compare_{{[0-9]+}}({{.*}}, %[[D]])
  // CHECK: exec.copy %[[D]] to %[[C]]
  // CHECK-NEXT: exec.if %[[C]]
  // CHECK-NEXT: exec.copy
  // CHECK-NEXT: exec.else
  // CHECK-NEXT: exec.copy
  // CHECK-NEXT: exec.end_if
  func.func @main(%x: tensor<64xf32> {lathe.name = "x"}, %a: tensor<f32> {lathe.name = "a"}, %b: tensor<f32> {lathe.name = "b"}) -> (tensor<64xf32> {lathe.name = "y"}) {
    %c = lathe.compare %a, %b {predicate = #lathe.predicate<lt>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %0 = lathe.neg %x : (tensor<64xf32>) -> tensor<64xf32>
    %1 = lathe.exp %x : (tensor<64xf32>) -> tensor<64xf32>
    %2 = lathe.choose %c then (%0) else (%1) : tensor<i1>, (tensor<64xf32>), (tensor<64xf32>) -> (tensor<64xf32>)
    return %2 : tensor<64xf32>
  }
}
