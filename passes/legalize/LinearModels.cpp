//===- LinearModels.cpp - linear models and support vectors -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Models of ai.onnx.ml that are products of features [N, C] with weights, and what their classifiers share with those
// of trees. ONNX leaves open what the scores of two classes with one weight vector are; it is as onnxruntime has it.
//
//===----------------------------------------------------------------------===//
#include "Classes.h"
#include "Legalizer.h"
#include "Strings.h"

using namespace mlir;

namespace lathe::legal {

std::optional<ClassLabels> classLabels(Node &n, StringRef integers) {
  if (std::optional<Ints> numbers = n.intsAttr(integers); numbers && !numbers->empty())
    return ClassLabels{*numbers, false};
  if (std::optional<Ints> texts = stringsAttr(n, "classlabels_strings"); texts && !texts->empty())
    return ClassLabels{*texts, true};
  if (!n.reported)
    (void)n.invalid("attribute", "there are no labels of the classes");
  return {};
}

LogicalResult setLabels(Node &n, const ClassLabels &labels, Value places) {
  Value table = n.e.ints(labels.numbers, {int64_t(labels.numbers.size())}, n.e.b.getI64Type());
  Value label = n.e.infer<GatherOp>(table, places, uint64_t(0));
  return labels.areStrings ? n.setStrings(0, label) : n.set(0, label);
}

Value transformed(Node &n, Value y, StringRef transform) {
  Emitter &e = n.e;
  if (!y || transform == "NONE")
    return y;
  if (transform == "LOGISTIC")
    return e.unary<SigmoidOp>(y);
  if (transform == "SOFTMAX")
    return e.infer<SoftmaxOp>(y, int64_t(1), false);
  if (transform == "PROBIT")
    return e.unary<ProbitOp>(y);
  if (transform == "SOFTMAX_ZERO") { // what is 0 stays, and has no share
    Value counts = e.compare(e.unary<AbsOp>(y), 1e-7, Predicate::Gt);
    Value power = e.unary<ExpOp>(e.sub(y, e.reduce(y, ReduceKind::Max, {1})));
    power = e.select(counts, power, e.like(y, 0));
    Value sum = e.reduce(power, ReduceKind::Sum, {1});
    return e.div(power, e.select(e.compare(sum, 0.0, Predicate::Eq), e.like(y, 1), sum));
  }
  (void)n.invalid("attribute", "post_transform '" + llvm::Twine(transform) + "'");
  return {};
}

namespace {

/// Operand 0 as [N, C] in f32; null after a report.
Value features(Node &n) {
  Value x = n.in(0);
  if (!x || rankOf(x) < 1 || rankOf(x) > 2)
    return (void)n.invalid("shape", "features are [C] or [N, C]"), Value();
  return n.e.cast(rankOf(x) == 1 ? n.e.unsqueeze(x, {0}) : x, n.e.b.getF32Type());
}

/// x W + intercepts with weights [targets, C] of `coefficients`; null after a report.
Value linear(Node &n, Value x, int64_t targets, StringRef intercepts) {
  Emitter &e = n.e;
  std::optional<std::vector<double>> weights = n.floatsAttr("coefficients"), added = n.floatsAttr(intercepts);
  if (!x || !weights || weights->empty() || targets < 1 || int64_t(weights->size()) % targets)
    return (void)n.invalid("attribute", "coefficients are [targets, C] for features [N, C]"), Value();
  int64_t columns = int64_t(weights->size()) / targets;
  if (!n.unify(dimOf(x, 1), DimExpr(columns)))
    return (void)n.invalid("shape", "coefficients of " + llvm::Twine(columns) + " features, there are " +
                                        llvm::Twine(dimOf(x, 1).str())), Value();
  Value y = e.matmul(x, e.floats(*weights, {targets, columns}, e.b.getF32Type()), false, true);
  if (!added)
    return y;
  int64_t count = int64_t(added->size());
  if (count != 1 && count != targets)
    return (void)n.invalid("attribute", intercepts + " has " + llvm::Twine(count) + " numbers for " +
                                            llvm::Twine(targets) + " targets"), Value();
  return e.add(y, e.floats(*added, {count}, e.b.getF32Type()));
}

LogicalResult linearRegressor(Node &n) {
  Value y = linear(n, features(n), n.intAttr("targets", 1), "intercepts");
  return n.done(transformed(n, y, n.strAttr("post_transform", "NONE")));
}

/// Of one score of two classes: whether it is the second one, [N], and the scores of both, of which the first gets
/// what is left to 1.
LogicalResult setTwoClasses(Node &n, const ClassLabels &labels, Value score, StringRef transform) {
  Emitter &e = n.e;
  Value second = e.cast(e.reshape(e.compare(score, 0.0, Predicate::Gt), {dimOf(score, 0)}), e.b.getI64Type());
  if (transform == "PROBIT")
    return n.fail("attribute", "PROBIT of one score for two classes", "NONE, LOGISTIC");
  if (transform != "LOGISTIC" && transform != "NONE" && !StringRef(transform).starts_with("SOFTMAX"))
    return n.invalid("attribute", "post_transform '" + llvm::Twine(transform) + "'");
  bool logistic = transform == "LOGISTIC";
  Value first = logistic ? e.unary<SigmoidOp>(e.unary<NegOp>(score)) : e.sub(e.like(score, 1), score);
  Value scores = e.concat({first, logistic ? e.unary<SigmoidOp>(score) : score}, 1);
  if (!scores || failed(setLabels(n, labels, second)))
    return failure();
  return n.numOutputs() > 1 ? n.set(1, scores) : success();
}

/// The label of the greatest score, and the scores.
LogicalResult linearClassifier(Node &n) {
  Emitter &e = n.e;
  std::optional<ClassLabels> labels = classLabels(n, "classlabels_ints");
  if (!labels)
    return failure();
  // As many as intercepts, of which two classes may have one.
  std::optional<std::vector<double>> intercepts = n.floatsAttr("intercepts");
  int64_t classes = int64_t(labels->numbers.size()),
          targets = intercepts && !intercepts->empty() ? int64_t(intercepts->size()) : classes;
  if (targets != classes && !(targets == 1 && classes == 2))
    return n.invalid("attribute", llvm::Twine(targets) + " intercepts for " + llvm::Twine(classes) + " labels");
  std::string transform = n.strAttr("post_transform", "NONE");
  Value y = linear(n, features(n), targets, "intercepts");
  if (!y)
    return failure();
  if (targets == 1 && classes == 2)
    return setTwoClasses(n, *labels, y, transform);
  Value best = e.infer<ArgReduceOp>(y, ReduceKind::Max, uint64_t(1), false, false);
  Value scores = transformed(n, y, transform);
  if (!scores || failed(setLabels(n, *labels, best)))
    return failure();
  return n.numOutputs() > 1 ? n.set(1, scores) : success();
}

/// What the kernel of a support vector machine makes of each row of x with each vector, [N, S]; null after a report.
Value kernelOf(Node &n, Value x, int64_t vectors) {
  Emitter &e = n.e;
  Type f32 = e.b.getF32Type();
  std::optional<std::vector<double>> all = n.floatsAttr("support_vectors"), parameters = n.floatsAttr("kernel_params");
  if (!x || !all || all->empty() || int64_t(all->size()) % vectors)
    return (void)n.invalid("attribute", "support_vectors are " + llvm::Twine(vectors) + " rows of features"), Value();
  if (parameters && !parameters->empty() && parameters->size() != 3)
    return (void)n.invalid("attribute", "kernel_params are gamma, coef0 and degree"), Value();
  int64_t columns = int64_t(all->size()) / vectors;
  if (!n.unify(dimOf(x, 1), DimExpr(columns)))
    return (void)n.invalid("shape", "support vectors of " + llvm::Twine(columns) + " features, there are " +
                                        llvm::Twine(dimOf(x, 1).str())), Value();
  auto parameter = [&](size_t i) { return parameters && parameters->size() == 3 ? (*parameters)[i] : 0; };
  double gamma = parameter(0), coef0 = parameter(1), degree = parameter(2);
  std::string kind = n.strAttr("kernel_type", "LINEAR");
  if (kind == "RBF") { // by the differences themselves: the sum of squares less the product cancels
    Value apart = e.sub(e.unsqueeze(x, {1}), e.floats(*all, {1, vectors, columns}, f32));
    return e.unary<ExpOp>(e.mul(e.reduce(e.mul(apart, apart), ReduceKind::Sum, {2}, false), -gamma));
  }
  Value product = e.matmul(x, e.floats(*all, {vectors, columns}, f32), false, true);
  if (kind == "LINEAR")
    return product;
  product = e.add(e.mul(product, gamma), coef0);
  if (kind == "POLY")
    return e.infer<PowOp>(product, e.like(product, degree));
  if (kind == "SIGMOID")
    return e.unary<TanhOp>(product);
  return (void)n.invalid("attribute", "kernel_type '" + llvm::Twine(kind) + "'"), Value();
}

/// The weighted sum of the kernels, or without support vectors of the features; of one class: 1 inside, else -1.
LogicalResult svmRegressor(Node &n) {
  Emitter &e = n.e;
  Value x = features(n);
  int64_t vectors = n.intAttr("n_supports", 0);
  if (!x || vectors < 0)
    return n.invalid("attribute", "n_supports is negative");
  Value y;
  if (vectors == 0) {
    y = linear(n, x, 1, "rho");
  } else {
    std::optional<std::vector<double>> weights = n.floatsAttr("coefficients"), rho = n.floatsAttr("rho");
    if (!weights || int64_t(weights->size()) != vectors || !rho || rho->size() != 1)
      return n.invalid("attribute", "a coefficient for each support vector and one rho are needed");
    Value kernels = kernelOf(n, x, vectors);
    y = e.add(e.matmul(kernels, e.floats(*weights, {vectors, 1}, e.b.getF32Type())), rho->front());
  }
  if (y && n.intAttr("one_class", 0))
    y = e.select(e.compare(y, 0.0, Predicate::Gt), e.like(y, 1), e.like(y, -1));
  return n.done(transformed(n, y, n.strAttr("post_transform", "NONE")));
}

/// Probabilities of the classes [N, K] of those of the pairs [N, P], which need not agree with each other: what minimizes
/// the sum over pairs of (r_ji p_i - r_ij p_j)^2, where r_ij is the probability of i against j (Wu, Lin and Weng,
/// "Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004, algorithm 2). One class after another
/// is set to its best value and all are divided by their sum, from 1 / K on. A row is done where it is within 0.005 / K of
/// the optimum, seen ahead of each round over the classes, as in libsvm and onnxruntime, whose results are no nearer to it.
/// Null after a report.
Value coupled(Node &n, Value pairs, int64_t classes) {
  constexpr int64_t kRounds = 100;
  Emitter &e = n.e;
  Type f32 = e.b.getF32Type(), index = e.b.getI64Type();
  // Where p_ij of i < j lies; r_ji is what is left to 1. The diagonal stays out.
  Ints at(classes * classes, 0);
  std::vector<double> sign(classes * classes, 0), rest(classes * classes, 0), diagonal(classes * classes, 0);
  int64_t pair = 0;
  for (int64_t i = 0; i < classes; ++i) {
    diagonal[i * classes + i] = 1;
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      at[i * classes + j] = at[j * classes + i] = pair;
      sign[i * classes + j] = 1, sign[j * classes + i] = -1, rest[j * classes + i] = 1;
    }
  }
  Value r = e.reshape(e.infer<GatherOp>(pairs, e.ints(at, {classes * classes}, index), uint64_t(1)), {dimOf(pairs, 0), classes, classes});
  r = e.add(e.mul(r, e.floats(sign, {classes, classes}, f32)), e.floats(rest, {classes, classes}, f32));
  Value back = e.transpose(r, {0, 2, 1}), ones = e.floats(diagonal, {classes, classes}, f32);
  Value squares = e.reduce(e.mul(back, back), ReduceKind::Sum, {2}); // of r_jt over j, [N, K, 1]
  Value q = e.sub(e.mul(squares, ones), e.mul(r, back));
  Value p = e.broadcastTo(e.scalar(1.0 / double(classes), f32), {dimOf(pairs, 0), classes});
  Value open = e.broadcastTo(e.scalar(1, e.b.getI1Type()), {dimOf(pairs, 0), 1});
  if (!q || !p || !open)
    return {};

  SmallVector<Value> inits = {e.scalar(0, index), p, open};
  auto begin = LoopBeginOp::create(e.b, e.loc, ValueRange(inits).getTypes(), inits);
  Value counter = begin->getResult(0);
  p = begin.getCarried()[1], open = begin.getCarried()[2];
  Value t = e.infer<ModOp>(counter, e.scalar(double(classes), index), false);
  Value slope = e.reduce(e.mul(q, e.unsqueeze(p, {1})), ReduceKind::Sum, {2}, false); // [N, K]
  Value level = e.reduce(e.mul(slope, p), ReduceKind::Sum, {1});
  Value apart = e.reduce(e.unary<AbsOp>(e.sub(slope, level)), ReduceKind::Max, {1});
  Value far = e.compare(apart, 0.005 / double(classes), Predicate::Ge), first = e.compare(t, 0.0, Predicate::Eq);
  Value still = e.infer<AndOp>(open, e.select(first, far, e.like(far, 1)));
  // The class of this step.
  Value here = e.compare(e.iota({classes}, 0, index), t, Predicate::Eq);
  Value one = e.cast(here, f32);
  Value curve = e.reduce(e.mul(e.reduce(e.mul(q, ones), ReduceKind::Sum, {2}, false), one), ReduceKind::Sum, {1});
  Value step = e.div(e.sub(level, e.reduce(e.mul(slope, one), ReduceKind::Sum, {1})), curve);
  Value next = e.div(e.add(p, e.mul(step, one)), e.add(step, 1.0));
  next = e.bind(e.select(still, next, p), dimsOf(p));
  Value again = e.cast(e.reduce(e.cast(still, f32), ReduceKind::Max, {0, 1}, false), e.b.getI1Type());
  if (!next || !again)
    return {};
  LoopEndOp end = n.legalizer.endLoop(begin, e.scalar(double(kRounds * classes), index), e.scalar(1, e.b.getI1Type()), again,
                                      {e.add(counter, e.scalar(1, index)), next, e.bind(still, dimsOf(open))}, {}, std::nullopt);
  return end ? Value(end.getYs()[1]) : Value();
}

/// A machine for each pair of classes i < j votes for i where its score is above 0, else for j; the label is the first
/// one of the most votes, also where it is not the most probable one. Its scores are those of the pairs; of two classes -s
/// and s. With prob_a and prob_b they are probabilities of the classes.
LogicalResult svmClassifier(Node &n) {
  Emitter &e = n.e;
  std::optional<ClassLabels> labels = classLabels(n, "classlabels_ints");
  Value x = labels ? features(n) : Value();
  if (!x)
    return failure();
  Type f32 = e.b.getF32Type();
  auto numbers = [&](StringRef name) { return n.floatsAttr(name).value_or(std::vector<double>()); };
  std::vector<double> weights = numbers("coefficients"), rho = numbers("rho"), a = numbers("prob_a"),
                      b = numbers("prob_b");
  Ints each = n.intsAttr("vectors_per_class").value_or(Ints());
  const int64_t classes = int64_t(labels->numbers.size()), pairs = classes * (classes - 1) / 2;
  std::string transform = n.strAttr("post_transform", "NONE");
  const bool logistic = transform == "LOGISTIC";
  if (each.empty())
    return n.fail("attribute", "an SVMClassifier without support vectors", "LinearClassifier");
  constexpr int64_t kMaxVectors = int64_t(1) << 24; // times pairs
  if (classes < 2 || classes > 2048 || int64_t(each.size()) != classes ||
      llvm::any_of(each, [](int64_t count) { return count < 0 || count > kMaxVectors; }))
    return n.invalid("attribute", "2 to 2048 labels, and the number of support vectors of each class, are needed");
  Ints first = {0};
  for (int64_t count : each)
    first.push_back(first.back() + count);
  const int64_t vectors = first.back();
  if (vectors == 0 || int64_t(weights.size()) != (classes - 1) * vectors ||
      int64_t(rho.size()) != pairs || a.size() != b.size() || (!a.empty() && int64_t(a.size()) != pairs))
    return n.invalid("attribute", "coefficients are [classes - 1, support vectors], rho, prob_a and prob_b one a pair");
  if (vectors > kMaxVectors / pairs)
    return n.fail("attribute", "more than 2^24 support vectors times pairs of classes", "smaller machines");
  if (classes == 2 && transform == "PROBIT")
    return n.fail("attribute", "PROBIT of one score for two classes", "NONE, LOGISTIC");
  std::vector<double> ofPairs(vectors * pairs, 0), votes(pairs * classes, 0), otherwise(classes, 0);
  int64_t pair = 0;
  for (int64_t i = 0; i < classes; ++i)
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      for (int64_t s = first[i]; s < first[i + 1]; ++s)
        ofPairs[s * pairs + pair] = weights[(j - 1) * vectors + s];
      for (int64_t s = first[j]; s < first[j + 1]; ++s)
        ofPairs[s * pairs + pair] = weights[i * vectors + s];
      votes[pair * classes + i] = 1;
      votes[pair * classes + j] = -1;
      otherwise[j] += 1;
    }
  Value kernels = kernelOf(n, x, vectors);
  Value s = e.add(e.matmul(kernels, e.floats(ofPairs, {vectors, pairs}, f32)), e.floats(rho, {pairs}, f32));
  Value won = e.cast(e.compare(s, 0.0, Predicate::Gt), f32), scores;
  Value counts = e.add(e.matmul(won, e.floats(votes, {pairs, classes}, f32)), e.floats(otherwise, {classes}, f32));
  if (!a.empty()) { // of the first class of a pair, 1 / (1 + exp(a s + b))
    Value p = e.sub(e.mul(s, e.unary<NegOp>(e.floats(a, {pairs}, f32))), e.floats(b, {pairs}, f32));
    p = e.max(e.min(e.unary<SigmoidOp>(p), 1 - 1e-7), 1e-7);
    scores = transformed(n, coupled(n, p, classes), transform);
  } else if (classes > 2) {
    scores = transformed(n, s, transform);
  } else {
    Value other = transform == "NONE" || logistic ? e.unary<NegOp>(s) : e.sub(e.like(s, 1), s);
    scores = e.concat({other, s}, 1);
    scores = logistic ? e.unary<SigmoidOp>(scores) : scores;
  }
  Value best = e.infer<ArgReduceOp>(counts, ReduceKind::Max, uint64_t(1), false, false);
  if (!scores || failed(setLabels(n, *labels, best)))
    return failure();
  return n.numOutputs() > 1 ? n.set(1, scores) : success();
}

} // namespace

void addLinearModels(Handlers &h) {
  h["ai.onnx.ml.LinearRegressor"] = linearRegressor;
  h["ai.onnx.ml.LinearClassifier"] = linearClassifier;
  h["ai.onnx.ml.SVMRegressor"] = svmRegressor;
  h["ai.onnx.ml.SVMClassifier"] = svmClassifier;
}

} // namespace lathe::legal
