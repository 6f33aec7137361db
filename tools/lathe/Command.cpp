//===- Command.cpp - lathe: compile, run, measure and look at models ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Command.h"
#include "Verbs.h"

#include <cstdio>
#include <cstring>

namespace {

using namespace lathe;

struct Verb {
  const char *name, *about;
  Status (*run)(const std::vector<std::string> &);
};

constexpr Verb kVerbs[] = {
    {"compile", "make an engine of a model, or stop after a phase and write its IR", cli::compileVerb},
    {"run", "run a model or an engine on files or random inputs, and check the results", cli::runVerb},
    {"generate", "generate tokens with the engine of a paged decoder", cli::generateVerb},
    {"explain", "say why a decoder can be paged, or which node is in the way", cli::explainVerb},
    {"bench", "measure latency, throughput and memory, kernel by kernel if wanted", cli::benchVerb},
    {"tune", "measure which tiles a model's matrix products should take on a GPU", cli::tuneVerb},
    {"inspect", "show entries, plan, memory, kernels and their source", cli::inspectVerb},
    {"compare", "find the first kernel whose results are wrong", cli::compareVerb},
    {"plan", "pack buffers with known lifetimes into the smallest arena", cli::planVerb},
    {"shard", "write into an ONNX model how it is divided among ranks", cli::shardVerb},
    {"simulate", "predict what a run takes on a mesh of machines that a file describes", cli::simulateVerb},
    {"quantize", "write an ONNX model with quantized operands, by ranges that data show", cli::quantizeVerb},
    {"prune", "write an ONNX model with zeros in its weights where they are measured to gain time", cli::pruneVerb},
    {"keygen", "make a pair of keys that sign and verify engines", cli::keygenVerb},
    {"sign", "sign an engine, so that others can tell whose it is", cli::signVerb},
    {"verify", "check an engine, and who signed it", cli::verifyVerb},
};

constexpr const char *kTrust =
    "An engine is a program: trust its source, or its signature (`lathe sign`, --trust).\n";

constexpr const char *kExits =
    "Exit codes: 0 fine, 1 results differ, 2 usage, 3 invalid model or engine, 4 unsupported,\n"
    "5 run-time failure, 6 internal error (a folder lathe-reproducer-* is left), 7 deadline passed,\n"
    "8 cancelled, 9 another rank of the mesh is gone.\n";

void printHelp(FILE *to) {
  std::fprintf(to, "%s: compiles ONNX models into engines, and runs engines\n\n",
               compilerVersion().c_str());
  for (const Verb &verb : kVerbs)
    std::fprintf(to, "  lathe %-8s  %s\n", verb.name, verb.about);
  std::fprintf(to,
               "\n`lathe VERB --help` has the options and examples of each; --max-memory=SIZE and "
               "--max-seconds=S\nbound every one.\n\n%s\n%s\nExamples:\n",
               kTrust, kExits);
  std::fprintf(to, "  lathe compile model.onnx -o model.lathe\n"
                   "  lathe run model.lathe --data test_data_set_0\n"
                   "  lathe bench model.lathe --profile\n"
                   "  lathe inspect model.lathe --kernels\n"
                   "  lathe compare model.onnx\n");
}

int finish(const Status &status) {
  if (status.ok())
    return 0;
  if (!status.message().empty())
    std::fprintf(stderr, "lathe: %s\n", status.str().c_str());
  if (status.code() == ErrorCode::Internal) {
    Result<std::string> folder = writeReproducer(cli::reproducer(), status.str());
    if (folder.ok())
      std::fprintf(stderr, "lathe: this is a defect of lathe; the folder %s has what is needed to "
                           "reproduce it\n",
                   folder->c_str());
  }
  return int(status.code());
}

} // namespace

int lathe::cli::command(int argc, char **argv) {
  if (argc < 2) {
    printHelp(stderr);
    return int(ErrorCode::Usage);
  }
  std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    printHelp(stdout);
    return 0;
  }
  if (name == "--version") {
    std::puts(compilerVersion().c_str());
    return 0;
  }
  cli::reproducer().command.assign(argv, argv + argc);
  std::vector<std::string> verbs;
  for (const Verb &verb : kVerbs) {
    if (name == verb.name)
      return finish(verb.run({argv + 2, argv + argc}));
    verbs.push_back(verb.name);
  }
  std::string meant = cli::nearest(name, verbs);
  return finish(usageError("is no verb; " + (meant.empty() ? "`lathe --help` lists them"
                                                           : "did you mean " + meant + "?"),
                           "'" + name + "'"));
}
