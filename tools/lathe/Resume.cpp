//===- Resume.cpp - what a stopped run leaves for the next one ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Resume.h"

#include "lathe/support/Files.h"
#include "lathe/support/Sha256.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <vector>

namespace fs = std::filesystem;

namespace lathe::cli {

namespace {

constexpr const char *kHead = "lathe-resume 1\n", *kNames[] = {"model", "data", "options"};

std::string digestOf(std::string_view bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.hex();
}

} // namespace

Result<std::string> digestOfData(const std::string &path) {
  std::error_code error;
  std::vector<std::string> files;
  if (fs::is_directory(path, error)) {
    for (const auto &entry : fs::recursive_directory_iterator(path, error))
      if (entry.is_regular_file(error))
        files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  Sha256 sha;
  for (const std::string &file : files) {
    Result<MappedFile> mapped = MappedFile::open(file);
    if (!mapped)
      return mapped.status();
    sha.field(fs::path(file).lexically_relative(path).string());
    sha.field(mapped->text());
  }
  return sha.hex();
}

Result<ResumeFolder> ResumeFolder::open(const std::string &path, const std::string &model, const std::string &data,
                                        const std::string &options) {
  const std::string digests[] = {model, data, digestOf(options)};
  ResumeFolder folder;
  folder.path = path;
  folder.key = kHead;
  for (size_t i = 0; i < std::size(digests); ++i)
    folder.key += std::string(kNames[i]) + " " + digests[i] + "\n";
  std::error_code error;
  if (fs::exists(path, error)) {
    Result<std::string> known = readFile(path + "/key");
    if (!known || !known->starts_with(kHead))
      return usageError("is no folder of a stopped run; it would be written over", path);
    if (*known == folder.key) {
      std::printf("  continues a run that was stopped: %s\n", path.c_str());
      return folder;
    }
    std::string differs;
    for (size_t i = 0; i < std::size(digests); ++i)
      if (known->find(std::string(kNames[i]) + " " + digests[i] + "\n") == std::string::npos)
        differs += (differs.empty() ? "" : ", ") + std::string(kNames[i]);
    std::printf("  begins anew: %s is of a run with another %s\n", path.c_str(), differs.c_str());
    fs::remove_all(path, error);
  }
  return folder;
}

std::optional<std::string> ResumeFolder::find(const std::string &name) const {
  if (path.empty())
    return std::nullopt;
  Result<std::string> bytes = readFile(path + "/" + name);
  constexpr size_t kDigest = 64;
  if (!bytes || bytes->size() < kDigest || bytes->substr(0, kDigest) != digestOf(std::string_view(*bytes).substr(kDigest)))
    return std::nullopt;
  return bytes->substr(kDigest);
}

Status ResumeFolder::keep(const std::string &name, std::string_view bytes) const {
  if (path.empty())
    return okStatus();
  std::error_code error;
  if (fs::create_directory(path, error))
    LATHE_RETURN_IF_ERROR(writeFileAtomically(path + "/key", key, FileSync::None));
  if (error)
    return Status(ErrorCode::RuntimeFailure, "cannot be made: " + error.message(), path);
  const std::string digest = digestOf(bytes);
  const std::string_view parts[] = {digest, bytes};
  return writeFileAtomically(path + "/" + name, parts, FileSync::None);
}

void ResumeFolder::remove() const {
  std::error_code error;
  if (!path.empty())
    fs::remove_all(path, error);
}

} // namespace lathe::cli
