//===- Strings.h - tensors of strings --------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The data of a tensor of strings, as lathe/runtime/lathe.h has them too: count + 1 offsets (int64_t, rising
// from 0), then the bytes that they divide.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_STRINGS_H
#define LATHE_SUPPORT_STRINGS_H

#include "lathe/support/HostTensor.h"

#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// `texts` in row-major order; `dims` must have passed checkedElementCount, and as many texts are given.
HostTensor stringTensor(std::vector<int64_t> dims, const std::vector<std::string> &texts);

/// The strings of a tensor, in its memory. Invalid when the data are not packed as above.
Result<std::vector<std::string_view>> stringsOf(const HostTensor &tensor);

/// Appends a character; false, and nothing, for what is none (a surrogate, above U+10FFFF).
bool appendUtf8(std::string &text, uint32_t character);
/// The characters of a text; none where it is no well-formed UTF-8.
std::optional<std::u32string> charactersOf(std::string_view text);

/// The text in quotes, with what cannot be printed as escapes, cut behind `most` bytes: for people.
std::string quoted(std::string_view text, size_t most = 60);

} // namespace lathe

#endif // LATHE_SUPPORT_STRINGS_H
