// A user's call in an engine: a function of the application on the CPU, a kernel on a GPU.
// RUN: %lathe compile %s -o %t.cpu --target=x86-64-v3
// RUN: not %lathe run %t.cpu 2>&1 | FileCheck %s --check-prefix=HOST
// RUN: %lathe compile %s -o %t.plan.mlir --target=sm_80 --stop-after=codegen
// RUN: FileCheck %s --check-prefix=CUDA --input-file=%t.plan.mlir

// HOST: the custom call 'triple' is not registered

// CUDA: exec.kernel @triple_{{[0-9]+}}
// CUDA-SAME: source = "extern \22C\22 __global__ void triple(const float *x, float *y, long long n, void *)
// CUDA: exec.launch @triple_
module attributes {lathe.phase = "simplify"} {
  lathe.symbol @N {min = 0, max = 1024, opt = 16, multiple_of = 1, origin = "x[0]"}
  func.func @main(%x: tensor<?xf32, #lathe.t<[N]>> {lathe.name = "x"}) -> (tensor<?xf32, #lathe.t<[N]>> {lathe.name = "y"}) attributes {lathe.entry} {
    %0 = lathe.custom_call "triple"(%x) {config = {cuda_source = "extern \22C\22 __global__ void triple(const float *x, float *y, long long n, void *) { long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) y[i] = 3 * x[i]; }", cuda_grid = ["ceildiv(N, 256)"], cuda_block = array<i64: 256>}} : (tensor<?xf32, #lathe.t<[N]>>) -> tensor<?xf32, #lathe.t<[N]>>
    return %0 : tensor<?xf32, #lathe.t<[N]>>
  }
}
