//===- MessageNetwork.h - messages that share ports -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Time goes from one event to the next: a message begins to flow when its latency is over, and has arrived when its
// bytes have flowed. Rates are shared anew among the messages that an event concerns: those that are connected with
// its ports by ports in common.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_MESSAGENETWORK_H
#define LATHE_LIB_ANALYSIS_MESSAGENETWORK_H

#include <cstdint>
#include <queue>
#include <vector>

namespace lathe::analysis {

class MessageNetwork {
public:
  int addPort(double bytesPerSecond) {
    ports.push_back({bytesPerSecond, {}});
    return int(ports.size()) - 1;
  }

  /// `time`: not before what next() has reached. `id`: of the caller, what next() tells.
  void send(double time, int out, int in, double bytes, double latency, int id);

  /// Goes on to the next time at which messages arrive, and which do; false when none is under way.
  bool next(double &time, std::vector<int> &arrived);

private:
  struct Port {
    double bytesPerSecond;
    std::vector<int> messages; ///< that flow
    double left = 0;           ///< while rates are shared
    int open = 0;
    uint64_t seen = 0;
  };
  struct Message {
    int out, in, id;
    double left;             ///< bytes at `since`
    double rate = 0, since = 0;
    uint32_t version = 0;    ///< of its end, which moves with its rate
    bool flows = false;
    double fair = -1;        ///< while rates are shared
    uint64_t seen = 0;
  };
  struct Event {
    double time;
    int message;
    uint32_t version;
    bool begins;
    bool operator>(const Event &other) const {
      return time != other.time ? time > other.time : message > other.message;
    }
  };

  void leave(int message);
  void share(double time);
  void touch(int port) {
    if (ports[port].seen != stamp)
      ports[port].seen = stamp, touched.push_back(port);
  }

  std::vector<Port> ports;
  std::vector<Message> messages;
  std::vector<int> unused; ///< places in `messages`
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  std::vector<int> touched; ///< ports that an event concerns, and what is connected with them
  uint64_t stamp = 1;
};

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_MESSAGENETWORK_H
