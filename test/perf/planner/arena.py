# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arena bytes of lathe's plans and of onnxruntime's memory pattern, model by model.

    arena.py [FILE.md] [MODEL...]

lathe: what each stage of the order needs (written, order, in place, recompute: the remark), the
arena that is planned, and the lower bound of that problem (`lathe plan` on the dumped problem).
onnxruntime: what its arena grows by in the second run of a session, when the memory pattern of the
first is known and everything else was given back; outputs are bound, as lathe's are. Nothing is
timed: the figures are the same on every machine.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
LATHE = os.path.join(os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build")), "bin", "lathe")
MODELS = os.path.join(ROOT, "build", "models")
LLAMA = "llama/dynamo18_sdpa/model.onnx"
# Graphs of known networks, without their weights, that come with the onnx package.
LIGHT = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
# name: file, sizes of named dimensions, or the shape of the first input under ""
CASES = {
    "magika": ("magika.onnx", {"": [1, 2048]}),
    "cls": ("ppocr_cls.onnx", {"": [1, 3, 48, 192]}),
    "cls, 8 rows": ("ppocr_cls.onnx", {"": [8, 3, 48, 192]}),
    "llama, prefill 128": (LLAMA, {"B": 1, "S": 128, "P": 0, "s64": 128}),
    "llama, prefill 4 x 512": (LLAMA, {"B": 4, "S": 512, "P": 0, "s64": 512}),
    "llama, decode at 511": (LLAMA, {"B": 1, "S": 1, "P": 511, "s64": 512}),
    "resnet50": ("perf/resnet50.onnx", {"N": 1}),
    "resnet50, 8 images": ("perf/resnet50.onnx", {"N": 8}),
    "mobilenet_v2": ("perf/mobilenet_v2.onnx", {"N": 1}),
    "efficientnet_b0": ("perf/efficientnet_b0.onnx", {"N": 1}),
    "vit_b16": ("perf/vit_b16.onnx", {"N": 1}),
    "bert_base 128": ("perf/bert_base.onnx", {"N": 1, "S": 128}),
    "bert_base 8 x 384": ("perf/bert_base.onnx", {"N": 8, "S": 384}),
    "minilm 128": ("perf/minilm.onnx", {"N": 1, "S": 128}),
    "gpt2 64": ("perf/gpt2.onnx", {"N": 1, "S": 64}),
    "gpt2 1024": ("perf/gpt2.onnx", {"N": 1, "S": 1024}),
    "gpt2, step at 128": ("perf/gpt2_step.onnx", {"N": 1, "S": 1, "P": 128}),
    "ppocr_det 640": ("perf/ppocr_det.onnx", {"": [1, 3, 640, 640]}),
    "ppocr_rec 48 x 320": ("perf/ppocr_rec.onnx", {"": [1, 3, 48, 320]}),
    "inception_v1": (f"{LIGHT}/light_inception_v1.onnx", {}),
    "inception_v2": (f"{LIGHT}/light_inception_v2.onnx", {}),
    "densenet121": (f"{LIGHT}/light_densenet121.onnx", {}),
    "shufflenet": (f"{LIGHT}/light_shufflenet.onnx", {}),
    "squeezenet": (f"{LIGHT}/light_squeezenet.onnx", {}),
}


def size_of(dim, sizes):
    """A named dimension, or a sum of named ones ("P + S"); 1 when nothing says more."""
    parts = [sizes.get(part.strip()) for part in dim.split("+")]
    return 1 if None in parts else sum(parts)


def input_shapes(path, sizes):
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    result = {}
    for value in graph.input:
        if value.name in weights:
            continue
        if "" in sizes and not result:
            result[value.name] = sizes[""]
            continue
        result[value.name] = [d.dim_value if d.HasField("dim_value") else size_of(d.dim_param, sizes)
                              for d in value.type.tensor_type.shape.dim]
    return result


def size_options(shapes, sizes):
    """How `lathe compile` is told the sizes of a case."""
    if "" not in sizes:
        return [f"--dim={k}={v}" for k, v in sizes.items()]
    return [f"--shape={k}={'x'.join(map(str, v))}" for k, v in list(shapes.items())[:1]]


def lathe_arena(path, options):
    """{stage: bytes}, with "arena" and "bound"."""
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "plan.mlir")
        subprocess.run([LATHE, "compile", path, "--stop-after=plan", "-o", text, *options,
                        f"--dump-dir={folder}", f"--remarks={folder}/remarks.json"],
                       check=True, capture_output=True, timeout=300)
        with open(text) as f:
            arena = re.search(r"exec\.arena <(\d+)>", f.read())
        with open(f"{folder}/remarks.json") as f:
            remarks = [r["message"] for r in json.load(f) if r["name"] == "Order"]
        stages = dict((name, int(n)) for name, n in
                      re.findall(r"(written|order|in place|recompute) (\d+) bytes", " ".join(remarks)))
        problem, = os.listdir(os.path.join(folder, "memory")) or [None]
        stages["bound"] = 0
        if problem:
            planned = subprocess.run([LATHE, "plan", os.path.join(folder, "memory", problem),
                                      "--json"], check=True, capture_output=True, text=True,
                                     timeout=300)
            stages["bound"] = json.loads(planned.stdout)["lower_bound"]
        stages["arena"] = int(arena[1]) if arena else 0
        stages.setdefault("written", stages["arena"])
        return stages


ONNXRUNTIME = r"""
import json, sys
import numpy as np
import onnxruntime as o
path, feeds = sys.argv[1], dict(np.load(sys.argv[2]))
o.set_default_logger_severity(0)
memory = o.OrtMemoryInfo("Cpu", o.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, o.OrtMemType.DEFAULT)
# Regions as large as what is asked for, so that growth is need.
o.create_and_register_allocator(memory, o.OrtArenaCfg(0, 1, -1, -1))
options = o.SessionOptions()
options.log_severity_level = 3
options.intra_op_num_threads = 1
options.enable_mem_pattern = True
options.add_session_config_entry("session.use_env_allocators", "1")
session = o.InferenceSession(path, options, providers=["CPUExecutionProvider"])
outputs = session.run(None, feeds)
binding = session.io_binding()
for name, array in feeds.items():
    binding.bind_cpu_input(name, array)
for output, array in zip(session.get_outputs(), outputs):
    value = o.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    binding.bind_ortvalue_output(output.name, value)
run = o.RunOptions()
run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
for i in range(4):
    sys.stderr.write(f"RUN {i}\n")
    sys.stderr.flush()
    session.run_with_iobinding(binding, run)
"""


def zeros(path, shapes):
    """Inputs of these shapes."""
    types = {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
             for v in onnx.load(path, load_external_data=False).graph.input}
    return {name: np.zeros(shape, types[name]) for name, shape in shapes.items()}


def onnxruntime_arena(path, inputs):
    """Bytes of the memory pattern's block, and all that the arena grew by in a run."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file, **inputs)
        file.flush()
        done = subprocess.run([sys.executable, "-c", ONNXRUNTIME, path, file.name],
                              capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    last = done.stderr.split("RUN 3\n")[1]
    grown = [int(n) for n in re.findall(r"Extended allocation by (\d+) bytes", last)]
    return max(grown, default=0), sum(grown)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else None
    rows = ["| model | onnxruntime: pattern | all | lathe: written | order | in place | recompute | "
            "arena | lower bound | arena / bound | arena / pattern |",
            "|-" * 11 + "|"]
    for name in sys.argv[2:] or CASES:
        file, sizes = CASES[name]
        path = os.path.join(MODELS, file)
        if not os.path.exists(path):
            print(f"{name}: {file} is not there, left out", file=sys.stderr)
            continue
        shapes = input_shapes(path, sizes)
        ours = lathe_arena(path, size_options(shapes, sizes))
        block, everything = onnxruntime_arena(path, zeros(path, shapes))
        cells = [f"{ours[s]:,}" if s in ours else "" for s in ("written", "order", "in place",
                                                               "recompute", "arena", "bound")]
        ratio = [f"{ours['arena'] / max(1, ours['bound']):.3f}", f"{ours['arena'] / block:.2f}"]
        rows.append("| " + " | ".join([name, f"{block:,}", f"{everything:,}", *cells, *ratio]) + " |")
        print(rows[-1], flush=True)
    if out:
        with open(out, "w") as f:
            f.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
