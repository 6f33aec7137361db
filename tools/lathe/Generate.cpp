//===- Generate.cpp - lathe generate --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GenerateRequests.h"
#include "Session.h"
#include "Verbs.h"

#include "lathe/runtime/lathe_llm.h"
#include "lathe/support/Files.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <unistd.h>

namespace lathe::cli {
namespace {

struct LlmDeleter {
  void operator()(lathe_llm *llm) const { lathe_llm_destroy(llm); }
};

struct GenerateOptions {
  std::string requests, device = "cpu", kvMemory, swapMemory, trust, steps, config, overlap;
  int threads = 0, stepTokens = 0, atOnce = 0;
  bool asJson = false, progress = false, noPrefixCache = false, batchInvariant = false, noConfig = false;
  llvm::json::Object usual; ///< what options say of requests
};

/// 512, 64K, 256M, 2G.
Status parseSize(const std::string &text, const char *option, uint64_t &into) {
  llvm::StringRef rest = text;
  int shift = rest.consume_back_insensitive("G") ? 30 : rest.consume_back_insensitive("M") ? 20
              : rest.consume_back_insensitive("K") ? 10
                                                   : 0;
  if (rest.getAsInteger(10, into) || into == 0 || into > UINT64_MAX >> shift)
    return usageError("wants bytes, as 256M or 2G, not '" + text + "'", option);
  into <<= shift;
  return okStatus();
}

/// What no request says otherwise: of the model's generation_config.json, and of the options.
Result<GenerateRequest> usualRequest(const GenerateOptions &options, const std::string &engine) {
  GenerateRequest usual;
  usual.c.max_tokens = 16;
  const std::string beside = (std::filesystem::path(engine).parent_path() / "generation_config.json").string();
  const bool found = options.config.empty() && std::filesystem::exists(beside);
  if (!options.noConfig && (found || !options.config.empty())) {
    LATHE_RETURN_IF_ERROR(readGenerationConfig(found ? beside : options.config, usual));
    std::fprintf(stderr, "defaults of %s\n", (found ? beside : options.config).c_str());
  }
  LATHE_RETURN_IF_ERROR(readRequest(options.usual, usual, "lathe generate"));
  return usual;
}

Result<std::vector<GenerateRequest>> readRequests(const GenerateOptions &options, const std::string &engine) {
  Result<GenerateRequest> usual = usualRequest(options, engine);
  if (!usual)
    return usual.status();
  std::vector<GenerateRequest> all;
  if (options.usual.get("tokens"))
    all.push_back(*usual);
  if (!options.requests.empty()) {
    Result<std::string> text = readFile(options.requests);
    if (!text)
      return text.status();
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(*text).split(lines, '\n');
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].trim().empty())
        continue;
      const std::string where = options.requests + ":" + std::to_string(i + 1);
      llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(lines[i]);
      if (!parsed)
        return usageError("is no JSON: " + llvm::toString(parsed.takeError()), where);
      const llvm::json::Object *object = parsed->getAsObject();
      if (!object)
        return usageError("wants an object a line, as {\"tokens\": [1, 2, 3], \"max_tokens\": 8}", where);
      all.push_back(*usual);
      LATHE_RETURN_IF_ERROR(readRequest(*object, all.back(), where));
    }
  }
  if (all.empty())
    return usageError("wants --tokens=1,2,3 or --requests=FILE", "lathe generate");
  return all;
}

/// JSON has no infinities.
llvm::json::Value finite(float number) {
  return std::isfinite(number) ? llvm::json::Value(double(number)) : llvm::json::Value(nullptr);
}

Result<llvm::json::Array> logprobsOf(const lathe_llm *llm, uint64_t id, bool ofPrompt, size_t count) {
  llvm::json::Array rows;
  for (size_t i = ofPrompt; i < count; ++i) {
    lathe_llm_logprobs one = {};
    LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_logprobs_of(llm, id, ofPrompt, i, &one)));
    llvm::json::Array top;
    for (size_t t = 0; t < one.top_count; ++t)
      top.push_back(llvm::json::Array{int64_t(one.top[t].token), finite(one.top[t].logprob)});
    rows.push_back(llvm::json::Object{
        {"logprob", finite(one.logprob)}, {"rank", int64_t(one.rank)}, {"top", std::move(top)}});
  }
  return rows;
}

/// `sample` is the number of the answer to the request.
Status print(const lathe_llm *llm, uint64_t id, uint32_t sample, const GenerateRequest &request, bool asJson) {
  lathe_llm_result result = {};
  LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_result_of(llm, id, &result)));
  if (!asJson) {
    for (size_t i = 0; i < result.token_count; ++i)
      llvm::outs() << (i ? "," : "") << result.tokens[i];
    llvm::outs() << "\n";
    return okStatus();
  }
  llvm::json::Array tokens;
  for (size_t i = 0; i < result.token_count; ++i)
    tokens.push_back(result.tokens[i]);
  const char *finishes[] = {"unfinished", "length", "stop", "cancelled", "failed"};
  llvm::json::Object row{{"tokens", std::move(tokens)},
                         {"finish", finishes[result.finish]},
                         {"prompt_tokens", int64_t(request.prompt.size())},
                         {"first_token_ms", double(result.first_token_ns) / 1e6},
                         {"last_token_ms", double(result.last_token_ns) / 1e6}};
  if (request.c.samples > 1)
    row["sample"] = int64_t(sample);
  if (request.c.logprobs) {
    Result<llvm::json::Array> rows = logprobsOf(llm, id, false, result.token_count);
    if (!rows)
      return rows.status();
    row["logprobs"] = std::move(*rows);
  }
  if (request.c.prompt_logprobs && sample == 0) {
    Result<llvm::json::Array> rows = logprobsOf(llm, id, true, request.prompt.size());
    if (!rows)
      return rows.status();
    row["prompt_logprobs"] = std::move(*rows);
  }
  llvm::outs() << llvm::json::Value(std::move(row)) << "\n";
  return okStatus();
}

/// A line on stderr that says how far all requests are, written anew a few times a second.
class ProgressLine {
public:
  explicit ProgressLine(bool shown) : shown(shown) {}
  ~ProgressLine() {
    if (written)
      std::fputs("\r\033[K", stderr);
  }
  void update(const lathe_llm_counters &c) {
    using Seconds = std::chrono::duration<double>;
    const auto now = std::chrono::steady_clock::now();
    const double since = Seconds(now - last).count();
    if (!shown || since < 0.25)
      return;
    // What came since the last line: prompts and answers take turns, and a mean would hide it.
    std::fprintf(stderr, "\r\033[K%llu tokens, %.1f a second; %u requests run, %u wait; %.0f %% of the pool",
                 static_cast<unsigned long long>(c.generated_tokens),
                 double(c.generated_tokens - before) / since, c.running, c.waiting,
                 100.0 * c.kv_blocks_held / std::max(c.kv_blocks, 1u));
    std::fflush(stderr);
    last = now;
    before = c.generated_tokens;
    written = true;
  }

private:
  bool shown, written = false;
  uint64_t before = 0;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

Status generate(const GenerateOptions &options, const std::string &path) {
  Result<std::vector<GenerateRequest>> wanted = readRequests(options, path);
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
  if (!options.overlap.empty() && options.overlap != "on" && options.overlap != "off")
    return usageError("wants on or off, not '" + options.overlap + "'", "--overlap");
  limits.overlap = options.overlap.empty() ? 0 : options.overlap == "on" ? 1 : -1;
  limits.max_step_tokens = uint32_t(std::max(options.stepTokens, 0));
  limits.max_requests = uint32_t(std::max(options.atOnce, 0));
  if (!options.kvMemory.empty())
    LATHE_RETURN_IF_ERROR(parseSize(options.kvMemory, "--kv-memory", limits.kv_bytes));
  if (!options.swapMemory.empty())
    LATHE_RETURN_IF_ERROR(parseSize(options.swapMemory, "--swap-memory", limits.swap_bytes));
  for (const GenerateRequest &one : *wanted)
    limits.max_sequence_tokens =
        std::max(limits.max_sequence_tokens, uint32_t(one.prompt.size()) + one.c.max_tokens);
  lathe_llm *made = nullptr;
  LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_create(engine.get(), options.device.c_str(), &limits, &made)));
  std::unique_ptr<lathe_llm, LlmDeleter> llm(made);
  std::vector<uint64_t> ids;
  for (GenerateRequest &one : *wanted) {
    ids.push_back(0);
    LATHE_RETURN_IF_ERROR(toStatus(lathe_llm_submit(llm.get(), one.view(), &ids.back())));
  }
  std::string steps;
  lathe_llm_counters before = {}, after = {.size = sizeof after};
  auto begin = std::chrono::steady_clock::now();
  std::optional<ProgressLine> line(std::in_place, options.progress || isatty(STDERR_FILENO));
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
    line->update(after);
  }
  line.reset();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (size_t i = 0; i < ids.size(); ++i)
    for (uint32_t sample = 0; sample < std::max(1u, (*wanted)[i].c.samples); ++sample)
      LATHE_RETURN_IF_ERROR(print(llm.get(), ids[i] + sample, sample, (*wanted)[i], options.asJson));
  llvm::outs().flush();
  if (!options.steps.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.steps, steps));
  lathe_llm_counters c = {.size = sizeof c};
  lathe_llm_get_counters(llm.get(), &c);
  std::fprintf(stderr,
               "%llu tokens in %.2f s (%.1f a second), %llu steps, prompts of %llu tokens (%llu from the prefix "
               "cache), %llu swapped, %llu preemptions\n",
               static_cast<unsigned long long>(c.generated_tokens), seconds,
               seconds > 0 ? double(c.generated_tokens) / seconds : 0, static_cast<unsigned long long>(c.steps),
               static_cast<unsigned long long>(c.prompt_tokens), static_cast<unsigned long long>(c.prompt_hits),
               static_cast<unsigned long long>(c.swaps), static_cast<unsigned long long>(c.preemptions));
  return okStatus();
}

} // namespace

Status generateVerb(const std::vector<std::string> &arguments) {
  Parser parser("generate", "ENGINE [OPTIONS]",
                "Generates tokens with an engine that was compiled with --paged: the new tokens of each request, a "
                "line each. All requests share the steps and one pool of keys and values.");
  GenerateOptions options;
  parser.add("requests", "FILE",
             "Requests, a JSON object a line: {\"tokens\": [1, 2, 3], \"max_tokens\": 8}; keys are those of "
             "lathe_llm_request, allowed_tokens, logit_bias {\"token\": number} and logprobs (how many)",
             options.requests);
  addSamplingOptions(parser, options.usual);
  parser.add("config", "FILE",
             "What requests usually want, as transformers writes it (default: generation_config.json beside ENGINE)",
             options.config);
  parser.flag("no-config", "Leave generation_config.json out", options.noConfig);
  parser.flag("json", "Print a JSON object an answer: tokens, finish, prompt_tokens, times, logprobs", options.asJson);
  parser.flag("progress", "Show tokens a second while it runs, on stderr (default: where that is a terminal)", options.progress);
  parser.add("kv-memory", "SIZE", "Of the pool of keys and values (default: 256M)", options.kvMemory);
  parser.add("swap-memory", "SIZE",
             "Of host memory for keys and values of requests that give way to others, where copying takes less time than "
             "computing again (default: none)",
             options.swapMemory);
  parser.add("step-tokens", "N", "Tokens of all requests in one step (default: 64)", options.stepTokens);
  parser.add("at-once", "N", "Requests that a step works on (default: 32)", options.atOnce);
  parser.add("overlap", "on|off",
             "Launch a step before the tokens of the one before have come (default: on a GPU); answers are the same",
             options.overlap);
  parser.add("steps", "FILE", "Write what each step did, a JSON object a line: tokens, generated, ms", options.steps);
  parser.flag("no-prefix-cache", "Compute equal beginnings of prompts again", options.noPrefixCache);
  parser.flag("batch-invariant",
              "The bits of an answer do not depend on who shares its steps; steps of few tokens take longer; on a GPU "
              "for engines compiled with --batch-invariant alone",
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
