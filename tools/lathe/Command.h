//===- Command.h - the command `lathe` --------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_COMMAND_H
#define LATHE_TOOLS_LATHE_COMMAND_H

namespace lathe::cli {

/// Runs `lathe` with these arguments and returns its exit code. Once a process.
int command(int argc, char **argv);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_COMMAND_H
