//===- Trace.cpp - runs as a timeline -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Trace.h"

#include "lathe/support/Files.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace lathe::cli {
namespace {

namespace json = llvm::json;
using Clock = std::chrono::steady_clock;

constexpr int kRuns = 1, kSteps = 2; ///< tracks

json::Object event(const std::string &name, int track, double begin, double seconds) {
  return json::Object{{"name", json::fixUTF8(name)}, {"ph", "X"},          {"pid", 1}, {"tid", track},
                      {"ts", begin * 1e6},           {"dur", seconds * 1e6}};
}

json::Object named(const char *what, int track, const std::string &name) {
  return json::Object{{"name", what},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", track},
                      {"args", json::Object{{"name", json::fixUTF8(name)}}}};
}

} // namespace

Trace::Trace(lathe_context *context) : context(context) {
  lathe_context_profile(context, 1);
  start = Clock::now();
}

Trace::~Trace() { lathe_context_profile(context, 0); }

double Trace::now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }

void Trace::addRun(const std::string &entry, double begin, double seconds) {
  runs.push_back({entry, begin, seconds});
}

Status Trace::write(const std::string &file, const std::string &model, const std::string &target) const {
  json::Array events{named("process_name", kRuns, model + " on " + target),
                     named("thread_name", kRuns, "runs"), named("thread_name", kSteps, "kernels")};
  for (const Run &run : runs)
    events.push_back(event(run.entry, kRuns, run.begin, run.seconds));
  size_t rowCount = 0, count = 0;
  const lathe_profile_event *list = lathe_context_profile_events(context, &count);
  const lathe_profile_row *rows = lathe_context_profile_rows(context, &rowCount);
  for (size_t i = 0; i < count; ++i) {
    const lathe_profile_row &row = rows[list[i].row];
    json::Object one = event(row.kernel ? row.kernel : "", kSteps, list[i].begin, list[i].seconds);
    one["args"] = json::Object{{"nodes", json::fixUTF8(row.nodes ? row.nodes : "")},
                               {"configuration", json::fixUTF8(row.config ? row.config : "")},
                               {"bytes", row.bytes},
                               {"flops", row.flops}};
    events.push_back(std::move(one));
  }
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(
      json::Object{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}});
  return writeFileAtomically(file, text + "\n");
}

} // namespace lathe::cli
