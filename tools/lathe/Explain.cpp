//===- Explain.cpp - lathe explain ----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Why a decoder can be paged or not: the obligations of passes/simplify/PageStates.cpp, what was proved of each, or
// the node and the reason of the one that is refused. What comes after that one was not looked at.
//
//===----------------------------------------------------------------------===//
#include "Verbs.h"

#include "lathe/support/Files.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <unistd.h>

namespace lathe::cli {
namespace {

namespace json = llvm::json;

struct Check {
  const char *id, *name;
  std::string reason; ///< why it holds, or why not
  std::string node;   ///< that refuses
  enum class Result { NotReached, Proved, Refused } result = Result::NotReached;
};

const char *wordOf(Check::Result result) {
  return result == Check::Result::Proved ? "proved" : result == Check::Result::Refused ? "refused" : "not reached";
}

struct Explanation {
  std::vector<Check> checks = {{"O1", "tokens stay apart", "", ""},    {"O2", "present is past and new", "", ""},
                               {"O3", "masks", "", ""},                {"O4", "positions", "", ""},
                               {"O5", "sizes are no data", "", ""},    {"O6", "logits", "", ""},
                               {"O7", "states", "", ""}};
  std::vector<std::string> assumptions;
  bool paged = false;

  Check *find(llvm::StringRef id) {
    auto found = std::find_if(checks.begin(), checks.end(), [&](const Check &c) { return id == c.id; });
    return found == checks.end() ? nullptr : &*found;
  }
};

/// A file that goes with the run.
struct TemporaryFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lathe-explain-" + std::to_string(::getpid()) + ".json");
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

/// "O3: what was proved" of the remarks of the pass, and what it assumes.
Status readRemarks(const std::string &path, Explanation &into) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  llvm::Expected<json::Value> parsed = json::parse(*text);
  if (!parsed)
    return internalError("remarks are no JSON: " + llvm::toString(parsed.takeError()), path);
  const json::Array *all = parsed->getAsArray();
  for (const json::Value &value : all ? *all : json::Array()) {
    const json::Object *remark = value.getAsObject();
    if (!remark)
      continue;
    llvm::StringRef name = remark->getString("name").value_or(""), message = remark->getString("message").value_or("");
    if (name == "PageStatesAssumes")
      into.assumptions.push_back(message.str());
    auto [id, reason] = message.split(": ");
    Check *check = name == "PageStates" ? into.find(id) : nullptr;
    if (!check || check->result == Check::Result::Refused) // proved of one part, refused of another
      continue;
    check->result = Check::Result::Proved;
    check->reason = reason.str();
  }
  return okStatus();
}

/// The obligation that an error names; false where it is another error.
bool readRefusal(const Status &status, Explanation &into) {
  constexpr llvm::StringLiteral kBegin = "cannot be paged (";
  llvm::StringRef message = status.message();
  size_t at = message.find(kBegin);
  if (at == llvm::StringRef::npos)
    return false;
  auto [id, rest] = message.substr(at + kBegin.size()).split(", ");
  Check *check = into.find(id);
  if (!check)
    return false;
  check->result = Check::Result::Refused;
  check->reason = rest.split("): ").second.str();
  check->node = status.location();
  return true;
}

void print(const Explanation &explained, const std::string &model) {
  std::printf("%s: %s\n", model.c_str(), explained.paged ? "can be paged" : "cannot be paged");
  for (const Check &c : explained.checks) {
    std::printf("  %s  %-24s %-12s%s%s\n", c.id, c.name, wordOf(c.result), c.reason.empty() ? "" : " ",
                c.reason.c_str());
    if (!c.node.empty())
      std::printf("      at %s\n", c.node.c_str());
  }
  for (const std::string &text : explained.assumptions)
    std::printf("  assumed: %s\n", text.c_str());
}

void printJson(const Explanation &explained, const std::string &model) {
  json::Array checks;
  for (const Check &c : explained.checks) {
    json::Object check{{"id", c.id}, {"name", c.name}, {"result", wordOf(c.result)}};
    if (!c.reason.empty())
      check["reason"] = json::fixUTF8(c.reason);
    if (!c.node.empty())
      check["node"] = json::fixUTF8(c.node);
    checks.push_back(std::move(check));
  }
  json::Array assumptions;
  for (const std::string &text : explained.assumptions)
    assumptions.push_back(json::fixUTF8(text));
  llvm::outs() << llvm::formatv("{0:2}\n", json::Value(json::Object{{"model", json::fixUTF8(model)},
                                                                    {"paged", explained.paged},
                                                                    {"checks", std::move(checks)},
                                                                    {"assumptions", std::move(assumptions)}}));
  llvm::outs().flush();
}

} // namespace

Status explainVerb(const std::vector<std::string> &arguments) {
  Parser parser("explain", "MODEL [OPTIONS]",
                "Says why a decoder can run over pages (--paged) or not: what is proved of its graph, and the node that "
                "a check refuses, with the reason. Exit code 4 where it is refused.");
  CompileOptions options;
  bool asJson = false;
  addCompileOptions(parser, options, /*withEntries=*/false);
  parser.flag("json", "Print an object: paged, checks (id, name, result, reason, node), assumptions", asJson);
  parser.example("lathe explain llama.onnx");
  parser.example("lathe explain llama.onnx --json");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1)
    return usageError("wants one model; `lathe explain --help` has examples", "lathe explain");
  const std::string &model = positional->front();
  TemporaryFile remarks;
  options.paged = true;
  options.stopAfter = Phase::Simplify;
  options.remarksFile = remarks.path.string();
  Result<CompileResult> made = compileModel(model, options);
  Explanation explained;
  explained.paged = made.ok();
  if (!made && !readRefusal(made.status(), explained))
    return made.status();
  LATHE_RETURN_IF_ERROR(readRemarks(options.remarksFile, explained));
  asJson ? printJson(explained, model) : print(explained, model);
  return made ? okStatus() : made.status();
}

} // namespace lathe::cli
