//===- StringOps.cpp - ops that look into strings -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StringTable.h"
#include "Utf8.h"

#include <algorithm>
#include <map>
#include <re2/re2.h>
#include <unordered_set>
#include <vector>

namespace lathe::host {
namespace {

void sameSize(size_t a, size_t b) {
  if (a != b)
    fail("operands of different sizes", ErrorCode::Invalid);
}

/// Calls `part` for each part of a string, as Python's str.split() divides it: with a delimiter, every
/// occurrence of it; without one, runs of space, and none at either end. What is behind the last division that
/// `most` (negative: any number) allows is one part.
template <typename F> void split(std::string_view text, std::string_view delimiter, int64_t most, F part) {
  if (!delimiter.empty()) {
    for (int64_t done = 0; most < 0 || done < most; ++done) {
      size_t at = text.find(delimiter);
      if (at == std::string_view::npos)
        break;
      part(text.substr(0, at));
      text.remove_prefix(at + delimiter.size());
    }
    part(text);
    return;
  }
  auto isSpaceAtFront = [&] {
    std::string_view rest = text;
    return isSpace(takeCharacter(rest));
  };
  for (int64_t done = 0;; ++done) {
    while (!text.empty() && isSpaceAtFront())
      takeCharacter(text);
    if (text.empty())
      return;
    if (most >= 0 && done == most)
      return part(text);
    const char *begin = text.data();
    while (!text.empty() && !isSpaceAtFront())
      takeCharacter(text);
    part(std::string_view(begin, static_cast<size_t>(text.data() - begin)));
  }
}

std::string_view delimiterOf(const Call &call) {
  std::string_view delimiter = call.text("delimiter");
  if (!isUtf8(delimiter)) // it would cut characters
    fail("the delimiter is no UTF-8", ErrorCode::Invalid);
  return delimiter;
}

/// The expression of a pattern, compiled once. `longest`: of the matches that begin first the longest one.
const re2::RE2 &expressionOf(LatheStrings &strings, std::string_view pattern, bool longest) {
  std::string key = (longest ? "longest " : "first ") + std::string(pattern);
  auto known = strings.kept.find(key);
  if (known == strings.kept.end()) {
    re2::RE2::Options options(re2::RE2::Quiet);
    options.set_longest_match(longest);
    auto made = std::make_shared<re2::RE2>(re2::StringPiece(pattern.data(), pattern.size()), options);
    if (!made->ok())
      fail("the pattern '" + std::string(pattern) + "' is no regular expression of RE2: " + made->error(),
           ErrorCode::Invalid);
    known = strings.kept.emplace(std::move(key), std::move(made)).first;
  }
  return *static_cast<const re2::RE2 *>(known->second.get());
}

int64_t partsOf(std::string_view text, std::string_view delimiter, int64_t most) {
  int64_t count = 0;
  split(text, delimiter, most, [&](std::string_view) { ++count; });
  return count;
}

constexpr std::string_view kBegin = "\x02", kEnd = "\x03"; // what onnxruntime marks strings with

/// Strings as lists of tokens, as onnxruntime's Tokenizer finds them: expressions match leftmost-longest, and separators
/// divide one after another what the ones before them left.
class Tokenizer {
public:
  /// Operand 1, where there is one: separators; the attribute `pattern`: what a token is; neither: each character.
  explicit Tokenizer(const Call &call) : least(call.integer("least", 1)) {
    LatheStrings &strings = call.strings();
    if (call.inputs() > 1)
      for (int64_t one : call.input(1))
        separators.push_back(&expressionOf(strings, strings.text(one), true));
    else if (std::string_view pattern = call.text("pattern"); !pattern.empty())
      token = &expressionOf(strings, pattern, true);
  }

  std::vector<std::string_view> operator()(std::string_view text) const {
    std::vector<std::string_view> found;
    if (token) {
      eachMatch(*token, text, [&](std::string_view, std::string_view match) { found.push_back(match); });
    } else if (separators.empty()) {
      while (!text.empty()) {
        const char *begin = text.data();
        takeCharacter(text);
        found.emplace_back(begin, static_cast<size_t>(text.data() - begin));
      }
    } else {
      found = {text};
      for (const re2::RE2 *separator : separators) {
        std::vector<std::string_view> parts;
        for (std::string_view part : found) {
          std::string_view rest =
              eachMatch(*separator, part, [&](std::string_view before, std::string_view) { parts.push_back(before); });
          parts.push_back(rest);
        }
        found = std::move(parts);
      }
    }
    std::erase_if(found, [&](std::string_view one) { return one.empty() || characters(one) < least; });
    return found;
  }

private:
  /// Calls `found` with what is between a match and the one before it, and the match; gives what is behind the last one.
  /// Matches of nothing are none.
  template <typename F> static std::string_view eachMatch(const re2::RE2 &expression, std::string_view text, F found) {
    std::string_view rest = text;
    for (size_t from = 0; from < text.size();) {
      re2::StringPiece match;
      if (!expression.Match(re2::StringPiece(text.data(), text.size()), from, text.size(), re2::RE2::UNANCHORED, &match, 1))
        break;
      size_t begin = static_cast<size_t>(match.data() - text.data());
      if (match.empty()) { // a character further
        std::string_view behind = text.substr(begin);
        if (behind.empty())
          break;
        takeCharacter(behind);
        from = text.size() - behind.size();
        continue;
      }
      found(rest.substr(0, static_cast<size_t>(match.data() - rest.data())), std::string_view(match.data(), match.size()));
      from = begin + match.size();
      rest = text.substr(from);
    }
    return rest;
  }

  static int64_t characters(std::string_view text) {
    int64_t count = 0;
    for (; !text.empty(); ++count)
      takeCharacter(text);
    return count;
  }

  std::vector<const re2::RE2 *> separators;
  const re2::RE2 *token = nullptr;
  int64_t least;
};

} // namespace

void stringConcat(const Call &call) {
  auto x = call.input(0), y = call.input(1);
  auto z = call.output(0);
  sameSize(x.size(), z.size());
  sameSize(y.size(), z.size());
  LatheStrings &strings = call.strings();
  std::string joined;
  for (size_t i = 0; i < z.size(); ++i) {
    joined = strings.text(x[i]);
    joined += strings.text(y[i]);
    z[i] = strings.number(joined);
  }
}

void regexFullMatch(const Call &call) {
  auto x = call.input(0);
  auto y = call.output<bool>(0, DType::Bool);
  sameSize(x.size(), y.size());
  LatheStrings &strings = call.strings();
  const re2::RE2 &expression = expressionOf(strings, call.text("pattern"), false);
  for (size_t i = 0; i < y.size(); ++i) {
    std::string_view text = strings.text(x[i]);
    y[i] = re2::RE2::FullMatch(re2::StringPiece(text.data(), text.size()), expression);
  }
}

void stringSplitCounts(const Call &call) {
  auto x = call.input(0);
  auto counts = call.output(0), most = call.output(1);
  sameSize(x.size(), counts.size());
  sameSize(most.size(), 1);
  std::string_view delimiter = delimiterOf(call);
  most[0] = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    counts[i] = partsOf(call.strings().text(x[i]), delimiter, call.integer("maxsplit", -1));
    most[0] = std::max(most[0], counts[i]);
  }
}

void stringSplit(const Call &call) {
  auto x = call.input(0);
  auto y = call.output(0);
  LatheStrings &strings = call.strings();
  std::string_view delimiter = delimiterOf(call);
  size_t width = x.empty() ? 0 : y.size() / x.size();
  sameSize(width * x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    size_t at = 0;
    split(strings.text(x[i]), delimiter, call.integer("maxsplit", -1), [&](std::string_view part) {
      if (at == width)
        fail("more parts than were counted", ErrorCode::Invalid);
      y[i * width + at++] = strings.number(part);
    });
    std::fill(y.begin() + static_cast<ptrdiff_t>(i * width + at), y.begin() + static_cast<ptrdiff_t>((i + 1) * width),
              strings.number(""));
  }
}

void stringTokenCounts(const Call &call) {
  auto x = call.input(0);
  auto most = call.output(0);
  sameSize(most.size(), 1);
  Tokenizer tokensOf(call);
  most[0] = 0;
  for (int64_t one : x)
    most[0] = std::max(most[0], static_cast<int64_t>(tokensOf(call.strings().text(one)).size()));
  if (most[0] && call.integer("mark", 0)) // where there is no token at all, onnxruntime marks nothing
    most[0] += 2;
}

void stringTokenize(const Call &call) {
  auto x = call.input(0);
  auto y = call.output(0);
  LatheStrings &strings = call.strings();
  Tokenizer tokensOf(call);
  const int64_t filler = strings.number(call.text("pad_value"));
  const size_t width = x.empty() ? 0 : y.size() / x.size();
  sameSize(width * x.size(), y.size());
  const bool marks = width && call.integer("mark", 0);
  for (size_t i = 0; i < x.size(); ++i) {
    std::vector<std::string_view> tokens = tokensOf(strings.text(x[i]));
    if (marks) {
      tokens.insert(tokens.begin(), kBegin);
      tokens.push_back(kEnd);
    }
    if (tokens.size() > width)
      fail("more tokens than were counted", ErrorCode::Invalid);
    auto row = y.subspan(i * width, width);
    std::fill(row.begin(), row.end(), filler);
    std::transform(tokens.begin(), tokens.end(), row.begin(), [&](std::string_view text) { return strings.number(text); });
  }
}

void stringNormalize(const Call &call) {
  auto x = call.input(0);
  auto y = call.output(0), count = call.output(1);
  LatheStrings &strings = call.strings();
  sameSize(std::max<size_t>(x.size(), 1), y.size());
  sameSize(count.size(), 1);
  bool sensitive = call.integer("case_sensitive", 0) != 0;
  auto key = [&](std::string_view text) { return sensitive ? std::string(text) : lowerCase(text); };
  std::unordered_set<std::string> stopwords;
  if (call.inputs() > 1)
    for (int64_t word : call.input(1))
      stopwords.insert(key(strings.text(word)));
  std::string_view change = call.text("case");
  size_t kept = 0;
  for (int64_t one : x) {
    std::string_view text = strings.text(one);
    if (!stopwords.empty() && stopwords.count(key(text)))
      continue;
    y[kept++] = change == "LOWER"   ? strings.number(lowerCase(text))
                : change == "UPPER" ? strings.number(upperCase(text))
                                    : one;
  }
  std::fill(y.begin() + static_cast<ptrdiff_t>(kept), y.end(), strings.number(""));
  count[0] = static_cast<int64_t>(std::max<size_t>(kept, 1));
}

void stringRank(const Call &call) {
  auto x = call.input(0);
  auto y = call.output(0);
  sameSize(x.size(), y.size());
  const LatheStrings &strings = call.strings();
  // The bytes of UTF-8 are in the order of the code points.
  std::map<std::string_view, int64_t> ranks;
  for (int64_t one : x)
    ranks.emplace(strings.text(one), 0);
  int64_t next = 0;
  for (auto &[text, rank] : ranks)
    rank = next++;
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = ranks.at(strings.text(x[i]));
}

} // namespace lathe::host
