//===- Conformance.h - the ONNX corpus in one process -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_CONFORMANCE_CONFORMANCE_H
#define LATHE_TOOLS_LATHE_CONFORMANCE_CONFORMANCE_H

namespace lathe::conformance {

/// The name of a program that does what conformance() does.
constexpr const char *kProgram = "lathe-conformance";

/// Runs `lathe-conformance` with these arguments and returns its exit code. Once a process.
int conformance(int argc, char **argv);

} // namespace lathe::conformance

#endif // LATHE_TOOLS_LATHE_CONFORMANCE_CONFORMANCE_H
