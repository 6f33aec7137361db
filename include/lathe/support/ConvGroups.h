//===- ConvGroups.h - groups of filters and vectors -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which groups of filters a vector of results on a CPU can be made of.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_CONVGROUPS_H
#define LATHE_SUPPORT_CONVGROUPS_H

#include <cstdint>

namespace lathe {

/// Whether a vector of `lanes` results belongs to whole groups, whose channels one vector holds.
/// Many channels would be worth a product of their own.
inline bool groupsFitLanes(int64_t channels, int64_t filters, int64_t lanes) {
  return channels <= 8 && channels <= filters && lanes % filters == 0;
}

/// Whether panels of `lanes` filters each lie in one group or cover whole groups (`groups<NR>x<G>` of Packing.h);
/// `filters`: of one of the `groups`.
inline bool panelsFitGroups(int64_t groups, int64_t filters, int64_t lanes) {
  return filters % lanes == 0 || (lanes % filters == 0 && groups * filters % lanes == 0);
}

} // namespace lathe

#endif // LATHE_SUPPORT_CONVGROUPS_H
