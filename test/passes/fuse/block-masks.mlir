// RUN: %lathe-opt --split-input-file --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select %s | FileCheck %s
// RUN: %lathe-opt --split-input-file --lathe-fuse --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Masks that follow from less than queries x keys are computed by the attention that reads them: on a GPU, and on a CPU where they
// are large; blocks of keys that they hide are then left out.

// Every fourth block, at most 16 blocks away: both conditions of the mask have its size.
// CHECK-LABEL: @dilated
// CHECK: lathe.kernel "attention{{[a-z_0-9]*}}" attention
// CHECK-SAME: config \22attention.listed.
// CHECK: lathe.mod
// CHECK: lathe.attention
// CHECK-NOT: lathe.kernel
// CHECK: return
module attributes {lathe.target = "x86-64-v4"} {
  func.func @dilated(%q: tensor<1x2x2048x64xf32>) -> tensor<1x2x2048x64xf32> {
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<2048x1xi64>
    %j = lathe.iota {axis = 1 : i64} : () -> tensor<1x2048xi64>
    %size = lathe.constant dense<64> : tensor<i64>
    %step = lathe.constant dense<4> : tensor<i64>
    %reach = lathe.constant dense<16> : tensor<i64>
    %zero = lathe.constant dense<0> : tensor<i64>
    %bi = lathe.div %i, %size : (tensor<2048x1xi64>, tensor<i64>) -> tensor<2048x1xi64>
    %bj = lathe.div %j, %size : (tensor<1x2048xi64>, tensor<i64>) -> tensor<1x2048xi64>
    %d = lathe.sub %bi, %bj : (tensor<2048x1xi64>, tensor<1x2048xi64>) -> tensor<2048x2048xi64>
    %a = lathe.abs %d : (tensor<2048x2048xi64>) -> tensor<2048x2048xi64>
    %near = lathe.compare %a, %reach {predicate = #lathe.predicate<le>} : (tensor<2048x2048xi64>, tensor<i64>) -> tensor<2048x2048xi1>
    %r = lathe.mod %d, %step : (tensor<2048x2048xi64>, tensor<i64>) -> tensor<2048x2048xi64>
    %on = lathe.compare %r, %zero {predicate = #lathe.predicate<eq>} : (tensor<2048x2048xi64>, tensor<i64>) -> tensor<2048x2048xi1>
    %m = lathe.and %near, %on : (tensor<2048x2048xi1>, tensor<2048x2048xi1>) -> tensor<2048x2048xi1>
    %y = lathe.attention %q, %q, %q mask %m {scale = 0.125 : f64} : (tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<2048x2048xi1>) -> tensor<1x2x2048x64xf32>
    return %y : tensor<1x2x2048x64xf32>
  }
}

// -----

// Blocks that a run chooses: the table is read, never a tensor of queries x keys.
// CHECK-LABEL: @chosen
// CHECK: lathe.kernel "attention{{[a-z_0-9]*}}" attention
// CHECK-SAME: tensor<1x2x32x1x32x1xi1>
// CHECK-SAME: config \22attention.listed.
// CHECK: lathe.broadcast_to
// CHECK: lathe.attention
// CHECK-NOT: lathe.kernel
// CHECK: return
module attributes {lathe.target = "x86-64-v4"} {
  func.func @chosen(%q: tensor<1x2x2048x64xf32>, %table: tensor<1x2x32x32xi1>) -> tensor<1x2x2048x64xf32> {
    %t = lathe.reshape %table : (tensor<1x2x32x32xi1>) -> tensor<1x2x32x1x32x1xi1>
    %b = lathe.broadcast_to %t : (tensor<1x2x32x1x32x1xi1>) -> tensor<1x2x32x64x32x64xi1>
    %m = lathe.reshape %b : (tensor<1x2x32x64x32x64xi1>) -> tensor<1x2x2048x2048xi1>
    %y = lathe.attention %q, %q, %q mask %m {scale = 0.125 : f64} : (tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x2048xi1>) -> tensor<1x2x2048x64xf32>
    return %y : tensor<1x2x2048x64xf32>
  }
}

// -----

// A mask that stays in a cache is made once, and few keys are not listed.
// CHECK-LABEL: @small
// CHECK: lathe.kernel "{{.*}}" {{.*}} -> (tensor<256x256xi1>)
// CHECK: lathe.kernel "attention{{[a-z_0-9]*}}" attention
// CHECK-NOT: attention.listed
// CHECK: return
module attributes {lathe.target = "x86-64-v4"} {
  func.func @small(%q: tensor<1x2x256x64xf32>, %x: tensor<256x1xi64>, %z: tensor<1x256xi64>) -> tensor<1x2x256x64xf32> {
    %d = lathe.sub %x, %z : (tensor<256x1xi64>, tensor<1x256xi64>) -> tensor<256x256xi64>
    %reach = lathe.constant dense<16> : tensor<i64>
    %m = lathe.compare %d, %reach {predicate = #lathe.predicate<le>} : (tensor<256x256xi64>, tensor<i64>) -> tensor<256x256xi1>
    %y = lathe.attention %q, %q, %q mask %m {scale = 0.125 : f64} : (tensor<1x2x256x64xf32>, tensor<1x2x256x64xf32>, tensor<1x2x256x64xf32>, tensor<256x256xi1>) -> tensor<1x2x256x64xf32>
    return %y : tensor<1x2x256x64xf32>
  }
}

// -----

// What is read from memory key by key anyway is not computed again for each head.
// REMARK: attention reads it for each score, and computing it there takes operands of its size or more than 16 operations
// CHECK-LABEL: @two_large_operands
// CHECK: lathe.kernel "{{.*}}" {{.*}} -> (tensor<2048x2048xi1>)
// CHECK: lathe.kernel "attention{{[a-z_0-9]*}}" attention
// CHECK: return
module attributes {lathe.target = "sm_90a"} {
  func.func @two_large_operands(%q: tensor<1x2x2048x64xf16>, %x: tensor<2048x2048xi1>, %z: tensor<2048x2048xi1>) -> tensor<1x2x2048x64xf16> {
    %m = lathe.and %x, %z : (tensor<2048x2048xi1>, tensor<2048x2048xi1>) -> tensor<2048x2048xi1>
    %y = lathe.attention %q, %q, %q mask %m {scale = 0.125 : f64} : (tensor<1x2x2048x64xf16>, tensor<1x2x2048x64xf16>, tensor<1x2x2048x64xf16>, tensor<2048x2048xi1>) -> tensor<1x2x2048x64xf16>
    return %y : tensor<1x2x2048x64xf16>
  }
}
