//===- Files.cpp - whole files ---------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// POSIX calls behind Status.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Files.h"

#include "lathe/support/ByteSink.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lathe {
namespace {

std::string systemMessage(const char *what) {
  return std::string(what) + ": " + std::strerror(errno);
}

/// A descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};

/// Opens a regular file for reading and finds its size.
Status openForReading(const std::string &path, Descriptor &file, size_t &size) {
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd < 0)
    return usageError(systemMessage("cannot open"), path);
  struct stat info;
  if (::fstat(file.fd, &info) != 0)
    return usageError(systemMessage("cannot examine"), path);
  if (S_ISDIR(info.st_mode))
    return usageError("is a directory", path);
  size = static_cast<size_t>(info.st_size);
  return okStatus();
}

} // namespace

Result<std::string> readFile(const std::string &path) {
  Descriptor file;
  size_t size = 0;
  LATHE_RETURN_IF_ERROR(openForReading(path, file, size));
  // The size is a hint only: pipes and files that grow are read to their end.
  std::string content(size + 1, '\0');
  size_t at = 0;
  for (;;) {
    if (at == content.size())
      content.resize(content.size() * 2);
    ssize_t n = ::read(file.fd, content.data() + at, content.size() - at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return usageError(systemMessage("cannot read"), path);
    if (n == 0)
      break;
    at += static_cast<size_t>(n);
  }
  content.resize(at);
  return content;
}

Status writeFileAtomically(const std::string &path, std::span<const std::string_view> parts,
                           FileSync sync) {
  FileSink file(path);
  uint64_t size = 0, at = 0;
  for (std::string_view part : parts)
    size += part.size();
  LATHE_RETURN_IF_ERROR(file.begin(size));
  for (std::string_view part : parts) {
    LATHE_RETURN_IF_ERROR(file.put(at, part));
    at += part.size();
  }
  return file.commit(sync);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : address(std::exchange(other.address, nullptr)), size(std::exchange(other.size, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(address, other.address);
  std::swap(size, other.size);
  return *this;
}

MappedFile::~MappedFile() {
  if (address)
    ::munmap(const_cast<std::byte *>(address), size);
}

Result<MappedFile> MappedFile::open(const std::string &path) {
  Descriptor file;
  MappedFile mapped;
  LATHE_RETURN_IF_ERROR(openForReading(path, file, mapped.size));
  if (mapped.size == 0)
    return mapped;
  void *address = ::mmap(nullptr, mapped.size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) {
    mapped.size = 0;
    return runtimeError(systemMessage("cannot map"), path);
  }
  mapped.address = static_cast<const std::byte *>(address);
  return mapped;
}

} // namespace lathe
