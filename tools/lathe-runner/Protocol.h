//===- Protocol.h - messages between lathe-runner and its user --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A request and then its answer, each a message: u64 bytes, then so many. All numbers are little-endian.
//
//   request   u8 kind, then  Open: u64 bytes, the engine
//                            Seed: u64 seed
//                            Run:  u32 inputs, each a tensor; u32 number of outputs
//   answer    u32 lathe_code, u64 bytes, message; of a Run that went well also each output, a tensor
//   tensor    i32 lathe_dtype, i32 rank, i64 dims[rank], u64 bytes, elements in row-major order (strings packed
//             as lathe.h has them)
//
// Seed and Run are of the engine opened last. Who closes the runner's input ends it.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_RUNNER_PROTOCOL_H
#define LATHE_TOOLS_RUNNER_PROTOCOL_H

#include "lathe/runtime/lathe.h"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace lathe::runner {

static_assert(std::endian::native == std::endian::little);

enum class Request : uint8_t { Open = 'O', Seed = 'S', Run = 'R' };

constexpr uint64_t kMaxMessage = uint64_t(1) << 34;

class MessageWriter {
public:
  template <typename T> void number(T value) {
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
  }
  void block(const void *data, uint64_t size) {
    number<uint64_t>(size);
    bytes.append(static_cast<const char *>(data), size);
  }
  /// A row-major tensor of the host.
  void tensor(const lathe_tensor &t) {
    number<int32_t>(t.dtype);
    number<int32_t>(t.rank);
    for (int32_t i = 0; i < t.rank; ++i)
      number<int64_t>(t.dims[i]);
    block(t.data, t.bytes);
  }
  std::string bytes;
};

/// Each function is false when the message is too short for what it says.
class MessageReader {
public:
  explicit MessageReader(std::string_view bytes) : rest(bytes) {}
  template <typename T> bool number(T &value) {
    if (rest.size() < sizeof value)
      return false;
    std::memcpy(&value, rest.data(), sizeof value);
    rest.remove_prefix(sizeof value);
    return true;
  }
  bool block(std::string_view &data) {
    uint64_t size = 0;
    if (!number(size) || size > rest.size())
      return false;
    data = rest.substr(0, size);
    rest.remove_prefix(size);
    return true;
  }
  bool tensor(lathe_dtype &dtype, std::vector<int64_t> &dims, std::string_view &data) {
    int32_t type = 0, rank = 0;
    if (!number(type) || !number(rank) || type < 0 || type > LATHE_STRING || rank < 0 || rank > LATHE_MAX_RANK)
      return false;
    dtype = lathe_dtype(type);
    dims.resize(size_t(rank));
    for (int64_t &size : dims)
      if (!number(size))
        return false;
    return block(data);
  }
  bool atEnd() const { return rest.empty(); }

private:
  std::string_view rest;
};

/// Waits for `fd` until it can be read, at most so many milliseconds (-1: endless), and reads `size` bytes.
inline bool readAll(int fd, char *into, size_t size, int timeout) {
  while (size > 0) {
    pollfd one = {fd, POLLIN, 0};
    int ready = poll(&one, 1, timeout);
    ssize_t n = ready > 0 ? read(fd, into, size) : ready;
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    into += n;
    size -= size_t(n);
  }
  return true;
}

/// False at the end of the stream, on an error, and after `timeout` milliseconds without a byte.
inline bool receiveMessage(int fd, std::string &bytes, int timeout = -1) {
  uint64_t size = 0;
  if (!readAll(fd, reinterpret_cast<char *>(&size), sizeof size, timeout) || size > kMaxMessage)
    return false;
  bytes.resize(size);
  return readAll(fd, bytes.data(), size, timeout);
}

inline bool sendMessage(int fd, std::string_view bytes) {
  uint64_t size = bytes.size();
  std::string_view parts[] = {{reinterpret_cast<const char *>(&size), sizeof size}, bytes};
  for (std::string_view part : parts)
    while (!part.empty()) {
      ssize_t n = write(fd, part.data(), part.size());
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return false;
      part.remove_prefix(size_t(n));
    }
  return true;
}

} // namespace lathe::runner

#endif // LATHE_TOOLS_RUNNER_PROTOCOL_H
