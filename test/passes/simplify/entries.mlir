// RUN: %lathe-opt --lathe-entries --split-input-file --verify-diagnostics %s | FileCheck %s

// CHECK-NOT: @main
// CHECK: func.func @prefill(%arg0: tensor<?xi64, #lathe.t<[S]>> {lathe.name = "ids"})
// CHECK: func.func @decode(%arg0: tensor<1xi64> {lathe.name = "ids"})
// CHECK: lathe.neg %arg0 : (tensor<1xi64>)
module attributes {lathe.options = {entries = ["prefill", "decode:S=1"]}} {
  lathe.symbol @S {min = 1, max = 64, opt = 8, multiple_of = 1, origin = "ids[0]"}
  func.func @main(%ids: tensor<?xi64, #lathe.t<[S]>> {lathe.name = "ids"}) -> tensor<?xi64, #lathe.t<[S]>> {
    %0 = lathe.neg %ids : (tensor<?xi64, #lathe.t<[S]>>) -> tensor<?xi64, #lathe.t<[S]>>
    return %0 : tensor<?xi64, #lathe.t<[S]>>
  }
}

// -----

// expected-error @below {{usage: entry 'decode:T=1': no dimension is called 'T'}}
module attributes {lathe.options = {entries = ["decode:T=1"]}} {
  lathe.symbol @S {min = 1, max = 64, opt = 8, multiple_of = 1, origin = "ids[0]"}
  func.func @main(%ids: tensor<?xi64, #lathe.t<[S]>>) -> tensor<?xi64, #lathe.t<[S]>> {
    return %ids : tensor<?xi64, #lathe.t<[S]>>
  }
}

// -----

// expected-error @below {{100 is outside the bounds of 'S'}}
module attributes {lathe.options = {entries = ["decode:S=100"]}} {
  lathe.symbol @S {min = 1, max = 64, opt = 8, multiple_of = 1, origin = "ids[0]"}
  func.func @main(%ids: tensor<?xi64, #lathe.t<[S]>>) -> tensor<?xi64, #lathe.t<[S]>> {
    return %ids : tensor<?xi64, #lathe.t<[S]>>
  }
}
