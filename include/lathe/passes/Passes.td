//===- Passes.td - every pass, its name and its options ----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one list of passes. mlir-tblgen writes from it the base class of each, its
// constructor (createFusePass) and its registration. Where a pass stands in the
// pipeline, and why, is in passes/Pipelines.cpp; before and after are shown at
// the top of its file.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_PASSES
#define LATHE_PASSES_PASSES

include "mlir/Pass/PassBase.td"

/// All passes run on the top module.
class Lathe_Pass<string argument, string sentence> : Pass<argument, "::mlir::ModuleOp"> {
  let summary = sentence;
}

//===----------------------------------------------------------------------===//
// legalize
//===----------------------------------------------------------------------===//

def LegalizePass : Lathe_Pass<"lathe-legalize", "onnx ops to lathe ops with exact symbolic shapes"> {
  let dependentDialects = ["::lathe::LatheDialect", "::lathe::onnxir::OnnxDialect",
                           "::mlir::func::FuncDialect"];
}

//===----------------------------------------------------------------------===//
// simplify
//===----------------------------------------------------------------------===//

def EntriesPass : Lathe_Pass<"lathe-entries", "Clone the graph into named entries">;
def DeferParametersPass
    : Lathe_Pass<"lathe-defer-parameters", "Make constants of inputs that change seldom">;
def SimplifyPass : Lathe_Pass<"lathe-simplify", "Fold constants, movement chains and identities">;
def DonatePass : Lathe_Pass<"lathe-donate", "Turn donated inputs into states">;
def RecognizePackedCodesPass
    : Lathe_Pass<"lathe-recognize-packed-codes", "Raise codes that are unpacked from bytes">;
def RecognizeDequantizePass
    : Lathe_Pass<"lathe-recognize-dequantize", "Raise codes that an exporter took apart">;
def RecognizeRopePass
    : Lathe_Pass<"lathe-recognize-rope", "Form rotary embeddings from slices and products">;
def RecognizeAttentionPass
    : Lathe_Pass<"lathe-recognize-attention", "Form attention from matmuls and softmax">;
def RecognizeMasksPass
    : Lathe_Pass<"lathe-recognize-masks", "Raise masks of attention to its operands">;
def PageStatesPass
    : Lathe_Pass<"lathe-page-states", "Make a decoder a step over tokens of many sequences">;
def HoistParametersPass
    : Lathe_Pass<"lathe-hoist-parameters", "Move what depends on parameters alone to the entry prepare">;

//===----------------------------------------------------------------------===//
// sparsify
//===----------------------------------------------------------------------===//

def FindZeroBlocksPass
    : Lathe_Pass<"lathe-find-zero-blocks", "Count the blocks of zeros in the weights of products">;

//===----------------------------------------------------------------------===//
// shard
//===----------------------------------------------------------------------===//

def ShardPass : Lathe_Pass<"lathe-shard", "Divide the entries among the ranks of a mesh">;

//===----------------------------------------------------------------------===//
// layout
//===----------------------------------------------------------------------===//

def SplitTargetsPass
    : Lathe_Pass<"lathe-split-targets", "Clone the entries into one module a target">;
def ChannelsLastPass : Lathe_Pass<"lathe-channels-last", "Store images channels last">;
def MergeProductsPass
    : Lathe_Pass<"lathe-merge-products", "One product for several weights of one value">;
def QuantizedProductsPass
    : Lathe_Pass<"lathe-quantized-products",
                 "Multiply 8-bit codes as they are where the target can">;
def OrderWeightsPass
    : Lathe_Pass<"lathe-order-weights", "Order weights as the kernels of products read them">;
def ExpandTransformsPass
    : Lathe_Pass<"lathe-expand-transforms", "Write Fourier transforms that no kernel makes as products">;
def ExpandBlocksPass
    : Lathe_Pass<"lathe-expand-blocks", "Repeat scales and zero points for the elements of blocks">;

//===----------------------------------------------------------------------===//
// fuse
//===----------------------------------------------------------------------===//

def OutlineRecurrentPass
    : Lathe_Pass<"lathe-outline-recurrent", "Make kernels of recurrences, or write their steps out">;
def ExpandPagesPass
    : Lathe_Pass<"lathe-expand-pages", "Write pages of keys and values as scatters and gathers">;
def DecomposeCompositesPass
    : Lathe_Pass<"lathe-decompose-composites", "Expand softmax and norms into reductions">;
def FusePass : Lathe_Pass<"lathe-fuse", "Gather graph ops into kernels">;
def OutlineCustomPass
    : Lathe_Pass<"lathe-outline-custom", "Make kernels of custom calls with CUDA text">;
def PlaceStatesPass
    : Lathe_Pass<"lathe-place-states", "Let kernels write into the memory of states">;
def PlaceConcatsPass
    : Lathe_Pass<"lathe-place-concats", "Let kernels write into slices of concatenations">;
def HorizontalFusionPass
    : Lathe_Pass<"lathe-horizontal-fusion", "One launch for small kernels over one value">;
def AssignRolesPass : Lathe_Pass<"lathe-assign-roles", "Write down what is what in each kernel"> {
  let options = [Option<"functions", "functions", "bool", /*default=*/"false",
                        "also of functions that are kernels by themselves (tests)">];
}
def NameKernelsPass : Lathe_Pass<"lathe-name-kernels", "Give equal kernels equal names">;

//===----------------------------------------------------------------------===//
// select, plan, codegen
//===----------------------------------------------------------------------===//

def SelectPass : Lathe_Pass<"lathe-select", "Choose guarded variants for every kernel">;
def PackParametersPass
    : Lathe_Pass<"lathe-pack-parameters", "Give the entries parameters as their kernels read them">;
def PlanPass : Lathe_Pass<"lathe-plan", "Turn entries into host programs"> {
  let dependentDialects = ["::lathe::exec::ExecDialect"];
}
def OverlapCollectivesPass
    : Lathe_Pass<"lathe-overlap-collectives", "Compute with one part of the rows while ranks exchange the other">;
def StreamsPass : Lathe_Pass<"lathe-streams", "Run independent kernels beside each other">;
def OffsetsPass : Lathe_Pass<"lathe-offsets", "Give the buffers of programs their places">;
def GenerateCodePass : Lathe_Pass<"lathe-generate-code", "Write the source of every kernel variant"> {
  let dependentDialects = ["::lathe::tile::TileDialect", "::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect", "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

//===----------------------------------------------------------------------===//
// between phases
//===----------------------------------------------------------------------===//

def VerifyLegalizedPass : Lathe_Pass<"lathe-verify-legalized", "Check that no onnx op is left">;
def VerifyFusedPass : Lathe_Pass<"lathe-verify-fused", "Check what stands between kernels">;
def VerifyPlannedPass : Lathe_Pass<"lathe-verify-planned", "Check that launches fit their kernels">;
def NotePhasePass : Lathe_Pass<"lathe-note-phase", "Note in the module which phase ran last"> {
  let options = [Option<"phase", "phase", "std::string", /*default=*/[{"import"}],
                        "name of the phase">];
}

#endif // LATHE_PASSES_PASSES
