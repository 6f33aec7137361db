// RUN: %lathe-opt --lathe-expand-pages %s | FileCheck %s
// RUN: %lathe-opt --lathe-expand-pages --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-verify-planned %s | FileCheck %s --check-prefix=PLAN
// RUN: sed 's/x86-64-v3/sm_90a/; s/f32/f16/g' %s | %lathe-opt --lathe-expand-pages | FileCheck %s --check-prefix=TOGETHER
// RUN: sed 's/x86-64-v3/sm_90a/; s/f32/f16/g' %s | %lathe-opt --lathe-expand-pages --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-verify-planned | FileCheck %s --check-prefix=GPU
// RUN: sed 's/{lathe.name = "positions"})/{lathe.name = "positions"}, %heads: tensor<8xf32> {lathe.name = "heads"})/; s/positions {layer = 1/positions sink %heads slopes %heads {layer = 1/; s/!count, !count) -> !queries/!count, !count, tensor<8xf32>, tensor<8xf32>) -> !queries/' %s | %lathe-opt --lathe-expand-pages | FileCheck %s --check-prefix=HEADS

// A sink and a slope for each of the eight heads: two keys' heads, four queries' each.
// HEADS: %[[SINK:.*]] = lathe.reshape %arg7 : (tensor<8xf32>) -> tensor<1x2x4x1xf32>
// HEADS: %[[BEHIND:.*]] = lathe.cast {{.*}} -> tensor<?x1x1x?xf32, #lathe.t<[T, 1, 1, 16*M]>>
// HEADS: lathe.reshape %arg7 : (tensor<8xf32>) -> tensor<1x2x4x1xf32>
// HEADS: %[[FALLS:.*]] = lathe.mul %{{.*}}, %[[BEHIND]]
// HEADS: lathe.attention {{.*}} bias %[[FALLS]] starts %{{.*}} lengths %{{.*}} sink %[[SINK]]

// RUN: sed 's/{layer = 1/{first_keys = 4 : i64, layer = 1/' %s | %lathe-opt --lathe-expand-pages | FileCheck %s --check-prefix=FIRST

// Keys from the window on, or the first four.
// FIRST: %[[STARTS:.*]] = lathe.reshape {{.*}} -> tensor<?x1x1x1xi64, #lathe.t<[T, 1, 1, 1]>>
// FIRST: %[[RECENT:.*]] = lathe.compare %[[KEY:.*]], %[[STARTS]] {predicate = #lathe.predicate<ge>}
// FIRST: %[[FOUR:.*]] = lathe.constant dense<4> : tensor<i64>
// FIRST: %[[FIRST:.*]] = lathe.compare %[[KEY]], %[[FOUR]] {predicate = #lathe.predicate<lt>}
// FIRST: %[[SEEN:.*]] = lathe.or %[[RECENT]], %[[FIRST]]
// FIRST: lathe.attention {{.*}} mask %[[SEEN]] lengths

!pool = tensor<?x3x2x16x2x64xf32, #lathe.t<[N, 3, 2, 16, 2, 64]>>
!new = tensor<?x2x64xf32, #lathe.t<[T, 2, 64]>>
!queries = tensor<?x8x64xf32, #lathe.t<[T, 8, 64]>>
!count = tensor<?xi64, #lathe.t<[T]>>
!tables = tensor<?x?xi64, #lathe.t<[R, M]>>

module attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @N {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 64 : i64, origin = "pool[0]"}
  lathe.symbol @T {max = -1 : i64, min = 2 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "slots[0]"}
  lathe.symbol @R {max = -1 : i64, min = 2 : i64, multiple_of = 1 : i64, opt = 4 : i64, origin = "tables[0]"}
  lathe.symbol @M {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "tables[1]"}
  // Layer 1: keys of slot s are row s + s / 16 * 80 + 32 of all rows, values 16 further on; a page's keys are
  // page 6 p + 2 of all parts of pages. Four query heads share a key head, and the position ends the keys.
  // CHECK-LABEL: func.func @step
  // CHECK: lathe.reshape %arg0 : {{.*}} -> tensor<?x2x64xf32, #lathe.t<[96*N, 2, 64]>>
  // CHECK: lathe.constant dense<16> : tensor<i64>
  // CHECK: lathe.constant dense<80> : tensor<i64>
  // CHECK: lathe.constant dense<32> : tensor<i64>
  // CHECK: %[[ONCE:.*]] = lathe.scatter_nd
  // CHECK: lathe.constant dense<48> : tensor<i64>
  // CHECK: lathe.scatter_nd %[[ONCE]]
  // CHECK: lathe.gather %arg4, %arg5 {axis = 0 : i64} : {{.*}} -> tensor<?x?xi64, #lathe.t<[T, M]>>
  // CHECK: lathe.gather {{.*}} -> tensor<?x?x16x2x64xf32, #lathe.t<[T, M, 16, 2, 64]>>
  // CHECK: lathe.attention {{.*}} starts %{{.*}} lengths %{{.*}} {scale = 1.250000e-01 : f64, softcap = 3.000000e+01 : f64} : (tensor<?x2x4x64xf32, #lathe.t<[T, 2, 4, 64]>>, tensor<?x2x?x64xf32, #lathe.t<[T, 2, 16*M, 64]>>
  // Nothing is copied: both scatters write into the caller's memory, where attention reads the pages.
  // PLAN: operands = [buffer 0, computed pages 1 dim 3, computed pages 1 dim 3, computed, computed]{{.*}}config \22attention.
  // PLAN-LABEL: exec.program @step
  // PLAN: exec.input "pool" %[[POOL:.*]] {donated_to = 1 : i64}
  // PLAN-NOT: exec.copy
  // PLAN-COUNT-4: exec.launch
  // PLAN-NOT: exec.launch
  // On a GPU one scatter puts both into the pool, and what tells layers apart is read from memory: with values first,
  // as numbers that count from 0 would be none.
  // TOGETHER: lathe.concat {{.*}} -> tensor<?x2x2x64xf16, #lathe.t<[T, 2, 2, 64]>>
  // TOGETHER: lathe.constant dense<[3, 2]> : tensor<2xi64>
  // TOGETHER: lathe.scatter_nd {{.*}}tensor<?x2x1xi64, #lathe.t<[T, 2, 1]>>
  // TOGETHER-NOT: lathe.scatter_nd
  // TOGETHER: lathe.slice {{.*}}starts = [#lathe.dim<1>]
  // TOGETHER: lathe.slice {{.*}}starts = [#lathe.dim<0>]
  // Each token is a batch of attention, which reads its pages where they lie. Where there are more tokens than
  // sequences, neighbours of one share keys.
  // GPU: operands = [buffer 0, computed pages 1 dim 3, computed pages 1 dim 3, computed, computed]{{.*}}guard = "(R + 1) <= T"{{.*}}config \22attention.ragged.{{.*}}config \22attention.split
  // GPU-LABEL: exec.program @step
  // GPU-NOT: exec.copy
  // GPU-COUNT-2: exec.launch
  // GPU-NOT: exec.launch
  func.func @step(%pool: !pool {lathe.name = "pool", lathe.donated_to = "next"}, %slots: !count {lathe.name = "slots"}, %k: !new {lathe.name = "k"}, %q: !queries {lathe.name = "q"}, %tables: !tables {lathe.name = "tables"}, %requests: !count {lathe.name = "requests"}, %positions: !count {lathe.name = "positions"})
      -> (!queries {lathe.name = "y"}, !pool {lathe.name = "next"}) attributes {lathe.entry} {
    %0 = lathe.kv_append %pool, %slots, %k, %k {layer = 1 : i64} : (!pool, !count, !new, !new) -> !pool
    %1 = lathe.paged_attention %q, %0, %tables, %requests, %positions {layer = 1 : i64, scale = 0.125 : f64, softcap = 30.0 : f64, window_left = 7 : i64} : (!queries, !pool, !tables, !count, !count) -> !queries
    return %1, %0 : !queries, !pool
  }
}
