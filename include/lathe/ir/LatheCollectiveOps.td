//===- LatheCollectiveOps.td - what ranks exchange ---------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheBase.td"

// All ranks of a mesh run one program, so that they meet at its collectives in one order: equal
// collectives are one, and one that nobody reads is none.
class Lathe_Collective<string mnemonic>
    : Lathe_Op<mnemonic, [Pure, InferTypeOpAdaptorWithIsCompatible]> {
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let extraClassDefinition = latheCompatibleTypes;
}

def Lathe_AllReduceOp : Lathe_Collective<"all_reduce"> {
  let summary = "y = the x of all ranks, reduced in their order: the same on each";
  let description = "all_reduce_c1: ranks is positive.";
  let arguments = (ins Lathe_Tensor:$x, Lathe_ReduceKindAttr:$kind, I64Attr:$ranks);
}
def Lathe_AllGatherOp : Lathe_Collective<"all_gather"> {
  let summary = "y = the x of all ranks, one after another along dim";
  let description = "all_gather_c1: dim is inside the rank, ranks positive.";
  let arguments = (ins Lathe_Tensor:$x, I64Attr:$dim, I64Attr:$ranks);
}
def Lathe_ReduceScatterOp : Lathe_Collective<"reduce_scatter"> {
  let summary = "y = this rank's part along dim of the x of all ranks, reduced in their order";
  let description = [{
    reduce_scatter_c1: dim is inside the rank, ranks positive; reduce_scatter_c2: the size of dim is a
    constant multiple of ranks.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_ReduceKindAttr:$kind, I64Attr:$dim, I64Attr:$ranks);
}
