// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

!pool = tensor<?x3x2x16x2x64xbf16, #lathe.t<[N, 3, 2, 16, 2, 64]>>
!codes = tensor<?x3x2x16x2x32xui8, #lathe.t<[N, 3, 2, 16, 2, 32]>>
!scales = tensor<?x3x2x2x16xf32, #lathe.t<[N, 3, 2, 2, 16]>>
!new = tensor<?x2x64xbf16, #lathe.t<[T, 2, 64]>>
!queries = tensor<?x8x64xbf16, #lathe.t<[T, 8, 64]>>
!count = tensor<?xi64, #lathe.t<[T]>>
!tables = tensor<?x?xi32, #lathe.t<[R, M]>>

// CHECK-LABEL: func.func @step
func.func @step(%pool: !pool, %slots: !count, %k: !new, %q: !queries, %tables: !tables, %requests: !count, %positions: !count, %heads: tensor<8xf32>, %codes: !codes, %scales: !scales) {
  // CHECK: %[[NEXT:.*]] = lathe.kv_append %arg0, %arg1, %arg2, %arg2 {layer = 2 : i64} : {{.*}} -> tensor<?x3x2x16x2x64xbf16, #lathe.t<[N, 3, 2, 16, 2, 64]>>
  %0 = lathe.kv_append %pool, %slots, %k, %k {layer = 2 : i64} : (!pool, !count, !new, !new) -> !pool
  // CHECK: lathe.paged_attention %arg3, %[[NEXT]], %arg4, %arg5, %arg6 {layer = 2 : i64, scale = 1.250000e-01 : f64, softcap = 3.000000e+01 : f64, window_left = 7 : i64} : {{.*}} -> tensor<?x8x64xbf16, #lathe.t<[T, 8, 64]>>
  %1 = lathe.paged_attention %q, %0, %tables, %requests, %positions {layer = 2 : i64, scale = 0.125 : f64, softcap = 30.0 : f64, window_left = 7 : i64} : (!queries, !pool, !tables, !count, !count) -> !queries
  // CHECK: lathe.paged_attention %{{.*}}, %{{.*}}, %arg4, %arg5, %arg6 sink %arg7 slopes %arg7 {layer = 0 : i64, {{.*}}scale = 1.000000e+00 : f64}
  %2 = lathe.paged_attention %q, %0, %tables, %requests, %positions sink %heads slopes %heads {layer = 0 : i64, scale = 1.0 : f64} : (!queries, !pool, !tables, !count, !count, tensor<8xf32>, tensor<8xf32>) -> !queries
  // CHECK: %[[CODES:[a-z0-9_]+]], %[[BY:[a-z0-9_]+]] = lathe.kv_append %arg8, %arg1, %arg2, %arg2, %arg9 {layer = 1 : i64} : {{.*}} -> (tensor<?x3x2x16x2x32xui8, #lathe.t<[N, 3, 2, 16, 2, 32]>>, tensor<?x3x2x2x16xf32, #lathe.t<[N, 3, 2, 2, 16]>>)
  %3:2 = lathe.kv_append %codes, %slots, %k, %k, %scales {layer = 1 : i64} : (!codes, !count, !new, !new, !scales) -> (!codes, !scales)
  // CHECK: lathe.paged_attention %arg3, %[[CODES]], %arg4, %arg5, %arg6 scales %[[BY]] {layer = 1 : i64, scale = 1.000000e+00 : f64}
  %4 = lathe.paged_attention %q, %3#0, %tables, %requests, %positions scales %3#1 {layer = 1 : i64, scale = 1.0 : f64} : (!queries, !codes, !tables, !count, !count, !scales) -> !queries
  return
}
