//===- HostLibrary.cpp - liblathe_host.so, opened where it is named -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HostLibrary.h"

#include "lathe/support/CodeFile.h"

#include <cstdlib>
#include <dlfcn.h>

namespace lathe::runtime {
namespace {

constexpr const char *kFile = "liblathe_host.so";

Status statusOf(const LatheHostError &error) {
  return error.code ? Status(static_cast<ErrorCode>(error.code), error.message) : okStatus();
}

/// Where the library may be, in the order in which that is tried.
std::vector<std::string> places() {
  if (const char *named = std::getenv("LATHE_HOST_LIBRARY"))
    return {named};
  std::vector<std::string> list;
  if (std::string folder = fileOfCode(reinterpret_cast<const void *>(&places)); !folder.empty()) {
    folder.resize(folder.rfind('/') + 1);
    list.push_back(folder + kFile);
    list.push_back(folder + "../lib/" + kFile);
  }
  list.push_back(kFile);
  return list;
}

} // namespace

Result<std::shared_ptr<const HostLibrary>> HostLibrary::open() {
  std::string why;
  for (const std::string &place : places()) {
    void *handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      why += std::string(why.empty() ? "" : "; ") + dlerror();
      continue;
    }
    std::shared_ptr<HostLibrary> library(new HostLibrary());
    library->handle = handle;
    auto entry = reinterpret_cast<decltype(&lathe_host_library)>(dlsym(handle, "lathe_host_library"));
    library->api = entry ? entry() : nullptr;
    if (library->api && library->api->abi == LATHE_HOST_ABI)
      return std::shared_ptr<const HostLibrary>(std::move(library));
    why += (why.empty() ? "" : "; ") + place + " belongs to another version of the runtime";
  }
  return unsupportedError("strings and images need " + std::string(kFile) + ", which cannot be opened: " + why);
}

HostLibrary::~HostLibrary() {
  if (handle)
    dlclose(handle);
}

Result<std::unique_ptr<Strings>> Strings::create(std::shared_ptr<const HostLibrary> library,
                                                 const std::vector<std::string> &constants) {
  std::vector<const char *> texts;
  std::vector<size_t> sizes;
  for (const std::string &text : constants) {
    texts.push_back(text.data());
    sizes.push_back(text.size());
  }
  std::unique_ptr<Strings> made(new Strings());
  made->library = std::move(library);
  LatheHostError error{};
  made->strings = made->library->functions().makeStrings(texts.data(), sizes.data(), texts.size(), &error);
  LATHE_RETURN_IF_ERROR(statusOf(error));
  return made;
}

Strings::~Strings() {
  if (strings)
    library->functions().freeStrings(strings);
}

Status Strings::number(const void *packed, uint64_t bytes, int64_t count, int64_t *numbers) {
  LatheHostError error{};
  library->functions().numberAll(strings, packed, bytes, count, numbers, &error);
  return statusOf(error);
}

Result<uint64_t> Strings::packedBytes(const int64_t *numbers, int64_t count) const {
  LatheHostError error{};
  uint64_t bytes = library->functions().packedBytes(strings, numbers, count, &error);
  LATHE_RETURN_IF_ERROR(statusOf(error));
  return bytes;
}

Status Strings::call(LatheHostOp op, const HostCall &call) {
  std::vector<LatheHostTensor> in, out;
  for (auto [views, list] : {std::pair(call.inputs, &in), std::pair(call.outputs, &out)})
    for (const HostView &view : views)
      list->push_back({view.data, static_cast<int32_t>(view.dtype), static_cast<int32_t>(view.dims.size()),
                       view.dims.data()});
  std::vector<LatheHostAttribute> attributes;
  for (const engine::Attribute &a : call.attributes)
    attributes.push_back({a.name.c_str(), a.ints.data(), a.ints.size(), a.text.data(), a.text.size()});
  LatheHostError error{};
  LatheHostCall made{in.data(), in.size(),         out.data(), out.size(), attributes.data(),
                     attributes.size(), strings, &error};
  op(&made);
  return statusOf(error);
}

} // namespace lathe::runtime
