//===- KernelSpecParse.cpp - reading KernelSpec and guard text ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The inverse of KernelSpec.cpp. Text comes from files that people edit, so
// every error names its line and what was expected there.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/KernelSpec.h"

#include <cctype>
#include <charconv>

namespace lathe {
namespace {

/// Reads one line from left to right. The first failure is kept and every later
/// call does nothing, so that callers check once, at the end of a line.
class LineReader {
public:
  LineReader(std::string_view line, int number) : rest(line), number(number) {}

  bool failed() const { return !error.ok(); }
  Status status() const { return error; }
  void fail(const std::string &what) {
    if (error.ok())
      error =
          invalidError(what + (rest.empty() ? " at the end of the line"
                                            : " before '" + std::string(rest.substr(0, 24)) + "'"),
                       "kernel spec line " + std::to_string(number));
  }
  bool atEnd() {
    skip();
    return rest.empty();
  }
  /// The next bare word, or "" with an error.
  std::string word() {
    skip();
    size_t n = 0;
    while (n < rest.size() && (std::isalnum(static_cast<unsigned char>(rest[n])) || rest[n] == '_'))
      ++n;
    if (n == 0)
      fail("expected a word");
    return take(n);
  }
  /// Whether the next word is `w`; takes it if so.
  bool accept(std::string_view w) {
    skip();
    if (failed() || rest.substr(0, w.size()) != w ||
        (rest.size() > w.size() && rest[w.size()] != ' '))
      return false;
    rest.remove_prefix(w.size());
    return true;
  }
  void expect(std::string_view w) {
    if (!accept(w))
      fail("expected '" + std::string(w) + "'");
  }
  std::string quoted() {
    skip();
    std::string out;
    if (rest.empty() || rest[0] != '"') {
      fail("expected a quoted name");
      return out;
    }
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == '"') {
        rest.remove_prefix(i + 1);
        return out;
      }
      if (rest[i] == '\\' && i + 1 < rest.size())
        ++i;
      out += rest[i];
    }
    fail("unterminated name");
    return out;
  }
  int64_t integer() {
    skip();
    int64_t v = 0;
    auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), v);
    if (ec != std::errc())
      fail("expected an integer");
    else
      rest.remove_prefix(end - rest.data());
    return v;
  }
  /// "[a, b]" split at the commas outside parentheses.
  std::vector<DimExpr> dims() {
    std::vector<DimExpr> out;
    skip();
    if (rest.empty() || rest[0] != '[') {
      fail("expected '['");
      return out;
    }
    int depth = 0;
    size_t start = 1;
    for (size_t i = 1; i < rest.size() && !failed(); ++i) {
      char c = rest[i];
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (depth != 0 || (c != ',' && c != ']'))
        continue;
      std::string_view item = rest.substr(start, i - start);
      bool blank = item.find_first_not_of(' ') == std::string_view::npos;
      if (!(c == ']' && blank && out.empty())) {
        Result<DimExpr> e = DimExpr::parse(item);
        if (!e) {
          fail("bad expression '" + std::string(item) + "' (" + e.status().message() + ")");
          return out;
        }
        out.push_back(*e);
      }
      start = i + 1;
      if (c == ']') {
        rest.remove_prefix(i + 1);
        return out;
      }
    }
    fail("unterminated list");
    return out;
  }
  std::vector<int64_t> integers() {
    std::vector<int64_t> out;
    for (const DimExpr &e : dims()) {
      std::optional<int64_t> v = e.constant();
      if (!v)
        fail("expected constants, found " + e.str());
      out.push_back(v.value_or(0));
    }
    return out;
  }
  DimExpr dim() {
    std::vector<DimExpr> one = dims();
    if (one.size() != 1)
      fail("expected one expression in brackets");
    return one.empty() ? DimExpr() : one[0];
  }
  template <typename T, typename V> void triple(T (&into)[3], const std::vector<V> &from) {
    if (from.size() != 3)
      return fail("expected three values");
    for (int i = 0; i < 3; ++i)
      into[i] = from[i];
  }

private:
  void skip() {
    while (!rest.empty() && rest[0] == ' ')
      rest.remove_prefix(1);
  }
  std::string take(size_t n) {
    std::string s(rest.substr(0, n));
    rest.remove_prefix(n);
    return s;
  }

  std::string_view rest;
  int number;
  Status error;
};

void parseBuffer(LineReader &in, KernelSpec &spec) {
  std::string role = in.word();
  int have = static_cast<int>(spec.buffers.size());
  if (role == "in" && have == spec.numInputs)
    ++spec.numInputs;
  else if (role == "out" && have == spec.numInputs + spec.numOutputs)
    ++spec.numOutputs;
  else if (role != "work")
    in.fail("expected in, out or work, in this order; found '" + role + "'");
  BufferArg b;
  if (in.accept("read"))
    b.access = BufferArg::Access::Read;
  else if (in.accept("write"))
    b.access = BufferArg::Access::Write;
  else if (in.accept("readwrite"))
    b.access = BufferArg::Access::ReadWrite;
  else
    in.fail("expected read, write or readwrite");
  std::string type = in.word();
  if (std::optional<DType> t = parseDType(type))
    b.dtype = *t;
  else
    in.fail("unknown element type '" + type + "'");
  b.physical = b.dims = in.dims();
  if (in.accept("physical"))
    b.physical = in.dims();
  in.expect("align");
  b.alignment = in.integer();
  if (in.accept("alias"))
    b.aliases = static_cast<int>(in.integer());
  if (in.accept("packing"))
    b.packing = in.quoted();
  spec.buffers.push_back(std::move(b));
}

void parseTensorMap(LineReader &in, KernelSpec &spec) {
  TensorMapArg m;
  m.buffer = static_cast<int>(in.integer());
  m.dims = in.dims();
  in.expect("strides");
  m.strides = in.dims();
  in.expect("box");
  m.box = in.integers();
  in.expect("swizzle");
  m.swizzleBytes = static_cast<int>(in.integer());
  if (in.accept("im2col")) {
    m.im2col = true;
    m.lowerCorner = in.integers();
    m.upperCorner = in.integers();
  }
  if (in.accept("steps"))
    m.steps = in.integers();
  if (in.accept("bytes"))
    m.elementBytes = static_cast<int>(in.integer());
  for (auto [word, role] : {std::pair{"result", TensorMapArg::Role::Result},
                            {"residual", TensorMapArg::Role::Residual},
                            {"mask", TensorMapArg::Role::Mask}})
    if (in.accept(word))
      m.role = role;
  spec.tensorMaps.push_back(std::move(m));
}

void parseLaunch(LineReader &in, KernelSpec &spec) {
  LaunchSpec l;
  l.function = in.quoted();
  in.expect("grid");
  in.triple(l.grid, in.dims());
  in.expect("block");
  in.triple(l.block, in.integers());
  if (in.accept("cluster"))
    in.triple(l.cluster, in.integers());
  if (in.accept("shared"))
    l.sharedBytes = in.dim();
  l.programmaticDependent = in.accept("pdl");
  if (in.accept("buffers"))
    for (int64_t v : in.integers())
      l.buffers.push_back(static_cast<int>(v));
  spec.launches.push_back(std::move(l));
}

/// Splits at the first `mark` outside parentheses.
bool splitAt(std::string_view s, std::string_view mark, std::string_view &left,
             std::string_view &right) {
  int depth = 0;
  for (size_t i = 0; i + mark.size() <= s.size(); ++i) {
    depth += s[i] == '(' ? 1 : s[i] == ')' ? -1 : 0;
    if (depth == 0 && s.substr(i, mark.size()) == mark) {
      left = s.substr(0, i);
      right = s.substr(i + mark.size());
      return true;
    }
  }
  return false;
}

Result<DimCondition> parseCondition(std::string_view text) {
  std::string_view left, right, dividend, divisor;
  DimCondition c;
  if (splitAt(text, "<=", left, right)) {
    c.kind = DimCondition::Kind::LessEqual;
  } else if (splitAt(text, "==", left, right)) {
    c.kind = DimCondition::Kind::Equal;
    if (splitAt(left, "%", dividend, divisor)) {
      Result<DimExpr> zero = DimExpr::parse(right);
      if (!zero || zero->constant() != 0)
        return invalidError("only '% ... == 0' is a condition on remainders", "guard");
      c.kind = DimCondition::Kind::Divisible;
      left = dividend;
      right = divisor;
    }
  } else {
    return invalidError("expected <=, == or % in '" + std::string(text) + "'", "guard");
  }
  Result<DimExpr> lhs = DimExpr::parse(left), rhs = DimExpr::parse(right);
  if (!lhs)
    return invalidError(lhs.status().message(), "guard, left of the condition");
  if (!rhs)
    return invalidError(rhs.status().message(), "guard, right of the condition");
  c.lhs = *lhs;
  c.rhs = *rhs;
  return c;
}

} // namespace

Result<KernelSpec> KernelSpec::parse(std::string_view text) {
  KernelSpec spec;
  int number = 0;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    LineReader in(line, ++number);
    if (in.atEnd())
      continue;
    std::string item = in.word();
    if (item == "config")
      spec.config = in.quoted();
    else if (item == "buffer")
      parseBuffer(in, spec);
    else if (item == "symbol")
      spec.symbols.push_back(in.quoted());
    else if (item == "tensormap")
      parseTensorMap(in, spec);
    else if (item == "launch")
      parseLaunch(in, spec);
    else if (item == "workspace")
      spec.workspaceBytes = in.dim();
    else if (item == "scratch")
      spec.scratchBytes = in.dim();
    else if (item == "status")
      spec.status = true;
    else
      in.fail("unknown item '" + item + "'");
    if (!in.failed() && !in.atEnd())
      in.fail("unexpected text");
    LATHE_RETURN_IF_ERROR(in.status());
  }
  return spec;
}

Result<std::vector<DimCondition>> parseGuard(std::string_view text) {
  std::vector<DimCondition> guard;
  size_t first = text.find_first_not_of(" \n"), last = text.find_last_not_of(" \n");
  if (first == std::string_view::npos)
    return invalidError("an empty guard; 'true' always holds", "guard");
  text = text.substr(first, last - first + 1);
  if (text == "true")
    return guard;
  while (true) {
    size_t next = text.find("&&");
    Result<DimCondition> c = parseCondition(text.substr(0, next));
    if (!c)
      return c.status();
    guard.push_back(std::move(*c));
    if (next == std::string_view::npos)
      return guard;
    text.remove_prefix(next + 2);
  }
}

} // namespace lathe
