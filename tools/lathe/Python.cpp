//===- Python.cpp - what other programs in Python say ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Python.h"

#include "lathe/support/Files.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Program.h"

#include <cstdlib>
#include <filesystem>
#include <unistd.h>

namespace fs = std::filesystem;

namespace lathe::cli {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "lathe-XXXXXX").string();
  if (mkdtemp(pattern.data()))
    path = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  if (!path.empty())
    fs::remove_all(path, error);
}

static std::string findPython() {
  std::vector<fs::path> places;
  if (const char *active = std::getenv("VIRTUAL_ENV"))
    places.push_back(fs::path(active) / "bin" / "python");
  std::error_code error;
  fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int up = 0; up < 4 && !here.empty(); ++up, here = here.parent_path())
    places.push_back(here / ".venv" / "bin" / "python");
  for (const fs::path &place : places)
    if (fs::exists(place, error))
      return place.string();
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName("python3");
  return found ? *found : "";
}

Result<PythonRun> runPython(const char *script, const std::vector<std::string> &arguments, const TemporaryFolder &folder,
                            const std::string &where, const std::string &needs) {
  const std::string python = findPython();
  if (python.empty() || folder.path.empty())
    return unsupportedError("needs Python with the package " + needs, where);
  llvm::SmallVector<llvm::StringRef> words{python, "-c", script};
  words.append(arguments.begin(), arguments.end());
  const std::string log = folder.path + "/log.txt";
  std::string message;
  constexpr unsigned kSeconds = 600;
  const int code =
      llvm::sys::ExecuteAndWait(python, words, std::nullopt, {llvm::StringRef(""), log, log}, kSeconds, 0, &message);
  Result<std::string> text = readFile(log);
  return PythonRun{code, text && !text->empty() ? *text : message};
}

} // namespace lathe::cli
