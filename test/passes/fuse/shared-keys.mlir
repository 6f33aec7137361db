// RUN: %lathe-opt --lathe-expand-pages --cse --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select %s | FileCheck %s

// Each of six layers finds the pages of a token by the number of its request, so that neighbours of one sequence share
// a tile: two query heads a key head and six tokens are twelve rows. A token's row of the table is stored nowhere.
// CHECK-NOT: lathe.kernel "gather
// CHECK-COUNT-6: config \22attention.v8.r12.m6.n16.k6.s1\22

!pool = tensor<?x6x2x16x2x64xf32, #lathe.t<[N, 6, 2, 16, 2, 64]>>
!queries = tensor<?x4x64xf32, #lathe.t<[T, 4, 64]>>
!count = tensor<?xi64, #lathe.t<[T]>>
!tables = tensor<?x?xi64, #lathe.t<[R, M]>>

module attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @N {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 64 : i64, origin = "pool[0]"}
  lathe.symbol @T {max = -1 : i64, min = 2 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "slots[0]"}
  lathe.symbol @R {max = -1 : i64, min = 2 : i64, multiple_of = 1 : i64, opt = 4 : i64, origin = "tables[0]"}
  lathe.symbol @M {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "tables[1]"}
  func.func @step(%y0: !queries, %pool: !pool, %tables: !tables, %requests: !count, %positions: !count) -> !queries {
    %y1 = lathe.paged_attention %y0, %pool, %tables, %requests, %positions {layer = 0 : i64, scale = 0.125 : f64} : (!queries, !pool, !tables, !count, !count) -> !queries
    %y2 = lathe.paged_attention %y1, %pool, %tables, %requests, %positions {layer = 1 : i64, scale = 0.125 : f64} : (!queries, !pool, !tables, !count, !count) -> !queries
    %y3 = lathe.paged_attention %y2, %pool, %tables, %requests, %positions {layer = 2 : i64, scale = 0.125 : f64} : (!queries, !pool, !tables, !count, !count) -> !queries
    %y4 = lathe.paged_attention %y3, %pool, %tables, %requests, %positions {layer = 3 : i64, scale = 0.125 : f64} : (!queries, !pool, !tables, !count, !count) -> !queries
    %y5 = lathe.paged_attention %y4, %pool, %tables, %requests, %positions {layer = 4 : i64, scale = 0.125 : f64} : (!queries, !pool, !tables, !count, !count) -> !queries
    %y6 = lathe.paged_attention %y5, %pool, %tables, %requests, %positions {layer = 5 : i64, scale = 0.125 : f64} : (!queries, !pool, !tables, !count, !count) -> !queries
    return %y6 : !queries
  }
}
