//===- LatheAttributes.cpp - #lathe.dim, #lathe.t, #lathe.weight ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"

#include "lathe/support/RandomWeights.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

#include <numeric>

using namespace mlir;

#include "lathe/ir/LatheEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "lathe/ir/LatheAttributes.cpp.inc"

namespace lathe {

void LatheDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "lathe/ir/LatheAttributes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Dimension expressions
//===----------------------------------------------------------------------===//

DimAttr DimAttr::get(MLIRContext *context, const DimExpr &expr) {
  return Base::get(context, expr.str());
}

DimExpr DimAttr::expr() const {
  // The text was canonical when the attribute was made, so it parses.
  return *DimExpr::parse(getText());
}

namespace {

/// Recursive descent over the tokens that AsmParser gives:
///   sum = product (('+' | '-') product)*; product = atom ('*' atom)*
///   atom = integer | symbol | function '(' sum (',' sum)* ')' | '(' sum ')' | '-' atom
class DimParser {
public:
  explicit DimParser(AsmParser &parser) : parser(parser) {}

  FailureOr<DimExpr> parseSum() {
    FailureOr<DimExpr> left = parseProduct();
    while (succeeded(left)) {
      bool plus = succeeded(parser.parseOptionalPlus());
      if (!plus && failed(parser.parseOptionalMinus()))
        return left;
      FailureOr<DimExpr> right = parseProduct();
      if (failed(right))
        return failure();
      left = plus ? *left + *right : *left - *right;
    }
    return left;
  }

private:
  FailureOr<DimExpr> parseProduct() {
    FailureOr<DimExpr> left = parseAtom();
    while (succeeded(left) && succeeded(parser.parseOptionalStar())) {
      FailureOr<DimExpr> right = parseAtom();
      if (failed(right))
        return failure();
      left = *left * *right;
    }
    return left;
  }

  FailureOr<DimExpr> parseAtom() {
    if (succeeded(parser.parseOptionalLParen())) {
      FailureOr<DimExpr> inner = parseSum();
      if (failed(inner) || failed(parser.parseRParen()))
        return failure();
      return inner;
    }
    // Before integers, which would take the sign of `-S` and miss their digits.
    if (succeeded(parser.parseOptionalMinus())) {
      FailureOr<DimExpr> inner = parseAtom();
      if (failed(inner))
        return failure();
      return DimExpr(0) - *inner;
    }
    int64_t value = 0;
    OptionalParseResult integer = parser.parseOptionalInteger(value);
    if (integer.has_value()) {
      if (failed(*integer))
        return failure();
      return DimExpr(value);
    }
    SMLoc at = parser.getCurrentLocation();
    std::string name;
    if (failed(parser.parseKeywordOrString(&name)))
      return failure();
    if (failed(parser.parseOptionalLParen()))
      return DimExpr::symbol(name);
    SmallVector<DimExpr> args;
    do {
      FailureOr<DimExpr> arg = parseSum();
      if (failed(arg))
        return failure();
      args.push_back(*arg);
    } while (succeeded(parser.parseOptionalComma()));
    if (failed(parser.parseRParen()))
      return failure();
    return call(name, args, at);
  }

  /// floordiv, ceildiv and mod take two arguments; min, max and bcast one or more.
  FailureOr<DimExpr> call(StringRef name, ArrayRef<DimExpr> args, SMLoc at) {
    using Function = DimExpr (*)(const DimExpr &, const DimExpr &);
    auto [function, folds] =
        llvm::StringSwitch<std::pair<Function, bool>>(name)
            .Case("floordiv", {&DimExpr::floorDiv, false})
            .Case("ceildiv", {&DimExpr::ceilDiv, false})
            .Case("mod", {&DimExpr::mod, false})
            .Case("min", {&DimExpr::min, true})
            .Case("max", {&DimExpr::max, true})
            .Case("bcast", {&DimExpr::bcast, true})
            .Default({nullptr, false});
    if (function && !folds && args.size() != 2)
      return parser.emitError(at) << name << " takes two arguments";
    if (function)
      return std::accumulate(args.begin() + 1, args.end(), args.front(), function);
    return parser.emitError(at) << "unknown function '" << name << "' in a dimension expression";
  }

  AsmParser &parser;
};

ParseResult parseDimList(AsmParser &parser, SmallVectorImpl<DimAttr> &dims) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&]() -> ParseResult {
    FailureOr<DimExpr> expr = DimParser(parser).parseSum();
    if (failed(expr))
      return failure();
    dims.push_back(DimAttr::get(parser.getContext(), *expr));
    return success();
  });
}

void printDimList(AsmPrinter &printer, ArrayRef<DimAttr> dims) {
  printer << "[";
  llvm::interleaveComma(dims, printer, [&](DimAttr d) { printer << d.getText(); });
  printer << "]";
}

} // namespace

Attribute DimAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<DimExpr> expr = DimParser(parser).parseSum();
  if (failed(expr) || parser.parseGreater())
    return {};
  return DimAttr::get(parser.getContext(), *expr);
}

void DimAttr::print(AsmPrinter &printer) const { printer << "<" << getText() << ">"; }

Attribute PhysAttr::parse(AsmParser &parser, Type) {
  SmallVector<DimAttr> dims;
  if (parser.parseLess() || parseDimList(parser, dims) || parser.parseGreater())
    return {};
  return PhysAttr::get(parser.getContext(), dims);
}

void PhysAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printDimList(printer, getDims());
  printer << ">";
}

//===----------------------------------------------------------------------===//
// Tensor encoding
//===----------------------------------------------------------------------===//

Attribute TensorAttr::parse(AsmParser &parser, Type) {
  SmallVector<DimAttr> dims;
  Attribute layout;
  if (parser.parseLess() || parseDimList(parser, dims))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    SMLoc at = parser.getCurrentLocation();
    StringRef key;
    if (parser.parseKeyword(&key) || parser.parseEqual())
      return {};
    if (key != "layout") {
      parser.emitError(at) << "unknown part '" << key << "' of #lathe.t";
      return {};
    }
    if (parser.parseAttribute(layout))
      return {};
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<TensorAttr>(parser.getContext(), dims, layout);
}

void TensorAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printDimList(printer, getDims());
  if (getLayout())
    printer << ", layout = " << getLayout();
  printer << ">";
}

LogicalResult TensorAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<DimAttr> dims, Attribute layout) {
  if (auto phys = llvm::dyn_cast_or_null<PhysAttr>(layout)) {
    if (phys.getDims().size() != dims.size())
      return emitError() << "layout has " << phys.getDims().size() << " sizes for a tensor of rank "
                         << dims.size();
  } else if (layout) {
    return emitError() << "layout is not a #lathe.phys";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

LogicalResult WeightAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef key,
                                 uint64_t offset, uint64_t bytes, StringRef hash, Type type) {
  auto tensor = llvm::dyn_cast_or_null<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return emitError() << "a weight needs a static tensor type";
  std::optional<DType> dtype = dtypeOf(tensor.getElementType());
  if (!dtype)
    return emitError() << "a weight cannot have elements of " << tensor.getElementType();
  if (static_cast<uint64_t>(byteSize(*dtype, tensor.getNumElements())) != bytes)
    return emitError() << "weight has " << bytes << " bytes, its type " << tensor << " needs "
                       << byteSize(*dtype, tensor.getNumElements());
  if (hash.size() != 64 || !llvm::all_of(hash, llvm::isHexDigit))
    return emitError() << "a weight's hash is 64 hexadecimal digits";
  if (key == "random" && !isRandomType(*dtype))
    return emitError() << "random weights are f64, f32, f16 or bf16, not " << tensor.getElementType();
  if (offset % 64)
    return emitError() << "weight offset " << offset << " is not a multiple of 64";
  return success();
}

LogicalResult JoinedAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t axis,
                                 ArrayAttr parts, Type type) {
  auto whole = llvm::dyn_cast_or_null<RankedTensorType>(type);
  if (!whole || !whole.hasStaticShape() || axis < 0 || axis >= whole.getRank())
    return emitError() << "joined constants need a static tensor type and an axis of it";
  int64_t sum = 0;
  for (Attribute part : parts) {
    auto typed = llvm::dyn_cast<TypedAttr>(part);
    auto tensor = typed ? llvm::dyn_cast<RankedTensorType>(typed.getType()) : RankedTensorType();
    if (!llvm::isa<WeightAttr, DenseElementsAttr, ShardedAttr>(part) || !tensor ||
        tensor.getRank() != whole.getRank() || tensor.getElementType() != whole.getElementType())
      return emitError() << "a part of joined constants is no constant of their type and rank";
    for (int64_t d = 0; d < whole.getRank(); ++d)
      if (d != axis && tensor.getDimSize(d) != whole.getDimSize(d))
        return emitError() << "joined constants differ in another size than that of their axis";
    sum += tensor.getDimSize(axis);
  }
  if (sum != whole.getDimSize(axis))
    return emitError() << "joined constants do not fill their type";
  return success();
}

} // namespace lathe
