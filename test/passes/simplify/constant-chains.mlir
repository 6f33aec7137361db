// RUN: %lathe-opt --lathe-simplify %s | FileCheck %s

// What takes more to compute than to read is computed: a product of constants, with what it is made of and what is made of it
// alone, read by two ops.
// CHECK-LABEL: @dear
// CHECK-NEXT: %[[P:.*]] = lathe.constant {{.*}} : tensor<1x300x300xf32>
// CHECK-NEXT: %[[M:.*]] = lathe.matmul %arg0, %[[P]]
// CHECK-NEXT: lathe.add %[[M]], %[[P]]
// CHECK-NEXT: return
func.func @dear(%x: tensor<2x300x300xf32>) -> tensor<2x300x300xf32> {
  %a = lathe.constant dense<2.0> : tensor<300x300xf32>
  %b = lathe.constant dense<0.5> : tensor<300x300xf32>
  %0 = lathe.abs %a : (tensor<300x300xf32>) -> tensor<300x300xf32>
  %1 = lathe.matmul %0, %b : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
  %2 = lathe.sin %1 : (tensor<300x300xf32>) -> tensor<300x300xf32>
  %3 = lathe.reshape %2 : (tensor<300x300xf32>) -> tensor<1x300x300xf32>
  %4 = lathe.matmul %x, %3 : (tensor<2x300x300xf32>, tensor<1x300x300xf32>) -> tensor<2x300x300xf32>
  %5 = lathe.add %4, %3 : (tensor<2x300x300xf32>, tensor<1x300x300xf32>) -> tensor<2x300x300xf32>
  return %5 : tensor<2x300x300xf32>
}

// A sum of two weights is read as fast as it is added, perhaps beside a product.
// CHECK-LABEL: @cheap
// CHECK: %[[S:.*]] = lathe.add
// CHECK: lathe.matmul %arg0, %[[S]]
func.func @cheap(%x: tensor<2x300xf32>) -> tensor<2x300xf32> {
  %a = lathe.constant dense<2.0> : tensor<300x300xf32>
  %b = lathe.constant dense<0.5> : tensor<300x300xf32>
  %0 = lathe.add %a, %b : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
  %1 = lathe.matmul %x, %0 : (tensor<2x300xf32>, tensor<300x300xf32>) -> tensor<2x300xf32>
  return %1 : tensor<2x300xf32>
}

// Two million sines of three thousand numbers would be most of an engine.
// CHECK-LABEL: @grown
// CHECK: lathe.sin
func.func @grown(%x: tensor<1500x1500xf32>) -> tensor<1500x1500xf32> {
  %a = lathe.constant dense<2.0> : tensor<1500x1xf32>
  %b = lathe.constant dense<0.5> : tensor<1x1500xf32>
  %0 = lathe.add %a, %b : (tensor<1500x1xf32>, tensor<1x1500xf32>) -> tensor<1500x1500xf32>
  %1 = lathe.sin %0 : (tensor<1500x1500xf32>) -> tensor<1500x1500xf32>
  %2 = lathe.mul %x, %1 : (tensor<1500x1500xf32>, tensor<1500x1500xf32>) -> tensor<1500x1500xf32>
  return %2 : tensor<1500x1500xf32>
}

// Codes stay what they are: a product may take them so.
// CHECK-LABEL: @codes
// CHECK: lathe.dequantize
func.func @codes(%x: tensor<300x300xf32>) -> tensor<300x300xf32> {
  %q = lathe.constant dense<3> : tensor<300x300xi8>
  %s = lathe.constant dense<0.5> : tensor<f32>
  %b = lathe.constant dense<0.5> : tensor<300x300xf32>
  %0 = lathe.dequantize %q scale(%s) : (tensor<300x300xi8>, tensor<f32>) -> tensor<300x300xf32>
  %1 = lathe.matmul %b, %0 : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
  %2 = lathe.add %x, %1 : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
  return %2 : tensor<300x300xf32>
}
