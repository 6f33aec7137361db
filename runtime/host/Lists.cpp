//===- Lists.cpp - lists of tensors whose length the run knows --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Lists.h"

namespace lathe::runtime {

int64_t Lists::add(std::vector<Element> elements) {
  size_t count = elements.size();
  lists.push_back({std::make_shared<std::vector<Element>>(std::move(elements)), count});
  return static_cast<int64_t>(lists.size()) - 1;
}

int64_t Lists::insert(int64_t list, size_t at, Element element) {
  List old = lists[list]; // a copy: the vector may move
  if (at == old.count && old.elements->size() == old.count) {
    old.elements->push_back(std::move(element));
    lists.push_back({std::move(old.elements), old.count + 1});
    return static_cast<int64_t>(lists.size()) - 1;
  }
  auto from = old.elements->begin();
  std::vector<Element> elements(from, from + static_cast<ptrdiff_t>(old.count));
  elements.insert(elements.begin() + static_cast<ptrdiff_t>(at), std::move(element));
  return add(std::move(elements));
}

} // namespace lathe::runtime
