//===- Files.h - whole files -----------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reading, atomic writing and read-only mapping. Errors name the path.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_FILES_H
#define LATHE_SUPPORT_FILES_H

#include "lathe/support/Status.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lathe {

/// The whole file as bytes in a string. A file that cannot be opened or read is
/// a Usage error.
Result<std::string> readFile(const std::string &path);

/// Whether a written file is on the disk before it gets its name: a crash of the machine cannot
/// damage it then, but waiting takes seconds for hundreds of megabytes. Files that are made again
/// when they turn out damaged do without.
enum class FileSync { Wait, None };

/// Writes beside `path`, syncs and renames, so that readers see the old file or
/// the whole new one, and concurrent writers do not mix. RuntimeFailure on error,
/// with nothing left behind.
Status writeFileAtomically(const std::string &path, std::span<const std::string_view> parts,
                           FileSync sync = FileSync::Wait);
inline Status writeFileAtomically(const std::string &path, std::string_view content,
                                  FileSync sync = FileSync::Wait) {
  return writeFileAtomically(path, std::span<const std::string_view>(&content, 1), sync);
}

/// A file mapped read-only. Movable; unmaps when destroyed. The bytes stay valid
/// when the path is replaced or removed, but not when the file is truncated.
class MappedFile {
public:
  MappedFile() = default;
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  static Result<MappedFile> open(const std::string &path);

  std::span<const std::byte> bytes() const { return {address, size}; }
  std::string_view text() const { return {reinterpret_cast<const char *>(address), size}; }

private:
  const std::byte *address = nullptr;
  size_t size = 0;
};

} // namespace lathe

#endif // LATHE_SUPPORT_FILES_H
