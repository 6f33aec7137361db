//===- LatheOps.td - all ops of the lathe dialect ----------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheElementwiseOps.td"
include "lathe/ir/LatheMovementOps.td"
include "lathe/ir/LatheAttentionOps.td"
include "lathe/ir/LatheContractionOps.td"
include "lathe/ir/LatheQuantizeOps.td"
include "lathe/ir/LatheStructureOps.td"
