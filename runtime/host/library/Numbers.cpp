//===- Numbers.cpp - text of numbers, and back ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Casts of ONNX between strings and numbers, in no locale. Integers and bool are written in decimal, f32 with 8
// significant digits, as onnxruntime does, f64 with 17, which say it exactly; and NaN, INF and -INF. What may have
// been written so is read, with space around it; a float is rounded once; what a type cannot hold is an error.
//
//===----------------------------------------------------------------------===//

#include "StringTable.h"
#include "Utf8.h"

#include <charconv>
#include <cmath>

namespace lathe::host {
namespace {

std::string_view trimmed(std::string_view text) {
  auto space = [](char c) { return isSpace(static_cast<unsigned char>(c)) && !(c & 0x80); };
  while (!text.empty() && space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && space(text.back()))
    text.remove_suffix(1);
  return text;
}

template <typename T> void parseAll(const Call &call, DType dtype) {
  auto x = call.input(0);
  auto y = call.output<T>(0, dtype);
  if (x.size() != y.size())
    fail("operands of different sizes", ErrorCode::Invalid);
  for (size_t i = 0; i < x.size(); ++i) {
    std::string_view whole = call.strings().text(x[i]), text = trimmed(whole);
    auto refuse = [&](const char *why) {
      fail("'" + std::string(whole.substr(0, 80)) + "' " + why + " " + std::string(name(dtype)));
    };
    if constexpr (std::is_same_v<T, bool>) {
      std::string lower = lowerCase(text);
      if (lower == "true" || lower == "1")
        y[i] = true;
      else if (lower == "false" || lower == "0")
        y[i] = false;
      else
        refuse("is no");
      continue;
    } else {
      if (text.starts_with('+') && !text.starts_with("+-"))
        text.remove_prefix(1);
      T value{};
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error == std::errc::result_out_of_range)
        refuse("is beyond the range of");
      if (error != std::errc() || end != text.data() + text.size())
        refuse("is no");
      y[i] = value;
    }
  }
}

template <typename T> void formatAll(const Call &call, DType dtype) {
  auto x = call.input<T>(0, dtype);
  auto y = call.output(0);
  if (x.size() != y.size())
    fail("operands of different sizes", ErrorCode::Invalid);
  for (size_t i = 0; i < x.size(); ++i) {
    char text[64];
    char *end = text;
    if constexpr (std::is_same_v<T, bool>) {
      *end++ = x[i] ? '1' : '0';
    } else if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x[i]) || std::isinf(x[i])) {
        y[i] = call.strings().number(std::isnan(x[i]) ? "NaN" : x[i] < 0 ? "-INF" : "INF");
        continue;
      }
      constexpr int kDigits = sizeof(T) == sizeof(float) ? 8 : 17;
      end = std::to_chars(text, text + sizeof text, x[i], std::chars_format::general, kDigits).ptr;
    } else {
      end = std::to_chars(text, text + sizeof text, x[i]).ptr;
    }
    y[i] = call.strings().number({text, static_cast<size_t>(end - text)});
  }
}

/// Calls `body` with a value of the C++ type of a dtype.
template <typename F> void withType(int32_t dtype, F body) {
  switch (static_cast<DType>(dtype)) {
  case DType::Bool:
    return body(bool{});
  case DType::I8:
    return body(int8_t{});
  case DType::I16:
    return body(int16_t{});
  case DType::I32:
    return body(int32_t{});
  case DType::I64:
    return body(int64_t{});
  case DType::UI8:
    return body(uint8_t{});
  case DType::UI16:
    return body(uint16_t{});
  case DType::UI32:
    return body(uint32_t{});
  case DType::UI64:
    return body(uint64_t{});
  case DType::F32:
    return body(float{});
  case DType::F64:
    return body(double{});
  default:
    fail("no text of numbers of this type", ErrorCode::Invalid);
  }
}

} // namespace

void stringParse(const Call &call) {
  int32_t dtype = call.outputTensor(0).dtype;
  withType(dtype, [&](auto value) { parseAll<decltype(value)>(call, static_cast<DType>(dtype)); });
}

void stringFormat(const Call &call) {
  int32_t dtype = call.inputTensor(0).dtype;
  withType(dtype, [&](auto value) { formatAll<decltype(value)>(call, static_cast<DType>(dtype)); });
}

} // namespace lathe::host
