//===- HandOver.cpp - processes of one host pass memory ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HandOver.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace lathe::runtime {

namespace {

/// What goes through a connection: one message each, with a file where there are pages.
struct Message {
  enum Kind : uint32_t { Hello = 0x4c544801, Pages, Done }; ///< "LTH" in front
  uint32_t kind = Hello;
  uint32_t rank = 0;
  uint64_t offset = 0, bytes = 0;
  cuda::CUuuid card{};
};

Status failed(const char *what) {
  return runtimeError(std::string("passing memory to ranks of this host: ") + what + ": " + std::strerror(errno));
}

/// The abstract name of a rank.
socklen_t addressOf(const std::string &session, int64_t rank, sockaddr_un &address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::string name = "lathe-" + session + "-" + std::to_string(rank);
  name.resize(std::min(name.size(), sizeof address.sun_path - 1));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

int newSocket() { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

/// Whether the other end is of the same user.
bool isOurs(int socket) {
  ucred other{};
  socklen_t length = sizeof other;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

bool mayComeLater() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// False when it cannot go now.
Result<bool> sendMessage(int socket, const Message &message, int file) {
  iovec piece = {const_cast<Message *>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr head = {};
  head.msg_iov = &piece;
  head.msg_iovlen = 1;
  if (file >= 0) {
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    cmsghdr *rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  if (sendmsg(socket, &head, MSG_NOSIGNAL) == ssize_t(sizeof message))
    return true;
  return mayComeLater() || errno == ETOOMANYREFS ? Result<bool>(false) : failed("sending");
}

/// False when nothing has come. `file`: -1 without one.
Result<bool> receiveMessage(int socket, Message &message, int &file) {
  iovec piece = {&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr head = {};
  head.msg_iov = &piece;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &head, MSG_CMSG_CLOEXEC);
  if (got < 0 && mayComeLater())
    return false;
  file = -1;
  if (cmsghdr *rights = got > 0 ? CMSG_FIRSTHDR(&head) : nullptr; rights && rights->cmsg_type == SCM_RIGHTS)
    std::memcpy(&file, CMSG_DATA(rights), sizeof file);
  if (got == ssize_t(sizeof message))
    return true;
  if (file >= 0)
    close(file);
  return got < 0 ? failed("receiving") : Status(ErrorCode::PeerLost, "the connection was closed");
}

Status atRank(Status status, int64_t rank) {
  return status.code() == ErrorCode::PeerLost
             ? Status(ErrorCode::PeerLost, "rank " + std::to_string(rank) + " is lost: " + status.message())
             : status;
}

} // namespace

Status HandOver::Waits::until(int socket, short events, int64_t rank) const {
  if (Status why = stop ? stop() : okStatus(); !why.ok())
    return why;
  if (deadline.passed())
    return Status(ErrorCode::Deadline, "memory of rank " + std::to_string(rank) + " has not come in time");
  pollfd waited = {socket, events, 0};
  poll(&waited, 1, 5);
  return okStatus();
}

HandOver::~HandOver() {
  for (const Peer &peer : peers)
    if (peer.socket >= 0)
      close(peer.socket);
}

Result<std::unique_ptr<HandOver>> HandOver::create(const std::string &session, int64_t rank, int64_t ranks,
                                                   const cuda::CUuuid &card, Deadline deadline,
                                                   const Communicator::Stop &stop) {
  std::unique_ptr<HandOver> made(new HandOver(rank, ranks));
  const Waits waits{deadline, stop};
  sockaddr_un address;
  const socklen_t length = addressOf(session, rank, address);
  const int listener = newSocket();
  Status status = listener < 0 || bind(listener, reinterpret_cast<sockaddr *>(&address), length) ||
                          listen(listener, int(ranks))
                      ? failed("listening")
                      : okStatus();
  for (int64_t other = 0; other < rank && status.ok(); ++other)
    status = made->reach(other, session, card, waits);
  while (status.ok() && std::any_of(made->peers.begin() + rank + 1, made->peers.end(),
                                    [](const Peer &peer) { return peer.socket < 0; }))
    status = made->admit(listener, card, waits);
  if (listener >= 0)
    close(listener);
  if (!status.ok())
    return status;
  return made;
}

/// A rank that has a listener, or will have one.
Status HandOver::reach(int64_t other, const std::string &session, const cuda::CUuuid &card, const Waits &waits) {
  sockaddr_un address;
  const socklen_t length = addressOf(session, other, address);
  Message hello;
  hello.rank = uint32_t(rank);
  hello.card = card;
  for (Peer &peer = peers[size_t(other)];;) {
    peer.socket = newSocket();
    if (peer.socket < 0)
      return failed("a socket");
    if (!connect(peer.socket, reinterpret_cast<sockaddr *>(&address), length) && isOurs(peer.socket)) {
      Result<bool> sent = sendMessage(peer.socket, hello, -1);
      for (Message answer; sent && *sent;) {
        int file = -1;
        Result<bool> come = receiveMessage(peer.socket, answer, file);
        if (!come)
          return atRank(come.status(), other);
        if (*come) {
          peer.card = answer.card;
          return okStatus();
        }
        LATHE_RETURN_IF_ERROR(waits.until(peer.socket, POLLIN, other));
      }
    }
    close(std::exchange(peer.socket, -1));
    LATHE_RETURN_IF_ERROR(waits.until(-1, 0, other));
  }
}

/// Whoever comes next; strangers go again.
Status HandOver::admit(int listener, const cuda::CUuuid &card, const Waits &waits) {
  const int came = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (came < 0) {
    const auto missing =
        std::find_if(peers.begin() + rank + 1, peers.end(), [](const Peer &peer) { return peer.socket < 0; });
    return waits.until(listener, POLLIN, missing - peers.begin());
  }
  Message hello, answer;
  answer.rank = uint32_t(rank);
  answer.card = card;
  int file = -1;
  Result<bool> come = false;
  while (isOurs(came) && come && !*come) {
    come = receiveMessage(came, hello, file);
    if (come && !*come)
      if (Status status = waits.until(came, POLLIN, rank); !status.ok()) {
        close(came);
        return status;
      }
  }
  Result<bool> sent = false;
  if (come && *come && hello.kind == Message::Hello && hello.rank > uint64_t(rank) && hello.rank < peers.size() &&
      peers[hello.rank].socket < 0)
    sent = sendMessage(came, answer, -1);
  if (!sent || !*sent) {
    close(came);
    return okStatus();
  }
  peers[hello.rank] = {came, hello.card};
  return okStatus();
}

Status HandOver::exchange(std::vector<SharedPages> own, const Take &take, Deadline deadline,
                          const Communicator::Stop &stop) {
  const Waits waits{deadline, stop};
  Status refused, status;
  std::vector<size_t> sent(peers.size());
  std::vector<bool> done(peers.size());
  // Both ways at once: no rank waits for one that waits for it.
  for (bool isOver = false; !isOver && status.ok();) {
    isOver = true;
    bool moved = false;
    int64_t slow = -1;
    for (size_t other = 0; other < peers.size() && status.ok(); ++other) {
      if (int64_t(other) == rank)
        continue;
      while (sent[other] <= own.size()) {
        Message message;
        const bool isLast = sent[other] == own.size();
        message.kind = isLast ? Message::Done : Message::Pages;
        message.rank = uint32_t(rank);
        message.offset = isLast ? 0 : own[sent[other]].offset;
        message.bytes = isLast ? 0 : own[sent[other]].bytes;
        Result<bool> gone = sendMessage(peers[other].socket, message, isLast ? -1 : own[sent[other]].file);
        if (!gone)
          status = gone.status();
        if (!gone || !*gone)
          break;
        ++sent[other];
        moved = true;
      }
      while (!done[other] && status.ok()) {
        Message message;
        int file = -1;
        Result<bool> come = receiveMessage(peers[other].socket, message, file);
        if (!come)
          status = atRank(come.status(), int64_t(other));
        if (!come || !*come)
          break;
        moved = true;
        if (message.kind == Message::Pages && file >= 0) {
          if (Status s = take(int64_t(other), {message.offset, message.bytes, file}); refused.ok())
            refused = s;
        } else if (message.kind == Message::Done) {
          done[other] = true;
        } else {
          status = internalError("rank " + std::to_string(other) + " passes what is no memory");
        }
      }
      if (sent[other] <= own.size() || !done[other]) {
        isOver = false;
        slow = int64_t(other);
      }
    }
    if (!isOver && !moved && status.ok())
      status = waits.until(peers[size_t(slow)].socket, done[size_t(slow)] ? POLLOUT : POLLIN, slow);
  }
  for (const SharedPages &pages : own)
    close(pages.file);
  return status.ok() ? refused : status;
}

} // namespace lathe::runtime
