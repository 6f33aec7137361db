//===- EngineCache.cpp - finished engines on disk -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EngineCache.h"

#include "lathe/codegen/Nvrtc.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/support/Files.h"
#include "lathe/support/Sha256.h"

#include <cstring>
#include <elf.h>
#include <filesystem>
#include <link.h>

namespace fs = std::filesystem;

namespace lathe {
namespace {

/// The GNU build id of the program or library that this code is in: it changes with
/// every change of the compiler. Empty when the linker wrote none.
std::string buildIdentity() {
  struct Search {
    uintptr_t address;
    std::string id;
  } search{reinterpret_cast<uintptr_t>(&buildIdentity), {}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &search = *static_cast<Search *>(data);
        bool here = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto &header = info->dlpi_phdr[i];
          uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          here |= header.p_type == PT_LOAD && search.address >= begin &&
                  search.address < begin + header.p_memsz;
        }
        if (!here)
          return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto &header = info->dlpi_phdr[i];
          if (header.p_type != PT_NOTE)
            continue;
          const char *p = reinterpret_cast<const char *>(info->dlpi_addr + header.p_vaddr);
          const char *end = p + header.p_memsz;
          while (p + sizeof(ElfW(Nhdr)) <= end) {
            const auto *note = reinterpret_cast<const ElfW(Nhdr) *>(p);
            const char *name = p + sizeof *note;
            const char *value = name + (note->n_namesz + 3) / 4 * 4;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
                std::memcmp(name, "GNU", 4) == 0)
              search.id.assign(value, note->n_descsz);
            p = value + (note->n_descsz + 3) / 4 * 4;
          }
        }
        return 1;
      },
      &search);
  return search.id;
}

fs::path fileOf(const std::string &key) {
  return fs::path(nvrtc::cacheDirectory()) / "engine" / key.substr(0, 2) / (key + ".lathe");
}

} // namespace

const std::string &compilerBuild() {
  static const std::string identity = buildIdentity();
  return identity;
}

std::string engineCacheKey(const std::string &moduleText) {
  const std::string &identity = compilerBuild();
  if (identity.empty() || nvrtc::cacheDirectory().empty())
    return "";
  Sha256 key;
  key.field(identity);
  key.field(moduleText);
  // Cubins are made by the NVRTC that this machine has.
  if (moduleText.find("\"sm_") != std::string::npos) {
    auto nvrtc = nvrtc::Compiler::open();
    key.field(nvrtc.ok() ? (*nvrtc)->version() : "no NVRTC");
  }
  return key.hex();
}

std::optional<std::string> readCachedEngine(const std::string &key) {
  if (key.empty())
    return std::nullopt;
  std::error_code error;
  fs::path file = fileOf(key);
  if (!fs::exists(file, error))
    return std::nullopt;
  Result<std::string> bytes = readFile(file.string());
  if (!bytes || !engine::EngineReader::fromMemory(*bytes).ok())
    return std::nullopt;
  return std::move(*bytes);
}

void writeCachedEngine(const std::string &key, const std::string &engine) {
  if (key.empty())
    return;
  std::error_code error;
  fs::path file = fileOf(key);
  fs::create_directories(file.parent_path(), error);
  if (!error)
    (void)writeFileAtomically(file.string(), engine, FileSync::None); // read with its digests
}

} // namespace lathe
