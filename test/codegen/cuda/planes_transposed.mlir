// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=conv.planes.t128.v4 --grid=16 | FileCheck %s
// A square image that is transposed is not stored as it lies.

// CHECK: kPlainResults = false
func.func @image(%x: tensor<1x8x16x16xf32>, %w: tensor<8x1x3x3xf32>) -> tensor<1x8x16x16xf32> {
  %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 8 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x16x16xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x16x16xf32>
  %1 = lathe.transpose %0 {perm = array<i64: 0, 1, 3, 2>} : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  return %1 : tensor<1x8x16x16xf32>
}
