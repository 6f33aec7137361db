//===- ExecEnums.td - enumerations of the exec dialect -----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file of their own: tablegen generates every enumeration that it sees, and
// ExecOps.td includes the lathe dialect's.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_EXECENUMS
#define LATHE_IR_EXECENUMS

include "mlir/IR/EnumAttr.td"

class Exec_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::lathe::exec";
  let genSpecializedAttr = 0;
}
def Exec_BufferKind : Exec_Enum<"BufferKind", "what memory a buffer is", [
  I32EnumAttrCase<"Arena", 0, "arena">, I32EnumAttrCase<"Input", 1, "input">,
  I32EnumAttrCase<"Output", 2, "output">, I32EnumAttrCase<"Weight", 3, "weight">,
  I32EnumAttrCase<"State", 4, "state">, I32EnumAttrCase<"Host", 5, "host">,
  I32EnumAttrCase<"Workspace", 6, "workspace">, I32EnumAttrCase<"View", 7, "view">]>;

def Exec_Origin : Exec_Enum<"Origin", "where the value of a size comes from", [
  I32EnumAttrCase<"InputDim", 0, "input">, I32EnumAttrCase<"StateLength", 1, "state">,
  I32EnumAttrCase<"Bound", 2, "bound">, I32EnumAttrCase<"Iteration", 3, "iteration">,
  I32EnumAttrCase<"Constant", 4, "constant">, I32EnumAttrCase<"Derived", 5, "derived">]>;

#endif // LATHE_IR_EXECENUMS
