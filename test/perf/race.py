# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races lathe against onnxruntime and OpenVINO on the CPU.

    race.py [--threads 1,2] [--rounds 15] [--seconds 0.4] [--batch 1] [--peers ort,ov] [MODEL...]
    race.py --symbolic [MODEL...]      one engine for all sizes against engines of one size
    race.py --cells                    LSTM and GRU by themselves
    race.py --forms [FORM...]          forms of convolutions by themselves: names, or parts of them
    race.py --report FILE.md           all tables of results/cpu.md and the bars; goes on where an
                                       earlier one was cut off; --parts "batch 1,costs": these alone

Each runtime runs in a process of its own, rounds alternate, figures are medians, in ms;
race_measure.py says how. All get the same inputs, and no runtime copies them or allocates results.
Before the race the results of lathe are compared with onnxruntime's. The report has every round beside
it, FILE-rounds.tsv, with time, load, commit and digest, those that were discarded too. The exit code
is 1 when a bar of the report is not met.
"""
import argparse
import json
import math
import os
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
for path in (HERE, os.path.join(HERE, "..", "models")):
    sys.path.insert(0, path)
import race_cells  # noqa: E402
import race_costs  # noqa: E402
import race_forms  # noqa: E402
import race_measure  # noqa: E402
import race_reference  # noqa: E402
import race_report  # noqa: E402
from race_models import RACE, SYMBOLIC  # noqa: E402

WORK = os.path.join(HERE, "..", "..", "build", "race-cpu")
TOLERANCE = 1e-4


def sizes_of(inputs):
    return [f"--shape={n}=" + "x".join(map(str, a.shape)) for n, a in inputs.items() if a.ndim]


def workplace(name):
    folder = os.path.abspath(os.path.join(WORK, name))
    os.makedirs(folder, exist_ok=True)
    return folder


def options_of(entry, inputs, folder, args):
    """Options of `lathe compile` for these sizes."""
    options = [f"--target={args.target}", *sizes_of(inputs), *(f"--{o}" for o in args.option)]
    for n in entry.const:
        np.save(os.path.join(folder, f"{n}.npy"), inputs[n])
        options.append(f"--const={n}={folder}/{n}.npy")
    return options


def wanted(entry, inputs):
    """What onnxruntime gives, by name."""
    session = race_measure.ort_session(entry.file, 1)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))


class Prepared:
    """A model of the race at one batch size: inputs on disk, and how lathe compiles it."""

    def __init__(self, name, batch, args):
        self.entry = RACE[name]
        self.inputs = self.entry.inputs(batch)
        self.batch = batch
        self.folder = workplace(f"{name}_{batch}" + "".join("_" + o for o in args.option))
        self.engine = os.path.join(self.folder, "model.lathe")
        self.options = options_of(self.entry, self.inputs, self.folder, args)
        self.rival_inputs = os.path.join(self.folder, "inputs.npz")
        self.our_inputs = os.path.join(self.folder, "ours.npz")
        self.ours = {n: a for n, a in self.inputs.items() if n not in self.entry.const}
        np.savez(self.rival_inputs, **self.inputs)
        np.savez(self.our_inputs, **self.ours)

    def run(self):
        import lathe_cli
        return lathe_cli.run(self.engine, os.path.join(self.folder, "outputs"), inputs=self.ours)


def speed_case(name, batch, args):
    """The engine, and what measures it: {"error": largest difference from onnxruntime, "threads": by
    count, see race_measure.race}."""
    import lathe_cli
    model = Prepared(name, batch, args)
    lathe_cli.lathe("compile", model.entry.file, "-o", model.engine, *model.options)

    def measure():
        got = model.run()
        row = {"threads": {}, "error": max(lathe_cli.relative_error(got[n], w)
                                           for n, w in wanted(model.entry, model.inputs).items())}
        for t in map(int, args.threads.split(",")):
            row["threads"][str(t)] = race_measure.race(
                model.folder, model.entry.file, model.rival_inputs, t, args.peers.split(","), args)
        return row
    return [model.engine], measure


def errors64(model):
    """The mean over draws of inputs of the largest error against float64. Small models have few
    outputs, so that one draw says little: eight draws."""
    import lathe_cli
    entry, session = model.entry, race_measure.ort_session(model.entry.file, 1)
    names = [o.name for o in session.get_outputs()]
    errors = {"lathe": [], "ort": []}
    for seed in range(8 if os.path.getsize(entry.file) < 50_000_000 else 1):
        inputs = entry.inputs(model.batch, seed=seed)
        truth = race_reference.cached(entry.file, inputs, model.folder)
        ours = {n: a for n, a in inputs.items() if n not in entry.const}
        got = {"lathe": lathe_cli.run(model.engine, workplace("errors"), inputs=ours),
               "ort": dict(zip(names, session.run(None, inputs)))}
        for peer, values in got.items():
            errors[peer].append(max(lathe_cli.relative_error(values[n], t)
                                    for n, t in truth.items()))
    return {peer: float(np.mean(found)) for peer, found in errors.items()}


def cost_row(name, args):
    """What a model costs beside its time: compiling, errors, memory, arenas, share of the roof."""
    model = Prepared(name, 1, args)
    row = {"compile": race_costs.compile_cost(model.entry.file, model.engine, model.options)}
    model.run()
    row["error64"] = errors64(model)
    row["memory"] = {"lathe": race_costs.run_memory("lathe", model.engine, model.our_inputs),
                     "ort": race_costs.run_memory("ort", model.entry.file, model.rival_inputs)}
    row["arena"] = race_costs.arenas(model.entry.file, model.options, model.inputs)
    row["roof"] = race_costs.roofline(
        race_measure.bench(model.folder, 1, args.seconds, "--profile"))
    return row


def symbolic_case(name, case, args):
    """One engine for a range of sizes and an engine for this one; they race on one thread."""
    import lathe_cli
    entry, inputs = RACE[name], RACE[name].inputs(**SYMBOLIC[name][case])
    folders = {"any": workplace(f"{name}_any"), "one": workplace(f"{name}_{case.replace(' ', '')}")}
    engines = {which: os.path.join(folder, "model.lathe") for which, folder in folders.items()}
    for which, folder in folders.items():
        options = ([f"--target={args.target}", *entry.dims] if which == "any"
                   else options_of(entry, inputs, folder, args))
        lathe_cli.lathe("compile", entry.file, "-o", engines[which], *options)

    def measure():
        outputs = {}
        for which, folder in folders.items():
            np.savez(os.path.join(folder, "ours.npz"), **inputs)
            outputs[which] = lathe_cli.run(engines[which], os.path.join(folder, "outputs"),
                                           inputs=inputs)
        apart = max(lathe_cli.relative_error(outputs["any"][n], v)
                    for n, v in outputs["one"].items())
        assert apart <= TOLERANCE, f"the engines differ by {apart}"
        return race_measure.measure(
            {which: lambda s, folder=folder: race_measure.lathe_ms(folder, 1, s)
             for which, folder in folders.items()}, args.rounds, args.seconds, any_load=args.any_load)
    return list(engines.values()), measure


def case_of(part, name, args):
    """What a row of the report measures: the files that it depends on beside the runtime, and a
    function that gives the row. Compiling is over when this returns, but for costs."""
    import lathe_cli
    print_options, args.option = args.option, [race_report.F43] if part == "f43" else args.option
    try:
        if part == "costs":
            return [lathe_cli.LATHE], lambda: cost_row(name, args)
        if part == "cells":
            return race_cells.case(name, args, workplace)
        if part == "forms":
            return race_forms.case(name, args, workplace)
        if part == "symbolic":
            return symbolic_case(*name.split(", ", 1), args)
        return speed_case(name, int(part.split()[1]) if part.startswith("batch") else 1, args)
    finally:
        args.option = print_options


def machine(args):
    with open("/proc/cpuinfo") as f:
        model = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True).stdout.strip()
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    return (f"{len(os.sched_getaffinity(0))} cores of {model}, f32, engines for `{args.target}`, "
            f"commit {commit};\n{args.rounds} alternating rounds of {args.seconds} s or more; load "
            f"{load} at the start" + ("; rounds count beside other work, too" if args.any_load else ""))


def table(part, names, args, say):
    """Measures and shows the rows of one part by itself."""
    rows = {}
    for name in names:
        try:
            rows[name] = case_of(part, name, args)[1]()
        except (AssertionError, KeyError, RuntimeError, subprocess.SubprocessError) as problem:
            rows[name] = {"problem": " ".join(str(problem).split())[:300]}
        print(f"{part}: {name}: {rows[name]}", file=sys.stderr, flush=True)
    threads = [int(t) for t in args.threads.split(",")]
    if part == "costs":
        race_report.cost_table(rows, names, say)
        race_report.arena_table(rows, names, say)
    elif part == "symbolic":
        race_report.symbolic_table(rows, names, say)
    else:
        race_report.speed_table(rows, names, threads, say, math.inf)
        if part not in ("cells", "forms"):
            for t in threads:
                ratios = race_report.groups_of(rows, t)
                say(f"\n{t} thread{'s' * (t > 1)}: geometric mean of the ratios to the better rival "
                    f"{race_report.geometric(list(ratios.values())):.3f}, worst "
                    f"{max(ratios.values(), default=math.nan):.3f}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15, help="that count for each row; fixed")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--costs", action="store_true", help="errors, compile time, memory, roof")
    parser.add_argument("--symbolic", action="store_true", help="one engine for a range of sizes")
    parser.add_argument("--cells", action="store_true", help="LSTM and GRU by themselves")
    parser.add_argument("--forms", action="store_true", help="forms of convolutions by themselves")
    parser.add_argument("--report", metavar="FILE", help="write all tables and bars there")
    parser.add_argument("--parts", help="of the report: " + ", ".join(race_report.GUESS))
    parser.add_argument("--again", action="store_true", help="measure rows that are there, too")
    parser.add_argument("--any-load", action="store_true",
                        help="rounds count beside other work of the machine, too; the report says so")
    parser.add_argument("--target", default="native")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="of lathe compile, as winograd-tolerance=1e-5")
    parser.add_argument("--peers", default="ort,ov")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.report:
        import lathe_cli
        runtime = os.path.join(lathe_cli.BUILD, "lib", "liblathe_runtime.so")
        held = race_report.report(args, lambda part, name: case_of(part, name, args),
                                  machine(args), workplace("report"), runtime)
        return 0 if held else 1
    part = ("cells" if args.cells else "forms" if args.forms else "symbolic" if args.symbolic
            else "costs" if args.costs else f"batch {args.batch}")
    names = ([n for n in race_forms.names() if not args.models or any(m in n for m in args.models)]
             if args.forms else
             [u[1] for u in race_report.units(args.models) if u[0] == part] or args.models or list(RACE))
    rows = table(part, names, args, print)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
