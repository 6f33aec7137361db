//===- CApi.cpp - the compiler's C interface ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/compiler/lathe_compiler.h"

#include "lathe/compiler/Compiler.h"

#include <cstdlib>
#include <cstring>

struct lathe_compile_error {
  lathe::Status status;
};
struct lathe_compile_options {
  lathe::CompileOptions options;
};

namespace {

lathe_compile_error *toC(lathe::Status status) {
  return status.ok() ? nullptr : new lathe_compile_error{std::move(status)};
}

const lathe::CompileOptions &optionsOf(const lathe_compile_options *options) {
  static const lathe::CompileOptions defaults;
  return options ? options->options : defaults;
}

} // namespace

int lathe_compiler_abi_version(void) { return LATHE_COMPILER_ABI_VERSION; }
const char *lathe_compiler_aten_operators(void) { return lathe::torchOperators().c_str(); }
const char *lathe_compiler_version(void) { return lathe::compilerVersion().c_str(); }

int lathe_compile_error_code(const lathe_compile_error *error) { return int(error->status.code()); }
const char *lathe_compile_error_message(const lathe_compile_error *error) {
  return error->status.message().c_str();
}
const char *lathe_compile_error_location(const lathe_compile_error *error) {
  return error->status.location().c_str();
}
void lathe_compile_error_free(lathe_compile_error *error) { delete error; }

lathe_compile_options *lathe_compile_options_create(void) { return new lathe_compile_options; }
void lathe_compile_options_destroy(lathe_compile_options *options) { delete options; }

lathe_compile_error *lathe_compile_options_add(lathe_compile_options *options, const char *name,
                                               const char *value) {
  if (!options || !name || !value)
    return toC(lathe::usageError("a pointer is null", "lathe_compile_options_add"));
  return toC(lathe::addCompileOption(options->options, name, value));
}

/// A result in memory that the caller frees.
static lathe_compile_error *toMemory(lathe::Result<lathe::CompileResult> result, const char *where,
                                     void **bytes, size_t *size) {
  if (!result)
    return toC(result.status());
  *bytes = std::malloc(result->bytes.size() + !result->bytes.size());
  if (!*bytes)
    return toC(lathe::runtimeError("out of memory", where));
  std::memcpy(*bytes, result->bytes.data(), result->bytes.size());
  *size = result->bytes.size();
  return nullptr;
}

/// The graph as the driver takes it; an error for pointers that are null.
static lathe::Result<lathe::GraphText> graphOf(const char *text, size_t size,
                                               const lathe_compile_weight *weights, size_t count,
                                               const char *where) {
  if (!text || (count && !weights))
    return lathe::usageError("a pointer is null", where);
  lathe::GraphText graph{{text, size}, {}};
  for (size_t i = 0; i < count; ++i) {
    if (!weights[i].name || (weights[i].bytes && !weights[i].data))
      return lathe::usageError("a pointer of weight " + std::to_string(i) + " is null", where);
    graph.weights.push_back(
        {weights[i].name, {static_cast<const std::byte *>(weights[i].data), weights[i].bytes}});
  }
  return graph;
}

lathe_compile_error *lathe_compile_to_file(const char *model, const lathe_compile_options *options,
                                           const char *output) {
  if (!model || !output)
    return toC(lathe::usageError("a pointer is null", "lathe_compile_to_file"));
  return toC(lathe::compileToFile(model, optionsOf(options), output).status());
}

lathe_compile_error *lathe_compile_to_memory(const char *model,
                                             const lathe_compile_options *options, void **bytes,
                                             size_t *size) {
  if (!model || !bytes || !size)
    return toC(lathe::usageError("a pointer is null", "lathe_compile_to_memory"));
  return toMemory(lathe::compileModel(model, optionsOf(options)), "lathe_compile_to_memory", bytes,
                  size);
}

lathe_compile_error *lathe_compile_graph_to_file(const char *text, size_t text_size,
                                                 const lathe_compile_weight *weights, size_t count,
                                                 const lathe_compile_options *options,
                                                 const char *output) {
  constexpr const char *where = "lathe_compile_graph_to_file";
  lathe::Result<lathe::GraphText> graph = graphOf(text, text_size, weights, count, where);
  if (!graph || !output)
    return toC(graph ? lathe::usageError("a pointer is null", where) : graph.status());
  lathe::CompileOptions all = optionsOf(options);
  all.graph = &*graph;
  return toC(lathe::compileToFile("graph", all, output).status());
}

lathe_compile_error *lathe_compile_graph_to_memory(const char *text, size_t text_size,
                                                   const lathe_compile_weight *weights,
                                                   size_t count,
                                                   const lathe_compile_options *options,
                                                   void **bytes, size_t *size) {
  constexpr const char *where = "lathe_compile_graph_to_memory";
  lathe::Result<lathe::GraphText> graph = graphOf(text, text_size, weights, count, where);
  if (!graph || !bytes || !size)
    return toC(graph ? lathe::usageError("a pointer is null", where) : graph.status());
  lathe::CompileOptions all = optionsOf(options);
  all.graph = &*graph;
  return toMemory(lathe::compileModel("graph", all), where, bytes, size);
}

void lathe_compile_free(void *bytes) { std::free(bytes); }
