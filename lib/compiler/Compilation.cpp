//===- Compilation.cpp - one model on its way through the phases ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/compiler/Compilation.h"

#include "Diagnostics.h"
#include "DumpMemory.h"
#include "PlanFromIR.h"
#include "Remarks.h"
#include "VariantNames.h"

#include "lathe/codegen/Target.h"
#include "lathe/import/Import.h"
#include "lathe/import/TensorFile.h"
#include "lathe/ir/Collective.h"
#include "lathe/ir/Exec.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/Register.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/passes/Legalize.h"
#include "lathe/passes/Passes.h"
#include "lathe/support/Files.h"
#include "lathe/support/Npy.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/JSON.h"

#include <filesystem>
#include <set>

using namespace mlir;
namespace fs = std::filesystem;

namespace lathe {
namespace {

bool isText(const std::string &path) { return llvm::StringRef(path).ends_with(".mlir"); }

std::string baseName(const std::string &path) { return fs::path(path).filename().string(); }

/// "KERNEL=FILE" pairs as a dictionary of texts.
Result<DictionaryAttr> readReplacements(MLIRContext *context,
                                        const std::vector<std::string> &pairs) {
  SmallVector<NamedAttribute> texts;
  for (const std::string &pair : pairs) {
    auto [kernel, file] = llvm::StringRef(pair).split('=');
    if (kernel.empty() || file.empty())
      return usageError("wants KERNEL=FILE.cu, not '" + pair + "'", "--replace");
    Result<std::string> text = readFile(file.str());
    if (!text)
      return text.status();
    texts.emplace_back(StringAttr::get(context, kernel), StringAttr::get(context, *text));
  }
  return DictionaryAttr::get(context, texts);
}

/// Every weight that the text names must be in the archive, with the bytes of its hash.
Status checkWeights(ModuleOp module, WeightStore &store) {
  Status status;
  llvm::DenseSet<Attribute> seen;
  AttrTypeWalker walker;
  walker.addWalk([&](WeightAttr weight) {
    if (status.ok() && seen.insert(weight).second)
      status = store.adopt(weight);
  });
  module->walk([&](Operation *op) { walker.walk(op->getAttrDictionary()); });
  return status;
}

} // namespace

const std::string &torchOperators() { return atenOperators(); }

Compilation::Compilation(const CompileOptions &options) : options(options) {
  DialectRegistry registry;
  registerDialects(registry);
  // Kernels are compiled in parallel by the code generators; passes are not, so that
  // their messages and names come in one order.
  mlirContext = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  mlirContext->printOpOnDiagnostic(false);
  if (!options.remarksFile.empty())
    remarks = RemarkLog::attach(*mlirContext);
}

Compilation::~Compilation() = default;

Phase Compilation::phase() const { return phaseOf(const_cast<OwningOpRef<ModuleOp> &>(top).get()); }

Result<std::unique_ptr<Compilation>> Compilation::open(const std::string &model,
                                                       const CompileOptions &options) {
  std::error_code error;
  if (!options.graph) {
    if (!fs::exists(model, error))
      return usageError("no such file", model);
    if (fs::is_directory(model, error))
      return usageError("is a folder, not a model", model);
    if (isEngineFile(model))
      return usageError("is an engine, which is compiled already", model);
  }
  std::unique_ptr<Compilation> self(new Compilation(options));
  if (options.onPhase)
    options.onPhase(Phase::Import);
  if (!options.graph && isText(model)) {
    LATHE_RETURN_IF_ERROR(self->parseText(model));
  } else {
    Result<ImportOptions> importOptions = self->importOptions();
    if (!importOptions)
      return importOptions.status();
    DiagnosticLog log(self->mlirContext.get());
    Result<OwningOpRef<ModuleOp>> imported =
        options.graph ? importGraph(*self->mlirContext, *options.graph, *importOptions)
                      : importOnnx(*self->mlirContext, model, *importOptions);
    self->warningTexts = log.warnings();
    if (!imported)
      return imported.status();
    self->top = std::move(*imported);
    (*self->top)->setAttr(kPhaseAttr, StringAttr::get(self->mlirContext.get(), "import"));
  }
  LATHE_RETURN_IF_ERROR(self->setOptions());
  if (!options.dumpDir.empty()) {
    fs::create_directories(options.dumpDir, error);
    if (error)
      return runtimeError("the folder cannot be made: " + error.message(), options.dumpDir);
    LATHE_RETURN_IF_ERROR(self->dump());
  }
  return self;
}

Status Compilation::parseText(const std::string &path) {
  fromText = true;
  Result<std::string> content = readFile(path);
  if (!content)
    return content.status();
  mlirContext->loadAllAvailableDialects();
  auto &store = mlirContext->getOrLoadDialect<LatheDialect>()->weights();
  DiagnosticLog log(mlirContext.get());
  // The name without its folder: locations must not depend on where the file is.
  top = parseSourceString<ModuleOp>(*content, ParserConfig(mlirContext.get()), baseName(path));
  if (!top)
    return log.status(ErrorCode::Invalid, "parsing");
  if (auto name = (*top)->getAttrOfType<StringAttr>(kPhaseAttr);
      name && !parsePhase(std::string_view(name.getValue())))
    return invalidError("there is no phase '" + name.str() + "'", baseName(path));
  std::string archive = (fs::path(path).parent_path() / "weights.bin").string();
  std::error_code error;
  if (fs::exists(archive, error))
    LATHE_RETURN_IF_ERROR(store.open(archive));
  LATHE_RETURN_IF_ERROR(checkWeights(*top, store));
  if (!options.constants.empty())
    return usageError("inputs become constants when an ONNX file is imported", "--const");
  if (!options.dims.empty() || !options.shapes.empty()) {
    if (phase() != Phase::Import)
      return usageError("dimensions are bound on import; this text is of phase '" +
                            std::string(toString(phase())) + "'",
                        "--dim");
    Result<ImportOptions> bounds = importOptions();
    return bounds ? bindDims(*top, *bounds) : bounds.status();
  }
  return okStatus();
}

Result<ImportOptions> Compilation::importOptions() const {
  ImportOptions result;
  for (const std::string &dim : options.dims)
    LATHE_RETURN_IF_ERROR(parseDimOption(dim, result));
  for (const std::string &shape : options.shapes)
    LATHE_RETURN_IF_ERROR(parseShapeOption(shape, result));
  result.randomWeights = options.randomWeights;
  for (const std::string &text : options.constants) {
    auto [name, file] = llvm::StringRef(text).split('=');
    if (name.empty() || file.empty())
      return usageError("wants INPUT=FILE.npy or FILE.pb, not '" + text + "'", "--const");
    if (file.ends_with(".npy")) {
      Result<HostTensor> tensor = readNpy(file.str());
      if (!tensor)
        return tensor.status();
      result.constants[name.str()] = std::move(*tensor);
    } else {
      Result<NamedTensor> tensor = readTensorProto(file.str());
      if (!tensor)
        return tensor.status();
      result.constants[name.str()] = std::move(tensor->tensor);
    }
  }
  return result;
}

std::vector<std::string> Compilation::inputNames() {
  std::vector<std::string> names;
  auto main = (*top).lookupSymbol<func::FuncOp>("main");
  for (ModuleOp target : (*top).getOps<ModuleOp>()) // from layout on
    if (!main)
      main = target.lookupSymbol<func::FuncOp>("main");
  if (main)
    for (unsigned i = 0; i < main.getNumArguments(); ++i) {
      auto name = main.getArgAttrOfType<StringAttr>(i, "lathe.name");
      names.push_back(name ? name.str() : "");
    }
  return names;
}

std::vector<std::string> Compilation::neededConstants() {
  std::set<std::string> names;
  auto report = (*top)->getAttrOfType<StringAttr>("lathe.unsupported");
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(report ? report.getValue() : "[]");
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return {};
  }
  if (const llvm::json::Array *nodes = parsed->getAsArray())
    for (const llvm::json::Value &node : *nodes)
      if (const llvm::json::Array *needs = node.getAsObject()->getArray("needs"))
        for (const llvm::json::Value &need : *needs)
          if (std::optional<llvm::StringRef> name = need.getAsString())
            names.insert(name->str());
  return {names.begin(), names.end()};
}

/// --batch-invariant is of a step whose kernels select chooses.
static Status checkBatchInvariant(const CompileOptions &options) {
  constexpr const char *kOption = "--batch-invariant";
  if (!options.paged)
    return usageError("is of the engines that --paged makes", kOption);
  if (!options.configs.empty() || !options.lock.empty())
    return usageError("does not go with --config or --lock, whose kernels may sum in another order", kOption);
  return okStatus();
}

Status Compilation::setOptions() {
  OpBuilder b(mlirContext.get());
  NamedAttrList attrs;
  auto old = (*top)->getAttrOfType<DictionaryAttr>(kOptionsAttr);
  if (old)
    attrs.append(old.getValue());
  bool early = phase() == Phase::Import;
  auto set = [&](const char *key, const char *option, const std::vector<std::string> &values) {
    if (values.empty() && old)
      return okStatus();
    if (old && !early)
      return usageError("was decided when the text was made, which is of phase '" +
                            std::string(toString(phase())) + "'",
                        option);
    attrs.set(key, b.getStrArrayAttr(llvm::to_vector_of<StringRef>(values)));
    return okStatus();
  };
  std::vector<std::string> names;
  if (!options.targets.empty() || !old) {
    std::string list = llvm::join(options.targets, ",");
    Result<std::vector<Target>> targets = Target::parseList(list.empty() ? "native" : list);
    if (!targets)
      return targets.status();
    for (const Target &target : *targets)
      names.push_back(target.name);
  }
  LATHE_RETURN_IF_ERROR(set("targets", "--target", names));
  LATHE_RETURN_IF_ERROR(set("entries", "--entry", options.entries));
  LATHE_RETURN_IF_ERROR(set("donate", "--donate", options.donate));
  if (!options.parameters.empty())
    LATHE_RETURN_IF_ERROR(set("parameters", "--parameter", options.parameters));
  if (options.batchInvariant)
    LATHE_RETURN_IF_ERROR(checkBatchInvariant(options));
  if (!options.kvCodes.empty() && !options.paged)
    return usageError("is of the engines that --paged makes", "--kv");
  if (!options.kvWindow.empty() && !options.paged)
    return usageError("is of the engines that --paged makes", "--kv-window");
  if (options.paged) {
    std::vector<std::string> how{std::to_string(kPageTokens)};
    if (options.batchInvariant)
      how.push_back("batch-invariant");
    if (!options.kvCodes.empty())
      how.push_back("kv=" + options.kvCodes);
    if (!options.kvWindow.empty())
      how.push_back("kv-window=" + options.kvWindow);
    LATHE_RETURN_IF_ERROR(set(kPagedOption, "--paged", how));
  }
  if (!options.winogradTolerance.empty())
    LATHE_RETURN_IF_ERROR(
        set(kWinogradToleranceOption, "--winograd-tolerance", {options.winogradTolerance}));
  if (!options.sparseWeights.empty())
    LATHE_RETURN_IF_ERROR(set(kSparseWeightsOption, "--sparse-weights", {options.sparseWeights}));
  if (options.streams)
    LATHE_RETURN_IF_ERROR(set(kStreamsOption, "--streams", {std::to_string(options.streams)}));
  if (!options.shard.empty() && options.mesh.empty() && !(old && old.contains(kMeshOption)))
    return usageError("is of the ranks that --mesh makes", "--shard");
  if (options.rankMemory && options.mesh.empty() && !(old && old.contains(kMeshOption)))
    return usageError("is of the ranks that --mesh makes", "--rank-memory");
  if (options.rankMemory)
    LATHE_RETURN_IF_ERROR(set(kRankMemoryOption, "--rank-memory", {std::to_string(options.rankMemory)}));
  if (!options.mesh.empty())
    LATHE_RETURN_IF_ERROR(set(kMeshOption, "--mesh", options.mesh));
  if (!options.shard.empty())
    LATHE_RETURN_IF_ERROR(set(kShardOption, "--shard", options.shard));
  if (!options.allow.empty())
    LATHE_RETURN_IF_ERROR(set("allow", "--allow", options.allow));
  if (options.randomWeights)
    LATHE_RETURN_IF_ERROR(
        set("random-weights", "--random-weights", {std::to_string(*options.randomWeights)}));
  if (!options.configs.empty()) {
    if (phase() >= Phase::Select)
      return usageError("kernels of this text have variants already", "--config");
    NamedAttrList configs;
    for (const std::string &pair : options.configs) {
      size_t at = pair.find('=');
      configs.set(pair.substr(0, at), b.getStringAttr(pair.substr(at + 1)));
    }
    attrs.set("configs", configs.getDictionary(mlirContext.get()));
  }
  if (!options.replace.empty()) {
    if (phase() >= Phase::Codegen)
      return usageError("kernels of this text have code already", "--replace");
    Result<DictionaryAttr> texts = readReplacements(mlirContext.get(), options.replace);
    if (!texts)
      return texts.status();
    attrs.set(kReplaceOption, *texts);
  }
  (*top)->setAttr(kOptionsAttr, attrs.getDictionary(mlirContext.get()));
  return okStatus();
}

Status Compilation::runOne(Phase next) {
  if (options.onPhase)
    options.onPhase(next);
  if (remarks)
    remarks->setPhase(next);
  DiagnosticLog log(mlirContext.get());
  PassManager passes(mlirContext.get(), ModuleOp::getOperationName());
  // Verified here, so that a module that a pass broke is told from one that a pass refused.
  passes.enableVerifier(false);
  addPhase(passes, next);
  bool worked = succeeded(passes.run(*top));
  std::string name(toString(next));
  warningTexts.insert(warningTexts.end(), log.warnings().begin(), log.warnings().end());
  if (!worked) {
    if (auto report = (*top)->getAttrOfType<StringAttr>("lathe.unsupported");
        report && !options.dumpDir.empty())
      LATHE_RETURN_IF_ERROR(writeFileAtomically(
          (fs::path(options.dumpDir) / "unsupported.json").string(), report.getValue()));
    return log.status(legalizeError(*top), "phase " + name);
  }
  if (failed(verify(*top))) {
    Status why = log.status(ErrorCode::Internal, "verifying");
    return internalError("phase " + name + " left a module that does not verify: " + why.message(),
                         why.location());
  }
  (*top)->setAttr(kPhaseAttr, StringAttr::get(mlirContext.get(), name));
  return options.dumpDir.empty() ? okStatus() : dump();
}

Status Compilation::runTo(Phase last) {
  Status status;
  while (status.ok() && phase() < last)
    status = runOne(*next(phase()));
  // Remarks and weights of a compilation that failed are wanted more than any others.
  if (remarks)
    if (Status written = writeFileAtomically(options.remarksFile, remarks->json()); status.ok())
      status = written;
  if (!options.dumpDir.empty())
    if (Status written = writeWeights((fs::path(options.dumpDir) / "weights.bin").string());
        status.ok())
      status = written;
  return status;
}

Result<engine::EngineWriter> Compilation::engine() {
  if (phase() != Phase::Codegen)
    return internalError("an engine is made of a module of phase codegen");
  if (options.onPhase)
    options.onPhase(Phase::Engine);
  if (remarks)
    remarks->setPhase(Phase::Engine);
  DiagnosticLog log(mlirContext.get());
  std::map<std::string, std::string> files;
  for (const std::string &pair : options.replace) {
    size_t at = pair.find('=');
    files[pair.substr(0, at)] = pair.substr(at + 1);
  }
  Result<engine::EngineWriter> writer = emitEngine(*top, files);
  warningTexts.insert(warningTexts.end(), log.warnings().begin(), log.warnings().end());
  if (remarks && writer.ok())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.remarksFile, remarks->json()));
  return writer;
}

std::string Compilation::text() {
  std::string out;
  llvm::raw_string_ostream os(out);
  OpPrintingFlags flags;
  flags.enableDebugInfo(true, false);
  (*top)->print(os, flags);
  os << "\n";
  return out;
}

Status Compilation::writeWeights(const std::string &path) {
  return mlirContext->getOrLoadDialect<LatheDialect>()->weights().write(path);
}

static bool isCuda(StringAttr name) {
  Result<Target> target = name ? Target::parse(std::string_view(name.getValue())) : Target();
  return target && target->isCuda();
}

/// The text of the present phase; after codegen, also the source of each kernel.
Status Compilation::dump() {
  char number[4];
  std::snprintf(number, sizeof number, "%02d", int(phase()) + 1);
  fs::path folder = options.dumpDir;
  LATHE_RETURN_IF_ERROR(writeFileAtomically(
      (folder / (std::string(number) + "-" + std::string(toString(phase())) + ".mlir")).string(),
      text()));
  Status status;
  if (phase() == Phase::Plan) {
    std::error_code error;
    fs::create_directories(folder / "memory", error);
    (*top)->walk([&](exec::ProgramOp program) {
      auto target = program->getParentOfType<ModuleOp>()->getAttrOfType<StringAttr>(kTargetAttr);
      std::string name = target ? target.str() + "." : "";
      Result<std::string> csv = memoryProblem(program, isCuda(target) ? 256 : 64);
      fs::path file = folder / "memory" / (name + program.getSymName().str() + ".csv");
      if (status.ok())
        status = csv ? writeFileAtomically(file.string(), *csv) : csv.status();
    });
  }
  if (phase() != Phase::Codegen)
    return status;
  (*top)->walk([&](exec::KernelOp kernel) {
    auto module = kernel->getParentOfType<ModuleOp>();
    auto target = module->getAttrOfType<StringAttr>(kTargetAttr);
    fs::path place = folder / "kernels" / (target ? target.str() : "");
    std::error_code error;
    fs::create_directories(place, error);
    for (auto [i, variant] : llvm::enumerate(kernel.getVariants())) {
      StringAttr source = sourceOf(variant);
      if (!source || !status.ok())
        continue;
      std::string file = kernel.getSymName().str();
      if (kernel.getVariants().size() > 1)
        file += "." + std::to_string(i);
      status = writeFileAtomically((place / (file + (isCuda(target) ? ".cu" : ".ll"))).string(),
                                   source.getValue());
    }
  });
  return status;
}

} // namespace lathe
