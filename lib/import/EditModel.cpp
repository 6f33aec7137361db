//===- EditModel.cpp - an ONNX model that is edited in place --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EditModel.h"

#include "lathe/support/Files.h"

#include "onnx/checker.h"
#include "onnx/defs/tensor_proto_util.h"
#include "onnx/onnx_pb.h"
#include "onnx/version_converter/convert.h"

#include <algorithm>
#include <cstring>

namespace lathe::edit {

void raise(ErrorCode code, std::string what, std::string where) {
  throw ImportError{Status(code, std::move(what), std::move(where))};
}

Loaded::Loaded(const std::string &path) {
  Result<std::string> bytes = readFile(path);
  if (!bytes)
    throw ImportError{bytes.status()};
  if (bytes->size() > INT32_MAX)
    raise(ErrorCode::Unsupported, "has more than 2 GB in one file", path);
  if (!proto.ParseFromString(*bytes) || !proto.has_graph())
    raise(ErrorCode::Invalid, "is no ONNX model", path);
  size_t slash = path.rfind('/');
  external = std::make_unique<onnxmodel::ExternalFiles>(
      slash == std::string::npos ? "." : path.substr(0, slash + 1), uint64_t(1) << 40);
  index();
}

void Loaded::index() {
  constants.clear();
  uses.clear();
  std::set<std::string> inputs;
  for (const auto &input : proto.graph().input())
    inputs.insert(input.name());
  for (auto &tensor : *proto.mutable_graph()->mutable_initializer())
    if (!inputs.count(tensor.name()))
      constants[tensor.name()] = &tensor;
  for (auto &node : *proto.mutable_graph()->mutable_node())
    for (auto &a : *node.mutable_attribute())
      if (isConstant(node) && a.name() == "value" && a.has_t())
        constants[node.output(0)] = a.mutable_t();
  count(proto.graph());
}

void Loaded::count(const onnx::GraphProto &graph) {
  for (const auto &node : graph.node()) {
    for (const std::string &input : node.input())
      ++uses[input];
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g())
        count(attribute.g());
      for (const auto &inner : attribute.graphs())
        count(inner);
    }
  }
  for (const auto &output : graph.output())
    ++uses[output.name()];
}

HostTensor Loaded::read(const onnx::TensorProto &tensor) {
  onnxmodel::DataSource source;
  source.external = external.get();
  onnxmodel::Tensor data = onnxmodel::toTensor(tensor, source);
  HostTensor result(data.dtype, data.dims);
  if (!data.bytes.empty())
    std::memcpy(result.data.data(), data.bytes.data(), data.bytes.size());
  return result;
}

void Loaded::store(onnx::TensorProto &tensor, const HostTensor &values) {
  const std::string name = tensor.name(), doc = tensor.doc_string();
  tensor.Clear();
  if (!name.empty())
    tensor.set_name(name);
  if (!doc.empty())
    tensor.set_doc_string(doc);
  tensor.set_data_type(onnxmodel::fromDType(values.dtype));
  for (int64_t d : values.dims)
    tensor.add_dims(d);
  tensor.set_raw_data(values.data.data(), values.data.size());
}

bool Loaded::hasHalf() const {
  return std::any_of(constants.begin(), constants.end(), [](const auto &constant) { return typeOf(*constant.second) != DType::F32; });
}

DType typeOf(const onnx::TensorProto &tensor) {
  return tensor.data_type() == onnx::TensorProto::FLOAT16    ? DType::F16
         : tensor.data_type() == onnx::TensorProto::BFLOAT16 ? DType::BF16
                                                             : DType::F32;
}

int64_t Loaded::opset() const {
  for (const auto &import : proto.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx")
      return import.version();
  return 1;
}

namespace {

/// States in converted nodes what their old version meant, which the converter leaves to the defaults of the new one:
/// how Resize, and Upsample before it, had coordinates before opset 11. Raises where no newer version says the same.
void keepMeaning(onnx::GraphProto &graph, int64_t from, const std::string &why, const std::string &path) {
  auto isSmaller = [](float scale) { return !(scale >= 1); };
  for (auto &node : *graph.mutable_node()) {
    for (auto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        keepMeaning(*attribute.mutable_g(), from, why, path);
    if (node.op_type() == "Hardmax" && node.domain().empty() && from < 13)
      raise(ErrorCode::Unsupported, why + "Hardmax of it, '" + node.name() + "', is not converted", path);
    if (node.op_type() != "Resize" || !node.domain().empty() || from >= 11)
      continue;
    bool linear = false;
    for (const auto &attribute : node.attribute())
      linear |= attribute.name() == "mode" && attribute.s() == "linear";
    if (!linear && from == 10) { // rounds up where an axis shrinks, else down
      const onnx::TensorProto *scales = nullptr;
      for (const auto &tensor : graph.initializer())
        if (node.input_size() > 2 && tensor.name() == node.input(2))
          scales = &tensor;
      std::vector<float> factors = scales ? onnx::ParseData<float>(scales) : std::vector<float>{0};
      if (std::any_of(factors.begin(), factors.end(), isSmaller))
        raise(ErrorCode::Unsupported,
              why + "Resize of it, '" + node.name() + "', may make an image smaller and is not converted", path);
    }
    const std::pair<const char *, const char *> stated[] = {{"coordinate_transformation_mode", "asymmetric"},
                                                            {"nearest_mode", "floor"}};
    for (const auto &[name, value] : stated) {
      auto *attribute = node.add_attribute();
      attribute->set_name(name);
      attribute->set_type(onnx::AttributeProto::STRING);
      attribute->set_s(value);
    }
  }
}

} // namespace

std::string convertTo(Loaded &model, int64_t target, int64_t irVersion, const std::string &path) {
  const int64_t from = model.opset();
  onnx::ModelProto &proto = model.proto;
  if (from >= target) {
    proto.set_ir_version(std::max<int64_t>(proto.ir_version(), irVersion));
    return {};
  }
  std::string why = "needs opset " + std::to_string(target) + ", the model has " + std::to_string(from) + ", and ";
  for (const auto &tensor : proto.graph().initializer())
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
      raise(ErrorCode::Unsupported, why + "models with external weights are not converted", path);
  if (proto.functions_size())
    raise(ErrorCode::Unsupported, why + "models with functions are not converted", path);
  onnx::ModelProto converted;
  try {
    converted = onnx::version_conversion::ConvertVersion(proto, int(target));
    if (target >= 13)
      keepMeaning(*converted.mutable_graph(), from, why, path);
    onnx::checker::check_model(converted);
  } catch (const std::exception &error) {
    raise(ErrorCode::Unsupported, why + "conversion failed: " + error.what(), path);
  }
  *converted.mutable_graph()->mutable_input() = proto.graph().input();
  *converted.mutable_graph()->mutable_output() = proto.graph().output();
  converted.mutable_graph()->set_doc_string(proto.graph().doc_string());
  proto.mutable_graph()->Swap(converted.mutable_graph());
  proto.mutable_opset_import()->Swap(converted.mutable_opset_import());
  proto.set_ir_version(std::max<int64_t>({proto.ir_version(), irVersion, 7}));
  model.index();
  return "converted from opset " + std::to_string(from) + " to " + std::to_string(target) + ", whose names the recipe has";
}

/// The opset and the version of the file's form that first have what is written.
static std::pair<int64_t, int64_t> opsetOf(int bits, quantize::WeightFormat format) {
  switch (format) {
  case quantize::WeightFormat::Mxfp4:
    return {25, 12}; // floats of 4 bits and scales that are powers of two
  case quantize::WeightFormat::BF16:
    return {22, 10}; // Conv; products have it since 13
  case quantize::WeightFormat::F8E4M3:
    return {19, 9};
  case quantize::WeightFormat::Nf4: // an op of com.microsoft says it
  case quantize::WeightFormat::F16:
    break;
  case quantize::WeightFormat::Integer:
    if (bits == 4)
      return {21, 10};
    break;
  }
  return {13, 0};
}

/// The same where some numbers of the model may be of 16 bits, which ops of codes take since opset 19.
static std::pair<int64_t, int64_t> opsetFor(const Loaded &model, std::pair<int64_t, int64_t> written) {
  return model.hasHalf() ? std::max(written, std::pair<int64_t, int64_t>(19, 9)) : written;
}

std::string convertFor(Loaded &model, const quantize::Scheme &scheme, const std::string &path) {
  const auto [opset, version] = opsetFor(model, opsetOf(scheme.weightBits, scheme.format));
  return convertTo(model, opset, version, path);
}

std::string convertFor(Loaded &model, const quantize::Recipe &recipe, const std::string &path) {
  std::pair<int64_t, int64_t> most{13, 0};
  if (Result<quantize::Scheme> scheme = quantize::schemeNamed(recipe.scheme); scheme.ok())
    most = opsetOf(scheme->weightBits, scheme->format);
  for (const auto &[name, weight] : recipe.weights)
    most = std::max(most, opsetOf(weight.bits, weight.format));
  most = opsetFor(model, most);
  return convertTo(model, most.first, most.second, path);
}

Result<std::string> bytesOf(const Loaded &model, const std::string &path) {
  if (model.proto.ByteSizeLong() > INT32_MAX)
    return unsupportedError("would be a file of more than 2 GB", path);
  return model.proto.SerializeAsString();
}

Result<std::string> bytesOf(Loaded &model, const std::string &path, bool inside) {
  if (inside)
    bringInside(model);
  return bytesOf(model, path);
}

void bringInside(Loaded &model) {
  for (auto &tensor : *model.proto.mutable_graph()->mutable_initializer())
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
      Loaded::store(tensor, model.read(tensor));
}

std::vector<std::string> giveNames(onnx::GraphProto &graph) {
  std::set<std::string> taken;
  std::vector<std::string> before;
  for (auto &node : *graph.mutable_node()) {
    before.push_back(node.name());
    std::string wanted = nameOf(node), name = wanted;
    for (int i = 1; name.empty() || !taken.insert(name).second; ++i)
      name = wanted + "_" + std::to_string(i);
    node.set_name(name);
  }
  return before;
}

std::string nameOf(const onnx::NodeProto &node) {
  return node.name().empty() && node.output_size() ? node.output(0) : node.name();
}

bool isConstant(const onnx::NodeProto &node) {
  return node.op_type() == "Constant" && node.domain().empty() && node.output_size() == 1;
}

bool isDefault(const onnx::NodeProto &node) { return node.domain().empty() || node.domain() == "ai.onnx"; }

int64_t attribute(const onnx::NodeProto &node, const std::string &name) {
  for (const auto &a : node.attribute())
    if (a.name() == name)
      return a.i();
  return 0;
}

std::optional<int64_t> depthOf(const onnx::NodeProto &node) {
  if (!isDefault(node) || node.input_size() < 2 || node.output_size() < 1)
    return std::nullopt;
  if (node.op_type() == "MatMul")
    return 0;
  if (node.op_type() == "Gemm")
    return attribute(node, "transB") ? 1 : 0;
  return std::nullopt;
}

bool isConv(const onnx::NodeProto &node) {
  return isDefault(node) && node.op_type() == "Conv" && node.input_size() >= 2 && node.output_size() >= 1;
}

std::optional<int64_t> scaleAxisOf(const onnx::NodeProto &node) {
  if (isConv(node))
    return 0;
  std::optional<int64_t> depth = depthOf(node);
  return depth ? std::optional(1 - *depth) : std::nullopt;
}

void Editor::names(const onnx::GraphProto &g) {
  for (const auto &v : g.input())
    taken.insert(v.name());
  for (const auto &v : g.initializer())
    taken.insert(v.name());
  for (const auto &node : g.node()) {
    taken.insert(node.name());
    taken.insert(node.output().begin(), node.output().end());
    for (const auto &a : node.attribute())
      if (a.has_g())
        names(a.g());
  }
}

std::string Editor::fresh(const std::string &wanted) {
  std::string name = wanted;
  for (int i = 1; !taken.insert(name).second; ++i)
    name = wanted + "_" + std::to_string(i);
  return name;
}

std::string Editor::constant(const std::string &name, const HostTensor &value) {
  onnx::TensorProto &tensor = *graph.add_initializer();
  tensor.set_name(fresh(name));
  Loaded::store(tensor, value);
  return tensor.name();
}

void Editor::setAttribute(onnx::NodeProto &node, const char *name, int64_t value) {
  auto *a = node.add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::INT);
  a->set_i(value);
}

std::string Editor::add(const char *type, const std::string &of, const std::string &result,
                        const std::vector<std::string> &inputs, const Attributes &attributes,
                        const std::vector<std::string> &moreResults) {
  onnx::NodeProto &node = *graph.add_node();
  node.set_op_type(type);
  node.set_name(fresh(of + "_" + type));
  for (const std::string &input : inputs)
    node.add_input(input);
  node.add_output(fresh(result));
  for (const std::string &more : moreResults)
    node.add_output(more);
  for (auto [name, value] : attributes)
    setAttribute(node, name, value);
  return node.output(0);
}

void Editor::import(const char *domain) {
  for (const auto &known : model.proto.opset_import())
    if (known.domain() == domain)
      return;
  auto *added = model.proto.add_opset_import();
  added->set_domain(domain);
  added->set_version(1);
}

} // namespace lathe::edit
