//===- CustomCall.cpp - calls of the user's own functions -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A node of the domain `lathe.custom` is a call of the user's (an op of any other
// unknown domain stays unsupported: it is no call by accident): on the host a function that
// the application registers under the op's name, on a GPU the CUDA text in the
// attribute `cuda_source`. Attributes become the call's config. Output types are
// what the model states; a size that it leaves open is the first operand's, or
// follows from the attribute `output_sizes` (a text for each output, "N, 8").
//
//   %y = "onnx.Reverse"(%x) {onnx_domain = "lathe.custom", factor = 10}
//                      =>   %y = lathe.custom_call "Reverse"(%x) {config = {factor = 10}}
//
//===----------------------------------------------------------------------===//
#include "Node.h"

using namespace mlir;

namespace lathe::legal {

namespace {

/// Sizes in a text of DimExprs, separated by commas outside parentheses.
std::optional<Dims> parseSizes(StringRef text) {
  Dims dims;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    char c = i < text.size() ? text[i] : ',';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c != ',' || (depth != 0 && i < text.size()))
      continue;
    StringRef part = text.slice(begin, i).trim();
    auto expr = DimExpr::parse(std::string_view(part.data(), part.size()));
    if (!expr.ok())
      return std::nullopt;
    dims.push_back(*expr);
    begin = i + 1;
  }
  return dims;
}

/// Sizes of output `i`; none with the reason in `why`.
std::optional<Dims> outputSizes(Node &node, unsigned i, TensorType stated, std::string &why) {
  if (auto texts = node.op->getAttrOfType<ArrayAttr>("output_sizes")) {
    auto text = i < texts.size() ? dyn_cast<StringAttr>(texts[i]) : StringAttr();
    auto dims = text ? parseSizes(text.getValue()) : std::nullopt;
    if (!dims || int64_t(dims->size()) != stated.getRank()) {
      why = "output_sizes does not say the sizes of output " + std::to_string(i);
      return std::nullopt;
    }
    return dims;
  }
  Dims dims;
  for (int64_t d = 0; d < stated.getRank(); ++d) {
    if (!stated.isDynamicDim(d)) {
      dims.push_back(stated.getDimSize(d));
    } else if (node.numInputs() && node.rank(0) == stated.getRank()) {
      dims.push_back(node.dims(0)[d]);
    } else {
      why = "dimension " + std::to_string(d) + " of output " + std::to_string(i) + " is open";
      return std::nullopt;
    }
  }
  return dims;
}

} // namespace

LogicalResult customCall(Node &node) {
  SmallVector<Type> types;
  for (Value result : node.op->getResults()) {
    auto stated = dyn_cast<RankedTensorType>(result.getType());
    std::string why = "output " + std::to_string(types.size()) + " has no stated type";
    auto dims = stated ? outputSizes(node, types.size(), stated, why) : std::nullopt;
    if (!dims)
      return node.fail("shape", "a custom call whose " + why, "outputs with types in value_info",
                       "state them there, or give the attribute output_sizes");
    types.push_back(tensorType(stated.getElementType(), *dims));
  }
  SmallVector<Value> operands;
  for (unsigned i = 0; i < node.numInputs(); ++i) {
    if (!node.has(i))
      return node.fail("op", "a custom call with an operand left out");
    operands.push_back(node.in(i));
    if (!operands.back())
      return node.fail("dtype", "operand " + Twine(i) + " is no tensor of numbers");
  }
  NamedAttrList config;
  for (NamedAttribute attr : node.op->getAttrs())
    if (attr.getName() != "onnx_domain" && attr.getName() != "output_sizes" &&
        attr.getName() != "onnx_opset")
      config.append(attr);
  auto call = CustomCallOp::create(node.e.b, node.e.loc, types, operands,
                                   node.e.b.getStringAttr(node.type),
                                   config.getDictionary(node.op->getContext()));
  for (auto [i, result] : llvm::enumerate(call.getOutputs()))
    if (failed(node.set(i, result)))
      return failure();
  return success();
}

} // namespace lathe::legal
