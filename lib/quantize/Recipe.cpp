//===- Recipe.cpp - recipes as JSON ---------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Recipe.h"

#include "lathe/support/Files.h"
#include "lathe/support/Npz.h"
#include "lathe/support/Sha256.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <filesystem>
#include <iterator>

namespace lathe::quantize {

namespace {

constexpr Scheme kSchemes[] = {{"w8a8-int8", 8, true},
                               {"w8a16", 8, false},
                               {"w4a16", 4, false},
                               {"mxfp4", 4, false, WeightFormat::Mxfp4},
                               {"nf4", 4, false, WeightFormat::Nf4},
                               {"w8a8-fp8", 8, true, WeightFormat::F8E4M3},
                               {"f16", 16, false, WeightFormat::F16},
                               {"bf16", 16, false, WeightFormat::BF16}};

constexpr const char *kFormats[] = {"integer", "mxfp4", "nf4", "f8e4m3", "f16", "bf16"}; ///< in the order of WeightFormat

/// Bits of a format with or without blocks.
bool fits(WeightFormat format, int64_t bits, int64_t block) {
  switch (format) {
  case WeightFormat::Integer:
    return bits == 8 || bits == 4;
  case WeightFormat::Mxfp4:
  case WeightFormat::Nf4:
    return bits == 4 && block > 0;
  case WeightFormat::F8E4M3:
    return bits == 8 && block == 0;
  case WeightFormat::F16:
  case WeightFormat::BF16:
    return bits == 16 && block == 0;
  }
  return false;
}

std::optional<WeightFormat> formatNamed(llvm::StringRef name) {
  for (size_t i = 0; i < std::size(kFormats); ++i)
    if (name == kFormats[i])
      return WeightFormat(i);
  return std::nullopt;
}

std::string digestOf(std::string_view bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.hex();
}

/// The name of the archive beside a recipe.
std::string archiveOf(const std::string &path) {
  return (path.ends_with(".json") ? path.substr(0, path.size() - 5) : path) + ".npz";
}

} // namespace

Result<Scheme> schemeNamed(std::string_view name) {
  std::string known;
  for (const Scheme &scheme : kSchemes) {
    if (name == scheme.name)
      return scheme;
    known += std::string(known.empty() ? "" : ", ") + scheme.name;
  }
  return usageError("unknown scheme '" + std::string(name) + "'; known: " + known, "--scheme");
}

Result<std::string> Recipe::text() const {
  namespace json = llvm::json;
  json::Object ranges, matrices;
  for (const auto &[name, range] : activations)
    ranges[name] = json::Object{{"min", range.min}, {"max", range.max}};
  for (const auto &[name, weight] : weights) {
    json::Object entry{{"bits", weight.bits}, {"axis", weight.axis}, {"block", weight.block}};
    if (weight.format != WeightFormat::Integer)
      entry["format"] = kFormats[size_t(weight.format)];
    if (weight.weightOnly)
      entry["weight_only"] = true;
    matrices[name] = std::move(entry);
  }
  json::Array results;
  for (const std::string &name : products)
    results.push_back(name);
  json::Object all{{"format", "lathe-recipe"},         {"version", 2},
                   {"scheme", scheme},                 {"range", range},
                   {"method", method},                 {"activations", std::move(ranges)},
                   {"weights", std::move(matrices)},   {"products", std::move(results)}};
  if (dynamic)
    all["dynamic"] = true;
  if (microsoft)
    all["ops"] = "com.microsoft";
  if (!shared.empty())
    all["shared"] = json::Array(shared);
  Result<std::string> archive = arrays();
  if (!archive)
    return archive.status();
  if (!archive->empty())
    all["arrays"] = digestOf(*archive);
  std::string text;
  llvm::raw_string_ostream(text) << llvm::formatv("{0:2}\n", json::Value(std::move(all))); // keys are sorted
  return text;
}

Result<std::string> Recipe::arrays() const {
  std::map<std::string, HostTensor> all;
  for (const auto &[name, weight] : codes) {
    HostTensor bytes(DType::I8, weight.codes.dims); // .npy has no type of 4 bits
    for (int64_t i = 0, n = bytes.count(); i < n; ++i)
      bytes.setInteger(i, weight.codes.integer(i));
    all["codes/" + name] = std::move(bytes);
    all["scales/" + name] = weight.scales;
  }
  for (const auto &[name, values] : factors)
    all["factors/" + name] = values;
  for (const auto &[name, values] : biases)
    all["biases/" + name] = values;
  if (all.empty())
    return std::string();
  return formatNpz(all);
}

Status Recipe::write(const std::string &path) const {
  Result<std::string> json = text(), archive = arrays();
  if (!json)
    return json.status();
  if (!archive)
    return archive.status();
  // The archive first: a recipe never names one that is not there.
  if (!archive->empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(archiveOf(path), *archive));
  return writeFileAtomically(path, *json);
}

Result<Recipe> Recipe::read(const std::string &path) {
  Result<std::string> json = readFile(path);
  if (!json)
    return json.status();
  std::string archive;
  std::error_code error;
  if (std::filesystem::exists(archiveOf(path), error)) {
    Result<std::string> bytes = readFile(archiveOf(path));
    if (!bytes)
      return bytes.status();
    archive = std::move(*bytes);
  }
  return parse(*json, path, archive);
}

/// Codes, scales and factors of a recipe whose other entries are read.
Status Recipe::readArrays(std::string_view bytes, const std::string &path) {
  Result<std::map<std::string, HostTensor>> all = parseNpz(bytes, archiveOf(path));
  if (!all)
    return all.status();
  for (auto &[key, array] : *all) {
    auto bad = [&, key = &key](const std::string &what) { return invalidError(what, archiveOf(path) + ": '" + *key + "'"); };
    const size_t slash = key.find('/');
    const std::string kind = key.substr(0, slash), name = slash == std::string::npos ? "" : key.substr(slash + 1);
    if (kind == "biases" && array.dtype == DType::F32 && array.rank() == 1) {
      for (int64_t i = 0, n = array.count(); i < n; ++i)
        if (!std::isfinite(array.real(i)))
          return bad("is not finite at element " + std::to_string(i));
      if (!products.count(name))
        return bad("belongs to no product of the recipe");
      biases[name] = std::move(array);
      continue;
    }
    for (int64_t i = 0, n = isFloat(array.dtype) ? array.count() : 0; i < n; ++i)
      if (!std::isnormal(float(array.real(i))) || array.real(i) <= 0)
        return bad("is no positive normal number at element " + std::to_string(i));
    if (kind == "factors" && array.dtype == DType::F32 && array.rank() == 1) {
      factors[name] = std::move(array);
      continue;
    }
    auto weight = weights.find(name);
    if (weight == weights.end() || weight->second.format != WeightFormat::Integer)
      return bad("belongs to no weight of the recipe");
    if (kind == "scales" && array.dtype == DType::F32) {
      codes[name].scales = std::move(array);
    } else if (kind == "codes" && array.dtype == DType::I8 && array.rank() >= 2) {
      const int64_t greatest = (1 << (weight->second.bits - 1)) - 1;
      HostTensor &into = codes[name].codes = HostTensor(weight->second.bits == 4 ? DType::I4 : DType::I8, array.dims);
      for (int64_t i = 0, n = array.count(); i < n; ++i) {
        if (std::abs(array.integer(i)) > greatest)
          return bad("has a code out of range at element " + std::to_string(i));
        into.setInteger(i, array.integer(i));
      }
    } else {
      return bad("has a type or kind that no recipe has");
    }
  }
  for (const auto &[name, made] : codes)
    if (made.codes.dims.empty() || made.scales.dims != scaleSizes(made.codes.dims, weights.at(name)))
      return invalidError("has no codes and scales that fit each other", archiveOf(path) + ": '" + name + "'");
  return okStatus();
}

Result<Recipe> Recipe::parse(std::string_view text, const std::string &path, std::string_view arrays) {
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
  if (auto version = top->getInteger("version"); version != 1 && version != 2)
    return bad("is of a version that this lathe does not read");
  const json::Object *ranges = top->getObject("activations"), *matrices = top->getObject("weights");
  const json::Array *results = top->getArray("products");
  std::optional<llvm::StringRef> scheme = top->getString("scheme");
  if (!ranges || !matrices || !results || !scheme)
    return bad("lacks its scheme, activations, weights or products");
  Recipe recipe;
  recipe.scheme = scheme->str();
  if (Result<Scheme> known = schemeNamed(recipe.scheme); !known && recipe.scheme != kMixed)
    return bad(known.status().message());
  recipe.range = top->getString("range").value_or("minmax").str();
  recipe.method = top->getString("method").value_or("rtn").str();
  recipe.dynamic = top->getBoolean("dynamic").value_or(false);
  recipe.microsoft = top->getString("ops") == llvm::StringRef("com.microsoft");
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
    if (!bits || !axis || !block || (*bits != 8 && *bits != 4 && *bits != 16) || (*axis != 0 && *axis != 1) || *block < 0)
      return bad("wants bits of 8 or 4 (16 of f16 and bf16), an axis of 0 or 1, and a block of 0 or more", name.str());
    std::optional<WeightFormat> format = formatNamed(weight->getString("format").value_or(kFormats[0]));
    if (!format || !fits(*format, *bits, *block))
      return bad("wants a format of integer (8 or 4 bits), mxfp4 or nf4 (4 bits in blocks), f8e4m3 (8 bits), f16 or bf16 "
                 "(16 bits)", name.str());
    recipe.weights[name.str()] = {int(*bits), *axis, *block, *format, weight->getBoolean("weight_only").value_or(false)};
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
  if (std::optional<llvm::StringRef> digest = top->getString("arrays")) {
    if (arrays.empty())
      return bad("names arrays that should lie beside it in '" + archiveOf(path) + "'");
    if (*digest != digestOf(arrays))
      return bad("names other arrays than those in '" + archiveOf(path) + "'");
    LATHE_RETURN_IF_ERROR(recipe.readArrays(arrays, path));
  }
  return recipe;
}

} // namespace lathe::quantize
