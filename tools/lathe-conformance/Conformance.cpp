//===- Conformance.cpp - lathe-conformance: the ONNX corpus in one process -===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   lathe-conformance CORPUS [--target=x86-64-v3] [--mode=as-given] [--device=cpu] [--runner=COMMAND] [--commit=HEX]
//     -o LEDGER
//
// CORPUS is what test/conformance/make_corpus.py writes. Each test is compiled and
// run on its data sets; the ledger gets one row a test, in the order of the index:
// name, status, how it ran, worst ULP, scaled ULP, reason. test/conformance/README.md
// has the columns and the modes. A test that crashes ends as an error of its own; a crash in a thread that a
// test started ends the process, which then says which tests ran.
//
//===----------------------------------------------------------------------===//
#include "Conformance.h"

#include "Executor.h"
#include "Inputs.h"
#include "Mode.h"
#include "Results.h"
#include "Session.h"

#include "../../runtime/device/CudaDriver.h"
#include "lathe/codegen/Codegen.h"
#include "lathe/compiler/Compilation.h"
#include "lathe/import/TensorFile.h"
#include "lathe/ir/Exec.h"
#include "lathe/support/Files.h"
#include "lathe/support/Parallel.h"
#include "lathe/support/Sha256.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Signals.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace lathe;
using namespace lathe::cli;
using namespace lathe::conformance;

namespace {

struct Options {
  std::string corpus, output, target = "x86-64-v3", commit = "-", digests, filter, crash, runner, ranOn;
  SessionOptions session;
  Mode mode = Mode::AsGiven;
  int jobs = 0, every = 1, patience = 1800; // an emulated processor takes minutes for VGG
  bool emitOnly = false, verbose = false;
};

struct Test {
  std::string name;
  Tolerance tolerance;
};

struct Row {
  std::string status = "error", how = "-", ulp = "-", scaledUlp = "-", reason;
  std::string engineDigest, outputDigest; ///< SHA-256 of the bytes; empty where there are none
};

/// Of all outputs of all data sets.
struct Outcome {
  double ulp = 0, scaledUlp = 0; ///< the worst
  Sha256 bytes;
};

Result<std::vector<Test>> readIndex(const std::string &corpus) {
  Result<std::string> text = readFile((fs::path(corpus) / "index.tsv").string());
  if (!text)
    return text.status();
  std::vector<Test> tests;
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(*text).split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines) {
    llvm::SmallVector<llvm::StringRef> columns;
    line.split(columns, '\t');
    Test test;
    if (columns.size() != 5 || columns[1].getAsDouble(test.tolerance.rtol) ||
        columns[2].getAsDouble(test.tolerance.atol))
      return invalidError("is no row of name, rtol, atol, op, dtypes", "index.tsv: " + line.str());
    test.name = columns[0].str();
    tests.push_back(std::move(test));
  }
  return tests;
}

/// One line without tabs, without the folder of the corpus.
std::string tidy(std::string text, const std::string &folder) {
  for (size_t at; !folder.empty() && (at = text.find(folder)) != std::string::npos;)
    text.erase(at, folder.size() + (at + folder.size() < text.size()));
  std::string out;
  for (char c : text) {
    bool space = c == '\n' || c == '\t' || c == '\r' || c == ' ';
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  return out.size() > 240 ? out.substr(0, 237) + "..." : out;
}

Row rowOf(const Status &status, const std::string &folder) {
  Row row;
  if (status.code() == ErrorCode::Unsupported)
    row.status = "unsupported";
  else if (status.code() == ErrorCode::Invalid)
    row.status = "invalid";
  row.reason = tidy(status.str(), folder);
  return row;
}

/// How a compiled module computes: host ops, kernels that lathe compiled (`library`: of which one calls a
/// function of the library for each lane; `lists`: between tensors that the runtime keeps in lists), or nothing is left to do.
const char *howOf(mlir::ModuleOp module) {
  bool launches = false, library = false, host = false, lists = false;
  module.walk([&](mlir::Operation *op) {
    launches |= mlir::isa<exec::LaunchOp>(op);
    if (auto call = mlir::dyn_cast<exec::CallOp>(op))
      (call.getName().starts_with("list_") ? lists : host) = true;
    if (auto kernel = mlir::dyn_cast<exec::KernelOp>(op))
      for (mlir::Attribute variant : kernel.getVariants())
        if (auto text = mlir::cast<mlir::DictionaryAttr>(variant).getAs<mlir::StringAttr>("source"))
          library |= text.getValue().contains(codegen::kLibraryCallsAttr);
  });
  return host ? "host" : library ? "library" : lists ? "lists" : launches ? "generated" : "folded";
}

/// A model as an engine; what lathe cannot take at run time (axes, sizes, pads) becomes
/// constants from the first data set, once.
struct Compiled {
  std::string bytes; ///< of the engine; none with --emit-only
  std::string how;
  std::set<size_t> constants; ///< numbers of the inputs
  std::string note;    ///< what a frozen row was given
  std::string lengths; ///< inputs whose length was given in mode all-symbolic
};

/// What a first attempt says is missing, for a second one: false where nothing can be given.
Result<bool> giveMissing(const Options &options, const std::string &folder, const ModelPorts &ports,
                         const std::vector<std::string> &needs, CompileOptions &compile, Compiled &result) {
  if (options.mode == Mode::AllSymbolic && result.lengths.empty()) {
    Result<std::string> kept = keepLengths(folder, ports, compile);
    if (!kept)
      return kept.status();
    result.lengths = std::move(*kept);
    if (!result.lengths.empty())
      return true;
  }
  if (needs.empty() || !result.constants.empty())
    return false;
  result.note = "given when compiling:";
  for (const std::string &need : needs) {
    size_t i = size_t(llvm::find_if(ports.inputs, [&](const ModelPort &port) { return port.name == need; }) -
                      ports.inputs.begin());
    std::error_code error;
    if (i == ports.inputs.size() || !fs::exists(inputFile(folder, 0, i), error))
      return false;
    llvm::erase_if(compile.shapes, [&](const std::string &shape) { return shape.starts_with(need + "="); });
    compile.constants.push_back(need + "=" + inputFile(folder, 0, i));
    result.constants.insert(i);
    result.note += " " + need;
  }
  return true;
}

/// `set`: the data set whose inputs are constants in mode all-constant.
Result<Compiled> compileTest(const Options &options, const std::string &folder, const ModelPorts &ports, int set) {
  CompileOptions compile;
  compile.targets = {options.target};
  Compiled result;
  LATHE_RETURN_IF_ERROR(giveSizes(options.mode, folder, ports, compile));
  llvm::SmallString<128> scratch;
  auto removeScratch = llvm::scope_exit([&] {
    std::error_code error;
    if (!scratch.empty())
      fs::remove_all(scratch.c_str(), error);
  });
  if (options.mode == Mode::AllConstant) {
    if (llvm::sys::fs::createUniqueDirectory("lathe-conformance", scratch))
      return usageError("cannot make a folder for temporary files", "lathe-conformance");
    LATHE_RETURN_IF_ERROR(giveConstants(folder, set, ports, scratch.c_str(), compile));
    for (size_t i = 0; i < ports.inputs.size(); ++i)
      result.constants.insert(i);
  }
  for (;;) {
    Result<std::unique_ptr<Compilation>> opened =
        Compilation::open(folder + "/model.onnx", compile);
    if (!opened)
      return opened.status();
    Compilation &compilation = **opened;
    Status status = compilation.runTo(Phase::Codegen);
    if (status.ok()) {
      result.how = howOf(compilation.module());
      if (options.emitOnly)
        return result;
      Result<engine::EngineWriter> writer = compilation.engine();
      if (!writer)
        return writer.status();
      Result<std::string> bytes = writer->str();
      if (!bytes)
        return bytes.status();
      result.bytes = std::move(*bytes);
      return result;
    }
    if (status.code() != ErrorCode::Unsupported && status.code() != ErrorCode::Invalid)
      return status;
    Result<bool> again = giveMissing(options, folder, ports, compilation.neededConstants(), compile, result);
    if (!again)
      return again.status();
    if (!*again)
      return status;
  }
}

/// Whether all data sets have the same bytes in the inputs that became constants.
bool sameConstants(const std::string &folder, const std::set<size_t> &constants) {
  std::error_code error;
  for (size_t i : constants) {
    std::string name = "/input_" + std::to_string(i) + ".pb";
    Result<std::string> first = readFile(folder + "/test_data_set_0" + name);
    for (int set = 1;; ++set) {
      std::string data = folder + "/test_data_set_" + std::to_string(set);
      if (!fs::is_directory(data, error))
        break;
      Result<std::string> other = readFile(data + name);
      if (!first || !other || *first != *other)
        return false;
    }
  }
  return true;
}

/// The files of a data set of a model with sequences or optionals: their tensors stand one after another, or packed, as
/// those of the entry do.
Result<InputFiles> readNested(const std::string &folder, const ModelPorts &ports, const engine::Plan &plan,
                              const std::set<size_t> &constants) {
  InputFiles files;
  auto addTo = [&](auto &list, const std::vector<engine::Port> &entry, const std::string &file, const ModelPort &port) -> Status {
    Result<std::optional<std::vector<HostTensor>>> value = readValueProto(file, port.kind);
    if (!value)
      return value.status();
    Result<std::optional<std::vector<HostTensor>>> parts = partsOfList(entry, port.name, *value);
    if (!parts)
      return parts.status();
    if (*parts || *value)
      for (HostTensor &tensor : *parts ? **parts : **value)
        list.push_back(std::move(tensor));
    return okStatus();
  };
  for (auto [i, port] : llvm::enumerate(ports.inputs)) {
    if (constants.count(i))
      continue;
    LATHE_RETURN_IF_ERROR(addTo(files.byPosition, plan.inputs, folder + "/input_" + std::to_string(i) + ".pb", port));
  }
  for (auto [i, port] : llvm::enumerate(ports.outputs))
    LATHE_RETURN_IF_ERROR(addTo(files.expected, plan.outputs, folder + "/output_" + std::to_string(i) + ".pb", port));
  return files;
}

/// One data set; adds to the worst errors. A Mismatch says which output.
Status runDataSet(Executor &executor, const engine::Plan &plan, const std::string &folder,
                  const ModelPorts &ports, const std::set<size_t> &constants, Tolerance tolerance,
                  Outcome &outcome) {
  InputOptions options;
  options.skip = constants;
  options.dataFolder = folder;
  auto isNested = [](const ModelPort &port) { return port.kind != ValueKind::Tensor; };
  bool nested = llvm::any_of(ports.inputs, isNested) || llvm::any_of(ports.outputs, isNested);
  Result<InputFiles> files = nested ? readNested(folder, ports, plan, constants) : readInputs(options, plan);
  if (!files)
    return files.status();
  if (nested && files->expected.size() != plan.outputs.size())
    return Status(ErrorCode::Mismatch, std::to_string(plan.outputs.size()) + " outputs where " +
                                           std::to_string(files->expected.size()) + " are expected");
  if (files->named.size() + files->byPosition.size() < plan.inputs.size())
    return unsupportedError("the data set lacks an input");
  Result<std::vector<HostTensor>> inputs = makeInputs(options, *files, plan, {}, 0);
  if (!inputs)
    return inputs.status();
  Result<std::vector<HostTensor>> out = executor.run(plan, *inputs);
  if (!out)
    return out.status();
  for (const HostTensor &tensor : *out)
    outcome.bytes.update(tensor.data.data(), tensor.data.size());
  for (size_t i = 0; i < out->size(); ++i) {
    if (!files->expected[i])
      return unsupportedError("the data set lacks an output");
    const HostTensor &got = (*out)[i];
    Tolerance mine = tolerance;
    if (got.dtype == DType::BF16) // as ONNX's runner: two ULP
      mine.rtol = std::max(mine.rtol, 0x1p-6);
    Comparison result = compareTensors(got, *files->expected[i], mine);
    if (!result.passed)
      return Status(ErrorCode::Mismatch,
                    !result.problem.empty()
                        ? result.problem
                        : std::to_string(result.outside) + " of " +
                              std::to_string(result.stats.count) + " values beyond the tolerance",
                    "output '" + plan.outputs[i].name + "'");
    outcome.ulp = std::max(outcome.ulp, result.stats.maxUlp);
    outcome.scaledUlp = std::max(outcome.scaledUlp, result.stats.scaledUlp);
  }
  return okStatus();
}

/// Random results, whose values no test knows: they have the types and sizes of the expected ones, follow from
/// the seed, and differ from run to run.
Status checkDraws(Executor &executor, const engine::Plan &plan, const std::string &folder,
                  const std::set<size_t> &constants) {
  constexpr int kRuns = 16;
  InputOptions options;
  options.skip = constants;
  options.dataFolder = folder;
  Result<InputFiles> files = readInputs(options, plan);
  if (!files)
    return files.status();
  Result<std::vector<HostTensor>> inputs = makeInputs(options, *files, plan, {}, 0);
  if (!inputs)
    return inputs.status();
  std::vector<std::string> runs;
  for (int run = 0; run < 2 * kRuns; ++run) {
    if (run % kRuns == 0)
      LATHE_RETURN_IF_ERROR(executor.seed(7));
    Result<std::vector<HostTensor>> out = executor.run(plan, *inputs);
    if (!out)
      return out.status();
    runs.emplace_back();
    for (size_t i = 0; i < out->size(); ++i) {
      const HostTensor &got = (*out)[i];
      if (!files->expected[i] || got.dtype != files->expected[i]->dtype || got.dims != files->expected[i]->dims)
        return Status(ErrorCode::Mismatch, "type or sizes are not those expected",
                      "output '" + plan.outputs[i].name + "'");
      runs.back().append(reinterpret_cast<const char *>(got.data.data()), got.data.size());
    }
  }
  if (!std::equal(runs.begin(), runs.begin() + kRuns, runs.begin() + kRuns))
    return Status(ErrorCode::Mismatch, "equal seeds draw differently");
  if (llvm::all_of(runs, [&](const std::string &other) { return other == runs[0]; }))
    return Status(ErrorCode::Mismatch, "each run draws the same");
  return okStatus();
}

/// A test's engine, opened by an executor.
struct Opened {
  Compiled compiled;
  std::optional<Model> model;
};

Status openTest(const Options &options, const Test &test, const std::string &folder, const ModelPorts &ports, int set,
                Executor &executor, Opened &opened, Sha256 &engines) {
  Result<Compiled> compiled = compileTest(options, folder, ports, set);
  if (!compiled)
    return compiled.status();
  opened.compiled = std::move(*compiled);
  if (options.mode != Mode::AllConstant && !sameConstants(folder, opened.compiled.constants))
    return unsupportedError("the data sets differ in what is " + opened.compiled.note);
  if (options.emitOnly)
    return okStatus();
  engines.update(opened.compiled.bytes);
  Result<Model> model = Model::fromBytes(test.name, std::move(opened.compiled.bytes));
  if (!model)
    return model.status();
  opened.model.emplace(std::move(*model));
  return executor.open(*opened.model);
}

Row runTest(const Options &options, const Test &test, Executor &executor) {
  std::string folder = (fs::path(options.corpus) / test.name).string();
  Result<ModelPorts> ports = readModelPorts(folder + "/model.onnx");
  if (!ports)
    return rowOf(ports.status(), folder);
  Row row;
  row.status = "passed";
  Outcome outcome;
  Sha256 engines;
  std::unique_ptr<Opened> opened;
  std::error_code error;
  auto end = [&](const Status &status) {
    Row failed = rowOf(status, folder);
    failed.engineDigest = engines.hex();
    failed.outputDigest = outcome.bytes.hex();
    if (status.code() == ErrorCode::Mismatch) {
      failed.status = "failed";
      failed.how = row.how;
    }
    return failed;
  };
  for (int set = 0;; ++set) {
    std::string data = folder + "/test_data_set_" + std::to_string(set);
    if (!fs::is_directory(data, error) && (set > 0 || !options.emitOnly)) {
      if (set == 0)
        return rowOf(invalidError("has no data set: nothing was compared", test.name), folder);
      break;
    }
    if (set == 0 || options.mode == Mode::AllConstant) {
      opened = std::make_unique<Opened>();
      if (Status status = openTest(options, test, folder, *ports, set, executor, *opened, engines); !status.ok())
        return rowOf(status, folder);
      row.how = opened->compiled.how;
      row.reason = opened->compiled.note;
      row.status = row.reason.empty() ? "passed" : "frozen";
    }
    const Compiled &compiled = opened->compiled;
    if (options.emitOnly) {
      row.status = row.status == "passed" ? "compiled" : row.status;
      return row;
    }
    const engine::Plan &plan = opened->model->plans.front();
    Status status = runDataSet(executor, plan, data, *ports, compiled.constants, test.tolerance, outcome);
    const bool allGiven = options.mode == Mode::AllConstant || compiled.constants.empty();
    if (status.code() == ErrorCode::Mismatch && opened->model->draws && allGiven) {
      status = checkDraws(executor, plan, data, compiled.constants);
      if (status.ok())
        row.status = "drawn";
    }
    if (!status.ok())
      return end(status);
  }
  row.engineDigest = engines.hex();
  if (row.status == "drawn") {
    row.reason = "by types, sizes and seed";
    return row;
  }
  if (row.status == "passed" && !opened->compiled.lengths.empty())
    row.reason = "lengths given: " + opened->compiled.lengths;
  row.outputDigest = outcome.bytes.hex();
  char text[64];
  std::snprintf(text, sizeof text, "%.0f", outcome.ulp);
  row.ulp = text;
  std::snprintf(text, sizeof text, "%.2f", outcome.scaledUlp);
  row.scaledUlp = text;
  return row;
}

/// Names of the tests that run now; read when the process dies.
constexpr int kMaxJobs = 256;
std::array<std::atomic<const char *>, kMaxJobs> running;

/// Called by a signal outside of every CrashRecoveryContext: only what is safe there.
void nameRunning(void *) {
  auto say = [](const char *text) { (void)!write(2, text, std::strlen(text)); };
  say("lathe-conformance: a helper thread crashed while these tests ran:\n");
  for (const std::atomic<const char *> &name : running)
    if (const char *text = name.load()) {
      say("  ");
      say(text);
      say("\n");
    }
}

Row runGuarded(const Options &options, const Test &test, Executor &executor) {
  Row row;
  llvm::CrashRecoveryContext guard;
  if (test.name == options.crash) // plants what nameRunning is for
    std::thread([] { std::raise(SIGSEGV); }).join();
  if (!guard.RunSafely([&] { row = runTest(options, test, executor); })) {
    row = Row();
    row.reason = "internal: crashed";
  }
  return row;
}

Status parseArguments(int argc, char **argv, Options &options, bool &done) {
  Parser parser("-conformance", "CORPUS -o LEDGER [OPTIONS]",
                "Compiles and runs every test of the ONNX corpus in one process and writes a "
                "ledger: name, status, how it ran, worst ULP, scaled ULP, reason.");
  parser.add("o", "FILE", "The ledger", options.output);
  parser.add("target", "NAME", "Compile for this (default: x86-64-v3)", options.target);
  parser.add("device", "cpu|cuda:0", "Run on this (default: cpu)", options.session.device);
  parser.add("runner", "COMMAND",
             "Run where this starts lathe-runner: \"qemu-aarch64 lathe-runner\", \"ssh board lathe-runner --device=cuda:0\"",
             options.runner);
  parser.add("ran-on", "DEVICE,DRIVER", "What the ledger's header says of the runner (default: its command)", options.ranOn);
  parser.add("patience", "SECONDS", "How long the runner may take for a test (default: 1800)", options.patience);
  parser.add("commit", "HEX", "What the ledger's header says was built", options.commit);
  parser.add("digests", "FILE", "Also write test, SHA-256 of the engine and of the outputs",
             options.digests);
  parser.add("filter", "TEXT", "Only tests whose name has this", options.filter);
  parser.add("mode", "NAME",
             "What of the inputs is known when compiling: as-given (what the test states, the default), all-symbolic "
             "(no size; only lengths of vectors of integers), all-constant (everything)",
             [&options](const std::string &name) -> Status {
               std::optional<Mode> mode = parseMode(name);
               if (!mode)
                 return usageError("there is no mode '" + name + "'", "--mode");
               options.mode = *mode;
               return okStatus();
             });
  parser.add("every", "N", "Only each Nth test (default: 1)", options.every);
  parser.add("jobs", "N", "Tests at once (default: all cores)", options.jobs);
  parser.add("inject-crash", "TEST", "Crash in a thread of this test", options.crash);
  parser.flag("emit-only", "Stop at the text of the kernels: no kernel is compiled, nothing runs",
              options.emitOnly);
  parser.flag("verbose", "Print each row as its test ends", options.verbose);
  parser.example("lathe-conformance build/corpus -o ledger.tsv");
  parser.example("lathe-conformance build/corpus --target=sm_90a --device=cuda:0 -o cuda.tsv");
  parser.example("lathe-conformance build/corpus --target=armv8-a --runner=\"ssh board lathe-runner\" -o arm.tsv");
  bool helpWanted = false;
  Result<std::vector<std::string>> positional = parser.parse({argv + 1, argv + argc}, helpWanted);
  if (!positional)
    return positional.status();
  if ((done = helpWanted)) {
    std::fputs(parser.help().c_str(), stdout);
    return okStatus();
  }
  if (positional->size() != 1 || options.output.empty())
    return usageError("wants CORPUS and -o LEDGER", "lathe-conformance");
  if (!options.runner.empty() && options.session.device != "cpu")
    return usageError("runs where the command starts, not on " + options.session.device, "--runner");
  if (!options.ranOn.empty() && (options.runner.empty() || options.ranOn.find(',') == std::string::npos))
    return usageError("wants --runner, and a device and its driver's version with a comma between them", "--ran-on");
  if (options.every < 1)
    return usageError("wants a number from 1 on", "--every");
  if (options.patience < 1 || options.patience > 1000000)
    return usageError("wants seconds, from 1 to 1000000", "--patience");
  options.corpus = positional->front();
  options.session.threads = 1;
  options.session.noPinning = true;
  if (options.jobs == 0)
    options.jobs = int(usableCores());
  options.jobs = std::clamp(options.jobs, 1, kMaxJobs);
  return okStatus();
}

/// The lines that say of what and on what the rows were measured.
Result<std::string> headerOf(const Options &options) {
  std::string device = options.emitOnly ? "none" : options.session.device, driver = "-";
  if (!options.ranOn.empty()) {
    size_t comma = options.ranOn.rfind(',');
    device = options.ranOn.substr(0, comma);
    driver = options.ranOn.substr(comma + 1);
  } else if (!options.runner.empty()) {
    device = fs::path(options.runner.substr(0, options.runner.find(' '))).filename().string();
  } else if (device.starts_with("cuda")) {
    Result<const runtime::cuda::Driver *> cuda = runtime::cuda::openDriver();
    if (!cuda)
      return cuda.status();
    int version = 0;
    char name[128] = "";
    (*cuda)->cuDriverGetVersion(&version);
    (*cuda)->cuDeviceGetName(name, sizeof name, std::atoi(device.c_str() + device.find(':') + 1));
    device = name;
    driver = std::to_string(version);
  }
  return "# lathe conformance ledger, format 2\n# target " + options.target + "\n# mode " +
         toString(options.mode) + "\n# device " + device +
         "\n# driver " + driver + "\n# commit " + options.commit + "\n";
}

Status runAll(const Options &options) {
  Result<std::vector<Test>> index = readIndex(options.corpus);
  if (!index)
    return index.status();
  std::vector<Test> tests;
  for (size_t i = size_t(options.every) - 1; i < index->size(); i += size_t(options.every))
    if ((*index)[i].name.find(options.filter) != std::string::npos)
      tests.push_back((*index)[i]);
  auto begin = std::chrono::steady_clock::now();
  std::vector<Row> rows(tests.size());
  std::atomic<size_t> next = 0;
  std::mutex printing;
  // Before Enable(), which passes on to it what is no test's own.
  llvm::sys::AddSignalHandler(nameRunning, nullptr);
  llvm::CrashRecoveryContext::Enable();
  auto work = [&](int job) {
    std::unique_ptr<Executor> executor =
        options.runner.empty() ? Executor::local(options.session) : Executor::runner(options.runner, options.patience);
    for (size_t i = next++; i < tests.size(); i = next++) {
      running[job] = tests[i].name.c_str();
      rows[i] = runGuarded(options, tests[i], *executor);
      running[job] = nullptr;
      if (options.verbose) {
        std::lock_guard<std::mutex> lock(printing);
        std::printf("%s %s %s %s %s %s\n", tests[i].name.c_str(), rows[i].status.c_str(),
                    rows[i].how.c_str(), rows[i].ulp.c_str(), rows[i].scaledUlp.c_str(),
                    rows[i].reason.c_str());
        std::fflush(stdout);
      }
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < options.jobs; ++i)
    pool.emplace_back(work, i);
  work(0);
  for (std::thread &thread : pool)
    thread.join();
  Result<std::string> header = headerOf(options);
  if (!header)
    return header.status();
  std::string text = std::move(*header);
  std::string digests;
  std::map<std::string, int> counts;
  for (size_t i = 0; i < tests.size(); ++i) {
    const Row &row = rows[i];
    text += tests[i].name + "\t" + row.status + "\t" + row.how + "\t" + row.ulp + "\t" +
            row.scaledUlp + "\t" + row.reason + "\n";
    digests += tests[i].name + "\t" + row.engineDigest + "\t" + row.outputDigest + "\n";
    ++counts[row.status == "passed" ? "passed " + row.how : row.status];
  }
  for (const auto &[what, count] : counts)
    std::printf("%6d %s\n", count, what.c_str());
  std::printf("%zu tests in %.1f s\n", tests.size(),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (!options.digests.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.digests, digests));
  return writeFileAtomically(options.output, text);
}

} // namespace

int conformance::conformance(int argc, char **argv) {
  Options options;
  bool done = false;
  Status status = parseArguments(argc, argv, options, done);
  if (status.ok() && !done)
    status = runAll(options);
  if (!status.ok())
    std::fprintf(stderr, "%s: %s\n", kProgram, status.str().c_str());
  return int(status.code());
}
