//===- LocalFunctions.cpp - functions that a model brings along -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ONNX's checker and its inliner want the functions of a model to import the operator sets of the model. Here each
// is checked by its own; then nodes that the model's version says something else of carry theirs along, so that
// the function may import what the model does.
//
//===----------------------------------------------------------------------===//
#include "LocalFunctions.h"

#include "onnx/checker.h"
#include "onnx/defs/schema.h"
#include "onnx/inliner/inliner.h"

#include <algorithm>
#include <unordered_map>

namespace lathe::onnxmodel {
namespace {

using Imports = std::unordered_map<std::string, int>; ///< versions by domain; "" is ai.onnx

template <typename Owner> Imports importsOf(const Owner &owner) {
  Imports imports;
  for (const auto &import : owner.opset_import())
    imports[import.domain() == "ai.onnx" ? "" : import.domain()] = int(import.version());
  return imports;
}

/// Marks the nodes that mean something else by the model's imports; how many there are. What a file says there is gone.
int mark(google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes, const Imports &own, const Imports &models) {
  int marked = 0;
  for (onnx::NodeProto &node : nodes) {
    auto *metadata = node.mutable_metadata_props();
    metadata->erase(std::remove_if(metadata->begin(), metadata->end(),
                                   [](const auto &entry) { return entry.key() == kOpsetMetadata; }),
                    metadata->end());
    const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
    auto mine = own.find(domain), theirs = models.find(domain);
    if (mine != own.end() && theirs != models.end() && mine->second != theirs->second) {
      auto since = [&](int version) {
        const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(node.op_type(), version, domain);
        return schema ? schema->since_version() : 0;
      };
      if (since(mine->second) != since(theirs->second)) {
        auto *entry = node.add_metadata_props();
        entry->set_key(kOpsetMetadata);
        entry->set_value(std::to_string(mine->second));
        ++marked;
      }
    }
    for (auto &attribute : *node.mutable_attribute()) {
      if (attribute.has_g())
        marked += mark(*attribute.mutable_g()->mutable_node(), own, models);
      for (auto &graph : *attribute.mutable_graphs())
        marked += mark(*graph.mutable_node(), own, models);
    }
  }
  return marked;
}

/// The graph and each function, by its own imports.
void checkApart(onnx::ModelProto &model) {
  onnx::checker::check_function_call_cycles(model);
  google::protobuf::RepeatedPtrField<onnx::FunctionProto> functions;
  functions.Swap(model.mutable_functions());
  onnx::checker::check_model(model);
  functions.Swap(model.mutable_functions());
  for (const auto &function : model.functions()) {
    onnx::checker::CheckerContext context;
    context.set_ir_version(int(model.ir_version()));
    context.set_opset_imports(importsOf(function));
    onnx::checker::check_function(function, context, onnx::checker::LexicalScopeContext());
  }
}

} // namespace

bool inlineLocalFunctions(onnx::ModelProto &model, std::vector<std::string> &notes) {
  onnx::ModelProto unmarked; // functions as they are, for the check of a model that has marks
  *unmarked.mutable_functions() = model.functions();
  Imports imports = importsOf(model);
  std::string names;
  mark(*model.mutable_graph()->mutable_node(), imports, imports);
  for (auto &function : *model.mutable_functions()) {
    const Imports own = importsOf(function);
    if (mark(*function.mutable_node(), own, imports))
      names += (names.empty() ? "'" : ", '") + function.name() + "'";
  }
  if (names.empty()) {
    onnx::checker::check_model(model);
  } else {
    model.mutable_functions()->Swap(unmarked.mutable_functions());
    checkApart(model);
    model.mutable_functions()->Swap(unmarked.mutable_functions());
    notes.push_back("kept opset " + std::to_string(imports[""]) + ": nodes of function " + names +
                    " have another version than those of the model");
  }
  if (model.functions().empty())
    return false;
  for (auto &function : *model.mutable_functions())
    for (auto &import : *function.mutable_opset_import()) {
      const std::string domain = import.domain() == "ai.onnx" ? "" : import.domain();
      auto [known, isNew] = imports.try_emplace(domain, int(import.version()));
      if (isNew)
        *model.add_opset_import() = import;
      import.set_version(known->second);
    }
  onnx::inliner::InlineLocalFunctions(model, /*convert_version=*/false);
  if (names.empty())
    onnx::checker::check_model(model);
  return !names.empty();
}

} // namespace lathe::onnxmodel
