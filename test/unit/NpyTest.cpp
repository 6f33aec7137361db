//===- NpyTest.cpp - .npy files and files in general -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Round trips of every type, what NumPy writes, and damaged files.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Files.h"
#include "lathe/support/Npy.h"
#include "lathe/support/Strings.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

using namespace lathe;

namespace {

std::string fileOf(std::string header, std::string_view data, char version = 1) {
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  file += static_cast<char>(header.size());
  file += static_cast<char>(header.size() >> 8);
  if (version > 1)
    file += std::string(2, '\0');
  file += header;
  file += data;
  return file;
}

TEST(Npy, RoundTripsEveryType) {
  for (int t = 0; t < static_cast<int>(DType::String); ++t) {
    DType type = static_cast<DType>(t);
    for (const std::vector<int64_t> &dims :
         {std::vector<int64_t>{}, {5}, {2, 3}, {0, 4}, {1, 2, 3, 4}}) {
      HostTensor tensor(type, dims);
      for (int64_t i = 0; i < tensor.count(); ++i)
        tensor.setComplex(i, {static_cast<double>(i % 2), static_cast<double>(i)});
      Result<std::string> file = formatNpy(tensor);
      ASSERT_TRUE(file.ok()) << file.status().str();
      EXPECT_EQ((file->find('\n') + 1) % 64, 0u);
      Result<HostTensor> again = parseNpy(*file, type);
      ASSERT_TRUE(again.ok()) << name(type) << ": " << again.status().str();
      EXPECT_EQ(*again, tensor) << name(type);
    }
  }
}

TEST(Npy, RoundTripsStrings) {
  HostTensor tensor = stringTensor({2, 2}, {"", "a", "\u00e4\u65e5\U0001d11e", "a b"});
  Result<std::string> file = formatNpy(tensor);
  ASSERT_TRUE(file.ok()) << file.status().str();
  EXPECT_NE(file->find("'<U3'"), std::string::npos);
  EXPECT_EQ((file->find('\n') + 1) % 64, 0u);
  EXPECT_EQ(*parseNpy(*file), tensor);
  EXPECT_EQ(parseNpy(*file, DType::F32).status().message(), "holds strings, expected f32");
  EXPECT_EQ(*parseNpy(*formatNpy(HostTensor(DType::String, {0, 3}))), HostTensor(DType::String, {0, 3}));

  auto read = [](const char *descr, const char *shape, std::string_view data) {
    return parseNpy(fileOf(std::string("{'descr': '") + descr + "', 'fortran_order': True, 'shape': (" + shape + "), }\n", data));
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(*read("|S2", "2, 2", "a\0cdb\0\xc3\xa4"sv), stringTensor({2, 2}, {"a", "b", "cd", "\u00e4"}));
  EXPECT_EQ(*read(">U1", "1,", "\0\1\xd1\x1e"sv), stringTensor({1}, {"\U0001d11e"}));
  EXPECT_EQ(*read("<U0", "2,", ""), stringTensor({2}, {"", ""}));
  EXPECT_EQ(read("<U1", "1,", "\0\xd8\0\0"sv).status().message(), "string 0 has what is no character");
  EXPECT_EQ(read("|S1", "1,", "\xff").status().message(), "string 0 is no UTF-8");
  EXPECT_FALSE(read("<U1", "1,", "abc").ok());
  EXPECT_FALSE(read("<U4611686018427387904", "1,", "").ok());
  EXPECT_FALSE(read("<U1099511627776", "1099511627776,", "").ok());
  EXPECT_FALSE(read("|O", "1,", "").ok());
  EXPECT_FALSE(formatNpy(stringTensor({1}, {"\xff"})).ok());
}

TEST(Strings, AreCheckedWhereTheyAreRead) {
  HostTensor tensor = stringTensor({2}, {"ab", "c"});
  EXPECT_EQ(*stringsOf(tensor), (std::vector<std::string_view>{"ab", "c"}));
  for (int64_t bad : {int64_t(-1), int64_t(4), INT64_MAX}) {
    HostTensor broken = tensor;
    std::memcpy(broken.data.data() + 8, &bad, sizeof bad);
    EXPECT_FALSE(stringsOf(broken).ok()) << bad;
  }
  tensor.data.resize(23);
  EXPECT_FALSE(stringsOf(tensor).ok());
  EXPECT_EQ(quoted("a\"\n\u00e4\u00e4", 4), "\"a\\\"\\x0a\"...");
}

TEST(Npy, NarrowTypesNeedAName) {
  std::string v1 = *formatNpy(HostTensor(DType::F8E4M3FN, {2}));
  EXPECT_NE(v1.find("'<V1'"), std::string::npos);
  EXPECT_FALSE(parseNpy(v1).ok());
  EXPECT_TRUE(parseNpy(v1, DType::UI4).ok());
  std::string v2 = *formatNpy(HostTensor(DType::BF16, {2}));
  EXPECT_NE(v2.find("'<V2'"), std::string::npos);
  EXPECT_EQ(parseNpy(v2)->dtype, DType::BF16);
  EXPECT_FALSE(parseNpy(v2, DType::F16).ok());
  Result<HostTensor> f1 =
      parseNpy(fileOf("{'descr': '<f1', 'fortran_order': False, 'shape': (1,)}", "\x3c"));
  ASSERT_TRUE(f1.ok()) << f1.status().str();
  EXPECT_EQ(f1->dtype, DType::F8E5M2);
  EXPECT_EQ(f1->real(0), 1);
}

TEST(Npy, ByteAndElementOrder) {
  std::string data("\0\1\0\2\0\3\0\4\0\5\0\6", 12);
  Result<HostTensor> t = parseNpy(
      fileOf("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", data, 3));
  ASSERT_TRUE(t.ok()) << t.status().str();
  std::vector<int64_t> values;
  for (int i = 0; i < 6; ++i)
    values.push_back(t->integer(i));
  EXPECT_EQ(values, (std::vector<int64_t>{1, 3, 5, 2, 4, 6}));
}

TEST(Npy, DamagedFilesAreErrors) {
  std::string good = *formatNpy(HostTensor(DType::F32, {2, 2}));
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_FALSE(parseNpy(std::string_view(good).substr(0, n)).ok()) << n;
  EXPECT_FALSE(parseNpy(good + "x").ok());
  for (const char *header :
       {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0)}",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'other': '<f4', 'fortran_order': False, 'shape': (1,)}"}) {
    Result<HostTensor> t = parseNpy(fileOf(header, "1234"), std::nullopt, "x.npy");
    ASSERT_FALSE(t.ok()) << header;
    EXPECT_EQ(t.status().code(), ErrorCode::Invalid);
    EXPECT_EQ(t.status().location(), "x.npy");
  }
}

class FilesTest : public testing::Test {
protected:
  void SetUp() override {
    directory = testing::TempDir() + "lathe-files-" + std::to_string(::getpid());
    std::filesystem::create_directories(directory);
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  size_t entries() {
    auto it = std::filesystem::directory_iterator(directory);
    return static_cast<size_t>(std::distance(begin(it), end(it)));
  }
  std::string directory;
};

TEST_F(FilesTest, WriteReadMap) {
  std::string path = directory + "/a";
  ASSERT_TRUE(writeFileAtomically(path, "old").ok());
  Result<MappedFile> old = MappedFile::open(path);
  ASSERT_TRUE(old.ok());
  std::string_view parts[] = {"new", " ", "text"};
  ASSERT_TRUE(writeFileAtomically(path, parts).ok());
  EXPECT_EQ(*readFile(path), "new text");
  EXPECT_EQ(old->text(), "old");
  MappedFile moved = std::move(*old);
  EXPECT_EQ(moved.text(), "old");
  EXPECT_TRUE(old->text().empty());
  EXPECT_EQ(entries(), 1u);
  ASSERT_TRUE(writeFileAtomically(path, "").ok());
  EXPECT_TRUE(MappedFile::open(path)->bytes().empty());
}

TEST_F(FilesTest, ErrorsNameThePath) {
  std::string missing = directory + "/none/a";
  EXPECT_EQ(readFile(missing).status().location(), missing);
  EXPECT_FALSE(MappedFile::open(missing).ok());
  EXPECT_FALSE(readFile(directory).ok());
  EXPECT_FALSE(writeFileAtomically(missing, "x").ok());
  std::filesystem::create_directories(directory + "/d/e");
  EXPECT_FALSE(writeFileAtomically(directory + "/d", "x").ok());
  EXPECT_EQ(entries(), 1u); // nothing left behind
}

TEST_F(FilesTest, NpyFile) {
  HostTensor t(DType::F64, {3});
  t.setReal(1, 2.5);
  ASSERT_TRUE(writeNpy(directory + "/t.npy", t).ok());
  EXPECT_EQ(*readNpy(directory + "/t.npy"), t);
}

} // namespace
