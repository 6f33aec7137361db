//===- InspectTables.h - parts of a plan for people and as JSON -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_INSPECTTABLES_H
#define LATHE_TOOLS_LATHE_INSPECTTABLES_H

#include "lathe/engine/Llm.h"
#include "lathe/engine/Plan.h"
#include "lathe/support/Status.h"

#include "llvm/Support/JSON.h"

namespace lathe::cli {

void printEntry(const engine::Plan &plan);
void printPlan(const engine::Plan &plan);
void printMemory(const engine::Plan &plan);
void printKernels(const engine::Plan &plan);
/// InspectSharding.cpp: where the ranks of a mesh meet, and what each holds of the weights.
void printSharding(const engine::Plan &plan);

/// Threads, stages and shared memory of configurations, parameters that a name leaves out filled in: for
/// a GPU target, 16-bit operands and results. Invalid error for an unknown family or parameter.
Status printTiles(const std::vector<std::string> &names, const std::string &target, bool asJson);

llvm::json::Object entryObject(const engine::Plan &plan);
llvm::json::Array planArray(const engine::Plan &plan);
llvm::json::Object memoryObject(const engine::Plan &plan);
llvm::json::Array kernelArray(const engine::Plan &plan);
llvm::json::Object shardingObject(const engine::Plan &plan);
llvm::json::Array dimsArray(const std::vector<DimExpr> &dims);

/// InspectPages.cpp: where a paged decoder keeps keys and values, a line or two, or an object, a group of layers.
void printPages(const engine::LlmInfo &info);
llvm::json::Array pagesArray(const engine::LlmInfo &info);

/// Arena buffers over time at the usual sizes.
std::string memorySvg(const engine::Plan &plan);
/// ShardingPicture.cpp: what the ranks of a mesh do alone, and where they meet.
std::string shardingSvg(const engine::Plan &plan);

/// "B <= 64 && K % 8 == 0"; "otherwise" when there is nothing to hold.
std::string describeGuard(const std::vector<engine::Condition> &guard);
/// "[B, P + S, 768]".
std::string describeDims(const std::vector<DimExpr> &dims);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_INSPECTTABLES_H
