//===- HandOver.h - processes of one host pass memory -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A connection of each pair of ranks over Unix sockets, which file descriptors go through. Names are in the abstract
// namespace of the host's network, and nobody but the same user is let in. Nothing waits without a deadline.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_HANDOVER_H
#define LATHE_RUNTIME_COMM_HANDOVER_H

#include "../device/Deadline.h"
#include "../device/SymmetricMemory.h"
#include "Communicator.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lathe::runtime {

class HandOver {
public:
  /// Connects with all other ranks. `session`: a text that only the ranks of this world know. `card`: 16 bytes that
  /// each tells the others about itself. Deadline, where one is not on this host or does not come.
  static Result<std::unique_ptr<HandOver>> create(const std::string &session, int64_t rank, int64_t ranks,
                                                  const cuda::CUuuid &card, Deadline deadline,
                                                  const Communicator::Stop &stop);
  ~HandOver();
  HandOver(const HandOver &) = delete;

  const cuda::CUuuid &card(int64_t rank) const { return peers[size_t(rank)].card; }

  using Take = std::function<Status(int64_t rank, const SharedPages &)>;
  /// Gives all others `own`, whose files it closes, and gets what they give, file by file, which `take` closes. All
  /// ranks call it at once. What `take` refuses is told at the end. After an error the connections are of no use any
  /// more: others get PeerLost, in this exchange or their next.
  Status exchange(std::vector<SharedPages> own, const Take &take, Deadline deadline, const Communicator::Stop &stop);

private:
  struct Peer {
    int socket = -1;
    cuda::CUuuid card{};
  };
  struct Waits {
    Deadline deadline;
    const Communicator::Stop &stop;
    /// Until something can be read, or written, there; an error when it takes too long.
    Status until(int socket, short events, int64_t rank) const;
  };
  HandOver(int64_t rank, int64_t ranks) : rank(rank), peers(size_t(ranks)) {}
  Status reach(int64_t other, const std::string &session, const cuda::CUuuid &card, const Waits &waits);
  Status admit(int listener, const cuda::CUuuid &card, const Waits &waits);

  const int64_t rank;
  std::vector<Peer> peers; ///< by rank
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_COMM_HANDOVER_H
