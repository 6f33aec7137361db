# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of 6144 columns, 32 heads and 8 that are rotated by their positions and 8 others, for several rows: everything inside
one product against a product and what follows it apart (the product is returned too, so that it has to be stored). Rotated
together are the halves of a head, or neighbours: of slices with steps, or of a dimension of two (as Meta's Llama has it).

`race_heads.py prepare FOLDER` with a build of lathe, `race_heads.py run FOLDER` on a GPU with torch and lathe's runtime. Both
sides' results are compared, replays alternate, the second-level cache is cold. Exit code 1 when results differ.
"""
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
ROWS = (1, 32, 64, 128, 256, 512, 1024, 2048, 8192)
HEADS, SIZE, WIDTH = {"q": 32, "k": 8, "v": 8}, 128, 4096
SIDES = ("inside", "apart")
FORMS = {"halves": ROWS, "neighbours": (1, 2048, 8192), "twos": (1, 2048, 8192)}


def rotation(node, form, name, count, rows):
    """The nodes from s<name>, heads of tokens, to <name>, and the sizes that they need."""
    s, both = "s" + name, {"four" + name: [1, count, rows, SIZE]}
    if form == "twos":
        both["five" + name] = [1, count, rows, SIZE // 2, 2]
        return [node("Reshape", [s, "five" + name], ["z" + name]),
                node("Split", ["z" + name], ["y" + name, "u" + name], axis=4, num_outputs=2),
                node("Squeeze", ["y" + name, "fourth"], ["a" + name]), node("Squeeze", ["u" + name, "fourth"], ["b" + name]),
                node("Mul", ["a" + name, "cos"], ["ac" + name]), node("Mul", ["b" + name, "sin"], ["bs" + name]),
                node("Mul", ["a" + name, "sin"], ["as" + name]), node("Mul", ["b" + name, "cos"], ["bc" + name]),
                node("Sub", ["ac" + name, "bs" + name], ["re" + name]), node("Add", ["as" + name, "bc" + name], ["im" + name]),
                node("Unsqueeze", ["re" + name, "fourth"], ["n" + name]), node("Unsqueeze", ["im" + name, "fourth"], ["l" + name]),
                node("Concat", ["n" + name, "l" + name], ["c" + name], axis=4),
                node("Reshape", ["c" + name, "four" + name], [name])], both
    if form == "neighbours":
        rotated = [node("Slice", [s, "zero", "whole", "last", "two"], ["l" + name]),
                  node("Slice", [s, "heads", "whole", "last", "two"], ["u" + name]), node("Neg", ["u" + name], ["n" + name]),
                  node("Unsqueeze", ["n" + name, "fourth"], ["nf" + name]), node("Unsqueeze", ["l" + name, "fourth"], ["lf" + name]),
                  node("Concat", ["nf" + name, "lf" + name], ["f" + name], axis=4),
                  node("Reshape", ["f" + name, "four" + name], ["c" + name])]
    else:
        rotated = [node("Slice", [s, "zero", "half", "last"], ["l" + name]),
                  node("Slice", [s, "half", "whole", "last"], ["u" + name]), node("Neg", ["u" + name], ["n" + name]),
                  node("Concat", ["n" + name, "l" + name], ["c" + name], axis=3)]
    return rotated + [node("Mul", ["c" + name, "sin"], ["d" + name]), node("Mul", [s, "cos"], ["e" + name]),
                     node("Add", ["e" + name, "d" + name], [name])], both


def angles(form):
    return SIZE // 2 if form == "twos" else SIZE


def save_model(path, rows, apart, form):
    import onnx
    from onnx import TensorProto, helper
    from sanitize import save_graph, value
    node, total = helper.make_node, sum(HEADS.values())
    numbers = {"shape": [1, rows, total, SIZE], "zero": [0], "half": [SIZE // 2], "whole": [SIZE], "heads": [1], "last": [3],
               "two": [2], "fourth": [4]}
    weight = onnx.TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=[total * SIZE, WIDTH],
                              data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "absent.bin"), ("length", str(2 * total * SIZE * WIDTH))):
        weight.external_data.add(key=key, value=text)
    nodes = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["m"]),
             node("Reshape", ["m", "shape"], ["r"]), node("Transpose", ["r"], ["p"], perm=[0, 2, 1, 3])]
    first = 0
    for name, count in HEADS.items():
        numbers["from_" + name], numbers["to_" + name] = [first], [first + count]
        first += count
        nodes.append(node("Slice", ["p", "from_" + name, "to_" + name, "heads"], ["s" + name]))
        if name == "v":
            nodes.append(node("Neg", ["sv"], ["v"]))
            continue
        more, sizes = rotation(node, form, name, count, rows)
        nodes += more
        numbers |= sizes
    outputs = [value(name, [1, count, rows, SIZE]) for name, count in HEADS.items()]
    save_graph(path, nodes, [value("x", [1, rows, WIDTH]), value("cos", [rows, angles(form)]), value("sin", [rows, angles(form)])],
               outputs + ([value("m", [1, rows, total * SIZE])] if apart else []),
               [helper.make_tensor(n, TensorProto.INT64, [len(v)], v) for n, v in numbers.items()] + [weight])


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    for form, counts in FORMS.items():
        for rows in counts:
            for side in SIDES:
                stem = os.path.join(folder, f"{form}.{rows}.{side}")
                save_model(stem + ".onnx", rows, side == "apart", form)
                subprocess.run([LATHE, "compile", stem + ".onnx", "-o", stem + ".lathe", "--target=sm_90a", "--random-weights=1"],
                               check=True, capture_output=True)


def run(folder, rounds=40):
    import torch
    import lathe
    bad = False
    print(torch.cuda.get_device_name())
    torch.manual_seed(1)
    cold = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    for form, rows in ((form, rows) for form, counts in FORMS.items() for rows in counts):
        inputs = {"x": make(1, rows, WIDTH), "cos": make(rows, angles(form)), "sin": make(rows, angles(form))}
        contexts, results, spent, times = {}, {}, dict.fromkeys(SIDES, 0.0), {side: [] for side in SIDES}
        for side in SIDES:
            contexts[side] = lathe.load(os.path.join(folder, f"{form}.{rows}.{side}.lathe")).context("cuda:0")
            contexts[side].time_graphs()
        for turn in range(rounds + 3):
            for side, context in contexts.items():
                cold.zero_()
                torch.cuda.synchronize()
                out = context.run(inputs, memory="device")
                total = context.counters["graph_seconds"]
                if turn >= 3:
                    times[side].append((total - spent[side]) * 1e6)
                elif turn == 0:
                    results[side] = {name: torch.from_dlpack(out[name]).float().clone() for name in HEADS}
                spent[side] = total
        error = max(((results["inside"][n] - results["apart"][n]).norm() / results["apart"][n].norm()).item() for n in HEADS)
        wrong = not error < 5e-3  # what is stored apart is rounded twice
        bad |= wrong
        medians = {side: statistics.median(t) for side, t in times.items()}
        ratio = statistics.median(a / b for a, b in zip(times["apart"], times["inside"]))
        print(f"{form:10} {rows:5} rows: inside {medians['inside']:8.2f} us  apart {medians['apart']:8.2f} us  {ratio:.3f} x  "
              f"difference {error:.1e}{'  WRONG' if wrong else ''}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](sys.argv[2]) or 0)
