//===- GenerateRequests.cpp - what lathe generate is asked for ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GenerateRequests.h"

#include "lathe/support/Files.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <limits>

namespace lathe::cli {

const lathe_llm_request *GenerateRequest::view() {
  mask.clear();
  for (uint32_t token : allowed) {
    mask.resize(std::max<size_t>(mask.size(), token / 32 + 1));
    mask[token / 32] |= 1u << token % 32;
  }
  c.tokens = prompt.data();
  c.token_count = prompt.size();
  c.stop_tokens = stops.data();
  c.stop_count = stops.size();
  c.bias_tokens = biasTokens.data();
  c.bias_values = biasValues.data();
  c.bias_count = biasTokens.size();
  c.allowed = mask.empty() ? nullptr : mask.data();
  c.allowed_words = mask.size();
  return &c;
}

namespace {

bool readCount(const llvm::json::Value &value, uint32_t &into) {
  auto number = value.getAsInteger();
  if (!number || *number < 0 || *number > UINT32_MAX)
    return false;
  into = uint32_t(*number);
  return true;
}

bool readTokens(const llvm::json::Value &value, std::vector<uint32_t> &into) {
  const llvm::json::Array *array = value.getAsArray();
  if (!array)
    return false;
  into.clear();
  for (const llvm::json::Value &item : *array) {
    into.push_back(0);
    if (!readCount(item, into.back()))
      return false;
  }
  return true;
}

bool readFloat(const llvm::json::Value &value, float &into) {
  auto number = value.getAsNumber();
  into = float(number.value_or(0));
  return number.has_value();
}

/// An object from tokens to numbers, or null for never.
bool readBias(const llvm::json::Value &value, GenerateRequest &into) {
  const llvm::json::Object *object = value.getAsObject();
  if (!object)
    return false;
  into.biasTokens.clear();
  into.biasValues.clear();
  for (const auto &[token, bias] : *object) {
    auto number = bias.getAsNumber();
    into.biasTokens.push_back(0);
    if (llvm::StringRef(token).getAsInteger(10, into.biasTokens.back()) || (!number && !bias.getAsNull()))
      return false;
    into.biasValues.push_back(number ? float(*number) : -std::numeric_limits<float>::infinity());
  }
  return true;
}

bool readKey(llvm::StringRef name, const llvm::json::Value &value, GenerateRequest &into) {
  lathe_llm_request &c = into.c;
  float *real = llvm::StringSwitch<float *>(name)
                    .Case("temperature", &c.temperature)
                    .Case("top_p", &c.top_p)
                    .Case("min_p", &c.min_p)
                    .Case("repetition_penalty", &c.repetition_penalty)
                    .Case("presence_penalty", &c.presence_penalty)
                    .Case("frequency_penalty", &c.frequency_penalty)
                    .Default(nullptr);
  if (real)
    return readFloat(value, *real);
  uint32_t *count = llvm::StringSwitch<uint32_t *>(name)
                        .Case("max_tokens", &c.max_tokens)
                        .Case("min_tokens", &c.min_tokens)
                        .Case("top_k", &c.top_k)
                        .Case("samples", &c.samples)
                        .Default(nullptr);
  if (count)
    return readCount(value, *count);
  std::vector<uint32_t> *tokens = llvm::StringSwitch<std::vector<uint32_t> *>(name)
                                      .Case("tokens", &into.prompt)
                                      .Case("stop_tokens", &into.stops)
                                      .Case("allowed_tokens", &into.allowed)
                                      .Default(nullptr);
  if (tokens)
    return readTokens(value, *tokens);
  if (name == "logit_bias")
    return readBias(value, into);
  if (name == "logprobs") {
    c.logprobs = 1;
    return readCount(value, c.top_logprobs);
  }
  if (name == "prompt_logprobs")
    return value.getAsBoolean() && (c.prompt_logprobs = *value.getAsBoolean(), true);
  auto integer = value.getAsInteger();
  if (!integer)
    return false;
  if (name == "seed")
    c.seed = uint64_t(*integer);
  else if (name == "tenant" && *integer >= 0)
    c.tenant = uint64_t(*integer);
  else if (name == "priority" && *integer >= INT32_MIN && *integer <= INT32_MAX)
    c.priority = int32_t(*integer);
  else
    return false;
  return true;
}

} // namespace

Status readRequest(const llvm::json::Object &object, GenerateRequest &into, const std::string &where) {
  for (const auto &[key, value] : object)
    if (!readKey(key, value, into))
      return usageError("does not take this: \"" + key.str() + "\"", where);
  return okStatus();
}

Status readGenerationConfig(const std::string &path, GenerateRequest &into) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(*text);
  if (!parsed)
    return invalidError("is no JSON: " + llvm::toString(parsed.takeError()), path);
  const llvm::json::Object *object = parsed->getAsObject();
  if (!object)
    return invalidError("is no object", path);
  // What changes answers, and the value that asks for nothing.
  const std::pair<const char *, double> others[] = {
      {"num_beams", 1},     {"num_beam_groups", 1},      {"penalty_alpha", 0},  {"typical_p", 1},
      {"epsilon_cutoff", 0}, {"eta_cutoff", 0},          {"diversity_penalty", 0}, {"no_repeat_ngram_size", 0},
      {"min_length", 0},    {"encoder_repetition_penalty", 1}, {"guidance_scale", 1}};
  for (const auto &[name, nothing] : others)
    if (auto number = object->getNumber(name); number && *number != nothing)
      return unsupportedError("asks for " + std::string(name) + " " + std::to_string(*number) +
                                  ", which lathe does not do; --no-config leaves the file out",
                              path);
  for (const char *name : {"bad_words_ids", "force_words_ids", "constraints", "forced_bos_token_id",
                           "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
                           "exponential_decay_length_penalty", "sequence_bias"})
    if (const llvm::json::Value *value = object->get(name); value && !value->getAsNull())
      return unsupportedError("asks for " + std::string(name) + ", which lathe does not do; --no-config leaves the file out",
                              path);
  const bool draws = object->getBoolean("do_sample").value_or(false);
  llvm::json::Object usual;
  auto take = [&](const char *from, const char *to) {
    if (const llvm::json::Value *value = object->get(from); value && !value->getAsNull())
      usual[to] = *value;
  };
  if (draws) {
    usual["temperature"] = 1.0;
    usual["top_k"] = 50; // what transformers takes where the file is silent
    for (const char *name : {"temperature", "top_k", "top_p", "min_p"})
      take(name, name);
  }
  take("repetition_penalty", "repetition_penalty");
  take("max_new_tokens", "max_tokens");
  take("min_new_tokens", "min_tokens");
  if (const llvm::json::Value *end = object->get("eos_token_id"); end && end->getAsInteger())
    usual["stop_tokens"] = llvm::json::Array{*end->getAsInteger()};
  else
    take("eos_token_id", "stop_tokens");
  Status status = readRequest(usual, into, path);
  return status.ok() ? status : invalidError(status.message(), path);
}

void addSamplingOptions(Parser &parser, llvm::json::Object &into) {
  struct Number {
    const char *option, *key, *value, *help;
  };
  for (const auto &[option, key, value, help] : {
           Number{"max-tokens", "max_tokens", "N", "Tokens to generate (default: 16)"},
           Number{"min-tokens", "min_tokens", "N", "No stop token before so many tokens"},
           Number{"temperature", "temperature", "X", "0 takes the most likely token (default), more draws"},
           Number{"top-k", "top_k", "N", "Draw of the N likeliest tokens"},
           Number{"top-p", "top_p", "X", "Draw of the likeliest tokens until they have this share"},
           Number{"min-p", "min_p", "X", "Draw of tokens that are at least X times as likely as the likeliest"},
           Number{"seed", "seed", "N", "Of the draws (default: 0)"},
           Number{"repetition-penalty", "repetition_penalty", "X", "Divides logits of tokens of prompt and answer"},
           Number{"presence-penalty", "presence_penalty", "X", "Taken from logits of tokens of the answer"},
           Number{"frequency-penalty", "frequency_penalty", "X", "The same, for each time that a token is there"},
           Number{"samples", "samples", "N", "Answers to each prompt, which is computed once; a line each"},
           Number{"logprobs", "logprobs", "N", "With --json: logprobs of the answer and of the N likeliest tokens, at most 20"},
       })
    parser.add(option, value, help, [&into, option = std::string(option), key = std::string(key)](const std::string &text) {
      llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(text);
      if (!parsed || !parsed->getAsNumber()) {
        if (!parsed)
          llvm::consumeError(parsed.takeError());
        return usageError("wants a number, not '" + text + "'", "--" + option);
      }
      into[key] = std::move(*parsed);
      return okStatus();
    });
  auto tokens = [&into](const char *option, const char *key) {
    return [&into, option = std::string(option), key = std::string(key)](const std::string &text) {
      llvm::Expected<llvm::json::Value> parsed = llvm::json::parse("[" + text + "]");
      std::vector<uint32_t> list;
      if (!parsed || !readTokens(*parsed, list)) {
        if (!parsed)
          llvm::consumeError(parsed.takeError());
        return usageError("wants numbers with commas between, not '" + text + "'", "--" + option);
      }
      into[key] = std::move(*parsed);
      return okStatus();
    };
  };
  parser.add("tokens", "1,2,3", "The prompt of one request", tokens("tokens", "tokens"));
  parser.add("stop", "2,0", "Tokens that end an answer", tokens("stop", "stop_tokens"));
  parser.add("allow", "5,6", "The only tokens that may come", tokens("allow", "allowed_tokens"));
  parser.add("bias", "5:+1.5,6:-inf", "Added to the logits of tokens", [&into](const std::string &text) {
    llvm::SmallVector<llvm::StringRef> parts;
    llvm::StringRef(text).split(parts, ',', -1, /*KeepEmpty=*/false);
    llvm::json::Object bias;
    for (llvm::StringRef part : parts) {
      auto [token, amount] = part.split(':');
      uint32_t number = 0;
      double value = 0;
      const bool never = amount == "-inf";
      amount.consume_front("+");
      if (token.getAsInteger(10, number) || (!never && amount.getAsDouble(value)))
        return usageError("wants TOKEN:NUMBER with commas between, not '" + part.str() + "'", "--bias");
      bias[token.str()] = never ? llvm::json::Value(nullptr) : llvm::json::Value(value);
    }
    into["logit_bias"] = std::move(bias);
    return okStatus();
  });
  parser.add("prompt-logprobs", "", "With --json and --logprobs: the same of the prompt's tokens", [&into](const std::string &) {
    into["prompt_logprobs"] = true;
    return okStatus();
  });
}

} // namespace lathe::cli
