//===- SignatureTest.cpp - engines that are signed, altered, foreign ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "EngineBytes.h"
#include "PlanFixture.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/support/Files.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::engine;

namespace {

class SignatureTest : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             ("lathe-sign-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    EngineWriter w("signature test");
    float weights[4] = {1, 2, 3, 4};
    EXPECT_TRUE(w.addWeight("weights", {reinterpret_cast<char *>(weights), 16}).ok());
    EXPECT_TRUE(w.addPlan(test::makeScalePlan("x86-64-v3", false)).ok());
    EXPECT_TRUE(w.addKernels("x86-64-v3", "image").ok());
    engine = *w.str();
    EXPECT_TRUE(writeFileAtomically(at("plain"), engine).ok());
    Result<KeyPair> made = KeyPair::make("a test");
    ASSERT_TRUE(made.ok());
    EXPECT_TRUE(writeFileAtomically(at("key"), made->secretText()).ok());
    EXPECT_TRUE(writeFileAtomically(at("pub"), made->publicText()).ok());
    Status status = signEngine(at("plain"), *made, at("signed"));
    ASSERT_TRUE(status.ok()) << status.str();
    signedEngine = *readFile(at("signed"));
    ring = *KeyRing::read(at("pub"));
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string at(const char *name) const { return (folder / name).string(); }
  /// What a reader that wants this ring says of these bytes; "" when it takes them.
  static std::string refusal(const std::string &bytes, const KeyRing &ring) {
    EngineReader::Options options;
    options.trusted = &ring;
    auto opened = EngineReader::fromMemory(bytes, options);
    if (opened.ok())
      return "";
    EXPECT_EQ(opened.status().code(), ErrorCode::Invalid);
    return opened.status().message();
  }

  std::filesystem::path folder;
  std::string engine, signedEngine;
  KeyRing ring;
};

// RFC 8032, 7.1, test 1: the seed gives the public key.
TEST_F(SignatureTest, KeysAreEd25519) {
  EXPECT_TRUE(writeFileAtomically(at("rfc"),
                                  "# RFC 8032\nlathe-secret-key 9d61b19deffd5a60ba844af492ec2cc44449c5"
                                  "697b326919703bac031cae7f60 test 1\n")
                  .ok());
  Result<KeyPair> pair = KeyPair::read(at("rfc"));
  ASSERT_TRUE(pair.ok()) << pair.status().str();
  EXPECT_EQ(pair->open.hex(), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_EQ(pair->open.name, "test 1");
}

TEST_F(SignatureTest, ASignedEngineIsTheEngineAndASignature) {
  EXPECT_EQ(signedEngine.size(), engine.size() + kSignatureBytes);
  EXPECT_EQ(signedEngine.substr(0, engine.size()), engine);
  EXPECT_EQ(refusal(signedEngine, ring), "");
  auto plain = EngineReader::fromMemory(signedEngine); // nobody asks
  ASSERT_TRUE(plain.ok());
  ASSERT_NE((*plain)->signature(), nullptr);
  EXPECT_EQ((*plain)->engineBytes(), engine.size());
  // Signing again replaces the signature.
  Result<KeyPair> other = KeyPair::make("another");
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(signEngine(at("signed"), *other, at("signed")).ok());
  std::string again = *readFile(at("signed"));
  EXPECT_EQ(again.size(), signedEngine.size());
  EXPECT_EQ(refusal(again, KeyRing{{other->open}}), "");
  EXPECT_NE(refusal(again, ring), "");
}

TEST_F(SignatureTest, RefusesUnsignedForeignAndAltered) {
  EXPECT_NE(refusal(engine, ring).find("is not signed"), std::string::npos);
  Result<KeyPair> other = KeyPair::make("another");
  ASSERT_TRUE(other.ok());
  EXPECT_NE(refusal(signedEngine, KeyRing{{other->open}}).find("not in the key ring"),
            std::string::npos);
  // Who alters an engine can make its digests right again, but not the signature.
  std::string altered = engine;
  altered[engine.size() - 3] ^= 1;
  test::resign(altered);
  ASSERT_TRUE(EngineReader::fromMemory(altered).ok());
  EXPECT_NE(refusal(altered + signedEngine.substr(engine.size()), ring).find("altered"),
            std::string::npos);
  // A foreign key cannot pass for one of the ring.
  Signature forged = *Signature::parse(signedEngine.substr(engine.size()), "");
  forged.bytes[0] ^= 1;
  EXPECT_NE(refusal(engine + forged.str(), ring).find("altered"), std::string::npos);
}

TEST_F(SignatureTest, EveryBitCounts) {
  for (size_t i = 0; i < signedEngine.size(); i += i + 256 < engine.size() && i > 1024 ? 61 : 1)
    for (int bit : {0, 5}) {
      std::string damaged = signedEngine;
      damaged[i] ^= static_cast<char>(1 << bit);
      EXPECT_NE(refusal(damaged, ring), "") << i;
      EXPECT_FALSE(EngineReader::fromMemory(damaged).ok()) << i;
    }
  for (size_t cut = 1; cut <= kSignatureBytes; ++cut)
    EXPECT_NE(refusal(signedEngine.substr(0, signedEngine.size() - cut), ring), "") << cut;
  EXPECT_NE(refusal(signedEngine + "x", ring), "");
  EXPECT_NE(refusal(signedEngine + signedEngine.substr(engine.size()), ring), "");
}

TEST_F(SignatureTest, ReadsNothingOfAnEngineThatIsNotTrusted) {
  // The plan is damaged and its digest right: who checks the signature first never comes to it.
  std::string altered = engine;
  altered[test::planRange(altered).first + 8] ^= 0x55;
  test::resign(altered);
  EXPECT_NE(refusal(altered, ring).find("is not signed"), std::string::npos);
}

TEST_F(SignatureTest, KeyFilesNameTheLine) {
  auto said = [](const std::string &text) {
    Result<KeyRing> ring = KeyRing::parse(text, "ring");
    return ring.ok() ? "" : ring.status().location() + ": " + ring.status().message();
  };
  std::string good = *readFile(at("pub")), secret = *readFile(at("key"));
  EXPECT_EQ(said("# keys\n" + good + "\n" + good), "");
  EXPECT_NE(said("").find("ring: holds no lathe-public-key"), std::string::npos);
  EXPECT_NE(said(good + secret).find("ring:2: holds 'lathe-secret-key'"), std::string::npos);
  EXPECT_NE(said(good + "lathe-public-key 12\n").find("ring:2: the key is not of 64"),
            std::string::npos);
  EXPECT_EQ(KeyPair::read(at("pub")).status().code(), ErrorCode::Invalid);
  EXPECT_EQ(KeyPair::read(at("nowhere")).status().code(), ErrorCode::Usage);
}

} // namespace
