//===- Socket.h - connections over TCP --------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything is non-blocking and knows a deadline. Errors say what the system says.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_TCP_SOCKET_H
#define LATHE_RUNTIME_COMM_TCP_SOCKET_H

#include "../../device/Deadline.h"

#include <string>
#include <string_view>

namespace lathe::runtime::tcp {

/// A descriptor that is closed with its owner.
class Socket {
public:
  explicit Socket(int descriptor = -1) : descriptor(descriptor) {}
  Socket(Socket &&other) : descriptor(other.release()) {}
  Socket &operator=(Socket &&other) {
    if (this != &other) {
      close();
      descriptor = other.release();
    }
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return descriptor; }
  bool isOpen() const { return descriptor >= 0; }
  void close();
  int release() {
    int held = descriptor;
    descriptor = -1;
    return held;
  }

private:
  int descriptor;
};

/// Milliseconds for poll(): until the deadline, `most` at most.
int pollTime(Deadline deadline, int most);

/// Listens on this address; port 0 is any, and `bound` tells which. `host` empty, or no address of this
/// machine: on all. Usage error for a port that is taken.
Result<Socket> listenAt(const std::string &host, int64_t port, int64_t &bound);
/// One attempt.
Result<Socket> connectTo(const std::string &host, int64_t port, Deadline deadline);
/// A connection that waits to be accepted; none (not open) if there is none.
Socket acceptFrom(const Socket &listener);
/// The numeric address of this end, and of the other.
std::string addressOf(const Socket &socket);
std::string peerOf(const Socket &socket);

enum class Flow { Some, Blocked, Closed };
/// As much as goes at once; `count` is raised by it.
Flow sendSome(int fd, const void *data, size_t bytes, size_t &count);
/// Two pieces of memory, one after the other, from byte `count` of both.
Flow sendSome(int fd, const void *first, size_t firstBytes, const void *second, size_t secondBytes, size_t &count);
Flow receiveSome(int fd, void *data, size_t bytes, size_t &count);

/// Messages of the rendezvous: texts with a length in front.
Status sendText(const Socket &socket, std::string_view text, Deadline deadline);
/// A text that comes piece by piece.
class TextReader {
public:
  /// Takes what has come. True when the text is complete. Errors: PeerLost when the other end has closed,
  /// Usage when what comes is not of a rank.
  Result<bool> advance(const Socket &socket);
  const std::string &text() const { return body; }
  void restart() { *this = TextReader(); }

private:
  char head[8] = {};
  size_t headBytes = 0, bodyBytes = 0;
  std::string body;
};
Result<std::string> receiveText(const Socket &socket, Deadline deadline);

} // namespace lathe::runtime::tcp

#endif // LATHE_RUNTIME_COMM_TCP_SOCKET_H
