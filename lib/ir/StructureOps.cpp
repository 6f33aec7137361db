//===- StructureOps.cpp - symbols, states, kernels ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/Roles.h"
#include "lathe/ir/States.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheStructureOps.cpp.inc"

namespace lathe {

void registerStructureOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheStructureOps.cpp.inc"
      >();
}

LogicalResult SymbolOp::verify() {
  int64_t min = getMin(), opt = getOpt(), max = getMax();
  if ((min < 0 && !isRunTimeValue()) || opt < min || (max != -1 && opt > max))
    return emitOpError("symbol_c1: bounds are not 0 <= min <= opt <= max");
  if (int64_t(getMultipleOf()) < 1)
    return emitOpError("symbol_c2: multiple_of is less than 1");
  return success();
}

LogicalResult StateOp::verify() {
  auto type = llvm::dyn_cast<TensorType>(getType());
  if (!type)
    return emitOpError("state_c1: type is not a ranked tensor");
  if (isOverwritten(*this)) {
    if (!getLength().empty() || !type.hasStaticShape())
      return emitOpError("state_c4: without axis it has neither a length nor sizes of the run");
    auto initial = (*this)->getAttrOfType<TypedAttr>(kInitialAttr);
    if (initial && !llvm::isa<StringAttr>(initial) && initial.getType() != type)
      return emitOpError("state_c5: it begins as a value of another type");
    return success();
  }
  if (int64_t(getAxis()) >= type.getRank())
    return emitOpError("state_c2: axis is outside the rank");
  if (type.isDynamicDim(getAxis()))
    return emitOpError("state_c3: the capacity along the axis is not a constant");
  return success();
}

LogicalResult ChooseOp::verify() {
  if (getThens().size() != getYs().size() || getElses().size() != getYs().size())
    return emitOpError("choose_c1: both sides need a value for each result");
  size_t count = getSymbols() ? getSymbols()->size() : 0;
  if ((getThenSizes() ? getThenSizes()->size() : 0) != count || (getElseSizes() ? getElseSizes()->size() : 0) != count)
    return emitOpError("choose_c3: a size of either side for each of ") << count << " symbols";
  std::map<std::string, DimExpr> thenSizes, elseSizes;
  for (size_t i = 0; i < count; ++i) {
    std::string name = llvm::cast<StringAttr>((*getSymbols())[i]).str();
    thenSizes.emplace(name, llvm::cast<DimAttr>((*getThenSizes())[i]).expr());
    elseSizes.emplace(name, llvm::cast<DimAttr>((*getElseSizes())[i]).expr());
  }
  auto fits = [&](Value y, Value side, const std::map<std::string, DimExpr> &sizes) {
    if (y.getType() == side.getType())
      return true;
    std::vector<DimExpr> dims = dimsOf(y);
    for (DimExpr &dim : dims)
      dim = dim.substitute(sizes);
    return elementTypeOf(y) == elementTypeOf(side) && dims == dimsOf(side);
  };
  for (auto [y, a, b] : llvm::zip(getYs(), getThens(), getElses()))
    if (!fits(y, a, thenSizes) || !fits(y, b, elseSizes))
      return emitOpError("choose_c1: sides of ") << a.getType() << " and " << b.getType()
                                                 << " for a result of " << y.getType();
  auto type = llvm::cast<TensorType>(getCondition().getType());
  if (type.getRank() != 0 || !type.getElementType().isInteger(1))
    return emitOpError("choose_c2: the condition is ") << type << ", not an i1 without dimensions";
  return success();
}

YieldOp KernelOp::getYield() { return llvm::cast<YieldOp>(getBodyBlock().getTerminator()); }

LogicalResult KernelOp::verify() {
  Block &block = getBodyBlock();
  if (block.getNumArguments() != getInputs().size())
    return emitOpError("kernel_c1: ") << block.getNumArguments() << " block arguments for "
                                      << getInputs().size() << " inputs";
  for (auto [argument, input] : llvm::zip(block.getArguments(), getInputs()))
    if (argument.getType() != input.getType())
      return emitOpError("kernel_c1: block argument of ")
             << argument.getType() << " for an input of " << input.getType();
  auto yield = block.empty() ? YieldOp() : llvm::dyn_cast<YieldOp>(&block.back());
  if (!yield || yield.getNumOperands() != getNumResults())
    return emitOpError("kernel_c2: the region does not yield as many values as there are results");
  for (auto [value, result] : llvm::zip(yield.getOperands(), getResults()))
    if (!compatibleTypes(value.getType(), result.getType()))
      return emitOpError("kernel_c2: yields ") << value.getType() << " for a result of "
                                               << result.getType();
  if (ArrayAttr variants = getVariantsAttr()) {
    Result<KernelVariant> last =
        variants.empty() ? invalidError("there is none") : parseVariant(variants.getValue().back());
    if (!last.ok())
      return emitOpError("kernel_c3: the last variant: ") << last.status().message();
    if (!last->guard.empty())
      return emitOpError("kernel_c3: the last variant's guard is not empty");
  }
  if (RolesAttr roles = getRolesAttr())
    return verifyRoles(*this, block, roles.getRoles());
  return success();
}

// %r:2 = lathe.kernel "name" <kind> (%arg = %x : type, ...) -> (types) nodes [..] variants [..] attrs { ... }
void KernelOp::print(OpAsmPrinter &printer) {
  printer << " " << getNameAttr() << " " << stringifyRegionKind(getKind()) << " (";
  llvm::interleaveComma(llvm::zip(getBodyBlock().getArguments(), getInputs()), printer,
                        [&](auto pair) {
                          printer << std::get<0>(pair) << " = " << std::get<1>(pair) << " : "
                                  << std::get<1>(pair).getType();
                        });
  printer << ") -> (";
  llvm::interleaveComma(getResultTypes(), printer, [&](Type t) { printer << t; });
  printer << ")";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"name", "kind"});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &state) {
  StringAttr name;
  StringRef kindName;
  SMLoc kindAt;
  if (parser.parseAttribute(name, "name", state.attributes))
    return failure();
  kindAt = parser.getCurrentLocation();
  if (parser.parseKeyword(&kindName))
    return failure();
  std::optional<RegionKind> kind = symbolizeRegionKind(kindName);
  if (!kind)
    return parser.emitError(kindAt) << "unknown kind of kernel '" << kindName << "'";
  state.addAttribute("kind", RegionKindAttr::get(parser.getContext(), *kind));

  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> inputs;
  SmallVector<Type> types;
  auto parseInput = [&]() -> ParseResult {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    if (parser.parseArgument(argument) || parser.parseEqual() ||
        parser.parseOperand(inputs.emplace_back()) || parser.parseColonType(argument.type))
      return failure();
    types.push_back(argument.type);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseInput) ||
      parser.parseArrow() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     [&] { return parser.parseType(state.types.emplace_back()); }) ||
      parser.parseOptionalAttrDictWithKeyword(state.attributes) ||
      parser.resolveOperands(inputs, types, parser.getNameLoc(), state.operands))
    return failure();
  return parser.parseRegion(*state.addRegion(), arguments);
}

} // namespace lathe
