//===- Strings.cpp - tensors of strings -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tensor of strings becomes one of their numbers (lathe/ir/HostOps.h). What moves or compares strings is then
// done by kernels on integers; what looks into them, by the ops of liblathe_host.so:
//
//   %e = "onnx.Equal"(%x, %a)          =>   %e = lathe.compare %x, %a : (tensor<?xi64>, tensor<i64>) -> tensor<?xi1>
//   %y = "onnx.StringConcat"(%x, %a)   =>   %y = lathe.custom_call "string.concat"(%x, %b) {lathe.host_op}
//
//===----------------------------------------------------------------------===//
#include "Strings.h"

#include "Legalizer.h"

#include "lathe/codegen/Target.h"
#include "lathe/ir/HostOps.h"
#include "lathe/ir/Onnx.h"
#include "lathe/passes/Passes.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/ConvertUTF.h"

using namespace mlir;

namespace lathe::legal {

StringUse stringUseOf(const Node &node) {
  // Ops that are not here take no strings, whatever ONNX says: somebody has to see that numbers will do.
  static const llvm::StringSet<> moves = {
      "Compress",    "Concat",         "ConcatFromSequence", "DepthToSpace",    "Expand",
      "Flatten",     "Gather",         "GatherElements",     "GatherND",        "Identity",
      "OneHot",      "Optional",       "OptionalGetElement", "Pad",             "Reshape",
      "ReverseSequence", "Scatter",    "ScatterElements",    "ScatterND",       "SequenceAt",
      "SequenceConstruct", "SequenceErase", "SequenceInsert", "Slice",          "SpaceToDepth",
      "Split",       "SplitToSequence", "Squeeze",           "Tile",            "Transpose",
      "Trilu",       "Unsqueeze",      "Where",              "ai.onnx.ml.ArrayFeatureExtractor"};
  // "" has the number 0, so that NonZero finds what is not empty.
  static const llvm::StringSet<> reads = {
      "Cast",        "CastLike",         "Equal",           "If",           "ListConstruct", "Loop",         "MapConstruct", "NonZero",
      "OptionalHasElement", "RegexFullMatch", "Scan",       "SequenceLength", "SequenceMap", "Shape",
      "Size",        "StringConcat",     "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Unique",
      "com.microsoft.Tokenizer",
      "ai.onnx.ml.CategoryMapper",       "ai.onnx.ml.LabelEncoder", "ai.onnx.ml.OneHotEncoder",
      "ai.onnx.ml.CastMap",              "ai.onnx.ml.DictVectorizer"};
  std::string key = node.domain.empty() ? node.type.str() : (node.domain + "." + node.type).str();
  return moves.contains(key) ? StringUse::Moves : reads.contains(key) ? StringUse::Reads : StringUse::None;
}

//===--- the numbers of constants -----------------------------------------===//

int64_t Legalizer::stringNumber(StringRef text) {
  if (stringTexts.empty()) {
    if (auto known = module->getAttrOfType<ArrayAttr>(kStringsAttr))
      for (Attribute one : known)
        stringTexts.push_back(cast<StringAttr>(one).str());
    else
      stringTexts.push_back("");
    for (auto [number, one] : llvm::enumerate(stringTexts))
      stringNumbers[one] = int64_t(number);
  }
  auto [at, fresh] = stringNumbers.try_emplace(text, int64_t(stringTexts.size()));
  if (fresh)
    stringTexts.push_back(text.str());
  return at->second;
}

bool Legalizer::isString(Value value) {
  if (onnxir::isStrings(value.getType()))
    return true;
  const Tracked &tracked = track(value);
  std::function<bool(const Tracked &)> holds = [&](const Tracked &one) {
    return one.isSequence ? llvm::any_of(one.elements, holds) : one.data && stringValues.contains(one.data);
  };
  return holds(tracked);
}

void Legalizer::markStrings(Tracked &tracked) {
  for (Tracked &element : tracked.elements)
    markStrings(element);
  if (!tracked.isSequence && !tracked.isEmpty)
    if (Value value = dataOf(tracked))
      stringValues.insert(value);
}

void Legalizer::markStringResults(const Node &node) {
  bool moves = stringUseOf(node) == StringUse::Moves &&
               llvm::any_of(node.op->getOperands(), [&](Value v) { return isString(v); });
  for (Value result : node.op->getResults())
    if (moves || onnxir::isStrings(result.getType()))
      markStrings(track(result));
}

bool Legalizer::checkStrings(Node &node) {
  auto strings = llvm::find_if(node.op->getOperands(), [&](Value v) { return isString(v); });
  if (strings == node.op->getOperands().end())
    return true;
  if (forGpu()) {
    (void)node.fail("dtype", "strings on a GPU", "targets that are CPUs");
    return false;
  }
  if (stringUseOf(node) != StringUse::None)
    return true;
  (void)node.fail("dtype",
                  "operand " + llvm::Twine(std::distance(node.op->getOperands().begin(), strings)) +
                      " is a tensor of strings",
                  "tensors of numbers or bool");
  return false;
}

void Legalizer::takeStringInputs() {
  Block &entry = func.getBody().front();
  for (BlockArgument argument : entry.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!type || !onnxir::isStrings(type))
      continue;
    argument.setType(tensorType(e.b.getI64Type(), dimsOf(type)));
    func.setArgAttr(argument.getArgNumber(), kStringsAttr, e.b.getUnitAttr());
    stringValues.insert(argument);
    (void)stringNumber("");
  }
  func.setFunctionType(e.b.getFunctionType(entry.getArgumentTypes(), func.getResultTypes()));
}

void Legalizer::keepStrings() {
  if (!stringValues.empty())
    (void)stringNumber(""); // the first of every list, also where all tensors are empty
  if (stringTexts.empty())
    return;
  SmallVector<StringRef> texts(stringTexts.begin(), stringTexts.end());
  module->setAttr(kStringsAttr, e.b.getStrArrayAttr(texts));
}

bool Node::isStrings(unsigned i) const { return has(i) && legalizer.isString(op->getOperand(i)); }

bool Legalizer::forGpu() const {
  auto options = module->getAttrOfType<DictionaryAttr>(kOptionsAttr);
  auto targets = options ? options.getAs<ArrayAttr>("targets") : ArrayAttr();
  return targets && llvm::any_of(targets, [](Attribute name) {
           auto text = dyn_cast<StringAttr>(name);
           Result<Target> target = Target::parse(text ? text.str() : std::string());
           return target && target->isCuda();
         });
}

LogicalResult Node::setStrings(unsigned i, Value value) {
  if (value && legalizer.forGpu())
    return fail("dtype", "strings on a GPU", "targets that are CPUs");
  if (value)
    legalizer.stringValues.insert(value);
  return set(i, value);
}

/// Whether a text is UTF-8, after a report where it is not.
static bool isUtf8(Node &n, StringRef text) {
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.data()), *end = begin + text.size();
  if (llvm::isLegalUTF8String(&begin, end))
    return true;
  (void)n.invalid("attribute", "a string is no UTF-8");
  return false;
}

std::optional<Ints> numbersOfStrings(Node &n, ArrayRef<std::string> texts) {
  Ints numbers;
  for (const std::string &text : texts) {
    if (!isUtf8(n, text))
      return std::nullopt;
    numbers.push_back(n.legalizer.stringNumber(text));
  }
  return numbers;
}

/// The texts of an attribute that is a list of strings or a tensor of them.
static std::optional<std::vector<std::string>> textsAttr(Node &n, StringRef name) {
  Attribute attr = n.op->getAttr(name);
  if (auto tensor = dyn_cast_or_null<DictionaryAttr>(attr))
    attr = tensor.get("strings");
  auto list = dyn_cast_or_null<ArrayAttr>(attr);
  if (!list)
    return std::nullopt;
  std::vector<std::string> texts;
  for (Attribute one : list)
    if (auto text = dyn_cast<StringAttr>(one))
      texts.push_back(text.str());
  return texts;
}

std::optional<Ints> stringsAttr(Node &n, StringRef name) {
  std::optional<std::vector<std::string>> texts = textsAttr(n, name);
  return texts ? numbersOfStrings(n, *texts) : std::nullopt;
}

//===--- ops of the host --------------------------------------------------===//

std::optional<SmallVector<Value>> hostCall(Node &n, StringRef name, ArrayRef<Type> types, ArrayRef<Value> operands,
                                           ArrayRef<NamedAttribute> config) {
  if (n.legalizer.forGpu()) {
    (void)n.fail("op", "an op of the host, which a GPU does not compute", "targets that are CPUs");
    return std::nullopt;
  }
  return callHost(n.e, name, types, operands, config);
}

std::optional<SmallVector<Value>> callHost(Emitter &e, StringRef name, ArrayRef<Type> types, ArrayRef<Value> operands,
                                           ArrayRef<NamedAttribute> config) {
  if (llvm::is_contained(operands, Value()))
    return std::nullopt;
  auto call = CustomCallOp::create(e.b, e.loc, types, operands, e.b.getStringAttr(name), e.b.getDictionaryAttr(config));
  call->setAttr(kHostOpAttr, e.b.getUnitAttr());
  return SmallVector<Value>(call.getOutputs());
}

namespace {

LogicalResult stringConcat(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), y = n.in(1);
  if (!x || !y)
    return failure();
  std::optional<Dims> dims = broadcastDims({dimsOf(x), dimsOf(y)});
  if (!dims)
    return n.invalid("shape", "the operands do not broadcast");
  auto z = hostCall(n, "string.concat", {tensorType(e.b.getI64Type(), *dims)},
                    {e.broadcastTo(x, *dims), e.broadcastTo(y, *dims)});
  return z ? n.setStrings(0, z->front()) : failure();
}

LogicalResult regexFullMatch(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || !isUtf8(n, n.strAttr("pattern", "")))
    return failure();
  auto y = hostCall(n, "string.full_match", {withElementType(x.getType(), e.b.getI1Type())}, {x},
                    {e.b.getNamedAttr("pattern", e.b.getStringAttr(n.strAttr("pattern", "")))});
  return y ? n.done(y->front()) : failure();
}

/// How many parts each string has and how many the longest are counted first: then the result has its size.
LogicalResult stringSplit(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || !isUtf8(n, n.strAttr("delimiter", "")))
    return failure();
  Type whole = e.b.getI64Type();
  NamedAttribute config[] = {e.b.getNamedAttr("delimiter", e.b.getStringAttr(n.strAttr("delimiter", ""))),
                             e.b.getNamedAttr("maxsplit", e.b.getI64IntegerAttr(n.intAttr("maxsplit", -1)))};
  auto counts = hostCall(n, "string.split_counts", {x.getType(), tensorType(whole, ArrayRef<int64_t>{})}, {x}, config);
  if (!counts)
    return failure();
  Dims dims = dimsOf(x);
  dims.push_back(n.sizeOf((*counts)[1], std::nullopt));
  auto parts = hostCall(n, "string.split", {tensorType(whole, dims)}, {x}, config);
  if (!parts || failed(n.setStrings(0, parts->front())))
    return failure();
  return n.set(1, counts->front());
}

/// onnxruntime's Tokenizer: what matches `tokenexp`, or what is left between `separators`, of at least `mincharnum`
/// characters, behind [..., C] along a new dimension of as many as the longest string has; `pad_value` fills it. How many
/// that are is counted first, as in stringSplit.
LogicalResult tokenizer(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  const std::string pattern = n.strAttr("tokenexp", ""), filler = n.strAttr("pad_value", "");
  const int64_t mark = n.intAttr("mark", 0), least = n.intAttr("mincharnum", 0);
  std::optional<Ints> separators = stringsAttr(n, "separators");
  if (n.reported || !isUtf8(n, pattern) || !isUtf8(n, filler))
    return failure();
  const bool separates = separators && !separators->empty();
  const bool isEachCharacter = separates ? *separators == Ints{0} : pattern == "."; // "" has the number 0
  if (rankOf(x) < 1 || rankOf(x) > 2)
    return n.invalid("shape", "Tokenizer wants [C] or [N, C]");
  if (least < 1 || (isEachCharacter && least > 1))
    return n.invalid("attribute", "mincharnum is positive, and 1 where each character is a token");
  if (!separates && pattern.empty())
    return n.invalid("attribute", "separators or tokenexp is needed");
  SmallVector<Value> operands{x};
  if (separates && !isEachCharacter)
    operands.push_back(e.ints(*separators, {int64_t(separators->size())}, e.b.getI64Type()));
  NamedAttribute config[] = {e.b.getNamedAttr("pattern", e.b.getStringAttr(isEachCharacter || separates ? "" : pattern)),
                             e.b.getNamedAttr("mark", e.b.getI64IntegerAttr(mark != 0)),
                             e.b.getNamedAttr("least", e.b.getI64IntegerAttr(least)),
                             e.b.getNamedAttr("pad_value", e.b.getStringAttr(filler))};
  auto counts = hostCall(n, "string.token_counts", {tensorType(e.b.getI64Type(), ArrayRef<int64_t>{})}, operands, config);
  if (!counts)
    return failure();
  Dims dims = dimsOf(x);
  dims.push_back(n.sizeOf(counts->front(), std::nullopt));
  auto tokens = hostCall(n, "string.tokenize", {tensorType(e.b.getI64Type(), dims)}, operands, config);
  return tokens ? n.setStrings(0, tokens->front()) : failure();
}

/// Strings that are no stopwords, in front of as many places as there are strings, and their number; where
/// none is left, one "".
LogicalResult stringNormalizer(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 1 || rankOf(x) > 2 || (rankOf(x) == 2 && !n.unify(dimOf(x, 0), 1)))
    return n.invalid("shape", "StringNormalizer wants [C] or [1, C]");
  std::string change = n.strAttr("case_change_action", "NONE");
  if (change != "NONE" && change != "LOWER" && change != "UPPER")
    return n.invalid("attribute", "case_change_action is NONE, LOWER or UPPER");
  // Case is that of Unicode without a language's own rules, as it is in these.
  std::string locale = n.strAttr("locale", "");
  for (StringRef special : {"tr", "az", "lt"})
    if (StringRef(locale).starts_with_insensitive(special))
      return n.fail("attribute", "the case rules of locale '" + llvm::Twine(locale) + "'", "those without a locale");
  bool isRow = rankOf(x) == 2;
  DimExpr length = dimOf(x, rankOf(x) - 1), room = DimExpr::max(length, 1);
  SmallVector<Value> operands{e.reshape(x, {length})};
  if (std::optional<Ints> stopwords = stringsAttr(n, "stopwords"); stopwords && !stopwords->empty())
    operands.push_back(e.ints(*stopwords, {int64_t(stopwords->size())}, e.b.getI64Type()));
  if (n.reported)
    return failure();
  auto kept = hostCall(n, "string.normalize",
                       {tensorType(e.b.getI64Type(), {room}), tensorType(e.b.getI64Type(), ArrayRef<int64_t>{})}, operands,
                       {e.b.getNamedAttr("case", e.b.getStringAttr(change)),
                        e.b.getNamedAttr("case_sensitive", e.b.getI64IntegerAttr(n.intAttr("is_case_sensitive", 0)))});
  if (!kept)
    return failure();
  Value y = e.sliceAxis(kept->front(), 0, 0, n.sizeOf((*kept)[1], room));
  return n.setStrings(0, isRow ? e.unsqueeze(y, {0}) : y);
}

} // namespace

LogicalResult castStrings(Node &n, Type element) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  if (n.isStrings(0) && !element)
    return n.setStrings(0, x);
  std::optional<DType> dtype = dtypeOf(element ? element : elementTypeOf(x));
  bool plain = dtype && (*dtype <= DType::F64 || isNarrow(element ? element : elementTypeOf(x)));
  if (!plain || bitWidth(*dtype) < 8)
    return n.fail("dtype", "a cast between strings and this type", "bool, integers of a byte and more, floats");
  // Narrow floats go by way of f32, which the text of them says exactly.
  Type f32 = e.b.getF32Type();
  if (element) {
    Type wide = isNarrow(element) ? f32 : element;
    auto y = hostCall(n, "string.parse", {withElementType(x.getType(), wide)}, {x});
    return y ? n.done(e.cast(y->front(), element)) : failure();
  }
  if (isNarrow(elementTypeOf(x)))
    x = e.cast(x, f32);
  auto y = hostCall(n, "string.format", {withElementType(x.getType(), e.b.getI64Type())}, {x});
  return y ? n.setStrings(0, y->front()) : failure();
}

void addStrings(Handlers &h) {
  h["StringConcat"] = stringConcat;
  h["RegexFullMatch"] = regexFullMatch;
  h["StringSplit"] = stringSplit;
  h["StringNormalizer"] = stringNormalizer;
  h["com.microsoft.Tokenizer"] = tokenizer;
}

} // namespace lathe::legal
