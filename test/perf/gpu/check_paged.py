# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Engines over pages on a GPU: the tokens they generate against those of the CPU, and the time of a step.

`check_paged.py prepare FOLDER` needs a build of lathe, onnx, and build/models/decoders (test/models/export_decoders.py).
`check_paged.py run FOLDER [DEVICE [PART...]]` needs a GPU, python3 with numpy, and a build's `lathe`, which LATHE names; parts are
llama3, qwen3, mistral, halves and llama8b. Exit code 1 when a token, a logit or the pool is wrong.

Small decoders in f32 generate the same tokens as on a CPU (in prepare) and with transformers, up to the first step whose two
best logits are close; in bf16 the logits of single steps are compared, and the pool that they leave. A decoder of Llama-3-8B's sizes, whose
weights are made from a seed where it is loaded, is timed with 1, 16 and 64 sequences of 1,024 tokens.
"""
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
DECODERS = os.path.join(ROOT, "build", "models", "decoders")
SMALL = ["llama3", "qwen3", "mistral"]
GAP = 3e-4  # as in test/models/test_paged.py
LLAMA_8B = dict(width=4096, inner=14336, layers=32, heads=32, groups=8, words=128256, head=128)
HALVES = dict(width=256, inner=640, layers=2, heads=8, groups=2, words=512, head=32)
PAGE, SEED = 16, 7


def save_decoder(path, s):
    """A decoder with past and present keys and values, and no weights. In bf16, or `s["element"]`; with norms of queries and
    keys where `s["norms"]`."""
    import onnx
    from onnx import TensorProto, helper
    nodes, weights, element = [], [], s.get("element", TensorProto.BFLOAT16)
    width = 4 if element == TensorProto.FLOAT else 2

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def weight(name, *dims):
        tensor = TensorProto(name=name, data_type=element, dims=dims, data_location=TensorProto.EXTERNAL)
        offset = sum(width * int(np.prod(w.dims)) for w in weights if w.external_data)
        for key, value in (("location", "absent.bin"), ("offset", offset), ("length", width * int(np.prod(dims)))):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
        return name

    def known(name, values, kind=TensorProto.INT64):
        values = np.asarray(values)
        weights.append(helper.make_tensor(name, kind, values.shape, values.flatten().tolist()))
        return name

    zero, one, last, first = known("zero", 0), known("one", 1), known("last", [1]), known("first", [0])
    ones = known("ones", np.ones(s["width"]), element)
    of_head = known("of_head", np.ones(s["head"]), element) if s.get("norms") else None
    half = s["head"] // 2
    rates = known("rates", 500000.0 ** (-np.arange(half) / half), TensorProto.FLOAT)
    queries, keys = known("queries", [0, 0, s["heads"], s["head"]]), known("keys", [0, 0, s["groups"], s["head"]])
    flat = known("flat", [0, 0, s["heads"] * s["head"]])
    past = node("Squeeze", [node("Shape", ["k0"], "past1", start=2, end=3)], "past")
    count = node("Squeeze", [node("Shape", ["ids"], "count1", start=1, end=2)], "count")
    total = node("Add", [past, count], "total")
    places = node("Unsqueeze", [node("Range", [past, total, one], "places1"), last], "places")
    seen = node("LessOrEqual", [node("Range", [zero, total, one], "every"), places], "seen")
    angles = node("Mul", [node("Cast", [places], "places32", to=TensorProto.FLOAT), rates], "angles")
    cos, sin = (node("Unsqueeze", [node("Cast", [node(op, [angles], op + "32")], op + "16", to=element), first], op)
                for op in ("Cos", "Sin"))
    x = node("Gather", [weight("embed", s["words"], s["width"]), "ids"], "x")
    for n in range(s["layers"]):
        def named(text):
            return f"{text}_{n}"

        def product(of, name, rows, columns):  # weights as torch keeps and its exporter writes them
            turned = node("Transpose", [weight(named("w" + name), columns, rows)], named("t" + name), perm=[1, 0])
            return node("MatMul", [of, turned], named(name))

        def heads(of, name, shape):
            rows = node("Reshape", [of, shape], named(name + "r"))
            if of_head and name != "v":
                rows = node("RMSNormalization", [rows, of_head], named(name + "n"), epsilon=1e-6)
            return node("Transpose", [rows], named(name + "t"), perm=[0, 2, 1, 3])

        y = node("RMSNormalization", [x, ones], named("norm"), epsilon=1e-5)
        q = heads(product(y, "q", s["width"], s["heads"] * s["head"]), "q", queries)
        k = heads(product(y, "k", s["width"], s["groups"] * s["head"]), "k", keys)
        v = heads(product(y, "v", s["width"], s["groups"] * s["head"]), "v", keys)
        q, k = (node("RotaryEmbedding", [part, cos, sin], named(name)) for part, name in ((q, "qe"), (k, "ke")))
        pk = node("Concat", [f"k{n}", k], f"pk{n}", axis=2)
        pv = node("Concat", [f"v{n}", v], f"pv{n}", axis=2)
        a = node("Transpose", [node("Attention", [q, pk, pv, seen], named("a"))], named("at"), perm=[0, 2, 1, 3])
        o = product(node("Reshape", [a, flat], named("af")), "o", s["heads"] * s["head"], s["width"])
        x = node("Add", [x, o], named("x1"))
        y = node("RMSNormalization", [x, ones], named("norm2"), epsilon=1e-5)
        g = product(y, "gate", s["width"], s["inner"])
        g = node("Mul", [g, node("Sigmoid", [g], named("sigmoid"))], named("silu"))
        h = node("Mul", [g, product(y, "up", s["width"], s["inner"])], named("h"))
        x = node("Add", [x, product(h, "down", s["inner"], s["width"])], named("x2"))
    x = node("RMSNormalization", [x, ones], "norm", epsilon=1e-5)
    node("MatMul", [x, node("Transpose", [weight("head", s["words"], s["width"])], "turned", perm=[1, 0])], "logits")

    def cache(prefix, size):
        return [helper.make_tensor_value_info(f"{prefix}{part}{n}", element, ["B", s["groups"], size, s["head"]])
                for n in range(s["layers"]) for part in "kv"]

    graph = helper.make_graph(
        nodes, "decoder", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["B", "S"]), *cache("", "P")],
        [helper.make_tensor_value_info("logits", element, ["B", "S", s["words"]]), *cache("p", "U")], weights)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 23)]), path)


# ---- What both devices do -----------------------------------------------------------------------

RUNS = {"together": [], "few pages": ["--step-tokens=7", "--at-once=7", "--kv-memory=140K"],
        "alone": ["--at-once=1", "--no-prefix-cache"]}


def generate(engine, rows, *options):
    """The answers, in order, and what each step did."""
    with tempfile.TemporaryDirectory() as at:
        requests, steps = os.path.join(at, "requests.jsonl"), os.path.join(at, "steps.jsonl")
        with open(requests, "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        done = subprocess.run([LATHE, "generate", engine, "--requests", requests, "--json", "--steps", steps, *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{engine}: {done.stderr}")
        with open(steps) as f:
            return [json.loads(line)["tokens"] for line in done.stdout.splitlines()], [json.loads(line) for line in f]


def answers(engine, expected, device):
    """{run: tokens of each request}."""
    rows = [{"tokens": e["prompt"], "max_tokens": len(e["tokens"])} for e in expected]
    return {name: generate(engine, rows, "--device", device, *options)[0] for name, options in RUNS.items()}


STEPS = {  # (first token, end, pages) a sequence
    "a token": [(0, 1, [3])],
    "a prompt": [(0, 100, [5, 9, 1, 30, 2, 8, 11])],
    "three prompts": [(0, 18, [5, 2]), (0, 1, [7]), (0, 9, [3])],
    "40 prompts": [(0, 40, [1, 2, 3]), *((0, 1 + i % 5, [10 + i]) for i in range(39))],
}


def inputs_of(pieces):
    width = max(len(pages) for _, _, pages in pieces)
    made = {key: [] for key in ("tokens", "positions", "requests", "slots", "tables", "rows")}
    for r, (first, end, pages) in enumerate(pieces):
        for i in range(first, end):
            made["tokens"].append((31 * r + 17 * i + i * i) % HALVES["words"])
            made["positions"].append(i)
            made["requests"].append(r)
            made["slots"].append(pages[i // PAGE] * PAGE + i % PAGE)
        made["rows"].append(len(made["tokens"]) - 1)
        made["tables"].append(pages + [0] * (width - len(pages)))
    pool = np.zeros((64, HALVES["layers"], 2, PAGE, HALVES["groups"], HALVES["head"]), "V2")  # bf16, as numpy has it
    return {**{key: np.asarray(value, np.int64) for key, value in made.items()}, "pool": pool}


def from_bits(array):
    """f32 of what `lathe run` saved of bf16."""
    return array if array.dtype == np.float32 else (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def step(engine, pieces, device):
    """The logits and the pool of a step from an empty one."""
    with tempfile.TemporaryDirectory() as at:
        arguments = []
        for key, value in inputs_of(pieces).items():
            np.save(os.path.join(at, key + ".npy"), value)
            arguments += ["--input", f"{key}={at}/{key}.npy"]
        done = subprocess.run([LATHE, "run", engine, *arguments, "--device", device, "--save", at],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{engine} on {device}: {done.stdout}")
        with open(os.path.join(at, "outputs.json")) as f:
            return {e["name"]: from_bits(np.load(os.path.join(at, e["file"]))).reshape(e["shape"])
                    for e in json.load(f) if e["name"] != "best"}


# ---- Without a GPU ------------------------------------------------------------------------------

def compile_paged(model, engine, *options):
    subprocess.run([LATHE, "compile", model, "-o", engine, "--paged", *options], check=True)
    return engine


def keep(engine):
    """Compressed beside it, and gone."""
    with open(engine, "rb") as f, gzip.open(engine + ".gz", "wb") as out:
        shutil.copyfileobj(f, out)
    os.remove(engine)
    print(f"{engine}.gz: {os.path.getsize(engine + '.gz') / 1e6:.1f} MB", flush=True)


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    cpu, gpu = "--target=native", "--target=sm_90a"
    engine = os.path.join(folder, "cpu.lathe")
    for name in SMALL:
        model = os.path.join(DECODERS, name, "model.onnx")
        with open(os.path.join(DECODERS, name, "expected.json")) as f:
            expected = json.load(f)
        compile_paged(model, engine, cpu)
        with open(os.path.join(folder, f"{name}.json"), "w") as out:
            json.dump({"expected": expected, "cpu": answers(engine, expected, "cpu")}, out)
        keep(compile_paged(model, os.path.join(folder, f"{name}.lathe"), gpu))
    model, seed = os.path.join(folder, "model.onnx"), f"--random-weights={SEED}"
    save_decoder(model, HALVES)
    compile_paged(model, engine, cpu, seed)
    found = {f"{name}/{key}": value for name, pieces in STEPS.items() for key, value in step(engine, pieces, "cpu").items()}
    np.savez_compressed(os.path.join(folder, "halves.npz"), **found)
    keep(compile_paged(model, os.path.join(folder, "halves.lathe"), gpu, seed))
    save_decoder(model, LLAMA_8B)
    keep(compile_paged(model, os.path.join(folder, "llama8b.lathe"), gpu, seed))
    os.remove(engine)
    os.remove(model)


# ---- With one -----------------------------------------------------------------------------------

def check_tokens(name, folder, engine, device):
    """Whether the tokens are the CPU's and transformers', as far as they are sure."""
    with open(os.path.join(folder, f"{name}.json")) as f:
        kept = json.load(f)
    right = True
    for run_name, gpu in answers(engine, kept["expected"], device).items():
        same = compared = 0
        for e, on_cpu, on_gpu in zip(kept["expected"], kept["cpu"][run_name], gpu):
            sure = next((i for i, gap in enumerate(e["gaps"]) if gap < GAP), len(e["gaps"]))
            compared += sure
            same += sum(a == b == c for a, b, c in zip(e["tokens"][:sure], on_cpu, on_gpu))
        right &= same == compared > 0
        print(f"{name:8} {run_name:10} {same} of {compared} sure tokens are the same{'' if same == compared else '  WRONG'}",
              flush=True)
    return right


def check_halves(name, folder, engine, device):
    right = True
    with np.load(os.path.join(folder, "halves.npz")) as kept:
        for step_name, pieces in STEPS.items():
            found = step(engine, pieces, device)
            errors = {key: float(np.abs(found[key] - kept[f"{step_name}/{key}"]).max() /
                                 np.abs(kept[f"{step_name}/{key}"]).max()) for key in ("logits", "next_pool")}
            wrong = not all(error < 3e-2 for error in errors.values())
            right &= not wrong
            print(f"{name:8} {step_name:14} logits {errors['logits']:.1e}  pool {errors['next_pool']:.1e}"
                  f"{'  WRONG' if wrong else ''}", flush=True)
    return right


def race(name, folder, engine, device):
    random = np.random.default_rng(SEED)
    for sequences, prompt, answer in ((1, 1024, 64), (16, 1024, 48), (64, 1024, 48)):
        # The first requests decode while the last prompts are read: those that came first get more tokens.
        rows = [{"tokens": random.integers(0, LLAMA_8B["words"], prompt).tolist(), "max_tokens": answer + 4 * (sequences - i)}
                for i in range(sequences)]
        _, steps = generate(engine, rows, "--device", device, "--step-tokens=512", f"--at-once={sequences}",
                            f"--kv-memory={1 + sequences // 4}G")
        full = [s["ms"] for s in steps if s["tokens"] == s["generated"] == sequences][2:]
        prompts = [s for s in steps if s["tokens"] > s["generated"] + 256][2:]
        if full:
            rate = sum(s["tokens"] for s in prompts) / max(sum(s["ms"] for s in prompts), 1e-9) * 1e3
            print(f"{name:8} {sequences:3} sequences of {prompt} tokens and more: {statistics.median(full):8.3f} ms a step, the "
                  f"fastest {min(full):8.3f}, of {len(full)}; prompts at {rate:.0f} tokens a second", flush=True)
        else:
            print(f"{name:8} {sequences:3} sequences: no step with one token of each", flush=True)
    return True


def run(folder, device="cuda:0", *parts):
    right, programs = True, {**dict.fromkeys(SMALL, check_tokens), "halves": check_halves, "llama8b": race}
    for name in parts or programs:
        with tempfile.TemporaryDirectory() as at:
            engine = os.path.join(at, name + ".lathe")
            with gzip.open(os.path.join(folder, name + ".lathe.gz")) as f, open(engine, "wb") as out:
                shutil.copyfileobj(f, out)
            right &= programs[name](name, folder, engine, device)
    return not right


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
