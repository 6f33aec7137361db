// RUN: %lathe-opt --lathe-expand-pages %s | FileCheck %s
// RUN: %lathe-opt --lathe-expand-pages --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-verify-planned %s | FileCheck %s --check-prefix=GPU --implicit-check-not=attention.ragged
// RUN: sed 's/sm_90a/x86-64-v3/; s/f16/f32/g' %s | %lathe-opt --lathe-expand-pages --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-verify-planned | FileCheck %s --check-prefix=CPU
// RUN: sed 's/xui8/xi8/g; s/x2x32xi8/x2x64xi8/g; s/2, 32\]/2, 64]/g' %s | %lathe-opt --lathe-expand-pages | FileCheck %s --check-prefix=BYTES

// Keys and values as codes of 4 bits: what is appended is quantized by the largest of each head of a token, values ahead of
// keys, and scattered with its scales; what attention reads is dequantized where it is read.

!pool = tensor<?x3x2x16x2x32xui8, #lathe.t<[N, 3, 2, 16, 2, 32]>>
!scales = tensor<?x3x2x2x16xf32, #lathe.t<[N, 3, 2, 2, 16]>>
!new = tensor<?x2x64xf16, #lathe.t<[T, 2, 64]>>
!queries = tensor<?x8x64xf16, #lathe.t<[T, 8, 64]>>
!count = tensor<?xi64, #lathe.t<[T]>>
!tables = tensor<?x?xi64, #lathe.t<[R, M]>>

module attributes {lathe.target = "sm_90a"} {
  lathe.symbol @N {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 64 : i64, origin = "pool[0]"}
  lathe.symbol @T {max = -1 : i64, min = 2 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "slots[0]"}
  lathe.symbol @R {max = -1 : i64, min = 2 : i64, multiple_of = 1 : i64, opt = 4 : i64, origin = "tables[0]"}
  lathe.symbol @M {max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 16 : i64, origin = "tables[1]"}
  // CHECK-LABEL: func.func @step
  // CHECK: %[[BOTH:.*]] = lathe.concat {{.*}} -> tensor<?x2x2x64xf16, #lathe.t<[T, 2, 2, 64]>>
  // CHECK: lathe.reduce {{.*}}kind = #lathe.reduce_kind<max>
  // CHECK: %[[SCALES:.*]] = lathe.div %{{.*}} -> tensor<?x2x2x1xf32, #lathe.t<[T, 2, 2, 1]>>
  // CHECK: lathe.quantize %[[BOTH]]
  // CHECK: lathe.scatter_nd {{.*}}tensor<?x2x2x32xui8, #lathe.t<[T, 2, 2, 32]>>)
  // CHECK: %[[ROWS:.*]] = lathe.reshape %[[SCALES]]
  // CHECK: lathe.scatter_nd %{{.*}}, %{{.*}}, %[[ROWS]]
  // CHECK-COUNT-2: lathe.dequantize {{.*}}tensor<ui8>) -> tensor<?x2x?x64xf16, #lathe.t<[T, 2, 16*M, 64]>>
  // BYTES: lathe.scatter_nd {{.*}}tensor<?x2x2x64xi8, #lathe.t<[T, 2, 2, 64]>>)
  // BYTES-NOT: lathe.concat {{.*}}i8
  // BYTES-COUNT-2: lathe.dequantize {{.*}} scale({{.*}}) : (tensor<?x2x?x64xi8
  // GPU: operands = [buffer 0, computed pages 1 dim 3, computed pages 1 dim 3, {{.*}}config \22attention.split
  // GPU-LABEL: exec.program @step
  // GPU-NOT: exec.copy
  // GPU-COUNT-4: exec.launch
  // GPU-NOT: exec.launch
  // CPU: operands = [buffer 0, computed pages 1 dim 3, computed pages 1 dim 3, {{.*}}config \22attention.
  // CPU-LABEL: exec.program @step
  // CPU-NOT: exec.copy
  func.func @step(%pool: !pool {lathe.name = "pool", lathe.donated_to = "next"}, %scales: !scales {lathe.name = "scales", lathe.donated_to = "next_scales"}, %slots: !count {lathe.name = "slots"}, %k: !new {lathe.name = "k"}, %v: !new {lathe.name = "v"}, %q: !queries {lathe.name = "q"}, %tables: !tables {lathe.name = "tables"}, %requests: !count {lathe.name = "requests"}, %positions: !count {lathe.name = "positions"})
      -> (!queries {lathe.name = "y"}, !pool {lathe.name = "next"}, !scales {lathe.name = "next_scales"}) attributes {lathe.entry} {
    %0:2 = lathe.kv_append %pool, %slots, %k, %v, %scales {layer = 1 : i64} : (!pool, !count, !new, !new, !scales) -> (!pool, !scales)
    %1 = lathe.paged_attention %q, %0#0, %tables, %requests, %positions scales %0#1 {layer = 1 : i64, scale = 0.125 : f64} : (!queries, !pool, !tables, !count, !count, !scales) -> !queries
    return %1, %0#0, %0#1 : !queries, !pool, !scales
  }
}
