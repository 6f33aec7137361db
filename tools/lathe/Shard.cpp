//===- Shard.cpp - lathe shard --------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TemporaryModel.h"
#include "Verbs.h"

#include "lathe/compiler/FoundShardings.h"
#include "lathe/support/Files.h"

#include <cstdio>

namespace lathe::cli {

Status shardVerb(const std::vector<std::string> &arguments) {
  Parser parser("shard", "MODEL -o FILE --mesh tp=N [OPTIONS]",
                "Searches how to divide a model among ranks, as `compile --mesh` does, and writes the answer into the model as "
                "ONNX's sharding specs (IR 11), which other tools read, and `compile --mesh` as hints. Nothing else of the file "
                "changes; a configuration lathe-tpN that it has already is replaced. Where ONNX has no words (parts of each of "
                "several blocks, uneven heads) the tensor has no spec, which is told.");
  CompileOptions compile;
  std::string output;
  parser.add("o", "FILE", "The new model", output);
  addCompileOptions(parser, compile, true);
  parser.example("lathe shard model.onnx -o sharded.onnx --mesh tp=2");
  parser.example("lathe shard model.onnx -o sharded.onnx --mesh tp=4 --shard up.weight=dim:1");
  parser.example("lathe compile sharded.onnx -o mesh.lathe --mesh tp=2");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1 || output.empty() || compile.mesh.empty())
    return usageError(compile.mesh.empty() ? "wants ranks: --mesh tp=N" : "wants one model and -o FILE", "lathe shard");
  const std::string &path = positional->front();
  reproducer().files.push_back(path);
  // What stays outside of the model is found beside it.
  LATHE_RETURN_IF_ERROR(checkBesideWeights(path, output));
  Result<FoundPlan> plan = foundShardings(path, compile);
  if (!plan)
    return plan.status();
  if (plan->ranks < 2)
    return usageError("has one rank, which divides nothing", "--mesh");
  Result<ShardedModel> made = shardedModel(path, plan->ranks, plan->shardings);
  if (!made)
    return made.status();
  LATHE_RETURN_IF_ERROR(writeFileAtomically(output, made->bytes));
  for (const std::string &note : made->notes)
    std::fprintf(stderr, "note: %s\n", note.c_str());
  std::printf("%s: specs of %lld tensors for %lld devices\n", output.c_str(), static_cast<long long>(made->tensors),
              static_cast<long long>(plan->ranks));
  return okStatus();
}

} // namespace lathe::cli
