//===- ImageOps.cpp - sizes and pixels of an encoded image ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Images.h"

#include <algorithm>
#include <memory>

namespace lathe::host {

void imageSize(const Call &call) {
  Image image = openImage(call.input<uint8_t>(0, DType::UI8));
  auto height = call.output(0), width = call.output(1);
  if (height.size() != 1 || width.size() != 1)
    fail("a size is one number", ErrorCode::Invalid);
  height[0] = image.size.height;
  width[0] = image.size.width;
}

void imageDecode(const Call &call) {
  Bytes file = call.input<uint8_t>(0, DType::UI8);
  auto out = call.output<uint8_t>(0, DType::UI8);
  Image image = openImage(file);
  const size_t pixels = static_cast<size_t>(image.size.width) * static_cast<size_t>(image.size.height);
  std::string_view format = call.text("pixel_format");
  const bool gray = format == "Grayscale";
  if (out.size() != pixels * (gray ? 1 : 3))
    fail("the result has another size than the image", ErrorCode::Invalid);
  if (!gray) {
    image.format->decode(file, image.size, out.data());
    if (format == "BGR")
      for (size_t i = 0; i < pixels; ++i)
        std::swap(out[3 * i], out[3 * i + 2]);
    return;
  }
  auto rgb = std::make_unique_for_overwrite<uint8_t[]>(3 * pixels);
  image.format->decode(file, image.size, rgb.get());
  // Rec. 601 in 16 bits: 0.299 R + 0.587 G + 0.114 B.
  for (size_t i = 0; i < pixels; ++i)
    out[i] = static_cast<uint8_t>(
        (19595u * rgb[3 * i] + 38470u * rgb[3 * i + 1] + 7471u * rgb[3 * i + 2] + 0x8000u) >> 16);
}

} // namespace lathe::host
