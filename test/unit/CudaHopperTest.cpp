//===- CudaHopperTest.cpp - skeletons of sm_90a compile ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that TMA feeds are not emulated: their text compiles with
// NVRTC, without spills where that is said.
//
//===----------------------------------------------------------------------===//

#include "CudaKernel.h"

#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::test;

namespace {

/// Kernels that are generated and then compiled together.
class CudaHopper : public ::testing::Test {
protected:
  void SetUp() override {
    if (!compiler)
      GTEST_SKIP() << compiler.status().str();
  }
  /// Of the next kernel.
  std::string nameOf(const std::string &form) const { return form + std::to_string(jobs.size()); }
  CudaKernel add(const std::string &name, const CudaCase &c) {
    CudaKernel kernel = batch.generate(c);
    EXPECT_EQ(kernel.error, "") << c.config;
    jobs.push_back({name + ".cu", kernel.source, "sm_90a", {}, {}, false});
    return kernel;
  }
  void compile(bool harmlessSpills = true) { expectCompiles(**compiler, jobs, harmlessSpills); }

  CudaBatch batch;

private:
  Result<std::shared_ptr<nvrtc::Compiler>> compiler = nvrtc::Compiler::open();
  std::vector<nvrtc::CompileJob> jobs;
};

/// Registers and tensor cores of Hopper: no spills and no product that waits for the one before.
TEST_F(CudaHopper, AttentionCompiles) {
  for (auto [head, threads, keys, more, maps] :
       {std::tuple{64, 384, 128, ", causal", 3}, {64, 512, 128, ", causal", 3}, {128, 384, 128, ", causal", 3},
        {128, 384, 128, ", softcap = 30.0 : f64", 3}, {96, 384, 128, "", 3}, {256, 384, 80, ", causal", 3},
        {192, 384, 112, ", causal", 3},
        {64, 512, 128, ", causal, log_sum_exp", 3}, {128, 384, 128, ", causal, log_sum_exp", 4},
        {192, 384, 96, ", softcap = 30.0 : f64", 4}, {256, 384, 64, "", 4}, // the fourth: tiles of a mask
        {64, 384, 128, "", 0}, {128, 384, 128, ", causal", 0}, {256, 384, 80, "", 0}}) { // none: a row for all queries
    const bool row = maps == 0, mask = row || maps > 3;
    std::string name = nameOf("wgmma"), d = std::to_string(head),
                q = "tensor<?x8x?x" + d + "xbf16, #lathe.t<[B, 8, S, " + d + "]>>",
                k = "tensor<?x2x?x" + d + "xbf16, #lathe.t<[B, 2, T, " + d + "]>>",
                m = row ? ", tensor<?x1x1x?xi1, #lathe.t<[B, 1, 1, T]>>" : mask ? ", tensor<?x?xbf16, #lathe.t<[S, T]>>" : "", l = "tensor<?x8x?xf32, #lathe.t<[B, 8, S]>>";
    const bool sums = std::string(more).find("log_sum_exp") != std::string::npos;
    const std::string results = sums ? "(" + q + ", " + l + ")" : q;
    CudaCase c{fn(name, "(%q: " + q + ", %k: " + k + ", %v: " + k + (mask ? ", %m: " + m.substr(2) : "") + ") -> " + results,
                  std::string(sums ? "  %0, %1" : "  %0") + " = lathe.attention %q, %k, %v" + (row ? " mask %m" : mask ? " bias %m" : "") +
                      " {scale = 0.125 : f64" + std::string(more) + "} : (" + q + ", " + k + ", " + k + m + ") -> " + results +
                      "\n  return %0" + (sums ? ", %1 : " + q + ", " + l : " : " + q)),
               std::string(row ? "attention.wgmma.keymask.t" : "attention.wgmma.t") + std::to_string(threads) + ".n" +
                   std::to_string(keys) + (threads == 384 && head <= 128 && maps == 3 ? ".s2" : "")};
    c.maps = row ? 3 : maps;
    add(name, c);
  }
  compile();
}

/// The same of products: operands along and across k, results staged and stored directly.
TEST_F(CudaHopper, ProductsCompile) {
  for (auto [config, maps, transposed, element] :
       {std::tuple{"gemm.pingpong.t384.m128.n160.k64.s5", 3, "", "bf16"},
        {"gemm.cooperative.t384.m128.n256.k64.s4", 3, "{transpose_b} ", "f16"},
        {"gemm.pingpong.t384.r16.m64.n32.k64.s12", 2, "{transpose_b} ", "bf16"},
        {"gemm.cooperative.swapped.t384.m96.n128.k64.s7", 3, "{transpose_b} ", "f16"},
        {"gemm.pingpong.swapped.t384.m112.n64.k64.s8", 3, "", "bf16"},
        {"gemm.pingpong.t384.m128.n96.k64.s6", 2, "{transpose_a} ", "f16"}}) {
    std::string e = element, name = nameOf("product");
    bool ta = transposed[0] && transposed[11] == 'a', tb = transposed[0] && !ta;
    std::string at = ta ? "tensor<512x?x" + e + ", #lathe.t<[512, M]>>" : "tensor<?x512x" + e + ", #lathe.t<[M, 512]>>",
                bt = tb ? "tensor<320x512x" + e + ">" : "tensor<512x320x" + e + ">",
                y = "tensor<?x320x" + e + ", #lathe.t<[M, 320]>>", bias = "tensor<320x" + e + ">";
    CudaCase c{fn(name, "(%a: " + at + ", %b: " + bt + ", %c: " + bias + ") -> " + y,
                  std::string("  %0 = lathe.matmul %a, %b ") + transposed + ": (" + at + ", " + bt + ") -> " + y +
                      "\n  %1 = lathe.add %0, %c : (" + y + ", " + bias + ") -> " + y + "\n  %2 = lathe.tanh %1 : (" +
                      y + ") -> " + y + "\n  return %2 : " + y),
               config};
    c.maps = maps;
    add(name, c); // rows of A are M elements, of which the variant's guard has whole pieces
  }
  compile();
}

/// Columns first, then the rows of all batches.
TEST(CudaText, SwappedOperandsTakeRowsOfAllBatches) {
  CudaBatch batch;
  std::string a = "tensor<4x56x64xf16>", b = "tensor<128x64xf16>", y = "tensor<4x56x128xf16>";
  CudaCase c{fn("folded", "(%a: " + a + ", %b: " + b + ") -> " + y,
                "  %0 = lathe.matmul %a, %b {transpose_b} : (" + a + ", " + b + ") -> " + y + "\n  return %0 : " + y),
             "gemm.cooperative.swapped.t384.m96.n128.k64.s7"};
  c.maps = 3;
  CudaKernel kernel = batch.generate(c);
  ASSERT_EQ(kernel.error, "");
  EXPECT_NE(kernel.source.find("1ll, 128ll, 224ll, 64ll)"), std::string::npos);
}

/// Few tiles that split K, results of two columns of sums, a residual that a map brings.
TEST_F(CudaHopper, EpiloguesCompile) {
  struct Form {
    const char *config;
    int maps;
    bool pair, along;
  };
  for (const Form &f : {Form{"gemm.split.t160.r16.m64.n64.k64.s12.c2", 2, false, true},
                        Form{"gemm.split.t160.m64.n96.k64.s8.c8", 2, false, false},
                        Form{"gemm.split.t160.r8.m64.n192.k64.s8", 2, true, false},
                        Form{"gemm.pingpong.t384.m128.n192.k64.s5", 3, true, true},
                        Form{"gemm.cooperative.t384.m128.n128.k64.s6", 3, true, false},
                        Form{"gemm.pingpong.t384.m128.n160.k64.s5", 4, false, true},
                        Form{"gemm.cooperative.t384.m128.n256.k64.s4", 4, false, false},
                        Form{"gemm.pingpong.streamk.t384.m128.n128.k64.s6", 4, false, true},
                        Form{"gemm.cooperative.t384.m128.n256.k64.s4.c2", 4, false, true},
                        Form{"gemm.cooperative.parts.t384.m128.n128.k64.s6.c4", 4, false, true},
                        Form{"gemm.cooperative.parts.t384.m128.n192.k64.s4.c2", 3, true, true},
                        Form{"gemm.cooperative.swapped.t384.m192.n128.k64.s4", 4, false, true},
                        Form{"gemm.cooperative.streamk.t384.m128.n192.k64.s4", 3, true, true}}) {
    std::string name = nameOf("epilogue");
    auto rows = [](int columns) {
      return "tensor<?x" + std::to_string(columns) + "xbf16, #lathe.t<[M, " + std::to_string(columns) + "]>>";
    };
    std::string a = rows(512), b = f.along ? "tensor<768x512xbf16>" : "tensor<512x768xbf16>", sums = rows(768),
                half = rows(384), y = f.pair ? half : sums;
    std::string body = "  %0 = lathe.matmul %a, %b " + std::string(f.along ? "{transpose_b} " : "") + ": (" + a + ", " +
                       b + ") -> " + sums + "\n";
    if (f.pair)
      body += "  %1 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (" + sums +
              ") -> " + half + "\n  %2 = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<384>], steps = array<i64: 1, 1>} : (" +
              sums + ") -> " + half + "\n  %3 = lathe.tanh %1 : (" + half + ") -> " + half + "\n  %4 = lathe.mul %3, %2 : (" +
              half + ", " + half + ") -> " + half + "\n  return %4 : " + y;
    else
      body += "  %1 = lathe.add %0, %r : (" + sums + ", " + sums + ") -> " + sums + "\n  return %1 : " + y;
    std::string residual = f.pair ? "" : ", %r: " + sums;
    CudaCase c{fn(name, "(%a: " + a + ", %b: " + b + residual + ") -> " + y, body), f.config};
    c.maps = f.maps;
    if (std::string_view(f.config).find(".streamk.") != std::string_view::npos)
      c.workspace = "9000000";
    add(name, c);
  }
  compile(/*harmlessSpills=*/false);
}

/// The greatest element of each block beside a result, of sums, of halves, and with a residual that a map brings.
TEST_F(CudaHopper, ProductsWithAmaxCompile) {
  struct Form {
    const char *config;
    int columns; ///< of results
    const char *kind;
    bool residual;
  };
  for (const Form &f : {Form{"gemm.pingpong.t384.m128.n128.k64.s6", 768, "max", false},
                        Form{"gemm.cooperative.t384.m128.n256.k64.s4", 384, "max", false},
                        Form{"gemm.pingpong.t384.m64.n64.k64.s8", 768, "min", true}}) {
    auto type = [](const std::string &dims) { return "tensor<" + dims + "xbf16>"; };
    std::string name = nameOf("amax"), n = std::to_string(f.columns), blocks = std::to_string(f.columns / 64);
    std::string a = type("512x512"), b = type("768x512"), sums = type("512x768"), y = type("512x" + n),
                parts = type("32x16x" + blocks + "x64"), e = type("32x" + blocks), results = "(" + y + ", " + e + ")";
    std::string body = "  %0 = lathe.matmul %a, %b {transpose_b} : (" + a + ", " + b + ") -> " + sums + "\n";
    if (f.columns < 768)
      for (auto [value, first] : {std::pair{"%1", "0"}, {"%2", "384"}})
        body += std::string("  ") + value + " = lathe.slice %0 {starts = [#lathe.dim<0>, #lathe.dim<" + first +
                ">], steps = array<i64: 1, 1>} : (" + sums + ") -> " + y + "\n";
    body += f.columns < 768 ? "  %3 = lathe.mul %1, %2 : (" + y + ", " + y + ") -> " + y + "\n"
            : f.residual    ? "  %3 = lathe.add %0, %r : (" + y + ", " + y + ") -> " + y + "\n"
                            : "  %3 = lathe.tanh %0 : (" + y + ") -> " + y + "\n";
    body += "  %4 = lathe.abs %3 : (" + y + ") -> " + y + "\n  %5 = lathe.reshape %4 : (" + y + ") -> " + parts +
            "\n  %6 = lathe.reduce %5 {axes = array<i64: 1, 3>, keepdims = false, kind = #lathe.reduce_kind<" + f.kind +
            ">} : (" + parts + ") -> " + e + "\n  return %3, %6 : " + y + ", " + e;
    CudaCase c{fn(name, "(%a: " + a + ", %b: " + b + (f.residual ? ", %r: " + y : "") + ") -> " + results, body), f.config};
    c.maps = f.residual ? 4 : 3;
    CudaKernel kernel = add(name, c);
    EXPECT_NE(kernel.source.find(f.kind == std::string("max") ? "return maximum(a, b)" : "return minimum(a, b)"), std::string::npos);
    EXPECT_NE(kernel.source.find("void storeAmax(i64 row, i64 column, f32 value)"), std::string::npos);
  }
  compile(/*harmlessSpills=*/false);
}

/// Convolutions as products of windows, and the first layer.
TEST_F(CudaHopper, ConvolutionsCompile) {
  struct Form {
    const char *config;
    int maps, spatial;
    const char *element, *x, *w, *y, *group;
  };
  for (const Form &f : std::initializer_list<Form>{
           {"conv.pingpong.t384.m192.n64.k64.s6", 3, 2, "f16", "?x28x28x64", "64x64x3x3", "?x28x28x64", "1"},
           {"conv.cooperative.t384.m128.n128.k64.s6", 3, 3, "bf16", "?x5x6x7x96", "128x96x3x3x3", "?x5x6x7x128", "1"},
           {"conv.pingpong.t384.m64.n32.k64.s12", 2, 1, "f16", "?x100x64", "30x64x3", "?x100x30", "1"},
           {"conv.cooperative.swapped.t384.m192.n128.k64.s4", 3, 2, "f16", "?x14x14x256", "256x128x3x3", "?x14x14x256", "2"},
           {"conv.split.t160.r56.m64.n32.k64.s8.c8", 2, 2, "f16", "?x7x7x128", "64x64x3x3", "?x7x7x64", "2"},
           {"conv.stem.t384.m4.n112.s3", 2, 2, "f16", "?x224x224x3", "64x3x7x7", "?x112x112x64", "1"}}) {
    bool stem = std::string(f.config).find("stem") != std::string::npos;
    auto type = [&](std::string dims) {
      std::string list = dims.substr(2), all = "N";
      for (size_t at = 0, end; at != std::string::npos; at = end == std::string::npos ? end : end + 1) {
        end = list.find('x', at);
        all += ", " + list.substr(at, end - at);
      }
      return "tensor<" + dims + "x" + f.element + ", #lathe.t<[" + all + "]>>";
    };
    auto numbers = [&](int count, int value) {
      std::string out;
      for (int i = 0; i < count; ++i)
        out += (i ? ", " : "") + std::to_string(value);
      return "array<i64: " + out + ">";
    };
    std::string name = nameOf("window"), x = type(f.x), y = type(f.y),
                w = "tensor<" + std::string(f.w) + "x" + f.element + ">", given = stem ? type("?x3x224x224") : x;
    CudaCase c{fn(name, "(%a: " + given + ", %w: " + w + ") -> " + y,
                  (stem ? "  %x = lathe.transpose %a {perm = array<i64: 0, 2, 3, 1>} : (" + given + ") -> " + x + "\n" : "") +
                      "  %0 = lathe.conv " + (stem ? "%x" : "%a") + ", %w {strides = " + numbers(f.spatial, stem ? 2 : 1) +
                      ", pads = " + numbers(2 * f.spatial, stem ? 3 : 1) + ", dilations = " + numbers(f.spatial, 1) +
                      ", group = " + f.group + " : i64, layout = #lathe.conv_layout<nhwc>} : (" + x + ", " + w + ") -> " +
                      y + "\n  %1 = lathe.tanh %0 : (" + y + ") -> " + y + "\n  return %1 : " + y),
               f.config};
    c.maps = f.maps;
    add(name, c);
  }
  compile();
}

/// Convolutions of integers of 8 bits: sums of i32, which become codes again, or floats, or stay.
TEST_F(CudaHopper, ConvolutionsOfCodesCompile) {
  struct Form {
    const char *config;
    int maps;
    const char *x, *result;
    int channels = 144, extent = 3;
  };
  for (const Form &f : {Form{"conv.pingpong.t384.m128.n64.k128.s6", 3, "ui8", "ui8"},
                        Form{"conv.cooperative.t384.m128.n128.k128.s5", 3, "i8", "bf16"},
                        Form{"conv.split.t160.m64.n64.k128.s4.c8", 2, "ui8", "i8"},
                        Form{"conv.pingpong.t384.m64.n128.k128.s6", 2, "i8", "i32"},
                        // Two taps a step.
                        Form{"conv.pingpong.t384.m192.n64.k128.s6", 3, "ui8", "ui8", 64},
                        Form{"conv.cooperative.t384.m256.n128.k128.s4", 3, "i8", "i8", 48},
                        // One, of a step that has room for two.
                        Form{"conv.pingpong.t384.m128.n128.k128.s6", 3, "ui8", "ui8", 64, 1}}) {
    std::string name = nameOf("codes");
    auto images = [](int channels, const char *e) {
      const std::string c = std::to_string(channels);
      return "tensor<?x14x14x" + c + "x" + e + ", #lathe.t<[N, 14, 14, " + c + "]>>";
    };
    const std::string extent = std::to_string(f.extent), pad = std::to_string(f.extent / 2);
    const std::string w = "tensor<128x" + std::to_string(f.channels) + "x" + extent + "x" + extent + "xi8>";
    std::string x = images(f.channels, f.x), sums = images(128, "i32"), real = images(128, "f32"), y = images(128, f.result);
    std::string text = "  %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: " + pad + ", " + pad + ", " + pad + ", " +
                       pad + ">, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (" + x + ", " + w +
                       ") -> " + sums + "\n";
    std::string scaled = "  %1 = lathe.cast %0 : (" + sums + ") -> " + real + "\n  %2 = lathe.mul %1, %s : (" + real +
                         ", tensor<128xf32>) -> " + real + "\n  %u = lathe.constant dense<1.0> : tensor<f32>\n";
    if (f.result == std::string("i32"))
      text += "  return %0 : " + y;
    else if (f.result == std::string("bf16"))
      text += scaled + "  %3 = lathe.cast %2 : (" + real + ") -> " + y + "\n  return %3 : " + y;
    else
      text += scaled + "  %3 = lathe.quantize %2 scale(%u) : (" + real + ", tensor<f32>) -> " + y + "\n  return %3 : " + y;
    CudaCase c{fn(name, "(%x: " + x + ", %w: " + w + ", %s: tensor<128xf32>) -> " + y, text), f.config};
    c.maps = f.maps;
    const std::string &source = add(name, c).source;
    EXPECT_NE(source.find(std::string(".s32.") + (f.x[0] == 'u' ? "u8" : "s8") + ".s8"), std::string::npos) << f.config;
  }
  compile();
}

/// 8-bit operands and tf32: sums of i32 and f32, results of 8, 16 and 32 bits.
TEST_F(CudaHopper, QuantizedProductsCompile) {
  struct Form {
    const char *config;
    int maps;
    const char *a, *b, *sum, *result;
  };
  for (const Form &f : {Form{"gemm.pingpong.t384.m128.n128.k128.s5", 3, "i8", "ui8", "i32", "i32"},
                        Form{"gemm.pingpong.t384.r16.m64.n48.k128.s8", 3, "i8", "i8", "i32", "i8"},
                        Form{"gemm.cooperative.t384.m128.n256.k128.s4", 3, "ui8", "i8", "i32", "bf16"},
                        Form{"gemm.promoted.t384.m128.n128.k128.s5", 3, "f8E4M3FN", "f8E4M3FN", "f32", "bf16"},
                        Form{"gemm.promoted.t384.m128.n192.k128.s4", 3, "f8E4M3FN", "f8E5M2", "f32", "f32"},
                        Form{"gemm.promoted.t384.r8.m128.n48.k128.s8", 2, "f8E5M2", "f8E4M3FN", "f32", "f16"},
                        Form{"gemm.split.promoted.t160.r16.m64.n64.k128.s8.c2", 2, "f8E4M3FN", "f8E4M3FN", "f32", "bf16"},
                        Form{"gemm.promoted.t384.m128.n160.k128.s4", 3, "f8E4M3FN", "f8E4M3FN", "f32", "f8E4M3FN"},
                        Form{"gemm.pingpong.t384.m128.n192.k128.s4", 3, "f8E4M3FN", "f8E4M3FN", "f32", "bf16"},
                        Form{"gemm.pingpong.t384.m128.n128.k32.s5", 3, "f32", "f32", "f32", "f32"}}) {
    std::string name = nameOf("quantized");
    auto matrix = [](const char *e) { return "tensor<?x384x" + std::string(e) + ", #lathe.t<[M, 384]>>"; };
    std::string at = "tensor<?x512x" + std::string(f.a) + ", #lathe.t<[M, 512]>>",
                bt = "tensor<384x512x" + std::string(f.b) + ">", y = matrix(f.sum), z = matrix(f.result),
                scale = "tensor<384x" + std::string(f.sum) + ">";
    CudaCase c{fn(name, "(%a: " + at + ", %b: " + bt + ", %s: " + scale + ") -> " + z,
                  "  %0 = lathe.matmul %a, %b {transpose_b} : (" + at + ", " + bt + ") -> " + y +
                      "\n  %1 = lathe.mul %0, %s : (" + y + ", " + scale + ") -> " + y +
                      (f.sum == std::string(f.result) ? "\n  return %1 : " + z
                                                      : "\n  %2 = lathe.cast %1 : (" + y + ") -> " + z +
                                                            "\n  return %2 : " + z)),
               f.config};
    c.maps = f.maps;
    add(name, c);
  }
  compile(/*harmlessSpills=*/false);
}

/// Codes on both sides whose sums are scaled by blocks of k: tiles within a block of columns, and over several.
TEST_F(CudaHopper, BlockScaledProductsCompile) {
  struct Form {
    const char *config;
    int maps;
    const char *a, *number, *scale;
  };
  for (const Form &f : {Form{"gemm.promoted.t384.m128.n128.k128.s5", 3, "f8E4M3FN", "f32", "f32"},
                        Form{"gemm.promoted.t384.m128.n192.k128.s4", 3, "f8E4M3FN", "bf16", "f32"},
                        Form{"gemm.promoted.t384.m128.n64.k128.s6", 3, "f8E5M2", "bf16", "bf16"},
                        Form{"gemm.promoted.t384.r8.m128.n32.k128.s6", 3, "f8E4M3FN", "f16", "f32"},
                        Form{"gemm.split.promoted.t160.r16.m64.n64.k128.s8.c2", 2, "f8E4M3FN", "bf16", "f32"},
                        Form{"gemm.split.promoted.t160.r8.m64.n96.k128.s7", 2, "f8E4M3FN", "bf16", "f32"}}) {
    std::string name = nameOf("blocks"), number = f.number, scale = f.scale,
                x = "tensor<?x528x" + std::string(f.a) + ", #lathe.t<[M, 528]>>", s = "tensor<?x5x" + scale + ", #lathe.t<[M, 5]>>",
                a = "tensor<?x528x" + number + ", #lathe.t<[M, 528]>>", w = "tensor<384x528xf8E4M3FN>", t = "tensor<3x5x" + scale + ">",
                b = "tensor<384x528x" + number + ">", y = "tensor<?x384x" + number + ", #lathe.t<[M, 384]>>";
    CudaCase c{fn(name, "(%x: " + x + ", %s: " + s + ", %w: " + w + ", %t: " + t + ") -> " + y,
                  "  %0 = lathe.dequantize %x scale(%s) {block = array<i64: 1, 128>} : (" + x + ", " + s + ") -> " + a +
                      "\n  %1 = lathe.dequantize %w scale(%t) {block = array<i64: 128, 128>} : (" + w + ", " + t + ") -> " + b +
                      "\n  %2 = lathe.matmul %0, %1 {transpose_b} : (" + a + ", " + b + ") -> " + y + "\n  return %2 : " + y),
               f.config};
    c.maps = f.maps;
    const std::string &source = add(name, c).source;
    EXPECT_NE(source.find("kBlockScales = true"), std::string::npos) << f.config;
  }
  compile(/*harmlessSpills=*/false);
}

/// Weights of 8 bits that are dequantized into the operand in registers.
TEST_F(CudaHopper, MixedInputProductsCompile) {
  struct Form {
    const char *config, *codes, *half;
  };
  for (const Form &f : {Form{"gemm.mixed.t160.m32.n64.s8.c8", "i8", "bf16"},
                        Form{"gemm.mixed.t288.m128.n128.s8", "ui8", "f16"},
                        Form{"gemm.mixed.t160.m256.n64.s6", "i8", "bf16"},
                        Form{"gemm.mixed.t160.m256.n64.s4", "f8E4M3FN", "bf16"}}) {
    std::string name = nameOf("mixed"), half = f.half, codes = f.codes,
                x = "tensor<?x512x" + half + ", #lathe.t<[M, 512]>>", q = "tensor<384x512x" + codes + ">",
                w = "tensor<384x512x" + half + ">", s = "tensor<384x1xf32>",
                y = "tensor<?x384x" + half + ", #lathe.t<[M, 384]>>";
    CudaCase c{fn(name, "(%x: " + x + ", %q: " + q + ", %s: " + s + ") -> " + y,
                  "  %0 = lathe.dequantize %q scale(%s) : (" + q + ", " + s + ") -> " + w +
                      "\n  %1 = lathe.matmul %x, %0 {transpose_b} : (" + x + ", " + w + ") -> " + y +
                      "\n  return %1 : " + y),
               f.config};
    c.maps = 2;
    add(name, c);
  }
  compile(/*harmlessSpills=*/false);
}

/// The same of weights that are packed as fragments: scales and zero points of groups, shorter and longer than a step.
TEST_F(CudaHopper, PackedWeightsOfManyRowsCompile) {
  struct Form {
    const char *config, *codes, *half;
    int64_t group;
    bool zeros;
  };
  for (const Form &f : {Form{"gemm.widened.t160.v4.m32.n64.k128.s4.c8", "i4", "bf16", 128, false},
                        Form{"gemm.widened.t288.v4.m64.n128.k128.s4.c4", "ui4", "f16", 16, true},
                        Form{"gemm.widened.t288.v4.m32.n128.k128.s4", "i4", "bf16", 128, true},
                        Form{"gemm.widened.t160.v4.m32.n64.k128.s3.c8", "i4", "bf16", 192, true},
                        Form{"gemm.widened.t160.v4.m256.n64.k64.s6", "i4", "bf16", 64, true},
                        Form{"gemm.widened.t384.v4.m256.n128.k64.s6", "i4", "bf16", 128, false},
                        Form{"gemm.widened.t288.v8.m128.n128.k128.s4", "ui8", "f16", 0, false},
                        Form{"gemm.widened.t384.v8.m256.n128.k64.s5.c2", "i8", "bf16", 0, false}}) {
    std::string name = nameOf("widened"), half = f.half, groups = "384x" + std::to_string(f.group ? (512 + f.group - 1) / f.group : 1) + "x",
                x = "tensor<?x512x" + half + ", #lathe.t<[M, 512]>>", q = std::string("tensor<384x512x") + f.codes + ">",
                w = "tensor<384x512x" + half + ">", s = "tensor<" + groups + "f32>", z = "tensor<" + groups + f.codes + ">",
                y = "tensor<?x384x" + half + ", #lathe.t<[M, 384]>>",
                block = f.group ? " {block = array<i64: 1, " + std::to_string(f.group) + ">}" : "";
    CudaCase c{fn(name, "(%x: " + x + ", %q: " + q + ", %s: " + s + (f.zeros ? ", %z: " + z : "") + ") -> " + y,
                  std::string("  %0 = lathe.dequantize %q scale(%s)") + (f.zeros ? " zero(%z)" : "") + block + " : (" + q + ", " + s +
                      (f.zeros ? ", " + z : "") + ") -> " + w + "\n  %1 = lathe.matmul %x, %0 {transpose_b} : (" + x + ", " + w +
                      ") -> " + y + "\n  return %1 : " + y),
               f.config};
    c.maps = 2;
    c.packing = std::string("fragments") + (f.group ? "4" : "8");
    add(name, c);
  }
  compile(/*harmlessSpills=*/false);
}

/// 2:4 sparse weights, stored either way: tiles of one and two warpgroups, pairs of blocks, a residual that a map brings.
TEST_F(CudaHopper, SparseWeightsCompile) {
  struct Form {
    const char *config, *half;
    bool along, residual;
  };
  for (const Form &f : {Form{"gemm.sparse.cooperative.t384.m128.n256.k64.s5", "bf16", true, false},
                        Form{"gemm.sparse.cooperative.t384.m128.n256.k64.s5.c2", "bf16", true, true},
                        Form{"gemm.sparse.cooperative.t384.m256.n128.k64.s4", "f16", false, false},
                        Form{"gemm.sparse.pingpong.t384.m128.n128.k64.s7.c2", "bf16", true, true},
                        Form{"gemm.sparse.pingpong.t384.m16.n64.k64.s12", "f16", false, true},
                        Form{"gemm.sparse.pingpong.t384.m96.n192.k64.s7", "bf16", true, false}}) {
    std::string name = nameOf("sparse"), e = f.half, w = std::string(f.along ? "tensor<320x520x" : "tensor<520x320x") + e + ">",
                x = "tensor<?x520x" + e + ", #lathe.t<[M, 520]>>", y = "tensor<?x320x" + e + ", #lathe.t<[M, 320]>>";
    std::string r = f.residual ? y : "tensor<320x" + e + ">";
    CudaCase c{fn(name, "(%x: " + x + ", %w: " + w + ", %r: " + r + ") -> " + y,
                  std::string("  %0 = lathe.matmul %x, %w ") + (f.along ? "{transpose_b} " : "") + ": (" + x + ", " + w + ") -> " + y +
                      "\n  %1 = lathe.add %0, %r : (" + y + ", " + r + ") -> " + y + "\n  return %1 : " + y),
               f.config};
    c.packing = f.along ? "sparse24t" : "sparse24";
    c.maps = 3 + 1 + f.residual; // A, what is kept of the weights and where it was, results
    CudaKernel kernel = add(name, c);
    EXPECT_NE(kernel.source.find("wgmma.mma_async.sp.sync.aligned"), std::string::npos);
  }
  compile(/*harmlessSpills=*/false);
}

/// The same of 8 bits: sums of i32, of f32 that the tensor cores keep, and promoted ones.
TEST_F(CudaHopper, SparseWeightsOfEightBitsCompile) {
  struct Form {
    const char *config, *a, *b, *sum, *half;
  };
  for (const Form &f : {Form{"gemm.sparse.cooperative.t384.m192.n256.k128.s4", "f8E4M3FN", "f8E4M3FN", "f32", "bf16"},
                        Form{"gemm.sparse.pingpong.t384.m128.n128.k128.s6.c2", "f8E5M2", "f8E4M3FN", "f32", "f16"},
                        Form{"gemm.sparse.promoted.t384.m192.n128.k128.s4", "f8E4M3FN", "f8E4M3FN", "f32", "bf16"},
                        Form{"gemm.sparse.promoted.t384.m16.n128.k128.s8", "f8E4M3FN", "f8E5M2", "f32", "bf16"},
                        Form{"gemm.sparse.promoted.t384.m64.n256.k128.s5.c2", "f8E4M3FN", "f8E4M3FN", "f32", "bf16"},
                        Form{"gemm.sparse.cooperative.t384.m128.n256.k128.s5", "i8", "i8", "i32", "bf16"},
                        Form{"gemm.sparse.cooperative.streamk.t384.m256.n128.k128.s4", "ui8", "i8", "i32", "f16"}}) {
    std::string name = nameOf("sparse8"), x = "tensor<?x528x" + std::string(f.a) + ", #lathe.t<[M, 528]>>",
                w = "tensor<320x528x" + std::string(f.b) + ">", y = "tensor<?x320x" + std::string(f.sum) + ", #lathe.t<[M, 320]>>",
                z = "tensor<?x320x" + std::string(f.half) + ", #lathe.t<[M, 320]>>", r = "tensor<320x" + std::string(f.sum) + ">";
    CudaCase c{fn(name, "(%x: " + x + ", %w: " + w + ", %r: " + r + ") -> " + z,
                  "  %0 = lathe.matmul %x, %w {transpose_b} : (" + x + ", " + w + ") -> " + y + "\n  %1 = lathe.add %0, %r : (" + y +
                      ", " + r + ") -> " + y + "\n  %2 = lathe.cast %1 : (" + y + ") -> " + z + "\n  return %2 : " + z),
               f.config};
    c.packing = "sparse24x8t";
    c.maps = 4;
    if (std::string_view(f.config).find(".streamk.") != std::string_view::npos)
      c.workspace = "20000000";
    CudaKernel kernel = add(name, c);
    EXPECT_NE(kernel.source.find("wgmma.mma_async.sp.sync.aligned"), std::string::npos);
  }
  compile(/*harmlessSpills=*/false);
}

/// Weights with blocks of zeros, stored either way: tiles of few rows and of many, a residual that a map brings.
TEST_F(CudaHopper, BlockSparseWeightsCompile) {
  struct Form {
    const char *config, *half;
    bool along, residual;
  };
  for (const Form &f : {Form{"gemm.bsr.cooperative.t384.m256.n128.k64.s4", "bf16", true, false},
                        Form{"gemm.bsr.cooperative.t384.m256.n128.k64.s4.c2", "bf16", true, true},
                        Form{"gemm.bsr.cooperative.t384.m224.n128.k64.s4", "f16", false, false},
                        Form{"gemm.bsr.cooperative.t384.m128.n128.k64.s6", "bf16", true, true},
                        Form{"gemm.bsr.cooperative.t384.m48.n128.k64.s8", "bf16", false, true},
                        Form{"gemm.bsr.cooperative.t384.m16.n128.k64.s11", "f16", true, false},
                        Form{"gemm.bsr.cooperative.checked.t384.m256.n128.k64.s4", "bf16", true, false},
                        Form{"gemm.bsr.cooperative.checked.t384.m96.n128.k64.s7", "f16", false, true}}) {
    std::string name = nameOf("bsr"), e = f.half, w = std::string(f.along ? "tensor<328x520x" : "tensor<520x328x") + e + ">",
                x = "tensor<?x520x" + e + ", #lathe.t<[M, 520]>>", y = "tensor<?x328x" + e + ", #lathe.t<[M, 328]>>";
    std::string r = f.residual ? y : "tensor<328x" + e + ">";
    CudaCase c{fn(name, "(%x: " + x + ", %w: " + w + ", %r: " + r + ") -> " + y,
                  std::string("  %0 = lathe.matmul %x, %w ") + (f.along ? "{transpose_b} " : "") + ": (" + x + ", " + w + ") -> " + y +
                      "\n  %1 = lathe.add %0, %r : (" + y + ", " + r + ") -> " + y + "\n  return %1 : " + y),
               f.config};
    c.packing = f.along ? "bsr64c20t" : "bsr64c20";
    if (std::string_view(f.config).find("checked") != std::string_view::npos) { // a launch ahead looks through the rows
      c.workspace = "4*M";
      c.ahead = {"ceildiv(M, 8)"};
    }
    c.maps = 1 + 1 + f.residual; // A, results: blocks of the weights are copied as they lie
    CudaKernel kernel = add(name, c);
    EXPECT_NE(kernel.source.find("gemmBsr<BsrTile<"), std::string::npos);
  }
  compile(/*harmlessSpills=*/false);
}

} // namespace
