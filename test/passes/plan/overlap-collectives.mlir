// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-overlap-collectives --lathe-streams --lathe-offsets --lathe-verify-planned %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-overlap-collectives --lathe-streams --lathe-offsets %s | %lathe-opt --lathe-verify-planned | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-overlap-collectives --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: sed -e 's/min = 2048/min = 1/;s/opt = 2048/opt = 256/' %s > %t.few.mlir
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-overlap-collectives --remarks-filter=lathe --remark-policy=all %t.few.mlir 2>&1 >/dev/null | FileCheck %s --check-prefix=FEW
// RUN: sed -e 's/min = 2048/min = 1/' %s > %t.any.mlir
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-overlap-collectives --lathe-streams --lathe-offsets --lathe-verify-planned %t.any.mlir | FileCheck %s --check-prefix=ANY
// RUN: sed -e 's/mesh = \["tp=2"\]/mesh = ["tp=2"], streams = ["2"]/' %s > %t.one.mlir
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-overlap-collectives --lathe-streams %t.one.mlir | FileCheck %s --check-prefix=ONE
// RUN: sed -e 's/sm_90a/x86-64-v3/' %s > %t.cpu.mlir
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-overlap-collectives --lathe-streams %t.cpu.mlir | FileCheck %s --check-prefix=ONE

// ONE-NOT: exec.stream
// Runs of few rows have them all in the first part.
// ANY: exec.launch @matmul_0({{.*}}symbols = {S = #lathe.dim<-128*floordiv(S, 512)*min(1, floordiv(S, 1024)) + S>}
// ANY: exec.launch @matmul_0({{.*}}symbols = {S = #lathe.dim<128*floordiv(S, 512)*min(1, floordiv(S, 1024))>}
// FEW: [Missed] OverlapCollectives {{.*}}256 rows are too few to compute beside all-reduces

// Products before and behind an all-reduce, and a norm of each row between them: three quarters of the rows and a quarter, the second on
// a stream of its own, and the all-reduces, in their order, on a third. What they exchange has memory of its own; the
// parameter and the result are parts of what the caller gives.
// REMARK: [Passed] OverlapCollectives {{.*}}entry 'rows': parts of the rows compute beside each other's all-reduces from {{[0-9]+}} rows on
// CHECK-LABEL: exec.program @rows
// CHECK: %[[X:[0-9]+]] = exec.buffer "input0" {kind = #exec.kind<input>}
// CHECK-NEXT: %[[X0:[0-9]+]] = exec.buffer "input0" of %[[X]] {{.*}} {kind = #exec.kind<view>} : {{.*}}<[1, S - 128*floordiv(S, 512), 4096]>
// CHECK-NEXT: %[[X1:[0-9]+]] = exec.buffer "input0" of %[[X]] {{.*}}offset = #lathe.dim<8192*S - 1048576*floordiv(S, 512)>} : {{.*}}<[1, 128*floordiv(S, 512), 4096]>
// CHECK: exec.launch @matmul_[[UP:[0-9]+]](%[[X0]], %{{[0-9]+}}, %[[P0:[0-9]+]]) {exec.signal = 0 : i64, symbols = {S = #lathe.dim<S - 128*
// CHECK: exec.collective "all_reduce" %[[P0]] to %[[S0:[0-9]+]] {{.*}}exec.signal = 1 : i64, exec.stream = 2 : i64, exec.waits = array<i64: 0>
// CHECK: exec.launch @matmul_[[UP]](%[[X1]], %{{[0-9]+}}, %[[P1:[0-9]+]]) {exec.signal = 2 : i64, exec.stream = 1 : i64, symbols = {S = #lathe.dim<128*
// CHECK: exec.collective "all_reduce" %[[P1]] to %[[S1:[0-9]+]] {{.*}}exec.signal = 3 : i64, exec.stream = 2 : i64, exec.waits = array<i64: 2>
// CHECK: exec.launch @[[NORM:[a-z_]+[0-9]+]](%[[S0]], %[[N0:[0-9]+]]) {exec.waits = array<i64: 1>
// CHECK: exec.launch @matmul_[[OUT:[0-9]+]](%[[N0]],
// CHECK: exec.launch @[[NORM]](%[[S1]], %[[N1:[0-9]+]]) {exec.stream = 1 : i64, exec.waits = array<i64: 3>
// CHECK: exec.launch @matmul_[[OUT]](%[[N1]], {{.*}}exec.stream = 1 : i64
module attributes {lathe.target = "sm_90a", lathe.options = {mesh = ["tp=2"]}} {
  lathe.symbol @S {max = 4096 : i64, min = 2048 : i64, multiple_of = 1 : i64, opt = 2048 : i64, origin = "x[1]"}
  func.func @rows(%x: tensor<1x?x4096xbf16, #lathe.t<[1, S, 4096]>>, %w: tensor<4096x8192xbf16>, %v: tensor<8192x8192xbf16>)
      -> tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>> {
    %0 = lathe.matmul %x, %w : (tensor<1x?x4096xbf16, #lathe.t<[1, S, 4096]>>, tensor<4096x8192xbf16>) -> tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>
    %1 = lathe.all_reduce %0 {kind = #lathe.reduce_kind<sum>, ranks = 2} : (tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>) -> tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>
    %2 = lathe.mul %1, %1 : (tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>, tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>) -> tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>
    %3 = lathe.reduce %2 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 2>, keepdims = true} : (tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>) -> tensor<1x?x1xbf16, #lathe.t<[1, S, 1]>>
    %4 = lathe.mul %1, %3 : (tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>, tensor<1x?x1xbf16, #lathe.t<[1, S, 1]>>) -> tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>
    %5 = lathe.matmul %4, %v : (tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>, tensor<8192x8192xbf16>) -> tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>
    return %5 : tensor<1x?x8192xbf16, #lathe.t<[1, S, 8192]>>
  }

  // What a row is here follows from others: nothing is divided.
  // CHECK-LABEL: exec.program @mixed
  // CHECK-NOT: exec.stream
  func.func @mixed(%x: tensor<1x?x4096xbf16, #lathe.t<[1, S, 4096]>>) -> tensor<1x1x4096xbf16> {
    %1 = lathe.all_reduce %x {kind = #lathe.reduce_kind<sum>, ranks = 2} : (tensor<1x?x4096xbf16, #lathe.t<[1, S, 4096]>>) -> tensor<1x?x4096xbf16, #lathe.t<[1, S, 4096]>>
    %3 = lathe.reduce %1 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<1x?x4096xbf16, #lathe.t<[1, S, 4096]>>) -> tensor<1x1x4096xbf16>
    return %3 : tensor<1x1x4096xbf16>
  }
}
