//===- CpuFeatures.h - what this CPU can do ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_CPUFEATURES_H
#define LATHE_RUNTIME_DEVICE_CPUFEATURES_H

#include <string>
#include <vector>

namespace lathe::runtime {

/// The first feature of the list, in LLVM's spelling, that this CPU lacks or that is
/// unknown here; empty when it has all.
std::string missingCpuFeature(const std::vector<std::string> &features);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_CPUFEATURES_H
