// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=gemv.row.t64.n2.s1 --grid=128 | FileCheck %s
// Neighbouring columns of a head are a thread's two results, known as two lanes and each alone; a head goes to
// the output that has it.

// CHECK: static constexpr int kLanes = 2;
// CHECK: static constexpr bool kPair = false;
// CHECK: static constexpr int kPairHead = 64;
// CHECK: void write(i64 b, i64 m, i64 piece, Vec<f32, 2> sums) const {
// CHECK-DAG: const i64 [[HEAD:v[0-9]+]] = divBy<32>(piece);
// CHECK-DAG: const i64 [[PAIR:v[0-9]+]] = remBy<32>(piece);
// CHECK: = asUnsigned([[HEAD]]) < asUnsigned(3ll);
// CHECK: const f32 [[SECOND:v[0-9]+]] = sums[1];
// CHECK: [[MINUS:v[0-9]+]] = -[[SECOND]];
// CHECK: const f32 [[FIRST:v[0-9]+]] = sums[0];
// CHECK: [[OTHER:v[0-9]+]] = Vec<f32, 2>{{[{][{]}}[[MINUS]], [[FIRST]]{{[}][}]}};
// CHECK: [[COS:v[0-9]+]] = loadVecConst<bf16, 2>(in2 +
// CHECK: [[BOTH:v[0-9]+]] = convert<f32>([[COS]]);
// CHECK: = mulRounded(sums, [[BOTH]]);
// CHECK: = mulRounded([[OTHER]], 
// CHECK-NOT: for (
// CHECK: storeVec(out0 +
// CHECK: = -sums;
// CHECK: storeVec(out1 +
// CHECK: void epilogue(i64 b, i64 m, i64 n, const Vec<Acc, kLanes> &sums) const { write(b, m, n / kLanes, sums); }
// CHECK: gemvRow<2, 2, 1>(h, 256ll, 512ll);
!q = tensor<1x3x1x64xbf16>
func.func @neighbours(%x: tensor<1x1x512xbf16>, %w: tensor<256x512xbf16>, %cos: tensor<1x64xbf16>, %sin: tensor<1x64xbf16>) -> (!q, tensor<1x1x1x64xbf16>) {
  %0 = lathe.matmul %x, %w {transpose_b} : (tensor<1x1x512xbf16>, tensor<256x512xbf16>) -> tensor<1x1x256xbf16>
  %1 = lathe.reshape %0 : (tensor<1x1x256xbf16>) -> tensor<1x4x1x64xbf16>
  %q = lathe.slice %1 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x1x64xbf16>) -> !q
  %v = lathe.slice %1 {starts = [#lathe.dim<0>, #lathe.dim<3>, #lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x4x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  %11 = lathe.rope %q, %cos, %sin {interleaved, rotary = 64 : i64} : (!q, tensor<1x64xbf16>, tensor<1x64xbf16>) -> !q
  %12 = lathe.neg %v : (tensor<1x1x1x64xbf16>) -> tensor<1x1x1x64xbf16>
  return %11, %12 : !q, tensor<1x1x1x64xbf16>
}
