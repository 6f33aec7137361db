// RUN: %lathe-opt %s --lathe-page-states --lathe-verify-legalized | FileCheck %s
// RUN: %lathe-opt %s --lathe-page-states | %lathe-opt --lathe-page-states | FileCheck %s
// RUN: sed 's/mask %both {scale = 0.5 : f64}/mask %both {scale = 0.5 : f64, window_left = 7 : i64}/' %s | %lathe-opt --lathe-page-states | FileCheck %s --check-prefix=WINDOW
// RUN: sed 's/paged = \["16"\]/paged = ["16", "batch-invariant"]/' %s | %lathe-opt --lathe-page-states | FileCheck %s --check-prefix=INVARIANT

// RUN: sed 's/paged = \["16"\]/paged = ["16", "kv=int4"]/' %s | %lathe-opt --lathe-page-states | FileCheck %s --check-prefix=CODES

// Codes of keys and values, and their scales, go through the step.
// CODES: lathe.llm = {{.*}}dtype = "i4",{{.*}}scales,
// CODES: %[[POOL:[a-z0-9]+]]: tensor<?x1x2x16x1x2xui8, {{.*}}> {lathe.donated_to = "next_pool", lathe.name = "pool"}, %[[SCALES:[a-z0-9]+]]: tensor<?x1x2x1x16xf32, {{.*}}> {lathe.donated_to = "next_scales", lathe.name = "scales"})
// CODES: %[[NEXT:[a-z0-9_]+]], %[[BY:[a-z0-9_]+]] = lathe.kv_append %[[POOL]], %{{.*}}, %{{.*}}, %{{.*}}, %[[SCALES]] {layer = 0 : i64}
// CODES: lathe.paged_attention %{{.*}}, %[[NEXT]], {{.*}} scales %[[BY]]
// CODES: return %{{.*}}, %[[NEXT]], %[[BY]]

// What select has to know of the products.
// INVARIANT: lathe.llm = {{.*}}batch_invariant,

// RUN: sed 's/paged = \["16"\]/paged = ["16", "kv-window=8:2"]/' %s | %lathe-opt --lathe-page-states | FileCheck %s --check-prefix=ASKED

// A window that is asked for is no property of the model, and listed.
// ASKED: assumptions = [{{.*}}"a token sees the last 8 tokens and the first 2 in layers (from 0) 0, as --kv-window has it; in the model it sees more"]
// ASKED-SAME: groups = [{layers = 1 : i64, sinks = 2 : i64, window = 8 : i64}]
// ASKED: lathe.paged_attention {{.*}}first_keys = 2 : i64{{.*}}window_left = 7

// With a window, that of attention or of the mask, attention over pages has it.
// Pages behind the widest of all windows are not kept: eight tokens see each other.
// WINDOW: groups = [{layers = 1 : i64, window = 8 : i64}]
// WINDOW-SAME: layers (from 0) see as many before it, and no more: 0 7"
// WINDOW: %[[TABLES:[a-z0-9]+]]: tensor<?x?xi64, #lathe.t<[R, M]>> {lathe.name = "tables"}, %[[PLACES:[a-z0-9]+]]: tensor<?xi64, #lathe.t<[T]>> {lathe.name = "places"}, %{{.*}} {lathe.name = "rows"}
// WINDOW: lathe.paged_attention %{{.*}}, %{{.*}}, %[[TABLES]], %{{.*}}, %[[PLACES]] {{.*}}window_left = 7

// A small decoder: rows of tokens with their past become tokens of any sequences. The mask is gone, as it
// says no more than that a token sees the keys up to its own; the last rows alone go through the head.
// CHECK: lathe.llm = {assumptions = ["input 'mask' is 1 everywhere: no sequence is padded"], dtype = "f32", groups = [{layers = 1 : i64}], head_size = 4 : i64, heads = 1 : i64, page_tokens = 16 : i64, proofs = ["O2: {{.*}}", "O7: {{.*}}", "O1: {{.*}}", "O6: {{.*}}", "O3: {{.*}}", "O4: {{.*}}", "O5: {{.*}}"], vocabulary = 8 : i64}
// CHECK-NOT: lathe.symbol @S
// CHECK: func.func @step(%[[TOKENS:.*]]: tensor<?xi64, #lathe.t<[T]>> {lathe.name = "tokens"}, %[[POSITIONS:.*]]: tensor<?xi64, #lathe.t<[T]>> {lathe.name = "positions"}, %[[REQUESTS:.*]]: tensor<?xi64, #lathe.t<[T]>> {lathe.name = "requests"}, %[[SLOTS:.*]]: tensor<?xi64, #lathe.t<[T]>> {lathe.name = "slots"}, %[[TABLES:.*]]: tensor<?x?xi64, #lathe.t<[R, M]>> {lathe.name = "tables"}, %[[ROWS:.*]]: tensor<?xi64, #lathe.t<[R]>> {lathe.name = "rows"}, %[[POOL:.*]]: tensor<?x1x2x16x1x4xf32, #lathe.t<[N, 1, 2, 16, 1, 4]>> {lathe.donated_to = "next_pool", lathe.name = "pool"})
// CHECK-SAME: -> (tensor<?x8xf32, #lathe.t<[R, 8]>> {lathe.name = "logits"}, tensor<?xi64, #lathe.t<[R]>> {lathe.name = "best"}, tensor<?x1x2x16x1x4xf32, {{.*}}> {lathe.name = "next_pool"})
// CHECK: lathe.cast %{{.*}} : ({{.*}}T{{.*}}) ->
// CHECK: %[[NEXT:.*]] = lathe.kv_append %[[POOL]], %[[SLOTS]], %{{.*}}, %{{.*}} {layer = 0 : i64}
// Queries are rotated as their product has them: no heads go before tokens, and back.
// CHECK-NOT: lathe.transpose
// CHECK: lathe.rope {{.*}} -> tensor<?x2x4xf32, #lathe.t<[T, 2, 4]>>
// CHECK: %[[Y:.*]] = lathe.paged_attention %{{.*}}, %[[NEXT]], %[[TABLES]], %[[REQUESTS]], %[[POSITIONS]] {layer = 0 : i64, scale = 5.000000e-01 : f64}
// CHECK: lathe.gather %{{.*}}, %[[ROWS]] {{.*}} -> tensor<{{.*}}#lathe.t<[{{(1, )?}}R,
// CHECK: lathe.matmul %{{.*}} : (tensor<{{.*}}R, 8]>>, tensor<8x8xf32>)
// CHECK: return %{{.*}}, %[[NEXT]]
!ids = tensor<?x?xi64, #lathe.t<[B, S]>>
!pad = tensor<?x?xi64, #lathe.t<[B, P + S]>>
!rows = tensor<?x?x8xf32, #lathe.t<[B, S, 8]>>
!narrow = tensor<?x?x4xf32, #lathe.t<[B, S, 4]>>
!split = tensor<?x?x2x4xf32, #lathe.t<[B, S, 2, 4]>>
!heads = tensor<?x2x?x4xf32, #lathe.t<[B, 2, S, 4]>>
!new = tensor<?x1x?x4xf32, #lathe.t<[B, 1, S, 4]>>
!past = tensor<?x1x?x4xf32, #lathe.t<[B, 1, P, 4]>>
!all = tensor<?x1x?x4xf32, #lathe.t<[B, 1, P + S, 4]>>
!key = tensor<1x1x1x?xi64, #lathe.t<[1, 1, 1, P + S]>>
!query = tensor<1x1x?x1xi64, #lathe.t<[1, 1, S, 1]>>
!seen = tensor<1x1x?x?xi1, #lathe.t<[1, 1, S, P + S]>>
!count = tensor<?xi64, #lathe.t<[S]>>
!angle = tensor<?x1x?x1xf32, #lathe.t<[B, 1, S, 1]>>
module attributes {lathe.options = {paged = ["16"]}} {
  lathe.symbol @B {min = 1 : i64, max = 4 : i64, opt = 1 : i64, multiple_of = 1 : i64, origin = "ids[0]"}
  lathe.symbol @S {min = 1 : i64, max = 64 : i64, opt = 4 : i64, multiple_of = 1 : i64, origin = "ids[1]"}
  lathe.symbol @P {min = 0 : i64, max = 64 : i64, opt = 4 : i64, multiple_of = 1 : i64, origin = "k[2]"}
  func.func @main(%ids: !ids {lathe.name = "ids"}, %pos: !ids {lathe.name = "pos"}, %mask: !pad {lathe.name = "mask"}, %k: !past {lathe.name = "k"}, %v: !past {lathe.name = "v"})
      -> (!rows {lathe.name = "logits"}, !all {lathe.name = "pk"}, !all {lathe.name = "pv"}) attributes {lathe.entry} {
    %table = lathe.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0]]> : tensor<8x8xf32>
    %w = lathe.constant dense<[[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 5.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]> : tensor<8x4xf32>
    %x = lathe.gather %table, %ids {axis = 0 : i64} : (tensor<8x8xf32>, !ids) -> !rows
    %q0 = lathe.reshape %x : (!rows) -> !split
    %q1 = lathe.transpose %q0 {perm = array<i64: 0, 2, 1, 3>} : (!split) -> !heads
    %at = lathe.reshape %pos : (!ids) -> tensor<?x1x?x1xi64, #lathe.t<[B, 1, S, 1]>>
    %angle = lathe.cast %at : (tensor<?x1x?x1xi64, #lathe.t<[B, 1, S, 1]>>) -> !angle
    %cos = lathe.cos %angle : (!angle) -> !angle
    %sin = lathe.sin %angle : (!angle) -> !angle
    %q2 = lathe.rope %q1, %cos, %sin {rotary = 2 : i64} : (!heads, !angle, !angle) -> !heads
    %k0 = lathe.matmul %x, %w : (!rows, tensor<8x4xf32>) -> !narrow
    %k1 = lathe.reshape %k0 : (!narrow) -> !new
    %k2 = lathe.concat %k, %k1 {axis = 2 : i64} : (!past, !new) -> !all
    %v2 = lathe.concat %v, %k1 {axis = 2 : i64} : (!past, !new) -> !all
    %key0 = lathe.iota {axis = 0 : i64} : () -> tensor<?xi64, #lathe.t<[P + S]>>
    %key = lathe.reshape %key0 : (tensor<?xi64, #lathe.t<[P + S]>>) -> !key
    %query0 = lathe.iota {axis = 0 : i64} : () -> !count
    %p = lathe.dim_value {dims = [#lathe.dim<P>]} : () -> tensor<i64>
    %query1 = lathe.add %query0, %p : (!count, tensor<i64>) -> !count
    %query = lathe.reshape %query1 : (!count) -> !query
    %seen = lathe.compare %key, %query {predicate = #lathe.predicate<le>} : (!key, !query) -> !seen
    %pad0 = lathe.cast %mask : (!pad) -> tensor<?x?xi1, #lathe.t<[B, P + S]>>
    %pad = lathe.reshape %pad0 : (tensor<?x?xi1, #lathe.t<[B, P + S]>>) -> tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>
    %both = lathe.and %seen, %pad : (!seen, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>
    %y0 = lathe.attention %q2, %k2, %v2 mask %both {scale = 0.5 : f64} : (!heads, !all, !all, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>) -> !heads
    %y1 = lathe.transpose %y0 {perm = array<i64: 0, 2, 1, 3>} : (!heads) -> !split
    %y2 = lathe.reshape %y1 : (!split) -> !rows
    %y3 = lathe.add %x, %y2 : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}
