// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @attention_c1(%q: tensor<8x4x32xf32>) {
  // expected-error @+2 {{attention_c1: q, k and v have rank 4}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q {scale = 1.0 : f64} : (tensor<8x4x32xf32>, tensor<8x4x32xf32>, tensor<8x4x32xf32>) -> tensor<8x4x32xf32>
  return
}

// -----

func.func @attention_c2(%q: tensor<1x8x4x32xf32>, %k: tensor<1x3x4x32xf32>) {
  // expected-error @+2 {{attention_c2: query heads are not a multiple of key heads}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %k, %k {scale = 1.0 : f64} : (tensor<1x8x4x32xf32>, tensor<1x3x4x32xf32>, tensor<1x3x4x32xf32>) -> tensor<1x8x4x32xf32>
  return
}

// -----

func.func @attention_c3(%q: tensor<1x8x4x32xf32>, %k: tensor<1x8x4x16xf32>) {
  // expected-error @+2 {{attention_c3: depth 32 against 16}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %k, %k {scale = 1.0 : f64} : (tensor<1x8x4x32xf32>, tensor<1x8x4x16xf32>, tensor<1x8x4x16xf32>) -> tensor<1x8x4x16xf32>
  return
}

// -----

func.func @attention_c4(%q: tensor<1x8x4x32xf32>, %v: tensor<1x8x5x32xf32>) {
  // expected-error @+2 {{attention_c4: lengths of k and v differ}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %v {scale = 1.0 : f64} : (tensor<1x8x4x32xf32>, tensor<1x8x4x32xf32>, tensor<1x8x5x32xf32>) -> tensor<1x8x4x32xf32>
  return
}

// -----

func.func @attention_sums_unasked(%q: tensor<1x8x4x32xf32>) {
  // expected-error @+2 {{inferred type(s)}}
  // expected-error @+1 {{failed to infer returned types}}
  %0, %1 = lathe.attention %q, %q, %q {scale = 1.0 : f64} : (tensor<1x8x4x32xf32>, tensor<1x8x4x32xf32>, tensor<1x8x4x32xf32>) -> (tensor<1x8x4x32xf32>, tensor<1x8x4xf32>)
  return
}

// -----

func.func @attention_sums_missing(%q: tensor<1x8x4x32xf32>) {
  // expected-error @+2 {{inferred type(s)}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q {scale = 1.0 : f64, log_sum_exp} : (tensor<1x8x4x32xf32>, tensor<1x8x4x32xf32>, tensor<1x8x4x32xf32>) -> tensor<1x8x4x32xf32>
  return
}

// -----

func.func @attention_sums_narrow(%q: tensor<1x8x4x32xbf16>) {
  // expected-error @+2 {{inferred type(s)}}
  // expected-error @+1 {{failed to infer returned types}}
  %0, %1 = lathe.attention %q, %q, %q {scale = 1.0 : f64, log_sum_exp} : (tensor<1x8x4x32xbf16>, tensor<1x8x4x32xbf16>, tensor<1x8x4x32xbf16>) -> (tensor<1x8x4x32xbf16>, tensor<1x8x4xbf16>)
  return
}

// -----

func.func @attention_c5_bias(%q: tensor<2x8x4x32xf32>, %e0: tensor<5x4xf32>) {
  // expected-error @+2 {{attention_c5: bias, mask or sink do not broadcast}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q bias %e0 {scale = 1.0 : f64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<5x4xf32>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @attention_c5_sink(%q: tensor<2x8x4x32xf32>, %e0: tensor<8x1x4xf32>) {
  // expected-error @+2 {{attention_c5: bias, mask or sink do not broadcast}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q sink %e0 {scale = 1.0 : f64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<8x1x4xf32>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @attention_c6_bias(%q: tensor<2x8x4x32xf32>, %e0: tensor<4x4xi1>) {
  // expected-error @+2 {{attention_c6: a bias or sink is not of floats}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q bias %e0 {scale = 1.0 : f64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<4x4xi1>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @attention_c6_mask(%q: tensor<2x8x4x32xf32>, %e0: tensor<4x4xf32>) {
  // expected-error @+2 {{attention_c6: a mask is not of i1}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q mask %e0 {scale = 1.0 : f64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<4x4xf32>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @attention_c7(%q: tensor<2x8x4x32xf32>, %e0: tensor<3xi64>) {
  // expected-error @+2 {{attention_c7: starts, lengths or offset are no integers for each batch}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q lengths %e0 {scale = 1.0 : f64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<3xi64>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @attention_c7_type(%q: tensor<2x8x4x32xf32>, %e0: tensor<2xf32>) {
  // expected-error @+2 {{attention_c7: starts, lengths or offset are no integers for each batch}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q offset %e0 {scale = 1.0 : f64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2xf32>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @attention_c8(%q: tensor<2x8x4x32xf32>, %e0: tensor<2x4xi64>, %e1: tensor<2x4xi32>) {
  // expected-error @+2 {{attention_c8: documents are no integers of one type}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q documents %e0, %e1 {scale = 1.0 : f64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x4xi64>, tensor<2x4xi32>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @attention_c9(%q: tensor<2x8x4x32xf32>) {
  // expected-error @+2 {{attention_c9: a window is negative}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.attention %q, %q, %q {scale = 1.0 : f64, window_left = -1 : i64} : (tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>, tensor<2x8x4x32xf32>) -> tensor<2x8x4x32xf32>
  return
}

// -----

func.func @rope_c1(%x: tensor<2x4x8xf32>, %c: tensor<4x4xf32>, %s: tensor<4x4xf32>) {
  // expected-error @+2 {{rope_c1: 10 rotated columns of 8}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.rope %x, %c, %s {rotary = 10 : i64} : (tensor<2x4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @rope_c2(%x: tensor<2x4x8xf32>, %c: tensor<4x4xf32>, %s: tensor<4x4xf32>) {
  // expected-error @+2 {{rope_c2: angles of 4 columns for 6 rotated ones}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.rope %x, %c, %s {rotary = 6 : i64} : (tensor<2x4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @rope_c3(%x: tensor<2x4x8xf32>, %c: tensor<4x4xf32>, %s: tensor<1x4xf32>) {
  // expected-error @+2 {{rope_c3: angles do not broadcast}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.rope %x, %c, %s {rotary = 8 : i64} : (tensor<2x4x8xf32>, tensor<4x4xf32>, tensor<1x4xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @rope_c3_wide(%x: tensor<2x4x8xf32>, %c: tensor<3x4x4xf32>) {
  // expected-error @+2 {{rope_c3: angles do not broadcast}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.rope %x, %c {rotary = 8 : i64} : (tensor<2x4x8xf32>, tensor<3x4x4xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

func.func @rope_c4(%x: tensor<2x4x8xf32>, %c: tensor<4x4xf16>) {
  // expected-error @+2 {{rope_c4: operands are not floats of one type}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.rope %x, %c {rotary = 8 : i64} : (tensor<2x4x8xf32>, tensor<4x4xf16>) -> tensor<2x4x8xf32>
  return
}
