//===- Run.cpp - lathe run ------------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Inputs.h"
#include "Results.h"
#include "Verbs.h"

#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <cstdio>
#include <filesystem>

namespace fs = std::filesystem;

namespace lathe::cli {
namespace {

struct RunOptions {
  CompileOptions compile;
  InputOptions inputs;
  SessionOptions session;
  std::string trust;
  std::vector<std::string> entries;
  std::string save, drawSeed;
  double rtol = -1, atol = -1;
};

Tolerance toleranceFor(const RunOptions &options, DType dtype) {
  // ONNX's own runner; 16-bit types have three digits.
  Tolerance tolerance;
  if (dtype == DType::F16 || dtype == DType::BF16)
    tolerance.rtol = 1e-2;
  if (options.rtol >= 0)
    tolerance.rtol = options.rtol;
  if (options.atol >= 0)
    tolerance.atol = options.atol;
  return tolerance;
}

/// Prints each output, with its errors where there is an expectation.
void report(const RunOptions &options, const engine::Plan &plan, const InputFiles &files,
            const std::vector<HostTensor> &outputs, int64_t &compared, int64_t &wrong) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::printf("  %s %s: %s\n", plan.outputs[i].name.c_str(), describeType(outputs[i]).c_str(),
                describeValues(outputs[i]).c_str());
    if (i >= files.expected.size() || !files.expected[i])
      continue;
    ++compared;
    Comparison result =
        compareTensors(outputs[i], *files.expected[i], toleranceFor(options, outputs[i].dtype));
    wrong += !result.passed;
    if (!result.problem.empty()) {
      std::printf("    WRONG: %s\n", result.problem.c_str());
      continue;
    }
    if (outputs[i].dtype == DType::String && result.passed) {
      std::printf("    as expected\n");
      continue;
    }
    std::printf("    worst errors: absolute %.3g, relative %.3g, %.4g ULP", result.stats.maxAbs,
                result.stats.maxRel, result.stats.maxUlp);
    if (result.passed)
      std::printf("\n");
    else
      std::printf("; WRONG: %lld of %lld beyond the tolerance, first at %lld\n",
                  static_cast<long long>(result.outside),
                  static_cast<long long>(result.stats.count),
                  static_cast<long long>(result.firstOutside));
  }
}

void printCounters(const Session &session) {
  lathe_counters c = {};
  lathe_context_counters(session.context(), &c);
  auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("counters: runs %llu, launches %llu, graph launches %llu, graphs captured %llu, "
              "host steps %llu\n",
              number(c.runs), number(c.launches), number(c.graph_launches),
              number(c.graphs_captured), number(c.host_steps));
  std::printf("  bytes: to device %llu, from device %llu, staged %llu, state appended %llu, state "
              "copied %llu\n",
              number(c.bytes_to_device), number(c.bytes_from_device), number(c.bytes_staged),
              number(c.state_bytes_appended), number(c.state_bytes_copied));
  std::printf("  memory: arena %s, states %s, weights %s\n",
              describeBytes(double(c.arena_bytes)).c_str(),
              describeBytes(double(c.state_bytes)).c_str(),
              describeBytes(double(c.weight_bytes)).c_str());
  if (c.graphs)
    std::printf("  graphs: %llu kept, %s\n", number(c.graphs),
                describeBytes(double(c.graph_bytes)).c_str());
}

Status execute(RunOptions options, const std::string &path) {
  Result<Model> model = Model::open(path, options.inputs.fixing(options.compile, path),
                                     options.session.device, options.trust);
  if (!model)
    return model.status();
  Result<Session> session = Session::open(*model, options.session);
  if (!session)
    return session.status();
  // In a world of processes each gets the same results: the first tells of them.
  if (const int rank = lathe_context_rank(session->context()); rank > 0) {
    if (!std::freopen("/dev/null", "w", stdout))
      return runtimeError("cannot be opened", "/dev/null");
    if (!options.save.empty())
      options.save = (fs::path(options.save) / ("rank-" + std::to_string(rank))).string();
  }
  Result<std::vector<std::string>> names = expandEntries(options.entries, *model);
  if (!names)
    return names.status();
  if (!options.drawSeed.empty()) {
    uint64_t seed = 0;
    if (llvm::StringRef(options.drawSeed).getAsInteger(10, seed))
      return usageError("wants a number, not '" + options.drawSeed + "'", "--draw-seed");
    for (size_t r = 0; r < session->ranks(); ++r)
      LATHE_RETURN_IF_ERROR(toStatus(lathe_context_seed(session->rank(r), seed)));
  }
  std::string what = model->compiled ? "compiled" : "engine";
  if (model->compiled) {
    char text[64];
    std::snprintf(text, sizeof text, " in %.2f s%s", model->compileSeconds,
                  model->fromCache ? " (from the cache)" : "");
    what += text;
  }
  std::printf("%s: %s, target %s, loaded in %.1f ms\n", path.c_str(), what.c_str(),
              session->target().c_str(), session->loadSeconds() * 1e3);

  int64_t compared = 0, wrong = 0;
  PreparedValues prepared;
  for (size_t round = 0; round < names->size(); ++round) {
    Result<EntryRun> run =
        prepareRun(options.inputs, *model, *session, (*names)[round], round);
    if (!run)
      return run.status();
    const engine::Plan &plan = *run->plan;
    prepared.give(*run);
    std::vector<lathe_tensor> tensors;
    if (options.session.warm)
      LATHE_RETURN_IF_ERROR(session->warm(plan, run->inputs));
    auto begin = std::chrono::steady_clock::now();
    LATHE_RETURN_IF_ERROR(session->run(plan, run->inputs, tensors));
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    prepared.take(*run, tensors);
    std::vector<HostTensor> outputs;
    for (const lathe_tensor &tensor : tensors)
      outputs.push_back(copyOf(tensor));
    std::printf("%s: %.3f ms\n", plan.entry.c_str(), seconds * 1e3);
    for (size_t i = 0; i < run->inputs.size(); ++i)
      std::printf("  %s %s\n", plan.inputs[i].name.c_str(), describeType(run->inputs[i]).c_str());
    std::printf("results:\n");
    report(options, plan, run->files, outputs, compared, wrong);
    if (!options.save.empty()) {
      std::vector<std::string> outputNames;
      for (const engine::Port &port : plan.outputs)
        outputNames.push_back(port.name);
      // A chain keeps every run; the last one is also at the top.
      if (names->size() > 1) {
        std::string folder = std::to_string(round) + "-" + plan.entry;
        LATHE_RETURN_IF_ERROR(saveTensors((fs::path(options.save) / folder).string(), outputNames,
                                          outputs));
      }
      if (round + 1 == names->size())
        LATHE_RETURN_IF_ERROR(saveTensors(options.save, outputNames, outputs));
    }
  }
  printCounters(*session);
  std::printf("%s\n", wrong ? "FAILED" : compared ? "PASSED" : "RAN");
  return wrong ? Status(ErrorCode::Mismatch, "") : okStatus();
}

} // namespace

Status runVerb(const std::vector<std::string> &arguments) {
  Parser parser("run", "MODEL|ENGINE [OPTIONS]",
                "Runs a model (compiled in memory, kept in the cache) or an engine. The last line "
                "is PASSED, FAILED, or RAN where there is nothing to compare with.");
  RunOptions options;
  parser.add("entry", "NAME[*COUNT]",
             "The entry to run, COUNT times; repeated, a chain in one context, so that states "
             "live on (default: the first entry, once)",
             options.entries);
  parser.add("device", "cpu|cuda:0", "Where to run (default: cpu)", options.session.device);
  options.inputs.addTo(parser);
  parser.add("save", "DIR",
             "Write NAME.npy for each output, and outputs.json; a chain also has a folder a run",
             options.save);
  parser.add("rtol", "X", "Relative tolerance (default: 1e-3, 1e-2 for 16-bit types)", options.rtol);
  parser.add("atol", "X", "Absolute tolerance (default: 1e-7)", options.atol);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.session.threads);
  parser.add("ranks", "N",
             "Of an engine for a mesh: threads of this process are its ranks (default: as many as it has), on GPUs one "
             "on each from --device on. Without "
             "it, and started by torchrun, mpirun or srun, this process is one rank, with --device cuda on the GPU of its place "
             "on the host; the first tells of the results, "
             "others --save to DIR/rank-N",
             options.session.ranks);
  options.session.maybeRank = true;
  parser.flag("warm", "Make memory with its pages, and a GPU's graph, before the run that is timed",
              options.session.warm);
  parser.add("draw-seed", "N", "Of what the model draws: Dropout that trains, RandomNormal (default: 0)",
             options.drawSeed);
  addTrustOption(parser, options.trust);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.example("lathe run model.onnx");
  parser.example("lathe run model.lathe --data test_data_set_0");
  parser.example("lathe run model.lathe --input x=image.npy --save out --threads 1");
  parser.example("lathe run model.lathe --device cuda:0 --shape x=4x3x48x192");
  parser.example("lathe run llama.lathe --entry prefill --entry 'decode*8'");
  parser.example("lathe run mesh_of_2.lathe --device cuda:0 --ranks=2");
  parser.example("mpirun -n 4 lathe run mesh_of_4.lathe");
  parser.example("torchrun --no-python --nproc-per-node=2 lathe run mesh_of_2.lathe --device cuda");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1)
    return usageError("wants one model or engine; `lathe run --help` has examples", "lathe run");
  if (!options.compile.targets.empty() && options.compile.targets.size() == 1 &&
      options.compile.targets[0] != "native")
    options.session.target = options.compile.targets[0];
  reproducer().files.push_back(positional->front());
  if (!options.inputs.dataFolder.empty())
    reproducer().files.push_back(options.inputs.dataFolder);
  for (const std::string &input : options.inputs.files)
    reproducer().files.push_back(input.substr(input.find('=') + 1));
  reproduceOnCrash(reproducer());
  return execute(options, positional->front());
}

} // namespace lathe::cli
