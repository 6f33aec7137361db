//===- DefaultDomain.cpp - ops that onnxruntime adds to ai.onnx -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DefaultDomain.h"

#include "onnx/defs/schema.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace lathe::onnxmodel {
namespace {

constexpr const char *kMicrosoft = "com.microsoft";
/// Ops of onnxruntime's schemas of ai.onnx, version 1, that ONNX lacks at some opset.
constexpr std::array<std::string_view, 6> kOps = {
    "Affine",           "LayerNormalization",           "ParametricSoftplus", "ScaledTanh",
    "ThresholdedRelu", "SimplifiedLayerNormalization"};

/// GroupNormalization of opsets 18 to 20, with scales of groups: ONNX deprecated it, so that its checker refuses it, and
/// onnxruntime runs it.
bool isDeprecatedGroupNorm(const std::string &op, const onnx::OpSchema *schema) {
  return op == "GroupNormalization" && schema && schema->deprecated();
}

bool isDefault(const std::string &domain) { return domain.empty() || domain == "ai.onnx"; }

template <typename Imports> int64_t defaultOpset(const Imports &imports) {
  for (const auto &import : imports)
    if (isDefault(import.domain()))
      return import.version();
  return 0;
}

struct Renamer {
  int64_t opset;
  std::set<std::string> found;

  template <typename Nodes> void visit(Nodes &nodes) {
    for (auto &node : nodes) {
      for (auto &attr : *node.mutable_attribute()) {
        if (attr.has_g())
          visit(*attr.mutable_g()->mutable_node());
        for (auto &graph : *attr.mutable_graphs())
          visit(*graph.mutable_node());
      }
      if (!isDefault(node.domain()))
        continue;
      const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(node.op_type(), int(opset), "");
      if ((!schema && std::ranges::count(kOps, node.op_type())) || isDeprecatedGroupNorm(node.op_type(), schema)) {
        node.set_domain(kMicrosoft);
        found.insert(node.op_type());
      }
    }
  }
};

template <typename Owner> void importDomain(Owner &owner) {
  for (const auto &import : owner.opset_import())
    if (import.domain() == kMicrosoft)
      return;
  auto *import = owner.add_opset_import();
  import->set_domain(kMicrosoft);
  import->set_version(1);
}

} // namespace

void nameMicrosoftOps(onnx::ModelProto &model, std::vector<std::string> &notes) {
  std::set<std::string> found;
  auto rename = [&](auto &owner, auto &nodes) {
    Renamer renamer{defaultOpset(owner.opset_import()), {}};
    renamer.visit(nodes);
    if (!renamer.found.empty())
      importDomain(owner);
    found.merge(renamer.found);
    return !renamer.found.empty();
  };
  rename(model, *model.mutable_graph()->mutable_node());
  for (auto &function : *model.mutable_functions())
    if (rename(function, *function.mutable_node()))
      importDomain(model);
  for (const std::string &op : found)
    notes.push_back("took " + op + " of ai.onnx, which onnxruntime alone runs, as com.microsoft's");
}

} // namespace lathe::onnxmodel
