//===- Coupling.cpp - what of a model can only go together ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/sparsify/Coupling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace lathe::sparsify {

Coupling::Dim Coupling::add(int64_t size) {
  Dim dim{int64_t(parent.size()), size};
  parent.resize(parent.size() + size);
  std::iota(parent.begin() + dim.first, parent.end(), dim.first);
  return dim;
}

int64_t Coupling::unitOf(int64_t element) const {
  while (parent[element] != element)
    element = parent[element] = parent[parent[element]];
  return element;
}

void Coupling::tie(int64_t a, int64_t b) {
  a = unitOf(a), b = unitOf(b);
  parent[std::max(a, b)] = std::min(a, b); // named after the first element, whatever the order of ties
}

void Coupling::keep(const Dim &dim, const std::string &why) {
  if (dim.size)
    keeps.push_back({dim, why});
}

std::map<int64_t, std::string> Coupling::kept(const std::map<std::string, std::string> &nodes,
                                             const std::map<std::string, std::string> &constants) const {
  std::map<int64_t, std::string> units;
  auto add = [&](const Dim &dim, const std::string &why) {
    for (int64_t i = 0; i < dim.size; ++i)
      units.insert({unitOf(dim.at(i)), why});
  };
  for (const Tensor &tensor : tensors)
    if (const auto &list = tensor.op.empty() ? constants : nodes; list.count(tensor.node))
      for (const std::vector<Dim> *dims : {&tensor.dims, &tensor.read})
        for (const Dim &dim : *dims)
          add(dim, list.at(tensor.node));
  for (const auto &[dim, why] : keeps)
    add(dim, why);
  return units;
}

std::vector<Family> families(const Coupling &coupling, const std::map<int64_t, std::string> &kept) {
  struct Unit {
    uint64_t places = 0; // which dimensions it lies in, as a hash
    int64_t wide = 0;
    bool weighs = false; // products multiply by it
    int kind = -1;
    std::set<std::string> layers;
  };
  std::map<int64_t, Unit> units;
  for (const Coupling::Layer &layer : coupling.layers)
    for (int64_t i = 0; i < layer.columns.size; ++i)
      if (int64_t unit = coupling.unitOf(layer.columns.at(i)); !kept.count(unit))
        units[unit].layers.insert(layer.node);
  uint64_t place = 0;
  std::unordered_map<int64_t, int64_t> here;
  for (const Coupling::Tensor &tensor : coupling.tensors)
    for (const Coupling::Dim &dim : tensor.dims) {
      ++place;
      here.clear();
      for (int64_t i = 0; i < dim.size; ++i)
        if (auto found = units.find(coupling.unitOf(dim.at(i))); found != units.end()) {
          Unit &unit = found->second;
          unit.places = (unit.places ^ place) * 0x9e3779b97f4a7c15u + place;
          unit.weighs |= tensor.product;
          unit.wide = std::max(unit.wide, ++here[found->first]);
        }
    }
  for (const auto &[dim, kind] : coupling.marked())
    for (int64_t i = 0; i < dim.size; ++i)
      if (auto found = units.find(coupling.unitOf(dim.at(i))); found != units.end())
        if (found->second.kind != int(UnitKind::Heads))
          found->second.kind = int(kind);
  std::vector<Family> list;
  std::map<uint64_t, size_t> known;
  for (auto &[root, unit] : units) {
    if (!unit.weighs)
      continue;
    auto [at, isNew] = known.insert({unit.places, list.size()});
    if (isNew) {
      Family family;
      family.kind = unit.kind < 0 ? UnitKind::Columns : UnitKind(unit.kind);
      family.layers.assign(unit.layers.begin(), unit.layers.end());
      family.wide = unit.wide;
      list.push_back(std::move(family));
    }
    list[at->second].units.push_back(root);
  }
  return list;
}

int64_t unitsThatStay(int64_t count, double ratio, int64_t multiple) {
  int64_t stay = std::clamp<int64_t>(count - std::llround(ratio * double(count)), 1, count);
  if (multiple > 1 && count >= 2 * multiple)
    stay = std::min(count, (stay + multiple - 1) / multiple * multiple);
  return stay;
}

std::set<int64_t> leastUnits(const Family &family, const std::map<int64_t, double> &scores, int64_t stay) {
  std::vector<int64_t> order = family.units;
  auto scoreOf = [&](int64_t unit) {
    auto found = scores.find(unit);
    return found == scores.end() ? 0.0 : std::isnan(found->second) ? INFINITY : found->second;
  };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return std::pair(scoreOf(a), a) < std::pair(scoreOf(b), b); });
  return {order.begin(), order.begin() + std::max<int64_t>(0, int64_t(order.size()) - stay)};
}

/// Sums of term(i) over the elements i with the same index of `axis`.
template <typename Term> static std::vector<double> axisSums(const HostTensor &tensor, int64_t axis, Term term) {
  std::vector<double> sums(tensor.dims[axis]);
  int64_t inner = 1;
  for (size_t d = axis + 1; d < tensor.dims.size(); ++d)
    inner *= tensor.dims[d];
  for (int64_t i = 0, n = tensor.count(); i < n; ++i)
    sums[i / inner % tensor.dims[axis]] += term(i);
  return sums;
}

std::vector<double> axisScores(const HostTensor &tensor, int64_t axis, Score score) {
  return axisSums(tensor, axis, [&](int64_t i) {
    const double x = tensor.real(i);
    return score == Score::L2 ? x * x : std::fabs(x);
  });
}

std::vector<double> axisDots(const HostTensor &weight, const HostTensor &gradient, int64_t axis) {
  return axisSums(weight, axis, [&](int64_t i) { return weight.real(i) * gradient.real(i); });
}

/// Whether each element of a dimension is in the list of it.
static std::vector<std::vector<bool>> goneOf(const HostTensor &tensor, const std::vector<std::vector<int64_t>> &removed) {
  std::vector<std::vector<bool>> gone;
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    gone.emplace_back(tensor.dims[d]);
    for (int64_t i : removed[d])
      gone[d][i] = true;
  }
  return gone;
}

/// Calls `body` with each element's index and whether one of its coordinates is gone, in order.
template <typename Body> static void eachElement(const HostTensor &tensor, const std::vector<std::vector<bool>> &gone, Body body) {
  std::vector<int64_t> at(tensor.dims.size());
  for (int64_t i = 0, n = tensor.count(); i < n; ++i) {
    bool any = false;
    for (size_t d = 0; d < at.size(); ++d)
      any |= gone[d][at[d]];
    body(i, any);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == tensor.dims[d];)
      at[d] = 0;
  }
}

HostTensor without(const HostTensor &tensor, const std::vector<std::vector<int64_t>> &removed) {
  std::vector<int64_t> dims = tensor.dims;
  for (size_t d = 0; d < dims.size(); ++d)
    dims[d] -= int64_t(removed[d].size());
  HostTensor result(tensor.dtype, dims);
  int64_t to = 0;
  eachElement(tensor, goneOf(tensor, removed), [&](int64_t i, bool gone) {
    if (!gone)
      copyElement(tensor, i, result, to++);
  });
  return result;
}

void clear(HostTensor &tensor, const std::vector<std::vector<int64_t>> &removed) {
  eachElement(tensor, goneOf(tensor, removed), [&](int64_t i, bool gone) {
    if (gone)
      tensor.setReal(i, 0);
  });
}

} // namespace lathe::sparsify
