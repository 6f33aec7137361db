//===- Verbs.h - what the command can do ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_VERBS_H
#define LATHE_TOOLS_LATHE_VERBS_H

#include "Options.h"

#include <string>
#include <vector>

namespace lathe::cli {

/// Each takes the arguments after the verb. The code of the Status is the exit code;
/// its message goes to stderr. Mismatch without a message: said already.
Status compileVerb(const std::vector<std::string> &arguments);
Status runVerb(const std::vector<std::string> &arguments);
Status generateVerb(const std::vector<std::string> &arguments);
Status explainVerb(const std::vector<std::string> &arguments);
Status benchVerb(const std::vector<std::string> &arguments);
Status inspectVerb(const std::vector<std::string> &arguments);
Status compareVerb(const std::vector<std::string> &arguments);
Status planVerb(const std::vector<std::string> &arguments);
Status tuneVerb(const std::vector<std::string> &arguments);
Status pruneVerb(const std::vector<std::string> &arguments);
Status quantizeVerb(const std::vector<std::string> &arguments);
Status shardVerb(const std::vector<std::string> &arguments);
Status simulateVerb(const std::vector<std::string> &arguments);
Status keygenVerb(const std::vector<std::string> &arguments);
Status signVerb(const std::vector<std::string> &arguments);
Status verifyVerb(const std::vector<std::string> &arguments);

/// Parses, or prints the help text. `done` is set when there is nothing left to do. From here on the
/// limits of the command line hold (Limits.h).
Result<std::vector<std::string>> parseOrHelp(const Parser &parser,
                                             const std::vector<std::string> &arguments,
                                             bool &done);

/// The command line and the files that a reproducer copies; verbs add theirs.
Reproducer &reproducer();

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_VERBS_H
