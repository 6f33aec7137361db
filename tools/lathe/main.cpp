//===- main.cpp - lathe as a program --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Command.h"

int main(int argc, char **argv) { return lathe::cli::command(argc, argv); }
