//===- HostLibrary.h - liblathe_host.so, opened where it is named -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops on strings and images need libraries that most engines have no use for: they are in a library of
// their own, which is opened by engines that name one of its ops or have strings for inputs and outputs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_HOST_HOSTLIBRARY_H
#define LATHE_RUNTIME_HOST_HOSTLIBRARY_H

#include "HostAbi.h"
#include "HostOps.h"

#include <memory>

namespace lathe::runtime {

/// Whether an op of a plan is one of the library's: they have a dot in their names, "string.concat".
inline bool isOfHostLibrary(const std::string &op) { return op.find('.') != std::string::npos; }

class HostLibrary {
public:
  /// The file that the environment's LATHE_HOST_LIBRARY names; else liblathe_host.so beside the file that
  /// this code is in, in the folder ../lib from there, or where the system finds it. Unsupported where
  /// there is none, with what was looked for.
  static Result<std::shared_ptr<const HostLibrary>> open();
  ~HostLibrary();
  HostLibrary(const HostLibrary &) = delete;

  /// Null for an unknown name.
  LatheHostOp find(const std::string &name) const { return api->find(name.c_str()); }
  const LatheHostLibrary &functions() const { return *api; }

private:
  HostLibrary() = default;
  void *handle = nullptr;
  const LatheHostLibrary *api = nullptr;
};

/// The strings of a context's runs of an entry; see LatheStrings.
class Strings {
public:
  static Result<std::unique_ptr<Strings>> create(std::shared_ptr<const HostLibrary> library,
                                                 const std::vector<std::string> &constants);
  ~Strings();
  Strings(const Strings &) = delete;

  void beginRun() { library->functions().beginRun(strings); }
  /// `numbers` has room for `count`. Invalid UTF-8 and offsets that do not rise are Usage errors.
  Status number(const void *packed, uint64_t bytes, int64_t count, int64_t *numbers);
  Result<uint64_t> packedBytes(const int64_t *numbers, int64_t count) const;
  void pack(const int64_t *numbers, int64_t count, void *packed) const {
    library->functions().pack(strings, numbers, count, packed);
  }
  Status call(LatheHostOp op, const HostCall &call);

private:
  Strings() = default;
  std::shared_ptr<const HostLibrary> library;
  LatheStrings *strings = nullptr;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_HOST_HOSTLIBRARY_H
