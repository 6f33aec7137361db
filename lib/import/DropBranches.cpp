//===- DropBranches.cpp - ONNX models without some residual branches ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The addition becomes an Identity of what the branch was added to, so that all that reads its result, also
// inside of other graphs and as a result of the model, stays as it is.
//
//===----------------------------------------------------------------------===//
#include "lathe/import/DropBranches.h"

#include "EditModel.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace lathe {
namespace {

using namespace edit;

/// The residual additions of a model.
class Branches {
public:
  /// With a coupling only additions of known, equal sizes count.
  explicit Branches(Loaded &model, const sparsify::Coupling *coupling = nullptr)
      : model(model), graph(*model.proto.mutable_graph()), checksSizes(coupling) {
    if (coupling)
      for (const auto &tensor : coupling->tensors)
        if (!tensor.op.empty())
          sizes[tensor.node] = tensor.sizes; // the last of a node is its result
    for (auto &node : *graph.mutable_node())
      for (const std::string &output : node.output())
        producers[output] = &node;
  }

  struct Found {
    ResidualBranch branch;
    int shortcut = 0; ///< which operand of the addition stays
  };
  std::vector<Found> found;
  KeptValues kept;

  void find() {
    for (auto &node : *graph.mutable_node()) {
      if (!isDefault(node) || node.op_type() != "Add" || node.input_size() != 2 || model.constants.count(node.input(0)) ||
          model.constants.count(node.input(1)))
        continue;
      for (int shortcut : {0, 1})
        if (isAhead(node.input(shortcut), node.input(1 - shortcut))) {
          Found one;
          one.branch.add = nameOf(node);
          one.shortcut = shortcut;
          if (std::string why = reasonToStay(node, one); !why.empty()) {
            kept.push_back({one.branch.add, why});
          } else {
            one.branch.nodes = onlyFor(node, node.input(1 - shortcut));
            found.push_back(std::move(one));
          }
          break;
        }
    }
  }

  void drop(const std::set<std::string> &adds) {
    std::map<std::string, int> before = model.uses;
    for (auto &node : *graph.mutable_node())
      for (const Found &one : found)
        if (nameOf(node) == one.branch.add && adds.count(one.branch.add)) {
          const std::string shortcut = node.input(one.shortcut);
          node.set_op_type("Identity");
          node.clear_input();
          node.add_input(shortcut);
        }
    removeDead(before);
  }

  void zero(const std::set<std::string> &adds) {
    for (const Found &one : found)
      for (const std::string &name : one.branch.constants)
        if (adds.count(one.branch.add)) {
          HostTensor values = model.read(*model.constants.at(name));
          for (int64_t i = 0; i < values.count(); ++i)
            values.setReal(i, 0);
          Loaded::store(*model.constants.at(name), values);
        }
  }

private:
  /// Whether `value` is computed of `of`.
  bool isAhead(const std::string &of, const std::string &value) const {
    std::set<std::string> seen;
    std::vector<std::string> open = {value};
    while (!open.empty()) {
      std::string next = open.back();
      open.pop_back();
      if (next == of)
        return true;
      auto producer = producers.find(next);
      if (producer != producers.end() && seen.insert(next).second)
        open.insert(open.end(), producer->second->input().begin(), producer->second->input().end());
    }
    return false;
  }

  /// Nodes of one result whose elements are those of their first operand.
  static bool keepsZeros(const std::string &type) {
    return type == "Identity" || type == "Cast" || type == "Reshape" || type == "Transpose" || type == "Squeeze" ||
           type == "Unsqueeze" || type == "Flatten";
  }

  /// None where they are not known. A Cast to the type that there is already computes nothing, and has no sizes of its own.
  const std::vector<std::string> *sizesOf(const std::string &value) const {
    auto producer = producers.find(value);
    auto known = sizes.find(producer == producers.end() ? value : nameOf(*producer->second));
    if (known != sizes.end())
      return &known->second;
    const bool passes = producer != producers.end() && isDefault(*producer->second) &&
                        (producer->second->op_type() == "Cast" || producer->second->op_type() == "Identity");
    return passes ? sizesOf(producer->second->input(0)) : nullptr;
  }

  std::string reasonToStay(const onnx::NodeProto &add, Found &one) {
    const std::string &x = add.input(one.shortcut);
    std::string value = add.input(1 - one.shortcut);
    const std::vector<std::string> *before = sizesOf(x), *after = sizesOf(add.output(0));
    if (checksSizes && (!before || !after || *before != *after))
      return "the sizes of '" + x + "' are not known to be those of the sum";
    while (true) {
      auto producer = producers.find(value);
      if (producer == producers.end())
        return "what it adds is no result of a node";
      if (model.uses[value] != 1)
        return "'" + value + "' is read by others, too";
      const onnx::NodeProto &node = *producer->second;
      std::vector<int> constants; // operands that make it zero
      int next = -1;
      if (isDefault(node) && keepsZeros(node.op_type())) {
        next = 0;
      } else if (isDefault(node) && node.op_type() == "Mul" &&
                 (model.constants.count(node.input(0)) || model.constants.count(node.input(1)))) {
        next = model.constants.count(node.input(0)) ? 1 : 0;
      } else if (isDefault(node) && node.op_type() == "Add" && node.input_size() == 2) {
        next = model.constants.count(node.input(0)) ? 1 : 0;
        constants = {1 - next};
      } else if (depthOf(node) || isConv(node)) {
        constants = {1};
        if (node.input_size() > 2)
          constants.push_back(2);
      } else if (isDefault(node) && node.op_type() == "BatchNormalization" && node.output_size() == 1) {
        constants = {1, 2};
      } else {
        return "it ends in '" + nameOf(node) + "' (" + node.op_type() + "), which zeros of constants do not make zero";
      }
      for (int i : constants) {
        const std::string &name = node.input(i);
        if (name.empty())
          continue;
        if (!model.constants.count(name))
          return "'" + name + "' is no constant of the graph";
        if (model.uses[name] != 1)
          return "'" + name + "' is tied to other nodes, which read it too";
        one.branch.constants.push_back(name);
      }
      if (next < 0)
        return {};
      value = node.input(next);
    }
  }

  /// The nodes that are dead when nothing reads `value` in `reader` any more.
  std::vector<std::string> onlyFor(const onnx::NodeProto &reader, const std::string &value) {
    std::map<std::string, int> uses = model.uses;
    std::vector<std::string> dead, open = {value};
    while (!open.empty()) {
      std::string next = open.back();
      open.pop_back();
      auto producer = producers.find(next);
      if (--uses[next] > 0 || producer == producers.end())
        continue;
      const auto &outputs = producer->second->output();
      if (std::any_of(outputs.begin(), outputs.end(), [&](const std::string &o) { return uses[o] > 0; }))
        continue;
      dead.push_back(nameOf(*producer->second));
      open.insert(open.end(), producer->second->input().begin(), producer->second->input().end());
    }
    return dead;
  }

  /// Nodes, constants and types of values that nothing reads any more, and something did.
  void removeDead(const std::map<std::string, int> &before) {
    std::set<std::string> gone;
    for (bool changed = true; changed;) {
      changed = false;
      model.index();
      std::vector<onnx::NodeProto> stay;
      for (auto &node : *graph.mutable_node()) {
        const bool dead = node.output_size() && std::all_of(node.output().begin(), node.output().end(), [&](const std::string &o) {
          auto was = before.find(o);
          return !model.uses.count(o) && was != before.end() && was->second > 0;
        });
        if (dead)
          gone.insert(node.output().begin(), node.output().end());
        else
          stay.emplace_back().Swap(&node);
        changed |= dead;
      }
      graph.clear_node();
      for (onnx::NodeProto &node : stay)
        graph.add_node()->Swap(&node);
    }
    model.index();
    auto &tensors = *graph.mutable_initializer();
    for (int i = tensors.size(); i-- > 0;)
      if (auto was = before.find(tensors[i].name()); was != before.end() && was->second && !model.uses.count(tensors[i].name())) {
        gone.insert(tensors[i].name());
        tensors.DeleteSubrange(i, 1);
      }
    auto &types = *graph.mutable_value_info();
    for (int i = types.size(); i-- > 0;)
      if (gone.count(types[i].name()))
        types.DeleteSubrange(i, 1);
    model.index();
  }

  Loaded &model;
  onnx::GraphProto &graph;
  std::map<std::string, onnx::NodeProto *> producers;
  std::map<std::string, std::vector<std::string>> sizes; ///< of results, by node, and of inputs
  const bool checksSizes;
};

Result<std::string> edited(const std::string &path, const std::set<std::string> &adds, bool inside,
                           void (Branches::*how)(const std::set<std::string> &)) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    Branches branches(model);
    branches.find();
    (branches.*how)(adds);
    for (auto &tensor : *model.proto.mutable_graph()->mutable_initializer())
      if (inside && tensor.data_location() == onnx::TensorProto::EXTERNAL)
        Loaded::store(tensor, model.read(tensor));
    return bytesOf(model, path);
  });
}

} // namespace

Result<ResidualBranches> residualBranches(const std::string &path, const sparsify::Coupling &coupling,
                                          sparsify::Score score, uint64_t seed,
                                          const std::map<std::string, HostTensor> &gradients) {
  return guarded<ResidualBranches>(path, [&]() -> Result<ResidualBranches> {
    Loaded model(path);
    Branches branches(model, &coupling);
    branches.find();
    ResidualBranches result;
    result.kept = branches.kept;
    std::mt19937_64 gen(seed);
    for (Branches::Found &one : branches.found) {
      const double drawn = double(gen() >> 11) * 0x1p-53;
      double sum = 0;
      int64_t count = 0;
      for (const std::string &name : one.branch.constants) {
        const HostTensor values = model.read(*model.constants.at(name));
        auto gradient = gradients.find(name);
        if (score == sparsify::Score::Taylor && (gradient == gradients.end() || gradient->second.dims != values.dims))
          return invalidError(gradient == gradients.end() ? "has no gradient" : "has a gradient of other sizes",
                              path + ": weight '" + name + "'");
        for (int64_t i = 0; i < values.count(); ++i) {
          const double x = values.real(i);
          sum += score == sparsify::Score::Taylor ? x * gradient->second.real(i) : score == sparsify::Score::L2 ? x * x : std::fabs(x);
        }
        count += values.count();
      }
      one.branch.score = score == sparsify::Score::Random   ? drawn
                         : score == sparsify::Score::Taylor ? std::fabs(sum)
                                                            : sum / double(std::max<int64_t>(1, count));
      result.branches.push_back(std::move(one.branch));
    }
    return result;
  });
}

Result<std::string> modelWithoutBranches(const std::string &path, const std::set<std::string> &adds, bool inside) {
  return edited(path, adds, inside, &Branches::drop);
}

Result<std::string> modelWithZeroBranches(const std::string &path, const std::set<std::string> &adds, bool inside) {
  return edited(path, adds, inside, &Branches::zero);
}

} // namespace lathe
