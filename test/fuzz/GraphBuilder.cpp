//===- GraphBuilder.cpp - a model in the making ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GraphBuilder.h"

#include "onnx/defs/schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace lathe::fuzz {
namespace {

void describe(onnx::ValueInfoProto &info, const Value &value) {
  info.set_name(value.name);
  auto *type = info.mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnxType(value.dtype));
  auto *shape = type->mutable_shape();
  for (int64_t size : value.dims) {
    auto *dim = shape->add_dim();
    if (size != kUnknown)
      dim->set_dim_value(size);
  }
}

void store(onnx::TensorProto &proto, const HostTensor &tensor) {
  proto.set_data_type(onnxType(tensor.dtype));
  for (int64_t size : tensor.dims)
    proto.add_dims(size);
  proto.set_raw_data(tensor.data.data(), tensor.data.size());
}

void store(onnx::AttributeProto &proto, const Attr &attr) {
  if (const auto *integer = std::get_if<int64_t>(&attr)) {
    proto.set_type(onnx::AttributeProto::INT);
    proto.set_i(*integer);
  } else if (const auto *real = std::get_if<double>(&attr)) {
    proto.set_type(onnx::AttributeProto::FLOAT);
    proto.set_f(float(*real));
  } else if (const auto *text = std::get_if<std::string>(&attr)) {
    proto.set_type(onnx::AttributeProto::STRING);
    proto.set_s(*text);
  } else if (const auto *list = std::get_if<Dims>(&attr)) {
    proto.set_type(onnx::AttributeProto::INTS);
    for (int64_t item : *list)
      proto.add_ints(item);
  } else if (const auto *reals = std::get_if<std::vector<double>>(&attr)) {
    proto.set_type(onnx::AttributeProto::FLOATS);
    for (double item : *reals)
      proto.add_floats(float(item));
  } else {
    proto.set_type(onnx::AttributeProto::GRAPH);
    *proto.mutable_g() = *std::get<std::shared_ptr<onnx::GraphProto>>(attr);
  }
}

/// Names that the nodes of a graph and of those inside of it read.
void collectReads(const onnx::GraphProto &graph, std::set<std::string> &reads) {
  for (const auto &node : graph.node()) {
    reads.insert(node.input().begin(), node.input().end());
    for (const auto &attr : node.attribute())
      if (attr.has_g()) {
        collectReads(attr.g(), reads);
        for (const auto &output : attr.g().output())
          reads.insert(output.name());
      }
  }
}

} // namespace

onnx::TensorProto_DataType onnxType(DType dtype) {
  using P = onnx::TensorProto;
  switch (dtype) {
  case DType::Bool: return P::BOOL;
  case DType::I8: return P::INT8;
  case DType::I16: return P::INT16;
  case DType::I32: return P::INT32;
  case DType::I64: return P::INT64;
  case DType::UI8: return P::UINT8;
  case DType::UI16: return P::UINT16;
  case DType::UI32: return P::UINT32;
  case DType::UI64: return P::UINT64;
  case DType::F16: return P::FLOAT16;
  case DType::BF16: return P::BFLOAT16;
  case DType::F32: return P::FLOAT;
  case DType::F64: return P::DOUBLE;
  case DType::F8E4M3FN: return P::FLOAT8E4M3FN;
  case DType::F8E4M3FNUZ: return P::FLOAT8E4M3FNUZ;
  case DType::F8E5M2: return P::FLOAT8E5M2;
  case DType::F8E5M2FNUZ: return P::FLOAT8E5M2FNUZ;
  case DType::I4: return P::INT4;
  case DType::UI4: return P::UINT4;
  default: return P::UNDEFINED;
  }
}

void makeSymbolic(onnx::ModelProto &model) {
  for (auto &input : *model.mutable_graph()->mutable_input()) {
    int place = 0;
    for (auto &dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      dim.set_dim_param(input.name() + "_" + std::to_string(place++));
  }
  for (auto &output : *model.mutable_graph()->mutable_output())
    for (auto &dim : *output.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      dim.clear_value();
}

double limitOf(DType dtype) {
  switch (dtype) {
  case DType::F16: return 2e3;
  case DType::F8E4M3FN:
  case DType::F8E4M3FNUZ: return 200;
  case DType::F8E5M2:
  case DType::F8E5M2FNUZ: return 1e4;
  case DType::Bool: return 1;
  case DType::I4: return 7;
  case DType::UI4: return 15;
  default:
    return isFloat(dtype) ? 1e6
                          : std::ldexp(1, int(bitWidth(dtype)) - (isUnsigned(dtype) ? 0 : 1)) - 1;
  }
}

int64_t product(const Dims &dims) {
  int64_t result = 1;
  for (int64_t size : dims)
    result *= size;
  return result;
}

bool broadcast(const Dims &a, const Dims &b, Dims &result) {
  result.assign(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    auto at = [&](const Dims &d) {
      return i + d.size() < result.size() ? 1 : d[i + d.size() - result.size()];
    };
    int64_t x = at(a), y = at(b);
    if (x == kUnknown || y == kUnknown) {
      if (x != 1 && y != 1)
        return false;
      result[i] = kUnknown;
    } else if (x != y && x != 1 && y != 1) {
      return false;
    } else {
      result[i] = x == 1 ? y : x;
    }
  }
  return true;
}

bool Value::isKnown() const {
  return std::none_of(dims.begin(), dims.end(), [](int64_t size) { return size == kUnknown; });
}
int64_t Value::count() const { return product(dims); }

GraphBuilder::GraphBuilder(uint64_t seed, int64_t opset) : random(seed), opset(opset) {
  graphs.push_back(std::make_shared<onnx::GraphProto>());
  graph().set_name("random");
}

std::string GraphBuilder::freshName(const char *prefix) { return prefix + std::to_string(names++); }

Value GraphBuilder::pick(const Condition &fits) {
  std::vector<const Value *> found;
  for (const Value &value : values)
    if (fits(value))
      found.push_back(&value);
  if (found.empty())
    return {};
  // Of two the later: chains are what fusion works on.
  size_t a = size_t(random.below(int64_t(found.size()))), b = size_t(random.below(int64_t(found.size())));
  return *found[std::max(a, b)];
}

Value GraphBuilder::pickOr(const Condition &fits, const std::function<Value()> &other) {
  Value value = random.chance(85) ? pick(fits) : Value();
  return value ? value : other();
}

int64_t GraphBuilder::size() {
  int kind = int(random.below(100));
  if (kind < 2)
    return 0;
  if (kind < 14)
    return 1;
  if (kind < 70)
    return random.between(2, 9);
  if (kind < 88)
    return random.of<int64_t>({11, 13, 16, 17, 19, 23, 31, 32, 33});
  return random.of<int64_t>({64, 65, 67, 97, 127, 128, 131, 257});
}

Dims GraphBuilder::dims(int64_t rank, int64_t maxElements) {
  Dims result;
  int64_t elements = 1;
  for (int64_t i = 0; i < rank; ++i) {
    // Layers keep their width: what moves elements then leaves the sizes as they are.
    int64_t size = i > 0 && random.chance(20) ? result.back() : this->size();
    while (size > 1 && elements * size > maxElements)
      size = (size + 1) / 2;
    result.push_back(elements * size > maxElements ? 1 : size);
    elements *= std::max<int64_t>(1, result.back());
  }
  random.shuffle(result);
  return result;
}

DType GraphBuilder::floatType() {
  int kind = int(random.below(100));
  return kind < 70 ? DType::F32 : kind < 80 ? DType::F64 : kind < 90 ? DType::F16 : DType::BF16;
}
DType GraphBuilder::integerType() {
  return random.chance(40)   ? DType::I64
         : random.chance(40) ? DType::I32
                             : random.of({DType::I8, DType::I16, DType::UI8, DType::UI16, DType::UI32, DType::UI64});
}

Value GraphBuilder::fresh(DType dtype, Dims dims, double most, Source source, bool positive) {
  if (!isFloat(dtype)) {
    int64_t high = dtype == DType::Bool ? 1 : most > 0 ? int64_t(most) : 9;
    return integers(dtype, std::move(dims), isUnsigned(dtype) || positive || dtype == DType::Bool ? 0 : -high, high,
                    source);
  }
  if (most == 0)
    most = random.of({1.0, 2.0, 4.0});
  HostTensor tensor(dtype, std::move(dims));
  // Quarters have ties, and sums without rounding.
  bool coarse = random.chance(25);
  double tiny = dtype == DType::F16 ? 0x1p-20 : dtype == DType::F64 ? 0x1p-1060 : 0x1p-132;
  // Beyond the largest f32: only then a cast to it is more than rounding.
  double last = dtype == DType::F64 ? -0x1p1000 : -tiny;
  for (int64_t i = 0, n = tensor.count(); i < n; ++i) {
    double x = (positive ? random.unit() : 2 * random.unit() - 1) * most;
    if (coarse)
      x = std::nearbyint(4 * x) / 4;
    if (special && random.chance(10))
      x = random.of({std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity(), 0.0, -0.0, tiny, last});
    tensor.setReal(i, x);
  }
  return add(tensor, most, source, positive && !special);
}

Value GraphBuilder::integers(DType dtype, Dims dims, int64_t low, int64_t high, Source source) {
  HostTensor tensor(dtype, std::move(dims));
  for (int64_t i = 0, n = tensor.count(); i < n; ++i)
    tensor.setInteger(i, random.between(low, high));
  return add(tensor, double(std::max(std::abs(low), std::abs(high))), source, low >= 0);
}

Value GraphBuilder::constant(const HostTensor &tensor) {
  double most = 0;
  bool positive = true;
  for (int64_t i = 0, n = tensor.count(); i < n; ++i) {
    double x = isFloat(tensor.dtype) ? tensor.real(i) : double(tensor.integer(i));
    most = std::max(most, std::fabs(x));
    positive &= x >= 0;
  }
  return add(tensor, most, Source::Constant, positive);
}

Value GraphBuilder::vector(const std::vector<int64_t> &numbers) {
  HostTensor tensor(DType::I64, {int64_t(numbers.size())});
  for (size_t i = 0; i < numbers.size(); ++i)
    tensor.setInteger(int64_t(i), numbers[i]);
  return constant(tensor);
}

Value GraphBuilder::scalar(DType dtype, double number) {
  HostTensor tensor(dtype, {});
  if (isFloat(dtype))
    tensor.setReal(0, number);
  else
    tensor.setInteger(0, int64_t(number));
  return constant(tensor);
}

Value GraphBuilder::add(const HostTensor &tensor, double most, Source source, bool positive) {
  bool isInput = source == Source::Input || (source == Source::Any && random.chance(65));
  onnx::GraphProto &top = *graphs.front();
  Value value{freshName(isInput ? "x" : "c"), tensor.dtype, tensor.dims, most, positive};
  if (isInput) {
    describe(*top.add_input(), value);
    inputValues.push_back(tensor);
  } else {
    onnx::TensorProto &proto = *top.add_initializer();
    store(proto, tensor);
    proto.set_name(value.name);
  }
  // Not among those to pick from: shapes and indices are operands of one node.
  return value;
}

std::vector<Value> GraphBuilder::nodes(const std::string &op, const std::vector<Value> &operands,
                                       std::vector<Value> results, const Attrs &attrs) {
  onnx::NodeProto &node = *graph().add_node();
  node.set_op_type(op);
  node.set_name(op + "_" + std::to_string(count++));
  for (const Value &operand : operands)
    node.add_input(operand.name);
  while (node.input_size() && node.input(node.input_size() - 1).empty())
    node.mutable_input()->RemoveLast();
  for (const auto &[name, attr] : attrs) {
    onnx::AttributeProto &proto = *node.add_attribute();
    proto.set_name(name);
    store(proto, attr);
  }
  checkTypes(node, operands, results);
  for (Value &result : results) {
    result.name = freshName("v");
    for (const Value &operand : operands)
      result.from.push_back(operand.name);
    node.add_output(result.name);
    values.push_back(result);
  }
  return results;
}

void GraphBuilder::checkTypes(const onnx::NodeProto &node, const std::vector<Value> &operands,
                              const std::vector<Value> &results) {
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(node.op_type(), int(opset), "");
  if (!schema)
    throw Refused();
  auto check = [&](const std::vector<onnx::OpSchema::FormalParameter> &parameters, const std::vector<Value> &values) {
    for (size_t i = 0; i < values.size() && !parameters.empty(); ++i) {
      if (!values[i])
        continue;
      onnx::TypeProto type;
      type.mutable_tensor_type()->set_elem_type(onnxType(values[i].dtype));
      const auto &types = parameters[std::min(i, parameters.size() - 1)].GetTypes();
      if (!types.count(onnx::Utils::DataTypeUtils::ToType(type)))
        throw Refused();
    }
  };
  check(schema->inputs(), operands);
  auto named = results;
  for (Value &value : named)
    value.name = "?";
  check(schema->outputs(), named);
}

bool GraphBuilder::attempt(const std::function<bool()> &make) {
  const int nodes = graph().node_size(), inputs = graphs.front()->input_size(),
            initializers = graphs.front()->initializer_size();
  const size_t visible = values.size(), depth = graphs.size(), opened = marks.size(), given = inputValues.size();
  const int64_t before = count;
  try {
    if (make())
      return true;
  } catch (const Refused &) {
  }
  graphs.resize(depth);
  marks.resize(opened);
  auto cut = [](auto *items, int size) { items->DeleteSubrange(size, items->size() - size); };
  cut(graph().mutable_node(), nodes);
  cut(graphs.front()->mutable_input(), inputs);
  cut(graphs.front()->mutable_initializer(), initializers);
  values.resize(visible);
  inputValues.resize(given);
  count = before;
  return false;
}

Value GraphBuilder::node(const std::string &op, const std::vector<Value> &operands, DType dtype, Dims dims,
                         double most, const Attrs &attrs, bool positive) {
  return nodes(op, operands, {Value{"", dtype, std::move(dims), most, positive}}, attrs)[0];
}

void GraphBuilder::beginGraph() {
  marks.push_back(values.size());
  graphs.push_back(std::make_shared<onnx::GraphProto>());
  graph().set_name(freshName("inner"));
}

Value GraphBuilder::declare(DType dtype, Dims dims, double most) {
  Value value{freshName("a"), dtype, std::move(dims), most, false};
  values.push_back(value);
  return value;
}

std::shared_ptr<onnx::GraphProto> GraphBuilder::endGraph(const std::vector<Value> &inputs,
                                                         const std::vector<Value> &outputs) {
  for (const Value &input : inputs)
    describe(*graph().add_input(), input);
  for (const Value &output : outputs)
    describe(*graph().add_output(), output);
  std::shared_ptr<onnx::GraphProto> inner = graphs.back();
  graphs.pop_back();
  values.resize(marks.back());
  marks.pop_back();
  return inner;
}

void GraphBuilder::chooseOutputs() {
  if (outputsChosen)
    return;
  outputsChosen = true;
  std::set<std::string> reads;
  collectReads(graph(), reads);
  // Some models give out what is inside of them: hidden states, caches, maps of several sizes.
  const int inner = random.chance(30) ? 40 : 6;
  for (const Value &value : values)
    if (!reads.count(value.name) || random.chance(inner))
      describe(*graph().add_output(), value);
}

std::string GraphBuilder::finish(bool symbolic) {
  chooseOutputs();
  onnx::ModelProto result;
  result.set_ir_version(10);
  auto *import = result.add_opset_import();
  import->set_domain("");
  import->set_version(opset);
  result.set_producer_name("lathe-fuzz");
  *result.mutable_graph() = graph();
  if (symbolic)
    makeSymbolic(result);
  return result.SerializeAsString();
}

} // namespace lathe::fuzz
