//===- Legalizer.cpp - the walk over a function -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Intent: onnx ops become lathe ops with exact symbolic shapes; shape arithmetic
// becomes dimension expressions and leaves no op behind.
//
//   %s = "onnx.Shape"(%x)                        // x : tensor<?x8xf32, #lathe.t<[B, 8]>>
//   %b = "onnx.Gather"(%s, %zero)
//   %t = "onnx.Concat"(%b, %minus1) {axis = 0}
//   %y = "onnx.Reshape"(%x2, %t)                 // x2 : #lathe.t<[2*B, 4]>
// becomes
//   %y = lathe.reshape %x2 : (…) -> tensor<?x8xf32, #lathe.t<[B, 8]>>
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"

#include "Lists.h"
#include "Strings.h"

#include "lathe/import/Import.h"
#include "lathe/ir/Aten.h"
#include "lathe/ir/HostOps.h"
#include "lathe/ir/Loops.h"
#include "lathe/ir/Onnx.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/support/Philox.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include <cstring>
#include <functional>

using namespace mlir;

namespace lathe::legal {

/// Elements of a constant that are worth tracking.
static constexpr int64_t kMaxHostElements = 1024;
/// Function bodies inside function bodies.
static constexpr int kMaxDepth = 8;

static std::string printed(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

const Handlers &handlers() {
  static const Handlers all = [] {
    Handlers h;
    addElementwise(h);
    addActivations(h);
    addLogic(h);
    addReductions(h);
    addSelections(h);
    addMovement(h);
    addSlices(h);
    addShapes(h);
    addGathers(h);
    addContractions(h);
    addConvolutions(h);
    addPooling(h);
    addNormalizations(h);
    addAttention(h);
    addGridSample(h);
    addQuantization(h);
    addRecurrent(h);
    addResize(h);
    addFourier(h);
    addMachineLearning(h);
    addLinearModels(h);
    addMaps(h);
    addOptimizers(h);
    addLists(h);
    addSequences(h);
    addGradient(h);
    addRandom(h);
    addTrees(h);
    addStrings(h);
    addImages(h);
    addMicrosoft(h);
    addAten(h);
    return h;
  }();
  return all;
}

bool isSource(Operation *op) {
  return onnxir::OnnxDialect::isOnnx(op) || atenir::AtenDialect::isAten(op);
}

/// By domain and type; an overload of torch's without a handler of its own has that of its name.
static Handler handlerOf(const Node &node) {
  std::string key = node.domain.empty() ? node.type.str() : (node.domain + "." + node.type).str();
  Handler found = handlers().lookup(key);
  return found || node.domain != kAtenDomain ? found
                                             : handlers().lookup(StringRef(key).rsplit('.').first);
}

static StringRef remedyFor(const Node &node) {
  return node.domain == kAtenDomain ? "express it by other operators of torch"
                                    : "express it by other ONNX ops, or as a custom call";
}

Legalizer::Legalizer(ModuleOp module, func::FuncOp func, LegalizeReport &report)
    : e(module.getContext()), module(module), func(func), found(report) {
  for (SymbolOp symbol : module.getOps<SymbolOp>())
    e.ranges[symbol.getSymName().str()] = {int64_t(symbol.getMin()),
                                           int64_t(symbol.getMax()) < 0 ? DimRange::kUnbounded
                                                                        : int64_t(symbol.getMax())};
}

int64_t Legalizer::opsetOf(Operation *op) { return onnxOpset(op, module); }

Tracked &Legalizer::track(Value value) {
  auto [it, fresh] = values.try_emplace(value);
  if (fresh) {
    // Arguments and lathe ops stand for themselves.
    Operation *producer = value.getDefiningOp();
    if (!producer || !isSource(producer))
      if (isa<RankedTensorType>(value.getType()))
        it->second.data = value;
  }
  return it->second;
}

Value Legalizer::data(Value value) {
  Tracked &tracked = track(value);
  if (!tracked.data && tracked.host)
    tracked.data = e.dimTensor(tracked.host->values, tracked.host->shape, tracked.host->element);
  return tracked.data;
}

std::optional<HostValue> Legalizer::host(Value value) {
  Tracked &tracked = track(value);
  if (tracked.host || !tracked.data)
    return tracked.host;
  auto type = dyn_cast<RankedTensorType>(tracked.data.getType());
  if (!type || !type.hasStaticShape() || type.getNumElements() > kMaxHostElements ||
      !isa<IntegerType>(type.getElementType()))
    return std::nullopt;
  auto constant = tracked.data.getDefiningOp<ConstantOp>();
  if (!constant)
    return std::nullopt;
  std::optional<std::vector<int64_t>> elements = constantInts(tracked.data);
  if (!elements) {
    // Longer than what stays inline: the bytes are in the archive.
    auto &weights = module.getContext()->getOrLoadDialect<LatheDialect>()->weights();
    Result<std::vector<std::byte>> bytes = constantBytes(constant.getValue(), weights);
    if (!bytes || !type.getElementType().isSignlessInteger(64))
      return std::nullopt;
    elements.emplace(type.getNumElements());
    std::memcpy(elements->data(), bytes->data(), bytes->size());
  }
  HostValue host{type.getElementType(), type.getShape().vec(), {}};
  for (int64_t v : *elements)
    host.values.push_back(v);
  return tracked.host = std::move(host);
}

/// Bounds that the user gave a symbol which another takes the place of: the other
/// gets the narrower of both. A formula has bounds of its own, so it is said when
/// these are given up.
void Legalizer::keepBounds(SymbolOp symbol, const DimExpr &by) {
  int64_t min = symbol.getMin(), max = symbol.getMax();
  if (min == 0 && max < 0)
    return;
  std::optional<std::string> name = by.symbolName();
  Operation *other = name ? SymbolTable::lookupSymbolIn(module, *name) : nullptr;
  if (auto kept = dyn_cast_or_null<SymbolOp>(other)) {
    int64_t high = kept.getMax();
    kept.setMin(std::max<int64_t>(kept.getMin(), min));
    if (max >= 0)
      kept.setMax(high < 0 ? max : std::min(high, max));
    high = kept.getMax();
    int64_t opt = std::max<int64_t>(kept.getOpt(), kept.getMin());
    kept.setOpt(high < 0 ? opt : std::min(opt, high));
    e.ranges[*name] = {int64_t(kept.getMin()), high < 0 ? DimRange::kUnbounded : high};
  } else if (!by.isConstant()) {
    symbol.emitRemark() << "size " << symbol.getSymName() << " is " << by.str()
                        << " by what the model states; its own bounds are dropped";
  }
}

bool Legalizer::substitute(const std::string &symbol, const DimExpr &by) {
  Operation *op = SymbolTable::lookupSymbolIn(module, symbol);
  if (!op || !isa<SymbolOp>(op) || cast<SymbolOp>(op).isRunTimeValue())
    return false;
  keepBounds(cast<SymbolOp>(op), by);
  op->erase();
  std::map<std::string, DimExpr> map = {{symbol, by}};
  substituteSymbols(module, map);
  std::function<void(Tracked &)> replace = [&](Tracked &tracked) {
    if (tracked.host)
      for (DimExpr &dim : tracked.host->values)
        dim = dim.substitute(map);
    for (Tracked &element : tracked.elements)
      replace(element);
  };
  for (auto &[value, tracked] : values)
    replace(tracked);
  for (auto &[formula, name] : derived)
    name = name.substitute(map);
  return true;
}

bool Legalizer::unify(const DimExpr &a, const DimExpr &b) {
  if (a == b)
    return true;
  auto replace = [&](const DimExpr &from, const DimExpr &to) {
    std::optional<std::string> name = from.symbolName();
    std::set<std::string> inside;
    to.collectSymbols(inside);
    // Sizes that a broadcast leaves open are no basis for a claim.
    return name && !inside.count(*name) && to.str().find("bcast") == std::string::npos &&
           substitute(*name, to);
  };
  // A size whose symbol came later is expressed by the earlier one.
  return replace(a, b) || replace(b, a);
}

void Legalizer::applyStated(Operation *op) {
  for (OpResult result : op->getResults())
    for (OpOperand &use : result.getUses()) {
      if (!isa<func::ReturnOp>(use.getOwner()) || use.getOwner()->getParentOp() != func)
        continue;
      auto stated = func.getResultAttrOfType<ArrayAttr>(use.getOperandNumber(), "lathe.stated");
      Value value = data(result);
      if (!stated || !value)
        continue;
      size_t rank = rankOf(value);
      for (size_t d = 0; d < rank && d < stated.size(); ++d) {
        auto text = dyn_cast<StringAttr>(stated[d]);
        Operation *symbol = text ? SymbolTable::lookupSymbolIn(module, text) : nullptr;
        if (!symbol || !isa<SymbolOp>(symbol))
          continue;
        DimExpr claim = DimExpr::symbol(text.getValue()), dim = dimsOf(value)[d];
        std::set<std::string> inside;
        dim.collectSymbols(inside);
        if (dim != claim && !inside.count(text.str()) &&
            dim.str().find("bcast") == std::string::npos)
          substitute(text.str(), dim);
      }
    }
}

StringRef Legalizer::inputKind(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != &func.getBody().front())
    return "";
  auto kind = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "lathe.onnx_type");
  return kind ? kind.getValue() : "";
}

void Legalizer::inputsBehind(Value value, std::vector<std::string> &names) {
  llvm::SetVector<Value> work;
  work.insert(data(value) ? data(value) : value);
  for (size_t i = 0; i < work.size() && i < 256; ++i) {
    auto argument = dyn_cast<BlockArgument>(work[i]);
    if (!argument) {
      // What a loop carries is known when its trips are.
      if (Operation *producer = work[i].getDefiningOp(); producer && !isa<LoopBeginOp>(producer))
        work.insert(producer->operand_begin(), producer->operand_end());
    } else if (argument.getOwner() == &func.getBody().front()) {
      auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "lathe.name");
      if (name && name != kDrawsInput && !llvm::is_contained(names, name.getValue()))
        names.push_back(name.str());
    }
  }
}

UnsupportedNode &Legalizer::report(Node &node, StringRef cause, std::string message,
                                   std::string nearest, std::string remedy, bool invalid) {
  UnsupportedNode entry;
  SmallVector<StringRef> names = nodeNames(node.op->getLoc());
  entry.node = names.empty() ? "" : names.front().str();
  entry.opType = node.type.str();
  entry.domain = node.domain.str();
  const bool aten = node.domain == kAtenDomain;
  if (!aten)
    entry.opset = onnxSchemaVersion(node.type, node.domain, node.opset).value_or(node.opset);
  for (Value operand : node.op->getOperands()) {
    std::string text = "unknown";
    Tracked &tracked = track(operand);
    if (isa<NoneType>(operand.getType()))
      text = "absent";
    else if (tracked.isSequence)
      text = "sequence of " + std::to_string(tracked.elements.size());
    else if (tracked.list)
      text = tracked.list->isOptional ? "optional" : "sequence";
    else if (tracked.data)
      text = printed(tracked.data.getType());
    else if (tracked.host)
      text = printed(RankedTensorType::get(tracked.host->shape, tracked.host->element));
    entry.operands.push_back(std::move(text));
  }
  entry.cause = cause.str();
  entry.message = (outer.empty() ? "" : "in the function body of " + outer + ": ") + message;
  entry.nearest = std::move(nearest);
  entry.remedy = std::move(remedy);
  entry.invalid = invalid;
  InFlightDiagnostic diag = mlir::emitError(node.op->getLoc());
  diag << "'" << entry.node << "' (";
  if (aten)
    diag << "aten." << entry.opType;
  else
    diag << entry.opType << "@" << entry.opset
         << (entry.domain.empty() ? "" : " of " + entry.domain);
  diag << "): " << (invalid ? "invalid " : "unsupported ") << entry.cause << ": " << entry.message;
  if (!entry.nearest.empty())
    diag << "; nearest: " << entry.nearest;
  if (!entry.remedy.empty())
    diag << "; remedy: " << entry.remedy;
  found.nodes.push_back(std::move(entry));
  return found.nodes.back();
}

bool Legalizer::expand(Node &node) {
  if (depth >= kMaxDepth || node.domain == kAtenDomain)
    return false;
  SmallVector<Type> types;
  for (Value operand : node.op->getOperands())
    types.push_back(isa<NoneType>(operand.getType()) || !data(operand) ? Type()
                                                                       : data(operand).getType());
  Operation *before = node.op->getPrevNode();
  OpBuilder builder(node.op);
  Result<std::optional<std::vector<Value>>> body = expandFunctionBody(node.op, types, builder);
  if (!body) {
    (void)node.invalid("attribute",
                       "its function body cannot be built: " + body.status().message());
    return false;
  }
  if (!*body)
    return false;
  SmallVector<Operation *> inner;
  for (Operation *op = before ? before->getNextNode() : &node.op->getBlock()->front();
       op != node.op; op = op->getNextNode())
    inner.push_back(op);
  std::string saved = outer;
  if (outer.empty())
    outer = node.type.str();
  ++depth;
  for (Operation *op : inner)
    process(op);
  --depth;
  outer = saved;
  for (auto [result, value] : llvm::zip(node.op->getResults(), **body)) {
    Tracked inside = value ? track(value) : Tracked();
    values[result] = inside;
  }
  return true;
}

std::vector<Value> Legalizer::compose(Node &node, StringRef type, ArrayRef<Value> operands,
                                      ArrayRef<NamedAttribute> attributes, unsigned results) {
  // What a handler could not compute has its reason in e.error already; an absent operand is
  // `none`.
  Type anything = UnrankedTensorType::get(e.b.getF32Type());
  OperationState state(node.op->getLoc(), ("onnx." + type).str());
  for (Value operand : operands) {
    if (!operand) {
      OperationState none(node.op->getLoc(), "onnx.NoValue");
      none.addTypes(e.b.getNoneType());
      operand = e.b.create(none)->getResult(0);
    }
    state.addOperands(operand);
  }
  state.addAttributes(attributes);
  state.addTypes(SmallVector<Type>(results, anything));
  Operation *op = e.b.create(state);
  if (results > 1) { // handlers ask which are used
    OperationState user(node.op->getLoc(), "onnx.NoValue");
    user.addOperands(op->getResults());
    user.addTypes(e.b.getNoneType());
    e.b.create(user);
  }
  std::string saved = outer;
  if (outer.empty())
    outer = (node.domain + "." + node.type).str();
  size_t before = found.nodes.size();
  process(op);
  outer = saved;
  e.b.setInsertionPoint(node.op);
  e.loc = node.op->getLoc();
  node.reported |= found.nodes.size() != before;
  std::vector<Value> values;
  for (Value result : op->getResults())
    values.push_back(track(result).failed ? Value() : data(result));
  return values;
}

/// Whether the results of an aten op are what torch states them to be.
LogicalResult Legalizer::agrees(Node &node) {
  for (OpResult result : node.op->getResults()) {
    auto stated = dyn_cast<RankedTensorType>(result.getType());
    Value value = data(result);
    if (!stated || result.use_empty())
      continue;
    if (!value)
      return node.fail("op", "result " + llvm::Twine(result.getResultNumber()) +
                                 " is used, and not computed");
    std::vector<DimExpr> want = dimsOf(stated), have = dimsOf(value);
    bool same = want.size() == have.size() && stated.getElementType() == elementTypeOf(value);
    for (size_t d = 0; same && d < want.size(); ++d)
      same = want[d] == have[d] || !want[d].isConstant() || !have[d].isConstant();
    if (!same)
      return node.fail("shape", "a result of " + printed(value.getType()) + " where torch states " +
                                    printed(stated));
    // One name for a size: later ops compare by it.
    if (want != have)
      track(result).data = e.bind(value, want);
  }
  return success();
}

void Legalizer::settle(const Node &node) {
  markStringResults(node);
  applyStated(node.op);
  nameLongSizes(node);
}

/// Complex numbers have sizes and can be passed on; no kernel reads them.
static bool checkComplex(Node &node) {
  static const llvm::StringSet<> passes = {"EyeLike", "Flatten", "Identity", "Optional", "OptionalGetElement",
                                           "OptionalHasElement", "RandomNormalLike", "RandomUniformLike", "Reshape",
                                           "Shape", "Size", "Squeeze", "Unsqueeze"};
  auto fail = [&](llvm::Twine what) {
    (void)node.fail("dtype", what + " of complex numbers", "tensors of real numbers",
                    "real and imaginary parts as a last dimension of 2, as DFT has them");
    return false;
  };
  if (auto value = node.op->getAttrOfType<DictionaryAttr>("value"); value && node.type == "Constant")
    if (auto dtype = value.getAs<StringAttr>("dtype"); dtype && dtype.getValue().starts_with("complex"))
      return fail("a constant");
  if (passes.contains(node.type))
    return true;
  for (auto [i, operand] : llvm::enumerate(node.op->getOperands()))
    if (auto type = dyn_cast<ShapedType>(operand.getType()); type && isa<ComplexType>(type.getElementType()))
      return fail("operand " + llvm::Twine(i));
    else if (Value value = node.tracked(i).data; value && isa<ComplexType>(elementTypeOf(value)))
      return fail("operand " + llvm::Twine(i));
  return true;
}

void Legalizer::process(Operation *op) {
  StringRef name = op->getName().stripDialect();
  if (!isSource(op) || name == "NoValue" || name == "none")
    return;
  e.b.setInsertionPoint(op);
  e.loc = op->getLoc();
  e.error.clear();
  Node node(*this, op);
  auto failAll = [&] {
    for (Value result : op->getResults())
      values[result].failed = true;
  };
  const bool aten = node.domain == kAtenDomain;
  Handler handler = handlerOf(node);
  bool blocked = llvm::any_of(op->getOperands(), [&](Value v) { return track(v).failed; });
  if (blocked) {
    // Its own trouble cannot be seen yet, unless nobody knows the op at all.
    if (auto reason = op->getAttrOfType<StringAttr>("unsupported"))
      (void)node.fail("op", reason.getValue());
    else if (!handler && (aten || !onnxSchemaVersion(node.type, node.domain, node.opset)))
      (void)node.fail("op", "lathe does not know this op", "", remedyFor(node));
    return failAll();
  }
  if (auto reason = op->getAttrOfType<StringAttr>("unsupported"); reason && aten) {
    (void)node.fail("op", reason.getValue());
    return failAll();
  }
  if (!checkStrings(node) || (!aten && !checkComplex(node)))
    return failAll();
  // Numbers of strings are no sizes.
  bool movesStrings = stringUseOf(node) == StringUse::Moves &&
                      llvm::any_of(op->getOperands(), [&](Value v) { return isString(v); });
  if (!movesStrings && succeeded(evaluateOnHost(node)))
    return settle(node);
  for (unsigned i = 0; i < node.numInputs(); ++i) {
    if (!node.has(i) || data(op->getOperand(i)) || op->getNumRegions() != 0)
      continue;
    const Tracked &tracked = node.tracked(i);
    // A map is tracked as a sequence of its keys and its values, which only ops that pass it on may take for one.
    const bool isPart = tracked.isMap && node.type != "Identity" && !node.type.starts_with("Optional");
    if ((tracked.isSequence || tracked.isEmpty || tracked.list) && !isPart && node.domain.empty() && takesSequences(node.type))
      continue;
    if (tracked.isMap && node.domain == "ai.onnx.ml" && (node.type == "CastMap" || node.type == "DictVectorizer"))
      continue;
    if (tracked.isEmpty)
      (void)node.invalid("dtype", "operand " + llvm::Twine(i) + " is an optional without a value");
    else if (tracked.isSequence || tracked.list)
      (void)node.invalid("dtype", "operand " + llvm::Twine(i) + (tracked.isMap ? " is a map" : " is a sequence"));
    else if (StringRef kind = inputKind(op->getOperand(i));
             kind == "sequence" || kind == "optional")
      (void)node.fail("dtype",
                      "operand " + llvm::Twine(i) + " is an input that is a" +
                          (kind == "optional" ? "n " : " ") + kind + " of unknown length",
                      "as many tensors as --shape says",
                      "say how many tensors it has: --shape x=[3], or of an optional its sizes or "
                      "--shape x=none");
    else
      (void)node.fail("dtype",
                      "operand " + llvm::Twine(i) + " is no ranked tensor of numbers or bool",
                      "tensors of a known rank", "give an unranked input its sizes with --shape");
    return failAll();
  }
  if (handler) {
    if (succeeded(handler(node)) && (!aten || succeeded(agrees(node))))
      return settle(node);
    if (node.useBody && expand(node))
      return settle(node);
    if (!node.reported)
      (void)node.invalid("shape", e.error.empty() ? "the operands do not fit the op" : e.error);
    return failAll();
  }
  if (node.domain.empty() && op->getNumRegions() != 0) {
    bool done = node.type == "If"     ? inlineIf(node)
                : node.type == "Loop" ? unrollLoop(node)
                : node.type == "Scan" ? unrollScan(node)
                                      : node.type == "SequenceMap" && mapSequence(node);
    if (done)
      return settle(node);
  }
  if (expand(node))
    return settle(node);
  if (!node.reported && node.domain == kCustomDomain && succeeded(customCall(node)))
    return settle(node);
  if (!node.reported)
    (void)node.fail("op",
                    !aten && onnxSchemaVersion(node.type, node.domain, node.opset)
                        ? "no lowering for this op yet"
                        : "lathe does not know this op",
                    "", remedyFor(node));
  failAll();
}

/// A tensor is an output under its name, a sequence y one output a tensor: y[0], y[1] and so on; a map y, or a sequence of
/// maps, y.keys and y.values; an optional without a value is none. A list whose length the run knows is y[] and y[].shapes, or
/// y[].present, too.
bool Legalizer::addOutputs(Tracked &output, DictionaryAttr attrs, const std::string &name,
                           SmallVectorImpl<Value> &results,
                           SmallVectorImpl<Attribute> &resultAttrs) {
  if (output.isSequence) {
    for (auto [i, element] : llvm::enumerate(output.elements))
      if (std::string part = output.isMap ? (i ? ".values" : ".keys") : "[" + std::to_string(i) + "]";
          !addOutputs(element, attrs, name + part, results, resultAttrs))
        return false;
    return true;
  }
  if (output.isEmpty)
    return true;
  if (output.list) {
    std::optional<std::vector<std::pair<std::string, Value>>> parts = packedList(*this, *output.list, name);
    for (auto &[part, value] : parts.value_or(decltype(parts)::value_type())) {
      Tracked tensor;
      tensor.data = value;
      if (!addOutputs(tensor, attrs, part, results, resultAttrs))
        return false;
    }
    return parts.has_value();
  }
  Value value = dataOf(output);
  if (!value)
    return false;
  NamedAttrList list(attrs);
  list.erase("lathe.stated");
  if (attrs.get("lathe.name"))
    list.set("lathe.name", e.b.getStringAttr(name));
  if (stringValues.contains(value))
    list.set(kStringsAttr, e.b.getUnitAttr());
  results.push_back(value);
  resultAttrs.push_back(list.getDictionary(e.b.getContext()));
  return true;
}

bool Legalizer::finish() {
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  e.b.setInsertionPoint(ret);
  SmallVector<Value> results;
  SmallVector<Attribute> resultAttrs;
  for (auto [i, operand] : llvm::enumerate(ret.getOperands())) {
    DictionaryAttr attrs = func.getResultAttrDict(unsigned(i));
    if (!attrs)
      attrs = e.b.getDictionaryAttr({});
    auto name = attrs.getAs<StringAttr>("lathe.name");
    if (!addOutputs(track(operand), attrs, name ? name.str() : "", results, resultAttrs)) {
      mlir::emitError(func.getLoc()) << "an output has no value of a tensor type";
      UnsupportedNode entry;
      entry.node = func.getName().str();
      entry.cause = "dtype";
      entry.message = "an output is no tensor that lathe can store";
      found.nodes.push_back(entry);
      return false;
    }
  }
  ret->setOperands(results);
  func.setFunctionType(
      e.b.getFunctionType(func.getArgumentTypes(), ValueRange(results).getTypes()));
  func.setResAttrsAttr(e.b.getArrayAttr(resultAttrs));
  // Backwards, so that users go first; what only shape arithmetic used goes too.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.getBody().front()))) {
    if (isSource(&op)) {
      op.dropAllUses();
      op.erase();
    } else if (isOpTriviallyDead(&op) || (op.hasAttr(kHostOpAttr) && op.use_empty())) {
      op.erase(); // ops of the host have no effect but their results
    }
  }
  return true;
}

LogicalResult Legalizer::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : func.getBody().front())
    ops.push_back(&op);
  size_t before = found.nodes.size();
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    if (func.getArgAttrOfType<StringAttr>(i, "lathe.name") == kDrawsInput) {
      mlir::emitError(func.getLoc()) << "no input may have the name '" << kDrawsInput << "'";
      UnsupportedNode entry;
      entry.node = func.getName().str();
      entry.cause = "op";
      entry.message = "an input has a name that lathe keeps for itself";
      entry.invalid = true;
      found.nodes.push_back(entry);
      return failure();
    }
  takeStringInputs();
  for (Operation *op : ops)
    process(op);
  keepStrings();
  if (found.nodes.size() != before)
    return failure();
  return success(finish());
}

} // namespace lathe::legal
