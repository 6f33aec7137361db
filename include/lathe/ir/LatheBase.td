//===- LatheBase.td - dialect, attributes, base classes ----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_LATHEBASE
#define LATHE_IR_LATHEBASE

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

def Lathe_Dialect : Dialect {
  let name = "lathe";
  let cppNamespace = "::lathe";
  let summary = "Tensor operations over symbolic shapes: what the optimizer wants to see whole.";
  let description = [{
    Values are ranked tensors. A dynamic dimension has an expression over the
    module's symbols, held by the `#lathe.t` encoding. Binary operations
    broadcast as numpy does. Integers without a sign are signed; unsigned ones
    are `ui8`. Ops are pure unless they name a state.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let extraClassDeclaration = [{
    void registerAttributes();
    /// The bytes behind `#lathe.weight` attributes of this context.
    class WeightStore &weights();
  private:
    std::shared_ptr<class WeightStore> weightStore;
  public:
  }];
}

class Lathe_Attr<string name, string mnemo, list<Trait> traits = []>
    : AttrDef<Lathe_Dialect, name, traits> {
  let mnemonic = mnemo;
}

def Lathe_DimAttr : Lathe_Attr<"Dim", "dim"> {
  let summary = "A dimension expression over symbols";
  let description = "`#lathe.dim<2*S + 1>`; canonical, so equal attributes mean equal sizes.";
  let parameters = (ins StringRefParameter<"canonical text of the DimExpr">:$text);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    static DimAttr get(::mlir::MLIRContext *context, const ::lathe::DimExpr &expr);
    ::lathe::DimExpr expr() const;
  }];
  let skipDefaultBuilders = 0;
}

def Lathe_PhysAttr : Lathe_Attr<"Phys", "phys"> {
  let summary = "Physical sizes of a strided view: one expression a dimension";
  let description = [{
    `phys<[B, 2, 512, 32]>`: memory is laid out as a dense tensor of these sizes; the logical
    tensor occupies the low corner. A KV state of capacity 512 is seen so.
  }];
  let parameters = (ins ArrayRefParameter<"DimAttr">:$dims);
  let hasCustomAssemblyFormat = 1;
}

def Lathe_TensorAttr : Lathe_Attr<"Tensor", "t"> {
  let summary = "Encoding of a graph-level tensor: sizes and physical layout";
  let description = [{
    `#lathe.t<[B, S + 1, 768]>`: one expression a dimension, static dimensions included.
    Where memory is laid out otherwise, `layout = #lathe.phys<...>` follows.
  }];
  let parameters = (ins ArrayRefParameter<"DimAttr">:$dims,
                        "::mlir::Attribute":$layout);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Lathe_WeightAttr : Lathe_Attr<"Weight", "weight",
    [DeclareAttrInterfaceMethods<TypedAttrInterface>]> {
  let summary = "Bytes of a constant in the weight archive";
  let description = [{
    `#lathe.weight<"model", 4096, 1024, "9f86d081…" : tensor<16x16xf32>>`: archive key, byte offset,
    byte count, SHA-256 of the bytes (hex). The verifier checks the count against the type.
  }];
  let parameters = (ins StringRefParameter<"archive key">:$key, "uint64_t":$offset,
                        "uint64_t":$bytes, StringRefParameter<"SHA-256, hex">:$hash,
                        AttributeSelfTypeParameter<"">:$type);
  let assemblyFormat = "`<` $key `,` $offset `,` $bytes `,` $hash `>`";
  let genVerifyDecl = 1;
}

def Lathe_JoinedAttr : Lathe_Attr<"Joined", "joined",
    [DeclareAttrInterfaceMethods<TypedAttrInterface>]> {
  let summary = "Constants side by side along an axis";
  let description = [{
    `#lathe.joined<1, [#lathe.weight<…> : tensor<4x8xf16>, …] : tensor<4x24xf16>>`: nothing is
    copied until the engine is written.
  }];
  let parameters = (ins "int64_t":$axis, "::mlir::ArrayAttr":$parts,
                        AttributeSelfTypeParameter<"">:$type);
  let assemblyFormat = "`<` $axis `,` $parts `>`";
  let genVerifyDecl = 1;
}

def Lathe_ShardedAttr : Lathe_Attr<"Sharded", "sharded",
    [DeclareAttrInterfaceMethods<TypedAttrInterface>]> {
  let summary = "Of a constant the part that a rank has: another on each of `parts` ranks";
  let description = [{
    `#lathe.sharded<1, 2, [8, 4], #lathe.weight<…> : tensor<4x12xf32>> : tensor<4x6xf32>`: of each block
    along the axis (8 and 4 columns) rank r has the r-th of 2 parts, one block after another. What a part
    lacks at the end of its block is zeros; of a block of fewer elements than ranks, which they are a
    multiple of, each rank has one: 2 elements on 4 ranks are on two each. The part's type may have
    the axis and the dimension behind it as one. Nothing is copied until the engine is written.
  }];
  let parameters = (ins "int64_t":$axis, "int64_t":$parts, ArrayRefParameter<"int64_t">:$blocks,
                        "::mlir::Attribute":$value, AttributeSelfTypeParameter<"">:$type);
  let assemblyFormat = "`<` $axis `,` $parts `,` `[` $blocks `]` `,` $value `>`";
  let genVerifyDecl = 1;
}

def Lathe_RolesAttr : Lathe_Attr<"Roles", "roles"> {
  let summary = "What is what in a kernel region: anchor, operands, residual, pairs, heads, amax";
  let description = [{
    `#lathe.roles<anchor = 0, operands = [buffer 0, buffer 1 weight], residual = 2, in_place>`: ops by
    their position in the body, inputs and outputs by their place (lathe/ir/KernelRoles.h says what
    each part means). Fuse writes it once; select and code generation read it.
  }];
  let parameters = (ins AttrParameter<"::lathe::KernelRoles", "the parts">:$roles);
  let hasCustomAssemblyFormat = 1;
}

class Lathe_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::lathe";
  let genSpecializedAttr = 0;
}
class Lathe_EnumAttr<EnumInfo info, string mnemo> : EnumAttr<Lathe_Dialect, info, mnemo> {
  let assemblyFormat = "`<` $value `>`";
}

def Lathe_ReduceKind : Lathe_Enum<"ReduceKind", "what a reduction computes", [
  I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Prod", 1, "prod">,
  I32EnumAttrCase<"Max", 2, "max">, I32EnumAttrCase<"Min", 3, "min">]>;
def Lathe_ReduceKindAttr : Lathe_EnumAttr<Lathe_ReduceKind, "reduce_kind">;

def Lathe_Predicate : Lathe_Enum<"Predicate", "comparison", [
  I32EnumAttrCase<"Eq", 0, "eq">, I32EnumAttrCase<"Ne", 1, "ne">, I32EnumAttrCase<"Lt", 2, "lt">,
  I32EnumAttrCase<"Le", 3, "le">, I32EnumAttrCase<"Gt", 4, "gt">, I32EnumAttrCase<"Ge", 5, "ge">]>;
def Lathe_PredicateAttr : Lathe_EnumAttr<Lathe_Predicate, "predicate">;

def Lathe_PoolKind : Lathe_Enum<"PoolKind", "pooling", [
  I32EnumAttrCase<"Max", 0, "max">, I32EnumAttrCase<"Average", 1, "average">,
  I32EnumAttrCase<"Lp", 2, "lp">]>;
def Lathe_PoolKindAttr : Lathe_EnumAttr<Lathe_PoolKind, "pool_kind">;

def Lathe_PadMode : Lathe_Enum<"PadMode", "what fills the border", [
  I32EnumAttrCase<"Constant", 0, "constant">, I32EnumAttrCase<"Reflect", 1, "reflect">,
  I32EnumAttrCase<"Edge", 2, "edge">, I32EnumAttrCase<"Wrap", 3, "wrap">]>;
def Lathe_PadModeAttr : Lathe_EnumAttr<Lathe_PadMode, "pad_mode">;

def Lathe_ConvLayout : Lathe_Enum<"ConvLayout", "order of image dimensions", [
  I32EnumAttrCase<"ChannelsFirst", 0, "nchw">, I32EnumAttrCase<"ChannelsLast", 1, "nhwc">]>;
def Lathe_ConvLayoutAttr : Lathe_EnumAttr<Lathe_ConvLayout, "conv_layout">;

def Lathe_RegionKind : Lathe_Enum<"RegionKind", "what a kernel region is built around", [
  I32EnumAttrCase<"Pointwise", 0, "pointwise">, I32EnumAttrCase<"Reduction", 1, "reduction">,
  I32EnumAttrCase<"Gemm", 2, "gemm">, I32EnumAttrCase<"Conv", 3, "conv">,
  I32EnumAttrCase<"Attention", 4, "attention">, I32EnumAttrCase<"Scan", 5, "scan">,
  I32EnumAttrCase<"Copy", 6, "copy">, I32EnumAttrCase<"Host", 7, "host">,
  I32EnumAttrCase<"Custom", 8, "custom">]>;
def Lathe_RegionKindAttr : Lathe_EnumAttr<Lathe_RegionKind, "kernel_kind">;

def Lathe_Tensor : TensorOf<[AnyType]>;
def Lathe_DimArrayAttr : TypedArrayAttrBase<Lathe_DimAttr, "array of dimension expressions">;

class Lathe_Op<string mnemonic, list<Trait> traits = []> : Op<Lathe_Dialect, mnemonic, traits>;

include "lathe/ir/StructuredOpInterface.td"

/// Bodies of the StructuredOpInterface methods for an op that reads one element of each operand per
/// result element, with numpy broadcasting.
defvar lathePointwiseMethods = [{
  ::lathe::OpClass $cppClass::getOpClass() { return ::lathe::OpClass::Pointwise; }
  ::llvm::SmallVector<::mlir::utils::IteratorType> $cppClass::getIterators() {
    return ::lathe::parallelIterators(getOperation());
  }
  ::llvm::SmallVector<::mlir::AffineMap> $cppClass::getAccessMaps() {
    return ::lathe::broadcastMaps(getOperation());
  }
}];

/// Declares what StructuredOpInterface::getWork returns.
class latheWork<int work> {
  string text = "static constexpr int64_t kWork = " # work # ";";
}

/// Bodies of the type inference methods; `infer` is a function of ranges that each op defines.
defvar latheCompatibleTypes = [{
  bool $cppClass::isCompatibleReturnTypes(::mlir::TypeRange a, ::mlir::TypeRange b) {
    return ::lathe::compatibleTypes(a, b);
  }
}];

/// A pure tensor op that says how it iterates.
class Lathe_StructuredOp<string mnemonic, list<Trait> traits = []>
    : Lathe_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<StructuredOpInterface>], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

/// Result types follow from operands and attributes (`inferReturnTypes`).
class Lathe_InferredOp<string mnemonic, list<Trait> traits = []>
    : Lathe_StructuredOp<mnemonic, !listconcat(traits, [InferTypeOpAdaptorWithIsCompatible])>;

#endif // LATHE_IR_LATHEBASE
