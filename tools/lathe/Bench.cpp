//===- Bench.cpp - lathe bench --------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Inputs.h"
#include "KernelModel.h"
#include "Results.h"
#include "Roofline.h"
#include "Trace.h"
#include "Verbs.h"

#include "lathe/support/Files.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <filesystem>
#include <memory>
#include <unistd.h>

namespace lathe::cli {
namespace {

using Clock = std::chrono::steady_clock;
namespace json = llvm::json;

struct BenchOptions {
  CompileOptions compile;
  InputOptions inputs;
  SessionOptions session;
  std::string trust;
  std::vector<std::string> entries;
  double seconds = 3;
  std::string jsonFile, traceFile, kernel;
  bool profile = false;
  double peakGBs = 0, peakGFlops = 0;
};

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// One entry, ready to run again and again from the same states.
class Bench {
public:
  Bench(const Session &session, const engine::Plan &plan, const std::vector<HostTensor> &inputs)
      : session(session), plan(plan), starts(session.stateLengths(plan)) {
    for (const HostTensor &input : inputs) {
      views.push_back(viewOf(input));
      // Aligned as a program would that wants no copy of its inputs.
      size_t rounded = (input.data.size() + kAlignment - 1) / kAlignment * kAlignment;
      aligned.emplace_back(std::aligned_alloc(kAlignment, std::max(rounded, kAlignment)));
      if (!aligned.back())
        continue;
      std::copy(input.data.begin(), input.data.end(),
                static_cast<std::byte *>(aligned.back().get()));
      views.back().data = aligned.back().get();
    }
    outputs.resize(plan.outputs.size());
  }

  /// Seconds of the run alone; states are set back outside of it.
  Result<double> once() {
    for (lathe_tensor &output : outputs) {
      output = {};
      output.memory = LATHE_HOST;
    }
    auto begin = Clock::now();
    Status status = session.run(plan, views, outputs);
    double seconds = secondsSince(begin);
    LATHE_RETURN_IF_ERROR(status);
    LATHE_RETURN_IF_ERROR(session.truncateStates(starts));
    return seconds;
  }

private:
  const Session &session;
  const engine::Plan &plan;
  struct Free {
    void operator()(void *memory) const { std::free(memory); }
  };
  static constexpr size_t kAlignment = 256;
  std::map<std::string, int64_t> starts;
  std::vector<std::unique_ptr<void, Free>> aligned;
  std::vector<lathe_tensor> views, outputs;
};

struct Latency {
  std::vector<double> ms; ///< sorted
  double quantile(double q) const {
    double at = q * double(ms.size() - 1);
    size_t low = size_t(at);
    double part = at - double(low);
    return low + 1 < ms.size() ? ms[low] * (1 - part) + ms[low + 1] * part : ms[low];
  }
  double mean() const {
    double sum = 0;
    for (double v : ms)
      sum += v;
    return sum / double(ms.size());
  }
};

Result<Latency> measure(Bench &bench, double seconds) {
  // Warm-up: a tenth of the time and three runs, fewer where these take all of it.
  auto begin = Clock::now();
  for (int i = 0;; ++i) {
    if (Result<double> run = bench.once(); !run)
      return run.status();
    double spent = secondsSince(begin);
    if (spent >= seconds || (i >= 2 && spent >= seconds * 0.1))
      break;
  }
  // Five runs and all of the time; fewer where five take thrice the time.
  Latency latency;
  begin = Clock::now();
  for (double spent = 0;
       latency.ms.empty() || (spent < 3 * seconds && (latency.ms.size() < 5 || spent < seconds));
       spent = secondsSince(begin)) {
    Result<double> run = bench.once();
    if (!run)
      return run.status();
    latency.ms.push_back(*run * 1e3);
  }
  std::sort(latency.ms.begin(), latency.ms.end());
  return latency;
}

/// Rows of the profile, the heaviest first; also prints them.
json::Array profileTable(const Session &session, const Roofline &roof) {
  size_t count = 0;
  const lathe_profile_row *begin = lathe_context_profile_rows(session.context(), &count);
  std::vector<lathe_profile_row> rows(begin, begin + count);
  // Rows come in the order of the plan, which decides between equals.
  std::vector<size_t> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return rows[a].seconds != rows[b].seconds ? rows[a].seconds > rows[b].seconds : a < b;
  });
  double total = 0;
  for (const lathe_profile_row &row : rows)
    total += row.seconds;
  std::printf("\nprofile: roof at %.0f GB/s and %.0f GFLOP/s (%s)\n", roof.gbs, roof.gflops,
              roof.origin.c_str());
  std::printf("%7s %10s %6s %9s %9s %6s  %-28s %s\n", "share", "us/call", "calls", "GB/s",
              "GFLOP/s", "roof", "kernel (configuration)", "ONNX nodes");
  json::Array list;
  for (size_t at : order) {
    const lathe_profile_row &row = rows[at];
    if (!row.calls)
      continue;
    double each = row.seconds / double(row.calls);
    double share = total > 0 ? row.seconds / total : 0;
    double gbs = each > 0 ? row.bytes / each / 1e9 : 0, gflops = each > 0 ? row.flops / each / 1e9 : 0;
    std::string kernel = row.kernel ? row.kernel : "", config = row.config ? row.config : "";
    double ideal = std::max(row.bytes / (roof.gbs * 1e9), row.flops / (roof.gflopsOf(config) * 1e9));
    double part = each > 0 ? ideal / each : 0;
    std::string title = config.empty() ? kernel : kernel + " (" + config + ")";
    std::string nodes = row.nodes ? row.nodes : "";
    std::printf("%6.1f%% %10.2f %6llu %9.2f %9.2f %5.0f%%  %-28s %s\n", share * 100, each * 1e6,
                static_cast<unsigned long long>(row.calls), gbs, gflops, part * 100, title.c_str(),
                nodes.size() > 60 ? (nodes.substr(0, 57) + "...").c_str() : nodes.c_str());
    list.push_back(json::Object{{"entry", row.entry ? row.entry : ""},
                                {"kernel", json::fixUTF8(kernel)},
                                {"config", json::fixUTF8(config)},
                                {"nodes", json::fixUTF8(nodes)},
                                {"calls", int64_t(row.calls)},
                                {"us_per_call", each * 1e6},
                                {"share", share},
                                {"gb_per_s", gbs},
                                {"gflop_per_s", gflops},
                                {"roofline", part}});
  }
  return list;
}

json::Object countersObject(const lathe_counters &c) {
  return json::Object{{"runs", int64_t(c.runs)},
                      {"launches", int64_t(c.launches)},
                      {"graph_launches", int64_t(c.graph_launches)},
                      {"graphs_captured", int64_t(c.graphs_captured)},
                      {"host_steps", int64_t(c.host_steps)},
                      {"bytes_to_device", int64_t(c.bytes_to_device)},
                      {"bytes_from_device", int64_t(c.bytes_from_device)},
                      {"bytes_staged", int64_t(c.bytes_staged)},
                      {"state_bytes_appended", int64_t(c.state_bytes_appended)},
                      {"state_bytes_copied", int64_t(c.state_bytes_copied)}};
}

Status execute(const BenchOptions &options, const std::string &path) {
  Result<Model> model = Model::open(path, options.inputs.fixing(options.compile, path),
                                     options.session.device, options.trust);
  if (!model)
    return model.status();
  Result<Session> session = Session::open(*model, options.session);
  if (!session)
    return session.status();
  Result<std::vector<std::string>> names = expandEntries(options.entries, *model);
  if (!names)
    return names.status();

  // All but the last entry of a chain bring the states to where the last one starts.
  EntryRun last;
  PreparedValues prepared;
  for (size_t round = 0; round < names->size(); ++round) {
    Result<EntryRun> run =
        prepareRun(options.inputs, *model, *session, (*names)[round], round);
    if (!run)
      return run.status();
    last = std::move(*run);
    prepared.give(last);
    std::vector<lathe_tensor> outputs;
    if (round + 1 < names->size()) {
      LATHE_RETURN_IF_ERROR(session->run(*last.plan, last.inputs, outputs));
      prepared.take(last, outputs);
    }
  }
  const engine::Plan *plan = last.plan;
  const std::vector<HostTensor> &inputs = last.inputs;

  Bench bench(*session, *plan, inputs);
  if (options.session.warm)
    LATHE_RETURN_IF_ERROR(session->warm(*plan, inputs));
  lathe_context_reset_counters(session->context());
  Result<double> first = bench.once();
  if (!first)
    return first.status();
  lathe_counters perRun = {};
  lathe_context_counters(session->context(), &perRun);
  Result<Latency> latency = measure(bench, options.seconds);
  if (!latency)
    return latency.status();
  double median = latency->quantile(0.5);
  int64_t rows = !inputs.empty() && !inputs[0].dims.empty() ? inputs[0].dims[0] : 1;

  int threads = options.session.threads;
  std::printf("%s: entry %s, target %s, device %s, %s\n", path.c_str(), plan->entry.c_str(),
              session->target().c_str(), options.session.device.c_str(),
              threads ? (std::to_string(threads) + " threads").c_str() : "all cores");
  json::Array inputList;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::printf("  %s %s\n", plan->inputs[i].name.c_str(), describeType(inputs[i]).c_str());
    inputList.push_back(json::Object{{"name", json::fixUTF8(plan->inputs[i].name)},
                                     {"dtype", std::string(name(inputs[i].dtype))},
                                     {"shape", json::Array(inputs[i].dims)}});
  }
  std::printf("first run: %.4f ms, %.2f x the median of those after it%s\n", *first * 1e3,
              *first * 1e3 / median,
              options.session.warm ? ", behind --warm" : " (--warm takes what is once out of it)");
  std::printf("latency in ms: min %.4f, mean %.4f, median %.4f, p90 %.4f, p99 %.4f (%zu runs)\n",
              latency->ms.front(), latency->mean(), median, latency->quantile(0.9),
              latency->quantile(0.99), latency->ms.size());
  std::printf("throughput: %.1f runs/s, %.1f rows/s\n", 1e3 / latency->mean(),
              1e3 / latency->mean() * double(rows));
  std::printf("memory: arena %s, states %s, weights %s, engine %s\n",
              describeBytes(double(perRun.arena_bytes)).c_str(),
              describeBytes(double(perRun.state_bytes)).c_str(),
              describeBytes(double(perRun.weight_bytes)).c_str(),
              describeBytes(double(model->file->fileBytes())).c_str());
  std::printf("time: compile %.2f s%s, load %.1f ms\n", model->compileSeconds,
              model->fromCache ? " (from the cache)" : model->compiled ? "" : " (an engine)",
              session->loadSeconds() * 1e3);
  std::printf("a run: %llu launches, %llu graph launches, %llu host steps, %llu state bytes "
              "appended, %llu copied\n",
              static_cast<unsigned long long>(perRun.launches),
              static_cast<unsigned long long>(perRun.graph_launches),
              static_cast<unsigned long long>(perRun.host_steps),
              static_cast<unsigned long long>(perRun.state_bytes_appended),
              static_cast<unsigned long long>(perRun.state_bytes_copied));

  json::Object result{{"model", json::fixUTF8(path)},
                      {"entry", plan->entry},
                      {"target", session->target()},
                      {"device", options.session.device},
                      {"threads", options.session.threads},
                      {"inputs", std::move(inputList)},
                      {"runs", int64_t(latency->ms.size())},
                      {"first_ms", *first * 1e3},
                      {"min_ms", latency->ms.front()},
                      {"mean_ms", latency->mean()},
                      {"median_ms", median},
                      {"p90_ms", latency->quantile(0.9)},
                      {"p99_ms", latency->quantile(0.99)},
                      {"runs_per_s", 1e3 / latency->mean()},
                      {"rows_per_s", 1e3 / latency->mean() * double(rows)},
                      {"arena_bytes", int64_t(perRun.arena_bytes)},
                      {"state_bytes", int64_t(perRun.state_bytes)},
                      {"weight_bytes", int64_t(perRun.weight_bytes)},
                      {"engine_bytes", int64_t(model->file->fileBytes())},
                      {"compile_ms", model->compileSeconds * 1e3},
                      {"compile_cached", model->fromCache},
                      {"load_ms", session->loadSeconds() * 1e3},
                      {"counters_per_run", countersObject(perRun)}};
  if (options.profile) {
    lathe_context_profile(session->context(), 1);
    auto begin = Clock::now();
    for (int i = 0; i < 5 || secondsSince(begin) < options.seconds / 2; ++i)
      if (Result<double> run = bench.once(); !run)
        return run.status();
    Result<Target> target = Target::parse(session->target());
    if (!target)
      return target.status();
    Roofline roof = rooflineOf(*target, options.session.threads);
    if (options.peakGBs > 0)
      roof.gbs = options.peakGBs, roof.origin = "given";
    if (options.peakGFlops > 0)
      roof.gflops = options.peakGFlops, roof.origin = "given", roof.tensorCores.reset();
    result["roof_gb_per_s"] = roof.gbs;
    result["roof_gflop_per_s"] = roof.gflops;
    result["profile"] = profileTable(*session, roof);
  }
  if (!options.traceFile.empty()) {
    constexpr int kTracedRuns = 5;
    Trace trace(session->context());
    for (int i = 0; i < kTracedRuns; ++i) {
      double begin = trace.now();
      Result<double> seconds = bench.once();
      if (!seconds)
        return seconds.status();
      trace.addRun(plan->entry, begin, *seconds);
    }
    LATHE_RETURN_IF_ERROR(trace.write(options.traceFile, path, session->target()));
  }
  if (options.jsonFile.empty())
    return okStatus();
  return writeFileAtomically(options.jsonFile,
                             llvm::formatv("{0:2}\n", json::Value(std::move(result))).str());
}

/// One kernel by itself: a model of it, whose profile is what is asked for.
Status executeKernel(BenchOptions options) {
  Result<std::string> text = kernelModel(options.kernel);
  if (!text)
    return text.status();
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path path = fs::temp_directory_path(error) /
                  ("lathe-kernel-" + std::to_string(::getpid()) + ".onnxtxt");
  LATHE_RETURN_IF_ERROR(writeFileAtomically(path.string(), *text));
  options.profile = true;
  if (options.kernel.starts_with("conv:"))
    LATHE_RETURN_IF_ERROR(addCompileOption(options.compile, "random-weights", "1"));
  if (options.kernel.find("dtype=tf32") != std::string::npos)
    LATHE_RETURN_IF_ERROR(addCompileOption(options.compile, "allow", "tf32"));
  Status status = execute(options, path.string());
  fs::remove(path, error);
  return status;
}

} // namespace

Status benchVerb(const std::vector<std::string> &arguments) {
  Parser parser("bench", "MODEL|ENGINE [OPTIONS]",
                "Measures one entry: the first run by itself, warm-up, then latency, throughput and "
                "memory. States are set back before each run.");
  BenchOptions options;
  parser.add("entry", "NAME[*COUNT]",
             "The entry to measure (default: the first); of a chain the last, after the others ran",
             options.entries);
  parser.add("device", "cpu|cuda:0", "Where to run (default: cpu)", options.session.device);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.session.threads);
  parser.add("seconds", "S", "How long to measure (default: 3)", options.seconds);
  parser.add("json", "FILE", "Write the results as JSON: median_ms and so on", options.jsonFile);
  parser.flag("profile", "Show a row a kernel: share, GB/s, GFLOP/s, part of the roofline, nodes",
              options.profile);
  parser.add("trace", "FILE",
             "Write five runs as a timeline, kernel by kernel, for Perfetto or chrome://tracing",
             options.traceFile);
  parser.add("peak-gbs", "X", "Memory bandwidth for --profile (default: measured, or the GPU's)",
             options.peakGBs);
  parser.add("peak-gflops", "X", "f32 peak for --profile (default: measured, or the GPU's)",
             options.peakGFlops);
  parser.flag("no-graphs", "CUDA: launch kernels one by one", options.session.noGraphs);
  parser.flag("no-overlap", "CUDA: start no kernel before the one ahead of it is over",
              options.session.noOverlap);
  parser.flag("warm",
              "Make memory with its pages, and a GPU's graph, before the first run, which is shown by "
              "itself",
              options.session.warm);
  options.inputs.addTo(parser);
  addTrustOption(parser, options.trust);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.add("kernel", "KIND:NAME=VALUE,...",
             "Measure one kernel, made for it: gemm (m, n, k, batch, "
             "dtype=bf16|f16|f32|tf32|e4m3|int8, weights=nk|kn, epilogue of bias, gelu, relu, silu, "
             "residual), conv (n, c, k, h, w, r, stride, pad, dilation, groups, dtype, epilogue of "
             "bias, relu, residual) or attention (b, h, kv, s, t, d, dtype, mask=none|causal)",
             options.kernel);
  parser.example("lathe bench model.lathe");
  parser.example("lathe bench --device cuda:0 "
                 "--kernel gemm:m=8192,n=8192,k=8192,dtype=bf16,epilogue=bias+gelu");
  parser.example("lathe bench model.onnx --shape x=8x3x48x192 --threads 1 --seconds 5");
  parser.example("lathe bench model.lathe --profile --json bench.json");
  parser.example("lathe bench model.lathe --trace trace.json");
  parser.example("lathe bench llama.lathe --entry prefill --entry decode");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (!options.kernel.empty() && positional->empty())
    return executeKernel(std::move(options));
  if (positional->size() != 1 || !options.kernel.empty())
    return usageError("wants one model or engine; `lathe bench --help` has examples",
                      "lathe bench");
  if (options.compile.targets.size() == 1 && options.compile.targets[0] != "native")
    options.session.target = options.compile.targets[0];
  reproducer().files.push_back(positional->front());
  reproduceOnCrash(reproducer());
  return execute(std::move(options), positional->front());
}

} // namespace lathe::cli
