//===- EngineCacheTest.cpp - finished engines on disk -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../lib/compiler/EngineCache.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

using namespace lathe;
namespace fs = std::filesystem;

namespace {

class EngineCache : public testing::Test {
protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) / ("engine-cache" + std::to_string(getpid()));
    fs::remove_all(folder);
    setenv("LATHE_CACHE_DIR", folder.c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder); }

  /// Three pieces out of order, and a gap of zeros.
  std::string keep(const std::string &key) {
    StringSink out;
    CachingSink both(&out, key);
    EXPECT_TRUE(both.begin(1000).ok());
    EXPECT_TRUE(both.put(300, std::string(700, 'c')).ok());
    EXPECT_TRUE(both.put(0, "head").ok());
    EXPECT_TRUE(both.put(100, std::string(100, 'b')).ok());
    EXPECT_TRUE(both.keep().ok());
    return out.bytes;
  }
  /// What the cache gives; empty for nothing.
  static std::string found(const std::string &key) {
    StringSink out;
    auto size = copyCachedEngine(key, out);
    EXPECT_TRUE(size.ok());
    if (!size.ok() || !*size)
      return "";
    EXPECT_EQ(**size, out.bytes.size());
    return out.bytes;
  }
  /// The one file of an ending; there are no left-overs.
  fs::path only(const std::string &ending) const {
    fs::path entry;
    for (const auto &item : fs::recursive_directory_iterator(folder)) {
      if (!item.is_regular_file())
        continue;
      EXPECT_TRUE(item.path().extension() == ".lathe" || item.path().extension() == ".seal");
      if (item.path().extension() == ending) {
        EXPECT_TRUE(entry.empty());
        entry = item.path();
      }
    }
    return entry;
  }
  static std::string contentOf(const fs::path &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path &path, const std::string &content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  fs::path folder;
  const std::string key = std::string(64, '1'), other = std::string(64, '2');
};

TEST_F(EngineCache, GivesBackWhatItKept) {
  EXPECT_EQ(found(key), "");
  std::string engine = keep(key);
  EXPECT_EQ(engine.substr(0, 5), std::string("head\0", 5));
  EXPECT_EQ(found(key), engine);
  EXPECT_EQ(found(other), "");
  EXPECT_EQ(found(""), "");
  keep("");
  EXPECT_EQ(contentOf(only(".lathe")), engine);
}

TEST_F(EngineCache, GivesNothingDamaged) {
  std::string engine = keep(key);
  std::string path = folder / "out";
  for (const char *ending : {".lathe", ".seal"}) {
    fs::path entry = only(ending);
    std::string whole = contentOf(entry);
    for (size_t bit = 0; bit < whole.size() * 8; bit += 41) {
      std::string file = whole;
      file[bit / 8] ^= static_cast<char>(1 << bit % 8);
      write(entry, file);
      ASSERT_FALSE(shareCachedEngine(key, path)) << ending << " " << bit;
      std::string got = found(key);
      // A copy's gaps are zero whatever the entry has there.
      size_t at = bit / 8;
      bool gap = entry.extension() == ".lathe" && ((at >= 4 && at < 100) || (at >= 200 && at < 300));
      ASSERT_EQ(got, gap ? engine : "") << ending << " " << bit;
    }
    for (size_t size = 0; size < whole.size(); size += 17) {
      write(entry, whole.substr(0, size));
      ASSERT_EQ(found(key), "") << size;
      ASSERT_FALSE(shareCachedEngine(key, path)) << size;
    }
    write(entry, whole);
    EXPECT_EQ(found(key), engine);
  }
}

/// Somebody's copy of one entry over another must not become another model's engine.
TEST_F(EngineCache, KnowsWhoseEngineItIs) {
  keep(key);
  fs::path entry = only(".lathe"), seal = only(".seal");
  fs::path folderOfOther = entry.parent_path().parent_path() / "22";
  fs::create_directories(folderOfOther);
  fs::copy_file(entry, folderOfOther / (other + ".lathe"));
  fs::copy_file(seal, folderOfOther / (other + ".seal"));
  EXPECT_NE(found(key), "");
  EXPECT_EQ(found(other), "");
}

TEST_F(EngineCache, SharesAFileWithOnePath) {
  std::string engine = keep(key);
  std::string first = folder / "first", second = folder / "second";
  EXPECT_TRUE(canShareEngine(key, first));
  EXPECT_FALSE(canShareEngine("", first));
  ASSERT_EQ(shareCachedEngine(key, first), engine.size());
  EXPECT_EQ(contentOf(first), engine);
  EXPECT_EQ(shareCachedEngine(key, first), engine.size()) << "it is there already";
  EXPECT_FALSE(shareCachedEngine(key, second)) << "a change of one would be a change of the other";
  EXPECT_FALSE(fs::exists(second));
  fs::remove(first);
  write(second, "old");
  ASSERT_EQ(shareCachedEngine(key, second), engine.size());
  EXPECT_EQ(contentOf(second), engine);
  // Changed in place: the cache has lost its entry, and says so.
  std::fstream(second, std::ios::in | std::ios::out | std::ios::binary) << "other";
  EXPECT_FALSE(shareCachedEngine(key, second));
  EXPECT_EQ(found(key), "");
}

TEST_F(EngineCache, RemovesWhatWasNotUsedForTheLongest) {
  auto keyOf = [](char c) { return std::string(64, c); };
  // Each entry takes a few kilobytes of the disk.
  setenv("LATHE_CACHE_LIMIT", "1", 1);
  for (char c : {'a', 'b', 'c'})
    keep(keyOf(c));
  auto used = [&](char c, int hours) {
    fs::path seal = folder / "engine" / std::string(2, c) / (keyOf(c) + ".seal");
    fs::last_write_time(seal, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  used('a', 3), used('b', 2), used('c', 1);
  EXPECT_NE(found(keyOf('a')), "") << "used now";
  setenv("LATHE_CACHE_LIMIT", "0.00001", 1); // 10 kB: two entries
  keep(keyOf('d'));
  EXPECT_NE(found(keyOf('a')), "");
  EXPECT_EQ(found(keyOf('b')), "");
  EXPECT_EQ(found(keyOf('c')), "");
  EXPECT_NE(found(keyOf('d')), "");
  setenv("LATHE_CACHE_LIMIT", "0", 1);
  keep(keyOf('e'));
  EXPECT_EQ(found(keyOf('a')), "");
  EXPECT_NE(found(keyOf('e')), "") << "the newest is what was asked for";
  unsetenv("LATHE_CACHE_LIMIT");
}

} // namespace
