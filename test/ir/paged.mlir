// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

!pool = tensor<?x3x2x16x2x64xbf16, #lathe.t<[N, 3, 2, 16, 2, 64]>>
!new = tensor<?x2x64xbf16, #lathe.t<[T, 2, 64]>>
!queries = tensor<?x8x64xbf16, #lathe.t<[T, 8, 64]>>
!count = tensor<?xi64, #lathe.t<[T]>>
!tables = tensor<?x?xi32, #lathe.t<[R, M]>>

// CHECK-LABEL: func.func @step
func.func @step(%pool: !pool, %slots: !count, %k: !new, %q: !queries, %tables: !tables, %requests: !count, %positions: !count, %heads: tensor<8xf32>) {
  // CHECK: %[[NEXT:.*]] = lathe.kv_append %arg0, %arg1, %arg2, %arg2 {layer = 2 : i64} : {{.*}} -> tensor<?x3x2x16x2x64xbf16, #lathe.t<[N, 3, 2, 16, 2, 64]>>
  %0 = lathe.kv_append %pool, %slots, %k, %k {layer = 2 : i64} : (!pool, !count, !new, !new) -> !pool
  // CHECK: lathe.paged_attention %arg3, %[[NEXT]], %arg4, %arg5, %arg6 {layer = 2 : i64, scale = 1.250000e-01 : f64, softcap = 3.000000e+01 : f64, window_left = 7 : i64} : {{.*}} -> tensor<?x8x64xbf16, #lathe.t<[T, 8, 64]>>
  %1 = lathe.paged_attention %q, %0, %tables, %requests, %positions {layer = 2 : i64, scale = 0.125 : f64, softcap = 30.0 : f64, window_left = 7 : i64} : (!queries, !pool, !tables, !count, !count) -> !queries
  // CHECK: lathe.paged_attention %{{.*}}, %{{.*}}, %arg4, %arg5, %arg6 sink %arg7 slopes %arg7 {layer = 0 : i64, {{.*}}scale = 1.000000e+00 : f64}
  %2 = lathe.paged_attention %q, %0, %tables, %requests, %positions sink %heads slopes %heads {layer = 0 : i64, scale = 1.0 : f64} : (!queries, !pool, !tables, !count, !count, tensor<8xf32>, tensor<8xf32>) -> !queries
  return
}
