//===- Socket.cpp - connections over TCP ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Socket.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lathe::runtime::tcp {

namespace {

constexpr uint32_t kTextMagic = 0x3152544c; ///< "LTR1": rendezvous, version 1
constexpr uint32_t kMostText = 1 << 20;

std::string reason(int error) { return std::strerror(error); }

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo *)>;
Result<Addresses> resolve(const std::string &host, int64_t port, bool passive) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = passive ? AI_PASSIVE : 0;
  int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error)
    return usageError("'" + host + "' is no address: " + gai_strerror(error));
  return Addresses(found, freeaddrinfo);
}

Socket make(const addrinfo &address) {
  return Socket(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void sendAtOnce(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string numeric(const sockaddr_storage &address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr *>(&address), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

} // namespace

void Socket::close() {
  if (descriptor >= 0)
    ::close(descriptor);
  descriptor = -1;
}

int pollTime(Deadline deadline, int most) {
  if (deadline.time() == Deadline::Clock::time_point::max())
    return most;
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.time() - Deadline::Clock::now()).count();
  return int(std::clamp<int64_t>(left + 1, 0, most));
}

Result<Socket> listenAt(const std::string &host, int64_t port, int64_t &bound) {
  int error = EADDRNOTAVAIL;
  // A name may stand for an address that this machine is reached by, and does not have.
  for (const std::string &place : {host, std::string()}) {
    if (error != EADDRNOTAVAIL)
      break;
    Result<Addresses> addresses = resolve(place, port, /*passive=*/true);
    if (!addresses)
      return addresses.status();
    for (const addrinfo *a = addresses->get(); a; a = a->ai_next) {
      Socket made = make(*a);
      int on = 1;
      if (made.isOpen())
        setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); // of connections that have ended
      if (!made.isOpen() || bind(made.fd(), a->ai_addr, a->ai_addrlen) || listen(made.fd(), SOMAXCONN)) {
        error = errno;
        continue;
      }
      sockaddr_storage own = {};
      socklen_t length = sizeof own;
      getsockname(made.fd(), reinterpret_cast<sockaddr *>(&own), &length);
      bound = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(own).sin6_port
                                              : reinterpret_cast<sockaddr_in &>(own).sin_port);
      return made;
    }
  }
  const std::string where = (host.empty() ? "" : host + ":") + std::to_string(port);
  return error == EADDRINUSE ? usageError("port " + std::to_string(port) + " is taken by another program", where)
                             : runtimeError("cannot listen: " + reason(error), where);
}

Result<Socket> connectTo(const std::string &host, int64_t port, Deadline deadline) {
  Result<Addresses> addresses = resolve(host, port, /*passive=*/false);
  if (!addresses)
    return addresses.status();
  int error = ECONNREFUSED;
  for (const addrinfo *a = addresses->get(); a; a = a->ai_next) {
    Socket made = make(*a);
    if (!made.isOpen()) {
      error = errno;
      continue;
    }
    if (connect(made.fd(), a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) {
      error = errno;
      continue;
    }
    pollfd waited = {made.fd(), POLLOUT, 0};
    if (poll(&waited, 1, pollTime(deadline, 10000)) <= 0) {
      error = ETIMEDOUT;
      continue;
    }
    socklen_t length = sizeof error;
    getsockopt(made.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
      continue;
    sendAtOnce(made.fd());
    return made;
  }
  return runtimeError("cannot connect: " + reason(error), host + ":" + std::to_string(port));
}

Socket acceptFrom(const Socket &listener) {
  Socket made(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (made.isOpen())
    sendAtOnce(made.fd());
  return made;
}

std::string addressOf(const Socket &socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getsockname(socket.fd(), reinterpret_cast<sockaddr *>(&address), &length);
  return numeric(address, length);
}

std::string peerOf(const Socket &socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getpeername(socket.fd(), reinterpret_cast<sockaddr *>(&address), &length);
  return numeric(address, length);
}

static Flow flowOf(ssize_t moved, size_t bytes, size_t &count) {
  if (moved > 0 || !bytes) {
    count += size_t(std::max<ssize_t>(moved, 0));
    return Flow::Some;
  }
  return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? Flow::Blocked : Flow::Closed;
}

Flow sendSome(int fd, const void *data, size_t bytes, size_t &count) {
  return flowOf(bytes ? send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : 0, bytes, count);
}

Flow sendSome(int fd, const void *first, size_t firstBytes, const void *second, size_t secondBytes, size_t &count) {
  auto at = [](const void *memory, size_t byte) { return const_cast<char *>(static_cast<const char *>(memory)) + byte; };
  const size_t skipped = std::min(count, firstBytes);
  iovec pieces[2] = {{at(first, skipped), firstBytes - skipped},
                     {at(second, count - skipped), secondBytes - (count - skipped)}};
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = secondBytes ? 2 : 1;
  const size_t left = pieces[0].iov_len + pieces[1].iov_len;
  return flowOf(left ? sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : 0, left, count);
}

Flow receiveSome(int fd, void *data, size_t bytes, size_t &count) {
  return flowOf(bytes ? recv(fd, data, bytes, MSG_DONTWAIT) : 0, bytes, count);
}

Status sendText(const Socket &socket, std::string_view text, Deadline deadline) {
  std::string all(8, '\0');
  const uint32_t head[2] = {kTextMagic, uint32_t(text.size())};
  std::memcpy(all.data(), head, sizeof head);
  all += text;
  for (size_t sent = 0; sent < all.size();) {
    Flow flow = sendSome(socket.fd(), all.data() + sent, all.size() - sent, sent);
    if (flow == Flow::Closed)
      return Status(ErrorCode::PeerLost, "the connection was closed");
    if (flow == Flow::Blocked) {
      if (deadline.passed())
        return Status(ErrorCode::Deadline, "the other end takes nothing");
      pollfd waited = {socket.fd(), POLLOUT, 0};
      poll(&waited, 1, pollTime(deadline, 100));
    }
  }
  return okStatus();
}

Result<bool> TextReader::advance(const Socket &socket) {
  for (;;) {
    const bool inHead = headBytes < sizeof head;
    if (!inHead && bodyBytes == body.size())
      return true;
    Flow flow = inHead ? receiveSome(socket.fd(), head + headBytes, sizeof head - headBytes, headBytes)
                       : receiveSome(socket.fd(), body.data() + bodyBytes, body.size() - bodyBytes, bodyBytes);
    if (flow == Flow::Blocked)
      return false;
    if (flow == Flow::Closed)
      return Status(ErrorCode::PeerLost, "the connection was closed");
    if (inHead && headBytes == sizeof head) {
      uint32_t words[2];
      std::memcpy(words, head, sizeof words);
      if (words[0] != kTextMagic || words[1] > kMostText)
        return usageError("what answers is not a rank of this version of lathe");
      body.resize(words[1]);
    }
  }
}

Result<std::string> receiveText(const Socket &socket, Deadline deadline) {
  TextReader reader;
  for (;;) {
    Result<bool> complete = reader.advance(socket);
    if (!complete)
      return complete.status();
    if (*complete)
      return reader.text();
    if (deadline.passed())
      return Status(ErrorCode::Deadline, "nothing has come in time");
    pollfd waited = {socket.fd(), POLLIN, 0};
    poll(&waited, 1, pollTime(deadline, 100));
  }
}

} // namespace lathe::runtime::tcp
