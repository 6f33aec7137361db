//===- Shardings.cpp - how a model says that it is divided ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Shardings.h"

#include "onnx/onnx_pb.h"

#include <map>
#include <set>

namespace lathe::onnxmodel {

std::vector<std::string> shardingsOf(const onnx::ModelProto &model, std::vector<std::string> &notes) {
  std::map<std::string, std::string> names; // by tensor, as hints name it
  for (const auto &initializer : model.graph().initializer())
    names[initializer.name()] = initializer.name();
  for (const auto &node : model.graph().node())
    if (!node.name().empty())
      for (const std::string &output : node.output())
        names.try_emplace(output, node.name());
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const auto &node : model.graph().node())
    for (const auto &configuration : node.device_configurations())
      for (const auto &spec : configuration.sharding_spec()) {
        if (!seen.insert(spec.tensor_name()).second)
          continue;
        auto leave = [&](const std::string &why) {
          notes.push_back("left the sharding of '" + spec.tensor_name() + "' at node '" + node.name() + "' alone: " + why);
        };
        auto name = names.find(spec.tensor_name());
        if (name == names.end()) {
          leave("it is no initializer, nor the result of a node with a name");
        } else if (spec.index_to_device_group_map_size()) {
          leave("it is of groups of devices");
        } else if (!spec.sharded_dim_size()) {
          found.push_back(name->second + "=all");
        } else if (spec.sharded_dim_size() > 1 || spec.sharded_dim(0).simple_sharding_size() != 1 ||
                   spec.sharded_dim(0).axis() < 0) {
          leave("it divides several axes, or one from the end or unevenly");
        } else {
          const auto &dim = spec.sharded_dim(0);
          found.push_back(name->second + "=dim:" + std::to_string(dim.axis()) + "/" +
                          std::to_string(dim.simple_sharding(0).num_shards()));
        }
      }
  return found;
}

} // namespace lathe::onnxmodel
