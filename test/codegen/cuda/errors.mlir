// RUN: not %lathe-translate --kernel-to-cuda --config=conv.simt.t256.m64.n64.k16 %s 2>&1 | FileCheck %s --check-prefix=ANCHOR
// RUN: not %lathe-translate --kernel-to-cuda --config=row.q7 %s 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not %lathe-translate --kernel-to-cuda --config=transpose.t256.m32 %s 2>&1 | FileCheck %s --check-prefix=TRANSPOSE
// ANCHOR: error: configuration 'conv.simt.t256.m64.n64.k16' needs roles with a 'lathe.conv' as anchor in kernel 'f'
// NAME: error: invalid input: configuration row.q7: unknown parameter 'q7'
// TRANSPOSE: error: CUDA text: configuration 'transpose.t256.m32' needs a transpose of the output's sizes
func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = lathe.neg %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
