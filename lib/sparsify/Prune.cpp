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
  Scores(const Weights &w, int64_t rows, int64_t columns, const Scoring &how)
      : rows(rows), columns(columns), across((w.columns() + columns - 1) / columns) {
    values.resize((w.depth() + rows - 1) / rows * across);
    std::mt19937_64 gen(how.seed);
    for (size_t u = 0; u < values.size(); ++u) {
      double sum = how.score == Score::Random ? double(gen() >> 11) * 0x1p-53 : 0;
      forEach(w, int64_t(u), [&](int64_t k, int64_t n) {
        double x = std::fabs(w.tensor.real(w.at(k, n)));
        if (!std::isfinite(x))
          sum = INFINITY;
        else if (how.score == Score::Wanda)
          sum += x * how.norms[k];
        else if (how.score != Score::Random)
          sum += how.score == Score::L1 ? x : x * x;
      });
      values[u] = sum;
    }
  }
  template <typename Body> void forEach(const Weights &w, int64_t unit, const Body &body) const {
    const int64_t k0 = unit / across * rows, n0 = unit % across * columns;
    for (int64_t k = k0; k < std::min(w.depth(), k0 + rows); ++k)
      for (int64_t n = n0; n < std::min(w.columns(), n0 + columns); ++n)
        body(k, n);
  }
  /// `count` units from `begin` on, in steps, from the least on.
  std::vector<int64_t> ordered(int64_t begin, int64_t count, int64_t step) const {
    std::vector<int64_t> units(count);
    for (int64_t i = 0; i < count; ++i)
      units[i] = begin + i * step;
    std::stable_sort(units.begin(), units.end(), [&](int64_t a, int64_t b) { return values[a] < values[b]; });
    return units;
  }
  std::vector<double> values;
  const int64_t rows, columns;
  const int64_t across; ///< units of a row of them
};

Status checkNorms(const Weights &w, const Scoring &how) {
  if (how.score != Score::Wanda || int64_t(how.norms.size()) == w.depth())
    return okStatus();
  return invalidError("sums over " + std::to_string(w.depth()) + " inputs, of which " + std::to_string(how.norms.size()) +
                      " were observed");
}

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
  return usageError("wants block:1x16, block:4x16, block:64x64, unstructured, 2:4, 4:8, channels, heads, ffn or blocks, not '" + std::string(text) + "'", "--scheme");
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
  if (text == "wanda")
    return Score::Wanda;
  if (text == "sparsegpt")
    return Score::SparseGpt;
  return usageError("wants l1, l2, random, taylor, wanda or sparsegpt, not '" + std::string(text) + "'", "--score");
}

Status wholeGroups(const Weights &w, const Scheme &scheme) {
  if (scheme.kind != Scheme::Kind::Groups || w.depth() % scheme.rows == 0)
    return okStatus();
  return unsupportedError("its depth of " + std::to_string(w.depth()) + " is no multiple of " + std::to_string(scheme.rows));
}

Status prune(Weights &w, const Scheme &scheme, double ratio, const Scoring &scoring) {
  LATHE_RETURN_IF_ERROR(wholeGroups(w, scheme));
  LATHE_RETURN_IF_ERROR(checkNorms(w, scoring));
  const bool groups = scheme.kind == Scheme::Kind::Groups;
  const Scores scores(w, groups ? 1 : scheme.rows, groups ? 1 : scheme.columns, scoring);
  const auto all = int64_t(scores.values.size());
  auto clear = [&](const std::vector<int64_t> &order, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      if (!std::isinf(scores.values[order[i]]))
        scores.forEach(w, order[i], [&](int64_t k, int64_t n) { w.tensor.setReal(w.at(k, n), 0); });
  };
  auto share = [&](int64_t count) { return int64_t(std::llround(ratio * double(count))); };
  if (groups) { // they run along K, which is across the rows of units
    for (int64_t g = 0; g < all / scheme.rows; ++g)
      clear(scores.ordered(g / scores.across * scheme.rows * scores.across + g % scores.across, scheme.rows, scores.across),
            scheme.rows - scheme.columns);
  } else if (scoring.score == Score::Wanda) {
    const int64_t along = all / std::max<int64_t>(1, scores.across);
    for (int64_t n = 0; n < scores.across; ++n)
      clear(scores.ordered(n, along, scores.across), share(along));
  } else {
    clear(scores.ordered(0, all, 1), share(all));
  }
  return okStatus();
}

Result<std::vector<double>> meanScores(const Weights &w, const Scheme &scheme, const Scoring &scoring) {
  LATHE_RETURN_IF_ERROR(checkNorms(w, scoring));
  Scores scores(w, scheme.rows, scheme.columns, scoring);
  for (size_t u = 0; u < scores.values.size() && scoring.score != Score::Random; ++u) {
    int64_t count = 0;
    scores.forEach(w, int64_t(u), [&](int64_t, int64_t) { ++count; });
    scores.values[u] /= double(count);
  }
  return std::move(scores.values);
}

std::vector<double> ratiosOverAll(const std::vector<std::vector<double>> &scores, double ratio) {
  struct Unit {
    double score;
    size_t matrix;
  };
  std::vector<Unit> units;
  for (size_t m = 0; m < scores.size(); ++m)
    for (double score : scores[m])
      units.push_back({score, m});
  std::stable_sort(units.begin(), units.end(), [](const Unit &a, const Unit &b) { return a.score < b.score; });
  std::vector<int64_t> counts(scores.size());
  int64_t left = std::llround(ratio * double(units.size()));
  for (const Unit &unit : units)
    if (left > 0 && counts[unit.matrix] + 1 < int64_t(scores[unit.matrix].size()))
      ++counts[unit.matrix], --left;
  std::vector<double> ratios;
  for (size_t m = 0; m < scores.size(); ++m)
    ratios.push_back(scores[m].empty() ? 0 : double(counts[m]) / double(scores[m].size()));
  return ratios;
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
