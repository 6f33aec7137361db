//===- InspectHtml.h - an engine as one page of HTML ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_INSPECTHTML_H
#define LATHE_TOOLS_LATHE_INSPECTHTML_H

#include "Session.h"

namespace lathe::cli {

/// Writes a page that needs no net: the graph of every phase whose text is in the folder `dumps`
/// (of --dump-dir; empty: none), kernels with their text, memory over time, roofline, plan. The
/// roof of a CPU is measured.
Status writeHtml(const Model &model, const std::string &dumps, const std::string &file);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_INSPECTHTML_H
