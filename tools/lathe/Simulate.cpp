//===- Simulate.cpp - lathe simulate --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The program of an engine for a mesh, or one collective by itself, on the machines that a file describes.
//
//===----------------------------------------------------------------------===//
#include "MeshProgram.h"
#include "Results.h"
#include "Session.h"
#include "TopologyFile.h"
#include "Verbs.h"

#include "lathe/support/Files.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace lathe::cli {
namespace {

namespace json = llvm::json;
using namespace analysis;

struct SimulateOptions {
  std::string topology, entry, target, svg, collective, allReduce, trust;
  std::vector<std::string> sizes, late;
  int ranks = 0, copies = 1, lanes = 16;
  bool asJson = false;
};

/// What steps of a name take together, on the rank that ends last.
struct Row {
  std::string name;
  int64_t count = 0;
  double seconds = 0, waits = 0;
};

struct Summary {
  std::vector<Row> rows; ///< the longest first
  double kernels = 0, exchanges = 0, waits = 0;
};

Summary summaryOf(const MeshTimeline &timeline) {
  int64_t last = 0;
  double end = -1;
  for (size_t i = 0; i < timeline.steps.size(); ++i)
    for (int64_t r = 0; r < timeline.ranks; ++r)
      if (timeline.endOf(i, r) > end)
        end = timeline.endOf(i, r), last = r;
  Summary summary;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < timeline.steps.size(); ++i) {
    const MeshStep &step = timeline.steps[i];
    const double begin = timeline.beginOf(i, last), took = timeline.endOf(i, last) - begin;
    const double wait = step.collective ? std::min(timeline.lastBeginOf(i, last) - begin, took) : 0;
    auto [place, isNew] = places.try_emplace(step.name, summary.rows.size());
    if (isNew)
      summary.rows.push_back({step.name});
    Row &row = summary.rows[place->second];
    ++row.count;
    row.seconds += took;
    row.waits += wait;
    (step.collective ? summary.exchanges : summary.kernels) += took - wait;
    summary.waits += wait;
  }
  std::stable_sort(summary.rows.begin(), summary.rows.end(), [](const Row &a, const Row &b) { return a.seconds > b.seconds; });
  return summary;
}

void print(const std::string &title, const MeshTimeline &timeline, bool asJson) {
  const Summary summary = summaryOf(timeline);
  if (asJson) {
    json::Array rows;
    for (const Row &row : summary.rows)
      rows.push_back(json::Object{{"name", json::fixUTF8(row.name)},
                                  {"times", row.count},
                                  {"seconds", row.seconds},
                                  {"waits", row.waits}});
    json::Object result{{"title", json::fixUTF8(title)},   {"ranks", timeline.ranks},
                        {"seconds", timeline.seconds},     {"kernels", summary.kernels},
                        {"exchanges", summary.exchanges},  {"waits", summary.waits},
                        {"steps", std::move(rows)}};
    std::printf("%s\n", llvm::formatv("{0:2}", json::Value(std::move(result))).str().c_str());
    return;
  }
  std::printf("%s: %.3f us; of the rank that ends last: kernels %.3f us, exchanges %.3f us, waits %.3f us\n", title.c_str(),
              timeline.seconds * 1e6, summary.kernels * 1e6, summary.exchanges * 1e6, summary.waits * 1e6);
  std::printf("  %-44s %6s %12s %12s\n", "step", "times", "us", "of it waits");
  for (const Row &row : summary.rows)
    std::printf("  %-44s %6lld %12.3f %12.3f\n", row.name.c_str(), static_cast<long long>(row.count), row.seconds * 1e6,
                row.waits * 1e6);
}

/// "all_reduce:1048576": its name, and the bytes of the whole.
Result<MeshStep> stepOf(const SimulateOptions &options, const MeshTopology &topology,
                        std::optional<CollectiveAlgorithm> allReduce) {
  const std::string where = "--collective " + options.collective;
  auto [name, size] = llvm::StringRef(options.collective).split(':');
  MeshStep step;
  CollectiveCall call;
  bool known = false;
  for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter})
    if (name == llvm::StringRef(nameOf(kind)))
      call.kind = kind, known = true;
  if (!known || size.getAsInteger(10, call.bytes) || call.bytes < 0)
    return usageError("wants all_reduce, all_gather or reduce_scatter, a colon, and the bytes of the whole", where);
  if (allReduce) {
    call.algorithm = *allReduce;
  } else {
    Result<CollectiveAlgorithm> usual = usualAlgorithm(topology, call.kind, call.bytes, DType::F32, options.ranks);
    if (!usual)
      return usual.status();
    call.algorithm = *usual;
  }
  step.name = name.str() + " (" + std::string(nameOf(call.algorithm)) + ") of " + describeBytes(double(call.bytes));
  step.collective = call;
  return step;
}

constexpr double kMostSeconds = 1e6; ///< that a rank may be late

/// "3=2e-5": the step in which a rank is late for a collective.
Result<MeshStep> lateStep(const std::vector<std::string> &texts, int64_t ranks) {
  MeshStep step;
  step.name = "late";
  for (const std::string &text : texts) {
    auto [rankText, secondsText] = llvm::StringRef(text).split('=');
    int64_t rank = 0;
    double seconds = 0;
    if (rankText.getAsInteger(10, rank) || rank < 0 || rank >= ranks || secondsText.getAsDouble(seconds) || !(seconds >= 0) ||
        seconds > kMostSeconds)
      return usageError("wants a rank below " + std::to_string(ranks) + " and seconds, at most a million, as 3=2e-5", "--late " + text);
    step.more[rank] = seconds;
  }
  return step;
}

Result<std::map<std::string, int64_t>> sizesOf(const std::vector<std::string> &texts) {
  std::map<std::string, int64_t> sizes;
  for (const std::string &text : texts) {
    auto [name, value] = llvm::StringRef(text).split('=');
    int64_t size = 0;
    if (name.empty() || value.getAsInteger(10, size) || size < 0)
      return usageError("wants the name of a dimension and its size, as N=8", "--size " + text);
    sizes[name.str()] = size;
  }
  return sizes;
}

Status execute(SimulateOptions options, const std::string &path) {
  Result<MeshTopology> topology = readTopology(options.topology);
  if (!topology)
    return topology.status();
  std::optional<CollectiveAlgorithm> allReduce;
  if (!options.allReduce.empty()) {
    allReduce = algorithmNamed(options.allReduce);
    if (!allReduce)
      return usageError("wants one-shot, two-shot, direct, ring or tree", "--algorithm " + options.allReduce);
  }
  std::vector<MeshStep> steps;
  std::string title;
  int64_t ranks = 0;
  if (!options.collective.empty()) {
    ranks = options.ranks = options.ranks ? options.ranks : int(topology->gpus());
    if (ranks > topology->gpus())
      return usageError("the topology has " + std::to_string(topology->gpus()) + " GPUs", "--ranks " + std::to_string(ranks));
    Result<MeshStep> step = stepOf(options, *topology, allReduce);
    if (!step)
      return step.status();
    title = step->name;
    if (!options.late.empty()) {
      Result<MeshStep> late = lateStep(options.late, ranks);
      if (!late)
        return late.status();
      steps.push_back(std::move(*late));
    }
    steps.push_back(std::move(*step));
  } else {
    Result<Model> model = Model::open(path, {}, "cpu", options.trust);
    if (!model)
      return model.status();
    Result<const engine::Plan *> plan = model->plan(options.entry, options.target);
    if (!plan)
      return plan.status();
    Result<std::map<std::string, int64_t>> sizes = sizesOf(options.sizes);
    if (!sizes)
      return sizes.status();
    Result<std::vector<MeshStep>> program = meshProgram(**plan, *topology, *sizes, allReduce);
    if (!program)
      return program.status();
    ranks = (*plan)->ranks;
    title = "entry " + (*plan)->entry + " for " + (*plan)->target;
    steps = std::move(*program);
  }
  Result<MeshTimeline> timeline = simulateMesh(*topology, std::move(steps), ranks, options.copies);
  if (!timeline)
    return timeline.status();
  title += " on " + (options.copies > 1 ? std::to_string(options.copies) + " times " : "") + std::to_string(ranks) +
           (ranks == 1 ? " rank" : " ranks");
  if (!options.svg.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.svg, drawTimeline(*timeline, title, options.lanes)));
  print(title, *timeline, options.asJson);
  return okStatus();
}

} // namespace

Status simulateVerb(const std::vector<std::string> &arguments) {
  Parser parser("simulate", "[ENGINE] --topology FILE [OPTIONS]",
                "Predicts what a run of an engine takes on a mesh of machines that FILE describes: its ranks stand host by "
                "host on them, kernels take what a roofline says, and what ranks send each other shares the ports "
                "of GPUs and hosts. An engine for one rank is simulated on one. test/perf/mesh/README.md has topologies that "
                "were fitted to measurements, and how far off predictions were.");
  SimulateOptions options;
  parser.add("topology", "FILE", "JSON: hosts, GPUs a host, links and kernel rates; tools/lathe/TopologyFile.h has the fields",
             options.topology);
  parser.add("entry", "NAME", "The entry to run; without it the first", options.entry);
  parser.add("target", "NAME", "Of an engine for several", options.target);
  parser.add("size", "NAME=N", "The size of a dimension; without it the usual one (repeatable)", options.sizes);
  parser.add("algorithm", "NAME",
             "Of every all_reduce: one-shot, two-shot, direct, ring or tree; without it what the runtime takes on one host, and "
             "the faster of ring and tree between hosts",
             options.allReduce);
  parser.add("collective", "KIND:BYTES", "Instead of an engine: one all_reduce, all_gather or reduce_scatter", options.collective);
  parser.add("ranks", "N", "Of --collective; without it all GPUs of the topology", options.ranks);
  parser.add("late", "RANK=SECONDS", "Of --collective: a rank that comes so much later (repeatable)", options.late);
  parser.add("copies", "N", "So many meshes side by side, one behind another on the topology (1)", options.copies);
  parser.add("svg", "FILE", "Draw the timeline: a lane for ranks that do the same at the same time", options.svg);
  parser.add("lanes", "N", "At most so many lanes (16)", options.lanes);
  parser.flag("json", "Print JSON: seconds in all, and of steps by name", options.asJson);
  addTrustOption(parser, options.trust);
  parser.example("lathe simulate mesh.lathe --topology=two_hosts.json --svg=timeline.svg");
  parser.example("lathe simulate mesh.lathe --topology=two_hosts.json --entry=step --size=P=1024");
  parser.example("lathe simulate --collective=all_reduce:1048576 --topology=two_hosts.json --algorithm=ring");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (options.topology.empty())
    return usageError("wants --topology FILE; `lathe simulate --help` has examples", "lathe simulate");
  if (options.collective.empty() ? positional->size() != 1 : !positional->empty())
    return usageError("wants one engine, or --collective without one", "lathe simulate");
  if (options.ranks < 0 || (options.ranks && options.collective.empty()))
    return usageError(options.ranks < 0 ? "wants a number above 0" : "is of --collective; an engine says its ranks", "--ranks");
  if (!options.late.empty() && options.collective.empty())
    return usageError("is of --collective; \"speeds\" of the topology are of engines' ranks", "--late");
  if (options.lanes < 1 || options.copies < 1)
    return usageError("wants at least 1", options.lanes < 1 ? "--lanes" : "--copies");
  reproducer().files.push_back(options.topology);
  if (!positional->empty() && !isEngine(positional->front()))
    return usageError("is no engine; `lathe compile --mesh` makes one", positional->front());
  if (!positional->empty())
    reproducer().files.push_back(positional->front());
  return execute(std::move(options), positional->empty() ? "" : positional->front());
}

} // namespace lathe::cli
