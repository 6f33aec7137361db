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
    CachingSink both(out, key);
    EXPECT_TRUE(both.begin(1000).ok());
    EXPECT_TRUE(both.put(300, std::string(700, 'c')).ok());
    EXPECT_TRUE(both.put(0, "head").ok());
    EXPECT_TRUE(both.put(100, std::string(100, 'b')).ok());
    both.keep();
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
  fs::path onlyEntry() const {
    fs::path entry;
    for (const auto &item : fs::recursive_directory_iterator(folder))
      if (item.is_regular_file()) {
        EXPECT_TRUE(entry.empty()) << "one file an entry, and no left-overs";
        entry = item.path();
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
  onlyEntry();
}

TEST_F(EngineCache, GivesNothingDamaged) {
  std::string engine = keep(key);
  fs::path entry = onlyEntry();
  std::string whole = contentOf(entry);
  for (size_t bit = 0; bit < whole.size() * 8; bit += 41) {
    std::string file = whole;
    file[bit / 8] ^= static_cast<char>(1 << bit % 8);
    write(entry, file);
    std::string got = found(key);
    // Gaps are zero whatever the entry has there.
    ASSERT_TRUE(got.empty() || got == engine) << bit;
    size_t at = bit / 8;
    bool gap = (at >= 4 && at < 100) || (at >= 200 && at < 300);
    ASSERT_EQ(got.empty(), !gap) << bit;
  }
  for (size_t size = 0; size < whole.size(); size += 17) {
    write(entry, whole.substr(0, size));
    ASSERT_EQ(found(key), "") << size;
  }
  write(entry, whole);
  EXPECT_EQ(found(key), engine);
}

/// Somebody's copy of one entry over another must not become another model's engine.
TEST_F(EngineCache, KnowsWhoseEngineItIs) {
  keep(key);
  fs::path entry = onlyEntry();
  std::string whole = contentOf(entry);
  keep(other);
  for (const auto &item : fs::recursive_directory_iterator(folder))
    if (item.is_regular_file())
      write(item.path(), whole);
  EXPECT_NE(found(key), "");
  EXPECT_EQ(found(other), "");
}

} // namespace
