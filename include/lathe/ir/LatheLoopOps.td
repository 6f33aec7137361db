//===- LatheLoopOps.td - loops whose trips only the run knows -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheBase.td"

def Lathe_LoopBeginOp : Lathe_Op<"loop_begin"> {
  let summary = "The values that a loop carries, as they are when an iteration begins";
  let description = [{
    What depends on its results, up to the lathe.loop_end that reads the first of them, is the
    loop's body: ops beside all others, which plan puts into a block of the program. loop_begin_c1:
    a result of the type of each operand, at least one.
  }];
  let arguments = (ins Variadic<Lathe_Tensor>:$inits);
  let results = (outs Variadic<Lathe_Tensor>:$carried);
  let assemblyFormat = "`(` $inits `)` attr-dict `:` type($inits) `->` type($carried)";
  let hasVerifier = 1;
}

def Lathe_LoopEndOp : Lathe_Op<"loop_end", [AttrSizedOperandSegments]> {
  let summary = "What a loop carries when it ends, and rows that it collected";
  let description = [{
    The body runs at most `trips` times (i64), while `condition` holds: before the first iteration,
    then as `again`. `nexts` are carried on; `rows` of iteration i are row i of the results behind,
    and `iteration` names the symbol that counts. loop_end_c1: `counter` is the first result of a
    lathe.loop_begin; loop_end_c2: as many nexts as that carries, of its types; loop_end_c3: trips
    or a condition, an i64 and an i1 without dimensions, and `again` only with a condition;
    loop_end_c4: rows only with `iteration` and trips, and without `again`.
  }];
  let arguments = (ins Lathe_Tensor:$counter, Optional<Lathe_Tensor>:$trips,
                       Optional<Lathe_Tensor>:$condition, Optional<Lathe_Tensor>:$again,
                       Variadic<Lathe_Tensor>:$nexts, Variadic<Lathe_Tensor>:$rows,
                       OptionalAttr<StrAttr>:$iteration);
  let results = (outs Variadic<Lathe_Tensor>:$ys);
  let assemblyFormat = [{$counter `:` type($counter) (`trips` $trips^ `:` type($trips))?
    (`while` $condition^ `:` type($condition))? (`again` $again^ `:` type($again))?
    `nexts` `(` ($nexts^ `:` type($nexts))? `)` `rows` `(` ($rows^ `:` type($rows))? `)`
    attr-dict `->` type($ys)}];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::lathe::LoopBeginOp getBegin() {
      return getCounter().getDefiningOp<::lathe::LoopBeginOp>();
    }
  }];
}
