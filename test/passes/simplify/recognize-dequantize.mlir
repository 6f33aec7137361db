// RUN: %lathe-opt --lathe-recognize-dequantize --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-recognize-dequantize --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Cast, subtract, multiply, round: one op, from f32 through to 16 bits.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %[[W:.*]] = lathe.dequantize %arg1 scale(%arg3) zero(%arg2) : (tensor<8x32xi8>, tensor<8x1xf32>, tensor<f32>) -> tensor<8x32xf16>
// CHECK-NEXT: lathe.matmul %arg0, %[[W]]
func.func @chain(%x: tensor<4x32xf16>, %q: tensor<8x32xi8>, %z: tensor<f32>, %s: tensor<8x1xf32>) -> tensor<4x8xf16> {
  %0 = lathe.cast %q : (tensor<8x32xi8>) -> tensor<8x32xf32>
  %1 = lathe.sub %0, %z : (tensor<8x32xf32>, tensor<f32>) -> tensor<8x32xf32>
  %2 = lathe.mul %s, %1 : (tensor<8x1xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %3 = lathe.cast %2 : (tensor<8x32xf32>) -> tensor<8x32xf16>
  %4 = lathe.matmul %x, %3 {transpose_b} : (tensor<4x32xf16>, tensor<8x32xf16>) -> tensor<4x8xf16>
  return %4 : tensor<4x8xf16>
}

// -----

// A zero point that was made a float is an integer again, which products of codes ask for.
// CHECK-LABEL: func.func @zero
// CHECK: lathe.dequantize %arg1 zero(%arg2) : (tensor<8x32xui8>, tensor<ui8>) -> tensor<8x32xf32>
func.func @zero(%x: tensor<4x32xf32>, %q: tensor<8x32xui8>, %z: tensor<ui8>) -> tensor<4x8xf32> {
  %0 = lathe.cast %q : (tensor<8x32xui8>) -> tensor<8x32xf32>
  %1 = lathe.cast %z : (tensor<ui8>) -> tensor<f32>
  %2 = lathe.sub %0, %1 : (tensor<8x32xf32>, tensor<f32>) -> tensor<8x32xf32>
  %3 = lathe.matmul %x, %2 {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}

// -----

// Codes that reach no product stay what they were.
// CHECK-LABEL: func.func @elsewhere
// CHECK-NEXT: lathe.cast
// CHECK-NEXT: lathe.mul
func.func @elsewhere(%q: tensor<8x32xi8>, %s: tensor<8x1xf32>) -> tensor<8x32xf32> {
  %0 = lathe.cast %q : (tensor<8x32xi8>) -> tensor<8x32xf32>
  %1 = lathe.mul %0, %s : (tensor<8x32xf32>, tensor<8x1xf32>) -> tensor<8x32xf32>
  return %1 : tensor<8x32xf32>
}

// -----

// Scales that are repeated for the elements of blocks, and a second one for all.
// CHECK-LABEL: func.func @repeated
// CHECK: %[[S:.*]] = lathe.reshape %arg2 : (tensor<8x2x1xf32>) -> tensor<8x2xf32>
// CHECK: lathe.dequantize %arg1 scale(%[[S]]) outer(%arg3) {block = array<i64: 1, 16>} : (tensor<8x32xf8E4M3FN>, tensor<8x2xf32>, tensor<f32>) -> tensor<8x32xf32>
func.func @repeated(%x: tensor<4x32xf32>, %q: tensor<8x32xf8E4M3FN>, %s: tensor<8x2x1xf32>, %t: tensor<f32>) -> tensor<4x8xf32> {
  %0 = lathe.cast %q : (tensor<8x32xf8E4M3FN>) -> tensor<8x32xf32>
  %1 = lathe.broadcast_to %s : (tensor<8x2x1xf32>) -> tensor<8x2x16xf32>
  %2 = lathe.reshape %1 : (tensor<8x2x16xf32>) -> tensor<8x32xf32>
  %3 = lathe.mul %0, %2 : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %4 = lathe.mul %3, %t : (tensor<8x32xf32>, tensor<f32>) -> tensor<8x32xf32>
  %5 = lathe.matmul %x, %4 {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// -----

// Groups in a dimension of their own, codes of 4 bits converted through bytes.
// CHECK-LABEL: func.func @groups
// CHECK-DAG: %[[Z:.*]] = lathe.constant dense<8> : tensor<i8>
// CHECK: lathe.dequantize {{.*}} scale({{.*}}) zero({{.*}}) {block = array<i64: 1, 2>} : (tensor<2x4xui4>, tensor<2x2xf32>, tensor<i8>) -> tensor<2x4xf32>
// CHECK-NEXT: lathe.matmul
func.func @groups(%x: tensor<4x4xf32>, %b: tensor<2x4xui4>, %s: tensor<2x2x1xf32>) -> tensor<4x2xf32> {
  %eight = lathe.constant dense<8> : tensor<i8>
  %q = lathe.cast %b : (tensor<2x4xui4>) -> tensor<2x4xui8>
  %i = lathe.cast %q : (tensor<2x4xui8>) -> tensor<2x4xi8>
  %c = lathe.sub %i, %eight : (tensor<2x4xi8>, tensor<i8>) -> tensor<2x4xi8>
  %f = lathe.cast %c : (tensor<2x4xi8>) -> tensor<2x4xf32>
  %g = lathe.reshape %f : (tensor<2x4xf32>) -> tensor<2x2x2xf32>
  %m = lathe.mul %g, %s : (tensor<2x2x2xf32>, tensor<2x2x1xf32>) -> tensor<2x2x2xf32>
  %w = lathe.reshape %m : (tensor<2x2x2xf32>) -> tensor<2x4xf32>
  %y = lathe.matmul %x, %w {transpose_b} : (tensor<4x4xf32>, tensor<2x4xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

// Codes that choose from a table (NF4), scaled in groups.
// CHECK-LABEL: func.func @codebook
// CHECK: lathe.dequantize {{.*}} scale({{.*}}) codebook(%arg2) {block = array<i64: 1, 2>} : (tensor<2x4xui4>, tensor<2x2xf32>, tensor<16xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: lathe.matmul
func.func @codebook(%x: tensor<4x4xf32>, %q: tensor<2x4xui4>, %table: tensor<16xf32>, %s: tensor<2x2x1xf32>) -> tensor<4x2xf32> {
  %i = lathe.cast %q : (tensor<2x4xui4>) -> tensor<2x4xi64>
  %v = lathe.gather %table, %i {axis = 0 : i64} : (tensor<16xf32>, tensor<2x4xi64>) -> tensor<2x4xf32>
  %g = lathe.reshape %v : (tensor<2x4xf32>) -> tensor<2x2x2xf32>
  %m = lathe.mul %g, %s : (tensor<2x2x2xf32>, tensor<2x2x1xf32>) -> tensor<2x2x2xf32>
  %w = lathe.reshape %m : (tensor<2x2x2xf32>) -> tensor<2x4xf32>
  %y = lathe.matmul %x, %w {transpose_b} : (tensor<4x4xf32>, tensor<2x4xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

// A table of 16 numbers for constant bytes, which are all below 16.
// CHECK-LABEL: func.func @bytes
// CHECK: %[[Q:.*]] = lathe.constant dense<{{\[\[}}0, 15], [7, 1]]> : tensor<2x2xui4>
// CHECK: lathe.dequantize %[[Q]] codebook(%arg1) : (tensor<2x2xui4>, tensor<16xf16>) -> tensor<2x2xf16>
func.func @bytes(%x: tensor<4x2xf16>, %table: tensor<16xf16>) -> tensor<4x2xf16> {
  %q = lathe.constant dense<[[0, 15], [7, 1]]> : tensor<2x2xui8>
  %i = lathe.cast %q : (tensor<2x2xui8>) -> tensor<2x2xi32>
  %v = lathe.gather %table, %i {axis = 0 : i64} : (tensor<16xf16>, tensor<2x2xi32>) -> tensor<2x2xf16>
  %y = lathe.matmul %x, %v {transpose_b} : (tensor<4x2xf16>, tensor<2x2xf16>) -> tensor<4x2xf16>
  return %y : tensor<4x2xf16>
}

// -----

// Two products of integers whose zero points come first.
// CHECK-LABEL: func.func @integers
// CHECK: lathe.dequantize %arg0 zero(%arg2) : (tensor<4x32xui8>, tensor<i32>) -> tensor<4x32xi32>
// CHECK: lathe.dequantize %arg1 : (tensor<8x32xi8>) -> tensor<8x32xi32>
func.func @integers(%a: tensor<4x32xui8>, %q: tensor<8x32xi8>, %z: tensor<i32>) -> tensor<4x8xi32> {
  %0 = lathe.cast %a : (tensor<4x32xui8>) -> tensor<4x32xi32>
  %1 = lathe.sub %0, %z : (tensor<4x32xi32>, tensor<i32>) -> tensor<4x32xi32>
  %2 = lathe.cast %q : (tensor<8x32xi8>) -> tensor<8x32xi32>
  %3 = lathe.matmul %1, %2 {transpose_b} : (tensor<4x32xi32>, tensor<8x32xi32>) -> tensor<4x8xi32>
  return %3 : tensor<4x8xi32>
}

// -----

// What it declines, and says.
// CHECK-LABEL: func.func @declined
// REMARK: codes are not raised up to the product: two scales differ from element to element
// REMARK: codes are not raised up to the product: a factor differs from element to element
// REMARK: codes are not raised up to the product: something is subtracted behind a scale or zero point
// REMARK: codes are not raised up to the product: zero points and scales have other blocks
// REMARK: codes are not raised up to the product: a conversion rounds the numbers between
// REMARK: codes are not raised up to the product: a reshape takes the blocks of a scale or zero point apart
// REMARK: codes are not raised up to the product: a transpose stands between
// REMARK: codes are not raised up to the product: codes less their zero point may wrap
// REMARK: codes are not raised up to the product: what is subtracted differs from element to element
func.func @declined(%x: tensor<4x32xf32>, %q: tensor<8x32xi8>, %row: tensor<8x1xf32>, %column: tensor<32xf32>, %all: tensor<8x32xf32>, %blocks: tensor<8x2x1xf32>, %other: tensor<8x4x1xf32>, %far: tensor<i8>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %f = lathe.cast %q : (tensor<8x32xi8>) -> tensor<8x32xf32>
  %s = lathe.mul %f, %row : (tensor<8x32xf32>, tensor<8x1xf32>) -> tensor<8x32xf32>
  %a = lathe.mul %s, %column : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %0 = lathe.matmul %x, %a {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %b = lathe.mul %f, %all : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %1 = lathe.matmul %x, %b {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %c = lathe.sub %s, %column : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %2 = lathe.matmul %x, %c {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %d0 = lathe.broadcast_to %blocks : (tensor<8x2x1xf32>) -> tensor<8x2x16xf32>
  %d1 = lathe.reshape %d0 : (tensor<8x2x16xf32>) -> tensor<8x32xf32>
  %d2 = lathe.broadcast_to %other : (tensor<8x4x1xf32>) -> tensor<8x4x8xf32>
  %d3 = lathe.reshape %d2 : (tensor<8x4x8xf32>) -> tensor<8x32xf32>
  %d4 = lathe.sub %f, %d1 : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %d = lathe.mul %d4, %d3 : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %3 = lathe.matmul %x, %d {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %e0 = lathe.cast %s : (tensor<8x32xf32>) -> tensor<8x32xf16>
  %e = lathe.cast %e0 : (tensor<8x32xf16>) -> tensor<8x32xf32>
  %4 = lathe.matmul %x, %e {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %g0 = lathe.mul %f, %column : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  %g = lathe.reshape %g0 : (tensor<8x32xf32>) -> tensor<32x8xf32>
  %5 = lathe.matmul %x, %g : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %h = lathe.transpose %s {perm = array<i64: 1, 0>} : (tensor<8x32xf32>) -> tensor<32x8xf32>
  %6 = lathe.matmul %x, %h : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %i0 = lathe.cast %q : (tensor<8x32xi8>) -> tensor<8x32xi16>
  %i1 = lathe.cast %far : (tensor<i8>) -> tensor<i32>
  %i2 = lathe.cast %i1 : (tensor<i32>) -> tensor<i16>
  %i3 = lathe.sub %i0, %i2 : (tensor<8x32xi16>, tensor<i16>) -> tensor<8x32xi16>
  %i = lathe.cast %i3 : (tensor<8x32xi16>) -> tensor<8x32xf32>
  %7 = lathe.matmul %x, %i {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %j = lathe.sub %f, %all : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %8 = lathe.matmul %x, %j {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7, %8 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Weights [n, k] that are transposed before their scale follows: codes and parameters are transposed.
// CHECK-LABEL: func.func @transposed_codes
// CHECK-DAG: %[[Q:.*]] = lathe.transpose %arg1 {perm = array<i64: 1, 0>} : (tensor<8x32xi8>) -> tensor<32x8xi8>
// CHECK-DAG: %[[Z:.*]] = lathe.transpose %arg2 {perm = array<i64: 1, 0>} : (tensor<8x1xi8>) -> tensor<1x8xi8>
// CHECK: %[[W:.*]] = lathe.dequantize %[[Q]] scale(%arg3) zero(%[[Z]]) : {{.*}} -> tensor<32x8xf32>
// CHECK: lathe.matmul %arg0, %[[W]]
func.func @transposed_codes(%x: tensor<4x32xf32>, %q: tensor<8x32xi8>, %zero: tensor<8x1xi8>, %scale: tensor<1x8xf32>) -> tensor<4x8xf32> {
  %f = lathe.cast %q : (tensor<8x32xi8>) -> tensor<8x32xf32>
  %z = lathe.cast %zero : (tensor<8x1xi8>) -> tensor<8x1xf32>
  %c = lathe.sub %f, %z : (tensor<8x32xf32>, tensor<8x1xf32>) -> tensor<8x32xf32>
  %t = lathe.transpose %c {perm = array<i64: 1, 0>} : (tensor<8x32xf32>) -> tensor<32x8xf32>
  %w = lathe.mul %t, %scale : (tensor<32x8xf32>, tensor<1x8xf32>) -> tensor<32x8xf32>
  %y = lathe.matmul %x, %w : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Tables that are no codebooks.
// CHECK-LABEL: func.func @tables
// REMARK: codes are not raised up to the product: a table does not have a number for each code
// REMARK: codes are not raised up to the product: a table that is not of floats, or is not read at integers
// REMARK: codes are not raised up to the product: a table is read at places that are more than codes
func.func @tables(%x: tensor<4x32xf32>, %q: tensor<8x32xui8>, %z: tensor<i16>, %short: tensor<16xf32>, %ints: tensor<256xi32>, %table: tensor<256xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %i = lathe.cast %q : (tensor<8x32xui8>) -> tensor<8x32xi64>
  %a = lathe.gather %short, %i {axis = 0 : i64} : (tensor<16xf32>, tensor<8x32xi64>) -> tensor<8x32xf32>
  %0 = lathe.matmul %x, %a {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %b = lathe.gather %ints, %i {axis = 0 : i64} : (tensor<256xi32>, tensor<8x32xi64>) -> tensor<8x32xi32>
  %c = lathe.cast %b : (tensor<8x32xi32>) -> tensor<8x32xf32>
  %1 = lathe.matmul %x, %c {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  %j = lathe.cast %q : (tensor<8x32xui8>) -> tensor<8x32xi16>
  %k = lathe.sub %j, %z : (tensor<8x32xi16>, tensor<i16>) -> tensor<8x32xi16>
  %l = lathe.gather %table, %k {axis = 0 : i64} : (tensor<256xf32>, tensor<8x32xi16>) -> tensor<8x32xf32>
  %2 = lathe.matmul %x, %l {transpose_b} : (tensor<4x32xf32>, tensor<8x32xf32>) -> tensor<4x8xf32>
  return %0, %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Another op between constant codes and the product.
// CHECK-LABEL: func.func @between
// REMARK: codes are not raised up to the product: lathe.add stands between
// REMARK-NOT: Missed
func.func @between(%x: tensor<4x2xf32>, %s: tensor<2x1xf32>, %delta: tensor<2x2xf32>) -> tensor<4x2xf32> {
  %q = lathe.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi8>
  %f = lathe.cast %q : (tensor<2x2xi8>) -> tensor<2x2xf32>
  %m = lathe.mul %f, %s : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
  %w = lathe.add %m, %delta : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %y = lathe.matmul %x, %w {transpose_b} : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

// Blocks of 128 x 128: repeated for rows of a DequantizeLinear that has blocks of k; repeated for both dimensions at
// once behind a cast; as dimensions of their own; as a constant with equal neighbours.
// CHECK-LABEL: func.func @blocks
// CHECK: lathe.dequantize %arg1 scale(%arg2) {block = array<i64: 128, 128>} : (tensor<256x384xf8E4M3FN>, tensor<2x3xf32>) -> tensor<256x384xf32>
// CHECK: lathe.dequantize %arg1 scale(%arg2) {block = array<i64: 128, 128>} : (tensor<256x384xf8E4M3FN>, tensor<2x3xf32>) -> tensor<256x384xf32>
// CHECK: %[[D:.*]] = lathe.reshape %arg3 : (tensor<2x128x3x128xf8E4M3FN>) -> tensor<256x384xf8E4M3FN>
// CHECK: lathe.dequantize %[[D]] scale(%arg2) {block = array<i64: 128, 128>} : (tensor<256x384xf8E4M3FN>, tensor<2x3xf32>) -> tensor<256x384xf32>
func.func @blocks(%x: tensor<4x384xf32>, %q: tensor<256x384xf8E4M3FN>, %s: tensor<2x3xf32>, %p: tensor<2x128x3x128xf8E4M3FN>) -> (tensor<4x256xf32>, tensor<4x256xf32>, tensor<4x256xf32>) {
  %s0 = lathe.reshape %s : (tensor<2x3xf32>) -> tensor<2x1x3xf32>
  %b0 = lathe.broadcast_to %s0 : (tensor<2x1x3xf32>) -> tensor<2x128x3xf32>
  %r0 = lathe.reshape %b0 : (tensor<2x128x3xf32>) -> tensor<256x3xf32>
  %w0 = lathe.dequantize %q scale(%r0) {block = array<i64: 1, 128>} : (tensor<256x384xf8E4M3FN>, tensor<256x3xf32>) -> tensor<256x384xf32>
  %0 = lathe.matmul %x, %w0 {transpose_b} : (tensor<4x384xf32>, tensor<256x384xf32>) -> tensor<4x256xf32>
  %s1 = lathe.reshape %s : (tensor<2x3xf32>) -> tensor<2x1x3x1xf32>
  %b1 = lathe.broadcast_to %s1 : (tensor<2x1x3x1xf32>) -> tensor<2x128x3x128xf32>
  %r1 = lathe.reshape %b1 : (tensor<2x128x3x128xf32>) -> tensor<256x384xf32>
  %f = lathe.cast %q : (tensor<256x384xf8E4M3FN>) -> tensor<256x384xf32>
  %w1 = lathe.mul %f, %r1 : (tensor<256x384xf32>, tensor<256x384xf32>) -> tensor<256x384xf32>
  %1 = lathe.matmul %x, %w1 {transpose_b} : (tensor<4x384xf32>, tensor<256x384xf32>) -> tensor<4x256xf32>
  %g = lathe.cast %p : (tensor<2x128x3x128xf8E4M3FN>) -> tensor<2x128x3x128xf32>
  %m = lathe.mul %g, %s1 : (tensor<2x128x3x128xf32>, tensor<2x1x3x1xf32>) -> tensor<2x128x3x128xf32>
  %w2 = lathe.reshape %m : (tensor<2x128x3x128xf32>) -> tensor<256x384xf32>
  %2 = lathe.matmul %x, %w2 {transpose_b} : (tensor<4x384xf32>, tensor<256x384xf32>) -> tensor<4x256xf32>
  return %0, %1, %2 : tensor<4x256xf32>, tensor<4x256xf32>, tensor<4x256xf32>
}

// -----

// Constants: equal for 128 rows, the last block cut; and not quite equal.
// CHECK-LABEL: func.func @runs
// CHECK-DAG: %[[S:.*]] = lathe.constant dense<{{.*}}5.000000e-01{{.*}}> : tensor<2x1xf32>
// CHECK-DAG: lathe.dequantize %arg1 scale(%[[S]]) {block = array<i64: 128, 128>} : (tensor<130x128xf8E4M3FN>, tensor<2x1xf32>)
// CHECK-DAG: lathe.dequantize %arg1 scale(%{{.*}}) {block = array<i64: 1, 128>} : (tensor<130x128xf8E4M3FN>, tensor<130x1xf32>)
func.func @runs(%x: tensor<4x128xf32>, %q: tensor<130x128xf8E4M3FN>) -> (tensor<4x130xf32>, tensor<4x130xf32>) {
  %s = lathe.constant dense<"0x0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000004000000040"> : tensor<130x1xf32>
  %t = lathe.constant dense<"0x0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000403F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000003F0000004000000040"> : tensor<130x1xf32>
  %w = lathe.dequantize %q scale(%s) {block = array<i64: 1, 128>} : (tensor<130x128xf8E4M3FN>, tensor<130x1xf32>) -> tensor<130x128xf32>
  %v = lathe.dequantize %q scale(%t) {block = array<i64: 1, 128>} : (tensor<130x128xf8E4M3FN>, tensor<130x1xf32>) -> tensor<130x128xf32>
  %0 = lathe.matmul %x, %w {transpose_b} : (tensor<4x128xf32>, tensor<130x128xf32>) -> tensor<4x130xf32>
  %1 = lathe.matmul %x, %v {transpose_b} : (tensor<4x128xf32>, tensor<130x128xf32>) -> tensor<4x130xf32>
  return %0, %1 : tensor<4x130xf32>, tensor<4x130xf32>
}
