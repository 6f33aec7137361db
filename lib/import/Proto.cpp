//===- Proto.cpp - protobuf messages to plain structs and back --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Proto.h"
#include "LocalFunctions.h"

#include <cstdlib>
#include <cstring>

namespace lathe::onnxmodel {
namespace {

[[noreturn]] void raise(std::string message, std::string where) {
  throw ImportError{invalidError(std::move(message), std::move(where))};
}

constexpr struct {
  int onnx;
  DType dtype;
} kTypes[] = {
    {1, DType::F32},       {2, DType::UI8},         {3, DType::I8},      {4, DType::UI16},
    {5, DType::I16},       {6, DType::I32},         {7, DType::I64},     {8, DType::String},
    {9, DType::Bool},      {10, DType::F16},        {11, DType::F64},    {12, DType::UI32},
    {13, DType::UI64},     {14, DType::C64},        {15, DType::C128},   {16, DType::BF16},
    {17, DType::F8E4M3FN}, {18, DType::F8E4M3FNUZ}, {19, DType::F8E5M2}, {20, DType::F8E5M2FNUZ},
    {21, DType::UI4},      {22, DType::I4},         {23, DType::F4E2M1}, {24, DType::F8E8M0},
    {25, DType::UI2},      {26, DType::I2}};

/// Bytes of typed fields (float_data and so on), in raw_data's packing.
std::string typedBytes(const onnx::TensorProto &proto, DType dtype, int64_t bytes,
                       const std::string &where) {
  std::string out;
  auto append = [&](const auto &field, auto example) {
    using T = decltype(example);
    for (auto v : field) {
      T narrow = static_cast<T>(v);
      out.append(reinterpret_cast<const char *>(&narrow), sizeof(T));
    }
  };
  switch (dtype) {
  case DType::F32:
  case DType::C64:
    append(proto.float_data(), float());
    break;
  case DType::F64:
  case DType::C128:
    append(proto.double_data(), double());
    break;
  case DType::I64:
    append(proto.int64_data(), int64_t());
    break;
  case DType::UI64:
    append(proto.uint64_data(), uint64_t());
    break;
  case DType::UI32:
    append(proto.uint64_data(), uint32_t());
    break;
  case DType::I32:
    append(proto.int32_data(), int32_t());
    break;
  case DType::I16:
  case DType::UI16:
  case DType::F16:
  case DType::BF16:
    append(proto.int32_data(), uint16_t());
    break;
  default: // 8 bits and packed smaller ones: one byte an entry
    append(proto.int32_data(), uint8_t());
    break;
  }
  if (int64_t(out.size()) != bytes)
    raise("the tensor has data for " + std::to_string(out.size()) +
              " bytes where its shape and type need " + std::to_string(bytes),
          where);
  return out;
}

} // namespace

std::optional<DType> toDType(int onnxType) {
  for (auto [number, dtype] : kTypes)
    if (number == onnxType)
      return dtype;
  return std::nullopt;
}

int fromDType(DType type) {
  for (auto [number, dtype] : kTypes)
    if (dtype == type)
      return number;
  return 0;
}

std::span<const std::byte> externalBytes(const onnx::TensorProto &proto, const DataSource &source,
                                         std::shared_ptr<const void> &owner) {
  std::string where = "tensor '" + proto.name() + "'", location;
  auto number = [&](const std::string &text) {
    uint64_t value = 0;
    if (text.empty())
      raise("external data has an empty offset or length", where);
    for (char c : text) {
      if (c < '0' || c > '9' || value > (UINT64_MAX - 9) / 10)
        raise("external data has the offset or length '" + text + "', which is no valid number",
              where);
      value = value * 10 + uint64_t(c - '0');
    }
    return value;
  };
  uint64_t offset = 0;
  std::optional<uint64_t> length, piece;
  for (const auto &entry : proto.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    else if (entry.key() == "offset")
      offset = number(entry.value());
    else if (entry.key() == "length")
      length = number(entry.value());
    else if (entry.key() == kPieceKey)
      piece = number(entry.value());
  }
  if (piece && source.pieces) {
    if (*piece >= source.pieces->size())
      raise("the tensor's data are missing", where);
    owner = source.file;
    return (*source.pieces)[*piece];
  }
  if (!source.external)
    raise("external data are not possible here", where);
  Result<std::shared_ptr<const MappedFile>> file = source.external->open(location);
  if (!file)
    raise(file.status().message() + " ('" + file.status().location() + "')", where);
  uint64_t size = (*file)->bytes.size();
  if (offset > size || (length && *length > size - offset))
    raise("external data reach beyond the end of '" + location + "' (" + std::to_string(size) +
              " bytes)",
          where);
  owner = *file;
  return (*file)->bytes.subspan(offset, length ? *length : size - offset);
}

static bool isAbsent(const onnx::TensorProto &proto, const DataSource &source) {
  for (const auto &entry : proto.external_data())
    if (entry.key() == "location")
      return source.external && source.external->isAbsent(entry.value());
  return false;
}

Tensor toTensor(const onnx::TensorProto &proto, const DataSource &source) {
  Tensor tensor;
  tensor.name = proto.name();
  std::string where = "tensor '" + proto.name() + "'";
  std::optional<DType> dtype = toDType(proto.data_type());
  if (!dtype)
    raise("unknown element type " + std::to_string(proto.data_type()), where);
  tensor.dtype = *dtype;
  if (proto.has_segment())
    raise("segmented tensors are not supported", where);
  int64_t count = 1;
  for (int64_t dim : proto.dims()) {
    if (dim < 0 || (dim != 0 && count > (int64_t(1) << 56) / dim))
      raise("the tensor's shape is negative or too large", where);
    count *= dim;
    tensor.dims.push_back(dim);
  }
  if (tensor.dtype == DType::String) {
    if (proto.string_data_size() != count)
      raise("the tensor has another number of strings than its shape says", where);
    tensor.strings.assign(proto.string_data().begin(), proto.string_data().end());
    return tensor;
  }
  int64_t bytes = byteSize(tensor.dtype, count);
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    if (source.randomWeights && isAbsent(proto, source)) {
      if (!isRandomType(tensor.dtype))
        raise("its data are absent, and random weights are f64, f32, f16 or bf16", where);
      tensor.absent = true;
      return tensor;
    }
    tensor.bytes = externalBytes(proto, source, tensor.owner);
  } else {
    auto copy = std::make_shared<std::string>(
        proto.has_raw_data() ? proto.raw_data() : typedBytes(proto, tensor.dtype, bytes, where));
    tensor.bytes = std::as_bytes(std::span(copy->data(), copy->size()));
    tensor.owner = std::move(copy);
  }
  if (int64_t(tensor.bytes.size()) != bytes)
    raise("the tensor has " + std::to_string(tensor.bytes.size()) +
              " bytes of data where its shape and type need " + std::to_string(bytes),
          where);
  if (tensor.dtype == DType::Bool)
    for (std::byte b : tensor.bytes)
      if (uint8_t(b) > 1)
        raise("a bool tensor holds a value other than 0 and 1", where);
  return tensor;
}

static NodeAttr toAttribute(const onnx::AttributeProto &proto, const DataSource &source) {
  using P = onnx::AttributeProto;
  NodeAttr attr;
  attr.name = proto.name();
  auto type = proto.type();
  if (type == P::UNDEFINED) // as some function bodies leave it
    type = proto.has_t()              ? P::TENSOR
           : proto.has_i()            ? P::INT
           : proto.has_f()            ? P::FLOAT
           : proto.has_s()            ? P::STRING
           : proto.has_g()            ? P::GRAPH
           : proto.ints_size() > 0    ? P::INTS
           : proto.floats_size() > 0  ? P::FLOATS
           : proto.strings_size() > 0 ? P::STRINGS
                                      : type;
  switch (type) {
  case P::INT:
    attr.kind = NodeAttr::Int;
    attr.ints = {proto.i()};
    break;
  case P::FLOAT:
    attr.kind = NodeAttr::Float;
    attr.floats = {proto.f()};
    break;
  case P::STRING:
    attr.kind = NodeAttr::String;
    attr.strings = {proto.s()};
    break;
  case P::INTS:
    attr.kind = NodeAttr::Ints;
    attr.ints.assign(proto.ints().begin(), proto.ints().end());
    break;
  case P::FLOATS:
    attr.kind = NodeAttr::Floats;
    attr.floats.assign(proto.floats().begin(), proto.floats().end());
    break;
  case P::STRINGS:
    attr.kind = NodeAttr::Strings;
    attr.strings.assign(proto.strings().begin(), proto.strings().end());
    break;
  case P::TENSOR:
    attr.kind = NodeAttr::TensorValue;
    attr.tensor = std::make_shared<Tensor>(toTensor(proto.t(), source));
    break;
  case P::GRAPH:
    attr.kind = NodeAttr::GraphValue;
    attr.graph = std::make_shared<Graph>(toGraph(proto.g(), source));
    break;
  default:
    attr.kind = NodeAttr::Other;
    attr.strings = {onnx::AttributeProto_AttributeType_Name(type)};
    break;
  }
  return attr;
}

Node toNode(const onnx::NodeProto &proto, const DataSource &source) {
  Node node;
  node.name = proto.name();
  node.opType = proto.op_type();
  node.domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  for (const auto &attr : proto.attribute())
    node.attributes.push_back(toAttribute(attr, source));
  for (const auto &entry : proto.metadata_props())
    if (entry.key() == kOpsetMetadata)
      node.opset = std::strtoll(entry.value().c_str(), nullptr, 10);
  return node;
}

static ValueInfo toValueInfo(const std::string &name, const onnx::TypeProto &type) {
  ValueInfo info;
  info.name = name;
  if (!type.has_tensor_type()) {
    info.other = type.has_sequence_type()        ? "sequence"
                 : type.has_optional_type()      ? "optional"
                 : type.has_map_type()           ? "map"
                 : type.has_sparse_tensor_type() ? "sparse tensor"
                                                 : "unknown type";
    if (type.has_sequence_type())
      info.inside = std::make_shared<ValueInfo>(toValueInfo(name, type.sequence_type().elem_type()));
    else if (type.has_optional_type())
      info.inside = std::make_shared<ValueInfo>(toValueInfo(name, type.optional_type().elem_type()));
    else if (type.has_map_type()) {
      info.inside = std::make_shared<ValueInfo>(toValueInfo(name, type.map_type().value_type()));
      info.dtype = toDType(type.map_type().key_type()).value_or(DType::I64);
    }
    return info;
  }
  const auto &tensor = type.tensor_type();
  if (std::optional<DType> dtype = toDType(tensor.elem_type()))
    info.dtype = *dtype;
  else
    info.other = "unknown element type";
  info.ranked = tensor.has_shape();
  for (const auto &dim : tensor.shape().dim()) {
    Dim out;
    if (dim.has_dim_value())
      out.value = dim.dim_value();
    else
      out.param = dim.dim_param();
    info.dims.push_back(std::move(out));
  }
  return info;
}

ValueInfo toValueInfo(const onnx::ValueInfoProto &proto) {
  return toValueInfo(proto.name(), proto.type());
}

Graph toGraph(const onnx::GraphProto &proto, const DataSource &source) {
  Graph graph;
  graph.name = proto.name();
  if (proto.sparse_initializer_size() > 0)
    throw ImportError{unsupportedError("sparse initializers are not supported; store them densely",
                                       "graph '" + proto.name() + "'")};
  for (const auto &node : proto.node())
    graph.nodes.push_back(toNode(node, source));
  for (const auto &tensor : proto.initializer())
    graph.initializers.push_back(toTensor(tensor, source));
  for (const auto &info : proto.input())
    graph.inputs.push_back(toValueInfo(info));
  for (const auto &info : proto.output())
    graph.outputs.push_back(toValueInfo(info));
  for (const auto &info : proto.value_info())
    graph.values.push_back(toValueInfo(info));
  return graph;
}

onnx::NodeProto fromNode(const Node &node) {
  onnx::NodeProto proto;
  proto.set_name(node.name);
  proto.set_op_type(node.opType);
  proto.set_domain(node.domain);
  for (const std::string &name : node.inputs)
    proto.add_input(name);
  for (const std::string &name : node.outputs)
    proto.add_output(name);
  using P = onnx::AttributeProto;
  for (const NodeAttr &attr : node.attributes) {
    P &out = *proto.add_attribute();
    out.set_name(attr.name);
    switch (attr.kind) {
    case NodeAttr::Int:
      out.set_type(P::INT);
      out.set_i(attr.ints.at(0));
      break;
    case NodeAttr::Float:
      out.set_type(P::FLOAT);
      out.set_f(attr.floats.at(0));
      break;
    case NodeAttr::String:
      out.set_type(P::STRING);
      out.set_s(attr.strings.at(0));
      break;
    case NodeAttr::Ints:
      out.set_type(P::INTS);
      for (int64_t v : attr.ints)
        out.add_ints(v);
      break;
    case NodeAttr::Floats:
      out.set_type(P::FLOATS);
      for (float v : attr.floats)
        out.add_floats(v);
      break;
    case NodeAttr::Strings:
      out.set_type(P::STRINGS);
      for (const std::string &v : attr.strings)
        out.add_strings(v);
      break;
    case NodeAttr::TensorValue: {
      out.set_type(P::TENSOR);
      onnx::TensorProto &tensor = *out.mutable_t();
      tensor.set_data_type(fromDType(attr.tensor->dtype));
      for (int64_t dim : attr.tensor->dims)
        tensor.add_dims(dim);
      tensor.set_raw_data(attr.tensor->bytes.data(), attr.tensor->bytes.size());
      break;
    }
    default:
      throw ImportError{unsupportedError("attribute '" + attr.name + "' has no counterpart",
                                         "node '" + node.name + "'")};
    }
  }
  return proto;
}

} // namespace lathe::onnxmodel
