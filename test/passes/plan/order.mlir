// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --lathe-verify-planned %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

module attributes {lathe.target = "x86-64-v3"} {
  // Each wide value dies before the next is made.
  // CHECK-LABEL: exec.program @branches
  // CHECK: exec.arena <16448>
  // CHECK: exec.launch @{{.*}}(%[[X:.*]], %{{.*}}, %[[WIDE0:.*]])
  // CHECK: exec.launch @{{.*}}(%[[WIDE0]], %{{.*}}, %[[SMALL:.*]])
  // CHECK: exec.launch @{{.*}}(%[[X]], %{{.*}}, %[[WIDE1:.*]])
  // CHECK: exec.launch @{{.*}}(%[[WIDE1]], {{.*}}%[[SMALL]]
  // REMARK: arena: written 32832 bytes, order 16448 bytes
  func.func @branches(%x: tensor<1x64xf32>, %a: tensor<64x4096xf32>, %b: tensor<64x4096xf32>,
                      %c: tensor<4096x16xf32>) -> tensor<1x16xf32> {
    %0 = lathe.matmul %x, %a : (tensor<1x64xf32>, tensor<64x4096xf32>) -> tensor<1x4096xf32>
    %1 = lathe.matmul %x, %b : (tensor<1x64xf32>, tensor<64x4096xf32>) -> tensor<1x4096xf32>
    %2 = lathe.matmul %0, %c : (tensor<1x4096xf32>, tensor<4096x16xf32>) -> tensor<1x16xf32>
    %3 = lathe.matmul %1, %c : (tensor<1x4096xf32>, tensor<4096x16xf32>) -> tensor<1x16xf32>
    %4 = lathe.add %3, %2 : (tensor<1x16xf32>, tensor<1x16xf32>) -> tensor<1x16xf32>
    return %4 : tensor<1x16xf32>
  }

  // The sum takes the memory of the residual that it adds; not that of a matrix that it multiplies.
  // CHECK-LABEL: exec.program @residual
  // CHECK: %[[R:.*]] = exec.buffer {{.*}}kind = #exec.kind<arena>
  // CHECK: %[[WIDE:.*]] = exec.buffer {{.*}}kind = #exec.kind<arena>
  // CHECK: %[[SUM:.*]] = exec.buffer "" of %[[R]] {{.*}}kind = #exec.kind<view>
  // CHECK: exec.launch @{{.*}}, %[[R]])
  // CHECK: exec.launch @{{.*}}(%[[R]], %{{.*}}, %[[WIDE]])
  // CHECK: exec.launch @{{.*}}(%[[WIDE]], %{{.*}}, %[[R]], %[[SUM]])
  // REMARK: arena: written 24576 bytes, in place 20480 bytes
  func.func @residual(%x: tensor<16x64xf32>, %a: tensor<64x64xf32>, %b: tensor<64x256xf32>,
                      %c: tensor<256x64xf32>) -> tensor<16x64xf32> {
    %0 = lathe.matmul %x, %a : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    %1 = lathe.matmul %0, %b : (tensor<16x64xf32>, tensor<64x256xf32>) -> tensor<16x256xf32>
    %2 = lathe.matmul %1, %c : (tensor<16x256xf32>, tensor<256x64xf32>) -> tensor<16x64xf32>
    %3 = lathe.add %2, %0 : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
    %4 = lathe.matmul %3, %a : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    return %4 : tensor<16x64xf32>
  }

  // The residual is read again later: its memory stays its own.
  // CHECK-LABEL: exec.program @read_later
  // CHECK-NOT: kind = #exec.kind<view>
  // CHECK: exec.launch
  func.func @read_later(%x: tensor<16x64xf32>, %a: tensor<64x64xf32>, %b: tensor<64x256xf32>,
                        %c: tensor<256x64xf32>) -> (tensor<16x64xf32>, tensor<16x64xf32>) {
    %0 = lathe.matmul %x, %a : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    %1 = lathe.matmul %0, %b : (tensor<16x64xf32>, tensor<64x256xf32>) -> tensor<16x256xf32>
    %2 = lathe.matmul %1, %c : (tensor<16x256xf32>, tensor<256x64xf32>) -> tensor<16x64xf32>
    %3 = lathe.add %2, %0 : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
    %4 = lathe.matmul %3, %a : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    %5 = lathe.matmul %0, %a : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    %6 = lathe.add %5, %4 : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
    return %6, %4 : tensor<16x64xf32>, tensor<16x64xf32>
  }

  // A cheap matrix that every layer multiplies by is made again rather than kept over the wide
  // values.
  // CHECK-LABEL: exec.program @again
  // CHECK: exec.launch @broadcast_to_
  // CHECK-COUNT-3: exec.launch @matmul_
  // CHECK-NEXT: exec.launch @broadcast_to_
  // CHECK-COUNT-3: exec.launch @matmul_
  // REMARK: arena: written {{[0-9]+}} bytes, recompute {{[0-9]+}} bytes, one kernel runs again
  func.func @again(%v: tensor<512x1xf32>, %x: tensor<512x64xf32>, %a: tensor<64x3328xf32>,
                   %b: tensor<3328x64xf32>) -> tensor<512x64xf32> {
    %m = lathe.broadcast_to %v : (tensor<512x1xf32>) -> tensor<512x512xf32>
    %p0 = lathe.matmul %m, %x : (tensor<512x512xf32>, tensor<512x64xf32>) -> tensor<512x64xf32>
    %h0 = lathe.matmul %p0, %a : (tensor<512x64xf32>, tensor<64x3328xf32>) -> tensor<512x3328xf32>
    %n0 = lathe.matmul %h0, %b : (tensor<512x3328xf32>, tensor<3328x64xf32>) -> tensor<512x64xf32>
    %p1 = lathe.matmul %m, %n0 : (tensor<512x512xf32>, tensor<512x64xf32>) -> tensor<512x64xf32>
    %h1 = lathe.matmul %p1, %a : (tensor<512x64xf32>, tensor<64x3328xf32>) -> tensor<512x3328xf32>
    %n1 = lathe.matmul %h1, %b : (tensor<512x3328xf32>, tensor<3328x64xf32>) -> tensor<512x64xf32>
    return %n1 : tensor<512x64xf32>
  }
}
