//===- Resume.h - what a stopped run leaves for the next one ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_RESUME_H
#define LATHE_TOOLS_LATHE_RESUME_H

#include "lathe/support/Status.h"

#include <optional>
#include <string>
#include <string_view>

namespace lathe::cli {

/// Parts of a long run, in a folder beside its output, each written whole. The folder belongs to one model, data and
/// options, whose digest it keeps; it goes when the run is done.
class ResumeFolder {
public:
  /// No folder: nothing is kept.
  ResumeFolder() = default;
  /// Usage error where there is something of this name that is not such a folder. Says on stdout that a run continues,
  /// or that what is there is of another one (`differs`: of what, e.g. "model"), which is then removed.
  static Result<ResumeFolder> open(const std::string &path, const std::string &model, const std::string &data,
                                   const std::string &options);

  /// None where it was not kept, or is damaged.
  std::optional<std::string> find(const std::string &name) const;
  /// RuntimeFailure where it cannot be written.
  Status keep(const std::string &name, std::string_view bytes) const;
  /// The run is done.
  void remove() const;

private:
  std::string path; ///< empty: nothing is kept; made when something is
  std::string key;  ///< whose it is
};

/// The digest of a file, or of all files of a folder with their names.
Result<std::string> digestOfData(const std::string &path);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_RESUME_H
