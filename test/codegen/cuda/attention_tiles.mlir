// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=attention.mma.t128.n64 --grid=S | FileCheck %s
// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=attention.split.t256.n8.k3.s2 --grid=1 | FileCheck %s --check-prefix=SPLIT
// 16-bit operands that lie in memory in whole pieces are copied from there; results are stored
// eight at a time. Nothing but a scale comes to the scores.

!q = tensor<1x4x?x64xbf16, #lathe.t<[1, 4, S, 64]>>
!k = tensor<1x2x?x64xbf16, #lathe.t<[1, 2, T, 64]>>

// CHECK: typedef bf16 Element;
// CHECK: static constexpr bool kPlainScore = true, kMaskOnly = false, kCausal = true;
// CHECK: static constexpr f32 kScale = (f32)0.125;
// CHECK: static constexpr bool kRowsK = true;
// CHECK: const Element *rowK(i64 b, i64 h, i64 i) const { return in1 + placeK(b, h, i); }
// CHECK: void put(i64 b, i64 h, i64 q, i64 piece, Vec<bf16, 8> value) const {
// CHECK: storeVec(out0 +
// CHECK: __launch_bounds__(128)
// CHECK: attentionMma<AttentionMmaTile<4, 64, Holes::kHeadQK, Holes::kHeadV>>(h, dim_S, dim_T);
// SPLIT: const Element *sixteenK(i64 b, i64 h, i64 n) const { return in1 + sixteenPlaceK(b, h, n); }
// SPLIT: i64 strideK() const { return 64ll; }
// SPLIT: static constexpr int kGroup = 2;
// SPLIT: __launch_bounds__(256, 2)
// SPLIT: attentionSplit<AttentionSplitTile<8, 1, 1, 3, Holes::kHeadQK, Holes::kHeadV, Holes::kCodeBits>>(h, dim_S, dim_T);
func.func @attention(%q: !q, %k: !k, %v: !k) -> !q {
  %0 = lathe.attention %q, %k, %v {scale = 0.125 : f64, causal} : (!q, !k, !k) -> !q
  return %0 : !q
}
