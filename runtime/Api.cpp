//===- Api.cpp - the C interface --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Translates lathe.h to the classes of exec. No exception leaves a function: the only
// ones possible are the standard library's, out of memory above all.
//
//===----------------------------------------------------------------------===//

#include "Handles.h"
#include "exec/Context.h"
#include "exec/Group.h"
#include "exec/Layout.h"
#include "lathe/engine/Draws.h"
#include "lathe/runtime/lathe.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

using namespace lathe;
using namespace lathe::runtime;

static_assert(static_cast<int>(DType::C128) == LATHE_C128 && static_cast<int>(DType::String) == LATHE_STRING &&
              static_cast<int>(DType::F8E8M0) == LATHE_F8E8M0 &&
              static_cast<int>(DType::F32) == LATHE_F32);
static_assert(static_cast<int>(ErrorCode::Deadline) == LATHE_DEADLINE &&
              static_cast<int>(ErrorCode::Cancelled) == LATHE_CANCELLED &&
              static_cast<int>(ErrorCode::PeerLost) == LATHE_PEER_LOST);

namespace {

struct PortList {
  std::vector<lathe_port> ports;
  std::vector<std::vector<std::string>> texts;
  std::vector<std::vector<const char *>> dims;
};

struct EntryInfo {
  PortList inputs, outputs;
  std::vector<lathe_symbol> symbols;
};

PortList describe(std::span<const engine::Port> ports) {
  PortList out;
  for (const engine::Port &p : ports) {
    std::vector<std::string> texts;
    for (const DimExpr &d : p.dims)
      texts.push_back(d.str());
    out.texts.push_back(std::move(texts));
  }
  for (const auto &texts : out.texts) {
    std::vector<const char *> dims;
    for (const std::string &t : texts)
      dims.push_back(t.c_str());
    out.dims.push_back(std::move(dims));
  }
  for (size_t i = 0; i < ports.size(); ++i)
    out.ports.push_back({ports[i].name.c_str(), static_cast<lathe_dtype>(ports[i].dtype),
                         static_cast<int32_t>(ports[i].dims.size()), out.dims[i].data(),
                         ports[i].donatedTo});
  return out;
}

} // namespace

struct lathe_engine {
  std::shared_ptr<const Engine> engine;
  std::map<std::string, EntryInfo> entries;

  const EntryInfo *entry(const char *name) const {
    auto it = entries.find(name && *name ? name : engine->entries().front());
    return it == entries.end() ? nullptr : &it->second;
  }
};

std::shared_ptr<const Engine> lathe::runtime::engineOf(const lathe_engine *handle) { return handle->engine; }

struct lathe_context {
  std::shared_ptr<Context> context;
  bool owned = true; ///< by its maker; otherwise by a group
};

const std::shared_ptr<Context> &lathe::runtime::contextOf(const lathe_context *handle) { return handle->context; }

struct lathe_group {
  std::unique_ptr<Group> group;
  std::vector<std::unique_ptr<lathe_context>> members;
};

namespace {

Status openEngine(Result<std::shared_ptr<const engine::EngineReader>> reader, lathe_engine **out) {
  if (!reader)
    return reader.status();
  Result<std::shared_ptr<const Engine>> opened = Engine::open(std::move(*reader));
  if (!opened)
    return opened.status();
  auto result = std::make_unique<lathe_engine>();
  result->engine = *opened;
  for (const std::string &name : result->engine->entries()) {
    const engine::Plan &plan = result->engine->program(name)->plan;
    EntryInfo &info = result->entries[name];
    info.inputs = describe({plan.inputs.data(), engine::givenInputs(plan)});
    info.outputs = describe(plan.outputs);
    for (const engine::Symbol &s : plan.symbols)
      info.symbols.push_back({s.name.c_str(), s.min, s.max, s.opt, s.multipleOf});
  }
  *out = result.release();
  return okStatus();
}

const char *nameAt(const std::vector<std::string> &list, size_t i) {
  return i < list.size() ? list[i].c_str() : nullptr;
}
template <typename T> const T *at(const std::vector<T> *list, size_t i) {
  return list && i < list->size() ? &(*list)[i] : nullptr;
}
std::string text(const char *s) { return s ? s : ""; }

} // namespace

int lathe_abi_version(void) { return LATHE_ABI_VERSION; }

lathe_code lathe_error_code(const lathe_error *e) {
  return e ? static_cast<lathe_code>(e->status.code()) : LATHE_OK;
}
const char *lathe_error_message(const lathe_error *e) {
  return e ? e->status.message().c_str() : "";
}
const char *lathe_error_location(const lathe_error *e) {
  return e ? e->status.location().c_str() : "";
}
void lathe_error_free(lathe_error *e) { delete e; }

uint64_t lathe_tensor_bytes(lathe_dtype dtype, int32_t rank, const int64_t *dims) {
  if (!lathe_dtype_name(dtype) || rank < 0 || rank > LATHE_MAX_RANK || (rank > 0 && !dims))
    return 0;
  for (int32_t i = 0; i < rank; ++i)
    if (dims[i] < 0)
      return 0;
  Result<int64_t> bytes =
      denseBytes(static_cast<DType>(dtype), std::vector<int64_t>(dims, dims + rank), "tensor");
  return bytes ? static_cast<uint64_t>(*bytes) : 0;
}

uint64_t lathe_fingerprint(const lathe_tensor *tensors, size_t count) {
  constexpr uint64_t kLine = 64, kLines = 4, kMix = 0x9e3779b97f4a7c15;
  uint64_t lanes[kLine / 8] = {}; // independent sums, so that one does not wait for another's product
  auto add = [&](const char *from, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, from + at, std::min<uint64_t>(8, bytes - at));
      uint64_t &lane = lanes[at / 8 % std::size(lanes)];
      lane = (lane ^ word) * kMix;
      lane ^= lane >> 29;
    }
  };
  for (const lathe_tensor &tensor : std::span(tensors, count)) {
    auto *from = static_cast<const char *>(tensor.data);
    if (tensor.bytes <= kLine * kLines)
      add(from, from ? tensor.bytes : 0);
    else
      for (uint64_t line = 0; line < kLines; ++line)
        add(from + (tensor.bytes - kLine) / (kLines - 1) * line, kLine);
  }
  uint64_t sum = 0;
  for (uint64_t lane : lanes)
    sum = (sum ^ lane) * kMix;
  return sum ^ sum >> 32;
}

const char *lathe_dtype_name(lathe_dtype dtype) {
  if (static_cast<unsigned>(dtype) > LATHE_STRING)
    return nullptr;
  return name(static_cast<DType>(dtype)).data(); // names are literals
}

/// Bytes of a dense tensor; none for strings, elements of less than a byte, and sizes that are absent or overflow.
static std::optional<uint64_t> listedBytes(const lathe_tensor &t) {
  if (t.dtype == LATHE_STRING || static_cast<unsigned>(t.dtype) > LATHE_STRING || bitWidth(static_cast<DType>(t.dtype)) < 8 ||
      t.rank < 0 || t.rank > LATHE_MAX_RANK || (t.rank > 0 && !t.dims))
    return std::nullopt;
  uint64_t bytes = bitWidth(static_cast<DType>(t.dtype)) / 8;
  for (int32_t a = 0; a < t.rank; ++a)
    if (t.dims[a] < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(t.dims[a]), &bytes))
      return std::nullopt;
  return bytes;
}

lathe_error *lathe_list_pack(const lathe_tensor *tensors, size_t count, lathe_tensor *values, lathe_tensor *shapes) {
  return guarded([&]() -> Status {
    if (!values || !shapes || (count && !tensors))
      return usageError("lathe_list_pack: a pointer is NULL");
    uint64_t total = 0;
    int64_t columns = 1;
    for (size_t i = 0; i < count; ++i) {
      const lathe_tensor &t = tensors[i];
      std::optional<uint64_t> bytes = listedBytes(t);
      if (!bytes || t.dtype != values->dtype || t.strides || t.memory != LATHE_HOST || (*bytes && !t.data) || t.bytes < *bytes ||
          __builtin_add_overflow(total, *bytes, &total))
        return usageError("lathe_list_pack: is no row-major tensor, in the host's memory, of the list's element type",
                          "tensor " + std::to_string(i));
      columns = std::max<int64_t>(columns, 1 + t.rank);
    }
    const uint64_t rows = count * static_cast<uint64_t>(columns) * sizeof(int64_t);
    if (values->memory != LATHE_HOST || shapes->memory != LATHE_HOST)
      return usageError("lathe_list_pack: the parts are to be in the host's memory");
    const uint64_t room[] = {values->data ? values->bytes : 0, shapes->data ? shapes->bytes : 0};
    values->bytes = total;
    shapes->bytes = rows;
    if (!values->data && !shapes->data)
      return okStatus();
    if (room[0] < total || room[1] < rows)
      return usageError("lathe_list_pack: takes " + std::to_string(total) + " and " + std::to_string(rows) + " bytes");
    auto *next = static_cast<char *>(values->data);
    auto *row = static_cast<int64_t *>(shapes->data);
    for (size_t i = 0; i < count; ++i, row += columns) {
      const uint64_t bytes = *listedBytes(tensors[i]);
      if (bytes)
        std::memcpy(next, tensors[i].data, bytes);
      next += bytes;
      std::fill_n(row, columns, 0);
      row[0] = tensors[i].rank;
      std::copy_n(tensors[i].dims, tensors[i].rank, row + 1);
    }
    return okStatus();
  });
}

lathe_error *lathe_list_at(const lathe_tensor *values, const lathe_tensor *shapes, uint64_t index, lathe_tensor *out) {
  return guarded([&]() -> Status {
    if (!values || !shapes || !out)
      return usageError("lathe_list_at: a pointer is NULL");
    const std::optional<uint64_t> room = listedBytes(*values), rows = listedBytes(*shapes);
    if (!room || !rows || shapes->dtype != LATHE_I64 || shapes->rank != 2 || shapes->dims[1] < 1 || values->rank != 1)
      return usageError("lathe_list_at: no values [E] and shapes [N, 1 + rank] of a list");
    // A discarded output has sizes alone.
    for (auto [part, bytes] : {std::pair(values, *room), std::pair(shapes, *rows)})
      if (part->memory != LATHE_HOST || part->strides || part->bytes < bytes || (bytes && !part->data))
        return usageError("lathe_list_at: a part is not in the host's memory, row-major and whole");
    if (static_cast<int64_t>(index) < 0 || static_cast<int64_t>(index) >= shapes->dims[0])
      return usageError("lathe_list_at: there is no tensor " + std::to_string(index));
    uint64_t begin = 0, size = 0;
    const auto *row = static_cast<const int64_t *>(shapes->data);
    for (uint64_t i = 0; i <= index; ++i, row += shapes->dims[1]) {
      begin += size;
      if (row[0] < 0 || row[0] >= shapes->dims[1])
        return usageError("lathe_list_at: the rank of tensor " + std::to_string(i) + " is out of range");
      *out = {nullptr, 0, values->dtype, values->memory, static_cast<int32_t>(row[0]), row + 1, nullptr};
      std::optional<uint64_t> bytes = listedBytes(*out);
      if (!bytes || *bytes > *room - begin)
        return usageError("lathe_list_at: the sizes of tensor " + std::to_string(i) + " are out of range");
      size = *bytes;
    }
    out->data = static_cast<char *>(values->data) + begin;
    out->bytes = size;
    return okStatus();
  });
}

lathe_error *lathe_string_at(const lathe_tensor *t, uint64_t index, const char **text, uint64_t *length) {
  return guarded([&]() -> Status {
    if (!t || !text || !length)
      return usageError("lathe_string_at: a pointer is NULL");
    if (t->dtype != LATHE_STRING || !t->data)
      return usageError("lathe_string_at: no tensor of strings, or one without data");
    uint64_t count = 1;
    for (int32_t a = 0; a < t->rank; ++a)
      if (t->dims[a] < 0 || __builtin_mul_overflow(count, static_cast<uint64_t>(t->dims[a]), &count))
        return usageError("lathe_string_at: a size is out of range");
    const uint64_t room = t->bytes / sizeof(int64_t); // of offsets
    if (index >= count || room <= count)
      return usageError("lathe_string_at: there is no string " + std::to_string(index));
    int64_t span[2];
    std::memcpy(span, static_cast<const char *>(t->data) + index * sizeof(int64_t), sizeof span);
    const uint64_t begin = (count + 1) * sizeof(int64_t);
    if (span[0] < 0 || span[1] < span[0] || static_cast<uint64_t>(span[1]) > t->bytes - begin)
      return usageError("lathe_string_at: the offsets of string " + std::to_string(index) + " are out of range");
    *text = static_cast<const char *>(t->data) + begin + span[0];
    *length = static_cast<uint64_t>(span[1] - span[0]);
    return okStatus();
  });
}

namespace {
/// Calls `open` with what the options say.
template <typename F> Status openWith(const lathe_open_options *options, F &&open) {
  lathe_open_options o{};
  if (options) {
    if (options->size < offsetof(lathe_open_options, key_ring) + sizeof o.key_ring)
      return usageError("lathe_open_options: size is not set");
    std::memcpy(&o, options, std::min<size_t>(options->size, sizeof o));
  }
  engine::EngineReader::Options wanted;
  engine::KeyRing ring;
  if (o.key_ring) {
    Result<engine::KeyRing> found = engine::KeyRing::read(o.key_ring);
    if (!found)
      return found.status();
    ring = std::move(*found);
    wanted.trusted = &ring;
  }
  return open(wanted);
}
} // namespace

lathe_error *lathe_engine_open(const char *path, lathe_engine **out) {
  return lathe_engine_open_with(path, nullptr, out);
}

lathe_error *lathe_engine_open_memory(const void *bytes, size_t size, lathe_engine **out) {
  return lathe_engine_open_memory_with(bytes, size, nullptr, out);
}

lathe_error *lathe_engine_open_with(const char *path, const lathe_open_options *options,
                                    lathe_engine **out) {
  return guarded([&] {
    if (!path || !out)
      return usageError("lathe_engine_open: a pointer is NULL");
    return openWith(options, [&](const engine::EngineReader::Options &wanted) {
      return openEngine(engine::EngineReader::open(path, wanted), out);
    });
  });
}

lathe_error *lathe_engine_open_memory_with(const void *bytes, size_t size,
                                           const lathe_open_options *options, lathe_engine **out) {
  return guarded([&] {
    if (!bytes || !out)
      return usageError("lathe_engine_open_memory: a pointer is NULL");
    std::string_view content(static_cast<const char *>(bytes), size);
    return openWith(options, [&](const engine::EngineReader::Options &wanted) {
      return openEngine(engine::EngineReader::fromMemory(content, wanted), out);
    });
  });
}

void lathe_engine_close(lathe_engine *e) { delete e; }

const char *lathe_engine_build_id(const lathe_engine *e) {
  return e->engine->file().buildId().c_str();
}
size_t lathe_engine_entry_count(const lathe_engine *e) { return e->engine->entries().size(); }
const char *lathe_engine_entry_name(const lathe_engine *e, size_t i) {
  return nameAt(e->engine->entries(), i);
}
size_t lathe_engine_target_count(const lathe_engine *e) { return e->engine->targets().size(); }
const char *lathe_engine_target_name(const lathe_engine *e, size_t i) {
  return nameAt(e->engine->targets(), i);
}
size_t lathe_engine_state_count(const lathe_engine *e) { return e->engine->states().size(); }
const char *lathe_engine_state_name(const lathe_engine *e, size_t i) {
  return nameAt(e->engine->states(), i);
}
size_t lathe_engine_input_count(const lathe_engine *e, const char *entry) {
  const EntryInfo *info = e->entry(entry);
  return info ? info->inputs.ports.size() : 0;
}
size_t lathe_engine_output_count(const lathe_engine *e, const char *entry) {
  const EntryInfo *info = e->entry(entry);
  return info ? info->outputs.ports.size() : 0;
}
const lathe_port *lathe_engine_input(const lathe_engine *e, const char *entry, size_t i) {
  const EntryInfo *info = e->entry(entry);
  return at(info ? &info->inputs.ports : nullptr, i);
}
const lathe_port *lathe_engine_output(const lathe_engine *e, const char *entry, size_t i) {
  const EntryInfo *info = e->entry(entry);
  return at(info ? &info->outputs.ports : nullptr, i);
}
size_t lathe_engine_symbol_count(const lathe_engine *e, const char *entry) {
  const EntryInfo *info = e->entry(entry);
  return info ? info->symbols.size() : 0;
}
const lathe_symbol *lathe_engine_symbol(const lathe_engine *e, const char *entry, size_t i) {
  const EntryInfo *info = e->entry(entry);
  return at(info ? &info->symbols : nullptr, i);
}

namespace {
/// 0 is `usual`, less is endless.
int64_t nanosecondsOf(int64_t milliseconds, int64_t usual) {
  constexpr int64_t kMillisecond = 1000000;
  if (!milliseconds)
    return usual;
  return milliseconds < 0 || milliseconds > INT64_MAX / kMillisecond ? -1 : milliseconds * kMillisecond;
}

Status readOptions(const lathe_options *options, Context::Options &wanted) {
  lathe_options o{};
  if (options) {
    if (options->size < offsetof(lathe_options, threads) + sizeof o.threads)
      return usageError("lathe_options: size is not set");
    std::memcpy(&o, options, std::min<size_t>(options->size, sizeof o));
  }
  if (o.max_graphs < 0)
    return usageError("lathe_options: max_graphs is negative");
  wanted.device.threads = o.threads;
  wanted.device.pinThreads = !o.no_pinning;
  wanted.device.stream = o.stream;
  wanted.device.prefault = o.prefault;
  wanted.target = text(o.target);
  wanted.graphs = !o.no_graphs;
  wanted.overlap = !o.no_overlap;
  if (o.max_graphs)
    wanted.limits.graphs = static_cast<uint64_t>(o.max_graphs);
  if (o.max_graph_bytes)
    wanted.limits.bytes = o.max_graph_bytes;
  wanted.patience = nanosecondsOf(o.deadline_ms, wanted.patience);
  return okStatus();
}
} // namespace

lathe_error *lathe_context_create(const lathe_engine *e, const char *device,
                                  const lathe_options *options, lathe_context **out) {
  return guarded([&]() -> Status {
    if (!e || !out)
      return usageError("lathe_context_create: a pointer is NULL");
    Context::Options wanted;
    LATHE_RETURN_IF_ERROR(readOptions(options, wanted));
    Result<std::shared_ptr<Context>> made =
        Context::create(e->engine, device ? device : "cpu", wanted);
    if (!made)
      return made.status();
    *out = new lathe_context{std::move(*made)};
    return okStatus();
  });
}

lathe_error *lathe_context_create_rank(const lathe_engine *e, const char *device, const lathe_options *options,
                                       const lathe_world *world, lathe_context **out) {
  return guarded([&]() -> Status {
    if (!e || !world || !out)
      return usageError("lathe_context_create_rank: a pointer is NULL");
    lathe_world w{};
    if (world->size < offsetof(lathe_world, rank) + sizeof w.rank)
      return usageError("lathe_world: size is not set");
    std::memcpy(&w, world, std::min<size_t>(world->size, sizeof w));
    Context::Options wanted;
    LATHE_RETURN_IF_ERROR(readOptions(options, wanted));
    World meeting;
    meeting.rank = w.rank;
    meeting.ranks = w.ranks;
    meeting.port = w.port;
    meeting.host = text(w.host);
    meeting.join = nanosecondsOf(w.join_ms, wanted.patience);
    meeting.silence = nanosecondsOf(w.silence_ms, 0);
    Result<std::shared_ptr<Context>> made =
        Context::createRank(e->engine, device ? device : "cpu", std::move(wanted), std::move(meeting));
    if (!made)
      return made.status();
    *out = new lathe_context{std::move(*made)};
    return okStatus();
  });
}

int32_t lathe_context_rank(const lathe_context *c) { return int32_t(c->context->rank()); }
int32_t lathe_context_ranks(const lathe_context *c) { return int32_t(c->context->ranks()); }

void lathe_context_destroy(lathe_context *c) {
  if (!c || !c->owned)
    return;
  Context::close(std::move(c->context));
  delete c;
}

const char *lathe_context_target(const lathe_context *c) { return c->context->target().c_str(); }

lathe_error *lathe_context_input_stream(lathe_context *c, void **stream) {
  return guarded([&] {
    if (!c || !stream)
      return usageError("lathe_context_input_stream: a pointer is NULL");
    Result<void *> made = c->context->deviceHandle()->inputStream();
    if (made)
      *stream = *made;
    return made.status();
  });
}

lathe_error *lathe_context_wait_for(lathe_context *c, void *stream) {
  return guarded([&] {
    if (!c)
      return usageError("lathe_context_wait_for: a pointer is NULL");
    return c->context->deviceHandle()->waitForStream(stream);
  });
}

lathe_error *lathe_run(lathe_context *c, const char *entry, const lathe_tensor *inputs,
                       size_t inputCount, lathe_tensor *outputs, size_t outputCount) {
  return guarded([&] {
    if (!c || (!inputs && inputCount) || (!outputs && outputCount))
      return usageError("lathe_run: a pointer is NULL");
    return c->context->run(text(entry), {inputs, inputCount}, {outputs, outputCount});
  });
}

lathe_error *lathe_submit(lathe_context *c, const char *entry, const lathe_tensor *inputs,
                          size_t inputCount, lathe_tensor *outputs, size_t outputCount,
                          const lathe_submit_options *options, uint64_t *step) {
  return guarded([&]() -> Status {
    if (!c || !step || (!inputs && inputCount) || (!outputs && outputCount))
      return usageError("lathe_submit: a pointer is NULL");
    lathe_submit_options o{};
    if (options) {
      if (options->size < sizeof o.size)
        return usageError("lathe_submit_options: size is not set");
      std::memcpy(&o, options, std::min<size_t>(options->size, sizeof o));
      if (o.wait_count && !o.wait_events)
        return usageError("lathe_submit_options: wait_events is NULL");
    }
    Result<uint64_t> made =
        c->context->submit(text(entry), {inputs, inputCount}, {outputs, outputCount},
                           {{o.wait_events, o.wait_count}, o.record_event});
    if (made)
      *step = *made;
    return made.status();
  });
}

lathe_error *lathe_wait(lathe_context *c, uint64_t step, int64_t nanoseconds) {
  return guarded([&] { return c->context->wait(step, nanoseconds); });
}

lathe_error *lathe_poll(lathe_context *c, uint64_t step, int *ended) {
  return guarded([&] {
    Result<bool> now = c->context->ended(step);
    if (now)
      *ended = *now;
    return now.status();
  });
}

void lathe_cancel(lathe_context *c, uint64_t step) { c->context->cancel(step); }

lathe_error *lathe_warm(lathe_context *c, const char *entry, const lathe_tensor *inputs,
                        size_t inputCount, const lathe_tensor *outputs, size_t outputCount) {
  return guarded([&] {
    if (!c || (!inputs && inputCount) || (!outputs && outputCount))
      return usageError("lathe_warm: a pointer is NULL");
    return c->context->warm(text(entry), {inputs, inputCount}, {outputs, outputCount});
  });
}

lathe_error *lathe_group_create(const lathe_engine *e, const char *const *devices, size_t count,
                                const lathe_options *options, lathe_group **out) {
  return guarded([&]() -> Status {
    if (!e || !out || (!devices && count))
      return usageError("lathe_group_create: a pointer is NULL");
    Context::Options wanted;
    LATHE_RETURN_IF_ERROR(readOptions(options, wanted));
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i)
      names.push_back(text(devices[i]));
    Result<std::unique_ptr<Group>> made = Group::create(e->engine, names, wanted);
    if (!made)
      return made.status();
    auto group = std::make_unique<lathe_group>();
    group->group = std::move(*made);
    for (size_t i = 0; i < count; ++i) {
      group->members.push_back(std::make_unique<lathe_context>());
      *group->members.back() = {group->group->member(i), false};
    }
    *out = group.release();
    return okStatus();
  });
}

void lathe_group_destroy(lathe_group *g) {
  if (!g)
    return;
  g->members.clear();
  delete g;
}

size_t lathe_group_size(const lathe_group *g) { return g->members.size(); }

lathe_context *lathe_group_member(lathe_group *g, size_t i) {
  return i < g->members.size() ? g->members[i].get() : nullptr;
}

lathe_error *lathe_group_submit(lathe_group *g, const char *entry, const lathe_tensor *inputs,
                                size_t inputCount, lathe_tensor *outputs, size_t outputCount,
                                uint64_t *step) {
  return guarded([&]() -> Status {
    if (!g || !step || (!inputs && inputCount) || (!outputs && outputCount))
      return usageError("lathe_group_submit: a pointer is NULL");
    size_t n = g->group->size();
    Result<uint64_t> made =
        g->group->submit(text(entry), {inputs, inputCount * n}, {outputs, outputCount * n});
    if (made)
      *step = *made;
    return made.status();
  });
}

lathe_error *lathe_group_wait(lathe_group *g, uint64_t step, int64_t nanoseconds) {
  return guarded([&] { return g->group->wait(step, nanoseconds); });
}

void lathe_group_cancel(lathe_group *g, uint64_t step) { g->group->cancel(step); }

lathe_error *lathe_state_length(lathe_context *c, const char *state, int64_t *out) {
  return guarded([&]() -> Status {
    Result<int64_t> v = c->context->stateLength(text(state));
    if (v)
      *out = *v;
    return v.status();
  });
}
lathe_error *lathe_state_capacity(lathe_context *c, const char *state, int64_t *out) {
  return guarded([&]() -> Status {
    Result<int64_t> v = c->context->stateCapacity(text(state));
    if (v)
      *out = *v;
    return v.status();
  });
}
lathe_error *lathe_state_truncate(lathe_context *c, const char *state, int64_t length) {
  return guarded([&] { return c->context->truncateState(text(state), length); });
}
lathe_error *lathe_state_reset(lathe_context *c, const char *state) {
  return guarded([&] { return c->context->resetStates(text(state)); });
}
lathe_error *lathe_state_read(lathe_context *c, const char *state, lathe_tensor *value) {
  return guarded([&]() -> Status {
    return value ? c->context->readState(text(state), *value) : usageError("lathe_state_read: a pointer is NULL");
  });
}
lathe_error *lathe_state_write(lathe_context *c, const char *state, const lathe_tensor *value) {
  return guarded([&]() -> Status {
    return value ? c->context->writeState(text(state), *value) : usageError("lathe_state_write: a pointer is NULL");
  });
}

lathe_error *lathe_context_seed(lathe_context *c, uint64_t seed) {
  return guarded([&] { return c->context->seed(seed); });
}

void lathe_context_counters(const lathe_context *c, lathe_counters *out) {
  *out = c->context->counters();
}
void lathe_context_reset_counters(lathe_context *c) { c->context->resetCounters(); }
void lathe_context_profile(lathe_context *c, int enable) { c->context->setProfiling(enable != 0); }
void lathe_context_time_graphs(lathe_context *c, int enable) {
  c->context->timeGraphs(enable != 0);
}
const lathe_profile_row *lathe_context_profile_rows(lathe_context *c, size_t *count) {
  const std::vector<lathe_profile_row> &rows = c->context->profileRows();
  *count = rows.size();
  return rows.data();
}
const lathe_profile_event *lathe_context_profile_events(lathe_context *c, size_t *count) {
  const std::vector<lathe_profile_event> &events = c->context->profileEvents();
  *count = events.size();
  return events.data();
}
void lathe_context_set_tap(lathe_context *c, lathe_tap_function function, void *user) {
  c->context->setTap(function, user);
}
lathe_error *lathe_context_register_call(lathe_context *c, const char *name,
                                         lathe_call_function function, void *user) {
  return guarded([&] { return c->context->registerCall(text(name), {function, user}); });
}

//===--- DLPack -----------------------------------------------------------===//

namespace {

/// Codes of DLPack 1.1; several elements of less than a byte share one.
struct DlpackType {
  uint8_t code, bits;
  lathe_dtype dtype;
};
constexpr DlpackType dlpackTypes[] = {
    {0, 8, LATHE_I8},          {0, 16, LATHE_I16},          {0, 32, LATHE_I32},      {0, 64, LATHE_I64},
    {1, 8, LATHE_UI8},         {1, 16, LATHE_UI16},         {1, 32, LATHE_UI32},     {1, 64, LATHE_UI64},
    {2, 16, LATHE_F16},        {2, 32, LATHE_F32},          {2, 64, LATHE_F64},      {4, 16, LATHE_BF16},
    {5, 64, LATHE_C64},        {5, 128, LATHE_C128},        {6, 8, LATHE_BOOL},      {10, 8, LATHE_F8E4M3FN},
    {11, 8, LATHE_F8E4M3FNUZ}, {12, 8, LATHE_F8E5M2},       {13, 8, LATHE_F8E5M2FNUZ}, {14, 8, LATHE_F8E8M0},
    {0, 4, LATHE_I4},          {1, 4, LATHE_UI4},           {17, 4, LATHE_F4E2M1},   {0, 2, LATHE_I2},
    {1, 2, LATHE_UI2}};

/// What a DLManagedTensor of ours owns.
struct Exported {
  DLManagedTensor tensor{};
  std::vector<int64_t> dims;
  std::shared_ptr<Device> device;
  bool onHost = true;
};

/// A tensor with memory of its own: that of the result, where `mayTake` and the context can do without it, or a copy.
Status exportTensor(Context &context, const lathe_tensor &tensor, bool mayTake, DLManagedTensor **out) {
  const DlpackType *known = std::ranges::find(dlpackTypes, tensor.dtype, &DlpackType::dtype);
  if (known == std::end(dlpackTypes))
    return unsupportedError(tensor.dtype == LATHE_STRING ? "DLPack has no strings: read them with lathe_string_at()"
                                                         : "DLPack has no such element type");
  if (tensor.rank < 0 || tensor.rank > LATHE_MAX_RANK || (tensor.rank > 0 && !tensor.dims) ||
      std::any_of(tensor.dims, tensor.dims + tensor.rank, [](int64_t dim) { return dim < 0; }))
    return usageError("a tensor without data or sizes");
  auto exported = std::make_unique<Exported>();
  exported->device = context.deviceHandle();
  exported->onHost = exported->device->isHost() || tensor.memory == LATHE_HOST;
  exported->dims.assign(tensor.dims, tensor.dims + tensor.rank);
  const auto bytes = lathe_tensor_bytes(tensor.dtype, tensor.rank, tensor.dims);
  Result<void *> memory = nullptr;
  if (mayTake)
    memory = context.handOver(tensor, bytes);
  if (memory && !*memory)
    memory = context.copyOut(tensor, bytes);
  if (!memory)
    return memory.status();
  std::string place = exported->device->memoryName();
  int ordinal = std::atoi(place.substr(place.find(':') + 1).c_str());
  exported->tensor.dl_tensor = {*memory,
                                {exported->onHost ? 1 : 2, exported->onHost ? 0 : ordinal},
                                tensor.rank,
                                {known->code, known->bits, 1},
                                exported->dims.data(),
                                nullptr,
                                0};
  exported->tensor.deleter = [](DLManagedTensor *self) {
    auto *e = static_cast<Exported *>(self->manager_ctx);
    void *data = e->tensor.dl_tensor.data;
    e->onHost ? e->device->freeHost(data) : e->device->freeResult(data);
    delete e;
  };
  exported->tensor.manager_ctx = exported.get();
  *out = &exported.release()->tensor;
  return okStatus();
}

} // namespace

lathe_error *lathe_tensor_from_dlpack(const DLManagedTensor *managed, lathe_tensor *out) {
  return guarded([&] {
    if (!managed || !out)
      return usageError("lathe_tensor_from_dlpack: a pointer is NULL");
    const DLTensor &t = managed->dl_tensor;
    lathe_tensor result{};
    const DlpackType *known =
        std::ranges::find_if(dlpackTypes, [&](const DlpackType &d) { return d.code == t.dtype.code && d.bits == t.dtype.bits; });
    if (known == std::end(dlpackTypes) || t.dtype.lanes != 1)
      return unsupportedError("DLPack type code " + std::to_string(t.dtype.code) + " with " +
                              std::to_string(t.dtype.bits) + " bits");
    if (t.device.device_type < 1 || t.device.device_type > 3)
      return unsupportedError("DLPack device type " + std::to_string(t.device.device_type));
    result.dtype = known->dtype;
    result.memory = t.device.device_type == 2 ? LATHE_DEVICE : LATHE_HOST;
    result.data = static_cast<char *>(t.data) + t.byte_offset;
    result.rank = t.ndim;
    result.dims = t.shape;
    result.strides = t.strides;
    result.bytes = lathe_tensor_bytes(result.dtype, t.ndim, t.shape);
    *out = result;
    return okStatus();
  });
}

lathe_error *lathe_tensor_to_dlpack(lathe_context *c, const lathe_tensor *tensor,
                                    DLManagedTensor **out) {
  return guarded([&]() -> Status {
    if (!c || !tensor || !out)
      return usageError("lathe_tensor_to_dlpack: a pointer is NULL");
    return exportTensor(*c->context, *tensor, /*mayTake=*/false, out);
  });
}

lathe_error *lathe_tensor_take_dlpack(lathe_context *c, lathe_tensor *tensor, DLManagedTensor **out) {
  return guarded([&]() -> Status {
    if (!c || !tensor || !out)
      return usageError("lathe_tensor_take_dlpack: a pointer is NULL");
    LATHE_RETURN_IF_ERROR(exportTensor(*c->context, *tensor, /*mayTake=*/true, out));
    tensor->data = nullptr;
    tensor->bytes = 0;
    return okStatus();
  });
}
