// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select %s | %lathe-opt | FileCheck %s

// CHECK-LABEL: module @cpu
// CHECK: lathe.kernel "exp_0" pointwise {{.*}} attributes {variants = [{guard = "", spec = "config
// One row streams the weight by a kernel of its own.
// CHECK: lathe.kernel "matmul_1" gemm {{.*}}guard = "B == 1", spec = "config {{.*}}gemm.v8.m1.n16.k1{{.*}}guard = "", spec = "config {{.*}}gemm.v8.r48.m6.n16.k1
// CHECK-LABEL: module @gpu
// CHECK: lathe.kernel "exp_0" pointwise {{.*}} attributes {variants = [{{.*}}guard = "", spec = "config
module {
  module @cpu attributes {lathe.target = "x86-64-v3"} {
    lathe.symbol @B {min = 0, max = 64, opt = 16, multiple_of = 1, origin = "x[0]"}

    func.func @main(%x: tensor<?x64xf32, #lathe.t<[B, 64]>>, %w: tensor<64x32xf32>) -> (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x32xf32, #lathe.t<[B, 32]>>) {
      %0 = lathe.exp %x : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
      %1 = lathe.matmul %0, %w : (tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<64x32xf32>) -> tensor<?x32xf32, #lathe.t<[B, 32]>>
      return %0, %1 : tensor<?x64xf32, #lathe.t<[B, 64]>>, tensor<?x32xf32, #lathe.t<[B, 32]>>
    }
  }
  module @gpu attributes {lathe.target = "sm_80"} {
    lathe.symbol @B {min = 0, max = 64, opt = 16, multiple_of = 1, origin = "x[0]"}

    func.func @main(%x: tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>> {
      %0 = lathe.exp %x : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
      return %0 : tensor<?x64xf32, #lathe.t<[B, 64]>>
    }
  }
}
