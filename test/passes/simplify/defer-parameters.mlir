// RUN: %lathe-opt --lathe-defer-parameters --split-input-file --verify-diagnostics %s | FileCheck %s

// CHECK: func.func @main(%arg0: tensor<?x4xf32, #lathe.t<[N, 4]>> {lathe.name = "x"}, %arg1: tensor<2xf32> {lathe.name = "scale"})
// CHECK: %[[W:.*]] = lathe.constant #lathe.weight<"parameter:w", 0, 32, "0000{{.*}}"> : tensor<4x2xf32>
// CHECK: lathe.matmul %arg0, %[[W]]
// CHECK: func.func @prepare(%arg0: tensor<4x2xf32> {lathe.name = "w"}, %arg1: tensor<2xf32> {lathe.name = "b"}) attributes {lathe.entry, lathe.prepare}
// CHECK-NEXT: return
module attributes {lathe.options = {parameters = ["w", "b"], targets = ["x86-64-v3"]}} {
  lathe.symbol @N {min = 1, max = 64, opt = 8, multiple_of = 1, origin = "x[0]"}
  func.func @main(%x: tensor<?x4xf32, #lathe.t<[N, 4]>> {lathe.name = "x"}, %w: tensor<4x2xf32> {lathe.name = "w"}, %scale: tensor<2xf32> {lathe.name = "scale"}, %b: tensor<2xf32> {lathe.name = "b"}) -> (tensor<?x2xf32, #lathe.t<[N, 2]>> {lathe.name = "y"}) attributes {lathe.entry} {
    %0 = lathe.matmul %x, %w : (tensor<?x4xf32, #lathe.t<[N, 4]>>, tensor<4x2xf32>) -> tensor<?x2xf32, #lathe.t<[N, 2]>>
    %1 = lathe.mul %0, %scale : (tensor<?x2xf32, #lathe.t<[N, 2]>>, tensor<2xf32>) -> tensor<?x2xf32, #lathe.t<[N, 2]>>
    %2 = lathe.add %1, %b : (tensor<?x2xf32, #lathe.t<[N, 2]>>, tensor<2xf32>) -> tensor<?x2xf32, #lathe.t<[N, 2]>>
    return %2 : tensor<?x2xf32, #lathe.t<[N, 2]>>
  }
}

// -----

// Two entries of one graph share their parameters.
// CHECK-LABEL: func.func @one
// CHECK: lathe.constant #lathe.weight<"parameter:w"
// CHECK: func.func @two
// CHECK: lathe.constant #lathe.weight<"parameter:w"
// CHECK: func.func @prepare(%arg0: tensor<2xf32> {lathe.name = "w"}) attributes
module attributes {lathe.options = {parameters = ["w"]}} {
  func.func @one(%w: tensor<2xf32> {lathe.name = "w"}, %x: tensor<2xf32> {lathe.name = "x"}) -> tensor<2xf32> {
    %0 = lathe.add %w, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func @two(%w: tensor<2xf32> {lathe.name = "w"}, %x: tensor<2xf32> {lathe.name = "x"}) -> tensor<2xf32> {
    %0 = lathe.mul %w, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}

// -----

// expected-error @below {{parameter 'v': no input is called so}}
module attributes {lathe.options = {parameters = ["v"]}} {
  func.func @main(%w: tensor<2xf32> {lathe.name = "w"}) -> tensor<2xf32> {
    return %w : tensor<2xf32>
  }
}

// -----

module attributes {lathe.options = {parameters = ["x"]}} {
  lathe.symbol @N {min = 1, max = 64, opt = 8, multiple_of = 1, origin = "x[0]"}
  // expected-error @below {{parameter 'x': its size varies}}
  func.func @main(%x: tensor<?xf32, #lathe.t<[N]>> {lathe.name = "x"}) -> tensor<?xf32, #lathe.t<[N]>> {
    return %x : tensor<?xf32, #lathe.t<[N]>>
  }
}

// -----

// expected-error @below {{parameters are of CPUs; kernels of a GPU (sm_90a) read inputs as they lie}}
module attributes {lathe.options = {parameters = ["w"], targets = ["sm_90a"]}} {
  func.func @main(%w: tensor<2xf32> {lathe.name = "w"}) -> tensor<2xf32> {
    return %w : tensor<2xf32>
  }
}

// -----

module attributes {lathe.options = {donate = ["w=y"], parameters = ["w"]}} {
  // expected-error @below {{parameter 'w': it is donated, so each run changes it}}
  func.func @main(%w: tensor<2xf32> {lathe.name = "w"}) -> (tensor<2xf32> {lathe.name = "y"}) {
    return %w : tensor<2xf32>
  }
}

// -----

// expected-error @below {{an engine with parameters has an entry 'prepare' of its own}}
module attributes {lathe.options = {parameters = ["w"]}} {
  func.func @prepare(%w: tensor<2xf32> {lathe.name = "w"}) -> tensor<2xf32> {
    return %w : tensor<2xf32>
  }
}

// -----

// expected-error @below {{with parameters an engine is of one target: each packs in its own way}}
module attributes {lathe.options = {parameters = ["w"], targets = ["x86-64-v3", "x86-64-v4"]}} {
  func.func @main(%w: tensor<2xf32> {lathe.name = "w"}) -> tensor<2xf32> {
    return %w : tensor<2xf32>
  }
}
