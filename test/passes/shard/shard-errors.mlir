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

// -----

module attributes {lathe.options = {mesh = ["tp=2"], "rank-memory" = ["1000"]}} {
  // expected-error @below {{usage: --rank-memory: a rank has 1000 bytes, and no division of entry 'large' that fits was found}}
  func.func @large(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %c = lathe.constant dense<2.0> : tensor<256x256xf32>
    %0 = lathe.add %x, %c : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %0 : tensor<256x256xf32>
  }
}
