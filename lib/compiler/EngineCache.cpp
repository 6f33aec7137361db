//===- EngineCache.cpp - finished engines on disk -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An entry is an engine, a list of its pieces with their digests, and a seal over the list and the
// key. The engine's own SHA-256 of hundreds of megabytes of weights, one thread's work, would take
// most of the time that a cached compilation has.
//
//===----------------------------------------------------------------------===//
#include "EngineCache.h"

#include "lathe/codegen/Nvrtc.h"
#include "lathe/support/Parallel.h"
#include "lathe/support/Sha256.h"

#include "llvm/Support/BLAKE3.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <filesystem>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

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

using Digest = CachingSink::Digest;
using Piece = CachingSink::Piece;
static_assert(sizeof(Piece) == 48 && std::is_trivially_copyable_v<Piece>, "kept as it is");

Digest digestOf(std::string_view bytes) {
  llvm::BLAKE3 hash;
  hash.update(llvm::StringRef(bytes));
  return hash.final();
}

/// The end of an entry.
struct Seal {
  uint64_t size = 0, pieces = 0;
  Digest digest = {}; ///< of key, sizes and list

  void sign(const std::string &key, const std::vector<Piece> &list) {
    llvm::BLAKE3 hash;
    hash.update(key);
    hash.update({reinterpret_cast<const uint8_t *>(this), sizeof size + sizeof pieces});
    hash.update({reinterpret_cast<const uint8_t *>(list.data()), list.size() * sizeof(Piece)});
    digest = hash.final();
  }
};
static_assert(sizeof(Seal) == 48 && std::is_trivially_copyable_v<Seal>, "kept as it is");

/// A file that is read at any place by several threads.
struct Entry {
  int fd = -1;
  uint64_t size = 0;

  explicit Entry(const fs::path &path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat info;
    if (fd >= 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
      size = static_cast<uint64_t>(info.st_size);
  }
  ~Entry() {
    if (fd >= 0)
      ::close(fd);
  }
  bool read(uint64_t offset, void *to, uint64_t bytes) const {
    if (offset > size || bytes > size - offset)
      return false;
    auto *at = static_cast<char *>(to);
    while (bytes) {
      ssize_t n = ::pread(fd, at, bytes, static_cast<off_t>(offset));
      if (n <= 0 && !(n < 0 && errno == EINTR))
        return false;
      if (n > 0)
        at += n, offset += static_cast<uint64_t>(n), bytes -= static_cast<uint64_t>(n);
    }
    return true;
  }
  /// The pieces, if the list is whole and of this key.
  std::optional<std::vector<Piece>> pieces(const std::string &key, Seal &seal) const {
    if (size < sizeof(Seal) || !read(size - sizeof(Seal), &seal, sizeof(Seal)) ||
        seal.pieces > size / sizeof(Piece) ||
        seal.size != size - sizeof(Seal) - seal.pieces * sizeof(Piece))
      return std::nullopt;
    std::vector<Piece> list(seal.pieces);
    Seal expected = seal;
    if (!read(seal.size, list.data(), list.size() * sizeof(Piece)))
      return std::nullopt;
    expected.sign(key, list);
    if (expected.digest != seal.digest)
      return std::nullopt;
    return list;
  }
};

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

Result<std::optional<uint64_t>> copyCachedEngine(const std::string &key, ByteSink &sink) {
  if (key.empty())
    return std::optional<uint64_t>();
  Entry entry(fileOf(key));
  Seal seal;
  std::optional<std::vector<Piece>> pieces = entry.pieces(key, seal);
  if (!pieces)
    return std::optional<uint64_t>();
  LATHE_RETURN_IF_ERROR(sink.begin(seal.size));
  std::atomic<bool> damaged = false;
  std::mutex mutex;
  Status status;
  BufferPool buffers;
  inParallel(pieces->size(), [&](size_t i) {
    const Piece &piece = (*pieces)[i];
    if (damaged)
      return;
    std::vector<std::byte> buffer = buffers.take(piece.bytes);
    std::string_view bytes(reinterpret_cast<const char *>(buffer.data()), piece.bytes);
    if (!entry.read(piece.offset, buffer.data(), piece.bytes) || digestOf(bytes) != piece.digest) {
      damaged = true;
      return;
    }
    if (Status put = sink.put(piece.offset, bytes); !put.ok()) {
      std::lock_guard lock(mutex);
      status = put;
    }
    buffers.give(std::move(buffer));
  });
  LATHE_RETURN_IF_ERROR(status);
  return damaged ? std::optional<uint64_t>() : std::optional<uint64_t>(seal.size);
}

CachingSink::CachingSink(ByteSink &next, std::string key) : next(next), key(std::move(key)) {}

Status CachingSink::begin(uint64_t bytes) {
  size = bytes;
  pieces.clear();
  if (!key.empty()) {
    std::error_code error;
    fs::path path = fileOf(key);
    fs::create_directories(path.parent_path(), error);
    file.emplace(path.string());
    if (error || !file->begin(bytes).ok())
      file.reset();
  }
  return next.begin(bytes);
}

Status CachingSink::put(uint64_t offset, std::string_view bytes) {
  if (file) {
    Piece piece{offset, bytes.size(), digestOf(bytes)};
    bool kept = file->put(offset, bytes).ok();
    std::lock_guard lock(mutex);
    pieces.push_back(piece);
    if (!kept)
      size = 0;
  }
  return next.put(offset, bytes);
}

void CachingSink::keep() {
  if (!file || !size)
    return;
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece &a, const Piece &b) { return a.offset < b.offset; });
  Seal seal{size, pieces.size(), {}};
  seal.sign(key, pieces);
  uint64_t listBytes = pieces.size() * sizeof(Piece);
  auto text = [](const void *data, uint64_t bytes) {
    return std::string_view(static_cast<const char *>(data), bytes);
  };
  if (file->put(size, text(pieces.data(), listBytes)).ok() &&
      file->put(size + listBytes, text(&seal, sizeof seal)).ok())
    (void)file->commit(FileSync::None); // a damaged entry is found by its digests
}

} // namespace lathe
