//===- SliceModel.cpp - ONNX models with narrower layers ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   y = MatMul(x, w1 : 768x3072), z = MatMul(y, w2 : 3072x768)    =>    w1 : 768x1536, w2 : 1536x768
//
// The file's own message is edited. A node that states a size in a way that is not known here is left
// as it is: whoever slices compares the sizes of the new model with those that the coupling tells.
//
//===----------------------------------------------------------------------===//
#include "lathe/import/SliceModel.h"

#include "EditModel.h"

#include "onnx/shape_inference/implementation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

namespace lathe {
namespace {

using namespace edit;
using sparsify::Coupling;

/// The constants of a model by what a Coupling calls them: initializers by their names, others by their nodes'.
std::map<std::string, onnx::TensorProto *> byName(Loaded &model) {
  std::map<std::string, onnx::TensorProto *> found;
  for (const auto &[name, tensor] : model.constants)
    found.insert({name, tensor});
  for (const auto &node : model.proto.graph().node())
    if (isConstant(node) && model.constants.count(node.output(0)))
      found.insert({node.name(), model.constants.at(node.output(0))});
  return found;
}

bool fits(const onnx::TensorProto &proto, const Coupling::Tensor &tensor) {
  if (size_t(proto.dims_size()) != tensor.dims.size())
    return false;
  for (size_t d = 0; d < tensor.dims.size(); ++d)
    if (proto.dims(int(d)) != tensor.dims[d].size)
      return false;
  return true;
}

class Slicer : public Editor {
public:
  Slicer(Loaded &model, const Coupling &coupling, const std::set<int64_t> &units)
      : Editor(model), coupling(coupling), units(units) {}

  void slice() {
    for (const Coupling::Tensor &tensor : coupling.tensors)
      if (!tensor.op.empty())
        results[tensor.node] = &tensor; // the last of a node is its result
    for (auto &node : *graph.mutable_node())
      if (isDefault(node) || node.domain() == "com.microsoft")
        edit(node);
    for (auto &[tensor, removed] : removals())
      Loaded::store(*tensor, sparsify::without(model.read(*tensor), removed));
    refreshTypes();
  }

  void mask() {
    for (auto &[tensor, removed] : removals(/*products=*/true)) {
      HostTensor values = model.read(*tensor);
      sparsify::clear(values, removed);
      Loaded::store(*tensor, values);
    }
  }

private:
  using Removed = std::vector<std::vector<int64_t>>;

  bool isGone(int64_t element) const { return units.count(coupling.unitOf(element)); }
  int64_t staying(const Coupling::Dim &dim, int64_t begin, int64_t end) const {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i)
      count += !isGone(dim.at(i));
    return count;
  }
  int64_t staying(const Coupling::Dim &dim) const { return staying(dim, 0, dim.size); }

  std::vector<std::pair<onnx::TensorProto *, Removed>> removals(bool products = false) {
    std::vector<std::pair<onnx::TensorProto *, Removed>> list;
    std::map<std::string, onnx::TensorProto *> constants = byName(model);
    for (const Coupling::Tensor &tensor : coupling.tensors) {
      if (!tensor.op.empty() || (products && !tensor.product))
        continue;
      Removed removed(tensor.dims.size());
      bool any = false;
      for (size_t d = 0; d < tensor.dims.size(); ++d)
        for (int64_t i = 0; i < tensor.dims[d].size; ++i)
          if (isGone(tensor.dims[d].at(i)))
            removed[d].push_back(i), any = true;
      auto found = constants.find(tensor.node);
      if (any && found != constants.end() && fits(*found->second, tensor))
        list.push_back({found->second, std::move(removed)});
    }
    return list;
  }

  void edit(onnx::NodeProto &node) {
    auto found = results.find(node.name());
    const std::string &type = node.op_type();
    if (type == "Split" || type == "Slice")
      return editCuts(node);
    if (found == results.end())
      return;
    const std::vector<Coupling::Dim> &dims = found->second->dims;
    if ((type == "Reshape" || type == "Expand") && node.input_size() == 2) {
      std::vector<std::pair<int64_t, int64_t>> sizes; // from the last dimension on
      bool changes = false;
      for (size_t d = 0; d < dims.size(); ++d)
        if (dims[d].size) {
          sizes.push_back({int64_t(type == "Expand" ? dims.size() - d : d), staying(dims[d])});
          changes |= sizes.back().second != dims[d].size;
        }
      if (changes)
        node.set_input(1, withSizes(node.input(1), sizes, type == "Expand", int64_t(dims.size())));
    } else if (type == "Conv" || type == "ConvTranspose") {
      const int64_t group = attribute(node, "group");
      if (group > 1 && dims.size() > 1 && dims[1].size)
        scale(node, "group", dims[1]);
    } else if (!dims.empty() && dims.back().size) {
      for (const char *name : {"num_heads", "q_num_heads", "kv_num_heads"})
        if (attribute(node, name) > 0)
          scale(node, name, dims.size() == 4 ? dims[1] : dims.back());
    }
  }

  /// A number of groups or heads, as many times smaller as the dimension.
  void scale(onnx::NodeProto &node, const char *name, const Coupling::Dim &dim) {
    for (auto &a : *node.mutable_attribute())
      if (a.name() == name)
        a.set_i(a.i() * staying(dim) / dim.size);
  }

  /// A value that states sizes, with these in their places: of constants, alone or joined by a Concat of as many as
  /// `rank`, where these take the place of what is computed, too (a width over a number of heads).
  std::string withSizes(const std::string &value, const std::vector<std::pair<int64_t, int64_t>> &sizes, bool fromLast,
                        int64_t rank) {
    if (auto known = model.constants.find(value); known != model.constants.end()) {
      HostTensor data = model.read(*known->second);
      bool changed = false;
      for (auto [place, size] : sizes) {
        const int64_t at = fromLast ? data.count() - place : place;
        if (at < 0 || at >= data.count() || data.integer(at) <= 0 || (fromLast && data.integer(at) == 1))
          continue;
        changed |= data.integer(at) != size;
        data.setInteger(at, size);
      }
      return changed ? constant(value + "_narrower", data) : value;
    }
    onnx::NodeProto *producer = producerOf(value);
    if (!producer || model.uses[value] != 1)
      return value;
    if (passesOn(*producer)) {
      producer->set_input(0, withSizes(producer->input(0), sizes, fromLast, rank));
      return value;
    }
    if (producer->op_type() != "Concat")
      return value;
    int64_t total = 0;
    std::vector<int64_t> starts;
    for (const std::string &piece : producer->input()) {
      starts.push_back(total);
      total += countOf(piece);
    }
    for (int k = 0; k < producer->input_size(); ++k) {
      const int64_t count = (k + 1 < producer->input_size() ? starts[k + 1] : total) - starts[k];
      std::vector<std::pair<int64_t, int64_t>> mine;
      for (auto [place, size] : sizes)
        if (int64_t at = fromLast ? total - place : place; at >= starts[k] && at < starts[k] + count)
          mine.push_back({at - starts[k], size});
      if (mine.size() == 1 && count == 1 && total == rank && isComputed(producer->input(k)) && followsWidths(producer->input(k))) {
        HostTensor data(DType::I64, {1});
        data.setInteger(0, mine[0].second);
        producer->set_input(k, constant(producer->input(k) + "_narrower", data));
      } else if (!mine.empty()) {
        producer->set_input(k, withSizes(producer->input(k), mine, false, 0));
      }
    }
    return value;
  }

  onnx::NodeProto *producerOf(const std::string &value) {
    for (auto &node : *graph.mutable_node())
      if (node.output_size() == 1 && node.output(0) == value && isDefault(node))
        return &node;
    return nullptr;
  }
  /// Whether a node gives the numbers that it reads, in the same order.
  static bool passesOn(const onnx::NodeProto &node) {
    const std::string &type = node.op_type();
    return type == "Cast" || type == "Identity" || type == "Unsqueeze" || type == "Squeeze";
  }
  bool isComputed(const std::string &value) {
    onnx::NodeProto *producer = producerOf(value);
    return !model.constants.count(value) && (!producer || !passesOn(*producer) || isComputed(producer->input(0)));
  }
  /// Whether a node's result has fewer elements now, along an axis or, for none, any.
  bool isNarrower(const onnx::NodeProto &node, std::optional<int64_t> axis) {
    auto found = results.find(node.name());
    if (found == results.end())
      return false;
    const std::vector<Coupling::Dim> &dims = found->second->dims;
    for (int64_t d = 0, rank = int64_t(dims.size()); d < rank; ++d)
      if ((!axis || *axis == d || *axis + rank == d) && staying(dims[d]) != dims[d].size)
        return true;
    return false;
  }
  /// Whether a computed size may be another one now. Sizes of the model's inputs stay what they are, and are the run's also
  /// where --dim fixed them to find what belongs together.
  bool followsWidths(const std::string &value) {
    std::set<std::pair<std::string, std::optional<int64_t>>> seen;
    return followsWidths(value, {}, seen);
  }
  bool followsWidths(const std::string &value, std::optional<int64_t> axis,
                     std::set<std::pair<std::string, std::optional<int64_t>>> &seen) {
    if (model.constants.count(value) || !seen.insert({value, axis}).second)
      return false;
    onnx::NodeProto *producer = producerOf(value);
    if (!producer)
      return false;
    if (producer->op_type() == "Shape") {
      const std::string &of = producer->input(0);
      onnx::NodeProto *maker = producerOf(of);
      return model.constants.count(of) || (maker && isNarrower(*maker, axis));
    }
    if (producer->op_type() == "Gather" && producer->input_size() == 2)
      if (auto index = model.constants.find(producer->input(1)); index != model.constants.end())
        if (HostTensor places = model.read(*index->second); places.count() == 1)
          return followsWidths(producer->input(0), places.integer(0), seen);
    return std::any_of(producer->input().begin(), producer->input().end(),
                       [&](const std::string &input) { return followsWidths(input, {}, seen); });
  }
  /// How many numbers a value has. What is computed is one size, as exporters write them.
  int64_t countOf(const std::string &value) {
    if (auto known = model.constants.find(value); known != model.constants.end())
      return model.read(*known->second).count();
    onnx::NodeProto *producer = producerOf(value);
    return producer && passesOn(*producer) ? countOf(producer->input(0)) : 1;
  }

  void editCuts(onnx::NodeProto &node) {
    std::vector<const Coupling::Cut *> cuts;
    for (const Coupling::Cut &cut : coupling.cuts)
      if (cut.node == node.name() && staying(cut.from) != cut.from.size)
        cuts.push_back(&cut);
    if (cuts.empty())
      return;
    if (node.op_type() == "Split") {
      std::stable_sort(cuts.begin(), cuts.end(), [](auto *a, auto *b) { return a->begin < b->begin; });
      HostTensor sizes(DType::I64, {int64_t(cuts.size())});
      for (size_t i = 0; i < cuts.size(); ++i)
        sizes.setInteger(int64_t(i), staying(cuts[i]->from, cuts[i]->begin, cuts[i]->end));
      if (model.opset() < 13) {
        for (auto &a : *node.mutable_attribute())
          if (a.name() == "split" && a.ints_size() == int(cuts.size()))
            for (size_t i = 0; i < cuts.size(); ++i)
              a.set_ints(int(i), sizes.integer(int64_t(i)));
        return;
      }
      while (node.input_size() < 2)
        node.add_input("");
      node.set_input(1, constant(node.name() + "_sizes", sizes));
      auto &attributes = *node.mutable_attribute();
      for (int i = attributes.size(); i-- > 0;)
        if (attributes[i].name() == "num_outputs")
          attributes.DeleteSubrange(i, 1);
      return;
    }
    for (const Coupling::Cut *cut : cuts)
      editSlice(node, *cut);
  }

  [[noreturn]] static void notEdited(const onnx::NodeProto &node) {
    raise(ErrorCode::Unsupported, "states where it begins and ends in a way that is not edited", node.name());
  }

  /// Where a slice begins and ends. What the file computes from other sizes (from half of a residual's channels on) is
  /// stated from now on, where the node cuts no other dimension.
  void editSlice(onnx::NodeProto &node, const Coupling::Cut &cut) {
    if (node.input_size() < 3)
      notEdited(node);
    const int64_t rank = results.count(node.name()) ? int64_t(results.at(node.name())->dims.size()) : 0;
    int64_t place = cut.axis;
    std::optional<HostTensor> only; // a number in place of one that is computed
    if (node.input_size() > 3 && !node.input(3).empty()) {
      if (!model.constants.count(node.input(3)))
        notEdited(node);
      HostTensor axes = model.read(*model.constants.at(node.input(3)));
      if (axes.count() == 1)
        only.emplace(axes.dtype, axes.dims);
      place = -1;
      for (int64_t i = 0; i < axes.count(); ++i)
        if ((axes.integer(i) + rank) % std::max<int64_t>(1, rank) == cut.axis)
          place = i;
    }
    auto numbersOf = [&](const std::string &value) {
      auto known = model.constants.find(value);
      return known == model.constants.end() ? only : model.read(*known->second);
    };
    std::optional<HostTensor> starts = numbersOf(node.input(1)), ends = numbersOf(node.input(2));
    if (!starts || !ends || place < 0 || place >= starts->count() || place >= ends->count())
      notEdited(node);
    starts->setInteger(place, staying(cut.from, 0, cut.begin));
    ends->setInteger(place, staying(cut.from, 0, cut.end));
    node.set_input(1, constant(node.name() + "_starts", *starts));
    node.set_input(2, constant(node.name() + "_ends", *ends));
    model.index();
  }

  /// The types that the file states of values in between, as they are now.
  void refreshTypes() {
    std::vector<onnx::ValueInfoProto> stated(graph.value_info().begin(), graph.value_info().end());
    if (stated.empty())
      return;
    const std::map<std::string, onnx::TensorProto *> constants = byName(model);
    graph.clear_value_info();
    onnx::shape_inference::InferShapes(model.proto);
    std::map<std::string, onnx::ValueInfoProto> inferred;
    for (const auto &value : graph.value_info())
      inferred[value.name()] = value;
    graph.clear_value_info();
    for (onnx::ValueInfoProto &value : stated) {
      auto found = inferred.find(value.name());
      if (auto known = constants.find(value.name()); known != constants.end()) {
        auto &shape = *value.mutable_type()->mutable_tensor_type()->mutable_shape();
        shape.clear_dim();
        for (int64_t size : known->second->dims())
          shape.add_dim()->set_dim_value(size);
      } else if (value.type().has_tensor_type() && found != inferred.end())
        *value.mutable_type() = found->second.type();
      else if (value.type().has_tensor_type())
        value.mutable_type()->mutable_tensor_type()->clear_shape();
      *graph.add_value_info() = value;
    }
  }

  const Coupling &coupling;
  const std::set<int64_t> &units;
  std::map<std::string, const Coupling::Tensor *> results;
};

Result<std::string> edited(const std::string &path, const Coupling &coupling, const std::set<int64_t> &units, bool inside,
                           void (Slicer::*how)()) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    const std::vector<std::string> names = giveNames(*model.proto.mutable_graph());
    Slicer slicer(model, coupling, units);
    (slicer.*how)();
    for (size_t i = 0; i < names.size(); ++i)
      model.proto.mutable_graph()->mutable_node(int(i))->set_name(names[i]);
    return bytesOf(model, path, inside);
  });
}

} // namespace

Result<std::map<std::string, std::string>> unslicedConstants(const std::string &path, const Coupling &coupling) {
  using Reasons = std::map<std::string, std::string>;
  return guarded<Reasons>(path, [&]() -> Result<Reasons> {
    Loaded model(path);
    giveNames(*model.proto.mutable_graph());
    std::map<std::string, onnx::TensorProto *> constants = byName(model);
    Reasons reasons;
    for (const Coupling::Tensor &tensor : coupling.tensors) {
      auto found = constants.find(tensor.node);
      const bool divides = std::any_of(tensor.dims.begin(), tensor.dims.end(), [](const auto &dim) { return dim.size > 1; });
      if (tensor.op.empty() && divides && (found == constants.end() || !fits(*found->second, tensor)))
        reasons[tensor.node] = "'" + tensor.node + "' is no constant of the file alone";
    }
    return reasons;
  });
}

Result<std::map<int64_t, double>> unitScores(const std::string &path, const Coupling &coupling,
                                             const std::vector<sparsify::Family> &families, sparsify::Score score,
                                             uint64_t seed, const std::map<std::string, HostTensor> &gradients) {
  using Scores = std::map<int64_t, double>;
  return guarded<Scores>(path, [&]() -> Result<Scores> {
    Scores scores;
    std::mt19937_64 gen(seed);
    for (const sparsify::Family &family : families)
      for (int64_t unit : family.units)
        scores[unit] = score == sparsify::Score::Random ? double(gen() >> 11) * 0x1p-53 : 0;
    if (score == sparsify::Score::Random)
      return scores;
    Loaded model(path);
    giveNames(*model.proto.mutable_graph());
    std::map<std::string, onnx::TensorProto *> constants = byName(model);
    for (const Coupling::Tensor &tensor : coupling.tensors) {
      auto found = constants.find(tensor.node);
      if (!tensor.product || found == constants.end() || !fits(*found->second, tensor))
        continue;
      std::optional<HostTensor> values;
      for (size_t d = 0; d < tensor.dims.size(); ++d) {
        bool any = false;
        for (int64_t i = 0; i < tensor.dims[d].size && !any; ++i)
          any = scores.count(coupling.unitOf(tensor.dims[d].at(i)));
        if (!any)
          continue;
        if (!values)
          values = model.read(*found->second);
        std::vector<double> sums;
        if (score == sparsify::Score::Taylor) {
          auto gradient = gradients.find(tensor.node);
          if (gradient == gradients.end() || gradient->second.dims != values->dims)
            return invalidError(gradient == gradients.end() ? "has no gradient" : "has a gradient of other sizes",
                                path + ": weight '" + tensor.node + "'");
          sums = sparsify::axisDots(*values, gradient->second, int64_t(d));
        } else {
          sums = sparsify::axisScores(*values, int64_t(d), score);
        }
        for (int64_t i = 0; i < tensor.dims[d].size; ++i)
          if (auto unit = scores.find(coupling.unitOf(tensor.dims[d].at(i))); unit != scores.end())
            unit->second += sums[i];
      }
    }
    for (auto &[unit, value] : scores)
      value = std::fabs(value);
    return scores;
  });
}

Result<std::string> slicedModel(const std::string &path, const Coupling &coupling, const std::set<int64_t> &units, bool inside) {
  return edited(path, coupling, units, inside, &Slicer::slice);
}

Result<std::string> maskedModel(const std::string &path, const Coupling &coupling, const std::set<int64_t> &units, bool inside) {
  return edited(path, coupling, units, inside, &Slicer::mask);
}

} // namespace lathe
