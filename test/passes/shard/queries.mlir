// RUN: %lathe-opt --lathe-shard --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-shard --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// One head of causal attention: a rank has the queries 0 to 127 and 384 to 511, or 128 to 383, and all keys.
// REMARK: entry 'causal' on 2 ranks: 1 all_gather
// CHECK-LABEL: func.func @causal
// CHECK-SAME: %[[Q:[a-z0-9]+]]: {{.*}}, %[[K:[a-z0-9]+]]: tensor<1x1x512x16xf32>
// CHECK: %[[ROWS:.*]] = lathe.constant #lathe.sharded<0, 2, [512], {{.*}} : tensor<512xi64>> : tensor<256xi64>
// CHECK: %[[MINE:.*]] = lathe.gather %[[Q]], %[[ROWS]] {axis = 2 : i64}
// CHECK: %[[Q0:.*]] = lathe.slice %[[MINE]] {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>]
// CHECK: %[[BEGIN0:.*]] = lathe.constant #lathe.sharded<0, 2, [2], dense<[0, 128]> : tensor<2xi64>> : tensor<1xi64>
// CHECK: %[[Y0:.*]] = lathe.attention %[[Q0]], %[[K]], %[[K]] offset %[[BEGIN0]] {causal{{.*}}tensor<1x1x128x16xf32>
// CHECK: %[[Q1:.*]] = lathe.slice %[[MINE]] {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<128>, #lathe.dim<0>]
// CHECK: %[[BEGIN1:.*]] = lathe.constant #lathe.sharded<0, 2, [2], dense<[384, 256]> : tensor<2xi64>> : tensor<1xi64>
// CHECK: %[[Y1:.*]] = lathe.attention %[[Q1]], %[[K]], %[[K]] offset %[[BEGIN1]] {causal
// CHECK: %[[Y:.*]] = lathe.concat %[[Y0]], %[[Y1]] {axis = 2 : i64}
// CHECK: lathe.all_gather %[[Y]] {dim = 2 : i64, ranks = 2 : i64}
module attributes {lathe.options = {mesh = ["tp=2"]}} {
  func.func @causal(%q: tensor<1x1x512x16xf32>, %k: tensor<1x1x512x16xf32>) -> tensor<1x1x512x16xf32> {
    %y = lathe.attention %q, %k, %k {causal, scale = 1.0 : f64} : (tensor<1x1x512x16xf32>, tensor<1x1x512x16xf32>, tensor<1x1x512x16xf32>) -> tensor<1x1x512x16xf32>
    return %y : tensor<1x1x512x16xf32>
  }
}

// -----

// Behind keys of earlier calls: where those of a sequence end, its queries do. Sizes that are no multiple of the ranks
// are padded.
// CHECK-LABEL: func.func @behind
// CHECK: %[[BEGIN0:.*]] = lathe.constant #lathe.sharded<0, 3, [3], dense<[-401, -334, -267]> : tensor<3xi32>> : tensor<1xi32>
// CHECK: %[[OFFSET0:.*]] = lathe.add %{{.*}}, %[[BEGIN0]] : (tensor<2xi32>, tensor<1xi32>) -> tensor<2xi32>
// CHECK: lathe.attention {{.*}} lengths %{{[a-z0-9]+}} offset %[[OFFSET0]] {{.*}} -> tensor<2x1x67x16xf32>
// CHECK: lathe.constant #lathe.sharded<0, 3, [3], dense<[-66, -133, -200]> : tensor<3xi32>>
module attributes {lathe.options = {mesh = ["tp=3"], shard = ["attention=dim:2"]}} {
  func.func @behind(%q: tensor<2x1x401x16xf32>, %k: tensor<2x1x600x16xf32>, %n: tensor<2xi32>) -> tensor<2x1x401x16xf32> {
    %y = lathe.attention %q, %k, %k lengths %n {causal, scale = 1.0 : f64} : (tensor<2x1x401x16xf32>, tensor<2x1x600x16xf32>, tensor<2x1x600x16xf32>, tensor<2xi32>) -> tensor<2x1x401x16xf32> loc("attention")
    return %y : tensor<2x1x401x16xf32>
  }
}

// -----

// Queries that see all keys are divided as rows of other ops, with their part of a mask, and without places.
// CHECK-LABEL: func.func @masked
// CHECK: lathe.attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} {scale = {{.*}}} : (tensor<1x1x256x16xf32>, tensor<1x1x512x16xf32>, tensor<1x1x512x16xf32>, tensor<256x512xi1>) -> tensor<1x1x256x16xf32>
// CHECK-NOT: lathe.concat
module attributes {lathe.options = {mesh = ["tp=2"], shard = ["attention=dim:2"]}} {
  func.func @masked(%q: tensor<1x1x512x16xf32>, %k: tensor<1x1x512x16xf32>, %m: tensor<512x512xi1>) -> tensor<1x1x512x16xf32> {
    %y = lathe.attention %q, %k, %k mask %m {scale = 1.0 : f64} : (tensor<1x1x512x16xf32>, tensor<1x1x512x16xf32>, tensor<1x1x512x16xf32>, tensor<512x512xi1>) -> tensor<1x1x512x16xf32> loc("attention")
    return %y : tensor<1x1x512x16xf32>
  }
}

// -----

// Where heads are enough for the ranks they are divided: nothing is put in order.
// CHECK-LABEL: func.func @heads
// CHECK: lathe.attention {{.*}} -> tensor<1x4x512x16xf32>
module attributes {lathe.options = {mesh = ["tp=2"]}} {
  func.func @heads(%q: tensor<1x8x512x16xf32>, %k: tensor<1x2x512x16xf32>) -> tensor<1x8x512x16xf32> {
    %y = lathe.attention %q, %k, %k {causal, scale = 1.0 : f64} : (tensor<1x8x512x16xf32>, tensor<1x2x512x16xf32>, tensor<1x2x512x16xf32>) -> tensor<1x8x512x16xf32>
    return %y : tensor<1x8x512x16xf32>
  }
}
