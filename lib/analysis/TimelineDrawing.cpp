//===- TimelineDrawing.cpp - a mesh's timeline as SVG ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers are written as fixed decimals, so that equal timelines give equal files.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/MeshSimulator.h"

#include "Svg.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace lathe::analysis {
namespace {

constexpr double kLeft = 150, kTop = 56, kWidth = 1000, kLane = 26, kGap = 6;
constexpr const char *kKernel = "#9cc2e5", *kWait = "#d9d9d9", *kExchange = "#f0ad4e";

/// Ranks that do everything at the same times, to a picosecond.
struct Lane {
  int64_t first = 0, count = 0;
};

std::vector<Lane> lanesOf(const MeshTimeline &timeline) {
  std::vector<Lane> lanes;
  std::map<std::vector<int64_t>, size_t> known;
  for (int64_t rank = 0; rank < timeline.ranks; ++rank) {
    std::vector<int64_t> times;
    for (size_t step = 0; step < timeline.steps.size(); ++step) {
      times.push_back(std::llround(timeline.beginOf(step, rank) * 1e12));
      times.push_back(std::llround(timeline.endOf(step, rank) * 1e12));
    }
    auto [it, isNew] = known.try_emplace(std::move(times), lanes.size());
    if (isNew)
      lanes.push_back({rank, 0});
    ++lanes[it->second].count;
  }
  return lanes;
}

std::string microseconds(double seconds) { return svg::number(seconds * 1e6) + " us"; }

} // namespace

std::string drawTimeline(const MeshTimeline &timeline, const std::string &title, int most) {
  std::vector<Lane> lanes = lanesOf(timeline);
  const size_t all = lanes.size();
  if (lanes.size() > size_t(std::max(most, 1)))
    lanes.resize(size_t(std::max(most, 1)));
  const double total = timeline.seconds > 0 ? timeline.seconds : 1;
  auto x = [&](double seconds) { return kLeft + seconds / total * kWidth; };
  std::string body;
  auto box = [&](double y, double begin, double end, const char *fill, const std::string &tip) {
    if (end > begin)
      body += "<rect x=\"" + svg::number(x(begin)) + "\" y=\"" + svg::number(y) + "\" width=\"" +
              svg::number(x(end) - x(begin)) + "\" height=\"" + svg::number(kLane) + "\" fill=\"" + fill +
              "\" stroke=\"#fff\" stroke-width=\"0.3\"><title>" +
              svg::escaped(tip) + "</title></rect>\n";
  };
  double y = kTop;
  for (const Lane &lane : lanes) {
    body += "<text x=\"" + svg::number(kLeft - 8) + "\" y=\"" + svg::number(y + kLane / 2 + 4) +
            "\" text-anchor=\"end\">rank " + std::to_string(lane.first) +
            (lane.count > 1 ? ", " + std::to_string(lane.count - 1) + " more alike" : "") + "</text>\n";
    for (size_t i = 0; i < timeline.steps.size(); ++i) {
      const MeshStep &step = timeline.steps[i];
      const double begin = timeline.beginOf(i, lane.first), end = timeline.endOf(i, lane.first);
      auto tip = [&](const char *what, double from, double to) {
        return step.name + what + "\n" + microseconds(from) + " to " + microseconds(to) + ", " + microseconds(to - from) +
               (step.nodes.empty() ? "" : "\n" + step.nodes);
      };
      if (!step.collective) {
        box(y, begin, end, kKernel, tip("", begin, end));
        continue;
      }
      // Until the last has come nobody can be through.
      const double last = std::min(timeline.lastBeginOf(i, lane.first), end);
      box(y, begin, last, kWait, tip(": waits for other ranks", begin, last));
      box(y, last, end, kExchange, tip("", last, end));
    }
    y += kLane + kGap;
  }
  for (int i = 0; i <= 4; ++i)
    body += "<text x=\"" + svg::number(x(total * i / 4)) + "\" y=\"" + svg::number(y + 12) +
            "\" text-anchor=\"middle\">" + microseconds(total * i / 4) + "</text>\n";
  if (all > lanes.size())
    body += "<text x=\"" + svg::number(kLeft) + "\" y=\"" + svg::number(y + 30) + "\">" +
            std::to_string(all - lanes.size()) + " more kinds of ranks are left out</text>\n";
  double at = kLeft;
  for (auto [fill, text] : {std::pair(kKernel, "kernel"), std::pair(kWait, "waits"), std::pair(kExchange, "exchanges")}) {
    body += "<rect x=\"" + svg::number(at) + "\" y=\"32\" width=\"12\" height=\"12\" fill=\"" + fill + "\"/>\n<text x=\"" +
            svg::number(at + 16) + "\" y=\"42\">" + text + "</text>\n";
    at += 90;
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + svg::number(kLeft + kWidth + 40) + " " +
         svg::number(y + 40) + "\" font-family=\"sans-serif\" font-size=\"11\">\n<title>" + svg::escaped(title) +
         "</title>\n<text x=\"" + svg::number(kLeft) + "\" y=\"20\" font-size=\"14\">" + svg::escaped(title) +
         "</text>\n" + body + "</svg>\n";
}

} // namespace lathe::analysis
