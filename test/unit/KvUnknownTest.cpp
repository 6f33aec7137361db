//===- KvUnknownTest.cpp - tokens that come later ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KvCacheFixture.h"

namespace lathe::kv {
namespace {

/// A block whose last token is not known is nobody's to find, until it is told; nor when it never is.
TEST(KvUnknown, IsIndexedWhenProvided) {
  for (bool told : {false, true}) {
    auto cache = make(small());
    SeqId child, s = run(*cache, text(1, 15));
    ASSERT_TRUE(append(*cache, s, 1, 0, kUnknownToken).ok());
    std::vector<Token> longer = text(1, 15);
    longer.insert(longer.end(), 2, 9);
    EXPECT_EQ(cache->peek(0, longer), 8u);
    EXPECT_EQ(cache->provide(s, kUnknownToken).code, Code::BadArgument);
    EXPECT_EQ(cache->fork(s, child).code, Code::Busy);
    EXPECT_TRUE(!told || cache->provide(s, 9).ok());
    EXPECT_TRUE(!told || cache->provide(s, 9).code == Code::BadArgument);
    ASSERT_TRUE(cache->close(s).ok());
    EXPECT_EQ(cache->peek(0, longer), told ? 16u : 8u);
    expectValid(*cache);
  }
}

/// Nothing goes behind a token that is not known, where blocks are looked up.
TEST(KvUnknown, IsTheLastOfASequence) {
  for (uint32_t length : {3u, 8u, 11u}) { // behind it a block has room, or begins
    auto cache = make(small());
    SeqId s = run(*cache, text(1, length - 1));
    ASSERT_TRUE(cache->begin().ok());
    Append two{s, 2, 0};
    const Token inside[] = {kUnknownToken, 5};
    EXPECT_EQ(cache->reserve({&two, 1}, inside).code, Code::BadArgument);
    ASSERT_TRUE(cache->rollback().ok());
    ASSERT_TRUE(append(*cache, s, 1, 0, kUnknownToken).ok());
    for (Token next : {Token(5), kUnknownToken})
      EXPECT_EQ(append(*cache, s, 1, 0, next).code, Code::BadArgument);
    EXPECT_EQ(cache->length(s), length);
    ASSERT_TRUE(cache->provide(s, 9).ok());
    EXPECT_TRUE(append(*cache, s, 1, 0, kUnknownToken).ok());
    expectValid(*cache);
  }
  Config c = small();
  c.prefixCache = false; // nobody asks what it was
  auto cache = make(c);
  SeqId s = run(*cache, text(1, 7));
  EXPECT_TRUE(append(*cache, s, 1, 0, kUnknownToken).ok());
  EXPECT_TRUE(append(*cache, s, 1, 0, kUnknownToken).ok());
}

} // namespace
} // namespace lathe::kv
