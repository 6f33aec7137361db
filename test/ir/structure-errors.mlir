// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

// expected-error @+1 {{symbol_c1: bounds are not 0 <= min <= opt <= max}}
lathe.symbol @B {min = 2 : i64, max = 4 : i64, opt = 1 : i64, multiple_of = 1 : i64, origin = ""}

// -----

// expected-error @+1 {{symbol_c2: multiple_of is less than 1}}
lathe.symbol @B {min = 0 : i64, max = 4 : i64, opt = 1 : i64, multiple_of = 0 : i64, origin = ""}

// -----

// expected-error @+1 {{state_c1: type is not a ranked tensor}}
lathe.state @k {type = f32, axis = 0 : i64, length = "P", input = "k", output = "pk"}

// -----

// expected-error @+1 {{state_c2: axis is outside the rank}}
lathe.state @k {type = tensor<4xf32>, axis = 1 : i64, length = "P", input = "k", output = "pk"}

// -----

// expected-error @+1 {{state_c3: the capacity along the axis is not a constant}}
lathe.state @k {type = tensor<?xf32, #lathe.t<[B]>>, axis = 0 : i64, length = "P", input = "k", output = "pk"}

// -----

// expected-error @+1 {{state_c4: without axis it has neither a length nor sizes of the run}}
lathe.state @k {type = tensor<4xf32>, axis = -1 : i64, length = "P", input = "k", output = "pk"}

// -----

// expected-error @+1 {{state_c5: it begins as a value of another type}}
lathe.state @k {type = tensor<4xf32>, axis = -1 : i64, length = "", input = "k", output = "pk", lathe.initial = dense<0.0> : tensor<2xf32>}

// -----

func.func @kernel_c1(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c1: 0 block arguments for 1 inputs}}
  %0 = "lathe.kernel"(%a) <{name = "k", kind = #lathe.kernel_kind<pointwise>}> ({
    %c = lathe.constant dense<0.0> : tensor<4xf32>
    lathe.yield %c : tensor<4xf32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @kernel_c2(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c2: yields 'tensor<4xf32>' for a result of 'tensor<5xf32>'}}
  %0 = lathe.kernel "k" pointwise (%x = %a : tensor<4xf32>) -> (tensor<5xf32>) {
    lathe.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @kernel_c3(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c3: the last variant's guard is not empty}}
  %0 = lathe.kernel "k" pointwise (%x = %a : tensor<4xf32>) -> (tensor<4xf32>) attributes {variants = [{guard = "M <= 1", spec = ""}]} {
    lathe.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @kind(%a: tensor<4xf32>) {
  // expected-error @+1 {{unknown kind of kernel 'magic'}}
  %0 = lathe.kernel "k" magic (%x = %a : tensor<4xf32>) -> (tensor<4xf32>) {
    lathe.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @kernel_c4(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c4: the anchor is no structured op of the body}}
  %0 = lathe.kernel "k" gemm (%x = %a : tensor<4xf32>) -> (tensor<4xf32>) attributes {roles = #lathe.roles<anchor = 7>} {
    lathe.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @kernel_c4_operands(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c4: the anchor has 1 operands, not 2}}
  %0 = lathe.kernel "k" pointwise (%x = %a : tensor<4xf32>) -> (tensor<4xf32>) attributes {roles = #lathe.roles<anchor = 0, operands = [buffer 0, buffer 0]>} {
    %1 = lathe.neg %x : (tensor<4xf32>) -> tensor<4xf32>
    lathe.yield %1 : tensor<4xf32>
  }
  return
}

// -----

func.func @kernel_c4_input(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c4: an operand has no such input}}
  %0 = lathe.kernel "k" pointwise (%x = %a : tensor<4xf32>) -> (tensor<4xf32>) attributes {roles = #lathe.roles<anchor = 0, operands = [buffer 1]>} {
    %1 = lathe.neg %x : (tensor<4xf32>) -> tensor<4xf32>
    lathe.yield %1 : tensor<4xf32>
  }
  return
}

// -----

func.func @kernel_c4_mask(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c4: a mask of an anchor that is no attention}}
  %0 = lathe.kernel "k" pointwise (%x = %a : tensor<4xf32>) -> (tensor<4xf32>) attributes {roles = #lathe.roles<anchor = 0, key_mask>} {
    %1 = lathe.neg %x : (tensor<4xf32>) -> tensor<4xf32>
    lathe.yield %1 : tensor<4xf32>
  }
  return
}

// -----

func.func @kernel_c4_heads(%a: tensor<4xf32>) {
  // expected-error @+1 {{kernel_c4: a pair inside heads, or heads without one}}
  %0 = lathe.kernel "k" pointwise (%x = %a : tensor<4xf32>) -> (tensor<4xf32>) attributes {roles = #lathe.roles<anchor = 0, pair = neighbours>} {
    %1 = lathe.neg %x : (tensor<4xf32>) -> tensor<4xf32>
    lathe.yield %1 : tensor<4xf32>
  }
  return
}
