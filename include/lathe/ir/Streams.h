//===- Streams.h - the stream of a step of a program ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step of an exec.program that is not on stream 0, or that takes part in the order of
// several streams, says so by attributes; those of one stream have none:
//
//   exec.launch @a(...) {exec.stream = 1, exec.waits = array<i64: 0>, exec.signal = 2, ...}
//
// runs on stream 1, behind event 0, and event 2 is reached when it is over. Verified with the
// program: an event is signalled once, before the steps that wait for it; the host takes part in no
// program of several streams.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_STREAMS_H
#define LATHE_IR_STREAMS_H

#include "lathe/ir/Exec.h"

namespace lathe {

inline constexpr const char *kStreamAttr = "exec.stream"; ///< i64, 0 when it is not there
inline constexpr const char *kWaitsAttr = "exec.waits";   ///< array<i64>: numbers of events
inline constexpr const char *kSignalAttr = "exec.signal"; ///< i64: number of an event

/// Of a step of a verified program.
struct StreamPlace {
  int64_t stream = 0;
  llvm::SmallVector<int64_t> waits;
  int64_t signal = -1; ///< or none
};
StreamPlace streamPlaceOf(mlir::Operation *step);

/// Whether some step of a program is on another stream than 0.
bool hasStreams(exec::ProgramOp program);

} // namespace lathe

#endif // LATHE_IR_STREAMS_H
