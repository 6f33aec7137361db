//===- TileOps.td - scheduled kernels ----------------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel after scheduling, the same form for CPU and CUDA: single program,
// many blocks of threads. It is a `func.func` with the attribute `tile.kernel`
// (a #tile.launch) whose arguments are rank-1 memrefs (buffers, in elements;
// bool is stored as i8) and then `index` symbols. Between these ops stand
// arith, math, scf and 1-D vector ops. On the CPU a block has one thread and
// values are wide vectors; on CUDA a block has many threads and a vector is 16
// bytes of registers.
//
//===----------------------------------------------------------------------===//
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::lathe::tile";
  let summary = "Scheduled kernels: blocks, threads, register vectors, loads and stores";
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def Tile_LaunchAttr : AttrDef<Tile_Dialect, "Launch"> {
  let mnemonic = "launch";
  let summary = "Threads of a block, and the target the schedule was made for";
  let parameters = (ins "int64_t":$threads, StringRefParameter<"target name">:$target);
  let assemblyFormat = "`<` `threads` `=` $threads `,` `target` `=` $target `>`";
}

def Tile_CombineKind : I32EnumAttr<"CombineKind", "how values are combined", [
  I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Prod", 1, "prod">,
  I32EnumAttrCase<"Max", 2, "max">, I32EnumAttrCase<"Min", 3, "min">]> {
  let cppNamespace = "::lathe::tile";
  let genSpecializedAttr = 0;
}
def Tile_CombineKindAttr : EnumAttr<Tile_Dialect, Tile_CombineKind, "combine"> {
  let assemblyFormat = "`<` $value `>`";
}

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;
def Tile_Buffer : MemRefRankOf<[AnyType], [1]>;
def Tile_Value : AnyTypeOf<[AnyInteger, AnyFloat, Index, VectorOfRankAndType<[1], [AnyType]>]>;

def Tile_BlockIdOp : Tile_Op<"block_id", [Pure]> {
  let summary = "Number of this block along a grid axis (on the CPU: the parallel loop's index, axis 0 only)";
  let arguments = (ins DefaultValuedAttr<I64Attr, "0">:$axis);
  let results = (outs Index:$id);
  let assemblyFormat = "attr-dict";
}
def Tile_FirstBlockOp : Tile_Op<"first_block", [Pure]> {
  let summary = "CPU: number of the first of the blocks, this one the last, that a worker runs one after another";
  let results = (outs Index:$id);
  let assemblyFormat = "attr-dict";
}
def Tile_MemberOp : Tile_Op<"member", [Pure]> {
  let summary = "CPU: which of the threads that take this block together this one is, and how many they are";
  let results = (outs Index:$member, Index:$members);
  let assemblyFormat = "attr-dict";
}
def Tile_MeetOp : Tile_Op<"meet", [MemoryEffects<[MemWrite, MemRead]>]> {
  let summary = "CPU: waits for all threads that take this block together";
  let description = "What they wrote to scratch memory before is seen after. All must reach it.";
  let assemblyFormat = "attr-dict";
}
def Tile_ThreadIdOp : Tile_Op<"thread_id", [Pure]> {
  let summary = "Number of this thread in its block; 0 on the CPU";
  let results = (outs Index:$id);
  let assemblyFormat = "attr-dict";
}
def Tile_LoadOp : Tile_Op<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "value = buffer[offset], or the vector of consecutive elements from offset on";
  let description = [{
    `aligned` says that the address is a multiple of the vector's size. load_c1: element types
    agree.
  }];
  let arguments = (ins Tile_Buffer:$buffer, Index:$offset, UnitAttr:$aligned);
  let results = (outs Tile_Value:$value);
  let assemblyFormat = "$buffer `[` $offset `]` attr-dict `:` type($buffer) `->` type($value)";
  let hasVerifier = 1;
}
def Tile_StoreOp : Tile_Op<"store", [MemoryEffects<[MemWrite]>]> {
  let summary = "buffer[offset] = value, or the vector into consecutive elements";
  let description = "store_c1: element types agree.";
  let arguments = (ins Tile_Value:$value, Tile_Buffer:$buffer, Index:$offset, UnitAttr:$aligned);
  let assemblyFormat = "$value `,` $buffer `[` $offset `]` attr-dict `:` type($value) `,` type($buffer)";
  let hasVerifier = 1;
}
def Tile_BlockReduceOp : Tile_Op<"block_reduce", [SameOperandsAndResultType]> {
  let summary = "Combines one scalar of every thread of the block; all threads get the result";
  let description = [{
    The order is fixed by the number of threads alone: results repeat bit for bit. With one thread
    it is the identity. All threads of the block must reach it.
  }];
  let arguments = (ins AnyType:$value, Tile_CombineKindAttr:$kind, UnitAttr:$is_unsigned);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$kind $value attr-dict `:` type($value)";
}
def Tile_BarrierOp : Tile_Op<"barrier", [MemoryEffects<[MemWrite, MemRead]>]> {
  let summary = "Waits for all threads of the block";
  let assemblyFormat = "attr-dict";
}
def Tile_ScratchOp : Tile_Op<"scratch", [MemoryEffects<[MemAlloc]>]> {
  let summary = "Memory of the block: shared memory on CUDA, a worker's scratch on the CPU; byte offset is fixed";
  let arguments = (ins I64Attr:$byte_offset);
  let results = (outs Tile_Buffer:$buffer);
  let assemblyFormat = "attr-dict `:` type($buffer)";
}
def Tile_DotOp : Tile_Op<"dot", [Pure, AllTypesMatch<["acc", "result"]>, AllTypesMatch<["a", "b"]>]> {
  let summary = "result[i] = acc[i] + sum over j < G of a[G i + j] * b[G i + j]";
  let description = [{
    Short dot products of neighbouring lanes; G is the ratio of lanes. Signed integers, with `unsigned_a`
    those of `a` unsigned: products and their sum are exact, and added to `acc` modulo 2^32. dot_c1: `acc` has
    i32 elements, the operands G times as many of 32 / G bits.
  }];
  let arguments = (ins VectorOfRankAndType<[1], [I32]>:$acc, VectorOfRankAndType<[1], [I8, I16]>:$a,
                       VectorOfRankAndType<[1], [I8, I16]>:$b, UnitAttr:$unsigned_a);
  let results = (outs VectorOfRankAndType<[1], [I32]>:$result);
  let assemblyFormat = "$acc `,` $a (`unsigned` $unsigned_a^)? `,` $b attr-dict `:` type($acc) `,` type($a)";
  let hasVerifier = 1;
}
def Tile_SaturateOp : Tile_Op<"saturate", [Pure, SameOperandsAndResultShape]> {
  let summary = "result[i] = value[i], or what is nearest to it of 8 bits; signed, or with `unsigned` not";
  let arguments = (ins AnyTypeOf<[I32, VectorOfRankAndType<[1], [I32]>]>:$value, UnitAttr:$is_unsigned);
  let results = (outs AnyTypeOf<[I8, VectorOfRankAndType<[1], [I8]>]>:$result);
  let assemblyFormat = "$value (`unsigned` $is_unsigned^)? attr-dict `:` type($value) `->` type($result)";
}
def Tile_CheckIndexOp : Tile_Op<"check_index", [MemoryEffects<[MemWrite]>]> {
  let summary = "Reports an index outside [-size, size) on the status channel; gives a valid index in [0, size)";
  let description = "Negative indices count from the end. After a report the result is 0.";
  let arguments = (ins AnySignlessIntegerOrIndex:$index, Index:$size);
  let results = (outs Index:$checked);
  let assemblyFormat = "$index `,` $size attr-dict `:` type($index)";
}

