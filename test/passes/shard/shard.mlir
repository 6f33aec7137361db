// RUN: %lathe-opt --lathe-shard --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-shard --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// The first product by columns, the second by rows: ranks meet once.
// REMARK: entry 'mlp' on 2 ranks: 1 all_reduce
// CHECK-LABEL: func.func @mlp
// CHECK: lathe.constant #lathe.sharded<1, 2, [12], dense<{{.*}}> : tensor<8x12xf32>> : tensor<8x6xf32>
// CHECK: lathe.matmul {{.*}} -> tensor<4x6xf32>
// CHECK: lathe.tanh {{.*}} -> tensor<4x6xf32>
// CHECK: lathe.constant #lathe.sharded<0, 2, [12], dense<{{.*}}> : tensor<12x8xf32>> : tensor<6x8xf32>
// CHECK: %[[P:.*]] = lathe.matmul {{.*}} -> tensor<4x8xf32>
// CHECK: %[[S:.*]] = lathe.all_reduce %[[P]] {kind = #lathe.reduce_kind<sum>, ranks = 2 : i64}
// CHECK: return %[[S]]
module attributes {lathe.options = {mesh = ["tp=2"]}} {
  func.func @mlp(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %w = lathe.constant dense<"0x0000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F00000040"> : tensor<8x12xf32>
    %v = lathe.constant dense<"0x0000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F00000040"> : tensor<12x8xf32>
    %0 = lathe.matmul %x, %w : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32>
    %1 = lathe.tanh %0 : (tensor<4x12xf32>) -> tensor<4x12xf32>
    %2 = lathe.matmul %1, %v : (tensor<4x12xf32>, tensor<12x8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
}

// -----

// Three blocks of columns of one product: of each a rank has its part, and slices take those.
// REMARK: entry 'packed' on 2 ranks: 1 all_gather
// CHECK-LABEL: func.func @packed
// CHECK: lathe.constant #lathe.sharded<1, 2, [4, 4, 4], dense<{{.*}}> : tensor<8x12xf32>> : tensor<8x6xf32>
// CHECK: %[[P:.*]] = lathe.matmul {{.*}} -> tensor<4x6xf32>
// CHECK: lathe.slice %[[P]] {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<4x2xf32>
// CHECK: lathe.slice %[[P]] {starts = [#lathe.dim<0>, #lathe.dim<2>]
// CHECK: lathe.slice %[[P]] {starts = [#lathe.dim<0>, #lathe.dim<4>]
// CHECK: lathe.all_gather {{.*}} {dim = 1 : i64, ranks = 2 : i64} : (tensor<4x2xf32>) -> tensor<4x4xf32>
module attributes {lathe.options = {mesh = ["tp=2"]}} {
  func.func @packed(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
    %w = lathe.constant dense<"0x0000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F00000040"> : tensor<8x12xf32>
    %p = lathe.matmul %x, %w : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32>
    %q = lathe.slice %p {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<4x12xf32>) -> tensor<4x4xf32>
    %k = lathe.slice %p {starts = [#lathe.dim<0>, #lathe.dim<4>], steps = array<i64: 1, 1>} : (tensor<4x12xf32>) -> tensor<4x4xf32>
    %v = lathe.slice %p {starts = [#lathe.dim<0>, #lathe.dim<8>], steps = array<i64: 1, 1>} : (tensor<4x12xf32>) -> tensor<4x4xf32>
    %0 = lathe.mul %q, %k : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = lathe.add %0, %v : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %1 : tensor<4x4xf32>
  }
}

// -----

// Columns that are no multiple of the ranks: zeros at the end, which are cut off where ranks meet.
// CHECK-LABEL: func.func @uneven
// CHECK: lathe.constant #lathe.sharded<1, 5, [12], {{.*}} : tensor<8x12xf32>> : tensor<8x3xf32>
// CHECK: %[[G:.*]] = lathe.all_gather {{.*}} : (tensor<4x3xf32>) -> tensor<4x15xf32>
// CHECK: lathe.slice %[[G]] {starts = [#lathe.dim<0>, #lathe.dim<0>]{{.*}} : (tensor<4x15xf32>) -> tensor<4x12xf32>
module attributes {lathe.options = {mesh = ["tp=5"]}} {
  func.func @uneven(%x: tensor<4x8xf32>) -> tensor<4x12xf32> {
    %w = lathe.constant dense<"0x0000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F000000400000803F00000040"> : tensor<8x12xf32>
    %p = lathe.matmul %x, %w : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32>
    return %p : tensor<4x12xf32>
  }
}

// -----

// Key heads go with the query heads that read them.
// CHECK-LABEL: func.func @heads
// CHECK: lathe.attention {{.*}} : (tensor<1x4x5x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5x8xf32>) -> tensor<1x4x5x8xf32>
module attributes {lathe.options = {mesh = ["tp=2"], shard = ["attention=dim:1"]}} {
  func.func @heads(%q: tensor<1x8x5x8xf32>, %k: tensor<1x2x5x8xf32>) -> tensor<1x8x5x8xf32> {
    %y = lathe.attention %q, %k, %k {scale = 1.0 : f64} : (tensor<1x8x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x8x5x8xf32> loc("attention")
    return %y : tensor<1x8x5x8xf32>
  }
}
