//===- Bmp.cpp - Windows bitmaps ------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Palettes of 1, 4 and 8 bits, 16, 24 and 32 bits with or without masks; not the run-length forms.
//
//===----------------------------------------------------------------------===//

#include "Images.h"

#include <bit>

namespace lathe::host {
namespace {

enum Compression : uint32_t { Plain = 0, BitFields = 3, AlphaBitFields = 6 };

struct Header {
  size_t palette, colors, entry; ///< offset, number of entries, bytes of one
  size_t pixels;
  int64_t width, height;
  bool topDown;
  uint32_t bits, masks[3];
};

Header headerOf(Bytes file) {
  ByteReader in(file, kBmp.name);
  Header h{};
  h.pixels = in.u32(10);
  const uint32_t size = in.u32(14);
  if (size == 12) { // as OS/2 had it
    h.width = in.u16(18);
    h.height = in.u16(20);
    h.bits = in.u16(24);
    h.entry = 3;
  } else if (size >= 40 && size <= 1024) {
    h.width = in.i32(18);
    h.height = in.i32(22);
    h.bits = in.u16(28);
    h.entry = 4;
    h.topDown = h.height < 0;
    h.height = h.topDown ? -h.height : h.height;
  } else {
    fail("a BMP header of " + std::to_string(size) + " bytes");
  }
  const uint32_t compression = size == 12 ? uint32_t(Plain) : in.u32(30);
  h.palette = 14 + size;
  bool masked = compression == BitFields || compression == AlphaBitFields;
  if (!(compression == Plain && (h.bits == 1 || h.bits == 4 || h.bits == 8 || h.bits == 24)) &&
      !((compression == Plain || masked) && (h.bits == 16 || h.bits == 32)))
    fail("a BMP image of " + std::to_string(h.bits) + " bits with compression " + std::to_string(compression),
         ErrorCode::Unsupported);
  if (h.bits <= 8) {
    h.colors = size == 12 ? 0 : in.u32(46);
    if (h.colors == 0 || h.colors > size_t(1) << h.bits)
      h.colors = size_t(1) << h.bits;
  }
  if (masked) { // behind the smallest header, inside of the others
    for (int i = 0; i < 3; ++i)
      h.masks[i] = in.u32(54 + 4 * static_cast<size_t>(i));
  } else if (h.bits == 16) {
    h.masks[0] = 0x7c00, h.masks[1] = 0x03e0, h.masks[2] = 0x001f;
  } else if (h.bits == 32) {
    h.masks[0] = 0xff0000, h.masks[1] = 0xff00, h.masks[2] = 0xff;
  }
  return h;
}

/// The bits of a mask, as 8 bits.
uint8_t masked(uint32_t value, uint32_t mask) {
  if (!mask)
    return 0;
  uint32_t bits = (value & mask) >> std::countr_zero(mask), most = mask >> std::countr_zero(mask);
  return static_cast<uint8_t>((uint64_t(bits) * 255 + most / 2) / most);
}

ImageSize sizeOf(Bytes file) {
  Header h = headerOf(file);
  return {h.width, h.height};
}

void decode(Bytes file, ImageSize size, uint8_t *rgb) {
  ByteReader in(file, kBmp.name);
  Header h = headerOf(file);
  const size_t width = static_cast<size_t>(size.width), rows = static_cast<size_t>(size.height);
  const size_t pitch = (width * h.bits + 31) / 32 * 4;
  // Once: then no row can leave the file.
  if (h.pixels > file.size() || pitch * (rows - 1) + (width * h.bits + 7) / 8 > file.size() - h.pixels)
    fail("the BMP image is truncated");
  for (size_t y = 0; y < rows; ++y) {
    const uint8_t *row = file.data() + h.pixels + pitch * (h.topDown ? y : rows - 1 - y);
    for (size_t x = 0; x < width; ++x, rgb += 3) {
      if (h.bits <= 8) {
        size_t bit = x * h.bits;
        size_t index = row[bit / 8] >> (8 - h.bits - bit % 8) & ((1u << h.bits) - 1);
        if (index >= h.colors)
          fail("a BMP pixel of a color that the palette does not have");
        for (size_t c = 0; c < 3; ++c)
          rgb[c] = in.u8(h.palette + h.entry * index + 2 - c);
      } else if (h.bits == 24) {
        for (size_t c = 0; c < 3; ++c)
          rgb[c] = row[3 * x + 2 - c];
      } else {
        uint32_t value = 0;
        for (size_t b = 0; b < h.bits / 8; ++b)
          value |= uint32_t(row[h.bits / 8 * x + b]) << (8 * b);
        for (size_t c = 0; c < 3; ++c)
          rgb[c] = masked(value, h.masks[c]);
      }
    }
  }
}

} // namespace

const Format kBmp = {"BMP", [](Bytes file) { return startsWith(file, "BM"); }, sizeOf, decode};

} // namespace lathe::host
