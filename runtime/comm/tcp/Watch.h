//===- Watch.h - sees that ranks live ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread that says something to each other rank several times a second, and listens. A
// rank that computes for long is heard all the while; one that was killed is known by
// its closed connection, one that was stopped or cut off by its silence. Who finds that out
// tells the others, so that all name the same rank.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_TCP_WATCH_H
#define LATHE_RUNTIME_COMM_TCP_WATCH_H

#include "Socket.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace lathe::runtime::tcp {

class Watch {
public:
  /// `control`: a connection to each other rank, by rank. `silence`: nanoseconds.
  Watch(int64_t rank, std::vector<Socket> control, int64_t silence);
  /// Takes leave of the others.
  ~Watch();

  /// Ok, or who was lost first, and how: PeerLost.
  Status lost();
  /// The same, of a rank whose other connection has ended: by its leave, or by another loss that it knew
  /// of first, which is about to be known here.
  Status lostBy(int64_t rank);
  /// Called once when there is a loss, by the thread that finds it; at once, if there is one.
  void onLoss(std::function<void()> call);
  /// Readable when there is a loss.
  int wakeFd() const { return wake.fd(); }

private:
  struct Peer {
    Socket socket;
    Deadline::Clock::time_point heard;
    bool leaves = false;
    std::string bytes; ///< of a message that is not complete
  };
  void main();
  void listen(int64_t rank);
  void tell(const Peer &peer, std::string_view message);
  void declare(int64_t rank, std::string why);

  const int64_t own;
  const std::chrono::nanoseconds silence;
  std::vector<Peer> peers;
  Socket wake, stop; ///< eventfds
  std::mutex mutex;
  std::condition_variable changed;
  Status loss;
  std::function<void()> atLoss;
  std::thread thread;
};

} // namespace lathe::runtime::tcp

#endif // LATHE_RUNTIME_COMM_TCP_WATCH_H
