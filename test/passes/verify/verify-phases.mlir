// RUN: %lathe-opt --lathe-verify-legalized --split-input-file --verify-diagnostics %s

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{is left after legalize}}
  %0 = "onnx.Foo"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<?xf32, #lathe.t<[B]>>) -> tensor<?xf32, #lathe.t<[B]>> {
  // expected-error @below {{the size 'B' is not declared}}
  %0 = lathe.exp %x : (tensor<?xf32, #lathe.t<[B]>>) -> tensor<?xf32, #lathe.t<[B]>>
  return %0 : tensor<?xf32, #lathe.t<[B]>>
}
