//===- SharedPlaces.h - gathers of many rows at the same places -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_SHAREDPLACES_H
#define LATHE_IR_SHAREDPLACES_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// The size of the result's last dimension but one, where it is known and all gathers of the kernel read places that do
/// not depend on it, as channels of an image have them; 0 where that is not so, or nothing is gathered.
int64_t rowsThatSharePlaces(mlir::Block &body);

} // namespace lathe

#endif // LATHE_IR_SHAREDPLACES_H
