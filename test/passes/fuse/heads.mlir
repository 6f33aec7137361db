// RUN: sed s/TARGET/sm_90a/ %s | %lathe-opt --lathe-recognize-rope --lathe-fuse --lathe-place-states --lathe-assign-roles --lathe-name-kernels --lathe-select --mlir-print-local-scope | FileCheck %s
// RUN: sed s/TARGET/sm_80/ %s | %lathe-opt --lathe-recognize-rope --lathe-fuse --lathe-place-states --lathe-assign-roles --lathe-name-kernels | FileCheck %s --check-prefix=APART

// Queries and keys that are rotated by their positions and values that are appended to a state are results
// of the product itself: of one row, and of many, which TMA stores head by head.
// CHECK-LABEL: func.func @step
// CHECK: %[[ALL:.*]]:3 = lathe.kernel {{.*}} gemm
// CHECK-SAME: gemv.row
// CHECK: lathe.matmul
// CHECK: lathe.rope
// CHECK: lathe.rope
// CHECK-NOT: lathe.kernel
// CHECK: lathe.state_append @k, %[[ALL]]#
// CHECK: lathe.state_append @v, %[[ALL]]#
// CHECK: return
// APART-LABEL: func.func @step
// APART: lathe.kernel {{.*}} gemm
// APART: lathe.kernel {{.*}} pointwise

// CHECK-LABEL: func.func @prefill
// CHECK: :3 = lathe.kernel {{.*}} gemm
// CHECK-SAME: tensormap 1 [256, 256] strides [512] box [64, 32] swizzle 128
// CHECK-SAME: tensormap 6 [64, 2048, 2, 1] strides [128, 262144, 524288] box [32, 64, 1, 1] swizzle 64
// CHECK-NOT: lathe.kernel
// CHECK: return

// What nobody rotates or keeps stays one result, of which attention reads views.
// CHECK-LABEL: func.func @plain
// CHECK: = lathe.kernel {{.*}} gemm {{.*}} -> (tensor<1x64x64x64xbf16>)
// CHECK: lathe.slice

// A rotation that somebody else interrupts is a kernel of its own.
// CHECK-LABEL: func.func @interrupted
// CHECK: = lathe.kernel {{.*}} gemm
// CHECK: lathe.kernel {{.*}} pointwise

// Neighbours that are rotated together need no second column beside theirs; a part of a head may be rotated,
// and sizes of 1 may come and go.
// CHECK-LABEL: func.func @neighbours
// CHECK: :2 = lathe.kernel {{.*}} gemm
// CHECK-SAME: gemv.row.t32.n2
// CHECK-NOT: lathe.kernel
// CHECK: return
// CHECK-LABEL: func.func @neighbours_of_many
// CHECK: :2 = lathe.kernel {{.*}} gemm
// CHECK-SAME: tensormap 1 [256, 256] strides [512] box [64, [[COLUMNS:[0-9]+]]] swizzle 128
// CHECK-SAME: tensormap 4 [64, 2048, 3, 1] strides [128, 262144, 786432] box [32, 64, 1, 1] swizzle 64
// CHECK-NOT: lathe.kernel
// CHECK: return

// Parts of a head that change places are of other threads' columns then.
// CHECK-LABEL: func.func @exchanged
// CHECK: :2 = lathe.kernel {{.*}} gemm
// CHECK: lathe.kernel {{.*}} copy
// CHECK: lathe.concat {{.*}} {axis = 3 : i64}
module attributes {lathe.target = "TARGET"} {
  lathe.symbol @P {min = 0, max = 128, opt = 8, multiple_of = 1, origin = "past[2]"}
  lathe.state @k {type = tensor<1x1x129x64xbf16>, axis = 2 : i64, length = "P", input = "past", output = "k"}
  lathe.state @v {type = tensor<1x1x129x64xbf16>, axis = 2 : i64, length = "P", input = "past", output = "v"}
  func.func @step(%x: tensor<1x1x256xbf16>, %cos: tensor<1x64xbf16>, %sin: tensor<1x64xbf16>) -> tensor<1x2x1x64xbf16> {
    %w = lathe.constant #lathe.weight<"random", 0, 131072, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<256x256xbf16>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x1x256xbf16>, tensor<256x256xbf16>) -> tensor<1x1x256xbf16>
    %1 = lathe.reshape %0 : (tensor<1x1x256xbf16>) -> tensor<1x4x1x64xbf16>
    %q = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x1x64xbf16>) -> tensor<1x2x1x64xbf16>
    %k = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<2>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x1x64xbf16>) -> tensor<1x1x1x64xbf16>
    %v = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<3>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x1x64xbf16>) -> tensor<1x1x1x64xbf16>
    %2 = lathe.mul %q, %cos : (tensor<1x2x1x64xbf16>, tensor<1x64xbf16>) -> tensor<1x2x1x64xbf16>
    %3 = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x2x1x64xbf16>) -> tensor<1x2x1x32xbf16>
    %4 = lathe.neg %3 : (tensor<1x2x1x32xbf16>) -> tensor<1x2x1x32xbf16>
    %5 = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x2x1x64xbf16>) -> tensor<1x2x1x32xbf16>
    %6 = lathe.concat %4, %5 {axis = 3 : i64} : (tensor<1x2x1x32xbf16>, tensor<1x2x1x32xbf16>) -> tensor<1x2x1x64xbf16>
    %7 = lathe.mul %6, %sin : (tensor<1x2x1x64xbf16>, tensor<1x64xbf16>) -> tensor<1x2x1x64xbf16>
    %8 = lathe.add %2, %7 : (tensor<1x2x1x64xbf16>, tensor<1x2x1x64xbf16>) -> tensor<1x2x1x64xbf16>
    %9 = lathe.mul %k, %cos : (tensor<1x1x1x64xbf16>, tensor<1x64xbf16>) -> tensor<1x1x1x64xbf16>
    %10 = lathe.slice %k {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x32xbf16>
    %11 = lathe.neg %10 : (tensor<1x1x1x32xbf16>) -> tensor<1x1x1x32xbf16>
    %12 = lathe.slice %k {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x32xbf16>
    %13 = lathe.concat %11, %12 {axis = 3 : i64} : (tensor<1x1x1x32xbf16>, tensor<1x1x1x32xbf16>) -> tensor<1x1x1x64xbf16>
    %14 = lathe.mul %13, %sin : (tensor<1x1x1x64xbf16>, tensor<1x64xbf16>) -> tensor<1x1x1x64xbf16>
    %15 = lathe.add %9, %14 : (tensor<1x1x1x64xbf16>, tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
    %16 = lathe.state_append @k, %15 : (tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16, #lathe.t<[1, 1, P + 1, 64], layout = #lathe.phys<[1, 1, 129, 64]>>>
    %17 = lathe.state_append @v, %v : (tensor<1x1x1x64xbf16>) -> tensor<1x1x?x64xbf16, #lathe.t<[1, 1, P + 1, 64], layout = #lathe.phys<[1, 1, 129, 64]>>>
    return %8 : tensor<1x2x1x64xbf16>
  }
  func.func @prefill(%x: tensor<1x2048x256xbf16>, %cos: tensor<2048x64xbf16>, %sin: tensor<2048x64xbf16>) -> (tensor<1x2x2048x64xbf16>, tensor<1x1x2048x64xbf16>, tensor<1x1x2048x64xbf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 131072, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<256x256xbf16>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x2048x256xbf16>, tensor<256x256xbf16>) -> tensor<1x2048x256xbf16>
    %r = lathe.reshape %0 : (tensor<1x2048x256xbf16>) -> tensor<1x2048x4x64xbf16>
    %1 = lathe.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x2048x4x64xbf16>) -> tensor<1x4x2048x64xbf16>
    %q = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x2048x64xbf16>) -> tensor<1x2x2048x64xbf16>
    %k = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<2>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x2048x64xbf16>) -> tensor<1x1x2048x64xbf16>
    %v = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<3>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x2048x64xbf16>) -> tensor<1x1x2048x64xbf16>
    %2 = lathe.mul %q, %cos : (tensor<1x2x2048x64xbf16>, tensor<2048x64xbf16>) -> tensor<1x2x2048x64xbf16>
    %3 = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x2x2048x64xbf16>) -> tensor<1x2x2048x32xbf16>
    %4 = lathe.neg %3 : (tensor<1x2x2048x32xbf16>) -> tensor<1x2x2048x32xbf16>
    %5 = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x2x2048x64xbf16>) -> tensor<1x2x2048x32xbf16>
    %6 = lathe.concat %4, %5 {axis = 3 : i64} : (tensor<1x2x2048x32xbf16>, tensor<1x2x2048x32xbf16>) -> tensor<1x2x2048x64xbf16>
    %7 = lathe.mul %6, %sin : (tensor<1x2x2048x64xbf16>, tensor<2048x64xbf16>) -> tensor<1x2x2048x64xbf16>
    %8 = lathe.add %2, %7 : (tensor<1x2x2048x64xbf16>, tensor<1x2x2048x64xbf16>) -> tensor<1x2x2048x64xbf16>
    return %8, %k, %v : tensor<1x2x2048x64xbf16>, tensor<1x1x2048x64xbf16>, tensor<1x1x2048x64xbf16>
  }
  func.func @plain(%x: tensor<1x64x4096xbf16>) -> (tensor<1x32x64x64xbf16>, tensor<1x32x64x64xbf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 33554432, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<4096x4096xbf16>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x64x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<1x64x4096xbf16>
    %r = lathe.reshape %0 : (tensor<1x64x4096xbf16>) -> tensor<1x64x64x64xbf16>
    %1 = lathe.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x64x64x64xbf16>) -> tensor<1x64x64x64xbf16>
    %q = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x64x64x64xbf16>) -> tensor<1x32x64x64xbf16>
    %k = lathe.slice %1 {lathe.view, starts = [#lathe.dim<0>, #lathe.dim<32>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x64x64x64xbf16>) -> tensor<1x32x64x64xbf16>
    return %q, %k : tensor<1x32x64x64xbf16>, tensor<1x32x64x64xbf16>
  }
  func.func @interrupted(%x: tensor<1x64x256xbf16>, %sin: tensor<64x64xbf16>) -> (tensor<1x4x64x64xbf16>, tensor<1x4x64x32xbf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 131072, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<256x256xbf16>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x64x256xbf16>, tensor<256x256xbf16>) -> tensor<1x64x256xbf16>
    %r = lathe.reshape %0 : (tensor<1x64x256xbf16>) -> tensor<1x64x4x64xbf16>
    %1 = lathe.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x64x4x64xbf16>) -> tensor<1x4x64x64xbf16>
    %3 = lathe.slice %1 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x64x64xbf16>) -> tensor<1x4x64x32xbf16>
    %4 = lathe.neg %3 : (tensor<1x4x64x32xbf16>) -> tensor<1x4x64x32xbf16>
    %5 = lathe.slice %1 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x64x64xbf16>) -> tensor<1x4x64x32xbf16>
    %6 = lathe.concat %4, %5 {axis = 3 : i64} : (tensor<1x4x64x32xbf16>, tensor<1x4x64x32xbf16>) -> tensor<1x4x64x64xbf16>
    %7 = lathe.mul %6, %sin : (tensor<1x4x64x64xbf16>, tensor<64x64xbf16>) -> tensor<1x4x64x64xbf16>
    return %7, %4 : tensor<1x4x64x64xbf16>, tensor<1x4x64x32xbf16>
  }
  func.func @neighbours(%x: tensor<1x1x256xbf16>, %cos: tensor<1x16xbf16>, %sin: tensor<1x16xbf16>) -> (tensor<1x3x1x64xbf16>, tensor<1x1x1x64xbf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 131072, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<256x256xbf16>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x1x256xbf16>, tensor<256x256xbf16>) -> tensor<1x1x256xbf16>
    %h = lathe.reshape %0 : (tensor<1x1x256xbf16>) -> tensor<1x4x1x64xbf16>
    %q = lathe.slice %h {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x1x64xbf16>) -> tensor<1x3x1x64xbf16>
    %s = lathe.slice %h {starts = [#lathe.dim<0>, #lathe.dim<3>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x1x64xbf16>) -> tensor<1x1x1x64xbf16>
    %qt = lathe.reshape %q : (tensor<1x3x1x64xbf16>) -> tensor<1x1x3x64xbf16>
    %low = lathe.slice %qt {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x3x64xbf16>) -> tensor<1x1x3x32xbf16>
    %a = lathe.slice %low {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 2>} : (tensor<1x1x3x32xbf16>) -> tensor<1x1x3x16xbf16>
    %b = lathe.slice %low {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1, 2>} : (tensor<1x1x3x32xbf16>) -> tensor<1x1x3x16xbf16>
    %cosu = lathe.reshape %cos : (tensor<1x16xbf16>) -> tensor<1x1x1x16xbf16>
    %sinu = lathe.reshape %sin : (tensor<1x16xbf16>) -> tensor<1x1x1x16xbf16>
    %ac = lathe.mul %a, %cosu : (tensor<1x1x3x16xbf16>, tensor<1x1x1x16xbf16>) -> tensor<1x1x3x16xbf16>
    %bs = lathe.mul %b, %sinu : (tensor<1x1x3x16xbf16>, tensor<1x1x1x16xbf16>) -> tensor<1x1x3x16xbf16>
    %as = lathe.mul %a, %sinu : (tensor<1x1x3x16xbf16>, tensor<1x1x1x16xbf16>) -> tensor<1x1x3x16xbf16>
    %bc = lathe.mul %b, %cosu : (tensor<1x1x3x16xbf16>, tensor<1x1x1x16xbf16>) -> tensor<1x1x3x16xbf16>
    %re = lathe.sub %ac, %bs : (tensor<1x1x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x1x3x16xbf16>
    %im = lathe.add %as, %bc : (tensor<1x1x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x1x3x16xbf16>
    %re1 = lathe.reshape %re : (tensor<1x1x3x16xbf16>) -> tensor<1x1x3x16x1xbf16>
    %im1 = lathe.reshape %im : (tensor<1x1x3x16xbf16>) -> tensor<1x1x3x16x1xbf16>
    %two = lathe.concat %re1, %im1 {axis = 4 : i64} : (tensor<1x1x3x16x1xbf16>, tensor<1x1x3x16x1xbf16>) -> tensor<1x1x3x16x2xbf16>
    %rotated = lathe.reshape %two : (tensor<1x1x3x16x2xbf16>) -> tensor<1x1x3x32xbf16>
    %high = lathe.slice %qt {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x1x3x64xbf16>) -> tensor<1x1x3x32xbf16>
    %all = lathe.concat %rotated, %high {axis = 3 : i64} : (tensor<1x1x3x32xbf16>, tensor<1x1x3x32xbf16>) -> tensor<1x1x3x64xbf16>
    %out = lathe.reshape %all : (tensor<1x1x3x64xbf16>) -> tensor<1x3x1x64xbf16>
    %v = lathe.neg %s : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
    return %out, %v : tensor<1x3x1x64xbf16>, tensor<1x1x1x64xbf16>
  }
  func.func @neighbours_of_many(%x: tensor<1x2048x256xbf16>, %cos: tensor<2048x32xbf16>, %sin: tensor<2048x32xbf16>) -> (tensor<1x3x2048x64xbf16>, tensor<1x1x2048x64xbf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 131072, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<256x256xbf16>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x2048x256xbf16>, tensor<256x256xbf16>) -> tensor<1x2048x256xbf16>
    %r = lathe.reshape %0 : (tensor<1x2048x256xbf16>) -> tensor<1x2048x4x64xbf16>
    %h = lathe.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x2048x4x64xbf16>) -> tensor<1x4x2048x64xbf16>
    %q = lathe.slice %h {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x2048x64xbf16>) -> tensor<1x3x2048x64xbf16>
    %s = lathe.slice %h {starts = [#lathe.dim<0>, #lathe.dim<3>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x2048x64xbf16>) -> tensor<1x1x2048x64xbf16>
    %a = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 2>} : (tensor<1x3x2048x64xbf16>) -> tensor<1x3x2048x32xbf16>
    %b = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1, 2>} : (tensor<1x3x2048x64xbf16>) -> tensor<1x3x2048x32xbf16>
    %ac = lathe.mul %a, %cos : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %bs = lathe.mul %b, %sin : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %as = lathe.mul %a, %sin : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %bc = lathe.mul %b, %cos : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %re = lathe.sub %ac, %bs : (tensor<1x3x2048x32xbf16>, tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %im = lathe.add %as, %bc : (tensor<1x3x2048x32xbf16>, tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %re1 = lathe.reshape %re : (tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32x1xbf16>
    %im1 = lathe.reshape %im : (tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32x1xbf16>
    %two = lathe.concat %re1, %im1 {axis = 4 : i64} : (tensor<1x3x2048x32x1xbf16>, tensor<1x3x2048x32x1xbf16>) -> tensor<1x3x2048x32x2xbf16>
    %rotated = lathe.reshape %two : (tensor<1x3x2048x32x2xbf16>) -> tensor<1x3x2048x64xbf16>
    %v = lathe.neg %s : (tensor<1x1x2048x64xbf16>) -> tensor<1x1x2048x64xbf16>
    return %rotated, %v : tensor<1x3x2048x64xbf16>, tensor<1x1x2048x64xbf16>
  }
  func.func @exchanged(%x: tensor<1x2048x256xbf16>, %cos: tensor<2048x32xbf16>, %sin: tensor<2048x32xbf16>) -> (tensor<1x3x2048x64xbf16>, tensor<1x1x2048x64xbf16>) {
    %w = lathe.constant #lathe.weight<"random", 0, 131072, "752cc4c9ce9c1a0e000000003cddb3d700000000000000000000000000000000"> : tensor<256x256xbf16>
    %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x2048x256xbf16>, tensor<256x256xbf16>) -> tensor<1x2048x256xbf16>
    %r = lathe.reshape %0 : (tensor<1x2048x256xbf16>) -> tensor<1x2048x4x64xbf16>
    %h = lathe.transpose %r {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x2048x4x64xbf16>) -> tensor<1x4x2048x64xbf16>
    %q = lathe.slice %h {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x2048x64xbf16>) -> tensor<1x3x2048x64xbf16>
    %s = lathe.slice %h {starts = [#lathe.dim<0>, #lathe.dim<3>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x2048x64xbf16>) -> tensor<1x1x2048x64xbf16>
    %a = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 2>} : (tensor<1x3x2048x64xbf16>) -> tensor<1x3x2048x32xbf16>
    %b = lathe.slice %q {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1, 2>} : (tensor<1x3x2048x64xbf16>) -> tensor<1x3x2048x32xbf16>
    %ac = lathe.mul %a, %cos : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %bs = lathe.mul %b, %sin : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %as = lathe.mul %a, %sin : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %bc = lathe.mul %b, %cos : (tensor<1x3x2048x32xbf16>, tensor<2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %re = lathe.sub %ac, %bs : (tensor<1x3x2048x32xbf16>, tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %im = lathe.add %as, %bc : (tensor<1x3x2048x32xbf16>, tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32xbf16>
    %re1 = lathe.reshape %re : (tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32x1xbf16>
    %im1 = lathe.reshape %im : (tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x32x1xbf16>
    %two = lathe.concat %re1, %im1 {axis = 4 : i64} : (tensor<1x3x2048x32x1xbf16>, tensor<1x3x2048x32x1xbf16>) -> tensor<1x3x2048x32x2xbf16>
    %rotated = lathe.reshape %two : (tensor<1x3x2048x32x2xbf16>) -> tensor<1x3x2048x64xbf16>
    %low = lathe.slice %rotated {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x3x2048x64xbf16>) -> tensor<1x3x2048x32xbf16>
    %high = lathe.slice %rotated {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<32>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x3x2048x64xbf16>) -> tensor<1x3x2048x32xbf16>
    %out = lathe.concat %high, %low {axis = 3 : i64} : (tensor<1x3x2048x32xbf16>, tensor<1x3x2048x32xbf16>) -> tensor<1x3x2048x64xbf16>
    %v = lathe.neg %s : (tensor<1x1x2048x64xbf16>) -> tensor<1x1x2048x64xbf16>
    return %out, %v : tensor<1x3x2048x64xbf16>, tensor<1x1x2048x64xbf16>
  }
}
