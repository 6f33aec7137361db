//===- Pipelines.cpp - the recipe -----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which passes make up a phase, in order. Read it from top to bottom to know
// what the compiler does to a model after import.
//
//===----------------------------------------------------------------------===//
#include "Common.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace lathe {

namespace {

/// Notes that a phase has run.
struct NotePhasePass : ModulePass<NotePhasePass> {
  static constexpr llvm::StringLiteral kName = "lathe-note-phase";
  static constexpr llvm::StringLiteral kSummary = "Note in the module which phase ran last";
  NotePhasePass(Phase phase) : phase(phase) {}
  void runOnOperation() override {
    getOperation()->setAttr(kPhaseAttr, StringAttr::get(&getContext(), StringRef(toString(phase))));
  }
  Phase phase;
};

struct PipelineOptions : PassPipelineOptions<PipelineOptions> {
  Option<std::string> from{*this, "from", llvm::cl::desc("phase whose output is the input"),
                           llvm::cl::init("import")};
  Option<std::string> to{*this, "to", llvm::cl::desc("last phase"), llvm::cl::init("codegen")};
};

} // namespace

void addPhase(OpPassManager &passes, Phase phase) {
  switch (phase) {
  case Phase::Import:
  case Phase::Engine:
    return;
  case Phase::Legalize:
    // Each onnx op becomes lathe ops; whatever has no lowering is reported at once.
    passes.addPass(createLegalizePass());
    passes.addPass(createVerifyLegalizedPass());
    break;
  case Phase::Simplify:
    // Entries first: bound sizes make more constants.
    passes.addPass(createEntriesPass());
    passes.addPass(createSimplifyPass());
    // States before attention: its keys are then views of states.
    passes.addPass(createDonatePass());
    passes.addPass(createRecognizeAttentionPass());
    passes.addPass(createSimplifyPass());
    break;
  case Phase::Quantize:
  case Phase::Sparsify:
  case Phase::Shard:
    // Run when `lathe.options` asks for them.
    break;
  case Phase::Layout:
    passes.addPass(createSplitTargetsPass());
    passes.addPass(createChannelsLastPass());
    passes.addPass(createMergeProductsPass());
    passes.addPass(createNarrowProductsPass());
    break;
  case Phase::Fuse:
    passes.addPass(createOutlineRecurrentPass());
    passes.addPass(createDecomposeCompositesPass());
    passes.addPass(createCSEPass());
    passes.addPass(createFusePass());
    passes.addPass(createOutlineCustomPass());
    passes.addPass(createPlaceStatesPass());
    passes.addPass(createPlaceConcatsPass());
    passes.addPass(createStackKernelsPass());
    passes.addPass(createNameKernelsPass());
    passes.addPass(createVerifyFusedPass());
    break;
  case Phase::Select:
    passes.addPass(createSelectPass());
    break;
  case Phase::Plan:
    passes.addPass(createPlanPass());
    passes.addPass(createVerifyPlannedPass());
    break;
  case Phase::Codegen:
    passes.addPass(createGenerateCodePass());
    break;
  }
  passes.addPass(std::make_unique<NotePhasePass>(phase));
}

void buildPipeline(OpPassManager &passes, Phase from, Phase to) {
  for (std::optional<Phase> phase = next(from); phase && *phase <= to; phase = next(*phase))
    addPhase(passes, *phase);
}

Phase phaseOf(ModuleOp module) {
  if (auto name = module->getAttrOfType<StringAttr>(kPhaseAttr))
    if (auto phase = parsePhase(std::string_view(name.data(), name.size())))
      return *phase;
  return Phase::Import;
}

void registerLathePasses() {
  registerPass(createLegalizePass);
  registerPass(createEntriesPass);
  registerPass(createSimplifyPass);
  registerPass(createRecognizeAttentionPass);
  registerPass(createDonatePass);
  registerPass(createSplitTargetsPass);
  registerPass(createChannelsLastPass);
  registerPass(createMergeProductsPass);
  registerPass(createNarrowProductsPass);
  registerPass(createDecomposeCompositesPass);
  registerPass(createFusePass);
  registerPass(createOutlineCustomPass);
  registerPass(createOutlineRecurrentPass);
  registerPass(createPlaceStatesPass);
  registerPass(createPlaceConcatsPass);
  registerPass(createStackKernelsPass);
  registerPass(createNameKernelsPass);
  registerPass(createSelectPass);
  registerPass(createPlanPass);
  registerPass(createGenerateCodePass);
  registerPass(createVerifyLegalizedPass);
  registerPass(createVerifyFusedPass);
  registerPass(createVerifyPlannedPass);
  PassPipelineRegistration<PipelineOptions>(
      "lathe-pipeline", "The phases after `from` up to `to`",
      [](OpPassManager &passes, const PipelineOptions &options) {
        std::optional<Phase> from = parsePhase(options.from), to = parsePhase(options.to);
        if (from && to)
          buildPipeline(passes, *from, *to);
      });
}

} // namespace lathe
