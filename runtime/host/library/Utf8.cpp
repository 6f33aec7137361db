//===- Utf8.cpp - characters of strings -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Utf8.h"

#include <algorithm>
#include <utf8proc.h>

namespace lathe::host {
namespace {

utf8proc_ssize_t next(std::string_view text, utf8proc_int32_t *character) {
  return utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
                          static_cast<utf8proc_ssize_t>(text.size()), character);
}

template <utf8proc_int32_t (*map)(utf8proc_int32_t)> std::string mapped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    utf8proc_uint8_t bytes[4];
    out.append(reinterpret_cast<char *>(bytes),
               static_cast<size_t>(utf8proc_encode_char(map(takeCharacter(text)), bytes)));
  }
  return out;
}

} // namespace

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    utf8proc_int32_t character;
    utf8proc_ssize_t size = next(text, &character);
    if (size <= 0)
      return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

int32_t takeCharacter(std::string_view &text) {
  utf8proc_int32_t character = 0;
  utf8proc_ssize_t size = next(text, &character);
  text.remove_prefix(static_cast<size_t>(std::max<utf8proc_ssize_t>(size, 1)));
  return character;
}

std::string lowerCase(std::string_view text) { return mapped<utf8proc_tolower>(text); }
std::string upperCase(std::string_view text) { return mapped<utf8proc_toupper>(text); }

bool isSpace(int32_t character) {
  if (character < 0x80)
    return character == ' ' || (character >= 0x09 && character <= 0x0d) || (character >= 0x1c && character <= 0x1f);
  if (character == 0x85)
    return true;
  utf8proc_category_t category = utf8proc_category(character);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

} // namespace lathe::host
