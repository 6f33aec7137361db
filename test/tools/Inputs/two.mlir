module {
  lathe.symbol @B {min = 0, max = 8, opt = 1, multiple_of = 1, origin = "x[0]"}
  func.func @first(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = lathe.matmul %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
  func.func @second(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = lathe.softmax %a {axis = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
