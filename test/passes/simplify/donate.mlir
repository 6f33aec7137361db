// RUN: %lathe-opt --lathe-donate --split-input-file --verify-diagnostics %s | FileCheck %s

// CHECK: lathe.state @past
// CHECK-SAME: axis = 1 : i64, input = "past", length = "P", output = "present"
// CHECK-SAME: type = tensor<2x32xf32>
// CHECK: func.func @main(%arg0: tensor<2x1xf32> {lathe.name = "new"}) -> (tensor<2x1xf32> {lathe.name = "y"})
// CHECK-NOT: lathe.state_read
// CHECK: %[[P:.*]] = lathe.state_append @past, %arg0 : (tensor<2x1xf32>) -> tensor<2x?xf32, #lathe.t<[2, P + 1], layout = #lathe.phys<[2, 32]>>>
// Other readers than attention see a dense view.
// CHECK: %[[V:.*]] = lathe.reshape %[[P]]
// CHECK: lathe.slice %[[V]]
module attributes {lathe.options = {donate = ["past=present"]}} {
  lathe.symbol @P {min = 0, max = 32, opt = 8, multiple_of = 1, origin = "past[1]"}
  func.func @main(%past: tensor<2x?xf32, #lathe.t<[2, P]>> {lathe.name = "past"}, %new: tensor<2x1xf32> {lathe.name = "new"}) -> (tensor<2x?xf32, #lathe.t<[2, P + 1]>> {lathe.name = "present"}, tensor<2x1xf32> {lathe.name = "y"}) {
    %p = lathe.concat %past, %new {axis = 1 : i64} : (tensor<2x?xf32, #lathe.t<[2, P]>>, tensor<2x1xf32>) -> tensor<2x?xf32, #lathe.t<[2, P + 1]>>
    %0 = lathe.slice %p {starts = [#lathe.dim<0>, #lathe.dim<P>], steps = array<i64: 1, 1>} : (tensor<2x?xf32, #lathe.t<[2, P + 1]>>) -> tensor<2x1xf32>
    return %p, %0 : tensor<2x?xf32, #lathe.t<[2, P + 1]>>, tensor<2x1xf32>
  }
}

// -----

module attributes {lathe.options = {donate = ["past=present"]}} {
  lathe.symbol @P {min = 0, max = -1, opt = 8, multiple_of = 1, origin = "past[1]"}
  // expected-error @below {{the capacity is the upper bound of 'P', which has none}}
  func.func @main(%past: tensor<2x?xf32, #lathe.t<[2, P]>> {lathe.name = "past"}, %new: tensor<2x1xf32>) -> (tensor<2x?xf32, #lathe.t<[2, P + 1]>> {lathe.name = "present"}) {
    %p = lathe.concat %past, %new {axis = 1 : i64} : (tensor<2x?xf32, #lathe.t<[2, P]>>, tensor<2x1xf32>) -> tensor<2x?xf32, #lathe.t<[2, P + 1]>>
    return %p : tensor<2x?xf32, #lathe.t<[2, P + 1]>>
  }
}

// -----

module attributes {lathe.options = {donate = ["past=present"]}} {
  lathe.symbol @P {min = 0, max = 32, opt = 8, multiple_of = 1, origin = "past[1]"}
  // expected-error @below {{is not the input followed by something new}}
  func.func @main(%past: tensor<2x?xf32, #lathe.t<[2, P]>> {lathe.name = "past"}, %new: tensor<2x1xf32>) -> (tensor<2x?xf32, #lathe.t<[2, P + 1]>> {lathe.name = "present"}) {
    %p = lathe.concat %new, %past {axis = 1 : i64} : (tensor<2x1xf32>, tensor<2x?xf32, #lathe.t<[2, P]>>) -> tensor<2x?xf32, #lathe.t<[2, P + 1]>>
    return %p : tensor<2x?xf32, #lathe.t<[2, P + 1]>>
  }
}

// -----

module attributes {lathe.options = {donate = ["past=nothing"]}} {
  // expected-error @below {{has no such output}}
  func.func @main(%past: tensor<2xf32> {lathe.name = "past"}) -> (tensor<2xf32> {lathe.name = "present"}) {
    return %past : tensor<2xf32>
  }
}

// -----

// An input of the output's sizes stays the caller's.
// CHECK: donate = ["pool=next"]
// CHECK-NOT: lathe.state
// CHECK: func.func @main(%arg0: tensor<8x4xf32> {lathe.donated_to = "next", lathe.name = "pool"}, %arg1
module attributes {lathe.options = {donate = ["pool=next"]}} {
  func.func @main(%pool: tensor<8x4xf32> {lathe.name = "pool"}, %i: tensor<2x1xi64> {lathe.name = "i"}, %u: tensor<2x4xf32> {lathe.name = "u"}) -> (tensor<8x4xf32> {lathe.name = "next"}) {
    %0 = lathe.scatter_nd %pool, %i, %u : (tensor<8x4xf32>, tensor<2x1xi64>, tensor<2x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}

// -----

// expected-error @below {{types differ, and no entry has a symbolic dimension that the output extends}}
module attributes {lathe.options = {donate = ["pool=next"]}} {
  func.func @main(%pool: tensor<8x4xf32> {lathe.name = "pool"}) -> (tensor<8x4xf16> {lathe.name = "next"}) {
    %0 = lathe.cast %pool : (tensor<8x4xf32>) -> tensor<8x4xf16>
    return %0 : tensor<8x4xf16>
  }
}

// -----

// What is a state without axis is marked, and stays an input and an output up to plan.
// CHECK: lathe.state @calls {axis = -1 : i64
// CHECK: func.func @main(%arg0: tensor<2xf32> {lathe.name = "x"}, %arg1: tensor<2xf32> {lathe.donated_to = "calls.next", lathe.name = "calls", lathe.state = @calls})
// CHECK-SAME: -> (tensor<2xf32> {lathe.name = "calls.next", lathe.state = @calls}, tensor<2xf32> {lathe.name = "y"})
module {
  lathe.state @calls {type = tensor<2xf32>, axis = -1 : i64, length = "", input = "calls", output = "calls.next", lathe.initial = dense<1.0> : tensor<2xf32>}
  func.func @main(%x: tensor<2xf32> {lathe.name = "x"}, %calls: tensor<2xf32> {lathe.name = "calls"}) -> (tensor<2xf32> {lathe.name = "calls.next"}, tensor<2xf32> {lathe.name = "y"}) {
    %0 = lathe.add %calls, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %0, %calls : tensor<2xf32>, tensor<2xf32>
  }
}

// -----

module {
  // expected-error @below {{entry 'main' has no output 'next'}}
  lathe.state @calls {type = tensor<2xf32>, axis = -1 : i64, length = "", input = "calls", output = "next"}
  func.func @main(%calls: tensor<2xf32> {lathe.name = "calls"}) -> (tensor<2xf32> {lathe.name = "y"}) {
    return %calls : tensor<2xf32>
  }
}

// -----

module {
  // expected-error @below {{entry 'main' has it with another type}}
  lathe.state @calls {type = tensor<3xf32>, axis = -1 : i64, length = "", input = "calls", output = "y"}
  func.func @main(%calls: tensor<2xf32> {lathe.name = "calls"}) -> (tensor<2xf32> {lathe.name = "y"}) {
    return %calls : tensor<2xf32>
  }
}
