# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of a plan, a text that `lathe compile --stop-after=codegen` writes: as cubins with their launches, and
those launches on a GPU."""
import os
import re

from generated import compile_cubin, launch_of, load


def unescape(text):
    return re.sub(r"\\([0-9A-Fa-f]{2}|.)", lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else
                  {"n": "\n", "t": "\t"}.get(m[1], m[1]), text)


def read_plans(text):
    """The kernels of a text of phase codegen, in the order of their launches: of each its source; its launch, and the
    names of its buffers."""
    string = r'"((?:[^"\\]|\\.)*)"'
    names = dict(re.findall(r"(%\w+) = exec\.buffer \"([\w.]+)\"", text))
    for name, arguments in re.findall(r"exec\.launch @(\w+)\(([^)]*)\)", text):
        kernel = text[re.search(rf"exec\.kernel @{name}\b", text).start():]
        source, spec = (unescape(re.search(key + " = " + string, kernel)[1]) for key in ("source", "spec"))
        buffers = [names[b.strip()] for b in arguments.split(",")]
        # Memory to work in is `load`'s matter.
        yield source, {**launch_of(spec), "buffers": [b for b in buffers if not b.endswith(".workspace")]}


def read_plan(text):
    """The one kernel, or the first, of such a text."""
    return next(read_plans(text))


def keep_kernels(folder, name, text):
    """Writes the cubins of a plan; gives the first kernel's row (`read_plans`), with the rows of those "behind" it and the
    sizes of what lies "between" them, in bf16 or f32, by name."""
    steps = []
    for source, step in read_plans(text):
        cubin, log = compile_cubin(source, name + ".cu")
        step["cubin"] = f"{name}{len(steps) or ''}.cubin"
        with open(os.path.join(folder, step["cubin"]), "wb") as f:
            f.write(cubin)
        if found := re.findall(r"C75\d\d|[1-9]\d* bytes spill stores", log):
            print(f"{name}: {found}")
        steps.append(step)
    between = {b: [int(d) for d in dims.split("x") if d] + [kind] for b, dims, kind in re.findall(
        r'exec\.buffer "([\w.]+)" {kind = #exec\.kind<arena>.*?} : tensor<((?:\d+x)*)(bf16|f32)>', text)}
    return {**steps[0], "behind": steps[1:], "between": between}


def make_between(row):
    """Tensors for what lies between the kernels of a row."""
    import torch
    kinds = {"bf16": torch.bfloat16, "f32": torch.float32}
    return {name: torch.empty(*dims, device="cuda", dtype=kinds[kind]) for name, (*dims, kind) in row["between"].items()}


def load_kernels(folder, row, ordered):
    """bind(set of tensors) -> a function that launches a row's kernel and those behind it. `ordered(row, set)`: the
    tensors of a kernel's buffers."""
    steps = [(step, load(step, open(os.path.join(folder, step["cubin"]), "rb").read())) for step in [row] + row["behind"]]

    def bind(t):
        launches = [bind_step(ordered(step, t)) for step, bind_step in steps]

        def launch():
            for go in launches:
                go()
        return launch if len(launches) > 1 else launches[0]
    return bind
