# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of families.py through torch.compile(backend="lathe") and through torch.export, held against torch.

    torch_zoo.py run [NAME...] [--log=FILE]     both ways, with fixed sizes and with 20 shapes; goes on where FILE ends
    torch_zoo.py race [NAME...] [--log=FILE]    against torch's inductor: seconds to the first result, latency
                 [--device=cuda] [--jobs=8 --cores=2]   (race.py); goes on where FILE ends
    torch_zoo.py table [FILE]                   counts, or ratios and their geometric means; results/race.tsv without it

Without names: the sixty of SIXTY. Each family, way and form is done in a process of its own, on one core, with a
deadline. Ways: `compile` is torch.compile, parameters as inputs, one of which is changed between calls; `export` is
lathe.compile of an ExportedProgram. Forms: `static`, and `any`, where the results of 20 shapes come from one engine.
Results: `agrees`, `differs`, `refused` (a typed error of lathe), `several` (more than one engine), `defect` (a crash or
a deadline), `not exported` (torch's export refuses). An error is the largest difference over the largest value.
"""
import argparse
import contextlib
import itertools
import math
import os
import re
import sys
import time
import warnings

import race
import zoo

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(zoo.ROOT, "python-frontend"))
COLUMNS = ["family", "way", "form", "result", "operators", "kernels", "seconds", "error", "said"]
SHAPES = 20
SIXTY = """
albert bert roberta electra mpnet deberta squeezebert distilbert xlm-roberta ernie rembert fnet layoutlm esm modernbert
gpt2 gpt_neo gptj gpt_neox opt bloom llama mistral qwen2 qwen3 gemma gemma2 phi phi3 olmo2 cohere stablelm starcoder2 falcon
granite smollm3
bart pegasus marian t5 m2m_100
vit deit beit dinov2 siglip_vision_model swin convnext resnet regnet mobilenet_v2 efficientnet segformer poolformer
wav2vec2 hubert audio-spectrogram-transformer
siglip%text patchtst videomae
""".replace("\n", " ").split()
SIXTY = [name.replace("%", " ") for name in SIXTY]


def sizes_of(symbols, count):
    """Distinct sizes of the symbols, from 2 to zoo.GREATEST."""
    span = zoo.GREATEST - 1
    found = {}
    for k in itertools.count():
        found.setdefault(tuple(2 + (k * (5 + 2 * at) + 3 * at) % span for at in range(len(symbols))))
        if len(found) == min(count, span ** min(len(symbols), 2)) or k > 1000:
            return [dict(zip(symbols, sizes)) for sizes in found]


def cases_of(inputs, dynamic, form):
    symbols = sorted({s for axes in dynamic.values() for s in axes.values()})
    if form == "static" or not symbols:
        return [inputs]
    return [inputs, *(zoo.resized(inputs, dynamic, sizes) for sizes in sizes_of(symbols, SHAPES - 1))]


def worst_of(pairs):
    return max((zoo.error_of(e.numpy(), y.numpy()) for e, y in pairs), default=math.inf)


def by_compile(module, inputs, dynamic, form, row):
    """torch.compile: every shape, then every shape after a parameter has changed."""
    import torch

    import lathe.torch
    made = []

    def counted(graph, examples):
        made.append(lathe.torch.backend(graph, examples))
        return made[-1]

    fast = torch.compile(module, backend=counted, dynamic=form == "any", fullgraph=True)
    cases = cases_of(inputs, dynamic, form)
    begin = time.perf_counter()
    worst = 0.0
    for at, case in enumerate(cases):
        got = fast(*case.values())
        if at == 0:
            row["seconds"] = round(time.perf_counter() - begin, 2)
        worst = max(worst, worst_of(zip(module(*case.values()), got)))
    for name, parameter in module.named_parameters():
        if parameter.dim() == 2 and parameter.is_floating_point():
            parameter.mul_(1.25)
            break
    got = fast(*cases[-1].values())
    stale = worst_of(zip(module(*cases[-1].values()), got))
    row["operators"] = sum(n.op == "call_function" for m in made for n in m._module.graph.nodes)
    row["error"] = f"{max(worst, stale):.1e}"
    row["result"] = "differs" if max(worst, stale) > zoo.BAR else "several" if len(made) > 1 else "agrees"
    if len(made) > 1:
        row["said"] = f"{len(made)} engines"
    elif row["result"] == "differs" and worst <= zoo.BAR:
        row["said"] = "after a parameter has changed"


def by_export(module, inputs, dynamic, form, row):
    """An ExportedProgram; every kernel is to name the modules that it comes from."""
    import torch

    import lathe
    shapes = None
    if form == "any":
        symbols = {s: torch.export.Dim(s, min=2, max=zoo.GREATEST) for axes in dynamic.values() for s in axes.values()}
        shapes = (tuple({axis: symbols[s] for axis, s in dynamic.get(name, {}).items()} for name in inputs),)
    try:
        program = torch.export.export(module, tuple(inputs.values()), dynamic_shapes=shapes)
    except Exception as problem:
        raise zoo.Refused("not exported", f"torch: {type(problem).__name__}: {problem}") from problem
    row["operators"] = sum(n.op == "call_function" for n in program.graph.nodes)
    begin = time.perf_counter()
    context = lathe.compile(program).context()
    row["seconds"] = round(time.perf_counter() - begin, 2)
    worst = 0.0
    for case in cases_of(inputs, dynamic, form):
        given = [v for v in case.values()]
        with context.profile() as profile:
            got = [torch.from_numpy(v.numpy()) for v in context.run(given).values()]
        worst = max(worst, worst_of(zip(module(*given), got)))
    row["kernels"] = len({r.kernel for r in profile.rows})
    unnamed = sum(not r.nodes for r in profile.rows)
    row["error"] = f"{worst:.1e}"
    row["result"] = "agrees" if worst <= zoo.BAR else "differs"
    if unnamed:
        row["said"] = f"{unnamed} kernels without the name of a module"


@contextlib.contextmanager
def quiet():
    nothing = os.open(os.devnull, os.O_WRONLY)  # torch writes whole graphs where it refuses
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def work(task, answer):
    """One row; in a process of its own."""
    os.environ["LATHE_NO_CACHE"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    row = dict.fromkeys(COLUMNS, "")
    row.update(zip(COLUMNS, task))
    with quiet():
        import families
        import torch

        import lathe
        torch.set_num_threads(1)
        try:
            module, inputs, dynamic = families.FAMILIES[task[0]]()
            with torch.no_grad():
                (by_compile if task[1] == "compile" else by_export)(module, inputs, dynamic, task[2], row)
        except zoo.Refused as refused:
            row.update(result=refused.result, said=said(refused))
        except Exception as problem:
            inner = cause(problem)
            row["result"] = "refused" if isinstance(inner, lathe.Error) else \
                "not exported" if task[1] == "compile" else "defect"
            row["said"] = said(inner)
    answer.send(row)


def cause(problem):
    """The error of lathe that is behind another, if there is one."""
    import lathe
    inner = problem
    while inner is not None and not isinstance(inner, lathe.Error):
        inner = inner.__cause__ or inner.__context__
    return inner or problem


def said(problem):
    return re.sub(r"\s+", " ", f"{type(problem).__name__}: {problem}")[:300]


def run_one(task, seconds):
    here, there = zoo.FORKS.Pipe(duplex=False)
    child = zoo.FORKS.Process(target=work, args=(task, there))
    child.start()
    there.close()
    row = dict.fromkeys(COLUMNS, "")
    row.update(zip(COLUMNS, task))
    row["result"] = "defect"
    try:
        if here.poll(seconds):
            row = here.recv()
        else:
            row["said"] = f"more than {seconds} s"
    except EOFError:
        row["said"] = "the process ended"
    child.terminate()
    child.join()
    return row


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in f if not line.startswith("#")]


def run(names, log, seconds, ways, forms):
    import families
    zoo.FORKS.set_forkserver_preload(["torch", "transformers", "numpy", "families"])
    done = {(r["family"], r["way"], r["form"]) for r in rows_of(log)}
    tasks = [(name, way, form) for name in names for way in ways for form in forms
             if form == "static" or families.FAMILIES[name].args[3]]
    tasks = [task for task in tasks if task not in done]
    with open(log, "a") as out:
        for i, task in enumerate(tasks):
            row = run_one(task, seconds)
            out.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
            out.flush()
            print(f"{i + 1}/{len(tasks)}", *row.values(), flush=True)


def table(path):
    rows = rows_of(path)
    if not any(r["way"] in ("compile", "export") for r in rows):
        return race.table(path, SIXTY)
    for way, form in itertools.product(("compile", "export"), ("static", "any")):
        found = [r["result"] for r in rows if (r["way"], r["form"]) == (way, form)]
        counts = {result: found.count(result) for result in dict.fromkeys(found)}
        print(f"{way}, {form}: {len(found)} families:", ", ".join(f"{n} {result}" for result, n in sorted(counts.items())))
    return 0


def forms(text):
    """A list of forms, for argparse."""
    found = text.split(",")
    if not set(found) <= {"any", "static"}:
        raise argparse.ArgumentTypeError(f"'{text}' is not made of any and static")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "race", "table"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--log")
    parser.add_argument("--way", choices=["compile", "export"])
    parser.add_argument("--form", type=forms, help="of sizes: static, any, or both in this order: any,static; without it "
                        "both, of a race any")
    parser.add_argument("--seconds", type=int, default=300, help="of one process (300)")
    parser.add_argument("--device", default="cpu", help="of a race: cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="of a race: families at a time (1)")
    parser.add_argument("--cores", type=int, default=1, help="of a race: cores and threads of each (1)")
    parser.add_argument("--round-seconds", type=float, default=0.25, help="of a race: of a side's round (0.25)")
    parser.add_argument("--budget", type=float, default=math.inf, help="of a race: no family is begun after these seconds")
    options = parser.parse_args()
    if options.verb == "table":
        return table(options.names[0] if options.names else os.path.join(HERE, "results", "race.tsv"))
    import families
    names = options.names or SIXTY
    unknown = [name for name in names if name not in families.FAMILIES]
    if unknown:
        sys.exit(f"no family is called {', '.join(unknown)}")
    log = options.log or os.path.join(zoo.ROOT, "build", f"torch-{options.verb}.tsv")
    if options.verb == "race":
        return race.race(names, log, options.device, options.form or ["any"], options.jobs, options.cores, options.seconds,
                         options.round_seconds, options.budget)
    return run(names, log, options.seconds, [options.way] if options.way else ["compile", "export"],
               options.form or ["static", "any"])


if __name__ == "__main__":
    sys.exit(main())
