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

#define GEN_PASS_DEF_NOTEPHASEPASS
#define GEN_PASS_REGISTRATION
#include "lathe/passes/Passes.h.inc"

namespace {

struct NotePhasePass : impl::NotePhasePassBase<NotePhasePass> {
  using NotePhasePassBase::NotePhasePassBase;
  void runOnOperation() override {
    getOperation()->setAttr(kPhaseAttr, StringAttr::get(&getContext(), phase.getValue()));
  }
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
    // First of all: nothing behind it knows an ONNX op. What has no lowering is reported at once.
    passes.addPass(createLegalizePass());
    // A dump may come from outside: what is left of onnx is an error here, not a crash further on.
    passes.addPass(createVerifyLegalizedPass());
    break;
  case Phase::Simplify:
    // Ahead of folding: the sizes that an entry binds make more constants.
    passes.addPass(createEntriesPass());
    // Ahead of all that looks for constants, which parameters are from here on.
    passes.addPass(createDeferParametersPass());
    // Ahead of donating: what stands between an input and the output that extends it may fold.
    passes.addPass(createSimplifyPass());
    // Ahead of dequantizing: codes are then of a type, and no longer parts of bytes.
    passes.addPass(createRecognizePackedCodesPass());
    // Behind folding, which leaves parameters as constants; the second round folds what no product
    // reads.
    passes.addPass(createRecognizeDequantizePass());
    // Behind folding, which leaves fewer spellings of a rotation.
    passes.addPass(createRecognizeRopePass());
    // Ahead of attention: its keys and values are then views of states.
    passes.addPass(createDonatePass());
    // Behind folding, which leaves one spelling of scales and transposes to recognise.
    passes.addPass(createRecognizeAttentionPass());
    // Behind attention: what hides keys becomes operands of it.
    passes.addPass(createRecognizeMasksPass());
    // Again: what attention took the place of leaves casts and reshapes behind.
    passes.addPass(createSimplifyPass());
    // Behind what raises: it proves what the others have, and refuses what they have not.
    passes.addPass(createPageStatesPass());
    // Last: what is moved is simple already.
    passes.addPass(createHoistParametersPass());
    break;
  case Phase::Quantize:
    // Runs when `lathe.options` asks for it.
    break;
  case Phase::Sparsify:
    // Behind folding: weights are now what products will read.
    passes.addPass(createFindZeroBlocksPass());
    break;
  case Phase::Shard:
    // One pass, which does nothing without a mesh: behind it types are those of what a rank has.
    passes.addPass(createShardPass());
    break;
  case Phase::Layout:
    // First: from here on, what is best depends on the target.
    passes.addPass(createSplitTargetsPass());
    // Ahead of what looks at products: some come of transforms.
    passes.addPass(createExpandTransformsPass());
    // Ahead of products: a convolution of pixels may become one.
    passes.addPass(createChannelsLastPass());
    // Ahead of the order of weights: merged weights are ordered once.
    passes.addPass(createMergeProductsPass());
    // Behind the others, which may change element type and order of what is multiplied: it settles both.
    passes.addPass(createQuantizedProductsPass());
    // Behind quantized products: weights that these multiply as they are have their order.
    passes.addPass(createOrderWeightsPass());
    // Behind the order of weights: it is known now which products read codes, whose blocks stay.
    passes.addPass(createExpandBlocksPass());
    // Again: what layout made of parameters.
    passes.addPass(createHoistParametersPass());
    break;
  case Phase::Fuse:
    // Ahead of the rest: where a recurrence becomes steps, they fuse like any other op.
    passes.addPass(createOutlineRecurrentPass());
    // Ahead of fusion, which reads pages where they lie by the gathers that name them.
    passes.addPass(createExpandPagesPass());
    // Reductions fuse with their neighbours; softmax and norms as a whole would not.
    passes.addPass(createDecomposeCompositesPass());
    // What two decompositions have in common is computed once.
    passes.addPass(createCSEPass());
    passes.addPass(createFusePass());
    // Behind fuse, which must not look into a kernel that the user wrote.
    passes.addPass(createOutlineCustomPass());
    // As soon as there are kernels: a result that goes to a state has no other place.
    passes.addPass(createPlaceStatesPass());
    // Behind states, for that reason.
    passes.addPass(createPlaceConcatsPass());
    // Behind states: the copies into them are small kernels too.
    passes.addPass(createHorizontalFusionPass());
    // Behind all that changes a kernel; select and code generation go by what it writes.
    passes.addPass(createAssignRolesPass());
    // Behind roles, which tell kernels apart: equal text, equal name.
    passes.addPass(createNameKernelsPass());
    // select takes what stands between kernels for granted.
    passes.addPass(createVerifyFusedPass());
    break;
  case Phase::Select:
    // One pass: a kernel's variants depend on nothing but the kernel, its target and the lock.
    passes.addPass(createSelectPass());
    break;
  case Phase::Plan:
    // Behind select, which says how each kernel reads its weights; entries get them as inputs.
    passes.addPass(createPackParametersPass());
    // Buffers need each variant's workspace and packing, so that all variants are known here.
    passes.addPass(createPlanPass());
    // Behind the order of steps, which it divides; ahead of streams, of which it gives steps theirs.
    passes.addPass(createOverlapCollectivesPass());
    // Behind the order of steps, which streams keep.
    passes.addPass(createStreamsPass());
    // Behind streams: what runs beside each other shares no memory.
    passes.addPass(createOffsetsPass());
    // Launches and kernels were paired by name; runtime does not look at kernels again.
    passes.addPass(createVerifyPlannedPass());
    break;
  case Phase::Codegen:
    // Kernels are now shared by layers and entries: each is written once.
    passes.addPass(createGenerateCodePass());
    break;
  }
  // A dump says where to go on from.
  passes.addPass(createNotePhasePass({std::string(toString(phase))}));
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
  registerPhasePasses();
  PassPipelineRegistration<PipelineOptions>(
      "lathe-pipeline", "The phases after `from` up to `to`",
      [](OpPassManager &passes, const PipelineOptions &options) {
        std::optional<Phase> from = parsePhase(options.from), to = parsePhase(options.to);
        if (from && to)
          buildPipeline(passes, *from, *to);
      });
}

} // namespace lathe
