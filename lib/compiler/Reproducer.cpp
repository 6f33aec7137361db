//===- Reproducer.cpp - what an internal error leaves behind --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/compiler/Compiler.h"

#include "lathe/support/Files.h"
#include "lathe/support/Sha256.h"

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Signals.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <unistd.h>

namespace fs = std::filesystem;

namespace lathe {
namespace {

/// Set once, before anything can crash; read in the handlers.
Reproducer &pending() {
  static Reproducer what;
  return what;
}

std::string quoted(const std::string &word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "-_=./:,+@[]") == std::string::npos)
    return word;
  std::string out = "'";
  for (char c : word)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

[[noreturn]] void dieWithReproducer(const char *message) {
  // What follows allocates, which a damaged heap may not survive: no longer than this.
  alarm(20);
  Result<std::string> folder = writeReproducer(pending(), message);
  std::fprintf(stderr, "lathe: internal error: %s\n", message);
  if (folder.ok())
    std::fprintf(stderr, "lathe: the folder %s has what is needed to reproduce it\n",
                 folder->c_str());
  _exit(int(ErrorCode::Internal));
}

} // namespace

Result<std::string> writeReproducer(const Reproducer &what, const std::string &message) {
  Sha256 digest;
  std::string command;
  for (const std::string &word : what.command) {
    digest.field(word);
    command += (command.empty() ? "" : " ") + quoted(word);
  }
  digest.field(message);
  const char *base = std::getenv("LATHE_REPRODUCER_DIR");
  fs::path folder = fs::path(base && *base ? base : ".") /
                    ("lathe-reproducer-" + digest.hex().substr(0, 12));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return runtimeError("cannot be made: " + error.message(), folder.string());
  std::string readme = message + "\n\nCopied, with the paths that the command names:\n";
  for (size_t i = 0; i < what.files.size(); ++i) {
    fs::path source = what.files[i], copy = folder / source.filename();
    if (fs::is_directory(source, error))
      fs::copy(source, copy,
               fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
    else
      fs::copy_file(source, copy, fs::copy_options::overwrite_existing, error);
    readme += "  " + copy.filename().string() + "  " + source.string() +
              (error ? " (not copied: " + error.message() + ")" : "") + "\n";
  }
  LATHE_RETURN_IF_ERROR(writeFileAtomically((folder / "command.sh").string(), command + "\n"));
  LATHE_RETURN_IF_ERROR(writeFileAtomically((folder / "message.txt").string(), readme));
  return folder.string();
}

void reproduceOnCrash(Reproducer what) {
  pending() = std::move(what);
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_fatal_error_handler(
        [](void *, const char *reason, bool) { dieWithReproducer(reason); });
    llvm::sys::AddSignalHandler([](void *) { dieWithReproducer("a fatal signal"); }, nullptr);
  });
}

} // namespace lathe
