// RUN: %lathe-opt --lathe-fuse --lathe-outline-custom --lathe-assign-roles --lathe-name-kernels --lathe-select %s | FileCheck %s

module {
// CHECK-LABEL: module @gpu
// CHECK: lathe.kernel "scale_0" custom (%{{.*}} = %arg0
// CHECK-SAME: config \22custom\22
// CHECK-SAME: launch \22scale\22 grid [floordiv(N + 255, 256), 1, 1] block [256, 1, 1]
// CHECK: lathe.custom_call "scale"
module @gpu attributes {lathe.target = "sm_80"} {
  lathe.symbol @N {min = 0, max = 64, opt = 16, multiple_of = 1, origin = "x[0]"}
  func.func @main(%x: tensor<?xf32, #lathe.t<[N]>>) -> tensor<?xf32, #lathe.t<[N]>> {
    %0 = lathe.custom_call "scale"(%x) {config = {cuda_source = "text", cuda_grid = ["ceildiv(N, 256)"], cuda_block = array<i64: 256>}} : (tensor<?xf32, #lathe.t<[N]>>) -> tensor<?xf32, #lathe.t<[N]>>
    return %0 : tensor<?xf32, #lathe.t<[N]>>
  }
}

// CHECK-LABEL: module @cpu
// CHECK-NOT: lathe.kernel
// CHECK: lathe.custom_call "scale"(%arg0)
module @cpu attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @N {min = 0, max = 64, opt = 16, multiple_of = 1, origin = "x[0]"}
  func.func @main(%x: tensor<?xf32, #lathe.t<[N]>>) -> tensor<?xf32, #lathe.t<[N]>> {
    %0 = lathe.custom_call "scale"(%x) {config = {cuda_source = "text"}} : (tensor<?xf32, #lathe.t<[N]>>) -> tensor<?xf32, #lathe.t<[N]>>
    return %0 : tensor<?xf32, #lathe.t<[N]>>
  }
}
}
