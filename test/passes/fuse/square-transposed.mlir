// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | FileCheck %s
// Results of which a transpose leaves the sizes alone do not lie as they are computed.

// CHECK-LABEL: func.func @product
// CHECK-SAME: lathe.roles = #lathe.roles<
// CHECK-NOT: in_place
func.func @product(%x: tensor<256x512xf16>, %w: tensor<512x256xf16>) -> tensor<256x256xf16> {
  %0 = lathe.matmul %x, %w : (tensor<256x512xf16>, tensor<512x256xf16>) -> tensor<256x256xf16>
  %1 = lathe.transpose %0 {perm = array<i64: 1, 0>} : (tensor<256x256xf16>) -> tensor<256x256xf16>
  return %1 : tensor<256x256xf16>
}

// As many heads as tokens, behind a reshape.
// CHECK-LABEL: func.func @heads
// CHECK-NOT: in_place
func.func @heads(%x: tensor<16x512xf16>, %w: tensor<512x1024xf16>) -> tensor<1x16x16x64xf16> {
  %0 = lathe.matmul %x, %w : (tensor<16x512xf16>, tensor<512x1024xf16>) -> tensor<16x1024xf16>
  %1 = lathe.reshape %0 : (tensor<16x1024xf16>) -> tensor<1x16x16x64xf16>
  %2 = lathe.transpose %1 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x16x16x64xf16>) -> tensor<1x16x16x64xf16>
  return %2 : tensor<1x16x16x64xf16>
}

// CHECK-LABEL: func.func @image
// CHECK-NOT: in_place
func.func @image(%x: tensor<1x8x16x16xf32>, %w: tensor<8x1x3x3xf32>) -> tensor<1x8x16x16xf32> {
  %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 8 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<1x8x16x16xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x16x16xf32>
  %1 = lathe.transpose %0 {perm = array<i64: 0, 1, 3, 2>} : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  return %1 : tensor<1x8x16x16xf32>
}

// The product alone does.
// CHECK-LABEL: func.func @alone
// CHECK-SAME: in_place
func.func @alone(%x: tensor<256x512xf16>, %w: tensor<512x256xf16>) -> tensor<256x256xf16> {
  %0 = lathe.matmul %x, %w : (tensor<256x512xf16>, tensor<512x256xf16>) -> tensor<256x256xf16>
  return %0 : tensor<256x256xf16>
}
