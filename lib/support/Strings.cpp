//===- Strings.cpp - tensors of strings ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/support/Strings.h"

#include <cstdio>
#include <cstring>

namespace lathe {

HostTensor stringTensor(std::vector<int64_t> dims, const std::vector<std::string> &texts) {
  HostTensor tensor;
  tensor.dtype = DType::String;
  tensor.dims = std::move(dims);
  size_t begin = (texts.size() + 1) * sizeof(int64_t), bytes = begin;
  for (const std::string &text : texts)
    bytes += text.size();
  tensor.data.resize(bytes);
  int64_t at = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty())
      std::memcpy(tensor.data.data() + begin + at, texts[i].data(), texts[i].size());
    at += static_cast<int64_t>(texts[i].size());
    std::memcpy(tensor.data.data() + (i + 1) * sizeof at, &at, sizeof at);
  }
  return tensor;
}

Result<std::vector<std::string_view>> stringsOf(const HostTensor &tensor) {
  const auto count = static_cast<size_t>(tensor.count());
  const size_t room = tensor.data.size() / sizeof(int64_t);
  if (tensor.dtype != DType::String || (count && room <= count))
    return invalidError("is no packed tensor of strings");
  const size_t begin = (count + 1) * sizeof(int64_t);
  std::vector<std::string_view> texts;
  int64_t from = 0;
  for (size_t i = 0; i < count; ++i) {
    int64_t to;
    std::memcpy(&to, tensor.data.data() + (i + 1) * sizeof to, sizeof to);
    if (to < from || static_cast<uint64_t>(to) > tensor.data.size() - begin)
      return invalidError("offset " + std::to_string(i + 1) + " of its strings is out of range");
    texts.emplace_back(reinterpret_cast<const char *>(tensor.data.data()) + begin + from, static_cast<size_t>(to - from));
    from = to;
  }
  return texts;
}

bool appendUtf8(std::string &text, uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
    return false;
  auto tail = [&](int shift) { text += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
  return true;
}

std::optional<std::u32string> charactersOf(std::string_view text) {
  std::u32string characters;
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    size_t size = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (size == 0 || size > text.size() - i)
      return std::nullopt;
    uint32_t c = size == 1 ? first : first & (0x7fu >> size);
    for (size_t k = 1; k < size; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if (next >> 6 != 2)
        return std::nullopt;
      c = c << 6 | (next & 0x3f);
    }
    // Only the shortest form, of what is a character.
    std::string again;
    if (!appendUtf8(again, c) || again.size() != size)
      return std::nullopt;
    characters += static_cast<char32_t>(c);
    i += size;
  }
  return characters;
}

std::string quoted(std::string_view text, size_t most) {
  bool cut = text.size() > most;
  size_t end = cut ? most : text.size();
  while (cut && end > 0 && (static_cast<uint8_t>(text[end]) >> 6) == 2)
    --end; // not within a character
  std::string out = "\"";
  for (char c : text.substr(0, end)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(c)));
      out += code;
    } else {
      out += c;
    }
  }
  return out + (cut ? "\"..." : "\"");
}

} // namespace lathe
