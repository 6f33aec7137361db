//===- OlderGlibc.cpp - two functions that older C libraries lack ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The static libstdc++ and libgcc of the machine that builds call what its glibc has: `arc4random`
// (2.36; std::random_device) and `_dl_find_object` (2.35; unwinding). Shared libraries that define
// these themselves load wherever glibc is 2.34. Hidden: nobody else gets them.
//
//===----------------------------------------------------------------------===//
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#if defined(__x86_64__) && __GLIBC_PREREQ(2, 36) // where the build's libraries call them

#define LATHE_HIDDEN __attribute__((visibility("hidden")))

extern "C" LATHE_HIDDEN uint32_t arc4random(void) noexcept {
  uint32_t value = 0;
  // Up to 256 bytes come whole once the kernel's generator is ready; before that, a signal may come.
  while (getrandom(&value, sizeof value, 0) != ssize_t(sizeof value))
    if (errno != EINTR)
      std::abort(); // no source of random numbers: glibc ends the process too
  return value;
}

namespace {

struct Search {
  uintptr_t address;
  dl_find_object *found;
};

int look(dl_phdr_info *info, size_t, void *data) {
  auto *search = static_cast<Search *>(data);
  uintptr_t unwinding = 0, begin = UINTPTR_MAX, end = 0;
  bool holds = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &p = info->dlpi_phdr[i];
    uintptr_t from = info->dlpi_addr + p.p_vaddr, to = from + p.p_memsz;
    if (p.p_type == PT_GNU_EH_FRAME)
      unwinding = from;
    if (p.p_type != PT_LOAD)
      continue;
    holds |= search->address >= from && search->address < to;
    begin = from < begin ? from : begin;
    end = to > end ? to : end;
  }
  if (!holds)
    return 0;
  // libgcc reads the table's address alone; without a table there is nothing to unwind by.
  *search->found = {};
  search->found->dlfo_map_start = reinterpret_cast<void *>(begin);
  search->found->dlfo_map_end = reinterpret_cast<void *>(end);
  search->found->dlfo_eh_frame = reinterpret_cast<void *>(unwinding);
  return unwinding ? 1 : -1;
}

} // namespace

/// Finds the object that holds `address`; 0, or -1 where there is none that can be unwound.
extern "C" LATHE_HIDDEN int _dl_find_object(void *address, dl_find_object *found) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), found};
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

#endif
