# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that nobody tuned for (unseen_models.py), in one graph against torch.compile in a graph.

`race_unseen.py [NAME...] [--held-out] [--autotune] [--rounds=N] [--seconds=S]` on a GPU with torch, transformers, onnx and a build of
lathe (LATHE). Each model is exported at fixed sizes, by TorchScript where that works. Its rivals: torch.compile's default mode, for images
also with channels last, and max-autotune where `--autotune` asks for it. Results are checked against torch in float32:
lathe's error may be 1.5 times that of torch in the same narrow type. Replays alternate.

All is exported and compiled first, several models at a time; the races follow, one at a time on the GPU. torch.compile measures some of
its choices when a kernel first runs: it keeps none of these, so that none is made while other programs use the GPU.
With `--seconds`, models are no longer begun behind PREPARING of that time, and what is ready by then is raced.
Exit code 1 when a result is wrong or a model is refused.
"""
import argparse
import concurrent.futures
import copy
import fcntl
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings

os.environ["TORCHINDUCTOR_AUTOTUNE_LOCAL_CACHE"] = "0"
# Models are prepared side by side: a pool of compilers for each, which all import torch first, takes longer than it saves.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch

import race_models
from race_models import DEFAULT, DTYPES, LATHE, TUNED, Ours, Rivals, error, race
from unseen_models import CASES, HELD_OUT, SEEN, example, network

lathe = race_models.lathe
WORKERS = max(1, len(os.sched_getaffinity(0)) * 3 // 4)  # cores that this process has, not those of the machine
PREPARING = 0.45
RACING = 45  # seconds that a race may take, among them imports and what torch.compile has kept
WAITING = 3  # races at a time, of which one has the GPU
LAST = "channels last"


def narrow(name, x):
    return x if CASES[name].tokens else x.to(DTYPES[CASES[name].dtype])


def rivals(name, module, x, modes):
    theirs = Rivals(module, lambda m: m(x))
    for mode in modes:
        theirs.add(mode)
    if x.dim() == 4 and not CASES[name].tokens:
        y = x.to(memory_format=torch.channels_last)
        last = Rivals(copy.deepcopy(module).to(memory_format=torch.channels_last), lambda m: m(y))
        last.add(DEFAULT)
        theirs.update({LAST: replays for replays in last.values()})
    return theirs


def export(module, x, graph):
    """Writes the graph by TorchScript, or by dynamo where that fails (attention in bf16) or answers in float32 although
    the module does not (attention with a mask of bools: all behind it is float32); says by which."""
    import onnx
    options = dict(input_names=["x"], output_names=["y"], opset_version=18)
    wanted = {torch.float16: onnx.TensorProto.FLOAT16, torch.bfloat16: onnx.TensorProto.BFLOAT16}[module(x).dtype]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(module, (x,), graph, dynamo=False, **options)
            if onnx.load(graph, load_external_data=False).graph.output[0].type.tensor_type.elem_type == wanted:
                return "TorchScript"
        except Exception:  # whatever it is, the other exporter is the way
            pass
        torch.onnx.export(module, (x,), graph, dynamo=True, verbose=False, **options)
        return "dynamo"


def prepare(name, folder):
    """Writes the graph and the engine of a model, and fills torch.compile's cache of code."""
    begin = time.time()
    module, x = network(name).cuda().to(DTYPES[CASES[name].dtype]), narrow(name, example(name, "cuda"))
    graph, engine = (os.path.join(folder, name + end) for end in (".onnx", ".lathe"))
    made = time.time()
    exporter = export(module, x, graph)
    exported = time.time()
    command = [LATHE, "compile", graph, "-o", engine, "--target=sm_90a", f"--shape=x={'x'.join(map(str, x.shape))}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as compiling:
        rivals(name, module, x, [DEFAULT])
        ready = time.time()
        said = compiling.communicate()[0]
    if compiling.returncode:
        print(f"{name}: REFUSED {said[-600:]}")
        return True
    print(f"{name}: made in {made - begin:.1f} s, exported by {exporter} in {exported - made:.1f}, compiled by torch in "
          f"{ready - exported:.1f} and by lathe beside it and other work in {time.time() - exported:.1f}")
    return False


def one(name, modes, rounds, folder):
    """Whether the result is wrong, or no rival ran."""
    wide = example(name, "cuda")
    want = network(name).cuda()(wide)
    module, x = network(name).cuda().to(DTYPES[CASES[name].dtype]), narrow(name, wide)
    theirs_off = error(module(x), want)
    ours = Ours(lathe.load(os.path.join(folder, name + ".lathe")), [x])
    ours.once()
    ours_off = error(torch.from_dlpack(ours.result["y"]), want)
    bad = not ours_off <= 1.5 * theirs_off
    print(f"{name}: {CASES[name]}; {ours.context.counters['launches']} kernels, error {ours_off:.2e}, torch's {theirs_off:.2e}"
          f"{'  WRONG' if bad else ''}", flush=True)
    theirs = rivals(name, module, x, modes)
    ratio = race(name, ours, theirs, rounds)
    if ratio is None:
        print(f"{name}: no rival ran")
    elif ratio < 1.1:  # what to look at
        race(name, ours, {}, rounds, by_kernel=True)
    return bad or ratio is None


def prepared(names, folder, seconds):
    """Those of `names` that lathe takes; none is begun behind `seconds`, and those under way then are waited for."""
    end = time.time() + seconds

    def start(name):
        if time.time() > end:
            return None
        return subprocess.run([sys.executable, __file__, name, f"--prepare={folder}"], capture_output=True, text=True)
    good = []
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for name, done in zip(names, pool.map(start, names)):
            if done is None:
                print(f"{name}: not begun for want of time")
                continue
            print(done.stdout.strip() or f"{name}: FAILED {done.stderr[-600:]}", flush=True)
            if done.returncode == 0:
                good.append(name)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of unseen_models.py; all that were seen by default")
    parser.add_argument("--held-out", action="store_true", help="the held-out models")
    parser.add_argument("--autotune", action="store_true", help="max-autotune, too, for those that were drawn for it")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=math.inf, help="of the whole")
    parser.add_argument("--prepare", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--prepared", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in CASES]
    if unknown:
        parser.error(f"no model {unknown[0]}; there are {' '.join(CASES)}")
    names = options.names or list(HELD_OUT if options.held_out else SEEN)
    with torch.no_grad():
        if options.prepare:
            return prepare(names[0], options.prepare)
        if options.prepared:
            modes = [DEFAULT, *([TUNED] if options.autotune and CASES[names[0]].autotune else [])]
            with open(os.path.join(options.prepared, "lock"), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                return one(names[0], modes, options.rounds, options.prepared)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        good = prepared(names, folder, PREPARING * options.seconds)
        print(f"{len(good)} of {len(names)} prepared in {time.time() - begin:.0f} s", flush=True)
        bad = len(good) < len(names)
        # A process each: torch.compile gives up on a function that it has compiled eight times. The next ones import
        # torch meanwhile and wait for the GPU.
        def start(name):
            if time.time() - begin > options.seconds - RACING:
                return None
            return subprocess.run([sys.executable, __file__, name, f"--prepared={folder}", f"--rounds={options.rounds}",
                                   *(["--autotune"] if options.autotune else [])], capture_output=True, text=True)
        with concurrent.futures.ThreadPoolExecutor(WAITING) as pool:
            for name, done in zip(good, pool.map(start, good)):
                if done is None:
                    print(f"{name}: not raced for want of time")
                    continue
                print(done.stdout.strip() if done.stdout.strip() else f"{name}: FAILED {done.stderr[-600:]}", flush=True)
                bad |= done.returncode != 0
                ratios += [float(found) for found in re.findall(r"  ([0-9.]+) x$", done.stdout, re.M)]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} of {len(names)} raced: geometric mean {mean:.3f}, least {min(ratios):.3f}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
