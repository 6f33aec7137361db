//===- Sha256Test.cpp - content digests ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Test vectors of FIPS 180-4, and independence of how the input is cut.
//
//===----------------------------------------------------------------------===//
#include "../../lib/support/Sha256Blocks.h"
#include "lathe/support/Sha256.h"

#include <gtest/gtest.h>

using lathe::Sha256;

namespace {

std::string hash(std::string_view text) {
  Sha256 h;
  h.update(text);
  return h.hex();
}

TEST(Sha256, Vectors) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
  std::string text(300, 0);
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 7);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 h;
    h.update(std::string_view(text).substr(0, cut));
    h.update(std::string_view(text).substr(cut));
    ASSERT_EQ(h.hex(), hash(text)) << cut;
  }
}

TEST(Sha256, FieldsKeepTheirBorders) {
  Sha256 a, b;
  a.field("ab");
  a.field("c");
  b.field("a");
  b.field("bc");
  EXPECT_NE(a.hex(), b.hex());
}

#if defined(__x86_64__)
TEST(Sha256, InstructionsAgreeWithPlainCode) {
  if (!lathe::detail::hasShaInstructions())
    GTEST_SKIP() << "this CPU has no SHA instructions";
  uint8_t data[64 * 5];
  for (size_t i = 0; i < sizeof data; ++i)
    data[i] = static_cast<uint8_t>(i * 31 + i / 7);
  uint32_t plain[8] = {1, 2, 3, 4, 5, 6, 7, 8}, fast[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  lathe::detail::plainBlocks(plain, data, 5);
  lathe::detail::shaBlocks(fast, data, 5);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(plain[i], fast[i]) << i;
}
#endif

} // namespace
