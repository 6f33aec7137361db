// RUN: %lathe-opt --lathe-recognize-masks --canonicalize %s | FileCheck %s
// RUN: %lathe-opt --lathe-recognize-masks --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Masks of padded keys that exporters widen to all queries: attention gets what one query sees.

!x = tensor<?x4x?x64xf16, #lathe.t<[B, 4, S, 64]>>

module {

  // A test that every position passes, joined with the keys that count.
  // CHECK-LABEL: @positions
  // CHECK: %[[M:.*]] = lathe.select %{{.*}} -> tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>
  // CHECK: lathe.attention %arg0, %arg0, %arg0 bias %[[M]]
  func.func @positions(%q: !x, %keys: tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, S]>>) -> !x {
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<?xi64, #lathe.t<[S]>>
    %r = lathe.reshape %i : (tensor<?xi64, #lathe.t<[S]>>) -> tensor<1x1x?x1xi64, #lathe.t<[1, 1, S, 1]>>
    %zero = lathe.constant dense<0> : tensor<i64>
    %all = lathe.compare %r, %zero {predicate = #lathe.predicate<ge>} : (tensor<1x1x?x1xi64, #lathe.t<[1, 1, S, 1]>>, tensor<i64>) -> tensor<1x1x?x1xi1, #lathe.t<[1, 1, S, 1]>>
    %seen = lathe.and %all, %keys : (tensor<1x1x?x1xi1, #lathe.t<[1, 1, S, 1]>>, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>
    %open = lathe.constant dense<0.0> : tensor<f16>
    %hidden = lathe.constant dense<-6.550400e+04> : tensor<f16>
    %m = lathe.select %seen, %open, %hidden : (tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>, tensor<f16>, tensor<f16>) -> tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>
    %y = lathe.attention %q, %q, %q bias %m {scale = 0.125 : f64} : (!x, !x, !x, tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>) -> !x
    return %y : !x
  }

  // Widened first, made numbers after that.
  // CHECK-LABEL: @widened
  // CHECK: %[[M:.*]] = lathe.mul %{{.*}} -> tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>
  // CHECK: lathe.attention %arg0, %arg0, %arg0 bias %[[M]]
  func.func @widened(%q: !x, %keys: tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>) -> !x {
    %w = lathe.broadcast_to %keys : (tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>) -> tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>
    %least = lathe.constant dense<-6.550400e+04> : tensor<f16>
    %m = lathe.mul %w, %least : (tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>, tensor<f16>) -> tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>
    %y = lathe.attention %q, %q, %q bias %m {scale = 0.125 : f64} : (!x, !x, !x, tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>) -> !x
    return %y : !x
  }

  // From position 1 on is not all; queries that see other keys stay.
  // CHECK-LABEL: @differs
  // CHECK: lathe.and {{.*}} -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>
  // CHECK: lathe.attention
  func.func @differs(%q: !x, %keys: tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, S]>>) -> !x {
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<?xi64, #lathe.t<[S]>>
    %r = lathe.reshape %i : (tensor<?xi64, #lathe.t<[S]>>) -> tensor<1x1x?x1xi64, #lathe.t<[1, 1, S, 1]>>
    %one = lathe.constant dense<1> : tensor<i64>
    %some = lathe.compare %r, %one {predicate = #lathe.predicate<ge>} : (tensor<1x1x?x1xi64, #lathe.t<[1, 1, S, 1]>>, tensor<i64>) -> tensor<1x1x?x1xi1, #lathe.t<[1, 1, S, 1]>>
    %seen = lathe.and %some, %keys : (tensor<1x1x?x1xi1, #lathe.t<[1, 1, S, 1]>>, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>
    %y = lathe.attention %q, %q, %q mask %seen {scale = 0.125 : f64} : (!x, !x, !x, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>) -> !x
    return %y : !x
  }

  // The last query stands at the last key.
  // CHECK-LABEL: @causal
  // CHECK-NEXT: lathe.attention %arg0, %arg1, %arg1 {causal, scale = 2.500000e-01 : f64}
  // REMARK: the keys that a query sees are operands
  func.func @causal(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
    %s = lathe.reshape %i : (tensor<4xi64>) -> tensor<4x1xi64>
    %two = lathe.constant dense<2> : tensor<i64>
    %p = lathe.add %s, %two : (tensor<4x1xi64>, tensor<i64>) -> tensor<4x1xi64>
    %m = lathe.compare %t, %p {predicate = #lathe.predicate<le>} : (tensor<6xi64>, tensor<4x1xi64>) -> tensor<4x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<4x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // The first query stands at the first key; compared the other way round, and negated.
  // CHECK-LABEL: @causal_from_first
  // CHECK: %[[O:.*]] = lathe.constant dense<0> : tensor<i64>
  // CHECK: lathe.attention %arg0, %arg1, %arg1 offset %[[O]] {causal, scale = 2.500000e-01 : f64}
  func.func @causal_from_first(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
    %s = lathe.reshape %i : (tensor<4xi64>) -> tensor<4x1xi64>
    %n = lathe.compare %s, %t {predicate = #lathe.predicate<lt>} : (tensor<4x1xi64>, tensor<6xi64>) -> tensor<4x6xi1>
    %m = lathe.not %n : (tensor<4x6xi1>) -> tensor<4x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<4x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // Lengths that come with the run, places that follow from them, a window, and padding beside them, as a select of -inf.
  // CHECK-LABEL: @lengths
  // CHECK: lathe.attention %arg0, %arg1, %arg1 mask %arg3 lengths %arg2 {causal, scale = 2.500000e-01 : f64, window_left = 2 : i64}
  // REMARK: what a select hides is a mask
  func.func @lengths(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %len: tensor<2xi64>, %pad: tensor<2x1x1x6xi1>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %t4 = lathe.reshape %t : (tensor<6xi64>) -> tensor<1x1x1x6xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
    %s = lathe.reshape %i : (tensor<4xi64>) -> tensor<4x1xi64>
    %l = lathe.reshape %len : (tensor<2xi64>) -> tensor<2x1x1x1xi64>
    %e = lathe.compare %t4, %l {predicate = #lathe.predicate<lt>} : (tensor<1x1x1x6xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x6xi1>
    %four = lathe.constant dense<4> : tensor<i64>
    %o = lathe.sub %l, %four : (tensor<2x1x1x1xi64>, tensor<i64>) -> tensor<2x1x1x1xi64>
    %p = lathe.add %s, %o : (tensor<4x1xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x4x1xi64>
    %c = lathe.compare %t4, %p {predicate = #lathe.predicate<le>} : (tensor<1x1x1x6xi64>, tensor<2x1x4x1xi64>) -> tensor<2x1x4x6xi1>
    %three = lathe.constant dense<3> : tensor<i64>
    %w = lathe.add %t4, %three : (tensor<1x1x1x6xi64>, tensor<i64>) -> tensor<1x1x1x6xi64>
    %d = lathe.compare %w, %p {predicate = #lathe.predicate<gt>} : (tensor<1x1x1x6xi64>, tensor<2x1x4x1xi64>) -> tensor<2x1x4x6xi1>
    %a1 = lathe.and %e, %c : (tensor<2x1x1x6xi1>, tensor<2x1x4x6xi1>) -> tensor<2x1x4x6xi1>
    %a2 = lathe.and %d, %pad : (tensor<2x1x4x6xi1>, tensor<2x1x1x6xi1>) -> tensor<2x1x4x6xi1>
    %a3 = lathe.and %a1, %a2 : (tensor<2x1x4x6xi1>, tensor<2x1x4x6xi1>) -> tensor<2x1x4x6xi1>
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %inf = lathe.constant dense<0xFF800000> : tensor<f32>
    %m = lathe.select %a3, %zero, %inf : (tensor<2x1x4x6xi1>, tensor<f32>, tensor<f32>) -> tensor<2x1x4x6xf32>
    %y = lathe.attention %q, %k, %k bias %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<2x1x4x6xf32>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // The bias of what is seen stays.
  // CHECK-LABEL: @bias_beside
  // CHECK: lathe.attention %arg0, %arg1, %arg1 bias %arg2 {causal, scale = 2.500000e-01 : f64}
  func.func @bias_beside(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %b: tensor<8x4x6xf32>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
    %s = lathe.reshape %i : (tensor<4xi64>) -> tensor<4x1xi64>
    %two = lathe.constant dense<2> : tensor<i64>
    %p = lathe.add %s, %two : (tensor<4x1xi64>, tensor<i64>) -> tensor<4x1xi64>
    %h = lathe.compare %t, %p {predicate = #lathe.predicate<gt>} : (tensor<6xi64>, tensor<4x1xi64>) -> tensor<4x6xi1>
    %inf = lathe.constant dense<0xFF800000> : tensor<f32>
    %m = lathe.select %h, %inf, %b : (tensor<4x6xi1>, tensor<f32>, tensor<8x4x6xf32>) -> tensor<8x4x6xf32>
    %y = lathe.attention %q, %k, %k bias %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<8x4x6xf32>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // A window to both sides.
  // CHECK-LABEL: @around
  // CHECK: %[[O:.*]] = lathe.constant dense<0> : tensor<i64>
  // CHECK: lathe.attention %arg0, %arg1, %arg1 offset %[[O]] {scale = 2.500000e-01 : f64, window_left = 2 : i64, window_right = 2 : i64}
  func.func @around(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
    %s = lathe.reshape %i : (tensor<4xi64>) -> tensor<4x1xi64>
    %d = lathe.sub %t, %s : (tensor<6xi64>, tensor<4x1xi64>) -> tensor<4x6xi64>
    %f = lathe.abs %d : (tensor<4x6xi64>) -> tensor<4x6xi64>
    %three = lathe.constant dense<3> : tensor<i64>
    %m = lathe.compare %f, %three {predicate = #lathe.predicate<lt>} : (tensor<4x6xi64>, tensor<i64>) -> tensor<4x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<4x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // Keys that are padded ahead; positions that folding made constants.
  // CHECK-LABEL: @starts
  // CHECK: %[[F:.*]] = lathe.reshape %arg2 : {{.*}} -> tensor<2xi64>
  // CHECK: lathe.attention %arg0, %arg1, %arg1 starts %[[F]] {scale
  func.func @starts(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %first: tensor<2x1x1x1xi64>) -> tensor<2x8x4x16xf32> {
    %t = lathe.constant dense<[0, 1, 2, 3, 4, 5]> : tensor<6xi64>
    %m = lathe.compare %first, %t {predicate = #lathe.predicate<le>} : (tensor<2x1x1x1xi64>, tensor<6xi64>) -> tensor<2x1x1x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<2x1x1x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // Numbers of documents.
  // CHECK-LABEL: @documents
  // CHECK: %[[A:.*]] = lathe.reshape %arg2 : {{.*}} -> tensor<2x4xi32>
  // CHECK: %[[B:.*]] = lathe.reshape %arg3 : {{.*}} -> tensor<2x6xi32>
  // CHECK: lathe.attention %arg0, %arg1, %arg1 documents %[[A]], %[[B]] {scale
  func.func @documents(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %mine: tensor<2x1x4x1xi32>, %theirs: tensor<2x1x1x6xi32>) -> tensor<2x8x4x16xf32> {
    %m = lathe.compare %theirs, %mine {predicate = #lathe.predicate<eq>} : (tensor<2x1x1x6xi32>, tensor<2x1x4x1xi32>) -> tensor<2x1x4x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<2x1x4x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // A finite number: a row that sees nothing would be an average.
  // CHECK-LABEL: @finite
  // CHECK: %[[M:.*]] = lathe.select
  // CHECK: lathe.attention %arg0, %arg1, %arg1 bias %[[M]] {scale
  // REMARK: a bias stays as it is: it hides keys by a finite number, and a row that sees none is an average then
  func.func @finite(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
    %s = lathe.reshape %i : (tensor<4xi64>) -> tensor<4x1xi64>
    %c = lathe.compare %t, %s {predicate = #lathe.predicate<le>} : (tensor<6xi64>, tensor<4x1xi64>) -> tensor<4x6xi1>
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %low = lathe.constant dense<-3.40282347E+38> : tensor<f32>
    %m = lathe.select %c, %zero, %low : (tensor<4x6xi1>, tensor<f32>, tensor<f32>) -> tensor<4x6xf32>
    %y = lathe.attention %q, %k, %k bias %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<4x6xf32>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // Places of queries that only the run knows.
  // CHECK-LABEL: @places_of_the_run
  // CHECK: %[[M:.*]] = lathe.compare
  // CHECK: lathe.attention %arg0, %arg1, %arg1 mask %[[M]] {scale
  // REMARK: a comparison stays a mask: the places of queries come with the run
  func.func @places_of_the_run(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %pos: tensor<4x1xi64>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %m = lathe.compare %t, %pos {predicate = #lathe.predicate<le>} : (tensor<6xi64>, tensor<4x1xi64>) -> tensor<4x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<4x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // A limit that falls with the query.
  // CHECK-LABEL: @backward
  // CHECK: lathe.attention %arg0, %arg1, %arg1 mask %{{.*}} {scale
  // REMARK: a comparison stays a mask: it compares no key with a place that grows with the query
  func.func @backward(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>
    %s = lathe.reshape %i : (tensor<4xi64>) -> tensor<4x1xi64>
    %n = lathe.neg %s : (tensor<4x1xi64>) -> tensor<4x1xi64>
    %five = lathe.constant dense<5> : tensor<i64>
    %p = lathe.add %n, %five : (tensor<4x1xi64>, tensor<i64>) -> tensor<4x1xi64>
    %m = lathe.compare %t, %p {predicate = #lathe.predicate<le>} : (tensor<6xi64>, tensor<4x1xi64>) -> tensor<4x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<4x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // Two lengths: one of them stays.
  // CHECK-LABEL: @twice
  // CHECK: lathe.attention %arg0, %arg1, %arg1 mask %{{.*}} lengths %{{.*}} {scale
  // REMARK: a comparison stays a mask: there is a narrower one of its kind, or its place is another
  func.func @twice(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %one: tensor<2x1x1x1xi64>, %two: tensor<2x1x1x1xi64>) -> tensor<2x8x4x16xf32> {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %a = lathe.compare %t, %one {predicate = #lathe.predicate<lt>} : (tensor<6xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x6xi1>
    %b = lathe.compare %t, %two {predicate = #lathe.predicate<lt>} : (tensor<6xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x6xi1>
    %m = lathe.and %a, %b : (tensor<2x1x1x6xi1>, tensor<2x1x1x6xi1>) -> tensor<2x1x1x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<2x1x1x6xi1>) -> tensor<2x8x4x16xf32>
    return %y : tensor<2x8x4x16xf32>
  }

  // Masks that folding made constants: a window that moves with the query, and numbers that hide.
  // CHECK-LABEL: @constants
  // CHECK: lathe.attention %arg0, %arg1, %arg1 {causal, scale = 2.500000e-01 : f64, window_left = 1 : i64}
  // CHECK: lathe.attention %arg0, %arg1, %arg1 lengths %{{.*}} {scale
  // CHECK: lathe.attention %arg0, %arg1, %arg1 mask %{{.*}} {scale
  func.func @constants(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>) {
    %m = lathe.constant dense<[[false, true, true, false, false, false], [false, false, true, true, false, false], [false, false, false, true, true, false], [false, false, false, false, true, true]]> : tensor<4x6xi1>
    %y = lathe.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<4x6xi1>) -> tensor<2x8x4x16xf32>
    %n = lathe.constant dense<[[0.0, 0.0, 0.0, 0xFF800000, 0xFF800000, 0xFF800000]]> : tensor<1x6xf32>
    %z = lathe.attention %q, %k, %k bias %n {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<1x6xf32>) -> tensor<2x8x4x16xf32>
    %o = lathe.constant dense<[[true, false, true, false, false, false]]> : tensor<1x6xi1>
    %w = lathe.attention %q, %k, %k mask %o {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<1x6xi1>) -> tensor<2x8x4x16xf32>
    return %y, %z, %w : tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>
  }

  // Conditions that are no comparisons of positions, or not all of which must hold.
  // CHECK-LABEL: @no_positions
  // CHECK-COUNT-4: lathe.attention %arg0, %arg1, %arg1 mask %
  // CHECK: lathe.attention %arg0, %arg1, %arg1 bias %{{.*}} mask %
  // REMARK: a constant mask stays: the keys that a query sees are no range that moves with it
  // REMARK: comparisons stay a mask: one of them is enough for a key to be seen
  // REMARK: a comparison stays a mask: it is one of floats
  // REMARK: a comparison stays a mask: it is not whether query and key are of one document
  // REMARK: a bias stays as it is: it hides keys by a finite number
  func.func @no_positions(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x6x16xf32>, %f: tensor<6xf32>, %n: tensor<2x1x1x1xi64>, %keep: tensor<2x1x1x6xf32>) -> (tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>) {
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<6xi64>
    %holes = lathe.constant dense<[true, false, true, false, true, true]> : tensor<6xi1>
    %0 = lathe.attention %q, %k, %k mask %holes {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<6xi1>) -> tensor<2x8x4x16xf32>
    %a = lathe.compare %t, %n {predicate = #lathe.predicate<lt>} : (tensor<6xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x6xi1>
    %either = lathe.or %a, %holes : (tensor<2x1x1x6xi1>, tensor<6xi1>) -> tensor<2x1x1x6xi1>
    %1 = lathe.attention %q, %k, %k mask %either {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<2x1x1x6xi1>) -> tensor<2x8x4x16xf32>
    %half = lathe.constant dense<0.5> : tensor<f32>
    %b = lathe.compare %f, %half {predicate = #lathe.predicate<gt>} : (tensor<6xf32>, tensor<f32>) -> tensor<6xi1>
    %2 = lathe.attention %q, %k, %k mask %b {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<6xi1>) -> tensor<2x8x4x16xf32>
    %c = lathe.compare %t, %n {predicate = #lathe.predicate<ne>} : (tensor<6xi64>, tensor<2x1x1x1xi64>) -> tensor<2x1x1x6xi1>
    %3 = lathe.attention %q, %k, %k mask %c {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<2x1x1x6xi1>) -> tensor<2x8x4x16xf32>
    %one = lathe.constant dense<1.0> : tensor<f32>
    %low = lathe.constant dense<-1.0e+04> : tensor<f32>
    %d = lathe.sub %one, %keep : (tensor<f32>, tensor<2x1x1x6xf32>) -> tensor<2x1x1x6xf32>
    %e = lathe.mul %d, %low : (tensor<2x1x1x6xf32>, tensor<f32>) -> tensor<2x1x1x6xf32>
    %4 = lathe.attention %q, %k, %k bias %e mask %holes {scale = 0.25 : f64} : (tensor<2x8x4x16xf32>, tensor<2x8x6x16xf32>, tensor<2x8x6x16xf32>, tensor<2x1x1x6xf32>, tensor<6xi1>) -> tensor<2x8x4x16xf32>
    return %0, %1, %2, %3, %4 : tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>, tensor<2x8x4x16xf32>
  }
}
