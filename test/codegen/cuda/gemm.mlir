// RUN: %lathe-opt --lathe-assign-roles=functions=true %s | %lathe-translate --kernel-to-cuda --config=gemm.mma.t128.m64.n64.k32.s4 --grid="ceildiv(M, 64)" | FileCheck %s
// A skeleton with its holes: both operands lie in rows of whole 16-byte pieces, the epilogue has
// eight lanes and stores a head at a time.

!a = tensor<?x64xbf16, #lathe.t<[M, 64]>>
!y = tensor<?x48xbf16, #lathe.t<[M, 48]>>

// CHECK: struct Holes {
// CHECK: typedef bf16 Element;
// CHECK: typedef f32 Acc;
// CHECK: static constexpr Operand kA = Operand::AlongK, kB = Operand::AcrossK;
// CHECK: static constexpr int kLanes = 8;
// CHECK: const bf16 *baseA(i64 b) const { return in0 + offsetA(b); }
// CHECK: i64 strideA() const { return 64ll; }
// CHECK: i64 strideB() const { return 48ll; }
// CHECK: void write(i64 b, i64 m, i64 piece, Vec<f32, 8> acc) const {
// CHECK: = loadVecConst<bf16, 8>(in2 +
// CHECK: = acc + {{v[0-9]+}};
// CHECK: storeVec(out0 +
// CHECK: gemmMma<MmaTile<64, 64, 32, 2, 2, 4>>(h, dim_M, 48ll, 64ll);
func.func @linear(%a: !a, %w: tensor<64x48xbf16>, %b: tensor<48xbf16>) -> tensor<6x?x8xbf16, #lathe.t<[6, M, 8]>> {
  %0 = lathe.matmul %a, %w : (!a, tensor<64x48xbf16>) -> !y
  %1 = lathe.add %0, %b : (!y, tensor<48xbf16>) -> !y
  %2 = lathe.reshape %1 : (!y) -> tensor<?x6x8xbf16, #lathe.t<[M, 6, 8]>>
  %3 = lathe.transpose %2 {perm = array<i64: 1, 0, 2>} : (tensor<?x6x8xbf16, #lathe.t<[M, 6, 8]>>) -> tensor<6x?x8xbf16, #lathe.t<[6, M, 8]>>
  return %3 : tensor<6x?x8xbf16, #lathe.t<[6, M, 8]>>
}
