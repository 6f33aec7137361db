# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `cmake --install` and CPack write: programs are built against it, and run."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
double (float[N,8] x) => (float[N,8] y) { y = Add(x, x) }
"""

LISTS = """cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(lathe 0.1 REQUIRED COMPONENTS compiler)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE lathe::runtime lathe::compiler)
"""

# Compiles in the process, then runs.
APP = r"""
#include "lathe/compiler/lathe_compiler.h"
#include "lathe/runtime/lathe.hpp"
#include <cstdio>

int main(int, char **argv) {
  if (lathe_compile_error *e = lathe_compile_to_file(argv[1], nullptr, "app.lathe")) {
    std::puts(lathe_compile_error_message(e));
    return 1;
  }
  lathe::rt::Engine engine;
  lathe::rt::Context context;
  if (auto e = engine.open("app.lathe"))
    return std::puts(e.message().c_str()), 1;
  if (auto e = context.create(engine, "cpu"))
    return std::puts(e.message().c_str()), 1;
  std::vector<float> x(8, 1.5f);
  const std::vector<int64_t> dims = {1, 8};
  lathe_tensor y{};
  if (auto e = context.run("", {{lathe::rt::tensor(x, dims)}}, {&y, 1}))
    return std::puts(e.message().c_str()), 1;
  std::printf("%g\n", static_cast<const float *>(y.data)[7]);
}
"""


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("install") / "a folder"
    run("cmake", "--install", BUILD, "--prefix", folder, "--strip")
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.onnxtxt"
    path.write_text(MODEL)
    return path


def newest_glibc(file):
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", file))
    return max((int(a), int(b)) for a, b in versions)


def test_libraries_load_on_older_systems(prefix):
    for file in ("lib/liblathe_runtime.so", "lib/liblathe_compiler.so", "bin/lathe", "bin/lathe-opt"):
        assert newest_glibc(prefix / file) <= (2, 34), file
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", prefix / file))
        assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, (file, needed)


def test_find_package(prefix, model, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(LISTS)
    (tmp_path / "app.cpp").write_text(APP)
    run("cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_CXX_COMPILER=clang++-22", "-DCMAKE_C_COMPILER=clang-22")
    run("ninja", "-C", tmp_path / "b")
    assert run(tmp_path / "b/app", model, cwd=tmp_path) == "3\n"


def test_another_version_is_refused(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(LISTS.replace("lathe 0.1", "lathe 9.0"))
    (tmp_path / "app.cpp").write_text(APP)
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "b",
                           f"-DCMAKE_PREFIX_PATH={prefix}"], capture_output=True, text=True)
    assert done.returncode != 0 and "version" in done.stderr


def test_pkg_config(prefix, model, tmp_path):
    """The C program of the README, which names an engine that lies beside it."""
    source = re.search(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    (tmp_path / "app.c").write_text(source)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    assert run("pkg-config", "--modversion", "lathe", env=environment).strip() == "0.1.0"
    flags = run("pkg-config", "--cflags", "--libs", "lathe", env=environment)
    run("bash", "-c", f"cc app.c -o app {flags.strip()} '-Wl,-rpath,{prefix}/lib'", cwd=tmp_path)
    run(prefix / "bin/lathe", "compile", model, "-o", tmp_path / "model.lathe")
    assert run(tmp_path / "app", cwd=tmp_path) == "0.000000\n"


def test_debian_packages(tmp_path):
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", tmp_path / "deb", cwd=tmp_path)
    packages = {p.name.split("_")[0]: p for p in (tmp_path / "deb").glob("*.deb")}
    assert set(packages) == {"lathe", "liblathe-runtime", "liblathe-host", "liblathe-dev"}
    for name, package in packages.items():
        fields = run("dpkg-deb", "--field", package)
        assert f"Package: {name}\n" in fields and "Version: 0.1.0" in fields
        run("dpkg-deb", "-x", package, tmp_path / "root")
    assert run("dpkg-deb", "--field", packages["lathe"], "Depends").strip() == "libc6 (>= 2.34)"
    root = tmp_path / "root/usr"
    assert run(root / "bin/lathe", "--version") == "lathe 0.1.0\n"
    for file in ("lib/liblathe_runtime.so", "lib/liblathe_compiler.so", "lib/liblathe_host.so", "include/lathe/runtime/lathe.h",
                 "lib/pkgconfig/lathe.pc", "lib/cmake/lathe/latheConfig.cmake",
                 "share/bash-completion/completions/lathe"):
        assert (root / file).is_file(), file
