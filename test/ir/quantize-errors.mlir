// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @dequantize_c1(%q: tensor<4x8xi8>, %s: tensor<4x1xf32>) {
  // expected-error @+1 {{dequantize_c1: block is not a positive number a dimension}}
  %0 = lathe.dequantize %q scale(%s) {block = array<i64: 8>} : (tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c1_zero(%q: tensor<4x8xi8>, %s: tensor<4x1xf32>) {
  // expected-error @+1 {{dequantize_c1: block is not a positive number a dimension}}
  %0 = lathe.dequantize %q scale(%s) {block = array<i64: 1, 0>} : (tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c2(%q: tensor<4x8xi8>, %s: tensor<4x3xf32>) {
  // expected-error @+1 {{dequantize_c2: 'tensor<4x3xf32>' does not have an element a block}}
  %0 = lathe.dequantize %q scale(%s) {block = array<i64: 1, 4>} : (tensor<4x8xi8>, tensor<4x3xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c2_broadcast(%q: tensor<4x8xi8>, %s: tensor<4xf32>) {
  // expected-error @+1 {{dequantize_c2: the operands do not broadcast}}
  %0 = lathe.dequantize %q scale(%s) : (tensor<4x8xi8>, tensor<4xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c3(%q: tensor<4x8xi8>, %o: tensor<f32>) {
  // expected-error @+1 {{dequantize_c3: the outer scale is not one float beside a scale}}
  %0 = lathe.dequantize %q outer(%o) : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c4(%q: tensor<4x8xi4>, %c: tensor<15xf32>) {
  // expected-error @+1 {{dequantize_c4: the codebook does not have a float for each code}}
  %0 = lathe.dequantize %q codebook(%c) : (tensor<4x8xi4>, tensor<15xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c5(%q: tensor<4x8xi8>, %s: tensor<f32>) {
  // expected-error @+1 {{dequantize_c5: scale or result is no float}}
  %0 = lathe.dequantize %q scale(%s) : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xi32>
  return
}

// -----

func.func @quantize_c3(%x: tensor<4x8xf32>, %s: tensor<f8E8M0FNU>) {
  // expected-error @+1 {{quantize_c3: the scale is no float of 16 bits or more}}
  %0 = lathe.quantize %x scale(%s) : (tensor<4x8xf32>, tensor<f8E8M0FNU>) -> tensor<4x8xi8>
  return
}

// -----

func.func @quantize_c4(%x: tensor<4x8xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{quantize_c4: the result is no integer, nor a float without a zero point}}
  %0 = lathe.quantize %x scale(%s) zero(%s) : (tensor<4x8xf32>, tensor<f32>, tensor<f32>) -> tensor<4x8xf8E4M3FN>
  return
}
