//===- Page.h - pages of HTML that need no net ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_PAGE_H
#define LATHE_TOOLS_LATHE_PAGE_H

#include "llvm/Support/JSON.h"

#include <string>

namespace lathe::cli {

/// `head` ends within a script of type application/json, which `tail` closes: what stands between is `data`, written
/// so that no text in it ends the script.
std::string pageOf(const char *head, llvm::json::Value data, const char *tail);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_PAGE_H
