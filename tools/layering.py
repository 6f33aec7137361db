#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the rules of the source tree; prints `file:line: message` and exits 1 if one is broken.

    tools/layering.py [ROOT]

1. What a folder may include (ALLOWED), and which folders must not reach MLIR through any header.
2. No source file over 800 lines.
3. A README.md in each folder, of 80 lines or less below the top.
4. A lit test of the same name for each pass, and a line of a lit test for each op of a dialect.
5. One place for each of these: the version of a target, what its name says, reading KernelSpec's text (ONLY_IN); what
   compares families of kernels (check_families).
6. Generic passes ask StructuredOpInterface: how often they name a tensor op in a cast (OP_NAMES).
"""
import functools
import os
import re
import subprocess
import sys

LLVM = {"mlir", "llvm"}
# Longest matching prefix wins. Words: the areas of include/lathe; of codegen's headers `kernelspec`
# (KERNEL_SPEC) and `select` (what codegen/select includes); `phase`, the list of phases; `mlir`,
# `llvm`, `onnx`, `flatbuffers`, `sodium`, `system` (POSIX). The standard library and the folder itself are
# always allowed.
ALLOWED = {
    "lib/support": {"support"},
    # Mapping a file, replacing one atomically and asking the loader have no form in the standard library.
    "lib/support/Files.cpp": {"support", "system"},
    "lib/support/CodeFile.cpp": {"support", "system"},
    "lib/support/ByteSink.cpp": {"support", "system"},
    "lib/support/Parallel.cpp": {"support", "system"},
    "lib/support/OlderGlibc.cpp": {"system"},
    "lib/reference": {"support", "reference"},
    "lib/analysis": {"support", "analysis", "engine"},
    "lib/engine": {"support", "engine", "flatbuffers", "system"},
    # Ed25519, in the two files that verify and sign.
    "lib/engine/Signature.cpp": {"support", "engine", "sodium"},
    "lib/engine/SignEngine.cpp": {"support", "engine", "sodium"},
    "runtime": {"support", "engine", "runtime", "system"},
    # A library of its own, which the runtime opens: text and images by other libraries.
    "runtime/host/library": {"support", "system"},
    "lib/ir": {"support", "analysis", "ir", "kernelspec", *LLVM},
    "lib/quantize": {"support", "quantize", "llvm"},
    "lib/sparsify": {"support", "sparsify"},
    "lib/import": {"support", "ir", "import", "quantize", "sparsify", "onnx", "system", *LLVM},
    "passes": {"support", "reference", "analysis", "engine", "ir", "passes", "phase", "kernelspec", "sparsify",
               *LLVM},
    # An op without a lowering of its own is expanded by the function body of its ONNX schema.
    "passes/legalize": {"support", "reference", "ir", "import", "passes", "phase", "kernelspec", *LLVM},
    "passes/select": {"support", "engine", "ir", "passes", "phase", "kernelspec", "select", *LLVM},
    "codegen": {"support", "engine", "ir", "codegen", "kernelspec", "select", "system", *LLVM},
    "codegen/select": {"support", "engine", "kernelspec", "select"},
    "codegen/select/HostCpu.cpp": {"support", "select", "kernelspec", "system"},
    "codegen/nvrtc": {"support", "codegen", "kernelspec", "system"},
    "codegen/device": {"support", "codegen", "kernelspec", "select", "system"},
    "lib/compiler": {"support", "reference", "analysis", "engine", "ir", "import", "passes",
                     "phase", "codegen", "kernelspec", "select", "runtime", "compiler", "sparsify", "system",
                     *LLVM},
}
# Headers of an area obey the rule of the folder that implements it.
HEADERS = {area: f"lib/{area}" for area in
           ("support", "reference", "analysis", "engine", "ir", "quantize", "sparsify", "import", "compiler")}
HEADERS.update(runtime="runtime", passes="passes", codegen="codegen")
# Not one header on the way may be MLIR's or LLVM's.
MLIR_FREE = ("lib/support", "lib/reference", "lib/engine", "lib/analysis", "runtime",
             "codegen/select", "codegen/nvrtc", "codegen/device")
# What passes and codegen share: what a kernel is, what it is for, and for which target.
KERNEL_SPEC = {"KernelPolicy.h", "KernelSpec.h", "Target.h", "TargetRates.h"}

STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono
cinttypes ciso646 climits clocale cmath codecvt compare complex concepts condition_variable
coroutine csetjmp csignal cstdarg cstdbool cstddef cstdint cstdio cstdlib cstring ctime cuchar
cwchar cwctype deque exception execution filesystem format forward_list fstream functional future
initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex
scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token
streambuf string string_view syncstream system_error thread tuple type_traits typeindex typeinfo
unordered_map unordered_set utility valarray variant vector version
assert.h errno.h float.h inttypes.h limits.h math.h stdarg.h stdbool.h stddef.h stdint.h stdio.h
stdlib.h string.h time.h immintrin.h""".split())

SOURCE = (".cpp", ".h", ".c", ".cuh", ".cu", ".td", ".fbs", ".py")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
MAX_LINES, MAX_README = 800, 80
PASS = re.compile(r"^(struct|class)\b.*: (public )?(impl::)?\w*Pass(Base|Wrapper)?<")

# How often a folder's casts name tensor ops. What an op is to these passes, the structured-op
# interface says: the numbers may only fall, and fall here when they do.
OP_NAMES = {"passes/fuse": 15, "passes/plan": 1, "passes/select": 7}
OP_DEFINITION = re.compile(r"^def Lathe_(\w+Op)\s*:\s*Lathe_(?:Structured|Inferred|Unary|Binary)Op\b",
                           re.M)
OP_CAST = re.compile(r"\b(?:isa|isa_and_nonnull|isa_and_present|cast|cast_or_null|dyn_cast|dyn_cast_or_null|"
                     r"dyn_cast_if_present|getDefiningOp|getOps|opAt)<([^<>]*)>")


def tracked(root):
    """Files of the tree, as git sees them (also new ones); all of them outside a checkout."""
    try:
        out = subprocess.run(
            ["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.splitlines()
        if out:
            return sorted(f for f in out if os.path.isfile(os.path.join(root, f)))
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith((".", "build"))]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(found)


def lines_of(root, file):
    with open(os.path.join(root, file), encoding="utf-8", errors="replace") as f:
        return f.read().splitlines()


def includes_of(root, file):
    for number, line in enumerate(lines_of(root, file), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def owner(file):
    """The folder whose rule a file obeys, or None (tools, test, examples)."""
    parts = file.split("/")
    if parts[:2] == ["include", "lathe"] and len(parts) > 3:
        return HEADERS.get(parts[2], f"lib/{parts[2]}")
    matches = [p for p in ALLOWED if file == p or file.startswith(p + "/")]
    return max(matches, key=len, default=None)


@functools.cache
def select_headers(root):
    """Headers of codegen that codegen/select includes: what passes/select may call."""
    folder = os.path.join(root, "codegen/select")
    sources = os.listdir(folder) if os.path.isdir(folder) else []
    return {path for source in sources if source.endswith((".cpp", ".h"))
            for _, _, path in includes_of(root, "codegen/select/" + source)
            if path.startswith("lathe/codegen/")}


def kind_of(root, file, quoted, path):
    """What an include is, in the words of ALLOWED; and the file it names, if it is ours."""
    first = path.split("/")[0]
    if first == "lathe":
        parts = path.split("/")
        area, header = parts[1], "include/" + path
        if path == "lathe/compiler/Phase.h":
            area = "phase"
        elif area == "codegen":
            if parts[-1] in KERNEL_SPEC:
                area = "kernelspec"
            elif path in select_headers(root):
                area = "select"
        return area, header
    if first in LLVM or first in ("llvm-c", "clang", "lld"):
        return ("mlir" if first == "mlir" else "llvm"), None
    if first == "onnx" or path.startswith("google/protobuf"):
        return "onnx", None
    if first in ("flatbuffers", "sodium"):
        return first, None
    if path in STANDARD:
        return "std", None
    if quoted:
        local = os.path.normpath(os.path.join(os.path.dirname(file), path))
        return "local", local
    return "system", None


def reaches_mlir(root, file, seen):
    """The chain of headers from `file` to one of MLIR's or LLVM's, or None."""
    if file in seen or not os.path.exists(os.path.join(root, file)):
        return None
    seen.add(file)
    for _, quoted, path in includes_of(root, file):
        kind, target = kind_of(root, file, quoted, path)
        if kind in LLVM:
            return [path]
        if target:
            chain = reaches_mlir(root, target, seen)
            if chain:
                return [path] + chain
    return None


def check_includes(root, files):
    for file in files:
        folder = owner(file)
        if folder is None or not file.endswith((".cpp", ".h", ".c", ".cuh", ".cu")):
            continue
        allowed = ALLOWED.get(folder)
        if allowed is None:
            yield file, 1, f"no include rule for {folder}: add it to tools/layering.py"
            continue
        own = {area for area, implementation in HEADERS.items() if folder == implementation}
        for number, quoted, path in includes_of(root, file):
            kind, target = kind_of(root, file, quoted, path)
            if file.endswith((".cuh", ".cu")) and kind != "local":
                yield file, number, f"device code includes nothing: {path}"
            elif kind == "local":
                home = os.path.dirname(folder) if folder.endswith(".cpp") else folder
                if not target.startswith(home + "/") and not file.startswith("include/"):
                    other = owner(target) or os.path.dirname(target)
                    if other != home and not home.startswith(other + "/"):
                        yield file, number, f"{folder} includes a private header of {other}: {path}"
            elif kind != "std" and kind not in allowed | own:
                yield file, number, f"{folder} must not include {kind}: {path}"
        # Public headers of codegen are shared by folders with and without MLIR, so that the rule
        # is asked from the sources that include them.
        if folder.startswith(MLIR_FREE):
            for number, quoted, path in includes_of(root, file):
                kind, target = kind_of(root, file, quoted, path)
                chain = target and reaches_mlir(root, target, {file})
                if chain:
                    yield file, number, (f"{folder} must be free of MLIR and LLVM, but "
                                         + " -> ".join([path] + chain))


def check_sizes(root, files):
    for file in files:
        if file.endswith(SOURCE):
            count = len(lines_of(root, file))
            if count > MAX_LINES:
                yield file, MAX_LINES, f"{count} lines; a file is about one thing (800 at most)"


def check_readmes(root, files):
    folders = set()
    for file in files:
        folder = os.path.dirname(file)
        while folder:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(folders):
        parts = folder.split("/")
        if "Inputs" in parts or any(p.startswith(".") for p in parts):
            continue
        readme = folder + "/README.md"
        if readme not in files:
            yield folder, 1, "has no README.md"
        elif len(lines_of(root, readme)) > MAX_README:
            yield readme, MAX_README, "more than a screen"


def plain(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def check_tests(root, files):
    tests = [f for f in files
             if f.startswith("test/") and f.endswith((".mlir", ".onnxtxt", ".test"))]
    named = {(f.split("/")[-2], plain(os.path.splitext(os.path.basename(f))[0])) for f in tests}
    for file in files:
        parts = file.split("/")
        if parts[0] == "passes" and len(parts) == 3 and file.endswith(".cpp"):
            if any(PASS.search(line) for line in lines_of(root, file)):
                stem = os.path.splitext(parts[2])[0]
                if (parts[1], plain(stem)) not in named:
                    yield file, 1, f"no lit test test/passes/{parts[1]}/{stem}.mlir"
    text = "\n".join(line for f in tests for line in lines_of(root, f))
    words = set(re.findall(r"\b(?:lathe|exec|tile|onnx)\.[a-z0-9_]+", text))
    for file in files:
        if not (file.startswith("lib/ir/") or file.startswith("include/lathe/ir/")) \
                or not file.endswith(".td"):
            continue
        for number, line in enumerate(lines_of(root, file), 1):
            match = re.search(r'^\s*def\s+(Lathe|Exec|Tile)\w*_\w+\s*:\s*\w+<"([a-z0-9_.]+)"', line)
            if match and "Op" in line:
                name = f"{match[1].lower()}.{match[2]}"
                if name not in words:
                    yield file, number, f"no lit test names the op {name}"


# What only these files may say, and what to do elsewhere.
ONLY_IN = [
    (re.compile(r"\b(smVersion|archSpecific)\b"),
     {"include/lathe/codegen/Target.h", "codegen/select/Target.cpp"},
     "asks a target for its version: ask for a capability (lathe/codegen/Target.h)"),
    # The runtime and NVRTC know targets by their names alone.
    (re.compile(r'\b(?:rfind|find|starts_with|substr)\([^)]*"sm_|[!=]= *"sm_'),
     {"codegen/select/Target.cpp", "codegen/nvrtc/Compiler.cpp", "runtime/device/CudaDevice.cpp",
      "lib/compiler/EngineCache.cpp", "test/unit/ChooseTest.cpp", "test/unit/KernelSpecTest.cpp"},
     "goes by the name of a target: ask for a capability (lathe/codegen/Target.h)"),
    (re.compile(r"KernelSpec::parse|\bparseGuard\b"),
     {"include/lathe/codegen/KernelSpec.h", "codegen/select/KernelSpecParse.cpp",
      "lib/ir/KernelVariants.cpp", "test/unit/KernelSpecTest.cpp"},
     "reads the text of variants: take them from variantsOf (lathe/ir/KernelVariants.h)"),
]


def check_places(root, files):
    for file in files:
        if not file.endswith((".cpp", ".h", ".td")):
            continue
        rules = [(pattern, message) for pattern, places, message in ONLY_IN if file not in places]
        for number, line in enumerate(lines_of(root, file), 1):
            for pattern, message in rules:
                if pattern.search(line):
                    yield file, number, message


DESCRIPTOR = re.compile(r'const Skeleton (k\w+) = \{\s*\.family = "([^"]+)"', re.S)
FAMILIES_IN = "codegen/select/Skeletons.cpp"
SEARCHES = re.compile(r'(?:starts_with|ends_with|find|rfind|contains|consume_front|Case|Cases)\(\{?"([^"]{3,})"')


def check_families(root, files):
    """Families of kernels are compared in one file; everyone else asks their descriptors."""
    named = {}
    for file in files:
        if file.startswith("codegen/") and file.endswith(".cpp"):
            named.update(DESCRIPTOR.findall("\n".join(lines_of(root, file))))
    dotted = [family for family in named.values() if "." in family]
    order = "|".join(sorted(map(re.escape, dotted), key=len, reverse=True))
    plain = "|".join(sorted(map(re.escape, set(named.values()) - set(dotted))))
    pointers = "|".join(sorted(named))
    if not named:
        return
    compared = re.compile(rf'[!=]=\s*&(?:{pointers})\b|[!=]=\s*"(?:{order})"|"(?:{order})"\s*[!=]='
                          rf'|\bfamily(?:\(\))?\s*[!=]=|(?:family|config)\S*\s*[!=]=\s*"(?:{plain})"'
                          r'|\bfamily(?:\(\))?\.(?:starts_with|ends_with|find|rfind|substr|contains)\(')
    for file in files:
        if not file.endswith((".cpp", ".h")) or file.startswith("test/") or file == FAMILIES_IN:
            continue
        for number, line in enumerate(lines_of(root, file), 1):
            part = SEARCHES.search(line)
            in_family = part and any(part[1] in f and ("." in part[1] or "famil" in line or "config" in line)
                                     for f in dotted)
            if compared.search(line) or in_family:
                yield file, number, (f"compares families of kernels, as {FAMILIES_IN} alone does: ask the "
                                     "descriptor (lathe/codegen/Skeleton.h)")


def check_op_names(root, files):
    ops = {name for file in files if file.startswith("include/lathe/ir/") and file.endswith(".td")
           for name in OP_DEFINITION.findall("\n".join(lines_of(root, file)))}
    for folder, limit in OP_NAMES.items():
        places = [(file, number, name.strip().split("::")[-1])
                  for file in files if os.path.dirname(file) == folder
                  for number, line in enumerate(lines_of(root, file), 1)
                  for cast in OP_CAST.findall(line)
                  for name in cast.split(",") if name.strip().split("::")[-1] in ops]
        if len(places) > limit:
            file, number, name = places[-1]
            yield file, number, (f"{folder} names {len(places)} tensor ops in casts, {limit} at most: ask "
                                 f"StructuredOpInterface what {name} is")
        elif 0 < len(places) < limit:
            yield "tools/layering.py", 1, f"{folder} names {len(places)} tensor ops: say so in OP_NAMES"


def violations(root):
    files = tracked(root)
    for check in (check_includes, check_sizes, check_readmes, check_tests, check_places,
                  check_families, check_op_names):
        yield from check(root, files)


def main(argv):
    root = argv[1] if len(argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    count = 0
    for file, line, message in violations(root):
        print(f"{file}:{line}: {message}")
        count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
