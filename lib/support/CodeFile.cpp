//===- CodeFile.cpp - the file that holds code ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/support/CodeFile.h"

#include <climits>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

namespace lathe {

std::string fileOfCode(const void *code) {
  Dl_info info;
  link_map *map = nullptr;
  if (!dladdr1(code, &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) || !map)
    return {};
  char buffer[PATH_MAX];
  // The program has no name in the loader's list. `info` gives argv[0] for it: what the caller typed, a bare
  // word where the shell found the program by $PATH.
  if (!map->l_name || !*map->l_name) {
    ssize_t size = ::readlink("/proc/self/exe", buffer, sizeof buffer);
    return size > 0 ? std::string(buffer, static_cast<size_t>(size)) : std::string();
  }
  std::string file = map->l_name;
  if (file.front() == '/')
    return file;
  // Links stay: a package may be a folder of links to files that lie elsewhere.
  return ::getcwd(buffer, sizeof buffer) ? std::string(buffer) + "/" + file : std::string();
}

} // namespace lathe
