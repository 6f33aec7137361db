//===- CudaTest.cpp - generated CUDA text, run without a GPU -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kernel here is generated, run under emulation and compared with what
// the CPU backend computes element by element for the same region; and it
// compiles with NVRTC for sm_80 and sm_90a.
//
//===----------------------------------------------------------------------===//

#include "CudaKernel.h"

#include "lathe/codegen/Nvrtc.h"
#include "lathe/codegen/Skeleton.h"
#include "lathe/support/Half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

using namespace lathe;
using namespace lathe::test;

namespace {

struct Case {
  CudaCase cuda;
  std::string name; ///< of the function
  std::vector<std::map<std::string, int64_t>> symbols = {{}};
  double tolerance = 2e-6;  ///< of the largest value
  std::string oracle = "pointwise"; ///< CPU configuration without lanes
  bool fails = false;       ///< reports a bad index
};

std::vector<Case> makeCases() {
  std::vector<Case> all;
  auto add = [&](std::string name, CudaCase c) -> Case & {
    Case k;
    k.cuda = std::move(c);
    k.name = std::move(name);
    all.push_back(k);
    return all.back();
  };
  // ---- Pointwise ----
  add("gelu", {fn("gelu", "(%x: tensor<?x40xf32, #lathe.t<[N, 40]>>, %b: tensor<40xf32>) -> tensor<?x40xf32, #lathe.t<[N, 40]>>", R"(
  %h = arith.constant dense<0.70710678> : tensor<f32>
  %0 = lathe.add %x, %b : (tensor<?x40xf32, #lathe.t<[N, 40]>>, tensor<40xf32>) -> tensor<?x40xf32, #lathe.t<[N, 40]>>
  %1 = lathe.erf %0 : (tensor<?x40xf32, #lathe.t<[N, 40]>>) -> tensor<?x40xf32, #lathe.t<[N, 40]>>
  %2 = lathe.tanh %1 : (tensor<?x40xf32, #lathe.t<[N, 40]>>) -> tensor<?x40xf32, #lathe.t<[N, 40]>>
  %3 = lathe.exp %2 : (tensor<?x40xf32, #lathe.t<[N, 40]>>) -> tensor<?x40xf32, #lathe.t<[N, 40]>>
  %4 = lathe.mul %3, %0 : (tensor<?x40xf32, #lathe.t<[N, 40]>>, tensor<?x40xf32, #lathe.t<[N, 40]>>) -> tensor<?x40xf32, #lathe.t<[N, 40]>>
  return %4 : tensor<?x40xf32, #lathe.t<[N, 40]>>)"),
                "pointwise.t128.v4", {"ceildiv(N*10, 128)"}})
      .symbols = {{{"N", 1}}, {{"N", 37}}};
  all.back().cuda.text.erase(all.back().cuda.text.find("  %h"), all.back().cuda.text.find("  %0") - all.back().cuda.text.find("  %h"));
  add("halves", {fn("halves", "(%x: tensor<6x48xbf16>, %b: tensor<48xbf16>) -> tensor<6x48xbf16>", R"(
  %0 = lathe.add %x, %b : (tensor<6x48xbf16>, tensor<48xbf16>) -> tensor<6x48xbf16>
  %1 = lathe.erf %0 : (tensor<6x48xbf16>) -> tensor<6x48xbf16>
  %2 = lathe.sigmoid %1 : (tensor<6x48xbf16>) -> tensor<6x48xbf16>
  return %2 : tensor<6x48xbf16>)"),
                 "pointwise.t128.v8", {"1"}})
      .tolerance = 8e-3;
  add("activations", {fn("activations", "(%x: tensor<6x48xbf16>) -> tensor<6x48xbf16>", R"(
  %h = lathe.constant dense<0.5> : tensor<bf16>
  %o = lathe.constant dense<1.0> : tensor<bf16>
  %c = lathe.constant dense<0.70703125> : tensor<bf16>
  %0 = lathe.mul %x, %c : (tensor<6x48xbf16>, tensor<bf16>) -> tensor<6x48xbf16>
  %1 = lathe.erf %0 : (tensor<6x48xbf16>) -> tensor<6x48xbf16>
  %2 = lathe.add %1, %o : (tensor<6x48xbf16>, tensor<bf16>) -> tensor<6x48xbf16>
  %3 = lathe.mul %x, %2 : (tensor<6x48xbf16>, tensor<6x48xbf16>) -> tensor<6x48xbf16>
  %4 = lathe.mul %3, %h : (tensor<6x48xbf16>, tensor<bf16>) -> tensor<6x48xbf16>
  %5 = lathe.tanh %4 : (tensor<6x48xbf16>) -> tensor<6x48xbf16>
  %6 = lathe.add %o, %5 : (tensor<bf16>, tensor<6x48xbf16>) -> tensor<6x48xbf16>
  %7 = lathe.mul %4, %h : (tensor<6x48xbf16>, tensor<bf16>) -> tensor<6x48xbf16>
  %8 = lathe.mul %7, %6 : (tensor<6x48xbf16>, tensor<6x48xbf16>) -> tensor<6x48xbf16>
  return %8 : tensor<6x48xbf16>)"),
                     "pointwise.t128.v8", {"1"}})
      .tolerance = 8e-3;
  // Rows of an odd length: vectors run over their ends, into a tail of two elements.
  add("over_rows", {fn("over_rows", "(%x: tensor<2x5x77xbf16>, %b: tensor<77xbf16>, %s: tensor<5x1xbf16>) -> tensor<2x5x77xbf16>", R"(
  %0 = lathe.add %x, %b : (tensor<2x5x77xbf16>, tensor<77xbf16>) -> tensor<2x5x77xbf16>
  %1 = lathe.mul %0, %s : (tensor<2x5x77xbf16>, tensor<5x1xbf16>) -> tensor<2x5x77xbf16>
  %2 = lathe.add %1, %x : (tensor<2x5x77xbf16>, tensor<2x5x77xbf16>) -> tensor<2x5x77xbf16>
  return %2 : tensor<2x5x77xbf16>)"),
                    "pointwise.t64.v8", {"2"}})
      .tolerance = 8e-3;
  add("transposed", {fn("transposed", "(%x: tensor<5x6x7xf32>) -> tensor<7x5x6xf32>", R"(
  %0 = lathe.transpose %x {perm = array<i64: 2, 0, 1>} : (tensor<5x6x7xf32>) -> tensor<7x5x6xf32>
  %1 = lathe.neg %0 : (tensor<7x5x6xf32>) -> tensor<7x5x6xf32>
  return %1 : tensor<7x5x6xf32>)"),
                     "pointwise.t128", {"2"}});
  add("compared", {fn("compared", "(%x: tensor<33xf32>, %y: tensor<33xf32>) -> tensor<33xf32>", R"(
  %0 = lathe.compare %x, %y {predicate = #lathe.predicate<lt>} : (tensor<33xf32>, tensor<33xf32>) -> tensor<33xi1>
  %1 = lathe.select %0, %x, %y : (tensor<33xi1>, tensor<33xf32>, tensor<33xf32>) -> tensor<33xf32>
  %2 = lathe.sqrt %1 : (tensor<33xf32>) -> tensor<33xf32>
  return %2 : tensor<33xf32>)"),
                   "pointwise.t128.v4", {"1"}});
  // Codes beyond both ends of their range, NaN (of negative numbers), halves between two codes.
  add("codes", {fn("codes", "(%x: tensor<6x48xf32>) -> (tensor<6x48xui8>, tensor<6x48xui8>, tensor<6x48xi8>)", R"(
  %s = lathe.constant dense<0.00390625> : tensor<f32>
  %z = lathe.constant dense<3.0> : tensor<f32>
  %n = lathe.sqrt %x : (tensor<6x48xf32>) -> tensor<6x48xf32>
  %y = lathe.add %x, %x : (tensor<6x48xf32>, tensor<6x48xf32>) -> tensor<6x48xf32>
  %0 = lathe.quantize %y scale(%s) : (tensor<6x48xf32>, tensor<f32>) -> tensor<6x48xui8>
  %1 = lathe.quantize %n scale(%s) zero(%z) : (tensor<6x48xf32>, tensor<f32>, tensor<f32>) -> tensor<6x48xui8>
  %2 = lathe.quantize %n scale(%s) zero(%z) : (tensor<6x48xf32>, tensor<f32>, tensor<f32>) -> tensor<6x48xi8>
  return %0, %1, %2 : tensor<6x48xui8>, tensor<6x48xui8>, tensor<6x48xi8>)"),
                "pointwise.t128.v4", {"1"}})
      .tolerance = 0;
  add("transposed_last", {fn("transposed_last", "(%x: tensor<3x40x24xf16>, %b: tensor<40xf16>) -> tensor<24x3x40xf16>", R"(
  %0 = lathe.neg %x : (tensor<3x40x24xf16>) -> tensor<3x40x24xf16>
  %1 = lathe.transpose %0 {perm = array<i64: 2, 0, 1>} : (tensor<3x40x24xf16>) -> tensor<24x3x40xf16>
  %2 = lathe.add %1, %b : (tensor<24x3x40xf16>, tensor<40xf16>) -> tensor<24x3x40xf16>
  return %2 : tensor<24x3x40xf16>)"),
                 "transpose.t256.v8.m128", {"3"}})
      .tolerance = 2e-3;
  add("transposed_odd", {fn("transposed_odd", "(%x: tensor<?x37xf32, #lathe.t<[N, 37]>>) -> tensor<37x?xf32, #lathe.t<[37, N]>>", R"(
  %0 = lathe.transpose %x {perm = array<i64: 1, 0>} : (tensor<?x37xf32, #lathe.t<[N, 37]>>) -> tensor<37x?xf32, #lathe.t<[37, N]>>
  return %0 : tensor<37x?xf32, #lathe.t<[37, N]>>)"),
                     "transpose.t256.m32", {"2*ceildiv(N, 32)"}})
      .symbols = {{{"N", 1}}, {{"N", 71}}};
  // Few rows or columns: runs of several dimensions, with parts of boxes at the ends.
  add("transposed_few", {fn("transposed_few", "(%x: tensor<5x37x1x8xf16>) -> tensor<37x8x5x1xf16>", R"(
  %0 = lathe.transpose %x {perm = array<i64: 1, 3, 0, 2>} : (tensor<5x37x1x8xf16>) -> tensor<37x8x5x1xf16>
  return %0 : tensor<37x8x5x1xf16>)"),
                         "transpose.box.t256.m256", {"5"}});
  add("transposed_rows", {fn("transposed_rows", "(%x: tensor<3x4x5x7xf16>) -> tensor<4x3x5x7xf16>", R"(
  %0 = lathe.transpose %x {perm = array<i64: 1, 0, 2, 3>} : (tensor<3x4x5x7xf16>) -> tensor<4x3x5x7xf16>
  return %0 : tensor<4x3x5x7xf16>)"),
                          "pointwise.t32.v8", {"2"}});
  add("transposed_box", {fn("transposed_box", "(%x: tensor<9x8x10x8xf32>) -> tensor<8x9x10x8xf32>", R"(
  %0 = lathe.transpose %x {perm = array<i64: 3, 0, 2, 1>} : (tensor<9x8x10x8xf32>) -> tensor<8x9x10x8xf32>
  return %0 : tensor<8x9x10x8xf32>)"),
                         "transpose.box.t256.m64", {"27"}});
  // ---- Rows ----
  add("softmax", {fn("softmax", "(%x: tensor<?x?xf32, #lathe.t<[M, N]>>) -> tensor<?x?xf32, #lathe.t<[M, N]>>", R"(
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = true} : (tensor<?x?xf32, #lathe.t<[M, N]>>) -> tensor<?x1xf32, #lathe.t<[M, 1]>>
  %1 = lathe.sub %x, %0 : (tensor<?x?xf32, #lathe.t<[M, N]>>, tensor<?x1xf32, #lathe.t<[M, 1]>>) -> tensor<?x?xf32, #lathe.t<[M, N]>>
  %2 = lathe.exp %1 : (tensor<?x?xf32, #lathe.t<[M, N]>>) -> tensor<?x?xf32, #lathe.t<[M, N]>>
  %3 = lathe.reduce %2 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<?x?xf32, #lathe.t<[M, N]>>) -> tensor<?x1xf32, #lathe.t<[M, 1]>>
  %4 = lathe.div %2, %3 : (tensor<?x?xf32, #lathe.t<[M, N]>>, tensor<?x1xf32, #lathe.t<[M, 1]>>) -> tensor<?x?xf32, #lathe.t<[M, N]>>
  return %4 : tensor<?x?xf32, #lathe.t<[M, N]>>)"),
                  "row.t64.v4", {"M"}})
      .symbols = {{{"M", 3}, {"N", 100}}, {{"M", 2}, {"N", 1}}, {{"M", 1}, {"N", 771}}};
  all.back().oracle = "row";
  add("rms", {fn("rms", "(%x: tensor<4x256xbf16>, %r: tensor<4x256xbf16>, %s: tensor<256xbf16>) -> tensor<4x256xbf16>", R"(
  %0 = lathe.add %x, %r : (tensor<4x256xbf16>, tensor<4x256xbf16>) -> tensor<4x256xbf16>
  %1 = lathe.mul %0, %0 : (tensor<4x256xbf16>, tensor<4x256xbf16>) -> tensor<4x256xbf16>
  %2 = lathe.reduce %1 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<4x256xbf16>) -> tensor<4x1xbf16>
  %3 = lathe.rsqrt %2 : (tensor<4x1xbf16>) -> tensor<4x1xbf16>
  %4 = lathe.mul %0, %3 : (tensor<4x256xbf16>, tensor<4x1xbf16>) -> tensor<4x256xbf16>
  %5 = lathe.mul %4, %s : (tensor<4x256xbf16>, tensor<256xbf16>) -> tensor<4x256xbf16>
  return %5 : tensor<4x256xbf16>)"),
               "row.t32.v8", {"4"}})
      .tolerance = 8e-3;
  all.back().oracle = "row";
  // Rows that leave some threads without a last piece: of vectors, of single elements, by thread groups.
  for (auto [name, row, config, grid] :
       {std::tuple("partly", "1000", "row.t32.v8", "5"), std::tuple("partly_odd", "77", "row.t32", "5"),
        std::tuple("partly_short", "9", "row.t64", "5"), std::tuple("partly_groups", "77", "row.t128.r4", "2"),
        std::tuple("partly_packed", "1000", "row.t32.v8.s4", "5"),
        // Some lanes of a warp have a row: more lanes than rows, and fewer.
        std::tuple("lanes_of_rows", "24", "row.t64.v4.r16", "1"), std::tuple("lanes_of_odd_rows", "77", "row.t32.r4", "2"),
        std::tuple("lanes_of_packed_rows", "40", "row.t32.v8.r16", "1"), std::tuple("lanes_in_turn", "24", "row.t16.v4.r4", "1")}) {
    std::string x = "tensor<5x" + std::string(row) + "xf16>", r = "tensor<5x1xf16>", w = "tensor<" + std::string(row) + "xf16>";
    add(name, {fn(name, "(%x: " + x + ", %w: " + w + ") -> " + x,
                  "  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = true} : (" + x + ") -> " + r +
                      "\n  %1 = lathe.sub %x, %0 : (" + x + ", " + r + ") -> " + x +
                      "\n  %2 = lathe.reduce %1 {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (" + x + ") -> " + r +
                      "\n  %3 = lathe.div %1, %2 : (" + x + ", " + r + ") -> " + x +
                      "\n  %4 = lathe.mul %3, %w : (" + x + ", " + w + ") -> " + x + "\n  return %4 : " + x),
               config, {grid}})
        .tolerance = 2e-3;
    all.back().oracle = "row";
  }
  add("lanes_of_sums", {fn("lanes_of_sums", "(%x: tensor<5x40xf32>) -> tensor<5xf32>", R"(
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = false} : (tensor<5x40xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>)"),
                        "row.t32.v4.r8", {"1"}});
  all.back().oracle = "row";
  // Two axes apart, the last among them: lanes along both.
  for (auto [name, config, grid] : {std::tuple("far_axes_lanes", "row.t32.r16", "1"), std::tuple("far_axes_block", "row.t32", "15")}) {
    add(name, {fn(name, "(%x: tensor<5x7x3x2xf16>) -> tensor<5x3xf16>", R"(
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1, 3>, keepdims = false} : (tensor<5x7x3x2xf16>) -> tensor<5x3xf16>
  return %0 : tensor<5x3xf16>)"),
               config, {grid}})
        .tolerance = 2e-3;
    all.back().oracle = "row";
  }
  add("columns", {fn("columns", "(%x: tensor<17x?xf32, #lathe.t<[17, N]>>) -> tensor<?xf32, #lathe.t<[N]>>", R"(
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 0>, keepdims = false} : (tensor<17x?xf32, #lathe.t<[17, N]>>) -> tensor<?xf32, #lathe.t<[N]>>
  return %0 : tensor<?xf32, #lathe.t<[N]>>)"),
                  "row.t128", {"ceildiv(N, 128)"}})
      .symbols = {{{"N", 7}}, {{"N", 300}}};
  all.back().oracle = "row";
  add("column_sums", {fn("column_sums", "(%x: tensor<2x?x6x16xbf16, #lathe.t<[2, N, 6, 16]>>, %s: tensor<16xbf16>) -> tensor<2x6x16xbf16>", R"(
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (tensor<2x?x6x16xbf16, #lathe.t<[2, N, 6, 16]>>) -> tensor<2x1x6x16xbf16>
  %1 = lathe.reshape %0 : (tensor<2x1x6x16xbf16>) -> tensor<2x6x16xbf16>
  %2 = lathe.mul %1, %s : (tensor<2x6x16xbf16>, tensor<16xbf16>) -> tensor<2x6x16xbf16>
  return %2 : tensor<2x6x16xbf16>)"),
                       "columns.t256.v8", {"2"}})
      .symbols = {{{"N", 1}}, {{"N", 8}}, {{"N", 71}}};
  all.back().tolerance = 8e-3;
  all.back().oracle = "row";
  add("column_max", {fn("column_max", "(%x: tensor<3x17x45xi32>) -> tensor<45xi32>", R"(
  %0 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 0, 1>, keepdims = false} : (tensor<3x17x45xi32>) -> tensor<45xi32>
  return %0 : tensor<45xi32>)"),
                      "columns.t128", {"2"}});
  all.back().oracle = "row";
  // Blocks that share the terms of a result: whole pieces, single elements, a block that has no terms left,
  // one block alone; more terms than are under way at a time.
  auto shared = [&](std::string name, std::string x, std::string y, std::string axes, std::string kind, std::string config,
                    int blocks, int sumBytes) -> Case & {
    std::string element = y.substr(y.rfind('x') == std::string::npos ? 7 : y.rfind('x') + 1);
    std::string scale = "tensor<" + element.substr(0, element.find_first_of(",>")) + ">";
    CudaCase c{fn(name, "(%x: " + x + ", %s: " + scale + ") -> " + y,
                  "  %0 = lathe.neg %x : (" + x + ") -> " + x + "\n  %1 = lathe.reduce " + (kind == "max" ? "%0" : "%x") +
                      " {kind = #lathe.reduce_kind<" + kind + ">, axes = array<i64: " + axes + ">, keepdims = false} : (" + x + ") -> " + y +
                      "\n  %2 = lathe.mul %1, %s : (" + y + ", " + scale + ") -> " + y + "\n  return %2 : " + y),
               config, {std::to_string(blocks)}};
    c.workspace = std::to_string((8 * blocks + 15) / 16 * 16 + sumBytes * blocks);
    Case &k = add(name, c);
    k.oracle = "row";
    k.tolerance = 8e-3;
    return k;
  };
  shared("shared_row", "tensor<9600xf16>", "tensor<f16>", "0", "sum", "split.rows.t64.v8", 5, 8);
  shared("shared_rows", "tensor<3x4x1000xbf16>", "tensor<3xbf16>", "1, 2", "max", "split.rows.t64.v8", 3 * 4, 8);
  shared("shared_odd", "tensor<2x777xf32>", "tensor<2xf32>", "1", "max", "split.rows.t32", 2 * 30, 8);
  shared("shared_alone", "tensor<2x777xf32>", "tensor<2xf32>", "1", "sum", "split.rows.t64", 2, 8);
  shared("shared_apart", "tensor<4x3x2x88xf16>", "tensor<3xf16>", "0, 2, 3", "sum", "split.rows.t32.v8", 3 * 5, 8);
  shared("shared_any", "tensor<?x64xf32, #lathe.t<[N, 64]>>", "tensor<f32>", "0, 1", "max", "split.rows.t32.v4", 7, 8).symbols =
      {{{"N", 1}}, {{"N", 190}}};
  shared("shared_columns", "tensor<2x300x40xf16>", "tensor<2x40xf16>", "1", "sum", "split.columns.t64.v4.n128", 2 * 7, 128 * 4);
  shared("shared_few_columns", "tensor<300x3xf32>", "tensor<3xf32>", "0", "max", "split.columns.t128.n4", 9, 4 * 4);
  shared("shared_lane", "tensor<2x700x8xf16>", "tensor<2x8xf16>", "1", "sum", "split.columns.t64.v8.n8", 2 * 5, 8 * 4);
  shared("shared_columns_apart", "tensor<5x3x70x36xbf16>", "tensor<3x36xbf16>", "0, 2", "max", "split.columns.t64.v2.n16", 3 * 3 * 4, 16 * 4);
  shared("shared_column_alone", "tensor<?x3x130xf32, #lathe.t<[N, 3, 130]>>", "tensor<3x130xf32>", "0", "sum", "split.columns.t64.v2.n64", 7, 64 * 4)
      .symbols = {{{"N", 0}}, {{"N", 1}}, {{"N", 71}}};
  // ---- Products ----
  auto matmul = [&](std::string name, std::string a, std::string b, std::string y, std::string attr,
                    std::string config, std::string grid, std::string shared = "0") -> Case & {
    return add(name, {fn(name, "(%a: " + a + ", %b: " + b + ") -> " + y,
                         "  %0 = lathe.matmul %a, %b " + attr + ": (" + a + ", " + b + ") -> " + y +
                             "\n  %1 = lathe.tanh %0 : (" + y + ") -> " + y + "\n  return %1 : " + y),
                      config, {grid}, shared});
  };
  std::string m24 = "tensor<?x24xf32, #lathe.t<[M, 24]>>", m40 = "tensor<?x40xf32, #lathe.t<[M, 40]>>";
  matmul("simt", m24, "tensor<24x40xf32>", m40, "", "gemm.simt.t128.m64.n64.k16", "ceildiv(M, 64)").symbols =
      {{{"M", 1}}, {{"M", 65}}, {{"M", 17}}};
  matmul("simt_t", "tensor<9x33xf32>", "tensor<35x9xf32>", "tensor<33x35xf32>", "{transpose_a, transpose_b} ",
         "gemm.simt.t256.m128.n128.k16", "1");
  matmul("mma", "tensor<3x20x32xbf16>", "tensor<3x32x48xbf16>", "tensor<3x20x48xbf16>", "",
         "gemm.mma.t128.m64.n64.k32.s4", "3", "32768")
      .tolerance = 8e-3;
  matmul("mma_odd", "tensor<20x33xf16>", "tensor<45x33xf16>", "tensor<20x45xf16>", "{transpose_b} ",
         "gemm.mma.t128.m64.n64.k32.s4", "1", "32768")
      .tolerance = 2e-3;
  matmul("folded", "tensor<?x5x24xf32, #lathe.t<[B, 5, 24]>>", "tensor<24x40xf32>",
         "tensor<?x5x40xf32, #lathe.t<[B, 5, 40]>>", "", "gemm.simt.t256.m64.n64.k16", "ceildiv(5*B, 64)")
      .symbols = {{{"B", 1}}, {{"B", 15}}};
  matmul("gemv", "tensor<?x24xf32, #lathe.t<[M, 24]>>", "tensor<24x40xf32>", m40, "", "gemv.across.t256.v4.r4", "1")
      .symbols = {{{"M", 1}}, {{"M", 4}}};
  matmul("gemv_odd", "tensor<2x1x31xf16>", "tensor<2x31x45xf16>", "tensor<2x1x45xf16>", "", "gemv.across.t256", "2*2")
      .tolerance = 2e-3;
  matmul("gemv_t", "tensor<1x64xbf16>", "tensor<37x64xbf16>", "tensor<1x37xbf16>", "{transpose_b} ", "gemv.along.t128", "37")
      .tolerance = 8e-3;
  // Columns of all batches, 4 lanes each; rows that end within a piece; one thread a column.
  matmul("gemv_short", "tensor<3x?x29xf16, #lathe.t<[3, M, 29]>>", "tensor<3x45x29xf16>", "tensor<3x?x45xf16, #lathe.t<[3, M, 45]>>",
         "{transpose_b} ", "gemv.short.t128.r4.n32", "5")
      .symbols = {{{"M", 1}}, {{"M", 4}}};
  all.back().tolerance = 2e-3;
  matmul("gemv_short_whole", "tensor<1x128xf32>", "tensor<37x128xf32>", "tensor<1x37xf32>", "{transpose_b} ",
         "gemv.short.t128.n4", "10");
  matmul("gemv_short_piece", "tensor<2x1x2xf64>", "tensor<2x70x2xf64>", "tensor<2x1x70xf64>", "{transpose_b} ",
         "gemv.short.t128.n128", "2");
  std::string weights = "tensor<45x520xbf16>";
  matmul("row", "tensor<1x520xbf16>", weights, "tensor<1x45xbf16>", "{transpose_b} ", "gemv.row.t64.n2.s2", "23").tolerance = 8e-3;
  matmul("row_short", "tensor<1x8xf16>", "tensor<7x8xf16>", "tensor<1x7xf16>", "{transpose_b} ", "gemv.row.t32.n1.s1", "7")
      .tolerance = 2e-3;
  matmul("skinny", "tensor<?x520xbf16, #lathe.t<[M, 520]>>", weights, "tensor<?x45xbf16, #lathe.t<[M, 45]>>", "{transpose_b} ",
         "gemm.skinny.t128.r8.n32.s2", "2")
      .symbols = {{{"M", 1}}, {{"M", 7}}};
  all.back().tolerance = 8e-3;
  matmul("skinny_whole", "tensor<13x256xf16>", "tensor<48x256xf16>", "tensor<13x48xf16>", "{transpose_b} ",
         "gemm.skinny.t128.r16.n16.s2", "3")
      .tolerance = 2e-3;
  // More tiles than blocks; rows, columns and depths that fill none; the last warps have nothing to do.
  matmul("few_rows", "tensor<?x520xbf16, #lathe.t<[M, 520]>>", weights, "tensor<?x45xbf16, #lathe.t<[M, 45]>>", "{transpose_b} ",
         "gemm.stream.t128.r8.n16.s3", "2", "28800")
      .symbols = {{{"M", 1}}, {{"M", 7}}};
  all.back().tolerance = 8e-3;
  matmul("few_rows_whole", "tensor<13x512xf16>", "tensor<96x512xf16>", "tensor<13x96xf16>", "{transpose_b} ",
         "gemm.stream.t128.r16.n16.s4", "2", "41216")
      .tolerance = 2e-3;
  matmul("few_rows_short", "tensor<16x72xf16>", "tensor<50x72xf16>", "tensor<16x50xf16>", "{transpose_b} ",
         "gemm.stream.t128.r16.n16.s6", "1", "57600")
      .tolerance = 2e-3;
  // Stored weights: codes of `data` with scales of columns or of blocks of k, zero points, a second
  // scale, or a table of the numbers that they stand for; and what is multiplied is `half`. Each is "columns x depth x type", the scales blocks of k.
  struct Weights {
    std::string data, scale, zero, outer;
    int64_t block = 0;
    std::string codebook = "";
  };
  auto stored = [&](std::string name, std::string x, Weights weights, std::string y, std::string half,
                    std::string config, std::string grid) -> Case & {
    auto tensor = [](const std::string &type) { return "tensor<" + type + ">"; };
    std::string sizes = weights.data.substr(0, weights.data.rfind('x') + 1), w = tensor(sizes + half),
                block = weights.block ? " {block = array<i64: 1, " + std::to_string(weights.block) + ">}" : "",
                operands = "%q", types = tensor(weights.data),
                signature = "(%x: " + x + ", %q: " + tensor(weights.data);
    auto part = [&](std::string word, std::string type) {
      if (type.empty())
        return;
      std::string value = "%" + word.substr(0, 1);
      operands += " " + word + "(" + value + ")";
      types += ", " + tensor(type);
      signature += ", " + value + ": " + tensor(type);
    };
    part("scale", weights.scale);
    part("zero", weights.zero);
    part("outer", weights.outer);
    part("codebook", weights.codebook);
    std::string body = "  %w = lathe.dequantize " + operands + block + " : (" + types + ") -> " + w +
                       "\n  %r = lathe.matmul %x, %w {transpose_b} : (" + x + ", " + w + ") -> " + y +
                       "\n  return %r : " + y;
    Case &c = add(name, {fn(name, signature + ") -> " + y, body), config, {grid}});
    c.tolerance = half == "f16" ? 2e-3 : 8e-3;
    return c;
  };
  stored("stored_row", "tensor<1x528xbf16>", {"45x528xi8", "45x1xf32", "", "", 0}, "tensor<1x45xbf16>", "bf16",
         "gemv.row.t64.n2.s1", "23");
  stored("stored_blocks", "tensor<?x528xbf16, #lathe.t<[M, 528]>>", {"45x528xui8", "45x11xf32", "45x1xui8", "", 48},
         "tensor<?x45xbf16, #lathe.t<[M, 45]>>", "bf16", "gemm.skinny.t128.r8.n32.s2", "2")
      .symbols = {{{"M", 1}}, {{"M", 7}}};
  stored("stored_floats", "tensor<13x1024xf16>", {"48x1024xf8E4M3FN", "48x1xf32", "", "", 0}, "tensor<13x48xf16>", "f16",
         "gemm.skinny.t128.r16.n16.s2", "3");
  // Codes of 4 bits, two to a byte.
  stored("int4_row", "tensor<1x544xbf16>", {"45x544xi4", "45x17xbf16", "", "", 32}, "tensor<1x45xbf16>", "bf16",
         "gemv.row.t64.n2.s1", "23");
  stored("int4_zeros", "tensor<1x1024xf16>", {"32x1024xui4", "32x16xf16", "32x16xui4", "", 64}, "tensor<1x32xf16>", "f16",
         "gemv.row.t32.n2.s1", "16");
  stored("int4_rows", "tensor<?x1024xf16, #lathe.t<[M, 1024]>>", {"45x1024xi4", "45x8xf16", "", "", 128},
         "tensor<?x45xf16, #lathe.t<[M, 45]>>", "f16", "gemm.skinny.t128.r16.n16.s2", "3")
      .symbols = {{{"M", 2}}, {{"M", 13}}};
  stored("int4_columns", "tensor<5x608xbf16>", {"45x608xui4", "45x1xf32", "45x1xf32", "", 0}, "tensor<5x45xbf16>", "bf16",
         "gemm.skinny.t128.r8.n16.s2", "3");
  stored("mxfp4_row", "tensor<1x544xbf16>", {"45x544xf4E2M1FN", "45x17xf8E8M0FNU", "", "", 32}, "tensor<1x45xbf16>", "bf16",
         "gemv.row.t64.n2.s1", "23");
  stored("mxfp4_rows", "tensor<7x1024xf16>", {"48x1024xf4E2M1FN", "48x32xf8E8M0FNU", "", "", 32}, "tensor<7x48xf16>", "f16",
         "gemm.skinny.t128.r8.n16.s2", "3");
  stored("nvfp4_row", "tensor<1x544xbf16>", {"45x544xf4E2M1FN", "45x34xf8E4M3FN", "", "f32", 16}, "tensor<1x45xbf16>", "bf16",
         "gemv.row.t64.n2.s1", "23");
  stored("nvfp4_rows", "tensor<7x1024xf16>", {"48x1024xf4E2M1FN", "48x64xf8E4M3FN", "", "f32", 16}, "tensor<7x48xf16>", "f16",
         "gemm.skinny.t128.r8.n16.s2", "3");
  stored("nf4_row", "tensor<1x544xbf16>", {"45x544xui4", "45x17xf32", "", "", 32, "16xf32"}, "tensor<1x45xbf16>", "bf16",
         "gemv.row.t64.n2.s1", "23");
  stored("nf4_outer", "tensor<1x1024xf16>", {"32x1024xi4", "32x16xf16", "", "f32", 64, "16xf16"}, "tensor<1x32xf16>", "f16",
         "gemv.row.t32.n2.s1", "16");
  stored("nf4_rows", "tensor<7x1024xf16>", {"48x1024xui4", "48x16xf16", "", "", 64, "16xf16"}, "tensor<7x48xf16>", "f16",
         "gemm.skinny.t128.r8.n16.s2", "3");
  // The same as fragments: more tiles than blocks, columns and depths that fill none, groups shorter and longer than
  // what a lane reads at a time and that begin within a warp's part of the depth, one zero point and many.
  auto packed = [&](std::string name, std::string x, Weights weights, std::string y, std::string half, std::string config,
                    std::string grid, int64_t bits) -> Case & {
    Case &c = stored(name, x, weights, y, half, config, grid);
    const KernelConfig parsed = *KernelConfig::parse(config);
    c.cuda.packing = "fragments" + std::to_string(bits);
    c.cuda.shared = std::to_string(parsed.form->sharedBytes(parsed, {}));
    return c;
  };
  packed("packed_short_groups", "tensor<?x512xbf16, #lathe.t<[M, 512]>>", {"45x512xi4", "45x16xbf16", "", "", 32},
         "tensor<?x45xbf16, #lathe.t<[M, 45]>>", "bf16", "gemm.packed.t128.r8.n16.k2.s2", "2", 4)
      .symbols = {{{"M", 1}}, {{"M", 7}}};
  packed("packed_zeros", "tensor<13x512xf16>", {"64x512xui4", "64x8xf16", "64x8xui4", "", 64}, "tensor<13x64xf16>", "f16",
         "gemm.packed.t128.r16.n32.k2.s3", "2", 4);
  packed("packed_zeros_bf16", "tensor<13x512xbf16>", {"77x512xui4", "77x8xbf16", "77x8xui4", "", 64}, "tensor<13x77xbf16>", "bf16",
         "gemm.packed.t128.r16.n32.k2.s2", "1", 4);
  packed("packed_long_groups", "tensor<3x1152xbf16>", {"35x1152xi4", "35x9xf32", "35x9xi4", "", 128}, "tensor<3x35xbf16>",
         "bf16", "gemm.packed.t160.r8.n16.k4.s2", "3", 4);
  packed("packed_columns", "tensor<5x640xbf16>", {"45x640xui4", "45x1xf32", "", "", 0}, "tensor<5x45xbf16>", "bf16",
         "gemm.packed.t128.r8.n32.k3.s2", "1", 4);
  packed("packed_column_zeros", "tensor<5x640xf16>", {"45x640xi4", "45x1xf16", "45x1xi4", "", 0}, "tensor<5x45xf16>", "f16",
         "gemm.packed.t128.r8.n64.k3.s2", "1", 4);
  packed("packed_bytes", "tensor<9x512xbf16>", {"45x512xi8", "45x1xf32", "", "", 0}, "tensor<9x45xbf16>", "bf16",
         "gemm.packed.t128.r16.n32.k4.s2", "2", 8);
  packed("packed_unsigned_bytes", "tensor<9x480xbf16>", {"48x480xui8", "48x1xf32", "", "", 0}, "tensor<9x48xbf16>", "bf16",
         "gemm.packed.t256.r16.n16.k2.s2", "3", 8);
  packed("packed_bytes_f16", "tensor<2x512xf16>", {"45x512xi8", "45x1xf32", "", "", 0}, "tensor<2x45xf16>", "f16",
         "gemm.packed.t128.r8.n16.k4.s2", "2", 8);
  packed("packed_unsigned_bytes_f16", "tensor<2x512xf16>", {"45x512xui8", "45x1xf32", "", "", 0}, "tensor<2x45xf16>", "f16",
         "gemm.packed.t128.r8.n16.k4.s2", "2", 8);
  // A through shared memory: rows and columns that fill no tile, stages that are not full, more of them than there are
  // units, one stage for several turns; a scale for each column, for more and for less than a unit, zero points.
  packed("fragments_rows", "tensor<?x640xbf16, #lathe.t<[M, 640]>>", {"77x640xi4", "77x5xbf16", "", "", 128},
         "tensor<?x77xbf16, #lathe.t<[M, 77]>>", "bf16", "gemm.fragments.t128.r40.m16.n32.k128.s2", "3", 4)
      .symbols = {{{"M", 1}}, {{"M", 17}}, {{"M", 40}}};
  packed("fragments_zeros", "tensor<13x512xf16>", {"64x512xui4", "64x16xf16", "64x16xui4", "", 32}, "tensor<13x64xf16>", "f16",
         "gemm.fragments.t64.r16.m32.n64.k64.s2", "1", 4);
  packed("fragments_zeros_bf16", "tensor<30x448xbf16>", {"90x448xi4", "90x7xbf16", "90x7xi4", "", 64}, "tensor<30x90xbf16>", "bf16",
         "gemm.fragments.t128.r32.m48.n48.k256.s3", "2", 4);
  packed("fragments_columns", "tensor<64x192xbf16>", {"45x192xui4", "45x1xf32", "", "", 0}, "tensor<64x45xbf16>", "bf16",
         "gemm.fragments.t32.r64.m48.n48.k64.s4", "1", 4);
  packed("fragments_bytes", "tensor<19x480xbf16>", {"45x480xi8", "45x1xf32", "", "", 0}, "tensor<19x45xbf16>", "bf16",
         "gemm.fragments.t128.r24.m16.n32.k64.s3", "2", 8);
  packed("fragments_bytes_f16", "tensor<9x512xf16>", {"48x512xui8", "48x1xf32", "", "", 0}, "tensor<9x48xf16>", "f16",
         "gemm.fragments.t64.r16.m48.n48.k64.s2", "1", 8);
  // 2:4 sparse weights, stored either way: columns and depths that fill no panel and no step, more tiles than blocks, tiles
  // after which warps meet that are not all there.
  auto sparse = [&](std::string name, std::string x, std::string w, std::string y, std::string flags, std::string config,
                    std::string grid) -> Case & {
    Case &c = matmul(name, x, w, y, flags, config, grid);
    const KernelConfig parsed = *KernelConfig::parse(config);
    c.cuda.packing = flags.empty() ? "sparse24" : "sparse24t";
    c.cuda.shared = std::to_string(parsed.form->sharedBytes(parsed, {}));
    c.tolerance = 8e-3;
    return c;
  };
  sparse("sparse_row", "tensor<1x512xbf16>", "tensor<48x512xbf16>", "tensor<1x48xbf16>", "{transpose_b} ",
         "gemm.sparse.few.t128.v2.r8.n32.k2.s2", "2");
  sparse("sparse_rows", "tensor<?x200xbf16, #lathe.t<[M, 200]>>", "tensor<200x90xbf16>", "tensor<?x90xbf16, #lathe.t<[M, 90]>>", "",
         "gemm.sparse.few.t128.r8.n16.k1.s3", "2")
      .symbols = {{{"M", 1}}, {{"M", 7}}};
  sparse("sparse_sixteen", "tensor<13x776xf16>", "tensor<45x776xf16>", "tensor<13x45xf16>", "{transpose_b} ",
         "gemm.sparse.few.t128.v2.r16.n64.k4.s3", "1")
      .tolerance = 2e-3;
  // Rows of which relu makes half zero: columns that fill no panel, a last panel half as wide, depths that fill no piece of 32
  // or are listed in parts.
  auto active = [&](std::string name, std::string type, int64_t k, int64_t n, bool along, std::string config, std::string grid) -> Case & {
    std::string x = "tensor<1x" + std::to_string(k) + "x" + type + ">", y = "tensor<1x" + std::to_string(n) + "x" + type + ">";
    std::string w = "tensor<" + std::to_string(along ? n : k) + "x" + std::to_string(along ? k : n) + "x" + type + ">";
    Case &c = add(name, {fn(name, "(%a: " + x + ", %b: " + w + ") -> " + y,
                            "  %z = lathe.constant dense<0.0> : tensor<" + type + ">\n  %0 = lathe.max %a, %z : (" + x + ", tensor<" + type +
                                ">) -> " + x + "\n  %1 = lathe.matmul %0, %b " + (along ? "{transpose_b} " : "") + ": (" + x + ", " + w +
                                ") -> " + y + "\n  return %1 : " + y),
                         config, {grid}});
    c.cuda.packing = "panels" + std::to_string(KernelConfig::parse(config)->tileN) + (along ? "t" : "");
    c.tolerance = type == "f32" ? 2e-6 : type == "f16" ? 2e-3 : 8e-3;
    return c;
  };
  active("active_row", "bf16", 520, 45, true, "gemv.active.t256.n128.k1.s4", "1");
  active("active_panels", "f32", 520, 200, false, "gemv.active.t256.n64.k1.s2", "4");
  active("active_parts", "f16", 4100, 330, false, "gemv.active.t512.n256.k1.s8", "2");
  add("heads", {fn("heads", "(%a: tensor<2x6x16xf32>, %b: tensor<16x24xf32>, %c: tensor<24xf32>) -> tensor<2x3x6x8xf32>", R"(
  %0 = lathe.matmul %a, %b : (tensor<2x6x16xf32>, tensor<16x24xf32>) -> tensor<2x6x24xf32>
  %1 = lathe.add %0, %c : (tensor<2x6x24xf32>, tensor<24xf32>) -> tensor<2x6x24xf32>
  %2 = lathe.reshape %1 : (tensor<2x6x24xf32>) -> tensor<2x6x3x8xf32>
  %3 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x6x3x8xf32>) -> tensor<2x3x6x8xf32>
  return %3 : tensor<2x3x6x8xf32>)"),
                "gemm.simt.t256.m64.n64.k16", {"1"}});
  // ---- Convolutions ----
  auto conv = [&](std::string name, std::string x, std::string w, std::string y, int stride, int pad, int group,
                  std::string layout, std::string config, std::string grid) -> Case & {
    std::string s = std::to_string(stride), p = std::to_string(pad);
    return add(name, {fn(name, "(%x: " + x + ", %w: " + w + ") -> " + y,
                         "  %0 = lathe.conv %x, %w {strides = array<i64: " + s + ", " + s + ">, pads = array<i64: " +
                             p + ", " + p + ", " + p + ", " + p + ">, dilations = array<i64: 1, 1>, group = " +
                             std::to_string(group) + " : i64, layout = #lathe.conv_layout<" + layout + ">} : (" + x +
                             ", " + w + ") -> " + y + "\n  %1 = lathe.neg %0 : (" + y + ") -> " + y +
                             "\n  return %1 : " + y),
                      config, {grid}});
  };
  conv("conv", "tensor<?x5x9x8xf32, #lathe.t<[N, 5, 9, 8]>>", "tensor<6x5x3x3xf32>",
       "tensor<?x6x9x8xf32, #lathe.t<[N, 6, 9, 8]>>", 1, 1, 1, "nchw", "conv.simt.t256.m64.n64.k16", "N*2")
      .symbols = {{{"N", 2}}};
  conv("conv_last", "tensor<2x9x8x4xf32>", "tensor<8x2x3x3xf32>", "tensor<2x5x4x8xf32>", 2, 1, 2, "nhwc",
       "conv.simt.t256.m64.n64.k16", "4");
  conv("conv_depth", "tensor<2x9x8x4xf32>", "tensor<4x1x3x3xf32>", "tensor<2x9x8x4xf32>", 1, 1, 4, "nhwc",
       "conv.direct.t128.v4", "ceildiv(576, 512)");
  conv("conv_channels", "tensor<2x9x10x12xf32>", "tensor<12x1x3x3xf32>", "tensor<2x9x10x12xf32>", 1, 1, 12, "nhwc",
       "conv.depthwise.t128.v4.r4", "2");
  conv("conv_channels_apart", "tensor<2x9x11x8xf16>", "tensor<8x1x5x5xf16>", "tensor<2x5x6x8xf16>", 2, 2, 8, "nhwc",
       "conv.depthwise.t128.v8.r4", "1")
      .tolerance = 2e-3;
  // Rows that begin anywhere in their vectors, of images and of results.
  conv("conv_planes", "tensor<2x6x7x13xf16>", "tensor<6x1x3x3xf16>", "tensor<2x6x7x13xf16>", 1, 1, 6, "nchw", "conv.planes.t128.v8", "2")
      .tolerance = 2e-3;
  conv("conv_planes_apart", "tensor<1x3x9x10xf32>", "tensor<3x1x5x5xf32>", "tensor<1x3x5x5xf32>", 2, 2, 3, "nchw", "conv.planes.t128.v4", "1");
  add("conv_planes_line", {fn("conv_planes_line", "(%x: tensor<3x4x37xbf16>, %w: tensor<4x1x7xbf16>, %m: tensor<3x1x37xbf16>) -> tensor<3x4x37xbf16>", R"(
  %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 6, 6>, dilations = array<i64: 2>, group = 4 : i64, layout = #lathe.conv_layout<nchw>} : (tensor<3x4x37xbf16>, tensor<4x1x7xbf16>) -> tensor<3x4x37xbf16>
  %1 = lathe.mul %0, %m : (tensor<3x4x37xbf16>, tensor<3x1x37xbf16>) -> tensor<3x4x37xbf16>
  return %1 : tensor<3x4x37xbf16>)"),
                           "conv.planes.t128.v8", {"1"}})
      .tolerance = 2e-2;
  Case &half = conv("conv_mma", "tensor<1x4x7x7xf16>", "tensor<9x4x3x3xf16>", "tensor<1x9x7x7xf16>", 1, 1, 1, "nchw",
                    "conv.mma.t128.m64.n64.k32.s4", "1");
  half.cuda.shared = "32768";
  half.tolerance = 2e-3;
  // Small groups side by side: two of 8 channels; of 24, whose pieces are odd; a line.
  auto groups = [&](Case &c, const char *bytes) {
    c.cuda.shared = bytes;
    c.cuda.packing = "rows8";
    c.tolerance = c.name == "conv_groups_bf16" ? 8e-3 : 2e-3;
  };
  groups(conv("conv_groups", "tensor<2x9x18x16xf16>", "tensor<16x8x3x3xf16>", "tensor<2x9x18x16xf16>", 1, 1, 2, "nhwc",
              "conv.groups.t128.m8.n16.k16", "8"),
         "11984");
  groups(conv("conv_groups_bf16", "tensor<1x15x17x72xbf16>", "tensor<48x24x3x3xbf16>", "tensor<1x8x9x48xbf16>", 2, 1, 3, "nhwc",
              "conv.groups.t128.m8.n8.k24", "6"),
         "21312");
  groups(add("conv_groups_line", {fn("conv_groups_line", "(%x: tensor<2x150x40xf16>, %w: tensor<40x8x4xf16>) -> tensor<2x151x40xf16>", R"(
  %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 2, 2>, dilations = array<i64: 1>, group = 5 : i64, layout = #lathe.conv_layout<nhwc>} : (tensor<2x150x40xf16>, tensor<40x8x4xf16>) -> tensor<2x151x40xf16>
  return %0 : tensor<2x151x40xf16>)"),
                                  "conv.groups.t128.m1.n128.k40", {"4"}}),
         "15504");
  Case &four = conv("conv_groups_four", "tensor<2x9x18x16xf16>", "tensor<16x4x3x3xf16>", "tensor<2x9x18x16xf16>", 1, 1, 4, "nhwc",
                    "conv.groups.t128.m8.n16.k16", "8");
  groups(four, "11984");
  four.cuda.packing = "rows4";
  groups(add("conv_groups_long", {fn("conv_groups_long", "(%x: tensor<2x70x32xf16>, %w: tensor<32x16x12xf16>) -> tensor<2x70x32xf16>", R"(
  %0 = lathe.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 5, 6>, dilations = array<i64: 1>, group = 2 : i64, layout = #lathe.conv_layout<nhwc>} : (tensor<2x70x32xf16>, tensor<32x16x12xf16>) -> tensor<2x70x32xf16>
  return %0 : tensor<2x70x32xf16>)"),
                                  "conv.groups.line.t128.m4.n64.k16.s3", {"8"}}),
         "13072");
  // ---- Attention ----
  auto attention = [&](std::string name, std::string config, std::string grid0, std::string shared, int64_t s) -> Case & {
    std::string q = "tensor<?x4x?x16xf32, #lathe.t<[B, 4, S, 16]>>", k = "tensor<?x2x?x16xf32, #lathe.t<[B, 2, T, 16]>>",
                m = "tensor<?x1x?x?xf32, #lathe.t<[B, 1, S, T]>>";
    Case &c = add(name, {fn(name, "(%q: " + q + ", %k: " + k + ", %v: " + k + ", %m: " + m + ") -> " + q,
                            "  %0 = lathe.attention %q, %k, %v bias %m {scale = 0.25 : f64, causal} : (" + q + ", " + k +
                                ", " + k + ", " + m + ") -> " + q + "\n  return %0 : " + q),
                         config, {grid0, "4", "B"}, shared});
    c.symbols = {{{"B", 2}, {"S", s}, {"T", s + 40}}, {{"B", 1}, {"S", 1}, {"T", 1}}};
    c.tolerance = 1e-5;
    return c;
  };
  attention("stream", "attention.stream.t128.r4", "ceildiv(S, 16)", std::to_string(4 * (64 * 17 + 16 * 16 + 16 * 32)), 19);
  attention("decode", "attention.decode.t128", "S", "0", 3);
  for (bool half : {false, true}) {
    // 16-bit operands: rows in memory, then queries from an expression and an odd head size.
    std::string t = half ? "f16" : "bf16", e = half ? "20" : "24",
                q = "tensor<?x4x?x" + e + "x" + t + ", #lathe.t<[B, 4, S, " + e + "]>>",
                k = "tensor<?x2x?x" + e + "x" + t + ", #lathe.t<[B, 2, T, " + e + "]>>",
                m = "tensor<1x1x?x?x" + t + ", #lathe.t<[1, 1, S, T]>>", name = half ? "tiles_f16" : "tiles_bf16",
                masked = half ? " bias %m" : "", mask = half ? ", " + m : "";
    Case &c = add(name, {fn(name, "(%q: " + q + ", %k: " + k + ", %v: " + k + ", %m: " + m + ") -> " + q,
                            (half ? "  %n = lathe.neg %q : (" + q + ") -> " + q + "\n" : "") +
                                "  %0 = lathe.attention " + (half ? "%n" : "%q") + ", %k, %v" + masked +
                                " {scale = 0.25 : f64, causal" + (half ? ", softcap = 2.0 : f64" : ", zero_masked_rows") +
                                "} : (" + q + ", " + k + ", " + k + mask + ") -> " + q + "\n  return %0 : " + q),
                         "attention.mma.t64.n32", {"ceildiv(S, 32)", "4", "B"}, std::to_string(2 * 96 * 32)});
    c.symbols = {{{"B", 2}, {"S", 35}, {"T", 70}}, {{"B", 1}, {"S", 1}, {"T", 1}}, {{"B", 1}, {"S", 40}, {"T", 33}}};
    if (half)
      c.symbols.pop_back(); // rows that see nothing are NaN there, in both
    c.tolerance = half ? 2e-3 : 1e-2;
  }
  for (const char *type : {"bf16", "i1"}) { // masks of even rows, two keys at a time
    std::string q = "tensor<2x4x35x16xbf16>", k = "tensor<2x2x70x16xbf16>", m = std::string("tensor<35x70x") + type + ">",
                name = std::string("tiles_mask_") + type, made = *type == 'i' ? "%c" : "%m", x = "tensor<35x70xbf16>";
    add(name, {fn(name, "(%q: " + q + ", %k: " + k + ", %v: " + k + ", %m: " + x + ") -> " + q,
                  (*type == 'i' ? "  %c = lathe.compare %m, %m {predicate = #lathe.predicate<le>} : (" + x + ", " + x + ") -> " + m + "\n" : "") +
                      "  %0 = lathe.attention %q, %k, %v " + (*type == 'i' ? "mask " : "bias ") + made + " {scale = 0.25 : f64, causal, zero_masked_rows} : (" + q +
                      ", " + k + ", " + k + ", " + m + ") -> " + q + "\n  return %0 : " + q),
               "attention.mma.t64.n32", {"2", "4", "2"}, std::to_string(2 * 96 * 16)})
        .tolerance = 1e-2;
  }
  // A sink: one for each query and for each head beside a bias, or alone.
  for (const char *how : {"column", "heads", "alone"}) {
    std::string q = "tensor<2x4x35x16xbf16>", k = "tensor<2x2x70x16xbf16>", m = "tensor<35x70xbf16>",
                s = *how == 'c' ? "tensor<35x1xbf16>" : "tensor<1x4x1x1xbf16>";
    const bool alone = *how == 'a';
    for (const char *config : {"attention.mma.t64.n32", "attention.stream.t128.r4"}) {
      bool tiles = config[10] == 'm';
      std::string name = std::string("sink_") + how + (tiles ? "_tiles" : "_stream");
      add(name, {fn(name, "(%q: " + q + ", %k: " + k + ", %v: " + k + ", %m: " + m + ", %s: " + s + ") -> " + q,
                    std::string("  %0 = lathe.attention %q, %k, %v") + (alone ? "" : " bias %m") + " sink %s {scale = 0.25 : f64, causal} : (" +
                        q + ", " + k + ", " + k + (alone ? "" : ", " + m) + ", " + s + ") -> " + q + "\n  return %0 : " + q),
                 config, {tiles ? "2" : "3", "4", "2"}, std::to_string(tiles ? 2 * 96 * 16 : 4 * (64 * 17 + 16 * 16 + 16 * 32))})
          .tolerance = 1e-2;
    }
  }
  // Everything that hides keys: starts, lengths, places, a window, documents.
  for (const char *config : {"attention.mma.t64.n32", "attention.stream.t128.r4", "attention.decode.t128"}) {
    bool tiles = config[10] == 'm', few = config[10] == 'd';
    std::string name = std::string("hidden_") + (tiles ? "tiles" : few ? "decode" : "stream");
    add(name, {fn(name, "(%q: tensor<2x4x35x16xbf16>, %k: tensor<2x2x70x16xbf16>, %v: tensor<2x2x70x16xbf16>, %a: tensor<2xi64>, "
                        "%d: tensor<1x35xi64>, %e: tensor<2x70xi64>) -> tensor<2x4x35x16xbf16>", R"(
  %c60 = lathe.constant dense<60> : tensor<i64>
  %c20 = lathe.constant dense<20> : tensor<i64>
  %b = lathe.add %a, %c60 : (tensor<2xi64>, tensor<i64>) -> tensor<2xi64>
  %c = lathe.add %a, %c20 : (tensor<2xi64>, tensor<i64>) -> tensor<2xi64>
  %0 = lathe.attention %q, %k, %v starts %a lengths %b offset %c documents %d, %e {scale = 0.25 : f64, causal, window_left = 11 : i64, zero_masked_rows} : (tensor<2x4x35x16xbf16>, tensor<2x2x70x16xbf16>, tensor<2x2x70x16xbf16>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<1x35xi64>, tensor<2x70xi64>) -> tensor<2x4x35x16xbf16>
  return %0 : tensor<2x4x35x16xbf16>)"),
               config, {tiles ? "2" : few ? "35" : "3", "4", "2"},
               few ? "0" : std::to_string(tiles ? 2 * 96 * 16 : 4 * (64 * 17 + 16 * 16 + 16 * 32))})
        .tolerance = 1e-2;
  }
  // ---- Rotary embedding: halves and neighbours, an angle a pair or a column, whole heads and a part ----
  for (bool interleaved : {false, true})
    for (int64_t rotary : {64, 32})
      for (int64_t angles : {rotary, rotary / 2}) {
        std::string name = std::string(interleaved ? "neighbours_" : "halves_") + std::to_string(rotary) + "_" + std::to_string(angles),
                    t = "tensor<1x9x" + std::to_string(angles) + "xbf16>", x = "tensor<3x4x9x64xbf16>";
        add(name, {fn(name, "(%x: " + x + ", %c: " + t + ", %s: " + t + ") -> " + x,
                      "  %0 = lathe.rope %x, %c, %s {rotary = " + std::to_string(rotary) + " : i64" + (interleaved ? ", interleaved" : "") +
                          "} : (" + x + ", " + t + ", " + t + ") -> " + x + "\n  return %0 : " + x),
                   "pointwise.t128.v8", {"7"}})
            .tolerance = 8e-3;
      }
  // ---- Indices from data ----
  add("gather", {fn("gather", "(%x: tensor<5x8xf32>, %i: tensor<3xi64>) -> tensor<3x8xf32>", R"(
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<5x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>)"),
                 "pointwise.t128.v4", {"1"}});
  // Vectors over the ends of rows: one in a vector, several, and rows of one element.
  add("gather_odd_rows", {fn("gather_odd_rows", "(%x: tensor<5x13xf16>, %i: tensor<9xi64>) -> tensor<9x13xf16>", R"(
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<5x13xf16>, tensor<9xi64>) -> tensor<9x13xf16>
  return %0 : tensor<9x13xf16>)"),
                          "pointwise.t32.v8", {"1"}});
  add("gather_short_rows", {fn("gather_short_rows", "(%x: tensor<4x5x3xf32>, %i: tensor<9xi64>) -> tensor<4x9x3xf32>", R"(
  %0 = lathe.gather %x, %i {axis = 1 : i64} : (tensor<4x5x3xf32>, tensor<9xi64>) -> tensor<4x9x3xf32>
  return %0 : tensor<4x9x3xf32>)"),
                            "pointwise.t32.v8", {"1"}});
  add("gather_elements_alone", {fn("gather_elements_alone", "(%x: tensor<3x5x1xf16>, %i: tensor<11xi64>) -> tensor<3x11x1xf16>", R"(
  %0 = lathe.gather %x, %i {axis = 1 : i64} : (tensor<3x5x1xf16>, tensor<11xi64>) -> tensor<3x11x1xf16>
  return %0 : tensor<3x11x1xf16>)"),
                                "pointwise.t32.v8", {"1"}});
  add("gather_odd_elements", {fn("gather_odd_elements", "(%x: tensor<5x13xf32>, %i: tensor<3x13xi64>) -> tensor<3x13xf32>", R"(
  %0 = lathe.gather_elements %x, %i {axis = 0 : i64} : (tensor<5x13xf32>, tensor<3x13xi64>) -> tensor<3x13xf32>
  return %0 : tensor<3x13xf32>)"),
                              "pointwise.t32.v4", {"1"}});
  add("gather_bad", {fn("gather_bad", "(%x: tensor<2x8xf32>, %i: tensor<3xi64>) -> tensor<3x8xf32>", R"(
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<2x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>)"),
                     "pointwise.t128.v4", {"1"}})
      .fails = true;
  // As select has it: generated kernels start while the one ahead still writes their inputs.
  for (Case &c : all)
    for (const char *family : {"pointwise", "row", "columns", "split", "transpose", "attention"})
      c.cuda.early |= c.cuda.config.rfind(family, 0) == 0;
  return all;
}

const std::vector<Case> &cases() {
  static const std::vector<Case> all = makeCases();
  return all;
}

/// All kernels, generated and compiled once.
struct Shared {
  CudaBatch batch;
  std::map<std::string, std::string> errors;
  std::string build;
  Shared() {
    for (const Case &c : cases())
      errors[c.name] = batch.add(c.cuda);
    build = batch.build();
  }
};
Shared &shared() {
  static Shared s;
  return s;
}

float asFloat(const Bytes &b, DType t, size_t i) {
  uint16_t h;
  switch (t) {
  case DType::F16:
    std::memcpy(&h, &b[2 * i], 2);
    return static_cast<float>(decodeFloat(DType::F16, h));
  case DType::BF16:
    std::memcpy(&h, &b[2 * i], 2);
    return bf16ToFloat(h);
  case DType::I8:
    return std::to_integer<int8_t>(b[i]);
  case DType::UI8:
    return std::to_integer<uint8_t>(b[i]);
  default:
    float f;
    std::memcpy(&f, &b[4 * i], 4);
    return f;
  }
}

/// Of each four neighbours along K two become zero, of a matrix of 16 bits.
void makeTwoOfFour(Bytes &weights, const BufferArg &arg, bool transposed) {
  const int64_t rows = *arg.dims[0].constant(), columns = *arg.dims[1].constant(), depth = transposed ? columns : rows;
  for (int64_t n = 0; n < (transposed ? rows : columns); ++n)
    for (int64_t k = 0; k < depth; ++k)
      if (const int64_t turn = (k / 4 + n) % 4; k % 4 == turn || k % 4 == (turn + 1 + n % 3) % 4)
        std::fill_n(&weights[2 * (transposed ? n * columns + k : k * columns + n)], 2, std::byte{0});
}

class Cuda : public ::testing::TestWithParam<size_t> {};

TEST_P(Cuda, AgreesWithTheCpu) {
  const Case &c = cases()[GetParam()];
  ASSERT_EQ(shared().errors[c.name], "");
  ASSERT_EQ(shared().build, "");
  const KernelSpec &spec = shared().batch.find(c.name)->spec;
  for (const auto &symbols : c.symbols) {
    std::vector<Bytes> inputs;
    for (int i = 0; i < spec.numInputs; ++i)
      inputs.push_back(randomBytes(spec.buffers[i], symbols, i + 1));
    if (c.cuda.packing.starts_with("sparse24"))
      makeTwoOfFour(inputs[1], spec.buffers[1], c.cuda.packing.ends_with("t"));
    if (c.fails) // the first index is past the end
      inputs.back()[0] = std::byte{100};
    std::vector<Bytes> got = shared().batch.run(c.name, inputs, symbols);
    ASSERT_EQ(shared().batch.error, "");
    if (c.fails) {
      EXPECT_EQ(shared().batch.status[0], 1u);
      EXPECT_EQ(static_cast<uint32_t>(shared().batch.status[1]), 7u);
      return;
    }
    EXPECT_EQ(shared().batch.status[0], 0u);
    CpuKernel cpu(c.cuda.text, c.oracle, "x86-64-v3");
    ASSERT_EQ(cpu.error, "");
    std::vector<Bytes> want = cpu.run(inputs, symbols);
    ASSERT_EQ(want.size(), got.size());
    for (size_t o = 0; o < want.size(); ++o) {
      DType t = spec.buffers[spec.numInputs + o].dtype;
      size_t n = want[o].size() / (bitWidth(t) / 8);
      double largest = 0;
      for (size_t i = 0; i < n; ++i)
        largest = std::max<double>(largest, std::fabs(asFloat(want[o], t, i)));
      for (size_t i = 0; i < n; ++i) {
        float w = asFloat(want[o], t, i), g = asFloat(got[o], t, i);
        if (std::isnan(w))
          ASSERT_TRUE(std::isnan(g)) << c.name << " at " << i;
        else
          ASSERT_NEAR(g, w, c.tolerance * std::max(largest, 1e-3)) << c.name << " at " << i;
      }
    }
  }
}

TEST_P(Cuda, CompilesWithNvrtc) {
  const Case &c = cases()[GetParam()];
  ASSERT_EQ(shared().errors[c.name], "");
  static Result<std::shared_ptr<nvrtc::Compiler>> compiler = nvrtc::Compiler::open();
  if (!compiler)
    GTEST_SKIP() << compiler.status().str();
  std::vector<nvrtc::CompileJob> jobs;
  for (const char *target : {"sm_80", "sm_90a"}) {
    if (!c.cuda.packing.empty() && !Target::parse(target)->hasWgmma())
      continue; // bulk copies
    nvrtc::CompileJob job;
    job.name = c.name + ".cu";
    job.source = shared().batch.generate(c.cuda, target).source;
    job.target = target;
    jobs.push_back(job);
  }
  expectCompiles(**compiler, jobs);
}

INSTANTIATE_TEST_SUITE_P(All, Cuda, ::testing::Range<size_t>(0, cases().size()),
                         [](const auto &info) { return cases()[info.param].name; });

/// What is infinite or no number in one group stays there.
TEST(CudaText, GroupsReadTheirOwnChannelsAlone) {
  ASSERT_EQ(shared().build, "");
  for (auto [name, group] : {std::pair("conv_groups", size_t(8)), {"conv_groups_four", 4}}) {
    const KernelSpec &spec = shared().batch.find(name)->spec;
    std::vector<Bytes> inputs;
    for (int i = 0; i < spec.numInputs; ++i)
      inputs.push_back(randomBytes(spec.buffers[i], {}, i + 1));
    const std::vector<Bytes> before = shared().batch.run(name, inputs);
    constexpr size_t kChannels = 16, kPixel = 40;
    const uint16_t infinite = 0x7c00, none = 0x7e00;
    std::memcpy(&inputs[0][2 * (kPixel * kChannels + 3)], &infinite, 2);
    std::memcpy(&inputs[0][2 * ((kPixel + 5) * kChannels + 3)], &none, 2);
    const std::vector<Bytes> got = shared().batch.run(name, inputs);
    ASSERT_EQ(shared().batch.error, "");
    size_t changed = 0;
    for (size_t i = 0; i < got[0].size() / 2; ++i)
      if (i % kChannels < group)
        changed += std::memcmp(&got[0][2 * i], &before[0][2 * i], 2) != 0;
      else
        ASSERT_EQ(std::memcmp(&got[0][2 * i], &before[0][2 * i], 2), 0) << name << i;
    EXPECT_EQ(changed, 2 * 9 * group) << name; // the windows that have one of the two
  }
}

TEST(CudaText, UnknownConfigurationIsALocatedError) {
  CudaBatch batch;
  EXPECT_NE(batch.add({fn("f", "(%x: tensor<4xf32>) -> tensor<4xf32>", "  return %x : tensor<4xf32>"), "sideways.t32"})
                .find("sideways"),
            std::string::npos);
  EXPECT_NE(batch.add({fn("f", "(%x: tensor<4xf32>) -> tensor<4xf32>", "  return %x : tensor<4xf32>"),
                       "gemm.simt.t256.m64.n64.k16"})
                .find("lathe.matmul"),
            std::string::npos);
}

} // namespace
