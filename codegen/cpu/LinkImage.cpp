//===- LinkImage.cpp - objects to one freestanding shared image ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the installed ld.lld. The result depends on the objects' bytes and
// order alone: no build id, no paths, no symbol but the exported ones.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/Codegen.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

namespace lathe::codegen {

static Result<std::string> findLinker() {
  for (const char *name : {"ld.lld-22", "ld.lld"}) {
    if (auto found = llvm::sys::findProgramByName(name))
      return *found;
    if (auto found = llvm::sys::findProgramByName(name, {"/usr/lib/llvm-22/bin"}))
      return *found;
  }
  return unsupportedError("ld.lld is not installed; it links the kernels of a CPU engine "
                          "(package lld-22)");
}

static Status writeFile(llvm::StringRef path, llvm::StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error, llvm::sys::fs::OF_None);
  if (error)
    return runtimeError("cannot write a temporary file: " + error.message(), path.str());
  os << bytes;
  os.close();
  if (os.has_error()) {
    os.clear_error();
    return runtimeError("cannot write a temporary file", path.str());
  }
  return okStatus();
}

Result<std::string> linkImage(llvm::ArrayRef<std::string> objects) {
  Result<std::string> linker = findLinker();
  if (!linker)
    return linker.status();
  llvm::SmallString<128> dir;
  if (std::error_code error = llvm::sys::fs::createUniqueDirectory("lathe-link", dir))
    return runtimeError("cannot make a temporary folder: " + error.message());
  llvm::scope_exit cleanup([&] { llvm::sys::fs::remove_directories(dir); });
  auto in = [&](llvm::StringRef name) {
    llvm::SmallString<128> path(dir);
    llvm::sys::path::append(path, name);
    return std::string(path);
  };
  std::string list;
  for (size_t i = 0; i < objects.size(); ++i) {
    std::string path = in("k" + std::to_string(i) + ".o");
    LATHE_RETURN_IF_ERROR(writeFile(path, objects[i]));
    list += "\"" + path + "\"\n";
  }
  std::string response = in("objects"), image = in("image.so"), log = in("log");
  LATHE_RETURN_IF_ERROR(writeFile(response, list));
  std::string at = "@" + response;
  llvm::StringRef args[] = {*linker,       "-shared", "-z",       "defs",          "-z",
                            "noexecstack", "-s",      "--build-id=none", "--hash-style=gnu",
                            "--no-dependent-libraries", "-o", image, at};
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, llvm::StringRef(log),
                                                llvm::StringRef(log)};
  std::string error;
  int rc = llvm::sys::ExecuteAndWait(*linker, args, std::nullopt, redirects, 0, 0, &error);
  if (rc != 0) {
    std::string said;
    if (auto text = llvm::MemoryBuffer::getFile(log))
      said = (*text)->getBuffer().str();
    return internalError("linking kernels failed: " + error + said);
  }
  auto bytes = llvm::MemoryBuffer::getFile(image);
  if (!bytes)
    return runtimeError("cannot read the linked image: " + bytes.getError().message());
  return (*bytes)->getBuffer().str();
}

} // namespace lathe::codegen
