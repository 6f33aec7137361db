//===- Coupling.h - what of a model can only go together --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// To make a layer narrower, an element of one dimension goes, and with it the elements of all
// dimensions that are indexed by the same iterator: the filter, its bias, the row of what reads it,
// the other side of a residual. Elements that are tied form a unit; units that lie in the same
// dimensions are a family, from which a share is left out. Union-find over elements, not over
// dimensions, so that concatenated, sliced and grouped dimensions need no case of their own.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SPARSIFY_COUPLING_H
#define LATHE_SPARSIFY_COUPLING_H

#include "lathe/sparsify/Prune.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe::sparsify {

/// What is left out as a whole.
enum class UnitKind {
  Channels, ///< of a convolution
  Heads,    ///< of attention: products of two computed operands are separate for each
  Columns,  ///< of a product whose result others sum over: a feed-forward layer
};

class Coupling {
public:
  /// Elements of one dimension: `size` from `first` on; none where the size is only known at run time.
  struct Dim {
    int64_t first = 0, size = 0;
    int64_t at(int64_t i) const { return first + i; }
  };
  /// A constant of the model, an input, or what a node computes; a node may stand for several.
  struct Tensor {
    std::string node; ///< of a constant its name
    std::string op;   ///< of the intermediate form; "" of a constant
    bool product = false; ///< a constant that products or convolutions multiply by
    std::vector<Dim> dims;
    std::vector<Dim> read; ///< of all operands
    std::vector<std::string> sizes = {}; ///< of what is computed, and of inputs: equal texts are equal sizes
  };
  /// A node takes elements [begin, end) of dimension `axis`.
  struct Cut {
    std::string node;
    Dim from;
    int64_t axis = 0, begin = 0, end = 0;
  };
  /// A product by a constant, and the dimension that only the constant gives its result.
  struct Layer {
    std::string node;
    Dim columns;
  };
  std::vector<Tensor> tensors; ///< in the order of the program
  std::vector<Cut> cuts;
  std::vector<Layer> layers;

  Dim add(int64_t size);
  void tie(int64_t a, int64_t b);
  /// These stay, for this reason; the first one given counts.
  void keep(const Dim &dim, const std::string &why);
  void mark(const Dim &dim, UnitKind kind) { marks.push_back({dim, kind}); }

  int64_t unitOf(int64_t element) const;
  /// Why units stay, by unit; those of operands and results of `nodes` and of `constants` too, for the reasons given.
  std::map<int64_t, std::string> kept(const std::map<std::string, std::string> &nodes = {},
                                      const std::map<std::string, std::string> &constants = {}) const;
  const std::vector<std::pair<Dim, UnitKind>> &marked() const { return marks; }

private:
  mutable std::vector<int64_t> parent;
  std::vector<std::pair<Dim, std::string>> keeps;
  std::vector<std::pair<Dim, UnitKind>> marks;
};

/// Units that lie in the same dimensions, from which any may be left out, but one.
struct Family {
  UnitKind kind = UnitKind::Columns;
  std::vector<int64_t> units;      ///< in the order of their elements
  std::vector<std::string> layers; ///< that give them
  int64_t wide = 1;                ///< elements of a unit in one dimension at most: those of a head
};

/// The families of products that may become narrower.
std::vector<Family> families(const Coupling &coupling, const std::map<int64_t, std::string> &kept);

/// How many units of `count` stay by a ratio: the nearest number, 1 at least, and the next multiple of `multiple`
/// where there are twice as many units.
int64_t unitsThatStay(int64_t count, double ratio, int64_t multiple);

/// The units with the least scores beside those that stay; among equal scores the first.
std::set<int64_t> leastUnits(const Family &family, const std::map<int64_t, double> &scores, int64_t stay);

/// Sums along all dimensions but `axis`: of magnitudes, or of squares.
std::vector<double> axisScores(const HostTensor &tensor, int64_t axis, Score score);
/// Of weight x gradient, which have the same sizes.
std::vector<double> axisDots(const HostTensor &weight, const HostTensor &gradient, int64_t axis);

/// A tensor without these elements of its dimensions (sorted, one list a dimension).
HostTensor without(const HostTensor &tensor, const std::vector<std::vector<int64_t>> &removed);
/// The same elements as zeros.
void clear(HostTensor &tensor, const std::vector<std::vector<int64_t>> &removed);

} // namespace lathe::sparsify

#endif // LATHE_SPARSIFY_COUPLING_H
