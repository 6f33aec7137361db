//===- Prune.cpp - zeros in matrices of weights ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/sparsify/Prune.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>

namespace lathe::sparsify {
namespace {

/// Two numbers with one character between them.
bool parsePair(std::string_view text, char between, int64_t &first, int64_t &second) {
  const char *end = text.data() + text.size();
  auto one = std::from_chars(text.data(), end, first);
  if (one.ec != std::errc() || one.ptr == end || *one.ptr != between)
    return false;
  auto two = std::from_chars(one.ptr + 1, end, second);
  return two.ec == std::errc() && two.ptr == end;
}

/// The score of each unit, [K / rows][N / columns]; of groups each element is one.
class Scores {
public:
  Scores(const Weights &w, int64_t rows, int64_t columns, Score score, uint64_t seed)
      : across((w.columns() + columns - 1) / columns) {
    values.resize((w.depth() + rows - 1) / rows * across);
    std::mt19937_64 gen(seed);
    for (size_t u = 0; u < values.size(); ++u) {
      const int64_t k0 = int64_t(u) / across * rows, n0 = int64_t(u) % across * columns;
      double sum = score == Score::Random ? double(gen() >> 11) * 0x1p-53 : 0;
      for (int64_t k = k0; k < std::min(w.depth(), k0 + rows); ++k)
        for (int64_t n = n0; n < std::min(w.columns(), n0 + columns); ++n) {
          double x = std::fabs(w.tensor.real(w.at(k, n)));
          if (!std::isfinite(x))
            sum = INFINITY;
          else if (score != Score::Random)
            sum += score == Score::L1 ? x : x * x;
        }
      values[u] = sum;
    }
  }
  /// The units of [begin, end), in steps, from the least on.
  std::vector<int64_t> ordered(int64_t begin, int64_t count, int64_t step) const {
    std::vector<int64_t> units(count);
    for (int64_t i = 0; i < count; ++i)
      units[i] = begin + i * step;
    std::stable_sort(units.begin(), units.end(), [&](int64_t a, int64_t b) { return values[a] < values[b]; });
    return units;
  }
  std::vector<double> values;
  const int64_t across; ///< units of a row of them
};

} // namespace

Result<Scheme> Scheme::parse(std::string_view text) {
  Scheme scheme;
  scheme.name = text;
  if (text == "unstructured")
    return scheme;
  if (text.starts_with("block:") && parsePair(text.substr(6), 'x', scheme.rows, scheme.columns) && scheme.rows > 0 &&
      scheme.columns > 0 && scheme.rows <= 4096 && scheme.columns <= 4096)
    return scheme;
  scheme.kind = Kind::Groups;
  if (parsePair(text, ':', scheme.columns, scheme.rows) && scheme.columns > 0 && scheme.rows > scheme.columns &&
      scheme.rows <= 64)
    return scheme;
  return usageError("wants block:1x16, block:4x16, unstructured, 2:4, 4:8, channels, heads, ffn or blocks, not '" + std::string(text) + "'", "--scheme");
}

Result<Score> parseScore(std::string_view text) {
  if (text == "l1")
    return Score::L1;
  if (text == "l2")
    return Score::L2;
  if (text == "random")
    return Score::Random;
  if (text == "taylor")
    return Score::Taylor;
  return usageError("wants l1, l2, random or taylor, not '" + std::string(text) + "'", "--score");
}

static Status wholeGroups(const Weights &w, const Scheme &scheme) {
  if (w.depth() % scheme.rows == 0)
    return okStatus();
  return unsupportedError("its depth of " + std::to_string(w.depth()) + " is no multiple of " + std::to_string(scheme.rows));
}

Status prune(Weights &w, const Scheme &scheme, double ratio, Score score, uint64_t seed) {
  const bool groups = scheme.kind == Scheme::Kind::Groups;
  const int64_t rows = groups ? 1 : scheme.rows, columns = groups ? 1 : scheme.columns;
  if (groups)
    LATHE_RETURN_IF_ERROR(wholeGroups(w, scheme));
  const Scores scores(w, rows, columns, score, seed);
  auto clear = [&](int64_t unit) {
    if (std::isinf(scores.values[unit]))
      return;
    const int64_t k0 = unit / scores.across * rows, n0 = unit % scores.across * columns;
    for (int64_t k = k0; k < std::min(w.depth(), k0 + rows); ++k)
      for (int64_t n = n0; n < std::min(w.columns(), n0 + columns); ++n)
        w.tensor.setReal(w.at(k, n), 0);
  };
  const auto all = int64_t(scores.values.size());
  const int64_t size = groups ? scheme.rows : all; // units that are compared with each other
  const int64_t drop = groups ? scheme.rows - scheme.columns : std::llround(ratio * double(all));
  for (int64_t g = 0; size && g < all / size; ++g) {
    // Groups run along K, which is across the rows of units.
    int64_t begin = groups ? g / scores.across * size * scores.across + g % scores.across : 0;
    std::vector<int64_t> order = scores.ordered(begin, size, groups ? scores.across : 1);
    for (int64_t i = 0; i < drop; ++i)
      clear(order[i]);
  }
  return okStatus();
}

Result<std::optional<Offence>> firstOffence(const Weights &w, const Scheme &scheme) {
  if (scheme.kind != Scheme::Kind::Groups)
    return unsupportedError("only groups as 2:4 can be checked for", scheme.name);
  LATHE_RETURN_IF_ERROR(wholeGroups(w, scheme));
  std::optional<Offence> first;
  int64_t offending = 0;
  for (int64_t k0 = 0; k0 < w.depth(); k0 += scheme.rows)
    for (int64_t n = 0; n < w.columns(); ++n) {
      int64_t nonzero = 0;
      for (int64_t k = k0; k < k0 + scheme.rows; ++k)
        if (w.tensor.real(w.at(k, n)) != 0 && ++nonzero == scheme.columns + 1) {
          ++offending;
          if (!first)
            first = Offence{k, n, 0, 0};
        }
    }
  if (first)
    first->groups = w.depth() / scheme.rows * w.columns(), first->offending = offending;
  return first;
}

double zeroShare(const HostTensor &tensor) {
  int64_t zeros = 0, count = tensor.count();
  for (int64_t i = 0; i < count; ++i)
    zeros += tensor.real(i) == 0;
  return count ? double(zeros) / double(count) : 0;
}

double relativeChange(const HostTensor &before, const HostTensor &after) {
  double change = 0, all = 0;
  for (int64_t i = 0, n = before.count(); i < n; ++i) {
    double x = before.real(i), d = after.real(i) - x;
    all += x * x;
    change += d * d;
  }
  return all > 0 ? std::sqrt(change / all) : 0;
}

} // namespace lathe::sparsify
