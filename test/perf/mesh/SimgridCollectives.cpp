//===- SimgridCollectives.cpp - collectives in SimGrid, for against_simgrid.py -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   simgrid-collectives ALGORITHM HOSTS GPUS BYTES PORT PEER NETWORK MEETING [RANK=SECONDS...]
//
// An all-reduce of all HOSTS * GPUS ranks, each an actor; ALGORITHM: one-shot, two-shot, ring or tree. PEER and NETWORK
// are LATENCY,MESSAGE,BYTES_PER_SECOND; PORT is gpu or host; ranks come at 0, those of the list so many seconds later.
// Prints the seconds at which the last rank is through. Nothing of lathe is used: what ranks send is written here again,
// for a rank as MPI programs are.
//
//===----------------------------------------------------------------------===//
#include <simgrid/s4u.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

namespace {

struct Link {
  double latency, message, bandwidth;
};

Link parse(const char *text) {
  Link link{};
  if (std::sscanf(text, "%lf,%lf,%lf", &link.latency, &link.message, &link.bandwidth) != 3)
    std::exit(2);
  return link;
}

int hosts, gpus, ranks;
Link peer, network;
double bytes;

bool isInside(int a, int b) { return a / gpus == b / gpus; }

struct Round {
  std::vector<std::pair<int, double>> sends; ///< to, bytes
  std::vector<int> receives;                 ///< from
};

/// What one rank does.
std::vector<Round> roundsOf(const std::string &algorithm, int me) {
  std::vector<Round> rounds;
  auto everyone = [&](int first, int count, double size) {
    Round round;
    for (int i = 1; i < count; ++i) {
      round.sends.push_back({first + (me - first + i) % count, size});
      round.receives.push_back(first + (me - first + count - i) % count);
    }
    rounds.push_back(round);
  };
  if (algorithm == "one-shot") {
    everyone(0, ranks, bytes);
  } else if (algorithm == "two-shot") {
    everyone(0, ranks, bytes / ranks);
    everyone(0, ranks, bytes / ranks);
  } else if (algorithm == "ring") {
    for (int i = 0; i < 2 * (ranks - 1); ++i)
      rounds.push_back({{{(me + 1) % ranks, bytes / ranks}}, {(me + ranks - 1) % ranks}});
  } else if (algorithm == "tree") {
    const int host = me / gpus, first = host * gpus;
    const double part = bytes / gpus;
    if (gpus > 1)
      everyone(first, gpus, part);
    // Reduce to host 0, then broadcast, as MPI's binomial trees.
    int mask = 1;
    std::vector<Round> down;
    for (; mask < hosts; mask *= 2) {
      if (host & mask) {
        rounds.push_back({{{me - mask * gpus, part}}, {}});
        down.push_back({{}, {me - mask * gpus}});
        break;
      }
      if (host + mask < hosts) {
        rounds.push_back({{}, {me + mask * gpus}});
        down.push_back({{{me + mask * gpus, part}}, {}});
      }
    }
    rounds.insert(rounds.end(), down.rbegin(), down.rend());
    if (gpus > 1)
      everyone(first, gpus, part);
  } else {
    std::exit(2);
  }
  return rounds;
}

std::string boxName(int from, int to) { return std::to_string(from) + "-" + std::to_string(to); }

void rankMain(int me, const std::string &algorithm, double late, double meeting) {
  const std::vector<Round> rounds = roundsOf(algorithm, me);
  // What is sent flows whether its receiver waits for it yet or not.
  for (const Round &round : rounds)
    for (int from : round.receives)
      sg::Mailbox::by_name(boxName(from, me))->set_receiver(sg::Actor::self());
  static int token;
  sg::this_actor::sleep_until(1.0); // when all are there
  sg::this_actor::sleep_for(late + meeting);
  for (const Round &round : rounds) {
    std::vector<sg::CommPtr> sent;
    for (auto [to, size] : round.sends) {
      sg::this_actor::sleep_for((isInside(me, to) ? peer : network).message);
      sent.push_back(sg::Mailbox::by_name(boxName(me, to))->put_async(&token, uint64_t(size)));
    }
    for (int from : round.receives)
      sg::Mailbox::by_name(boxName(from, me))->get<int>();
    for (sg::CommPtr &comm : sent)
      comm->wait();
  }
}

} // namespace

int main(int argc, char **argv) {
  sg::Engine engine(&argc, argv);
  if (argc < 9)
    return 2;
  // Plain max-min sharing, without what a TCP stack takes off.
  sg::Engine::set_config("network/model:CM02");
  sg::Engine::set_config("network/TCP-gamma:1e20");
  sg::Engine::set_config("network/crosstraffic:0");
  sg::Engine::set_config("network/bandwidth-factor:1");
  sg::Engine::set_config("network/latency-factor:1");
  sg::Engine::set_config("network/weight-S:0");
  sg::Engine::set_config("surf/precision:1e-13");
  sg::Engine::set_config("contexts/stack-size:32");
  const std::string algorithm = argv[1];
  hosts = std::atoi(argv[2]), gpus = std::atoi(argv[3]), ranks = hosts * gpus;
  bytes = std::atof(argv[4]);
  const bool isPerHost = std::string(argv[5]) == "host";
  peer = parse(argv[6]), network = parse(argv[7]);
  std::map<int, double> late;
  for (int i = 9; i < argc; ++i) {
    int rank = 0;
    double seconds = 0;
    if (std::sscanf(argv[i], "%d=%lf", &rank, &seconds) != 2)
      return 2;
    late[rank] = seconds;
  }
  sg::NetZone *zone = sg::create_full_zone("mesh");
  std::vector<sg::Host *> places;
  struct Ports {
    sg::Link *out, *in;
  };
  std::vector<Ports> inside, outside;
  for (int r = 0; r < ranks; ++r) {
    const std::string n = std::to_string(r);
    places.push_back(zone->create_host("gpu" + n, 1e9)->seal());
    inside.push_back({zone->create_link("po" + n, peer.bandwidth)->set_latency(peer.latency)->seal(),
                      zone->create_link("pi" + n, peer.bandwidth)->set_latency(0)->seal()});
    if (isPerHost && r % gpus)
      outside.push_back(outside.back());
    else
      outside.push_back({zone->create_link("no" + n, network.bandwidth)->set_latency(network.latency)->seal(),
                         zone->create_link("ni" + n, network.bandwidth)->set_latency(0)->seal()});
  }
  // Routes for the pairs that meet alone: all would be a million for a thousand ranks.
  std::set<std::pair<int, int>> pairs;
  for (int r = 0; r < ranks; ++r)
    for (const Round &round : roundsOf(algorithm, r))
      for (auto [to, size] : round.sends)
        pairs.insert({r, to});
  for (auto [from, to] : pairs) {
    const std::vector<Ports> &ports = isInside(from, to) ? inside : outside;
    zone->add_route(places[from]->get_netpoint(), places[to]->get_netpoint(), nullptr, nullptr,
                    {sg::LinkInRoute(ports[from].out), sg::LinkInRoute(ports[to].in)}, false);
  }
  zone->seal();
  for (int r = 0; r < ranks; ++r) {
    auto found = late.find(r);
    sg::Actor::create("rank" + std::to_string(r), places[r], rankMain, r, algorithm, found == late.end() ? 0 : found->second,
                      std::atof(argv[8]));
  }
  engine.run();
  std::printf("%.12g\n", sg::Engine::get_clock() - 1.0);
}
