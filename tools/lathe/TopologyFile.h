//===- TopologyFile.h - a mesh's machines as JSON ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   {"hosts": 2, "gpus_per_host": 8,
//    "peers":   {"latency": 7e-7, "message": 2e-7, "bytes_per_second": 3.2e11},
//    "network": {"latency": 5e-6, "message": 1e-6, "bytes_per_second": 4.5e10, "port": "gpu"},
//    "meeting": 9e-7,
//    "kernels": {"seconds": 1.3e-6, "tile_seconds": 2e-6, "bytes_per_second": 3e12, "flops": 6e14},
//    "speeds":  [{"rank": 3, "speed": 0.9}]}
//
// Times are seconds. `peers` is between GPUs of a host, `network` between hosts, which `hosts` > 1 wants; "port" is
// whether each GPU has one ("gpu", the default) or a host's GPUs share it ("host"). MeshTopology.h says what the
// numbers mean; those in seconds are 0 where they are left out, "hosts" is 1.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_TOPOLOGYFILE_H
#define LATHE_TOOLS_LATHE_TOPOLOGYFILE_H

#include "lathe/analysis/MeshTopology.h"
#include "lathe/support/Status.h"

#include <string>

namespace lathe::cli {

/// Invalid errors name the file and the field; those of a file that cannot be read are readFile()'s.
Result<analysis::MeshTopology> readTopology(const std::string &path);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_TOPOLOGYFILE_H
