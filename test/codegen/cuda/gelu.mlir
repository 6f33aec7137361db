// RUN: %lathe-translate --kernel-to-cuda --config=pointwise.t128.v8 --grid=1 %s | FileCheck %s
// Constants of GELU count only as they are in the graph's type: 1 / sqrt 2 or sqrt 2 rounded to bf16 or f32.
// Their neighbours, and what is merely near, are other functions.

// CHECK-LABEL: gelu(const bf16
// CHECK-NOT: fastErf
// CHECK: fastGeluBF16(
// CHECK-NOT: fastErf
// CHECK: fastGeluBF16(
// CHECK-NOT: fastErf
// CHECK: fastGeluBF16(
// CHECK-COUNT-6: fastErf(
// CHECK-NOT: fastGelu
func.func @gelu(%x: tensor<64xbf16>) -> (tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>) {
  %w = lathe.cast %x : (tensor<64xbf16>) -> tensor<64xf32>
  %one_bf16 = lathe.constant dense<1.0> : tensor<bf16>
  %half_bf16 = lathe.constant dense<0.5> : tensor<bf16>
  %one_f32 = lathe.constant dense<1.0> : tensor<f32>
  %half_f32 = lathe.constant dense<0.5> : tensor<f32>
  %g0c = lathe.constant dense<0.70703125> : tensor<bf16>
  %g0a = lathe.mul %x, %g0c : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %g0b = lathe.erf %g0a : (tensor<64xbf16>) -> tensor<64xbf16>
  %g0d = lathe.add %g0b, %one_bf16 : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %g0e = lathe.mul %x, %g0d : (tensor<64xbf16>, tensor<64xbf16>) -> tensor<64xbf16>
  %g0f = lathe.mul %g0e, %half_bf16 : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %g1c = lathe.constant dense<0.707106769> : tensor<f32>
  %g1a = lathe.mul %w, %g1c : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %g1b = lathe.erf %g1a : (tensor<64xf32>) -> tensor<64xf32>
  %g1d = lathe.add %g1b, %one_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %g1e = lathe.mul %w, %g1d : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %g1f = lathe.mul %g1e, %half_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %g1g = lathe.cast %g1f : (tensor<64xf32>) -> tensor<64xbf16>
  %g2c = lathe.constant dense<1.41421354> : tensor<f32>
  %g2a = lathe.div %w, %g2c : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %g2b = lathe.erf %g2a : (tensor<64xf32>) -> tensor<64xf32>
  %g2d = lathe.add %g2b, %one_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %g2e = lathe.mul %w, %g2d : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %g2f = lathe.mul %g2e, %half_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %g2g = lathe.cast %g2f : (tensor<64xf32>) -> tensor<64xbf16>
  %n0c = lathe.constant dense<0.703125> : tensor<bf16>
  %n0a = lathe.mul %x, %n0c : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %n0b = lathe.erf %n0a : (tensor<64xbf16>) -> tensor<64xbf16>
  %n0d = lathe.add %n0b, %one_bf16 : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %n0e = lathe.mul %x, %n0d : (tensor<64xbf16>, tensor<64xbf16>) -> tensor<64xbf16>
  %n0f = lathe.mul %n0e, %half_bf16 : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %n1c = lathe.constant dense<0.7109375> : tensor<bf16>
  %n1a = lathe.mul %x, %n1c : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %n1b = lathe.erf %n1a : (tensor<64xbf16>) -> tensor<64xbf16>
  %n1d = lathe.add %n1b, %one_bf16 : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %n1e = lathe.mul %x, %n1d : (tensor<64xbf16>, tensor<64xbf16>) -> tensor<64xbf16>
  %n1f = lathe.mul %n1e, %half_bf16 : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  %n2c = lathe.constant dense<0.7046> : tensor<f32>
  %n2a = lathe.mul %w, %n2c : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n2b = lathe.erf %n2a : (tensor<64xf32>) -> tensor<64xf32>
  %n2d = lathe.add %n2b, %one_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n2e = lathe.mul %w, %n2d : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %n2f = lathe.mul %n2e, %half_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n2g = lathe.cast %n2f : (tensor<64xf32>) -> tensor<64xbf16>
  %n3c = lathe.constant dense<0.7095> : tensor<f32>
  %n3a = lathe.mul %w, %n3c : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n3b = lathe.erf %n3a : (tensor<64xf32>) -> tensor<64xf32>
  %n3d = lathe.add %n3b, %one_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n3e = lathe.mul %w, %n3d : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %n3f = lathe.mul %n3e, %half_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n3g = lathe.cast %n3f : (tensor<64xf32>) -> tensor<64xbf16>
  %n4c = lathe.constant dense<0.70710683> : tensor<f32>
  %n4a = lathe.mul %w, %n4c : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n4b = lathe.erf %n4a : (tensor<64xf32>) -> tensor<64xf32>
  %n4d = lathe.add %n4b, %one_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n4e = lathe.mul %w, %n4d : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %n4f = lathe.mul %n4e, %half_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n4g = lathe.cast %n4f : (tensor<64xf32>) -> tensor<64xbf16>
  %n5c = lathe.constant dense<1.4142> : tensor<f32>
  %n5a = lathe.div %w, %n5c : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n5b = lathe.erf %n5a : (tensor<64xf32>) -> tensor<64xf32>
  %n5d = lathe.add %n5b, %one_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n5e = lathe.mul %w, %n5d : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %n5f = lathe.mul %n5e, %half_f32 : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %n5g = lathe.cast %n5f : (tensor<64xf32>) -> tensor<64xbf16>
  return %g0f, %g1g, %g2g, %n0f, %n1f, %n2g, %n3g, %n4g, %n5g : tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<64xbf16>
}
