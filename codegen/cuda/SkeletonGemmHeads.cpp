//===- SkeletonGemmHeads.cpp - products whose columns are heads --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The holes of pairs of columns half a head apart (lathe/ir/HeadPairs.h), each stored in the output that
// has their head.
//
//===----------------------------------------------------------------------===//

#include "GemmHoles.h"

using namespace mlir;

namespace lathe::codegen {

/// Says what the product's columns are where the pairs `first`, `second` of row m are, p being {b, m,
/// piece, first, second}, and where each output has them: but for the last index, which is that of `inside` or
/// half a head further.
Gemm::HeadPlaces Gemm::bindHeads(Evaluator &e, ValueRange p, int64_t lanes) {
  IndexMath &ix = e.ix;
  HeadPlaces found;
  found.half = heads->size / 2;
  Value pair = ix.mul(p[2], lanes), head = ix.div(pair, ix.cst(found.half));
  found.inside = ix.rem(pair, ix.cst(found.half));
  ix.limit(found.inside, found.half - lanes + 1);
  Indices at = resultIndex(e, p[0], p[1], Index(ix.cst(0)));
  const std::vector<DimExpr> split = dimsOf(heads->split.getY());
  at.resize(split.size() - 2, Index(ix.cst(0))); // of a single row there may be more sizes of 1
  at.insert(at.begin() + heads->axis, Index(head));
  for (auto [index, size] : llvm::zip(at, split))
    if (size == DimExpr(1))
      index = Index(ix.cst(0));
  at.push_back(Index());
  for (int64_t h : {0, 1}) {
    at.back() = found.last(ix, h, lanes);
    e.bind(op.getResult(), reshapeIndex(e, split, dimsOf(op.getResult()), at), p[3 + h]);
  }
  for (Value output : holes.kernel.body->getTerminator()->getOperands()) {
    std::optional<HeadPlace> place = headPlace(output, *heads);
    if (!place) {
      e.fail(op, "has heads that an output does not keep");
      break;
    }
    Indices to;
    for (int64_t d : place->dims)
      to.push_back(at[d]);
    Index &mine = to[llvm::find(place->dims, heads->axis) - place->dims.begin()];
    mine = Index(ix.sub(head, ix.cst(place->first)));
    // Heads below the first wrap around.
    found.has.push_back(ix.cmp(arith::CmpIPredicate::ult, mine.base, ix.cst(place->count)));
    found.places.push_back(to);
  }
  return found;
}

/// Stores what follows from pairs, each in the output that has their head.
void Gemm::storeHeads(Evaluator &e, ValueRange p, int64_t lanes) {
  HeadPlaces found = bindHeads(e, p, lanes);
  for (auto [n, has] : llvm::enumerate(found.has))
    e.ifThen(has, [&, n = n] {
      for (int64_t h : {0, 1}) {
        Indices to = found.places[n];
        to.back() = found.last(e.ix, h, lanes);
        Value output = e.outputValue(n);
        e.store(e.eval(output, to), output, e.outputArg(n), to);
      }
    });
}

/// The method that reads what `write` will read for a pair.
void Gemm::aheadOfHeads() {
  holes.method("beside", {"b", "m", "piece"}, accumulator, 1, [&](Evaluator &e, ValueRange p) {
    Value none = e.constant(accumulator, 0);
    HeadPlaces found = bindHeads(e, {p[0], p[1], p[2], none, none}, 1);
    std::function<Value(size_t)> sum = [&](size_t n) -> Value {
      if (n == found.places.size())
        return none;
      auto both = [&] {
        Value parts[2];
        for (int64_t h : {0, 1}) {
          found.places[n].back() = found.last(e.ix, h, 1);
          parts[h] = e.eval(e.outputValue(n), found.places[n]);
        }
        return e.make<arith::AddFOp>(parts[0], parts[1]);
      };
      return e.ifElse(found.has[n], both, [&] { return sum(n + 1); });
    };
    return sum(0);
  });
  holes.line("LATHE_METHOD void ahead(i64 n) const { needValue(beside(0, 0, n)); }");
}

/// The methods that give two neighbouring results and those half a head further, one for each output, which
/// heads that has, and how the copy engine stores 32 columns of 64 rows of both halves.
void Gemm::writeHeads(Type stored) {
  constexpr int64_t kLanes = 2;
  const std::string half = std::to_string(heads->size / 2);
  std::string stores, pairs, has;
  size_t n = 0, outputs = holes.kernel.spec->numOutputs;
  for (Value output : holes.kernel.body->getTerminator()->getOperands()) {
    const std::string number = std::to_string(n);
    holes.method(
        "pairs" + number, {"b", "m", "pair", "first", "second"}, VectorType::get({2 * kLanes}, stored), kLanes,
        [&](Evaluator &e, ValueRange p) {
          HeadPlaces found = bindHeads(e, p, kLanes);
          if (e.failed)
            return e.constant(VectorType::get({2 * kLanes}, stored), 0);
          SmallVector<Value> both;
          for (int64_t h : {0, 1}) {
            found.places[n].back() = found.last(e.ix, h, kLanes);
            both.push_back(e.toStorage(e.splat(e.eval(output, found.places[n])), elementTypeOf(output)));
          }
          return e.make<vector::ShuffleOp>(both[0], both[1], ArrayRef<int64_t>{0, 1, 2, 3});
        },
        accumulator, accumulator);
    std::optional<HeadPlace> place = headPlace(output, *heads);
    if (!place)
      return;
    std::string mine = "pair / " + half + " - " + std::to_string(place->first) + "u";
    std::string test = "    if constexpr (S == " + number + ") return ";
    pairs += test + "pairs" + number + "(b, m, pair, first, second);\n";
    has += test + mine + " < " + std::to_string(place->count) + "u;\n";
    const TensorMapArg &map = holes.kernel.spec->tensorMaps[2 + n];
    std::string tokens = "(u32)(" + holes.dim(map.dims[1]) + ")", head = "(i32)(" + mine + ")";
    bool one = map.dims[3] == DimExpr(1); // batch
    std::string where = one ? ", (i32)row, " + head + ", 0);"
                            : ", (i32)(row % " + tokens + "), " + head + ", (i32)(row / " + tokens + "));";
    stores += "    if (isIn<" + number + ">(pair)) {\n      tensorStore(*maps[" + number + "], one, column" + where +
              "\n      tensorStore(*maps[" + number + "], other, column + " + half + where + "\n    }\n";
    ++n;
  }
  holes.line("static constexpr int kOutputs = " + Twine(outputs) + ";\n  const TensorMap *maps[kOutputs];");
  holes.line("template <int S> LATHE_METHOD bool isIn(u32 pair) const {\n" + has + "  }");
  holes.line("template <int S> LATHE_METHOD auto pairs(i64 b, i64 m, i64 pair, const Vec<Acc, 2> &first, const "
             "Vec<Acc, 2> &second) const {\n" + pairs + "  }");
  holes.line("LATHE_METHOD void storePairs(SharedAddr one, SharedAddr other, u32 row, u32 pair) const {\n"
             "    const i32 column = pair % " + half + ";\n" + stores + "  }");
}

} // namespace lathe::codegen
