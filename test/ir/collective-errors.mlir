// RUN: %lathe-opt --split-input-file --verify-diagnostics %s

func.func @ranks(%x: tensor<4xf32>) {
  // expected-error @+2 {{all_reduce_c1: ranks is not positive}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.all_reduce %x {kind = #lathe.reduce_kind<sum>, ranks = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @dim(%x: tensor<4xf32>) {
  // expected-error @+2 {{all_gather_c1: dim is outside the rank, or ranks is not positive}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.all_gather %x {dim = 1 : i64, ranks = 2 : i64} : (tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @scatter(%x: tensor<4xf32>) {
  // expected-error @+2 {{reduce_scatter_c1: dim is outside the rank, or ranks is not positive}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.reduce_scatter %x {kind = #lathe.reduce_kind<sum>, dim = -1 : i64, ranks = 2 : i64} : (tensor<4xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @parts(%x: tensor<5xf32>) {
  // expected-error @+2 {{reduce_scatter_c2: 5 elements for 2 ranks}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.reduce_scatter %x {kind = #lathe.reduce_kind<sum>, dim = 0 : i64, ranks = 2 : i64} : (tensor<5xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @blocks() {
  // expected-error @below {{blocks of a sharded constant have 4 elements, it has 5}}
  %0 = lathe.constant #lathe.sharded<0, 2, [4], dense<[1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<5xf32>> : tensor<2xf32>
  return
}

// -----

func.func @part() {
  // expected-error @below {{the type of a sharded constant is not that of a part}}
  %0 = lathe.constant #lathe.sharded<0, 2, [5], dense<[1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<5xf32>> : tensor<2xf32>
  return
}
