//===- EmulatedRaces.h - accesses of a kernel that race ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two threads of a launch race where both access a byte, one of them writes, not both do it atomically, and
// nothing orders the two: no __syncthreads, no __syncwarp within a warp, and between blocks no atomic operation
// of both on one place, before which the one block's threads and behind which the other's have met.
//
// Unlike compute-sanitizer's racecheck this sees global memory as well as shared memory, and needs no GPU; what the
// emulation does not run (clusters, wgmma) it does not see. Shuffles and votes order no memory, as PTX has it. Fences
// are not looked at: an atomic operation counts as one.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_EMULATEDRACES_H
#define LATHE_TEST_UNIT_EMULATEDRACES_H

#include "../../codegen/device/emulate_races.h"

namespace lathe::test {

/// For lathe_race_hooks of code that was compiled with LATHE_RACE_OPTIONS: its launches give the first race as their
/// error. Any number of host threads may launch.
const lathe_emu::RaceHooks *findRaces();

/// The same for the kernels of this test program; false, and nothing done, in one that another sanitizer instruments.
inline bool findRacesHere() {
#ifdef LATHE_EMULATE_RACES
  lathe_race_hooks(findRaces());
  return true;
#else
  return false;
#endif
}

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_EMULATEDRACES_H
