//===- ByteSink.cpp - where a large file's bytes go -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// POSIX calls behind Status.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/ByteSink.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace lathe {

ByteSink::~ByteSink() = default;

Status StringSink::begin(uint64_t size) {
  bytes.assign(size, '\0');
  return okStatus();
}

Status StringSink::put(uint64_t offset, std::string_view piece) {
  std::memcpy(bytes.data() + offset, piece.data(), piece.size());
  return okStatus();
}

static Status systemError(const char *what, const std::string &path) {
  return runtimeError(std::string(what) + ": " + std::strerror(errno), path);
}

FileSink::~FileSink() {
  if (fd < 0)
    return;
  ::close(fd);
  ::unlink(temporary.c_str());
}

Status FileSink::begin(uint64_t size) {
  // A name of this process that nobody has: a left-over or another thread's is skipped.
  for (int i = 0; fd < 0 && i < 1000; ++i) {
    temporary = path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(i);
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST)
      break;
  }
  if (fd < 0)
    return systemError("cannot create", temporary);
  return ::ftruncate(fd, static_cast<off_t>(size)) ? systemError("cannot write", path) : okStatus();
}

Status FileSink::put(uint64_t offset, std::string_view piece) {
  while (!piece.empty()) {
    ssize_t n = ::pwrite(fd, piece.data(), piece.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return systemError("cannot write", path);
    piece.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return okStatus();
}

Status FileSink::commit(FileSync sync) {
  if (sync == FileSync::Wait && ::fsync(fd) != 0)
    return systemError("cannot sync", path);
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return systemError("cannot rename into place", path);
  ::close(fd);
  fd = -1;
  return okStatus();
}

} // namespace lathe
