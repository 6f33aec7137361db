//===- SignedText.h - what signing and verifying agree on -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_LIB_ENGINE_SIGNEDTEXT_H
#define LATHE_LIB_ENGINE_SIGNEDTEXT_H

#include "lathe/support/Status.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::engine {

inline constexpr std::string_view kSignatureMagic = "LATHESIG";
inline constexpr std::string_view kPublicKind = "lathe-public-key";
inline constexpr std::string_view kSecretKind = "lathe-secret-key";

/// What the signature of an engine with this header digest is of.
std::string signedText(const std::array<uint8_t, 32> &digest);

std::string toHex(const uint8_t *bytes, size_t count);
/// False when `text` is not `count` bytes in lower-case hexadecimal.
bool fromHex(std::string_view text, uint8_t *bytes, size_t count);

/// A line of a key file: a public key, or the seed of a secret one.
struct KeyLine {
  std::array<uint8_t, 32> bytes = {};
  std::string name;
};
/// All of one kind; Invalid with the line otherwise, or when there is none.
Result<std::vector<KeyLine>> keyLines(std::string_view text, std::string_view kind,
                                      const std::string &where);

} // namespace lathe::engine

#endif // LATHE_LIB_ENGINE_SIGNEDTEXT_H
