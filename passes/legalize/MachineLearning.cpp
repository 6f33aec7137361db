//===- MachineLearning.cpp - features and n-grams ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops of ai.onnx.ml that are compositions, and TfIdfVectorizer of ai.onnx. Strings are their numbers.
//
//===----------------------------------------------------------------------===//
#include "Formulas.h"
#include "Legalizer.h"
#include "Strings.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace lathe::legal {
namespace {

/// Columns of the last dimension; of a vector, a matrix of one row.
LogicalResult arrayFeatureExtractor(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), indices = n.in(1);
  if (!x || !indices || rankOf(x) < 1)
    return n.invalid("shape", "features [..., C] and indices are needed");
  Value y = e.infer<GatherOp>(x, e.reshape(indices, {numElements(indices.getType())}),
                              uint64_t(rankOf(x) - 1));
  return n.done(rankOf(x) == 1 ? e.unsqueeze(y, {0}) : y);
}

/// 1 where x is above the threshold, else 0.
LogicalResult binarizer(Node &n) {
  Value x = n.in(0);
  return n.done(n.e.cast(n.e.compare(x, n.floatAttr("threshold", 0), Predicate::Gt),
                         x ? elementTypeOf(x) : Type()));
}

/// A list of numbers over the last dimension, of which it has one or one a column.
Value perColumn(Node &n, StringRef name, Value x, double otherwise, Type element) {
  std::optional<std::vector<double>> list = n.floatsAttr(name);
  if (!list)
    return n.e.scalar(otherwise, element);
  std::optional<int64_t> columns = rankOf(x) ? dimOf(x, rankOf(x) - 1).constant() : std::nullopt;
  if (list->size() != 1 && columns && *columns != int64_t(list->size()))
    return n.e.fail(llvm::Twine(name) + " has " + llvm::Twine(list->size()) + " numbers for " +
                    llvm::Twine(*columns) + " columns");
  return n.e.floats(*list, {int64_t(list->size())}, element);
}

/// A constant of one dimension, of floats or integers.
Value vectorOf(Emitter &e, const std::vector<double> &all, Type type) {
  Ints shape = {int64_t(all.size())};
  return isa<FloatType>(type) ? e.floats(all, shape, type) : e.ints(Ints(all.begin(), all.end()), shape, type);
}

/// (x - offset) * scale, in f32 whatever x is.
LogicalResult scaler(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  Type f32 = e.b.getF32Type();
  return n.done(e.mul(e.sub(e.cast(x, f32), perColumn(n, "offset", x, 0, f32)),
                      perColumn(n, "scale", x, 1, f32)));
}

/// Each row divided by its norm, of which MAX is the greatest element, not the greatest magnitude; where it is 0 a
/// row stays.
LogicalResult normalizer(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 1 || rankOf(x) > 2)
    return n.invalid("shape", "Normalizer wants [C] or [N, C]");
  x = e.cast(x, e.b.getF32Type());
  Ints last = {rankOf(x) - 1};
  std::string norm = n.strAttr("norm", "MAX");
  Value size = norm == "MAX"  ? e.reduce(x, ReduceKind::Max, last)
               : norm == "L1" ? e.reduce(e.unary<AbsOp>(x), ReduceKind::Sum, last)
               : norm == "L2" ? e.unary<SqrtOp>(e.reduce(e.mul(x, x), ReduceKind::Sum, last))
                              : e.fail("norm = '" + llvm::Twine(norm) + "'");
  Value zero = e.compare(size, 0.0, Predicate::Eq);
  return n.done(e.select(zero, x, e.div(x, e.select(zero, e.like(x, 1), size))));
}

/// x in f32, its columns behind those of the operands ahead.
LogicalResult featureVectorizer(Node &n) {
  Emitter &e = n.e;
  std::optional<Ints> columns = n.intsAttr("inputdimensions");
  std::vector<Value> parts;
  for (unsigned i = 0; i < n.numInputs(); ++i) {
    Value x = n.in(i);
    if (!x || rankOf(x) < 1 || rankOf(x) > 2)
      return n.invalid("shape", "features are [C] or [N, C]");
    x = e.cast(rankOf(x) == 1 ? e.unsqueeze(x, {0}) : x, e.b.getF32Type());
    if (columns && (columns->size() != n.numInputs() || !n.unify(dimOf(x, 1), DimExpr((*columns)[i]))))
      return n.invalid("shape", "inputdimensions are the numbers of columns of the operands");
    parts.push_back(x);
  }
  return n.done(e.concat(parts, 1));
}

/// Another value, of all columns or of each, in place of one; NaN is found too.
LogicalResult imputer(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 1)
    return n.invalid("shape", "features [..., C] are needed");
  Type element = elementTypeOf(x);
  std::vector<double> values;
  double replaced;
  if (isFloat(element)) {
    values = n.floatsAttr("imputed_value_floats").value_or(values);
    replaced = n.floatAttr("replaced_value_float", 0);
  } else {
    Ints whole = n.intsAttr("imputed_value_int64s").value_or(Ints());
    values.assign(whole.begin(), whole.end());
    replaced = double(n.intAttr("replaced_value_int64", 0));
  }
  int64_t count = int64_t(values.size());
  if (count != 1 && (count == 0 || !n.unify(dimOf(x, rankOf(x) - 1), DimExpr(count))))
    return n.invalid("attribute", "imputed values of the operand's type are one, or one a column");
  Value hit = std::isnan(replaced) ? e.infer<IsNanOp>(x) : e.compare(x, replaced, Predicate::Eq);
  return n.done(e.select(hit, vectorOf(e, values, element), x));
}

/// For each element 1 at the place of its category, else 0, [..., categories]. Numbers are whole ones then. Where all
/// must be found (zeros = 0), the run fails at what is none: it is looked up behind the end of a table.
LogicalResult oneHotEncoder(Node &n) {
  constexpr int64_t kMaxCategories = 4096;
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  std::optional<Ints> categories = n.isStrings(0) ? stringsAttr(n, "cats_strings") : n.intsAttr("cats_int64s");
  if (n.reported)
    return failure();
  if (!categories || categories->empty())
    return n.invalid("attribute", "there are no categories of the operand's type");
  int64_t count = int64_t(categories->size());
  Type whole = e.b.getI64Type(), f32 = e.b.getF32Type();
  Dims wide = dimsOf(x);
  wide.push_back(DimExpr(1));
  Value hit = e.compare(e.reshape(e.cast(x, whole), wide), e.ints(*categories, {count}, whole), Predicate::Eq);
  if (n.intAttr("zeros", 1))
    return n.done(e.cast(hit, f32));
  if (count > kMaxCategories)
    return n.fail("attribute", "more than 4096 categories, all of which must be found", "zeros = 1");
  Value place = e.reduce(e.select(hit, e.iota({DimExpr(count)}, 0, whole), e.scalar(double(count), whole)),
                         ReduceKind::Min, {int64_t(wide.size()) - 1}, false);
  Value known = e.broadcastTo(e.scalar(1, f32), {DimExpr(count)});
  return n.done(e.mul(e.cast(hit, f32), e.unsqueeze(e.infer<GatherOp>(known, place, uint64_t(0)), {rankOf(x)})));
}

/// The value that belongs to each string of x, `otherwise` to what is no key: keys are constants, whose numbers
/// are small, so that the number of a string is a place in a table.
Value byNumberOfString(Emitter &e, Value x, const Ints &keys, const std::vector<double> &values, double otherwise,
                       Type result) {
  int64_t end = *llvm::max_element(keys) + 1;
  std::vector<double> table(end + 1, otherwise);
  for (auto [key, value] : llvm::zip(keys, values))
    table[key] = value;
  return e.infer<GatherOp>(vectorOf(e, table, result), e.min(x, e.scalar(double(end), e.b.getI64Type())), uint64_t(0));
}

/// Until opset 2: the place of a string in `classes_strings`, or the string at a place.
LogicalResult placeOrClass(Node &n, Value x, Ints classes) {
  Emitter &e = n.e;
  const int64_t count = int64_t(classes.size());
  Type whole = e.b.getI64Type();
  if (n.isStrings(0)) {
    std::vector<double> places(count);
    std::iota(places.begin(), places.end(), 0);
    return n.done(byNumberOfString(e, x, classes, places, double(n.intAttr("default_int64", -1)), whole));
  }
  Value known = e.infer<AndOp>(e.compare(x, 0.0, Predicate::Ge), e.compare(x, double(count), Predicate::Lt));
  Value place = e.select(known, x, e.scalar(double(count), whole));
  classes.push_back(n.legalizer.stringNumber(n.strAttr("default_string", "_Unused")));
  return n.setStrings(0, e.infer<GatherOp>(e.ints(classes, {count + 1}, whole), place, uint64_t(0)));
}

/// The value that stands for each key; the default for what is no key. From opset 4 on NaN is
/// the key NaN.
LogicalResult labelEncoder(Node &n) {
  constexpr size_t kMaxKeys = 4096;
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  /// Numbers of a list, in place of strings theirs.
  auto list = [&](const std::string &what, bool &strings) {
    std::vector<double> numbers = n.floatsAttr(what + "_floats").value_or(numbersOf(n, what + "_tensor"));
    std::optional<Ints> whole = n.intsAttr(what + "_int64s");
    for (const char *form : {"_strings", "_tensor"})
      if (std::optional<Ints> texts = stringsAttr(n, what + form)) {
        whole = texts;
        strings = true;
      }
    if (whole)
      numbers.assign(whole->begin(), whole->end());
    return numbers;
  };
  if (std::optional<Ints> classes = stringsAttr(n, "classes_strings"); classes && !classes->empty())
    return placeOrClass(n, x, *classes);
  bool fromStrings = false, toStrings = false;
  std::vector<double> keys = list("keys", fromStrings), values = list("values", toStrings);
  if (n.reported)
    return failure();
  if (keys.empty() || keys.size() != values.size())
    return n.invalid("attribute", "there are no keys, or not as many values");
  if (fromStrings != n.isStrings(0))
    return n.invalid("dtype", "the keys are of another type than the operand");
  Type result = e.b.getI64Type();
  double otherwise = double(n.intAttr("default_int64", -1));
  if (toStrings) {
    std::optional<Ints> given = stringsAttr(n, "default_tensor");
    otherwise = double(given && given->size() == 1 ? given->front()
                                                   : n.legalizer.stringNumber(n.strAttr("default_string", "_Unused")));
  } else if (n.hasAttr("values_floats")) {
    result = e.b.getF32Type();
    otherwise = n.floatAttr("default_float", -0.0);
  } else if (auto tensor = n.op->getAttrOfType<TypedAttr>("values_tensor")) {
    result = cast<ShapedType>(tensor.getType()).getElementType();
    std::vector<double> one = numbersOf(n, "default_tensor");
    otherwise = one.size() == 1 ? one[0] : isa<FloatType>(result) ? -0.0 : -1;
  }
  auto done = [&](Value y) { return toStrings ? n.setStrings(0, y) : n.done(y); };
  if (fromStrings)
    return done(byNumberOfString(e, x, Ints(keys.begin(), keys.end()), values, otherwise, result));
  if (keys.size() > kMaxKeys)
    return n.fail("attribute", "more than 4096 keys that are numbers", "fewer keys");
  // The last key that fits counts, as in a map that is filled in order.
  int64_t count = int64_t(keys.size());
  Type key = elementTypeOf(x), index = e.b.getI64Type();
  Dims wide = dimsOf(x);
  wide.push_back(DimExpr(1));
  Value table = vectorOf(e, keys, key);
  Value each = e.reshape(x, wide);
  Value hit = e.compare(each, table, Predicate::Eq);
  if (isa<FloatType>(key) && n.opset >= 4)
    hit = e.infer<OrOp>(hit, e.infer<AndOp>(e.infer<IsNanOp>(each), e.infer<IsNanOp>(table)));
  Value place = e.reduce(e.select(hit, e.iota({DimExpr(count)}, 0, index), e.scalar(-1, index)), ReduceKind::Max,
                         {int64_t(wide.size()) - 1}, false);
  values.push_back(otherwise); // at -1
  return done(e.infer<GatherOp>(vectorOf(e, values, result), place, uint64_t(0)));
}

/// The other one of two lists that belong together, of strings and of integers.
LogicalResult categoryMapper(Node &n) {
  constexpr int64_t kMaxKeys = 4096;
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<Ints> texts = stringsAttr(n, "cats_strings"), numbers = n.intsAttr("cats_int64s");
  if (!x || !texts || !numbers || texts->size() != numbers->size() || texts->empty())
    return n.invalid("attribute", "cats_strings and cats_int64s are lists of one length");
  Type whole = e.b.getI64Type();
  if (n.isStrings(0))
    return n.done(byNumberOfString(e, x, *texts, std::vector<double>(numbers->begin(), numbers->end()),
                                   double(n.intAttr("default_int64", -1)), whole));
  int64_t count = int64_t(numbers->size());
  if (count > kMaxKeys)
    return n.fail("attribute", "more than 4096 keys that are numbers", "fewer keys");
  Dims wide = dimsOf(x);
  wide.push_back(DimExpr(1));
  Value hit = e.compare(e.reshape(x, wide), e.ints(*numbers, {count}, whole), Predicate::Eq);
  Value place = e.reduce(e.select(hit, e.iota({DimExpr(count)}, 0, whole), e.scalar(-1, whole)), ReduceKind::Max,
                         {int64_t(wide.size()) - 1}, false);
  texts->push_back(n.legalizer.stringNumber(n.strAttr("default_string", "_Unused"))); // at -1
  return n.setStrings(0, e.infer<GatherOp>(e.ints(*texts, {count + 1}, whole), place, uint64_t(0)));
}

/// How often each n-gram of the pool occurs in a row, with up to `max_skip_count` elements left out
/// between two of its own: for each length and skip, the elements of the row from each place on are
/// compared with all n-grams, and the hits added up.
LogicalResult tfIdfVectorizer(Node &n) {
  constexpr int64_t kMaxComparisons = 256; // slices of the row that are compared
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 1 || rankOf(x) > 2)
    return n.invalid("shape", "TfIdfVectorizer wants [C] or [N, C]");
  std::optional<Ints> pool = n.intsAttr("pool_int64s"), counts = n.intsAttr("ngram_counts"),
                      indexes = n.intsAttr("ngram_indexes");
  if (!pool)
    pool = stringsAttr(n, "pool_strings");
  if (!pool || n.hasAttr("pool_strings") != n.isStrings(0))
    return n.invalid("attribute", "there is no pool of the operand's type");
  std::string mode = n.strAttr("mode", "");
  int64_t least = n.intAttr("min_gram_length", 1), most = n.intAttr("max_gram_length", 1),
          skips = n.intAttr("max_skip_count", 0);
  bool ordered = counts && !counts->empty() && counts->front() == 0 && llvm::is_sorted(*counts) &&
                 counts->back() <= int64_t(pool->size());
  if (!ordered || !indexes || least < 1 || most < least || skips < 0 || most > int64_t(counts->size()) ||
      (mode != "TF" && mode != "IDF" && mode != "TFIDF"))
    return n.invalid("attribute", "ngram_counts are places in the pool in ascending order, gram lengths are "
                                  "positive and counted, mode is TF, IDF or TFIDF");
  bool isRow = rankOf(x) == 1;
  if (isRow)
    x = e.unsqueeze(x, {0});
  Type f32 = e.b.getF32Type(), element = elementTypeOf(x);
  DimExpr length = dimOf(x, 1);
  int64_t columns = 0, seen = 0, comparisons = 0;
  for (int64_t index : *indexes)
    columns = std::max(columns, index + 1);
  Ints source(columns, -1); // which count a column takes
  std::vector<Value> found; // [N, n-grams of a length]
  int64_t collected = 0;
  for (int64_t size = 1; size <= int64_t(counts->size()); ++size) {
    int64_t begin = (*counts)[size - 1],
            end = size < int64_t(counts->size()) ? (*counts)[size] : int64_t(pool->size());
    int64_t grams = (end - begin) / size;
    if ((end - begin) % size || seen + grams > int64_t(indexes->size()))
      return n.invalid("attribute", "the pool has no whole number of n-grams of " + llvm::Twine(size) +
                                        " elements, or lacks indexes for them");
    if (size < least || size > most || grams == 0) {
      seen += grams;
      continue;
    }
    for (int64_t g = 0; g < grams; ++g) {
      int64_t column = (*indexes)[seen + g];
      if (column < 0 || source[column] >= 0)
        return n.invalid("attribute", "ngram_indexes are different, and not negative");
      source[column] = collected + g;
    }
    seen += grams;
    collected += grams;
    Value total;
    for (int64_t skip = 0; skip <= (size == 1 ? 0 : skips); ++skip) {
      DimExpr places = length - DimExpr((size - 1) * (skip + 1));
      if (places.isConstant() && *places.constant() <= 0)
        break;
      if ((comparisons += size) > kMaxComparisons)
        return n.fail("attribute", "more than 256 elements of n-grams over all lengths and skips",
                      "shorter n-grams or a smaller max_skip_count");
      places = e.clampAtZero(places);
      Value hit;
      for (int64_t k = 0; k < size; ++k) {
        Ints wanted;
        for (int64_t g = 0; g < grams; ++g)
          wanted.push_back((*pool)[begin + g * size + k]);
        // Where the row is too short there are no places, and the start does not matter.
        DimExpr start = e.minOf(DimExpr(k * (skip + 1)), length);
        Value part = e.unsqueeze(e.sliceAxis(x, 1, start, places), {1});
        Value same = e.compare(part, e.ints(wanted, {1, grams, 1}, element), Predicate::Eq);
        hit = hit ? e.infer<AndOp>(hit, same) : same;
      }
      Value sum = e.reduce(e.cast(hit, f32), ReduceKind::Sum, {2}, false);
      total = total ? e.add(total, sum) : sum;
    }
    found.push_back(total ? total : e.broadcastTo(e.scalar(0, f32), {dimOf(x, 0), DimExpr(grams)}));
  }
  // A column without an n-gram that is looked for takes a column of zeros.
  found.push_back(e.broadcastTo(e.scalar(0, f32), {dimOf(x, 0), DimExpr(1)}));
  for (int64_t &column : source)
    column = column < 0 ? collected : column;
  Value y = e.infer<GatherOp>(e.concat(found, 1), e.ints(source, {columns}, e.b.getI64Type()), uint64_t(1));
  if (mode == "IDF")
    y = e.min(y, 1.0);
  if (std::optional<std::vector<double>> weights = n.floatsAttr("weights"); weights && mode != "TF") {
    if (weights->size() != indexes->size())
      return n.invalid("attribute", "as many weights as ngram_indexes are needed");
    std::vector<double> byColumn(columns, 1);
    for (auto [index, weight] : llvm::zip(*indexes, *weights))
      byColumn[index] = weight;
    y = e.mul(y, e.floats(byColumn, {columns}, f32));
  }
  return n.done(isRow ? e.reshape(y, {DimExpr(columns)}) : y);
}

} // namespace

void addMachineLearning(Handlers &h) {
  h["ai.onnx.ml.ArrayFeatureExtractor"] = arrayFeatureExtractor;
  h["ai.onnx.ml.Binarizer"] = binarizer;
  h["ai.onnx.ml.Scaler"] = scaler;
  h["ai.onnx.ml.Normalizer"] = normalizer;
  h["ai.onnx.ml.LabelEncoder"] = labelEncoder;
  h["ai.onnx.ml.CategoryMapper"] = categoryMapper;
  h["ai.onnx.ml.FeatureVectorizer"] = featureVectorizer;
  h["ai.onnx.ml.Imputer"] = imputer;
  h["ai.onnx.ml.OneHotEncoder"] = oneHotEncoder;
  h["TfIdfVectorizer"] = tfIdfVectorizer;
}

} // namespace lathe::legal
