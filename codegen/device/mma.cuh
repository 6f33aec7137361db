//===- mma.cuh - asynchronous copies and matrix instructions ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// The portable set: cp.async, ldmatrix, mma.sync with 16-bit operands and f32
// accumulation, and with bytes and i32. sm_80 and later.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_MMA
#define LATHE_DEVICE_MMA

#ifndef LATHE_EMULATE
/// Copies `bytes` (0 to 16) from global memory and zero-fills up to 16; both
/// addresses are multiples of 16.
LATHE_DEV void cpAsync16(SharedAddr to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/// The same, which brings the line of 128 bytes around it into the second-level cache: others are about to read the rest.
LATHE_DEV void cpAsync16Line(SharedAddr to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/// The same of what is read once: it leaves the second-level cache first.
LATHE_DEV void cpAsync16Streaming(SharedAddr to, const void *from, int bytes) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;"
               ::"r"(to), "l"(from), "r"(bytes), "l"(policy) : "memory");
}
LATHE_DEV void cpAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most N groups of this thread are under way.
template <int N> LATHE_DEV void cpAsyncWait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

/// Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
LATHE_DEV void loadMatrix4(u32 (&r)[4], SharedAddr row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
LATHE_DEV void loadMatrix4Transposed(u32 (&r)[4], SharedAddr row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
/// d[16x8] += a[16x16] b[16x8]
LATHE_DEV void mmaBf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LATHE_DEV void mmaF16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// d[16x8] += a[16x32] b[32x8] of signed bytes
LATHE_DEV void mmaBytes(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// d[16x8] += a[16x32] b[32x8], two of each four elements of a row of a being in `a`, and where they were in `places`, four
/// bits each four, of threads 0 and 1 (PAIR 0) or 2 and 3 (PAIR 1) of each four: rows lane / 4 (low half) and 8 further.
template <int PAIR> LATHE_DEV void mmaSparseBf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places) {
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
               "{%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, %13;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places), "n"(PAIR));
}
template <int PAIR> LATHE_DEV void mmaSparseF16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places) {
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
               "{%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, %13;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places), "n"(PAIR));
}
/// a - b of two 16-bit floats to a word.
LATHE_DEV u32 bf16Difference(u32 a, u32 b) {
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(0x3f803f80u), "r"(b ^ 0x80008000u)); // a * 1 - b
  return r;
}
LATHE_DEV u32 f16Difference(u32 a, u32 b) { u32 r; asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
/// a * b of two 16-bit floats to a word.
LATHE_DEV u32 bf16Product(u32 a, u32 b) {
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u)); // a * b + -0
  return r;
}
LATHE_DEV u32 f16Product(u32 a, u32 b) { u32 r; asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
/// An 8x8 matrix of 16-bit elements, two neighbours of row l / 4 in lane l, transposed.
LATHE_DEV u32 turnMatrix(u32 a) {
  u32 d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}
#endif // LATHE_EMULATE

LATHE_DEV void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) { mmaBf16(d, a, b); }
LATHE_DEV void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], f16) { mmaF16(d, a, b); }
template <int PAIR> LATHE_DEV void mmaSparse(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places, bf16) {
  mmaSparseBf16<PAIR>(d, a, b, places);
}
template <int PAIR> LATHE_DEV void mmaSparse(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places, f16) {
  mmaSparseF16<PAIR>(d, a, b, places);
}

/// A tile of 16-bit elements in shared memory, COLS a row; pieces of 16 bytes are
/// permuted within a row so that eight consecutive rows of one column of pieces
/// lie in different banks.
template <int COLS> struct SwizzledTile {
  static constexpr int kPieces = COLS / 8;
  static_assert(kPieces >= 2 && (kPieces & (kPieces - 1)) == 0, "a power of two of pieces");
  /// Byte offset of the piece that holds (row, col); col is a multiple of 8.
  static LATHE_METHOD u32 offset(int row, int col) {
    int piece = col / 8;
    if constexpr (kPieces >= 8) piece ^= row & 7;
    else if constexpr (kPieces == 4) piece ^= (row >> 1) & 3;
    else piece ^= (row >> 2) & 1;
    return (u32)(row * COLS + piece * 8) * 2;
  }
};

#endif // LATHE_DEVICE_MMA
