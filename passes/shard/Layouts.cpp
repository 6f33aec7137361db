//===- Layouts.cpp - how values lie on the ranks of a mesh ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Layouts.h"

#include "lathe/ir/Collective.h"

#include <numeric>

using namespace mlir;

namespace lathe::shard {

int64_t Parts::size() const { return std::accumulate(blocks.begin(), blocks.end(), int64_t(0)) * unit; }

int64_t Parts::localSize(int64_t ranks) const {
  int64_t units = 0;
  for (int64_t block : blocks)
    units += shardSize(block, ranks);
  return units * unit;
}

SmallVector<int64_t> Parts::placesOf(int64_t ranks, int64_t rank) const {
  SmallVector<int64_t> places;
  int64_t begin = 0;
  for (auto [number, block] : llvm::enumerate(blocks)) {
    const int64_t part = shardSize(block, ranks), first = shardBegin(block, ranks, rankIn(number, ranks, rank));
    for (int64_t i = first; i < first + part; ++i)
      for (int64_t e = 0; e < unit; ++e)
        places.push_back(i < block ? (begin + i) * unit + e : -1);
    begin += block;
  }
  return places;
}

bool Parts::isEven(int64_t ranks) const {
  return llvm::all_of(blocks, [&](int64_t block) { return block % ranks == 0; });
}

bool Parts::isApart(int64_t ranks) const {
  return llvm::none_of(blocks, [&](int64_t block) { return isShared(block, ranks); });
}

Parts Parts::canonical(int64_t ranks) const {
  Parts parts = *this;
  if (!isEven(ranks))
    return parts;
  for (int64_t &block : parts.blocks)
    block *= unit;
  parts.unit = 1;
  return parts;
}

std::string Layout::str() const {
  if (kind == Kind::Replicated)
    return "all";
  if (kind == Kind::Partial)
    return stringifyReduceKind(reduction).str() + " of all";
  std::string text = "dim " + std::to_string(dim);
  if (parts.blocks.size() > 1 || parts.unit > 1)
    for (size_t i = 0; i < parts.blocks.size(); ++i)
      text += (i ? "+" : " in blocks ") + std::to_string(parts.blocks[i]);
  if (parts.unit > 1)
    text += " of " + std::to_string(parts.unit);
  if (parts.mirrored)
    text += " mirrored";
  return text;
}

TensorType localType(Type type, const Layout &layout, int64_t ranks) {
  auto tensor = cast<TensorType>(type);
  if (!layout.isSplit())
    return tensor;
  std::vector<DimExpr> dims = dimsOf(tensor);
  dims[layout.dim] = layout.parts.localSize(ranks);
  auto encoding = dyn_cast_or_null<TensorAttr>(tensor.getEncoding());
  auto phys = encoding ? dyn_cast_or_null<PhysAttr>(encoding.getLayout()) : PhysAttr();
  if (!phys)
    return tensorType(tensor.getElementType(), dims);
  SmallVector<DimAttr> places(phys.getDims()); // of a state, whose other dimensions are in use as a whole
  places[layout.dim] = DimAttr::get(type.getContext(), dims[layout.dim]);
  return tensorType(tensor.getElementType(), dims, PhysAttr::get(type.getContext(), places));
}

std::optional<Layout> reshaped(const Layout &layout, ArrayRef<DimExpr> from, ArrayRef<DimExpr> to,
                               int64_t ranks) {
  auto isEmpty = [](const DimExpr &dim) { return dim == DimExpr(0); };
  if (llvm::any_of(from, isEmpty) || llvm::any_of(to, isEmpty)) // which elements belong together, nobody can say
    return std::nullopt;
  // The dimensions around `dim` that become others together: between places where as many elements
  // stand ahead on both sides.
  std::vector<DimExpr> ahead = {1}, aheadTo = {1};
  for (const DimExpr &dim : from)
    ahead.push_back(ahead.back() * dim);
  for (const DimExpr &dim : to)
    aheadTo.push_back(aheadTo.back() * dim);
  size_t first = 0, firstTo = 0; // the last common place up to `dim`
  for (size_t i = 0, next = 0; i <= size_t(layout.dim); ++i)
    for (size_t j = next; j < to.size(); ++j)
      if (ahead[i] == aheadTo[j]) {
        first = i;
        firstTo = j;
        next = j;
        break;
      }
  // Blocks of the group, one after another: those of `dim` for each element ahead of it.
  int64_t repeats = 1;
  for (size_t i = first; i < size_t(layout.dim); ++i) {
    std::optional<int64_t> size = from[i].constant();
    if (!size)
      return std::nullopt;
    repeats *= *size;
  }
  const Parts &parts = layout.parts;
  if (repeats == 1) { // blocks of any sizes, where units stay together
    size_t j = firstTo;
    while (j < to.size() && to[j] == DimExpr(1) && from[layout.dim] != DimExpr(1))
      ++j;
    if (j < to.size() && to[j] == from[layout.dim])
      return Layout::split(int64_t(j), parts);
    if (std::optional<int64_t> size = j < to.size() ? to[j].constant() : std::nullopt; size && *size > 0) {
      // What stands behind the dimension, up to where as many elements stand ahead on both sides.
      const int64_t whole = parts.size();
      int64_t inner = 1, outer = *size;
      size_t d = layout.dim + 1, k = j + 1;
      for (; whole * inner != outer;) {
        std::optional<int64_t> next;
        if (whole * inner < outer)
          next = d < from.size() ? from[d++].constant() : std::nullopt;
        else
          next = k < to.size() ? to[k++].constant() : std::nullopt;
        if (!next || *next < 1)
          break;
        (whole * inner < outer ? inner : outer) *= *next;
      }
      const int64_t behind = outer / *size; // elements of `to` behind one of j's
      if (whole * inner == outer && parts.unit * inner % behind == 0)
        return Layout::split(int64_t(j), Parts{parts.blocks, parts.unit * inner / behind, parts.mirrored}.canonical(ranks));
    }
  }
  if (!parts.isEven(ranks) || parts.unit != 1 || parts.mirrored ||
      llvm::any_of(parts.blocks, [&](int64_t block) { return block != parts.blocks[0]; }))
    return std::nullopt;
  int64_t blocks = repeats * int64_t(parts.blocks.size()), outer = 1;
  std::optional<Layout> found;
  for (size_t j = firstTo; j < to.size() && outer <= blocks; ++j) {
    std::optional<int64_t> size = to[j].constant();
    if (!size)
      break;
    if (blocks % outer == 0) {
      int64_t count = blocks / outer;
      if (*size > 1 && *size % count == 0 && *size / count % ranks == 0 && (count == 1 || !found))
        found = Layout::split(int64_t(j), Parts{std::vector<int64_t>(count, *size / count), 1});
    }
    outer *= *size;
  }
  if (!found)
    return std::nullopt;
  // A rank's part is a run of so many elements behind each block's begin, on both sides.
  auto runOf = [](ArrayRef<DimExpr> dims, const Layout &l) {
    DimExpr run = l.parts.blocks[0];
    for (const DimExpr &dim : dims.drop_front(l.dim + 1))
      run = run * dim;
    return run;
  };
  if (runOf(from, layout) != runOf(to, *found))
    return std::nullopt;
  return found;
}

} // namespace lathe::shard
