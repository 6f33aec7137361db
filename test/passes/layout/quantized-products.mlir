// RUN: %lathe-opt --lathe-quantized-products --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-quantized-products --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Zero points and scales go behind the product; the sums of a weight's columns are known. A
// weight that lies across k is transposed.
// CHECK-LABEL: func.func @static
// CHECK-DAG: %[[SUMS:.*]] = lathe.constant dense<{{\[\[}}48, 96]]> : tensor<1x2xi32>
// CHECK-DAG: %[[W:.*]] = lathe.constant {{.*}} : tensor<2x16xi8>
// CHECK: %[[P:.*]] = lathe.matmul %arg0, %[[W]] {transpose_b} : (tensor<4x16xui8>, tensor<2x16xi8>) -> tensor<4x2xi32>
// CHECK: lathe.sub %[[P]]
// CHECK: lathe.cast {{.*}} -> tensor<4x2xf32>
// CHECK: lathe.mul
// CHECK-NOT: lathe.mul
// CHECK: return
// REMARK: 8-bit operands are multiplied as they are
module attributes {lathe.target = "sm_90a"} {
  func.func @static(%a: tensor<4x16xui8>) -> tensor<4x2xf32> {
    %za = lathe.constant dense<3.0> : tensor<f32>
    %sa = lathe.constant dense<0.5> : tensor<f32>
    %sw = lathe.constant dense<[0.25, 0.125]> : tensor<2xf32>
    %zw = lathe.constant dense<0.0> : tensor<2xf32>
    %w = lathe.constant dense<[[1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]> : tensor<16x2xi8>
    %2 = lathe.dequantize %a scale(%sa) zero(%za) : (tensor<4x16xui8>, tensor<f32>, tensor<f32>) -> tensor<4x16xf32>
    %5 = lathe.dequantize %w scale(%sw) zero(%zw) : (tensor<16x2xi8>, tensor<2xf32>, tensor<2xf32>) -> tensor<16x2xf32>
    %6 = lathe.matmul %2, %5 : (tensor<4x16xf32>, tensor<16x2xf32>) -> tensor<4x2xf32>
    return %6 : tensor<4x2xf32>
  }
}

// -----

// Run-time operands and zero points on both sides: sums of rows and of columns are computed, a
// right operand that lies across k is transposed.
// CHECK-LABEL: func.func @dynamic
// CHECK: %[[T:.*]] = lathe.transpose %arg1
// CHECK: lathe.matmul %arg0, %[[T]] {transpose_b} : (tensor<4x32xui8>, tensor<8x32xui8>) -> tensor<4x8xi32>
// CHECK: lathe.reduce {{.*}} : (tensor<8x32xi32>) -> tensor<8x1xi32>
// CHECK: lathe.reduce {{.*}} : (tensor<4x32xi32>) -> tensor<4x1xi32>
// CHECK: return {{.*}} : tensor<4x8xi32>
module attributes {lathe.target = "sm_90a"} {
  func.func @dynamic(%a: tensor<4x32xui8>, %w: tensor<32x8xui8>, %za: tensor<ui8>, %zw: tensor<8xui8>) -> tensor<4x8xi32> {
    %1 = lathe.cast %za : (tensor<ui8>) -> tensor<i32>
    %2 = lathe.dequantize %a zero(%1) : (tensor<4x32xui8>, tensor<i32>) -> tensor<4x32xi32>
    %4 = lathe.cast %zw : (tensor<8xui8>) -> tensor<8xi32>
    %5 = lathe.dequantize %w zero(%4) : (tensor<32x8xui8>, tensor<8xi32>) -> tensor<32x8xi32>
    %6 = lathe.matmul %2, %5 : (tensor<4x32xi32>, tensor<32x8xi32>) -> tensor<4x8xi32>
    return %6 : tensor<4x8xi32>
  }
}

// -----

// A zero point that each run finds, in f32 as DynamicQuantizeLinear has it: the byte that was widened.
// CHECK-LABEL: func.func @found
// CHECK: %[[P:.*]] = lathe.matmul %arg0, {{.*}} {transpose_b} : (tensor<4x16xui8>, tensor<2x16xi8>) -> tensor<4x2xi32>
// CHECK: %[[Z:.*]] = lathe.cast %arg1 : (tensor<ui8>) -> tensor<i32>
// CHECK: lathe.mul %[[Z]], {{.*}} -> tensor<1x2xi32>
// REMARK: 8-bit operands are multiplied as they are
module attributes {lathe.target = "sm_90a"} {
  func.func @found(%a: tensor<4x16xui8>, %z: tensor<ui8>, %sa: tensor<f32>) -> tensor<4x2xf32> {
    %sw = lathe.constant dense<[0.25, 0.125]> : tensor<2xf32>
    %w = lathe.constant dense<1> : tensor<16x2xi8>
    %1 = lathe.dequantize %z : (tensor<ui8>) -> tensor<f32>
    %2 = lathe.dequantize %a scale(%sa) zero(%1) : (tensor<4x16xui8>, tensor<f32>, tensor<f32>) -> tensor<4x16xf32>
    %5 = lathe.dequantize %w scale(%sw) : (tensor<16x2xi8>, tensor<2xf32>) -> tensor<16x2xf32>
    %6 = lathe.matmul %2, %5 : (tensor<4x16xf32>, tensor<16x2xf32>) -> tensor<4x2xf32>
    return %6 : tensor<4x2xf32>
  }
}

// -----

// Floats: scales of rows and columns behind, views before; the result keeps its type.
// CHECK-LABEL: func.func @floats
// CHECK: %[[A:.*]] = lathe.reshape %arg0 {{.*}} -> tensor<4x16xf8E4M3FN>
// CHECK: %[[P:.*]] = lathe.matmul %[[A]], %arg1 {transpose_b} : (tensor<4x16xf8E4M3FN>, tensor<8x16xf8E5M2>) -> tensor<4x8xf32>
// CHECK: %[[S:.*]] = lathe.mul %[[P]], %arg2
// CHECK: lathe.cast {{.*}} -> tensor<4x8xf16>
module attributes {lathe.target = "sm_90a"} {
  func.func @floats(%a: tensor<2x2x16xf8E4M3FN>, %w: tensor<8x16xf8E5M2>, %sa: tensor<f32>, %sw: tensor<8x1xf16>) -> tensor<4x8xf16> {
    %1 = lathe.dequantize %a scale(%sa) : (tensor<2x2x16xf8E4M3FN>, tensor<f32>) -> tensor<2x2x16xf16>
    %3 = lathe.reshape %1 : (tensor<2x2x16xf16>) -> tensor<4x16xf16>
    %5 = lathe.dequantize %w scale(%sw) : (tensor<8x16xf8E5M2>, tensor<8x1xf16>) -> tensor<8x16xf16>
    %6 = lathe.matmul %3, %5 {transpose_b} : (tensor<4x16xf16>, tensor<8x16xf16>) -> tensor<4x8xf16>
    return %6 : tensor<4x8xf16>
  }
}

// -----

// Another GPU, rows that are no whole pieces of 16 bytes, scales that differ along k, sums that
// could overflow: as it was, and said.
// CHECK-LABEL: func.func @portable
// CHECK: lathe.matmul {{.*}} : (tensor<4x16xf32>, tensor<8x16xf32>)
module attributes {lathe.target = "sm_80"} {
  func.func @portable(%a: tensor<4x16xi8>, %w: tensor<8x16xi8>) -> tensor<4x8xf32> {
    %0 = lathe.dequantize %a : (tensor<4x16xi8>) -> tensor<4x16xf32>
    %1 = lathe.dequantize %w : (tensor<8x16xi8>) -> tensor<8x16xf32>
    %2 = lathe.matmul %0, %1 {transpose_b} : (tensor<4x16xf32>, tensor<8x16xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
}

// -----

// CHECK-LABEL: func.func @refused
// CHECK: lathe.matmul {{.*}} : (tensor<4x24xf32>, tensor<8x24xf32>)
// CHECK: lathe.matmul {{.*}} : (tensor<4x16xf32>, tensor<8x16xf32>)
// CHECK: lathe.matmul {{.*}} : (tensor<4x65536xf32>, tensor<8x65536xf32>)
// REMARK: rows of 24 elements are not whole pieces of 16 bytes
// REMARK: sums over 65536 elements might not fit into 32 bits
module attributes {lathe.target = "sm_90a"} {
  func.func @refused(%a: tensor<4x24xi8>, %w: tensor<8x24xi8>, %c: tensor<4x16xi8>, %d: tensor<8x16xi8>, %s: tensor<16xf32>, %e: tensor<4x65536xui8>, %f: tensor<8x65536xui8>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
    %0 = lathe.dequantize %a : (tensor<4x24xi8>) -> tensor<4x24xf32>
    %1 = lathe.dequantize %w : (tensor<8x24xi8>) -> tensor<8x24xf32>
    %2 = lathe.matmul %0, %1 {transpose_b} : (tensor<4x24xf32>, tensor<8x24xf32>) -> tensor<4x8xf32>
    %3 = lathe.dequantize %c : (tensor<4x16xi8>) -> tensor<4x16xf32>
    %5 = lathe.dequantize %d scale(%s) : (tensor<8x16xi8>, tensor<16xf32>) -> tensor<8x16xf32>
    %6 = lathe.matmul %3, %5 {transpose_b} : (tensor<4x16xf32>, tensor<8x16xf32>) -> tensor<4x8xf32>
    %7 = lathe.dequantize %e : (tensor<4x65536xui8>) -> tensor<4x65536xf32>
    %8 = lathe.dequantize %f : (tensor<8x65536xui8>) -> tensor<8x65536xf32>
    %9 = lathe.matmul %7, %8 {transpose_b} : (tensor<4x65536xf32>, tensor<8x65536xf32>) -> tensor<4x8xf32>
    return %2, %6, %9 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  }
}

// -----

// A CPU adds products of integers in pairs: by weights, of any depth. What is no weight is dequantized, and
// floats are.
// CHECK-LABEL: func.func @cpu
// CHECK: %[[W:.*]] = lathe.constant {{.*}} : tensor<2x3xi8>
// CHECK: %[[P:.*]] = lathe.matmul %arg0, %[[W]] {transpose_b} : (tensor<4x3xui8>, tensor<2x3xi8>) -> tensor<4x2xi32>
// CHECK: lathe.sub %[[P]]
// CHECK: lathe.matmul {{.*}} : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
// CHECK: lathe.matmul {{.*}} : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
// REMARK: 8-bit operands are multiplied as they are
// REMARK: the right operand is no weight of integers, which could be packed in pairs
// REMARK: the right operand is no weight of integers, which could be packed in pairs
module attributes {lathe.target = "x86-64-v3"} {
  func.func @cpu(%a: tensor<4x3xui8>, %b: tensor<3x2xi8>, %c: tensor<4x3xf8E4M3FN>, %d: tensor<3x2xf8E4M3FN>) -> (tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) {
    %za = lathe.constant dense<3.0> : tensor<f32>
    %sa = lathe.constant dense<0.5> : tensor<f32>
    %w = lathe.constant dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi8>
    %x = lathe.dequantize %a scale(%sa) zero(%za) : (tensor<4x3xui8>, tensor<f32>, tensor<f32>) -> tensor<4x3xf32>
    %wf = lathe.dequantize %w : (tensor<3x2xi8>) -> tensor<3x2xf32>
    %0 = lathe.matmul %x, %wf : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
    %bf = lathe.dequantize %b : (tensor<3x2xi8>) -> tensor<3x2xf32>
    %1 = lathe.matmul %x, %bf : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
    %cf = lathe.dequantize %c : (tensor<4x3xf8E4M3FN>) -> tensor<4x3xf32>
    %df = lathe.dequantize %d : (tensor<3x2xf8E4M3FN>) -> tensor<3x2xf32>
    %2 = lathe.matmul %cf, %df : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
    return %0, %1, %2 : tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>
  }
}

// -----

// Convolutions: images less their zero point, filters less theirs when compiling, one scale an output behind,
// which takes in that of the codes that follow. Groups that a vector of results covers read images as codes;
// others, and filters that are not known, are dequantized.
// CHECK-LABEL: func.func @convs
// CHECK-DAG: %[[W:.*]] = lathe.constant dense<{{\[\[\[\[}}-1]], {{\[\[}}2]]], {{\[\[\[}}127]], {{\[\[}}-128]]]]> : tensor<2x2x1x1xi8>
// CHECK-DAG: %[[S:.*]] = lathe.constant dense<[5.000000e-01, 2.000000e+00]> : tensor<2xf32>
// CHECK-DAG: lathe.constant dense<7.500000e-01> : tensor<2x1x1x1xf32>
// CHECK: %[[X:.*]] = lathe.dequantize %arg0 zero({{.*}}) : (tensor<1x4x4x2xui8>, tensor<i32>) -> tensor<1x4x4x2xi32>
// CHECK: %[[I:.*]] = lathe.conv %[[X]], %[[W]] {{.*}} : (tensor<1x4x4x2xi32>, tensor<2x2x1x1xi8>) -> tensor<1x4x4x2xi32>
// CHECK: %[[F:.*]] = lathe.cast %[[I]]
// CHECK: %[[M:.*]] = lathe.mul %[[F]], %[[S]]
// CHECK: lathe.quantize %[[M]] scale({{.*}}) zero({{.*}}) :
// CHECK: %[[D:.*]] = lathe.dequantize %arg0 zero({{.*}}) : (tensor<1x4x4x2xui8>, tensor<f32>) -> tensor<1x4x4x2xf32>
// CHECK: lathe.conv %[[D]], {{.*}}group = 2
// CHECK: lathe.conv {{.*}} : (tensor<1x4x4x2xf32>, tensor<2x2x1x1xf32>) -> tensor<1x4x4x2xf32>
// REMARK: 8-bit operands are convolved as they are
// REMARK: images are read as 8-bit codes
// REMARK: 8-bit operands are dequantized before the convolution: the filters are no weight, which could be packed
module attributes {lathe.target = "x86-64-v3"} {
  func.func @convs(%a: tensor<1x4x4x2xui8>, %b: tensor<2x2x1x1xi8>) -> (tensor<1x4x4x2xui8>, tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>) {
    %za = lathe.constant dense<3.0> : tensor<f32>
    %sa = lathe.constant dense<0.5> : tensor<f32>
    %zw = lathe.constant dense<128.0> : tensor<f32>
    %sw = lathe.constant dense<[[[[0.25]]], [[[1.0]]]]> : tensor<2x1x1x1xf32>
    %w = lathe.constant dense<[[[[127]], [[130]]], [[[255]], [[0]]]]> : tensor<2x2x1x1xui8>
    %f = lathe.constant dense<1.5> : tensor<2x1x1x1xf32>
    %sy = lathe.constant dense<0.25> : tensor<f32>
    %x = lathe.dequantize %a scale(%sa) zero(%za) : (tensor<1x4x4x2xui8>, tensor<f32>, tensor<f32>) -> tensor<1x4x4x2xf32>
    %wf = lathe.dequantize %w scale(%sw) zero(%zw) : (tensor<2x2x1x1xui8>, tensor<2x1x1x1xf32>, tensor<f32>) -> tensor<2x2x1x1xf32>
    %0 = lathe.conv %x, %wf {dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x4x4x2xf32>, tensor<2x2x1x1xf32>) -> tensor<1x4x4x2xf32>
    %q = lathe.quantize %0 scale(%sy) zero(%za) : (tensor<1x4x4x2xf32>, tensor<f32>, tensor<f32>) -> tensor<1x4x4x2xui8>
    %1 = lathe.conv %x, %f {dilations = array<i64: 1, 1>, group = 2 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x4x4x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x4x4x2xf32>
    %bf = lathe.dequantize %b scale(%sa) : (tensor<2x2x1x1xi8>, tensor<f32>) -> tensor<2x2x1x1xf32>
    %2 = lathe.conv %x, %bf {dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x4x4x2xf32>, tensor<2x2x1x1xf32>) -> tensor<1x4x4x2xf32>
    return %q, %1, %2 : tensor<1x4x4x2xui8>, tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>
  }
}

// -----

// On sm_90a the bytes themselves: images are filled up with their zero point, which times the sums of the filters (-9 and
// 18 of nine taps of sixteen channels, times 3) is taken away. Without a zero point nothing is.
// CHECK-LABEL: func.func @tensor_cores
// CHECK-DAG: %[[E:.*]] = lathe.constant dense<[-432, 864]> : tensor<2xi32>
// CHECK-DAG: %[[Z:.*]] = lathe.constant dense<3> : tensor<ui8>
// CHECK: %[[P:.*]] = lathe.pad %arg0, %[[Z]]
// CHECK-SAME: -> tensor<1x6x6x16xui8>
// CHECK: %[[I:.*]] = lathe.conv %[[P]], %{{.*}} pads = array<i64: 0, 0, 0, 0>{{.*}} : (tensor<1x6x6x16xui8>, tensor<2x16x3x3xi8>) -> tensor<1x4x4x2xi32>
// CHECK: lathe.sub %[[I]], %[[E]]
// CHECK: lathe.conv %arg1, %{{.*}} pads = array<i64: 1, 1, 1, 1>{{.*}} : (tensor<1x4x4x16xi8>, tensor<2x16x3x3xi8>) -> tensor<1x4x4x2xi32>
// CHECK-NOT: lathe.sub
// CHECK: lathe.cast {{.*}} -> tensor<1x4x4x2xf16>
// REMARK: 8-bit operands are convolved as they are
// REMARK: 8-bit operands are dequantized before the convolution: the channels of a pixel are no whole pieces of 16 bytes
module attributes {lathe.target = "sm_90a"} {
  func.func @tensor_cores(%a: tensor<1x4x4x16xui8>, %b: tensor<1x4x4x16xi8>, %c: tensor<1x4x4x8xui8>) -> (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf16>, tensor<1x4x4x2xf32>) {
    %za = lathe.constant dense<3.0> : tensor<f32>
    %sa = lathe.constant dense<0.5> : tensor<f32>
    %sh = lathe.constant dense<0.5> : tensor<f16>
    %sw = lathe.constant dense<[[[[0.25]]], [[[1.0]]]]> : tensor<2x1x1x1xf32>
    %w = lathe.constant dense<[[[[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]]], [[[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]], [[2, 2, 2], [2, 2, 2], [2, 2, 2]]]]> : tensor<2x16x3x3xi8>
    %v = lathe.constant dense<1> : tensor<2x8x3x3xi8>
    %x = lathe.dequantize %a scale(%sa) zero(%za) : (tensor<1x4x4x16xui8>, tensor<f32>, tensor<f32>) -> tensor<1x4x4x16xf32>
    %wf = lathe.dequantize %w scale(%sw) : (tensor<2x16x3x3xi8>, tensor<2x1x1x1xf32>) -> tensor<2x16x3x3xf32>
    %0 = lathe.conv %x, %wf {dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x4x4x16xf32>, tensor<2x16x3x3xf32>) -> tensor<1x4x4x2xf32>
    %h = lathe.dequantize %b scale(%sh) : (tensor<1x4x4x16xi8>, tensor<f16>) -> tensor<1x4x4x16xf16>
    %wh = lathe.dequantize %w scale(%sh) : (tensor<2x16x3x3xi8>, tensor<f16>) -> tensor<2x16x3x3xf16>
    %1 = lathe.conv %h, %wh {dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x4x4x16xf16>, tensor<2x16x3x3xf16>) -> tensor<1x4x4x2xf16>
    %y = lathe.dequantize %c scale(%sa) : (tensor<1x4x4x8xui8>, tensor<f32>) -> tensor<1x4x4x8xf32>
    %vf = lathe.dequantize %v scale(%sa) : (tensor<2x8x3x3xi8>, tensor<f32>) -> tensor<2x8x3x3xf32>
    %2 = lathe.conv %y, %vf {dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x4x4x8xf32>, tensor<2x8x3x3xf32>) -> tensor<1x4x4x2xf32>
    return %0, %1, %2 : tensor<1x4x4x2xf32>, tensor<1x4x4x2xf16>, tensor<1x4x4x2xf32>
  }
}

// -----

// A ReLU in front of unsigned codes with zero point 0 goes, for codes begin there; in front of signed ones it stays.
// CHECK-LABEL: func.func @bounded
// CHECK-NOT: lathe.max
// CHECK: lathe.quantize {{.*}} -> tensor<1x4x4x2xui8>
// CHECK: lathe.max
// CHECK: lathe.quantize {{.*}} -> tensor<1x4x4x2xi8>
module attributes {lathe.target = "sm_90a"} {
  func.func @bounded(%a: tensor<1x4x4x16xui8>) -> (tensor<1x4x4x2xui8>, tensor<1x4x4x2xi8>) {
    %s = lathe.constant dense<0.5> : tensor<f32>
    %n = lathe.constant dense<0.0> : tensor<f32>
    %w = lathe.constant dense<"0x00070E151C232A31383F464D545B62697077060D141B222930373E454C535A61686F76050C131A21282F363D444B525960676E75040B121920272E353C434A51585F666D74030A11181F262D343B424950575E656C73020910171E252C333A41484F565D646B7201080F161D242B323940474E555C636A7100070E151C232A31383F464D545B62697077060D141B222930373E454C535A61686F76050C131A21282F363D444B525960676E75040B121920272E353C434A51585F666D74030A11181F262D343B424950575E656C73020910171E252C333A41484F565D646B7201080F161D242B323940474E555C636A7100070E151C232A31383F464D545B62697077060D141B222930373E454C535A61686F76050C131A21282F363D444B5259"> : tensor<2x16x3x3xi8>
    %x = lathe.dequantize %a scale(%s) : (tensor<1x4x4x16xui8>, tensor<f32>) -> tensor<1x4x4x16xf32>
    %f = lathe.dequantize %w scale(%s) : (tensor<2x16x3x3xi8>, tensor<f32>) -> tensor<2x16x3x3xf32>
    %0 = lathe.conv %x, %f {dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x4x4x16xf32>, tensor<2x16x3x3xf32>) -> tensor<1x4x4x2xf32>
    %1 = lathe.max %0, %n : (tensor<1x4x4x2xf32>, tensor<f32>) -> tensor<1x4x4x2xf32>
    %2 = lathe.quantize %1 scale(%s) : (tensor<1x4x4x2xf32>, tensor<f32>) -> tensor<1x4x4x2xui8>
    %3 = lathe.conv %x, %f {dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x4x4x16xf32>, tensor<2x16x3x3xf32>) -> tensor<1x4x4x2xf32>
    %4 = lathe.max %3, %n : (tensor<1x4x4x2xf32>, tensor<f32>) -> tensor<1x4x4x2xf32>
    %5 = lathe.quantize %4 scale(%s) : (tensor<1x4x4x2xf32>, tensor<f32>) -> tensor<1x4x4x2xi8>
    return %2, %5 : tensor<1x4x4x2xui8>, tensor<1x4x4x2xi8>
  }
}
