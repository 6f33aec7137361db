//===- TcpRank.cpp - ranks that are processes, over TCP ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TcpRank.h"

#include "lathe/engine/CollectiveAbi.h"

#include <algorithm>
#include <cstring>
#include <poll.h>

namespace lathe::runtime::tcp {

namespace {

constexpr uint64_t kMostText = 1 << 20;

/// What Begin and End say: how it went, whether because of another rank, and what is run.
struct Statement {
  Status status;
  bool caused = false;
  uint32_t note = 0;
  std::string what;

  std::string text() const {
    const std::string end(1, '\0');
    return std::to_string(int(status.code())) + end + (caused ? "1" : "0") + end + std::to_string(note) + end +
           status.location() + end + status.message() + end + what;
  }
  static Statement of(const std::string &text) {
    std::string fields[6];
    size_t field = 0;
    for (char c : text)
      if (c == '\0' && field < 5)
        ++field;
      else
        fields[field] += c;
    const int code = std::atoi(fields[0].c_str());
    Statement made{okStatus(), fields[1] == "1", uint32_t(std::strtoul(fields[2].c_str(), nullptr, 10)), fields[5]};
    if (code > 0 && code <= int(ErrorCode::PeerLost))
      made.status = Status(ErrorCode(code), fields[4], fields[3]);
    return made;
  }
};

} // namespace

TcpRank::TcpRank(const World &world, Connections connections)
    : own(world.rank), patience(world.patience), endsLater(world.endsLater), peers(size_t(world.ranks)),
      watch(world.rank, std::move(connections.control), world.silence) {
  for (size_t r = 0; r < peers.size(); ++r)
    peers[r].socket = std::move(connections.data[r]);
}

//===--- frames -----------------------------------------------------------===//

Flow TcpRank::sendPending(Peer &peer) {
  while (peer.pendingSent < peer.pending.size()) {
    Flow flow = sendSome(peer.socket.fd(), peer.pending.data() + peer.pendingSent,
                         peer.pending.size() - peer.pendingSent, peer.pendingSent);
    if (flow != Flow::Some)
      return flow;
  }
  peer.pending.clear();
  peer.pendingSent = 0;
  return Flow::Some;
}

Flow TcpRank::sendTo(Transfer &t, bool &moved) {
  Peer &peer = peers[t.rank];
  moved |= peer.pendingSent < peer.pending.size();
  if (Flow flow = sendPending(peer); flow != Flow::Some)
    return flow;
  while (t.sent < sizeof t.head + t.head.bytes) {
    Flow flow = sendSome(peer.socket.fd(), &t.head, sizeof t.head, t.send, t.head.bytes, t.sent);
    if (flow != Flow::Some)
      return flow;
    moved = true;
    peer.isSending = true;
  }
  peer.isSending = false;
  peer.pending = std::exchange(peer.behind, {});
  return sendPending(peer);
}

Flow TcpRank::receiveFor(Transfer &t, bool &moved) {
  Peer &peer = peers[t.rank];
  Frame &head = peer.head;
  const bool wantsEnds = t.head.kind == Frame::End && endsLater; // which come at any time, behind beginnings too
  const std::pair<uint64_t, uint32_t> now(number, meeting);
  if (t.head.kind == Frame::Begin && peer.begins.count(now))
    t.received = true;
  while (!t.received) {
    if (peer.headBytes < sizeof head) {
      Flow flow = receiveSome(peer.socket.fd(), reinterpret_cast<char *>(&head) + peer.headBytes,
                              sizeof head - peer.headBytes, peer.headBytes);
      if (flow != Flow::Some)
        return flow;
      moved = true;
      if (peer.headBytes < sizeof head)
        continue;
      peer.bodyBytes = 0;
      const bool isText = head.kind == Frame::Begin || head.kind == Frame::End;
      if (!isText && head.kind != Frame::Data)
        return Flow::Closed; // nothing behind this can be understood
      if (isText && head.bytes > kMostText)
        return Flow::Closed;
      if (isText)
        peer.text.resize(head.bytes);
    }
    const bool isData = head.kind == Frame::Data, isNow = head.step == number;
    const bool isMine = isData && isNow && t.head.kind == Frame::Data;
    const bool isAlike = isMine && head.part == t.head.part && head.exchangeKind == t.head.exchangeKind &&
                         head.reduction == t.head.reduction && head.dtype == t.head.dtype &&
                         head.members == t.head.members && head.rows == t.head.rows && head.run == t.head.run &&
                         head.bytes == t.expected;
    while (peer.bodyBytes < head.bytes) {
      char passedOver[16384];
      const uint64_t left = head.bytes - peer.bodyBytes;
      Flow flow = isAlike   ? receiveSome(peer.socket.fd(), static_cast<char *>(t.receive) + peer.bodyBytes, left,
                                          peer.bodyBytes)
                  : !isData ? receiveSome(peer.socket.fd(), peer.text.data() + peer.bodyBytes, left, peer.bodyBytes)
                            : receiveSome(peer.socket.fd(), passedOver, std::min<uint64_t>(left, sizeof passedOver),
                                          peer.bodyBytes);
      if (flow != Flow::Some)
        return flow;
      moved = true;
    }
    peer.headBytes = 0;
    if (head.kind == Frame::Begin && head.step >= number)
      peer.begins[{head.step, head.part}] = peer.text;
    if (head.kind == Frame::End && endsLater)
      peer.ends[head.step] = peer.text;
    if (head.kind == Frame::End && endsLater && isNow)
      peer.ended = true; // it has left, or will take no part in what is left of the step
    if (wantsEnds || (head.kind == Frame::End && endsLater && !isNow))
      continue;
    if (head.step < number)
      continue; // of a step that is over here
    if (isMine || head.step > number || (!isData && head.kind == t.head.kind && head.part == t.head.part)) {
      t.received = true;
      t.differs = head.step > number || (isMine && !isAlike);
    }
    if (head.kind == Frame::End && isNow)
      t.received = peer.ended = true;
    else if (head.kind == Frame::Begin && t.head.kind != Frame::Begin)
      t.received = t.differs = true;
  }
  return Flow::Some;
}

Status TcpRank::transfer(std::span<Transfer> transfers, const Stop &stop) {
  const Deadline deadline = Deadline::in(patience);
  for (;;) {
    bool moved = false, isDone = true;
    int64_t closed = -1, ended = -1;
    std::vector<pollfd> fds = {{watch.wakeFd(), POLLIN, 0}};
    std::string missing;
    for (Transfer &t : transfers) {
      const Flow out = sendTo(t, moved), in = receiveFor(t, moved);
      if (peers[t.rank].ended && t.head.kind != Frame::End && ended < 0)
        ended = t.rank;
      const bool isSent = t.sent == sizeof t.head + t.head.bytes;
      if (isSent && t.received)
        continue;
      isDone = false;
      if ((out == Flow::Closed || in == Flow::Closed) && closed < 0)
        closed = t.rank;
      if (!t.received)
        missing += (missing.empty() ? "" : ", ") + std::to_string(t.rank);
      fds.push_back({peers[t.rank].socket.fd(), short((t.received ? 0 : POLLIN) | (isSent ? 0 : POLLOUT)), 0});
    }
    if (ended >= 0) {
      giveUp(transfers);
      caused = true;
      Statement theirs = Statement::of(endsLater ? peers[ended].ends[number] : peers[ended].text);
      return theirs.status.ok() ? internalError("rank " + std::to_string(ended) + " has ended a step that others are in")
             : theirs.caused    ? theirs.status
                                : ofRank(ended, theirs.status);
    }
    if (isDone)
      return okStatus();
    if (closed >= 0)
      return broken = watch.lostBy(closed);
    if (moved)
      continue;
    if (broken = watch.lost(); !broken.ok())
      return broken;
    Status why = stop ? stop() : okStatus();
    if (why.ok() && deadline.passed())
      why = Status(ErrorCode::Deadline, missing.empty() ? "other ranks take nothing"
                                                        : "these ranks have not come in time: " + missing);
    if (!why.ok()) {
      giveUp(transfers);
      return why;
    }
    poll(fds.data(), fds.size(), pollTime(deadline, stop ? 5 : 100));
  }
}

void TcpRank::giveUp(std::span<Transfer> transfers) {
  for (Transfer &t : transfers) {
    if (!t.sent || t.sent == sizeof t.head + t.head.bytes)
      continue;
    std::string all(reinterpret_cast<const char *>(&t.head), sizeof t.head);
    all.append(static_cast<const char *>(t.send), t.head.bytes);
    Peer &peer = peers[t.rank];
    peer.pending += all.substr(t.sent) + std::exchange(peer.behind, {});
    peer.isSending = false;
  }
}

std::vector<TcpRank::Transfer> TcpRank::toAll(Frame::Kind kind, const std::string &text) const {
  std::vector<Transfer> transfers;
  for (int64_t r = 0; r < ranks(); ++r) {
    if (r == own)
      continue;
    Transfer t;
    t.rank = r;
    t.head.kind = kind;
    t.head.step = number;
    t.head.bytes = text.size();
    t.send = text.data();
    transfers.push_back(t);
  }
  return transfers;
}

void TcpRank::announce(uint64_t step, const Status &why, bool isCaused) {
  const std::string text = Statement{why, isCaused, 0, {}}.text();
  for (Transfer &t : toAll(Frame::End, text)) {
    Peer &peer = peers[t.rank];
    t.head.step = step;
    std::string &queue = peer.isSending ? peer.behind : peer.pending;
    queue.append(reinterpret_cast<const char *>(&t.head), sizeof t.head);
    queue += text;
    if (!peer.isSending)
      sendPending(peer);
  }
}

//===--- steps ------------------------------------------------------------===//

Status TcpRank::begin(const std::string &what, const Status &status, const Stop &stop) {
  uint32_t notes = 0;
  return beginNoting(what, status, stop, 0, notes);
}

Status TcpRank::beginNoting(const std::string &what, const Status &status, const Stop &stop, uint32_t note,
                            uint32_t &notes) {
  if (!broken.ok())
    return status.ok() ? broken : status;
  ++number;
  meeting = 0;
  caused = false;
  for (Peer &peer : peers) {
    peer.ended = peer.ends.count(number) > 0; // it has come here, and left again
    peer.begins.erase(peer.begins.begin(), peer.begins.lower_bound({number, 0}));
  }
  return agree(what, status, stop, note, notes);
}

Status TcpRank::meet(const std::string &what, const Status &status, const Stop &stop) {
  uint32_t notes = 0;
  return meetNoting(what, status, stop, 0, notes);
}

Status TcpRank::meetNoting(const std::string &what, const Status &status, const Stop &stop, uint32_t note,
                           uint32_t &notes) {
  if (!broken.ok())
    return status.ok() ? broken : status;
  ++meeting;
  return agree(what, status, stop, note, notes);
}

Status TcpRank::agree(const std::string &what, const Status &status, const Stop &stop, uint32_t note, uint32_t &notes) {
  const std::string text = Statement{status, false, note, what}.text();
  std::vector<Transfer> transfers = toAll(Frame::Begin, text);
  for (Transfer &t : transfers)
    t.head.part = meeting;
  Status outcome = transfer(transfers, stop);
  if (outcome.ok() && std::any_of(transfers.begin(), transfers.end(), [](const Transfer &t) { return t.differs; }))
    outcome = internalError("ranks are at different steps");
  if (!outcome.ok()) {
    if (broken.ok())
      announce(number, outcome, caused);
    return status.ok() ? outcome : status;
  }
  // All have heard the same, and come to the same.
  std::vector<Statement> all;
  notes = 0;
  for (int64_t r = 0; r < ranks(); ++r) {
    all.push_back(Statement::of(r == own ? text : peers[r].begins[{number, meeting}]));
    notes |= all.back().note;
  }
  for (int64_t r = 0; r < ranks(); ++r)
    if (!all[r].status.ok())
      return status.ok() ? ofRank(r, all[r].status) : status;
  for (int64_t r = 0; r < ranks(); ++r)
    if (all[r].what != all[0].what)
      return usageError("rank " + std::to_string(r) + " runs '" + all[r].what + "', rank 0 '" + all[0].what + "'");
  return okStatus();
}

Status TcpRank::end(const Status &status, const Stop &) {
  if (!broken.ok())
    return status.ok() ? broken : status;
  const std::string text = Statement{status, caused, 0, {}}.text();
  std::vector<Transfer> transfers = toAll(Frame::End, text);
  for (Transfer &t : transfers)
    t.received = peers[t.rank].ended;
  // Not to be stopped: the others may be on their way here.
  if (Status outcome = transfer(transfers, {}); !outcome.ok()) {
    if (broken.ok())
      broken = runtimeError("a step has not ended on all ranks: " + outcome.message());
    return status.ok() ? outcome : status;
  }
  if (!status.ok())
    return status;
  Status first;
  for (bool wantsCaused : {false, true}) // what a failure caused in others is not told where it is known itself
    for (const Transfer &t : transfers)
      if (Statement theirs = Statement::of(peers[t.rank].text);
          first.ok() && !theirs.status.ok() && theirs.caused == wantsCaused)
        first = theirs.caused ? theirs.status : ofRank(t.rank, theirs.status);
  return first;
}

void TcpRank::tellEnd(uint64_t step, const Status &status, bool isCaused) {
  if (broken.ok())
    announce(step, status, isCaused);
}

int64_t TcpRank::listen() {
  int64_t closed = -1;
  for (Transfer &t : toAll(Frame::End, {})) {
    bool moved = false;
    if (!peers[t.rank].isSending)
      sendPending(peers[t.rank]);
    if (receiveFor(t, moved) == Flow::Closed)
      closed = t.rank;
  }
  return closed;
}

bool TcpRank::hasFailed(uint64_t step) {
  listen();
  return std::any_of(peers.begin(), peers.end(), [&](const Peer &peer) {
    auto it = peer.ends.find(step);
    return it != peer.ends.end() && !Statement::of(it->second).status.ok();
  });
}

Result<bool> TcpRank::heardEnd(uint64_t step, Status &outcome) {
  // Whatever has come is read, also of a rank that is gone since.
  const int64_t closed = listen();
  for (int64_t r = 0; r < ranks(); ++r)
    if (r != own && !peers[r].ends.count(step)) {
      Status loss = closed >= 0 ? watch.lostBy(closed) : watch.lost();
      if (loss.ok())
        return false;
      return broken = loss;
    }
  outcome = okStatus();
  for (bool wantsCaused : {false, true})
    for (int64_t r = 0; r < ranks(); ++r)
      if (Statement theirs = Statement::of(peers[r].ends[step]);
          outcome.ok() && !theirs.status.ok() && theirs.caused == wantsCaused)
        outcome = theirs.caused ? theirs.status : ofRank(r, theirs.status);
  for (Peer &peer : peers)
    peer.ends.erase(peer.ends.begin(), peer.ends.upper_bound(step));
  return true;
}

//===--- exchanges --------------------------------------------------------===//

Status TcpRank::swap(std::span<const int64_t> members, const Exchange &x, uint32_t part, const Stop &stop,
                     const std::function<Piece(size_t)> &give, const std::function<Place(size_t)> &take) {
  std::vector<Transfer> transfers;
  for (size_t m = 0; m < members.size(); ++m) {
    if (members[m] == own)
      continue;
    Transfer t;
    t.rank = members[m];
    auto [piece, bytes] = give(m);
    t.head = {Frame::Data, part, number, uint32_t(x.kind), uint32_t(x.reduction), uint32_t(x.dtype),
              uint32_t(members.size()), x.rows, x.run, bytes};
    t.send = piece;
    auto [place, expected] = take(m);
    t.receive = place;
    t.expected = expected;
    transfers.push_back(t);
  }
  LATHE_RETURN_IF_ERROR(transfer(transfers, stop));
  for (const Transfer &t : transfers)
    if (t.differs)
      return internalError("ranks " + std::to_string(own) + " and " + std::to_string(t.rank) +
                           " meet at different collectives");
  return okStatus();
}

Status TcpRank::allReduce(std::span<const int64_t> members, size_t mine, const Exchange &x, const Stop &stop) {
  const auto n = int64_t(members.size()), size = int64_t(bitWidth(x.dtype) / 8), elements = x.rows * x.run;
  const auto *in = static_cast<const std::byte *>(x.in);
  auto *out = static_cast<std::byte *>(x.out);
  const bool isOneShot = elements * size <= engine::kMostOneShotBytesOverSockets;
  // Elements [begin(m), begin(m + 1)) are those that member m adds.
  auto begin = [&](size_t m) { return elements / n * int64_t(m) + std::min<int64_t>(int64_t(m), elements % n); };
  const int64_t first = isOneShot ? 0 : begin(mine), count = isOneShot ? elements : begin(mine + 1) - first;
  const auto bytes = uint64_t(count * size);
  if (scratch.size() < bytes * uint64_t(n))
    scratch.resize(bytes * uint64_t(n));
  LATHE_RETURN_IF_ERROR(swap(
      members, x, 0, stop,
      [&](size_t m) {
        return isOneShot ? Piece(in, bytes) : Piece(in + begin(m) * size, (begin(m + 1) - begin(m)) * size);
      },
      [&](size_t m) { return Place(scratch.data() + bytes * m, bytes); }));
  Exchange share = x;
  share.rows = 1;
  share.run = count;
  std::vector<const void *> ins;
  for (size_t m = 0; m < members.size(); ++m)
    ins.push_back(m == mine ? static_cast<const void *>(in + first * size) : scratch.data() + bytes * m);
  void *to = out + first * size;
  reduceElements(share, mine, ins, {&to, 1}, 0, count);
  if (isOneShot)
    return okStatus();
  return swap(
      members, x, 1, stop, [&](size_t) { return Piece(out + first * size, bytes); },
      [&](size_t m) { return Place(out + begin(m) * size, (begin(m + 1) - begin(m)) * size); });
}

Status TcpRank::reduceScatter(std::span<const int64_t> members, size_t mine, const Exchange &x, const Stop &stop) {
  const size_t n = members.size(), run = size_t(x.run) * (bitWidth(x.dtype) / 8), bytes = size_t(x.rows) * run;
  const auto *in = static_cast<const std::byte *>(x.in);
  // What each gets of this rank, one member after another; behind it what each gives.
  if (scratch.size() < 2 * n * bytes)
    scratch.resize(2 * n * bytes);
  for (int64_t row = 0; row < x.rows && run; ++row)
    for (size_t m = 0; m < n; ++m)
      std::memcpy(scratch.data() + m * bytes + row * run, in + (row * n + m) * run, run);
  std::byte *given = scratch.data() + n * bytes;
  LATHE_RETURN_IF_ERROR(swap(
      members, x, 0, stop, [&](size_t m) { return Piece(scratch.data() + m * bytes, bytes); },
      [&](size_t m) { return Place(given + m * bytes, bytes); }));
  Exchange share = x;
  share.kind = Exchange::Kind::AllReduce;
  std::vector<const void *> ins;
  for (size_t m = 0; m < n; ++m)
    ins.push_back(m == mine ? scratch.data() + m * bytes : given + m * bytes);
  void *to = x.out;
  reduceElements(share, mine, ins, {&to, 1}, 0, x.rows * x.run);
  return okStatus();
}

Status TcpRank::allGather(std::span<const int64_t> members, size_t mine, const Exchange &x, const Stop &stop) {
  const size_t n = members.size(), run = size_t(x.run) * bitWidth(x.dtype) / 8, bytes = size_t(x.rows) * run;
  const auto *in = static_cast<const std::byte *>(x.in);
  auto *out = static_cast<std::byte *>(x.out);
  const bool isDirect = x.rows == 1;
  if (!isDirect && scratch.size() < n * bytes)
    scratch.resize(n * bytes);
  std::byte *parts = isDirect ? out : scratch.data();
  LATHE_RETURN_IF_ERROR(swap(
      members, x, 0, stop, [&](size_t) { return Piece(in, bytes); },
      [&](size_t m) { return Place(parts + m * bytes, bytes); }));
  for (int64_t row = 0; row < x.rows && run; ++row)
    for (size_t m = 0; m < n; ++m)
      if (m == mine || !isDirect)
        std::memcpy(out + (row * n + m) * run, (m == mine ? in : parts + m * bytes) + row * run, run);
  return okStatus();
}

Status TcpRank::exchange(std::span<const int64_t> members, const Exchange &x, const Stop &stop) {
  if (!broken.ok())
    return broken;
  const size_t mine = std::find(members.begin(), members.end(), own) - members.begin();
  switch (x.kind) {
  case Exchange::Kind::AllReduce:
    return allReduce(members, mine, x, stop);
  case Exchange::Kind::AllGather:
    return allGather(members, mine, x, stop);
  case Exchange::Kind::ReduceScatter:
    return reduceScatter(members, mine, x, stop);
  }
  return internalError("a collective of no known kind");
}

} // namespace lathe::runtime::tcp
