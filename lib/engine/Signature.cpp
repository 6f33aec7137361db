//===- Signature.cpp - keys, key rings, verification ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/engine/Signature.h"
#include "SignedText.h"
#include "lathe/support/Files.h"
#include "lathe/support/Sha256.h"

#include <cstring>
#include <sodium/crypto_sign_ed25519.h>

namespace lathe::engine {

std::string signedText(const std::array<uint8_t, 32> &digest) {
  std::string text = "lathe engine 1\n";
  text.append(reinterpret_cast<const char *>(digest.data()), digest.size());
  return text;
}

std::string toHex(const uint8_t *bytes, size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < count; ++i)
    out += {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
  return out;
}

bool fromHex(std::string_view text, uint8_t *bytes, size_t count) {
  auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() != count * 2)
    return false;
  for (size_t i = 0; i < count; ++i) {
    int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0)
      return false;
    bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

Result<std::vector<KeyLine>> keyLines(std::string_view text, std::string_view kind,
                                      const std::string &where) {
  std::vector<KeyLine> keys;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.front() == '#')
      continue;
    std::string at = where + ":" + std::to_string(number);
    size_t space = line.find(' ');
    std::string_view found = line.substr(0, space);
    if (found != kind)
      return invalidError("holds '" + std::string(found.substr(0, 24)) + "' where a " +
                              std::string(kind) + " is wanted",
                          at);
    line.remove_prefix(space == line.npos ? line.size() : space + 1);
    KeyLine key;
    size_t digits = line.find(' ');
    if (!fromHex(line.substr(0, digits), key.bytes.data(), key.bytes.size()))
      return invalidError("the key is not of 64 hexadecimal digits", at);
    if (digits != line.npos)
      key.name = std::string(line.substr(digits + 1));
    keys.push_back(std::move(key));
  }
  if (keys.empty())
    return invalidError("holds no " + std::string(kind), where);
  return keys;
}

std::string PublicKey::hex() const { return toHex(bytes.data(), bytes.size()); }

Result<KeyRing> KeyRing::parse(std::string_view text, const std::string &where) {
  Result<std::vector<KeyLine>> lines = keyLines(text, kPublicKind, where);
  if (!lines)
    return lines.status();
  KeyRing ring;
  for (KeyLine &line : *lines)
    ring.keys.push_back({line.bytes, std::move(line.name)});
  return ring;
}

Result<KeyRing> KeyRing::read(const std::string &path) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  return parse(*text, path);
}

const PublicKey *KeyRing::find(const PublicKey &key) const {
  for (const PublicKey &known : keys)
    if (known == key)
      return &known;
  return nullptr;
}

std::string Signature::str() const {
  std::string block(kSignatureMagic);
  block.append(reinterpret_cast<const char *>(key.bytes.data()), key.bytes.size());
  block.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  Sha256 sum;
  sum.update(std::string_view(block));
  block.append(reinterpret_cast<const char *>(sum.digest().data()),
               kSignatureBytes - block.size());
  return block;
}

Result<Signature> Signature::parse(std::string_view block, const std::string &where) {
  Signature signature;
  constexpr size_t kKey = kSignatureMagic.size(), kBytes = kKey + 32;
  if (block.size() == kSignatureBytes) {
    std::memcpy(signature.key.bytes.data(), block.data() + kKey, 32);
    std::memcpy(signature.bytes.data(), block.data() + kBytes, 64);
  }
  if (block != signature.str())
    return invalidError("what stands behind the engine is no signature: the file is damaged", where);
  return signature;
}

Status checkSignature(const KeyRing &ring, const Signature *signature,
                      const std::array<uint8_t, 32> &digest, const std::string &where) {
  if (!signature)
    return invalidError("the engine is not signed, and only engines signed by a key of the key ring "
                        "are taken",
                        where);
  if (!ring.find(signature->key))
    return invalidError("the engine is signed by " + signature->key.hex() +
                            ", which is not in the key ring",
                        where);
  std::string text = signedText(digest);
  if (crypto_sign_ed25519_verify_detached(
          signature->bytes.data(), reinterpret_cast<const unsigned char *>(text.data()),
          text.size(), signature->key.bytes.data()) != 0)
    return invalidError("the signature is not of this engine: it was altered after it was signed",
                        where);
  return okStatus();
}

} // namespace lathe::engine
