//===- Lists.h - lists of tensors whose length the run knows ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sequence, or an optional, is a number inside of a program (an i64 without dimensions), as a string is: the number of
// a list here, or kAbsent. Lists do not change once they are made, so that branches and loops carry their numbers like
// any other tensor.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_HOST_LISTS_H
#define LATHE_RUNTIME_HOST_LISTS_H

#include "lathe/support/DType.h"
#include "lathe/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lathe::runtime {

/// The lists of one run of an entry; not for several threads at a time. All of them stay until clear(), those of earlier
/// iterations of a loop, too.
class Lists {
public:
  static constexpr int64_t kAbsent = -1; ///< an optional without a value

  struct Element {
    DType dtype = DType::F32;
    std::vector<int64_t> dims;
    std::shared_ptr<const std::vector<std::byte>> data; ///< dense, row-major
  };

  /// Forgets all lists.
  void clear() { lists.clear(); }
  /// The number of a list of these.
  int64_t add(std::vector<Element> elements);
  /// The number of a list with one more element ahead of place `at`, from 0 to the length. Behind the last place it takes
  /// no copy of the others, so that a loop that collects n tensors takes n steps.
  int64_t insert(int64_t list, size_t at, Element element);
  /// The number of a list without the element at a place. Without the first or the last it takes no copy of the others.
  int64_t erase(int64_t list, size_t at);
  /// Whether it is the number of a list.
  bool has(int64_t list) const { return list >= 0 && static_cast<size_t>(list) < lists.size(); }
  size_t length(int64_t list) const { return lists[list].count; }
  const Element &at(int64_t list, size_t place) const { return (*lists[list].elements)[lists[list].first + place]; }

private:
  /// `count` of elements that other lists may share.
  struct List {
    std::shared_ptr<std::vector<Element>> elements;
    size_t first = 0, count = 0;
  };
  int64_t add(List list);
  std::vector<List> lists;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_HOST_LISTS_H
