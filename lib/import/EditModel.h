//===- EditModel.h - an ONNX model that is edited in place ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What quantizing a model and observing one have in common: the file's own message, what of it is constant, and
// nodes added to it. Everything here throws ImportError; `guarded` is the border.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_EDITMODEL_H
#define LATHE_IMPORT_EDITMODEL_H

#include "Proto.h"

#include "lathe/quantize/Recipe.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe::edit {

using onnxmodel::ImportError;

[[noreturn]] void raise(ErrorCode code, std::string what, std::string where);

struct Loaded {
  onnx::ModelProto proto;
  std::unique_ptr<onnxmodel::ExternalFiles> external;
  std::map<std::string, onnx::TensorProto *> constants; ///< without those that an input may replace
  std::map<std::string, int> uses; ///< of values, in nodes of all graphs, and as results

  explicit Loaded(const std::string &path);
  /// What the members below `proto` say of it.
  void index();
  HostTensor read(const onnx::TensorProto &tensor);
  /// The tensor holds these values from now on, inside of the file.
  static void store(onnx::TensorProto &tensor, const HostTensor &values);
  /// Whether a constant is of F16 or BF16, and so may be values.
  bool hasHalf() const;
  int64_t opset() const;

private:
  void count(const onnx::GraphProto &graph);
};

/// Runs `body`, whose exceptions become its Status.
template <typename T, typename Body> Result<T> guarded(const std::string &path, Body body) try {
  return body();
} catch (const ImportError &error) {
  return error.status;
} catch (const std::exception &error) {
  return invalidError(error.what(), path);
}

/// Converts a model of an older opset than `target`, by ONNX's own converter; the sentence that says so, or none. What
/// describes the model is kept. Throws where that cannot be done.
std::string convertTo(Loaded &model, int64_t target, int64_t irVersion, const std::string &path);
/// The same for what a scheme or a recipe writes.
std::string convertFor(Loaded &model, const quantize::Scheme &scheme, const std::string &path);
std::string convertFor(Loaded &model, const quantize::Recipe &recipe, const std::string &path);

/// The file's bytes. Unsupported above 2 GB.
Result<std::string> bytesOf(const Loaded &model, const std::string &path);
/// The same, with all weights inside if `inside`.
Result<std::string> bytesOf(Loaded &model, const std::string &path, bool inside);

/// What lies outside is not found from where the model will be.
void bringInside(Loaded &model);
/// Gives each node a name of its own: nodes without one, or with another's, get that of their first result. The names
/// that they had.
std::vector<std::string> giveNames(onnx::GraphProto &graph);

/// F16 or BF16 of a constant that has it, else F32.
DType typeOf(const onnx::TensorProto &tensor);
std::string nameOf(const onnx::NodeProto &node);
bool isConstant(const onnx::NodeProto &node);
/// Of ONNX's own domain.
bool isDefault(const onnx::NodeProto &node);
/// 0 where there is none.
int64_t attribute(const onnx::NodeProto &node, const std::string &name);
/// Which dimension of the right operand of a product is summed over; none for other nodes.
std::optional<int64_t> depthOf(const onnx::NodeProto &node);
/// A convolution; transposed ones are another op.
bool isConv(const onnx::NodeProto &node);
/// The dimension of scales of the right operand of a product, or of filters; none for other nodes.
std::optional<int64_t> scaleAxisOf(const onnx::NodeProto &node);

/// Adds nodes and constants, with names that nothing has.
class Editor {
public:
  explicit Editor(Loaded &model) : model(model), graph(*model.proto.mutable_graph()) { names(graph); }

protected:
  using Attributes = std::vector<std::pair<const char *, int64_t>>;
  std::string fresh(const std::string &wanted);
  std::string constant(const std::string &name, const HostTensor &value);
  /// A node of one result, at the end of the graph; its result.
  std::string add(const char *type, const std::string &of, const std::string &result,
                  const std::vector<std::string> &inputs, const Attributes &attributes = {},
                  const std::vector<std::string> &moreResults = {});
  static void setAttribute(onnx::NodeProto &node, const char *name, int64_t value);
  /// The model uses ops of this domain.
  void import(const char *domain);

  Loaded &model;
  onnx::GraphProto &graph;

private:
  void names(const onnx::GraphProto &g);
  std::set<std::string> taken;
};

/// Divides activations by a recipe's factors, and multiplies the weights that read them: in what makes the activation
/// (a norm's scale, a product by a constant, the weights of a layer, also through a Relu or a pool) where nothing else reads
/// it, else by a node ahead of its readers. The model means the same. Throws where the recipe is of another model.
class Smoother : public Editor {
public:
  Smoother(Loaded &model, const quantize::Recipe &recipe, const std::string &recipePath)
      : Editor(model), recipe(recipe), recipePath(recipePath) {}
  /// What each activation is called behind its division.
  std::map<std::string, std::string> run();

protected:
  /// Constants that are divided by the factors of a value along an axis, so that the value is.
  struct Fold {
    std::vector<std::pair<onnx::TensorProto *, int>> constants;
    const onnx::NodeProto *layer = nullptr; ///< a product or convolution, if one makes the value
  };
  /// None where the value cannot be divided in what makes it. `image`: channels are the second dimension, else the last.
  std::optional<Fold> foldOf(const std::string &value, int64_t channels, bool image);

private:
  [[noreturn]] void foreign(const std::string &what, const std::string &name);
  const quantize::Recipe &recipe;
  const std::string &recipePath;
};

} // namespace lathe::edit

#endif // LATHE_IMPORT_EDITMODEL_H
