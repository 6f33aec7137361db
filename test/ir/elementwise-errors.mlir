// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @broadcast_c1(%a: tensor<3xf32>, %b: tensor<4xf32>) {
  // expected-error @+2 {{broadcast_c1: shapes of 'tensor<3xf32>' and 'tensor<4xf32>' do not broadcast}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.add %a, %b : (tensor<3xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @broadcast_c2(%a: tensor<3xf32>, %b: tensor<3xi32>) {
  // expected-error @+2 {{broadcast_c2: element types 'f32' and 'i32' differ}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.mul %a, %b : (tensor<3xf32>, tensor<3xi32>) -> tensor<3xf32>
  return
}

// -----

func.func @result(%a: tensor<?xf32, #lathe.t<[B]>>) {
  // expected-error @+2 {{inferred type(s)}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.add %a, %a : (tensor<?xf32, #lathe.t<[B]>>, tensor<?xf32, #lathe.t<[B]>>) -> tensor<?xf32, #lathe.t<[C]>>
  return
}

// -----

func.func @select_c1(%c: tensor<3xi32>, %a: tensor<3xf32>) {
  // expected-error @+2 {{select_c1: the condition's elements are not i1}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.select %c, %a, %a : (tensor<3xi32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @cast_c1(%a: tensor<3xf32>) {
  // expected-error @+1 {{cast_c1: sizes of 'tensor<3xf32>' and 'tensor<4xi32>' differ}}
  %0 = lathe.cast %a : (tensor<3xf32>) -> tensor<4xi32>
  return
}

// -----

func.func @bitcast_c1(%a: tensor<3xf32>) {
  // expected-error @+1 {{bitcast_c1: element widths differ}}
  %0 = lathe.bitcast %a : (tensor<3xf32>) -> tensor<3xi64>
  return
}

// -----

func.func @bitcast_c2(%a: tensor<3xf32>) {
  // expected-error @+1 {{bitcast_c2: sizes differ}}
  %0 = lathe.bitcast %a : (tensor<3xf32>) -> tensor<2xi32>
  return
}

// -----

func.func @random_bits_c1(%a: tensor<3xi64>) {
  // expected-error @+1 {{random_bits_c1: operands are not ui64}}
  %0 = lathe.random_bits %a, %a, %a {stream = 0 : i64} : (tensor<3xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
  return
}

// -----

func.func @random_bits_c2(%a: tensor<3xui64>) {
  // expected-error @+1 {{random_bits_c2: the stream is not in [0, 2^32)}}
  %0 = lathe.random_bits %a, %a, %a {stream = 4294967296 : i64} : (tensor<3xui64>, tensor<3xui64>, tensor<3xui64>) -> tensor<3xui64>
  return
}
