//===- Results.cpp - outputs judged, shown and saved ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Results.h"

#include "lathe/support/Files.h"
#include "lathe/support/Npy.h"
#include "lathe/support/Strings.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace fs = std::filesystem;

namespace lathe::cli {
namespace {

bool within(double got, double want, Tolerance tolerance) {
  if (std::isnan(got) || std::isnan(want))
    return std::isnan(got) && std::isnan(want);
  if (std::isinf(got) || std::isinf(want))
    return got == want;
  return std::fabs(got - want) <= tolerance.atol + tolerance.rtol * std::fabs(want);
}

bool withinAt(const HostTensor &got, const HostTensor &want, int64_t i, Tolerance tolerance) {
  if (isComplex(want.dtype)) {
    std::complex<double> a = got.complexAt(i), b = want.complexAt(i);
    return std::abs(a - b) <= tolerance.atol + tolerance.rtol * std::abs(b);
  }
  if (isFloat(want.dtype))
    return within(got.real(i), want.real(i), tolerance);
  return got.integer(i) == want.integer(i) ||
         within(double(got.integer(i)), double(want.integer(i)), tolerance);
}

/// Equal or not, whatever the tolerance.
Comparison compareStrings(const HostTensor &got, const HostTensor &want) {
  Comparison result;
  Result<std::vector<std::string_view>> have = stringsOf(got), wanted = stringsOf(want);
  if (!have || !wanted) {
    result.problem = (have ? wanted : have).status().message();
    return result;
  }
  result.stats.count = want.count();
  for (size_t i = 0; i < wanted->size(); ++i)
    if ((*have)[i] != (*wanted)[i] && result.outside++ == 0)
      result.firstOutside = int64_t(i);
  result.stats.different = result.outside;
  result.passed = result.outside == 0;
  return result;
}

std::string fileName(const std::string &name, std::set<std::string> &taken) {
  std::string base;
  for (char c : name)
    base += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ? c : '_';
  if (base.empty() || base[0] == '.')
    base.insert(0, "_");
  if (base.size() > 200)
    base.resize(200);
  std::string result = base + ".npy";
  for (int i = 1; !taken.insert(result).second; ++i)
    result = base + "_" + std::to_string(i) + ".npy";
  return result;
}

} // namespace

std::string joined(const std::vector<std::string> &names, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i)
    out += (i ? ", " : "") + names[i];
  if (names.size() > most)
    out += " and " + std::to_string(names.size() - most) + " more";
  return out;
}

Comparison compareTensors(const HostTensor &got, const HostTensor &want, Tolerance tolerance) {
  Comparison result;
  if (got.dtype != want.dtype || got.dims != want.dims) {
    result.problem = describeType(got) + " where " + describeType(want) + " was expected";
    return result;
  }
  if (want.dtype == DType::String)
    return compareStrings(got, want);
  Result<ErrorStats> stats = compareBuffers(want.dtype, got.data, want.data);
  if (!stats) {
    result.problem = stats.status().message();
    return result;
  }
  result.stats = *stats;
  for (int64_t i = 0, count = want.count(); i < count && result.stats.different; ++i) {
    if (withinAt(got, want, i, tolerance))
      continue;
    if (result.outside++ == 0)
      result.firstOutside = i;
  }
  result.passed = result.outside == 0;
  return result;
}

std::string describeType(const HostTensor &tensor) {
  std::string out(name(tensor.dtype));
  out += "[";
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    out += (i ? "," : "") + std::to_string(tensor.dims[i]);
  return out + "]";
}

std::string describeValues(const HostTensor &tensor) {
  int64_t count = tensor.count();
  if (count == 0)
    return "empty";
  std::string values;
  if (tensor.dtype == DType::String) {
    Result<std::vector<std::string_view>> texts = stringsOf(tensor);
    if (!texts)
      return texts.status().message();
    for (size_t i = 0; i < std::min<size_t>(texts->size(), 8); ++i)
      values += (i ? " " : "") + quoted((*texts)[i]);
    return values + (count > 8 ? " ..." : "");
  }
  for (int64_t i = 0; i < std::min<int64_t>(count, 8); ++i) {
    char text[80];
    if (isComplex(tensor.dtype))
      std::snprintf(text, sizeof text, "%s%.6g%+.6gi", i ? " " : "", tensor.complexAt(i).real(),
                    tensor.complexAt(i).imag());
    else if (isFloat(tensor.dtype))
      std::snprintf(text, sizeof text, "%s%.6g", i ? " " : "", tensor.real(i));
    else
      std::snprintf(text, sizeof text, "%s%lld", i ? " " : "",
                    static_cast<long long>(tensor.integer(i)));
    values += text;
  }
  if (count > 8)
    values += " ...";
  if (isComplex(tensor.dtype) || count == 1)
    return values;
  double low = INFINITY, high = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    double v = tensor.real(i);
    low = std::fmin(low, v);
    high = std::fmax(high, v);
    sum += v;
  }
  char text[96];
  std::snprintf(text, sizeof text, "min %.6g, mean %.6g, max %.6g: ", low, sum / double(count),
                high);
  return text + values;
}

std::string describeBytes(double bytes) {
  const char *units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return text;
}

Status saveTensors(const std::string &folder, const std::vector<std::string> &names,
                   const std::vector<HostTensor> &tensors) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return runtimeError("cannot be made: " + error.message(), folder);
  llvm::json::Array list;
  std::set<std::string> taken;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string file = fileName(names[i], taken);
    LATHE_RETURN_IF_ERROR(writeNpy((fs::path(folder) / file).string(), tensors[i]));
    list.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(names[i])},
                                      {"file", file},
                                      {"dtype", std::string(name(tensors[i].dtype))},
                                      {"shape", llvm::json::Array(tensors[i].dims)}});
  }
  return writeFileAtomically((fs::path(folder) / "outputs.json").string(),
                             llvm::formatv("{0:2}\n", llvm::json::Value(std::move(list))).str());
}

} // namespace lathe::cli
