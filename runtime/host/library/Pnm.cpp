//===- Pnm.cpp - PBM, PGM and PPM -----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// P1 to P6: numbers as text, or as bytes behind the one space that ends the header.
//
//===----------------------------------------------------------------------===//

#include "Images.h"

namespace lathe::host {
namespace {

bool isSpace(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Reader {
public:
  explicit Reader(Bytes file) : file(file), kind(file[1] - '0') {
    at = 2;
    size.width = number();
    size.height = number();
    most = kind == 1 || kind == 4 ? 1 : number();
    if (most < 1 || most > 65535)
      fail("a PNM image whose greatest value is " + std::to_string(most));
    if (isBinary()) {
      if (at >= file.size())
        truncated();
      ++at;
    }
  }

  bool isBinary() const { return kind > 3; }
  size_t channels() const { return kind == 3 || kind == 6 ? 3 : 1; }

  void decode(uint8_t *rgb) {
    const size_t width = static_cast<size_t>(size.width), rows = static_cast<size_t>(size.height);
    const size_t bytes = most > 255 ? 2 : 1;
    // What follows is not shorter than it must be, before any of it is read.
    const size_t pitch = kind == 4 ? (width + 7) / 8 : width * channels() * bytes;
    if (file.size() - at < (isBinary() ? pitch * rows : width * rows * channels()))
      truncated();
    for (size_t y = 0; y < rows; ++y)
      for (size_t x = 0; x < width; ++x, rgb += 3)
        for (size_t c = 0; c < 3; ++c)
          rgb[c] = c < channels() ? value(pitch, y, x, c, bytes) : rgb[0];
  }

  ImageSize size;

private:
  [[noreturn]] static void truncated() { fail("the PNM image is truncated"); }

  uint8_t value(size_t pitch, size_t y, size_t x, size_t c, size_t bytes) {
    int64_t v;
    if (kind == 1) {
      skip();
      if (at >= file.size())
        truncated();
      v = file[at++] == '0'; // 1 is black
    } else if (kind == 4) {
      v = !(file[at + pitch * y + x / 8] >> (7 - x % 8) & 1);
    } else if (!isBinary()) {
      v = number();
    } else {
      const uint8_t *from = file.data() + at + pitch * y + (x * channels() + c) * bytes;
      v = bytes == 2 ? from[0] << 8 | from[1] : from[0];
    }
    if (v > most)
      fail("a PNM value of " + std::to_string(v) + " above the greatest, " + std::to_string(most));
    return static_cast<uint8_t>((v * 255 + most / 2) / most);
  }

  /// Space and comments.
  void skip() {
    while (at < file.size() && (isSpace(file[at]) || file[at] == '#')) {
      bool comment = file[at] == '#';
      while (comment && at < file.size() && file[at] != '\n')
        ++at;
      at += at < file.size();
    }
  }
  int64_t number() {
    skip();
    if (at >= file.size())
      truncated();
    int64_t v = 0;
    size_t begin = at;
    for (; at < file.size() && file[at] >= '0' && file[at] <= '9'; ++at)
      if ((v = v * 10 + (file[at] - '0')) > INT32_MAX)
        fail("a number of a PNM image is too large");
    if (at == begin)
      fail("a PNM image without a number where one must be");
    return v;
  }

  Bytes file;
  int kind;
  size_t at = 0;
  int64_t most = 1;
};

bool recognizes(Bytes file) {
  return file.size() > 2 && file[0] == 'P' && file[1] >= '1' && file[1] <= '6' && (isSpace(file[2]) || file[2] == '#');
}

} // namespace

const Format kPnm = {"PNM", recognizes, [](Bytes file) { return Reader(file).size; },
                     [](Bytes file, ImageSize, uint8_t *rgb) { Reader(file).decode(rgb); }};

} // namespace lathe::host
