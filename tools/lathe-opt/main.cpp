//===- main.cpp - lathe-opt as a program ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Command.h"

int main(int argc, char **argv) { return lathe::opt::command(argc, argv); }
