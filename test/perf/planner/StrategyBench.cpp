//===- StrategyBench.cpp - choices within memory, for strategies.py -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   lathe-strategy-bench FILE SECONDS [SEED]     searchWithinMemory() for so long
//
// FILE is what strategies.py writes, little endian: int64 ops, pairs, limit; for each op int64 first, last, choices, then
// its costs (double, infinite: impossible) and bytes (int64); for each pair int64 a, b and its costs. Prints a line
// `cost bound peak seconds` and one with the choices; exit code 1 when none were found, 2 for a bad file.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/LimitedSearch.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

using namespace lathe;
using namespace lathe::analysis;

namespace {

class Reader {
public:
  explicit Reader(const char *path) : path(path), file(path, std::ios::binary) {}
  int64_t integer() {
    int64_t value = 0;
    read(&value, 1);
    return value;
  }
  template <typename T> void read(T *values, size_t count) {
    if (!file.read(reinterpret_cast<char *>(values), std::streamsize(count * sizeof(T))))
      fail("ends too early, or cannot be read");
  }
  [[noreturn]] void fail(const char *why) const {
    std::fprintf(stderr, "%s: %s\n", path, why);
    std::exit(2);
  }

private:
  const char *path;
  std::ifstream file;
};

void load(const char *path, StrategyProblem &problem, StrategyMemory &memory) {
  Reader reader(path);
  const int64_t ops = reader.integer(), pairs = reader.integer();
  memory.limit = reader.integer();
  if (ops < 0 || pairs < 0 || ops > 10'000'000 || pairs > 10'000'000)
    reader.fail("has a number of ops or pairs that no problem has");
  for (int64_t op = 0; op < ops; ++op) {
    const int64_t first = reader.integer(), last = reader.integer(), choices = reader.integer();
    if (choices <= 0 || choices > 1'000'000)
      reader.fail("has an op with a number of choices that no op has");
    memory.lifetimes.push_back({first, last});
    reader.read(problem.costs.emplace_back(choices).data(), size_t(choices));
    reader.read(memory.bytes.emplace_back(choices).data(), size_t(choices));
  }
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t a = reader.integer(), b = reader.integer();
    if (a < 0 || b < 0 || a >= ops || b >= ops)
      reader.fail("has a pair of ops that it has not");
    std::vector<double> costs(problem.costs[a].size() * problem.costs[b].size());
    reader.read(costs.data(), costs.size());
    problem.pairs.push_back({int(a), int(b), std::move(costs)});
  }
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3 || std::atof(argv[2]) <= 0) {
    std::fprintf(stderr, "usage: lathe-strategy-bench FILE SECONDS [SEED]\n");
    return 2;
  }
  StrategyProblem problem;
  StrategyMemory memory;
  load(argv[1], problem, memory);
  const double seconds = std::atof(argv[2]);
  const auto start = std::chrono::steady_clock::now();
  auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  LimitedOptions options;
  options.seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  options.used = [&] { return spent() / seconds; };
  auto found = searchWithinMemory(problem, memory, options);
  if (!found) {
    std::fprintf(stderr, "%s\n", found.status().str().c_str());
    return 1;
  }
  std::printf("%.17g %.17g %lld %.2f\n", found->cost, found->bound, static_cast<long long>(found->peak), spent());
  for (int choice : found->choices)
    std::printf("%d ", choice);
  std::printf("\n");
}
