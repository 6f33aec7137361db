//===- KvCacheFixture.h - steps of a small KV cache -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_KVCACHEFIXTURE_H
#define LATHE_TEST_KVCACHEFIXTURE_H

#include "lathe/runtime/KvCache.h"
#include "lathe/runtime/KvSnapshot.h"

#include <gtest/gtest.h>

namespace lathe::kv {

inline Config small(uint32_t blocks = 32, uint32_t blockTokens = 8) {
  Config c;
  c.groups[0].layout.blockTokens = blockTokens;
  c.blocks = blocks;
  c.maxSequences = 16;
  c.maxSequenceTokens = blocks * blockTokens;
  c.maxStepTokens = c.maxSequenceTokens;
  return c;
}

inline std::unique_ptr<Cache> make(const Config &c) {
  Result<std::unique_ptr<Cache>> made = Cache::create(c);
  EXPECT_TRUE(made) << made.status().str();
  return std::move(*made);
}

inline std::vector<Token> text(uint32_t seed, uint32_t n) {
  std::vector<Token> t(n);
  for (uint32_t i = 0; i < n; ++i)
    t[i] = seed * 1000 + i;
  return t;
}

/// One step: what is cached of the prompt, then the rest of it. Returns the hit.
inline uint32_t prefill(Cache &cache, SeqId s, const std::vector<Token> &prompt) {
  uint32_t hit = 0;
  EXPECT_TRUE(cache.begin().ok());
  EXPECT_TRUE(cache.attach(s, prompt, hit).ok());
  Append rest{s, uint32_t(prompt.size()) - hit, 0};
  Outcome o = cache.reserve({&rest, 1}, std::span(prompt).subspan(hit));
  EXPECT_TRUE(o.ok()) << toString(o.code);
  cache.clearTransfers();
  EXPECT_TRUE((o.ok() ? cache.commit() : cache.rollback()).ok());
  return hit;
}

inline Outcome append(Cache &cache, SeqId s, uint32_t n, uint32_t draft = 0, Token token = 7) {
  std::vector<Token> t(n, token);
  Append a{s, n, draft};
  EXPECT_TRUE(cache.begin().ok());
  Outcome o = cache.reserve({&a, 1}, t);
  cache.clearTransfers();
  EXPECT_TRUE((o.ok() ? cache.commit() : cache.rollback()).ok());
  return o;
}

inline SeqId run(Cache &cache, const std::vector<Token> &prompt, SequenceOptions o = {},
          uint32_t *hit = nullptr) {
  SeqId s;
  EXPECT_TRUE(cache.open(o, s).ok());
  uint32_t h = prefill(cache, s, prompt);
  if (hit)
    *hit = h;
  return s;
}

inline void expectValid(const Cache &cache) {
  for (const Violation &v : validate(cache.snapshot()))
    ADD_FAILURE() << "invariant " << v.invariant << ": " << v.what;
}

} // namespace lathe::kv

#endif // LATHE_TEST_KVCACHEFIXTURE_H
