// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-streams --lathe-offsets --lathe-verify-planned %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-streams --lathe-offsets %s | %lathe-opt --lathe-verify-planned | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-streams --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: sed -e 's/lathe.target = "sm_90a"}/lathe.target = "sm_90a", lathe.options = {streams = ["1"]}}/' %s > %t.one.mlir
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-streams --lathe-offsets %t.one.mlir | FileCheck %s --check-prefix=ONE
// RUN: sed -e 's/sm_90a/x86-64-v3/' %s > %t.cpu.mlir
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-streams --lathe-offsets %t.cpu.mlir | FileCheck %s --check-prefix=ONE

// ONE-NOT: exec.stream
// ONE-NOT: exec.signal

module attributes {lathe.target = "sm_90a"} {
  lathe.symbol @M {max = 192 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 192 : i64, origin = "x[0]"}

  // Two chains of kernels of 33 blocks, a quarter of 132 multiprocessors. What the chains write
  // shares no memory: 192 x 704 numbers each, beside each other.
  // CHECK-LABEL: exec.program @chains
  // CHECK: exec.arena <1081344>
  // CHECK: %[[A:.*]] = exec.buffer "" {{.*}}kind = #exec.kind<arena>
  // CHECK: %[[B:.*]] = exec.buffer "" {{.*}}kind = #exec.kind<arena>
  // CHECK: exec.launch @matmul_{{[0-9]+}}({{.*}}%[[A]]){{.*}}
  // CHECK-NOT: exec.stream
  // CHECK: exec.launch @matmul_{{[0-9]+}}(%[[A]]
  // CHECK: exec.launch @matmul_{{[0-9]+}}({{.*}}%[[B]]) {exec.stream = 1 : i64,
  // CHECK: exec.launch @matmul_{{[0-9]+}}(%[[B]]{{.*}} {exec.stream = 1 : i64,
  // CHECK-NOT: exec.signal
  // REMARK: [Passed] Streams {{.*}}4 kernels on 2 streams: 80.8 us instead of 154.9 us by estimate, 1.92 x (an event 1.66 us)
  func.func @chains(%x: tensor<192x4096xf32>, %a: tensor<4096x704xf32>, %b: tensor<4096x704xf32>,
                    %c: tensor<704x704xf32>, %d: tensor<704x704xf32>)
                    -> (tensor<192x704xf32>, tensor<192x704xf32>) {
    %0 = lathe.matmul %x, %a : (tensor<192x4096xf32>, tensor<4096x704xf32>) -> tensor<192x704xf32>
    %1 = lathe.matmul %0, %c : (tensor<192x704xf32>, tensor<704x704xf32>) -> tensor<192x704xf32>
    %2 = lathe.matmul %x, %b : (tensor<192x4096xf32>, tensor<4096x704xf32>) -> tensor<192x704xf32>
    %3 = lathe.matmul %2, %d : (tensor<192x704xf32>, tensor<704x704xf32>) -> tensor<192x704xf32>
    return %1, %3 : tensor<192x704xf32>, tensor<192x704xf32>
  }

  // The product of both waits for the other stream, at any number of rows.
  // CHECK-LABEL: exec.program @joined
  // CHECK: exec.launch @matmul_{{[0-9]+}}({{.*}}) {symbols
  // CHECK: exec.launch @matmul_{{[0-9]+}}({{.*}}) {exec.signal = 0 : i64, exec.stream = 1 : i64, symbols
  // CHECK: exec.launch @matmul_{{[0-9]+}}({{.*}}) {exec.waits = array<i64: 0>, symbols
  // REMARK: [Passed] Streams {{.*}}2 kernels on 2 streams
  func.func @joined(%x: tensor<?x4096xf32, #lathe.t<[M, 4096]>>, %a: tensor<4096x704xf32>,
                    %y: tensor<704x4096xf32>, %b: tensor<4096x192xf32>)
                    -> tensor<?x192xf32, #lathe.t<[M, 192]>> {
    %0 = lathe.matmul %x, %a : (tensor<?x4096xf32, #lathe.t<[M, 4096]>>, tensor<4096x704xf32>) -> tensor<?x704xf32, #lathe.t<[M, 704]>>
    %1 = lathe.matmul %y, %b : (tensor<704x4096xf32>, tensor<4096x192xf32>) -> tensor<704x192xf32>
    %2 = lathe.matmul %0, %1 : (tensor<?x704xf32, #lathe.t<[M, 704]>>, tensor<704x192xf32>) -> tensor<?x192xf32, #lathe.t<[M, 192]>>
    return %2 : tensor<?x192xf32, #lathe.t<[M, 192]>>
  }

  // Kernels that fill the GPU gain nothing.
  // CHECK-LABEL: exec.program @full
  // CHECK-NOT: exec.stream
  // REMARK: [Missed] Streams {{.*}}one stream: more gain nothing for 2 kernels of
  func.func @full(%x: tensor<2048x1024xf32>, %a: tensor<1024x2048xf32>, %b: tensor<1024x2048xf32>)
                  -> (tensor<2048x2048xf32>, tensor<2048x2048xf32>) {
    %0 = lathe.matmul %x, %a : (tensor<2048x1024xf32>, tensor<1024x2048xf32>) -> tensor<2048x2048xf32>
    %1 = lathe.matmul %x, %b : (tensor<2048x1024xf32>, tensor<1024x2048xf32>) -> tensor<2048x2048xf32>
    return %0, %1 : tensor<2048x2048xf32>, tensor<2048x2048xf32>
  }

  // Nor do those that take less than an event.
  // CHECK-LABEL: exec.program @brief
  // CHECK-NOT: exec.stream
  // REMARK-NOT: Streams
  func.func @brief(%x: tensor<64x16xf32>, %a: tensor<16x64xf32>, %b: tensor<16x128xf32>)
                  -> (tensor<64x64xf32>, tensor<64x128xf32>) {
    %0 = lathe.matmul %x, %a : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
    %1 = lathe.matmul %x, %b : (tensor<64x16xf32>, tensor<16x128xf32>) -> tensor<64x128xf32>
    return %0, %1 : tensor<64x64xf32>, tensor<64x128xf32>
  }
}
