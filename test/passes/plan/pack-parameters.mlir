// RUN: %lathe-opt --lathe-defer-parameters --lathe-hoist-parameters --lathe-split-targets --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-pack-parameters %s | FileCheck %s
// RUN: %lathe-opt --lathe-defer-parameters --lathe-hoist-parameters --lathe-split-targets --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-pack-parameters --lathe-plan --lathe-offsets --lathe-verify-planned %s | FileCheck %s --check-prefix=PLAN

// A weight that the product reads packed, a scale that prepare computes, a bias that is the caller's own, and a
// parameter that nobody reads.
// CHECK: func.func @main(%arg0: tensor<64x32xf32> {lathe.name = "x"},
// CHECK-SAME: tensor<512xf32> {lathe.name = "w:panels16", lathe.packing = "panels16", lathe.parameter = #lathe.weight<"parameter:w"
// CHECK-SAME: tensor<16xf32> {lathe.name = "b", lathe.parameter =
// CHECK-SAME: tensor<16xf32> {lathe.name = "g/sqrt", lathe.parameter =
// CHECK: func.func @prepare(%arg0: tensor<32x16xf32> {lathe.name = "w"}, %arg1: tensor<16xf32> {lathe.name = "g"})
// CHECK-SAME: (tensor<512xf32> {lathe.name = "w:panels16"}, tensor<16xf32> {lathe.name = "g/sqrt"})
// CHECK: %[[P:.*]] = lathe.custom_call "pack"(%arg0) {config = {recipe = "panels16"}, lathe.host_op} : (tensor<32x16xf32>) -> tensor<512xf32>
// CHECK: return %[[P]],

// PLAN: exec.program @main
// PLAN: %[[W:.*]] = exec.buffer "w:panels16" {index = 1 : i64, kind = #exec.kind<input>} : tensor<512xf32>
// PLAN: exec.launch @{{.*}}(%{{.*}}, %[[W]], %
// PLAN: exec.program @prepare
// PLAN: %[[OUT:.*]] = exec.buffer "w:panels16" {{.*}}kind = #exec.kind<output>} : tensor<512xf32>
// PLAN: exec.call "pack"{{.*}}%[[OUT]]
// PLAN-NOT: exec.copy
module attributes {lathe.options = {parameters = ["w", "g", "b", "unread"], targets = ["x86-64-v3"]}} {
  func.func @main(%x: tensor<64x32xf32> {lathe.name = "x"}, %w: tensor<32x16xf32> {lathe.name = "w"}, %g: tensor<16xf32> {lathe.name = "g"}, %b: tensor<16xf32> {lathe.name = "b"}, %unread: tensor<9xf32> {lathe.name = "unread"}) -> (tensor<64x16xf32> {lathe.name = "y"}) attributes {lathe.entry} {
    %0 = lathe.matmul %x, %w : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
    %1 = lathe.sqrt %g : (tensor<16xf32>) -> tensor<16xf32>
    %2 = lathe.mul %0, %1 : (tensor<64x16xf32>, tensor<16xf32>) -> tensor<64x16xf32>
    %3 = lathe.add %2, %b : (tensor<64x16xf32>, tensor<16xf32>) -> tensor<64x16xf32>
    return %3 : tensor<64x16xf32>
  }
}
