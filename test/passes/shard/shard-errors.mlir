// RUN: %lathe-opt --lathe-shard --split-input-file --verify-diagnostics %s

module attributes {lathe.options = {mesh = ["tp=2"], shard = ["nobody=dim:1"]}} {
  // expected-error @below {{usage: --shard nobody=dim:1: no weight or node is called 'nobody'}}
  func.func @unknown(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = lathe.tanh %x : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("t")
    return %0 : tensor<4x8xf32>
  }
}

// -----

module attributes {lathe.options = {mesh = ["tp=2"], shard = ["t=dim:2"]}} {
  // expected-error @below {{usage: --shard t=dim:2: cannot hold: no way to run lathe.tanh of node 't' on 2 ranks has it so}}
  func.func @dimension(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = lathe.tanh %x : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("t")
    return %0 : tensor<4x8xf32>
  }
}
