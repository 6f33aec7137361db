//===- ReferenceTest.cpp - what each op means -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cases worked out by hand, at least one an op, and the errors.
//
//===----------------------------------------------------------------------===//
#include "lathe/reference/Collective.h"
#include "lathe/reference/Reference.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <regex>
#include <set>

using namespace lathe;
using namespace lathe::reference;

namespace {

using Ints = std::vector<int64_t>;
using Reals = std::vector<double>;
constexpr DType F32 = DType::F32, F64 = DType::F64, I32 = DType::I32, I64 = DType::I64, I8 = DType::I8,
                U8 = DType::UI8, Bool = DType::Bool;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

Tensor tensor(DType dtype, Ints dims, Reals values) {
  Tensor t(dtype, std::move(dims));
  EXPECT_EQ(static_cast<size_t>(t.count()), values.size());
  for (size_t i = 0; i < values.size(); ++i)
    t.setReal(static_cast<int64_t>(i), values[i]);
  return t;
}

Tensor count(DType dtype, Ints dims, double first = 0) {
  Tensor t(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i)
    t.setReal(i, first + static_cast<double>(i));
  return t;
}

Attribute word(const char *text) { return std::string(text); }
Attribute num(int64_t value) { return value; }

struct Case {
  std::string op;
  Attributes attributes;
  std::vector<Tensor> inputs;
  TensorType result;
  Reals expected;
};

/// y = op(x) for f32 vectors.
Case unaryCase(std::string op, Reals x, Reals y) {
  Ints dims{static_cast<int64_t>(x.size())};
  return {std::move(op), {}, {tensor(F32, dims, x)}, {F32, dims}, std::move(y)};
}
Case binaryCase(std::string op, DType type, Reals a, Reals b, Reals y, Attributes attributes = {}) {
  Ints dims{static_cast<int64_t>(a.size())};
  return {std::move(op), std::move(attributes), {tensor(type, dims, a), tensor(type, dims, b)},
          {type, dims}, std::move(y)};
}

std::vector<Case> elementwiseCases() {
  auto bool3 = [](Reals v) { return tensor(Bool, {3}, v); };
  std::vector<Case> cases{
      unaryCase("neg", {1, -2, 0}, {-1, 2, -0.0}),
      unaryCase("probit", {0, 0.5, 0.158655253931457, 0.841344746068543, 1, 1.5}, {-kInf, 0, -1, 1, kInf, kNan}),
      // What the authors of Philox publish of key and counter 0, and the draws of another element and run.
      {"random_bits", {{"stream", num(0)}},
       {tensor(DType::UI64, {1}, {0}), tensor(DType::UI64, {}, {0}), tensor(DType::UI64, {}, {0})},
       {DType::UI64, {1}}, {double(0xe169c58d6627e8d5)}},
      unaryCase("abs", {1, -2, -kInf}, {1, 2, kInf}),
      unaryCase("sign", {3, -0.5, 0, kNan}, {1, -1, 0, kNan}),
      unaryCase("floor", {1.5, -1.5}, {1, -2}),
      unaryCase("ceil", {1.5, -1.5}, {2, -1}),
      unaryCase("round", {0.5, 1.5, -2.5, 2.4}, {0, 2, -2, 2}),
      unaryCase("trunc", {1.7, -1.7}, {1, -1}),
      unaryCase("exp", {0, 1, -kInf}, {1, 2.718281828459045, 0}),
      unaryCase("expm1", {0, 1e-6}, {0, 1.0000005000001667e-06}),
      unaryCase("log", {1, 2.718281828459045, 0}, {0, 1, -kInf}),
      unaryCase("log1p", {0, 1e-6}, {0, 9.999995000003334e-07}),
      unaryCase("sqrt", {4, 2, -1}, {2, 1.4142135623730951, kNan}),
      unaryCase("rsqrt", {4, 0}, {0.5, kInf}),
      unaryCase("recip", {4, -0.5}, {0.25, -2}),
      unaryCase("sin", {0, 1.5707963267948966}, {0, 1}),
      unaryCase("cos", {0, 1}, {1, 0.5403023058681398}),
      unaryCase("tan", {0, 0.7853981633974483}, {0, 1}),
      unaryCase("asin", {0, 1}, {0, 1.5707963267948966}),
      unaryCase("acos", {1, 0}, {0, 1.5707963267948966}),
      unaryCase("atan", {0, 1}, {0, 0.7853981633974483}),
      unaryCase("sinh", {0, 1}, {0, 1.1752011936438014}),
      unaryCase("cosh", {0, 1}, {1, 1.5430806348152437}),
      unaryCase("tanh", {0, 1, kInf}, {0, 0.7615941559557649, 1}),
      unaryCase("asinh", {0, 1}, {0, 0.881373587019543}),
      unaryCase("acosh", {1, 2}, {0, 1.3169578969248166}),
      unaryCase("atanh", {0, 0.5}, {0, 0.5493061443340548}),
      unaryCase("erf", {0, 1}, {0, 0.8427007929497149}),
      unaryCase("sigmoid", {0, 100, -1}, {0.5, 1, 0.2689414213699951}),
      binaryCase("add", F32, {1, kInf}, {2, -kInf}, {3, kNan}),
      binaryCase("add", I8, {100, 1}, {100, 2}, {-56, 3}),
      binaryCase("sub", U8, {1}, {2}, {255}),
      binaryCase("mul", F32, {3, -2}, {4, 0.5}, {12, -1}),
      binaryCase("div", F32, {1, 1, 0}, {4, 0, 0}, {0.25, kInf, kNan}),
      binaryCase("div", I32, {7, -7, -2147483648.0, 7}, {2, 2, -1, 0}, {3, -3, -2147483648.0, 0}),
      binaryCase("mod", I32, {7, 0, -2147483648.0}, {0, 0, -1}, {0, 0, 0}),
      binaryCase("mod", I32, {7, -7, 7, -7}, {3, 3, -3, -3}, {1, 2, -2, -1}),
      binaryCase("mod", I32, {7, -7, 7}, {3, 3, -3}, {1, -1, 1}, {{"fmod", num(1)}}),
      binaryCase("mod", F32, {5.5, -5.5}, {2, 2}, {1.5, 0.5}),
      binaryCase("mod", F32, {5.5, -5.5}, {2, 2}, {1.5, -1.5}, {{"fmod", num(1)}}),
      binaryCase("max", F32, {1, kNan, -0.0}, {2, 1, 0}, {2, kNan, 0}),
      binaryCase("max", U8, {200}, {100}, {200}),
      binaryCase("min", F32, {1, 1, 0}, {2, kNan, -0.0}, {1, kNan, -0.0}),
      binaryCase("and", Bool, {1, 1, 0}, {1, 0, 0}, {1, 0, 0}),
      binaryCase("and", I32, {12}, {10}, {8}),
      binaryCase("or", I32, {12}, {10}, {14}),
      binaryCase("xor", Bool, {1, 1}, {1, 0}, {0, 1}),
      binaryCase("shl", U8, {3, 129, 1}, {1, 1, 8}, {6, 2, 0}),
      binaryCase("shr", U8, {128, 128}, {1, 9}, {64, 0}),
      binaryCase("shr", I8, {-128, -1}, {1, 9}, {-64, -1}),
      {"pow", {}, {tensor(F32, {3}, {2, 9, -2}), tensor(F32, {}, {2})}, {F32, {3}}, {4, 81, 4}},
      {"pow", {}, {tensor(I32, {2}, {2, 3}), tensor(I32, {2}, {-1, 4})}, {I32, {2}}, {0, 81}},
      {"pow", {}, {tensor(I32, {1}, {4}), tensor(F32, {1}, {0.5})}, {I32, {1}}, {2}},
      {"not", {}, {bool3({1, 0, 1})}, {Bool, {3}}, {0, 1, 0}},
      {"not", {}, {tensor(U8, {1}, {15})}, {U8, {1}}, {240}},
      {"is_nan", {}, {tensor(F32, {3}, {1, kNan, kInf})}, {Bool, {3}}, {0, 1, 0}},
      {"is_inf", {}, {tensor(F32, {3}, {-kInf, kNan, kInf})}, {Bool, {3}}, {1, 0, 1}},
      {"is_inf", {{"negative", num(0)}}, {tensor(F32, {2}, {-kInf, kInf})}, {Bool, {2}}, {0, 1}},
      {"select", {},
       {bool3({1, 0, 1}), tensor(F32, {}, {7}), tensor(F32, {2, 1}, {1, 2})},
       {F32, {2, 3}}, {7, 1, 7, 7, 2, 7}},
      {"cast", {}, {tensor(F32, {5}, {1.9, -1.9, 300.7, kNan, 1e30})}, {I8, {5}}, {1, -1, 44, 0, 0}},
      {"cast", {}, {tensor(F32, {4}, {-1.5, 255.5, 256, -kInf})}, {U8, {4}}, {255, 255, 0, 0}},
      {"cast", {}, {tensor(F64, {4}, {kNan, 2147483647.5, 2147483648.0, -kInf})}, {I32, {4}},
       {-2147483648.0, 2147483647, -2147483648.0, -2147483648.0}},
      {"cast", {}, {tensor(F64, {3}, {-1, 4294967296.0, kNan})}, {DType::UI32, {3}}, {4294967295.0, 0, 0}},
      {"cast", {}, {tensor(F32, {3}, {0x1p63, 0x1p64, -1})}, {DType::UI64, {3}}, {0x1p63, 0x1p63, 0x1p64}},
      {"cast", {}, {tensor(I32, {2}, {300, -1})}, {U8, {2}}, {44, 255}},
      {"cast", {}, {tensor(F32, {3}, {0, 0.1, kNan})}, {Bool, {3}}, {0, 1, 1}},
      {"cast", {}, {tensor(F32, {2}, {1e9, 3})}, {DType::F8E4M3FN, {2}}, {448, 3}},
      {"cast", {{"saturate", num(0)}}, {tensor(F32, {1}, {1e9})}, {DType::F8E4M3FN, {1}}, {kNan}},
      {"cast", {}, {tensor(F32, {1}, {1e9})}, {DType::F16, {1}}, {kInf}},
      {"bitcast", {}, {tensor(F32, {1}, {1})}, {I32, {1}}, {0x3f800000}},
      // Broadcasting, also with size 0.
      {"add", {}, {count(F32, {2, 1}), count(F32, {3}, 10)}, {F32, {2, 3}}, {10, 11, 12, 11, 12, 13}},
      {"add", {}, {count(F32, {0}), count(F32, {1})}, {F32, {0}}, {}},
  };
  for (auto [predicate, y] : std::vector<std::pair<const char *, Reals>>{
           {"eq", {0, 1, 0}}, {"ne", {1, 0, 1}}, {"lt", {1, 0, 0}},
           {"le", {1, 1, 0}}, {"gt", {0, 0, 0}}, {"ge", {0, 1, 0}}})
    cases.push_back({"compare", {{"predicate", word(predicate)}},
                     {tensor(F32, {3}, {1, 2, kNan}), tensor(F32, {3}, {2, 2, 1})},
                     {Bool, {3}}, y});
  return cases;
}

std::vector<Case> movementCases() {
  Tensor x = count(F32, {2, 3});
  return {
      {"iota", {{"axis", num(1)}}, {}, {I64, {2, 3}}, {0, 1, 2, 0, 1, 2}},
      {"dim_value", {{"dims", Ints{4, 7}}}, {}, {I64, {2}}, {4, 7}},
      {"dim_from", {}, {count(I64, {2}, 5)}, {I64, {2}}, {5, 6}},
      {"bind_dims", {}, {x}, {F32, {2, 3}}, {0, 1, 2, 3, 4, 5}},
      {"transpose", {{"perm", Ints{1, 0}}}, {x}, {F32, {3, 2}}, {0, 3, 1, 4, 2, 5}},
      {"transpose", {{"perm", Ints{2, 0, 1}}}, {count(DType::I4, {1, 2, 3})},
       {DType::I4, {3, 1, 2}}, {0, 3, 1, 4, 2, 5}},
      {"reshape", {}, {x}, {F32, {3, 2}}, {0, 1, 2, 3, 4, 5}},
      {"broadcast_to", {}, {count(F32, {2, 1})}, {F32, {2, 2, 2}}, {0, 0, 1, 1, 0, 0, 1, 1}},
      {"slice", {{"starts", Ints{0, 2}}, {"steps", Ints{1, -2}}}, {x}, {F32, {2, 2}}, {2, 0, 5, 3}},
      {"concat", {{"axis", num(1)}}, {x, count(F32, {2, 1}, 9)}, {F32, {2, 4}},
       {0, 1, 2, 9, 3, 4, 5, 10}},
      {"pad", {{"low", Ints{1, 0}}, {"high", Ints{0, -1}}, {"mode", word("constant")}},
       {x, tensor(F32, {}, {7})}, {F32, {3, 2}}, {7, 7, 0, 1, 3, 4}},
      {"pad", {{"low", Ints{2}}, {"high", Ints{3}}, {"mode", word("reflect")}}, {count(F32, {3})},
       {F32, {8}}, {2, 1, 0, 1, 2, 1, 0, 1}},
      {"pad", {{"low", Ints{1}}, {"high", Ints{2}}, {"mode", word("edge")}}, {count(F32, {3})},
       {F32, {6}}, {0, 0, 1, 2, 2, 2}},
      {"pad", {{"low", Ints{1}}, {"high", Ints{2}}, {"mode", word("wrap")}}, {count(F32, {3})},
       {F32, {6}}, {2, 0, 1, 2, 0, 1}},
      {"gather", {{"axis", num(1)}}, {x, tensor(I64, {2, 1}, {2, -3})}, {F32, {2, 2, 1}},
       {2, 0, 5, 3}},
      {"gather", {{"axis", num(0)}}, {x, tensor(I64, {}, {1})}, {F32, {3}}, {3, 4, 5}},
      {"gather_elements", {{"axis", num(1)}}, {x, tensor(I32, {2, 2}, {0, 2, -1, 0})},
       {F32, {2, 2}}, {0, 2, 5, 3}},
      {"gather_nd", {{"batch_dims", num(0)}}, {x, tensor(I64, {2, 2}, {0, 1, 1, -1})},
       {F32, {2}}, {1, 5}},
      {"gather_nd", {{"batch_dims", num(1)}}, {count(F32, {2, 2, 2}), tensor(I64, {2, 1}, {1, 0})},
       {F32, {2, 2}}, {2, 3, 4, 5}},
      {"scatter_elements", {{"axis", num(1)}},
       {x, tensor(I64, {1, 2}, {2, 0}), tensor(F32, {1, 2}, {8, 9})}, {F32, {2, 3}},
       {9, 1, 8, 3, 4, 5}},
      {"scatter_elements", {{"axis", num(0)}, {"reduction", word("sum")}},
       {count(F32, {2}), tensor(I64, {3}, {1, 1, -2}), tensor(F32, {3}, {10, 20, 30})},
       {F32, {2}}, {30, 31}},
      {"scatter_nd", {}, {x, tensor(I64, {1, 1}, {1}), tensor(F32, {1, 3}, {7, 8, 9})},
       {F32, {2, 3}}, {0, 1, 2, 7, 8, 9}},
      {"scatter_nd", {{"reduction", word("max")}},
       {x, tensor(I64, {2, 2}, {0, 0, 1, 2}), tensor(F32, {2}, {4, 4})}, {F32, {2, 3}},
       {4, 1, 2, 3, 4, 5}},
  };
}

std::vector<Case> reductionCases() {
  Tensor x = count(F32, {2, 3}, 1);
  auto reduced = [&](const char *kind, Reals y) {
    return Case{"reduce", {{"kind", word(kind)}, {"axes", Ints{1}}, {"keepdims", num(0)}}, {x},
                {F32, {2}}, std::move(y)};
  };
  double a = std::exp(-1.0), sum = 1 + a;
  return {
      reduced("sum", {6, 15}),
      reduced("prod", {6, 120}),
      reduced("max", {3, 6}),
      reduced("min", {1, 4}),
      {"reduce", {{"kind", word("sum")}, {"axes", Ints{0, 1}}, {"keepdims", num(1)}}, {x},
       {F32, {1, 1}}, {21}},
      {"reduce", {{"kind", word("max")}, {"axes", Ints{0}}, {"keepdims", num(0)}},
       {count(F32, {0, 2})}, {F32, {2}}, {-kInf, -kInf}},
      {"reduce", {{"kind", word("min")}, {"axes", Ints{0}}, {"keepdims", num(0)}},
       {count(I8, {0})}, {I8, {}}, {127}},
      {"reduce", {{"kind", word("max")}, {"axes", Ints{0}}, {"keepdims", num(0)}},
       {tensor(F32, {2}, {kNan, 1})}, {F32, {}}, {kNan}},
      {"arg_reduce", {{"kind", word("max")}, {"axis", num(1)}, {"keepdims", num(0)}},
       {tensor(F32, {2, 3}, {1, 3, 3, 5, 4, 5})}, {I64, {2}}, {1, 0}},
      {"arg_reduce",
       {{"kind", word("max")}, {"axis", num(1)}, {"keepdims", num(1)}, {"last", num(1)}},
       {tensor(F32, {2, 3}, {1, 3, 3, 5, 4, 5})}, {I64, {2, 1}}, {2, 2}},
      {"arg_reduce", {{"kind", word("min")}, {"axis", num(0)}, {"keepdims", num(0)}},
       {tensor(U8, {3}, {200, 100, 255})}, {I64, {}}, {1}},
      {"topk", {{"axis", num(1)}, {"k", num(3)}},
       {tensor(F32, {2, 4}, {1, kNan, 3, 3, -0.0, 0, -1, 0})}, {I64, {2, 3}}, {1, 2, 3, 0, 1, 3}},
      {"topk", {{"axis", num(0)}, {"k", num(2)}, {"smallest", num(1)}},
       {tensor(U8, {3, 1}, {200, 100, 100})}, {I64, {2, 1}}, {1, 2}},
      {"dft", {{"length", num(4)}, {"onesided", num(1)}},
       {tensor(F32, {4, 1}, {1, 2, 3, 4}), tensor(F64, {4, 2}, {1, 0, 0, -1, -1, 0, 0, 1})}, {F32, {3, 2}}, {10, 0, -2, 2, -2, 0}},
      {"dft", {{"length", num(4)}, {"inverse", num(1)}, {"onesided", num(1)}},
       {tensor(F32, {3, 2}, {10, 5, -2, 2, -2, 7}), tensor(F64, {4, 2}, {1, 0, 0, -1, -1, 0, 0, 1})}, {F32, {4, 1}}, {1, 2, 3, 4}},
      {"marked_places", {{"length", num(5)}}, {tensor(I64, {2}, {0, 18})}, {I64, {5}}, {1, 4, 0, 0, 0}},
      {"arg_pool",
       {{"kernel", Ints{2, 2}}, {"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 1}}, {"dilations", Ints{1, 1}}},
       {tensor(F32, {1, 1, 2, 3}, {1, 3, 3, kNan, 2, 3})}, {I64, {1, 1, 1, 3}}, {3, 1, 2}},
      {"arg_pool",
       {{"kernel", Ints{1, 2}}, {"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}, {"dilations", Ints{1, 1}},
        {"column_major", num(1)}},
       {tensor(U8, {1, 1, 2, 2}, {200, 100, 1, 2})}, {I64, {1, 1, 2, 1}}, {0, 3}},
      {"roi_align", {{"scale", 1.0}, {"samples", num(1)}, {"half_pixel", num(1)}},
       {tensor(F32, {1, 1, 2, 2}, {0, 1, 2, 3}), tensor(F32, {2, 4}, {0, 0, 2, 2, 8, 8, 9, 9}),
        tensor(I64, {2}, {0, 0})},
       {F32, {2, 1, 1, 1}}, {1.5, 0}},
      {"roi_align", {{"scale", 1.0}, {"samples", num(1)}, {"half_pixel", num(1)}, {"channels_last", num(1)}},
       {tensor(F32, {1, 2, 2, 2}, {0, 10, 1, 11, 2, 12, 3, 13}), tensor(F32, {1, 4}, {0, 0, 2, 2}), tensor(I64, {1}, {0})},
       {F32, {1, 1, 1, 2}}, {1.5, 11.5}},
      {"roi_align", {{"scale", 1.0}, {"samples", num(0)}, {"maximum", num(1)}},
       {tensor(F32, {1, 1, 2, 2}, {0, 1, 2, 3}), tensor(F32, {1, 4}, {0, 0, 1, 1}), tensor(I64, {1}, {-1})},
       {F32, {1, 1, 1, 1}}, {0.75}},
      {"tree_walk", {{"depth", num(2)}},
       {tensor(F32, {3, 2}, {1, 5, 2, 0, kNan, 7}), tensor(I32, {2, 4}, {-1, 0x3f800000, 1, -1, 1, 0x40c00000, -2, -3}),
        tensor(I32, {2}, {0, -4})},
       {I32, {3, 2}}, {1, 3, 0, 3, 2, 3}},
      {"tree_walk", {{"depth", num(2)}, {"ends_at_nodes", num(1)}},
       {tensor(I32, {2, 2}, {1, 5, 2, 0}), tensor(I32, {3, 4}, {0, 1, 1, 2, 0, 0, 1, 1, 0, 0, 2, 2}), tensor(I32, {2}, {0, 2})},
       {I32, {2, 2}}, {1, 2, 2, 2}},
      {"scan", {{"kind", word("sum")}, {"axis", num(1)}}, {x}, {F32, {2, 3}}, {1, 3, 6, 4, 9, 15}},
      {"scan",
       {{"kind", word("sum")}, {"axis", num(1)}, {"exclusive", num(1)}, {"reverse", num(1)}}, {x},
       {F32, {2, 3}}, {5, 3, 0, 11, 6, 0}},
      {"softmax", {{"axis", num(-1)}}, {tensor(F32, {2, 2}, {1, 0, 1000, 999})}, {F32, {2, 2}},
       {1 / sum, a / sum, 1 / sum, a / sum}},
      {"softmax", {{"axis", num(0)}, {"log", num(1)}}, {tensor(F32, {2}, {1, 0})}, {F32, {2}},
       {-std::log(sum), -1 - std::log(sum)}},
      {"layer_norm", {{"axis", num(1)}, {"epsilon", 0.0}},
       {tensor(F32, {1, 2}, {1, 3}), tensor(F32, {2}, {1, 2}), tensor(F32, {2}, {10, 20})},
       {F32, {1, 2}}, {9, 22}},
      {"rms_norm", {{"axis", num(1)}, {"epsilon", 0.5}},
       {tensor(F32, {1, 2}, {1, 0}), tensor(F32, {2}, {2, 2})}, {F32, {1, 2}}, {2, 0}},
  };
}

std::vector<Case> contractionCases() {
  Attributes conv{{"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}, {"dilations", Ints{1, 1}},
                  {"group", num(1)}, {"layout", word("nchw")}};
  Attributes padded = conv, grouped = conv, last = conv;
  padded["pads"] = Ints{1, 1, 1, 1};
  padded["strides"] = Ints{2, 2};
  grouped["group"] = num(2);
  last["layout"] = word("nhwc");
  Attributes pool{{"kind", word("max")}, {"kernel", Ints{2}}, {"strides", Ints{2}},
                  {"pads", Ints{1, 0}}, {"dilations", Ints{1}}, {"ceil_mode", num(0)},
                  {"count_include_pad", num(0)}, {"layout", word("nchw")}};
  Attributes average = pool, averagePad = pool, lp = pool, ceil = pool;
  average["kind"] = averagePad["kind"] = ceil["kind"] = word("average");
  averagePad["count_include_pad"] = ceil["count_include_pad"] = num(1);
  ceil["ceil_mode"] = num(1);
  ceil["kernel"] = Ints{3};
  ceil["pads"] = Ints{0, 0};
  lp["kind"] = word("lp");

  double e = std::exp(1.0);
  Tensor q = tensor(F32, {1, 2, 1, 1}, {1, 0}), k = tensor(F32, {1, 1, 2, 1}, {0, 1}),
         v = tensor(F32, {1, 1, 2, 1}, {10, 20});
  double mixed = (10 + 20 * e) / (1 + e);
  Tensor hideAll = tensor(Bool, {1, 2}, {0, 0}), hidden = tensor(F32, {2}, {-kInf, -kInf});
  Tensor even = tensor(F32, {1, 1, 3, 1}, {0, 0, 0}), keys = tensor(F32, {1, 1, 4, 1}, {1, 2, 3, 4}),
         values = tensor(F32, {1, 1, 4, 1}, {1, 2, 4, 8});
  auto with = [](Ints segments, Attributes more = {}) {
    more.insert({{"scale", 1.0}, {"operandSegmentSizes", segments}});
    return more;
  };
  Attributes masked = with({1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0}), zeros = masked;
  zeros["zero_masked_rows"] = num(1);
  return {
      {"matmul", {}, {count(F32, {2, 2}, 1), count(F32, {2, 2}, 5)}, {F32, {2, 2}},
       {19, 22, 43, 50}},
      {"matmul", {{"transpose_a", num(1)}, {"transpose_b", num(1)}},
       {count(F32, {2, 1}, 1), count(F32, {3, 2}, 1)}, {F32, {1, 3}}, {5, 11, 17}},
      {"matmul", {}, {count(F32, {2, 1, 2}), count(F32, {2, 1}, 1)}, {F32, {2, 1, 1}}, {2, 8}},
      {"matmul", {}, {tensor(I8, {1, 2}, {100, 100}), tensor(I8, {2, 1}, {100, 100})},
       {I32, {1, 1}}, {20000}},
      {"matmul", {}, {count(F32, {2, 0}), count(F32, {0, 1})}, {F32, {2, 1}}, {0, 0}},
      {"conv", conv, {count(F32, {1, 1, 3, 3}), tensor(F32, {1, 1, 2, 2}, {1, 2, 3, 4})},
       {F32, {1, 1, 2, 2}}, {27, 37, 57, 67}},
      {"conv", padded, {count(F32, {1, 1, 3, 3}), tensor(F32, {1, 1, 2, 2}, {1, 2, 3, 4})},
       {F32, {1, 1, 2, 2}}, {0, 11, 30, 67}},
      {"conv", grouped, {count(F32, {1, 2, 1, 2}), tensor(F32, {2, 1, 1, 1}, {2, 3})},
       {F32, {1, 2, 1, 2}}, {0, 2, 6, 9}},
      {"conv", last, {count(F32, {1, 1, 2, 2}), tensor(F32, {1, 2, 1, 1}, {2, 3})},
       {F32, {1, 1, 2, 1}}, {3, 13}},
      {"pool", pool, {count(F32, {1, 1, 4}, -4)}, {F32, {1, 1, 2}}, {-4, -2}},
      {"pool", average, {count(F32, {1, 1, 4}, 1)}, {F32, {1, 1, 2}}, {1, 2.5}},
      {"pool", averagePad, {count(F32, {1, 1, 4}, 1)}, {F32, {1, 1, 2}}, {0.5, 2.5}},
      {"pool", ceil, {count(F32, {1, 1, 4}, 1)}, {F32, {1, 1, 2}}, {2, 3.5}},
      {"pool", lp, {tensor(F32, {1, 1, 3}, {2, 3, -4})}, {F32, {1, 1, 2}}, {2, 5}},
      {"attention", {{"scale", 1.0}}, {q, k, v}, {F32, {1, 2, 1, 1}}, {mixed, 15}},
      {"attention", {{"scale", 1.0}}, {q, k, v, tensor(F32, {2}, {0, -kInf})},
       {F32, {1, 2, 1, 1}}, {10, 10}},
      {"attention", zeros, {q, k, v, hideAll},
       {F32, {1, 2, 1, 1}}, {0, 0}},
      {"attention", masked, {q, k, v, hideAll}, {F32, {1, 2, 1, 1}}, {kNan, kNan}},
      // By segments: q, k, v, bias, mask, starts, lengths, offset, documents of queries and keys, sink.
      {"attention", with({1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1}), {q, k, v, hidden, tensor(F32, {1}, {0})},
       {F32, {1, 2, 1, 1}}, {0, 0}},
      {"attention", with({1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1}), {q, k, v, tensor(F32, {2}, {0, -kInf}), tensor(F32, {1}, {-kInf})},
       {F32, {1, 2, 1, 1}}, {10, 10}},
      {"attention", with({1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0}), {q, k, v, tensor(Bool, {2}, {0, 1})},
       {F32, {1, 2, 1, 1}}, {20, 20}},
      {"attention", with({1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0}), {q, k, v, tensor(I64, {1}, {1})},
       {F32, {1, 2, 1, 1}}, {20, 20}},
      {"attention", with({1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0}), {q, k, v, tensor(I32, {}, {1})},
       {F32, {1, 2, 1, 1}}, {10, 10}},
      {"attention", with({1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0}), {q, k, v, tensor(I64, {1, 1}, {7}), tensor(I64, {2}, {7, 8})},
       {F32, {1, 2, 1, 1}}, {10, 10}},
      // Three queries on four keys of equal scores, whose values are 1, 2, 4, 8: where they stand, and how far they see.
      {"attention", {{"scale", 1.0}, {"causal", num(1)}}, {even, keys, values}, {F32, {1, 1, 3, 1}}, {1.5, 7.0 / 3, 3.75}},
      {"attention", with({1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0}, {{"causal", num(1)}}), {even, keys, values, tensor(I64, {1}, {0})},
       {F32, {1, 1, 3, 1}}, {1, 1.5, 7.0 / 3}},
      {"attention", with({1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0}, {{"causal", num(1)}}), {even, keys, values, tensor(I64, {1}, {3})},
       {F32, {1, 1, 3, 1}}, {1, 1.5, 7.0 / 3}},
      {"attention", with({1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, {{"window_left", num(0)}, {"window_right", num(1)}}), {even, keys, values},
       {F32, {1, 1, 3, 1}}, {3, 6, 8}},
      {"rope", {{"rotary", num(4)}}, {tensor(F32, {5}, {1, 2, 3, 4, 5}), tensor(F32, {2}, {2, 3}), tensor(F32, {2}, {10, 20})},
       {F32, {5}}, {2 - 30, 6 - 80, 6 + 10, 12 + 40, 5}},
      {"rope", {{"rotary", num(4)}, {"interleaved", num(1)}}, {tensor(F32, {5}, {1, 2, 3, 4, 5}), tensor(F32, {2}, {2, 3}), tensor(F32, {2}, {10, 20})},
       {F32, {5}}, {2 - 20, 4 + 10, 9 - 80, 12 + 60, 5}},
      {"rope", {{"rotary", num(2)}}, {tensor(F32, {2, 2}, {1, 2, 3, 4}), tensor(F32, {2, 2}, {2, 3, 1, 1}), tensor(F32, {2, 2}, {10, 20, 0, 0})},
       {F32, {2, 2}}, {2 - 20, 6 + 20, 3, 4}},
      {"rope", {{"rotary", num(2)}}, {tensor(F32, {2}, {1, 2}), tensor(F32, {1}, {std::acos(0.0)})}, {F32, {2}}, {-2, 1}},
      {"attention", {{"scale", 3.0}, {"causal", num(1)}, {"softcap", 2.0}},
       {tensor(F32, {1, 1, 2, 1}, {1, 0}), k, v}, {F32, {1, 1, 2, 1}}, {10, 15}},
  };
}

/// The second result of attention, of rows that see all, a part, nothing, and nothing but a sink.
TEST(Reference, AttentionGivesLogSums) {
  Tensor q = tensor(F32, {1, 1, 3, 1}, {1, 0, 2}), k = tensor(F32, {1, 1, 2, 1}, {1, 2}), v = k,
         mask = tensor(F32, {1, 1, 3, 2}, {0, 0, 0, -kInf, -kInf, -kInf}),
         bias = tensor(F32, {1, 1, 3, 2}, {0, 0, 0, 0, -kInf, -kInf}), sink = tensor(F32, {1, 1, 3, 1}, {1, -kInf, 3});
  TensorType types[] = {{F32, {1, 1, 3, 1}}, {F32, {1, 1, 3}}};
  Attributes attributes{{"scale", 1.0}, {"zero_masked_rows", num(1)}, {"log_sum_exp", num(1)}};
  for (bool withSink : {false, true}) {
    std::vector<Tensor> in{q, k, v, withSink ? bias : mask};
    if (withSink) {
      in.push_back(sink);
      attributes.insert_or_assign("operandSegmentSizes", Ints{1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1});
    }
    Result<std::vector<Tensor>> r = evaluate("attention", attributes, in, types);
    ASSERT_TRUE(r.ok()) << r.status().str();
    const double e1 = std::exp(1.0), e2 = std::exp(2.0);
    std::vector<double> want = withSink ? std::vector<double>{std::log(e1 + e2 + e1), std::log(2.0), 3}
                                        : std::vector<double>{std::log(e1 + e2), 0, -kInf};
    for (int64_t i = 0; i < 3; ++i)
      if (std::isinf(want[i]))
        EXPECT_EQ((*r)[1].real(i), want[i]);
      else
        EXPECT_NEAR((*r)[1].real(i), want[i], 1e-6);
  }
}

/// Two sequences in pages that stand in no order, against attention of each by itself.
TEST(Reference, PagedAttentionReadsWhatWasAppended) {
  const int64_t lengths[] = {5, 3}, pages[2][3] = {{3, 0, 5}, {4, 1, 0}};
  const int64_t kPages = 6, kLayers = 2, kTokens = 2, kGroups = 2, kHeads = 4, kDepth = 3, kLayer = 1;
  auto some = [](int64_t i) { return double((i * 37) % 19 - 9) / 4; };
  int64_t total = lengths[0] + lengths[1];
  Tensor q(F32, {total, kHeads, kDepth}), k(F32, {total, kGroups, kDepth}), v = k, slots(I64, {total}),
      requests = slots, positions = slots, tables(I64, {2, 3}), pool(F32, {kPages, kLayers, 2, kTokens, kGroups, kDepth});
  for (int64_t i = 0; i < q.count(); ++i)
    q.setReal(i, some(i));
  for (int64_t i = 0; i < k.count(); ++i) {
    k.setReal(i, some(i + 5));
    v.setReal(i, some(3 * i + 1));
  }
  for (int64_t i = 0; i < 6; ++i)
    tables.setInteger(i, pages[i / 3][i % 3]);
  for (int64_t t = 0; t < total; ++t) {
    int64_t r = t >= lengths[0], p = t - (r ? lengths[0] : 0);
    requests.setInteger(t, r);
    positions.setInteger(t, p);
    slots.setInteger(t, pages[r][p / kTokens] * kTokens + p % kTokens);
  }
  Attributes layer{{"layer", num(kLayer)}}, how{{"layer", num(kLayer)}, {"scale", 0.5}, {"softcap", 2.0}, {"window_left", num(2)}};
  TensorType poolType[] = {{F32, pool.dims}}, rows[] = {{F32, q.dims}};
  Result<std::vector<Tensor>> next = evaluate("kv_append", layer, std::vector<Tensor>{pool, slots, k, v}, poolType);
  ASSERT_TRUE(next.ok()) << next.status().str();
  Result<std::vector<Tensor>> y = evaluate("paged_attention", how, std::vector<Tensor>{q, (*next)[0], tables, requests, positions}, rows);
  ASSERT_TRUE(y.ok()) << y.status().str();
  for (int64_t r = 0, first = 0; r < 2; first += lengths[r++]) {
    auto part = [&](const Tensor &all, int64_t heads) { // [1, heads, length, depth]
      Tensor one(F32, {1, heads, lengths[r], kDepth});
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < lengths[r] * kDepth; ++i)
          one.setReal(h * lengths[r] * kDepth + i, all.real(((first + i / kDepth) * heads + h) * kDepth + i % kDepth));
      return one;
    };
    TensorType type[] = {{F32, {1, kHeads, lengths[r], kDepth}}};
    Attributes plain{{"scale", 0.5}, {"softcap", 2.0}, {"window_left", num(2)}, {"causal", num(1)}};
    Result<std::vector<Tensor>> want = evaluate("attention", plain, std::vector<Tensor>{part(q, kHeads), part(k, kGroups), part(v, kGroups)}, type);
    ASSERT_TRUE(want.ok()) << want.status().str();
    Tensor got = part((*y)[0], kHeads);
    for (int64_t i = 0; i < got.count(); ++i)
      EXPECT_NEAR(got.real(i), (*want)[0].real(i), 1e-6) << r << " " << i;
  }
  // The other layer is as it was, and a slot beyond the pool is refused.
  for (int64_t i = 0; i < kPages; ++i)
    EXPECT_EQ((*next)[0].real(i * kLayers * 2 * kTokens * kGroups * kDepth), 0);
  slots.setInteger(0, kPages * kTokens);
  EXPECT_FALSE(evaluate("kv_append", layer, std::vector<Tensor>{pool, slots, k, v}, poolType).ok());
}

std::vector<Case> quantizeCases() {
  Attributes plain{{"operandSegmentSizes", Ints{1, 1, 1, 0, 0}}}, codes = plain, blocks = plain,
      table = plain, levels = plain;
  codes["operandSegmentSizes"] = Ints{1, 0, 1, 0, 0};
  blocks["block"] = Ints{1, 2};
  table["operandSegmentSizes"] = Ints{1, 1, 0, 0, 1};
  levels["operandSegmentSizes"] = Ints{1, 1, 0, 1, 0};
  levels["block"] = Ints{1, 2};
  Tensor q = tensor(I8, {2, 3}, {-8, 7, 1, 2, 0, 3}), scale = tensor(F32, {2, 1}, {0.5, 2});
  Tensor numbers(F32, {16});
  for (int64_t i = 0; i < 16; ++i)
    numbers.setReal(i, double(i * i));
  Tensor x = tensor(F32, {6}, {0.5, 1.5, 2.5, -300, 300, -0.25});
  return {
      {"dequantize", plain, {q, scale, tensor(I8, {}, {1})}, {F32, {2, 3}}, {-4.5, 3, 0, 2, -2, 4}},
      {"dequantize", codes, {q, tensor(I32, {3}, {1, 2, 3})}, {I32, {2, 3}}, {-9, 5, -2, 1, -2, 0}},
      // The last block of each row has one element.
      {"dequantize", blocks, {q, tensor(F32, {2, 2}, {1, 2, 3, 4}), tensor(I8, {2, 2}, {0, 1, 0, 1})},
       {F32, {2, 3}}, {-8, 7, 0, 6, 0, 8}},
      {"dequantize", table, {tensor(DType::I4, {3}, {-1, 3, -8}), tensor(F32, {1}, {2}), numbers},
       {F32, {3}}, {450, 18, 128}},
      {"dequantize", levels, {q, tensor(DType::F8E4M3FN, {2, 2}, {1, 2, 3, 4}), tensor(F32, {}, {0.5})},
       {F32, {2, 3}}, {-4, 3.5, 1, 3, 0, 6}},
      {"quantize", {}, {x, tensor(F32, {}, {1})}, {I8, {6}}, {0, 2, 2, -128, 127, 0}},
      {"quantize", {}, {x, tensor(F32, {}, {0.5}), tensor(U8, {}, {3})}, {U8, {6}}, {4, 6, 8, 0, 255, 3}},
      {"quantize", {{"block", Ints{4}}}, {x, tensor(F32, {2}, {1, 100})}, {I8, {6}}, {0, 2, 2, -128, 3, 0}},
      {"quantize", {{"saturate", num(1)}}, {x, tensor(F32, {}, {0.5})}, {DType::F8E4M3FN, {6}},
       {1, 3, 5, -448, 448, -0.5}},
  };
}

// A pool of codes: those of the new token, its scales, what attention makes of them, and the other tokens as they were.
TEST(Reference, PagedAttentionReadsCodes) {
  const double key[] = {1.27, -0.5, 0.004, -1.27, 0.635, 0, 0, 0}, value[] = {7, -7, 3.4, -3.6, 0, 0, 0, 0};
  for (bool halves : {false, true}) {
    const int64_t stored = halves ? 2 : 4;
    Tensor pool(halves ? DType::UI8 : DType::I8, {2, 1, 2, 2, 2, stored}), scales(F32, {2, 1, 2, 2, 2}), k(F32, {1, 2, 4}), v = k;
    for (int64_t i = 0; i < 8; ++i) {
      k.setReal(i, key[i]);
      v.setReal(i, value[i]);
    }
    for (int64_t i = 0; i < pool.count(); ++i)
      pool.setInteger(i, 1);
    const Tensor slot = tensor(I64, {1}, {3}); // page 1, token 1
    TensorType types[] = {{pool.dtype, pool.dims}, {F32, scales.dims}};
    Attributes layer{{"layer", num(0)}}, how = layer;
    how["scale"] = 0.0;
    how["operandSegmentSizes"] = Ints{1, 1, 1, 1, 1, 0, 0, 1};
    how["window_left"] = num(0); // the new token alone
    Result<std::vector<Tensor>> next = evaluate("kv_append", layer, std::vector<Tensor>{pool, slot, k, v, scales}, types);
    ASSERT_TRUE(next.ok()) << next.status().str();
    const Tensor &codes = (*next)[0], &by = (*next)[1];
    const double most = halves ? 7 : 127;
    const int64_t first = (1 * 2 * 2 + 1) * 2; // rows of a head: page 1, keys, token 1
    EXPECT_FLOAT_EQ(by.real(8 + 1), 1.27 / most);
    EXPECT_FLOAT_EQ(by.real(8 + 2 + 1), 0.635 / most);
    auto code = [&](int64_t row, int64_t d) {
      const int64_t byte = codes.integer(row * stored + (halves ? d % 2 : d));
      return halves ? ((byte >> (d < 2 ? 0 : 4)) & 15) - 8 : byte;
    };
    for (int64_t d = 0; d < 4; ++d)
      EXPECT_EQ(code(first, d), std::nearbyint(key[d] / 1.27 * most)) << d;
    for (int64_t row = 0; row < pool.count() / stored; ++row)
      if (row / 2 != 5 && row / 2 != 7) // keys and values of the new token
        EXPECT_EQ(codes.integer(row * stored), 1) << row;
    // Behind a single token are its values, as they were rounded; a head of zeros has scale 0.
    Tensor q(F32, {1, 2, 4});
    TensorType result[] = {{F32, q.dims}};
    Result<std::vector<Tensor>> y = evaluate("paged_attention", how, std::vector<Tensor>{q, codes, tensor(I64, {1, 1}, {1}), tensor(I64, {1}, {0}), tensor(I64, {1}, {1}), by}, result);
    ASSERT_TRUE(y.ok()) << y.status().str();
    for (int64_t d = 0; d < 8; ++d)
      EXPECT_NEAR((*y)[0].real(d), value[d], 7 / most / 2 + 1e-6) << d;
    EXPECT_EQ((*y)[0].real(5), 0);
    // Scales of other sizes, and codes of a type that is none.
    EXPECT_FALSE(evaluate("kv_append", layer, std::vector<Tensor>{pool, slot, k, v, tensor(F32, {1}, {0})}, types).ok());
    EXPECT_FALSE(evaluate("kv_append", layer, std::vector<Tensor>{Tensor(F32, pool.dims), slot, k, v, scales}, types).ok());
  }
}

std::vector<Case> pagedCases() {
  Tensor pool = tensor(F32, {2, 1, 2, 1, 1, 1}, {1, 2, 5, 6}), one = tensor(F32, {1, 1, 1}, {7});
  Tensor tables = tensor(I64, {1, 2}, {1, 0}), request = tensor(I64, {1}, {0}), last = tensor(I64, {1}, {1});
  Attributes layer{{"layer", num(0)}}, mean = layer, newest = layer;
  mean["scale"] = newest["scale"] = 0.0;
  newest["window_left"] = num(0);
  Attributes beside = newest; // the last key, and the first one
  beside["first_keys"] = num(1);
  // Values 6 and 2, the nearer one last: a score of 0 that has no value, and slopes of log 3, which make 1 : 3 of it.
  Attributes sunk = mean, sloped = mean, both = mean;
  sunk["operandSegmentSizes"] = Ints{1, 1, 1, 1, 1, 1, 0, 0};
  sloped["operandSegmentSizes"] = Ints{1, 1, 1, 1, 1, 0, 1, 0};
  both["operandSegmentSizes"] = Ints{1, 1, 1, 1, 1, 1, 1, 0};
  Tensor sink = tensor(F32, {1}, {0}), slope = tensor(F32, {1}, {std::log(3.0)});
  return {
      {"kv_append", layer, {pool, last, tensor(F32, {1, 1, 1}, {3}), tensor(F32, {1, 1, 1}, {4})},
       {F32, pool.dims}, {1, 2, 3, 4}},
      {"paged_attention", mean, {one, pool, tables, request, last}, {F32, {1, 1, 1}}, {4}},
      {"paged_attention", newest, {one, pool, tables, request, last}, {F32, {1, 1, 1}}, {2}},
      {"paged_attention", beside, {one, pool, tables, request, last}, {F32, {1, 1, 1}}, {4}},
      {"paged_attention", sunk, {one, pool, tables, request, last, sink}, {F32, {1, 1, 1}}, {8.0 / 3}},
      {"paged_attention", sloped, {one, pool, tables, request, last, slope}, {F32, {1, 1, 1}}, {3}},
      {"paged_attention", both, {one, pool, tables, request, last, sink, slope}, {F32, {1, 1, 1}}, {12.0 / 7}},
  };
}

std::vector<Case> allCases() {
  std::vector<Case> all;
  for (auto family : {elementwiseCases, movementCases, reductionCases, contractionCases, quantizeCases,
                      pagedCases})
    for (Case &c : family())
      all.push_back(std::move(c));
  return all;
}

TEST(Reference, HandComputedCases) {
  int number = 0;
  for (const Case &c : allCases()) {
    SCOPED_TRACE(c.op + ", case " + std::to_string(number++));
    TensorType types[] = {c.result};
    Result<std::vector<Tensor>> r = evaluate(c.op, c.attributes, c.inputs, types);
    ASSERT_TRUE(r.ok()) << r.status().str();
    const Tensor &y = (*r)[0];
    EXPECT_EQ(y.dtype, c.result.dtype);
    ASSERT_EQ(y.dims, c.result.dims);
    ASSERT_EQ(static_cast<size_t>(y.count()), c.expected.size());
    for (size_t i = 0; i < c.expected.size(); ++i) {
      double got = y.real(static_cast<int64_t>(i)), want = c.expected[i];
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << "element " << i;
      } else if (std::isinf(want) || want == 0) {
        EXPECT_EQ(got, want == 0 && std::fabs(got) < 1e-7 ? got : want) << "element " << i;
        EXPECT_EQ(std::signbit(got), got == 0 ? std::signbit(want) : std::signbit(got));
      } else {
        EXPECT_NEAR(got, want, std::fabs(want) * 1e-6) << "element " << i;
      }
    }
  }
}

/// Ops that a lit test names whose kernels are compared with the reference and the model with
/// onnxruntime.
std::set<std::string> comparedWithOnnxRuntime() {
  std::set<std::string> ops;
  const std::regex op("lathe\\.([a-z0-9_]+)");
  for (const auto &entry : std::filesystem::recursive_directory_iterator(LATHE_SOURCE_DIR "/test")) {
    std::string extension = entry.path().extension().string();
    if (extension != ".test" && extension != ".onnxtxt")
      continue;
    std::ifstream file(entry.path());
    std::string text((std::istreambuf_iterator<char>(file)), {});
    if (text.find("RUN: %lathe compare") == std::string::npos ||
        text.find("--against=onnxruntime") == std::string::npos)
      continue;
    for (std::sregex_iterator it(text.begin(), text.end(), op), end; it != end; ++it)
      ops.insert((*it)[1]);
  }
  return ops;
}

TEST(Reference, EveryOpHasACase) {
  std::set<std::string> covered = comparedWithOnnxRuntime();
  for (const Case &c : allCases())
    covered.insert(c.op);
  for (std::string_view op : knownOps())
    EXPECT_TRUE(covered.contains(std::string(op))) << op;
}

TEST(Reference, IntegersRoundOnceToNarrowFloats) {
  // Through double this would round twice and end on the other side.
  int64_t value = (int64_t(1) << 61) + (int64_t(1) << 37) + 1;
  Tensor x(I64, {2});
  x.setInteger(0, value);
  x.setInteger(1, -value);
  TensorType type[] = {{F32, {2}}};
  Result<std::vector<Tensor>> y = evaluate("cast", {}, std::vector{x}, type);
  ASSERT_TRUE(y.ok());
  EXPECT_EQ((*y)[0].real(0), static_cast<float>(value));
  EXPECT_EQ((*y)[0].real(1), static_cast<float>(-value));
}

ErrorCode codeOf(const char *op, Attributes attributes, std::vector<Tensor> inputs,
                 TensorType type) {
  TensorType types[] = {type};
  return evaluate(op, attributes, inputs, types).status().code();
}

TEST(Reference, ErrorsAreTyped) {
  Tensor x = count(F32, {2, 3}), i = tensor(I64, {1}, {3});
  EXPECT_EQ(codeOf("no_such_op", {}, {}, {F32, {}}), ErrorCode::Unsupported);
  EXPECT_EQ(codeOf("gather", {{"axis", num(1)}}, {x, i}, {F32, {2, 1}}), ErrorCode::RuntimeFailure);
  EXPECT_EQ(codeOf("bind_dims", {}, {x}, {F32, {3, 2}}), ErrorCode::RuntimeFailure);
  EXPECT_EQ(codeOf("gather", {}, {x, i}, {F32, {2, 1}}), ErrorCode::Invalid);
  EXPECT_EQ(codeOf("gather", {{"axis", word("x")}}, {x, i}, {F32, {2, 1}}), ErrorCode::Invalid);
  EXPECT_EQ(codeOf("neg", {}, {count(DType::C64, {1})}, {DType::C64, {1}}),
            ErrorCode::Unsupported);
  Tensor damaged = x;
  damaged.data.pop_back();
  EXPECT_EQ(codeOf("neg", {}, {damaged}, {F32, {2, 3}}), ErrorCode::Invalid);
  EXPECT_EQ(codeOf("neg", {}, {x}, {F32, {-1}}), ErrorCode::Invalid);
  EXPECT_EQ(codeOf("neg", {}, {x}, {F32, {0, int64_t(1) << 40}}), ErrorCode::Unsupported);
}

/// Each op with operands, attributes and result types that do not belong together
/// ends in an error or a value, never in an access out of bounds (under sanitizers).
TEST(Reference, WrongTypesNeverCrash) {
  std::vector<Case> cases = allCases();
  int errors = 0;
  for (const Case &c : cases)
    for (size_t k = 0; k < cases.size(); k += 3) {
      const Case &other = cases[k];
      TensorType types[] = {other.result}, own[] = {c.result};
      errors += !evaluate(c.op, c.attributes, c.inputs, types).ok();
      errors += !evaluate(c.op, c.attributes, other.inputs, own).ok();
      errors += !evaluate(c.op, other.attributes, c.inputs, own).ok();
      errors += !evaluate(c.op, c.attributes, c.inputs, {}).ok();
    }
  EXPECT_GT(errors, 1000);
}

TEST(Reference, Collectives) {
  auto tensor = [](std::vector<double> values, std::vector<int64_t> dims) {
    Tensor t(DType::F32, dims);
    for (size_t i = 0; i < values.size(); ++i)
      t.setReal(int64_t(i), values[i]);
    return t;
  };
  std::vector<Tensor> members = {tensor({1, 2, 3, 4}, {2, 2}), tensor({5, 6, 7, 8}, {2, 2})};
  auto values = [](const Tensor &t) {
    std::vector<double> out;
    for (int64_t i = 0; i < t.count(); ++i)
      out.push_back(t.real(i));
    return out;
  };
  auto sum = evaluateCollective("all_reduce", "sum", 0, members);
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(values((*sum)[1]), (std::vector<double>{6, 8, 10, 12}));
  auto joined = evaluateCollective("all_gather", "", 1, members);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ((*joined)[0].dims, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(values((*joined)[0]), (std::vector<double>{1, 2, 5, 6, 3, 4, 7, 8}));
  auto parts = evaluateCollective("reduce_scatter", "max", 1, members);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(values((*parts)[0]), (std::vector<double>{5, 7}));
  EXPECT_EQ(values((*parts)[1]), (std::vector<double>{6, 8}));
  EXPECT_FALSE(evaluateCollective("all_reduce", "mean", 0, members).ok());
  EXPECT_FALSE(evaluateCollective("all_gather", "", 2, members).ok());
  EXPECT_FALSE(evaluateCollective("all_reduce", "sum", 0, {}).ok());
}

} // namespace
