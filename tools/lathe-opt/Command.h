//===- Command.h - the command `lathe-opt` ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_OPT_COMMAND_H
#define LATHE_TOOLS_LATHE_OPT_COMMAND_H

namespace lathe::opt {

/// Runs `lathe-opt` with these arguments and returns its exit code. Once a process.
int command(int argc, char **argv);

} // namespace lathe::opt

#endif // LATHE_TOOLS_LATHE_OPT_COMMAND_H
