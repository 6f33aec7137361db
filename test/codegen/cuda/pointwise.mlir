// RUN: %lathe-translate --kernel-to-cuda --config=pointwise.t128.v8 --grid="ceildiv(6*M, 128)" %s | FileCheck %s
// A vector of 16 bytes a thread; 16-bit results take the fast forms of functions.

!x = tensor<?x48xbf16, #lathe.t<[M, 48]>>

// CHECK: // Kernel bias, configuration pointwise.t128.v8
// CHECK-NEXT: extern "C" __global__ void __launch_bounds__(128)
// CHECK-NEXT: bias(const bf16 *__restrict__ in0, const bf16 *__restrict__ in1, bf16 *__restrict__ out0, i64 dim_M, StatusWord *status) {
// CHECK: threadIdx.x
// CHECK: = loadVecConst<bf16, 8>(in0 + [[AT:v[0-9]+]]);
// CHECK: = convert<f32>(
// CHECK: = loadVecConst<bf16, 8>(in1 +
// CHECK: [[SUM:v[0-9]+]] = {{v[0-9]+}} + {{v[0-9]+}};
// CHECK: = fastErf([[SUM]]);
// CHECK: = convert<bf16>(
// CHECK-NEXT: storeVec(out0 + [[AT]],
func.func @bias(%x: !x, %b: tensor<48xbf16>) -> !x {
  %0 = lathe.add %x, %b : (!x, tensor<48xbf16>) -> !x
  %1 = lathe.erf %0 : (!x) -> !x
  return %1 : !x
}
