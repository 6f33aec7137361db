//===- CpuFormsTest.cpp - volumes, lines, parts, transposes -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Forms of convolutions beside the usual ones, and transposes, against plain loops.
//
//===----------------------------------------------------------------------===//

#include "CpuSkeleton.h"

#include "lathe/codegen/DirectConv.h"
#include "lathe/support/Winograd.h"

#include <array>
#include <map>

using namespace lathe;
using namespace lathe::test;

namespace {

/// conv over volumes, channels last, with plain loops; pads before and after alike.
struct Volume {
  int64_t channels, filters, kernel, stride, pad, group;
  static constexpr int64_t size[3] = {4, 5, 7};
  int64_t out(int d) const { return (size[d] + 2 * pad - kernel) / stride + 1; }
  std::vector<float> result(const std::vector<float> &x, const std::vector<float> &w) const {
    int64_t each = channels / group, taps = kernel * kernel * kernel;
    std::vector<float> y;
    for (int64_t p = 0; p < out(0) * out(1) * out(2); ++p)
      for (int64_t f = 0; f < filters; ++f) {
        int64_t at[3] = {p / (out(1) * out(2)), p / out(2) % out(1), p % out(2)};
        double sum = 0;
        for (int64_t t = 0; t < taps; ++t) {
          int64_t tap[3] = {t / (kernel * kernel), t / kernel % kernel, t % kernel}, pixel = 0;
          bool inside = true;
          for (int d = 0; d < 3; ++d) {
            int64_t i = at[d] * stride + tap[d] - pad;
            inside &= i >= 0 && i < size[d];
            pixel = pixel * size[d] + i;
          }
          for (int64_t c = 0; inside && c < each; ++c)
            sum += double(x[pixel * channels + f / (filters / group) * each + c]) *
                   w[(f * each + c) * taps + t];
        }
        y.push_back(static_cast<float>(sum));
      }
    return y;
  }
};

TEST(CpuForms, VolumesInPlaceInBlocksAndInGroups) {
  auto s = [](int64_t v) { return std::to_string(v); };
  for (const Volume &v :
       {Volume{3, 40, 3, 1, 1, 1}, Volume{16, 24, 2, 1, 0, 1}, Volume{64, 64, 3, 2, 1, 2}}) {
    int64_t each = v.channels / v.group;
    std::string x = "tensor<1x4x5x7x" + s(v.channels) + "xf32>", k = "x" + s(v.kernel);
    std::string w = "tensor<" + s(v.filters) + "x" + s(each) + k + k + k + "xf32>";
    std::string y = "tensor<1x" + s(v.out(0)) + "x" + s(v.out(1)) + "x" + s(v.out(2)) + "x" +
                    s(v.filters) + "xf32>";
    std::string three = s(v.stride) + ", " + s(v.stride) + ", " + s(v.stride),
                pad = s(v.pad) + ", " + s(v.pad) + ", " + s(v.pad);
    std::string text = "func.func @conv(%x: " + x + ", %w: " + w + ") -> " + y +
                       " {\n %0 = lathe.conv %x, %w {strides = array<i64: " + three +
                       ">, pads = array<i64: " + pad + ", " + pad +
                       ">, dilations = array<i64: 1, 1, 1>, group = " + s(v.group) +
                       " : i64, layout = #lathe.conv_layout<nhwc>} : (" + x + ", " + w + ") -> " +
                       y + "\n return %0 : " + y + "\n}";
    auto xv = noise(4 * 5 * 7 * v.channels, 1),
         wv = noise(v.filters * each * v.kernel * v.kernel * v.kernel, 2);
    std::vector<float> want = v.result(xv, wv);
    std::vector<DimExpr> size{4, 5, 7}, out{v.out(0), v.out(1), v.out(2)};
    std::vector<int64_t> window(3, v.kernel), stride(3, v.stride), pads(6, v.pad), ones(3, 1);
    auto g = ConvGeometry::of(size, out, window, stride, pads, ones, each);
    ASSERT_TRUE(g);
    for (const Machine &machine : machines())
      for (bool blocks : {true, false}) {
        if (!blocks && (v.pad || v.group != 1))
          continue;
        std::vector<int64_t> dims{v.filters, each, v.kernel, v.kernel, v.kernel};
        int64_t width = v.group == 1 ? 2 * machine.lanes : machine.lanes;
        std::string recipe =
            v.group == 1 ? "filters" + s(width) : "groups" + s(width) + "x" + s(v.group);
        int64_t panels = v.group == 1 ? 1 : v.filters / v.group / width;
        CpuKernel kernel(text,
                         "conv.v" + s(machine.lanes) + ".m" + s(machine.rows) + ".n" + s(width) +
                             ".k" + s(panels) + (blocks ? ".s2" : ""),
                         machine.target, "3", [&](KernelSpec &spec) {
                           spec.buffers[1].packing = recipe;
                           spec.scratchBytes = g->scratchElements(2) * DimExpr(4);
                         });
        ASSERT_EQ(kernel.error, "");
        auto got = kernel.run({bytesOf(xv), packed(recipe, wv, dims)});
        ASSERT_EQ(kernel.error, "");
        expectNear(valuesOf<float>(got[0]), want, 1e-4f,
                   machine.target + (blocks ? " in blocks" : " in place"));
      }
  }
}

// A chunk holds whole images or an equal part of one, so its numbers of tiles are known for any
// number of images, and points that only the last rows and columns need are left out of all of them.
TEST(CpuForms, WinogradOfAnyNumberOfImages) {
  auto s = [](int64_t v) { return std::to_string(v); };
  constexpr int64_t c = 16, o = 40;
  struct Case {
    int64_t size, stride, rows; ///< rows: tiles of a chunk
  };
  for (const Case &v : {Case{7, 1, 32}, Case{7, 1, 8}, Case{5, 2, 27}, Case{8, 1, 16}, Case{7, 1, 10}}) {
    int64_t in = v.stride * (v.size - 1) + 1, tiles = (v.size + 1) / 2 * ((v.size + 1) / 2);
    auto sides = [&](int64_t size, int64_t channels) {
      std::string all = s(size) + "x" + s(size) + "x" + s(channels);
      return "tensor<?x" + all + "xf32, #lathe.t<[N, " + s(size) + ", " + s(size) + ", " +
             s(channels) + "]>>";
    };
    std::string x = sides(in, c), y = sides(v.size, o), w = "tensor<40x16x3x3xf32>";
    std::string strides = s(v.stride) + ", " + s(v.stride);
    std::string text = "func.func @conv(%x: " + x + ", %w: " + w + ") -> " + y +
                       " {\n %0 = lathe.conv %x, %w {strides = array<i64: " + strides +
                       ">, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : "
                       "i64, layout = #lathe.conv_layout<nhwc>} : (" +
                       x + ", " + w + ") -> " + y + "\n return %0 : " + y + "\n}";
    auto wv = noise(o * c * 9, 2);
    winograd::Form form{2, v.stride};
    for (const Machine &machine : machines()) {
      int64_t panel = 2 * machine.lanes;
      std::string recipe = "winograd" + s(panel) + (v.stride == 2 ? "s2" : "");
      CpuKernel kernel(text,
                       "conv.winograd2.v" + s(machine.lanes) + ".r" + s(v.rows) + ".m" +
                           s(machine.rows) + ".n" + s(panel) + ".k2.s2",
                       machine.target,
                       "ceildiv(" + s(tiles) + "*N, " + s(v.rows) + ")*" + s((o + 2 * panel - 1) / (2 * panel)),
                       [&](KernelSpec &spec) {
                         spec.buffers[1].packing = recipe;
                         spec.scratchBytes = DimExpr(form.scratchBytes(v.rows, c, 2 * panel));
                       });
      ASSERT_EQ(kernel.error, "");
      Bytes weight = packed(recipe, wv, {o, c, 3, 3});
      for (int64_t n : {1, 2, 3, 5}) {
        auto xv = noise(n * in * in * c, 1);
        std::vector<float> want;
        for (int64_t p = 0; p < n * v.size * v.size; ++p)
          for (int64_t f = 0; f < o; ++f) {
            int64_t image = p / (v.size * v.size), row = p / v.size % v.size * v.stride - 1,
                    column = p % v.size * v.stride - 1;
            double sum = 0;
            for (int64_t t = 0; t < 9; ++t) {
              int64_t i = row + t / 3, j = column + t % 3;
              for (int64_t k = 0; i >= 0 && i < in && j >= 0 && j < in && k < c; ++k)
                sum += double(xv[((image * in + i) * in + j) * c + k]) * wv[(f * c + k) * 9 + t];
            }
            want.push_back(static_cast<float>(sum));
          }
        auto got = kernel.run({bytesOf(xv), weight}, {{"N", n}});
        ASSERT_EQ(kernel.error, "");
        expectNear(valuesOf<float>(got[0]), want, 1e-4f,
                   machine.target + " " + s(v.size) + " in chunks of " + s(v.rows) + ", " + s(n));
      }
    }
  }
}

// Filters in parts, as phases of a transposed convolution: weights outside a part's box are zero
// and not even packed. Panels in one part, in two, and in all; results go to their phases' places,
// one row and column being cut off.
TEST(CpuForms, FiltersInPartsStoreSubPixels) {
  auto s = [](int64_t v) { return std::to_string(v); };
  const std::vector<int64_t> taps{0, 2, 0, 2, 0, 2, 1, 1, 1, 2, 0, 2, 1, 2, 1, 1};
  constexpr int64_t h = 5, width = 7, c = 6;
  for (int64_t each : {3, 16, 24}) {
    int64_t filters = 4 * each;
    auto xv = noise(h * width * c, 1), wv = noise(filters * c * 9, 2);
    std::vector<float> want(9 * 13 * each);
    for (int64_t f = 0; f < filters; ++f)
      for (int64_t i = 0; i < c; ++i)
        for (int64_t t = 0; t < 9; ++t) {
          const int64_t *box = &taps[f / each * 4];
          bool in = t / 3 >= box[0] && t / 3 < box[0] + box[1] && t % 3 >= box[2] &&
                    t % 3 < box[2] + box[3];
          wv[(f * c + i) * 9 + t] *= in;
        }
    for (int64_t p = 0; p < 9; ++p)
      for (int64_t q = 0; q < 13; ++q)
        for (int64_t m = 0; m < each; ++m) {
          int64_t f = (p % 2 * 2 + q % 2) * each + m;
          double sum = 0;
          for (int64_t t = 0; t < 9; ++t)
            for (int64_t i = 0; i < c; ++i) {
              int64_t y = p / 2 + t / 3 - 1, x = q / 2 + t % 3 - 1;
              if (y >= 0 && y < h && x >= 0 && x < width)
                sum += double(xv[(y * width + x) * c + i]) * wv[(f * c + i) * 9 + t];
            }
          want[(p * 13 + q) * each + m] = static_cast<float>(std::max(sum, 0.0));
        }
    std::string x = "tensor<1x5x7x6xf32>", w = "tensor<" + s(filters) + "x6x3x3xf32>",
                m = s(each) + "xf32>";
    std::string conv = "tensor<1x5x7x" + s(filters) + "xf32>", split = "tensor<1x5x7x2x2x" + m,
                order = "tensor<1x5x2x7x2x" + m;
    std::string whole = "tensor<1x10x14x" + m, y = "tensor<1x9x13x" + m;
    std::string text =
        "func.func @conv(%x: " + x + ", %w: " + w + ") -> " + y +
        " {\n %z = lathe.constant dense<0.0> : tensor<f32>\n %0 = lathe.conv %x, %w {strides = "
        "array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, "
        "group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (" +
        x + ", " + w + ") -> " + conv + "\n %1 = lathe.max %0, %z : (" + conv +
        ", tensor<f32>) -> " + conv + "\n %2 = lathe.reshape %1 : (" + conv + ") -> " + split +
        "\n %3 = lathe.transpose %2 {perm = array<i64: 0, 1, 3, 2, 4, 5>} : (" + split + ") -> " +
        order + "\n %4 = lathe.reshape %3 : (" + order + ") -> " + whole +
        "\n %5 = lathe.slice %4 {starts = [#lathe.dim<0>, #lathe.dim<0>, #lathe.dim<0>, "
        "#lathe.dim<0>], steps = array<i64: 1, 1, 1, 1>} : (" +
        whole + ") -> " + y + "\n return %5 : " + y + "\n}";
    std::vector<DimExpr> size{h, width};
    std::vector<int64_t> window{3, 3}, ones{1, 1}, pads(4, 1);
    auto g = ConvGeometry::of(size, size, window, ones, pads, ones, c);
    ASSERT_TRUE(g);
    for (const Machine &machine : machines())
      for (int64_t panel : {2 * machine.lanes, machine.lanes}) {
        if (panel == machine.lanes && filters % panel)
          continue;
        std::string recipe = partsRecipe(panel, taps, 2);
        CpuKernel kernel(
            text, "conv.v" + s(machine.lanes) + ".m" + s(machine.rows) + ".n" + s(panel) + ".k2.s2",
            machine.target, "3", [&](KernelSpec &spec) {
              spec.buffers[1].packing = recipe;
              spec.scratchBytes = g->scratchElements(2) * DimExpr(4);
            });
        ASSERT_EQ(kernel.error, "");
        auto got = kernel.run({bytesOf(xv), packed(recipe, wv, {filters, c, 3, 3})});
        ASSERT_EQ(kernel.error, "");
        expectNear(valuesOf<float>(got[0]), want, 1e-4f, machine.target + " in " + recipe);
      }
  }
  EXPECT_FALSE(PanelLayout::of("parts16x0+2.0+2,1+3.0+1", {32, 6, 3, 3}).ok()); // beyond the window
  EXPECT_FALSE(PanelLayout::of("parts16x0+2.0+2", {}).ok());
  EXPECT_FALSE(PanelLayout::of("parts16x0+2", {32, 6, 3, 3}).ok());
  EXPECT_FALSE(PanelLayout::of("parts16x0+1.0+1,0+1.0+1,0+1.0+1", {32, 6, 3, 3}).ok()); // 32 / 3
}

// A depthwise convolution of stride 1 and 2, relu, and a convolution of pixels with a residual, in
// blocks of rows, the last one short; channels that are no whole vectors, known and unknown images.
TEST(CpuForms, DepthwiseThenPixels) {
  auto s = [](int64_t v) { return std::to_string(v); };
  constexpr int64_t n = 2, h = 7, width = 11, c = 20, filters = 40, rows = 3;
  for (int64_t stride : {1, 2})
    for (bool known : {true, false}) {
      const int64_t oh = (h - 1) / stride + 1, ow = (width - 1) / stride + 1;
      auto xv = noise(n * h * width * c, 1), dv = noise(c * 9, 2), wv = noise(filters * c, 3),
           rv = noise(n * oh * ow * filters, 4);
      std::vector<float> want;
      for (int64_t p = 0; p < n * oh * ow; ++p) {
        int64_t b = p / (oh * ow), y = p / ow % oh * stride - 1, x = p % ow * stride - 1;
        double middle[c] = {};
        for (int64_t t = 0; t < 9; ++t)
          for (int64_t i = 0; i < c; ++i)
            if (int64_t yy = y + t / 3, xx = x + t % 3; yy >= 0 && yy < h && xx >= 0 && xx < width)
              middle[i] += double(xv[((b * h + yy) * width + xx) * c + i]) * dv[i * 9 + t];
        for (int64_t f = 0; f < filters; ++f) {
          double sum = rv[p * filters + f];
          for (int64_t i = 0; i < c; ++i)
            sum += std::max(middle[i], 0.0) * wv[f * c + i];
          want.push_back(static_cast<float>(sum));
        }
      }
      auto type = [&](int64_t high, int64_t wide, const std::string &highName,
                      const std::string &wideName, int64_t channels) {
        return known ? "tensor<2x" + s(high) + "x" + s(wide) + "x" + s(channels) + "xf32>"
                     : "tensor<?x?x?x" + s(channels) + "xf32, #lathe.t<[N, " + highName + ", " +
                           wideName + ", " + s(channels) + "]>>";
      };
      auto after = [&](const std::string &size) {
        return stride == 1 ? size : "floordiv(" + size + " - 1, 2) + 1";
      };
      std::string x = type(h, width, "H", "W", c), d = "tensor<20x1x3x3xf32>",
                  w = "tensor<40x20x1x1xf32>", m = type(oh, ow, after("H"), after("W"), c),
                  y = type(oh, ow, after("H"), after("W"), filters);
      std::string last = "dilations = array<i64: 1, 1>, layout = #lathe.conv_layout<nhwc>, group = ";
      std::string text =
          "func.func @conv(%x: " + x + ", %d: " + d + ", %w: " + w + ", %r: " + y + ") -> " + y +
          " {\n %z = lathe.constant dense<0.0> : tensor<f32>\n %0 = lathe.conv %x, %d {strides = "
          "array<i64: " + s(stride) + ", " + s(stride) + ">, pads = array<i64: 1, 1, 1, 1>, " + last +
          "20 : i64} : (" + x + ", " + d + ") -> " + m + "\n %1 = lathe.max %0, %z : (" + m +
          ", tensor<f32>) -> " + m + "\n %2 = lathe.conv %1, %w {strides = array<i64: 1, 1>, pads = "
          "array<i64: 0, 0, 0, 0>, " + last + "1 : i64} : (" + m + ", " + w + ") -> " + y +
          "\n %3 = lathe.add %2, %r : (" + y + ", " + y + ") -> " + y + "\n return %3 : " + y + "\n}";
      for (const Machine &machine : machines()) {
        std::string recipe = "filters" + s(2 * machine.lanes);
        CpuKernel kernel(text, tileConfig("conv", machine) + ".s" + s(rows), machine.target, "3",
                         [&](KernelSpec &spec) {
                           spec.buffers[1].packing = "taps";
                           spec.buffers[2].packing = recipe;
                           spec.scratchBytes = DimExpr(4 * rows * ow * c);
                         });
        ASSERT_EQ(kernel.error, "");
        auto got = kernel.run({bytesOf(xv), packed("taps", dv, {c, 1, 3, 3}),
                               packed(recipe, wv, {filters, c, 1, 1}), bytesOf(rv)},
                              {{"N", n}, {"H", h}, {"W", width}});
        ASSERT_EQ(kernel.error, "");
        expectNear(valuesOf<float>(got[0]), want, 1e-4f, machine.target + " of stride " + s(stride));
      }
    }
}

TEST(CpuForms, DepthwiseLines) {
  auto s = [](int64_t v) { return std::to_string(v); };
  for (auto [channels, k, stride, low, high, dilation] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>>{
           {20, 4, 1, 3, 0, 1}, {24, 5, 2, 2, 2, 2}, {8, 40, 1, 20, 19, 1}}) {
    int64_t reach = (k - 1) * dilation + 1;
    std::string c = s(channels), x = "tensor<2x?x" + c + "xf32, #lathe.t<[2, L, " + c + "]>>";
    std::string y = "tensor<2x?x" + c + "xf32, #lathe.t<[2, floordiv(L + " +
                    s(low + high - reach + 100 * stride) + ", " + s(stride) + ") - 99, " + c +
                    "]>>";
    std::string w = "tensor<" + c + "x1x" + s(k) + "xf32>";
    std::string text = "func.func @conv(%x: " + x + ", %w: " + w + ") -> " + y +
                       " {\n %0 = lathe.conv %x, %w {strides = array<i64: " + s(stride) +
                       ">, pads = array<i64: " + s(low) + ", " + s(high) +
                       ">, dilations = array<i64: " + s(dilation) + ">, group = " + c +
                       " : i64, layout = #lathe.conv_layout<nhwc>} : (" + x + ", " + w + ") -> " +
                       y + "\n return %0 : " + y + "\n}";
    auto wv = noise(channels * k, 2);
    for (const Machine &machine : machines()) {
      CpuKernel kernel(text, tileConfig("conv", machine), machine.target, "3",
                       [&](KernelSpec &spec) { spec.buffers[1].packing = "taps"; });
      ASSERT_EQ(kernel.error, "");
      for (int64_t length : {5, 41, 100}) {
        auto xv = noise(2 * length * channels, 1);
        std::vector<float> want;
        for (int64_t n = 0; n < 2; ++n)
          for (int64_t p = 0; p < (length + low + high - reach) / stride + 1; ++p)
            for (int64_t f = 0; f < channels; ++f) {
              double sum = 0;
              for (int64_t t = 0; t < k; ++t)
                if (int64_t i = p * stride + t * dilation - low; i >= 0 && i < length)
                  sum += double(xv[(n * length + i) * channels + f]) * wv[f * k + t];
              want.push_back(static_cast<float>(sum));
            }
        auto got = kernel.run({bytesOf(xv), packed("taps", wv, {channels, 1, k})}, {{"L", length}});
        ASSERT_EQ(kernel.error, "");
        expectNear(valuesOf<float>(got[0]), want, 1e-4f,
                   machine.target + " of length " + s(length));
      }
    }
  }
}

/// Images turned to channels last or back, and perhaps one more than that, or images of the result's sizes added.
struct Turn {
  enum class Plus { Nothing, One, Others };
  bool toLast;
  Plus plus;
  std::string text(const std::string &planes, const std::string &pixels) const {
    const std::string &x = toLast ? planes : pixels, &y = toLast ? pixels : planes;
    const std::string added = plus == Plus::Others ? y : "tensor<f32>";
    return "func.func @t(%x: " + x + (plus == Plus::Others ? ", %z: " + y : "") + ") -> " + y +
           " {\n %0 = lathe.transpose %x {perm = array<i64: " +
           (toLast ? "0, 2, 3, 1" : "0, 3, 1, 2") + ">} : (" + x + ") -> " + y +
           "\n %o = lathe.constant dense<1.0> : tensor<f32>\n %1 = lathe.add %0, " + (plus == Plus::Others ? "%z" : "%o") +
           " : (" + y + ", " + added + ") -> " + y + "\n return %" + (plus == Plus::Nothing ? "0" : "1") + " : " + y + "\n}";
  }
  void check(CpuKernel &kernel, const std::array<int64_t, 4> &size, bool symbolic,
             const std::string &what) const {
    auto [n, c, h, w] = size;
    auto xv = noise(n * c * h * w, 1), zv = noise(n * c * h * w, 2);
    std::vector<float> want(xv.size());
    for (int64_t b = 0; b < n; ++b)
      for (int64_t i = 0; i < c; ++i)
        for (int64_t p = 0; p < h * w; ++p) {
          int64_t plane = (b * c + i) * h * w + p, pixel = (b * h * w + p) * c + i;
          int64_t to = toLast ? pixel : plane;
          want[to] = xv[toLast ? plane : pixel] + (plus == Plus::Others ? zv[to] : plus == Plus::One ? 1.0f : 0.0f);
        }
    std::map<std::string, int64_t> sizes;
    if (symbolic)
      sizes = {{"N", n}, {"C", c}, {"H", h}, {"W", w}};
    std::vector<Bytes> inputs{bytesOf(xv)};
    if (plus == Plus::Others)
      inputs.push_back(bytesOf(zv));
    auto got = kernel.run(inputs, sizes);
    ASSERT_EQ(kernel.error, "");
    expectNear(valuesOf<float>(got[0]), want, 0, what);
  }
};

TEST(CpuForms, TransposesSquaresAndTheirEdges) {
  const std::array<int64_t, 4> all[] = {{1, 16, 4, 8}, {2, 20, 5, 7}, {1, 3, 40, 2}};
  for (const Machine &machine : machines())
    for (bool toLast : {true, false}) {
      std::string config = "transpose.v" + std::to_string(machine.lanes);
      for (Turn::Plus plus : {Turn::Plus::Nothing, Turn::Plus::One, Turn::Plus::Others}) {
        Turn turn{toLast, plus};
        CpuKernel kernel(turn.text("tensor<?x?x?x?xf32, #lathe.t<[N, C, H, W]>>",
                                   "tensor<?x?x?x?xf32, #lathe.t<[N, H, W, C]>>"),
                         config, machine.target, "3");
        ASSERT_EQ(kernel.error, "");
        for (const auto &size : all)
          turn.check(kernel, size, true, machine.target + " of symbolic sizes");
      }
      for (const auto &size : all) {
        auto s = [&](int d) { return std::to_string(size[d]) + "x"; };
        Turn turn{toLast, size[0] == 2 ? Turn::Plus::Others : Turn::Plus::Nothing};
        CpuKernel kernel(turn.text("tensor<" + s(0) + s(1) + s(2) + s(3) + "f32>",
                                   "tensor<" + s(0) + s(2) + s(3) + s(1) + "f32>"),
                         config, machine.target, "3");
        ASSERT_EQ(kernel.error, "");
        turn.check(kernel, size, false, machine.target + " of " + s(1) + s(2) + s(3));
      }
    }
}

} // namespace
