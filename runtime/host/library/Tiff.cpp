//===- Tiff.cpp - TIFF by libtiff -----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first image of a file.
//
//===----------------------------------------------------------------------===//

#include "Images.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <memory>
#include <tiffio.h>

namespace lathe::host {
namespace {

/// A file in memory, and the first error that reading it gave.
struct Source {
  Bytes file;
  size_t at = 0;
  char message[160] = "";
  TIFF *tiff = nullptr;

  explicit Source(Bytes file) : file(file) {
    std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions *)> options(TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
    if (!options)
      fail("out of memory");
    // What the largest image that is decoded takes with four channels.
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), tmsize_t(1) << 29);
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), onError, this);
    TIFFOpenOptionsSetWarningHandlerExtR(
        options.get(), [](TIFF *, void *, const char *, const char *, va_list) { return 1; }, nullptr);
    tiff = TIFFClientOpenExt(
        "memory", "rm", this, read, [](thandle_t, void *, tmsize_t) { return tmsize_t(-1); }, seek,
        [](thandle_t) { return 0; }, [](thandle_t self) { return toff_t(static_cast<Source *>(self)->file.size()); },
        [](thandle_t, void **, toff_t *) { return 0; }, [](thandle_t, void *, toff_t) {}, options.get());
    if (!tiff)
      refuse();
  }
  ~Source() {
    if (tiff)
      TIFFClose(tiff);
  }
  Source(const Source &) = delete;

  static int onError(TIFF *, void *self, const char *, const char *format, va_list list) {
    auto &message = static_cast<Source *>(self)->message;
    if (!*message)
      std::vsnprintf(message, sizeof message, format, list);
    return 1;
  }
  static tmsize_t read(thandle_t handle, void *to, tmsize_t count) {
    auto *self = static_cast<Source *>(handle);
    size_t n = std::min(static_cast<size_t>(std::max<tmsize_t>(count, 0)), self->file.size() - self->at);
    if (n)
      std::memcpy(to, self->file.data() + self->at, n);
    self->at += n;
    return static_cast<tmsize_t>(n);
  }
  static toff_t seek(thandle_t handle, toff_t offset, int from) {
    auto *self = static_cast<Source *>(handle);
    toff_t base = from == SEEK_CUR ? self->at : from == SEEK_END ? self->file.size() : 0;
    if (offset > self->file.size() - std::min<toff_t>(base, self->file.size()))
      return toff_t(-1);
    self->at = static_cast<size_t>(base + offset);
    return self->at;
  }
  [[noreturn]] void refuse() const {
    fail(std::string("the TIFF image is damaged, truncated or of a form that is not known: ") + message);
  }
};

ImageSize sizeOf(Bytes file) {
  Source source(file);
  uint32_t width = 0, height = 0;
  TIFFGetField(source.tiff, TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(source.tiff, TIFFTAG_IMAGELENGTH, &height);
  return {width, height};
}

void decode(Bytes file, ImageSize size, uint8_t *rgb) {
  Source source(file);
  const size_t pixels = static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
  auto raster = std::make_unique_for_overwrite<uint32_t[]>(pixels);
  if (!TIFFReadRGBAImageOriented(source.tiff, static_cast<uint32_t>(size.width), static_cast<uint32_t>(size.height),
                                 raster.get(), ORIENTATION_TOPLEFT, /*stopOnError=*/1) ||
      *source.message)
    source.refuse();
  for (size_t i = 0; i < pixels; ++i) {
    rgb[3 * i] = static_cast<uint8_t>(TIFFGetR(raster[i]));
    rgb[3 * i + 1] = static_cast<uint8_t>(TIFFGetG(raster[i]));
    rgb[3 * i + 2] = static_cast<uint8_t>(TIFFGetB(raster[i]));
  }
}

bool recognizes(Bytes file) {
  using namespace std::string_view_literals;
  return startsWith(file, "II*\0"sv) || startsWith(file, "MM\0*"sv) || startsWith(file, "II+\0"sv) ||
         startsWith(file, "MM\0+"sv);
}

} // namespace

const Format kTiff = {"TIFF", recognizes, sizeOf, decode};

} // namespace lathe::host
