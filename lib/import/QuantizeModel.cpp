//===- QuantizeModel.cpp - QDQ in an ONNX model by a recipe -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   y = MatMul(x, w)   =>   q = QuantizeLinear(x, s, z)    d = DequantizeLinear(q, s, z)
//                           e = DequantizeLinear<axis>(w_quantized, w_scale)
//                           y = MatMul(d, e)
//
// The file's own message is edited: names, metadata and what is not quantized stay as they are.
//
//===----------------------------------------------------------------------===//
#include "lathe/import/QuantizeModel.h"

#include "EditModel.h"

#include "lathe/quantize/Weights.h"

#include "onnx/onnx_pb.h"

#include <fnmatch.h>

namespace lathe {

using namespace edit;

namespace {

using quantize::Recipe;
using quantize::WeightFormat;
using quantize::WeightRecipe;

/// Elements of a weight by which products of 128 rows took 0.93 of f32's speed, quantization included (one thread of
/// a Zen 4, x86-64-v3); 64 x 4096 by 4 rows 1.2 x, 768 x 768 by 8 rows 1.35 x.
constexpr int64_t kSmall = 64 * 64;

/// Whether weights of 16 bits can have such codes, whose scales are then of 16 bits too. `alone`: as QuantizeLinear and
/// DequantizeLinear, whose ranges are known ahead.
bool takesHalf(WeightFormat format, bool alone) {
  return alone && (format == WeightFormat::Integer || format == WeightFormat::F8E4M3 || format == WeightFormat::Mxfp4);
}

/// Whether a weight is of a type that has codes; `half`: of 16 bits as well.
bool hasCodes(const onnx::TensorProto &tensor, bool half) {
  const int type = tensor.data_type();
  return type == onnx::TensorProto::FLOAT || (half && (type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16));
}
std::string typesWithCodes(bool half) { return half ? "f32, f16 or bf16" : "f32"; }

/// Why a convolution by this value keeps its form; empty where it need not. `codes`: of 8 bits, not of 16.
std::string reasonToKeepConv(const Loaded &model, const onnx::NodeProto &node, bool codes, bool half) {
  const std::string &weight = node.input(1);
  auto found = model.constants.find(weight);
  if (found == model.constants.end())
    return "its filters '" + weight + "' are no constant of the graph";
  const onnx::TensorProto &tensor = *found->second;
  if (!hasCodes(tensor, half) || tensor.dims_size() < 3)
    return "its filters '" + weight + "' are not of " + typesWithCodes(half);
  for (int64_t d : tensor.dims())
    if (d < 1)
      return "its filters '" + weight + "' are empty";
  constexpr int64_t kFewChannels = 8; // of a group: images are then read as codes, whatever becomes of products
  for (const auto &a : node.attribute())
    if (codes && a.name() == "group" && a.i() != 1 && tensor.dims(1) > kFewChannels)
      return "convolutions of codes in groups have no kernel that is faster than f32";
  return {};
}

/// Whether a convolution reads the colours of an image by filters of 16 bits.
bool readsColours(const Loaded &model, const onnx::NodeProto &node) {
  constexpr int64_t kColours = 4;
  const onnx::TensorProto &filters = *model.constants.at(node.input(1));
  for (const auto &a : node.attribute())
    if (a.name() == "group" && a.i() != 1)
      return false;
  return filters.dims(1) <= kColours && filters.data_type() != onnx::TensorProto::FLOAT;
}

/// Why a product by this value keeps its form; empty where it need not.
std::string reasonToKeep(const Loaded &model, const std::string &weight, bool half) {
  auto found = model.constants.find(weight);
  if (found == model.constants.end())
    return "its right operand '" + weight + "' is no constant of the graph";
  const onnx::TensorProto &tensor = *found->second;
  if (!hasCodes(tensor, half) || tensor.dims_size() != 2)
    return "its right operand '" + weight + "' is no matrix of " + typesWithCodes(half);
  if (tensor.dims(0) < 1 || tensor.dims(1) < 1)
    return "its right operand '" + weight + "' is empty";
  return {};
}

/// Why a product cannot be one of com.microsoft's; empty where it can.
std::string reasonAgainstPacked(const onnx::NodeProto &node) {
  if (!depthOf(node))
    return "com.microsoft has no convolution by codes of 4 bits";
  for (const auto &a : node.attribute())
    if ((a.name() == "transA" && a.i()) || ((a.name() == "alpha" || a.name() == "beta") && a.f() != 1))
      return "com.microsoft's products have no " + a.name();
  return {};
}

/// Whether an op, of ONNX or of com.microsoft, computes with codes or makes them.
bool isQuantized(const std::string &type) {
  for (const char *beginning : {"QLinear", "DynamicQuantize", "QGemm", "QAttention", "QOrdered", "QEmbedLayerNormalization", "QMoE"})
    if (type.starts_with(beginning))
      return true;
  for (const char *name : {"QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat", "MatMulInteger16",
                           "MatMulNBits", "MatMulBnb4", "GatherBlockQuantized"})
    if (type == name)
      return true;
  return false;
}

/// Numbers in another type.
HostTensor inType(const HostTensor &tensor, DType type) {
  if (tensor.dtype == type)
    return tensor;
  HostTensor result(type, tensor.dims);
  for (int64_t i = 0, n = tensor.count(); i < n; ++i)
    result.setReal(i, tensor.real(i));
  return result;
}

/// Of each sum of results of two convolutions of the recipe that nothing else reads the later one: the kernel of the first
/// makes the sum, and reads what the other one has stored, which can be bytes.
std::vector<std::string> storedOfSums(const Loaded &model, const Recipe &recipe) {
  std::map<std::string, int> places; // of such results in the graph
  std::vector<std::string> stored;
  int place = 0;
  for (const auto &node : model.proto.graph().node()) {
    if (isConv(node) && recipe.products.count(node.output(0)) && recipe.activations.count(node.input(0)))
      places[node.output(0)] = place++;
    if (!isDefault(node) || node.op_type() != "Add" || node.input_size() != 2)
      continue;
    auto a = places.find(node.input(0)), b = places.find(node.input(1));
    if (a == places.end() || b == places.end() || a == b || model.uses.at(a->first) != 1 || model.uses.at(b->first) != 1)
      continue;
    stored.push_back(a->second > b->second ? a->first : b->first);
  }
  return stored;
}

/// Puts codes where a recipe says.
class Quantizer : public Editor {
public:
  Quantizer(Loaded &model, const Recipe &recipe, const std::string &recipePath, const std::map<std::string, std::string> &smoothed)
      : Editor(model), recipe(recipe), recipePath(recipePath) {
    for (const auto &[value, name] : smoothed)
      valueOf[name] = value;
  }

  void run() {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    std::set<std::string> left = recipe.products;
    for (const auto &node : nodes)
      if (scaleAxisOf(node) && recipe.products.count(node.output(0)))
        if (auto weight = model.constants.find(node.input(1)); weight != model.constants.end())
          types[node.input(0)] = types[node.output(0)] = typeOf(*weight->second);
    for (auto &node : nodes) {
      std::vector<onnx::NodeProto> behind;
      if (scaleAxisOf(node) && recipe.products.count(node.output(0))) {
        left.erase(node.output(0));
        std::optional<onnx::NodeProto> corrected = correct(node);
        rewrite(node, behind);
        if (corrected)
          behind.push_back(std::move(*corrected));
      }
      for (auto &input : *node.mutable_input())
        if (auto range = recipe.activations.find(input); recipe.shared.count(input) && range != recipe.activations.end())
          input = throughCodes(input, range->first, WeightFormat::Integer);
      graph.add_node()->Swap(&node);
      for (onnx::NodeProto &more : behind)
        graph.add_node()->Swap(&more);
    }
    if (!left.empty())
      foreign("the model has no product or convolution of this result", *left.begin());
    for (const auto &[name, weight] : recipe.weights)
      if (!weights.count(name))
        foreign("no product of the recipe has this weight", name);
    for (const auto &[name, range] : recipe.activations)
      if (!activations.count(name) && !floatActivations.count(name))
        foreign("no product of the recipe reads this value", name);
    auto *made = graph.mutable_node();
    for (int i = made->size() - 1; i >= 0; --i)
      if (isConstant(made->Get(i)) && weights.count(made->Get(i).output(0)) && model.uses[made->Get(i).output(0)] == 0)
        made->DeleteSubrange(i, 1);
    auto *constants = graph.mutable_initializer();
    for (int i = constants->size() - 1; i >= 0; --i)
      if (weights.count(constants->Get(i).name()) && model.uses[constants->Get(i).name()] == 0)
        constants->DeleteSubrange(i, 1);
  }

private:
  [[noreturn]] void foreign(const std::string &what, const std::string &name) {
    raise(ErrorCode::Invalid, what + ": the recipe is of another model", recipePath + ": '" + name + "'");
  }

  void rewrite(onnx::NodeProto &node, std::vector<onnx::NodeProto> &behind) {
    const std::string weight = node.input(1);
    auto how = recipe.weights.find(weight);
    if (how == recipe.weights.end())
      foreign("the recipe has no weight '" + weight + "'", node.output(0));
    --model.uses[weight];
    if (isHalf(how->second.format)) {
      inHalf(node, how->second, behind);
      return;
    }
    if (recipe.microsoft || how->second.format == WeightFormat::Nf4)
      packed(node, behind);
    else
      node.set_input(1, dequantized(weight, node));
    auto original = valueOf.find(node.input(0));
    const std::string value = original == valueOf.end() ? node.input(0) : original->second;
    if (!how->second.weightOnly && (recipe.dynamic || recipe.activations.count(value)))
      node.set_input(0, throughCodes(node.input(0), value, how->second.format));
  }

  /// Adds the recipe's bias to a result: to the constant that is added anyway, else by a node, which goes behind.
  std::optional<onnx::NodeProto> correct(onnx::NodeProto &node) {
    auto bias = recipe.biases.find(node.output(0));
    if (bias == recipe.biases.end())
      return std::nullopt;
    const int64_t channels = bias->second.dims[0];
    auto weight = model.constants.find(node.input(1));
    if (weight == model.constants.end() || weight->second->dims_size() <= *scaleAxisOf(node) ||
        weight->second->dims(int(*scaleAxisOf(node))) != channels)
      foreign("its bias has another size", node.output(0));
    HostTensor values = inType(bias->second, typeOf(*weight->second));
    bool scaled = false; // a Gemm's beta multiplies what is added
    for (const auto &a : node.attribute())
      scaled |= a.name() == "beta" && a.f() != 1;
    const bool third = node.op_type() != "MatMul" && !scaled;
    if (third && node.input_size() > 2 && !node.input(2).empty()) {
      auto known = model.constants.find(node.input(2));
      if (known != model.constants.end() && model.uses[node.input(2)] == 1 && known->second->dims_size() == 1 &&
          known->second->dims(0) == channels && hasCodes(*known->second, true)) {
        HostTensor sum = model.read(*known->second);
        for (int64_t c = 0; c < channels; ++c)
          sum.setReal(c, sum.real(c) + bias->second.real(c));
        Loaded::store(*known->second, sum);
        return std::nullopt;
      }
    } else if (third) {
      if (node.input_size() < 3)
        node.add_input("");
      node.set_input(2, constant(node.output(0) + "_bias", values));
      return std::nullopt;
    }
    if (isConv(node))
      values.dims.resize(size_t(weight->second->dims_size() - 1), 1);
    onnx::NodeProto sum;
    sum.set_op_type("Add");
    sum.set_name(fresh(nameOf(node) + "_bias_Add"));
    sum.add_input(fresh(node.output(0) + "_uncorrected"));
    sum.add_input(constant(node.output(0) + "_bias", values));
    sum.add_output(node.output(0));
    node.set_output(0, sum.input(0));
    return sum;
  }

  /// A product in f16 or bf16: its operands are cast, its result is cast back.
  void inHalf(onnx::NodeProto &node, const WeightRecipe &how, std::vector<onnx::NodeProto> &behind) {
    const std::string suffix = how.format == WeightFormat::F16 ? "_f16" : "_bf16";
    const int64_t type = how.format == WeightFormat::F16 ? onnx::TensorProto::FLOAT16 : onnx::TensorProto::BFLOAT16;
    auto cast = [&](const std::string &value) -> const std::string & {
      std::string &result = halves[{value, how.format}];
      return result.empty() ? result = add("Cast", value, value + suffix, {value}, {{"to", type}}) : result;
    };
    const std::string weight = node.input(1);
    std::string &constants = weights[weight];
    if (constants.empty())
      constants = constant(weight + suffix, codesOf(weight, node).codes);
    node.set_input(0, cast(node.input(0)));
    node.set_input(1, constants);
    if (node.input_size() > 2 && !node.input(2).empty())
      node.set_input(2, cast(node.input(2)));
    onnx::NodeProto &back = behind.emplace_back();
    back.set_op_type("Cast");
    back.set_name(fresh(nameOf(node) + "_Cast"));
    back.add_input(fresh(node.output(0) + suffix));
    back.add_output(node.output(0));
    setAttribute(back, "to", onnx::TensorProto::FLOAT);
    node.set_output(0, back.input(0));
  }

  /// The codes of a weight, of the recipe or rounded to the nearest.
  quantize::QuantizedWeight codesOf(const std::string &name, const onnx::NodeProto &node) {
    const WeightRecipe &how = recipe.weights.at(name);
    const int64_t scales = *scaleAxisOf(node);
    const bool half = takesHalf(how.format, !recipe.microsoft && !recipe.dynamic);
    std::string why = isConv(node) ? reasonToKeepConv(model, node, !isHalf(how.format), half) : reasonToKeep(model, name, half);
    if (isConv(node) && how.block)
      foreign("filters have no blocks", name);
    if (!why.empty() || how.axis != (how.block ? 1 - scales : scales))
      foreign(why.empty() ? "its scales lie along the other dimension" : why, name);
    const onnx::TensorProto &tensor = *model.constants.at(name);
    if (auto given = recipe.codes.find(name); given != recipe.codes.end()) {
      if (!std::equal(given->second.codes.dims.begin(), given->second.codes.dims.end(), tensor.dims().begin(), tensor.dims().end()) ||
          (how.block && tensor.dims(int(how.axis)) % how.block))
        foreign("its codes are of other sizes than the weight", name);
      return given->second;
    }
    Result<quantize::QuantizedWeight> made = quantize::quantizeWeight(model.read(tensor), how, name);
    if (!made)
      throw ImportError{made.status()};
    return std::move(*made);
  }

  const std::string &dequantized(const std::string &name, const onnx::NodeProto &node) {
    std::string &result = weights[name];
    if (!result.empty())
      return result;
    const WeightRecipe &how = recipe.weights.at(name);
    const quantize::QuantizedWeight made = codesOf(name, node);
    const onnx::TensorProto &weight = *model.constants.at(name);
    const HostTensor scales = how.format == WeightFormat::Mxfp4 ? made.scales : inType(made.scales, typeOf(weight));
    std::string codes = constant(name + "_quantized", made.codes), scale = constant(name + "_scale", scales);
    Attributes attributes{{"axis", how.axis}};
    if (how.block)
      attributes.push_back({"block_size", how.block});
    if (how.format == WeightFormat::Mxfp4)
      attributes.push_back({"output_dtype", weight.data_type()}); // not the scales' type
    return result = add("DequantizeLinear", name, name + "_dequantized", {codes, scale}, attributes);
  }

  /// y = MatMulNBits(x, codes, scales), or MatMulBnb4 of NF4, and + c of a Gemm: codes of [n, depth], two to a byte.
  void packed(onnx::NodeProto &node, std::vector<onnx::NodeProto> &behind) {
    const std::string weight = node.input(1);
    const WeightRecipe &how = recipe.weights.at(weight);
    const bool nf4 = how.format == WeightFormat::Nf4;
    if (std::string why = reasonAgainstPacked(node); !why.empty() || how.bits != 4 || how.block < 16 || recipe.dynamic)
      foreign(why.empty() ? "com.microsoft has products by codes of 4 bits in blocks of 16 and more" : why, weight);
    if (std::string &known = weights[weight]; known.empty()) {
      const quantize::QuantizedWeight made = codesOf(weight, node);
      const int64_t axis = how.axis, depth = made.codes.dims[axis], outputs = made.codes.dims[1 - axis], blocks = depth / how.block;
      auto at = [axis](int64_t output, int64_t k, int64_t outputs, int64_t depth) {
        return axis ? output * depth + k : k * outputs + output;
      };
      HostTensor bytes(DType::UI8, nf4 ? std::vector<int64_t>{outputs * depth / 2, 1}
                                       : std::vector<int64_t>{outputs, blocks, how.block / 2});
      HostTensor scales(DType::F32, {outputs * blocks});
      for (int64_t n = 0; n < outputs; ++n)
        for (int64_t k = 0; k < depth; k += 2) {
          // Of MatMulNBits the zero point is 8, and the first code lies in the lower half; of NF4 in the upper one.
          int64_t first = made.codes.integer(at(n, k, outputs, depth)), second = made.codes.integer(at(n, k + 1, outputs, depth));
          bytes.setInteger((n * depth + k) / 2, nf4 ? first << 4 | second : (first + 8) | (second + 8) << 4);
        }
      for (int64_t n = 0; n < outputs; ++n)
        for (int64_t b = 0; b < blocks; ++b)
          scales.setReal(n * blocks + b, made.scales.real(at(n, b, outputs, blocks)));
      known = constant(weight + "_quantized", bytes);
      packedScales[weight] = constant(weight + "_scale", scales);
      packedSizes[weight] = {depth, outputs};
    }
    import("com.microsoft");
    if (node.op_type() == "Gemm" && node.input_size() > 2 && !node.input(2).empty()) {
      onnx::NodeProto &sum = behind.emplace_back();
      sum.set_op_type("Add");
      sum.set_name(fresh(nameOf(node) + "_Add"));
      sum.add_input(fresh(node.output(0) + "_product"));
      sum.add_input(node.input(2));
      sum.add_output(node.output(0));
      node.set_output(0, sum.input(0));
    }
    const std::string x = node.input(0);
    node.clear_input();
    node.clear_attribute();
    node.set_domain("com.microsoft");
    node.set_op_type(nf4 ? "MatMulBnb4" : "MatMulNBits");
    for (const std::string &input : {x, weights[weight], packedScales[weight]})
      node.add_input(input);
    setAttribute(node, "K", packedSizes[weight].first);
    setAttribute(node, "N", packedSizes[weight].second);
    setAttribute(node, "block_size", how.block);
    setAttribute(node, nf4 ? "quant_type" : "bits", nf4 ? 1 : 4);
  }

  /// `value`, which the recipe calls `name`, as what its codes stand for: floats e4m3 beside weights of these, else u8.
  const std::string &throughCodes(const std::string &value, const std::string &name, WeightFormat format) {
    const bool floats = format == WeightFormat::F8E4M3;
    std::string &result = (floats ? floatActivations : activations)[name];
    if (!result.empty())
      return result;
    if (recipe.dynamic) {
      std::string s = fresh(name + "_scale"), z = fresh(name + "_zero_point");
      std::string q = add("DynamicQuantizeLinear", name, name + "_quantized", {value}, {}, {s, z});
      return result = add("DequantizeLinear", name, name + "_dequantized", {q, s, z});
    }
    auto known = types.find(name);
    const DType type = known == types.end() ? DType::F32 : known->second;
    std::optional<quantize::CodesOfRange> codes = quantize::codesOf(recipe.activations.at(name), type);
    if (!codes)
      foreign("the range has no normal scale", name);
    HostTensor scale(type, {}), zero(floats ? DType::F8E4M3FN : DType::UI8, {});
    if (floats) {
      std::optional<float> ofFloats = quantize::floatScaleOf(recipe.activations.at(name), type);
      if (!ofFloats)
        foreign("the range has no normal scale", name);
      scale.setReal(0, *ofFloats);
    } else {
      scale.setReal(0, codes->scale);
      zero.setInteger(0, codes->zero);
    }
    std::string s = constant(name + "_scale", scale), z = constant(name + "_zero_point", zero);
    std::string q = add("QuantizeLinear", name, name + "_quantized", {value, s, z});
    return result = add("DequantizeLinear", name, name + "_dequantized", {q, s, z});
  }

  const Recipe &recipe;
  const std::string &recipePath;
  std::map<std::string, DType> types;                      ///< of what products read and make
  std::map<std::string, std::string> valueOf;              ///< what smoothed values are called in the recipe
  std::map<std::string, std::string> weights, activations, floatActivations; ///< what takes their places
  std::map<std::pair<std::string, WeightFormat>, std::string> halves; ///< values that are cast
  std::map<std::string, std::string> packedScales;         ///< of weights in com.microsoft's form
  std::map<std::string, std::pair<int64_t, int64_t>> packedSizes;
};

} // namespace

Result<QuantizationPlan> planQuantization(const std::string &path, const quantize::Scheme &scheme,
                                          const PlanOptions &options) {
  return guarded<QuantizationPlan>(path, [&]() -> Result<QuantizationPlan> {
    Loaded model(path);
    QuantizationPlan plan;
    plan.recipe.scheme = scheme.name;
    plan.recipe.dynamic = options.dynamic;
    plan.recipe.microsoft = options.microsoft;
    plan.converted = convertFor(model, scheme, path);
    const std::vector<std::string> &keep = options.keep;
    const int64_t block = scheme.format == WeightFormat::Mxfp4 ? 32 : options.block;
    const bool half = takesHalf(scheme.format, !options.microsoft && !options.dynamic);
    std::vector<bool> fits(keep.size());
    auto kept = [&](const std::string &name) {
      bool any = false;
      for (size_t i = 0; i < keep.size(); ++i)
        if (fnmatch(keep[i].c_str(), name.c_str(), 0) == 0)
          fits[i] = any = true;
      return any;
    };
    for (const auto &node : model.proto.graph().node()) {
      const std::string &type = node.op_type();
      if (isQuantized(type))
        return invalidError("the model is quantized already, by this " + type, "node '" + nameOf(node) + "'");
      const bool conv = isConv(node), turned = isDefault(node) && type == "ConvTranspose";
      std::optional<int64_t> depth = depthOf(node);
      if (!depth && !conv && !turned)
        continue;
      std::string weight = node.input_size() > 1 ? node.input(1) : "", why;
      bool asked = kept(nameOf(node)), askedToo = kept(node.output(0)), askedWeight = kept(weight);
      if (asked || askedToo || askedWeight)
        why = "asked for by --keep";
      else if (turned)
        why = "transposed convolutions of codes have no kernel that is faster than f32";
      else if (conv && options.dynamic)
        why = "convolutions read images whose range is known before the run";
      else if (conv && !scheme.activations && !isHalf(scheme.format))
        why = "convolutions read filters of f32 where images are of f32";
      else
        why = conv ? reasonToKeepConv(model, node, !isHalf(scheme.format), half) : reasonToKeep(model, weight, half);
      if (why.empty() && scheme.activations && conv && readsColours(model, node))
        why = "images of so few channels have no kernel of codes on a GPU, which reads them in 16 bits";
      if (why.empty() && scheme.activations && !conv) {
        const onnx::TensorProto &matrix = *model.constants.at(weight);
        if (matrix.dims(0) <= kSmall / matrix.dims(1))
          why = "its right operand has " + std::to_string(matrix.dims(0) * matrix.dims(1)) +
                " elements, so few that quantizing the left one takes longer than is gained";
      }
      WeightRecipe how{scheme.weightBits, depth ? 1 - *depth : 0, 0, scheme.format};
      if (why.empty() && scheme.weightBits == 4) {
        int64_t size = model.constants.at(weight)->dims(int(*depth));
        how = {4, *depth, block, scheme.format};
        for (int64_t b : {128, 64, 32})
          if (!how.block && size % b == 0)
            how.block = b;
        if (!how.block || size % how.block)
          why = "its depth of " + std::to_string(size) + " is no multiple of " +
                (block ? "the block of " + std::to_string(block) : "blocks of 32");
      }
      if (why.empty() && (options.microsoft || scheme.format == WeightFormat::Nf4))
        why = reasonAgainstPacked(node);
      // One matrix that is summed over in both directions has two forms; the second product stays as it is.
      if (auto other = plan.recipe.weights.find(weight); why.empty() && other != plan.recipe.weights.end() &&
                                                         other->second.axis != how.axis)
        why = "its right operand '" + weight + "' has scales along the other dimension";
      if (!why.empty()) {
        plan.kept.push_back({nameOf(node), why});
        continue;
      }
      plan.recipe.weights[weight] = how;
      plan.recipe.products.insert(node.output(0));
      if (scheme.activations && !options.dynamic)
        plan.recipe.activations[node.input(0)] = {};
      // What stands beside convolutions (residuals, pools) reads bytes too: a kernel stores one form of a value.
      if (conv && scheme.activations && scheme.format == WeightFormat::Integer)
        plan.recipe.shared.insert(node.input(0));
    }
    if (scheme.activations && scheme.format == WeightFormat::Integer)
      for (const std::string &value : storedOfSums(model, plan.recipe)) {
        plan.recipe.activations[value] = {};
        plan.recipe.shared.insert(value);
      }
    for (const auto &output : model.proto.graph().output())
      plan.recipe.shared.erase(output.name());
    for (size_t i = 0; i < keep.size(); ++i)
      if (!fits[i])
        return usageError("fits no contraction, weight or result of one", "--keep '" + keep[i] + "'");
    return plan;
  });
}

Result<std::string> quantizedModel(const std::string &path, const Recipe &recipe, const std::string &recipePath) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    convertFor(model, recipe, path);
    const std::map<std::string, std::string> smoothed = Smoother(model, recipe, recipePath).run();
    Quantizer(model, recipe, recipePath, smoothed).run();
    return bytesOf(model, path);
  });
}

Result<std::vector<QuantizedLayer>> quantizedLayers(const std::string &path, const Recipe &recipe) {
  return guarded<std::vector<QuantizedLayer>>(path, [&]() -> Result<std::vector<QuantizedLayer>> {
    Loaded model(path);
    convertFor(model, recipe, path);
    std::vector<QuantizedLayer> layers;
    for (const auto &node : model.proto.graph().node()) {
      if (!scaleAxisOf(node) || !recipe.products.count(node.output(0)) || !recipe.weights.count(node.input(1)))
        continue;
      auto weight = model.constants.find(node.input(1));
      if (weight == model.constants.end())
        continue; // of another model: quantizedModel says so
      QuantizedLayer layer{nameOf(node), node.output(0), node.input(0), node.input(1), 0, 0, 1, typeOf(*weight->second)};
      for (int64_t size : weight->second->dims())
        layer.weightElements *= size;
      if (std::optional<int64_t> depth = depthOf(node); depth && weight->second->dims_size() == 2 && !attribute(node, "transA")) {
        layer.depth = weight->second->dims(int(*depth));
        layer.otherReaders = model.uses[node.input(1)] - 1;
      }
      layers.push_back(std::move(layer));
    }
    return layers;
  });
}

Result<std::vector<std::pair<size_t, size_t>>> neighbouringLayers(const std::string &path, const Recipe &recipe,
                                                                  const std::vector<QuantizedLayer> &layers) {
  using Pairs = std::vector<std::pair<size_t, size_t>>;
  return guarded<Pairs>(path, [&]() -> Result<Pairs> {
    Loaded model(path);
    convertFor(model, recipe, path);
    std::map<std::string, size_t> layerOf;                     // by result
    std::map<std::string, const onnx::NodeProto *> producerOf; // by value
    for (size_t i = 0; i < layers.size(); ++i)
      layerOf[layers[i].result] = i;
    for (const auto &node : model.proto.graph().node())
      for (const std::string &output : node.output())
        producerOf[output] = &node;
    std::set<std::pair<size_t, size_t>> pairs;
    std::map<std::string, size_t> readers; // the last so far, by activation
    for (size_t i = 0; i < layers.size(); ++i) {
      if (auto [reader, first] = readers.try_emplace(layers[i].activation, i); !first) {
        pairs.emplace(reader->second, i);
        reader->second = i;
        continue;
      }
      // Backwards, all nodes at one distance at a time.
      std::set<std::string> seen{layers[i].activation};
      std::vector<std::string> now{layers[i].activation};
      for (bool found = false; !now.empty() && !found;) {
        std::vector<std::string> next;
        for (const std::string &value : now) {
          if (auto layer = layerOf.find(value); layer != layerOf.end()) {
            found = true;
            if (layer->second != i)
              pairs.emplace(std::min(layer->second, i), std::max(layer->second, i));
          } else if (auto producer = producerOf.find(value); producer != producerOf.end()) {
            for (const std::string &input : producer->second->input())
              if (!model.constants.count(input) && seen.insert(input).second)
                next.push_back(input);
          }
        }
        now = std::move(next);
      }
    }
    return Pairs(pairs.begin(), pairs.end());
  });
}

Result<Recipe> mixedRecipe(const std::vector<Recipe> &parts) {
  std::vector<const Recipe *> used;
  for (const Recipe &part : parts)
    if (!part.products.empty())
      used.push_back(&part);
  Recipe mixed = used.empty() ? Recipe() : *used.front();
  if (used.empty() && !parts.empty())
    mixed.scheme = parts.front().scheme;
  for (size_t i = 1; i < used.size(); ++i) {
    const Recipe &part = *used[i];
    mixed.scheme = quantize::kMixed;
    for (const auto &[name, range] : part.activations)
      if (auto [known, added] = mixed.activations.try_emplace(name, range);
          !added && (known->second.min != range.min || known->second.max != range.max))
        return invalidError("two schemes have ranges of their own for it", "value '" + name + "'");
    for (const auto &[name, factors] : part.factors)
      if (!mixed.factors.try_emplace(name, factors).second)
        return invalidError("two schemes have factors of their own for it", "value '" + name + "'");
    mixed.weights.insert(part.weights.begin(), part.weights.end());
    mixed.codes.insert(part.codes.begin(), part.codes.end());
    mixed.biases.insert(part.biases.begin(), part.biases.end());
    mixed.products.insert(part.products.begin(), part.products.end());
    mixed.shared.insert(part.shared.begin(), part.shared.end());
  }
  // Layers of weights alone beside others that read codes of the same value.
  if (used.size() > 1)
    for (const Recipe *part : used) {
      Result<quantize::Scheme> scheme = quantize::schemeNamed(part->scheme);
      for (const auto &[name, weight] : part->weights)
        if (scheme.ok() && !scheme->activations && !isHalf(weight.format))
          mixed.weights[name].weightOnly = true;
    }
  return mixed;
}

Recipe partOf(const Recipe &recipe, const std::vector<QuantizedLayer> &layers, const std::set<std::string> &results) {
  std::set<std::string> activations, weights;
  for (const QuantizedLayer &layer : layers)
    if (results.count(layer.result)) {
      activations.insert({layer.activation, layer.result});
      weights.insert(layer.weight);
    }
  Recipe part = recipe;
  part.products = results;
  std::erase_if(part.activations, [&](const auto &each) { return !activations.count(each.first); });
  std::erase_if(part.shared, [&](const std::string &each) { return !activations.count(each); });
  std::erase_if(part.factors, [&](const auto &each) { return !activations.count(each.first); });
  std::erase_if(part.weights, [&](const auto &each) { return !weights.count(each.first); });
  std::erase_if(part.codes, [&](const auto &each) { return !weights.count(each.first); });
  std::erase_if(part.biases, [&](const auto &each) { return !results.count(each.first); });
  return part;
}

Result<std::map<std::string, HostTensor>> weightsOf(const std::string &path, const Recipe &recipe,
                                                    const std::set<std::string> &names) {
  return guarded<std::map<std::string, HostTensor>>(path, [&]() -> Result<std::map<std::string, HostTensor>> {
    Loaded model(path);
    convertFor(model, recipe, path);
    const std::string recipePath = "the recipe";
    Smoother(model, recipe, recipePath).run();
    std::map<std::string, HostTensor> weights;
    for (const std::string &name : names)
      if (auto found = model.constants.find(name); found != model.constants.end()) {
        const DType type = typeOf(*found->second);
        weights[name] = inType(model.read(*found->second), type == DType::F16 || type == DType::BF16 ? type : DType::F32);
      }
    return weights;
  });
}

Result<std::set<std::string>> filesOfWeights(const std::string &path) {
  return guarded<std::set<std::string>>(path, [&]() -> Result<std::set<std::string>> {
    Loaded model(path);
    std::set<std::string> files;
    for (const auto &tensor : model.proto.graph().initializer())
      if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
        for (const auto &entry : tensor.external_data())
          if (entry.key() == "location")
            files.insert(entry.value());
    return files;
  });
}

Result<bool> hasExternalWeights(const std::string &path) {
  Result<std::set<std::string>> files = filesOfWeights(path);
  if (!files)
    return files.status();
  return !files->empty();
}

} // namespace lathe
