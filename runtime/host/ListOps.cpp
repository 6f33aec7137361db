//===- ListOps.cpp - ops on lists of tensors --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `l` is the number of a list (Lists.h), `p` a position, an integer of one element that counts from the end where it is
// negative. Sizes that only a run knows come from an op of their own, ahead of the one that fills memory of these sizes.
//
//   list_take(values, shapes, present?) {dims: ints, ranked, single} -> l   packed as at the interface (lathe.h); each
//                                       tensor is held against `dims` where `ranked` is 1: -1 is any size. Where `single`
//                                       is 1, there is one tensor, or the list is absent
//   list_give(l) -> values, shapes      packed; list_sizes(l) -> [tensors, columns of shapes, elements], i64
//   list_make(x...) -> l
//   list_length(l) -> i64
//   list_insert(l, x, p?) -> l          without p behind the last
//   list_erase(l, p?) -> l              without p the last
//   list_at(l, p?) -> x                 without p the first; list_dims(l, p?) -> its sizes, i64
//   list_split(x, parts?) {axis, keepdims} -> l   parts of one size, or of several; without them of 1
//   list_join(l) {axis, new_axis} -> x  list_join_dims(l) {axis, new_axis} -> its sizes, i64
//   list_require(l) -> l                fails where the optional has no value
//
//===----------------------------------------------------------------------===//

#include "ListOps.h"

#include "Lists.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace lathe::runtime {
namespace {

using Element = Lists::Element;
using Dims = std::vector<int64_t>;

/// Of a tensor, sizes of 0 left out.
constexpr int64_t kMostElements = int64_t(1) << 56;

Status wrong(const std::string &message) { return invalidError("host op: " + message); }

std::string textOf(const Dims &dims) {
  std::string text;
  for (int64_t d : dims)
    text += (text.empty() ? "" : "x") + (d < 0 ? std::string("?") : std::to_string(d));
  return "[" + text + "]";
}

int64_t loadInteger(const HostView &v, int64_t i = 0) {
  if (v.dtype == DType::I32) {
    int32_t narrow;
    std::memcpy(&narrow, static_cast<const char *>(v.data) + 4 * i, 4);
    return narrow;
  }
  int64_t value;
  std::memcpy(&value, static_cast<const char *>(v.data) + 8 * i, 8);
  return value;
}

bool isInteger(const HostView &v) { return v.dtype == DType::I64 || v.dtype == DType::I32; }

/// Bytes of an element; 0 where several share one.
int64_t bytesOf(DType dtype) { return int64_t(bitWidth(dtype)) / 8; }

Element elementOf(const HostView &v) {
  auto *from = static_cast<const std::byte *>(v.data);
  auto data = std::make_shared<std::vector<std::byte>>(from, from + byteSize(v.dtype, v.count()));
  return {v.dtype, v.dims, std::move(data)};
}

/// An op's operands, of which the first `inputs` must be there and `optional` more may be.
Status expect(const HostCall &c, size_t inputs, size_t optional, size_t outputs) {
  if (!c.lists || c.inputs.size() < inputs || c.inputs.size() > inputs + optional || c.outputs.size() != outputs)
    return wrong("wrong number of operands");
  return okStatus();
}

/// The list that operand 0 is.
Result<int64_t> listOf(const HostCall &c) {
  const HostView &number = c.inputs[0];
  if (number.dtype != DType::I64 || number.count() != 1)
    return wrong("operand 0 is no list");
  int64_t list = loadInteger(number);
  if (list == Lists::kAbsent)
    return runtimeError("the optional has no value");
  if (!c.lists->has(list))
    return wrong("operand 0 is no list of this run");
  return list;
}

/// A position in [-count, most) of operand i as one in [0, most); `otherwise` where it is absent.
Result<size_t> position(const HostCall &c, size_t i, size_t count, size_t most, size_t otherwise) {
  if (i >= c.inputs.size())
    return otherwise;
  if (!isInteger(c.inputs[i]) || c.inputs[i].count() != 1)
    return wrong("a position is no integer");
  int64_t at = loadInteger(c.inputs[i]), length = static_cast<int64_t>(count);
  if (at < -length || at >= static_cast<int64_t>(most))
    return runtimeError("position " + std::to_string(at) + " is out of range of a list of " + std::to_string(count) +
                        " tensors");
  return static_cast<size_t>(at < 0 ? at + length : at);
}

Status giveInteger(const HostCall &c, int64_t value) {
  if (c.outputs[0].dtype != DType::I64 || c.outputs[0].count() != 1)
    return wrong("the result is no i64");
  std::memcpy(c.outputs[0].data, &value, sizeof value);
  return okStatus();
}

Status giveDims(const HostCall &c, const Dims &dims) {
  const HostView &y = c.outputs[0];
  if (y.dtype != DType::I64)
    return wrong("sizes are no i64");
  if (y.count() != static_cast<int64_t>(dims.size()))
    return runtimeError("a tensor of sizes " + textOf(dims) + " where one of rank " + std::to_string(y.count()) +
                        " is expected");
  if (!dims.empty())
    std::memcpy(y.data, dims.data(), dims.size() * sizeof(int64_t));
  return okStatus();
}

/// Whether an output is of this type and these sizes.
Status fits(const HostView &y, DType dtype, const Dims &dims) {
  if (y.dtype != dtype)
    return runtimeError("a tensor of " + std::string(name(dtype)) + " where one of " + std::string(name(y.dtype)) +
                        " is expected");
  if (y.dims != dims)
    return runtimeError("a tensor of sizes " + textOf(dims) + " where " + textOf(y.dims) + " are expected");
  return okStatus();
}

/// The rank and the sizes of row `at` of `shapes`; an error names the tensor.
Result<Dims> rowOf(const HostView &shapes, int64_t at) {
  const int64_t columns = shapes.dims[1], rank = loadInteger(shapes, at * columns);
  auto fail = [&](const std::string &what) {
    return usageError(what, "tensor " + std::to_string(at) + " of the list");
  };
  if (rank < 0 || rank >= columns)
    return fail("rank " + std::to_string(rank) + " in shapes of " + std::to_string(columns) + " columns");
  Dims dims;
  int64_t total = 1; // of the sizes that are not 0, so that no part of them overflows
  for (int64_t d = 1; d <= rank; ++d) {
    dims.push_back(loadInteger(shapes, at * columns + d));
    if (dims.back() < 0 || __builtin_mul_overflow(total, std::max<int64_t>(dims.back(), 1), &total) || total > kMostElements)
      return fail("sizes " + textOf(dims) + " are negative or too large");
  }
  return dims;
}

Status take(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 2, 1, 1));
  const HostView &values = c.inputs[0], &shapes = c.inputs[1];
  const int64_t size = bytesOf(values.dtype);
  if (shapes.dtype != DType::I64 || shapes.dims.size() != 2 || shapes.dims[1] < 1 || !size)
    return usageError("shapes of a list are i64 [tensors, 1 + highest rank]");
  if (c.inputs.size() > 2 && (c.inputs[2].dtype != DType::Bool || c.inputs[2].count() != 1))
    return wrong("whether a list is there is no bool");
  const bool single = c.integer("single", 0);
  const bool absent = c.inputs.size() > 2 ? !*static_cast<const char *>(c.inputs[2].data) : single && !shapes.dims[0];
  if (absent && (shapes.dims[0] || values.count()))
    return usageError("tensors are given for a list that is absent");
  if (absent)
    return giveInteger(c, Lists::kAbsent);
  if (single && shapes.dims[0] != 1)
    return usageError(std::to_string(shapes.dims[0]) + " tensors for an optional of one");
  std::span<const int64_t> stated = c.ints("dims");
  std::vector<Element> elements;
  auto *next = static_cast<const std::byte *>(values.data);
  int64_t left = values.count();
  for (int64_t i = 0; i < shapes.dims[0]; ++i) {
    Result<Dims> dims = rowOf(shapes, i);
    if (!dims)
      return dims.status();
    bool agrees = !c.integer("ranked", 0) || dims->size() == stated.size();
    for (size_t d = 0; agrees && c.integer("ranked", 0) && d < stated.size(); ++d)
      agrees = stated[d] < 0 || stated[d] == (*dims)[d];
    if (!agrees)
      return usageError("sizes " + textOf(*dims) + " where the model states " + textOf({stated.begin(), stated.end()}),
                        "tensor " + std::to_string(i) + " of the list");
    int64_t count = 1;
    for (int64_t d : *dims)
      count *= d;
    if (count > left)
      return usageError("the tensors have more elements than the " + std::to_string(values.count()) + " values given");
    left -= count;
    auto data = std::make_shared<std::vector<std::byte>>(next, next + count * size);
    next += count * size;
    elements.push_back({values.dtype, std::move(*dims), std::move(data)});
  }
  if (left)
    return usageError(std::to_string(left) + " values are no tensor's");
  return giveInteger(c, c.lists->add(std::move(elements)));
}

/// Of operand 0, which may be absent: then there are no tensors.
Result<std::vector<Element>> elementsOrNone(const HostCall &c) {
  std::vector<Element> elements;
  if (c.inputs[0].count() == 1 && c.inputs[0].dtype == DType::I64 && loadInteger(c.inputs[0]) == Lists::kAbsent)
    return elements;
  Result<int64_t> list = listOf(c);
  if (!list)
    return list.status();
  for (size_t i = 0; i < c.lists->length(*list); ++i)
    elements.push_back(c.lists->at(*list, i));
  return elements;
}

Status sizes(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 0, 1));
  Result<std::vector<Element>> elements = elementsOrNone(c);
  if (!elements)
    return elements.status();
  int64_t total = 0, columns = 1;
  for (const Element &element : *elements) {
    columns = std::max<int64_t>(columns, 1 + static_cast<int64_t>(element.dims.size()));
    total += static_cast<int64_t>(element.data->size()) / std::max<int64_t>(bytesOf(element.dtype), 1);
  }
  return giveDims(c, {static_cast<int64_t>(elements->size()), columns, total});
}

Status give(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 0, 2));
  Result<std::vector<Element>> elements = elementsOrNone(c);
  if (!elements)
    return elements.status();
  const HostView &values = c.outputs[0], &shapes = c.outputs[1];
  if (shapes.dtype != DType::I64 || shapes.dims.size() != 2 || shapes.dims[0] != static_cast<int64_t>(elements->size()))
    return wrong("shapes of another list");
  std::vector<int64_t> rows(shapes.dims[0] * shapes.dims[1]);
  auto *next = static_cast<std::byte *>(values.data), *end = next + byteSize(values.dtype, values.count());
  for (size_t i = 0; i < elements->size(); ++i) {
    const Element &element = (*elements)[i];
    if (element.dtype != values.dtype)
      return runtimeError("a list of " + std::string(name(values.dtype)) + " has a tensor of " +
                          std::string(name(element.dtype)));
    if (static_cast<int64_t>(element.dims.size()) >= shapes.dims[1] || end - next < static_cast<ptrdiff_t>(element.data->size()))
      return wrong("values of another list");
    next = std::copy(element.data->begin(), element.data->end(), next);
    int64_t *row = rows.data() + static_cast<int64_t>(i) * shapes.dims[1];
    row[0] = static_cast<int64_t>(element.dims.size());
    std::copy(element.dims.begin(), element.dims.end(), row + 1);
  }
  if (!rows.empty())
    std::memcpy(shapes.data, rows.data(), rows.size() * sizeof(int64_t));
  return okStatus();
}

Status make(const HostCall &c) {
  if (!c.lists || c.outputs.size() != 1)
    return wrong("wrong number of operands");
  std::vector<Element> elements;
  for (const HostView &x : c.inputs)
    elements.push_back(elementOf(x));
  return giveInteger(c, c.lists->add(std::move(elements)));
}

Status length(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 0, 1));
  Result<int64_t> list = listOf(c);
  return list ? giveInteger(c, static_cast<int64_t>(c.lists->length(*list))) : list.status();
}

Status require(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 0, 1));
  Result<int64_t> list = listOf(c);
  return list ? giveInteger(c, *list) : list.status();
}

Status insert(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 2, 1, 1));
  Result<int64_t> list = listOf(c);
  if (!list)
    return list.status();
  const size_t count = c.lists->length(*list);
  Result<size_t> at = position(c, 2, count, count + 1, count);
  if (!at)
    return at.status();
  if (count && c.lists->at(*list, 0).dtype != c.inputs[1].dtype)
    return runtimeError("a tensor of " + std::string(name(c.inputs[1].dtype)) + " for a list of " +
                        std::string(name(c.lists->at(*list, 0).dtype)));
  return giveInteger(c, c.lists->insert(*list, *at, elementOf(c.inputs[1])));
}

Status erase(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 1, 1));
  Result<int64_t> list = listOf(c);
  if (!list)
    return list.status();
  const size_t count = c.lists->length(*list);
  if (!count)
    return runtimeError("nothing to erase from an empty list");
  Result<size_t> at = position(c, 1, count, count, count - 1);
  if (!at)
    return at.status();
  return giveInteger(c, c.lists->erase(*list, *at));
}

/// The element that operands 0 and 1 say.
Result<const Element *> chosen(const HostCall &c) {
  Result<int64_t> list = listOf(c);
  if (!list)
    return list.status();
  const size_t count = c.lists->length(*list);
  if (!count)
    return runtimeError("an element of an empty list");
  Result<size_t> at = position(c, 1, count, count, 0);
  if (!at)
    return at.status();
  return &c.lists->at(*list, *at);
}

Status dims(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 1, 1));
  Result<const Element *> element = chosen(c);
  return element ? giveDims(c, (*element)->dims) : element.status();
}

Status at(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 1, 1));
  Result<const Element *> element = chosen(c);
  if (!element)
    return element.status();
  LATHE_RETURN_IF_ERROR(fits(c.outputs[0], (*element)->dtype, (*element)->dims));
  std::copy((*element)->data->begin(), (*element)->data->end(), static_cast<std::byte *>(c.outputs[0].data));
  return okStatus();
}

/// More parts than this of a tensor without elements are a mistake.
constexpr int64_t kMostEmptyParts = int64_t(1) << 20;

/// Bytes of a tensor around an axis: rows ahead of it, and those of one place along it.
struct Around {
  int64_t rows = 1, place = 1;
};
Around around(const Dims &dims, DType dtype, size_t axis) {
  Around a{1, bytesOf(dtype)};
  for (size_t d = 0; d < dims.size(); ++d)
    (d < axis ? a.rows : a.place) *= d == axis ? 1 : dims[d];
  return a;
}

Status split(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 1, 1));
  const HostView &x = c.inputs[0];
  const int64_t axis = c.integer("axis", 0);
  if (axis < 0 || axis >= static_cast<int64_t>(x.dims.size()) || !bytesOf(x.dtype))
    return wrong("an axis outside the tensor");
  const int64_t whole = x.dims[axis];
  const bool stated = c.inputs.size() > 1, several = stated && c.inputs[1].dims.size() == 1;
  std::vector<int64_t> parts;
  if (stated && !isInteger(c.inputs[1]))
    return wrong("sizes of parts are no integers");
  if (several) {
    int64_t total = 0;
    for (int64_t i = 0; i < c.inputs[1].count(); ++i) {
      parts.push_back(loadInteger(c.inputs[1], i));
      if (parts.back() < 0 || __builtin_add_overflow(total, parts.back(), &total))
        return runtimeError("a part of " + std::to_string(parts.back()));
    }
    if (total != whole)
      return runtimeError("parts of " + std::to_string(total) + " in all split " + std::to_string(whole));
  } else {
    const int64_t step = stated ? loadInteger(c.inputs[1]) : 1;
    if (step < 1)
      return runtimeError("parts of " + std::to_string(step));
    if (!x.count() && whole / step > kMostEmptyParts)
      return runtimeError(std::to_string(whole / step) + " parts without elements");
    for (int64_t start = 0; start < whole; start += std::min(step, whole - start))
      parts.push_back(std::min(step, whole - start));
  }
  const Around a = around(x.dims, x.dtype, static_cast<size_t>(axis));
  std::vector<Element> elements;
  int64_t start = 0;
  for (int64_t part : parts) {
    Dims sizes = x.dims;
    sizes[axis] = part;
    auto data = std::make_shared<std::vector<std::byte>>();
    data->reserve(a.rows * part * a.place);
    for (int64_t row = 0; part * a.place && row < a.rows; ++row) {
      auto *from = static_cast<const std::byte *>(x.data) + (row * whole + start) * a.place;
      data->insert(data->end(), from, from + part * a.place);
    }
    if (!stated && !c.integer("keepdims", 1))
      sizes.erase(sizes.begin() + axis);
    elements.push_back({x.dtype, std::move(sizes), std::move(data)});
    start += part;
  }
  return giveInteger(c, c.lists->add(std::move(elements)));
}

/// The sizes of what a list's tensors are together.
Result<Dims> joinedDims(const HostCall &c, int64_t list) {
  const size_t count = c.lists->length(list);
  if (!count)
    return runtimeError("an empty list has nothing to join");
  const Element &first = c.lists->at(list, 0);
  const bool isNew = c.integer("new_axis", 0);
  const int64_t rank = static_cast<int64_t>(first.dims.size()) + isNew;
  int64_t axis = c.integer("axis", 0);
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank)
    return runtimeError("axis " + std::to_string(c.integer("axis", 0)) + " is outside rank " + std::to_string(rank));
  Dims joined = first.dims;
  if (isNew)
    joined.insert(joined.begin() + axis, 0);
  else
    joined[axis] = 0;
  for (size_t i = 0; i < count; ++i) {
    const Element &element = c.lists->at(list, i);
    Dims sizes = element.dims;
    if (isNew)
      sizes.insert(sizes.begin() + std::min<int64_t>(axis, static_cast<int64_t>(sizes.size())), 1);
    bool alike = sizes.size() == joined.size() && element.dtype == first.dtype;
    for (int64_t d = 0; alike && d < rank; ++d)
      alike = d == axis || sizes[d] == joined[d];
    if (!alike)
      return runtimeError("tensors of sizes " + textOf(first.dims) + " and " + textOf(element.dims) + " are joined");
    if (__builtin_add_overflow(joined[axis], sizes[axis], &joined[axis]) || joined[axis] > kMostElements)
      return runtimeError("tensors of sizes " + textOf(element.dims) + " are too many to join");
  }
  return joined;
}

Status joinDims(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 0, 1));
  Result<int64_t> list = listOf(c);
  if (!list)
    return list.status();
  Result<Dims> joined = joinedDims(c, *list);
  return joined ? giveDims(c, *joined) : joined.status();
}

Status join(const HostCall &c) {
  LATHE_RETURN_IF_ERROR(expect(c, 1, 0, 1));
  Result<int64_t> list = listOf(c);
  if (!list)
    return list.status();
  Result<Dims> joined = joinedDims(c, *list);
  if (!joined)
    return joined.status();
  const DType dtype = c.lists->at(*list, 0).dtype;
  LATHE_RETURN_IF_ERROR(fits(c.outputs[0], dtype, *joined));
  int64_t axis = c.integer("axis", 0);
  axis += axis < 0 ? static_cast<int64_t>(joined->size()) : 0;
  const Around a = around(*joined, dtype, static_cast<size_t>(axis));
  const int64_t pitch = (*joined)[axis] * a.place;
  auto *to = static_cast<std::byte *>(c.outputs[0].data);
  for (size_t i = 0; i < c.lists->length(*list); ++i) {
    const std::vector<std::byte> &data = *c.lists->at(*list, i).data;
    const int64_t part = a.rows ? static_cast<int64_t>(data.size()) / a.rows : 0;
    for (int64_t row = 0; part && row < a.rows; ++row)
      std::copy_n(data.begin() + row * part, part, to + row * pitch);
    to += part;
  }
  return okStatus();
}

const std::map<std::string_view, HostOp> &table() {
  static const std::map<std::string_view, HostOp> ops = {
      {"list_at", at},         {"list_dims", dims},          {"list_erase", erase},   {"list_give", give},
      {"list_insert", insert}, {"list_join", join},          {"list_join_dims", joinDims},
      {"list_length", length}, {"list_make", make},          {"list_require", require},
      {"list_sizes", sizes},   {"list_split", split},        {"list_take", take},
  };
  return ops;
}

} // namespace

HostOp findListOp(std::string_view name) {
  auto it = table().find(name);
  return it == table().end() ? nullptr : it->second;
}

std::vector<std::string> listOpNames() {
  std::vector<std::string> names;
  for (const auto &item : table())
    names.emplace_back(item.first);
  return names;
}

} // namespace lathe::runtime
