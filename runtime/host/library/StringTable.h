//===- StringTable.h - the strings of a run by number -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_HOST_LIBRARY_STRINGTABLE_H
#define LATHE_RUNTIME_HOST_LIBRARY_STRINGTABLE_H

#include "Call.h"

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

/// Each string once, so that equal numbers are equal strings. All are valid UTF-8.
struct LatheStrings {
  /// `constants` get the numbers 0, 1, ...; a Failure where one is no UTF-8 or there twice.
  explicit LatheStrings(std::span<const std::string_view> constants);

  /// Forgets what runs have added; their memory is kept for the next.
  void beginRun();

  std::string_view text(int64_t number) const;
  /// The number of a string, which is copied where it is new.
  int64_t number(std::string_view text);

  // Packed strings; HostAbi.h has the form.
  void unpack(const void *packed, uint64_t bytes, std::span<int64_t> numbers);
  uint64_t packedBytes(std::span<const int64_t> numbers) const;
  void pack(std::span<const int64_t> numbers, void *packed) const;

  /// Something that an op has made of a text (a compiled expression) and wants again.
  std::map<std::string, std::shared_ptr<void>, std::less<>> kept;

private:
  /// Text lies in blocks that never move. One that is full stays for a later run.
  struct Block {
    std::unique_ptr<char[]> memory;
    size_t room = 0, used = 0;
  };
  std::string_view keep(std::string_view text);

  std::vector<std::string_view> texts; ///< by number
  std::unordered_map<std::string_view, int64_t> numbers;
  std::vector<Block> blocks;
  size_t constantCount = 0, firstBlock = 0; ///< of a run
  size_t block = 0;                         ///< that takes text now
  uint64_t bytes = 0;                       ///< of a run
};

#endif // LATHE_RUNTIME_HOST_LIBRARY_STRINGTABLE_H
