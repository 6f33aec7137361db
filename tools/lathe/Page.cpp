//===- Page.cpp - pages of HTML that need no net --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Page.h"

#include "llvm/Support/raw_ostream.h"

namespace lathe::cli {

std::string pageOf(const char *head, llvm::json::Value data, const char *tail) {
  std::string text;
  llvm::raw_string_ostream(text) << data;
  // Within a script "</" would end it.
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  return head + text + tail;
}

} // namespace lathe::cli
