# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/layering.py finds each kind of planted violation, and nothing in a tree without one."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
import layering  # noqa: E402

CLEAN = {
    "lib/support/Text.cpp": "#include <string>\n#include \"lathe/support/Text.h\"\n",
    "include/lathe/support/Text.h": "#include <string>\n",
    "runtime/exec/Run.cpp": "#include <dlfcn.h>\n#include \"lathe/engine/Plan.h\"\n",
    "include/lathe/engine/Plan.h": "#include \"lathe/support/Text.h\"\n",
    "include/lathe/codegen/Choice.h": "#include <vector>\n",
    "codegen/select/Choice.cpp": "#include \"lathe/codegen/Choice.h\"\n",
    "passes/select/Select.cpp": "#include \"mlir/IR/Builders.h\"\n"
                                "#include \"lathe/codegen/Choice.h\"\n"
                                "struct P : PassWrapper<P> {};\n",
    "test/passes/select/select.mlir": "// RUN: lathe-opt\n lathe.neg\n",
    "include/lathe/ir/Ops.td": 'def Lathe_NegOp : Lathe_UnaryOp<"neg", "y = -x">;\n',
}


class Layering(unittest.TestCase):
    def find(self, **planted):
        with tempfile.TemporaryDirectory() as root:
            files = {**CLEAN, **{k: v for k, v in planted.get("files", {}).items()}}
            for folder in {os.path.join(*f.split("/")[:n]) for f in files
                           for n in range(1, f.count("/") + 1)}:
                files.setdefault(folder + "/README.md", "what is here\n")
            for name in planted.get("without", ()):
                del files[name]
            for name, text in files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as f:
                    f.write(text)
            return [f"{f}:{n}: {m}" for f, n, m in layering.violations(root)]

    def expect(self, pattern, **planted):
        self.assertRegex("\n".join(self.find(**planted)), pattern)

    def test_clean(self):
        self.assertEqual(self.find(), [])

    def test_support_uses_the_standard_library_alone(self):
        self.expect(r"lib/support/A.cpp:2: lib/support must not include system: unistd.h",
                    files={"lib/support/A.cpp": "#include <string>\n#include <unistd.h>\n"})

    def test_runtime_includes_no_mlir(self):
        self.expect(r"runtime/exec/A.cpp:1: runtime must not include mlir",
                    files={"runtime/exec/A.cpp": '#include "mlir/IR/Builders.h"\n'})

    def test_runtime_includes_no_codegen(self):
        self.expect(r"runtime must not include select: lathe/codegen/Choice.h",
                    files={"runtime/A.cpp": '#include "lathe/codegen/Choice.h"\n'})

    def test_mlir_through_a_header(self):
        self.expect(r"codegen/select/A.cpp:1: codegen/select must be free of MLIR and LLVM, but "
                    r"lathe/codegen/KernelSpec.h -> llvm/ADT/StringRef.h",
                    files={"codegen/select/A.cpp": '#include "lathe/codegen/KernelSpec.h"\n',
                           "include/lathe/codegen/KernelSpec.h":
                           '#include "llvm/ADT/StringRef.h"\n'})

    def test_passes_reach_codegen_only_through_select(self):
        self.expect(r"passes/fuse/A.cpp:1: passes must not include select",
                    files={"passes/fuse/A.cpp": '#include "lathe/codegen/Choice.h"\n'})

    def test_codegen_includes_no_passes(self):
        self.expect(r"codegen must not include passes",
                    files={"codegen/tile/A.cpp": '#include "lathe/passes/Passes.h"\n'})

    def test_onnx_stays_in_import(self):
        self.expect(r"must not include onnx",
                    files={"passes/legalize/A.cpp": '#include "onnx/onnx_pb.h"\n'})

    def test_private_header_of_another_folder(self):
        self.expect(r"private header of lib/engine",
                    files={"runtime/A.cpp": '#include "../lib/engine/Private.h"\n'})

    def test_device_code_includes_nothing(self):
        self.expect(r"a.cuh:1: device code includes nothing: cuda_fp16.h",
                    files={"codegen/device/a.cuh": "#include <cuda_fp16.h>\n"})

    def test_long_file(self):
        self.expect(r"801 lines", files={"lib/support/Long.cpp": "int x;\n" * 801})

    def test_missing_readme(self):
        self.expect(r"lib/support:1: has no README.md", without=["lib/support/README.md"])

    def test_pass_without_test(self):
        self.expect(r"no lit test test/passes/select/Select.mlir",
                    without=["test/passes/select/select.mlir"])

    def test_name_of_a_target(self):
        self.expect(r"tools/lathe/A.cpp:2: goes by the name of a target", files={
            "tools/lathe/A.cpp": 'bool f(const std::string &target) {\n  return target.rfind("sm_9", 0) == 0;\n}\n'})

    def test_version_of_a_target(self):
        self.expect(r"passes/fuse/A.cpp:2: asks a target for its version", files={
            "passes/fuse/A.cpp": "bool f(const Target &t) {\n  return t.smVersion >= 90;\n}\n"})

    def test_families_are_compared_in_one_file(self):
        descriptor = 'const Skeleton kGemmTiny = {\n    .family = "gemm.tiny",\n    .block = "all"};\n'
        for line in ('if (c.family() == other)', 'if (config == "gemm.tiny")', 'c.form == &kGemmTiny',
                     'config.starts_with("gemm.")', 'family().ends_with(x)'):
            self.expect(r"codegen/cuda/A.cpp:1: compares families of kernels", files={
                "codegen/device/tiny.cpp": descriptor, "codegen/cuda/A.cpp": line + "\n"})
        self.assertEqual(self.find(files={
            "codegen/device/tiny.cpp": descriptor, "codegen/cuda/A.cpp": "c.form->wgmma.swapped\n",
            "codegen/select/Skeletons.cpp": "skeleton->family == family\n"}), [])

    def test_texts_of_specs_are_read_in_one_file(self):
        self.expect(r"passes/plan/A.cpp:1: reads the text of variants", files={
            "passes/plan/A.cpp": "auto spec = KernelSpec::parse(text);\n"})

    def test_op_names_in_generic_passes(self):
        found = self.find(files={"passes/plan/Size.cpp": "if (isa<ConstantOp, lathe::NegOp>(op))\n" * 99})
        self.assertIn("passes/plan names 99 tensor ops", found[0])

    def test_op_without_test(self):
        self.expect(r"no lit test names the op lathe.abs", files={
            "include/lathe/ir/Ops.td": 'def Lathe_AbsOp : Lathe_UnaryOp<"abs", "y = |x|">;\n'})


if __name__ == "__main__":
    unittest.main()
