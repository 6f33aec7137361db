// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @f(%i: tensor<i64>) {
  // expected-error @+1 {{loop_begin_c1: results are not those of the operands' types}}
  %k = lathe.loop_begin(%i) : tensor<i64> -> tensor<i32>
  return
}

// -----

func.func @f(%i: tensor<i64>, %n: tensor<i64>) {
  // expected-error @+1 {{loop_end_c1: the counter is no first result of a lathe.loop_begin}}
  %e = lathe.loop_end %i : tensor<i64> trips %n : tensor<i64> nexts(%i : tensor<i64>) rows() -> tensor<i64>
  return
}

// -----

func.func @f(%i: tensor<i64>, %n: tensor<i64>) {
  %k = lathe.loop_begin(%i) : tensor<i64> -> tensor<i64>
  // expected-error @+1 {{loop_end_c2: what is carried on has other types than what is carried}}
  lathe.loop_end %k : tensor<i64> trips %n : tensor<i64> nexts(%k, %k : tensor<i64>, tensor<i64>) rows() -> tensor<i64>
  return
}

// -----

func.func @f(%i: tensor<i64>) {
  %k = lathe.loop_begin(%i) : tensor<i64> -> tensor<i64>
  // expected-error @+1 {{loop_end_c3: it needs trips (i64) or a condition (i1), without dimensions}}
  %e = lathe.loop_end %k : tensor<i64> nexts(%k : tensor<i64>) rows() -> tensor<i64>
  return
}

// -----

func.func @f(%i: tensor<i64>, %n: tensor<i64>, %x: tensor<4xf32>) {
  %k = lathe.loop_begin(%i) : tensor<i64> -> tensor<i64>
  // expected-error @+1 {{loop_end_c4: rows need a number of trips that is known before the loop}}
  %e, %r = lathe.loop_end %k : tensor<i64> trips %n : tensor<i64> nexts(%k : tensor<i64>) rows(%x : tensor<4xf32>) -> tensor<i64>, tensor<8x4xf32>
  return
}

// -----

exec.program @p {
  // expected-error @+1 {{has no exec.loop that waits for it}}
  exec.end_loop
}

// -----

exec.program @p {
  %n = exec.buffer "n" {kind = #exec.kind<host>, on_host} : tensor<i64>
  // expected-error @+1 {{has no end}}
  exec.loop trips %n : tensor<i64>
}
