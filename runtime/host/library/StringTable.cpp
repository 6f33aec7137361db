//===- StringTable.cpp - the strings of a run by number -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StringTable.h"

#include "Utf8.h"

#include <algorithm>
#include <cstring>

using namespace lathe;
using namespace lathe::host;

namespace {

/// Text of one run at most: a loop that makes strings longer and longer ends in an error, not in the
/// machine's last byte.
constexpr uint64_t kMaxBytes = uint64_t(1) << 32;
constexpr size_t kBlock = size_t(1) << 16;

} // namespace

LatheStrings::LatheStrings(std::span<const std::string_view> constants) {
  for (std::string_view text : constants) {
    if (!isUtf8(text))
      fail("a constant string of the engine is no UTF-8", ErrorCode::Invalid);
    if (number(text) != static_cast<int64_t>(constantCount++))
      fail("the engine has a constant string twice", ErrorCode::Invalid);
  }
  firstBlock = block = blocks.size();
}

void LatheStrings::beginRun() {
  for (size_t i = constantCount; i < texts.size(); ++i)
    numbers.erase(texts[i]);
  texts.resize(constantCount);
  for (size_t i = firstBlock; i < blocks.size(); ++i)
    blocks[i].used = 0;
  block = firstBlock;
  bytes = 0;
}

std::string_view LatheStrings::text(int64_t number) const {
  if (number < 0 || static_cast<uint64_t>(number) >= texts.size())
    fail("no string has the number " + std::to_string(number), ErrorCode::Internal);
  return texts[static_cast<size_t>(number)];
}

std::string_view LatheStrings::keep(std::string_view text) {
  bytes += text.size();
  if (bytes > kMaxBytes)
    fail("the strings of a run take more than 4 GiB");
  while (block < blocks.size() && blocks[block].room - blocks[block].used < text.size())
    ++block;
  if (block == blocks.size()) {
    size_t room = std::max(kBlock, text.size());
    blocks.push_back({std::make_unique_for_overwrite<char[]>(room), room, 0});
  }
  Block &to = blocks[block];
  char *begin = to.memory.get() + to.used;
  if (!text.empty())
    std::memcpy(begin, text.data(), text.size());
  to.used += text.size();
  return {begin, text.size()};
}

int64_t LatheStrings::number(std::string_view text) {
  if (auto known = numbers.find(text); known != numbers.end())
    return known->second;
  auto number = static_cast<int64_t>(texts.size());
  texts.push_back(keep(text));
  numbers.emplace(texts.back(), number);
  return number;
}

void LatheStrings::unpack(const void *packed, uint64_t size, std::span<int64_t> out) {
  if (out.empty())
    return;
  const uint64_t begin = (out.size() + 1) * sizeof(int64_t);
  if (size < begin)
    fail(std::to_string(size) + " bytes are given, the offsets alone need " + std::to_string(begin), ErrorCode::Usage);
  const auto *offsets = static_cast<const char *>(packed); // of any alignment
  const char *text = offsets + begin;
  auto offset = [&](size_t i) {
    int64_t value;
    std::memcpy(&value, offsets + i * sizeof value, sizeof value);
    return value;
  };
  int64_t from = offset(0);
  if (from != 0)
    fail("the first offset is " + std::to_string(from) + ", not 0", ErrorCode::Usage);
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t to = offset(i + 1);
    if (to < from || static_cast<uint64_t>(to) > size - begin)
      fail("offset " + std::to_string(i + 1) + " is " + std::to_string(to) + ": offsets rise up to the " +
               std::to_string(size - begin) + " bytes of text",
           ErrorCode::Usage);
    std::string_view one(text + from, static_cast<size_t>(to - from));
    if (!isUtf8(one))
      fail("string " + std::to_string(i) + " is no UTF-8", ErrorCode::Usage);
    out[i] = number(one);
    from = to;
  }
}

uint64_t LatheStrings::packedBytes(std::span<const int64_t> list) const {
  uint64_t total = (list.size() + 1) * sizeof(int64_t);
  for (int64_t number : list)
    if (__builtin_add_overflow(total, text(number).size(), &total) || total > static_cast<uint64_t>(INT64_MAX))
      fail("the strings are too long");
  return total;
}

void LatheStrings::pack(std::span<const int64_t> list, void *packed) const {
  auto *offsets = static_cast<char *>(packed);
  char *out = offsets + (list.size() + 1) * sizeof(int64_t);
  int64_t at = 0;
  std::memcpy(offsets, &at, sizeof at);
  for (size_t i = 0; i < list.size(); ++i) {
    std::string_view one = texts[static_cast<size_t>(list[i])];
    if (!one.empty())
      std::memcpy(out + at, one.data(), one.size());
    at += static_cast<int64_t>(one.size());
    std::memcpy(offsets + (i + 1) * sizeof at, &at, sizeof at);
  }
}
