//===- Passes.h - the passes and the recipe ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All passes run on the top module. Everything that changes the result is an
// attribute of that module: `lathe.options`, a dictionary with
//   targets = ["x86-64-v4", "sm_90a"]   canonical names, in order
//   entries = ["prefill:P=0", "decode:S=1"]   named entries with bound dimensions
//   donate  = ["k0=pk0"]                inputs that become outputs: states, or one memory
//   allow   = ["tf32"]                what may be less exact: tf32, reduced-sums
//   configs = {kernel = "gemm.pingpong..."}   configurations that were asked for
//   replace = {kernel = "text"}         CUDA texts that take the place of generated ones
// From layout on, the module holds one nested module a target, named after it,
// with the attribute `lathe.target`.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_PASSES_H
#define LATHE_PASSES_PASSES_H

#include "lathe/compiler/Phase.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace mlir {
class OpPassManager;
}

namespace lathe {

inline constexpr const char *kOptionsAttr = "lathe.options";
/// In these options: a list of one text, the number of --winograd-tolerance.
inline constexpr const char *kWinogradToleranceOption = "winograd_tolerance";
inline constexpr const char *kTargetAttr = "lathe.target";
inline constexpr const char *kPhaseAttr = "lathe.phase";

// legalize
std::unique_ptr<mlir::Pass> createLegalizePass();
// simplify
std::unique_ptr<mlir::Pass> createEntriesPass();
std::unique_ptr<mlir::Pass> createSimplifyPass();
std::unique_ptr<mlir::Pass> createFoldConstantsPass();
std::unique_ptr<mlir::Pass> createRecognizeAttentionPass();
std::unique_ptr<mlir::Pass> createDonatePass();
// layout
std::unique_ptr<mlir::Pass> createSplitTargetsPass();
std::unique_ptr<mlir::Pass> createChannelsLastPass();
std::unique_ptr<mlir::Pass> createMergeProductsPass();
std::unique_ptr<mlir::Pass> createNarrowProductsPass();
// fuse
std::unique_ptr<mlir::Pass> createDecomposeCompositesPass();
std::unique_ptr<mlir::Pass> createFusePass();
std::unique_ptr<mlir::Pass> createOutlineCustomPass();
std::unique_ptr<mlir::Pass> createOutlineRecurrentPass();
std::unique_ptr<mlir::Pass> createPlaceStatesPass();
std::unique_ptr<mlir::Pass> createStackKernelsPass();
std::unique_ptr<mlir::Pass> createPlaceConcatsPass();
std::unique_ptr<mlir::Pass> createNameKernelsPass();
// select
std::unique_ptr<mlir::Pass> createSelectPass();
// plan
std::unique_ptr<mlir::Pass> createPlanPass();
// codegen (the driver of the code generators)
std::unique_ptr<mlir::Pass> createGenerateCodePass();
// verify
std::unique_ptr<mlir::Pass> createVerifyLegalizedPass();
std::unique_ptr<mlir::Pass> createVerifyFusedPass();
std::unique_ptr<mlir::Pass> createVerifyPlannedPass();

/// Adds the passes of one phase; none for import and engine, which are no
/// passes, and for phases without a request in `lathe.options`.
void addPhase(mlir::OpPassManager &passes, Phase phase);

/// Adds the phases after `from` up to and including `to`, each followed by the
/// note in `lathe.phase`.
void buildPipeline(mlir::OpPassManager &passes, Phase from, Phase to);

/// The phase that `lathe.phase` names; import when there is none.
Phase phaseOf(mlir::ModuleOp module);

/// Makes every pass and `lathe-pipeline{from= to=}` known to pass pipelines in text.
void registerLathePasses();

} // namespace lathe

#endif // LATHE_PASSES_PASSES_H
