//===- emulate_races.h - what instrumented kernels report -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The emulation runs threads one after another, so a race rarely changes a value there. Where the host compiler
// instruments loads and stores, as for its thread sanitizer but without that one's run-time library, the functions
// below, under the names that such code calls, report each access to whoever looks for races: in tests,
// test/unit/EmulatedRaces.cpp, which says what a race is. That one is compiled without instrumentation, so this header
// has no containers.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_EMULATE_RACES
#define LATHE_DEVICE_EMULATE_RACES

#include <cstdint>
#include <cstring>

namespace lathe_emu {

/// Where a thread of a launch is: how often its block and its warp have met.
struct Moment {
  uint32_t block, thread, blockSyncs, warpSyncs;
};

enum class AccessKind : uint8_t { Read, Write, Atomic };

/// Where a launch's own memory is.
struct LaunchMemory {
  const void *stacks; ///< of its threads; nobody else reaches them
  size_t stackBytes;
  const void *shared; ///< dynamic; each block's own
  size_t sharedBytes;
  const void *statics, *staticsEnd; ///< static variables, of which shared arrays are some
  const void *image;                ///< of the code
};

/// Who is told. A launch runs in one thread of the host, others may run in other threads.
struct RaceHooks {
  void (*begin)(const LaunchMemory &);
  void (*beginBlock)();
  /// `code`: where it returns to.
  void (*access)(const void *, size_t bytes, AccessKind, const Moment &, const void *code);
  /// A copy is over that its readers wait for on an mbarrier.
  void (*copied)(const void *, size_t bytes);
  /// "" or the first race of the launch; until the next begin.
  const char *(*end)();
};

} // namespace lathe_emu

#ifdef LATHE_EMULATE_RACES
#pragma clang attribute push(__attribute__((disable_sanitizer_instrumentation)), apply_to = function)

namespace lathe_emu {

inline const RaceHooks *raceHooks = nullptr;

/// Whether a thread of a kernel runs, and where it is.
bool moment(Moment &now);

inline void note(const void *p, size_t bytes, AccessKind kind, const void *code = __builtin_return_address(0)) {
  static constinit thread_local bool inside = false; // what moment calls may be instrumented
  if (!raceHooks || inside)
    return;
  inside = true;
  if (Moment now; moment(now))
    raceHooks->access(p, bytes, kind, now, code);
  inside = false;
}

} // namespace lathe_emu

extern "C" __attribute__((weak)) void lathe_race_hooks(const lathe_emu::RaceHooks *hooks) { lathe_emu::raceHooks = hooks; }
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[], __ehdr_start[];

// ---- What instrumented code calls -------------------------------------------------
#define LATHE_RACE_CALLBACK extern "C" __attribute__((weak, visibility("hidden"))) void
#define LATHE_RACE_CALLBACKS(bytes)                                                                                     \
  LATHE_RACE_CALLBACK __tsan_read##bytes(void *p) {                                                                     \
    lathe_emu::note(p, bytes, lathe_emu::AccessKind::Read, __builtin_return_address(0));                                \
  }                                                                                                                     \
  LATHE_RACE_CALLBACK __tsan_write##bytes(void *p) {                                                                    \
    lathe_emu::note(p, bytes, lathe_emu::AccessKind::Write, __builtin_return_address(0));                               \
  }                                                                                                                     \
  LATHE_RACE_CALLBACK __tsan_unaligned_read##bytes(void *p) {                                                           \
    lathe_emu::note(p, bytes, lathe_emu::AccessKind::Read, __builtin_return_address(0));                                \
  }                                                                                                                     \
  LATHE_RACE_CALLBACK __tsan_unaligned_write##bytes(void *p) {                                                          \
    lathe_emu::note(p, bytes, lathe_emu::AccessKind::Write, __builtin_return_address(0));                               \
  }
LATHE_RACE_CALLBACKS(1)
LATHE_RACE_CALLBACKS(2)
LATHE_RACE_CALLBACKS(4)
LATHE_RACE_CALLBACKS(8)
LATHE_RACE_CALLBACKS(16)
LATHE_RACE_CALLBACK __tsan_init() {}
LATHE_RACE_CALLBACK __tsan_vptr_update(void **, void *) {}
LATHE_RACE_CALLBACK __tsan_vptr_read(void **) {}
extern "C" __attribute__((weak, visibility("hidden"))) void *__tsan_memcpy(void *to, const void *from, size_t n) {
  lathe_emu::note(from, n, lathe_emu::AccessKind::Read, __builtin_return_address(0));
  lathe_emu::note(to, n, lathe_emu::AccessKind::Write, __builtin_return_address(0));
  return memcpy(to, from, n);
}
extern "C" __attribute__((weak, visibility("hidden"))) void *__tsan_memmove(void *to, const void *from, size_t n) {
  lathe_emu::note(from, n, lathe_emu::AccessKind::Read, __builtin_return_address(0));
  lathe_emu::note(to, n, lathe_emu::AccessKind::Write, __builtin_return_address(0));
  return memmove(to, from, n);
}
extern "C" __attribute__((weak, visibility("hidden"))) void *__tsan_memset(void *to, int byte, size_t n) {
  lathe_emu::note(to, n, lathe_emu::AccessKind::Write, __builtin_return_address(0));
  return memset(to, byte, n);
}
#undef LATHE_RACE_CALLBACKS
#undef LATHE_RACE_CALLBACK
#pragma clang attribute pop
#endif

#endif // LATHE_DEVICE_EMULATE_RACES
