//===- Inspect.cpp - lathe inspect ----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "InspectHtml.h"
#include "InspectTables.h"
#include "Results.h"
#include "Session.h"
#include "Verbs.h"

#include "lathe/codegen/HostCpu.h"
#include "lathe/codegen/Target.h"
#include "lathe/support/Files.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstdio>
#include <optional>

namespace lathe::cli {
namespace {

namespace json = llvm::json;

struct InspectOptions {
  CompileOptions compile;
  bool asJson = false, host = false, entries = false, plan = false, memory = false, kernels = false, sharding = false;
  std::string source, svg, html, trust;
  std::vector<std::string> tiles;
};

/// "m.svg", or "m.prefill.sm_90a.svg" when the engine has several plans.
Status writeDrawings(const Model &model, const std::string &file, std::string (*draw)(const engine::Plan &)) {
  for (const engine::Plan &plan : model.plans) {
    std::string name = file;
    if (model.plans.size() > 1) {
      size_t dot = name.rfind(".svg");
      name = name.substr(0, dot) + "." + plan.entry + "." + plan.target + ".svg";
    }
    LATHE_RETURN_IF_ERROR(writeFileAtomically(name, draw(plan)));
  }
  return okStatus();
}

/// The targets that --target names, which must be the engine's; all of them without it.
Result<std::vector<std::string>> shownTargets(const Model &model,
                                              const std::vector<std::string> &wanted) {
  std::vector<std::string> targets;
  for (const std::string &text : wanted) {
    Result<Target> target = Target::parse(text);
    if (!target)
      return Status(ErrorCode::Usage, target.status().message(), "--target");
    // A level by itself stands for the engine's target of that level, whatever its caches are.
    std::vector<std::string> found;
    for (const std::string &name : model.targets())
      if (Result<Target> has = Target::parse(name); name == target->name || (has && has->level() == text))
        found.push_back(name);
    if (found.empty())
      return usageError(
          "the engine is for " + joined(model.targets()) + ", not for " + target->name, "--target");
    targets.insert(targets.end(), found.begin(), found.end());
  }
  return targets.empty() ? model.targets() : targets;
}

/// The text of one target: what is printed can be edited and given to --replace.
Status printSource(const Model &model, const std::string &kernel,
                   const std::vector<std::string> &targets) {
  std::string known;
  std::vector<std::string> owners, texts;
  for (const engine::EngineReader::Section &section : model.file->sections()) {
    if (section.type != engine::SectionType::Debug || section.name != "sources" ||
        !llvm::is_contained(targets, section.target))
      continue;
    std::string text;
    size_t variants = 0;
    Result<engine::Archive> archive = engine::parseArchive(section.bytes, section.name);
    if (!archive)
      return archive.status();
    for (const auto &[name, source] : *archive) {
      known += (known.empty() ? "" : ", ") + name;
      // A kernel's variants follow it: "gemm_0", "gemm_0.1".
      if (name != kernel && name.rfind(kernel + ".", 0) != 0)
        continue;
      ++variants;
      Result<Target> target = Target::parse(section.target);
      const char *comment = target && target->isCuda() ? "// " : "; ";
      text += comment + name + " for " + section.target + "\n" + std::string(source) + "\n";
    }
    if (variants == 0)
      continue;
    owners.push_back(section.target);
    texts.push_back(std::move(text));
    if (variants > 1)
      std::fprintf(stderr,
                   "note: %zu variants; %s.0 names the first alone, as --replace wants it\n",
                   variants, kernel.c_str());
  }
  if (texts.empty())
    return usageError("there is no such kernel; there are " + known, "'" + kernel + "'");
  if (texts.size() > 1)
    return usageError("has a text for each of " + joined(owners) + ": --target says which",
                      "'" + kernel + "'");
  std::fputs(texts.front().c_str(), stdout);
  return okStatus();
}

std::string optionsOf(const Model &model) {
  const auto *section = model.file->find(engine::SectionType::Metadata, "options");
  return section ? std::string(section->bytes) : "{}";
}

/// Of an engine of a paged decoder; none of others.
Result<std::optional<engine::LlmInfo>> llmOf(const Model &model) {
  const auto *section = model.file->find(engine::SectionType::Llm, engine::kLlmSection);
  if (!section)
    return std::optional<engine::LlmInfo>();
  Result<engine::LlmInfo> info = engine::parseLlm(section->bytes, "section llm");
  if (!info)
    return info.status();
  return std::optional(std::move(*info));
}

/// A folder that goes with this.
struct TemporaryFolder {
  std::string path;
  Status make() {
    llvm::SmallString<128> made;
    if (std::error_code error = llvm::sys::fs::createUniqueDirectory("lathe-inspect", made))
      return runtimeError("no temporary folder: " + error.message(), "--html");
    path = made.str().str();
    return okStatus();
  }
  ~TemporaryFolder() {
    if (!path.empty())
      (void)llvm::sys::fs::remove_directories(path);
  }
};

Status execute(const InspectOptions &options, const std::string &path) {
  // A model is compiled for the targets; of an engine's they choose.
  CompileOptions compile = options.compile;
  if (isEngine(path))
    compile.targets.clear();
  // The page shows the text of each phase, which an engine does not have.
  std::string dumps = isEngine(path) ? "" : compile.dumpDir;
  TemporaryFolder folder;
  if (!options.html.empty() && !isEngine(path) && dumps.empty()) {
    LATHE_RETURN_IF_ERROR(folder.make());
    dumps = compile.dumpDir = folder.path;
  }
  Result<Model> model = Model::open(path, compile, "cpu", options.trust);
  if (!model)
    return model.status();
  Result<std::vector<std::string>> targets = shownTargets(*model, options.compile.targets);
  if (!targets)
    return targets.status();
  std::erase_if(model->plans, [&](const engine::Plan &plan) {
    return !llvm::is_contained(*targets, plan.target);
  });
  Result<std::optional<engine::LlmInfo>> llm = llmOf(*model);
  if (!llm)
    return llm.status();
  if (!options.source.empty())
    return printSource(*model, options.source, *targets);
  if (!options.svg.empty())
    LATHE_RETURN_IF_ERROR(writeDrawings(*model, options.svg, options.sharding ? shardingSvg : memorySvg));
  if (!options.html.empty())
    LATHE_RETURN_IF_ERROR(writeHtml(*model, dumps, options.html));
  bool all = !options.entries && !options.plan && !options.memory && !options.kernels && !options.sharding;
  bool entries = options.entries || all, kernels = options.kernels || all;
  if (options.asJson) {
    json::Object result{{"file", json::fixUTF8(path)},
                        {"build_id", model->file->buildId()},
                        {"bytes", int64_t(model->file->fileBytes())}};
    if (llvm::Expected<json::Value> parsed = json::parse(optionsOf(*model)))
      result["options"] = std::move(*parsed);
    else
      llvm::consumeError(parsed.takeError());
    if (*llm && (options.memory || all))
      result["pages"] = pagesArray(**llm);
    json::Array list;
    for (const engine::Plan &plan : model->plans) {
      json::Object object{{"entry", json::fixUTF8(plan.entry)}, {"target", plan.target}};
      if (Result<Target> target = Target::parse(plan.target); target && !target->isCuda())
        object["cpu"] = json::Object{{"l1_bytes", target->l1Bytes},
                                     {"l2_bytes", target->l2Bytes},
                                     {"l3_bytes", target->l3Bytes},
                                     {"cores", target->cores}};
      if (entries)
        object["ports"] = entryObject(plan);
      if (options.plan || all)
        object["steps"] = planArray(plan);
      if (options.memory || all)
        object["memory"] = memoryObject(plan);
      if (options.sharding)
        object["sharding"] = shardingObject(plan);
      if (kernels)
        object["kernels"] = kernelArray(plan);
      list.push_back(std::move(object));
    }
    result["plans"] = std::move(list);
    std::printf("%s\n", llvm::formatv("{0:2}", json::Value(std::move(result))).str().c_str());
    return okStatus();
  }
  std::printf("%s: %s, made by %s\noptions: %s\n", path.c_str(),
              describeBytes(double(model->file->fileBytes())).c_str(),
              model->file->buildId().c_str(), optionsOf(*model).c_str());
  if (*llm && (options.memory || all))
    printPages(**llm);
  for (const engine::Plan &plan : model->plans) {
    Result<Target> target = Target::parse(plan.target);
    std::string facts = target ? target->factsText() : "";
    std::printf("\nentry %s for %s%s\n", plan.entry.c_str(), plan.target.c_str(),
                facts.empty() ? "" : (" (" + facts + ")").c_str());
    if (entries)
      printEntry(plan);
    if (options.plan)
      printPlan(plan);
    if (options.memory)
      printMemory(plan);
    if (options.sharding)
      printSharding(plan);
    if (kernels)
      printKernels(plan);
  }
  return okStatus();
}

/// What `--target=native` stands for on this machine, and what was read for it.
Status printHost(bool asJson) {
  const HostCpu host = HostCpu::read();
  Result<Target> target = Target::parse("native");
  if (!target)
    return target.status();
  if (!asJson) {
    std::printf("native is %s: %s\n%s", target->name.c_str(), target->factsText().c_str(), host.str().c_str());
    return okStatus();
  }
  json::Array caches;
  for (const HostCpu::Cache &cache : host.caches)
    caches.push_back(json::Object{{"bytes", cache.bytes}, {"cores", cache.cores}});
  json::Object result{{"native", target->name},
                      {"caches", std::move(caches)},
                      {"processors", host.processors},
                      {"cores", host.cores},
                      {"quota", host.quota},
                      {"page_bytes", host.pageBytes},
                      {"huge_page_bytes", host.hugePageBytes},
                      {"huge_pages", host.hugePages}};
  std::printf("%s\n", llvm::formatv("{0:2}", json::Value(std::move(result))).str().c_str());
  return okStatus();
}

} // namespace

Status inspectVerb(const std::vector<std::string> &arguments) {
  Parser parser("inspect", "MODEL|ENGINE [OPTIONS]",
                "Shows what is in an engine (a model is compiled in memory first). Without "
                "options: entries and kernels. Of an engine, --target shows these targets alone.");
  InspectOptions options;
  parser.flag("entries", "Inputs, outputs, states, symbols with bounds, guards", options.entries);
  parser.flag("plan", "The steps in order, with their buffers and ONNX nodes", options.plan);
  parser.flag("sharding", "Of a mesh: where ranks meet, and what each holds of the weights", options.sharding);
  parser.flag("memory", "Arenas, scratch memory of a thread, status words, buffers and states: the formulas, and bytes at the usual sizes",
              options.memory);
  parser.add("svg", "FILE", "Draw the buffers of each plan over time; with --sharding the ranks, and where they meet", options.svg);
  parser.add("html", "FILE",
             "Write one page that needs no net: the graph of every phase (of a model) with search, "
             "from a node to its "
             "kernels and their text; memory over time; roofline; plan",
             options.html);
  parser.flag("kernels", "A row a kernel: variants, grid, traffic, ONNX nodes", options.kernels);
  parser.add("source", "KERNEL",
             "The source of a kernel: CUDA C++, or LLVM IR for a CPU; --target says which of an "
             "engine's, where several have it",
             options.source);
  parser.add("tile", "NAME",
             "What a configuration is, e.g. gemm.split.m64.n32.c2: its blocks, threads, "
             "stages, shared memory (for --target, else sm_90a; 16-bit operands and results); of a "
             "CPU, what a kernel could run as instead; without a model",
             options.tiles);
  parser.flag("host",
              "What --target=native is on this machine, and what it has: caches, cores, limits, pages; without a model",
              options.host);
  parser.flag("json", "Print JSON", options.asJson);
  addTrustOption(parser, options.trust);
  addCompileOptions(parser, options.compile, /*withEntries=*/true);
  parser.example("lathe inspect model.lathe");
  parser.example("lathe inspect model.onnx --target=sm_90a --kernels");
  parser.example("lathe inspect model.lathe --memory --svg=memory.svg");
  parser.example("lathe inspect mesh.lathe --sharding --svg=ranks.svg");
  parser.example("lathe inspect model.onnx --html=model.html");
  parser.example("lathe inspect model.lathe --source matmul_0 --target=sm_90a > matmul_0.cu");
  parser.example("lathe inspect model.lathe --json --plan");
  parser.example("lathe inspect --host");
  parser.example("lathe inspect --tile gemm.pingpong.m128.n192");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (!options.tiles.empty() && positional->empty())
    return printTiles(options.tiles,
                      options.compile.targets.empty() ? "sm_90a" : options.compile.targets.front(),
                      options.asJson);
  if (options.host && positional->empty())
    return printHost(options.asJson);
  if (positional->size() != 1)
    return usageError("wants one model or engine; `lathe inspect --help` has examples",
                      "lathe inspect");
  reproducer().files.push_back(positional->front());
  reproduceOnCrash(reproducer());
  return execute(options, positional->front());
}

} // namespace lathe::cli
