//===- Maps.cpp - ops of ai.onnx.ml on maps ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A map is two tensors, keys and values. The maps that ZipMap makes of rows have the same keys, so that their values stay
// the matrix that they were: as outputs y.keys [C] and y.values [N, C]. An input that is a map is x.keys and x.values.
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"
#include "Strings.h"

#include "lathe/ir/Selection.h"

using namespace mlir;

namespace lathe::legal {
namespace {

/// A list of an attribute as a vector: of strings their numbers, of which `areStrings` is told. Null without a report where
/// there is none.
Value keysOf(Node &n, StringRef strings, StringRef integers, bool &areStrings) {
  std::optional<Ints> list = stringsAttr(n, strings);
  areStrings = list && !list->empty();
  if (!areStrings)
    list = n.intsAttr(integers);
  return list && !list->empty() ? n.e.ints(*list, {int64_t(list->size())}, n.e.b.getI64Type()) : Value();
}

/// What import makes of an input that is a map: keys and values.
LogicalResult mapConstruct(Node &n) {
  Tracked map = Tracked::sequence({n.tracked(0), n.tracked(1)});
  map.isMap = true;
  return n.setTracked(0, std::move(map));
}

/// Rows of scores as maps from class to score.
LogicalResult zipMap(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 1 || rankOf(x) > 2)
    return n.invalid("shape", "ZipMap wants scores [C] or [N, C]");
  bool areStrings = false;
  Value keys = keysOf(n, "classlabels_strings", "classlabels_int64s", areStrings);
  if (n.reported)
    return failure();
  if (!keys)
    return n.invalid("attribute", "classlabels_strings or classlabels_int64s are needed");
  if (areStrings && n.legalizer.forGpu())
    return n.fail("dtype", "strings on a GPU", "targets that are CPUs, or classlabels_int64s");
  if (!n.unify(dimOf(x, rankOf(x) - 1), dimOf(keys, 0)))
    return n.invalid("shape", "there are " + llvm::Twine(*dimOf(keys, 0).constant()) + " classes for scores of " +
                                  llvm::Twine(dimOf(x, rankOf(x) - 1).str()));
  if (areStrings)
    n.legalizer.stringValues.insert(keys);
  Tracked key, value;
  key.data = keys;
  value.data = rankOf(x) == 1 ? e.unsqueeze(x, {0}) : x;
  Tracked maps = Tracked::sequence({key, value});
  maps.isMap = true;
  return n.setTracked(0, std::move(maps));
}

/// Keys and values of operand 0, vectors of one length; none after a report.
std::optional<std::pair<Value, Value>> mapOperand(Node &n) {
  std::optional<std::vector<Tracked>> parts = n.sequence(0);
  if (!parts || parts->size() != 2)
    return std::nullopt;
  Value keys = n.legalizer.dataOf((*parts)[0]), values = n.legalizer.dataOf((*parts)[1]);
  if (!keys || !values)
    return std::nullopt;
  return std::pair(keys, values);
}

/// The value of each wanted key, [1, C]; 0, of strings "", for what is no key. No key is there twice.
Value valuesAt(Emitter &e, Value keys, Value values, Value wanted) {
  Value hit = e.compare(e.unsqueeze(keys, {1}), e.unsqueeze(wanted, {0}), Predicate::Eq);
  Value each = e.select(hit, e.unsqueeze(values, {1}), e.scalar(0, elementTypeOf(values)));
  return e.reduce(each, ReduceKind::Sum, {0}, /*keepDims=*/true);
}

LogicalResult dictVectorizer(Node &n) {
  auto map = mapOperand(n);
  if (!map)
    return failure();
  auto [keys, values] = *map;
  bool areStrings = false;
  Value wanted = keysOf(n, "string_vocabulary", "int64_vocabulary", areStrings);
  if (n.reported)
    return failure();
  if (!wanted || areStrings != n.legalizer.stringValues.contains(keys))
    return n.invalid("attribute", "a vocabulary of the type of the map's keys is needed");
  Value y = valuesAt(n.e, keys, values, wanted);
  return n.legalizer.stringValues.contains(values) ? n.setStrings(0, y) : n.done(y);
}

/// The values by ascending key: DENSE all of them, SPARSE those at the keys 0 to max_map - 1 and zeros between them.
LogicalResult castMap(Node &n) {
  Emitter &e = n.e;
  auto map = mapOperand(n);
  if (!map)
    return failure();
  auto [keys, values] = *map;
  std::string to = n.strAttr("cast_to", "TO_FLOAT"), form = n.strAttr("map_form", "DENSE");
  int64_t element = to == "TO_FLOAT" ? 1 : to == "TO_INT64" ? 7 : to == "TO_STRING" ? 8 : 0;
  if (!element || (form != "DENSE" && form != "SPARSE"))
    return n.invalid("attribute", "cast_to is TO_FLOAT, TO_INT64 or TO_STRING, map_form DENSE or SPARSE");
  NamedAttribute cast = e.b.getNamedAttr("to", e.b.getI64IntegerAttr(element));
  if (form == "SPARSE") {
    int64_t most = n.intAttr("max_map", 1);
    if (most < 1)
      return n.invalid("attribute", "max_map is at least 1");
    if (element == 8 || n.legalizer.stringValues.contains(values))
      return n.fail("attribute", "map_form = SPARSE of strings", "DENSE, or numbers");
    values = valuesAt(e, keys, values, e.iota({DimExpr(most)}, 0, e.b.getI64Type()));
  } else {
    Value order = e.infer<TopKOp>(keys, uint64_t(0), DimAttr::get(n.op->getContext(), dimOf(keys, 0)), true);
    Value sorted = e.infer<GatherOp>(values, order, uint64_t(0));
    if (n.legalizer.stringValues.contains(values) && sorted)
      n.legalizer.stringValues.insert(sorted);
    values = sorted;
  }
  Value y = n.legalizer.compose(n, "Cast", {values}, {cast}, 1).front();
  y = form == "DENSE" ? e.unsqueeze(y, {0}) : y;
  return element == 8 ? n.setStrings(0, y) : n.done(y);
}

} // namespace

void addMaps(Handlers &h) {
  h["MapConstruct"] = mapConstruct;
  h["ai.onnx.ml.ZipMap"] = zipMap;
  h["ai.onnx.ml.DictVectorizer"] = dictVectorizer;
  h["ai.onnx.ml.CastMap"] = castMap;
}

} // namespace lathe::legal
