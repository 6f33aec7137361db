//===- Generate.cpp - lathe generate --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Session.h"
#include "Verbs.h"

#include "lathe/runtime/lathe_llm.h"
#include "lathe/support/Files.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace lathe::cli {
namespace {

struct LlmDeleter {
  void operator()(lathe_llm *llm) const { lathe_llm_destroy(llm); }
};

struct Wanted {
  std::vector<uint32_t> prompt, stops;
  uint32_t maxTokens = 0;
  double temperature = 0, topP = 1;
  uint32_t topK = 0;
  uint64_t seed = 0;
};

struct GenerateOptions {
  std::string tokens, requests, device = "cpu", kvMemory, seed = "0", stops, trust, steps;
  int maxTokens = 16, threads = 0, stepTokens = 0, atOnce = 0, topK = 0;
  double temperature = 0, topP = 1;
  bool asJson = false, noPrefixCache = false, batchInvariant = false;
};

Status parseTokens(const std::string &text, const char *option, std::vector<uint32_t> &into) {
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(text).split(parts, ',', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef part : parts) {
    uint32_t token = 0;
    if (part.trim().getAsInteger(10, token))
      return usageError("wants numbers with commas between, not '" + part.str() + "'", option);
    into.push_back(token);
  }
  return okStatus();
}

/// 512, 64K, 256M, 2G.
Status parseSize(const std::string &text, uint64_t &into) {
  llvm::StringRef rest = text;
  int shift = rest.consume_back_insensitive("G") ? 30 : rest.consume_back_insensitive("M") ? 20
              : rest.consume_back_insensitive("K") ? 10
                                                   : 0;
  if (rest.getAsInteger(10, into) || into == 0 || into > UINT64_MAX >> shift)
    return usageError("wants bytes, as 256M or 2G, not '" + text + "'", "--kv-memory");
  into <<= shift;
  return okStatus();
}

/// One request of a line of JSON; what it does not say is as `usual`.
Result<Wanted> parseRequest(const std::string &line, const Wanted &usual, const std::string &where) {
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(line);
  if (!parsed)
    return usageError("is no JSON: " + llvm::toString(parsed.takeError()), where);
  const llvm::json::Object *object = parsed->getAsObject();
  if (!object)
    return usageError("wants an object a line, as {\"tokens\": [1, 2, 3], \"max_tokens\": 8}", where);
  Wanted wanted = usual;
  auto list = [&](const llvm::json::Value &value, std::vector<uint32_t> &into) {
    into.clear();
    const llvm::json::Array *array = value.getAsArray();
    for (const llvm::json::Value &item : array ? *array : llvm::json::Array{nullptr}) {
      auto token = item.getAsInteger();
      if (!token || *token < 0 || *token > UINT32_MAX)
        return false;
      into.push_back(uint32_t(*token));
    }
    return true;
  };
  for (const auto &[key, value] : *object) {
    auto number = value.getAsNumber();
    auto integer = value.getAsInteger();
    const bool count = integer && *integer >= 0 && *integer <= UINT32_MAX;
    llvm::StringRef name = key;
    bool right = name == "tokens"        ? list(value, wanted.prompt)
                 : name == "stop_tokens" ? list(value, wanted.stops)
                 : name == "max_tokens" || name == "top_k" || name == "seed" ? count
                 : name == "temperature" || name == "top_p" ? number.has_value()
                                                            : false;
    if (!right)
      return usageError("does not take this: \"" + name.str() + "\"", where);
    if (name == "max_tokens")
      wanted.maxTokens = uint32_t(*integer);
    else if (name == "top_k")
      wanted.topK = uint32_t(*integer);
    else if (name == "seed")
      wanted.seed = uint64_t(*integer);
    else if (name == "temperature")
      wanted.temperature = *number;
    else if (name == "top_p")
      wanted.topP = *number;
  }
  return wanted;
}

Result<std::vector<Wanted>> readRequests(const GenerateOptions &options) {
  Wanted usual;
  usual.maxTokens = uint32_t(std::max(options.maxTokens, 0));
  usual.temperature = options.temperature;
  usual.topP = options.topP;
  usual.topK = uint32_t(std::max(options.topK, 0));
  if (llvm::StringRef(options.seed).getAsInteger(10, usual.seed))
    return usageError("wants a number, not '" + options.seed + "'", "--seed");
  LATHE_RETURN_IF_ERROR(parseTokens(options.stops, "--stop", usual.stops));
  std::vector<Wanted> all;
  if (!options.tokens.empty()) {
    all.push_back(usual);
    LATHE_RETURN_IF_ERROR(parseTokens(options.tokens, "--tokens", all.back().prompt));
  }
  if (!options.requests.empty()) {
    Result<std::string> text = readFile(options.requests);
    if (!text)
      return text.status();
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(*text).split(lines, '\n');
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].trim().empty())
        continue;
      Result<Wanted> one =
          parseRequest(lines[i].str(), usual, options.requests + ":" + std::to_string(i + 1));
      if (!one)
        return one.status();
      all.push_back(std::move(*one));
    }
  }
  if (all.empty())
    return usageError("wants --tokens=1,2,3 or --requests=FILE", "lathe generate");
  return all;
}

void print(const lathe_llm_result &result, const Wanted &wanted, bool asJson) {
  llvm::json::Array tokens;
  for (size_t i = 0; i < result.token_count; ++i)
    tokens.push_back(result.tokens[i]);
  const char *finish = result.finish == LATHE_LLM_STOP ? "stop" : "length";
  if (asJson) {
    llvm::outs() << llvm::json::Value(llvm::json::Object{{"tokens", std::move(tokens)},
                                                         {"finish", finish},
                                                         {"prompt_tokens", int64_t(wanted.prompt.size())},
                                                         {"first_token_ms", double(result.first_token_ns) / 1e6},
                                                         {"last_token_ms", double(result.last_token_ns) / 1e6}})
                 << "\n";
    return;
  }
  for (size_t i = 0; i < result.token_count; ++i)
    llvm::outs() << (i ? "," : "") << result.tokens[i];
  llvm::outs() << "\n";
}

Status generate(const GenerateOptions &options, const std::string &path) {
  Result<std::vector<Wanted>> wanted = readRequests(options);
  if (!wanted)
    return wanted.status();
  lathe_engine *opened = nullptr;
  lathe_open_options opening = {sizeof opening, options.trust.empty() ? nullptr : options.trust.c_str()};
  LATHE_RETURN_IF_ERROR(toStatus(lathe_engine_open_with(path.c_str(), &opening, &opened)));
  std::unique_ptr<lathe_engine, EngineDeleter> engine(opened);
  lathe_llm_options limits = {};
  limits.size = sizeof limits;
  limits.threads = options.threads;
  limits.no_prefix_cache = options.noPrefixCache;
  limits.batch_invariant = options.batchInvariant;
  limits.max_step_tokens = uint32_t(std::max(options.stepTokens, 0));
  limits.max_requests = uint32_t(std::max(options.atOnce, 0));
  if (!options.kvMemory.empty())
    LATHE_RETURN_IF_ERROR(parseSize(options.kvMemory, limits.kv_bytes));
  for (const Wanted &one : *wanted)
    limits.max_sequence_tokens =
        std::max(limits.max_sequence_tokens, uint32_t(one.prompt.size()) + one.maxTokens);
  lathe_llm *made = nullptr;
  LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_create(engine.get(), options.device.c_str(), &limits, &made)));
  std::unique_ptr<lathe_llm, LlmDeleter> llm(made);
  std::vector<uint64_t> ids;
  for (const Wanted &one : *wanted) {
    lathe_llm_request request = {};
    request.size = sizeof request;
    request.max_tokens = one.maxTokens;
    request.tokens = one.prompt.data();
    request.token_count = one.prompt.size();
    request.stop_tokens = one.stops.data();
    request.stop_count = one.stops.size();
    request.temperature = float(one.temperature);
    request.top_p = float(one.topP);
    request.top_k = one.topK;
    request.seed = one.seed;
    ids.push_back(0);
    LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_submit(llm.get(), &request, &ids.back())));
  }
  std::string steps;
  lathe_llm_counters before = {}, after = {};
  auto begin = std::chrono::steady_clock::now();
  for (size_t unfinished = ids.size(); unfinished; before = after) {
    auto start = std::chrono::steady_clock::now();
    LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_step(llm.get(), &unfinished)));
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    lathe_llm_get_counters(llm.get(), &after);
    llvm::raw_string_ostream(steps) << llvm::json::Value(llvm::json::Object{
                                           {"tokens", int64_t(after.computed_tokens - before.computed_tokens)},
                                           {"generated", int64_t(after.generated_tokens - before.generated_tokens)},
                                           {"ms", ms}})
                                    << "\n";
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (size_t i = 0; i < ids.size(); ++i) {
    lathe_llm_result result = {};
    LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_result_of(llm.get(), ids[i], &result)));
    print(result, (*wanted)[i], options.asJson);
  }
  llvm::outs().flush();
  if (!options.steps.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.steps, steps));
  lathe_llm_counters c = {};
  lathe_llm_get_counters(llm.get(), &c);
  std::fprintf(stderr,
               "%llu tokens in %.2f s (%.1f a second), %llu steps, prompts of %llu tokens (%llu from the prefix "
               "cache), %llu preemptions\n",
               static_cast<unsigned long long>(c.generated_tokens), seconds,
               seconds > 0 ? double(c.generated_tokens) / seconds : 0, static_cast<unsigned long long>(c.steps),
               static_cast<unsigned long long>(c.prompt_tokens), static_cast<unsigned long long>(c.prompt_hits),
               static_cast<unsigned long long>(c.preemptions));
  return okStatus();
}

} // namespace

Status generateVerb(const std::vector<std::string> &arguments) {
  Parser parser("generate", "ENGINE [OPTIONS]",
                "Generates tokens with an engine that was compiled with --paged: the new tokens of each request, a "
                "line each. All requests share the steps and one pool of keys and values.");
  GenerateOptions options;
  parser.add("tokens", "1,2,3", "The prompt of one request", options.tokens);
  parser.add("requests", "FILE",
             "Requests, a JSON object a line: {\"tokens\": [1, 2, 3], \"max_tokens\": 8}; also stop_tokens, "
             "temperature, top_k, top_p, seed",
             options.requests);
  parser.add("max-tokens", "N", "Tokens to generate (default: 16)", options.maxTokens);
  parser.add("stop", "2,0", "Tokens that end an answer", options.stops);
  parser.flag("json", "Print a JSON object a request: tokens, finish, prompt_tokens, times", options.asJson);
  parser.add("temperature", "X", "0 takes the most likely token (default), more draws", options.temperature);
  parser.add("top-k", "N", "Draw of the N likeliest tokens", options.topK);
  parser.add("top-p", "X", "Draw of the likeliest tokens until they have this share", options.topP);
  parser.add("seed", "N", "Of the draws (default: 0)", options.seed);
  parser.add("kv-memory", "SIZE", "Of the pool of keys and values (default: 256M)", options.kvMemory);
  parser.add("step-tokens", "N", "Tokens of all requests in one step (default: 64)", options.stepTokens);
  parser.add("at-once", "N", "Requests that a step works on (default: 32)", options.atOnce);
  parser.add("steps", "FILE", "Write what each step did, a JSON object a line: tokens, generated, ms", options.steps);
  parser.flag("no-prefix-cache", "Compute equal beginnings of prompts again", options.noPrefixCache);
  parser.flag("batch-invariant",
              "The bits of an answer do not depend on who shares its steps; steps of few tokens take longer",
              options.batchInvariant);
  parser.add("device", "cpu", "Where to run", options.device);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.threads);
  addTrustOption(parser, options.trust);
  parser.example("lathe compile llama.onnx -o llama.lathe --paged");
  parser.example("lathe generate llama.lathe --tokens=1,2,3 --max-tokens=8 --json");
  parser.example("lathe generate llama.lathe --requests=requests.jsonl --kv-memory=2G");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1)
    return usageError("wants one engine; `lathe generate --help` has examples", "lathe generate");
  return generate(options, positional->front());
}

} // namespace lathe::cli
