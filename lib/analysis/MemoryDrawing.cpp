//===- MemoryDrawing.cpp - buffers over time as SVG -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps from left to right, bytes from bottom to top. Numbers are written as fixed
// decimals, so that equal plans give equal files.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/MemoryDrawing.h"

#include "Svg.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>

namespace lathe::analysis {
namespace {

constexpr double kLeft = 90, kTop = 40, kWidth = 1000, kHeight = 560, kBottom = 50;

using svg::escaped;

std::string text(double v) { return svg::number(v); }

std::string bytes(int64_t n) {
  char out[32];
  double v = static_cast<double>(n);
  const char *unit = n >= 10'000'000 ? "MB" : n >= 10'000 ? "kB" : "B";
  v /= n >= 10'000'000 ? 1e6 : n >= 10'000 ? 1e3 : 1;
  std::snprintf(out, sizeof out, "%.*f %s", n >= 10'000 ? 2 : 0, v, unit);
  return out;
}

/// Hues far apart for neighbours in the list.
std::string colour(size_t i) { return "hsl(" + std::to_string(i * 137 % 360) + ",60%,72%)"; }

} // namespace

std::string drawSvg(const Drawing &drawing) {
  int64_t first = drawing.firstStep,
          last = first + static_cast<int64_t>(drawing.steps.size());
  bool any = !drawing.steps.empty();
  for (const DrawnBuffer &b : drawing.buffers)
    if (b.begin < b.end) {
      first = any ? std::min(first, b.begin) : b.begin;
      last = any ? std::max(last, b.end) : b.end;
      any = true;
    }
  double steps = std::max(1.0, static_cast<double>(last) - static_cast<double>(first));
  double top = std::max(1.0, static_cast<double>(drawing.height));
  auto x = [&](int64_t step) {
    return kLeft + (static_cast<double>(step) - static_cast<double>(first)) / steps * kWidth;
  };
  auto y = [&](double offset) { return kTop + kHeight - offset / top * kHeight; };

  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " +
                    text(kLeft + kWidth + 20) + " " + text(kTop + kHeight + kBottom) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n<title>" +
                    escaped(drawing.title) + "</title>\n<text x=\"" + text(kLeft) +
                    "\" y=\"20\" font-size=\"14\">" + escaped(drawing.title) + "</text>\n";
  out += "<rect x=\"" + text(kLeft) + "\" y=\"" + text(kTop) + "\" width=\"" + text(kWidth) +
         "\" height=\"" + text(kHeight) + "\" fill=\"#f6f6f6\" stroke=\"#888\"/>\n";
  for (int i = 0; i <= 4; ++i) {
    double offset = top * i / 4;
    out += "<text x=\"" + text(kLeft - 6) + "\" y=\"" + text(y(offset) + 4) +
           "\" text-anchor=\"end\">" + bytes(static_cast<int64_t>(offset)) + "</text>\n";
    int64_t step = first + static_cast<int64_t>(steps * i / 4);
    out += "<text x=\"" + text(x(step)) + "\" y=\"" + text(kTop + kHeight + 18) +
           "\" text-anchor=\"middle\">" + std::to_string(step) + "</text>\n";
  }
  out += "<text x=\"" + text(kLeft + kWidth / 2) + "\" y=\"" + text(kTop + kHeight + 38) +
         "\" text-anchor=\"middle\">step</text>\n";

  std::map<int64_t, double> change;
  for (size_t i = 0; i < drawing.buffers.size(); ++i) {
    const DrawnBuffer &b = drawing.buffers[i];
    if (b.begin >= b.end || b.size <= 0)
      continue;
    double upper = y(static_cast<double>(b.offset) + static_cast<double>(b.size));
    change[b.begin] += static_cast<double>(b.size);
    change[b.end] -= static_cast<double>(b.size);
    out += "<rect x=\"" + text(x(b.begin)) + "\" y=\"" + text(upper) + "\" width=\"" +
           text(x(b.end) - x(b.begin)) + "\" height=\"" +
           text(y(static_cast<double>(b.offset)) - upper) + "\" fill=\"" + colour(i) +
           "\" stroke=\"#444\" stroke-width=\"0.4\"><title>" + escaped(b.name) + ": steps " +
           std::to_string(b.begin) + " to " + std::to_string(b.end - 1) + ", bytes " +
           std::to_string(b.offset) + " to " + std::to_string(b.offset + b.size) + " (" +
           std::to_string(b.size) + ")</title></rect>\n";
  }
  // What is alive at each step: the distance from the line to the top of the stack is waste.
  std::string path;
  double live = 0;
  for (auto [step, by] : change) {
    path += (path.empty() ? "M" : "L") + text(x(step)) + " " + text(y(live));
    live += by;
    path += "L" + text(x(step)) + " " + text(y(live));
  }
  if (!path.empty())
    out += "<path d=\"" + path + "\" fill=\"none\" stroke=\"#c00\" stroke-width=\"1\"/>\n";
  for (size_t i = 0; i < drawing.steps.size(); ++i) {
    int64_t step = drawing.firstStep + static_cast<int64_t>(i);
    if (!drawing.steps[i].empty())
      out += "<rect x=\"" + text(x(step)) + "\" y=\"" + text(kTop + kHeight) + "\" width=\"" +
             text(x(step + 1) - x(step)) + "\" height=\"5\" fill=\"" +
             (i % 2 ? "#999" : "#bbb") + "\"><title>" + std::to_string(step) + ": " +
             escaped(drawing.steps[i]) + "</title></rect>\n";
  }
  return out + "</svg>\n";
}

} // namespace lathe::analysis
