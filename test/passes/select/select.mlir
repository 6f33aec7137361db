// RUN: %lathe-opt --lathe-fuse --lathe-name-kernels --lathe-select %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-name-kernels --lathe-select %s | %lathe-opt | FileCheck %s

// CHECK-LABEL: module @cpu
// CHECK: lathe.kernel "exp_0" pointwise {{.*}} attributes {variants = [{guard = "", spec = "config
// CHECK-LABEL: module @gpu
// CHECK: lathe.kernel "exp_0" pointwise {{.*}} attributes {variants = [{{.*}}guard = "", spec = "config
module {
  module @cpu attributes {lathe.target = "x86-64-v3"} {
    lathe.symbol @B {min = 0, max = 64, opt = 16, multiple_of = 1, origin = "x[0]"}

    func.func @main(%x: tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>> {
      %0 = lathe.exp %x : (tensor<?x64xf32, #lathe.t<[B, 64]>>) -> tensor<?x64xf32, #lathe.t<[B, 64]>>
      return %0 : tensor<?x64xf32, #lathe.t<[B, 64]>>
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
