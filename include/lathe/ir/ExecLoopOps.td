//===- ExecLoopOps.td - steps that run again and again ------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/ExecOps.td"

def Exec_LoopOp : Exec_Step<"loop", [AttrSizedOperandSegments]> {
  let summary = "The steps up to `exec.end_loop` run again and again";
  let description = [{
    At most as often as the i64 in the host buffer `trips` says, while the bool in the host buffer
    `condition` is true; one of both is there. `iteration` names the size that counts from 0.
  }];
  let arguments = (ins Optional<Lathe_Tensor>:$trips, Optional<Lathe_Tensor>:$condition,
                       OptionalAttr<StrAttr>:$iteration);
  let assemblyFormat = [{(`trips` $trips^ `:` type($trips))? (`while` $condition^ `:`
    type($condition))? attr-dict}];
}
def Exec_EndLoopOp : Exec_Step<"end_loop"> {
  let summary = "Ends what `exec.loop` began";
  let assemblyFormat = "attr-dict";
}
