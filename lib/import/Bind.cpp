//===- Bind.cpp - bounds and shapes for the symbols of a module -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/Import.h"

#include "lathe/ir/Lathe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace lathe {
namespace {

bool parseSize(StringRef text, int64_t &value) {
  return !text.getAsInteger(10, value) && value >= 0;
}

/// The argument of an entry with this name, or null.
Value findInput(ModuleOp module, StringRef name) {
  for (auto func : module.getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments())
      if (auto attr = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "lathe.name"))
        if (attr.getValue() == name)
          return argument;
  return {};
}

/// All names that --dim accepts, for the message of an error.
std::string knownSymbols(ModuleOp module) {
  std::string names;
  for (auto symbol : module.getOps<SymbolOp>())
    names += (names.empty() ? "" : ", ") + symbol.getSymName().str() + " (" +
             symbol.getOrigin().str() + ")";
  return names.empty() ? "the model has no symbolic dimension" : "known are " + names;
}

/// The expression that --dim's key names: a symbol, or INPUT[axis].
Result<DimExpr> resolveKey(ModuleOp module, StringRef key) {
  if (SymbolTable::lookupSymbolIn(module, key))
    if (llvm::isa<SymbolOp>(SymbolTable::lookupSymbolIn(module, key)))
      return DimExpr::symbol(key);
  auto [input, rest] = key.rsplit('[');
  int64_t axis = 0;
  if (rest.consume_back("]") && parseSize(rest, axis))
    if (Value value = findInput(module, input))
      if (auto type = llvm::dyn_cast<RankedTensorType>(value.getType());
          type && axis < type.getRank())
        return dimOf(value, axis);
  return usageError("there is no such dimension; " + knownSymbols(module), "--dim " + key.str());
}

} // namespace

Status parseDimOption(StringRef text, ImportOptions &options) {
  auto [name, range] = text.rsplit('=');
  SmallVector<StringRef> parts;
  range.split(parts, ':');
  DimBound bound;
  bool ok = !name.empty() && text.contains('=');
  auto high = [&](StringRef part) {
    if (part.empty() || part == "*") {
      bound.max = -1;
      return true;
    }
    return parseSize(part, bound.max);
  };
  if (parts.size() == 1) {
    ok &= parseSize(parts[0], bound.min);
    bound.opt = bound.max = bound.min;
  } else if (parts.size() == 2) {
    ok &= parseSize(parts[0], bound.min) && high(parts[1]);
    bound.opt = bound.max < 0 ? std::max<int64_t>(bound.min, 1) : bound.max;
  } else {
    ok &= parts.size() == 3 && parseSize(parts[0], bound.min) && parseSize(parts[1], bound.opt) &&
          high(parts[2]);
  }
  if (!ok)
    return usageError("expected NAME=LO:OPT:HI, such as B=1:8:64 or x[0]=1:1:*",
                      "--dim " + text.str());
  if (bound.opt < bound.min || (bound.max >= 0 && bound.opt > bound.max))
    return usageError("the bounds are not in order LO <= OPT <= HI", "--dim " + text.str());
  options.dims[name.str()] = bound;
  return okStatus();
}

/// Of a sequence.
static constexpr int64_t kMaxTensors = 1024;

Status parseShapeOption(StringRef text, ImportOptions &options) {
  auto [name, sizes] = text.rsplit('=');
  if (StringRef count = sizes; !name.empty() && (sizes == "none" || count.consume_front("["))) {
    int64_t tensors = 0;
    if (sizes == "none")
      options.lengths[name.str()] = std::nullopt;
    else if (!count.consume_back("]") || !parseSize(count, tensors) || tensors > kMaxTensors)
      return usageError("expected INPUT=[3], up to " + std::to_string(kMaxTensors) + " tensors",
                        "--shape " + text.str());
    else
      options.lengths[name.str()] = tensors;
    return okStatus();
  }
  std::vector<int64_t> shape;
  SmallVector<StringRef> parts;
  if (!sizes.empty())
    sizes.split(parts, 'x');
  for (StringRef part : parts) {
    int64_t size = 0;
    if (part == "?")
      size = -1;
    else if (!parseSize(part, size))
      return usageError("expected INPUT=1x3x224x224, or INPUT=?x3x?x? where ? is any size", "--shape " + text.str());
    shape.push_back(size);
  }
  if (name.empty() || !text.contains('='))
    return usageError("expected INPUT=1x3x224x224", "--shape " + text.str());
  options.shapes[name.str()] = shape;
  return okStatus();
}

Status bindDims(ModuleOp module, const ImportOptions &options) {
  std::map<std::string, DimExpr> constants;
  auto bind = [&](const DimExpr &dim, int64_t size, const std::string &place) -> Status {
    DimExpr now = dim.substitute(constants);
    if (std::optional<int64_t> known = now.constant())
      return *known == size ? okStatus()
                            : usageError("the size is " + std::to_string(*known) + ", not " +
                                             std::to_string(size),
                                         place);
    std::optional<std::string> symbol = now.symbolName();
    if (!symbol)
      return usageError("the size " + now.str() + " follows from others; bind those", place);
    constants.insert_or_assign(*symbol, DimExpr(size));
    return okStatus();
  };
  for (const auto &[name, shape] : options.shapes) {
    std::string place = "--shape " + name;
    if (options.constants.count(name))
      continue; // of a value, which has its own
    Value input = findInput(module, name);
    if (!input)
      return usageError("the model has no input of this name", place);
    if (auto unranked = llvm::dyn_cast<UnrankedTensorType>(input.getType())) {
      auto func = llvm::cast<func::FuncOp>(input.getParentBlock()->getParentOp());
      unsigned number = llvm::cast<BlockArgument>(input).getArgNumber();
      if (func.getArgAttr(number, "lathe.onnx_type"))
        return usageError("the input is no tensor of numbers", place);
      if (llvm::any_of(shape, [](int64_t size) { return size < 0; }))
        return usageError("the input has no rank in this text; ? gives one to ONNX files", place);
      input.setType(RankedTensorType::get(shape, unranked.getElementType()));
      func.setFunctionType(FunctionType::get(module.getContext(), func.getBody().getArgumentTypes(),
                                             func.getFunctionType().getResults()));
    }
    auto type = llvm::dyn_cast<RankedTensorType>(input.getType());
    if (!type || type.getRank() != int64_t(shape.size()))
      return usageError("the input has rank " + std::to_string(type ? type.getRank() : -1) +
                            ", the shape has " + std::to_string(shape.size()) + " sizes",
                        place);
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      std::string dimension = place + "[" + std::to_string(axis) + "]";
      if (shape[axis] >= 0)
        LATHE_RETURN_IF_ERROR(bind(dimOf(input, axis), shape[axis], dimension));
      else if (dimOf(input, axis).constant())
        return usageError("the size is fixed in this text; ? frees sizes of ONNX files", dimension);
    }
  }
  for (const auto &[key, bound] : options.dims) {
    Result<DimExpr> dim = resolveKey(module, key);
    if (!dim)
      return dim.status();
    if (bound.min == bound.max) {
      LATHE_RETURN_IF_ERROR(bind(*dim, bound.min, "--dim " + key));
      continue;
    }
    DimExpr now = dim->substitute(constants);
    if (std::optional<int64_t> known = now.constant()) {
      if (*known < bound.min || (bound.max >= 0 && *known > bound.max))
        return usageError("the size is " + std::to_string(*known) + ", outside these bounds",
                          "--dim " + key);
      continue;
    }
    std::optional<std::string> name = now.symbolName();
    if (!name)
      return usageError("the size " + now.str() + " follows from others; bound those",
                        "--dim " + key);
    auto symbol = llvm::cast<SymbolOp>(SymbolTable::lookupSymbolIn(module, *name));
    symbol.setMin(bound.min);
    symbol.setOpt(bound.opt);
    symbol.setMax(bound.max);
  }
  if (constants.empty())
    return okStatus();
  for (const auto &[name, value] : constants)
    if (Operation *symbol = SymbolTable::lookupSymbolIn(module, name))
      symbol->erase();
  substituteSymbols(module, constants);
  return okStatus();
}

} // namespace lathe
