//===- ModelFile.cpp - mapping files, containing external data --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A model file may name further files. It comes from outside, so the names are
// resolved by the kernel below the model's folder (openat2), or component by
// component where that call is missing.
//
//===----------------------------------------------------------------------===//
#include "ModelFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lathe::onnxmodel {
namespace {

/// Closes on scope exit.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0)
      close(fd);
  }
};

std::string systemError() { return std::strerror(errno); }

Result<std::shared_ptr<const MappedFile>> mapDescriptor(int fd, const std::string &name,
                                                        uint64_t maxBytes, bool oneLink) {
  struct stat info;
  if (fstat(fd, &info) != 0)
    return invalidError("cannot read: " + systemError(), name);
  if (!S_ISREG(info.st_mode))
    return invalidError("not a regular file", name);
  if (oneLink && info.st_nlink != 1)
    return invalidError("external data must be a file with a single link", name);
  if (uint64_t(info.st_size) > maxBytes)
    return invalidError("the file has " + std::to_string(info.st_size) +
                            " bytes, more than the limit of " + std::to_string(maxBytes),
                        name);
  auto mapped = std::make_shared<MappedFile>();
  if (info.st_size > 0) {
    void *data = mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
      return invalidError("cannot map: " + systemError(), name);
    mapped->bytes = {static_cast<const std::byte *>(data), size_t(info.st_size)};
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

/// Opens one component at a time, never through a link.
int openByComponents(int folder, const std::string &location) {
  int current = dup(folder);
  size_t at = 0;
  while (current >= 0) {
    size_t slash = location.find('/', at);
    std::string part = location.substr(at, slash == std::string::npos ? slash : slash - at);
    if (part.empty() || part == "." || part == "..") {
      close(current);
      errno = EXDEV;
      return -1;
    }
    bool last = slash == std::string::npos;
    int flags = last ? O_RDONLY | O_NONBLOCK : O_PATH | O_DIRECTORY;
    int next = openat(current, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    close(current);
    errno = error;
    if (last || next < 0)
      return next;
    current = next;
    at = slash + 1;
  }
  return current;
}

} // namespace

MappedFile::~MappedFile() {
  if (!bytes.empty())
    munmap(const_cast<std::byte *>(bytes.data()), bytes.size());
}

Result<std::shared_ptr<const MappedFile>> mapFile(const std::string &path, uint64_t maxBytes) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0)
    return invalidError("cannot open: " + systemError(), path);
  return mapDescriptor(file.fd, path, maxBytes, /*oneLink=*/false);
}

ExternalFiles::ExternalFiles(std::string folderPath, uint64_t limit)
    : folder(folderPath.empty() ? "." : std::move(folderPath)), maxBytes(limit) {}

ExternalFiles::~ExternalFiles() {
  if (folderFd >= 0)
    close(folderFd);
}

bool ExternalFiles::isAbsent(const std::string &location) {
  // What exists in any way, also behind a link that leaves the folder, is for open() to judge.
  struct stat info;
  if (open(location) || folderFd < 0)
    return false;
  bool plain = location.find("..") == std::string::npos && location.find('/') == std::string::npos;
  return plain && fstatat(folderFd, location.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 &&
         errno == ENOENT;
}

Result<std::shared_ptr<const MappedFile>> ExternalFiles::open(const std::string &location) {
  if (auto known = opened.find(location); known != opened.end())
    return known->second;
  if (location.empty() || location[0] == '/' || location.find('\0') != std::string::npos)
    return invalidError("external data must be named relative to the model's folder", location);
  if (folderFd < 0)
    folderFd = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folderFd < 0)
    return invalidError("cannot open the model's folder: " + systemError(), folder);

  open_how how = {};
  how.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  Descriptor file{int(syscall(SYS_openat2, folderFd, location.c_str(), &how, sizeof how))};
  if (file.fd < 0 && (errno == ENOSYS || errno == EPERM))
    file.fd = openByComponents(folderFd, location);
  if (file.fd < 0 && (errno == EXDEV || errno == ELOOP))
    return invalidError("external data leaves the model's folder or passes a symbolic link",
                        location);
  if (file.fd < 0)
    return invalidError("cannot open external data: " + systemError() +
                            "; --random-weights=SEED makes weights for a graph without its own",
                        location);
  auto mapped = mapDescriptor(file.fd, location, maxBytes, /*oneLink=*/true);
  if (mapped)
    opened[location] = *mapped;
  return mapped;
}

} // namespace lathe::onnxmodel
