//===- SignEngine.cpp - keys are made, engines are signed -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "SignedText.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/engine/Signature.h"
#include "lathe/support/Files.h"

#include <sodium/core.h>
#include <sodium/crypto_sign_ed25519.h>
#include <sodium/utils.h>

namespace lathe::engine {

KeyPair::~KeyPair() { sodium_memzero(secret.data(), secret.size()); }

Result<KeyPair> KeyPair::make(std::string name) {
  if (sodium_init() < 0)
    return runtimeError("the system has no source of random numbers", "a new key");
  if (name.find('\n') != std::string::npos)
    return usageError("a key's name is one line", "a new key");
  KeyPair pair;
  crypto_sign_ed25519_keypair(pair.open.bytes.data(), pair.secret.data());
  pair.open.name = std::move(name);
  return pair;
}

Result<KeyPair> KeyPair::read(const std::string &path) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  Result<std::vector<KeyLine>> lines = keyLines(*text, kSecretKind, path);
  sodium_memzero(text->data(), text->size());
  if (!lines)
    return lines.status();
  if (lines->size() != 1)
    return invalidError("holds several secret keys; one is wanted", path);
  KeyPair pair;
  crypto_sign_ed25519_seed_keypair(pair.open.bytes.data(), pair.secret.data(),
                                   lines->front().bytes.data());
  pair.open.name = lines->front().name;
  sodium_memzero(lines->front().bytes.data(), 32);
  return pair;
}

static std::string lineOf(std::string_view kind, const uint8_t *bytes, const std::string &name) {
  return std::string(kind) + " " + toHex(bytes, 32) + (name.empty() ? "" : " " + name) + "\n";
}

std::string KeyPair::publicText() const {
  return lineOf(kPublicKind, open.bytes.data(), open.name);
}

std::string KeyPair::secretText() const { return lineOf(kSecretKind, secret.data(), open.name); }

Status signEngine(const std::string &path, const KeyPair &key, const std::string &output) {
  // What is damaged is not signed.
  Result<std::shared_ptr<const EngineReader>> engine = EngineReader::open(path);
  if (!engine)
    return engine.status();
  if (Result<std::vector<Plan>> plans = (*engine)->plans(); !plans)
    return plans.status();
  Signature signature;
  signature.key = key.open;
  std::string text = signedText((*engine)->digest());
  crypto_sign_ed25519_detached(signature.bytes.data(), nullptr,
                               reinterpret_cast<const unsigned char *>(text.data()), text.size(),
                               key.secret.data());
  // Should the file change from here on, the signature is not of what is written, which is found.
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return file.status();
  std::string block = signature.str();
  std::string_view parts[] = {file->text().substr(0, (*engine)->engineBytes()), block};
  return writeFileAtomically(output, parts);
}

} // namespace lathe::engine
