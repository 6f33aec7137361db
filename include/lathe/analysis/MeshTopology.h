//===- MeshTopology.h - GPUs, hosts and what lies between them --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_ANALYSIS_MESHTOPOLOGY_H
#define LATHE_ANALYSIS_MESHTOPOLOGY_H

#include <cstdint>
#include <map>

namespace lathe::analysis {

/// What carries messages: each end has a port for each direction, whose rate all messages in it share evenly.
struct MeshLink {
  double latency = 0;        ///< seconds from the sender to the receiver, whatever the size
  double messageSeconds = 0; ///< that the sender is busy with each message, one after another
  double bytesPerSecond = 1; ///< of a port, in each direction; more than 0
};

/// How fast a rank's kernels are.
struct KernelRates {
  double seconds = 0;        ///< that each kernel takes beside its work
  double tileSeconds = 0;    ///< that those take beside that which go through tiles on tensor cores: to fill and drain them
  double bytesPerSecond = 1; ///< more than 0
  double flops = 1;          ///< a second, of kernels on tensor cores if the device has them; more than 0
};

/// Ranks stand host by host: rank r is GPU r % gpusPerHost of host r / gpusPerHost.
struct MeshTopology {
  int64_t hosts = 1, gpusPerHost = 1;
  MeshLink peers;   ///< between GPUs of a host
  MeshLink network; ///< between hosts
  bool portPerHost = false; ///< the GPUs of a host share one port of the network; else each has its own
  double meetingSeconds = 0; ///< that a collective takes of each rank beside its messages
  KernelRates kernels;
  std::map<int64_t, double> speeds; ///< by rank: of its kernels, where it is not 1; more than 0

  int64_t gpus() const { return hosts * gpusPerHost; }
  int64_t hostOf(int64_t rank) const { return rank / gpusPerHost; }
  const MeshLink &between(int64_t a, int64_t b) const { return hostOf(a) == hostOf(b) ? peers : network; }
};

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_MESHTOPOLOGY_H
