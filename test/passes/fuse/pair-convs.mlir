// RUN: %lathe-opt --lathe-fuse %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: sed s/x86-64-v3/sm_80/ %s | %lathe-opt --lathe-fuse | FileCheck %s --check-prefix=CUDA
// Convolutions of pixels compute the depthwise convolution before them, where that is worth it.

!wide = tensor<1x56x56x64xf32>
!small = tensor<1x14x14x64xf32>
module attributes {lathe.target = "x86-64-v3"} {
  // CHECK-LABEL: @pair
  // CHECK: lathe.kernel "conv_max_conv{{[a-z_]*}}" conv
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  // REMARK-DAG: computes the depthwise convolution before it, a block of rows at a time
  // CUDA-LABEL: @pair
  // CUDA-COUNT-2: lathe.kernel
  func.func @pair(%x: !wide) -> tensor<1x56x56x24xf32> {
    %zero = lathe.constant dense<0.0> : tensor<f32>
    %d = lathe.constant #lathe.weight<"model", 0, 2304, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<64x1x3x3xf32>
    %w = lathe.constant #lathe.weight<"model", 4096, 6144, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<24x64x1x1xf32>
    %0 = lathe.conv %x, %d {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 64 : i64, layout = #lathe.conv_layout<nhwc>} : (!wide, tensor<64x1x3x3xf32>) -> !wide
    %1 = lathe.max %0, %zero : (!wide, tensor<f32>) -> !wide
    %2 = lathe.conv %1, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (!wide, tensor<24x64x1x1xf32>) -> tensor<1x56x56x24xf32>
    return %2 : tensor<1x56x56x24xf32>
  }

  // CHECK-LABEL: @stays
  // CHECK-COUNT-2: lathe.kernel
  // REMARK-DAG: not fused with the depthwise convolution before it: its 50176 bytes stay in cache
  func.func @stays(%x: !small) -> tensor<1x14x14x24xf32> {
    %d = lathe.constant #lathe.weight<"model", 0, 2304, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<64x1x3x3xf32>
    %w = lathe.constant #lathe.weight<"model", 4096, 6144, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<24x64x1x1xf32>
    %0 = lathe.conv %x, %d {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 64 : i64, layout = #lathe.conv_layout<nhwc>} : (!small, tensor<64x1x3x3xf32>) -> !small
    %1 = lathe.conv %0, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (!small, tensor<24x64x1x1xf32>) -> tensor<1x14x14x24xf32>
    return %1 : tensor<1x14x14x24xf32>
  }

  // An image that becomes one number has no rows to keep.
  // CHECK-LABEL: @number
  // CHECK: lathe.kernel "conv" conv
  // CHECK: lathe.kernel "reduce" reduction
  func.func @number(%x: !small, %w: tensor<24x64x1x1xf32>) -> tensor<f32> {
    %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (!small, tensor<24x64x1x1xf32>) -> tensor<1x14x14x24xf32>
    %1 = lathe.reduce %0 {axes = array<i64: 0, 1, 2, 3>, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<1x14x14x24xf32>) -> tensor<f32>
    return %1 : tensor<f32>
  }

  // Somebody else reads what the first gives.
  // CHECK-LABEL: @two_readers
  // CHECK-COUNT-2: lathe.kernel
  func.func @two_readers(%x: !wide) -> (!wide, tensor<1x56x56x24xf32>) {
    %d = lathe.constant #lathe.weight<"model", 0, 2304, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<64x1x3x3xf32>
    %w = lathe.constant #lathe.weight<"model", 4096, 6144, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<24x64x1x1xf32>
    %0 = lathe.conv %x, %d {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 64 : i64, layout = #lathe.conv_layout<nhwc>} : (!wide, tensor<64x1x3x3xf32>) -> !wide
    %1 = lathe.conv %0, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (!wide, tensor<24x64x1x1xf32>) -> tensor<1x56x56x24xf32>
    return %0, %1 : !wide, tensor<1x56x56x24xf32>
  }
}
