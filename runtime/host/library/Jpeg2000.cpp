//===- Jpeg2000.cpp - JPEG 2000 by openjpeg -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JP2 files and bare codestreams, of one channel (gray) or of three and more, of which the first three count.
//
//===----------------------------------------------------------------------===//

#include "Images.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <openjpeg.h>

namespace lathe::host {
namespace {

constexpr std::string_view kBox("\0\0\0\x0cjP  \r\n\x87\n", 12), kCodestream("\xff\x4f\xff\x51", 4);

/// A file in memory behind openjpeg's stream, and the first error that reading it gave.
struct Source {
  Bytes file;
  size_t at = 0;
  char message[160] = "";
  opj_codec_t *codec = nullptr;
  opj_stream_t *stream = nullptr;
  opj_image_t *image = nullptr;

  explicit Source(Bytes file) : file(file) {
    codec = opj_create_decompress(startsWith(file, kBox) ? OPJ_CODEC_JP2 : OPJ_CODEC_J2K);
    stream = opj_stream_default_create(OPJ_TRUE);
    opj_dparameters_t parameters;
    opj_set_default_decoder_parameters(&parameters);
    bool ready = codec && stream;
    if (ready) {
      opj_set_error_handler(codec, onError, this);
      opj_stream_set_user_data(stream, this, nullptr);
      opj_stream_set_user_data_length(stream, file.size());
      opj_stream_set_read_function(stream, read);
      opj_stream_set_skip_function(stream, skip);
      opj_stream_set_seek_function(stream, seek);
      ready = opj_setup_decoder(codec, &parameters);
#if OPJ_VERSION_MAJOR > 2 || OPJ_VERSION_MINOR >= 5
      ready = ready && opj_decoder_set_strict_mode(codec, OPJ_TRUE); // a truncated file is an error
#endif
    }
    if (!ready || !opj_read_header(stream, codec, &image)) {
      release();
      refuse();
    }
  }
  ~Source() { release(); }
  Source(const Source &) = delete;

  void release() {
    opj_image_destroy(image);
    opj_stream_destroy(stream);
    opj_destroy_codec(codec);
  }
  ImageSize size() const { return {int64_t(image->x1) - image->x0, int64_t(image->y1) - image->y0}; }

  static void onError(const char *text, void *self) {
    auto &message = static_cast<Source *>(self)->message;
    if (!*message)
      std::snprintf(message, sizeof message, "%.*s", static_cast<int>(std::strcspn(text, "\n")), text);
  }
  static OPJ_SIZE_T read(void *to, OPJ_SIZE_T count, void *handle) {
    auto *self = static_cast<Source *>(handle);
    size_t n = std::min<size_t>(count, self->file.size() - self->at);
    if (n == 0)
      return static_cast<OPJ_SIZE_T>(-1);
    std::memcpy(to, self->file.data() + self->at, n);
    self->at += n;
    return n;
  }
  static OPJ_OFF_T skip(OPJ_OFF_T count, void *handle) {
    auto *self = static_cast<Source *>(handle);
    if (count < 0 || static_cast<uint64_t>(count) > self->file.size() - self->at)
      return -1;
    self->at += static_cast<size_t>(count);
    return count;
  }
  static OPJ_BOOL seek(OPJ_OFF_T to, void *handle) {
    auto *self = static_cast<Source *>(handle);
    if (to < 0 || static_cast<uint64_t>(to) > self->file.size())
      return OPJ_FALSE;
    self->at = static_cast<size_t>(to);
    return OPJ_TRUE;
  }
  [[noreturn]] void refuse() const {
    fail(std::string("the JPEG 2000 image is damaged or truncated: ") + message);
  }
};

/// A sample as 8 bits.
int toByte(const opj_image_comp_t &c, int64_t value) {
  if (c.sgnd)
    value += int64_t(1) << (c.prec - 1);
  int64_t most = (int64_t(1) << c.prec) - 1;
  value = std::clamp<int64_t>(value, 0, most);
  return static_cast<int>(c.prec == 8 ? value : (value * 255 + most / 2) / most);
}

/// Checks what decode() relies on: channels that cover the image, each by the factors that it states.
void checkChannels(const opj_image_t &image, ImageSize size, uint32_t channels) {
  for (uint32_t c = 0; c < channels; ++c) {
    const opj_image_comp_t &comp = image.comps[c];
    if (!comp.data || comp.prec < 1 || comp.prec > 31 || comp.dx < 1 || comp.dy < 1 || comp.w < 1 || comp.h < 1 ||
        int64_t(comp.w) < (size.width + comp.dx - 1) / comp.dx || int64_t(comp.h) < (size.height + comp.dy - 1) / comp.dy)
      fail("a JPEG 2000 image whose channels do not cover it", ErrorCode::Unsupported);
  }
}

void decode(Bytes file, ImageSize size, uint8_t *rgb) {
  constexpr uint32_t kMaxChannels = 4;
  Source source(file);
  opj_image_t *image = source.image;
  const uint32_t count = image->numcomps;
  if (count < 1 || count > kMaxChannels)
    fail("a JPEG 2000 image of " + std::to_string(count) + " channels", ErrorCode::Unsupported);
  if (!opj_decode(source.codec, source.stream, image) || !opj_end_decompress(source.codec, source.stream))
    source.refuse();
  const uint32_t channels = count < 3 ? 1 : 3;
  checkChannels(*image, size, channels);
  const bool luma = image->color_space == OPJ_CLRSPC_SYCC && channels == 3;
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x, rgb += 3) {
      int v[3];
      for (uint32_t c = 0; c < 3; ++c) {
        const opj_image_comp_t &comp = image->comps[c < channels ? c : 0];
        v[c] = toByte(comp, comp.data[y / comp.dy * comp.w + x / comp.dx]);
      }
      if (luma) { // YCbCr of JPEG
        double cb = v[1] - 128, cr = v[2] - 128, l = v[0];
        v[0] = static_cast<int>(l + 1.402 * cr + 0.5);
        v[1] = static_cast<int>(l - 0.344136 * cb - 0.714136 * cr + 0.5);
        v[2] = static_cast<int>(l + 1.772 * cb + 0.5);
      }
      for (int c = 0; c < 3; ++c)
        rgb[c] = static_cast<uint8_t>(std::clamp(v[c], 0, 255));
    }
}

} // namespace

const Format kJpeg2000 = {"JPEG 2000",
                          [](Bytes file) { return startsWith(file, kBox) || startsWith(file, kCodestream); },
                          [](Bytes file) { return Source(file).size(); }, decode};

} // namespace lathe::host
