// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select %s | FileCheck %s
// Rows of single elements, and rows along two axes apart of which the last axis is one, share a block; where an axis that
// is kept lies last, a thread walks each row.

// CHECK: lathe.kernel "reduce_0" reduction {{.*}}config \22row.t128.r4\22
// CHECK: lathe.kernel "reduce_1" reduction {{.*}}config \22row.t128.r64\22
// CHECK: lathe.kernel "reduce_2" reduction {{.*}}config \22row.t128\22
module {
  module @gpu attributes {lathe.target = "sm_90a"} {
    func.func @main(%a: tensor<58186x117xf32>, %b: tensor<93576x7x50x2xf16>, %c: tensor<9357x7x50x2x13xf16>) -> (tensor<58186xf32>, tensor<93576x50xf16>, tensor<9357x50x13xf16>) {
      %0 = lathe.reduce %a {kind = #lathe.reduce_kind<min>, axes = array<i64: 1>, keepdims = false} : (tensor<58186x117xf32>) -> tensor<58186xf32>
      %1 = lathe.reduce %b {kind = #lathe.reduce_kind<max>, axes = array<i64: 1, 3>, keepdims = false} : (tensor<93576x7x50x2xf16>) -> tensor<93576x50xf16>
      %2 = lathe.reduce %c {kind = #lathe.reduce_kind<max>, axes = array<i64: 1, 3>, keepdims = false} : (tensor<9357x7x50x2x13xf16>) -> tensor<9357x50x13xf16>
      return %0, %1, %2 : tensor<58186xf32>, tensor<93576x50xf16>, tensor<9357x50x13xf16>
    }
  }
}
