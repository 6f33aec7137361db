//===- sample_cluster.cuh - rows of logits that clusters share --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: sample, hopper
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SAMPLE_CLUSTER
#define LATHE_DEVICE_SAMPLE_CLUSTER
#ifndef LATHE_EMULATE

/// The blocks of a cluster, which read each other's shared memory.
template <int N> struct ClusterOf {
  static constexpr int BLOCKS = N;
  static LATHE_METHOD u32 rank() { return clusterRank(); }
  static LATHE_METHOD void sync() { clusterSync(); }
  template <class T> static LATHE_METHOD T load(const T *of, u32 rank) { return loadFromCluster<T>(sharedAddr(of), rank); }
};

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_SAMPLE_CLUSTER
