// RUN: %lathe-opt --lathe-recognize-rope %s | FileCheck %s
// RUN: %lathe-opt --lathe-recognize-rope --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// rotate_half of transformers: all columns at once.
// CHECK-LABEL: @rotate_half
// CHECK-NEXT: %[[Y:.*]] = lathe.rope %arg0, %arg1, %arg2 {rotary = 8 : i64}
// CHECK-NEXT: return %[[Y]]
// REMARK: halves of heads are rotated by one op
func.func @rotate_half(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x8xf32>, %sin: tensor<5x8xf32>) -> tensor<2x4x5x8xf32> {
  %a = lathe.mul %x, %cos : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %u = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<4>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %n = lathe.neg %u : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %l = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %r = lathe.concat %n, %l {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  %b = lathe.mul %r, %sin : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %y = lathe.add %a, %b : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// The other half negated, and taken off.
// CHECK-LABEL: @subtracted
// CHECK-NEXT: lathe.rope %arg0, %arg1, %arg2 {rotary = 8 : i64}
func.func @subtracted(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x8xf32>, %sin: tensor<5x8xf32>) -> tensor<2x4x5x8xf32> {
  %a = lathe.mul %cos, %x : (tensor<5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  %u = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<4>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %l = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %n = lathe.neg %l : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %r = lathe.concat %u, %n {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  %b = lathe.mul %sin, %r : (tensor<5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  %y = lathe.sub %a, %b : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// rotate_every_two of GPT-J: strides and a stack.
// CHECK-LABEL: @rotate_every_two
// CHECK-NEXT: lathe.rope %arg0, %arg1, %arg2 {interleaved, rotary = 8 : i64}
// REMARK: neighbouring columns are rotated by one op
func.func @rotate_every_two(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x8xf32>, %sin: tensor<5x8xf32>) -> tensor<2x4x5x8xf32> {
  %a = lathe.mul %x, %cos : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %u = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1, 2>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %n = lathe.neg %u : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %l = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 2>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %e = lathe.reshape %n : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x4x1xf32>
  %d = lathe.reshape %l : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x4x1xf32>
  %t = lathe.concat %e, %d {axis = 4 : i64} : (tensor<2x4x5x4x1xf32>, tensor<2x4x5x4x1xf32>) -> tensor<2x4x5x4x2xf32>
  %r = lathe.reshape %t : (tensor<2x4x5x4x2xf32>) -> tensor<2x4x5x8xf32>
  %b = lathe.mul %r, %sin : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %y = lathe.add %a, %b : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// The function body of ONNX's RotaryEmbedding: pair by pair.
// CHECK-LABEL: @halves_by_pairs
// CHECK-NEXT: lathe.rope %arg0, %arg1, %arg2 {rotary = 8 : i64}
func.func @halves_by_pairs(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x4xf32>, %sin: tensor<5x4xf32>) -> tensor<2x4x5x8xf32> {
  %p = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %q = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<4>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %ac = lathe.mul %p, %cos : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %bs = lathe.mul %q, %sin : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %as = lathe.mul %sin, %p : (tensor<5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %bc = lathe.mul %q, %cos : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %f = lathe.sub %ac, %bs : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %g = lathe.add %as, %bc : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %y = lathe.concat %f, %g {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// ... of neighbours.
// CHECK-LABEL: @neighbours_by_pairs
// CHECK-NEXT: lathe.rope %arg0, %arg1, %arg2 {interleaved, rotary = 8 : i64}
func.func @neighbours_by_pairs(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x4xf32>, %sin: tensor<5x4xf32>) -> tensor<2x4x5x8xf32> {
  %p = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 2>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %q = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1, 2>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %ac = lathe.mul %p, %cos : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %bs = lathe.mul %q, %sin : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %as = lathe.mul %sin, %p : (tensor<5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %bc = lathe.mul %q, %cos : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %f = lathe.sub %ac, %bs : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %g = lathe.add %as, %bc : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %e = lathe.reshape %f : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x4x1xf32>
  %d = lathe.reshape %g : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x4x1xf32>
  %t = lathe.concat %e, %d {axis = 4 : i64} : (tensor<2x4x5x4x1xf32>, tensor<2x4x5x4x1xf32>) -> tensor<2x4x5x4x2xf32>
  %y = lathe.reshape %t : (tensor<2x4x5x4x2xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// Complex numbers of Meta's Llama: a dimension of two, split from a product's columns.
// CHECK-LABEL: @complex
// CHECK: %[[X:.*]] = lathe.reshape {{.*}} -> tensor<2x5x4x8xf32>
// CHECK-NEXT: lathe.rope %[[X]], %arg1, %arg2 {interleaved, rotary = 8 : i64}
func.func @complex(%x: tensor<2x5x32xf32>, %cos: tensor<5x1x4xf32>, %sin: tensor<5x1x4xf32>) -> tensor<2x5x4x8xf32> {
  %z = lathe.reshape %x : (tensor<2x5x32xf32>) -> tensor<2x5x4x4x2xf32>
  %p0 = lathe.slice %z {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<2x5x4x4x2xf32>) -> tensor<2x5x4x4x1xf32>
  %q0 = lathe.slice %z {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<2x5x4x4x2xf32>) -> tensor<2x5x4x4x1xf32>
  %p = lathe.reshape %p0 : (tensor<2x5x4x4x1xf32>) -> tensor<2x5x4x4xf32>
  %q = lathe.reshape %q0 : (tensor<2x5x4x4x1xf32>) -> tensor<2x5x4x4xf32>
  %ac = lathe.mul %p, %cos : (tensor<2x5x4x4xf32>, tensor<5x1x4xf32>) -> tensor<2x5x4x4xf32>
  %bs = lathe.mul %q, %sin : (tensor<2x5x4x4xf32>, tensor<5x1x4xf32>) -> tensor<2x5x4x4xf32>
  %as = lathe.mul %sin, %p : (tensor<5x1x4xf32>, tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
  %bc = lathe.mul %q, %cos : (tensor<2x5x4x4xf32>, tensor<5x1x4xf32>) -> tensor<2x5x4x4xf32>
  %f = lathe.sub %ac, %bs : (tensor<2x5x4x4xf32>, tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
  %g = lathe.add %as, %bc : (tensor<2x5x4x4xf32>, tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
  %e = lathe.reshape %f : (tensor<2x5x4x4xf32>) -> tensor<2x5x4x4x1xf32>
  %d = lathe.reshape %g : (tensor<2x5x4x4xf32>) -> tensor<2x5x4x4x1xf32>
  %t = lathe.concat %e, %d {axis = 4 : i64} : (tensor<2x5x4x4x1xf32>, tensor<2x5x4x4x1xf32>) -> tensor<2x5x4x4x2xf32>
  %y = lathe.reshape %t : (tensor<2x5x4x4x2xf32>) -> tensor<2x5x4x8xf32>
  return %y : tensor<2x5x4x8xf32>
}

// GPT-NeoX: the first columns of each head alone.
// CHECK-LABEL: @part
// CHECK-NEXT: %[[Y:.*]] = lathe.rope %arg0, %arg1, %arg2 {rotary = 4 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @part(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x2xf32>, %sin: tensor<5x2xf32>) -> tensor<2x4x5x8xf32> {
  %part = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %p = lathe.slice %part {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x2xf32>
  %q = lathe.slice %part {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<2>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x2xf32>
  %ac = lathe.mul %p, %cos : (tensor<2x4x5x2xf32>, tensor<5x2xf32>) -> tensor<2x4x5x2xf32>
  %bs = lathe.mul %q, %sin : (tensor<2x4x5x2xf32>, tensor<5x2xf32>) -> tensor<2x4x5x2xf32>
  %as = lathe.mul %sin, %p : (tensor<5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x2xf32>
  %bc = lathe.mul %q, %cos : (tensor<2x4x5x2xf32>, tensor<5x2xf32>) -> tensor<2x4x5x2xf32>
  %f = lathe.sub %ac, %bs : (tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x2xf32>
  %g = lathe.add %as, %bc : (tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x2xf32>
  %w = lathe.concat %f, %g {axis = 3 : i64} : (tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x4xf32>
  %rest = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<4>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %y = lathe.concat %w, %rest {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// Halves that change places without a sign.
// CHECK-LABEL: @no_sign
// CHECK-NOT: lathe.rope
// REMARK: not recognised as rotary embedding: the columns of a pair change places without a change of sign
func.func @no_sign(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x8xf32>, %sin: tensor<5x8xf32>) -> tensor<2x4x5x8xf32> {
  %a = lathe.mul %x, %cos : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %u = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<4>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %l = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %r = lathe.concat %u, %l {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  %b = lathe.mul %r, %sin : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %y = lathe.add %a, %b : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// Parts that are no halves.
// CHECK-LABEL: @uneven
// CHECK-NOT: lathe.rope
// REMARK: not recognised as rotary embedding: columns change places, but not within halves or neighbours
func.func @uneven(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x8xf32>, %sin: tensor<5x8xf32>) -> tensor<2x4x5x8xf32> {
  %a = lathe.mul %x, %cos : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %u = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<2>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x6xf32>
  %n = lathe.neg %u : (tensor<2x4x5x6xf32>) -> tensor<2x4x5x6xf32>
  %l = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x2xf32>
  %r = lathe.concat %n, %l {axis = 3 : i64} : (tensor<2x4x5x6xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x8xf32>
  %b = lathe.mul %r, %sin : (tensor<2x4x5x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5x8xf32>
  %y = lathe.add %a, %b : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// Neighbours that are stored as halves.
// CHECK-LABEL: @exchanged
// CHECK-NOT: lathe.rope
// REMARK: not recognised as rotary embedding: pairs are stored in another order than they are taken in
func.func @exchanged(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x4xf32>, %sin: tensor<5x4xf32>) -> tensor<2x4x5x8xf32> {
  %p = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 2>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %q = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1, 2>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %ac = lathe.mul %p, %cos : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %bs = lathe.mul %q, %sin : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %as = lathe.mul %sin, %p : (tensor<5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %bc = lathe.mul %q, %cos : (tensor<2x4x5x4xf32>, tensor<5x4xf32>) -> tensor<2x4x5x4xf32>
  %f = lathe.sub %ac, %bs : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %g = lathe.add %as, %bc : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %y = lathe.concat %f, %g {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// Angles of more batches than there are of what they rotate.
// CHECK-LABEL: @larger_angles
// CHECK-NOT: lathe.rope
// REMARK: not recognised as rotary embedding: the angles are larger than what they rotate
func.func @larger_angles(%x: tensor<1x4x5x8xf32>, %cos: tensor<2x1x5x4xf32>, %sin: tensor<2x1x5x4xf32>) -> tensor<2x4x5x8xf32> {
  %p = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x5x8xf32>) -> tensor<1x4x5x4xf32>
  %q = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<4>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x5x8xf32>) -> tensor<1x4x5x4xf32>
  %ac = lathe.mul %p, %cos : (tensor<1x4x5x4xf32>, tensor<2x1x5x4xf32>) -> tensor<2x4x5x4xf32>
  %bs = lathe.mul %q, %sin : (tensor<1x4x5x4xf32>, tensor<2x1x5x4xf32>) -> tensor<2x4x5x4xf32>
  %as = lathe.mul %p, %sin : (tensor<1x4x5x4xf32>, tensor<2x1x5x4xf32>) -> tensor<2x4x5x4xf32>
  %bc = lathe.mul %q, %cos : (tensor<1x4x5x4xf32>, tensor<2x1x5x4xf32>) -> tensor<2x4x5x4xf32>
  %f = lathe.sub %ac, %bs : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %g = lathe.add %as, %bc : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x4xf32>
  %y = lathe.concat %f, %g {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// Rotated columns beside others than the rest of their head.
// CHECK-LABEL: @beside_others
// CHECK: %[[P:.*]] = lathe.rope
// CHECK: lathe.concat %[[P]]
// REMARK: not recognised as rotary embedding: what stands beside the rotated columns are not those behind them
func.func @beside_others(%x: tensor<2x4x5x8xf32>, %cos: tensor<5x2xf32>, %sin: tensor<5x2xf32>) -> tensor<2x4x5x8xf32> {
  %part = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %p = lathe.slice %part {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x2xf32>
  %q = lathe.slice %part {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<2>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x4xf32>) -> tensor<2x4x5x2xf32>
  %ac = lathe.mul %p, %cos : (tensor<2x4x5x2xf32>, tensor<5x2xf32>) -> tensor<2x4x5x2xf32>
  %bs = lathe.mul %q, %sin : (tensor<2x4x5x2xf32>, tensor<5x2xf32>) -> tensor<2x4x5x2xf32>
  %as = lathe.mul %sin, %p : (tensor<5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x2xf32>
  %bc = lathe.mul %q, %cos : (tensor<2x4x5x2xf32>, tensor<5x2xf32>) -> tensor<2x4x5x2xf32>
  %f = lathe.sub %ac, %bs : (tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x2xf32>
  %g = lathe.add %as, %bc : (tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x2xf32>
  %w = lathe.concat %f, %g {axis = 3 : i64} : (tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x4xf32>
  %rest = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x8xf32>) -> tensor<2x4x5x4xf32>
  %y = lathe.concat %w, %rest {axis = 3 : i64} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x5x8xf32>
  return %y : tensor<2x4x5x8xf32>
}

// A column too many.
// CHECK-LABEL: @odd
// CHECK-NOT: lathe.rope
// REMARK: not recognised as rotary embedding: the number of columns is odd
func.func @odd(%x: tensor<2x5x3xf32>, %cos: tensor<5x3xf32>, %sin: tensor<5x3xf32>) -> tensor<2x5x3xf32> {
  %u = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1>} : (tensor<2x5x3xf32>) -> tensor<2x5x2xf32>
  %l = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1>} : (tensor<2x5x3xf32>) -> tensor<2x5x1xf32>
  %n = lathe.neg %u : (tensor<2x5x2xf32>) -> tensor<2x5x2xf32>
  %r = lathe.concat %n, %l {axis = 2 : i64} : (tensor<2x5x2xf32>, tensor<2x5x1xf32>) -> tensor<2x5x3xf32>
  %a = lathe.mul %x, %cos : (tensor<2x5x3xf32>, tensor<5x3xf32>) -> tensor<2x5x3xf32>
  %b = lathe.mul %r, %sin : (tensor<2x5x3xf32>, tensor<5x3xf32>) -> tensor<2x5x3xf32>
  %y = lathe.add %a, %b : (tensor<2x5x3xf32>, tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  return %y : tensor<2x5x3xf32>
}
