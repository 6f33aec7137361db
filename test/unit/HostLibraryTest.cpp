//===- HostLibraryTest.cpp - strings and images, good and bad -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library behind its C interface, as the runtime uses it; what comes from outside is damaged in every way
// that is cheap to try.
//
//===----------------------------------------------------------------------===//
#include "../../runtime/host/HostAbi.h"

#include "lathe/support/DType.h"
#include "lathe/support/Status.h"
#include "lathe/support/Strings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <openjpeg.h>
#include <png.h>
#include <random>
#include <turbojpeg.h>
#include <webp/encode.h>

using namespace lathe;

namespace {

const LatheHostLibrary &library() { return *lathe_host_library(); }

/// A table with these constants.
struct Table {
  explicit Table(const std::vector<std::string> &constants = {""}) {
    std::vector<const char *> texts;
    std::vector<size_t> sizes;
    for (const std::string &text : constants) {
      texts.push_back(text.data());
      sizes.push_back(text.size());
    }
    strings = library().makeStrings(texts.data(), sizes.data(), texts.size(), &error);
  }
  ~Table() { library().freeStrings(strings); }

  std::vector<int64_t> numbers(const std::vector<std::string> &texts) {
    HostTensor packed = stringTensor({int64_t(texts.size())}, texts);
    std::vector<int64_t> list(texts.size());
    library().numberAll(strings, packed.data.data(), packed.data.size(), int64_t(list.size()), list.data(), &error);
    return list;
  }
  std::vector<std::string> texts(const std::vector<int64_t> &numbers) {
    HostTensor packed;
    packed.dtype = DType::String;
    packed.dims = {int64_t(numbers.size())};
    packed.data.resize(library().packedBytes(strings, numbers.data(), int64_t(numbers.size()), &error));
    if (error.code)
      return {};
    library().pack(strings, numbers.data(), int64_t(numbers.size()), packed.data.data());
    auto views = stringsOf(packed);
    return {views->begin(), views->end()};
  }
  std::string message() {
    std::string text = error.code ? error.message : "";
    error = {};
    return text;
  }

  LatheHostError error{};
  LatheStrings *strings = nullptr;
};

/// A tensor of a call, which owns its elements.
template <typename T> struct Operand {
  Operand(DType dtype, std::vector<T> values) : values(std::move(values)), dtype(dtype), dims{int64_t(this->values.size())} {}
  LatheHostTensor view() { return {values.data(), int32_t(dtype), 1, dims}; }
  std::vector<T> values;
  DType dtype;
  int64_t dims[1];
};

LatheHostAttribute text(const char *name, std::string_view value) { return {name, nullptr, 0, value.data(), value.size()}; }
LatheHostAttribute number(const char *name, const int64_t &value) { return {name, &value, 1, "", 0}; }

void call(Table &table, const char *name, std::vector<LatheHostTensor> inputs, std::vector<LatheHostTensor> outputs,
          std::vector<LatheHostAttribute> attributes = {}) {
  LatheHostOp op = library().find(name);
  ASSERT_TRUE(op) << name;
  LatheHostCall made{inputs.data(),     inputs.size(),     outputs.data(), outputs.size(),
                     attributes.data(), attributes.size(), table.strings,  &table.error};
  op(&made);
}

using Bytes = std::vector<uint8_t>;
constexpr int kWidth = 13, kHeight = 9;

Bytes picture() {
  Bytes rgb;
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x)
      rgb.insert(rgb.end(), {uint8_t(x * 19), uint8_t(y * 28), uint8_t((x * y) & 0xff)});
  return rgb;
}

void little(Bytes &out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out.push_back(uint8_t(value >> (8 * i)));
}

Bytes bmp(int32_t width = kWidth, int32_t height = kHeight) {
  Bytes out = {'B', 'M'};
  for (uint32_t v : {0u, 0u, 54u, 40u})
    little(out, v, 4);
  little(out, uint32_t(width), 4);
  little(out, uint32_t(height), 4);
  little(out, 1, 2);
  little(out, 24, 2);
  for (int i = 0; i < 6; ++i)
    little(out, 0, 4);
  Bytes rgb = picture();
  for (int y = kHeight; y-- > 0;) {
    for (int x = 0; x < kWidth; ++x)
      for (int c = 2; c >= 0; --c)
        out.push_back(rgb[size_t((y * kWidth + x) * 3 + c)]);
    while (out.size() % 4 != 2)
      out.push_back(0);
  }
  return out;
}

Bytes pnm() {
  std::string header = "P6\n# a comment\n13 9\n255\n";
  Bytes out(header.begin(), header.end()), rgb = picture();
  out.insert(out.end(), rgb.begin(), rgb.end());
  return out;
}

Bytes png() {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = kWidth;
  image.height = kHeight;
  image.format = PNG_FORMAT_RGB;
  Bytes out(4096), rgb = picture();
  png_alloc_size_t size = out.size();
  EXPECT_TRUE(png_image_write_to_memory(&image, out.data(), &size, 0, rgb.data(), 0, nullptr));
  out.resize(size);
  return out;
}

Bytes jpeg() {
  tjhandle handle = tjInitCompress();
  unsigned char *memory = nullptr;
  unsigned long size = 0;
  Bytes rgb = picture();
  EXPECT_EQ(tjCompress2(handle, rgb.data(), kWidth, 0, kHeight, TJPF_RGB, &memory, &size, TJSAMP_444, 95, 0), 0);
  Bytes out(memory, memory + size);
  tjFree(memory);
  tjDestroy(handle);
  return out;
}

Bytes webp() {
  uint8_t *memory = nullptr;
  Bytes rgb = picture();
  size_t size = WebPEncodeLosslessRGB(rgb.data(), kWidth, kHeight, 3 * kWidth, &memory);
  Bytes out(memory, memory + size);
  WebPFree(memory);
  return out;
}

/// One strip, not compressed.
Bytes tiffFile() {
  Bytes rgb = picture(), out = {'I', 'I', '*', 0};
  constexpr uint32_t kTags = 10, kData = 8 + 2 + kTags * 12 + 4 + 6;
  little(out, 8, 4);
  little(out, kTags, 2);
  auto tag = [&](uint32_t id, uint32_t type, uint32_t count, uint32_t value) {
    little(out, id, 2);
    little(out, type, 2);
    little(out, count, 4);
    little(out, value, 4);
  };
  tag(256, 3, 1, kWidth);
  tag(257, 3, 1, kHeight);
  tag(258, 3, 3, kData - 6); // bits of a sample
  tag(259, 3, 1, 1);         // no compression
  tag(262, 3, 1, 2);         // RGB
  tag(273, 4, 1, kData);
  tag(277, 3, 1, 3);
  tag(278, 3, 1, kHeight);
  tag(279, 4, 1, uint32_t(rgb.size()));
  tag(284, 3, 1, 1);
  little(out, 0, 4);
  for (int c = 0; c < 3; ++c)
    little(out, 8, 2);
  out.insert(out.end(), rgb.begin(), rgb.end());
  return out;
}

Bytes jpeg2000() {
  opj_cparameters_t parameters;
  opj_set_default_encoder_parameters(&parameters);
  parameters.tcp_numlayers = 1;
  parameters.cp_disto_alloc = 1;
  parameters.numresolution = 2;
  opj_image_cmptparm_t channels[3] = {};
  for (opj_image_cmptparm_t &c : channels)
    c = {1, 1, kWidth, kHeight, 0, 0, 8, 8, 0};
  opj_image_t *image = opj_image_create(3, channels, OPJ_CLRSPC_SRGB);
  image->x1 = kWidth;
  image->y1 = kHeight;
  Bytes rgb = picture(), out;
  for (int i = 0; i < kWidth * kHeight; ++i)
    for (int c = 0; c < 3; ++c)
      image->comps[c].data[i] = rgb[size_t(3 * i + c)];
  opj_codec_t *codec = opj_create_compress(OPJ_CODEC_J2K);
  EXPECT_TRUE(opj_setup_encoder(codec, &parameters, image));
  opj_stream_t *stream = opj_stream_default_create(OPJ_FALSE);
  opj_stream_set_user_data(stream, &out, nullptr);
  opj_stream_set_write_function(stream, [](void *from, OPJ_SIZE_T count, void *to) -> OPJ_SIZE_T {
    auto *bytes = static_cast<uint8_t *>(from);
    static_cast<Bytes *>(to)->insert(static_cast<Bytes *>(to)->end(), bytes, bytes + count);
    return count;
  });
  EXPECT_TRUE(opj_start_compress(codec, image, stream) && opj_encode(codec, stream) && opj_end_compress(codec, stream));
  opj_stream_destroy(stream);
  opj_destroy_codec(codec);
  opj_image_destroy(image);
  return out;
}

/// The pixels of a file, decoded by both ops as a program does; the error in `table`.
Bytes decode(Table &table, const Bytes &file, const char *format = "RGB") {
  Operand<uint8_t> x(DType::UI8, file);
  Operand<int64_t> height(DType::I64, {0}), width(DType::I64, {0});
  call(table, "image.size", {x.view()}, {height.view(), width.view()});
  if (table.error.code)
    return {};
  size_t channels = std::string_view(format) == "Grayscale" ? 1 : 3;
  if (height.values[0] * width.values[0] > (1 << 20)) // of a damaged header: allowed, and too much for a test
    return {};
  Operand<uint8_t> y(DType::UI8, Bytes(size_t(height.values[0] * width.values[0]) * channels));
  call(table, "image.decode", {x.view()}, {y.view()}, {text("pixel_format", format)});
  return table.error.code ? Bytes() : y.values;
}

} // namespace

TEST(HostLibrary, EqualStringsHaveOneNumber) {
  Table table({"", "b"});
  std::vector<int64_t> numbers = table.numbers({"a", "b", "", "a", "ä€𝄞"});
  EXPECT_EQ(numbers, (std::vector<int64_t>{2, 1, 0, 2, 3}));
  EXPECT_EQ(table.texts(numbers), (std::vector<std::string>{"a", "b", "", "a", "ä€𝄞"}));
  library().beginRun(table.strings); // constants stay
  EXPECT_EQ(table.numbers({"z", "b"}), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(table.message(), "");
  EXPECT_TRUE(table.texts({3}).empty());
  EXPECT_EQ(table.message(), "no string has the number 3");
}

TEST(HostLibrary, RefusesStringsThatAreNotPacked) {
  Table table;
  for (const char *bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "a\x80"}) {
    table.numbers({"fine", bad});
    EXPECT_EQ(table.error.code, int(ErrorCode::Usage));
    EXPECT_EQ(table.message(), "string 1 is no UTF-8");
  }
  Table broken({"", "\xff"});
  EXPECT_EQ(broken.strings, nullptr);
  EXPECT_EQ(broken.error.code, int(ErrorCode::Invalid));
  for (std::vector<int64_t> offsets : {std::vector<int64_t>{0, -1, 0}, {0, 2, 1}, {1, 1, 1}, {0, 1, INT64_MAX}, {0, 1}, {}}) {
    std::vector<char> packed(offsets.size() * 8 + 3, 'x'); // read at any alignment, in memory of exactly this size
    if (!offsets.empty())
      std::memcpy(packed.data(), offsets.data(), offsets.size() * 8);
    int64_t numbers[2];
    library().numberAll(table.strings, packed.data(), packed.size(), 2, numbers, &table.error);
    EXPECT_EQ(table.error.code, int(ErrorCode::Usage));
    EXPECT_NE(table.message(), "");
  }
}

TEST(HostLibrary, LooksIntoStrings) {
  Table table;
  Operand<int64_t> x(DType::I64, table.numbers({"a,b", "", ",", "Ä b"})), n(DType::I64, {0, 0, 0, 0}), most(DType::I64, {0});
  call(table, "string.split_counts", {x.view()}, {n.view(), most.view()}, {text("delimiter", ",")});
  EXPECT_EQ(n.values, (std::vector<int64_t>{2, 1, 2, 1}));
  EXPECT_EQ(most.values[0], 2);
  Operand<int64_t> parts(DType::I64, std::vector<int64_t>(8));
  call(table, "string.split", {x.view()}, {parts.view()}, {text("delimiter", ",")});
  EXPECT_EQ(table.texts(parts.values), (std::vector<std::string>{"a", "b", "", "", "", "", "Ä b", ""}));
  Operand<int64_t> narrow(DType::I64, std::vector<int64_t>(4));
  call(table, "string.split", {x.view()}, {narrow.view()}, {text("delimiter", ",")});
  EXPECT_EQ(table.message(), "more parts than were counted");

  const int64_t sensitive = 0;
  Operand<int64_t> stop(DType::I64, table.numbers({"ä B"})), kept(DType::I64, std::vector<int64_t>(4)), count(DType::I64, {0});
  call(table, "string.normalize", {x.view(), stop.view()}, {kept.view(), count.view()},
       {text("case", "UPPER"), number("case_sensitive", sensitive)});
  EXPECT_EQ(count.values[0], 3);
  EXPECT_EQ(table.texts(kept.values), (std::vector<std::string>{"A,B", "", ",", ""}));

  Operand<uint8_t> hits(DType::Bool, Bytes(4));
  call(table, "string.full_match", {x.view()}, {hits.view()}, {text("pattern", "\\pL.*b")});
  EXPECT_EQ(hits.values, (Bytes{1, 0, 0, 1}));
  call(table, "string.full_match", {x.view()}, {hits.view()}, {text("pattern", "(")});
  EXPECT_EQ(table.error.code, int(ErrorCode::Invalid));
  EXPECT_EQ(table.message(), "the pattern '(' is no regular expression of RE2: missing ): (");
  call(table, "string.full_match", {x.view()}, {n.view()}, {text("pattern", "a")});
  EXPECT_EQ(table.message(), "wrong number or type of operands");
  call(table, "string.concat", {x.view()}, {n.view()});
  EXPECT_EQ(table.message(), "wrong number or type of operands");
  Operand<int64_t> some(DType::I64, table.numbers({"b", "", "Ä", "b", "a"})), ranks(DType::I64, std::vector<int64_t>(5));
  call(table, "string.rank", {some.view()}, {ranks.view()});
  EXPECT_EQ(ranks.values, (std::vector<int64_t>{2, 0, 3, 2, 1}));
  EXPECT_EQ(library().find("string.reverse"), nullptr);
}

TEST(HostLibrary, ReadsAndWritesNumbers) {
  Table table;
  Operand<float> f(DType::F32, {0.1f, -3, 1e10f, NAN, -INFINITY, 16777216});
  Operand<int64_t> texts(DType::I64, std::vector<int64_t>(6));
  call(table, "string.format", {f.view()}, {texts.view()});
  EXPECT_EQ(table.texts(texts.values), (std::vector<std::string>{"0.1", "-3", "1e+10", "NaN", "-INF", "16777216"}));
  Operand<float> back(DType::F32, std::vector<float>(6));
  call(table, "string.parse", {texts.view()}, {back.view()});
  for (size_t i = 0; i < 6; ++i)
    EXPECT_TRUE(back.values[i] == f.values[i] || (std::isnan(back.values[i]) && std::isnan(f.values[i]))) << i;
  for (const char *bad : {"", "1x", "x", "0x10", "1 2", "1e99", "++1"}) {
    Operand<int64_t> one(DType::I64, table.numbers({bad}));
    Operand<float> y(DType::F32, {0});
    call(table, "string.parse", {one.view()}, {y.view()});
    EXPECT_EQ(table.error.code, int(ErrorCode::RuntimeFailure)) << bad;
    table.message();
  }
  Operand<int64_t> big(DType::I64, table.numbers({" 128\t"}));
  Operand<int8_t> small(DType::I8, {0});
  call(table, "string.parse", {big.view()}, {small.view()});
  EXPECT_EQ(table.message(), "' 128\t' is beyond the range of i8");
}

struct Encoded {
  const char *name;
  Bytes (*make)();
  bool exact;
};
const Encoded kEncoded[] = {{"BMP", [] { return bmp(); }, true}, {"PNM", pnm, true},
                            {"PNG", png, true},                  {"JPEG", jpeg, false},
                            {"WebP", webp, true},                {"TIFF", tiffFile, true},
                            {"JPEG 2000", jpeg2000, true}};

TEST(HostLibrary, DecodesImages) {
  Bytes want = picture();
  for (const Encoded &format : kEncoded) {
    Table table;
    Bytes got = decode(table, format.make());
    ASSERT_EQ(table.message(), "") << format.name;
    ASSERT_EQ(got.size(), want.size()) << format.name;
    int worst = 0;
    for (size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(int(got[i]) - int(want[i])));
    EXPECT_LE(worst, format.exact ? 0 : 40) << format.name;
    Bytes bgr = decode(table, format.make(), "BGR"), gray = decode(table, format.make(), "Grayscale");
    EXPECT_EQ(bgr[0], got[2]);
    EXPECT_EQ(gray.size(), got.size() / 3);
  }
}

TEST(HostLibrary, RefusesTruncatedImages) {
  for (const Encoded &format : kEncoded) {
    Bytes whole = format.make();
    // The last bytes may be padding, or an end that decoders do without.
    for (size_t size = 0; size + 12 < whole.size(); ++size) {
      Table table;
      decode(table, Bytes(whole.begin(), whole.begin() + ptrdiff_t(size)));
      EXPECT_EQ(table.error.code, int(ErrorCode::RuntimeFailure)) << format.name << " cut at " << size;
    }
  }
}

/// Whatever a damaged file says: an error or pixels.
TEST(HostLibrary, SurvivesDamagedImages) {
  std::mt19937 random(7);
  for (const Encoded &format : kEncoded) {
    Bytes whole = format.make();
    for (int round = 0; round < 300; ++round) {
      Bytes damaged = whole;
      for (int flips = 1 + int(random() % 3); flips > 0; --flips)
        damaged[random() % std::min<size_t>(damaged.size(), round % 2 ? damaged.size() : 80)] = uint8_t(random());
      Table table;
      decode(table, damaged);
    }
  }
}

TEST(HostLibrary, LimitsPixelsBeforeDecoding) {
  Table table;
  decode(table, bmp(1 << 20, 1 << 20));
  EXPECT_EQ(table.message(), "a BMP image of 1048576x1048576 pixels; 134217728 are decoded at most");
  decode(table, bmp(0, 5));
  EXPECT_EQ(table.message(), "a BMP image of 0x5 pixels");
  decode(table, bmp(-5, 5));
  EXPECT_EQ(table.message(), "a BMP image of -5x5 pixels");
  decode(table, bmp(5, INT32_MIN));
  EXPECT_NE(table.message(), "");
  decode(table, bmp(kWidth, kHeight + 1));
  EXPECT_EQ(table.message(), "the BMP image is truncated");
  // A PNG that promises 2^31 - 1 by 2^31 - 1 pixels in a few bytes, with a right checksum.
  Bytes bomb = png();
  for (size_t i = 16; i < 24; ++i)
    bomb[i] = i % 4 == 0 ? 0x7f : 0xff;
  uint32_t crc = 0xffffffffu;
  for (size_t i = 12; i < 29; ++i) {
    crc ^= bomb[i];
    for (int k = 0; k < 8; ++k)
      crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  for (size_t i = 0; i < 4; ++i)
    bomb[29 + i] = uint8_t(~crc >> (24 - 8 * i));
  decode(table, bomb);
  EXPECT_EQ(table.error.code, int(ErrorCode::RuntimeFailure));
  EXPECT_NE(table.message(), "");
  decode(table, {'n', 'o'});
  EXPECT_EQ(table.message(), "no image of a known format: BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP");
}
