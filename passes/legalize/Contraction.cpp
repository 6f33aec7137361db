//===- Contraction.cpp - matrix products ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Formulas.h"

using namespace mlir;

namespace lathe::legal {
namespace {

LogicalResult matmul(Node &n) { return n.done(matmulOf(n, n.in(0), n.in(1))); }

LogicalResult gemm(Node &n) { return n.done(gemmOf(n)); }

/// Operand i minus its zero point (operand z), as i32. Zero points of one row or
/// column get the shape that broadcasts so.
Value centred(Node &n, unsigned i, unsigned z, bool rows) {
  Emitter &e = n.e;
  Type i32 = e.b.getI32Type();
  if (!n.has(z))
    return e.dequantize(n.in(i), {}, {}, i32);
  Value zero = e.cast(n.in(z), i32);
  if (zero && rankOf(zero) == 1 && rows)
    zero = dimOf(zero, 0) == DimExpr(1) ? e.reshape(zero, {}) : e.unsqueeze(zero, {1});
  return zero ? e.dequantize(n.in(i), {}, zero, i32) : Value();
}

LogicalResult matmulInteger(Node &n) {
  return n.done(matmulOf(n, centred(n, 0, 2, true), centred(n, 1, 3, false)));
}

//===----------------------------------------------------------------------===//
// Einsum
//===----------------------------------------------------------------------===//

/// One operand with a letter a dimension.
struct Labelled {
  Value value;
  std::string labels;
};

/// The equation with every `...` replaced by upper-case letters beyond 'Z'.
struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

std::optional<Equation> parseEquation(Node &n) {
  std::string text = n.strAttr("equation", "");
  llvm::erase(text, ' ');
  Equation equation;
  size_t arrow = text.find("->");
  SmallVector<StringRef> terms;
  StringRef(text).take_front(arrow).split(terms, ',');
  if (terms.size() != n.numInputs())
    return std::nullopt;
  // Dimensions of an ellipsis are numbered from the right by control characters.
  size_t longest = 0;
  auto widen = [&](StringRef term, std::optional<int64_t> rank) -> std::optional<std::string> {
    size_t dots = term.find("...");
    if (dots == StringRef::npos)
      return term.str();
    size_t letters = term.size() - 3;
    if (rank && size_t(*rank) < letters)
      return std::nullopt;
    size_t width = rank ? size_t(*rank) - letters : longest;
    if (width > 20)
      return std::nullopt;
    longest = std::max(longest, width);
    std::string open;
    for (size_t i = width; i-- > 0;)
      open.push_back(char(1 + i));
    return (term.take_front(dots) + open + term.drop_front(dots + 3)).str();
  };
  for (auto [i, term] : llvm::enumerate(terms)) {
    std::optional<std::string> wide = widen(term, n.rank(i));
    if (!wide || int64_t(wide->size()) != n.rank(i))
      return std::nullopt;
    equation.inputs.push_back(*wide);
  }
  if (arrow != std::string::npos) {
    std::optional<std::string> wide = widen(StringRef(text).drop_front(arrow + 2), std::nullopt);
    if (!wide)
      return std::nullopt;
    equation.output = *wide;
    return equation;
  }
  // Implicit: the ellipsis, then letters that occur once, in order.
  std::map<char, int> seen;
  for (const std::string &input : equation.inputs)
    for (char c : input)
      ++seen[c];
  for (size_t i = longest; i-- > 0;)
    equation.output.push_back(char(1 + i));
  for (auto [c, times] : seen)
    if (c >= 'A' && times == 1)
      equation.output.push_back(c);
  return equation;
}

/// Reduces repeated letters of one operand to the diagonal.
void takeDiagonals(Emitter &e, Labelled &x) {
  for (size_t i = 0; x.value && i < x.labels.size(); ++i) {
    size_t j = x.labels.find(x.labels[i], i + 1);
    if (j == std::string::npos)
      continue;
    // Keeps the elements where both indices agree, and sums the rest away.
    size_t rank = x.labels.size();
    Dims row(rank, DimExpr(1)), column(rank, DimExpr(1));
    row[i] = dimOf(x.value, i);
    column[j] = dimOf(x.value, j);
    Type index = e.b.getI64Type();
    Value same = e.compare(e.iota(row, i, index), e.iota(column, j, index), Predicate::Eq);
    x.value =
        e.reduce(e.select(same, x.value, e.like(x.value, 0)), ReduceKind::Sum, {int64_t(j)}, false);
    x.labels.erase(j, 1);
    --i;
  }
}

/// Sums letters that nobody else needs.
void sumUnused(Emitter &e, Labelled &x, const std::string &needed) {
  Ints axes;
  std::string kept;
  for (size_t d = 0; d < x.labels.size(); ++d)
    if (needed.find(x.labels[d]) == std::string::npos)
      axes.push_back(d);
    else
      kept.push_back(x.labels[d]);
  if (!axes.empty() && x.value)
    x.value = e.reduce(x.value, ReduceKind::Sum, axes, false);
  x.labels = kept;
}

Value permuteTo(Emitter &e, const Labelled &x, const std::string &order) {
  Ints perm;
  for (char c : order)
    perm.push_back(x.labels.find(c));
  return e.transpose(x.value, perm);
}

/// Contracts two operands: batch letters, free letters of each, summed letters.
Labelled contract(Emitter &e, const Labelled &a, const Labelled &b, const std::string &needed) {
  std::string batch, left, right, summed;
  for (char c : a.labels)
    (b.labels.find(c) == std::string::npos ? left
     : needed.find(c) == std::string::npos ? summed
                                           : batch)
        .push_back(c);
  for (char c : b.labels)
    if (a.labels.find(c) == std::string::npos)
      right.push_back(c);
  auto sizes = [&](const Labelled &x, const std::string &letters) {
    Dims dims;
    for (char c : letters)
      dims.push_back(dimOf(x.value, x.labels.find(c)));
    return dims;
  };
  Dims batchA = sizes(a, batch), batchB = sizes(b, batch);
  Dims shapeA = batchA, shapeB = batchB;
  shapeA.insert(shapeA.end(), {product(sizes(a, left)), product(sizes(a, summed))});
  shapeB.insert(shapeB.end(), {product(sizes(b, summed)), product(sizes(b, right))});
  Value x = e.reshape(permuteTo(e, a, batch + left + summed), shapeA);
  Value y = e.reshape(permuteTo(e, b, batch + summed + right), shapeB);
  Value z = e.matmul(x, y);
  if (!z)
    return {};
  Dims shape = dimsOf(z);
  shape.resize(batch.size());
  for (const DimExpr &dim : sizes(a, left))
    shape.push_back(dim);
  for (const DimExpr &dim : sizes(b, right))
    shape.push_back(dim);
  return {e.reshape(z, shape), batch + left + right};
}

LogicalResult einsum(Node &n) {
  Emitter &e = n.e;
  std::vector<Labelled> operands;
  for (unsigned i = 0; i < n.numInputs(); ++i)
    if (!n.in(i))
      return failure();
  std::optional<Equation> equation = parseEquation(n);
  if (!equation)
    return n.invalid("attribute", "the equation does not fit the operands");
  for (unsigned i = 0; i < n.numInputs(); ++i) {
    operands.push_back({n.in(i), equation->inputs[i]});
    takeDiagonals(e, operands.back());
  }
  auto neededAfter = [&](size_t first) {
    std::string letters = equation->output;
    for (size_t i = first; i < operands.size(); ++i)
      letters += operands[i].labels;
    return letters;
  };
  Labelled result = operands[0];
  sumUnused(e, result, neededAfter(1));
  for (size_t i = 1; i < operands.size() && result.value; ++i) {
    Labelled next = operands[i];
    sumUnused(e, next, neededAfter(i + 1) + result.labels);
    if (!next.value)
      return failure();
    result = contract(e, result, next, neededAfter(i + 1));
  }
  if (!result.value)
    return failure();
  sumUnused(e, result, equation->output);
  for (char c : equation->output)
    if (result.labels.find(c) == std::string::npos)
      return n.invalid("attribute", "the output names a letter that no operand has");
  return n.done(permuteTo(e, result, equation->output));
}

/// Gauss's elimination with the largest pivot of each column: a product of pivots, negative after an
/// odd number of exchanged rows. A column of zeros has the pivot 0, and changes nothing else.
LogicalResult determinant(Node &n) {
  constexpr int64_t kMaxRows = 32; // each makes kernels of its own
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 2)
    return n.invalid("shape", "Det wants square matrices");
  int64_t rank = rankOf(x);
  Type element = elementTypeOf(x), index = e.b.getI64Type();
  if (!isFloat(element))
    return n.fail("dtype", "a determinant of what is no float", "floats");
  std::optional<int64_t> rows = dimOf(x, rank - 2).constant(), columns = dimOf(x, rank - 1).constant();
  if (rows && columns && *rows != *columns)
    return n.invalid("shape", "Det wants square matrices, these are " + llvm::Twine(*rows) + " by " +
                                  llvm::Twine(*columns));
  if (!rows || !columns || *rows > kMaxRows)
    return n.fail("shape", "matrices of a symbolic size or above 32 by 32", "constant sizes up to 32");
  Dims batch = dimsOf(x);
  batch.resize(rank - 2);
  DimExpr count = product(batch);
  Value a = e.reshape(isNarrow(element) ? e.cast(x, e.b.getF32Type()) : x,
                      {count, DimExpr(*rows), DimExpr(*rows)});
  Value y = e.broadcastTo(e.like(a, 1), {count, 1, 1});
  for (int64_t size = *rows; size > 0; --size) {
    Value column = e.unary<AbsOp>(e.sliceAxis(a, 2, 0, 1));
    Value at = e.infer<ArgReduceOp>(column, ReduceKind::Max, int64_t(1), true, false);
    Value row = e.infer<GatherElementsOp>(a, e.broadcastTo(at, {count, DimExpr(1), DimExpr(size)}),
                                          uint64_t(1));
    Value pivot = e.sliceAxis(row, 2, 0, 1);
    Value exchanged = e.compare(at, 0.0, Predicate::Ne);
    y = e.mul(y, e.select(exchanged, e.unary<NegOp>(pivot), pivot));
    if (size == 1)
      break;
    // The first row takes the place of the pivot's.
    Value place = e.add(e.iota({1, DimExpr(size - 1), 1}, 1, index), 1.0);
    Value below = e.select(e.compare(place, at, Predicate::Eq), e.sliceAxis(a, 1, 0, 1),
                           e.sliceAxis(a, 1, 1, size - 1));
    Value zero = e.compare(pivot, 0.0, Predicate::Eq);
    Value factor = e.div(e.sliceAxis(below, 2, 0, 1), e.select(zero, e.like(pivot, 1), pivot));
    a = e.sub(e.sliceAxis(below, 2, 1, size - 1), e.mul(factor, e.sliceAxis(row, 2, 1, size - 1)));
  }
  return n.done(e.cast(e.reshape(y, batch), element));
}

} // namespace

Value matmulOf(Node &n, Value a, Value b) {
  Emitter &e = n.e;
  if (!a || !b)
    return {};
  bool rowVector = rankOf(a) == 1, columnVector = rankOf(b) == 1;
  if (rankOf(a) == 0 || rankOf(b) == 0)
    return e.fail("a scalar is no matrix");
  if (rowVector)
    a = e.unsqueeze(a, {0});
  if (columnVector)
    b = e.unsqueeze(b, {1});
  n.unify(dimOf(a, rankOf(a) - 1), dimOf(b, rankOf(b) - 2));
  Value y = e.matmul(a, b);
  if (!y || (!rowVector && !columnVector))
    return y;
  Dims dims = dimsOf(y);
  if (columnVector)
    dims.pop_back();
  if (rowVector)
    dims.erase(dims.end() - (columnVector ? 1 : 2));
  return e.reshape(y, dims);
}

Value gemmOf(Node &n) {
  Emitter &e = n.e;
  Value a = n.in(0), b = n.in(1);
  if (!a || !b || rankOf(a) != 2 || rankOf(b) != 2)
    return e.fail("Gemm needs matrices");
  bool transposeA = n.intAttr("transA", 0), transposeB = n.intAttr("transB", 0);
  n.unify(dimOf(a, transposeA ? 0 : 1), dimOf(b, transposeB ? 1 : 0));
  Value y = e.matmul(a, b, transposeA, transposeB);
  double alpha = n.floatAttr("alpha", 1), beta = n.floatAttr("beta", 1);
  if (alpha != 1)
    y = e.mul(y, alpha);
  if (n.has(2) && beta != 0)
    y = e.add(y, beta == 1 ? n.in(2) : e.mul(n.in(2), beta));
  return y;
}

void addContractions(Handlers &h) {
  h["Det"] = determinant;
  h["MatMul"] = matmul;
  h["Gemm"] = gemm;
  h["MatMulInteger"] = matmulInteger;
  h["Einsum"] = einsum;
}

} // namespace lathe::legal
