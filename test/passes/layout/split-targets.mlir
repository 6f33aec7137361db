// RUN: %lathe-opt --lathe-split-targets %s | FileCheck %s
// RUN: %lathe-opt --lathe-split-targets %s | %lathe-opt --lathe-split-targets | FileCheck %s
// RUN: not %lathe-opt --lathe-split-targets %S/Inputs/unknown-target.mlir 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: error: {{.*}}sparc

// CHECK: module @cpu_x86_64_v3 attributes {lathe.target = "x86-64-v3"}
// CHECK: func.func @main
// CHECK: module @sm_90a attributes {lathe.target = "sm_90a"}
// CHECK: func.func @main
// CHECK-NOT: func.func
module attributes {lathe.options = {targets = ["x86-64-v3", "sm_90a"]}} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
