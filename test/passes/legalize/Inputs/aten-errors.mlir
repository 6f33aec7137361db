func.func @main(%x: tensor<2x6xf32> {lathe.name = "x"}) -> (tensor<2x6xf32>, tensor<2x5xf32>, none, tensor<2x6xf32>, tensor<2x6xf32>) attributes {lathe.entry} {
  %0 = "aten.nobody_knows"(%x) : (tensor<2x6xf32>) -> tensor<2x6xf32> loc("model/nobody_knows")
  %after = "aten.relu"(%0) : (tensor<2x6xf32>) -> tensor<2x6xf32> loc("model/after")
  %1 = "aten.relu"(%x) : (tensor<2x6xf32>) -> tensor<2x5xf32> loc("model/relu")
  %2 = "aten.fft"(%x) {unsupported = "tensors of complex64"} : (tensor<2x6xf32>) -> none loc("model/complex")
  %3 = "aten.dropout"(%x) {p = 5.0e-1 : f64, train = true} : (tensor<2x6xf32>) -> tensor<2x6xf32> loc("model/dropout")
  %4 = "aten.layer_norm"(%x, %x) {normalized_shape = array<i64: 6>, eps = 1.0e-5 : f64} : (tensor<2x6xf32>, tensor<2x6xf32>) -> tensor<2x6xf32> loc("model/norm")
  return %after, %1, %2, %3, %4 : tensor<2x6xf32>, tensor<2x5xf32>, none, tensor<2x6xf32>, tensor<2x6xf32>
}
