//===- Rendezvous.cpp - how ranks find each other ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages are texts, of lines:
//
//   hello RANK RANKS PORT IDENTITY       of each rank to rank 0
//   table SESSION, then ADDRESS PORT     of rank 0, a line for each rank
//   peer SESSION RANK KIND               of the higher rank of a pair to the lower
//   ready                                of each rank to rank 0
//   go                                   of rank 0: the world stands
//   error CODE, LOCATION, MESSAGE        instead of any of them
//
//===----------------------------------------------------------------------===//
#include "Rendezvous.h"

#include <algorithm>
#include <charconv>
#include <poll.h>
#include <random>

namespace lathe::runtime::tcp {

namespace {

constexpr int64_t kLinger = 3000000000; ///< nanoseconds that rank 0 stays to tell of an error

using Words = std::vector<std::string>;

Words split(const std::string &text, char by) {
  Words words(1);
  for (char c : text)
    if (c == by)
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

/// -1 for what is no number.
int64_t number(const std::string &text) {
  int64_t value = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

std::string errorText(const Status &status) {
  return "error " + std::to_string(int(status.code())) + "\n" + status.location() + "\n" + status.message();
}

/// The error that a text is, or ok.
Status errorIn(const std::string &text) {
  Words lines = split(text, '\n');
  const int64_t code = lines.size() == 3 && lines[0].starts_with("error ") ? number(lines[0].substr(6)) : -1;
  if (code < 1 || code > int64_t(ErrorCode::PeerLost))
    return okStatus();
  return Status(ErrorCode(code), lines[2], lines[1]);
}

std::string listed(const std::vector<int64_t> &ranks) {
  std::string text;
  for (int64_t rank : ranks)
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

/// The other end of a meeting, of which a text is awaited.
struct Guest {
  Socket socket;
  TextReader reader;
};

class Meeting {
public:
  explicit Meeting(const World &world) : world(world), deadline(Deadline::in(world.join)), where(placeOf(world)) {}

  Result<Connections> run() {
    Status status = world.rank == 0 ? hold() : visit();
    if (status.ok())
      status = connectAll();
    // What one cannot do all get to know, through rank 0.
    status = world.rank == 0 ? concludeAsHost(status) : concludeAsGuest(status);
    if (!status.ok())
      return status;
    made.onThisHost = std::count(hosts.begin(), hosts.end(), hosts[world.rank]);
    made.placeOnHost = std::count(hosts.begin(), hosts.begin() + world.rank, hosts[world.rank]);
    made.session = session;
    return std::move(made);
  }

private:
  static std::string placeOf(const World &world) {
    return "rendezvous at " + world.host + ":" + std::to_string(world.port);
  }

  /// Waits until a stranger says something or somebody calls at `listener`, for 100 ms at most; callers become strangers.
  void receiveStrangers(const Socket &listener, std::vector<Guest> &strangers) const {
    std::vector<pollfd> fds = {{listener.fd(), POLLIN, 0}};
    for (const Guest &guest : strangers)
      fds.push_back({guest.socket.fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), pollTime(deadline, 100));
    while (true) {
      Socket came = acceptFrom(listener);
      if (!came.isOpen())
        return;
      strangers.push_back({std::move(came), {}});
    }
  }

  //===--- rank 0 -----------------------------------------------------------===//

  Status hold() {
    int64_t bound = 0;
    Result<Socket> meeting = listenAt(world.host, world.port, bound);
    if (!meeting)
      return Status(meeting.status().code(), meeting.status().message(), where);
    Result<Socket> own = listenAt(world.host, 0, ownPort);
    if (!own)
      return own.status();
    listener = std::move(*own);
    guests.resize(world.ranks);
    hosts.assign(world.ranks, "");
    ports.assign(world.ranks, 0);
    ports[0] = ownPort;
    LATHE_RETURN_IF_ERROR(receiveGuests(*meeting));
    hosts[0] = world.ranks > 1 ? addressOf(guests[1].socket) : world.host;
    session = std::to_string(std::random_device()()) + std::to_string(std::random_device()());
    std::string table = "table " + session;
    for (int64_t r = 0; r < world.ranks; ++r)
      table += "\n" + hosts[r] + " " + std::to_string(ports[r]);
    for (int64_t r = 1; r < world.ranks; ++r)
      if (Status sent = sendText(guests[r].socket, table, deadline); !sent.ok())
        return lost(r);
    return okStatus();
  }

  Status receiveGuests(const Socket &meeting) {
    std::vector<Guest> strangers; // who have not said yet who they are
    int64_t missing = world.ranks - 1;
    // Ranks that do not fit together: those that are on their way are told as well.
    Status misfit;
    Deadline refuses = Deadline::never();
    while (missing > 0 && !refuses.passed()) {
      receiveStrangers(meeting, strangers);
      for (size_t i = 0; i < strangers.size();) {
        Result<bool> complete = strangers[i].reader.advance(strangers[i].socket);
        if (complete && !*complete) {
          ++i;
          continue;
        }
        if (complete && *complete && !misfit.ok()) {
          (void)sendText(strangers[i].socket, errorText(misfit), deadline);
          --missing;
        } else if (complete && *complete) { // otherwise not of us: it may go
          Result<bool> isNew = seat(strangers[i]);
          missing -= !isNew || *isNew;
          if (!isNew) {
            misfit = isNew.status();
            refuses = Deadline::in(world.join < 0 ? kLinger : std::min(world.join, kLinger));
          }
        }
        strangers.erase(strangers.begin() + i);
      }
      if (missing && misfit.ok() && deadline.passed()) {
        std::vector<int64_t> absent;
        for (int64_t r = 1; r < world.ranks; ++r)
          if (!guests[r].socket.isOpen())
            absent.push_back(r);
        return Status(ErrorCode::Deadline, "these ranks have not come in time: " + listed(absent), where);
      }
    }
    return misfit;
  }

  /// A rank that has said hello; false when it has been here already, and has come again.
  Result<bool> seat(Guest &guest) {
    Words words = split(guest.reader.text(), ' ');
    if (words.size() != 5 || words[0] != "hello")
      return false;
    const int64_t rank = number(words[1]), ranks = number(words[2]), port = number(words[3]);
    auto refuse = [&](Status status) {
      (void)sendText(guest.socket, errorText(status), deadline);
      return status;
    };
    if (ranks != world.ranks)
      return refuse(usageError("rank " + words[1] + " is of a world of " + words[2] + " ranks, rank 0 of one of " +
                                   std::to_string(world.ranks),
                               where));
    if (rank < 1 || rank >= ranks || port < 1 || port > 65535)
      return refuse(usageError("a process says that it is rank " + words[1] + " of " + words[2], where));
    if (words[4] != world.identity)
      return refuse(usageError("rank " + words[1] + " has another engine (" + words[4].substr(0, 12) + ") than rank 0 (" +
                                   world.identity.substr(0, 12) + ")",
                               where));
    const bool isNew = !guests[rank].socket.isOpen();
    size_t ignored = 0;
    char byte;
    if (!isNew && receiveSome(guests[rank].socket.fd(), &byte, 1, ignored) != Flow::Closed)
      return refuse(usageError("two processes say that they are rank " + words[1], where));
    guests[rank].socket = std::move(guest.socket);
    guests[rank].reader.restart();
    hosts[rank] = peerOf(guests[rank].socket);
    ports[rank] = port;
    return isNew;
  }

  Status concludeAsHost(Status status) {
    for (int64_t r = 1; status.ok() && r < world.ranks; ++r) {
      Result<std::string> text = receiveText(guests[r].socket, deadline);
      if (!text)
        status = text.status().code() == ErrorCode::Deadline ? text.status() : lost(r);
      else if (*text != "ready")
        status = errorIn(*text).ok() ? internalError("rank " + std::to_string(r) + " is not ready", where) : errorIn(*text);
    }
    for (size_t r = 1; r < guests.size(); ++r)
      if (guests[r].socket.isOpen())
        if (!sendText(guests[r].socket, status.ok() ? "go" : errorText(status), deadline).ok() && status.ok())
          status = lost(int64_t(r));
    return status;
  }

  Status lost(int64_t rank) const {
    return Status(ErrorCode::PeerLost, "rank " + std::to_string(rank) + " is lost: it left while the ranks met", where);
  }

  //===--- the others -------------------------------------------------------===//

  Status visit() {
    Status last = Status(ErrorCode::Deadline, "rank 0 has not come in time", where);
    guests.resize(1);
    for (int64_t pause = 10;; pause = std::min<int64_t>(2 * pause, 200)) {
      Result<Socket> found = connectTo(world.host, world.port, deadline);
      if (found) {
        guests[0] = {std::move(*found), {}};
        if (!listener.isOpen()) { // where rank 0 can reach this one
          Result<Socket> own = listenAt(addressOf(guests[0].socket), 0, ownPort);
          if (!own)
            return own.status();
          listener = std::move(*own);
        }
        Status said = sendText(guests[0].socket,
                               "hello " + std::to_string(world.rank) + " " + std::to_string(world.ranks) + " " +
                                   std::to_string(ownPort) + " " + world.identity,
                               deadline);
        Result<std::string> answer = said.ok() ? receiveText(guests[0].socket, deadline) : Result<std::string>(said);
        if (answer) {
          LATHE_RETURN_IF_ERROR(errorIn(*answer));
          return readTable(*answer);
        }
        if (answer.status().code() == ErrorCode::Usage)
          return usageError("another program has the port: " + answer.status().message(), where);
        // Closed: of a meeting that is over, or of rank 0, which is gone; another try.
        if (answer.status().code() == ErrorCode::Deadline)
          last = Status(ErrorCode::Deadline, "no answer of rank 0 in time: other ranks are missing, or another program "
                                             "has the port", where);
      } else if (found.status().code() == ErrorCode::Usage) {
        return found.status();
      }
      if (deadline.passed())
        return last;
      std::this_thread::sleep_for(std::chrono::milliseconds(pollTime(deadline, int(pause))));
    }
  }

  Status readTable(const std::string &text) {
    Words lines = split(text, '\n');
    Words head = split(lines[0], ' ');
    if (lines.size() != size_t(world.ranks) + 1 || head.size() != 2 || head[0] != "table")
      return usageError("rank 0 is of another version of lathe", where);
    session = head[1];
    for (int64_t r = 0; r < world.ranks; ++r) {
      Words words = split(lines[r + 1], ' ');
      hosts.push_back(words[0]);
      ports.push_back(words.size() == 2 ? number(words[1]) : -1);
    }
    return okStatus();
  }

  Status concludeAsGuest(Status status) {
    if (!guests[0].socket.isOpen())
      return status;
    if (Status sent = sendText(guests[0].socket, status.ok() ? "ready" : errorText(status), deadline); status.ok())
      status = sent;
    if (!status.ok())
      return status;
    Result<std::string> word = receiveText(guests[0].socket, deadline);
    if (!word)
      return word.status().code() == ErrorCode::PeerLost
                 ? Status(ErrorCode::PeerLost, "rank 0 is lost: it left while the ranks met", where)
                 : Status(word.status().code(), "no word of rank 0 in time", where);
    return errorIn(*word);
  }

  //===--- all --------------------------------------------------------------===//

  Status connectAll() {
    made.data.resize(world.ranks);
    made.control.resize(world.ranks);
    for (int64_t r = 0; r < world.rank; ++r)
      for (bool isControl : {false, true}) {
        Result<Socket> found = connectTo(r == 0 ? world.host : hosts[r], ports[r], deadline); // by the known way
        if (!found)
          return Status(ErrorCode::PeerLost, "rank " + std::to_string(r) + " cannot be reached: " +
                                                 found.status().message(), where);
        LATHE_RETURN_IF_ERROR(sendText(*found, "peer " + session + " " + std::to_string(world.rank) +
                                                   (isControl ? " control" : " data"), deadline));
        (isControl ? made.control : made.data)[r] = std::move(*found);
      }
    std::vector<Guest> strangers;
    for (int64_t missing = 2 * (world.ranks - 1 - world.rank); missing;) {
      receiveStrangers(listener, strangers);
      for (size_t i = 0; i < strangers.size();) {
        Result<bool> complete = strangers[i].reader.advance(strangers[i].socket);
        if (complete && !*complete) {
          ++i;
          continue;
        }
        Words words = complete ? split(strangers[i].reader.text(), ' ') : Words();
        const int64_t rank = words.size() == 4 ? number(words[2]) : -1;
        if (rank > world.rank && rank < world.ranks && words[0] == "peer" && words[1] == session) {
          Socket &place = (words[3] == "control" ? made.control : made.data)[rank];
          missing -= !place.isOpen();
          place = std::move(strangers[i].socket);
        }
        strangers.erase(strangers.begin() + i);
      }
      if (missing && deadline.passed()) {
        std::vector<int64_t> absent;
        for (int64_t r = world.rank + 1; r < world.ranks; ++r)
          if (!made.data[r].isOpen() || !made.control[r].isOpen())
            absent.push_back(r);
        return Status(ErrorCode::Deadline, "these ranks have not connected in time: " + listed(absent), where);
      }
    }
    return okStatus();
  }

  const World &world;
  const Deadline deadline;
  const std::string where;
  Socket listener; ///< of the connections between ranks
  int64_t ownPort = 0;
  std::string session; ///< tells connections of this world from any others
  std::vector<Guest> guests; ///< rank 0: the others by rank; the others: rank 0
  std::vector<std::string> hosts;
  std::vector<int64_t> ports;
  Connections made;
};

} // namespace

Result<Connections> meetOthers(const World &world) { return Meeting(world).run(); }

} // namespace lathe::runtime::tcp
