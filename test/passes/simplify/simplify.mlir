// RUN: %lathe-opt --lathe-simplify %s | FileCheck %s

lathe.symbol @B {min = 0, max = 64, opt = 1, multiple_of = 1, origin = "x[0]"}

// CHECK-LABEL: @transposes
// CHECK-NEXT: return %arg0
func.func @transposes(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = lathe.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = lathe.transpose %0 {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// CHECK-LABEL: @transpose_of_ones
// CHECK-NEXT: lathe.reshape %arg0
func.func @transpose_of_ones(%x: tensor<2x1x3xf32>) -> tensor<1x2x3xf32> {
  %0 = lathe.transpose %x {perm = array<i64: 1, 0, 2>} : (tensor<2x1x3xf32>) -> tensor<1x2x3xf32>
  return %0 : tensor<1x2x3xf32>
}

// CHECK-LABEL: @transpose_into_matmul
// CHECK-NEXT: lathe.matmul %arg0, %arg1 {transpose_b}
func.func @transpose_into_matmul(%a: tensor<4x8xf32>, %b: tensor<5x8xf32>) -> tensor<4x5xf32> {
  %0 = lathe.transpose %b {perm = array<i64: 1, 0>} : (tensor<5x8xf32>) -> tensor<8x5xf32>
  %1 = lathe.matmul %a, %0 : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}

// CHECK-LABEL: @drop_broadcast
// CHECK-NEXT: lathe.add %arg0, %arg1
func.func @drop_broadcast(%x: tensor<?x4xf32, #lathe.t<[B, 4]>>, %c: tensor<4xf32>) -> tensor<?x4xf32, #lathe.t<[B, 4]>> {
  %0 = lathe.broadcast_to %c : (tensor<4xf32>) -> tensor<?x4xf32, #lathe.t<[B, 4]>>
  %1 = lathe.add %x, %0 : (tensor<?x4xf32, #lathe.t<[B, 4]>>, tensor<?x4xf32, #lathe.t<[B, 4]>>) -> tensor<?x4xf32, #lathe.t<[B, 4]>>
  return %1 : tensor<?x4xf32, #lathe.t<[B, 4]>>
}

// CHECK-LABEL: @fold_constants
// CHECK-NEXT: lathe.constant dense<[5.000000e+00, 7.000000e+00]>
func.func @fold_constants() -> tensor<2xf32> {
  %a = lathe.constant dense<[2.0, 3.0]> : tensor<2xf32>
  %b = lathe.constant dense<[3.0, 4.0]> : tensor<2xf32>
  %0 = lathe.add %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// A small result of a large constant is computed here; what takes long is left to the run.
// CHECK-LABEL: @fold_large_operand
// CHECK-NEXT: lathe.constant dense<1.000000e+00> : tensor<2x4xf32>
func.func @fold_large_operand() -> tensor<2x4xf32> {
  %table = lathe.constant dense<1.0> : tensor<50000x4xf32>
  %at = lathe.constant dense<[7, 8]> : tensor<2xi64>
  %0 = lathe.gather %table, %at {axis = 0 : i64} : (tensor<50000x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// CHECK-LABEL: @no_long_folding
// CHECK: lathe.matmul
func.func @no_long_folding() -> tensor<1024x256xf32> {
  %a = lathe.constant dense<1.0> : tensor<1024x4096xf32>
  %b = lathe.constant dense<2.0> : tensor<4096x256xf32>
  %0 = lathe.matmul %a, %b : (tensor<1024x4096xf32>, tensor<4096x256xf32>) -> tensor<1024x256xf32>
  return %0 : tensor<1024x256xf32>
}

// CHECK-LABEL: @fold_dim_value
// CHECK-NEXT: lathe.constant dense<[2, 12]> : tensor<2xi64>
func.func @fold_dim_value() -> tensor<2xi64> {
  %0 = lathe.dim_value {dims = [#lathe.dim<2>, #lathe.dim<12>]} : () -> tensor<2xi64>
  return %0 : tensor<2xi64>
}

// CHECK-LABEL: @reduce_of_ones
// CHECK-NEXT: lathe.reshape %arg0
func.func @reduce_of_ones(%x: tensor<4x1xf32>) -> tensor<4xf32> {
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = false} : (tensor<4x1xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: @slice_of_concat
// CHECK-NEXT: return %arg1
func.func @slice_of_concat(%x: tensor<2x3xf32>, %y: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %0 = lathe.concat %x, %y {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>
  %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<3>], steps = array<i64: 1, 1>} : (tensor<2x8xf32>) -> tensor<2x5xf32>
  return %1 : tensor<2x5xf32>
}

// CHECK-LABEL: @cast_back
// CHECK-NEXT: return %arg0
func.func @cast_back(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = lathe.cast %x : (tensor<4xbf16>) -> tensor<4xf32>
  %1 = lathe.cast %0 : (tensor<4xf32>) -> tensor<4xbf16>
  return %1 : tensor<4xbf16>
}

// A detour through a narrower type rounds and stays.
// CHECK-LABEL: @cast_narrow
// CHECK-COUNT-2: lathe.cast
func.func @cast_narrow(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = lathe.cast %x : (tensor<4xf32>) -> tensor<4xbf16>
  %1 = lathe.cast %0 : (tensor<4xbf16>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: @power
// CHECK-NEXT: lathe.mul %arg0, %arg0
func.func @power(%x: tensor<4xf32>) -> tensor<4xf32> {
  %two = lathe.constant dense<2.0> : tensor<f32>
  %0 = lathe.pow %x, %two : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A reshape that only drops a dimension of 1 goes behind what a contraction can take.
// CHECK-LABEL: @sink_unit_reshape
// CHECK: %[[M:.*]] = lathe.matmul
// CHECK: %[[T:.*]] = lathe.tanh %[[M]]
// CHECK: lathe.reshape %[[T]]
func.func @sink_unit_reshape(%a: tensor<4x1x8xf32>, %b: tensor<8x5xf32>) -> tensor<4x5xf32> {
  %0 = lathe.matmul %a, %b : (tensor<4x1x8xf32>, tensor<8x5xf32>) -> tensor<4x1x5xf32>
  %1 = lathe.reshape %0 : (tensor<4x1x5xf32>) -> tensor<4x5xf32>
  %2 = lathe.tanh %1 : (tensor<4x5xf32>) -> tensor<4x5xf32>
  return %2 : tensor<4x5xf32>
}

// CHECK-LABEL: @and_true
// CHECK-NEXT: return %arg0
func.func @and_true(%x: tensor<4xi1>) -> tensor<4xi1> {
  %true = lathe.constant dense<true> : tensor<i1>
  %0 = lathe.and %x, %true : (tensor<4xi1>, tensor<i1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// x + 0 changes the sign of -0.0 and stays.
// CHECK-LABEL: @add_zero
// CHECK: lathe.add
func.func @add_zero(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = lathe.constant dense<0.0> : tensor<f32>
  %0 = lathe.add %x, %zero : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Filters are transposed when the engine is built, however many they are; other constants only up to 64 K.
// CHECK-LABEL: @transposed_filters
// CHECK-NOT: lathe.transpose
// CHECK: %[[W:.*]] = lathe.constant {{.*}} : tensor<64x128x4x4xf32>
// CHECK-NOT: lathe.slice
// CHECK: lathe.conv %{{.*}}, %[[W]]
func.func @transposed_filters(%x: tensor<1x128x9x9xf32>) -> tensor<1x64x6x6xf32> {
  %w = lathe.constant dense<0.5> : tensor<128x64x4x4xf32>
  %0 = lathe.transpose %w {perm = array<i64: 1, 0, 2, 3>} : (tensor<128x64x4x4xf32>) -> tensor<64x128x4x4xf32>
  %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<3>, #lathe.dim<3>], steps = array<i64: 1, 1, -1, -1>} : (tensor<64x128x4x4xf32>) -> tensor<64x128x4x4xf32>
  %2 = lathe.conv %x, %1 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x128x9x9xf32>, tensor<64x128x4x4xf32>) -> tensor<1x64x6x6xf32>
  return %2 : tensor<1x64x6x6xf32>
}

// Filters that a scale normalizes are computed, and nothing is kept of what lies between.
// CHECK-LABEL: @scaled_filters
// CHECK-NOT: lathe.mul
// CHECK: %[[W:.*]] = lathe.constant {{.*}} : tensor<64x128x4x4xf32>
// CHECK-NEXT: lathe.conv %arg0, %[[W]]
func.func @scaled_filters(%x: tensor<1x128x9x9xf32>) -> tensor<1x64x6x6xf32> {
  %w = lathe.constant dense<0.5> : tensor<64x128x4x4xf32>
  %g = lathe.constant dense<3.0> : tensor<64x1x1x1xf32>
  %0 = lathe.mul %w, %w : (tensor<64x128x4x4xf32>, tensor<64x128x4x4xf32>) -> tensor<64x128x4x4xf32>
  %1 = lathe.mul %0, %g : (tensor<64x128x4x4xf32>, tensor<64x1x1x1xf32>) -> tensor<64x128x4x4xf32>
  %2 = lathe.conv %x, %1 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x128x9x9xf32>, tensor<64x128x4x4xf32>) -> tensor<1x64x6x6xf32>
  return %2 : tensor<1x64x6x6xf32>
}

// Codes stay: a convolution of integers may take them. So do filters of which a part comes with the run.
// CHECK-LABEL: @filters_that_stay
// CHECK: lathe.cast
// CHECK: lathe.mul
func.func @filters_that_stay(%x: tensor<1x128x9x9xf32>, %g: tensor<64x1x1x1xf32>) -> (tensor<1x64x6x6xf32>, tensor<1x64x6x6xf32>) {
  %w = lathe.constant dense<5> : tensor<64x128x4x4xi8>
  %v = lathe.constant dense<0.5> : tensor<64x128x4x4xf32>
  %0 = lathe.cast %w : (tensor<64x128x4x4xi8>) -> tensor<64x128x4x4xf32>
  %1 = lathe.mul %v, %g : (tensor<64x128x4x4xf32>, tensor<64x1x1x1xf32>) -> tensor<64x128x4x4xf32>
  %2 = lathe.conv %x, %0 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x128x9x9xf32>, tensor<64x128x4x4xf32>) -> tensor<1x64x6x6xf32>
  %3 = lathe.conv %x, %1 {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x128x9x9xf32>, tensor<64x128x4x4xf32>) -> tensor<1x64x6x6xf32>
  return %2, %3 : tensor<1x64x6x6xf32>, tensor<1x64x6x6xf32>
}

// CHECK-LABEL: @transposed_table
// CHECK: lathe.transpose
func.func @transposed_table() -> tensor<128x1024xf32> {
  %w = lathe.constant dense<0.5> : tensor<1024x128xf32>
  %0 = lathe.transpose %w {perm = array<i64: 1, 0>} : (tensor<1024x128xf32>) -> tensor<128x1024xf32>
  return %0 : tensor<128x1024xf32>
}

// One of each two neighbours is every second one, whoever splits them.
// CHECK-LABEL: @neighbours
// CHECK-NEXT: %[[ODD:.*]] = lathe.slice %arg0 {starts = [#lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 2>} : (tensor<3x8xf32>) -> tensor<3x4xf32>
// CHECK-NEXT: return %[[ODD]]
func.func @neighbours(%x: tensor<3x8xf32>) -> tensor<3x4xf32> {
  %0 = lathe.reshape %x : (tensor<3x8xf32>) -> tensor<3x4x2xf32>
  %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<1>], steps = array<i64: 1, 1, 1>} : (tensor<3x4x2xf32>) -> tensor<3x4x1xf32>
  %2 = lathe.reshape %1 : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
  return %2 : tensor<3x4xf32>
}

// Not where another dimension is sliced, too, or the neighbours are reversed.
// CHECK-LABEL: @not_neighbours
// CHECK-COUNT-2: lathe.slice {{.*}} -> tensor<3x
// CHECK-SAME: x1xf32>
func.func @not_neighbours(%x: tensor<3x8xf32>) -> (tensor<3x2x1xf32>, tensor<3x4x1xf32>) {
  %0 = lathe.reshape %x : (tensor<3x8xf32>) -> tensor<3x4x2xf32>
  %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<2>, #lathe.dim<1>], steps = array<i64: 1, 1, 1>} : (tensor<3x4x2xf32>) -> tensor<3x2x1xf32>
  %2 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<3>, #lathe.dim<1>], steps = array<i64: 1, -1, 1>} : (tensor<3x4x2xf32>) -> tensor<3x4x1xf32>
  return %1, %2 : tensor<3x2x1xf32>, tensor<3x4x1xf32>
}

// The mean of squares less the square of the mean loses every digit where a row is nearly constant.
// CHECK-LABEL: @variance_of_differences
// CHECK: %[[N:.*]] = lathe.constant dense<8.000000e+00>
// CHECK: %[[S:.*]] = lathe.reduce %arg0
// CHECK: %[[M:.*]] = lathe.div %[[S]], %[[N]]
// CHECK: %[[C:.*]] = lathe.sub %arg0, %[[M]]
// CHECK: %[[Q:.*]] = lathe.mul %[[C]], %[[C]]
// CHECK: %[[T:.*]] = lathe.reduce %[[Q]]
// CHECK: %[[V:.*]] = lathe.div %[[T]], %[[N]]
// CHECK-NEXT: return %[[V]]
func.func @variance_of_differences(%x: tensor<4x8xf32>) -> tensor<4x1xf32> {
  %n = lathe.constant dense<8.0> : tensor<f32>
  %two = lathe.constant dense<2.0> : tensor<f32>
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %m = lathe.div %0, %n : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %q = lathe.pow %x, %two : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %1 = lathe.reduce %q {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %e = lathe.div %1, %n : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %s = lathe.mul %m, %m : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
  %v = lathe.sub %e, %s : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
  return %v : tensor<4x1xf32>
}

// Divided by one less it is no variance of that form.
// CHECK-LABEL: @no_variance
// CHECK: lathe.mul %arg0, %arg0
func.func @no_variance(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %n = lathe.constant dense<7.0> : tensor<f32>
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = false} : (tensor<4x8xf32>) -> tensor<4xf32>
  %m = lathe.div %0, %n : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %q = lathe.mul %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = lathe.reduce %q {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = false} : (tensor<4x8xf32>) -> tensor<4xf32>
  %e = lathe.div %1, %n : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %s = lathe.mul %m, %m : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %v = lathe.sub %e, %s : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %v : tensor<4xf32>
}

// Whether any condition holds, as exporters count them; an infinity is one in any type that holds it.
// CHECK-LABEL: @any_from_count
// CHECK-NEXT: %[[I:.*]] = lathe.is_inf %arg0
// CHECK-NEXT: %[[A:.*]] = lathe.reduce %[[I]] {{.*}}kind = #lathe.reduce_kind<max>{{.*}} -> tensor<i1>
// CHECK-NEXT: return %[[A]]
func.func @any_from_count(%x: tensor<4x8xf16>) -> tensor<i1> {
  %zero = lathe.constant dense<0> : tensor<i64>
  %0 = lathe.cast %x : (tensor<4x8xf16>) -> tensor<4x8xf64>
  %1 = lathe.is_inf %0 : (tensor<4x8xf64>) -> tensor<4x8xi1>
  %2 = lathe.cast %1 : (tensor<4x8xi1>) -> tensor<4x8xi64>
  %3 = lathe.reduce %2 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 0, 1>, keepdims = false} : (tensor<4x8xi64>) -> tensor<i64>
  %4 = lathe.compare %3, %zero {predicate = #lathe.predicate<gt>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
  return %4 : tensor<i1>
}

// A narrower type has infinities of its own, a sum of numbers may be negative, and a count is compared with 0 alone.
// CHECK-LABEL: @no_any
// CHECK: %[[H:.*]] = lathe.cast %arg0 : (tensor<8xf32>) -> tensor<8xf16>
// CHECK: lathe.is_inf %[[H]]
// CHECK: kind = #lathe.reduce_kind<sum>
// CHECK: lathe.compare
// CHECK: kind = #lathe.reduce_kind<sum>
// CHECK: lathe.compare
func.func @no_any(%x: tensor<8xf32>, %n: tensor<8xi64>) -> (tensor<i1>, tensor<i1>) {
  %zero = lathe.constant dense<0> : tensor<i64>
  %one = lathe.constant dense<1> : tensor<i64>
  %0 = lathe.cast %x : (tensor<8xf32>) -> tensor<8xf16>
  %1 = lathe.is_inf %0 : (tensor<8xf16>) -> tensor<8xi1>
  %2 = lathe.cast %1 : (tensor<8xi1>) -> tensor<8xi64>
  %3 = lathe.reduce %2 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 0>, keepdims = false} : (tensor<8xi64>) -> tensor<i64>
  %4 = lathe.compare %3, %one {predicate = #lathe.predicate<gt>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
  %5 = lathe.reduce %n {kind = #lathe.reduce_kind<sum>, axes = array<i64: 0>, keepdims = false} : (tensor<8xi64>) -> tensor<i64>
  %6 = lathe.compare %5, %zero {predicate = #lathe.predicate<gt>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
  return %4, %6 : tensor<i1>, tensor<i1>
}

// A table of blocks becomes one of elements; other indices stay what they are.
// CHECK-LABEL: @gather_of_repeats
// CHECK-NEXT: %[[R:.*]] = lathe.reshape %arg0 : (tensor<3x5xi1>) -> tensor<3x1x5xi1>
// CHECK-NEXT: %[[B:.*]] = lathe.broadcast_to %[[R]] : (tensor<3x1x5xi1>) -> tensor<3x2x5xi1>
// CHECK-NEXT: lathe.reshape %[[B]] : (tensor<3x2x5xi1>) -> tensor<6x5xi1>
// CHECK-NOT: lathe.gather
// CHECK: return
func.func @gather_of_repeats(%x: tensor<3x5xi1>) -> tensor<6x5xi1> {
  %i = lathe.constant dense<[0, 0, 1, 1, 2, 2]> : tensor<6xi64>
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<3x5xi1>, tensor<6xi64>) -> tensor<6x5xi1>
  return %0 : tensor<6x5xi1>
}

// CHECK-LABEL: @gather_in_another_order
// CHECK-COUNT-3: lathe.gather
func.func @gather_in_another_order(%x: tensor<3x5xf32>) -> (tensor<6x5xf32>, tensor<6x5xf32>, tensor<3x5xf32>) {
  %i = lathe.constant dense<[0, 1, 2, 0, 1, 2]> : tensor<6xi64>
  %j = lathe.constant dense<[0, 0, 1, 1, 1, 2]> : tensor<6xi32>
  %k = lathe.constant dense<[0, 0, 1]> : tensor<3xi64>
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<3x5xf32>, tensor<6xi64>) -> tensor<6x5xf32>
  %1 = lathe.gather %x, %j {axis = 0 : i64} : (tensor<3x5xf32>, tensor<6xi32>) -> tensor<6x5xf32>
  %2 = lathe.gather %x, %k {axis = 0 : i64} : (tensor<3x5xf32>, tensor<3xi64>) -> tensor<3x5xf32>
  return %0, %1, %2 : tensor<6x5xf32>, tensor<6x5xf32>, tensor<3x5xf32>
}
