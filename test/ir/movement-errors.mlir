// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @iota_c1() {
  // expected-error @+1 {{iota_c1: axis is outside the rank}}
  %0 = lathe.iota {axis = 1 : i64} : () -> tensor<4xi64>
  return
}

// -----

func.func @dim_value_c1() {
  // expected-error @+1 {{dim_value_c1: 1 expressions for 'tensor<2xi64>'}}
  %0 = lathe.dim_value {dims = [#lathe.dim<B>]} : () -> tensor<2xi64>
  return
}

// -----

func.func @dim_from_c1(%x: tensor<3xi64>) {
  // expected-error @+1 {{dim_from_c1: 1 symbols for 'tensor<3xi64>'}}
  %0 = lathe.dim_from %x {symbols = ["a"]} : (tensor<3xi64>) -> tensor<3xi64>
  return
}

// -----

func.func @dim_from_c2(%x: tensor<1xf32>) {
  // expected-error @+1 {{dim_from_c2: elements are not integers}}
  %0 = lathe.dim_from %x {symbols = ["a"]} : (tensor<1xf32>) -> tensor<1xf32>
  return
}

// -----

func.func @bind_dims_c1(%x: tensor<1xf32>) {
  // expected-error @+1 {{bind_dims_c1: rank or element type differ}}
  %0 = lathe.bind_dims %x : (tensor<1xf32>) -> tensor<1x1xf32>
  return
}

// -----

func.func @transpose_c1(%x: tensor<2x3xf32>) {
  // expected-error @+2 {{transpose_c1: perm is not a permutation}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.transpose %x {perm = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @reshape_c1(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{reshape_c1: 6 elements into 8}}
  %0 = lathe.reshape %x : (tensor<2x3xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @reshape_c2(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{reshape_c2: element types differ}}
  %0 = lathe.reshape %x : (tensor<2x3xf32>) -> tensor<6xi32>
  return
}

// -----

func.func @broadcast_to_c1(%x: tensor<2xf32>) {
  // expected-error @+1 {{broadcast_to_c1: size 2 into 3}}
  %0 = lathe.broadcast_to %x : (tensor<2xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @broadcast_to_c2(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{broadcast_to_c2: rank grows and the element type stays}}
  %0 = lathe.broadcast_to %x : (tensor<2x2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @slice_c1(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{slice_c1: one start, step and size for each of 2 dimensions}}
  %0 = lathe.slice %x {starts = [#lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @slice_c2(%x: tensor<2xf32>) {
  // expected-error @+1 {{slice_c2: a step is 0}}
  %0 = lathe.slice %x {starts = [#lathe.dim<0>], steps = array<i64: 0>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @concat_c1(%x: tensor<2xf32>, %y: tensor<2xi32>) {
  // expected-error @+2 {{concat_c1: ranks or element types differ}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.concat %x, %y {axis = 0 : i64} : (tensor<2xf32>, tensor<2xi32>) -> tensor<4xf32>
  return
}

// -----

func.func @concat_c2(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) {
  // expected-error @+2 {{concat_c2: sizes 3 and 4 of dimension 1 differ}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.concat %x, %y {axis = 0 : i64} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @concat_c3(%x: tensor<2xf32>) {
  // expected-error @+2 {{concat_c3: axis is outside the rank}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.concat %x, %x {axis = 1 : i64} : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pad_c1(%x: tensor<2xf32>) {
  // expected-error @+1 {{pad_c1: one low and one high amount for each of 1 dimensions}}
  %0 = lathe.pad %x {low = [], high = [#lathe.dim<0>], mode = #lathe.pad_mode<edge>} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @pad_c2(%x: tensor<2xf32>) {
  // expected-error @+1 {{pad_c2: size 4 of dimension 0 is not 3}}
  %0 = lathe.pad %x {low = [#lathe.dim<1>], high = [#lathe.dim<0>], mode = #lathe.pad_mode<edge>} : (tensor<2xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @gather_c1(%x: tensor<2xf32>, %i: tensor<2xi64>) {
  // expected-error @+2 {{gather_c1: axis is outside the rank}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.gather %x, %i {axis = 1 : i64} : (tensor<2xf32>, tensor<2xi64>) -> tensor<2xf32>
  return
}

// -----

func.func @gather_elements_c1(%x: tensor<2xf32>, %i: tensor<2x2xi64>) {
  // expected-error @+2 {{gather_elements_c1: ranks are equal and axis is inside}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.gather_elements %x, %i {axis = 0 : i64} : (tensor<2xf32>, tensor<2x2xi64>) -> tensor<2x2xf32>
  return
}

// -----

func.func @gather_nd_c1(%x: tensor<2xf32>, %i: tensor<2x2xi64>) {
  // expected-error @+2 {{gather_nd_c1: the last size of indices is a constant that fits}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.gather_nd %x, %i {batch_dims = 0 : i64} : (tensor<2xf32>, tensor<2x2xi64>) -> tensor<2xf32>
  return
}

// -----

func.func @scatter_elements_c1(%x: tensor<2xf32>, %i: tensor<2xi64>, %u: tensor<3xf32>) {
  // expected-error @+2 {{scatter_elements_c1: ranks are equal, indices and updates alike}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.scatter_elements %x, %i, %u {axis = 0 : i64} : (tensor<2xf32>, tensor<2xi64>, tensor<3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @scatter_nd_c1(%x: tensor<2xf32>, %i: tensor<2x2xi64>, %u: tensor<2xf32>) {
  // expected-error @+2 {{scatter_nd_c1: the last size of indices is a constant that fits}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.scatter_nd %x, %i, %u : (tensor<2xf32>, tensor<2x2xi64>, tensor<2xf32>) -> tensor<2xf32>
  return
}
