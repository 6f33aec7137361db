//===- Npz.cpp - archives of numpy arrays ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The directory at the end of the archive has the sizes; headers ahead of the data may leave them out.
// Layout: PKWARE's APPNOTE, 4.3.
//
//===----------------------------------------------------------------------===//
#include "Npz.h"

#include "lathe/support/Files.h"
#include "lathe/support/Npy.h"

namespace lathe::cli {

Result<std::map<std::string, HostTensor>> readNpz(const std::string &path) {
  Result<std::string> file = readFile(path);
  if (!file)
    return file.status();
  const std::string &bytes = *file;
  auto number = [&](uint64_t at, int size) {
    uint64_t value = 0;
    for (int i = size; i-- > 0;)
      value = value << 8 | uint8_t(bytes[at + i]);
    return value;
  };
  auto damaged = [&](const std::string &what) { return invalidError(what, path); };
  constexpr uint64_t kEnd = 22, kEntry = 46, kLocal = 30; // bytes of records without names
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
    std::string name = bytes.substr(at + kEntry, nameSize);
    at += kEntry + nameSize + behind;
    if (method != 0)
      return unsupportedError("is compressed: write it by numpy.savez", path + ": '" + name + "'");
    if (local > bytes.size() || bytes.size() - local < kLocal || bytes.compare(local, 4, "PK\3\4") != 0)
      return damaged("has no '" + name + "' where its directory says");
    uint64_t data = local + kLocal + number(local + 26, 2) + number(local + 28, 2);
    if (data > bytes.size() || size > bytes.size() - data)
      return damaged("'" + name + "' reaches beyond its end");
    Result<HostTensor> array = parseNpy(std::string_view(bytes).substr(data, size), std::nullopt, path + ": '" + name + "'");
    if (!array)
      return array.status();
    if (name.ends_with(".npy"))
      name.resize(name.size() - 4);
    arrays[name] = std::move(*array);
  }
  return arrays;
}

} // namespace lathe::cli
