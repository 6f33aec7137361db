//===- EmitEngine.cpp - a module of phase codegen as an engine file -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles the source of every kernel, several at once, with the results kept in
// the cache; links or packs them per target; writes plans, weights, sources. The
// bytes depend on the module alone.
//
//===----------------------------------------------------------------------===//
#include "EngineCache.h"
#include "PlanFromIR.h"
#include "SampleKernels.h"
#include "VariantNames.h"

#include "lathe/codegen/Codegen.h"
#include "lathe/codegen/CollectiveKernels.h"
#include "lathe/codegen/DeviceLibrary.h"
#include "lathe/codegen/Nvrtc.h"
#include "lathe/compiler/Compilation.h"
#include "lathe/engine/CollectiveAbi.h"
#include "lathe/engine/Llm.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/passes/Passes.h"
#include "lathe/support/Files.h"
#include "lathe/support/Parallel.h"
#include "lathe/support/Sha256.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Remarks.h"

#include <filesystem>
#include <set>

using namespace mlir;

namespace lathe {
namespace {

struct Source {
  std::string name, text;
  exec::KernelOp kernel = {}; ///< none: of no kernel of the program
  size_t variant = 0;
  int64_t id = 0; ///< KernelSource::stepId
  std::string writtenIn = {}; ///< the file of a person who wrote the text; empty: it is generated
};

Result<std::vector<Source>> sourcesOf(ModuleOp module) {
  std::vector<Source> sources;
  for (auto [id, kernel] : llvm::enumerate(module.getOps<exec::KernelOp>()))
    for (auto [i, attr] : llvm::enumerate(kernel.getVariants())) {
      StringAttr text = sourceOf(attr);
      if (!text)
        return internalError("kernel " + kernel.getSymName().str() + " has no source");
      sources.push_back({variantName(kernel, i), text.str(), kernel, i, int64_t(id)});
    }
  return sources;
}

/// Says of each text that a person gave where it was read.
void nameWriters(ModuleOp top, const std::map<std::string, std::string> &files,
                 std::vector<Source> &sources) {
  auto options = top->getAttrOfType<DictionaryAttr>(kOptionsAttr);
  auto texts = options ? options.getAs<DictionaryAttr>(kReplaceOption) : DictionaryAttr();
  for (Source &source : sources) {
    auto given = texts ? replacementOf(texts, source.kernel, source.variant) : std::nullopt;
    if (given) {
      auto file = files.find(given->getName().str());
      source.writtenIn = file == files.end() ? given->getName().str() + ".cu" : file->second;
    } else if (!source.kernel.getBody().front().getOps<CustomCallOp>().empty()) {
      source.writtenIn = source.name + ".cu";
    }
  }
}

std::string digestOf(std::string_view content) {
  Sha256 sum;
  sum.update(content);
  return sum.hex();
}

/// What lies behind its own digest in a file of the cache, if the file is whole.
std::optional<std::string> unsealed(const std::string &file) {
  constexpr size_t kDigest = 64;
  if (file.size() < kDigest)
    return std::nullopt;
  std::string content = file.substr(kDigest);
  return file.starts_with(digestOf(content)) ? std::optional(content) : std::nullopt;
}

/// The object of one text, from the cache where it is there.
Result<std::string> compileCached(const Source &source, const Target &target) {
  std::string directory = nvrtc::cacheDirectory();
  std::string path;
  if (!directory.empty() && !compilerBuild().empty()) {
    // The same text becomes another object when the lowering changes, or LLVM, which is
    // linked in.
    Sha256 key;
    key.field("cpu object");
    key.field(compilerBuild());
    key.field(target.level()); // its facts are in the text, as far as they matter
    key.field(source.text);
    std::string name = key.hex();
    directory += "/object/" + name.substr(0, 2);
    path = directory + "/" + name + ".o";
    if (std::filesystem::exists(path))
      if (auto found = readFile(path); found.ok())
        if (std::optional<std::string> object = unsealed(*found))
          return *object;
  }
  auto object = codegen::compileLLVMText(source.text, target);
  if (object.ok() && !path.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(directory, ignored);
    // A cache that cannot be written only costs time.
    (void)writeFileAtomically(path, digestOf(*object) + *object, FileSync::None);
  }
  return object;
}

Status addCpuKernels(const std::vector<Source> &sources, const Target &target,
                     engine::EngineWriter &writer) {
  std::vector<std::optional<Result<std::string>>> results(sources.size());
  inParallel(sources.size(), [&](size_t i) { results[i] = compileCached(sources[i], target); });
  std::vector<std::string> objects;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!results[i]->ok())
      return {results[i]->status().code(),
              "compiling for " + target.name + ": " + results[i]->status().message(),
              "kernel " + sources[i].name};
    objects.push_back(std::move(**results[i]));
  }
  auto image = codegen::linkImage(objects);
  if (!image.ok())
    return image.status();
  return writer.addKernels(target.name, std::move(*image));
}

nvrtc::CompileJob jobOf(const Source &source, const Target &target) {
  return {source.name + ".cu", source.text, target.name,
          source.writtenIn, {}, /*tolerateFindings=*/true};
}

/// What a person wrote must have the functions that the plan launches.
Status checkFunctions(Source &source, const nvrtc::Cubin &cubin) {
  if (source.writtenIn.empty())
    return okStatus();
  Result<KernelVariant> variant = parseVariant(source.kernel.getVariants()[source.variant]);
  if (!variant.ok())
    return variant.status();
  for (const LaunchSpec &launch : variant->spec.launches)
    if (llvm::none_of(cubin.report.kernels, [&](const nvrtc::KernelResources &k) {
          return k.name == launch.function;
        }))
      return usageError("has no kernel function '" + launch.function +
                            "' (extern \"C\" __global__), which is launched for " + source.name,
                        source.writtenIn);
  return okStatus();
}

/// Puts the first of a variant's other specs that ptxas finds nothing wrong with in its place.
/// Nothing where there is none.
std::optional<nvrtc::Cubin> takeOther(Source &source, const nvrtc::Finding &finding,
                                      const Target &target, const nvrtc::Compiler &compiler) {
  if (!source.kernel)
    return std::nullopt;
  auto variants = llvm::to_vector(source.kernel.getVariants());
  Result<KernelVariant> variant = parseVariant(variants[source.variant]);
  if (!variant.ok())
    return std::nullopt;
  for (const KernelSpec &spec : variant->otherwise) {
    RolesAttr roles = source.kernel.getRolesAttr();
    FailureOr<std::string> code =
        codegen::cudaText({source.kernel.getSymName(), &source.kernel.getBody().front(), &spec,
                           &target, source.id, roles ? roles.getRoles() : KernelRoles()});
    if (failed(code))
      continue;
    Source other = source;
    other.text = *code;
    Result<nvrtc::Cubin> cubin = compiler.compile(jobOf(other, target));
    if (!cubin.ok() || !cubin->report.findings.empty())
      continue;
    remark::passed(source.kernel.getLoc(), remark::RemarkOpts::name("Otherwise").category("lathe"))
        << (source.name + ": " + spec.config + " instead of " + variant->spec.config + ", " +
            toString(finding.kind) + ": " + finding.text);
    MLIRContext *context = source.kernel.getContext();
    variants[source.variant] = withSource(attrOf(context, {variant->guard, spec}), other.text);
    source.kernel.setVariantsAttr(ArrayAttr::get(context, variants));
    source.text = std::move(other.text);
    return std::move(*cubin);
  }
  return std::nullopt;
}

/// What ptxas finds costs speed, never the result: another configuration where there is one that is
/// better off, else a warning, so that a model whose kernel spills still gets its engine.
Status addCudaKernels(ModuleOp variant, std::vector<Source> &sources, const Target &target,
                      engine::EngineWriter &writer) {
  auto compiler = nvrtc::Compiler::open();
  if (!compiler.ok())
    return compiler.status();
  std::vector<nvrtc::CompileJob> jobs;
  for (const Source &source : sources)
    jobs.push_back(jobOf(source, target));
  std::map<std::string, std::string> cubins;
  std::vector<Result<nvrtc::Cubin>> results = (*compiler)->compileAll(jobs);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!results[i].ok())
      return results[i].status();
    LATHE_RETURN_IF_ERROR(checkFunctions(sources[i], *results[i]));
    if (!results[i]->report.findings.empty())
      if (auto other = takeOther(sources[i], results[i]->report.findings.front(), target, **compiler))
        results[i] = std::move(*other);
    for (const nvrtc::Finding &finding : results[i]->report.findings)
      emitWarning(variant.getLoc()) << "kernel " << sources[i].name << " for " << target.name
                                    << " may be slow, " << toString(finding.kind) << ": "
                                    << finding.text;
    cubins[sources[i].name] = std::move(results[i]->image);
  }
  return writer.addKernels(target.name, engine::packArchive(cubins));
}

/// Whether the program has weights that are made on the device.
bool hasRandomWeights(ModuleOp variant) {
  bool found = false;
  AttrTypeWalker walker;
  walker.addWalk([&](WeightAttr weight) { found |= WeightStore::spreadOf(weight).has_value(); });
  variant.walk([&](exec::BufferOp buffer) {
    if (buffer.getValue())
      walker.walk(*buffer.getValue());
  });
  return found;
}

/// The kernels of the collectives of all programs, an image for each reduction and type.
Status addCollectives(ModuleOp variant, const Target &target, std::vector<Source> &sources) {
  Status status;
  std::set<std::string> known;
  variant.walk([&](exec::CollectiveOp op) {
    engine::CollectiveStep step;
    step.name = op.getName().str();
    step.reduction = static_cast<engine::Reduction>(op.getKind());
    const DType dtype = *dtypeOf(cast<ShapedType>(op.getInput().getType()).getElementType());
    std::string image = engine::collectiveImage(step, dtype);
    if (!known.insert(image).second)
      return;
    const bool gathers = step.name == "all_gather"; // by the image of any type
    const char *const reductions[] = {"sum", "prod", "max", "min"};
    std::string text = collectiveKernelText(meshRanks(variant), reductions[gathers ? 0 : int(step.reduction)],
                                            gathers ? DType::F32 : dtype, target.hasClusters());
    if (text.empty() && status.ok())
      status = unsupportedError("no " + step.name + " of " + std::string(name(dtype)) + " by this reduction on GPUs",
                                "node " + llvm::join(nodeNames(op.getLoc()), ", "));
    sources.push_back({image, std::move(text)});
  });
  return status;
}

/// Of the logits of a paged decoder's step.
DType logitType(ModuleOp variant) {
  DType found = DType::F64;
  variant.walk([&](exec::OutputOp output) {
    if (output.getName() == "logits")
      found = dtypeOf(cast<ShapedType>(output.getBuffer().getType()).getElementType()).value_or(found);
  });
  return found;
}

std::string optionsJson(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "{\"compiler\": \"" << compilerVersion() << "\"";
  if (auto options = module->getAttrOfType<DictionaryAttr>(kOptionsAttr))
    for (NamedAttribute entry : options)
      if (auto list = dyn_cast<ArrayAttr>(entry.getValue())) {
        stream << ", \"" << entry.getName().getValue() << "\": [";
        llvm::interleaveComma(list, stream, [&](Attribute item) {
          stream << '"';
          if (auto string = dyn_cast<StringAttr>(item))
            llvm::printEscapedString(string.getValue(), stream);
          stream << '"';
        });
        stream << "]";
      }
  stream << "}";
  return text;
}

/// What page-states wrote down of a decoder.
Result<engine::LlmInfo> llmInfo(DictionaryAttr facts) {
  engine::LlmInfo info;
  auto number = [](DictionaryAttr of, StringRef name) {
    auto value = of.getAs<IntegerAttr>(name);
    return value ? value.getInt() : 0;
  };
  auto texts = [&](StringRef name, std::vector<std::string> &into) {
    for (Attribute text : facts.getAs<ArrayAttr>(name) ? facts.getAs<ArrayAttr>(name) : ArrayAttr::get(facts.getContext(), {}))
      if (auto string = dyn_cast<StringAttr>(text))
        into.push_back(string.str());
  };
  auto dtype = facts.getAs<StringAttr>("dtype");
  std::optional<DType> type = dtype ? parseDType(std::string_view(dtype.getValue())) : std::nullopt;
  engine::KvGroup group;
  group.layout.dtype = type.value_or(DType::F32);
  group.layout.blockTokens = uint32_t(number(facts, "page_tokens"));
  group.layout.heads = uint32_t(number(facts, "heads"));
  group.layout.headSizeK = group.layout.headSizeV = uint32_t(number(facts, "head_size"));
  if (facts.contains("scales")) { // lathe.kv_append's
    group.layout.scales = engine::KvScales::HeadToken;
    group.layout.scaleDType = DType::F32;
  }
  group.layout.order = engine::KvOrder::TokenHeadDim;
  group.layout.alignment = engine::kPoolAlignment;
  if (auto groups = facts.getAs<ArrayAttr>("groups"))
    for (DictionaryAttr of : groups.getAsRange<DictionaryAttr>()) {
      group.layers = uint32_t(number(of, "layers"));
      group.window = uint32_t(number(of, "window"));
      group.sinks = uint32_t(number(of, "sinks"));
      group.kind = group.window ? engine::KvGroupKind::Window : engine::KvGroupKind::Full;
      info.groups.push_back(group);
    }
  info.entry = "step";
  info.vocabulary = uint32_t(number(facts, "vocabulary"));
  info.batchInvariant = facts.contains("batch_invariant");
  texts("proofs", info.proofs);
  texts("assumptions", info.assumptions);
  if (Status valid = engine::validate(info.groups); !type || !valid.ok())
    return unsupportedError("keys and values cannot lie in pages: " + (type ? valid.message() : "of no known type"));
  return info;
}

} // namespace

Result<engine::EngineWriter> emitEngine(ModuleOp module,
                                        const std::map<std::string, std::string> &files) {
  engine::EngineWriter writer(compilerVersion());
  auto &weights = module.getContext()->getOrLoadDialect<LatheDialect>()->weights();
  for (ModuleOp variant : module.getOps<ModuleOp>()) {
    auto name = variant->getAttrOfType<StringAttr>(kTargetAttr);
    if (!name)
      return internalError("a nested module without a target");
    auto target = Target::parse(std::string_view(name.getValue()));
    if (!target.ok())
      return target.status();
    auto sources = sourcesOf(variant);
    if (!sources.ok())
      return sources.status();
    if (target->isCuda())
      nameWriters(module, files, *sources);
    if (target->isCuda() && hasRandomWeights(variant))
      sources->push_back({engine::kRandomKernel, devicePrelude({"random"})});
    if (target->isCuda())
      LATHE_RETURN_IF_ERROR(addCollectives(variant, *target, *sources));
    if (target->isCuda() && module->hasAttr(kLlmAttr))
      if (std::string text = sampleKernelText(logitType(variant), *target); !text.empty())
        sources->push_back({sampleKernelName(*target), std::move(text)});
    if (!sources->empty())
      LATHE_RETURN_IF_ERROR(target->isCuda() ? addCudaKernels(variant, *sources, *target, writer)
                                             : addCpuKernels(*sources, *target, writer));
    std::map<std::string, std::string> texts;
    for (const Source &source : *sources)
      texts[source.name] = source.text;
    LATHE_RETURN_IF_ERROR(writer.addDebug("sources", target->name, engine::packArchive(texts)));
    for (exec::ProgramOp program : variant.getOps<exec::ProgramOp>()) {
      auto plan = planFromIR(program, *target, weights, writer);
      if (!plan.ok())
        return plan.status();
      LATHE_RETURN_IF_ERROR(writer.addPlan(*plan));
    }
  }
  if (auto facts = module->getAttrOfType<DictionaryAttr>(kLlmAttr)) {
    Result<engine::LlmInfo> info = llmInfo(facts);
    if (!info.ok())
      return info.status();
    LATHE_RETURN_IF_ERROR(writer.addLlm(engine::packLlm(*info)));
  }
  LATHE_RETURN_IF_ERROR(writer.addMetadata("options", optionsJson(module)));
  return writer;
}

} // namespace lathe
