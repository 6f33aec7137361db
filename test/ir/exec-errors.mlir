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

// -----

exec.program @p {
  %0 = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<4xf32>
  %1 = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<4xf32>
  // expected-error @below {{waits for event 0, which no earlier step signals}}
  exec.copy %0 to %1 {exec.stream = 1 : i64, exec.waits = array<i64: 0>} : tensor<4xf32>, tensor<4xf32>
}

// -----

exec.program @p {
  %0 = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<4xf32>
  %1 = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<4xf32>
  exec.copy %0 to %1 {exec.signal = 0 : i64} : tensor<4xf32>, tensor<4xf32>
  // expected-error @below {{signals event 0 again}}
  exec.copy %0 to %1 {exec.signal = 0 : i64} : tensor<4xf32>, tensor<4xf32>
}

// -----

exec.program @p {
  %0 = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<4xf32>
  %1 = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<4xf32>
  // expected-error @below {{'exec.stream' must be an i64 that is not negative}}
  exec.copy %0 to %1 {exec.stream = "two"} : tensor<4xf32>, tensor<4xf32>
}

// -----

exec.program @p {
  %0 = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<4xf32>
  %1 = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<4xf32>
  // expected-error @below {{'exec.waits' must be an array<i64>}}
  exec.copy %0 to %1 {exec.waits = 3 : i64} : tensor<4xf32>, tensor<4xf32>
}

// -----

exec.program @p {
  %0 = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<4xf32>
  %1 = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<4xf32>
  %c = exec.buffer "c" {kind = #exec.kind<host>, on_host} : tensor<i1>
  exec.copy %0 to %1 {exec.stream = 1 : i64} : tensor<4xf32>, tensor<4xf32>
  // expected-error @below {{the host takes part in a program of several streams}}
  exec.if %c : tensor<i1>
  exec.else
  exec.end_if
}
