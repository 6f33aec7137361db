//===- Utf8.h - characters of strings ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_HOST_LIBRARY_UTF8_H
#define LATHE_RUNTIME_HOST_LIBRARY_UTF8_H

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::host {

/// Well-formed UTF-8: the shortest form, no surrogates, nothing above U+10FFFF.
bool isUtf8(std::string_view text);

/// The character at the front of valid text, which is taken off.
int32_t takeCharacter(std::string_view &text);

/// By Unicode's mapping of single characters, in no language.
std::string lowerCase(std::string_view text);
std::string upperCase(std::string_view text);

/// Space, as Python's str.isspace().
bool isSpace(int32_t character);

} // namespace lathe::host

#endif // LATHE_RUNTIME_HOST_LIBRARY_UTF8_H
