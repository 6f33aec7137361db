//===- KernelModel.cpp - a model of one kernel -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   gemm:m=2,n=4,k=8,epilogue=bias  =>  kernel (float[2, 8] a, float[4, 8] w, float[4] bias) => (float[2, 4] y)
//                                       { wt = Transpose <perm = [1, 0]> (w)  t0 = MatMul(a, wt)  y = Add(t0, bias) }
//
//===----------------------------------------------------------------------===//
#include "KernelModel.h"

#include <charconv>
#include <map>
#include <vector>

namespace lathe::cli {
namespace {

constexpr const char *kWhere = "--kernel";

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

/// The parameters of one kernel; each is asked for once, and what nobody asked for is an error.
class Parameters {
public:
  static Result<Parameters> parse(std::string_view text) {
    Parameters p;
    for (const std::string &pair : split(text, ',')) {
      size_t at = pair.find('=');
      if (at == std::string::npos || !p.values.emplace(pair.substr(0, at), pair.substr(at + 1)).second)
        return usageError("wants NAME=VALUE once each, not '" + pair + "'", kWhere);
    }
    return p;
  }
  std::string text(const std::string &name, std::string otherwise) {
    auto it = values.find(name);
    if (it == values.end())
      return otherwise;
    std::string value = it->second;
    values.erase(it);
    return value;
  }
  /// A size; `otherwise` 0: it must be given.
  std::string size(const std::string &name, int64_t otherwise = 0) {
    std::string value = text(name, otherwise ? std::to_string(otherwise) : "");
    int64_t number = 0;
    auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), number);
    if ((ec != std::errc() || end != value.data() + value.size() || number < 1) && status.ok())
      status = usageError("'" + name + "' wants a size of 1 at least, not '" + value + "'", kWhere);
    return value;
  }
  std::string oneOf(const std::string &name, const std::vector<std::string> &allowed) {
    std::string value = text(name, allowed.front()), list;
    for (const std::string &a : allowed) {
      if (a == value)
        return value;
      list += (list.empty() ? "" : ", ") + a;
    }
    if (status.ok())
      status = usageError("'" + name + "' is one of " + list + ", not '" + value + "'", kWhere);
    return value;
  }
  /// ONNX's name of the element type.
  std::string dtype() {
    std::string value = oneOf("dtype", {"bf16", "f16", "f32"});
    return onnxName(value);
  }
  static std::string onnxName(const std::string &value) {
    return value == "bf16" ? "bfloat16" : value == "f16" ? "float16" : "float";
  }
  Status finish() {
    if (status.ok() && !values.empty())
      status = usageError("there is no parameter '" + values.begin()->first + "'", kWhere);
    return status;
  }
  Status status;

private:
  std::map<std::string, std::string> values;
};

std::string model(const std::string &inputs, const std::string &output, const std::string &nodes) {
  return "<ir_version: 10, opset_import: [\"\": 23]>\nkernel (" + inputs + ") => (" + output +
         " y)\n{\n" + nodes + "}\n";
}

/// A product of 8-bit operands: e4m3 with a scale each and results in bf16, or int8 with results
/// in i32 when nothing follows.
struct NarrowGemm {
  std::string inputType, extraInputs, nodes, resultType; ///< the result is t0
};
NarrowGemm narrowGemm(bool integers, const std::string &w, bool bare) {
  if (integers && bare)
    return {"int8", "", "  t0 = MatMulInteger(a, " + w + ")\n", "int32"};
  if (integers)
    return {"int8", ", float scale",
            "  i = MatMulInteger(a, " + w + ")\n  f = Cast <to = 1> (i)\n  s = Mul(f, scale)\n"
            "  t0 = Cast <to = 16> (s)\n", "bfloat16"};
  return {"float8e4m3fn", ", float scale_a, float scale_w",
          "  fa = Cast <to = 1> (a)\n  da = Mul(fa, scale_a)\n  fw = Cast <to = 1> (" + w +
              ")\n  dw = Mul(fw, scale_w)\n  s = MatMul(da, dw)\n  t0 = Cast <to = 16> (s)\n",
          "bfloat16"};
}

Result<std::string> gemm(Parameters &p) {
  std::string m = p.size("m"), n = p.size("n"), k = p.size("k");
  std::string dtype = p.oneOf("dtype", {"bf16", "f16", "f32", "tf32", "e4m3", "int8"});
  bool isNarrow = dtype == "e4m3" || dtype == "int8";
  bool along = p.oneOf("weights", {"nk", "kn"}) == "nk";
  std::string batch = p.text("batch", ""), epilogue = p.text("epilogue", "");
  LATHE_RETURN_IF_ERROR(p.finish());
  NarrowGemm narrow = narrowGemm(dtype == "int8", along ? "wt" : "w", epilogue.empty());
  std::string type = isNarrow ? narrow.inputType : Parameters::onnxName(dtype);
  auto value = [&](const std::string &rows, const std::string &columns) {
    return type + "[" + (batch.empty() ? "" : batch + ", ") + rows + ", " + columns + "]";
  };
  std::string inputs = value(m, k) + " a, " + (along ? value(n, k) : value(k, n)) + " w";
  std::string nodes = along ? std::string("  wt = Transpose <perm = ") +
                                  (batch.empty() ? "[1, 0]" : "[0, 2, 1]") + "> (w)\n"
                            : "";
  std::string last = "t0";
  int count = 0;
  if (isNarrow) {
    inputs += narrow.extraInputs;
    nodes += narrow.nodes;
    type = narrow.resultType; // of all that follows
  } else {
    nodes += std::string("  t0 = MatMul(a, ") + (along ? "wt" : "w") + ")\n";
  }
  auto next = [&] { return "t" + std::to_string(++count); };
  auto add = [&](const std::string &expression) {
    std::string name = next();
    nodes += "  " + name + " = " + expression + "\n";
    last = name;
  };
  for (const std::string &part : split(epilogue, '+')) {
    if (part == "bias") {
      inputs += ", " + type + "[" + n + "] bias";
      add("Add(" + last + ", bias)");
    } else if (part == "residual") {
      inputs += ", " + value(m, n) + " r";
      add("Add(" + last + ", r)");
    } else if (part == "gelu") {
      add("Gelu(" + last + ")");
    } else if (part == "relu") {
      add("Relu(" + last + ")");
    } else if (part == "silu") {
      std::string x = last;
      add("Sigmoid(" + x + ")");
      add("Mul(" + x + ", " + last + ")");
    } else {
      return usageError("epilogues are bias, gelu, relu, silu and residual, joined by +; not '" +
                            part + "'",
                        kWhere);
    }
  }
  return model(inputs, value(m, n), nodes + "  y = Identity(" + last + ")\n");
}

/// Pixels have their channels last, but for the few channels of a first layer. The weight is a
/// constant without values: the caller compiles with weights made from a seed.
Result<std::string> conv(Parameters &p) {
  std::string n = p.size("n", 1), c = p.size("c"), k = p.size("k"), h = p.size("h"),
              w = p.text("w", h), r = p.size("r", 3), stride = p.size("stride", 1),
              dilation = p.size("dilation", 1), groups = p.size("groups", 1), type = p.dtype();
  std::string pad = p.text("pad", ""), epilogue = p.text("epilogue", "");
  LATHE_RETURN_IF_ERROR(p.finish());
  auto number = [](const std::string &text) { return std::atoll(text.c_str()); };
  int64_t reach = number(dilation) * (number(r) - 1), border = pad.empty() ? reach / 2 : number(pad);
  auto results = [&](const std::string &size) {
    return std::to_string((number(size) + 2 * border - reach - 1) / number(stride) + 1);
  };
  if (number(c) % number(groups) || number(h) + 2 * border <= reach || number(w) + 2 * border <= reach)
    return usageError("groups divide the channels, and windows fit into the image", kWhere);
  constexpr int64_t kPlanes = 4;
  bool planes = number(c) <= kPlanes;
  auto last = [&](const std::string &height, const std::string &width, const std::string &channels) {
    return type + "[" + n + ", " + height + ", " + width + ", " + channels + "]";
  };
  int64_t depth = number(c) / number(groups) * number(r) * number(r);
  std::string y = last(results(h), results(w), k), area = r + ", " + r;
  std::string inputs = planes ? type + "[" + n + ", " + c + ", " + h + ", " + w + "] x" : last(h, w, c) + " x";
  auto both = [](const std::string &v) { return "[" + v + ", " + v + "]"; };
  std::string edge = std::to_string(border), nodes;
  if (!planes)
    nodes = "  planes = Transpose <perm = [0, 3, 1, 2]> (x)\n";
  nodes += "  maps = Conv <strides = " + both(stride) + ", dilations = " + both(dilation) +
           ", group = " + groups + ", pads = [" + edge + ", " + edge + ", " + edge + ", " + edge +
           "]> (" + (planes ? "x" : "planes") + ", w)\n  t0 = Transpose <perm = [0, 2, 3, 1]> (maps)\n";
  std::string value = "t0";
  int count = 0;
  for (const std::string &part : split(epilogue, '+')) {
    std::string next = "t" + std::to_string(++count);
    if (part == "bias") {
      inputs += ", " + type + "[" + k + "] bias";
      nodes += "  " + next + " = Add(" + value + ", bias)\n";
    } else if (part == "residual") {
      inputs += ", " + y + " r";
      nodes += "  " + next + " = Add(" + value + ", r)\n";
    } else if (part == "relu") {
      nodes += "  " + next + " = Relu(" + value + ")\n";
    } else {
      return usageError("epilogues of a convolution are bias, relu and residual, joined by +; not '" +
                            part + "'",
                        kWhere);
    }
    value = next;
  }
  int64_t bytes = number(k) * depth * (type == "float" ? 4 : 2);
  return "<ir_version: 10, opset_import: [\"\": 23]>\nkernel (" + inputs + ") => (" + y + " y)\n<" +
         type + "[" + k + ", " + std::to_string(number(c) / number(groups)) + ", " + area +
         "] w = [\"location\": \"absent.bin\", \"length\": \"" + std::to_string(bytes) +
         "\"]>\n{\n" + nodes + "  y = Identity(" + value + ")\n}\n";
}

Result<std::string> attention(Parameters &p) {
  std::string b = p.size("b", 1), h = p.size("h"), kv = p.text("kv", h), s = p.size("s"),
              t = p.text("t", s), d = p.size("d", 128), type = p.dtype();
  bool causal = p.oneOf("mask", {"none", "causal"}) == "causal";
  LATHE_RETURN_IF_ERROR(p.finish());
  auto value = [&](const std::string &heads, const std::string &length) {
    return type + "[" + b + ", " + heads + ", " + length + ", " + d + "]";
  };
  return model(value(h, s) + " q, " + value(kv, t) + " k, " + value(kv, t) + " v", value(h, s),
               std::string("  y = Attention") + (causal ? " <is_causal = 1>" : "") + " (q, k, v)\n");
}

} // namespace

Result<std::string> kernelModel(std::string_view what) {
  size_t colon = what.find(':');
  std::string_view kind = what.substr(0, colon);
  Result<Parameters> p =
      Parameters::parse(colon == std::string_view::npos ? "" : what.substr(colon + 1));
  if (!p)
    return p.status();
  if (kind == "gemm")
    return gemm(*p);
  if (kind == "attention")
    return attention(*p);
  if (kind == "conv")
    return conv(*p);
  return usageError("kernels are gemm, attention and conv, not '" + std::string(kind) + "'", kWhere);
}

} // namespace lathe::cli
