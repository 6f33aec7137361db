//===- CpuImage.cpp - a freestanding shared object in memory ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The descriptor stays open until dlclose: the loader knows a library by its path, and
// a second memfd under the same /proc/self/fd number would be taken for the first.
//
//===----------------------------------------------------------------------===//

#include "CpuImage.h"

#include "CheckElf.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lathe::runtime {

Result<CpuImage> CpuImage::load(std::string_view bytes) {
  LATHE_RETURN_IF_ERROR(checkElf(bytes));
  CpuImage image;
  auto failed = [](const std::string &what) {
    return runtimeError("cannot load the kernel image: " + what);
  };
  image.fd = memfd_create("lathe-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (image.fd < 0)
    return failed(std::strerror(errno));
  while (!bytes.empty()) {
    ssize_t n = write(image.fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return failed(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  std::string path = "/proc/self/fd/" + std::to_string(image.fd);
  image.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!image.handle) {
    const char *why = dlerror();
    return failed(why ? why : "unknown reason");
  }
  return image;
}

CpuImage::~CpuImage() {
  if (handle)
    dlclose(handle);
  if (fd >= 0)
    close(fd);
}

void *CpuImage::symbol(const std::string &name) const { return dlsym(handle, name.c_str()); }

} // namespace lathe::runtime
