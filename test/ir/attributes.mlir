// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s
// Dimension expressions are canonical: sums are expanded and ordered, functions folded.

// CHECK-LABEL: func.func @canonical
// CHECK-SAME: tensor<?x?xf32, #lathe.t<[B*S + B, floordiv(H + 1, 2) - 1]>>
func.func @canonical(%x: tensor<?x?xf32, #lathe.t<[B*(S + 1), floordiv(H - 1, 2)]>>) {
  return
}

// Functions that fold take any number of arguments.
// CHECK-LABEL: func.func @several
// CHECK-SAME: #lathe.t<[max(16, 2*B, P), min(B, P, S)]>
func.func @several(%x: tensor<?x?xf32, #lathe.t<[max(P, 16, 2*B, 4), min(S, min(B, P))]>>) {
  return
}

// CHECK-LABEL: func.func @layout
// CHECK-SAME: #lathe.t<[B, P, 32], layout = #lathe.phys<[B, 512, 32]>>
func.func @layout(%x: tensor<?x?x32xf32, #lathe.t<[B, P, 32], layout = #lathe.phys<[B, 512, 32]>>>) {
  return
}

// CHECK-LABEL: func.func @weight
func.func @weight() {
  // CHECK: lathe.constant #lathe.weight<"model", 64, 16, "{{0+}}"> : tensor<4xf32>
  %w = lathe.constant #lathe.weight<"model", 64, 16, "0000000000000000000000000000000000000000000000000000000000000000"> : tensor<4xf32>
  return
}
