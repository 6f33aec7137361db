//===- PruneReport.cpp - what pruning gains and costs ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PruneReport.h"
#include "Results.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace lathe::cli {

namespace {

std::string percent(double share) { return llvm::formatv("{0:f1} %", 100 * share).str(); }
std::string share(const PruneReport::Row &row) {
  double dense = row.denseMicroseconds;
  return dense > 0 ? llvm::formatv("{0:f2}", row.sparseMicroseconds / dense).str() : "-";
}
std::string micro(double us) { return llvm::formatv("{0:f1}", us).str(); }
std::string verdict(const PruneReport::Row &row) {
  if (row.applied)
    return row.wins ? "zeros" : "zeros, as asked: " + row.why;
  return "dense: " + row.why;
}

std::string verdict(const PruneReport::Width &width) {
  if (!width.applied)
    return "stays as it is: " + width.why;
  return width.why.empty() ? "narrower" : "narrower, as asked: " + width.why;
}
std::string ratioOf(double pruned, double dense) { return dense > 0 ? llvm::formatv("{0:f2}", pruned / dense).str() : "-"; }

std::string escaped(llvm::StringRef text) {
  std::string out;
  for (char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

} // namespace

std::string PruneReport::text() const {
  std::string out;
  auto timeOf = [&](double us) { return target.empty() ? "-" : micro(us); }; // nothing was measured
  if (!widths.empty())
    out += llvm::formatv("{0,10} {1,10} {2,6} {3,12} {4,8}  {5}\n", "dense us", "pruned us", "share", "stay", "score",
                         "layers").str();
  for (const Width &width : widths)
    out += llvm::formatv("{0,10} {1,10} {2,6} {3,12} {4,8}  {5}: {6}\n", timeOf(width.denseMicroseconds),
                         timeOf(width.prunedMicroseconds), ratioOf(width.prunedMicroseconds, width.denseMicroseconds),
                         llvm::formatv("{0} of {1}", width.stay, width.units).str(), percent(width.score),
                         joined(width.layers), verdict(width)).str();
  if (!rows.empty())
    out += llvm::formatv("{0,10} {1,10} {2,6} {3,8} {4,8} {5,10}  {6}\n", "dense us", "sparse us", "share",
                                  "zeros", "change", "break-even", "weight").str();
  for (const Row &row : rows)
    out += llvm::formatv("{0,10} {1,10} {2,6} {3,8} {4,8} {5,10}  {6} ({7} x {8}): {9}\n", micro(row.denseMicroseconds),
                         micro(row.sparseMicroseconds), share(row), percent(row.weight.zeros), percent(row.weight.change),
                         row.breakEven ? percent(*row.breakEven) : "-", row.weight.name, row.weight.depth,
                         row.weight.columns, verdict(row)).str();
  for (const auto &[node, why] : kept)
    out += "  stays as it is: '" + node + "': " + why + "\n";
  for (const auto &[output, loss] : losses)
    out += "  output '" + output + "' changes by " + percent(loss) + " on these inputs\n";
  if (masked)
    out += llvm::formatv("  differs by {0:e2} at most from the model with zeros in their place\n", *masked).str();
  if (prunedMs > 0)
    out += llvm::formatv("  a run: {0:f3} ms, before {1:f3} ms\n", prunedMs, denseMs).str();
  if (searched)
    out += llvm::formatv("  budget {0:f3} ms, predicted from {1} models {2:f3} ms, measured {3:f3} ms, usually {4:f3} ms{5}\n",
                         searched->budget * 1e3, searched->models, searched->predicted * 1e3, searched->measured * 1e3,
                         searched->usual * 1e3, searched->usual > searched->budget ? ": above the budget" : "").str();
  return out;
}

std::string PruneReport::json() const {
  namespace json = llvm::json;
  json::Array weights, layers, stay, outputs;
  for (const Width &width : widths) {
    json::Array nodes;
    for (const std::string &node : width.layers)
      nodes.push_back(json::fixUTF8(node));
    layers.push_back(json::Object{{"layers", std::move(nodes)},
                                  {"units", width.units},
                                  {"stay", width.stay},
                                  {"elements_of_a_unit", width.wide},
                                  {"score_share", width.score},
                                  {"dense_us", width.denseMicroseconds},
                                  {"pruned_us", width.prunedMicroseconds},
                                  {"applied", width.applied},
                                  {"why", json::fixUTF8(width.why)}});
  }
  for (const Row &row : rows) {
    json::Array nodes;
    for (const std::string &node : row.weight.nodes)
      nodes.push_back(json::fixUTF8(node));
    weights.push_back(json::Object{{"weight", json::fixUTF8(row.weight.name)},
                                   {"nodes", std::move(nodes)},
                                   {"depth", row.weight.depth},
                                   {"columns", row.weight.columns},
                                   {"zeros_before", row.weight.zerosBefore},
                                   {"zeros", row.weight.zeros},
                                   {"expected_change", row.weight.change},
                                   {"dense_us", row.denseMicroseconds},
                                   {"sparse_us", row.sparseMicroseconds},
                                   {"break_even_density", row.breakEven ? json::Value(*row.breakEven) : json::Value(nullptr)},
                                   {"wins", row.wins},
                                   {"applied", row.applied},
                                   {"why", json::fixUTF8(row.why)}});
  }
  for (const auto &[node, why] : kept)
    stay.push_back(json::Object{{"node", json::fixUTF8(node)}, {"why", json::fixUTF8(why)}});
  for (const auto &[output, loss] : losses)
    outputs.push_back(json::Object{{"output", json::fixUTF8(output)}, {"relative_change", loss}});
  json::Value search(nullptr);
  if (searched)
    search = json::Object{{"budget_ms", searched->budget * 1e3},
                          {"predicted_ms", searched->predicted * 1e3},
                          {"measured_ms", searched->measured * 1e3},
                          {"usual_ms", searched->usual * 1e3},
                          {"models", searched->models}};
  return llvm::formatv("{0:2}\n", json::Value(json::Object{{"model", json::fixUTF8(model)},
                                                           {"scheme", scheme},
                                                           {"score", score},
                                                           {"ratio", ratio},
                                                           {"target", target},
                                                           {"weights", std::move(weights)},
                                                           {"widths", std::move(layers)},
                                                           {"masked_difference", masked ? json::Value(*masked) : json::Value(nullptr)},
                                                           {"kept", std::move(stay)},
                                                           {"outputs", std::move(outputs)},
                                                           {"search", std::move(search)},
                                                           {"dense_ms", denseMs},
                                                           {"pruned_ms", prunedMs}}))
      .str();
}

std::string PruneReport::html() const {
  std::string out = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>lathe prune</title>
<style>
body{font:14px system-ui,sans-serif;margin:16px;color:#222}table{border-collapse:collapse}
td,th{padding:2px 8px;border-bottom:1px solid #ddd;text-align:left}td.n{text-align:right}tr.yes td{background:#e6f4e6}
</style></head><body>
)";
  out += "<h1>" + escaped(model) + "</h1><p>" + escaped(scheme) + ", ratio " + percent(ratio) + ", score " +
         escaped(score) + ", " + escaped(target) + "</p>\n";
  if (prunedMs > 0)
    out += llvm::formatv("<p>A run takes {0:f3} ms, before {1:f3} ms.</p>\n", prunedMs, denseMs).str();
  if (searched)
    out += llvm::formatv("<p>Budget {0:f3} ms, predicted from {1} models {2:f3} ms, measured {3:f3} ms, usually {4:f3} ms{5}. Scores "
                         "are the relative change of results where these layers alone have their widths.</p>\n",
                         searched->budget * 1e3, searched->models, searched->predicted * 1e3, searched->measured * 1e3,
                         searched->usual * 1e3, searched->usual > searched->budget ? ": above the budget" : "").str();
  for (const auto &[output, loss] : losses)
    out += "<p>Output " + escaped(output) + " changes by " + percent(loss) + " on the inputs that were measured.</p>\n";
  auto number = [](const std::string &text) { return "<td class=n>" + text + "</td>"; };
  if (masked)
    out += llvm::formatv("<p>Differs by {0:e2} at most from the model with zeros in their place.</p>\n", *masked).str();
  auto timeOf = [&](double us) { return target.empty() ? "-" : micro(us); };
  if (!widths.empty()) {
    out += "<table><tr><th>layers</th><th>stay</th><th>of</th><th>dense &micro;s</th><th>pruned &micro;s</th><th>share</th>"
           "<th>score that goes</th><th></th></tr>\n";
    for (const Width &width : widths)
      out += std::string(width.applied ? "<tr class=yes>" : "<tr>") + "<td>" + escaped(joined(width.layers)) + "</td>" +
             number(std::to_string(width.stay)) + number(std::to_string(width.units)) + number(timeOf(width.denseMicroseconds)) +
             number(timeOf(width.prunedMicroseconds)) + number(ratioOf(width.prunedMicroseconds, width.denseMicroseconds)) +
             number(percent(width.score)) + "<td>" + escaped(verdict(width)) + "</td></tr>\n";
    out += "</table>\n";
  }
  if (!rows.empty())
    out += "<table><tr><th>weight</th><th>nodes</th><th>sizes</th><th>zeros</th><th>dense &micro;s</th><th>sparse &micro;s</th>"
         "<th>share</th><th>break-even density</th><th>expected change</th><th></th></tr>\n";
  for (const Row &row : rows)
    out += std::string(row.applied ? "<tr class=yes>" : "<tr>") + "<td>" + escaped(row.weight.name) + "</td><td>" +
           escaped(joined(row.weight.nodes)) + "</td><td>" +
           llvm::formatv("{0} &times; {1}", row.weight.depth, row.weight.columns).str() + "</td>" +
           number(percent(row.weight.zeros)) + number(micro(row.denseMicroseconds)) + number(micro(row.sparseMicroseconds)) +
           number(share(row)) + number(row.breakEven ? percent(*row.breakEven) : "-") + number(percent(row.weight.change)) +
           "<td>" + escaped(verdict(row)) + "</td></tr>\n";
  if (!rows.empty())
    out += "</table>\n";
  for (const auto &[node, why] : kept)
    out += "<p>" + escaped(node) + " stays as it is: " + escaped(why) + "</p>\n";
  return out + "</body></html>\n";
}

} // namespace lathe::cli
