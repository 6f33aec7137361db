// RUN: %lathe-opt %s --split-input-file --verify-diagnostics -o /dev/null

func.func @append_c1(%pool: tensor<4x1x3x16x2x8xf32>, %slots: tensor<3xi64>, %k: tensor<3x2x8xf32>, %v: tensor<3x2x8xf32>) {
  // expected-error @+2 {{kv_append_c1: the pool is not [pages, layers, 2, tokens, heads, size]}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.kv_append %pool, %slots, %k, %v {layer = 0 : i64} : (tensor<4x1x3x16x2x8xf32>, tensor<3xi64>, tensor<3x2x8xf32>, tensor<3x2x8xf32>) -> tensor<4x1x3x16x2x8xf32>
  return
}

// -----

func.func @append_c2(%pool: tensor<4x1x2x16x2x8xf32>, %slots: tensor<3xi64>, %k: tensor<3x2x8xf32>, %v: tensor<3x2x8xf32>) {
  // expected-error @+2 {{kv_append_c2: the pool has no layer 1}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.kv_append %pool, %slots, %k, %v {layer = 1 : i64} : (tensor<4x1x2x16x2x8xf32>, tensor<3xi64>, tensor<3x2x8xf32>, tensor<3x2x8xf32>) -> tensor<4x1x2x16x2x8xf32>
  return
}

// -----

func.func @append_c3(%pool: tensor<4x1x2x16x2x8xf32>, %slots: tensor<3xi64>, %k: tensor<3x2x8xf32>, %v: tensor<3x2x4xf32>) {
  // expected-error @+2 {{kv_append_c3: keys or values are not [tokens, heads, size] as in the pool}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.kv_append %pool, %slots, %k, %v {layer = 0 : i64} : (tensor<4x1x2x16x2x8xf32>, tensor<3xi64>, tensor<3x2x8xf32>, tensor<3x2x4xf32>) -> tensor<4x1x2x16x2x8xf32>
  return
}

// -----

func.func @append_c3_type(%pool: tensor<4x1x2x16x2x8xf32>, %slots: tensor<3xi64>, %k: tensor<3x2x8xf16>, %v: tensor<3x2x8xf16>) {
  // expected-error @+2 {{kv_append_c3: keys or values are not [tokens, heads, size] as in the pool}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.kv_append %pool, %slots, %k, %v {layer = 0 : i64} : (tensor<4x1x2x16x2x8xf32>, tensor<3xi64>, tensor<3x2x8xf16>, tensor<3x2x8xf16>) -> tensor<4x1x2x16x2x8xf32>
  return
}

// -----

func.func @append_c4(%pool: tensor<4x1x2x16x2x8xf32>, %slots: tensor<4xi64>, %k: tensor<3x2x8xf32>, %v: tensor<3x2x8xf32>) {
  // expected-error @+2 {{kv_append_c4: slots are not an integer for each token}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.kv_append %pool, %slots, %k, %v {layer = 0 : i64} : (tensor<4x1x2x16x2x8xf32>, tensor<4xi64>, tensor<3x2x8xf32>, tensor<3x2x8xf32>) -> tensor<4x1x2x16x2x8xf32>
  return
}

// -----

func.func @attention_c1(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>) {
  // expected-error @+2 {{paged_attention_c1: the pool is not [pages, layers, 2, tokens, heads, size]}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p {layer = 0 : i64, scale = 1.0 : f64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @attention_c2(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>) {
  // expected-error @+2 {{paged_attention_c2: the pool has no layer 1}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p {layer = 1 : i64, scale = 1.0 : f64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @attention_c3(%q: tensor<3x3x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>) {
  // expected-error @+2 {{paged_attention_c3: queries are not [tokens, heads, size] as in the pool}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p {layer = 0 : i64, scale = 1.0 : f64} : (tensor<3x3x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3x3x8xf32>
  return
}

// -----

func.func @attention_c4(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<10xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>) {
  // expected-error @+2 {{paged_attention_c4: tables are not [requests, pages] of integers}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p {layer = 0 : i64, scale = 1.0 : f64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<10xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @attention_c4_positions(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xf32>) {
  // expected-error @+2 {{or requests and positions not an integer for each token}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p {layer = 0 : i64, scale = 1.0 : f64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xf32>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @attention_c5(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>) {
  // expected-error @+2 {{paged_attention_c5: a window is negative}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p {layer = 0 : i64, scale = 1.0 : f64, window_left = -1 : i64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @attention_c6(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>, %sink: tensor<2xf32>) {
  // expected-error @+2 {{paged_attention_c6: sink or slopes are not a float for each head of queries}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p sink %sink {layer = 0 : i64, scale = 1.0 : f64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xi64>, tensor<2xf32>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @attention_c5_first(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>) {
  // expected-error @+2 {{paged_attention_c5: first keys are none, or without a window}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p {layer = 0 : i64, scale = 1.0 : f64, first_keys = 2 : i64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3x4x8xf32>
  return
}

// -----

func.func @append_c5_sizes(%pool: tensor<4x1x2x16x2x8xi8>, %s: tensor<3xi64>, %k: tensor<3x2x8xf32>, %scales: tensor<4x1x2x16x2xf32>) {
  // expected-error @+2 {{kv_append_c5: scales are not f32 [pages, layers, 2, heads, tokens] of a pool of i8 or ui8}}
  // expected-error @+1 {{failed to infer returned types}}
  %0:2 = lathe.kv_append %pool, %s, %k, %k, %scales {layer = 0 : i64} : (tensor<4x1x2x16x2x8xi8>, tensor<3xi64>, tensor<3x2x8xf32>, tensor<3x2x8xf32>, tensor<4x1x2x16x2xf32>) -> (tensor<4x1x2x16x2x8xi8>, tensor<4x1x2x16x2xf32>)
  return
}

// -----

func.func @append_c3_codes(%pool: tensor<4x1x2x16x2x8xui8>, %s: tensor<3xi64>, %k: tensor<3x2x8xf32>, %scales: tensor<4x1x2x2x16xf32>) {
  // expected-error @+2 {{kv_append_c3: keys or values are not [tokens, heads, size] as in the pool}}
  // expected-error @+1 {{failed to infer returned types}}
  %0:2 = lathe.kv_append %pool, %s, %k, %k, %scales {layer = 0 : i64} : (tensor<4x1x2x16x2x8xui8>, tensor<3xi64>, tensor<3x2x8xf32>, tensor<3x2x8xf32>, tensor<4x1x2x2x16xf32>) -> (tensor<4x1x2x16x2x8xui8>, tensor<4x1x2x2x16xf32>)
  return
}

// -----

func.func @attention_c7(%q: tensor<3x4x8xf32>, %pool: tensor<4x1x2x16x2x8xf32>, %tables: tensor<2x5xi64>, %r: tensor<3xi64>, %p: tensor<3xi64>, %scales: tensor<4x1x2x2x16xf32>) {
  // expected-error @+2 {{paged_attention_c7: scales are not f32 [pages, layers, 2, heads, tokens] of a pool of i8 or ui8}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = lathe.paged_attention %q, %pool, %tables, %r, %p scales %scales {layer = 0 : i64, scale = 1.0 : f64} : (tensor<3x4x8xf32>, tensor<4x1x2x16x2x8xf32>, tensor<2x5xi64>, tensor<3xi64>, tensor<3xi64>, tensor<4x1x2x2x16xf32>) -> tensor<3x4x8xf32>
  return
}
