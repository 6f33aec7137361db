# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit suites of lathe: `lit build/test` for a build, `lit test` for the one in build/.

Substitutions: %lathe, %lathe-opt, %lathe-translate, %lathe-reduce, %lathe-conformance, %python
(the virtual environment's), %models (exported models), %source (the top folder), %build (the build
tree). FileCheck, not and split-file come from LLVM 22. Features: nvrtc, torch, models, and x86-64-v4 where the processor has it.
"""
import glob
import os
import sys

import lit.formats

config.name = "lathe"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["conformance", "docs", "unit", "fuzz", "models", "perf", "Inputs"]
config.test_source_root = os.path.dirname(__file__)
source = os.path.dirname(config.test_source_root)
build = getattr(config, "lathe_build", os.path.join(source, "build"))
config.test_exec_root = os.path.join(build, "test", "lit")

bin_dir = os.path.join(build, "bin")
venv = os.path.join(source, ".venv")
python = os.path.join(venv, "bin", "python")
if not os.path.exists(python):
    python = sys.executable
models = os.path.join(build, "models")

for name in ("lathe-opt", "lathe-translate", "lathe-reduce", "lathe-conformance"):
    config.substitutions.append((f"%{name}", os.path.join(bin_dir, name)))
config.substitutions.append((r"%lathe(?![-\w])", os.path.join(bin_dir, "lathe")))
config.substitutions.append(("%python", python))
config.substitutions.append(("%models", models))
config.substitutions.append(("%source", source))
config.substitutions.append(("%build", build))
config.environment["PATH"] = os.pathsep.join(
    [bin_dir, "/usr/lib/llvm-22/bin", os.environ.get("PATH", "")])
for variable in ("HOME", "LATHE_NVRTC", "LATHE_CACHE_DIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]

packages = glob.glob(os.path.join(venv, "lib", "python3*", "site-packages"))


def installed(pattern):
    return any(glob.glob(os.path.join(p, pattern)) for p in packages)


if installed("nvidia/cu*/lib/libnvrtc.so*") or "LATHE_NVRTC" in os.environ:
    config.available_features.add("nvrtc")
if installed("torch/version.py"):
    config.available_features.add("torch")
if os.path.exists(os.path.join(models, "llama", "summary.json")):
    config.available_features.add("models")
with open("/proc/cpuinfo") as f:
    if " avx512vl " in f.read():
        config.available_features.add("x86-64-v4")
