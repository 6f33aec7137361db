// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select %s | FileCheck %s

// What attention reads as it lies on a GPU: pages by their table, lengths that end the keys, positions without memory, and lists of the tiles that other masks let through.

module attributes {lathe.target = "sm_90a"} {
  // The gathers of pages are part of the kernel; the keys end where the length says.
  // CHECK-LABEL: @pages
  // CHECK: lathe.kernel "attention_gather_gather_attention_{{[0-9]+}}" attention
  // CHECK-SAME: attention.split.
  // CHECK: lathe.gather
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @pages(%q: tensor<2x8x1x64xf16>, %k: tensor<40x2x16x64xf16>, %v: tensor<40x16x2x64xf16>, %table: tensor<2x6xi32>, %len: tensor<2xi64>) -> tensor<2x8x1x64xf16> {
    %0 = lathe.gather %k, %table {axis = 0 : i64} : (tensor<40x2x16x64xf16>, tensor<2x6xi32>) -> tensor<2x6x2x16x64xf16>
    %1 = lathe.transpose %0 {perm = array<i64: 0, 2, 1, 3, 4>} : (tensor<2x6x2x16x64xf16>) -> tensor<2x2x6x16x64xf16>
    %2 = lathe.reshape %1 : (tensor<2x2x6x16x64xf16>) -> tensor<2x2x96x64xf16>
    %3 = lathe.gather %v, %table {axis = 0 : i64} : (tensor<40x16x2x64xf16>, tensor<2x6xi32>) -> tensor<2x6x16x2x64xf16>
    %4 = lathe.reshape %3 : (tensor<2x6x16x2x64xf16>) -> tensor<2x96x2x64xf16>
    %5 = lathe.transpose %4 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x96x2x64xf16>) -> tensor<2x2x96x64xf16>
    %8 = lathe.attention %q, %2, %5 lengths %len {scale = 0.125 : f64} : (tensor<2x8x1x64xf16>, tensor<2x2x96x64xf16>, tensor<2x2x96x64xf16>, tensor<2xi64>) -> tensor<2x8x1x64xf16>
    return %8 : tensor<2x8x1x64xf16>
  }

  // More queries than that: TMA takes pages of sixteen rows by a map of all rows.
  // CHECK-LABEL: @many_queries
  // CHECK: lathe.kernel "attention{{.*}}" attention
  // CHECK-SAME: attention.wgmma.
  // CHECK-SAME: tensormap 1 [64, 1280] strides [128] box [64, 16] swizzle 128
  // CHECK: lathe.gather
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @many_queries(%q: tensor<2x8x5x64xf16>, %k: tensor<40x2x16x64xf16>, %table: tensor<2x6xi32>) -> tensor<2x8x5x64xf16> {
    %0 = lathe.gather %k, %table {axis = 0 : i64} : (tensor<40x2x16x64xf16>, tensor<2x6xi32>) -> tensor<2x6x2x16x64xf16>
    %1 = lathe.transpose %0 {perm = array<i64: 0, 2, 1, 3, 4>} : (tensor<2x6x2x16x64xf16>) -> tensor<2x2x6x16x64xf16>
    %2 = lathe.reshape %1 : (tensor<2x2x6x16x64xf16>) -> tensor<2x2x96x64xf16>
    %3 = lathe.attention %q, %2, %2 {scale = 0.125 : f64} : (tensor<2x8x5x64xf16>, tensor<2x2x96x64xf16>, tensor<2x2x96x64xf16>) -> tensor<2x8x5x64xf16>
    return %3 : tensor<2x8x5x64xf16>
  }

  // Columns beside a head would count: the keys are gathered first.
  // CHECK-LABEL: @odd_heads
  // CHECK: lathe.kernel "{{.*}}gather{{.*}}" {{pointwise|copy}}
  // CHECK: lathe.kernel "attention{{.*}}" attention
  func.func @odd_heads(%q: tensor<2x8x5x72xf16>, %k: tensor<40x2x16x72xf16>, %table: tensor<2x6xi32>) -> tensor<2x8x5x72xf16> {
    %0 = lathe.gather %k, %table {axis = 0 : i64} : (tensor<40x2x16x72xf16>, tensor<2x6xi32>) -> tensor<2x6x2x16x72xf16>
    %1 = lathe.transpose %0 {perm = array<i64: 0, 2, 1, 3, 4>} : (tensor<2x6x2x16x72xf16>) -> tensor<2x2x6x16x72xf16>
    %2 = lathe.reshape %1 : (tensor<2x2x6x16x72xf16>) -> tensor<2x2x96x72xf16>
    %3 = lathe.attention %q, %2, %2 {scale = 0.125 : f64} : (tensor<2x8x5x72xf16>, tensor<2x2x96x72xf16>, tensor<2x2x96x72xf16>) -> tensor<2x8x5x72xf16>
    return %3 : tensor<2x8x5x72xf16>
  }

  // Heads of rows of tokens stay where a product left them: the maps have its strides.
  // CHECK-LABEL: @tokens_first
  // CHECK: lathe.kernel "attention_{{[0-9]+}}" attention
  // CHECK-SAME: tensormap 0 [64, 197, 2, 3] strides [768, 128, 151296]
  // CHECK: lathe.transpose
  // CHECK: lathe.attention
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @tokens_first(%y: tensor<3x197x6x64xf16>) -> tensor<3x2x197x64xf16> {
    %0 = lathe.slice %y {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<3x197x6x64xf16>) -> tensor<3x197x2x64xf16, #lathe.t<[3, 197, 2, 64], layout = #lathe.phys<[3, 197, 6, 64]>>>
    %1 = lathe.slice %y {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<2>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<3x197x6x64xf16>) -> tensor<3x197x2x64xf16, #lathe.t<[3, 197, 2, 64], layout = #lathe.phys<[3, 197, 6, 64]>>>
    %q = lathe.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x197x2x64xf16, #lathe.t<[3, 197, 2, 64], layout = #lathe.phys<[3, 197, 6, 64]>>>) -> tensor<3x2x197x64xf16>
    %k = lathe.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<3x197x2x64xf16, #lathe.t<[3, 197, 2, 64], layout = #lathe.phys<[3, 197, 6, 64]>>>) -> tensor<3x2x197x64xf16>
    %3 = lathe.attention %q, %k, %k {scale = 0.125 : f64} : (tensor<3x2x197x64xf16>, tensor<3x2x197x64xf16>, tensor<3x2x197x64xf16>) -> tensor<3x2x197x64xf16>
    return %3 : tensor<3x2x197x64xf16>
  }

  // A bias of positions reads nothing but its slopes; a constant that counts is an index.
  // CHECK-LABEL: @positions
  // CHECK: lathe.kernel "{{.*}}" attention (%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} : tensor<8x1x1xbf16>)
  // CHECK: lathe.iota
  func.func @positions(%q: tensor<1x8x2048x64xbf16>, %k: tensor<1x8x2048x64xbf16>, %slopes: tensor<8x1x1xbf16>) -> tensor<1x8x2048x64xbf16> {
    %c = lathe.iota {axis = 0 : i64} : () -> tensor<2048xi64>
    %r = lathe.iota {axis = 0 : i64} : () -> tensor<2048x1xi64>
    %0 = lathe.sub %c, %r : (tensor<2048xi64>, tensor<2048x1xi64>) -> tensor<2048x2048xi64>
    %1 = lathe.cast %0 : (tensor<2048x2048xi64>) -> tensor<2048x2048xbf16>
    %2 = lathe.mul %slopes, %1 : (tensor<8x1x1xbf16>, tensor<2048x2048xbf16>) -> tensor<8x2048x2048xbf16>
    %3 = lathe.attention %q, %k, %k bias %2 {scale = 0.125 : f64} : (tensor<1x8x2048x64xbf16>, tensor<1x8x2048x64xbf16>, tensor<1x8x2048x64xbf16>, tensor<8x2048x2048xbf16>) -> tensor<1x8x2048x64xbf16>
    return %3 : tensor<1x8x2048x64xbf16>
  }

  // Padded keys: a row of the mask for all queries.
  // CHECK-LABEL: @padding
  // CHECK: lathe.kernel "{{.*}}" attention
  // CHECK-SAME: attention.wgmma.keymask.
  func.func @padding(%q: tensor<2x8x100x64xbf16>, %m: tensor<2x1x1x100xbf16>) -> tensor<2x8x100x64xbf16> {
    %0 = lathe.attention %q, %q, %q bias %m {scale = 0.125 : f64} : (tensor<2x8x100x64xbf16>, tensor<2x8x100x64xbf16>, tensor<2x8x100x64xbf16>, tensor<2x1x1x100xbf16>) -> tensor<2x8x100x64xbf16>
    return %0 : tensor<2x8x100x64xbf16>
  }

  // Documents: a launch ahead lists the tiles of keys that a tile of queries sees, another one deals these out.
  // CHECK-LABEL: @documents
  // CHECK: buffer work readwrite ui8 [5808]
  // CHECK-SAME: launch \22[[NAME:.*]]_lists\22 grid [16, 1, 2] block [512, 1, 1] shared [16]
  // CHECK-SAME: launch \22[[NAME]]_order\22 grid [1, 1, 1] block [256, 1, 1]
  // CHECK-SAME: launch \22[[NAME]]\22
  // CHECK-SAME: workspace
  func.func @documents(%q: tensor<2x8x2048x128xbf16>, %k: tensor<2x8x2048x128xbf16>, %mine: tensor<2x2048xi32>, %theirs: tensor<2x2048xi32>) -> tensor<2x8x2048x128xbf16> {
    %1 = lathe.attention %q, %k, %k documents %mine, %theirs {scale = 0.125 : f64, causal} : (tensor<2x8x2048x128xbf16>, tensor<2x8x2048x128xbf16>, tensor<2x8x2048x128xbf16>, tensor<2x2048xi32>, tensor<2x2048xi32>) -> tensor<2x8x2048x128xbf16>
    return %1 : tensor<2x8x2048x128xbf16>
  }
}
