//===- cluster.cuh - reductions over clusters ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A row that is too long for the registers of one block is held by the blocks of a cluster, which
// read each other's parts in order of rank.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_CLUSTER
#define LATHE_DEVICE_CLUSTER
#ifndef LATHE_EMULATE

/// Combines all threads of a cluster of CLUSTER blocks of THREADS; all get the result.
template <class Op, int THREADS, int CLUSTER, class T> LATHE_DEV T clusterReduce(T v) {
  __shared__ T part;
  v = blockReduce<Op, THREADS>(v);
  if (threadIdx.x == 0) part = v;
  clusterSync();
  T all[CLUSTER];
#pragma unroll
  for (int i = 0; i < CLUSTER; ++i) all[i] = loadFromCluster<T>(sharedAddr(&part), i);
#pragma unroll
  for (int i = 1; i < CLUSTER; ++i) all[0] = Op::apply(all[0], all[i]);
  clusterSync(); // everybody has read; `part` is free and its block may end
  return all[0];
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_CLUSTER
