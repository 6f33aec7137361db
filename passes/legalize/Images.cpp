//===- Images.cpp - encoded images ------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The header says the sizes, which the run binds; then the pixels are decoded into their place.
//
//   %y = "onnx.ImageDecoder"(%x)   =>   %h, %w = lathe.custom_call "image.size"(%x) {lathe.host_op}
//                                       lathe.dim_from %h {symbols = ["h"]} ...
//                                       %y = lathe.custom_call "image.decode"(%x) : -> tensor<?x?x3xui8>
//
//===----------------------------------------------------------------------===//
#include "Strings.h"

#include "Legalizer.h"

using namespace mlir;

namespace lathe::legal {
namespace {

LogicalResult imageDecoder(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) != 1 || !elementTypeOf(x).isUnsignedInteger(8))
    return n.invalid("shape", "an encoded image is ui8 [bytes]");
  std::string format = n.strAttr("pixel_format", "RGB");
  if (format != "RGB" && format != "BGR" && format != "Grayscale")
    return n.invalid("attribute", "pixel_format is RGB, BGR or Grayscale");
  Type whole = tensorType(e.b.getI64Type(), ArrayRef<int64_t>{});
  auto size = hostCall(n, "image.size", {whole, whole}, {x});
  if (!size)
    return failure();
  Dims dims = {n.sizeOf((*size)[0], std::nullopt), n.sizeOf((*size)[1], std::nullopt),
               format == "Grayscale" ? 1 : 3};
  auto y = hostCall(n, "image.decode", {tensorType(elementTypeOf(x), dims)}, {x},
                    {e.b.getNamedAttr("pixel_format", e.b.getStringAttr(format))});
  return y ? n.done(y->front()) : failure();
}

} // namespace

void addImages(Handlers &h) { h["ImageDecoder"] = imageDecoder; }

} // namespace lathe::legal
