//===- Trace.cpp - requests to a language model in a fixed order -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Trace.h"

#include <charconv>

namespace lathe::kvperf {
namespace {

constexpr uint32_t vocabulary = 128000;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos)
      return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T> bool parseNumber(std::string_view text, T &value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool parseSegment(std::string_view text, Segment &segment) {
  std::vector<std::string_view> parts = split(text, ':');
  return parts.size() == 2 && parseNumber(parts[0], segment.id) &&
         parseNumber(parts[1], segment.tokens);
}

/// Reads entries and checks that they make sense one after the other.
class Parser {
public:
  explicit Parser(Trace &trace) : trace(trace) {}

  /// Empty, or what is wrong with the line.
  std::string line(std::string_view text) {
    std::vector<std::string_view> fields = split(text, '\t');
    uint32_t id;
    if (fields.size() < 2 || !parseNumber(fields[1], id))
      return "expected an entry B, A or F and a request";
    if (fields[0] == "B")
      return begin(fields, id);
    if (id >= trace.requests.size())
      return "a request that has not begun";
    if (left[id] == finished)
      return "a request that has finished";
    if (fields[0] == "F" && fields.size() == 2) {
      left[id] = finished;
      trace.events.push_back({Event::Kind::Finish, id});
      return {};
    }
    uint32_t tokens;
    if (fields[0] != "A" || fields.size() != 3 || !parseNumber(fields[2], tokens))
      return "expected `A request tokens` or `F request`";
    if (tokens == 0 || tokens > left[id])
      return "more tokens than the output has, or none";
    left[id] -= tokens;
    trace.events.push_back({Event::Kind::Append, id, tokens});
    return {};
  }

private:
  std::string begin(const std::vector<std::string_view> &fields, uint32_t id) {
    Request request;
    if (fields.size() != 6 || !parseNumber(fields[2], request.tenant) ||
        !parseNumber(fields[3], request.sharedTokens) || !parseSegment(fields[5], request.output))
      return "expected `B request tenant shared prompt output`";
    if (id != trace.requests.size())
      return "requests begin in the order of their numbers";
    for (std::string_view part : split(fields[4], ','))
      if (!parseSegment(part, request.prompt.emplace_back()))
        return "expected a prompt `segment:tokens,...`";
    if (request.promptTokens() == 0)
      return "an empty prompt";
    left.push_back(request.output.tokens);
    trace.requests.push_back(std::move(request));
    trace.events.push_back({Event::Kind::Begin, id});
    return {};
  }

  static constexpr uint32_t finished = UINT32_MAX;
  Trace &trace;
  std::vector<uint32_t> left; ///< of each request's output
};

} // namespace

uint32_t Request::promptTokens() const {
  uint32_t sum = 0;
  for (const Segment &segment : prompt)
    sum += segment.tokens;
  return sum;
}

std::vector<uint32_t> Trace::tokens(const Request &request) const {
  std::vector<uint32_t> result;
  result.reserve(request.promptTokens() + request.output.tokens);
  auto add = [&](const Segment &segment) {
    uint64_t text = mix(seed ^ mix(segment.id));
    for (uint32_t i = 0; i < segment.tokens; ++i)
      result.push_back(mix(text + i) % vocabulary);
  };
  for (const Segment &segment : request.prompt)
    add(segment);
  add(request.output);
  return result;
}

std::string toText(const Trace &trace) {
  auto segment = [](const Segment &s) {
    return std::to_string(s.id) + ":" + std::to_string(s.tokens);
  };
  std::string text = "lathe-kv-trace\t1\t" + trace.name + "\t" + std::to_string(trace.seed) + "\n";
  for (const Event &event : trace.events) {
    std::string id = std::to_string(event.request);
    if (event.kind == Event::Kind::Finish) {
      text += "F\t" + id + "\n";
    } else if (event.kind == Event::Kind::Append) {
      text += "A\t" + id + "\t" + std::to_string(event.tokens) + "\n";
    } else {
      const Request &request = trace.requests[event.request];
      text += "B\t" + id + "\t" + std::to_string(request.tenant) + "\t" +
              std::to_string(request.sharedTokens) + "\t";
      for (const Segment &s : request.prompt)
        text += (&s == request.prompt.data() ? "" : ",") + segment(s);
      text += "\t" + segment(request.output) + "\n";
    }
  }
  return text;
}

Result<Trace> parseTrace(std::string_view text) {
  Trace trace;
  std::vector<std::string_view> lines = split(text, '\n');
  if (lines.back().empty())
    lines.pop_back();
  if (lines.empty())
    return invalidError("an empty trace", "line 1");
  std::vector<std::string_view> head = split(lines[0], '\t');
  if (head.size() != 4 || head[0] != "lathe-kv-trace" || head[1] != "1" ||
      !parseNumber(head[3], trace.seed))
    return invalidError("expected `lathe-kv-trace 1 name seed`", "line 1");
  trace.name = head[2];
  Parser parser(trace);
  for (size_t i = 1; i < lines.size(); ++i)
    if (std::string wrong = parser.line(lines[i]); !wrong.empty())
      return invalidError(wrong, "line " + std::to_string(i + 1));
  return trace;
}

} // namespace lathe::kvperf
