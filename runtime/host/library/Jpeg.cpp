//===- Jpeg.cpp - JPEG by libjpeg-turbo -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The exact transform and smooth chroma, as libjpeg does by default.
//
//===----------------------------------------------------------------------===//

#include "Images.h"

#include <memory>
#include <turbojpeg.h>
#include <vector>

namespace lathe::host {
namespace {

struct Destroy {
  void operator()(void *handle) const { tjDestroy(handle); }
};
using Handle = std::unique_ptr<void, Destroy>;

[[noreturn]] void refuse(const Handle &handle) {
  fail(std::string("the JPEG image is damaged or truncated: ") + tjGetErrorStr2(handle.get()));
}

Handle open(Bytes file, ImageSize &size, int &colors) {
  Handle handle(tjInitDecompress());
  if (!handle)
    fail("out of memory");
  int width = 0, height = 0, subsampling = 0;
  if (tjDecompressHeader3(handle.get(), file.data(), file.size(), &width, &height, &subsampling, &colors))
    refuse(handle);
  size = {width, height};
  return handle;
}

ImageSize sizeOf(Bytes file) {
  ImageSize size;
  int colors;
  open(file, size, colors);
  return size;
}

void decode(Bytes file, ImageSize size, uint8_t *rgb) {
  int colors = 0;
  Handle handle = open(file, size, colors);
  const int width = static_cast<int>(size.width), height = static_cast<int>(size.height);
  const bool fourInks = colors == TJCS_CMYK || colors == TJCS_YCCK;
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  std::unique_ptr<uint8_t[]> inks;
  if (fourInks)
    inks = std::make_unique_for_overwrite<uint8_t[]>(4 * pixels);
  // A warning is what a truncated file gives; hundreds of scans are what a malicious one has.
  if (tjDecompress2(handle.get(), file.data(), file.size(), fourInks ? inks.get() : rgb, width, 0, height,
                    fourInks ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS))
    refuse(handle);
  // Files with four inks are Adobe's, who stores the complement of each.
  for (size_t i = 0; fourInks && i < pixels; ++i)
    for (size_t c = 0; c < 3; ++c)
      rgb[3 * i + c] = static_cast<uint8_t>((inks[4 * i + c] * inks[4 * i + 3] + 127) / 255);
}

} // namespace

const Format kJpeg = {"JPEG", [](Bytes file) { return startsWith(file, "\xff\xd8\xff"); }, sizeOf, decode};

} // namespace lathe::host
