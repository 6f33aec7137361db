//===- Recipe.cpp - recipes as JSON ---------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Recipe.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

namespace lathe::quantize {

static constexpr Scheme kSchemes[] = {{"w8a8-int8", 8, true}, {"w8a16", 8, false}, {"w4a16", 4, false}};

Result<Scheme> schemeNamed(std::string_view name) {
  std::string known;
  for (const Scheme &scheme : kSchemes) {
    if (name == scheme.name)
      return scheme;
    known += std::string(known.empty() ? "" : ", ") + scheme.name;
  }
  return usageError("unknown scheme '" + std::string(name) + "'; known: " + known, "--scheme");
}

std::string Recipe::text() const {
  namespace json = llvm::json;
  json::Object ranges, matrices;
  for (const auto &[name, range] : activations)
    ranges[name] = json::Object{{"min", range.min}, {"max", range.max}};
  for (const auto &[name, weight] : weights)
    matrices[name] = json::Object{{"bits", weight.bits}, {"axis", weight.axis}, {"block", weight.block}};
  json::Array results;
  for (const std::string &name : products)
    results.push_back(name);
  json::Object all{{"format", "lathe-recipe"},         {"version", 1},
                                 {"scheme", scheme},                 {"activations", std::move(ranges)},
                                 {"weights", std::move(matrices)},   {"products", std::move(results)}};
  if (!shared.empty())
    all["shared"] = json::Array(shared);
  std::string text;
  llvm::raw_string_ostream(text) << llvm::formatv("{0:2}\n", json::Value(std::move(all))); // keys are sorted
  return text;
}

Result<Recipe> Recipe::parse(std::string_view text, const std::string &path) {
  namespace json = llvm::json;
  auto bad = [&](const std::string &what, const std::string &entry = {}) {
    return invalidError(what, entry.empty() ? path : path + ": '" + entry + "'");
  };
  llvm::Expected<json::Value> parsed = json::parse(llvm::StringRef(text.data(), text.size()));
  if (!parsed)
    return bad("is no JSON: " + llvm::toString(parsed.takeError()));
  const json::Object *top = parsed->getAsObject();
  if (!top || top->getString("format") != llvm::StringRef("lathe-recipe"))
    return bad("is no recipe");
  if (top->getInteger("version") != 1)
    return bad("is of a version that this lathe does not read");
  const json::Object *ranges = top->getObject("activations"), *matrices = top->getObject("weights");
  const json::Array *results = top->getArray("products");
  std::optional<llvm::StringRef> scheme = top->getString("scheme");
  if (!ranges || !matrices || !results || !scheme)
    return bad("lacks its scheme, activations, weights or products");
  Recipe recipe;
  recipe.scheme = scheme->str();
  if (Result<Scheme> known = schemeNamed(recipe.scheme); !known)
    return bad(known.status().message());
  for (const auto &[name, value] : *ranges) {
    const json::Object *range = value.getAsObject();
    auto low = range ? range->getNumber("min") : std::nullopt, high = range ? range->getNumber("max") : std::nullopt;
    if (!low || !high || !std::isfinite(*low) || !std::isfinite(*high) || *low > *high)
      return bad("wants a min and a max, finite and in order", name.str());
    if (!codesOf({*low, *high}))
      return bad("has a range without a normal scale", name.str());
    recipe.activations[name.str()] = {*low, *high};
  }
  for (const auto &[name, value] : *matrices) {
    const json::Object *weight = value.getAsObject();
    auto bits = weight ? weight->getInteger("bits") : std::nullopt, axis = weight ? weight->getInteger("axis") : std::nullopt,
         block = weight ? weight->getInteger("block") : std::nullopt;
    if (!bits || !axis || !block || (*bits != 8 && *bits != 4) || (*axis != 0 && *axis != 1) || *block < 0)
      return bad("wants bits of 8 or 4, an axis of 0 or 1, and a block of 0 or more", name.str());
    recipe.weights[name.str()] = {int(*bits), *axis, *block};
  }
  for (const json::Value &value : *results) {
    std::optional<llvm::StringRef> name = value.getAsString();
    if (!name)
      return bad("a product is no name of a value");
    recipe.products.insert(name->str());
  }
  if (const json::Array *values = top->getArray("shared"))
    for (const json::Value &value : *values) {
      std::optional<llvm::StringRef> name = value.getAsString();
      if (!name || !recipe.activations.count(name->str()))
        return bad("a shared value is no activation with a range");
      recipe.shared.insert(name->str());
    }
  return recipe;
}

} // namespace lathe::quantize
