# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""results/cpu.md: every table of the CPU race, part by part, and the bars.

A row that is measured is kept in build/race-cpu/report, under the settings, with a digest of what
was measured: the bytes of the runtime and of the engine (for costs of `lathe` itself). So a report
that was cut off goes on where it was, and a change measures again what it changes. A row is measured
once: no figure decides whether it is measured again. Every round, those that did not count too, is
written beside the report.
"""
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time

import race_cells
from race_measure import RULE
from race_models import RACE, SYMBOLIC

BATCHED = ["resnet50", "bert_base"]
F43 = "winograd-tolerance=1e-5"
# Seconds that a row takes, where no earlier report says it.
GUESS = {"batch 1": 30, "f43": 20, "batch 8": 60, "batch 32": 150, "costs": 20, "symbolic": 40,
         "cells": 15}


def geometric(values):
    return statistics.geometric_mean(values) if values else math.nan


def digest_of(*names):
    """Of the bytes of files."""
    digest = hashlib.sha256()
    for name in names:
        with open(name, "rb") as f:
            digest.update(hashlib.file_digest(f, "sha256").digest())
    return digest.hexdigest()[:16]


def measurements(row):
    """What a row has rounds of: by number of threads, or the row itself; costs have none."""
    return row.get("threads") or ({"": row} if "spread" in row else {})


def rounds_table(stored, commit):
    """Lines of tab-separated values: every round of every row."""
    yield "\t".join(("part", "row", "threads", "round", "time", "load", "others", "counts", "commit",
                     "digest", "ms"))
    for part, rows in stored.items():
        for name, row in rows.items():
            for threads, one in measurements(row).items():
                for i, r in enumerate(one.get("raw", [])):
                    times = " ".join(f"{peer} {value:.5g}" for peer, value in r["ms"].items())
                    yield "\t".join((part, name, threads or "1", str(i), r["time"], f"{r['load']:.2f}",
                                     f"{r['others']:.3f}", "yes" if r["counts"] else "no",
                                     row.get("commit", commit), row.get("of", ""), times))


class Store:
    """Rows by (part, name), in a file that is written after each. A row's "of" is its digest."""

    def __init__(self, folder, args):
        os.makedirs(folder, exist_ok=True)
        settings = json.dumps([args.rounds, args.seconds, args.threads, args.peers, args.target,
                               args.option, args.any_load])
        key = hashlib.sha256(settings.encode()).hexdigest()[:12]
        self.path = os.path.join(folder, f"{key}.json")
        self.durations = os.path.join(folder, "seconds.json")
        self.rows, self.took = self.load(self.path), self.load(self.durations)

    @staticmethod
    def load(path):
        try:
            with open(path) as f:
                return json.load(f)
        except (OSError, ValueError):
            return {}

    def keep(self, part, name, row, seconds):
        self.rows.setdefault(part, {})[name] = row
        self.took[f"{part}/{name}"] = seconds
        for path, data in ((self.path, self.rows), (self.durations, self.took)):
            with open(path + ".new", "w") as f:
                json.dump(data, f, indent=1)
            os.replace(path + ".new", path)

    def guess(self, part, name):
        return self.took.get(f"{part}/{name}", GUESS[part])


# --- Tables ---


def ms(value):
    return "nan" if math.isnan(value) else f"{value:.3f}" if value < 100 else f"{value:.1f}"


def marked(text, ok):
    return text if ok else f"**{text}**"


def rounds_of(one):
    """"15 and 2 discarded, 3 %": rounds, and how the middle half of their ratios spreads."""
    discarded = f" and {one['discarded']} discarded" if one.get("discarded") else ""
    return f"{one['rounds']}{discarded}, {100 * one['spread']:.0f} %"


def speed_table(rows, names, threads, say, bar):
    """`bar`: ratios above it are bold."""
    plural = [f"{t} thread{'s' * (t > 1)}" for t in threads]
    say("| model | " + " | ".join(f"{t}: lathe / ort / ov ms | ratio | rounds, spread"
                                  for t in plural) + " | error |")
    say("|---|" + "---|---|---|" * len(threads) + "---|")
    for name in names:
        row = rows.get(name, {"problem": "not measured"})
        if "problem" in row:
            say(f"| {name} | {row['problem']} |" + " |" * (3 * len(threads)))
            continue
        cells = [name]
        for t in threads:
            one = row["threads"][str(t)]
            cells.append(" / ".join(ms(one["ms"].get(p, math.nan)) for p in ("lathe", "ort", "ov")))
            cells.append(marked(f"{one['ratio']:.3f}", one["ratio"] <= bar))
            cells.append(rounds_of(one))
        cells.append(marked(f"{row['error']:.1e}", row["error"] <= 1e-4))
        say("| " + " | ".join(cells) + " |")


def cost_table(rows, names, say):
    say("| model | float64 error: lathe / ort | of ort's | compile cold / cached s | its peak / allowed MB "
        "| run MB: lathe / ort | GFLOP | GFLOP/s | of the roof |")
    say("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        row = rows.get(name, {"problem": "not measured"})
        if "problem" in row:
            say(f"| {name} | {row['problem']} |" + " |" * 7)
            continue
        error, cost, memory = (row[k] for k in ("error64", "compile", "memory"))
        ratio = error["lathe"] / max(error["ort"], 1e-12)
        say("| " + " | ".join([
            name, f"{error['lathe']:.1e} / {error['ort']:.1e}", marked(f"{ratio:.2f}", ratio <= 1.5),
            marked(f"{cost['cold']:.1f}", cost["cold"] <= 10) + " / "
            + marked(f"{cost['cached']:.2f}", cost["cached"] <= 0.7),
            marked(f"{cost['peak'] / 1e6:.0f} / {cost['allowed'] / 1e6:.0f}",
                   cost["peak"] <= cost["allowed"]),
            marked(f"{memory['lathe'] / 1e6:.1f} / {memory['ort'] / 1e6:.1f}",
                   memory["lathe"] <= memory["ort"]),
            f"{row['roof']['gflop']:.2f}", f"{row['roof']['gflops']:.1f}",
            f"{100 * row['roof']['share']:.0f} %"]) + " |")


def arena_table(rows, names, say):
    say("| model | lathe kB | onnxruntime: pattern | all | lower bound | lathe / bound | lathe / all |")
    say("|---|---|---|---|---|---|---|")
    for name in names:
        arena = rows.get(name, {}).get("arena")
        if not arena:
            say(f"| {name} | not measured | | | | | |")
            continue
        def of(kind):
            return f"{arena['lathe'] / arena[kind]:.2f}" if arena[kind] else "-"
        say(f"| {name} | " + " | ".join(f"{arena[k] / 1e3:,.1f}"
                                        for k in ("lathe", "pattern", "ort", "bound"))
            + f" | {marked(of('bound'), arena['lathe'] <= 1.05 * arena['bound'])}"
            + f" | {marked(of('ort'), arena['lathe'] <= arena['ort'])} |")


def symbolic_table(rows, names, say):
    say("| model, size | any ms | one ms | ratio | rounds, spread |")
    say("|---|---|---|---|---|")
    for name in names:
        row = rows.get(name, {"problem": "not measured"})
        if "problem" in row:
            say(f"| {name} | {row['problem']} | | | |")
            continue
        ratio = marked(f"{row['ratio']:.3f}", row["ratio"] <= 1.05)
        say(f"| {name} | {ms(row['ms']['any'])} | {ms(row['ms']['one'])} | {ratio} | "
            f"{rounds_of(row)} |")


# --- Bars ---


def groups_of(rows, t):
    """Ratios by model; files of one group are one figure, their geometric mean."""
    groups = {}
    for name, row in rows.items():
        if "problem" not in row:
            groups.setdefault(RACE[name].group or name, []).append(row["threads"][str(t)]["ratio"])
    return {name: geometric(values) for name, values in groups.items()}


def bars(stored, threads):
    """[(what, bar, figure, held)] of all that was measured; what is missing is not held."""
    out = []

    def worst(what, bar, values, form="{:.3f}", expected=1):
        """`values`: by name; the largest counts."""
        if len(values) < expected:
            out.append((what, form.format(bar), f"{len(values)} of {expected} rows measured", False))
            return
        name = max(values, key=values.get)
        figure = form.format(values[name]) + (f" ({name})" if len(values) > 1 else "")
        out.append((what, form.format(bar), figure, values[name] <= bar))

    def fine(part):
        return {n: r for n, r in stored.get(part, {}).items() if "problem" not in r}

    models, race = len({e.group or n for n, e in RACE.items()}), fine("batch 1")
    for t in threads:
        plural = f"{t} thread{'s' * (t > 1)}"
        ratios = groups_of(race, t)
        mean = {"mean": geometric(list(ratios.values()))} if len(ratios) == models else {}
        worst(f"batch 1, {plural}: geometric mean of the ratios", 0.88, mean)
        worst(f"batch 1, {plural}: the worst ratio", 1.03, ratios, expected=models)
        for name, part, bar in (("ResNet-50, F(2,3)", "batch 1", 0.84),
                                ("ResNet-50, F(4,3)", "f43", 0.79)):
            row = fine(part).get("resnet50")
            worst(f"{name}, {plural}", bar,
                  {"resnet50": row["threads"][str(t)]["ratio"]} if row else {})
        for part in ("batch 8", "batch 32"):
            worst(f"{part}, {plural}", 0.95,
                  {n: r["threads"][str(t)]["ratio"] for n, r in fine(part).items()},
                  expected=len(BATCHED))
    sizes = sum(len(cases) for cases in SYMBOLIC.values())
    worst("one engine for all sizes by an engine of one size", 1.05,
          {n: r["ratio"] for n, r in fine("symbolic").items()}, expected=sizes)
    worst("difference from onnxruntime", 1e-4, {n: r["error"] for n, r in race.items()}, "{:.1e}",
          expected=len(RACE))
    costs = fine("costs")
    for what, bar, form, value in (
            ("error against float64 by onnxruntime's", 1.5, "{:.2f}",
             lambda r: r["error64"]["lathe"] / max(r["error64"]["ort"], 1e-12)),
            ("compile, cold, s", 10, "{:.1f}", lambda r: r["compile"]["cold"]),
            ("compile, cached, s", 0.7, "{:.2f}", lambda r: r["compile"]["cached"]),
            ("peak memory of compiling by 2 models + 500 MB", 1, "{:.2f}",
             lambda r: r["compile"]["peak"] / r["compile"]["allowed"]),
            ("memory of a run by onnxruntime's", 1, "{:.2f}",
             lambda r: r["memory"]["lathe"] / max(r["memory"]["ort"], 1)),
            ("arena by onnxruntime's", 1, "{:.2f}",
             lambda r: r["arena"]["lathe"] / max(r["arena"]["ort"], 1)),
            ("arena by its lower bound", 1.05, "{:.2f}",
             lambda r: r["arena"]["lathe"] / max(r["arena"]["bound"], 1))):
        worst(what, bar, {n: value(r) for n, r in costs.items()}, form, expected=len(RACE))
    return out


# --- The report ---


def render(stored, args, machine, say):
    threads = [int(t) for t in args.threads.split(",")]
    part = lambda name: stored.get(name, {})  # noqa: E731
    say(f"# CPU race, {time.strftime('%Y-%m-%d')}\n\nWritten by `race.py --report`. {machine}.\n"
        f"ms: medians. A ratio is to the better rival; nan: OpenVINO does not take the file.\n{RULE}.\n"
        "Bold: above the bar.\n")
    say("## Bars\n\n| what | bar | measured | |\n|---|---|---|---|")
    checks = bars(stored, threads)
    for what, bar, figure, ok in checks:
        say(f"| {what} | {bar} | {figure} | {'pass' if ok else '**fail**'} |")
    say(f"\n{sum(ok for *_, ok in checks)} of {len(checks)} hold.")
    say("\n## Batch 1 (bars: geometric mean 0.88, none above 1.03)\n\nThe six silero files count as "
        "one model, by their geometric mean.\n")
    speed_table(part("batch 1"), RACE, threads, say, 1.03)
    for t in threads:
        ratios = groups_of(part("batch 1"), t)
        say(f"\n{t} thread{'s' * (t > 1)}: geometric mean {geometric(list(ratios.values())):.3f} "
            f"over {len(ratios)} models.")
    say(f"\nResNet-50 with F(4,3), `--option {F43}` (bar: 0.79):\n")
    speed_table(part("f43"), ["resnet50"], threads, say, 0.79)
    for batch in (8, 32):
        say(f"\n## Batch {batch} (bar: 0.95)\n")
        speed_table(part(f"batch {batch}"), BATCHED, threads, say, 0.95)
    say("\n## Costs, batch 1\n\nErrors are max |difference| by the largest value, the mean of eight "
        "draws of inputs for small models.\nMemory of a run: the peak resident set, without weights, "
        "above the process before loading. Of the\nroof: the time that flops and bytes take at the "
        "measured peaks of one core, by the time that the\nkernels took.\n")
    cost_table(part("costs"), RACE, say)
    say("\n## Arenas, batch 1\n\nBytes that are planned for what lives within a run; for more models, "
        "and by stages of the planner, see\n`../planner/results/arena.md`. onnxruntime: the block of its "
        "memory pattern, and all that its arena grows by.\n")
    arena_table(part("costs"), RACE, say)
    say("\n## One engine for all sizes against engines of one size, one thread (bar: 1.05)\n")
    symbolic_table(part("symbolic"), symbolic_names(), say)
    say(f"\n## LSTM and GRU, {race_cells.STEPS} steps\n\nInputs as wide as the state; rows of the "
        "batch last.\n")
    speed_table(part("cells"), race_cells.names(), threads, say, math.inf)
    return all(ok for *_, ok in checks)


def symbolic_names():
    return [f"{model}, {case}" for model, cases in SYMBOLIC.items() for case in cases]


def units(models):
    """[(part, row)] in the order of measuring; costs first, since they compile with an empty cache."""
    out = [("costs", name) for name in RACE]
    out += [("batch 1", name) for name in RACE]
    out += [("f43", "resnet50")]
    out += [(f"batch {b}", name) for b in (8, 32) for name in BATCHED]
    out += [("symbolic", name) for name in symbolic_names()]
    out += [("cells", name) for name in race_cells.names()]
    return [u for u in out if not models or u[1].split(",")[0] in models or u[1] in models]


def minutes(seconds):
    return f"{seconds / 60:.1f} min"


def report(args, case_of, machine, folder, runtime):
    """Measures what is not there yet and writes args.report after each row. `case_of(part, name)`
    gives the files that a row depends on beside `runtime`, and a function that measures it. Returns
    whether every bar holds."""
    store = Store(folder, args)
    commit = subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "rev-parse",
                             "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    wanted = args.parts.split(",") if args.parts else list(GUESS)
    chosen = {u for u in units(args.models) if u[0] in wanted}
    todo = units(None)
    begin, ok, current = time.time(), False, {}

    def write():
        """With the rows whose digests have been seen to be today's."""
        lines = []
        held = render(current, args, machine, lines.append)
        with open(args.report, "w") as f:
            f.write("\n".join(lines) + "\n")
        with open(os.path.splitext(args.report)[0] + "-rounds.tsv", "w") as f:
            f.writelines(line + "\n" for line in rounds_table(current, commit))
        return held

    ok = write()
    for i, (part, name) in enumerate(todo):
        left = sum(store.guess(*unit) for unit in todo[i:] if unit in chosen)
        print(f"[{i + 1}/{len(todo)}] {part}: {name} ({minutes(time.time() - begin)} gone, about "
              f"{minutes(left)} left)", file=sys.stderr, flush=True)
        start, of = time.time(), None
        try:
            files, measure = case_of(part, name)
            of = digest_of(runtime, *files)
            row = store.rows.get(part, {}).get(name, {})
            if (part, name) in chosen and (args.again or row.get("of") != of):
                row = {**measure(), "of": of, "commit": commit}
                store.keep(part, name, row, time.time() - start)
            elif row.get("of") != of:
                row = {"problem": "not measured"}
        except (AssertionError, KeyError, RuntimeError, OSError, subprocess.SubprocessError) as problem:
            row = {"problem": " ".join(str(problem).split())[:300].replace("|", "/")}
            print(f"  {row['problem']}", file=sys.stderr)
        current.setdefault(part, {})[name] = row
        ok = write()
    with open(args.report) as f:
        print(f.read())
    return ok
