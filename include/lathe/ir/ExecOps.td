//===- ExecOps.td - the host program -----------------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan of a target as text: kernels with their variants, and one program
// per entry. A buffer is an SSA value whose tensor type gives dtype, sizes and
// physical sizes. Order in a program: sizes, guards, arenas, buffers, ports,
// then the steps in the order in which they run.
//
//===----------------------------------------------------------------------===//
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/SymbolInterfaces.td"
include "lathe/ir/LatheBase.td"
include "lathe/ir/ExecEnums.td"

def Exec_Dialect : Dialect {
  let name = "exec";
  let cppNamespace = "::lathe::exec";
  let summary = "The plan: buffers with offsets, guards, launches, host steps, states";
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::lathe::LatheDialect"];
}

def Exec_BufferKindAttr : EnumAttr<Exec_Dialect, Exec_BufferKind, "kind"> {
  let assemblyFormat = "`<` $value `>`";
}
def Exec_OriginAttr : EnumAttr<Exec_Dialect, Exec_Origin, "origin"> {
  let assemblyFormat = "`<` $value `>`";
}

class Exec_Op<string mnemonic, list<Trait> traits = []> : Op<Exec_Dialect, mnemonic, traits>;
class Exec_ProgramPart<string mnemonic, list<Trait> traits = []>
    : Exec_Op<mnemonic, !listconcat([HasParent<"ProgramOp">], traits)>;

def Exec_KernelOp : Exec_Op<"kernel", [Symbol, SingleBlock, IsolatedFromAbove]> {
  let summary = "A kernel that launches name: its region, its variants and their source";
  let description = [{
    `variants` as in lathe.kernel; codegen adds `source` (LLVM IR or CUDA C++) to each. `flops` and
    `bytes` are of one launch. exec_kernel_c1: the body ends in lathe.yield; exec_kernel_c2: there
    are variants and the last guard is empty; exec_kernel_c3: each spec parses and has the region's
    numbers of inputs and outputs; kernel_c4: the roles, as in lathe.kernel, fit the body.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Lathe_RegionKindAttr:$kind, ArrayAttr:$variants,
                       Lathe_DimAttr:$flops, Lathe_DimAttr:$bytes,
                       OptionalAttr<Lathe_RolesAttr>:$roles);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def Exec_ProgramOp : Exec_Op<"program", [Symbol, SingleBlock, NoTerminator, IsolatedFromAbove]> {
  let summary = "The host program of one entry";
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def Exec_SizeOp : Exec_ProgramPart<"size"> {
  let summary = "A symbol of the program and where its value comes from";
  let description = [{
    `exec.size "S" {min = 1, max = 512, opt = 128, multiple_of = 1, origin = #exec.origin<input>,
    index = 0, axis = 1}`; index is an input, or the state's position among the states. `value` is
    a derived size's formula over sizes before it.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$min, I64Attr:$max, I64Attr:$opt, I64Attr:$multiple_of,
                       Exec_OriginAttr:$origin, I64Attr:$index, I64Attr:$axis,
                       OptionalAttr<Lathe_DimAttr>:$value);
  let assemblyFormat = "$name attr-dict";
}
def Exec_GuardOp : Exec_ProgramPart<"guard"> {
  let summary = "A condition whose failure is an error of the caller; after the first step, a step";
  let arguments = (ins StrAttr:$condition, StrAttr:$message, StrAttr:$where);
  let assemblyFormat = "$condition attr-dict";
  let hasVerifier = 1;
}
def Exec_ArenaOp : Exec_ProgramPart<"arena"> {
  let summary = "One allocation that Arena, Workspace and Host buffers point into, by position";
  let arguments = (ins Lathe_DimAttr:$bytes, UnitAttr:$on_host);
  let assemblyFormat = "$bytes attr-dict";
}
def Exec_StateOp : Exec_ProgramPart<"state"> {
  let summary = "A lathe.state that the program uses";
  let arguments = (ins FlatSymbolRefAttr:$state);
  let assemblyFormat = "$state attr-dict";
}
def Exec_BufferOp : Exec_ProgramPart<"buffer"> {
  let summary = "A region of memory";
  let description = [{
    `index`: the input, output, state or arena. A weight has `value` and the `packing` recipe; a
    view has a base. `live` is [first step, last step] for readers of the memory plan.
    exec_buffer_c1: a view has a base and others have none; exec_buffer_c2: a weight has a value.
  }];
  let arguments = (ins Optional<Lathe_Tensor>:$base, StrAttr:$name, Exec_BufferKindAttr:$kind,
                       DefaultValuedAttr<I64Attr, "0">:$index, OptionalAttr<Lathe_DimAttr>:$offset,
                       OptionalAttr<TypedAttrInterface>:$value, OptionalAttr<StrAttr>:$packing,
                       OptionalAttr<DenseI64ArrayAttr>:$live, UnitAttr:$on_host);
  let results = (outs Lathe_Tensor:$memory);
  let assemblyFormat = "$name (`of` $base^ `:` type($base))? attr-dict `:` type($memory)";
  let hasVerifier = 1;
}
def Exec_InputOp : Exec_ProgramPart<"input"> {
  let summary = "An input of the entry; `donated_to` is the output that may take its memory, or -1";
  let arguments = (ins StrAttr:$name, Lathe_Tensor:$buffer, DefaultValuedAttr<I64Attr, "-1">:$donated_to);
  let assemblyFormat = "$name $buffer attr-dict `:` type($buffer)";
}
def Exec_OutputOp : Exec_ProgramPart<"output"> {
  let summary = "An output of the entry";
  let arguments = (ins StrAttr:$name, Lathe_Tensor:$buffer);
  let assemblyFormat = "$name $buffer attr-dict `:` type($buffer)";
}

class Exec_Step<string mnemonic, list<Trait> traits = []> : Exec_ProgramPart<mnemonic, traits>;

def Exec_LaunchOp : Exec_Step<"launch"> {
  let summary = "Launches a kernel: buffers in its order (inputs, outputs, workspace)";
  let description = [{
    `symbols` gives each name that the kernel's formulas use a value over the program's sizes.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Lathe_Tensor>:$buffers,
                       DictionaryAttr:$symbols, OptionalAttr<ArrayAttr>:$nodes);
  let assemblyFormat = "$kernel `(` $buffers `)` attr-dict `:` type($buffers)";
}
def Exec_CopyOp : Exec_Step<"copy"> {
  let summary = "Copies a buffer to another of the same bytes";
  let arguments = (ins Lathe_Tensor:$source, Lathe_Tensor:$target);
  let assemblyFormat = "$source `to` $target attr-dict `:` type($source) `,` type($target)";
}
def Exec_BindOp : Exec_Step<"bind"> {
  let summary = "Gives a size the value of an element of a host buffer, or of a formula";
  let description = "exec_bind_c1: a buffer and an element of it, or a value.";
  let arguments = (ins StrAttr:$symbol, Optional<Lathe_Tensor>:$buffer, OptionalAttr<I64Attr>:$element,
                       OptionalAttr<Lathe_DimAttr>:$value);
  let assemblyFormat = "$symbol ($buffer^)? attr-dict (`:` type($buffer)^)?";
  let hasVerifier = 1;
}
def Exec_AdvanceOp : Exec_Step<"advance"> {
  let summary = "A state grows by a number of elements along its axis when the run has succeeded";
  let arguments = (ins FlatSymbolRefAttr:$state, Lathe_DimAttr:$by);
  let assemblyFormat = "$state $by attr-dict";
}
def Exec_TapOp : Exec_Step<"tap"> {
  let summary = "Shows a buffer to the context's tap callback";
  let arguments = (ins Lathe_Tensor:$buffer, StrAttr:$name);
  let assemblyFormat = "$name $buffer attr-dict `:` type($buffer)";
}
def Exec_IfOp : Exec_Step<"if"> {
  let summary = "The steps up to `exec.else` run when the bool in a host buffer is true";
  let description = "`exec.else` and `exec.end_if` close it; they nest. verify: each has its partners.";
  let arguments = (ins Lathe_Tensor:$condition);
  let assemblyFormat = "$condition attr-dict `:` type($condition)";
}
def Exec_ElseOp : Exec_Step<"else"> {
  let summary = "The steps up to `exec.end_if` run when the bool of `exec.if` is false";
  let assemblyFormat = "attr-dict";
}
def Exec_EndIfOp : Exec_Step<"end_if"> {
  let summary = "Ends what `exec.if` began";
  let assemblyFormat = "attr-dict";
}
def Exec_CollectiveOp : Exec_Step<"collective"> {
  let summary = "All ranks meet: all_reduce, all_gather or reduce_scatter of a buffer into another";
  let description = "`kind` is of those that reduce, `dim` of those that join or cut.";
  let arguments = (ins StrAttr:$name, Lathe_Tensor:$input, Lathe_Tensor:$output,
                       Lathe_ReduceKindAttr:$kind, I64Attr:$dim);
  let assemblyFormat = "$name $input `to` $output attr-dict `:` type($input) `,` type($output)";
}
def Exec_CallOp : Exec_Step<"call"> {
  let summary = "A host function: a named host op, or with `custom` one that the application registers";
  let description = "The first `num_inputs` buffers are read, the others written.";
  let arguments = (ins StrAttr:$name, Variadic<Lathe_Tensor>:$buffers, I64Attr:$num_inputs,
                       DictionaryAttr:$config, UnitAttr:$custom);
  let assemblyFormat = "$name `(` $buffers `)` attr-dict `:` type($buffers)";
}
