//===- MeshProgram.h - a plan as the mesh simulator takes it ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_MESHPROGRAM_H
#define LATHE_TOOLS_LATHE_MESHPROGRAM_H

#include "lathe/analysis/MeshSimulator.h"
#include "lathe/engine/Plan.h"

#include <map>
#include <string>
#include <vector>

namespace lathe::cli {

/// The algorithm of a collective that nobody has chosen: on one host what the runtime takes, between hosts of
/// all_reduce the faster of ring and tree, of others the ring.
Result<analysis::CollectiveAlgorithm> usualAlgorithm(const analysis::MeshTopology &topology, analysis::CollectiveKind kind,
                                                     int64_t bytes, DType dtype, int64_t ranks);

/// The steps of a plan that take a device time: launches by a roofline of their flops and bytes, copies, and
/// collectives. `sizes`: of symbols, instead of their usual ones; `allReduce`: the algorithm, instead of the usual.
/// Usage errors for sizes that the plan does not have; Unsupported for If and Loop.
Result<std::vector<analysis::MeshStep>> meshProgram(const engine::Plan &plan, const analysis::MeshTopology &topology,
                                                    const std::map<std::string, int64_t> &sizes,
                                                    std::optional<analysis::CollectiveAlgorithm> allReduce);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_MESHPROGRAM_H
