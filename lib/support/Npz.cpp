//===- Npz.cpp - archives of numpy arrays ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The directory at the end of the archive has the sizes; headers ahead of the data may leave them out.
// Layout: PKWARE's APPNOTE, 4.3.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Npz.h"

#include "lathe/support/Files.h"
#include "lathe/support/Npy.h"

#include <array>

namespace lathe {

namespace {

constexpr uint64_t kEnd = 22, kEntry = 46, kLocal = 30; // bytes of records without names

/// The check sum of ZIP: CRC-32 of the reversed polynomial 0xEDB88320.
uint32_t checkSum(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        made[i] = made[i] >> 1 ^ (made[i] & 1 ? 0xEDB88320u : 0);
    }
    return made;
  }();
  uint32_t sum = ~0u;
  for (char c : bytes)
    sum = sum >> 8 ^ table[(sum ^ uint8_t(c)) & 0xff];
  return ~sum;
}

} // namespace

Result<std::map<std::string, HostTensor>> readNpz(const std::string &path) {
  Result<std::string> file = readFile(path);
  if (!file)
    return file.status();
  return parseNpz(*file, path);
}

Result<std::map<std::string, HostTensor>> parseNpz(std::string_view bytes, const std::string &path) {
  auto number = [&](uint64_t at, int size) {
    uint64_t value = 0;
    for (int i = size; i-- > 0;)
      value = value << 8 | uint8_t(bytes[at + i]);
    return value;
  };
  auto damaged = [&](const std::string &what) { return invalidError(what, path); };
  uint64_t end = bytes.size() < kEnd ? std::string::npos : bytes.rfind("PK\5\6");
  if (end == std::string::npos || bytes.size() - end < kEnd)
    return damaged("is no .npz archive, or its end is missing");
  uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
  std::map<std::string, HostTensor> arrays;
  for (uint64_t i = 0; i < count; ++i) {
    if (at > bytes.size() || bytes.size() - at < kEntry || bytes.compare(at, 4, "PK\1\2") != 0)
      return damaged("its directory is damaged");
    uint64_t method = number(at + 10, 2), size = number(at + 20, 4), nameSize = number(at + 28, 2);
    uint64_t behind = number(at + 30, 2) + number(at + 32, 2), local = number(at + 42, 4);
    if (bytes.size() - at - kEntry < nameSize)
      return damaged("its directory is damaged");
    std::string name(bytes.substr(at + kEntry, nameSize));
    at += kEntry + nameSize + behind;
    if (method != 0)
      return unsupportedError("is compressed: write it by numpy.savez", path + ": '" + name + "'");
    if (local > bytes.size() || bytes.size() - local < kLocal || bytes.compare(local, 4, "PK\3\4") != 0)
      return damaged("has no '" + name + "' where its directory says");
    uint64_t data = local + kLocal + number(local + 26, 2) + number(local + 28, 2);
    if (data > bytes.size() || size > bytes.size() - data)
      return damaged("'" + name + "' reaches beyond its end");
    Result<HostTensor> array = parseNpy(bytes.substr(data, size), std::nullopt, path + ": '" + name + "'");
    if (!array)
      return array.status();
    if (name.ends_with(".npy"))
      name.resize(name.size() - 4);
    arrays[name] = std::move(*array);
  }
  return arrays;
}

Result<std::string> formatNpz(const std::map<std::string, HostTensor> &arrays) {
  std::string file, directory;
  auto number = [](std::string &into, uint64_t value, int size) {
    for (int i = 0; i < size; ++i)
      into += char(value >> (8 * i));
  };
  for (const auto &[key, array] : arrays) {
    Result<std::string> data = formatNpy(array);
    if (!data)
      return data.status();
    const std::string name = key + ".npy";
    const uint64_t at = file.size();
    std::string common; // of both headers: version 2.0, stored, midnight of 1980-01-01
    number(common, 20, 2);
    number(common, 0x800, 2); // the name is UTF-8
    number(common, 0, 2);
    number(common, 0, 2);
    number(common, 0x21, 2);
    number(common, checkSum(*data), 4);
    number(common, data->size(), 4);
    number(common, data->size(), 4);
    number(common, name.size(), 2);
    number(common, 0, 2);
    file += "PK\3\4" + common + name + *data;
    directory += "PK\1\2";
    number(directory, 20, 2);
    directory += common;
    directory.append(2 + 2 + 2 + 4, '\0'); // comment, disk, attributes
    number(directory, at, 4);
    directory += name;
    if (file.size() + directory.size() > UINT32_MAX - kEnd || arrays.size() > UINT16_MAX)
      return unsupportedError("an archive of more than 4 GB or 65535 arrays", key);
  }
  const uint64_t at = file.size();
  file += directory + "PK\5\6";
  number(file, 0, 4);
  number(file, arrays.size(), 2);
  number(file, arrays.size(), 2);
  number(file, directory.size(), 4);
  number(file, at, 4);
  number(file, 0, 2);
  return file;
}

} // namespace lathe
