//===- hopper.cuh - tensor maps, mbarriers, wgmma, clusters ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// What sm_90a has beyond mma.cuh: TMA, mbarriers that count its bytes, wgmma, setmaxnreg,
// clusters and programmatic launches. Thin names for instructions; the skeletons see to the
// order in which they may be issued. Nothing of it is emulated on the host.
//
// The product instruction itself is printed where it is needed: wgmmaMethod of
// codegen/cuda/Wgmma.h.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_HOPPER
#define LATHE_DEVICE_HOPPER
#ifndef LATHE_EMULATE

/// How a box of a tensor lies in global memory (a CUtensorMap), a parameter of the kernel:
/// `const __grid_constant__ TensorMap map0`.
struct alignas(64) TensorMap { u64 opaque[16]; };

// ---- Barriers in shared memory ---------------------------------------------------
// One phase is over when `count` arrivals and all expected bytes have come. Waiting for a
// parity returns when the phase of that parity is over: a new barrier is in phase 0, so
// waiting for parity 1 passes at once.

LATHE_DEV void barrierInit(SharedAddr bar, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
/// After the inits, before a barrier of the block: TMA and the cluster see them.
LATHE_DEV void barrierInitFence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
LATHE_DEV void barrierExpect(SharedAddr bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
LATHE_DEV void barrierArrive(SharedAddr bar) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
}
/// The same barrier in another block of the cluster. Without release semantics, which cost a
/// quarter of the time of a product: what was read of shared memory has been waited for.
LATHE_DEV void barrierArriveRemote(SharedAddr bar, u32 rank) {
  asm volatile("{ .reg .u32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r]; }"
               ::"r"(bar), "r"(rank) : "memory");
}
LATHE_DEV bool barrierTry(SharedAddr bar, u32 parity) {
  u32 over;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(over) : "r"(bar), "r"(parity) : "memory");
  return over != 0;
}
LATHE_DEV void barrierWait(SharedAddr bar, u32 parity) {
  while (!barrierTry(bar, parity)) {}
}
/// The same where the wait may be long: the hardware lets the thread sleep for up to ten ms.
LATHE_DEV void barrierSleep(SharedAddr bar, u32 parity) {
  u32 over;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 10000000; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over) : "r"(bar), "r"(parity) : "memory");
  } while (over == 0);
}
/// The barriers of a ring of STAGES: one thread arrives on those of full stages, `readers` on those of
/// empty ones. By one thread, before a barrier of the block.
template <int STAGES> LATHE_DEV void ringInit(SharedAddr full, SharedAddr empty, u32 readers) {
  for (int s = 0; s < STAGES; ++s) {
    barrierInit(full + 8 * s, 1);
    barrierInit(empty + 8 * s, readers);
  }
  barrierInitFence();
}
/// Barriers 1 to 15 of the block among `threads` of it; 0 is __syncthreads.
LATHE_DEV void namedBarrierSync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Whether one of them says so; what they wrote to shared memory before is there for all.
LATHE_DEV bool namedBarrierAny(u32 id, u32 threads, bool so) {
  u32 any;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %3, 0; bar.red.or.pred q, %1, %2, p; selp.u32 %0, 1, 0, q; }"
               : "=r"(any) : "r"(id), "r"(threads), "r"((u32)so) : "memory");
  return any != 0;
}
LATHE_DEV void namedBarrierArrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- TMA ------------------------------------------------------------------------------
// Loads complete on a barrier, with the bytes of the whole box whatever was outside of the
// tensor and reads as zero. Stores leave out what is outside; they are committed in groups.

LATHE_DEV void tensorMapPrefetch(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
LATHE_DEV void tensorLoad(SharedAddr to, const TensorMap &map, SharedAddr bar, i32 x, i32 y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y) : "memory");
}
LATHE_DEV void tensorLoad(SharedAddr to, const TensorMap &map, SharedAddr bar, i32 x, i32 y, i32 z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y), "r"(z) : "memory");
}
LATHE_DEV void tensorLoad(SharedAddr to, const TensorMap &map, SharedAddr bar, i32 x, i32 y, i32 z, i32 w) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
/// The same to the same place of all blocks of the cluster whose bits are set in `ranks`, each of
/// which counts the bytes on the barrier at `bar`'s place.
LATHE_DEV void tensorLoadCluster(SharedAddr to, const TensorMap &map, SharedAddr bar, u16 ranks, i32 x, i32 y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5}], [%2], %3;"
               ::"r"(to), "l"(&map), "r"(bar), "h"(ranks), "r"(x), "r"(y) : "memory");
}
LATHE_DEV void tensorLoadCluster(SharedAddr to, const TensorMap &map, SharedAddr bar, u16 ranks, i32 x, i32 y, i32 z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%4, %5, %6}], [%2], %3;"
               ::"r"(to), "l"(&map), "r"(bar), "h"(ranks), "r"(x), "r"(y), "r"(z) : "memory");
}
/// Pixels of images with channels `c` and more of each: the first window begins at (x), (x, y) or
/// (x, y, z) of image n, and of each the pixel (i, j, k) further is taken.
LATHE_DEV void imageLoad(SharedAddr to, const TensorMap &map, SharedAddr bar, i32 c, i32 x, i32 n, u16 i) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5}], [%2], {%6};"
               ::"r"(to), "l"(&map), "r"(bar), "r"(c), "r"(x), "r"(n), "h"(i) : "memory");
}
LATHE_DEV void imageLoad(SharedAddr to, const TensorMap &map, SharedAddr bar, i32 c, i32 x, i32 y, i32 n, u16 i, u16 j) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
               ::"r"(to), "l"(&map), "r"(bar), "r"(c), "r"(x), "r"(y), "r"(n), "h"(i), "h"(j) : "memory");
}
LATHE_DEV void imageLoad(SharedAddr to, const TensorMap &map, SharedAddr bar, i32 c, i32 x, i32 y, i32 z, i32 n, u16 i,
                         u16 j, u16 k) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};"
               ::"r"(to), "l"(&map), "r"(bar), "r"(c), "r"(x), "r"(y), "r"(z), "r"(n), "h"(i), "h"(j), "h"(k)
               : "memory");
}
/// `bytes` in a row, a multiple of 16 as both addresses are.
LATHE_DEV void bulkLoad(SharedAddr to, const void *from, u32 bytes, SharedAddr bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
/// The same to all blocks of the cluster whose bits are set in `ranks`, as tensorLoadCluster.
LATHE_DEV void bulkLoadCluster(SharedAddr to, const void *from, u32 bytes, SharedAddr bar, u16 ranks) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
               ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "h"(ranks) : "memory");
}
/// Of what is read once: it leaves the second-level cache first.
LATHE_DEV void bulkLoadStreaming(SharedAddr to, const void *from, u32 bytes, SharedAddr bar) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
               ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}
/// Brings `bytes`, a multiple of 16 as the address is, into the second-level cache.
LATHE_DEV void prefetchToL2(const void *from, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
LATHE_DEV void tensorStore(const TensorMap &map, SharedAddr from, i32 x, i32 y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(&map), "r"(from), "r"(x), "r"(y) : "memory");
}
LATHE_DEV void tensorStore(const TensorMap &map, SharedAddr from, i32 x, i32 y, i32 z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               ::"l"(&map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}
LATHE_DEV void tensorStore(const TensorMap &map, SharedAddr from, i32 x, i32 y, i32 z, i32 w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               ::"l"(&map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
/// `bytes` in a row, a multiple of 16 as both addresses are.
LATHE_DEV void rowStore(void *to, SharedAddr from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
LATHE_DEV void storeCommit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until at most N groups of this thread still read shared memory; or until all are written.
template <int N> LATHE_DEV void storeWaitRead() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
LATHE_DEV void storeWaitAll() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/// By each thread that wrote shared memory, before the barrier behind which TMA or
/// a matrix product reads it.
LATHE_DEV void asyncFence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Products of four warps ------------------------------------------------------------
// An operand is named by a descriptor: address, distances, and the 128-byte swizzle of the
// tensor map that filled it. Row r of a tile begins 128 r bytes on, tiles at multiples of 1024.

/// Rows of m or n with k contiguous, 64 elements of 16 bits a row; 16 of k more: + 2.
LATHE_DEV u64 wgmmaAlongK(SharedAddr tile) {
  return (u64)((tile & 0x3ffff) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
/// The same of rows of 64 bytes, which the 64-byte swizzle has spread.
LATHE_DEV u64 wgmmaAlongK64(SharedAddr tile) {
  return (u64)((tile & 0x3ffff) >> 4) | 1ull << 16 | (u64)(512 >> 4) << 32 | 2ull << 62;
}
/// Rows of k, 64 elements of m or n a row; `next` bytes on lie the next 64 of them. 16 of k
/// more: + 128.
LATHE_DEV u64 wgmmaAcrossK(SharedAddr tile, u32 next) {
  return (u64)((tile & 0x3ffff) >> 4) | (u64)(next >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
/// The same with 32 elements a row, which the 64-byte swizzle has spread. 16 of k more: + 64.
LATHE_DEV u64 wgmmaAcrossK32(SharedAddr tile, u32 next) {
  return (u64)((tile & 0x3ffff) >> 4) | (u64)(next >> 4) << 16 | (u64)(512 >> 4) << 32 | 2ull << 62;
}
/// Before the first product and whenever registers that take part have been written.
LATHE_DEV void wgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
LATHE_DEV void wgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> LATHE_DEV void wgmmaWait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

/// Four 8x8 matrices of 16-bit elements to shared memory; lane l gives the address of row
/// l % 8 of matrix l / 8.
LATHE_DEV void storeMatrix4(SharedAddr row, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
               ::"r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
/// The same with each matrix transposed.
LATHE_DEV void storeMatrix4Transposed(SharedAddr row, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};"
               ::"r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

LATHE_DEV void storeShared8(SharedAddr at, u32 low, u32 high) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(at), "r"(low), "r"(high) : "memory");
}
LATHE_DEV void storeShared4(SharedAddr at, f32 v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory"); }
LATHE_DEV u32 loadShared4(SharedAddr at) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}
LATHE_DEV Vec<f32, 2> loadShared8(SharedAddr at) {
  Vec<f32, 2> r;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(r.v[0]), "=f"(r.v[1]) : "r"(at) : "memory");
  return r;
}
LATHE_DEV Vec<u32, 4> loadShared16(SharedAddr at) {
  Vec<u32, 4> r;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]) : "r"(at) : "memory");
  return r;
}
LATHE_DEV void storeShared2(SharedAddr at, u16 v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(v) : "memory"); }
LATHE_DEV u16 loadShared2(SharedAddr at) { u16 v; asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at)); return v; }

// ---- Roles, clusters, launches -----------------------------------------------------------

/// Registers of each thread of four warps, all of them in one branch of the kernel, whose
/// launch bounds name one block a multiprocessor.
template <int R> LATHE_DEV void registersRaise() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> LATHE_DEV void registersLower() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }

/// A number of which the compiler knows nothing more: loops over it stay as they are written.
LATHE_DEV i32 unknownNumber(i32 n) {
  asm volatile("" : "+r"(n));
  return n;
}

/// Between blocks, through global memory: what a thread and those that a barrier has put before it
/// wrote is there for who loads the value, and for those behind its barrier.
LATHE_DEV void storeRelease(u64 *to, u64 value) {
  asm volatile("fence.acq_rel.gpu; st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
LATHE_DEV u64 loadAcquire(const u64 *from) {
  u64 v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}

LATHE_DEV u32 clusterRank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
LATHE_DEV void clusterSync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/// What `address` of this block is in block `rank` of its cluster.
template <class T> LATHE_DEV T loadFromCluster(SharedAddr address, u32 rank) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  u32 w[sizeof(T) / 4];
  if constexpr (sizeof(T) == 16) {
    asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %4, %5; ld.shared::cluster.v4.u32 {%0,%1,%2,%3}, [a]; }"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address), "r"(rank) : "memory");
  } else
#pragma unroll
  for (int i = 0; i < (int)(sizeof(T) / 4); ++i)
    asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.u32 %0, [a]; }"
                 : "=r"(w[i]) : "r"(address + 4 * i), "r"(rank) : "memory");
  T r;
  memcpy(&r, w, sizeof r);
  return r;
}
/// The sums of what `address` is in each of BLOCKS blocks, in the order of their ranks.
template <int BLOCKS, class T, int L> LATHE_DEV Vec<T, L> addOverCluster(SharedAddr address) {
  Vec<T, L> parts[BLOCKS];
#pragma unroll
  for (int b = 0; b < BLOCKS; ++b) parts[b] = loadFromCluster<Vec<T, L>>(address, b);
#pragma unroll
  for (int b = 1; b < BLOCKS; ++b)
#pragma unroll
    for (int l = 0; l < L; ++l) parts[0].v[l] += parts[b].v[l];
  return parts[0];
}
/// Stores to what `address` of this block is in block `rank`, which has begun to run.
template <class T> LATHE_DEV void storeToCluster(SharedAddr address, u32 rank, T value) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  u32 w[sizeof(T) / 4];
  memcpy(w, &value, sizeof value);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(T) / 4); ++i)
    asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %0, %1; st.shared::cluster.u32 [a], %2; }"
                 ::"r"(address + 4 * i), "r"(rank), "r"(w[i]) : "memory");
}
/// By a block whose shared memory others have read, before it ends: until all of them are here. Each thread has used what it
/// read, so that nothing is on its way. Nothing that was written is handed over: nobody waits for results to arrive in
/// memory, which takes longer than all the rest.
LATHE_DEV void clusterLeave() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/// clusterSync in two parts.
LATHE_DEV void clusterArrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
LATHE_DEV void clusterWait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_HOPPER
