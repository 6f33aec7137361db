//===- HandOver.cpp - processes of one host pass memory ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HandOver.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace lathe::runtime {

namespace {

/// What goes through a connection: one message each, with a file where there are pages.
struct Message {
  enum Kind : uint32_t { Unknown = 0, Hello = 0x4c544801, Pages, Done }; ///< "LTH" in front
  uint32_t kind = Hello;
  uint32_t rank = 0;
  uint64_t offset = 0, bytes = 0;
  cuda::CUuuid card{};
};

struct Received {
  Message message;   ///< Unknown: of another size
  int file = -1;     ///< that has come with it, whoever has it closes it; -1: none
  bool isCut = false; ///< a file has come that this process cannot have
};

Status lostRank(int64_t rank) {
  return Status(ErrorCode::PeerLost, "rank " + std::to_string(rank) + " is lost: it has closed its connection");
}

Status failed(const char *what) {
  return runtimeError(std::string("passing memory to ranks of this host: ") + what + ": " + std::strerror(errno));
}

/// What errno says of the connection to a rank.
Status failedWith(int64_t rank, const char *what) {
  return errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN ? lostRank(rank) : failed(what);
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

/// To a rank; false when it cannot go now.
Result<bool> sendMessage(int socket, int64_t rank, const Message &message, int file) {
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
  return mayComeLater() || errno == ETOOMANYREFS ? Result<bool>(false) : failedWith(rank, "sending");
}

/// From a rank; false when nothing has come.
Result<bool> receiveMessage(int socket, int64_t rank, Received &received) {
  received = {};
  iovec piece = {&received.message, sizeof received.message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr head = {};
  head.msg_iov = &piece;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &head, MSG_CMSG_CLOEXEC);
  if (got < 0)
    return mayComeLater() ? Result<bool>(false) : failedWith(rank, "receiving");
  if (got == 0)
    return lostRank(rank);
  if (cmsghdr *rights = CMSG_FIRSTHDR(&head); rights && rights->cmsg_type == SCM_RIGHTS)
    std::memcpy(&received.file, CMSG_DATA(rights), sizeof received.file);
  received.isCut = received.file < 0 && (head.msg_flags & MSG_CTRUNC);
  if (got != ssize_t(sizeof received.message))
    received.message.kind = Message::Unknown;
  return true;
}

/// Of a message that has no use for a file.
void closeFile(Received &received) {
  if (received.file >= 0)
    close(std::exchange(received.file, -1));
}

/// Why what a rank has passed is of no use, or ok.
Status checkPages(int64_t other, const Received &received) {
  const std::string from = "rank " + std::to_string(other);
  if (received.isCut)
    return runtimeError("memory of " + from + " cannot be taken: too many open files");
  return received.message.kind == Message::Pages && received.file >= 0
             ? okStatus()
             : internalError(from + " passes what is no memory");
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
      Result<bool> sent = sendMessage(peer.socket, other, hello, -1);
      for (Received answer; sent && *sent;) {
        Result<bool> come = receiveMessage(peer.socket, other, answer);
        if (!come)
          return come.status();
        closeFile(answer);
        if (*come && (answer.message.kind != Message::Hello || answer.message.rank != uint64_t(other)))
          return internalError("rank " + std::to_string(other) + " does not answer as one");
        if (*come) {
          peer.card = answer.message.card;
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
  const int64_t missing =
      std::find_if(peers.begin() + rank + 1, peers.end(), [](const Peer &peer) { return peer.socket < 0; }) -
      peers.begin();
  const int came = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (came < 0)
    return mayComeLater() || errno == ECONNABORTED ? waits.until(listener, POLLIN, missing) : failed("accepting");
  Received received;
  const Message &hello = received.message;
  Result<bool> come = false;
  while (isOurs(came) && come && !*come) {
    come = receiveMessage(came, missing, received);
    closeFile(received);
    if (come && !*come)
      if (Status status = waits.until(came, POLLIN, missing); !status.ok()) {
        close(came);
        return status;
      }
  }
  Message answer;
  answer.rank = uint32_t(rank);
  answer.card = card;
  Result<bool> sent = false;
  if (come && *come && hello.kind == Message::Hello && hello.rank > uint64_t(rank) && hello.rank < peers.size() &&
      peers[hello.rank].socket < 0)
    sent = sendMessage(came, hello.rank, answer, -1);
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
      const int socket = peers[other].socket;
      while (sent[other] <= own.size()) {
        Message message;
        const bool isLast = sent[other] == own.size();
        message.kind = isLast ? Message::Done : Message::Pages;
        message.rank = uint32_t(rank);
        message.offset = isLast ? 0 : own[sent[other]].offset;
        message.bytes = isLast ? 0 : own[sent[other]].bytes;
        Result<bool> gone = sendMessage(socket, int64_t(other), message, isLast ? -1 : own[sent[other]].file);
        if (!gone)
          status = gone.status();
        if (!gone || !*gone)
          break;
        ++sent[other];
        moved = true;
      }
      while (!done[other] && status.ok()) {
        Received received;
        Result<bool> come = receiveMessage(socket, int64_t(other), received);
        if (!come)
          status = come.status();
        if (!come || !*come)
          break;
        moved = true;
        const Message &message = received.message;
        done[other] = message.kind == Message::Done;
        Status taken = done[other] ? okStatus() : checkPages(int64_t(other), received);
        if (done[other] || !taken.ok())
          closeFile(received);
        else
          taken = take(int64_t(other), {message.offset, message.bytes, received.file});
        // What is refused does not keep this rank from hearing the others out.
        if (refused.ok())
          refused = taken;
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
  if (status.ok())
    status = refused;
  // Others do not wait for a rank that takes no part any more; what it has sent they still get.
  if (!status.ok())
    for (const Peer &peer : peers)
      shutdown(peer.socket, SHUT_RDWR);
  return status;
}

} // namespace lathe::runtime
