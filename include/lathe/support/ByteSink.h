//===- ByteSink.h - where a large file's bytes go ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who makes a file of hundreds of megabytes hands its pieces on as they are ready, so that
// nobody holds the whole.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_BYTESINK_H
#define LATHE_SUPPORT_BYTESINK_H

#include "lathe/support/Files.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

class ByteSink {
public:
  virtual ~ByteSink();
  /// Called once, before any byte comes.
  virtual Status begin(uint64_t bytes) = 0;
  /// A piece of the file; pieces come in no order, from several threads at once. Bytes that never
  /// come are zero.
  virtual Status put(uint64_t offset, std::string_view bytes) = 0;
};

/// Into memory.
class StringSink final : public ByteSink {
public:
  std::string bytes;
  Status begin(uint64_t size) override;
  Status put(uint64_t offset, std::string_view piece) override;
};

/// Into a file beside `path` that gets its name at the end, so that readers see the old file or the
/// whole new one, and concurrent writers do not mix. Without commit() nothing is left behind.
class FileSink final : public ByteSink {
public:
  explicit FileSink(std::string path) : path(std::move(path)) {}
  ~FileSink() override;
  FileSink(const FileSink &) = delete;
  FileSink &operator=(const FileSink &) = delete;

  /// RuntimeFailure when the file cannot be made.
  Status begin(uint64_t size) override;
  Status put(uint64_t offset, std::string_view piece) override;
  Status commit(FileSync sync);

private:
  std::string path, temporary;
  int fd = -1;
};

} // namespace lathe

#endif // LATHE_SUPPORT_BYTESINK_H
