//===- OnnxRuntime.cpp - a second opinion ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "OnnxRuntime.h"

#include "Python.h"
#include "Results.h"

#include "lathe/support/Npy.h"

#include <cmath>
#include <cstdio>

namespace lathe::cli {
namespace {

/// Reads inputs.json and writes the outputs as saveTensors does. A model in ONNX's text form is
/// parsed first: onnxruntime reads the binary one alone.
constexpr const char *kScript = R"py(
import json, os, sys
import numpy, onnxruntime
model, folder = sys.argv[1:]
with open(os.path.join(folder, "outputs.json")) as f:
    feed = {e["name"]: numpy.load(os.path.join(folder, e["file"])) for e in json.load(f)}
if model.endswith(".onnxtxt"):
    import onnx.parser
    with open(model) as f:
        model = onnx.parser.parse_model(f.read()).SerializeToString()
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
for i, value in enumerate(session.run(None, feed)):
    value = numpy.asarray(value, order="C")
    value = value.astype(str) if value.dtype == object else value
    numpy.save(os.path.join(folder, "result_%d.npy" % i), value)
)py";

double boundOf(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16 ? 2e-2 : 1e-4; }

} // namespace

Result<bool> compareWithOnnxRuntime(const std::string &model, const engine::Plan &plan,
                                    const std::vector<HostTensor> &inputs,
                                    const std::vector<HostTensor> &outputs) {
  TemporaryFolder folder;
  std::vector<std::string> names;
  for (const engine::Port &port : plan.inputs)
    names.push_back(port.name);
  LATHE_RETURN_IF_ERROR(saveTensors(folder.path, names, inputs));
  Result<PythonRun> ran = runPython(kScript, {model, folder.path}, folder, "--against=onnxruntime", "onnxruntime");
  if (!ran)
    return ran.status();
  if (ran->code != 0)
    return unsupportedError("did not run: " + ran->said, "onnxruntime");
  bool agrees = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Result<HostTensor> want =
        readNpy(folder.path + "/result_" + std::to_string(i) + ".npy", outputs[i].dtype);
    if (!want)
      return want.status();
    if (outputs[i].dtype == DType::String) {
      bool equal = compareTensors(outputs[i], *want, {}).passed;
      std::printf("  onnxruntime: %s: %s: %s\n", plan.outputs[i].name.c_str(), describeType(*want).c_str(),
                  equal ? "agrees" : "DIFFERS");
      agrees &= equal;
      continue;
    }
    double largest = 0, worst = 0;
    bool same = want->dims == outputs[i].dims;
    for (int64_t k = 0; same && k < want->count(); ++k) {
      double w = want->real(k), g = outputs[i].real(k);
      if (std::isfinite(w))
        largest = std::max(largest, std::fabs(w));
      if (!(g == w || (std::isnan(g) && std::isnan(w))))
        worst = std::isfinite(g) && std::isfinite(w) ? std::max(worst, std::fabs(g - w)) : INFINITY;
    }
    bool good = same && worst <= boundOf(outputs[i].dtype) * largest;
    std::printf("  onnxruntime: %s: largest difference %.3g, largest value %.3g: %s\n",
                plan.outputs[i].name.c_str(), worst, largest,
                !same ? "OTHER SIZES" : good ? "agrees" : "DIFFERS");
    agrees &= good;
  }
  return agrees;
}

} // namespace lathe::cli
