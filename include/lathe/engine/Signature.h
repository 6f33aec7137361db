//===- Signature.h - who made an engine -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An engine is a program: who loads one runs it. Its digests find damage, and anybody can make
// them; a signature says who vouches for it. Ed25519 (RFC 8032), by libsodium.
//
// A signed engine is the engine, byte for byte, and 128 bytes behind it:
//
//    8 bytes  "LATHESIG"
//   32 bytes  public key
//   64 bytes  signature of "lathe engine 1\n" and the header's digest, which covers everything
//   24 bytes  beginning of the SHA-256 of the 104 bytes above: damage is found without a key
//
// Keys are files of text, a line a key, the number in hexadecimal; a key ring is a file of public
// keys. Lines that begin with # are skipped.
//
//   lathe-public-key 3d4017c3...660c release builds
//   lathe-secret-key 9d61b19d...7f60 release builds
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_SIGNATURE_H
#define LATHE_ENGINE_SIGNATURE_H

#include "lathe/support/Status.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::engine {

inline constexpr size_t kSignatureBytes = 128;

struct PublicKey {
  std::array<uint8_t, 32> bytes = {};
  std::string name; ///< what stands behind it in its file: for people
  std::string hex() const;
  bool operator==(const PublicKey &other) const { return bytes == other.bytes; }
};

/// Public keys whose engines are taken.
struct KeyRing {
  std::vector<PublicKey> keys;
  /// RuntimeFailure when the file cannot be read, Invalid with its line when it holds anything but
  /// public keys, or none.
  static Result<KeyRing> read(const std::string &path);
  static Result<KeyRing> parse(std::string_view text, const std::string &where);
  const PublicKey *find(const PublicKey &key) const;
};

/// What stands behind a signed engine.
struct Signature {
  PublicKey key;
  std::array<uint8_t, 64> bytes = {};
  /// Invalid for anything that sign() does not write.
  static Result<Signature> parse(std::string_view block, const std::string &where);
  std::string str() const;
};

/// Whether `signature` is by a key of the ring, and of the engine with this header digest. Invalid
/// otherwise; `signature` null: the engine has none.
Status checkSignature(const KeyRing &ring, const Signature *signature,
                      const std::array<uint8_t, 32> &digest, const std::string &where);

//===----------------------------------------------------------------------===//
// For those who sign (SignEngine.cpp); no part of the runtime.
//===----------------------------------------------------------------------===//

struct KeyPair {
  PublicKey open;
  std::array<uint8_t, 64> secret = {}; ///< seed and public key
  ~KeyPair(); ///< overwrites the secret
  static Result<KeyPair> make(std::string name);
  /// From a file with one secret key.
  static Result<KeyPair> read(const std::string &path);
  std::string publicText() const; ///< a line of a key ring
  std::string secretText() const;
};

/// Writes the engine of `path`, checked, with a signature in the place of one that it may have, to
/// `output`, which may be the same. The engine's bytes stay as they are.
Status signEngine(const std::string &path, const KeyPair &key, const std::string &output);

} // namespace lathe::engine

#endif // LATHE_ENGINE_SIGNATURE_H
