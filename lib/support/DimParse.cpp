//===- DimParse.cpp - dimension expressions from text ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   sum     := ["-"] product {("+" | "-") product}
//   product := factor {"*" factor}
//   factor  := integer | name | function "(" sum {"," sum} ")" | "(" sum ")" | "-" factor
//
//===----------------------------------------------------------------------===//
#include "DimNode.h"

#include <charconv>

namespace lathe {
namespace {

bool isNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isNameChar(char c) { return isNameStart(c) || isDigit(c) || c == '.' || c == '$'; }

class Parser {
public:
  explicit Parser(std::string_view text) : text(text) {}

  Result<DimExpr> run() {
    DimExpr result = sum();
    if (error.empty() && peek() != 0)
      fail("expected the end of the expression");
    if (error.empty())
      return result;
    return invalidError(error + " in dimension expression '" + std::string(text) + "'",
                        "column " + std::to_string(errorAt + 1));
  }

private:
  static constexpr int kMaxDepth = 200;

  char peek() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n'))
      ++at;
    return at < text.size() ? text[at] : 0;
  }
  bool take(char c) {
    if (peek() != c)
      return false;
    ++at;
    return true;
  }
  DimExpr fail(std::string message) {
    if (error.empty()) {
      error = std::move(message);
      errorAt = at;
    }
    at = text.size();
    return 0;
  }

  DimExpr sum() {
    if (++depth > kMaxDepth)
      return fail("nesting is too deep");
    DimExpr result = product(take('-'));
    for (;;) {
      if (take('+'))
        result = result + product(false);
      else if (take('-'))
        result = result + product(true);
      else
        break;
    }
    --depth;
    return result;
  }

  DimExpr product(bool negative) {
    DimExpr result = factor(negative);
    while (take('*'))
      result = result * factor(false);
    return result;
  }

  /// The sign is applied to the literal itself, so that -2^63 can be read.
  DimExpr factor(bool negative) {
    if (++depth > kMaxDepth)
      return fail("nesting is too deep");
    char c = peek();
    DimExpr result;
    if (isDigit(c))
      result = integer(negative);
    else if (isNameStart(c))
      result = signedExpr(negative, nameOrCall());
    else if (take('('))
      result = signedExpr(negative, parenthesized());
    else if (take('-'))
      result = factor(!negative);
    else
      result = fail("expected an integer, a name or '('");
    --depth;
    return result;
  }

  static DimExpr signedExpr(bool negative, DimExpr e) {
    return negative ? e * DimExpr(-1) : e;
  }

  DimExpr parenthesized() {
    DimExpr result = sum();
    if (!take(')'))
      return fail("expected ')'");
    return result;
  }

  DimExpr integer(bool negative) {
    uint64_t magnitude = 0;
    auto [end, code] = std::from_chars(text.data() + at, text.data() + text.size(), magnitude);
    uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
    if (code != std::errc() || magnitude > limit)
      return fail("integer does not fit 64 bits");
    at = end - text.data();
    return static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  }

  DimExpr nameOrCall() {
    size_t begin = at;
    while (at < text.size() && isNameChar(text[at]))
      ++at;
    std::string_view name = text.substr(begin, at - begin);
    if (peek() != '(')
      return DimExpr::symbol(name);
    size_t afterName = at;
    ++at;
    std::vector<DimExpr> arguments;
    do
      arguments.push_back(sum());
    while (take(','));
    if (!take(')'))
      return fail("expected ',' or ')'");

    using Binary = DimExpr (*)(const DimExpr &, const DimExpr &);
    struct Function {
      std::string_view name;
      Binary apply;
      bool folds; ///< takes one or more arguments
    };
    static constexpr Function functions[] = {
        {"floordiv", &DimExpr::floorDiv, false}, {"ceildiv", &DimExpr::ceilDiv, false},
        {"mod", &DimExpr::mod, false},           {"min", &DimExpr::min, true},
        {"max", &DimExpr::max, true},            {"bcast", &DimExpr::bcast, true},
    };
    for (const Function &f : functions) {
      if (f.name != name)
        continue;
      if (!f.folds && arguments.size() != 2) {
        at = afterName;
        return fail(std::string(name) + " takes two arguments");
      }
      DimExpr result = arguments[0];
      for (size_t i = 1; i < arguments.size(); ++i)
        result = f.apply(result, arguments[i]);
      return result;
    }
    at = begin;
    return fail("unknown function '" + std::string(name) + "'");
  }

  std::string_view text;
  size_t at = 0;
  int depth = 0;
  std::string error;
  size_t errorAt = 0;
};

} // namespace

Result<DimExpr> DimExpr::parse(std::string_view text) { return Parser(text).run(); }

} // namespace lathe
