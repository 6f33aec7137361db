//===- KvPropertyTest.cpp - random calls against a naive model --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LATHE_KV_OPERATIONS=10000000 makes the run long. ctest runs it twice: with the hashes of the product,
// and with LATHE_KV_HASH_BITS=4 (KvCollisionTest), where nearly every look-up collides. Each planted
// mistake of runtime/memory/kv/Faults.h must be found by one of the two.
//
//===----------------------------------------------------------------------===//

#include "../../runtime/memory/kv/Faults.h"
#include "KvModel.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::kv;
using engine::KvGroup;
using engine::KvGroupKind;

namespace {

KvGroup group(KvGroupKind kind) {
  KvGroup g;
  g.kind = kind;
  g.layout.blockTokens = 8;
  g.window = 20;
  g.sinks = 3;
  g.slack = 6;
  g.stateBytes = 64;
  g.checkpoint = 8;
  return g;
}

constexpr int kModels = 8;

Config model(int which) {
  Config c;
  c.groups = {group(KvGroupKind::Full)};
  c.blocks = 40;
  c.maxSequences = 7;
  c.maxSequenceTokens = 100;
  c.maxStepTokens = 48;
  c.maxSpaces = 4;
  c.maxKeys = 8;
  c.eventCapacity = 1 << 12;
  switch (which) {
  case 0:
    break;
  case 1:
    c.eviction = Eviction::Lfu;
    c.hostBlocks = 24;
    break;
  case 2:
    c.eviction = Eviction::Priority;
    c.hostBlocks = 9;
    break;
  case 3:
    c.groups = {group(KvGroupKind::Window)};
    c.blocks = 30;
    break;
  case 4:
    c.groups = {group(KvGroupKind::Full), group(KvGroupKind::Window), group(KvGroupKind::Shared)};
    c.groups[2].sharesWith = 1;
    c.hostBlocks = 20;
    c.blocks = 60;
    break;
  case 5:
    c.groups = {group(KvGroupKind::State), group(KvGroupKind::Full)};
    c.hostBlocks = 16;
    c.blocks = 50;
    break;
  case 6:
    c.groups = {group(KvGroupKind::Full), group(KvGroupKind::Full)};
    c.hash = HashKind::Sha256;
    c.eviction = Eviction::Priority;
    c.blocks = 64;
    break;
  case 7:
    c.groups[0].layout.blockTokens = 16;
    c.maxSequenceTokens = 112;
    c.blocks = 16;
    c.prefixCache = false;
    break;
  }
  return c;
}

long fromEnvironment(const char *name, long usual) {
  const char *text = std::getenv(name);
  return text ? std::atol(text) : usual;
}

class KvTest : public testing::TestWithParam<int> {
protected:
  void SetUp() override { hashBits = int(fromEnvironment("LATHE_KV_HASH_BITS", 128)); }
};

class KvProperty : public KvTest {};

TEST_P(KvProperty, AgreesWithTheModel) {
  plantedFault = Fault::None;
  long left = fromEnvironment("LATHE_KV_OPERATIONS", 64000) / kModels;
  bool isLong = left > 100000;
  for (uint64_t seed = 1; left > 0; ++seed) {
    Model m(model(GetParam()), seed * 1000 + uint64_t(GetParam()));
    ASSERT_EQ(m.run(std::min(left, 4000l), isLong ? 16 : 2, true), "")
        << "model " << GetParam() << ", seed " << seed;
    left -= m.done();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KvProperty, testing::Range(0, kModels));

const char *const kFaultNames[] = {"None",
#define X(name) #name,
                                   LATHE_KV_FAULTS(X)
#undef X
};

class KvFault : public KvTest {};

TEST_P(KvFault, IsFound) {
  for (Fault needsCollision :
       {Fault::ParentIgnored, Fault::TokensNotCompared, Fault::LastTokenNotCompared})
    if (hashBits == 128 && Fault(GetParam()) == needsCollision)
      GTEST_SKIP() << "hashes of 128 bits do not collide in a test; the other run finds it";
  std::string found;
  for (uint64_t seed = 1; seed <= 40 && found.empty(); ++seed)
    for (int which = 0; which < kModels && found.empty(); ++which) {
      plantedFault = Fault(GetParam());
      Model m(model(which), seed);
      found = m.run(400, 1, true);
      plantedFault = Fault::None;
    }
  EXPECT_NE(found, "") << kFaultNames[GetParam()] << " was not noticed";
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Planted, KvFault, testing::Range(1, int(Fault::Count)),
                         [](const auto &info) { return std::string(kFaultNames[info.param]); });

} // namespace
