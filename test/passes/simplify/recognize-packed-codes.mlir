// RUN: %lathe-opt --lathe-recognize-packed-codes --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-recognize-packed-codes --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Neighbours in a row, the lower code of a byte first: the bytes as they are.
// CHECK-LABEL: func.func @neighbours
// CHECK: %[[Q:.*]] = lathe.constant dense<{{\[\[}}1, 2, 3, 4], [5, 6, 7, 8]]> : tensor<2x4xui4>
// CHECK-NEXT: %[[C:.*]] = lathe.cast %[[Q]] : (tensor<2x4xui4>) -> tensor<2x4xui8>
// CHECK-NEXT: return %[[C]]
// REMARK: codes of 4 bits are read as they lie in bytes
func.func @neighbours() -> tensor<2x4xui8> {
  %b = lathe.constant dense<[[33, 67], [101, 135]]> : tensor<2x2xui8>
  %mask = lathe.constant dense<15> : tensor<ui8>
  %four = lathe.constant dense<4> : tensor<ui8>
  %l = lathe.and %b, %mask : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %h = lathe.shr %b, %four : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %l1 = lathe.reshape %l : (tensor<2x2xui8>) -> tensor<2x2x1xui8>
  %h1 = lathe.reshape %h : (tensor<2x2xui8>) -> tensor<2x2x1xui8>
  %p = lathe.concat %l1, %h1 {axis = 2 : i64} : (tensor<2x2x1xui8>, tensor<2x2x1xui8>) -> tensor<2x2x2xui8>
  %q = lathe.reshape %p : (tensor<2x2x2xui8>) -> tensor<2x4xui8>
  return %q : tensor<2x4xui8>
}

// -----

// Halves of a row, the upper codes first, taken apart by division and remainder.
// CHECK-LABEL: func.func @halves
// CHECK: lathe.constant dense<{{\[\[}}2, 4, 1, 3], [6, 8, 5, 7]]> : tensor<2x4xui4>
func.func @halves() -> tensor<2x4xui8> {
  %b = lathe.constant dense<[[33, 67], [101, 135]]> : tensor<2x2xui8>
  %sixteen = lathe.constant dense<16> : tensor<ui8>
  %l = lathe.mod %b, %sixteen : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %h = lathe.div %b, %sixteen : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %q = lathe.concat %h, %l {axis = 1 : i64} : (tensor<2x2xui8>, tensor<2x2xui8>) -> tensor<2x4xui8>
  return %q : tensor<2x4xui8>
}

// -----

// One matrix behind the other; signed bytes need a mask for both.
// CHECK-LABEL: func.func @matrices
// CHECK: lathe.constant dense<{{\[\[}}1, 3], [5, 7], [2, 4], [6, 8]]> : tensor<4x2xui4>
// CHECK-NEXT: lathe.cast {{.*}} : (tensor<4x2xui4>) -> tensor<4x2xi8>
func.func @matrices() -> tensor<4x2xi8> {
  %b = lathe.constant dense<[[33, 67], [101, -121]]> : tensor<2x2xi8>
  %mask = lathe.constant dense<15> : tensor<i8>
  %four = lathe.constant dense<4> : tensor<i8>
  %l = lathe.and %b, %mask : (tensor<2x2xi8>, tensor<i8>) -> tensor<2x2xi8>
  %s = lathe.shr %b, %four : (tensor<2x2xi8>, tensor<i8>) -> tensor<2x2xi8>
  %h = lathe.and %mask, %s : (tensor<i8>, tensor<2x2xi8>) -> tensor<2x2xi8>
  %q = lathe.concat %l, %h {axis = 0 : i64} : (tensor<2x2xi8>, tensor<2x2xi8>) -> tensor<4x2xi8>
  return %q : tensor<4x2xi8>
}

// -----

// What stays packed, and why.
// CHECK-LABEL: func.func @declined
// REMARK-COUNT-2: codes of 4 bits are read as they lie in bytes
// REMARK: codes are unpacked in each run: no concat joins the codes of a byte
// REMARK: codes are unpacked in each run: the bytes are no constant
// REMARK: codes are unpacked in each run: they lie in words of 32 bits
// REMARK: codes are unpacked in each run: they have 2 bits, not 4
// REMARK: codes are unpacked in each run: what is joined is not the two codes of each byte
// REMARK-NOT: Missed
func.func @declined(%x: tensor<3x4xf32>, %z: tensor<2x2xf32>, %bytes: tensor<2x2xui8>, %words: tensor<2x2xui32>) -> (tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>) {
  %b = lathe.constant dense<[[33, 67], [101, 135]]> : tensor<2x2xui8>
  %o = lathe.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xui8>
  %mask = lathe.constant dense<15> : tensor<ui8>
  %four = lathe.constant dense<4> : tensor<ui8>
  %three = lathe.constant dense<3> : tensor<ui8>
  %wide = lathe.constant dense<15> : tensor<ui32>
  %by = lathe.constant dense<4> : tensor<ui32>
  // Only one of the two codes is used.
  %a0 = lathe.and %o, %mask : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %a1 = lathe.cast %a0 : (tensor<2x2xui8>) -> tensor<2x2xf32>
  %a2 = lathe.reshape %x : (tensor<3x4xf32>) -> tensor<6x2xf32>
  %a3 = lathe.matmul %a2, %a1 {transpose_b} : (tensor<6x2xf32>, tensor<2x2xf32>) -> tensor<6x2xf32>
  %a = lathe.slice %a3 {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<6x2xf32>) -> tensor<3x2xf32>
  %b0 = lathe.and %bytes, %mask : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %b1 = lathe.shr %bytes, %four : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %b2 = lathe.concat %b0, %b1 {axis = 1 : i64} : (tensor<2x2xui8>, tensor<2x2xui8>) -> tensor<2x4xui8>
  %b3 = lathe.cast %b2 : (tensor<2x4xui8>) -> tensor<2x4xf32>
  %b4 = lathe.matmul %x, %b3 {transpose_b} : (tensor<3x4xf32>, tensor<2x4xf32>) -> tensor<3x2xf32>
  %c0 = lathe.and %words, %wide : (tensor<2x2xui32>, tensor<ui32>) -> tensor<2x2xui32>
  %c = lathe.shr %words, %by : (tensor<2x2xui32>, tensor<ui32>) -> tensor<2x2xui32>
  %c1 = lathe.and %c, %wide : (tensor<2x2xui32>, tensor<ui32>) -> tensor<2x2xui32>
  %c2 = lathe.concat %c0, %c1 {axis = 1 : i64} : (tensor<2x2xui32>, tensor<2x2xui32>) -> tensor<2x4xui32>
  %c3 = lathe.cast %c2 : (tensor<2x4xui32>) -> tensor<2x4xf32>
  %c4 = lathe.matmul %x, %c3 {transpose_b} : (tensor<3x4xf32>, tensor<2x4xf32>) -> tensor<3x2xf32>
  %d0 = lathe.and %b, %three : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %d1 = lathe.cast %d0 : (tensor<2x2xui8>) -> tensor<2x2xui8>
  %d2 = lathe.concat %d0, %d0 {axis = 1 : i64} : (tensor<2x2xui8>, tensor<2x2xui8>) -> tensor<2x4xui8>
  %d3 = lathe.cast %d2 : (tensor<2x4xui8>) -> tensor<2x4xf32>
  %d4 = lathe.matmul %x, %d3 {transpose_b} : (tensor<3x4xf32>, tensor<2x4xf32>) -> tensor<3x2xf32>
  %e0 = lathe.shr %b, %four : (tensor<2x2xui8>, tensor<ui8>) -> tensor<2x2xui8>
  %e2 = lathe.concat %e0, %o {axis = 1 : i64} : (tensor<2x2xui8>, tensor<2x2xui8>) -> tensor<2x4xui8>
  %e3 = lathe.cast %e2 : (tensor<2x4xui8>) -> tensor<2x4xf32>
  %e4 = lathe.matmul %x, %e3 {transpose_b} : (tensor<3x4xf32>, tensor<2x4xf32>) -> tensor<3x2xf32>
  return %a, %b4, %c4, %d4, %e4 : tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>
}
