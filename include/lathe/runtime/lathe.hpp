//===- lathe.hpp - the runtime from C++ -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thin wrapper over lathe.h: ownership and names, nothing else. Needs C++20; throws
// nothing of its own. Functions return a lathe::rt::Error, which is false when all went well.
//
//   lathe::rt::Engine engine;
//   lathe::rt::Context context;
//   if (auto e = engine.open("model.lathe")) return fail(e.message());
//   if (auto e = context.create(engine, "cpu")) return fail(e.message());
//   std::vector<float> x(4);
//   lathe_tensor y{};
//   if (auto e = context.run({lathe::rt::tensor(x, dims)}, {&y, 1})) return fail(e.message());
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_LATHE_HPP
#define LATHE_RUNTIME_LATHE_HPP

#include "lathe/runtime/lathe.h"

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lathe::rt {

/// Success (false) or an error (true).
class [[nodiscard]] Error {
public:
  Error() = default;
  explicit Error(lathe_error *e) : held(e) {}
  explicit operator bool() const { return held != nullptr; }
  lathe_code code() const { return lathe_error_code(held.get()); }
  /// "<location>: <message>"
  std::string message() const {
    std::string where = lathe_error_location(held.get());
    return (where.empty() ? "" : where + ": ") + lathe_error_message(held.get());
  }

private:
  struct Free {
    void operator()(lathe_error *e) const { lathe_error_free(e); }
  };
  std::unique_ptr<lathe_error, Free> held;
};

template <typename T> struct DTypeOf;
#define LATHE_DTYPE_OF(type, number)                                                             \
  template <> struct DTypeOf<type> {                                                             \
    static constexpr lathe_dtype value = number;                                                 \
  }
LATHE_DTYPE_OF(bool, LATHE_BOOL);
LATHE_DTYPE_OF(int8_t, LATHE_I8);
LATHE_DTYPE_OF(int16_t, LATHE_I16);
LATHE_DTYPE_OF(int32_t, LATHE_I32);
LATHE_DTYPE_OF(int64_t, LATHE_I64);
LATHE_DTYPE_OF(uint8_t, LATHE_UI8);
LATHE_DTYPE_OF(uint16_t, LATHE_UI16);
LATHE_DTYPE_OF(uint32_t, LATHE_UI32);
LATHE_DTYPE_OF(uint64_t, LATHE_UI64);
LATHE_DTYPE_OF(float, LATHE_F32);
LATHE_DTYPE_OF(double, LATHE_F64);
#undef LATHE_DTYPE_OF

/// A row-major host tensor over the caller's memory; `data` and `dims` must outlive it.
template <typename T> lathe_tensor tensor(std::span<T> data, std::span<const int64_t> dims) {
  using Element = std::remove_const_t<T>;
  return {const_cast<Element *>(data.data()),
          data.size_bytes(),
          DTypeOf<Element>::value,
          LATHE_HOST,
          static_cast<int32_t>(dims.size()),
          dims.data(),
          nullptr};
}
template <typename T> lathe_tensor tensor(std::vector<T> &data, const std::vector<int64_t> &dims) {
  return tensor(std::span<T>(data), std::span<const int64_t>(dims));
}

/// Strings (UTF-8) for an input, packed as lathe.h has them; must outlive the tensor.
class Strings {
public:
  /// As many texts as `dims` have elements, row-major.
  Strings(const std::vector<std::string> &texts, std::vector<int64_t> dims) : dims(std::move(dims)) {
    std::vector<int64_t> offsets(texts.size() + 1);
    for (size_t i = 0; i < texts.size(); ++i)
      offsets[i + 1] = offsets[i] + static_cast<int64_t>(texts[i].size());
    packed.assign(reinterpret_cast<const char *>(offsets.data()), offsets.size() * sizeof(int64_t));
    for (const std::string &text : texts)
      packed += text;
  }
  lathe_tensor tensor() const {
    return {const_cast<char *>(packed.data()),
            packed.size(),
            LATHE_STRING,
            LATHE_HOST,
            static_cast<int32_t>(dims.size()),
            dims.data(),
            nullptr};
  }

private:
  std::vector<int64_t> dims;
  std::string packed;
};

/// Copies of the strings of a result.
inline Error strings(const lathe_tensor &tensor, std::vector<std::string> &texts) {
  uint64_t count = 1;
  for (int32_t i = 0; i < tensor.rank; ++i)
    count *= static_cast<uint64_t>(tensor.dims[i]);
  texts.clear();
  for (uint64_t i = 0; i < count; ++i) {
    const char *text = nullptr;
    uint64_t length = 0;
    if (Error e{lathe_string_at(&tensor, i, &text, &length)})
      return e;
    texts.emplace_back(text, length);
  }
  return {};
}

/// A list of tensors of the host as an input: the parts x[] and x[].shapes.
class List {
public:
  /// `tensors` are copied.
  Error pack(std::span<const lathe_tensor> tensors, lathe_dtype dtype) {
    values = {nullptr, 0, dtype, LATHE_HOST, 1, &elements, nullptr};
    shapes = {nullptr, 0, LATHE_I64, LATHE_HOST, 2, rows, nullptr};
    if (Error e{lathe_list_pack(tensors.data(), tensors.size(), &values, &shapes)})
      return e;
    const int64_t one[] = {1};
    const uint64_t size = lathe_tensor_bytes(dtype, 1, one);
    elements = static_cast<int64_t>(size ? values.bytes / size : 0);
    rows[0] = static_cast<int64_t>(tensors.size());
    rows[1] = rows[0] ? static_cast<int64_t>(shapes.bytes / sizeof(int64_t)) / rows[0] : 1;
    memory.assign((values.bytes + shapes.bytes) / sizeof(int64_t) + 2, 0);
    shapes.data = memory.data();
    values.data = memory.data() + shapes.bytes / sizeof(int64_t);
    return Error(lathe_list_pack(tensors.data(), tensors.size(), &values, &shapes));
  }
  List() = default;
  List(const List &) = delete; // `values` and `shapes` point into it

  lathe_tensor values{}, shapes{};

private:
  int64_t elements = 0, rows[2] = {0, 1};
  std::vector<int64_t> memory;
};

class Engine {
public:
  /// `keyRing`: a file of public keys, one of which must have signed the engine; "": any is taken.
  Error open(const std::string &path, const std::string &keyRing = "") {
    lathe_engine *e = nullptr;
    lathe_open_options options = trusting(keyRing);
    Error error(lathe_engine_open_with(path.c_str(), &options, &e));
    held.reset(e);
    return error;
  }
  Error openMemory(std::span<const std::byte> bytes, const std::string &keyRing = "") {
    lathe_engine *e = nullptr;
    lathe_open_options options = trusting(keyRing);
    Error error(lathe_engine_open_memory_with(bytes.data(), bytes.size(), &options, &e));
    held.reset(e);
    return error;
  }
  const lathe_engine *get() const { return held.get(); }

private:
  static lathe_open_options trusting(const std::string &keyRing) {
    return {sizeof(lathe_open_options), keyRing.empty() ? nullptr : keyRing.c_str()};
  }
  struct Close {
    void operator()(lathe_engine *e) const { lathe_engine_close(e); }
  };
  std::unique_ptr<lathe_engine, Close> held;
};

class Context {
public:
  Error create(const Engine &engine, const std::string &device = "cpu", int threads = 0) {
    lathe_options options{};
    options.size = sizeof options;
    options.threads = threads;
    return create(engine, device, options);
  }
  Error create(const Engine &engine, const std::string &device, const lathe_options &options) {
    lathe_context *c = nullptr;
    Error error(lathe_context_create(engine.get(), device.c_str(), &options, &c));
    held.reset(c);
    return error;
  }
  /// Runs `entry` ("" for the first).
  Error run(const std::string &entry, std::span<const lathe_tensor> inputs,
            std::span<lathe_tensor> outputs) {
    return Error(lathe_run(held.get(), entry.c_str(), inputs.data(), inputs.size(),
                           outputs.data(), outputs.size()));
  }
  Error run(std::initializer_list<lathe_tensor> inputs, std::span<lathe_tensor> outputs) {
    return Error(lathe_run(held.get(), nullptr, inputs.begin(), inputs.size(), outputs.data(),
                           outputs.size()));
  }
  /// As lathe_submit(): `outputs` stay the step's until wait().
  Error submit(const std::string &entry, std::span<const lathe_tensor> inputs,
               std::span<lathe_tensor> outputs, uint64_t &step,
               const lathe_submit_options *options = nullptr) {
    return Error(lathe_submit(held.get(), entry.c_str(), inputs.data(), inputs.size(),
                              outputs.data(), outputs.size(), options, &step));
  }
  /// CUDA: steps that start from now on begin behind what this CUstream has to do by now.
  Error waitFor(void *stream) { return Error(lathe_context_wait_for(held.get(), stream)); }
  /// Step 0: the last; a negative time: the context's deadline.
  Error wait(uint64_t step = 0, int64_t nanoseconds = -1) {
    return Error(lathe_wait(held.get(), step, nanoseconds));
  }
  /// Whether the step has ended.
  Error poll(uint64_t step, bool &ended) {
    int value = 0;
    Error error(lathe_poll(held.get(), step, &value));
    ended = value != 0;
    return error;
  }
  void cancel(uint64_t step = 0) { lathe_cancel(held.get(), step); }
  Error warm(const std::string &entry, std::span<const lathe_tensor> inputs,
             std::span<const lathe_tensor> outputs) {
    return Error(lathe_warm(held.get(), entry.c_str(), inputs.data(), inputs.size(),
                            outputs.data(), outputs.size()));
  }
  Error truncate(const std::string &state, int64_t length) {
    return Error(lathe_state_truncate(held.get(), state.c_str(), length));
  }
  Error reset() { return Error(lathe_state_reset(held.get(), nullptr)); }
  Error seed(uint64_t value) { return Error(lathe_context_seed(held.get(), value)); }
  lathe_counters counters() const {
    lathe_counters c;
    lathe_context_counters(held.get(), &c);
    return c;
  }
  lathe_context *get() const { return held.get(); }

private:
  struct Destroy {
    void operator()(lathe_context *c) const { lathe_context_destroy(c); }
  };
  std::unique_ptr<lathe_context, Destroy> held;
};

/// One engine on several devices; as lathe_group_*().
class Group {
public:
  Error create(const Engine &engine, const std::vector<std::string> &devices,
               const lathe_options &options) {
    std::vector<const char *> names;
    for (const std::string &d : devices)
      names.push_back(d.c_str());
    lathe_group *g = nullptr;
    Error error(lathe_group_create(engine.get(), names.data(), names.size(), &options, &g));
    held.reset(g);
    return error;
  }
  /// Tensors of the first device, then of the second, and so on.
  Error submit(const std::string &entry, std::span<const lathe_tensor> inputs,
               std::span<lathe_tensor> outputs, uint64_t &step) {
    size_t n = lathe_group_size(held.get());
    return Error(lathe_group_submit(held.get(), entry.c_str(), inputs.data(), inputs.size() / n,
                                    outputs.data(), outputs.size() / n, &step));
  }
  Error wait(uint64_t step = 0, int64_t nanoseconds = -1) {
    return Error(lathe_group_wait(held.get(), step, nanoseconds));
  }
  void cancel(uint64_t step = 0) { lathe_group_cancel(held.get(), step); }
  lathe_context *member(size_t i) const { return lathe_group_member(held.get(), i); }
  lathe_group *get() const { return held.get(); }

private:
  struct Destroy {
    void operator()(lathe_group *g) const { lathe_group_destroy(g); }
  };
  std::unique_ptr<lathe_group, Destroy> held;
};

} // namespace lathe::rt

#endif // LATHE_RUNTIME_LATHE_HPP
