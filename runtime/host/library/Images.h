//===- Images.h - formats of encoded images ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_HOST_LIBRARY_IMAGES_H
#define LATHE_RUNTIME_HOST_LIBRARY_IMAGES_H

#include "Call.h"

#include <cstdint>
#include <span>

namespace lathe::host {

using Bytes = std::span<const uint8_t>;

struct ImageSize {
  int64_t width = 0, height = 0;
  bool operator==(const ImageSize &) const = default;
};

/// A format of encoded images. Its functions throw a Failure for what is damaged or not supported.
struct Format {
  const char *name;
  /// By the first bytes.
  bool (*recognizes)(Bytes file);
  /// From the header, unchecked.
  ImageSize (*size)(Bytes file);
  /// Three bytes a pixel, rows from the top; `rgb` has room for the size, which has been checked. An alpha
  /// channel is left out, more than 8 bits are scaled to 8.
  void (*decode)(Bytes file, ImageSize size, uint8_t *rgb);
};

extern const Format kBmp, kJpeg, kJpeg2000, kPng, kPnm, kTiff, kWebp;

/// The format of a file, and its size within the limits: from 1 to 2^27 pixels.
struct Image {
  const Format *format;
  ImageSize size;
};
Image openImage(Bytes file);

inline bool startsWith(Bytes file, std::string_view magic, size_t at = 0) {
  return file.size() >= at + magic.size() &&
         std::string_view(reinterpret_cast<const char *>(file.data()) + at, magic.size()) == magic;
}

/// Reads numbers of a header; what is behind the end is a Failure.
class ByteReader {
public:
  ByteReader(Bytes file, const char *format) : file(file), format(format) {}
  uint8_t u8(size_t at) const {
    if (at >= file.size())
      fail(std::string("the ") + format + " image is truncated");
    return file[at];
  }
  uint32_t u16(size_t at) const { return u8(at) | uint32_t(u8(at + 1)) << 8; } // little end first
  uint32_t u32(size_t at) const { return u16(at) | u16(at + 2) << 16; }
  int32_t i32(size_t at) const { return static_cast<int32_t>(u32(at)); }

private:
  Bytes file;
  const char *format;
};

} // namespace lathe::host

#endif // LATHE_RUNTIME_HOST_LIBRARY_IMAGES_H
