//===- SkeletonGemmHeads.cpp - products whose columns are heads --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The holes of rotated heads: pairs of columns half a head apart, or neighbours (KernelRoles), each
// stored in the output that has their head. Neighbours are the two lanes of a vector; an expression
// that uses only one of them is evaluated for that lane, so sums are known as a vector and as scalars.
//
//===----------------------------------------------------------------------===//

#include "GemmHoles.h"

using namespace mlir;

namespace lathe::codegen {

/// Says what the product's columns are where two neighbours have these sums, whose head is at `at`.
void Gemm::bindNeighbours(Evaluator &e, const std::vector<DimExpr> &split, Indices at, Value sums) {
  auto bind = [&](const Index &column, Value is) {
    at.back() = column;
    e.bind(op.getResult(), reshapeIndex(e, split, dimsOf(op.getResult()), at), is);
  };
  const Value first = at.back().base;
  bind(Index(first, 1), sums);
  for (int64_t l : {0, 1})
    bind(Index(e.ix.add(first, l)), e.lane(sums, l));
}

/// Says what the product's columns are where the pairs `first`, `second` of row m are, p being {b,
/// m, piece, first, second}, or two neighbours, {b, m, piece, sums}; and where each output has
/// them: but for the last index, which is that of `inside` or half a head further.
Gemm::HeadPlaces Gemm::bindHeads(Evaluator &e, ValueRange p, int64_t lanes) {
  IndexMath &ix = e.ix;
  HeadPlaces found;
  e.boundAlone = op;
  const int64_t half = roles.headSize / 2;
  Value pair = hasNeighbours() ? p[2] : ix.mul(p[2], lanes), head = ix.div(pair, ix.cst(half));
  found.inside = ix.rem(pair, ix.cst(half));
  if (hasNeighbours()) {
    found.inside = ix.mul(found.inside, 2);
    ix.limit(found.inside, roles.headSize - 1);
  } else {
    found.half = half;
    ix.limit(found.inside, half - lanes + 1);
  }
  Indices at = resultIndex(e, p[0], p[1], Index(ix.cst(0)));
  const std::vector<DimExpr> split = dimsOf(splitColumns());
  at.resize(split.size() - 2, Index(ix.cst(0))); // of a single row there may be more sizes of 1
  at.insert(at.begin() + roles.headAxis, Index(head));
  for (auto [index, size] : llvm::zip(at, split))
    if (size == DimExpr(1))
      index = Index(ix.cst(0));
  at.push_back(Index(found.inside));
  auto bindAt = [&](Value head) {
    Indices of = at;
    of[roles.headAxis] = Index(head);
    if (hasNeighbours())
      return bindNeighbours(e, split, of, p[3]);
    for (int64_t h : {0, 1}) {
      of.back() = found.last(ix, h, lanes);
      e.bind(op.getResult(), reshapeIndex(e, split, dimsOf(op.getResult()), of), p[3 + h]);
    }
  };
  bindAt(at[roles.headAxis].base);
  if (roles.headOutputs.empty())
    e.fail(op, "has heads that an output does not keep");
  for (const HeadOutput &place : roles.headOutputs) {
    if (place.count == 1) // the one head is at 0 there, which is known before it is compared
      bindAt(ix.cst(place.first));
    Indices to;
    for (int64_t d : place.dims)
      to.push_back(d < 0 ? Index(ix.cst(0)) : at[d]);
    Index &mine = to[llvm::find(place.dims, roles.headAxis) - place.dims.begin()];
    mine = Index(ix.sub(head, ix.cst(place.first)));
    // Heads below the first wrap around.
    found.has.push_back(ix.cmp(arith::CmpIPredicate::ult, mine.base, ix.cst(place.count)));
    found.places.push_back(to);
  }
  return found;
}

/// Stores what follows from pairs, each in the output that has their head.
void Gemm::storeHeads(Evaluator &e, ValueRange p, int64_t lanes) {
  HeadPlaces found = bindHeads(e, p, lanes);
  for (auto [n, has] : llvm::enumerate(found.has))
    e.ifThen(has, [&, n = n] {
      for (int64_t h = 0; h < (hasNeighbours() ? 1 : 2); ++h) {
        Indices to = found.places[n];
        to.back() = found.last(e.ix, h, lanes);
        Value output = e.outputValue(n);
        e.store(e.eval(output, to), output, e.outputArg(n), to);
      }
    });
}

/// The method that reads what `write` will read for a pair.
void Gemm::aheadOfHeads() {
  const int64_t lanes = hasNeighbours() ? 2 : 1;
  holes.method("beside", {"b", "m", "piece"}, accumulator, lanes, [&](Evaluator &e, ValueRange p) {
    Value none = e.constant(accumulator, 0);
    SmallVector<Value> at = {p[0], p[1], p[2], hasNeighbours() ? e.splat(none) : none, none};
    HeadPlaces found = bindHeads(e, at, lanes);
    std::function<Value(size_t)> sum = [&](size_t n) -> Value {
      if (n == found.places.size())
        return none;
      auto both = [&]() -> Value {
        found.places[n].back() = found.last(e.ix, 0, lanes);
        Value parts[2] = {e.eval(e.outputValue(n), found.places[n])};
        if (hasNeighbours())
          return e.horizontal(ReduceKind::Sum, e.splat(parts[0]), /*isUnsigned=*/false);
        found.places[n].back() = found.last(e.ix, 1, lanes);
        parts[1] = e.eval(e.outputValue(n), found.places[n]);
        return e.make<arith::AddFOp>(parts[0], parts[1]);
      };
      return e.ifElse(found.has[n], both, [&] { return sum(n + 1); });
    };
    return sum(0);
  });
  holes.line(std::string("LATHE_METHOD void ahead(i64 n) const { needValue(beside(0, 0, n") +
             (hasNeighbours() ? " / 2" : "") + ")); }");
}

/// The methods that give two neighbouring results, and those half a head further where halves meet,
/// one for each output, which heads that has, and how TMA stores a part of 64 rows: 32
/// columns of both halves, or such as are in one head.
void Gemm::writeHeads(Type stored) {
  constexpr int64_t kLanes = 2;
  const bool both = !hasNeighbours();
  const std::string width = std::to_string(both ? roles.headSize / 2 : roles.headSize);
  const std::string columns = both ? "pair" : "column";
  std::vector<std::string> params = {"b", "m", "pair", "first", "second"};
  if (!both)
    params = {"b", "m", "pair", "sums"};
  std::string stores, pairs, has;
  size_t n = 0, outputs = holes.kernel.spec->numOutputs;
  for (Value output : holes.kernel.body->getTerminator()->getOperands()) {
    const std::string number = std::to_string(n);
    auto result = VectorType::get({both ? 2 * kLanes : kLanes}, stored);
    holes.method(
        "pairs" + number, params, result, kLanes,
        [&](Evaluator &e, ValueRange p) {
          HeadPlaces found = bindHeads(e, p, kLanes);
          if (e.failed)
            return e.constant(result, 0);
          SmallVector<Value> parts;
          for (int64_t h = 0; h < (both ? 2 : 1); ++h) {
            found.places[n].back() = found.last(e.ix, h, kLanes);
            parts.push_back(
                e.toStorage(e.splat(e.eval(output, found.places[n])), elementTypeOf(output)));
          }
          if (!both)
            return parts[0];
          return e.make<vector::ShuffleOp>(parts[0], parts[1], ArrayRef<int64_t>{0, 1, 2, 3});
        },
        accumulator, both ? accumulator : Type());
    if (n >= roles.headOutputs.size())
      return;
    const HeadOutput &place = roles.headOutputs[n];
    std::string mine = columns + " / " + width + " - " + std::to_string(place.first) + "u";
    std::string test = "    if constexpr (S == " + number + ") return ";
    pairs += test + "pairs" + number +
             (both ? "(b, m, pair, first, second);\n" : "(b, m, pair, sums);\n");
    has += test + mine + " < " + std::to_string(place.count) + "u;\n";
    const KernelSpec &spec = *holes.kernel.spec;
    const TensorMapArg &map = spec.tensorMaps[spec.mapsOf(TensorMapArg::Role::Result)[n]];
    std::string tokens = "(u32)(" + holes.dim(map.dims[1]) + ")", head = "(i32)(" + mine + ")";
    bool one = map.dims[3] == DimExpr(1); // batch
    std::string where = one ? ", (i32)row, " + head + ", 0);"
                            : ", (i32)(row % " + tokens + "), " + head + ", (i32)(row / " + tokens + "));";
    std::string to = "      tensorStore(*maps[" + number + "], ";
    stores += "    if (isIn<" + number + ">(" + columns + ")) {\n";
    if (both)
      stores +=
          to + "one, column" + where + "\n" + to + "other, column + " + width + where + "\n    }\n";
    else
      stores += to + "part, (i32)(column % " + width + ")" + where + "\n    }\n";
    ++n;
  }
  holes.line("static constexpr int kOutputs = " + Twine(outputs) + ";\n  const TensorMap *maps[kOutputs];");
  holes.line("template <int S> LATHE_METHOD bool isIn(u32 " + columns + ") const {\n" + has +
             "  }");
  if (both) {
    holes.line("template <int S> LATHE_METHOD auto pairs(i64 b, i64 m, i64 pair, const Vec<Acc, 2> "
               "&first, const "
               "Vec<Acc, 2> &second) const {\n" +
               pairs + "  }");
    holes.line("LATHE_METHOD void storePairs(SharedAddr one, SharedAddr other, u32 row, u32 pair) "
               "const {\n"
               "    const i32 column = pair % " +
               width + ";\n" + stores + "  }");
    return;
  }
  holes.line("template <int S> LATHE_METHOD auto pairs(i64 b, i64 m, i64 pair, const Vec<Acc, 2> "
             "&sums) const {\n" +
             pairs + "  }");
  holes.line("LATHE_METHOD void storeHead(SharedAddr part, u32 row, u32 column) const {\n" +
             stores + "  }");
}

} // namespace lathe::codegen
