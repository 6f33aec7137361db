//===- CpuImage.cpp - a freestanding shared object in memory ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The descriptor stays open until dlclose: the loader knows a library by its path, and
// a second memfd under the same /proc/self/fd number would be taken for the first.
//
//===----------------------------------------------------------------------===//

#include "CpuImage.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace lathe::runtime {
namespace {

/// An ELF64 shared object for this machine without interpreter, needed libraries or
/// code that runs on loading. Bounds-checked: the loader itself is not careful.
Status checkElf(std::string_view bytes) {
  auto bad = [](const char *why) { return invalidError(std::string("kernel image: ") + why); };
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header)
    return bad("too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_type != ET_DYN)
    return bad("not an ELF shared object");
#if defined(__x86_64__)
  if (header.e_machine != EM_X86_64)
    return unsupportedError("kernel image: made for another kind of CPU");
#endif
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > bytes.size() ||
      header.e_phnum * sizeof(Elf64_Phdr) > bytes.size() - header.e_phoff)
    return bad("program headers outside the file");
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr p;
    std::memcpy(&p, bytes.data() + header.e_phoff + i * sizeof p, sizeof p);
    if (p.p_offset > bytes.size() || p.p_filesz > bytes.size() - p.p_offset ||
        p.p_filesz > p.p_memsz)
      return bad("a segment lies outside the file");
    if (p.p_type == PT_INTERP || p.p_type == PT_TLS)
      return bad("it has an interpreter or thread-local data");
    if (p.p_type != PT_DYNAMIC)
      continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= p.p_filesz; at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn d;
      std::memcpy(&d, bytes.data() + p.p_offset + at, sizeof d);
      if (d.d_tag == DT_NULL)
        break;
      if (d.d_tag == DT_NEEDED || d.d_tag == DT_INIT || d.d_tag == DT_FINI ||
          d.d_tag == DT_INIT_ARRAY || d.d_tag == DT_FINI_ARRAY || d.d_tag == DT_TEXTREL)
        return bad("it needs libraries or runs code on loading");
    }
  }
  return okStatus();
}

} // namespace

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
