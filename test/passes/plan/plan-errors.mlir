// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --split-input-file --verify-diagnostics %s

module attributes {lathe.target = "x86-64-v3"} {
  // expected-error @below {{follows from none of its inputs}}
  lathe.symbol @B {min = 0, max = 64, opt = 16, multiple_of = 1, origin = "x[0]"}
  func.func @main(%x: tensor<?xf32, #lathe.t<[2*B]>>) -> tensor<?xf32, #lathe.t<[2*B]>> {
    %0 = lathe.exp %x : (tensor<?xf32, #lathe.t<[2*B]>>) -> tensor<?xf32, #lathe.t<[2*B]>>
    return %0 : tensor<?xf32, #lathe.t<[2*B]>>
  }
}
