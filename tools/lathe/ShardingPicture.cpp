//===- ShardingPicture.cpp - the ranks of a mesh as a picture -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A lane a rank, time from top to bottom: boxes are what it does alone, bars across all lanes are where
// ranks meet. Heights do not tell how long something takes.
//
//===----------------------------------------------------------------------===//
#include "InspectTables.h"
#include "Results.h"

#include <algorithm>

namespace lathe::cli {

using namespace engine;

namespace {

constexpr int kLeft = 20, kTop = 60, kLane = 150, kGap = 12, kBox = 34, kBar = 24;
constexpr int kMostLanes = 8; ///< more ranks do the same

std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string rectangle(int x, int y, int width, int height, const char *fill, const std::string &text,
                      const std::string &tip) {
  auto n = [](int value) { return "\"" + std::to_string(value) + "\""; };
  return "<rect x=" + n(x) + " y=" + n(y) + " width=" + n(width) + " height=" + n(height) + " rx=\"3\" fill=\"" + fill +
         "\" stroke=\"#444\" stroke-width=\"0.5\"><title>" + escaped(tip) + "</title></rect>\n<text x=" +
         n(x + width / 2) + " y=" + n(y + height / 2 + 4) + " text-anchor=\"middle\">" + escaped(text) + "</text>\n";
}

} // namespace

std::string shardingSvg(const Plan &plan) {
  const int lanes = std::min<int>(plan.ranks, kMostLanes);
  const int width = lanes * (kLane + kGap) - kGap;
  std::string body;
  int y = kTop;
  for (int r = 0; r < lanes; ++r) {
    const int x = kLeft + r * (kLane + kGap);
    body += "<text x=\"" + std::to_string(x + kLane / 2) + "\" y=\"" + std::to_string(y - 8) +
            "\" text-anchor=\"middle\" font-weight=\"bold\">rank " + std::to_string(r) +
            (r + 1 == lanes && lanes < plan.ranks ? " to " + std::to_string(plan.ranks - 1) : "") + "</text>\n";
  }
  int64_t kernels = 0;
  std::string nodes;
  auto alone = [&] {
    if (!kernels)
      return;
    for (int r = 0; r < lanes; ++r)
      body += rectangle(kLeft + r * (kLane + kGap), y, kLane, kBox, "#dce9f5",
                        std::to_string(kernels) + (kernels == 1 ? " kernel" : " kernels"), nodes);
    y += kBox + 8;
    kernels = 0;
    nodes.clear();
  };
  for (const Block &block : plan.blocks)
    for (const Step &step : block) {
      if (std::holds_alternative<LaunchStep>(step.op)) {
        ++kernels;
        if (!step.nodes.empty())
          nodes += (nodes.empty() ? "" : "\n") + joined(step.nodes);
      } else if (const auto *collective = std::get_if<CollectiveStep>(&step.op)) {
        alone();
        const Buffer &buffer = plan.buffers[size_t(collective->inputs[0])];
        const std::string where = joined(step.nodes);
        body += rectangle(kLeft, y, width, kBar, "#f5d9a8",
                          collective->name + " " + std::string(name(buffer.dtype)) + describeDims(buffer.dims), where);
        y += kBar + 8;
      }
    }
  alone();
  const std::string title = "entry " + plan.entry + " for " + plan.target + " on " + std::to_string(plan.ranks) +
                            (plan.ranks == 1 ? " rank" : " ranks");
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + std::to_string(width + 2 * kLeft) + " " +
         std::to_string(y + 10) + "\" font-family=\"sans-serif\" font-size=\"10\">\n<title>" + escaped(title) +
         "</title>\n<text x=\"" + std::to_string(kLeft) + "\" y=\"20\" font-size=\"14\">" + escaped(title) +
         "</text>\n" + body + "</svg>\n";
}

} // namespace lathe::cli
