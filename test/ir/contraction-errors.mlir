// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @reduce_c1(%x: tensor<2x3xf32>) {
  // expected-error @+2 {{reduce_c1: axes are not sorted, unique and inside the rank}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1, 0>, keepdims = false} : (tensor<2x3xf32>) -> tensor<f32>
  return
}

// -----

func.func @scan_c1(%x: tensor<2x3xf32>) {
  // expected-error @+2 {{scan_c1: axis is outside the rank}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.scan %x {kind = #lathe.reduce_kind<sum>, axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @softmax_c1(%x: tensor<2x3xf32>) {
  // expected-error @+2 {{softmax_c1: axis is outside the rank}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.softmax %x {axis = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @layer_norm_c1(%x: tensor<2x3xf32>) {
  // expected-error @+2 {{layer_norm_c1: axis is outside the rank}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.layer_norm %x, %x {axis = 2 : i64, epsilon = 1.0 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @rms_norm_c1(%x: tensor<2x3xf32>) {
  // expected-error @+2 {{rms_norm_c1: axis is outside the rank}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.rms_norm %x, %x {axis = 2 : i64, epsilon = 1.0 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @matmul_c1(%a: tensor<3xf32>, %b: tensor<3x4xf32>) {
  // expected-error @+2 {{matmul_c1: operands have ranks 1 and 2}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.matmul %a, %b : (tensor<3xf32>, tensor<3x4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @matmul_c2(%a: tensor<2x3xf32>, %b: tensor<4x4xf32>) {
  // expected-error @+2 {{matmul_c2: depth 3 against 4}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.matmul %a, %b : (tensor<2x3xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @matmul_c3(%a: tensor<2x2x3xf32>, %b: tensor<3x3x4xf32>) {
  // expected-error @+2 {{matmul_c3: batch dimensions do not broadcast}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.matmul %a, %b : (tensor<2x2x3xf32>, tensor<3x3x4xf32>) -> tensor<2x2x4xf32>
  return
}

// -----

func.func @conv_c1(%x: tensor<1x3x8xf32>, %w: tensor<4x3x3x3xf32>) {
  // expected-error @+2 {{conv_c1: ranks of input 3 and weights 4}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x3x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @conv_c2(%x: tensor<1x3x8xf32>, %w: tensor<4x2x3xf32>) {
  // expected-error @+2 {{conv_c2: 3 channels for weights of 2}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x3x8xf32>, tensor<4x2x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @conv_c3(%x: tensor<1x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @+2 {{conv_c3: attributes do not match 1 spatial dimensions}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x3x8xf32>, tensor<4x3x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @conv_c4(%x: tensor<1x6x8xf32>, %w: tensor<4x2x3xf32>) {
  // expected-error @+2 {{conv_c4: outputs are not divisible by the group}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, group = 3 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x6x8xf32>, tensor<4x2x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @conv_c5(%x: tensor<1x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @+2 {{conv_c5: window sizes are constants and strides positive}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.conv %x, %w {strides = array<i64: 0>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x3x8xf32>, tensor<4x3x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @pool_c1(%x: tensor<1x3x8xf32>) {
  // expected-error @+2 {{pool_c1: attributes do not match 1 spatial dimensions}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.pool %x {kind = #lathe.pool_kind<max>, kernel = array<i64: 3, 3>, strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<1x3x8xf32>) -> tensor<1x3x6xf32>
  return
}

// -----

func.func @pool_c2(%x: tensor<3x8xf32>) {
  // expected-error @+2 {{pool_c2: the input has rank 2}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.pool %x {kind = #lathe.pool_kind<max>, kernel = array<i64>, strides = array<i64>, pads = array<i64>, dilations = array<i64>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<3x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @pool_c3(%x: tensor<1x3x8xf32>) {
  // expected-error @+2 {{pool_c3: window sizes and strides are positive}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.pool %x {kind = #lathe.pool_kind<max>, kernel = array<i64: 3>, strides = array<i64: 0>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, ceil_mode = false, count_include_pad = false, layout = #lathe.conv_layout<nchw>} : (tensor<1x3x8xf32>) -> tensor<1x3x6xf32>
  return
}
