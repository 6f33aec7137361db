//===- GraphBuilder.h - a model in the making -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makers of nodes (Makers.h) pick values that are there, or ask for new ones, and
// add nodes whose results they describe. Protobuf throws: so may all functions here.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_FUZZ_GRAPHBUILDER_H
#define LATHE_TEST_FUZZ_GRAPHBUILDER_H

#include "Random.h"

#include "lathe/support/HostTensor.h"

#include "onnx/onnx_pb.h"

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace lathe::fuzz {

using Dims = std::vector<int64_t>;
constexpr int64_t kUnknown = -1; ///< a size that only the run knows

/// Elements of a value at most: the reference is slow.
constexpr int64_t kMaxElements = 3000;

struct Value {
  std::string name; ///< empty: none
  DType dtype = DType::F32;
  Dims dims;
  double most = 1;     ///< no element is larger, by magnitude
  bool positive = false; ///< no element is below 0
  std::vector<std::string> from = {}; ///< names of the operands that it was computed of

  int64_t rank() const { return int64_t(dims.size()); }
  bool isKnown() const;
  int64_t count() const; ///< of a known value
  explicit operator bool() const { return !name.empty(); }
};

using Attr = std::variant<int64_t, double, std::string, Dims, std::vector<double>,
                          std::shared_ptr<onnx::GraphProto>>;
using Attrs = std::vector<std::pair<std::string, Attr>>;
using Condition = std::function<bool(const Value &)>;

/// Thrown by a node whose schema does not take its operands' types.
struct Refused {};

enum class Source { Any, Input, Constant };

class GraphBuilder {
public:
  GraphBuilder(uint64_t seed, int64_t opset);

  Random random;
  const int64_t opset;
  /// Whether inputs have NaN, infinities, zeros of both signs and denormals. Makers whose op does not
  /// say what it makes of those stay away.
  bool special = false;

  //===--- values ---------------------------------------------------------===//

  /// A value that is there and fits, rather a recent one; none: an empty one.
  Value pick(const Condition &fits);
  /// Such a value, or a new one.
  Value pickOr(const Condition &fits, const std::function<Value()> &other);
  /// Numbers up to `most` by magnitude (floats of both signs unless `positive`), as an input of the model or
  /// an initializer.
  Value fresh(DType dtype, Dims dims, double most = 0, Source source = Source::Any, bool positive = false);
  /// Integers from low to high.
  Value integers(DType dtype, Dims dims, int64_t low, int64_t high, Source source = Source::Any);
  Value constant(const HostTensor &tensor);
  Value vector(const std::vector<int64_t> &numbers); ///< i64, an initializer
  Value scalar(DType dtype, double number);          ///< an initializer

  int64_t size();                    ///< often small, seldom 0, 1, prime or large
  Dims dims(int64_t rank, int64_t maxElements = kMaxElements); ///< now and then one size several times
  DType floatType();
  DType integerType();

  //===--- nodes ----------------------------------------------------------===//

  /// Adds a node and gives its result, which other nodes may pick.
  Value node(const std::string &op, const std::vector<Value> &operands, DType dtype, Dims dims, double most,
             const Attrs &attrs = {}, bool positive = false);
  /// Several results, as described by `results`, whose names are made here.
  std::vector<Value> nodes(const std::string &op, const std::vector<Value> &operands,
                           std::vector<Value> results, const Attrs &attrs = {});
  int64_t nodeCount() const { return count; }

  /// Whether `make` gives true. Where it does not, or throws Refused, nothing of what it has added stays.
  bool attempt(const std::function<bool()> &make);

  /// Nodes go into a new graph until endGraph; values of the graphs around stay visible.
  void beginGraph();
  /// Such a graph with these results. Inputs are declared first. Values in it are visible no more.
  std::shared_ptr<onnx::GraphProto> endGraph(const std::vector<Value> &inputs,
                                             const std::vector<Value> &outputs);
  /// A value that the graph in the making gets as an input.
  Value declare(DType dtype, Dims dims, double most);
  size_t depth() const { return graphs.size() - 1; }
  /// How many values are visible, for picking inside alone.
  const std::vector<Value> &visible() const { return values; }
  void hideSince(size_t mark) { values.resize(mark); }

  /// The model, whose outputs are the values that no node reads and some others. `symbolic`: each size of
  /// each input has a name of its own.
  std::string finish(bool symbolic);
  const std::vector<HostTensor> &inputs() const { return inputValues; }

private:
  Value add(const HostTensor &tensor, double most, Source source, bool positive);
  std::string freshName(const char *prefix);
  void chooseOutputs();
  onnx::GraphProto &graph() { return *graphs.back(); }

  onnx::ModelProto model;
  std::vector<std::shared_ptr<onnx::GraphProto>> graphs; ///< the model's at the front
  std::vector<Value> values;
  std::vector<size_t> marks; ///< how many values there were before each inner graph
  std::vector<HostTensor> inputValues;
  int64_t count = 0, names = 0;
  bool outputsChosen = false;

  void checkTypes(const onnx::NodeProto &node, const std::vector<Value> &operands, const std::vector<Value> &results);
};

onnx::TensorProto_DataType onnxType(DType dtype);
/// Gives each size of each input a name of its own, and leaves those of outputs open.
void makeSymbolic(onnx::ModelProto &model);
/// The largest magnitude that a maker should let a type have.
double limitOf(DType dtype);
/// The sizes of operands that broadcast, or none where they do not or are not known.
bool broadcast(const Dims &a, const Dims &b, Dims &result);
int64_t product(const Dims &dims);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_GRAPHBUILDER_H
