//===- States.h - states that entries overwrite -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A `lathe.state` without axis has one size for ever: a buffer that a model writes into. Up to plan it is
// an input and an output of each entry that uses it, which have the names that the state says; there it gets
// memory of the context, and no port.
//
//   lathe.state @calls {axis = -1 : i64, input = "calls", output = "calls_next", length = "",
//                       type = tensor<2xf32>, lathe.initial = dense<1.0> : tensor<2xf32>}
//   func @main(%x, %calls {lathe.name = "calls"}) -> (tensor<2xf32> {lathe.name = "calls_next"}, ...)
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_STATES_H
#define LATHE_IR_STATES_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// Of a state without axis: what it is when a context is made and when it is reset, a constant of its type; without
/// it zero. In the text of a graph, the name of the weight.
inline constexpr const char *kInitialAttr = "lathe.initial";

/// On an argument of an entry and on a result: the state without axis that it is.
inline constexpr const char *kStateAttr = "lathe.state";

inline bool isOverwritten(StateOp state) { return int64_t(state.getAxis()) < 0; }

} // namespace lathe

#endif // LATHE_IR_STATES_H
