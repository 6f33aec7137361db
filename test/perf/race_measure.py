# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How times of the CPU race are taken: bursts of runs, each runtime in a process of its own.

    race_measure.py ort|ov MODEL.onnx INPUTS.npz THREADS     (what a rival's process does)

Rivals load a model once and are stopped (SIGSTOP) while another has its turn, so that no idle
thread of theirs spins. In each round every runtime runs for a burst, the first one rotating; the
burst's figure is the median of its runs, less what calling the runtime from Python costs. A ratio is
taken within a round, whose bursts are seconds apart, and the row's ratio is the median over all rounds
that count: a number that is fixed before the first. A round beside other work of the machine does not
count; that is decided by the work alone, never by a time, and the round is shown with the others.

Inputs are read, and results written, where they lie: no runtime allocates or copies in a run.
"""
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))

BUSY = 0.1  # of the machine's cores, taken by others than the race: more, and a round does not count
MORE = 2  # rounds that are tried, by those that are wanted
LONG_MS = 1000.0  # runs longer than this get three rounds
RULE = (f"A ratio is the median over a number of rounds that is fixed before the first; a round while "
        f"others took more than {100 * BUSY:.0f} % of the cores is discarded, whatever its figures, and "
        "all are in the file of rounds (as `lathe bench`, a burst has five runs or more, unless they "
        "take thrice its time). Of a rival's burst is taken off what a model of one empty node takes in "
        "the same process: the cost of the call from Python, and what the runtime itself does at the "
        "start of a run, which favours the rival")


def median_ms(run, seconds):
    """As `lathe bench` measures: warm-up, then runs; both shorter where a run is long."""
    begin = time.perf_counter()
    for i in range(10**6):
        spent = time.perf_counter() - begin
        if (i >= 3 and spent >= 0.1 * seconds) or (i and spent >= seconds):
            break
        run()
    times, begin = [], time.perf_counter()
    while not times or not (spent >= 3 * seconds or (len(times) >= 5 and spent >= seconds)):
        start = time.perf_counter()
        run()
        end = time.perf_counter()
        times.append(end - start)
        spent = end - begin
    return 1e3 * float(np.median(times))


def ort_session(path, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ort_run(path, inputs, threads):
    session = ort_session(path, threads)
    bound = session.io_binding()
    for name, array in inputs.items():
        bound.bind_cpu_input(name, array)
    for output in session.get_outputs():
        bound.bind_output(output.name)
    session.run_with_iobinding(bound)
    # Into memory of ours from here on: the sizes are known now.
    results = {o.name: v for o, v in zip(session.get_outputs(), bound.copy_outputs_to_cpu())
               if isinstance(v, np.ndarray) and v.dtype.kind in "fiub" and v.size}
    for name, array in results.items():
        bound.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def run():
        session.run_with_iobinding(bound)
    run.results = results  # alive as long as the run
    return run


def ov_run(path, inputs, threads):
    import openvino
    core = openvino.Core()
    model = core.read_model(path)
    names = {i.any_name for i in model.inputs}
    sizes = {n: list(a.shape) for n, a in inputs.items() if n in names}
    model.reshape({n: openvino.PartialShape(size) for n, size in sizes.items()})
    request = core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    for name, array in inputs.items():
        if name in names:
            request.set_tensor(name, openvino.Tensor(array, shared_memory=array.ndim > 0))
    request.infer()
    results = [np.array(tensor.data) for tensor in request.output_tensors]
    for i, array in enumerate(results):
        if array.ndim and array.size:
            request.set_output_tensor(i, openvino.Tensor(array, shared_memory=True))

    def run():
        request.infer()
    run.results = results
    return run


def empty_model(path):
    """One node that copies one element: what is left of a run when there is nothing to compute."""
    from onnx import TensorProto, helper, save
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "empty", value[:1],
                              value[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {"x": np.ones(1, np.float32)}


def call_cost_ms(make, seconds=0.1):
    """What a run of the empty model takes, by the function that makes runs of this runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "empty.onnx")
        run = make(path, empty_model(path), 1)
        return min(median_ms(run, seconds) for _ in range(3))


def without_call(ms, call):
    """No run takes less than a tenth of what was seen, should the empty model be the slower one."""
    return max(ms - call, 0.1 * ms)


class Rival:
    """A process with one model in one runtime; `usable` is false if it did not take the file."""

    def __init__(self, peer, file, inputs, threads):
        self.command = [sys.executable, os.path.abspath(__file__), peer, file, inputs, str(threads)]
        self.starts = 0
        self.start()

    def start(self):
        self.starts += 1
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.call_ms = self.answer()  # what a call costs, which bursts are without
        self.usable = self.call_ms is not None
        if self.usable:
            self.process.send_signal(signal.SIGSTOP)

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("race "):
                return line.split()[1]
        return None

    def burst(self, seconds):
        if not self.usable and self.starts < 3:
            self.close()
            self.start()
        if not self.usable:
            return math.nan
        self.process.send_signal(signal.SIGCONT)
        try:
            print(seconds, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        ms = self.answer()
        if ms is None:  # it died: the round is lost, the next one has a new process
            self.close()
            self.start()
            return math.nan
        self.process.send_signal(signal.SIGSTOP)
        return float(ms)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def bench(folder, threads, seconds, *options):
    """The report of `lathe bench` for an engine and inputs that race.py left in a folder."""
    import lathe_cli
    inputs = np.load(os.path.join(folder, "ours.npz")).files
    report = os.path.join(folder, "bench.json")
    lathe_cli.lathe("bench", os.path.join(folder, "model.lathe"), f"--threads={threads}",
                    f"--seconds={seconds}", "--json", report, *options,
                    *(f"--input={n}={folder}/outputs/input_{i}.npy" for i, n in enumerate(inputs)))
    with open(report) as f:
        return json.load(f)


def lathe_ms(folder, threads, seconds):
    return bench(folder, threads, seconds)["median_ms"]


class OtherWork:
    """What part of the machine's cores others take, from one call to the next: all busy time but that
    of this process, of those that it has waited for, and of the rivals' processes."""

    def __init__(self, rivals=()):
        self.rivals = rivals
        self.last = self.now()

    def now(self):
        tick = os.sysconf("SC_CLK_TCK")
        with open("/proc/stat") as f:
            fields = [int(v) for v in f.readline().split()[1:]]
        total, idle = sum(fields[:8]), fields[3] + fields[4]
        own = sum(os.times()[:4]) * tick
        for rival in self.rivals:
            try:
                with open(f"/proc/{rival.process.pid}/stat") as f:
                    own += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
            except OSError:
                pass  # it has died; its round is lost anyway
        return total, total - idle, own

    def share(self):
        before, self.last = self.last, self.now()
        total, busy, own = (b - a for a, b in zip(before, self.last))
        return max(0.0, (busy - own) / total) if total > 0 else 0.0


def measure(bursts, rounds, seconds, others=None, any_load=False):
    """Runs alternating rounds of `bursts`, {peer: function of seconds giving ms}, whose first peer
    is compared with the best of the others. `rounds` rounds count (three where a run is long); those
    beside `others`' work, an OtherWork, are discarded and tried again, as many times more, unless
    `any_load`. {"ms": medians by peer, "ratio", "best", "rounds", "discarded", "spread": of the middle
    half of the rounds' ratios, "raw": every round}."""
    peers, raw, wanted = list(bursts), [], rounds
    others = others or OtherWork()
    while True:
        others.share()
        ms = {}
        for i in range(len(peers)):
            peer = peers[(i + len(raw)) % len(peers)]
            ms[peer] = bursts[peer](seconds)
        busy = others.share()
        raw.append({"time": time.strftime("%Y-%m-%dT%H:%M:%S"), "load": os.getloadavg()[0],
                    "others": round(busy, 3), "counts": any_load or busy <= BUSY, "ms": ms})
        kept = [r["ms"] for r in raw if r["counts"]]
        if len(raw) == 1 and max(v for v in ms.values() if not math.isnan(v)) > LONG_MS:
            wanted = min(rounds, 3)
        if len(kept) >= wanted:
            break
        if len(raw) >= MORE * wanted:
            raise RuntimeError(f"beside other work in {len(raw) - len(kept)} of {len(raw)} rounds; "
                               "measure on a quiet machine, or with --any-load")
    medians = {p: float(np.median([r[p] for r in kept if not math.isnan(r[p])] or [math.nan]))
               for p in peers}
    rivals = [p for p in peers[1:] if not math.isnan(medians[p])]
    if not rivals:
        raise RuntimeError("no rival runs this file")
    best = min(rivals, key=medians.get)
    ratios = np.array([r[peers[0]] / r[best] for r in kept])
    low, ratio, high = np.nanpercentile(ratios, (25, 50, 75))
    return {"ms": medians, "ratio": float(ratio), "best": best, "rounds": len(kept),
            "discarded": len(raw) - len(kept), "spread": float((high - low) / ratio), "raw": raw}


def race(folder, file, inputs, threads, peers, args):
    """lathe's engine in a folder against rivals on a file; see measure()."""
    rivals = {peer: Rival(peer, file, inputs, threads) for peer in peers}
    try:
        bursts = {"lathe": lambda s: lathe_ms(folder, threads, s)}
        bursts.update({peer: rival.burst for peer, rival in rivals.items()})
        row = measure(bursts, args.rounds, args.seconds, OtherWork(list(rivals.values())),
                      args.any_load)
        row["call_ms"] = {peer: float(rival.call_ms) for peer, rival in rivals.items() if rival.usable}
        return row
    finally:
        for rival in rivals.values():
            rival.close()


def main():
    _, peer, file, inputs, threads = sys.argv
    arrays = dict(np.load(inputs))  # the runtimes read them where they lie
    make = {"ort": ort_run, "ov": ov_run}[peer]
    run, call = make(file, arrays, int(threads)), call_cost_ms(make)
    print("race", call, flush=True)
    for line in sys.stdin:
        print("race", without_call(median_ms(run, float(line)), call), flush=True)


if __name__ == "__main__":
    main()
