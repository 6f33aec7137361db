// RUN: %lathe-opt --lathe-fuse --lathe-place-states %s | FileCheck %s

module attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @P {min = 0, max = 32, opt = 8, multiple_of = 1, origin = "past[1]"}
  lathe.state @past {type = tensor<2x32xf32>, axis = 1 : i64, length = "P", input = "past", output = "present"}

  // The producer stores into the state.
  // CHECK-LABEL: @producer
  // CHECK: %[[K:.*]] = lathe.kernel "exp" pointwise {{.*}} -> (tensor<2x1xf32, #lathe.t<[2, 1], layout = #lathe.phys<[2, 32]>>>)
  // CHECK: lathe.state_append @past, %[[K]]
  func.func @producer(%x: tensor<2x1xf32>) {
    %0 = lathe.exp %x : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %1 = lathe.state_append @past, %0 : (tensor<2x1xf32>) -> tensor<2x?xf32, #lathe.t<[2, P + 1], layout = #lathe.phys<[2, 32]>>>
    return
  }
  // An input is copied.
  // CHECK-LABEL: @input
  // CHECK: %[[C:.*]] = lathe.kernel "copy" copy {{.*}} -> (tensor<2x1xf32, #lathe.t<[2, 1], layout = #lathe.phys<[2, 32]>>>)
  // CHECK: lathe.state_append @past, %[[C]]
  func.func @input(%x: tensor<2x1xf32>) {
    %1 = lathe.state_append @past, %x : (tensor<2x1xf32>) -> tensor<2x?xf32, #lathe.t<[2, P + 1], layout = #lathe.phys<[2, 32]>>>
    return
  }
}
