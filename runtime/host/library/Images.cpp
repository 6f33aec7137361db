//===- Images.cpp - which format an image has, and limits -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Images.h"

namespace lathe::host {

/// 384 MiB of pixels: more than any camera's, and less than what a few bytes of a malicious file could ask for.
constexpr int64_t kMaxPixels = int64_t(1) << 27;

Image openImage(Bytes file) {
  // PNM last: its first bytes are the shortest.
  for (const Format *format : {&kPng, &kJpeg, &kWebp, &kJpeg2000, &kTiff, &kBmp, &kPnm}) {
    if (!format->recognizes(file))
      continue;
    ImageSize size = format->size(file);
    std::string text = std::to_string(size.width) + "x" + std::to_string(size.height);
    if (size.width < 1 || size.height < 1)
      fail("a " + std::string(format->name) + " image of " + text + " pixels");
    if (size.height > kMaxPixels / size.width)
      fail("a " + std::string(format->name) + " image of " + text + " pixels; " + std::to_string(kMaxPixels) +
           " are decoded at most");
    return {format, size};
  }
  fail("no image of a known format: BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP");
}

} // namespace lathe::host
