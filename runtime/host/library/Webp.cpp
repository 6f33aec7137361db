//===- Webp.cpp - WebP by libwebp -----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Images.h"

#include <webp/decode.h>

namespace lathe::host {
namespace {

ImageSize sizeOf(Bytes file) {
  int width = 0, height = 0;
  if (!WebPGetInfo(file.data(), file.size(), &width, &height))
    fail("the WebP image is damaged or truncated");
  return {width, height};
}

void decode(Bytes file, ImageSize size, uint8_t *rgb) {
  const size_t pitch = 3 * static_cast<size_t>(size.width);
  if (!WebPDecodeRGBInto(file.data(), file.size(), rgb, pitch * static_cast<size_t>(size.height),
                         static_cast<int>(pitch)))
    fail("the WebP image is damaged, truncated or an animation");
}

} // namespace

const Format kWebp = {"WebP", [](Bytes file) { return startsWith(file, "RIFF") && startsWith(file, "WEBP", 8); }, sizeOf,
                      decode};

} // namespace lathe::host
