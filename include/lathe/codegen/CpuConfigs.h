//===- CpuConfigs.h - what a kernel on a CPU could run as -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_CPUCONFIGS_H
#define LATHE_CODEGEN_CPUCONFIGS_H

#include "lathe/codegen/Config.h"

#include <string>
#include <vector>

namespace lathe {

/// Names of the configurations that a kernel on a CPU could have instead of the chosen one: other forms of the same
/// convolution, other rows, panels and stages of a unit of work. Some of them may not apply at its sizes, which
/// KernelDesc::wanted allows for. `lathe tune` measures them, and test/perf/sample_cpu.py judges the choice by them.
std::vector<std::string> cpuConfigsBeside(const KernelConfig &chosen);

} // namespace lathe

#endif // LATHE_CODEGEN_CPUCONFIGS_H
