//===- Watch.cpp - sees that ranks live -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages are of one byte: 'h' for being here, 'b' for leaving, and 'l' with the four
// bytes of a rank that is lost behind it.
//
//===----------------------------------------------------------------------===//
#include "Watch.h"

#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>

namespace lathe::runtime::tcp {

using namespace std::chrono_literals;
using Clock = Deadline::Clock;

Watch::Watch(int64_t rank, std::vector<Socket> control, int64_t silence)
    : own(rank), silence(silence), wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      stop(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (Socket &socket : control)
    peers.push_back({std::move(socket), Clock::now(), false, {}});
  thread = std::thread([this] { main(); });
}

Watch::~Watch() {
  eventfd_write(stop.fd(), 1);
  thread.join();
  for (const Peer &peer : peers)
    tell(peer, "b");
}

Status Watch::lost() {
  std::lock_guard lock(mutex);
  return loss;
}

Status Watch::lostBy(int64_t rank) {
  std::unique_lock lock(mutex);
  if (changed.wait_for(lock, 1s, [&] { return !loss.ok(); }))
    return loss;
  return Status(ErrorCode::PeerLost, "rank " + std::to_string(rank) + " is lost: its connection was closed");
}

/// What does not go at once is left out: who takes nothing is not listening.
void Watch::tell(const Peer &peer, std::string_view message) {
  size_t sent = 0;
  if (peer.socket.isOpen())
    sendSome(peer.socket.fd(), message.data(), message.size(), sent);
}

void Watch::onLoss(std::function<void()> call) {
  {
    std::lock_guard lock(mutex);
    if (loss.ok()) {
      atLoss = std::move(call);
      return;
    }
  }
  call();
}

void Watch::declare(int64_t rank, std::string why) {
  std::function<void()> call;
  {
    std::lock_guard lock(mutex);
    if (!loss.ok())
      return;
    loss = Status(ErrorCode::PeerLost, std::move(why));
    call = std::move(atLoss);
  }
  changed.notify_all();
  eventfd_write(wake.fd(), 1);
  char message[5] = {'l'};
  const auto number = uint32_t(rank);
  std::memcpy(message + 1, &number, sizeof number);
  for (const Peer &peer : peers)
    tell(peer, {message, sizeof message});
  if (call) // behind what others are told, as it may take its time
    call();
}

/// Reads what a rank has to say.
void Watch::listen(int64_t rank) {
  Peer &peer = peers[rank];
  const std::string name = "rank " + std::to_string(rank);
  for (;;) {
    char bytes[256];
    size_t count = 0;
    Flow flow = receiveSome(peer.socket.fd(), bytes, sizeof bytes, count);
    if (flow == Flow::Blocked)
      return;
    if (flow == Flow::Closed) {
      declare(rank, name + (peer.leaves ? " has left" : " is lost: its connection was closed"));
      peer.socket.close();
      return;
    }
    peer.heard = Clock::now();
    peer.bytes.append(bytes, count);
    size_t at = 0;
    for (; at < peer.bytes.size(); ++at) {
      if (peer.bytes[at] == 'b')
        peer.leaves = true;
      if (peer.bytes[at] != 'l')
        continue;
      if (peer.bytes.size() - at < 5)
        break;
      uint32_t who = 0;
      std::memcpy(&who, peer.bytes.data() + at + 1, sizeof who);
      at += 4;
      declare(who, int64_t(who) == own ? name + " and others have taken this rank for lost"
                                       : "rank " + std::to_string(who) + " is lost, as " + name + " has found");
    }
    peer.bytes.erase(0, at);
  }
}

void Watch::main() {
  const auto period = std::min<Clock::duration>(silence / 8, 250ms);
  auto spoken = Clock::time_point(), woken = Clock::now();
  for (;;) {
    if (Clock::now() - spoken >= period) {
      spoken = Clock::now();
      for (const Peer &peer : peers)
        tell(peer, "h");
    }
    std::vector<pollfd> fds = {{stop.fd(), POLLIN, 0}};
    std::vector<int64_t> ranks;
    for (size_t r = 0; r < peers.size(); ++r)
      if (peers[r].socket.isOpen()) {
        fds.push_back({peers[r].socket.fd(), POLLIN, 0});
        ranks.push_back(int64_t(r));
      }
    poll(fds.data(), fds.size(), int(std::chrono::duration_cast<std::chrono::milliseconds>(period).count()) + 1);
    if (fds[0].revents)
      return;
    for (size_t i = 0; i < ranks.size(); ++i)
      if (fds[i + 1].revents)
        listen(ranks[i]);
    const auto now = Clock::now();
    // A process that was stopped itself has heard nobody meanwhile, and learns from what it reads now.
    const bool wasStopped = now - woken > silence / 2;
    woken = now;
    for (size_t r = 0; r < peers.size(); ++r) {
      if (wasStopped)
        peers[r].heard = now;
      if (peers[r].socket.isOpen() && now - peers[r].heard > silence) {
        char text[16];
        std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(silence).count());
        declare(int64_t(r), "rank " + std::to_string(r) + " is lost: nothing was heard of it for " + text);
      }
    }
  }
}

} // namespace lathe::runtime::tcp
