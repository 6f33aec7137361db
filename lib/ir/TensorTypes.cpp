//===- TensorTypes.cpp - making and reading tensor types ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AttrTypeSubElements.h"

using namespace mlir;

namespace lathe {

TensorType tensorType(Type element, ArrayRef<DimExpr> dims, Attribute layout) {
  SmallVector<int64_t> shape;
  SmallVector<DimAttr> attrs;
  bool dynamic = false;
  for (const DimExpr &dim : dims) {
    std::optional<int64_t> constant = dim.constant();
    shape.push_back(constant ? *constant : ShapedType::kDynamic);
    dynamic |= !constant;
    attrs.push_back(DimAttr::get(element.getContext(), dim));
  }
  if (auto phys = llvm::dyn_cast_or_null<PhysAttr>(layout))
    if (phys.getDims() == ArrayRef<DimAttr>(attrs))
      layout = {};
  if (!dynamic && !layout)
    return TensorType::get(shape, element);
  return TensorType::get(shape, element,
                         TensorAttr::get(element.getContext(), attrs, layout));
}

TensorType tensorType(Type element, ArrayRef<int64_t> dims) {
  return TensorType::get(dims, element);
}

std::vector<DimExpr> dimsOf(Type type) {
  std::vector<DimExpr> dims;
  auto tensor = llvm::dyn_cast<TensorType>(type);
  if (!tensor)
    return dims;
  if (auto encoding = llvm::dyn_cast_or_null<TensorAttr>(tensor.getEncoding())) {
    for (DimAttr dim : encoding.getDims())
      dims.push_back(dim.expr());
    return dims;
  }
  for (int64_t size : tensor.getShape())
    dims.push_back(ShapedType::isDynamic(size) ? DimExpr::symbol("_") : DimExpr(size));
  return dims;
}

DimExpr dimOf(Value value, int64_t dim) {
  auto tensor = llvm::cast<TensorType>(value.getType());
  if (!tensor.isDynamicDim(dim))
    return tensor.getDimSize(dim);
  if (auto encoding = llvm::dyn_cast_or_null<TensorAttr>(tensor.getEncoding()))
    return encoding.getDims()[dim].expr();
  return DimExpr::symbol("_");
}

std::vector<DimExpr> physicalDimsOf(Type type) {
  auto tensor = llvm::dyn_cast<TensorType>(type);
  if (tensor)
    if (auto encoding = llvm::dyn_cast_or_null<TensorAttr>(tensor.getEncoding()))
      if (auto phys = llvm::dyn_cast_or_null<PhysAttr>(encoding.getLayout())) {
        std::vector<DimExpr> dims;
        for (DimAttr dim : phys.getDims())
          dims.push_back(dim.expr());
        return dims;
      }
  return dimsOf(type);
}

Type elementTypeOf(Value value) {
  return llvm::cast<ShapedType>(value.getType()).getElementType();
}

DimExpr numElements(Type type) { return product(dimsOf(type)); }

TensorType withElementType(Type type, Type element) {
  auto tensor = llvm::cast<TensorType>(type);
  return TensorType::get(tensor.getShape(), element, tensor.getEncoding());
}

std::optional<std::vector<DimExpr>> broadcastDims(ArrayRef<std::vector<DimExpr>> shapes) {
  size_t rank = 0;
  for (const std::vector<DimExpr> &shape : shapes)
    rank = std::max(rank, shape.size());
  std::vector<DimExpr> result(rank, DimExpr(1));
  for (const std::vector<DimExpr> &shape : shapes) {
    size_t pad = rank - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      DimExpr &out = result[pad + i];
      const DimExpr &in = shape[i];
      std::optional<int64_t> outSize = out.constant(), inSize = in.constant();
      if (out == in || inSize == 1)
        continue;
      if (outSize == 1) {
        out = in;
      } else if (outSize && inSize) {
        return std::nullopt;
      } else if (outSize) {
        // The symbolic size must be 1 or this constant; a guard checks it.
      } else if (inSize) {
        out = in;
      } else {
        out = DimExpr::bcast(out, in);
      }
    }
  }
  return result;
}

std::optional<DType> dtypeOf(Type element) {
  if (auto integer = llvm::dyn_cast<IntegerType>(element)) {
    bool isUnsigned = integer.isUnsigned();
    switch (integer.getWidth()) {
    case 1:
      return DType::Bool;
    case 2:
      return isUnsigned ? DType::UI2 : DType::I2;
    case 4:
      return isUnsigned ? DType::UI4 : DType::I4;
    case 8:
      return isUnsigned ? DType::UI8 : DType::I8;
    case 16:
      return isUnsigned ? DType::UI16 : DType::I16;
    case 32:
      return isUnsigned ? DType::UI32 : DType::I32;
    case 64:
      return isUnsigned ? DType::UI64 : DType::I64;
    default:
      return std::nullopt;
    }
  }
  if (element.isF16())
    return DType::F16;
  if (element.isBF16())
    return DType::BF16;
  if (element.isF32())
    return DType::F32;
  if (element.isF64())
    return DType::F64;
  if (llvm::isa<Float8E4M3FNType>(element))
    return DType::F8E4M3FN;
  if (llvm::isa<Float8E4M3FNUZType>(element))
    return DType::F8E4M3FNUZ;
  if (llvm::isa<Float8E5M2Type>(element))
    return DType::F8E5M2;
  if (llvm::isa<Float8E5M2FNUZType>(element))
    return DType::F8E5M2FNUZ;
  if (llvm::isa<Float8E8M0FNUType>(element))
    return DType::F8E8M0;
  if (llvm::isa<Float4E2M1FNType>(element))
    return DType::F4E2M1;
  if (auto complex = llvm::dyn_cast<ComplexType>(element))
    return complex.getElementType().isF64() ? DType::C128 : DType::C64;
  return std::nullopt;
}

Type typeOf(MLIRContext *context, DType dtype) {
  auto integer = [&](unsigned width, bool isUnsigned) -> Type {
    return IntegerType::get(context, width,
                            isUnsigned ? IntegerType::Unsigned : IntegerType::Signless);
  };
  switch (dtype) {
  case DType::Bool:
    return integer(1, false);
  case DType::I2:
    return integer(2, false);
  case DType::UI2:
    return integer(2, true);
  case DType::I4:
    return integer(4, false);
  case DType::UI4:
    return integer(4, true);
  case DType::I8:
    return integer(8, false);
  case DType::I16:
    return integer(16, false);
  case DType::I32:
    return integer(32, false);
  case DType::I64:
    return integer(64, false);
  case DType::UI8:
    return integer(8, true);
  case DType::UI16:
    return integer(16, true);
  case DType::UI32:
    return integer(32, true);
  case DType::UI64:
    return integer(64, true);
  case DType::F16:
    return Float16Type::get(context);
  case DType::BF16:
    return BFloat16Type::get(context);
  case DType::F32:
    return Float32Type::get(context);
  case DType::F64:
    return Float64Type::get(context);
  case DType::F8E4M3FN:
    return Float8E4M3FNType::get(context);
  case DType::F8E4M3FNUZ:
    return Float8E4M3FNUZType::get(context);
  case DType::F8E5M2:
    return Float8E5M2Type::get(context);
  case DType::F8E5M2FNUZ:
    return Float8E5M2FNUZType::get(context);
  case DType::F8E8M0:
    return Float8E8M0FNUType::get(context);
  case DType::F4E2M1:
    return Float4E2M1FNType::get(context);
  case DType::C64:
    return ComplexType::get(Float32Type::get(context));
  case DType::C128:
    return ComplexType::get(Float64Type::get(context));
  case DType::String:
    return {};
  }
  return {};
}

void substituteSymbols(Operation *root, const std::map<std::string, DimExpr> &by) {
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](DimAttr dim) -> Attribute {
    return DimAttr::get(dim.getContext(), dim.expr().substitute(by));
  });
  replacer.addReplacement([&](TensorType type) -> std::optional<std::pair<Type, WalkResult>> {
    if (!llvm::isa_and_nonnull<TensorAttr>(type.getEncoding()))
      return std::nullopt;
    std::vector<DimExpr> dims = dimsOf(type), physical = physicalDimsOf(type);
    for (DimExpr &dim : dims)
      dim = dim.substitute(by);
    SmallVector<DimAttr> layout;
    for (DimExpr &dim : physical)
      layout.push_back(DimAttr::get(type.getContext(), dim.substitute(by)));
    Type result = tensorType(type.getElementType(), dims, PhysAttr::get(type.getContext(), layout));
    return std::make_pair(result, WalkResult::skip());
  });
  replacer.recursivelyReplaceElementsIn(root, /*replaceAttrs=*/true, /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
}

SmallVector<StringRef> nodeNames(Location loc) {
  SmallVector<StringRef> names;
  loc->walk([&](Location inner) {
    if (auto name = llvm::dyn_cast<NameLoc>(inner))
      if (!llvm::is_contained(names, name.getName().getValue()))
        names.push_back(name.getName().getValue());
    return WalkResult::advance();
  });
  return names;
}

} // namespace lathe
