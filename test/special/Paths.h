//===- Paths.h - the ways that compute a group -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_SPECIAL_PATHS_H
#define LATHE_TEST_SPECIAL_PATHS_H

#include "Cases.h"

#include "lathe/support/Status.h"

#include <filesystem>
#include <map>
#include <set>

namespace lathe::special {

using Results = std::vector<HostTensor>; ///< one a case

/// Op by op through lib/reference.
Result<Results> byReference(const Group &group);

/// With constants for inputs, after simplify. A case that is not folded has no elements.
Result<Results> byFolder(const Group &group);

/// The group as an engine for these targets. `dump`: also the texts of its kernels; empty: nothing.
Result<std::string> compile(const Group &group, const std::vector<std::string> &targets,
                            const std::filesystem::path &folder, bool dump);

/// Runs an engine's code for one target.
Result<Results> byEngine(const Group &group, const std::string &engine, const std::string &device,
                         const std::string &target);

} // namespace lathe::special

#endif // LATHE_TEST_SPECIAL_PATHS_H
