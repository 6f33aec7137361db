//===- LatheStructureOps.td - symbols, kernels, states -----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheBase.td"

def Lathe_SymbolOp : Lathe_Op<"symbol", [Symbol]> {
  let summary = "A size that is known at run time";
  let description = [{
    `lathe.symbol @B {min = 0, max = 64, opt = 1, multiple_of = 1, origin = "x[0]"}`. max is -1
    for unbounded. With `value`, a formula over symbols before it, the symbol is derived: a name for
    the formula, whose bounds are checked at run time. A symbol that takes the value of an element
    of a tensor (`lathe.dim_from`) or is derived may be negative.
    symbol_c1: min <= opt <= max; symbol_c2: multiple_of >= 1.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$min, I64Attr:$max, I64Attr:$opt,
                       I64Attr:$multiple_of, StrAttr:$origin, OptionalAttr<Lathe_DimAttr>:$value);
  let assemblyFormat = "$sym_name attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// What `origin` of a symbol begins with that lathe.dim_from gives a value.
    static constexpr ::llvm::StringLiteral kValueOrigin = "value of ";
    /// Known when the inputs' values are, not their sizes.
    bool isRunTimeValue() { return getValueAttr() || getOrigin().starts_with(kValueOrigin); }
  }];
}

def Lathe_StateOp : Lathe_Op<"state", [Symbol]> {
  let summary = "A named tensor that lives across calls";
  let description = [{
    `lathe.state @k0 {type = tensor<?x2x512x32xf32, #lathe.t<[B, 2, 512, 32]>>, axis = 2, length =
    "P", input = "k0", output = "pk0"}`: capacity 512 along axis, of which the first P are in use.
    Without axis (-1) and length it has one size, and entries overwrite it: lathe/ir/States.h.
    state_c1: the type is a ranked tensor; state_c2: axis is inside the rank; state_c3: the capacity along it is a
    constant; state_c4: without axis all sizes are constants and there is no length; state_c5: `lathe.initial`, what it
    begins as, is of its type.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, I64Attr:$axis, StrAttr:$length,
                       StrAttr:$input, StrAttr:$output);
  let assemblyFormat = "$sym_name attr-dict";
  let hasVerifier = 1;
}
def Lathe_StateReadOp : Lathe_Op<"state_read"> {
  let summary = "y = the part of a state in use, a view";
  let arguments = (ins FlatSymbolRefAttr:$state);
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = "$state attr-dict `:` type($y)";
}
def Lathe_StateAppendOp : Lathe_Op<"state_append"> {
  let summary = "Writes x behind the used part of a state; y = the used part afterwards, a view";
  let description = [{
    Result sizes: length + size of x along the axis. The layout of the result is the state's
    capacity (`#lathe.phys`). The length itself grows when the run has ended. Not a kernel: plan
    lets the producer of x write into the state's memory, and a copy is left only where it cannot.
  }];
  let arguments = (ins FlatSymbolRefAttr:$state, Lathe_Tensor:$x);
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = "$state `,` $x attr-dict `:` functional-type($x, $y)";
}

def Lathe_KernelOp : Lathe_Op<"kernel", [SingleBlock, IsolatedFromAbove, RecursiveMemoryEffects]> {
  let summary = "Graph ops that run as one kernel";
  let description = [{
    Block arguments are the inputs; the body is lathe ops and ends in `lathe.yield`. `nodes` names
    the ONNX nodes inside. After select, `variants` holds dictionaries with the keys `guard` (`"M <= 1"`; the last is
    empty) and `spec` (a KernelSpec's text). `roles` say what is what in the body.
    kernel_c1: block arguments have the inputs' types; kernel_c2: the yield has the results' types;
    kernel_c3: the last guard is empty; kernel_c4: the roles fit the body.
  }];
  let arguments = (ins Variadic<Lathe_Tensor>:$inputs, StrAttr:$name, Lathe_RegionKindAttr:$kind,
                       OptionalAttr<ArrayAttr>:$nodes, OptionalAttr<ArrayAttr>:$variants,
                       OptionalAttr<Lathe_RolesAttr>:$roles);
  let results = (outs Variadic<Lathe_Tensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let hasVerifier = 1;
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::mlir::Block &getBodyBlock() { return getBody().front(); }
    ::lathe::YieldOp getYield();
  }];
}
def Lathe_YieldOp : Lathe_Op<"yield", [Pure, Terminator, ReturnLike]> {
  let summary = "The outputs of a kernel";
  let arguments = (ins Variadic<Lathe_Tensor>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

def Lathe_ChooseOp : Lathe_Op<"choose", [Pure, AttrSizedOperandSegments]> {
  let summary = "ys = thens where a condition that only the run knows holds, else elses";
  let description = [{
    Both sides are computed by ops around it; plan puts what only one side needs into a branch of
    the program, so that a run computes the side that it takes. Where the sides have different sizes
    those of the results are `symbols` of their own, which get the values of `then_sizes` or of
    `else_sizes`. choose_c1: as many values on either side as results, of their types when the symbols
    are what that side says; choose_c2: the condition is an i1 without dimensions; choose_c3: a size of
    either side for each symbol.
  }];
  let arguments = (ins Lathe_Tensor:$condition, Variadic<Lathe_Tensor>:$thens,
                       Variadic<Lathe_Tensor>:$elses, OptionalAttr<StrArrayAttr>:$symbols,
                       OptionalAttr<Lathe_DimArrayAttr>:$then_sizes,
                       OptionalAttr<Lathe_DimArrayAttr>:$else_sizes);
  let results = (outs Variadic<Lathe_Tensor>:$ys);
  let assemblyFormat = [{$condition `then` `(` $thens `)` `else` `(` $elses `)` attr-dict `:`
    type($condition) `,` `(` type($thens) `)` `,` `(` type($elses) `)` `->` `(` type($ys) `)`}];
  let hasVerifier = 1;
}

def Lathe_CustomCallOp : Lathe_Op<"custom_call"> {
  let summary = "A call of a user's function: on the host, or a CUDA kernel given as text";
  let description = "Result types are the caller's promise; the runtime checks sizes.";
  let arguments = (ins Variadic<Lathe_Tensor>:$inputs, StrAttr:$target, DictionaryAttr:$config);
  let results = (outs Variadic<Lathe_Tensor>:$outputs);
  let assemblyFormat = "$target `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)";
}
