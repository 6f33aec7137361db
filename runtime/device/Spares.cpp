//===- Spares.cpp - memory of results that callers gave back ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Spares.h"

namespace lathe::runtime {

void Spares::added(void *memory, size_t bytes) {
  std::lock_guard lock(mutex);
  taken[memory] = bytes;
}

void *Spares::take(size_t bytes) {
  std::lock_guard lock(mutex);
  auto best = spares.end();
  for (auto it = spares.begin(); it != spares.end(); ++it)
    if (it->second >= bytes && it->second / 2 <= bytes && (best == spares.end() || it->second < best->second))
      best = it;
  if (best == spares.end())
    return nullptr;
  void *memory = best->first;
  taken[memory] = best->second;
  spares.erase(best);
  return memory;
}

std::vector<void *> Spares::give(void *memory) {
  std::lock_guard lock(mutex);
  auto known = taken.find(memory);
  if (known == taken.end())
    return {};
  spares.emplace_back(memory, known->second);
  taken.erase(known);
  size_t bytes = 0;
  for (const auto &spare : spares)
    bytes += spare.second;
  std::vector<void *> gone;
  while (spares.size() > kMost || bytes > kMostBytes) {
    bytes -= spares.front().second;
    gone.push_back(spares.front().first);
    spares.erase(spares.begin());
  }
  return gone;
}

std::vector<void *> Spares::giveUp() {
  std::lock_guard lock(mutex);
  std::vector<void *> gone;
  for (const auto &spare : spares)
    gone.push_back(spare.first);
  spares.clear();
  return gone;
}

} // namespace lathe::runtime
