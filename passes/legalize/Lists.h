//===- Lists.h - sequences whose length the run knows -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_LISTS_H
#define LATHE_PASSES_LEGALIZE_LISTS_H

#include "Legalizer.h"

namespace lathe::legal {

/// A sequence or an optional of any kind as a list of the run; none after a report.
std::optional<RunList> asList(Node &n, const Tracked &value);
/// What is true of a list that is either of them, without a handle; none, after a report, where their tensors have different
/// types.
std::optional<RunList> either(Node &n, const RunList &a, const RunList &b);
Tracked trackedList(RunList list);

/// A list with one more tensor: ahead of a place, an integer of one element, or behind the last where it is null.
std::optional<RunList> insertInto(Node &n, const RunList &list, mlir::Value x, mlir::Value place);
/// The tensor at a place (null: the first); null after a report.
mlir::Value elementAt(Node &n, RunList list, mlir::Value place);

/// Adds what the body of a loop states of its argument i to the list that it is at first: the type of the tensors, and
/// whether it is an optional, which an iteration may leave without a value.
void stateList(Node &n, unsigned i, RunList &list);
/// What an iteration gives for a list that a loop carries, which becomes its handle; none after a report.
std::optional<RunList> nextList(Node &n, const RunList &carried, Tracked &next);
/// The list `handle` that the loop ends with.
Tracked listBehindLoop(Node &n, const RunList &carried, const RunList &next, mlir::Value handle);

// What the ops of Sequences.cpp do where an operand is such a list, or where a position or a number of parts is the run's.
mlir::LogicalResult listLength(Node &n);
mlir::LogicalResult listAt(Node &n);
mlir::LogicalResult listInsert(Node &n);
mlir::LogicalResult listErase(Node &n);
mlir::LogicalResult listSplit(Node &n, int64_t axis);
mlir::LogicalResult listConcat(Node &n);
mlir::LogicalResult listHasElement(Node &n);
mlir::LogicalResult listGetElement(Node &n);

/// An output that is a list, as tensors by the names of their ports; none where the type of its tensors is not known.
std::optional<std::vector<std::pair<std::string, mlir::Value>>> packedList(Legalizer &legal, const RunList &list,
                                                                           const std::string &name);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_LISTS_H
