// RUN: %lathe-opt %s --split-input-file --verify-diagnostics --lathe-page-states -o /dev/null

// A small decoder with one thing wrong, each of which is refused where it is.
// A query sees the key behind it.
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
    %one = lathe.constant dense<1> : tensor<i64>
    %key0 = lathe.iota {axis = 0 : i64} : () -> tensor<?xi64, #lathe.t<[P + S]>>
    %key = lathe.reshape %key0 : (tensor<?xi64, #lathe.t<[P + S]>>) -> !key
    %query0 = lathe.iota {axis = 0 : i64} : () -> !count
    %p = lathe.dim_value {dims = [#lathe.dim<P>]} : () -> tensor<i64>
    %query1 = lathe.add %query0, %p : (!count, tensor<i64>) -> !count
    %query = lathe.reshape %query1 : (!count) -> !query
    %query9 = lathe.add %query, %one : (!query, tensor<i64>) -> !query
    %seen = lathe.compare %key, %query9 {predicate = #lathe.predicate<le>} : (!key, !query) -> !seen
    %pad0 = lathe.cast %mask : (!pad) -> tensor<?x?xi1, #lathe.t<[B, P + S]>>
    %pad = lathe.reshape %pad0 : (tensor<?x?xi1, #lathe.t<[B, P + S]>>) -> tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>
    // expected-error @+1 {{a key counts where -P + _key - _query - 1 <= 0, not where -P + _key - _query <= 0}}
    %both = lathe.and %seen, %pad : (!seen, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>
    %y0 = lathe.attention %q2, %k2, %v2 mask %both {scale = 0.5 : f64} : (!heads, !all, !all, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>) -> !heads
    %y1 = lathe.transpose %y0 {perm = array<i64: 0, 2, 1, 3>} : (!heads) -> !split
    %y2 = lathe.reshape %y1 : (!split) -> !rows
    %y3 = lathe.add %x, %y2 : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// A query does not see its own key.
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
    %seen = lathe.compare %key, %query {predicate = #lathe.predicate<lt>} : (!key, !query) -> !seen
    %pad0 = lathe.cast %mask : (!pad) -> tensor<?x?xi1, #lathe.t<[B, P + S]>>
    %pad = lathe.reshape %pad0 : (tensor<?x?xi1, #lathe.t<[B, P + S]>>) -> tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>
    // expected-error @+1 {{a key counts where -P + _key - _query + 1 <= 0}}
    %both = lathe.and %seen, %pad : (!seen, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>
    %y0 = lathe.attention %q2, %k2, %v2 mask %both {scale = 0.5 : f64} : (!heads, !all, !all, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>) -> !heads
    %y1 = lathe.transpose %y0 {perm = array<i64: 0, 2, 1, 3>} : (!heads) -> !split
    %y2 = lathe.reshape %y1 : (!split) -> !rows
    %y3 = lathe.add %x, %y2 : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// It sees a window of keys.
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
    %seen = lathe.compare %key, %query {predicate = #lathe.predicate<lt>} : (!key, !query) -> !seen
    %pad0 = lathe.cast %mask : (!pad) -> tensor<?x?xi1, #lathe.t<[B, P + S]>>
    %pad = lathe.reshape %pad0 : (tensor<?x?xi1, #lathe.t<[B, P + S]>>) -> tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>
    // expected-error @+1 {{a key counts where (P - _key + _query - 7 <= 0 and -P + _key - _query + 1 <= 0), not where}}
    %both = lathe.and %seen, %pad : (!seen, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>
    %y0 = lathe.attention %q2, %k2, %v2 mask %both {scale = 0.5 : f64, window_left = 7 : i64} : (!heads, !all, !all, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>) -> !heads
    %y1 = lathe.transpose %y0 {perm = array<i64: 0, 2, 1, 3>} : (!heads) -> !split
    %y2 = lathe.reshape %y1 : (!split) -> !rows
    %y3 = lathe.add %x, %y2 : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// The padding of another row.
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
    %other = lathe.slice %mask {starts = [#lathe.dim<B - 1>, #lathe.dim<0>], steps = array<i64: -1, 1>} : (!pad) -> !pad
    %pad0 = lathe.cast %other : (!pad) -> tensor<?x?xi1, #lathe.t<[B, P + S]>>
    %pad = lathe.reshape %pad0 : (tensor<?x?xi1, #lathe.t<[B, P + S]>>) -> tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>
    %both = lathe.and %seen, %pad : (!seen, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, P + S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>
    // expected-error @+1 {{padding of row B - _batch - 1 and key _key of input 'mask' hides key _key of row _batch}}
    %y0 = lathe.attention %q2, %k2, %v2 mask %both {scale = 0.5 : f64} : (!heads, !all, !all, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>) -> !heads
    %y1 = lathe.transpose %y0 {perm = array<i64: 0, 2, 1, 3>} : (!heads) -> !split
    %y2 = lathe.reshape %y1 : (!split) -> !rows
    %y3 = lathe.add %x, %y2 : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// Positions that are shifted.
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
    %one = lathe.constant dense<1> : tensor<i64>
    %shifted = lathe.add %pos, %one : (!ids, tensor<i64>) -> !ids
    // expected-error @+1 {{cannot be paged (O4, positions): the position of a token is P + _query + 1, not P + _query}}
    %at = lathe.reshape %shifted : (!ids) -> tensor<?x1x?x1xi64, #lathe.t<[B, 1, S, 1]>>
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

// -----

// Attention reads other keys than those that leave.
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
    // expected-error @+1 {{cannot be paged (O2, present is past and new): attention reads keys that are not an input followed by new ones}}
    %k3 = lathe.neg %k2 : (!all) -> !all
    %y0 = lathe.attention %q2, %k3, %v2 mask %both {scale = 0.5 : f64} : (!heads, !all, !all, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, P + S]>>) -> !heads
    %y1 = lathe.transpose %y0 {perm = array<i64: 0, 2, 1, 3>} : (!heads) -> !split
    %y2 = lathe.reshape %y1 : (!split) -> !rows
    %y3 = lathe.add %x, %y2 : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// What leaves is another one than attention reads.
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
    %other = lathe.neg %k1 : (!new) -> !new
    %k9 = lathe.concat %k, %other {axis = 2 : i64} : (!past, !new) -> !all
    // expected-error @+1 {{do not leave as the present of 'k'}}
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
    return %logits, %k9, %v2 : !rows, !all, !all
  }
}

// -----

// The past is read beside attention.
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
    // expected-error @+1 {{it reads 'k' beside attention}}
    %sum = lathe.reduce %k {axes = array<i64: 0, 1, 2, 3>, keepdims = false, kind = #lathe.reduce_kind<sum>} : (!past) -> tensor<f32>
    %more = lathe.mul %y2, %sum : (!rows, tensor<f32>) -> !rows
    %y3 = lathe.add %x, %more : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// Tokens are summed.
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
    // expected-error @+1 {{cannot be paged (O1, tokens stay apart): it sums over tokens or rows}}
    %sum = lathe.reduce %y2 {axes = array<i64: 1>, keepdims = true, kind = #lathe.reduce_kind<sum>} : (!rows) -> tensor<?x1x8xf32, #lathe.t<[B, 1, 8]>>
    %more = lathe.mul %y2, %sum : (!rows, tensor<?x1x8xf32, #lathe.t<[B, 1, 8]>>) -> !rows
    %y3 = lathe.add %x, %more : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// A size is data.
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
    // expected-error @+1 {{cannot be paged (O5, sizes are no data): the size S is data here}}
    %size = lathe.dim_value {dims = [#lathe.dim<S>]} : () -> tensor<f32>
    %more = lathe.mul %y2, %size : (!rows, tensor<f32>) -> !rows
    %y3 = lathe.add %x, %more : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2 : !rows, !all, !all
  }
}

// -----

// Something else leaves.
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
      -> (!rows {lathe.name = "logits"}, !all {lathe.name = "pk"}, !all {lathe.name = "pv"}, !rows {lathe.name = "more"}) attributes {lathe.entry} {
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
    // expected-error @+1 {{cannot be paged (O7, states): output 'more' is neither the cache of an attention nor the only other one}}
    %y3 = lathe.add %x, %y2 : (!rows, !rows) -> !rows
    %logits = lathe.matmul %y3, %table : (!rows, tensor<8x8xf32>) -> !rows
    return %logits, %k2, %v2, %y3 : !rows, !all, !all, !rows
  }
}
