// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

// expected-error @+1 {{unknown function 'sqrt' in a dimension expression}}
func.func private @function(tensor<?xf32, #lathe.t<[sqrt(B, 2)]>>)

// -----

// expected-error @+1 {{floordiv takes two arguments}}
func.func private @arguments(tensor<?xf32, #lathe.t<[floordiv(B, 2, 3)]>>)

// -----

// expected-error @+1 {{unknown part 'strides' of #lathe.t}}
func.func private @part(tensor<?xf32, #lathe.t<[B], strides = 1>>)

// -----

// expected-error @+1 {{layout has 2 sizes for a tensor of rank 1}}
func.func private @layout(tensor<?xf32, #lathe.t<[B], layout = #lathe.phys<[B, 2]>>>)

// -----

func.func @bytes() {
  // expected-error @+1 {{weight has 12 bytes, its type 'tensor<4xf32>' needs 16}}
  %w = lathe.constant #lathe.weight<"model", 64, 12, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<4xf32>
  return
}

// -----

func.func @hash() {
  // expected-error @+1 {{a weight's hash is 64 hexadecimal digits}}
  %w = lathe.constant #lathe.weight<"model", 64, 16, "00"> : tensor<4xf32>
  return
}

// -----

func.func @offset() {
  // expected-error @+1 {{weight offset 4 is not a multiple of 64}}
  %w = lathe.constant #lathe.weight<"model", 4, 16, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{unknown role 'hero'}}
module attributes {test.roles = #lathe.roles<anchor = 0, hero = 1>} {}

// -----

// expected-error @+1 {{unknown storage 'moon' of an operand}}
module attributes {test.roles = #lathe.roles<anchor = 0, operands = [moon 1]>} {}
