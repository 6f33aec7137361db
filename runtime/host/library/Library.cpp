//===- Library.cpp - what liblathe_host.so shows ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   string.concat(x, y) -> z               operands of the result's size
//   string.full_match(x) {pattern} -> y     bool; RE2's syntax
//   string.split_counts(x) {delimiter, maxsplit} -> n, most
//   string.split(x) {delimiter, maxsplit} -> y   [sizes of x, most], "" behind the parts of each
//   string.normalize(x, stopwords?) {case: NONE|LOWER|UPPER, case_sensitive} -> y, count
//                                          x without stopwords, in front; one "" where none is left
//   string.rank(x) -> y                    how many different strings of x come before it, by code points
//   string.parse(x) -> y                   a number, or bool
//   string.format(x) -> y                  the text of a number
//   image.size(x) -> height, width         x: ui8, an encoded image
//   image.decode(x) {pixel_format: RGB|BGR|Grayscale} -> y   ui8 [height, width, channels]
//
// x, y and z are i64, numbers of strings, where nothing else is said. The dot tells these ops from the runtime's own.
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "StringTable.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace lathe::host {
namespace {

void report(LatheHostError *error, ErrorCode code, std::string_view message) {
  error->code = static_cast<int32_t>(code);
  size_t size = std::min(message.size(), sizeof error->message - 1);
  std::memcpy(error->message, message.data(), size);
  error->message[size] = 0;
}

/// Runs `body` behind a barrier for exceptions.
template <typename F> void guarded(LatheHostError *error, F body) {
  try {
    body();
  } catch (const Failure &failure) {
    report(error, failure.code, failure.message);
  } catch (const std::bad_alloc &) {
    report(error, ErrorCode::RuntimeFailure, "out of memory");
  } catch (const std::exception &e) {
    report(error, ErrorCode::Internal, e.what());
  }
}

template <void (*op)(const Call &)> void entry(const LatheHostCall *call) {
  guarded(call->error, [&] { op(Call(*call)); });
}

struct Row {
  const char *name;
  LatheHostOp op;
};
constexpr Row kOps[] = {
    {"string.concat", entry<stringConcat>},
    {"string.full_match", entry<regexFullMatch>},
    {"string.split_counts", entry<stringSplitCounts>},
    {"string.split", entry<stringSplit>},
    {"string.token_counts", entry<stringTokenCounts>},
    {"string.tokenize", entry<stringTokenize>},
    {"string.normalize", entry<stringNormalize>},
    {"string.rank", entry<stringRank>},
    {"string.parse", entry<stringParse>},
    {"string.format", entry<stringFormat>},
    {"image.size", entry<imageSize>},
    {"image.decode", entry<imageDecode>},
};

LatheHostOp findOp(const char *name) {
  for (const Row &row : kOps)
    if (std::strcmp(row.name, name) == 0)
      return row.op;
  return nullptr;
}

LatheStrings *makeStrings(const char *const *texts, const size_t *sizes, size_t count, LatheHostError *error) {
  LatheStrings *made = nullptr;
  guarded(error, [&] {
    std::vector<std::string_view> constants;
    for (size_t i = 0; i < count; ++i)
      constants.emplace_back(texts[i], sizes[i]);
    made = new LatheStrings(constants);
  });
  return made;
}

uint64_t packedBytes(const LatheStrings *strings, const int64_t *numbers, int64_t count, LatheHostError *error) {
  uint64_t bytes = 0;
  guarded(error, [&] { bytes = strings->packedBytes({numbers, static_cast<size_t>(count)}); });
  return bytes;
}

constexpr LatheHostLibrary kLibrary = {
    LATHE_HOST_ABI,
    findOp,
    makeStrings,
    [](LatheStrings *strings) { delete strings; },
    [](LatheStrings *strings) { strings->beginRun(); },
    [](LatheStrings *strings, const void *packed, uint64_t bytes, int64_t count, int64_t *numbers,
       LatheHostError *error) {
      guarded(error, [&] {
        strings->unpack(packed, bytes, {numbers, static_cast<size_t>(count)});
      });
    },
    packedBytes,
    [](const LatheStrings *strings, const int64_t *numbers, int64_t count, void *packed) {
      strings->pack({numbers, static_cast<size_t>(count)}, packed);
    },
};

} // namespace

size_t Call::count(const LatheHostTensor &t) {
  int64_t n = 1;
  for (int32_t i = 0; i < t.rank; ++i)
    if (__builtin_mul_overflow(n, t.dims[i], &n))
      return 0; // only an empty tensor can have such sizes
  return static_cast<size_t>(n);
}

const LatheHostTensor &Call::tensor(const LatheHostTensor *list, size_t count, size_t i, std::optional<DType> type) {
  if (i >= count || (type && list[i].dtype != static_cast<int32_t>(*type)))
    fail("wrong number or type of operands", ErrorCode::Invalid);
  return list[i];
}

const LatheHostAttribute *Call::find(std::string_view name) const {
  for (size_t i = 0; i < call.attributeCount; ++i)
    if (call.attributes[i].name == name)
      return &call.attributes[i];
  return nullptr;
}

std::string_view Call::text(std::string_view name) const {
  const LatheHostAttribute *found = find(name);
  return found ? std::string_view(found->text, found->textSize) : std::string_view();
}

int64_t Call::integer(std::string_view name, int64_t otherwise) const {
  const LatheHostAttribute *found = find(name);
  return found && found->intCount ? found->ints[0] : otherwise;
}

} // namespace lathe::host

extern "C" __attribute__((visibility("default"))) const LatheHostLibrary *lathe_host_library(void) {
  return &lathe::host::kLibrary;
}
