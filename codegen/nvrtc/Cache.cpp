//===- Cache.cpp - cubins on disk --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layout of a file: magic, size of the log, size of the image, SHA-256 of what
// follows, log, image. Writers use a name of their own and rename, so that a
// reader never sees half a file.
//
//===----------------------------------------------------------------------===//

#include "Cache.h"

#include "lathe/codegen/Nvrtc.h"
#include "lathe/support/Sha256.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace lathe::nvrtc {
namespace fs = std::filesystem;
namespace {

constexpr char kMagic[8] = {'l', 'a', 't', 'h', 'e', 'c', 'u', '1'};

struct Header {
  char magic[8];
  uint64_t logBytes, imageBytes;
  uint8_t digest[32];
};

std::array<uint8_t, 32> digestOf(std::string_view body) {
  Sha256 sha;
  sha.update(body);
  return sha.digest();
}

fs::path fileOf(const std::string &directory, const std::string &key) {
  return fs::path(directory) / "cubin" / key.substr(0, 2) / (key + ".cubin");
}

} // namespace

std::string cacheDirectory() {
  if (std::getenv("LATHE_NO_CACHE"))
    return "";
  if (const char *own = std::getenv("LATHE_CACHE_DIR"); own && *own)
    return own;
  if (const char *xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    return std::string(xdg) + "/lathe";
  if (const char *home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/lathe";
  return "";
}

std::optional<CacheEntry> readCache(const std::string &key) {
  std::string directory = cacheDirectory();
  if (directory.empty())
    return std::nullopt;
  std::ifstream in(fileOf(directory, key), std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(in)), {});
  Header h;
  if (!in || all.size() < sizeof h)
    return std::nullopt;
  std::memcpy(&h, all.data(), sizeof h);
  std::string_view body = std::string_view(all).substr(sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.logBytes > body.size() ||
      h.imageBytes != body.size() - h.logBytes)
    return std::nullopt;
  std::array<uint8_t, 32> digest = digestOf(body);
  if (std::memcmp(digest.data(), h.digest, sizeof h.digest) != 0)
    return std::nullopt;
  return CacheEntry{std::string(body.substr(h.logBytes)), std::string(body.substr(0, h.logBytes))};
}

void writeCache(const std::string &key, const CacheEntry &entry) {
  std::string directory = cacheDirectory();
  if (directory.empty())
    return;
  static std::atomic<unsigned> serial{0};
  fs::path target = fileOf(directory, key);
  fs::path mine = target;
  mine += ".tmp." + std::to_string(getpid()) + "." + std::to_string(serial++);
  std::error_code ec;
  fs::create_directories(target.parent_path(), ec);
  std::string body = entry.log + entry.image;
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.logBytes = entry.log.size();
  h.imageBytes = entry.image.size();
  std::array<uint8_t, 32> digest = digestOf(body);
  std::memcpy(h.digest, digest.data(), sizeof h.digest);
  std::ofstream out(mine, std::ios::binary);
  out.write(reinterpret_cast<const char *>(&h), sizeof h);
  out.write(body.data(), static_cast<std::streamsize>(body.size()));
  out.close();
  if (out)
    fs::rename(mine, target, ec);
  if (!out || ec)
    fs::remove(mine, ec);
}

} // namespace lathe::nvrtc
