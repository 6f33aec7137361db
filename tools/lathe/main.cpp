//===- main.cpp - lathe as a program --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Under the name lathe-conformance it runs the corpus of ONNX: where there is a copy of this file, a machine with a GPU
// say, that needs nothing else.
//
//===----------------------------------------------------------------------===//
#include "Command.h"

#include "../lathe-conformance/Conformance.h"

#include <filesystem>

int main(int argc, char **argv) {
  if (argc > 0 && std::filesystem::path(argv[0]).filename() == lathe::conformance::kProgram)
    return lathe::conformance::conformance(argc, argv);
  return lathe::cli::command(argc, argv);
}
