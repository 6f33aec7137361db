//===- Options.h - the command line of one verb -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options are `--name=value`, `--name value` or `--flag`; everything else is
// positional. The help text is made of the same declarations.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_OPTIONS_H
#define LATHE_TOOLS_LATHE_OPTIONS_H

#include "lathe/compiler/Compiler.h"
#include "lathe/support/Status.h"

#include <functional>
#include <string>
#include <vector>

namespace lathe::cli {

/// What was meant by a word with a slip or two; empty when nothing is near.
std::string nearest(const std::string &word, const std::vector<std::string> &known);

class Parser {
public:
  /// `synopsis`: what follows "lathe VERB"; `about`: a sentence or two.
  Parser(std::string verb, std::string synopsis, std::string about)
      : verb(std::move(verb)), synopsis(std::move(synopsis)), about(std::move(about)) {}

  using Setter = std::function<Status(const std::string &)>;
  /// An option with a value; `value` is its name in the help text.
  void add(std::string name, std::string value, std::string help, Setter set);
  void add(std::string name, std::string value, std::string help, std::string &into);
  void add(std::string name, std::string value, std::string help, std::vector<std::string> &into);
  void add(std::string name, std::string value, std::string help, double &into);
  void add(std::string name, std::string value, std::string help, int &into);
  void flag(std::string name, std::string help, bool &into);
  /// Accepted, but not in the help text: for tests.
  void hidden(std::string name, std::string &into);
  void example(std::string text) { examples.push_back(std::move(text)); }

  /// Fills the options and gives the positional arguments. A Usage error says what
  /// is wrong; `helpWanted` is set when --help was among the arguments.
  Result<std::vector<std::string>> parse(const std::vector<std::string> &arguments,
                                         bool &helpWanted) const;
  std::string help() const;
  const std::string &name() const { return verb; }

private:
  struct Option {
    std::string name, value, help;
    Setter set;
    bool isHidden = false;
  };
  const Option *find(const std::string &name) const;
  std::string verb, synopsis, about;
  std::vector<Option> options;
  std::vector<std::string> examples;
};

/// The options that a model needs on its way to an engine: --target, --dim, --entry and
/// so on go to `into`. run and bench have a meaning of their own for --entry and
/// --shape, and leave those two out.
void addCompileOptions(Parser &parser, CompileOptions &into, bool withEntries);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_OPTIONS_H
