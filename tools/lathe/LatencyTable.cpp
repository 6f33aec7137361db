//===- LatencyTable.cpp - measured times of layers by their forms ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LatencyTable.h"

#include <algorithm>

namespace lathe::cli {

static constexpr LatencyTable::Groups kNone = {-1, -1};

LatencyTable::Groups LatencyTable::groupsOf(const KernelTime &kernel) const {
  std::map<int, int> counts;
  for (const std::string &node : kernel.nodes)
    if (auto found = groupsOfNodes.find(node); found != groupsOfNodes.end())
      for (int group : found->second)
        ++counts[group];
  std::vector<std::pair<int, int>> order;
  for (auto [group, count] : counts)
    order.push_back({-count, group});
  std::sort(order.begin(), order.end());
  Groups groups = kNone;
  for (size_t i = 0; i < groups.size() && i < order.size(); ++i)
    groups[i] = order[i].second;
  if (groups[1] >= 0 && groups[1] < groups[0])
    std::swap(groups[0], groups[1]);
  return groups;
}

Status LatencyTable::measure(const OpenEngine &reference, const OpenEngine &engine, const std::vector<int> &forms,
                             const std::vector<HostTensor> &inputs, double seconds) {
  Profile dense(reference), other(engine);
  LATHE_RETURN_IF_ERROR(measureInTurn(dense, other, inputs, seconds));
  Measured one;
  one.forms = forms;
  one.run = other.latency(Profile::Of::Least), one.reference = dense.latency(Profile::Of::Least);
  for (const KernelTime &kernel : other.kernels(Profile::Of::Least))
    if (Groups groups = groupsOf(kernel); groups != kNone)
      one.seconds[groups] += kernel.seconds;
  measured.push_back(std::move(one));
  return okStatus();
}

std::vector<LatencyTable::Groups> LatencyTable::groups() const {
  std::set<Groups> all;
  for (const Measured &one : measured)
    for (const auto &[groups, seconds] : one.seconds)
      all.insert(groups);
  return {all.begin(), all.end()};
}

double LatencyTable::seconds(const Groups &groups, int first, int second) const {
  std::vector<double> both, either;
  for (const Measured &one : measured) {
    auto found = one.seconds.find(groups);
    const double time = found == one.seconds.end() ? 0 : found->second * scale(one);
    const bool a = one.forms[groups[0]] == first, b = groups[1] < 0 || one.forms[groups[1]] == second;
    if (a && b)
      both.push_back(time);
    if (a || b)
      either.push_back(time);
  }
  if (!both.empty())
    return median(std::move(both));
  double sum = 0;
  for (double time : either)
    sum += time / double(either.size());
  return sum;
}

double LatencyTable::rest() const {
  std::vector<double> left;
  for (const Measured &one : measured) {
    double time = one.run;
    for (const auto &[groups, seconds] : one.seconds)
      time -= seconds;
    left.push_back(std::max(0.0, time) * scale(one));
  }
  return median(std::move(left));
}

double LatencyTable::referenceSeconds() const {
  std::vector<double> runs;
  for (const Measured &one : measured)
    runs.push_back(one.reference);
  return median(std::move(runs));
}

} // namespace lathe::cli
