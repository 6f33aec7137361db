//===- CodeFile.h - the file that holds code --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What lathe opens at run time is looked for beside the program or library that wants it.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_CODEFILE_H
#define LATHE_SUPPORT_CODEFILE_H

#include <string>

namespace lathe {

/// The absolute path of the program or shared library that holds `code`, an address of a function;
/// empty when the address is in none. Of a program it does not depend on how that was called.
std::string fileOfCode(const void *code);

} // namespace lathe

#endif // LATHE_SUPPORT_CODEFILE_H
