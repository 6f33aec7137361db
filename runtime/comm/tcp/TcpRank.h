//===- TcpRank.h - ranks that are processes, over TCP -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A connection to each other rank carries frames in order: what a rank says at the beginning
// of a step, the data of its exchanges, how the step went. A rank whose step failed says so
// in the place of data, and at the end of a step frames that nobody awaits any more are
// passed over: so connections are in order whatever happened, and the next step runs. Ends of steps that end later are
// kept as they come.
//
// Reductions are those of ThreadMesh, to the bit: elements of all members are added in their
// order, small ones by everyone, of larger ones a share by each member (two-shot: 2 (N-1)/N of
// the bytes leave and reach each rank, as in a ring).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_TCP_TCPRANK_H
#define LATHE_RUNTIME_COMM_TCP_TCPRANK_H

#include "Rendezvous.h"
#include "Watch.h"

#include <map>

namespace lathe::runtime::tcp {

/// In front of everything that is sent. Ranks have the byte order of this machine.
struct Frame {
  enum Kind : uint32_t { Begin = 0x4c545201, Data, End }; ///< "LTR" in front
  uint32_t kind = Begin;
  uint32_t part = 0; ///< of an exchange, or which meeting of a step begins
  uint64_t step = 0;
  uint32_t exchangeKind = 0, reduction = 0, dtype = 0, members = 0;
  int64_t rows = 0, run = 0;
  uint64_t bytes = 0; ///< that follow
};

class TcpRank : public WorldRank {
public:
  TcpRank(const World &world, Connections connections);
  int64_t rank() const override { return own; }
  int64_t ranks() const override { return int64_t(peers.size()); }
  Status begin(const std::string &what, const Status &status, const Stop &stop) override;
  Status exchange(std::span<const int64_t> members, const Exchange &exchange, const Stop &stop) override;
  Status end(const Status &status, const Stop &stop) override;
  Status beginNoting(const std::string &what, const Status &status, const Stop &stop, uint32_t note,
                     uint32_t &notes) override;
  Status meet(const std::string &what, const Status &status, const Stop &stop) override;
  Status meetNoting(const std::string &what, const Status &status, const Stop &stop, uint32_t note,
                    uint32_t &notes) override;
  void setPatience(int64_t wanted) override { patience = wanted; }
  uint64_t step() const override { return number; }
  void tellEnd(uint64_t step, const Status &status, bool caused) override;
  Result<bool> heardEnd(uint64_t step, Status &outcome) override;
  bool hasFailed(uint64_t step) override;
  Status lost() override { return watch.lost(); }
  void onLoss(std::function<void()> call) override { watch.onLoss(std::move(call)); }

private:
  struct Peer {
    Socket socket;
    std::string pending; ///< ahead of the next frame: of those that were given up on, and ends
    size_t pendingSent = 0;
    bool isSending = false; ///< a frame has gone in part
    std::string behind;     ///< ends that go behind it
    Frame head;
    size_t headBytes = 0, bodyBytes = 0; ///< that have been read of the frame at hand
    std::string text;                    ///< of Begin and End
    std::map<std::pair<uint64_t, uint32_t>, std::string> begins; ///< by step, from this one on, and part: what it has said
    bool ended = false;                  ///< has said how this step went, which is `text`
    std::map<uint64_t, std::string> ends; ///< what it has told of steps that end later
  };
  /// One frame to a rank and one from it.
  struct Transfer {
    int64_t rank = 0;
    Frame head;
    const void *send = nullptr;
    void *receive = nullptr; ///< Data: of `expected` bytes
    uint64_t expected = 0;
    uint64_t sent = 0; ///< of head and data together
    bool received = false, differs = false;
  };

  /// Sends and receives all of it. `Data`: ends with the error of a rank that ends its step instead.
  Status transfer(std::span<Transfer> transfers, const Stop &stop);
  Flow sendPending(Peer &peer);
  Flow sendTo(Transfer &transfer, bool &moved);
  Flow receiveFor(Transfer &transfer, bool &moved);
  /// Reads the ends that have come; -1, or a rank whose connection is closed.
  int64_t listen();
  /// Frames that were begun must go as a whole before the next.
  void giveUp(std::span<Transfer> transfers);
  /// Tells all how a step ends here, and does not wait for them.
  void announce(uint64_t step, const Status &why, bool isCaused);
  std::vector<Transfer> toAll(Frame::Kind kind, const std::string &text) const;
  /// What all say at the beginning of a step or a meeting, and what it comes to.
  Status agree(const std::string &what, const Status &status, const Stop &stop, uint32_t note, uint32_t &notes);
  /// A part of an exchange: what goes to each member, and where what comes from it goes.
  using Piece = std::pair<const std::byte *, uint64_t>;
  using Place = std::pair<std::byte *, uint64_t>;
  Status swap(std::span<const int64_t> members, const Exchange &x, uint32_t part, const Stop &stop,
              const std::function<Piece(size_t)> &give, const std::function<Place(size_t)> &take);
  Status allReduce(std::span<const int64_t> members, size_t mine, const Exchange &x, const Stop &stop);
  Status reduceScatter(std::span<const int64_t> members, size_t mine, const Exchange &x, const Stop &stop);
  Status allGather(std::span<const int64_t> members, size_t mine, const Exchange &x, const Stop &stop);

  const int64_t own;
  int64_t patience;
  const bool endsLater; ///< steps end by tellEnd()
  std::vector<Peer> peers; ///< by rank; this one's has no connection
  uint64_t number = 0;     ///< of the step
  uint32_t meeting = 0;    ///< of the step
  bool caused = false; ///< what failed here in this step failed on another rank first
  Status broken;       ///< a step did not end on all ranks, or one is lost: there is no other step
  std::vector<std::byte> scratch;
  Watch watch; ///< takes leave before the connections close
};

} // namespace lathe::runtime::tcp

#endif // LATHE_RUNTIME_COMM_TCP_TCPRANK_H
