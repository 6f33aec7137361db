//===- Node.h - one ONNX node, as its handler sees it -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A handler reads operands and attributes, makes lathe ops with `e`, and sets
// the results; or says why it cannot. Integer tensors that are known as
// dimension expressions are host values: `host(i)`; asking for them as data,
// `in(i)`, materialises them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_LEGALIZE_NODE_H
#define LATHE_PASSES_LEGALIZE_NODE_H

#include "Emitter.h"

#include "lathe/passes/Legalize.h"

#include "llvm/ADT/StringMap.h"

#include <memory>

namespace lathe::legal {

/// Known elements of a small integer (or bool) tensor, in row-major order.
struct HostValue {
  mlir::Type element;
  Ints shape;
  Dims values;
  /// All elements, when they are constants.
  std::optional<Ints> constants() const;
};

/// A sequence or an optional whose length the run knows: the number of a list of the runtime (runtime/host/Lists.h).
struct RunList {
  mlir::Value handle;       ///< i64 without dimensions
  mlir::Type element;       ///< of its tensors; null where none has been put in yet
  mlir::TensorType stated;  ///< then: what the body of a loop that carries it says of the tensors, or null
  std::optional<Ints> dims; ///< of each of its tensors, -1 where they may differ; none where their ranks may
  bool isOptional = false;  ///< it may be without a value
  bool isTensor = false;    ///< the value of the optional is the list's only tensor
  /// Of what loops carry, and of lists that are made of it, for each of these loops, the innermost last: by what sizes, as
  /// in `dims`, tensors were taken out. Those that iterations put in must have such sizes.
  std::vector<std::shared_ptr<std::vector<Ints>>> taken;
};

/// What is known of one ONNX value. An optional that has a value is that value. A map is two tensors, its keys and its
/// values; of a sequence of maps of the same keys, the rows of the values are the maps.
struct Tracked {
  mlir::Value data;
  std::optional<HostValue> host;
  bool failed = false;     ///< its producer could not be legalized
  bool isSequence = false; ///< then it has neither data nor host, but elements
  bool isEmpty = false;    ///< an optional without a value
  bool isMap = false;      ///< elements are keys and values; isSequence is set, too
  std::vector<Tracked> elements;
  std::optional<RunList> list; ///< then it has nothing of the above
  static Tracked sequence(std::vector<Tracked> elements);
};

class Legalizer;

class Node {
public:
  Node(Legalizer &legalizer, mlir::Operation *op);

  mlir::Operation *op;
  Legalizer &legalizer;
  Emitter &e;
  llvm::StringRef type;   ///< "Conv"; of torch "add.Tensor"
  llvm::StringRef domain; ///< "" for ai.onnx, kAtenDomain for the aten dialect
  int64_t opset;

  unsigned numInputs() const { return op->getNumOperands(); }
  unsigned numOutputs() const { return op->getNumResults(); }
  bool has(unsigned i) const;
  /// Whether an output is used by anything.
  bool wants(unsigned i) const { return i < numOutputs() && !op->getResult(i).use_empty(); }
  /// The operand as data; null, with e.error, when it is absent or no tensor.
  mlir::Value in(unsigned i);
  Dims dims(unsigned i);
  int64_t rank(unsigned i);
  mlir::Type element(unsigned i);
  std::optional<HostValue> host(unsigned i);
  /// host(), or what is bound when a run begins or when it has computed that, no less than `least`.
  std::optional<HostValue> bound(unsigned i, std::optional<int64_t> least);
  /// The operand as one whole number of any type, so far as it is known then.
  std::optional<DimExpr> whole(unsigned i);
  /// Legalizer::derive(), named after the node.
  DimExpr derive(llvm::Twine hint, const DimExpr &formula, DimRange bounds = {});
  /// A size that the run counts: a computed i64 without dimensions, at most `most` where that is
  /// known.
  DimExpr sizeOf(mlir::Value count, const std::optional<DimExpr> &most);
  /// 1 for each dimension that one of the axes names, else 0; negative axes count from the end.
  /// The run fails where an axis is outside the rank or named twice.
  Dims named(llvm::ArrayRef<DimExpr> axes, int64_t rank);
  /// Dimension i of those that are left when some, marked by 1, are dropped.
  DimExpr kept(llvm::ArrayRef<DimExpr> dims, llvm::ArrayRef<DimExpr> dropped, int64_t i);
  /// The run fails unless the formula is 0.
  void demandZero(llvm::Twine hint, const DimExpr &formula);
  /// Operand i as constants; none when absent or not known.
  std::optional<Ints> ints(unsigned i);
  /// Operand i as one number (integers and floats); none when not constant.
  std::optional<double> number(unsigned i);
  /// Whether operand i is strings: in(i) is their numbers then.
  bool isStrings(unsigned i) const;

  bool hasAttr(llvm::StringRef name) const { return bool(op->getAttr(name)); }
  int64_t intAttr(llvm::StringRef name, int64_t otherwise);
  double floatAttr(llvm::StringRef name, double otherwise);
  std::string strAttr(llvm::StringRef name, llvm::StringRef otherwise);
  std::optional<Ints> intsAttr(llvm::StringRef name);
  std::optional<std::vector<double>> floatsAttr(llvm::StringRef name);

  mlir::LogicalResult set(unsigned i, mlir::Value value);
  /// set() of numbers that stand for strings.
  mlir::LogicalResult setStrings(unsigned i, mlir::Value value);
  mlir::LogicalResult setHost(unsigned i, HostValue value);
  /// A result that may be a sequence or an optional; always success.
  mlir::LogicalResult setTracked(unsigned i, Tracked value);
  /// The elements of an operand that is a sequence; none, with a report, for what is none.
  std::optional<std::vector<Tracked>> sequence(unsigned i);
  /// An operand of any kind.
  const Tracked &tracked(unsigned i);
  /// set(0, value).
  mlir::LogicalResult done(mlir::Value value) { return set(0, value); }

  /// The axis in [0, rank); none (with a report) when outside.
  std::optional<int64_t> axis(int64_t value, int64_t rank);
  std::optional<Ints> axes(llvm::ArrayRef<int64_t> values, int64_t rank);
  /// Makes two sizes equal that the op requires to be: by meaning, or by
  /// replacing a symbol everywhere. False when they are known to differ.
  bool unify(const DimExpr &a, const DimExpr &b);

  /// Reports. `cause` is op, attribute, dtype, shape or opset.
  mlir::LogicalResult fail(llvm::StringRef cause, llvm::Twine message, llvm::Twine nearest = "",
                           llvm::Twine remedy = "");
  /// Reports that operands are needed as constants while lathe compiles, and which
  /// inputs of the model would have to be.
  mlir::LogicalResult unknown(llvm::ArrayRef<unsigned> operands, llvm::Twine what);
  /// The model is wrong here.
  mlir::LogicalResult invalid(llvm::StringRef cause, llvm::Twine message);
  bool reported = false;
  /// Set by a handler that fails in favour of the schema's function body.
  bool useBody = false;
};

/// 1 where they are equal, else 0.
DimExpr equalDims(const DimExpr &a, const DimExpr &b);

using Handler = mlir::LogicalResult (*)(Node &);
using Handlers = llvm::StringMap<Handler>;

// Each family adds its handlers, keyed by op name, or "domain.name" outside of ai.onnx.
void addElementwise(Handlers &);
void addActivations(Handlers &);
void addLogic(Handlers &);
void addReductions(Handlers &);
void addSelections(Handlers &);
void addMovement(Handlers &);
void addSlices(Handlers &);
void addShapes(Handlers &);
void addGathers(Handlers &);
void addContractions(Handlers &);
void addConvolutions(Handlers &);
void addPooling(Handlers &);
void addNormalizations(Handlers &);
void addAttention(Handlers &);
void addGridSample(Handlers &);
void addQuantization(Handlers &);
void addRecurrent(Handlers &);
void addResize(Handlers &);
void addFourier(Handlers &);
void addMachineLearning(Handlers &);
void addLinearModels(Handlers &);
void addMaps(Handlers &);
void addOptimizers(Handlers &);
void addLists(Handlers &);
void addSequences(Handlers &);
void addGradient(Handlers &);
void addRandom(Handlers &);
void addTrees(Handlers &);
void addStrings(Handlers &);
void addImages(Handlers &);
void addMicrosoft(Handlers &);
/// Keyed "aten.add", or for one overload "aten.max.dim".
void addAten(Handlers &);
/// All of them.
const Handlers &handlers();

/// Whether an op of ai.onnx takes sequences and optionals.
bool takesSequences(llvm::StringRef type);

/// The domain of ops of the aten dialect.
inline constexpr const char *kAtenDomain = "aten";

/// The domain of nodes that call the user's own functions.
inline constexpr const char *kCustomDomain = "lathe.custom";

/// A node of a domain without schemas as a call of the user's function.
mlir::LogicalResult customCall(Node &node);

/// Computes a node whose operands are known on the host; success when it did.
/// It leaves no trace otherwise.
mlir::LogicalResult evaluateOnHost(Node &node);

/// The type for an ONNX element type number (attribute `to` of Cast); null when
/// lathe has none.
mlir::Type elementFor(mlir::MLIRContext *context, int64_t onnxType);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_NODE_H
