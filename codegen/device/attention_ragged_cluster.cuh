//===- attention_ragged_cluster.cuh - keys of one token that a cluster shares ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: hopper, attention_ragged
//
// A sequence that generates by itself has one tile a key head in attention_ragged.cuh, and a multiprocessor takes as long as
// it has keys. Here each warp of such a tile is a block of its own, on a multiprocessor of its own, and sends what it has to
// the last one, which joins the parts in the order of the warps: the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_RAGGED_CLUSTER
#define LATHE_DEVICE_ATTENTION_RAGGED_CLUSTER
#ifndef LATHE_EMULATE

/// The blocks of a cluster.
template <int BLOCKS> struct RaggedCluster {
  static LATHE_METHOD u32 rank() { return clusterRank(); }
  static LATHE_METHOD f32 *parts(f32 *own) { return own; }
  static LATHE_METHOD void give(f32 *place, f32 value) { storeToCluster(sharedAddr(place), BLOCKS - 1, value); }
  static LATHE_METHOD void begin() { clusterArrive(); }
  static LATHE_METHOD void meet() { clusterWait(); }
  static LATHE_METHOD void given() { clusterSync(); }
};

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_ATTENTION_RAGGED_CLUSTER
