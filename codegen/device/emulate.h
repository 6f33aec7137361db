//===- emulate.h - run kernels on the host ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles the same kernel text with a host compiler and runs it as blocks and
// threads, so that generated code is tested without a GPU. Include this first,
// then the device library, then the kernel, all in one translation unit:
//
//   #define LATHE_EMULATE
//   #include "emulate.h"
//   #include "base.cuh"
//   ...
//   std::string error = run_emulated(kernel, {grid}, {block}, sharedBytes, args...);
//
// Blocks run one after another; the threads of a block are fibers that switch at
// barriers and warp instructions. A barrier that not all threads reach is found
// and named. Shared memory starts as 0xFF bytes in every block, so that reading
// it before writing shows (static arrays keep what the block before left). Asynchronous copies are
// made when they are waited for, so that reading too early shows, too.
//
// With LATHE_EMULATE_RACES defined and loads and stores instrumented, two accesses that nothing orders
// may be an error of the run (emulate_races.h).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_EMULATE
#define LATHE_DEVICE_EMULATE

#ifdef LATHE_EMULATE_RACES
// Neither the emulation's accesses count nor those of its containers.
#pragma clang attribute push(__attribute__((disable_sanitizer_instrumentation)), apply_to = function)
#include "emulate_races.h"
#define LATHE_NOTE(p, bytes, kind) lathe_emu::note(p, bytes, lathe_emu::AccessKind::kind)
#else
#define LATHE_NOTE(p, bytes, kind)
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <sched.h>
#include <string>
#include <utility>
#include <vector>

/// The static library of this build gives numbers far below 1, where there are none.
#define acosh(x) ((x) < 1 ? NAN : (acosh)(x))

#define __device__
#define __global__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define LATHE_DYNAMIC_SHARED(name) unsigned char *name = lathe_emu::block->dynamicShared

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace lathe_emu {

/// Saves the registers that a call preserves on this stack, its pointer in `*save`,
/// and goes on with the stack `to`.
__attribute__((naked, noinline)) static void switchStack(void **save, void *to) {
#if defined(__x86_64__)
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n retq");
#else
#error "the emulation switches stacks on x86-64 only"
#endif
}

/// A rendezvous of `members` fibers; who arrives last opens it for all.
struct Barrier {
  unsigned members = 0, arrived = 0, generation = 0;
};

/// An asynchronous copy of up to 16 bytes; the rest of 16 becomes 0.
struct Copy {
  unsigned char *to;
  const void *from;
  int bytes;
};

/// A copy that an mbarrier counts.
struct BulkCopy {
  uintptr_t to;
  const void *from;
  unsigned bytes;
};

struct Fiber {
  void *stackPointer = nullptr;
  char *stack = nullptr;
  dim3 thread;
  bool done = false;
  const Barrier *waitsFor = nullptr;
  unsigned waitsSince = 0;
  std::vector<Copy> copies;             ///< issued, not committed
  std::vector<std::vector<Copy>> groups; ///< committed, not waited for; the oldest first
};

struct Warp {
  Barrier barrier;
  unsigned syncs = 0; ///< of __syncwarp
  alignas(16) unsigned char slot[32][64];
};

struct Block {
  dim3 grid, size, index;
  unsigned char *dynamicShared = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barrier;
  std::map<uintptr_t, std::vector<BulkCopy>> bulk; ///< by mbarrier, not waited for
  Fiber *current = nullptr;
  void *scheduler = nullptr;
  const std::function<void()> *body = nullptr;
};

inline thread_local Block *block = nullptr;

inline unsigned linearThread() {
  const dim3 &t = block->current->thread, &s = block->size;
  return t.x + s.x * (t.y + s.y * t.z);
}
inline Warp &warp() { return block->warps[linearThread() / 32]; }

#ifdef LATHE_EMULATE_RACES
inline bool moment(Moment &now) {
  if (!block || !block->current)
    return false;
  const dim3 &i = block->index, &g = block->grid;
  now = {i.x + g.x * (i.y + g.y * i.z), linearThread(), block->barrier.generation, warp().syncs};
  return true;
}
#endif

inline void release(Barrier &b) {
  if (b.members > 0 && b.arrived == b.members) {
    b.arrived = 0;
    ++b.generation;
  }
}
inline void wait(Barrier &b) {
  Fiber *self = block->current;
  unsigned since = b.generation;
  ++b.arrived;
  release(b);
  if (b.generation != since)
    return;
  self->waitsFor = &b;
  self->waitsSince = since;
  switchStack(&self->stackPointer, block->scheduler);
}

inline void fiberMain() {
  Block *b = block;
  (*b->body)();
  Fiber *self = b->current;
  self->done = true;
  // A thread that returned counts no more in any barrier.
  Warp &w = warp();
  --w.barrier.members;
  release(w.barrier);
  --b->barrier.members;
  release(b->barrier);
  switchStack(&self->stackPointer, b->scheduler);
  __builtin_trap(); // a finished thread is never resumed
}

/// What the kernels ahead have yet to do when a programmatic kernel starts. It is done when all
/// threads of the first block wait for them: a thread that reads or writes too early sees or
/// leaves the memory of before.
inline thread_local std::function<void()> *ahead = nullptr;
inline void finishLater(std::function<void()> rest) {
  delete ahead;
  ahead = new std::function<void()>(std::move(rest));
}
inline void waitForDependencies() {
  if (!ahead)
    return;
  wait(block->barrier);
  if (std::unique_ptr<std::function<void()>> rest(std::exchange(ahead, nullptr)); rest)
    (*rest)();
}

/// Every lane shows `bytes` at `mine`; `read(lane)` gives what another lane showed.
template <class Read> void exchange(const void *mine, size_t bytes, Read read) {
  Warp &w = warp();
  std::memcpy(w.slot[linearThread() % 32], mine, bytes);
  wait(w.barrier);
  read(w.slot);
  wait(w.barrier);
}

inline std::string launch(dim3 grid, dim3 size, size_t sharedBytes,
                          const std::function<void()> &body) {
  constexpr size_t kStack = 256 << 10;
  Block b;
  unsigned threads = size.x * size.y * size.z;
  b.grid = grid;
  b.size = size;
  b.body = &body;
  b.fibers.resize(threads);
  b.warps.resize((threads + 31) / 32);
  std::vector<unsigned char> shared(sharedBytes + 128);
  b.dynamicShared = shared.data() + (128 - reinterpret_cast<uintptr_t>(shared.data()) % 128) % 128;
  std::unique_ptr<char[]> stacks(new char[threads * kStack]);
  for (unsigned t = 0; t < threads; ++t)
    b.fibers[t].stack = stacks.get() + t * kStack;
  block = &b;
#ifdef LATHE_EMULATE_RACES
  if (raceHooks)
    raceHooks->begin({stacks.get(), threads * kStack, b.dynamicShared, sharedBytes, __bss_start, _end, __ehdr_start});
#endif
  std::string error;
  for (unsigned z = 0; z < grid.z && error.empty(); ++z)
    for (unsigned y = 0; y < grid.y && error.empty(); ++y)
      for (unsigned x = 0; x < grid.x && error.empty(); ++x) {
        b.index = dim3(x, y, z);
        std::memset(shared.data(), 0xFF, shared.size());
        b.barrier = Barrier{threads};
        b.bulk.clear();
#ifdef LATHE_EMULATE_RACES
        if (raceHooks)
          raceHooks->beginBlock();
#endif
        for (unsigned w = 0; w < b.warps.size(); ++w)
          b.warps[w].barrier = Barrier{threads - w * 32 < 32 ? threads - w * 32 : 32};
        for (unsigned t = 0; t < threads; ++t) {
          Fiber &f = b.fibers[t];
          f.thread = dim3(t % size.x, t / size.x % size.y, t / (size.x * size.y));
          f.done = false;
          f.waitsFor = nullptr;
          f.copies.clear();
          f.groups.clear();
          // As switchStack leaves a stack: six registers, then where to return to; a
          // function starts with its stack 8 off a multiple of 16.
          auto top = reinterpret_cast<uintptr_t>(f.stack + kStack) / 16 * 16;
          auto *frame = reinterpret_cast<void **>(top) - 8;
          std::fill_n(frame, 8, nullptr);
          frame[6] = reinterpret_cast<void *>(fiberMain);
          f.stackPointer = frame;
        }
        for (bool alive = true; alive;) {
          alive = false;
          bool moved = false;
          for (Fiber &f : b.fibers) {
            if (f.done)
              continue;
            alive = true;
            if (f.waitsFor && f.waitsFor->generation == f.waitsSince)
              continue;
            f.waitsFor = nullptr;
            moved = true;
            b.current = &f;
            switchStack(&b.scheduler, f.stackPointer);
            b.current = nullptr;
          }
          if (alive && !moved) {
            error = "a barrier is not reached by all threads: block (" + std::to_string(x) + ", " +
                    std::to_string(y) + ", " + std::to_string(z) + ")";
            break;
          }
        }
      }
  block = nullptr;
#ifdef LATHE_EMULATE_RACES
  if (raceHooks && error.empty())
    error = raceHooks->end();
#endif
  return error;
}

} // namespace lathe_emu

#define threadIdx (lathe_emu::block->current->thread)
#define blockIdx (lathe_emu::block->index)
#define blockDim (lathe_emu::block->size)
#define gridDim (lathe_emu::block->grid)

inline void __syncthreads() { lathe_emu::wait(lathe_emu::block->barrier); }
inline void __syncwarp(unsigned = ~0u) {
  // Who arrives last counts for all, before the others go on.
  lathe_emu::Warp &w = lathe_emu::warp();
  if (w.barrier.arrived + 1 == w.barrier.members)
    ++w.syncs;
  lathe_emu::wait(w.barrier);
}
inline void __threadfence() {}

template <class T> inline T atomicCAS(T *p, T expected, T desired) {
  LATHE_NOTE(p, sizeof(T), Atomic);
  T old = *p;
  if (old == expected)
    *p = desired;
  return old;
}
template <class T> inline T atomicAdd(T *p, T v) {
  LATHE_NOTE(p, sizeof(T), Atomic);
  T old = *p;
  *p = old + v;
  return old;
}
template <class T> inline T atomicExch(T *p, T v) {
  LATHE_NOTE(p, sizeof(T), Atomic);
  return std::exchange(*p, v);
}
template <class T> inline T atomicMax(T *p, T v) {
  LATHE_NOTE(p, sizeof(T), Atomic);
  T old = *p;
  if (v > old)
    *p = v;
  return old;
}
template <class T> inline T atomicMin(T *p, T v) {
  LATHE_NOTE(p, sizeof(T), Atomic);
  T old = *p;
  if (v < old)
    *p = v;
  return old;
}

// ---- Arithmetic that is rounded once each, and never becomes an FMA ---------------
#pragma clang fp contract(off)
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
#pragma clang fp contract(on)
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// ---- What base.cuh writes in PTX --------------------------------------------------

typedef uintptr_t SharedAddr;
struct Bits16 { unsigned w[4]; };

inline float bitsToF32(unsigned b) { float f; std::memcpy(&f, &b, 4); return f; }
inline unsigned f32ToBits(float f) { unsigned b; std::memcpy(&b, &f, 4); return b; }
inline unsigned short bf16Bits(float x) {
  unsigned b = f32ToBits(x);
  if (x != x)
    return 0x7fff;
  return static_cast<unsigned short>((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}
inline float f16Value(unsigned short h) {
  unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  if (exponent == 0)
    return bitsToF32(sign | f32ToBits(static_cast<float>(mantissa) * 5.9604644775390625e-8f));
  if (exponent == 31)
    return bitsToF32(sign | 0x7f800000u | mantissa << 13);
  return bitsToF32(sign | (exponent + 112) << 23 | mantissa << 13);
}
inline unsigned short f16Bits(float x) {
  unsigned b = f32ToBits(x), sign = b >> 16 & 0x8000, magnitude = b & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return 0x7fff;
  if (magnitude >= 0x477ff000)
    return static_cast<unsigned short>(sign | 0x7c00);
  if (magnitude < 0x38800000) { // below the smallest normal: multiples of 2^-24, ties to even
    float scaled = bitsToF32(magnitude) * 16777216.0f;
    return static_cast<unsigned short>(sign | static_cast<unsigned>(std::nearbyintf(scaled)));
  }
  unsigned rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<unsigned short>(sign | (rounded - 0x38000000) >> 13);
}
inline unsigned bf16Pair(float low, float high) { return bf16Bits(low) | (unsigned)bf16Bits(high) << 16; }
inline unsigned f16Pair(float low, float high) { return f16Bits(low) | (unsigned)f16Bits(high) << 16; }
inline unsigned short u8Pair(int low, int high) {
  return static_cast<unsigned short>(std::clamp(low, 0, 255) | std::clamp(high, 0, 255) << 8);
}
inline unsigned short i8Pair(int low, int high) {
  return static_cast<unsigned short>((std::clamp(low, -128, 127) & 255) | (std::clamp(high, -128, 127) & 255) << 8);
}
inline float fastExp2(float x) { return std::exp2f(x); }
inline float fastReciprocal(float x) { return 1.0f / x; }

inline unsigned shuffleXor32(unsigned v, int mask) {
  unsigned lane = lathe_emu::linearThread() % 32, r = 0;
  lathe_emu::exchange(&v, 4, [&](auto &slot) { std::memcpy(&r, slot[lane ^ mask], 4); });
  return r;
}
inline unsigned shuffleFrom32(unsigned v, int from) {
  unsigned r = 0;
  lathe_emu::exchange(&v, 4, [&](auto &slot) { std::memcpy(&r, slot[from & 31], 4); });
  return r;
}
inline bool blockAny(bool is) {
  // Two flags in turn: who is slow still reads one while others set the next.
  static thread_local bool any[2];
  static thread_local unsigned turn;
  lathe_emu::Block *b = lathe_emu::block;
  if (b->barrier.arrived == 0)
    any[turn ^= 1] = false;
  const unsigned slot = turn;
  any[slot] |= is;
  __syncthreads();
  return any[slot];
}
inline unsigned warpBits(bool is) {
  unsigned bits = 0;
  lathe_emu::exchange(&is, 1, [&](auto &slot) {
    for (unsigned lane = 0; lane < lathe_emu::warp().barrier.members; ++lane)
      bits |= unsigned(slot[lane][0] != 0) << lane;
  });
  return bits;
}
inline int countBits(unsigned v) { return __builtin_popcount(v); }
inline SharedAddr sharedAddr(const void *p) { return reinterpret_cast<SharedAddr>(p); }
inline Bits16 loadGlobal16(const void *p) {
  Bits16 v;
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0)
    __builtin_trap(); // a GPU would fault
  LATHE_NOTE(p, 16, Read);
  std::memcpy(&v, p, 16);
  return v;
}
inline void storeGlobal16(void *p, const Bits16 &v) {
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0)
    __builtin_trap();
  LATHE_NOTE(p, 16, Write);
  std::memcpy(p, &v, 16);
}
inline unsigned loadRelaxed(const unsigned *from) {
  LATHE_NOTE(from, 4, Atomic);
  return *from;
}
inline void storeRelaxed(unsigned *to, unsigned v) {
  LATHE_NOTE(to, 4, Atomic);
  *to = v;
}
inline unsigned long long loadAcquire(const unsigned long long *from) {
  LATHE_NOTE(from, 8, Atomic);
  return *from;
}
inline void storeRelease(unsigned long long *to, unsigned long long v) {
  LATHE_NOTE(to, 8, Atomic);
  *to = v;
}
inline Bits16 loadGlobal16Streaming(const void *p) { return loadGlobal16(p); }

// What peers.cuh has in PTX. Ranks are threads of the host.
namespace lathe_emu {
/// Called ahead of what ranks see of each other: a test lets some of them be late.
inline void (*beforeSystem)() = nullptr;
inline void systemAccess() {
  if (beforeSystem)
    beforeSystem();
}
} // namespace lathe_emu

inline Bits16 loadSystem16(const void *p) {
  lathe_emu::systemAccess();
  Bits16 v;
  for (int i = 0; i < 4; ++i)
    v.w[i] = __atomic_load_n(static_cast<const unsigned *>(p) + i, __ATOMIC_RELAXED);
  return v;
}
inline void storeSystem16(void *p, const Bits16 &v) {
  lathe_emu::systemAccess();
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0)
    __builtin_trap();
  for (int i = 0; i < 4; ++i)
    __atomic_store_n(static_cast<unsigned *>(p) + i, v.w[i], __ATOMIC_RELAXED);
}
inline unsigned loadSystem(const unsigned *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
inline void storeSystem(unsigned *p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
inline void storeReleaseSystem(unsigned *p, unsigned v) {
  lathe_emu::systemAccess();
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
inline unsigned loadAcquireSystem(const unsigned *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
inline unsigned long long nanoseconds() { // who asks waits for another rank
  sched_yield();
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

inline void pinLoads() {}
inline void needValue(float) {}
inline unsigned inRegister(unsigned v) { return v; }

// ---- What mma.cuh writes in PTX ---------------------------------------------------

namespace lathe_emu {
inline void make(const std::vector<Copy> &copies) {
  for (const Copy &c : copies) {
    LATHE_NOTE(c.from, c.bytes, Read);
    LATHE_NOTE(c.to, 16, Write);
    std::memset(c.to, 0, 16);
    std::memcpy(c.to, c.from, static_cast<size_t>(c.bytes));
  }
}
} // namespace lathe_emu

inline void cpAsync16(SharedAddr to, const void *from, int bytes) {
  auto *p = reinterpret_cast<unsigned char *>(to);
  LATHE_NOTE(p, 16, Write);
  lathe_emu::block->current->copies.push_back({p, from, bytes});
}
inline void cpAsync16Line(SharedAddr to, const void *from, int bytes) {
  cpAsync16(to, from, bytes);
}
inline void cpAsync16Streaming(SharedAddr to, const void *from, int bytes) {
  cpAsync16(to, from, bytes);
}
inline void cpAsyncCommit() {
  lathe_emu::Fiber &f = *lathe_emu::block->current;
  f.groups.push_back(std::move(f.copies));
  f.copies.clear();
}
template <int N> inline void cpAsyncWait() {
  auto &groups = lathe_emu::block->current->groups;
  while (groups.size() > N) {
    lathe_emu::make(groups.front());
    groups.erase(groups.begin());
  }
}

// What gemm_packed.cuh and gemm_fragments.cuh take of hopper.cuh. The copies of a barrier are over when it is first
// waited for.
inline void prefetchToL2(const void *, unsigned) {}
inline void barrierInit(SharedAddr, unsigned) {}
inline void barrierInitFence() {}
inline void barrierExpect(SharedAddr, unsigned) {}
inline void barrierWait(SharedAddr bar, unsigned) {
  auto &bulk = lathe_emu::block->bulk;
  for (const lathe_emu::BulkCopy &c : bulk[bar]) {
    std::memcpy(reinterpret_cast<void *>(c.to), c.from, c.bytes);
#ifdef LATHE_EMULATE_RACES
    if (lathe_emu::raceHooks)
      lathe_emu::raceHooks->copied(reinterpret_cast<void *>(c.to), c.bytes);
#endif
  }
  bulk[bar].clear();
}
inline void bulkLoadStreaming(SharedAddr to, const void *from, unsigned bytes, SharedAddr bar) {
  if ((to | reinterpret_cast<uintptr_t>(from) | bytes) % 16 != 0)
    __builtin_trap();
  LATHE_NOTE(from, bytes, Read);
  LATHE_NOTE(reinterpret_cast<void *>(to), bytes, Write);
  lathe_emu::block->bulk[bar].push_back({to, from, bytes});
}

namespace lathe_emu {
/// One 8x8 matrix of 16-bit elements per group of eight lanes' row addresses.
inline void loadMatrices(unsigned (&r)[4], SharedAddr row, bool transpose) {
  unsigned lane = linearThread() % 32;
  exchange(&row, sizeof row, [&](auto &slot) {
    for (unsigned i = 0; i < 4; ++i) {
      unsigned short e[2];
      for (unsigned j = 0; j < 2; ++j) {
        unsigned r0 = lane / 4, c0 = lane % 4 * 2 + j;
        if (transpose)
          std::swap(r0, c0);
        SharedAddr base;
        std::memcpy(&base, slot[i * 8 + r0], sizeof base);
        LATHE_NOTE(reinterpret_cast<const char *>(base) + c0 * 2, 2, Read);
        std::memcpy(&e[j], reinterpret_cast<const char *>(base) + c0 * 2, 2);
      }
      r[i] = e[0] | static_cast<unsigned>(e[1]) << 16;
    }
  });
}
template <float (*VALUE)(unsigned short)>
inline void mma16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  unsigned lane = linearThread() % 32;
  exchange(mine, sizeof mine, [&](auto &slot) {
    auto word = [&](unsigned l, unsigned i) {
      unsigned w;
      std::memcpy(&w, slot[l] + 4 * i, 4);
      return w;
    };
    for (unsigned i = 0; i < 4; ++i) {
      unsigned row = lane / 4 + (i / 2) * 8, col = lane % 4 * 2 + (i & 1);
      float sum = d[i];
      for (unsigned k = 0; k < 16; ++k) {
        unsigned aw = word(row % 8 * 4 + k % 8 / 2, row / 8 + (k / 8) * 2);
        unsigned bw = word(col * 4 + k % 8 / 2, 4 + k / 8);
        sum += VALUE(static_cast<unsigned short>(aw >> 16 * (k & 1))) *
               VALUE(static_cast<unsigned short>(bw >> 16 * (k & 1)));
      }
      d[i] = sum;
    }
  });
}
/// Of each four elements of a row of A two, whose places the word of a pair of threads says.
template <float (*VALUE)(unsigned short), int PAIR>
inline void mmaSparse16832(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned places) {
  unsigned mine[9] = {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], places};
  unsigned lane = linearThread() % 32;
  exchange(mine, sizeof mine, [&](auto &slot) {
    auto half = [&](unsigned l, unsigned i, unsigned high) {
      unsigned w;
      std::memcpy(&w, slot[l] + 4 * i, 4);
      return VALUE(static_cast<unsigned short>(w >> 16 * high));
    };
    for (unsigned i = 0; i < 4; ++i) {
      unsigned row = lane / 4 + (i / 2) * 8, col = lane % 4 * 2 + (i & 1);
      for (unsigned c = 0; c < 16; ++c) { // kept elements, two of each four
        unsigned word;
        std::memcpy(&word, slot[row % 8 * 4 + 2 * PAIR + c / 8] + 32, 4);
        unsigned k = c / 2 * 4 + (word >> (row / 8 * 16 + c % 8 * 2) & 3);
        d[i] += half(row % 8 * 4 + c % 8 / 2, row / 8 + c / 8 * 2, c & 1) * half(col * 4 + k % 8 / 2, 4 + k / 8, k & 1);
      }
    }
  });
}
inline float bf16Value(unsigned short b) { return bitsToF32(static_cast<unsigned>(b) << 16); }
} // namespace lathe_emu

inline void loadMatrix4(unsigned (&r)[4], SharedAddr row) { lathe_emu::loadMatrices(r, row, false); }
inline void loadMatrix4Transposed(unsigned (&r)[4], SharedAddr row) {
  lathe_emu::loadMatrices(r, row, true);
}
inline unsigned turnMatrix(unsigned a) {
  unsigned lane = lathe_emu::linearThread() % 32, r = 0;
  lathe_emu::exchange(&a, 4, [&](auto &slot) {
    for (unsigned j = 0; j < 2; ++j) {
      unsigned row = lane % 4 * 2 + j, column = lane / 4, w;
      std::memcpy(&w, slot[row * 4 + column / 2], 4);
      r |= (w >> 16 * (column & 1) & 0xffff) << 16 * j;
    }
  });
  return r;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = a | (unsigned long long)b << 32;
  unsigned r = 0;
  for (unsigned i = 0; i < 4; ++i)
    r |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return r;
}
inline unsigned bf16Difference(unsigned a, unsigned b) {
  unsigned r = 0;
  for (unsigned i = 0; i < 32; i += 16)
    r |= (unsigned)bf16Bits(lathe_emu::bf16Value((unsigned short)(a >> i)) - lathe_emu::bf16Value((unsigned short)(b >> i))) << i;
  return r;
}
inline unsigned f16Difference(unsigned a, unsigned b) {
  unsigned r = 0;
  for (unsigned i = 0; i < 32; i += 16)
    r |= (unsigned)f16Bits(f16Value((unsigned short)(a >> i)) - f16Value((unsigned short)(b >> i))) << i;
  return r;
}
inline void mmaBf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  lathe_emu::mma16816<lathe_emu::bf16Value>(d, a, b);
}
inline void mmaF16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  lathe_emu::mma16816<f16Value>(d, a, b);
}
template <int PAIR> inline void mmaSparseBf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned places) {
  lathe_emu::mmaSparse16832<lathe_emu::bf16Value, PAIR>(d, a, b, places);
}
template <int PAIR> inline void mmaSparseF16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned places) {
  lathe_emu::mmaSparse16832<f16Value, PAIR>(d, a, b, places);
}
inline void mmaBytes(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned lane = lathe_emu::linearThread() % 32;
  lathe_emu::exchange(mine, sizeof mine, [&](auto &slot) {
    auto byte = [&](unsigned l, unsigned word, unsigned k) { return (int)(signed char)slot[l][4 * word + k % 4]; };
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (unsigned k = 0; k < 32; ++k)
        d[i] += byte(row % 8 * 4 + k % 16 / 4, row / 8 + k / 16 * 2, k) * byte(column * 4 + k % 16 / 4, 4 + k / 16, k);
    }
  });
}

/// Runs a kernel whose parameters are pointers and i64, given as 64-bit words in order: the
/// form in which a program that knows a kernel only by its KernelSpec calls it.
template <class... Params>
std::string run_emulated_words(void (*kernel)(Params...), dim3 grid, dim3 block, size_t sharedBytes,
                               const unsigned long long *words) {
  return lathe_emu::launch(grid, block, sharedBytes, [&] {
    [&]<size_t... I>(std::index_sequence<I...>) { kernel((Params)words[I]...); }
    (std::make_index_sequence<sizeof...(Params)>{});
  });
}

/// The same with a pointer to each parameter, as cuLaunchKernel takes them.
template <class... Params>
std::string run_emulated_parameters(void (*kernel)(Params...), dim3 grid, dim3 block,
                                    size_t sharedBytes, void **parameters) {
  unsigned long long words[sizeof...(Params)];
  for (size_t i = 0; i < sizeof...(Params); ++i)
    std::memcpy(&words[i], parameters[i], sizeof words[i]);
  return run_emulated_words(kernel, grid, block, sharedBytes, words);
}

/// Runs a kernel; "" or what went wrong.
template <class... Params, class... Args>
std::string run_emulated(void (*kernel)(Params...), dim3 grid, dim3 block, size_t sharedBytes,
                         Args... args) {
  return lathe_emu::launch(grid, block, sharedBytes, [&] { kernel(args...); });
}

#ifdef LATHE_EMULATE_RACES
#pragma clang attribute pop
#endif
#endif // LATHE_DEVICE_EMULATE
