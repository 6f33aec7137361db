//===- Lists.cpp - lists of tensors whose length the run knows --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Lists.h"

namespace lathe::runtime {

int64_t Lists::add(List list) {
  lists.push_back(std::move(list));
  return static_cast<int64_t>(lists.size()) - 1;
}

int64_t Lists::add(std::vector<Element> elements) {
  size_t count = elements.size();
  return add(List{std::make_shared<std::vector<Element>>(std::move(elements)), 0, count});
}

int64_t Lists::insert(int64_t list, size_t at, Element element) {
  List old = lists[list]; // a copy: the vector may move
  if (at == old.count && old.elements->size() == old.first + old.count) {
    old.elements->push_back(std::move(element));
    return add(List{std::move(old.elements), old.first, old.count + 1});
  }
  auto from = old.elements->begin() + static_cast<ptrdiff_t>(old.first);
  std::vector<Element> elements(from, from + static_cast<ptrdiff_t>(old.count));
  elements.insert(elements.begin() + static_cast<ptrdiff_t>(at), std::move(element));
  return add(std::move(elements));
}

int64_t Lists::erase(int64_t list, size_t at) {
  List old = lists[list];
  if (at == 0 || at + 1 == old.count)
    return add(List{std::move(old.elements), old.first + (at + 1 == old.count ? 0 : 1), old.count - 1});
  auto from = old.elements->begin() + static_cast<ptrdiff_t>(old.first);
  std::vector<Element> elements(from, from + static_cast<ptrdiff_t>(old.count));
  elements.erase(elements.begin() + static_cast<ptrdiff_t>(at));
  return add(std::move(elements));
}

} // namespace lathe::runtime
