//===- Commands.cpp - the programs inside liblathe_compiler.so ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../lathe-opt/Command.h"
#include "../lathe/Command.h"

#include "lathe/compiler/lathe_compiler.h"

extern "C" {

/// What `lathe` and `lathe-opt` do with these arguments (argv[0] is a name); the exit code.
/// Once a process, because LLVM's command line is read once.
LATHE_COMPILER_API int lathe_command(int argc, char **argv) { return lathe::cli::command(argc, argv); }
LATHE_COMPILER_API int lathe_opt_command(int argc, char **argv) {
  return lathe::opt::command(argc, argv);
}
}
