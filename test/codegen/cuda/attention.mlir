// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=attention.decode.t128 --grid=S | FileCheck %s
// Two query heads read one key head; causality ends the keys, the mask is part of the score.

!q = tensor<1x4x?x16xf32, #lathe.t<[1, 4, S, 16]>>
!k = tensor<1x2x?x16xf32, #lathe.t<[1, 2, T, 16]>>
!m = tensor<?x?xi1, #lathe.t<[S, T]>>

// CHECK: static constexpr int kHeadQK = 16, kHeadV = 16;
// CHECK: static constexpr bool kZeroMasked = true;
// CHECK: f32 score(i64 b, i64 h, i64 q, i64 k, f32 dot) const {
// CHECK: = dot * 0.25f;
// CHECK: = select({{v[0-9]+}}, {{v[0-9]+}}, bitsToF32(0xff800000u));
// CHECK: i64 keyEnd(i64 b, i64 h, i64 q) const {
// CHECK: minNum(dim_T,
// CHECK: f32 loadK(i64 b, i64 h, i64 k, i64 d) const {
// CHECK: = divBy<2>(h);
// CHECK: attentionDecode<4>(h, dim_T);
func.func @attention(%q: !q, %k: !k, %v: !k, %m: !m) -> !q {
  %0 = lathe.attention %q, %k, %v mask %m {scale = 0.25 : f64, causal, zero_masked_rows} : (!q, !k, !k, !m) -> !q
  return %0 : !q
}
