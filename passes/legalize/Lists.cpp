//===- Lists.cpp - sequences whose length the run knows ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sequence or an optional that comes from the caller, or whose length data decide, is the number of a list that the
// runtime holds (runtime/host/Lists.h); branches and loops carry it like any integer. The sizes of a tensor that is taken out
// of it are bound in the middle of the run.
//
//   %n = "onnx.SequenceLength"(%s)      =>   %n = lathe.custom_call "list_length"(%l) {lathe.host_op}
//   %y = "onnx.SequenceAt"(%s, %p)      =>   %d = lathe.custom_call "list_dims"(%l, %p)
//                                            lathe.dim_from %d {symbols = ["y_0"]}
//                                            %y = lathe.custom_call "list_at"(%l, %p) : ... -> #lathe.t<[y_0]>
//
//===----------------------------------------------------------------------===//
#include "Lists.h"

#include "Strings.h"

#include "lathe/ir/HostOps.h"
#include "lathe/ir/Loops.h"

using namespace mlir;

namespace lathe::legal {
namespace {

Type handleType(Emitter &e) { return tensorType(e.b.getI64Type(), ArrayRef<int64_t>{}); }

NamedAttribute number(Emitter &e, StringRef name, int64_t value) {
  return e.b.getNamedAttr(name, e.b.getI64IntegerAttr(value));
}

/// The only result of an op of the host; null where an operand is.
Value call(Emitter &e, StringRef name, Type type, ArrayRef<Value> operands, ArrayRef<NamedAttribute> config = {}) {
  auto results = callHost(e, name, {type}, operands, config);
  return results ? results->front() : Value();
}

/// Whether tensors of this type can be in a list; after a report where they cannot.
bool canList(Node &n, Type element, bool areStrings) {
  std::optional<DType> dtype = dtypeOf(element);
  if (dtype && bitWidth(*dtype) >= 8 && !areStrings)
    return true;
  (void)n.fail("dtype", "a sequence, of a length that the run knows, of strings or of numbers of less than a byte",
               "numbers and bool", "say how many tensors it has: --shape x=[3]");
  return false;
}

/// The sizes of a value so far as they are constants.
Ints constantDims(Value x) {
  Ints dims;
  for (const DimExpr &dim : dimsOf(x))
    dims.push_back(dim.constant().value_or(-1));
  return dims;
}

/// The same of tensors that may be either.
std::optional<Ints> eitherDims(const std::optional<Ints> &a, const std::optional<Ints> &b) {
  if (!a || !b || a->size() != b->size())
    return std::nullopt;
  Ints dims;
  for (auto [x, y] : llvm::zip(*a, *b))
    dims.push_back(x == y ? x : -1);
  return dims;
}

/// Completes what is known of tensors that are taken out of the list, `what` says how, and notes their sizes; failure, with a
/// report, where the type or the rank is not known.
LogicalResult take(Node &n, RunList &list, StringRef what) {
  if (!list.element && list.stated) {
    list.element = list.stated.getElementType();
    if (list.stated.hasRank())
      list.dims.emplace();
    for (int64_t size : list.stated.hasRank() ? list.stated.getShape() : ArrayRef<int64_t>())
      list.dims->push_back(ShapedType::isDynamic(size) ? -1 : size);
  }
  if (!list.element)
    return n.fail("shape", what + " of a sequence of a type that is not known", "sequences of a type that the model states",
                  "declare the type of the sequence where the body of the loop takes it");
  if (!list.dims)
    return n.fail("shape", what + " of a sequence whose tensors have ranks that only the run knows",
                  "sequences whose type states the rank of their tensors",
                  "say how many tensors the input has, and their sizes: --shape x=[3] --shape x[0]=2x5");
  for (const auto &taken : list.taken)
    taken->push_back(*list.dims);
  return success();
}

std::string hintOf(Node &n) {
  SmallVector<StringRef> names = nodeNames(n.op->getLoc());
  return (names.empty() ? n.type : names.front()).str();
}

/// Operand i as a list; none after a report.
std::optional<RunList> listOperand(Node &n, unsigned i) { return asList(n, n.tracked(i)); }

/// A position as the ops of the host take it; null, without a report, where it is absent.
Value placeOperand(Node &n, unsigned i) { return n.has(i) ? n.in(i) : Value(); }

/// What import makes of an input of the entry: values, shapes and whether there is a list at all.
LogicalResult listConstruct(Node &n) {
  Emitter &e = n.e;
  Value values = n.in(0), shapes = n.in(1);
  if (!values || !shapes || !canList(n, elementTypeOf(values), n.isStrings(0)))
    return failure();
  RunList list;
  list.element = elementTypeOf(values);
  list.dims = n.intsAttr("dims");
  list.isTensor = n.intAttr("single", 0);
  list.isOptional = list.isTensor || n.has(2);
  SmallVector<Value> operands = {values, shapes};
  if (n.has(2))
    operands.push_back(n.in(2));
  list.handle = call(e, "list_take", handleType(e), operands,
                     {e.b.getNamedAttr("dims", e.b.getDenseI64ArrayAttr(list.dims.value_or(Ints()))),
                      number(e, "ranked", list.dims.has_value()), number(e, "single", list.isTensor)});
  return list.handle ? n.setTracked(0, trackedList(list)) : failure();
}

} // namespace

Tracked trackedList(RunList list) {
  Tracked result;
  result.list = std::move(list);
  return result;
}

std::optional<RunList> either(Node &n, const RunList &a, const RunList &b) {
  if (a.element && b.element && (a.element != b.element || a.isTensor != b.isTensor)) {
    (void)n.invalid("dtype", "sequences or optionals of different types");
    return std::nullopt;
  }
  RunList result = a.element ? a : b;
  result.handle = {};
  result.isOptional = a.isOptional || b.isOptional;
  result.stated = a.stated ? a.stated : b.stated;
  if (a.element && b.element)
    result.dims = eitherDims(a.dims, b.dims);
  for (const auto &taken : (a.element ? b : a).taken)
    if (!llvm::is_contained(result.taken, taken))
      result.taken.push_back(taken);
  return result;
}

std::optional<RunList> asList(Node &n, const Tracked &value) {
  Emitter &e = n.e;
  if (value.list)
    return value.list;
  RunList list;
  if (value.isEmpty) {
    list.isOptional = true;
    list.handle = e.scalar(-1, e.b.getI64Type()); // Lists::kAbsent
    return list;
  }
  if (value.isMap || (!value.isSequence && !value.data && !value.host)) {
    (void)n.fail("dtype", "a map, or a sequence of such, in a sequence or optional whose length the run knows", "tensors");
    return std::nullopt;
  }
  list.isTensor = list.isOptional = !value.isSequence;
  SmallVector<Value> tensors;
  for (Tracked element : value.isSequence ? value.elements : std::vector<Tracked>{value}) {
    Value x = n.legalizer.dataOf(element);
    if (!x) {
      (void)n.fail("dtype", "a sequence of what are no tensors", "sequences of tensors");
      return std::nullopt;
    }
    if (!canList(n, elementTypeOf(x), n.legalizer.stringValues.contains(x)))
      return std::nullopt;
    if (!list.element) {
      list.element = elementTypeOf(x);
      list.dims = constantDims(x);
    } else if (list.element != elementTypeOf(x)) {
      (void)n.invalid("dtype", "tensors of different types in a sequence");
      return std::nullopt;
    }
    list.dims = eitherDims(list.dims, constantDims(x));
    tensors.push_back(x);
  }
  list.handle = call(e, "list_make", handleType(e), tensors);
  return list;
}

std::optional<RunList> insertInto(Node &n, const RunList &list, Value x, Value place) {
  Emitter &e = n.e;
  if (!x || !canList(n, elementTypeOf(x), n.legalizer.stringValues.contains(x)))
    return std::nullopt;
  RunList more;
  more.element = elementTypeOf(x);
  more.dims = constantDims(x);
  std::optional<RunList> result = either(n, list, more);
  if (!result)
    return std::nullopt;
  SmallVector<Value> operands = {list.handle, x};
  if (place)
    operands.push_back(place);
  result->handle = call(e, "list_insert", handleType(e), operands);
  result->isOptional = false;
  return result;
}

Value elementAt(Node &n, RunList list, Value place) {
  Emitter &e = n.e;
  if (failed(take(n, list, "a tensor")))
    return {};
  SmallVector<Value> operands = {list.handle};
  if (place)
    operands.push_back(place);
  Dims dims(list.dims->begin(), list.dims->end());
  if (llvm::is_contained(*list.dims, -1)) {
    Value sizes = call(e, "list_dims", tensorType(e.b.getI64Type(), {DimExpr(int64_t(dims.size()))}), operands);
    for (auto [dim, bound] : llvm::zip(dims, n.legalizer.sizesOf(sizes, hintOf(n) + "_size")))
      dim = dim == DimExpr(-1) ? bound : dim;
  }
  return call(e, "list_at", tensorType(list.element, dims), operands);
}

void stateList(Node &n, unsigned i, RunList &list) {
  auto arguments = n.op->getAttrOfType<ArrayAttr>("onnx_list_arguments");
  auto stated = arguments && i < arguments.size() ? dyn_cast<DictionaryAttr>(arguments[i]) : DictionaryAttr();
  if (auto tensors = stated ? stated.getAs<TypeAttr>("tensors") : TypeAttr())
    if (auto type = dyn_cast<TensorType>(tensors.getValue()); type && dtypeOf(type.getElementType()))
      list.stated = type;
  if (!stated || !stated.get("optional"))
    return;
  list.isOptional = true;
  if (!list.element) // else its tensors tell
    list.isTensor = !stated.get("sequence");
}

std::optional<RunList> nextList(Node &n, const RunList &carried, Tracked &next) {
  std::optional<RunList> list = asList(n, next), both = list ? either(n, carried, *list) : std::nullopt;
  if (!both)
    return std::nullopt;
  if (!carried.element && list->element && carried.stated && !carried.taken.back()->empty() &&
      list->element != carried.stated.getElementType()) {
    (void)n.invalid("dtype", "tensors of another type than the body of the loop states");
    return std::nullopt;
  }
  auto haveSizes = [&](const Ints &sizes) { return eitherDims(sizes, list->dims) == sizes; };
  if (list->element && !llvm::all_of(*carried.taken.back(), haveSizes)) {
    (void)n.fail("shape", "a loop that takes tensors out of a sequence whose iterations put tensors of other ranks or sizes in",
                 "sequences whose type states no more than all their tensors have");
    return std::nullopt;
  }
  if (list->isOptional && !carried.isOptional) {
    (void)n.fail("dtype", "a loop that carries a sequence whose iterations give an optional, which may have no value",
                 "bodies that state an optional for what they carry", "declare the input of the body an optional");
    return std::nullopt;
  }
  next = Tracked();
  next.data = list->handle;
  return list;
}

Tracked listBehindLoop(Node &n, const RunList &carried, const RunList &next, Value handle) {
  RunList list = *either(n, carried, next); // without an iteration it is what the loop was given
  list.handle = handle;
  return trackedList(list);
}

LogicalResult listLength(Node &n) {
  std::optional<RunList> list = listOperand(n, 0);
  return list ? n.done(call(n.e, "list_length", handleType(n.e), {list->handle})) : failure();
}

LogicalResult listAt(Node &n) {
  std::optional<RunList> list = listOperand(n, 0);
  return list ? n.done(elementAt(n, *list, placeOperand(n, 1))) : failure();
}

LogicalResult listInsert(Node &n) {
  std::optional<RunList> list = listOperand(n, 0);
  std::optional<RunList> result = list ? insertInto(n, *list, n.in(1), placeOperand(n, 2)) : std::nullopt;
  return result ? n.setTracked(0, trackedList(*result)) : failure();
}

LogicalResult listErase(Node &n) {
  std::optional<RunList> list = listOperand(n, 0);
  if (!list)
    return failure();
  SmallVector<Value> operands = {list->handle};
  if (Value place = placeOperand(n, 1))
    operands.push_back(place);
  list->handle = call(n.e, "list_erase", handleType(n.e), operands);
  list->isOptional = false;
  return n.setTracked(0, trackedList(*list));
}

LogicalResult listSplit(Node &n, int64_t axis) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || !canList(n, elementTypeOf(x), n.isStrings(0)))
    return failure();
  RunList list;
  list.element = elementTypeOf(x);
  list.dims = constantDims(x);
  SmallVector<Value> operands = {x};
  if (n.has(1))
    operands.push_back(n.in(1));
  const bool keeps = n.has(1) || n.intAttr("keepdims", 1);
  if (keeps)
    (*list.dims)[axis] = n.has(1) ? -1 : 1;
  else
    list.dims->erase(list.dims->begin() + axis);
  list.handle = call(e, "list_split", handleType(e), operands, {number(e, "axis", axis), number(e, "keepdims", keeps)});
  return list.handle ? n.setTracked(0, trackedList(list)) : failure();
}

LogicalResult listConcat(Node &n) {
  Emitter &e = n.e;
  std::optional<RunList> list = listOperand(n, 0);
  if (!list || failed(take(n, *list, "a join")))
    return failure();
  const bool isNew = n.intAttr("new_axis", 0);
  Ints known = *list->dims;
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", 0), int64_t(known.size()) + isNew);
  if (!axis)
    return failure();
  if (isNew)
    known.insert(known.begin() + *axis, -1);
  known[*axis] = -1;
  NamedAttribute config[] = {number(e, "axis", *axis), number(e, "new_axis", isNew)};
  Value sizes = call(e, "list_join_dims", tensorType(e.b.getI64Type(), {DimExpr(int64_t(known.size()))}), {list->handle}, config);
  Dims dims = n.legalizer.sizesOf(sizes, hintOf(n) + "_size");
  for (auto [dim, size] : llvm::zip(dims, known))
    dim = size < 0 ? dim : DimExpr(size);
  return n.done(call(e, "list_join", tensorType(list->element, dims), {list->handle}, config));
}

LogicalResult listHasElement(Node &n) {
  const RunList &list = *n.tracked(0).list;
  if (!list.isOptional)
    return n.setHost(0, {n.e.b.getI1Type(), {}, {DimExpr(1)}});
  return n.done(n.e.compare(list.handle, 0.0, Predicate::Ge));
}

LogicalResult listGetElement(Node &n) {
  RunList list = *n.tracked(0).list;
  if (list.isTensor)
    return n.done(elementAt(n, list, {}));
  if (list.isOptional)
    list.handle = call(n.e, "list_require", handleType(n.e), {list.handle});
  list.isOptional = false;
  return n.setTracked(0, trackedList(list));
}

std::optional<std::vector<std::pair<std::string, Value>>> packedList(Legalizer &legal, const RunList &list,
                                                                     const std::string &name) {
  Emitter &e = legal.e;
  if (!list.element)
    return std::nullopt;
  Type integer = e.b.getI64Type();
  Value counts = call(e, "list_sizes", tensorType(integer, {DimExpr(3)}), {list.handle});
  Dims sizes = legal.sizesOf(counts, name + "_list");
  auto parts = callHost(e, "list_give", {tensorType(list.element, {sizes[2]}), tensorType(integer, {sizes[0], sizes[1]})},
                        {list.handle});
  std::vector<std::pair<std::string, Value>> result = {{name + "[]", (*parts)[0]}, {name + "[].shapes", (*parts)[1]}};
  if (list.isOptional && !list.isTensor)
    result.emplace_back(name + "[].present", e.compare(list.handle, 0.0, Predicate::Ge));
  return result;
}

/// The body once for each place, in a loop; operands that are tensors are the same each time.
bool Legalizer::mapList(Node &node) {
  std::vector<std::optional<RunList>> sources(node.numInputs());
  std::optional<DimExpr> count;
  for (unsigned i = 0; i < node.numInputs(); ++i) {
    if (!node.tracked(i).isSequence && !node.tracked(i).list)
      continue;
    sources[i] = asList(node, node.tracked(i));
    if (!sources[i])
      return false;
    DimExpr length = node.sizeOf(call(e, "list_length", handleType(e), {sources[i]->handle}), std::nullopt);
    if (count)
      node.demandZero("lengths", length - *count);
    count = count.value_or(length);
  }
  if (!count || node.op->getNumRegions() != 1)
    return false;
  SmallVector<Value> inits = {e.scalar(0, e.b.getI64Type())};
  for (unsigned i = 0; i < node.numOutputs(); ++i)
    inits.push_back(call(e, "list_make", handleType(e), {}));
  Value trips = e.dimScalar(*count, e.b.getI64Type());
  auto begin = LoopBeginOp::create(e.b, e.loc, ValueRange(inits).getTypes(), inits);
  Value counter = begin->getResult(0);
  std::vector<Tracked> arguments;
  loops.push_back({counter, {}});
  for (unsigned i = 0; i < node.numInputs(); ++i) {
    arguments.push_back(node.tracked(i));
    if (!sources[i])
      continue;
    arguments.back() = Tracked();
    arguments.back().data = elementAt(node, *sources[i], counter);
  }
  loops.pop_back();
  if (node.reported)
    return false;
  std::optional<std::vector<Tracked>> results = runBody(node, counter, arguments);
  if (!results || results->size() != node.numOutputs())
    return false;
  SmallVector<Value> nexts = {e.add(counter, e.scalar(1, e.b.getI64Type()))};
  std::vector<RunList> lists;
  for (auto [result, carried] : llvm::zip(*results, begin.getCarried().drop_front())) {
    RunList empty;
    empty.handle = carried;
    std::optional<RunList> next = insertInto(node, empty, dataOf(result), {});
    if (!next)
      return false;
    nexts.push_back(next->handle);
    lists.push_back(*next);
  }
  LoopEndOp end = endLoop(begin, trips, {}, {}, nexts, {}, std::nullopt);
  if (!end)
    return false;
  for (auto [i, list] : llvm::enumerate(lists)) {
    list.handle = end.getYs()[1 + i];
    (void)node.setTracked(i, trackedList(list));
  }
  return true;
}

void addLists(Handlers &h) { h["ListConstruct"] = listConstruct; }

} // namespace lathe::legal
