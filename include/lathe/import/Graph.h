//===- Graph.h - a graph of torch's operators as text -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IMPORT_GRAPH_H
#define LATHE_IMPORT_GRAPH_H

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// Bytes of a tensor that the text names: row-major, in the memory order of its type. The caller
/// keeps them until the compilation that they are given to has ended.
struct GraphWeight {
  std::string name;
  std::span<const std::byte> bytes;
};

/// A module of phase import in the dialect `aten` (lathe/ir/AtenDialect.td), whose weights stay
/// where they are.
struct GraphText {
  std::string_view text;
  std::vector<GraphWeight> weights;
};

} // namespace lathe

#endif // LATHE_IMPORT_GRAPH_H
