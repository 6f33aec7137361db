//===- cluster.cuh - reductions over clusters ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, hopper
//
// A row that is too long for the registers of one block is held by the blocks of a cluster, which
// write their parts to each other and combine them in order of rank.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_CLUSTER
#define LATHE_DEVICE_CLUSTER
#ifndef LATHE_EMULATE

/// Combines all threads of a cluster of CLUSTER blocks of THREADS; all get the result. Each place in
/// the text (PLACE) has memory of its own, so nobody has to wait until all have read, unless it is
/// reached again (LOOPS). Without loops the kernel begins with clusterArrive(), whose wait is here:
/// nobody writes to a block that has not begun.
template <class Op, int THREADS, int CLUSTER, int PLACE, bool LOOPS, class T> LATHE_DEV T clusterReduce(T v) {
  __shared__ T parts[CLUSTER];
  v = blockReduce<Op, THREADS>(v);
  if constexpr (LOOPS) clusterSync();
  else if constexpr (PLACE == 0) clusterWait();
  if (threadIdx.x < CLUSTER) storeToCluster(sharedAddr(&parts[clusterRank()]), threadIdx.x, v);
  clusterSync();
  T all = parts[0];
#pragma unroll
  for (int i = 1; i < CLUSTER; ++i) all = Op::apply(all, parts[i]);
  return all;
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_CLUSTER
