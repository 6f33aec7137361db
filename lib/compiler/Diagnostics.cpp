//===- Diagnostics.cpp - MLIR's messages as a Status ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Diagnostics.h"

#include "lathe/ir/Lathe.h"

using namespace mlir;

namespace lathe {
namespace {

constexpr size_t kMaxErrors = 100;

std::optional<FileLineColLoc> filePlace(Location loc) {
  std::optional<FileLineColLoc> found;
  loc->walk([&](Location inner) {
    if (auto file = llvm::dyn_cast<FileLineColLoc>(inner)) {
      found = file;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return found;
}

/// Takes a leading "usage: " and the like off the message.
std::optional<ErrorCode> takeKind(std::string &text) {
  constexpr std::pair<StringLiteral, ErrorCode> kinds[] = {
      {"usage: ", ErrorCode::Usage},
      {"invalid: ", ErrorCode::Invalid},
      {"unsupported: ", ErrorCode::Unsupported},
      {"internal: ", ErrorCode::Internal}};
  for (const auto &[prefix, code] : kinds)
    if (StringRef(text).starts_with(prefix)) {
      text.erase(0, prefix.size());
      return code;
    }
  return std::nullopt;
}

} // namespace

std::string describe(Location loc) {
  SmallVector<StringRef> names = nodeNames(loc);
  if (!names.empty())
    return (names.size() == 1 ? "node " : "nodes ") + llvm::join(names, ", ");
  if (std::optional<FileLineColLoc> file = filePlace(loc))
    return (file->getFilename().getValue() + ":" + Twine(file->getLine()) + ":" +
            Twine(file->getColumn()))
        .str();
  return "";
}

DiagnosticLog::DiagnosticLog(MLIRContext *context)
    : handler(context, [this](Diagnostic &diagnostic) {
        std::string text = diagnostic.str(), place = describe(diagnostic.getLocation());
        for (Diagnostic &note : diagnostic.getNotes()) {
          std::string where = describe(note.getLocation());
          text += "\n  " + (where.empty() || where == place ? "" : where + ": ") + note.str();
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
          errors.push_back({std::move(text), std::move(place)});
        else if (diagnostic.getSeverity() == DiagnosticSeverity::Warning)
          warningTexts.push_back(place.empty() ? text : place + ": " + text);
        return success();
      }) {}

Status DiagnosticLog::status(ErrorCode code, const std::string &what) const {
  std::lock_guard<std::mutex> lock(mutex);
  if (errors.empty())
    return internalError(what + " failed without a message");
  std::string first = errors.front().text;
  ErrorCode kind = takeKind(first).value_or(code);
  if (errors.size() == 1)
    return Status(kind, first, errors.front().place);
  std::string all = std::to_string(errors.size()) + " problems:";
  for (size_t i = 0; i < std::min(errors.size(), kMaxErrors); ++i) {
    std::string text = errors[i].text;
    takeKind(text);
    all += "\n  " + (errors[i].place.empty() ? "" : errors[i].place + ": ") + text;
  }
  if (errors.size() > kMaxErrors)
    all += "\n  and " + std::to_string(errors.size() - kMaxErrors) + " more";
  return Status(kind, all);
}

} // namespace lathe
