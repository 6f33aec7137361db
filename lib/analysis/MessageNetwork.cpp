//===- MessageNetwork.cpp - messages that share ports ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "MessageNetwork.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe::analysis {

namespace {
/// Times and rates that differ by less are the same: they come of sums in other orders.
constexpr double kSame = 1e-9;
} // namespace

void MessageNetwork::send(double time, int out, int in, double bytes, double latency, int id) {
  int place = int(messages.size());
  if (unused.empty())
    messages.emplace_back();
  else
    place = unused.back(), unused.pop_back();
  Message &message = messages[place];
  const uint32_t version = message.version + 1;
  message = {out, in, id, bytes};
  message.version = version;
  events.push({time + latency, place, version, true});
}

void MessageNetwork::leave(int index) {
  Message &message = messages[index];
  for (int port : {message.out, message.in}) {
    std::vector<int> &flowing = ports[port].messages;
    std::vector<int>::iterator place = std::find(flowing.begin(), flowing.end(), index);
    *place = flowing.back();
    flowing.pop_back();
    touch(port);
  }
}

bool MessageNetwork::next(double &time, std::vector<int> &arrived) {
  arrived.clear();
  while (arrived.empty() && !events.empty()) {
    const double now = events.top().time;
    ++stamp;
    touched.clear();
    while (!events.empty() && events.top().time <= now + kSame * std::abs(now)) {
      const Event event = events.top();
      events.pop();
      Message &message = messages[event.message];
      if (event.version != message.version)
        continue;
      const bool isOver = !event.begins || message.left <= 0;
      if (isOver) {
        if (message.flows)
          leave(event.message);
        message.flows = false;
        ++message.version;
        arrived.push_back(message.id);
        unused.push_back(event.message);
        continue;
      }
      message.flows = true;
      message.since = now;
      for (int port : {message.out, message.in}) {
        ports[port].messages.push_back(event.message);
        touch(port);
      }
    }
    if (!touched.empty())
      share(now);
    time = now;
  }
  return !arrived.empty();
}

void MessageNetwork::share(double now) {
  // All that is connected with the ports of the event.
  std::vector<int> flowing;
  for (size_t i = 0; i < touched.size(); ++i) {
    Port &port = ports[touched[i]];
    port.left = port.bytesPerSecond;
    port.open = int(port.messages.size());
    for (int index : port.messages) {
      Message &message = messages[index];
      if (message.seen == stamp)
        continue;
      message.seen = stamp;
      message.fair = -1;
      flowing.push_back(index);
      touch(message.out);
      touch(message.in);
    }
  }
  // The ports that leave their messages least give them that; what these leave of their other ports is for the rest.
  for (size_t fixed = 0; fixed < flowing.size();) {
    double least = std::numeric_limits<double>::infinity();
    for (int index : touched)
      if (ports[index].open > 0)
        least = std::min(least, ports[index].left / ports[index].open);
    std::vector<int> narrow;
    for (int index : touched)
      if (ports[index].open > 0 && ports[index].left / ports[index].open <= least * (1 + kSame))
        narrow.push_back(index);
    for (int index : narrow)
      for (int m : ports[index].messages) {
        Message &message = messages[m];
        if (message.fair >= 0)
          continue;
        message.fair = least;
        ++fixed;
        for (int port : {message.out, message.in}) {
          ports[port].left -= least;
          --ports[port].open;
        }
      }
  }
  for (int index : flowing) {
    Message &message = messages[index];
    if (std::abs(message.rate - message.fair) <= kSame * message.fair)
      continue;
    message.left -= message.rate * (now - message.since);
    message.since = now;
    message.rate = message.fair;
    events.push({now + std::max(message.left, 0.0) / message.rate, index, ++message.version, false});
  }
}

} // namespace lathe::analysis
