//===- ModelFile.h - files of a model, mapped and contained -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IMPORT_MODELFILE_H
#define LATHE_IMPORT_MODELFILE_H

#include "lathe/support/Status.h"

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lathe::onnxmodel {

/// A read-only mapping, unmapped with its last owner.
struct MappedFile {
  std::span<const std::byte> bytes;
  ~MappedFile();
};

/// Maps a file the user named (links are followed).
Result<std::shared_ptr<const MappedFile>> mapFile(const std::string &path, uint64_t maxBytes);

/// External data: files below one folder, and never outside of it. Symbolic
/// links, hard links to elsewhere, devices and `..` are refused.
class ExternalFiles {
public:
  ExternalFiles(std::string folder, uint64_t maxBytes);
  ~ExternalFiles();
  ExternalFiles(const ExternalFiles &) = delete;
  ExternalFiles &operator=(const ExternalFiles &) = delete;

  Result<std::shared_ptr<const MappedFile>> open(const std::string &location);
  /// Whether the location is a well-formed one below the folder where nothing is.
  bool isAbsent(const std::string &location);

private:
  std::string folder;
  uint64_t maxBytes;
  int folderFd = -1;
  std::map<std::string, std::shared_ptr<const MappedFile>> opened;
};

/// A serialized ModelProto whose large raw_data were taken out.
struct StrippedModel {
  std::string proto;
  /// Where they were; tensor `data_location` is EXTERNAL and its external_data
  /// has one entry with key kPieceKey and the index as value.
  std::vector<std::span<const std::byte>> pieces;
};
inline constexpr const char *kPieceKey = "lathe.piece";

/// Rewrites the wire format so that protobuf never copies weights: raw_data of
/// more than 256 bytes in initializers and Constant attributes of the main graph
/// stays in `file`. An error names the offset.
Result<StrippedModel> stripRawData(std::span<const std::byte> file);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_MODELFILE_H
