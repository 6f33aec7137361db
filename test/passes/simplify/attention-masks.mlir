// RUN: %lathe-opt --lathe-recognize-attention --canonicalize %s | FileCheck %s

// Masks of padded keys that exporters widen to all queries: attention gets what one query sees.

!x = tensor<?x4x?x64xf16, #lathe.t<[B, 4, S, 64]>>

module {

  // A test that every position passes, joined with the keys that count.
  // CHECK-LABEL: @positions
  // CHECK: %[[M:.*]] = lathe.select %{{.*}} -> tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>
  // CHECK: lathe.attention %arg0, %arg0, %arg0, %[[M]]
  func.func @positions(%q: !x, %keys: tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, S]>>) -> !x {
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<?xi64, #lathe.t<[S]>>
    %r = lathe.reshape %i : (tensor<?xi64, #lathe.t<[S]>>) -> tensor<1x1x?x1xi64, #lathe.t<[1, 1, S, 1]>>
    %zero = lathe.constant dense<0> : tensor<i64>
    %all = lathe.compare %r, %zero {predicate = #lathe.predicate<ge>} : (tensor<1x1x?x1xi64, #lathe.t<[1, 1, S, 1]>>, tensor<i64>) -> tensor<1x1x?x1xi1, #lathe.t<[1, 1, S, 1]>>
    %seen = lathe.and %all, %keys : (tensor<1x1x?x1xi1, #lathe.t<[1, 1, S, 1]>>, tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, S]>>) -> tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>
    %open = lathe.constant dense<0.0> : tensor<f16>
    %hidden = lathe.constant dense<-6.550400e+04> : tensor<f16>
    %m = lathe.select %seen, %open, %hidden : (tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>, tensor<f16>, tensor<f16>) -> tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>
    %y = lathe.attention %q, %q, %q, %m {scale = 0.125 : f64} : (!x, !x, !x, tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>) -> !x
    return %y : !x
  }

  // Widened first, made numbers after that.
  // CHECK-LABEL: @widened
  // CHECK: %[[M:.*]] = lathe.mul %{{.*}} -> tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>
  // CHECK: lathe.attention %arg0, %arg0, %arg0, %[[M]]
  func.func @widened(%q: !x, %keys: tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>) -> !x {
    %w = lathe.broadcast_to %keys : (tensor<?x1x1x?xf16, #lathe.t<[B, 1, 1, S]>>) -> tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>
    %least = lathe.constant dense<-6.550400e+04> : tensor<f16>
    %m = lathe.mul %w, %least : (tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>, tensor<f16>) -> tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>
    %y = lathe.attention %q, %q, %q, %m {scale = 0.125 : f64} : (!x, !x, !x, tensor<?x1x?x?xf16, #lathe.t<[B, 1, S, S]>>) -> !x
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
    %y = lathe.attention %q, %q, %q, %seen {scale = 0.125 : f64} : (!x, !x, !x, tensor<?x1x?x?xi1, #lathe.t<[B, 1, S, S]>>) -> !x
    return %y : !x
  }
}
