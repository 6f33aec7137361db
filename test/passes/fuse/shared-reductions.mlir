// RUN: sed s/TARGET/sm_90a/ %s | %lathe-opt --lathe-decompose-composites --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --mlir-print-local-scope | FileCheck %s
// RUN: sed s/TARGET/sm_90a/ %s | %lathe-opt --lathe-decompose-composites --lathe-fuse --remarks-filter=lathe --remark-policy=all 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: sed s/TARGET/x86-64-v3/ %s | %lathe-opt --lathe-decompose-composites --lathe-fuse | FileCheck %s --check-prefix=CPU

// Few results of many terms: all blocks of a card share them, in a kernel that has what follows for each result.
module attributes {lathe.target = "TARGET"} {
  // CHECK-LABEL: func.func @whole
  // CHECK: lathe.kernel "reduce_mul{{.*}} reduction
  // CHECK-SAME: in_place
  // CHECK-SAME: split.rows.t256.v8
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  // REMARK: few results of many terms: all blocks share them
  func.func @whole(%x: tensor<1024x1536xf16>, %s: tensor<f16>) -> tensor<f16> {
    %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 0, 1>, keepdims = false} : (tensor<1024x1536xf16>) -> tensor<f16>
    %1 = lathe.mul %0, %s : (tensor<f16>, tensor<f16>) -> tensor<f16>
    return %1 : tensor<f16>
  }

  // Long rows are read again for each reduction, and where the results are made; on a CPU one kernel has them.
  // CHECK-LABEL: func.func @norm
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<2x1xf32>)
  // CHECK-SAME: split.rows
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<2x1xf32>)
  // CHECK-SAME: split.rows
  // CHECK: lathe.kernel {{.*}} pointwise {{.*}} -> (tensor<2x4194304xf16>)
  // CHECK: return
  // CPU-LABEL: func.func @norm
  // CPU: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<2x4194304xf16>)
  // CPU-NOT: lathe.kernel
  // CPU: return
  func.func @norm(%x: tensor<2x4194304xf16>, %w: tensor<4194304xf16>) -> tensor<2x4194304xf16> {
    %0 = lathe.layer_norm %x, %w {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<2x4194304xf16>, tensor<4194304xf16>) -> tensor<2x4194304xf16>
    return %0 : tensor<2x4194304xf16>
  }

  // Columns, of which a thread each would leave the card idle; and of a reduction over dimensions that are no neighbours.
  // CHECK-LABEL: func.func @columns
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<1x1x128xf16>)
  // CHECK-SAME: split.columns.t256.v8.n128
  // CHECK: lathe.kernel {{.*}} pointwise
  // CHECK: return
  func.func @columns(%x: tensor<768x48x128xf16>) -> tensor<768x48x128xf16> {
    %0 = lathe.mul %x, %x : (tensor<768x48x128xf16>, tensor<768x48x128xf16>) -> tensor<768x48x128xf16>
    %1 = lathe.reduce %0 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 0, 1>, keepdims = true} : (tensor<768x48x128xf16>) -> tensor<1x1x128xf16>
    %2 = lathe.div %x, %1 : (tensor<768x48x128xf16>, tensor<1x1x128xf16>) -> tensor<768x48x128xf16>
    return %2 : tensor<768x48x128xf16>
  }
  // CHECK-LABEL: func.func @apart
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<256xf16>)
  // CHECK-SAME: split.rows
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<64x16xf16>)
  // CHECK-SAME: split.columns
  func.func @apart(%x: tensor<64x256x56x56xf16>, %y: tensor<32x64x2048x16xf16>) -> (tensor<256xf16>, tensor<64x16xf16>) {
    %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<64x256x56x56xf16>) -> tensor<256xf16>
    %1 = lathe.reduce %y {kind = #lathe.reduce_kind<max>, axes = array<i64: 0, 2>, keepdims = false} : (tensor<32x64x2048x16xf16>) -> tensor<64x16xf16>
    return %0, %1 : tensor<256xf16>, tensor<64x16xf16>
  }

  // Many rows, and few elements, have one kernel.
  // CHECK-LABEL: func.func @rows
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<8192x1024xf16>)
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @rows(%x: tensor<8192x1024xf16>) -> tensor<8192x1024xf16> {
    %0 = lathe.softmax %x {axis = 1 : i64} : (tensor<8192x1024xf16>) -> tensor<8192x1024xf16>
    return %0 : tensor<8192x1024xf16>
  }
  // CHECK-LABEL: func.func @few
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<2x1024xf16>)
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @few(%x: tensor<2x1024xf16>) -> tensor<2x1024xf16> {
    %0 = lathe.softmax %x {axis = 1 : i64} : (tensor<2x1024xf16>) -> tensor<2x1024xf16>
    return %0 : tensor<2x1024xf16>
  }

  // The place of an extreme of few long rows: the extreme, then the least place that has it.
  // CHECK-LABEL: func.func @argmax
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<4x1xf16>)
  // CHECK-SAME: split.rows
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<4xi64>)
  // CHECK-SAME: split.rows
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<4096xi64>)
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @argmax(%x: tensor<4x131072xf16>, %y: tensor<4096x128xf16>) -> (tensor<4xi64>, tensor<4096xi64>) {
    %0 = lathe.arg_reduce %x {axis = 1 : i64, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<4x131072xf16>) -> tensor<4xi64>
    %1 = lathe.arg_reduce %y {axis = 1 : i64, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<4096x128xf16>) -> tensor<4096xi64>
    return %0, %1 : tensor<4xi64>, tensor<4096xi64>
  }

  // Of few columns likewise, whose elements lie apart; short columns stay with a thread each.
  // CHECK-LABEL: func.func @argmax_apart
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<1x44x12xf32>)
  // CHECK-SAME: columns.t256.v2.r8
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<44x12xi64>)
  // CHECK-SAME: split.columns
  // CHECK: lathe.kernel {{.*}} reduction {{.*}} -> (tensor<8x4000xi64>)
  // CHECK-NOT: lathe.kernel
  // CHECK: return
  func.func @argmax_apart(%x: tensor<56506x44x12xf32>, %y: tensor<8x21x4000xf32>) -> (tensor<44x12xi64>, tensor<8x4000xi64>) {
    %0 = lathe.arg_reduce %x {axis = 0 : i64, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<56506x44x12xf32>) -> tensor<44x12xi64>
    %1 = lathe.arg_reduce %y {axis = 1 : i64, keepdims = false, kind = #lathe.reduce_kind<max>} : (tensor<8x21x4000xf32>) -> tensor<8x4000xi64>
    return %0, %1 : tensor<44x12xi64>, tensor<8x4000xi64>
  }
}
