// RUN: %lathe-opt --split-input-file --verify-diagnostics %s

// expected-error @below {{exec_kernel_c2: a kernel needs a variant}}
exec.kernel @k attributes {kind = #lathe.kernel_kind<pointwise>, flops = #lathe.dim<4>, bytes = #lathe.dim<32>, variants = []} {
^bb0(%x: tensor<4xf32>):
  lathe.yield %x : tensor<4xf32>
}

// -----

// expected-error @below {{exec_kernel_c2: the last guard must be empty}}
exec.kernel @k attributes {kind = #lathe.kernel_kind<pointwise>, flops = #lathe.dim<4>, bytes = #lathe.dim<32>, variants = [{guard = "M <= 1", spec = ""}]} {
^bb0(%x: tensor<4xf32>):
  lathe.yield %x : tensor<4xf32>
}

// -----

// expected-error @below {{exec_kernel_c3: the spec has 2 inputs and 0 outputs, the region 1 and 1}}
exec.kernel @k attributes {kind = #lathe.kernel_kind<pointwise>, flops = #lathe.dim<4>, bytes = #lathe.dim<32>, variants = [{guard = "", spec = "config \22c\22\0Abuffer in read f32 [4] align 64\0Abuffer in read f32 [4] align 64\0A"}]} {
^bb0(%x: tensor<4xf32>):
  lathe.yield %x : tensor<4xf32>
}

// -----

exec.program @p {
  // expected-error @below {{exec_buffer_c1: a view has a base}}
  %0 = exec.buffer "v" {kind = #exec.kind<view>} : tensor<4xf32>
}

// -----

exec.program @p {
  // expected-error @below {{exec_buffer_c2: a weight has a value}}
  %0 = exec.buffer "w" {kind = #exec.kind<weight>} : tensor<4xf32>
}

// -----

exec.program @p {
  // expected-error @below {{the condition must be one comparison}}
  exec.guard "B" {message = "", where = ""}
}

// -----

exec.program @p {
  // expected-error @below {{is no part of a program}}
  %0 = lathe.constant dense<1.0> : tensor<4xf32>
}
