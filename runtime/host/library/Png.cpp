//===- Png.cpp - PNG by libpng --------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libpng leaves a function by longjmp: what has a destructor lives outside of those that call it.
//
//===----------------------------------------------------------------------===//

#include "Images.h"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <png.h>
#include <vector>

namespace lathe::host {
namespace {

constexpr std::string_view kMagic("\x89PNG\r\n\x1a\n");

/// A file that is read, and what became of it.
struct Source {
  Bytes file;
  size_t at = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[160] = "";

  explicit Source(Bytes file) : file(file) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, onError, [](png_structp, png_const_charp) {});
    info = png ? png_create_info_struct(png) : nullptr;
    if (!info) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      fail("out of memory");
    }
    png_set_read_fn(png, this, read);
    // An ancillary chunk is no reason to take much memory.
    png_set_chunk_malloc_max(png, 16 << 20);
    png_set_chunk_cache_max(png, 128);
  }
  ~Source() { png_destroy_read_struct(&png, &info, nullptr); }
  Source(const Source &) = delete;

  static void onError(png_structp png, png_const_charp text) {
    auto *self = static_cast<Source *>(png_get_error_ptr(png));
    std::snprintf(self->message, sizeof self->message, "%s", text);
    png_longjmp(png, 1);
  }
  static void read(png_structp png, png_bytep to, size_t count) {
    auto *self = static_cast<Source *>(png_get_io_ptr(png));
    if (count > self->file.size() - self->at)
      png_error(png, "the file ends too early");
    std::memcpy(to, self->file.data() + self->at, count);
    self->at += count;
  }
  [[noreturn]] void refuse() const { fail(std::string("the PNG image is damaged or truncated: ") + message); }
};

bool readHeader(Source &source) {
  if (setjmp(png_jmpbuf(source.png)))
    return false;
  png_read_info(source.png, source.info);
  return true;
}

/// Eight bits of red, green and blue from whatever it is.
bool convert(Source &source) {
  if (setjmp(png_jmpbuf(source.png)))
    return false;
  png_set_expand(source.png);
  png_set_scale_16(source.png);
  png_set_gray_to_rgb(source.png);
  png_set_strip_alpha(source.png);
  png_set_interlace_handling(source.png);
  png_read_update_info(source.png, source.info);
  return true;
}

bool readRows(Source &source, png_bytepp rows) {
  if (setjmp(png_jmpbuf(source.png)))
    return false;
  png_read_image(source.png, rows);
  png_read_end(source.png, nullptr);
  return true;
}

ImageSize sizeOf(Bytes file) {
  Source source(file);
  if (!readHeader(source))
    source.refuse();
  return {png_get_image_width(source.png, source.info), png_get_image_height(source.png, source.info)};
}

void decode(Bytes file, ImageSize size, uint8_t *rgb) {
  Source source(file);
  if (!readHeader(source) || !convert(source))
    source.refuse();
  const size_t pitch = 3 * static_cast<size_t>(size.width);
  if (png_get_rowbytes(source.png, source.info) != pitch)
    fail("a PNG image of a form that is not known", ErrorCode::Unsupported);
  std::vector<png_bytep> rows(static_cast<size_t>(size.height));
  for (size_t y = 0; y < rows.size(); ++y)
    rows[y] = rgb + y * pitch;
  if (!readRows(source, rows.data()))
    source.refuse();
}

} // namespace

const Format kPng = {"PNG", [](Bytes file) { return startsWith(file, kMagic); }, sizeOf, decode};

} // namespace lathe::host
