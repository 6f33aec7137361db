//===- InspectHtml.cpp - an engine as one page of HTML --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "InspectHtml.h"

#include "InspectPage.h"
#include "InspectTables.h"
#include "Page.h"
#include "Roofline.h"

#include "lathe/support/Files.h"

#include <filesystem>

namespace lathe::cli {
namespace {

namespace json = llvm::json;
namespace fs = std::filesystem;

/// A text of more is cut: a page is to open at once.
constexpr size_t kMostText = 4u << 20;

json::Object sourcesOf(const Model &model, const std::string &target) {
  json::Object texts;
  for (const engine::EngineReader::Section &section : model.file->sections()) {
    if (section.type != engine::SectionType::Debug || section.name != "sources" ||
        section.target != target)
      continue;
    if (Result<engine::Archive> archive = engine::parseArchive(section.bytes, section.name))
      for (const auto &[name, source] : *archive)
        texts[name] =
            json::fixUTF8(llvm::StringRef(source.data(), source.size()).take_front(kMostText / 16));
  }
  return texts;
}

/// Kernels with flops and bytes of a launch at the usual sizes; of launches that differ the first
/// counts.
json::Array kernelsOf(const engine::Plan &plan) {
  std::map<std::string, int64_t> usual;
  for (const engine::Symbol &symbol : plan.symbols)
    usual[symbol.name] = symbol.opt;
  json::Array list = kernelArray(plan);
  for (const engine::Block &block : plan.blocks)
    for (const engine::Step &step : block) {
      const auto *launch = std::get_if<engine::LaunchStep>(&step.op);
      if (!launch)
        continue;
      json::Object &object = *list[size_t(launch->kernel)].getAsObject();
      if (object.get("usual_bytes"))
        continue;
      const engine::Kernel &kernel = plan.kernels[size_t(launch->kernel)];
      std::map<std::string, int64_t> sizes;
      for (size_t i = 0; i < kernel.symbols.size() && i < launch->symbols.size(); ++i)
        if (Result<int64_t> value = launch->symbols[i].evaluate(usual))
          sizes[kernel.symbols[i]] = *value;
      Result<int64_t> flops = kernel.flops.evaluate(sizes), bytes = kernel.bytes.evaluate(sizes);
      object["usual_flops"] = flops ? *flops : 0;
      object["usual_bytes"] = bytes ? *bytes : 0;
    }
  return list;
}

/// What --dump-dir wrote: a text a phase, in order.
Result<json::Array> phasesOf(const std::string &folder) {
  json::Array phases;
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto &entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".mlir")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path &file : files) {
    std::string name = file.stem().string();
    name = name.substr(name.find('-') + 1);
    if (name == "codegen") // plan, with the text of each kernel inside
      continue;
    Result<std::string> text = readFile(file.string());
    if (!text)
      return text.status();
    if (text->size() > kMostText)
      text->resize(kMostText);
    phases.push_back(json::Object{{"name", name}, {"text", json::fixUTF8(*text)}});
  }
  return phases;
}

} // namespace

Status writeHtml(const Model &model, const std::string &dumps, const std::string &file) {
  json::Object result{{"file", json::fixUTF8(fs::path(model.path).filename().string())}};
  if (!dumps.empty()) {
    Result<json::Array> phases = phasesOf(dumps);
    if (!phases)
      return phases.status();
    result["phases"] = std::move(*phases);
  }
  json::Array list;
  for (const engine::Plan &plan : model.plans) {
    Result<Target> target = Target::parse(plan.target);
    Roofline roof = target ? rooflineOf(*target, 1) : Roofline();
    list.push_back(json::Object{
        {"entry", json::fixUTF8(plan.entry)},
        {"target", plan.target},
        {"steps", planArray(plan)},
        {"memory", memoryObject(plan)},
        {"kernels", kernelsOf(plan)},
        {"sources", sourcesOf(model, plan.target)},
        {"drawing", memorySvg(plan)},
        {"roof",
         json::Object{{"gbs", roof.gbs}, {"gflops", roof.gflops}, {"origin", roof.origin}}}});
  }
  result["plans"] = std::move(list);
  return writeFileAtomically(file, pageOf(kPageHead, std::move(result), kPageTail));
}

} // namespace lathe::cli
