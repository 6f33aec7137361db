//===- EngineCache.cpp - finished engines on disk -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An entry is an engine and, beside it, its seal: the digests of its pieces, and one of these and the
// key. The engine's own SHA-256 of hundreds of megabytes of weights, one thread's work, would take
// most of the time that a cached compilation has, and it does not say whose engine it is.
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
#include <charconv>
#include <cstdlib>
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

/// What the seal begins with; the pieces follow.
struct Seal {
  uint64_t size = 0, pieces = 0;
  Digest digest = {}; ///< of key, sizes and pieces

  void sign(const std::string &key, const std::vector<Piece> &list) {
    llvm::BLAKE3 hash;
    hash.update(key);
    hash.update({reinterpret_cast<const uint8_t *>(this), sizeof size + sizeof pieces});
    hash.update({reinterpret_cast<const uint8_t *>(list.data()), list.size() * sizeof(Piece)});
    digest = hash.final();
  }
};
static_assert(sizeof(Seal) == 48 && std::is_trivially_copyable_v<Seal>, "kept as it is");

fs::path fileOf(const std::string &key) {
  return fs::path(nvrtc::cacheDirectory()) / "engine" / key.substr(0, 2) / (key + ".lathe");
}

fs::path sealOf(const std::string &key) { return fileOf(key).replace_extension(".seal"); }

/// The time of a seal says when its engine was used last.
void noteUse(const std::string &key) {
  (void)::utimensat(AT_FDCWD, sealOf(key).c_str(), nullptr, 0);
}

/// Bytes that all engines may take: LATHE_CACHE_LIMIT in GB (10^9 bytes), 10 when that is no number.
uint64_t limitOfEngines() {
  double gigabytes = 10;
  if (const char *text = std::getenv("LATHE_CACHE_LIMIT")) {
    const char *end = text + std::strlen(text);
    double given = 0;
    if (auto [at, error] = std::from_chars(text, end, given);
        error == std::errc() && at == end && given >= 0 && given <= 1e9)
      gigabytes = given;
  }
  return static_cast<uint64_t>(gigabytes * 1e9);
}

/// Removes the engines that were not used for the longest until all fit the limit. `newest` stays,
/// whatever it takes. Others may remove or write entries at the same time: an entry whose half is
/// gone counts as absent.
void removeOldEngines(const std::string &newest) {
  struct Kept {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path engine, seal;
  };
  std::vector<Kept> all;
  uint64_t total = 0;
  std::error_code error;
  fs::path folder = fs::path(nvrtc::cacheDirectory()) / "engine";
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    fs::path engine = it->path(), seal = engine;
    seal.replace_extension(".seal");
    struct stat info;
    if (engine.extension() == ".seal" || ::stat(engine.c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    std::error_code none;
    fs::file_time_type used = fs::last_write_time(seal, none);
    // Being written, or left by a writer that was stopped.
    if (none)
      used = fs::last_write_time(engine, none);
    all.push_back({used, static_cast<uint64_t>(info.st_blocks) * 512, engine, seal});
    total += all.back().bytes;
  }
  std::sort(all.begin(), all.end(),
            [](const Kept &a, const Kept &b) { return a.used < b.used; });
  const uint64_t limit = limitOfEngines();
  for (const Kept &entry : all) {
    if (total <= limit)
      return;
    if (entry.engine == fileOf(newest))
      continue;
    fs::remove(entry.seal, error);
    fs::remove(entry.engine, error);
    total -= entry.bytes;
  }
}

/// An engine in the cache, read at any place by several threads.
class Entry {
public:
  /// Closed when there is none that has a seal.
  explicit Entry(const std::string &key) : path(fileOf(key)) {
    std::error_code error;
    Result<std::string> seal =
        fs::exists(sealOf(key), error) ? readFile(sealOf(key)) : Result<std::string>("");
    if (!seal || seal->size() < sizeof(Seal))
      return;
    Seal head, expected;
    std::memcpy(&head, seal->data(), sizeof head);
    if ((seal->size() - sizeof head) / sizeof(Piece) != head.pieces ||
        (seal->size() - sizeof head) % sizeof(Piece) != 0)
      return;
    pieces.resize(head.pieces);
    if (head.pieces)
      std::memcpy(pieces.data(), seal->data() + sizeof head, head.pieces * sizeof(Piece));
    expected = head;
    expected.sign(key, pieces);
    if (expected.digest != head.digest)
      return;
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
                    static_cast<uint64_t>(info.st_size) != head.size)) {
      ::close(fd);
      fd = -1;
    }
  }
  ~Entry() {
    if (fd >= 0)
      ::close(fd);
  }
  Entry(const Entry &) = delete;
  Entry &operator=(const Entry &) = delete;

  explicit operator bool() const { return fd >= 0; }
  uint64_t size() const { return static_cast<uint64_t>(info.st_size); }

  /// Checks the pieces and hands them on; false when one is damaged, or bytes that none has are not
  /// zero, as the sink makes them.
  Result<bool> read(ByteSink *sink) const {
    std::atomic<bool> damaged = false;
    if (sink)
      LATHE_RETURN_IF_ERROR(sink->begin(size()));
    else
      damaged = !gapsAreZero();
    std::mutex mutex;
    Status status;
    BufferPool buffers;
    inParallel(pieces.size(), [&](size_t i) {
      const Piece &piece = pieces[i];
      if (damaged)
        return;
      std::vector<std::byte> buffer = buffers.take(piece.bytes);
      std::string_view bytes(reinterpret_cast<const char *>(buffer.data()), piece.bytes);
      if (!read(piece.offset, buffer.data(), piece.bytes) || digestOf(bytes) != piece.digest) {
        damaged = true;
        return;
      }
      if (Status put = sink ? sink->put(piece.offset, bytes) : okStatus(); !put.ok()) {
        std::lock_guard lock(mutex);
        status = put;
      }
      buffers.give(std::move(buffer));
    });
    LATHE_RETURN_IF_ERROR(status);
    return !damaged;
  }

  const fs::path path;
  struct stat info = {};

private:
  bool gapsAreZero() const {
    uint64_t end = 0;
    std::string gap;
    auto isZero = [&](uint64_t next) {
      gap.resize(next > end ? next - end : 0);
      return read(end, gap.data(), gap.size()) && gap.find_first_not_of('\0') == gap.npos;
    };
    for (const Piece &piece : pieces) {
      if (!isZero(piece.offset))
        return false;
      end = piece.offset + piece.bytes;
    }
    return isZero(size());
  }
  bool read(uint64_t offset, void *to, uint64_t bytes) const {
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

  int fd = -1;
  std::vector<Piece> pieces;
};

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
  std::optional<uint64_t> size;
  if (key.empty())
    return size;
  Entry entry(key);
  if (!entry)
    return size;
  Result<bool> whole = entry.read(&sink);
  if (!whole)
    return whole.status();
  if (*whole) {
    size = entry.size();
    noteUse(key);
  }
  return size;
}

std::optional<uint64_t> shareCachedEngine(const std::string &key, const std::string &path) {
  if (key.empty())
    return std::nullopt;
  Entry entry(key);
  struct stat there = {};
  bool same = entry && ::stat(path.c_str(), &there) == 0 && there.st_dev == entry.info.st_dev &&
              there.st_ino == entry.info.st_ino;
  if (!entry || entry.info.st_uid != ::geteuid() || entry.info.st_nlink != (same ? 2 : 1))
    return std::nullopt;
  if (Result<bool> whole = entry.read(nullptr); !whole || !*whole)
    return std::nullopt;
  if (!same) {
    std::string temporary = path + ".tmp." + std::to_string(::getpid());
    if (::link(entry.path.c_str(), temporary.c_str()) != 0)
      return std::nullopt;
    // Another process may have linked it meanwhile, or put another in its place.
    if (::stat(temporary.c_str(), &there) != 0 || there.st_ino != entry.info.st_ino ||
        there.st_nlink != 2 || ::rename(temporary.c_str(), path.c_str()) != 0) {
      ::unlink(temporary.c_str());
      return std::nullopt;
    }
  }
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); // made now, for those who compare times
  noteUse(key);
  return entry.size();
}

bool canShareEngine(const std::string &key, const std::string &path) {
  if (key.empty())
    return false;
  std::error_code error;
  fs::path folder = fs::path(path).parent_path(), kept = fileOf(key).parent_path();
  fs::create_directories(kept, error);
  struct stat here, there;
  return ::stat(folder.empty() ? "." : folder.c_str(), &here) == 0 &&
         ::stat(kept.c_str(), &there) == 0 && here.st_dev == there.st_dev &&
         ::access(kept.c_str(), W_OK) == 0;
}

CachingSink::CachingSink(ByteSink *next, std::string key) : next(next), key(std::move(key)) {}

Status CachingSink::begin(uint64_t bytes) {
  size = bytes;
  pieces.clear();
  if (!key.empty()) {
    std::error_code error;
    fs::path path = fileOf(key);
    fs::create_directories(path.parent_path(), error);
    file.emplace(path.string());
    Status begun = file->begin(bytes);
    if (!begun.ok())
      file.reset();
    if (!begun.ok() && !next)
      return begun;
  }
  return next ? next->begin(bytes) : okStatus();
}

Status CachingSink::put(uint64_t offset, std::string_view bytes) {
  if (file) {
    Piece piece{offset, bytes.size(), digestOf(bytes)};
    Status kept = file->put(offset, bytes);
    std::lock_guard lock(mutex);
    pieces.push_back(piece);
    if (!kept.ok()) {
      size = 0;
      if (!next)
        return kept;
    }
  }
  return next ? next->put(offset, bytes) : okStatus();
}

Status CachingSink::keep() {
  if (!file || !size)
    return okStatus();
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece &a, const Piece &b) { return a.offset < b.offset; });
  Seal seal{size, pieces.size(), {}};
  seal.sign(key, pieces);
  auto text = [](const void *data, uint64_t bytes) {
    return std::string_view(static_cast<const char *>(data), bytes);
  };
  const std::string_view parts[] = {text(&seal, sizeof seal),
                                    text(pieces.data(), pieces.size() * sizeof(Piece))};
  // Neither waits for the disk: a damaged entry is found by its digests.
  LATHE_RETURN_IF_ERROR(file->commit(FileSync::None));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(sealOf(key).string(), parts, FileSync::None));
  removeOldEngines(key);
  return okStatus();
}

} // namespace lathe
