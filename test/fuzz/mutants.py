# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants mistakes in the compiler, one at a time, and shows which of them random graphs find.

    mutants.py BUILD [--seeds FIRST:COUNT] [NUMBER...]     some of them, by their numbers

Each source is compiled again with one edit of the table and linked with the other objects, into lathe-fuzz where an engine
would differ from the reference, and into the compiler's library where legalize would mean something else: what it means the
reference means, too, so that onnxruntime is asked (against_onnxruntime.py). Seeds run until one fails. A row for
each: the seed that found it and how. Exits with 1 where more than two are found by nothing.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile

from against_onnxruntime import seed_range

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
AT_ONCE = 64  # seeds at most; the first ones come in smaller groups

# (file, what stands there once, what stands there instead)
MUTANTS = [
    # Two transposes are composed the other way round.
    ("passes/simplify/MovementPatterns.cpp", "perm.push_back(inner.getPerm()[d]);",
     "perm.push_back(op.getPerm()[inner.getPerm()[perm.size()]]);"),
    # A slice of a concatenation is any input of its type.
    ("passes/simplify/MovementPatterns.cpp", "if (at == start && input.getType()", "if (input.getType()"),
    # An f32 is taken to hold an f64.
    ("passes/simplify/MovementPatterns.cpp", "bitWidth(narrow) <= 16", "bitWidth(narrow) <= 64"),
    # What is padded on the left of an image counts for its right side, too.
    ("passes/simplify/MovementPatterns.cpp", "pads[d + spatial] += (*high)[d + 2];", "pads[d + spatial] += (*low)[d + 2];"),
    # A cube is a fourth power.
    ("passes/simplify/AlgebraPatterns.cpp", "MulOp::create(rewriter, op.getLoc(), x, x), x);",
     "MulOp::create(rewriter, op.getLoc(), x, x), MulOp::create(rewriter, op.getLoc(), x, x));"),
    # Ops join a reduction that depend on it through another kernel.
    ("passes/fuse/GrowReductions.cpp", "    if (graph.mayOwn(op, group)) {\n      graph.own(op, group);\n      passedRemark(op->getLoc(), "
     "\"RowFusion\") << \"fused", "    if (true) {\n      graph.own(op, group);\n      passedRemark(op->getLoc(), \"RowFusion\") << "
     "\"fused"),
    # Updates that are combined with what is there are made in any order.
    ("passes/select/InPlace.cpp", "if (!scatter->hasAttr(\"reduction\"))", "if (true)"),
    # A result may lie in an input that is read at other places than the one that is written.
    ("passes/select/InPlace.cpp", "bitWidth(out.dtype) < 8 || !mayLieIn(kernel, kernel.getBodyBlock().getArgument(i)))",
     "bitWidth(out.dtype) < 8)"),
    # A buffer ends one step early.
    ("passes/plan/Offsets.cpp", "item.end = step + 1;", "item.end = step;"),
    # What is made before a loop, and read in it, is not kept for the next iteration.
    ("passes/plan/Offsets.cpp", "if (item.begin < first || item.end > end) {", "if (item.begin < first && item.end > end) {"),
    # What depends on a scatter is taken to read before it.
    ("passes/plan/Updates.cpp", "user->hasAttr(kPlacedAttr) || comesAfter(user, kernel))", "user->hasAttr(kPlacedAttr))"),
    # A vector may straddle the border of two concatenated pieces of known sizes.
    ("codegen/tile/MovementRules.cpp", "straddles |= !border.constant() || *border.constant() % e.width != 0;",
     "straddles |= !border.constant();"),
    # The last two of a row's elements are left out where its length is even.
    ("codegen/tile/ReductionRules.cpp", "!(count && *count % chains == 0)", "!(count && *count % 2 == 0)"),
    # An average counts the padding of the other side.
    ("codegen/tile/WindowRules.cpp", "ix.add(size, op.getPads()[spatial + d])", "ix.add(size, op.getPads()[d])"),
    # Lanes of a division by a constant are taken to stay inside one multiple of it.
    ("codegen/tile/IndexMath.cpp", "int64_t granule = std::gcd(divisor(x.base), *c);", "int64_t granule = divisor(x.base);"),
    # A depthwise window reaches over the right border.
    ("codegen/tile/DepthwiseSchedule.cpp", "Value k1 = ix.min(ix.cst(columns), ceilOrZero(ix.sub(width, left), spread));",
     "Value k1 = ix.cst(columns);"),
    # OneHot: a negative index is none.
    ("passes/legalize/Gather.cpp", "e.add(at, e.dimScalar(depth, index)), at);", "at, at);"),
    # DepthToSpace, mode CRD: rows and columns of a block are exchanged.
    ("passes/legalize/Movement.cpp", "Ints{0, 1, 4, 2, 5, 3}", "Ints{0, 1, 4, 3, 5, 2}"),
    # Pad: what stands on the left goes to the right, too.
    ("passes/legalize/Slices.cpp", "high[axis] = amounts[axes.size() + i];", "high[axis] = amounts[i];"),
    # ArgMax and ArgMin: select_last_index is forgotten.
    ("passes/legalize/Reduce.cpp", "bool(n.intAttr(\"select_last_index\", 0))", "false"),
]


def ninja(build, *words):
    return subprocess.run(["ninja", "-C", build, "-t", *words], capture_output=True, text=True, check=True).stdout.splitlines()


def build_mutant(build, folder, number, program):
    """Compiles the source of a mutant and links `program`, which it gives back, with it in the place of the library's."""
    name, old, new = MUTANTS[number]
    with open(os.path.join(ROOT, name)) as f:
        text = f.read()
    assert text.count(old) == 1, f"mutant {number}: {text.count(old)} times in {name}: {old!r}"
    source, made, linked = (os.path.join(folder, file) for file in (os.path.basename(name), "mutant.o", os.path.basename(program)))
    with open(source, "w") as f:
        f.write(text.replace(old, new))
    compile_ = next(line for target in ninja(build, "targets", "all") if (path := target.split(":")[0]).endswith(os.path.basename(name) + ".o")
                    for line in ninja(build, "commands", path)[-1:] if line.endswith(" " + os.path.join(ROOT, name)))
    words = shlex.split(compile_)
    at = words.index("-o")
    words[at + 1], words[-1] = made, source
    words[words.index("-MF") + 1] = made + ".d"
    subprocess.run([*words, "-I" + os.path.dirname(os.path.join(ROOT, name))], cwd=build, check=True)
    words = [word for word in shlex.split(ninja(build, "commands", program)[-1]) if word not in ("&&", ":")]
    at = words.index("-o")
    words[at:at + 2] = [made, "-o", linked]
    subprocess.run(words, cwd=build, check=True)
    return linked


def first_failure(build, folder, number, seeds):
    """The seed of `seeds`, a range, that finds a mutant and how, or None."""
    legalize = MUTANTS[number][0].startswith("passes/legalize/")
    linked = build_mutant(build, folder, number, "lib/liblathe_compiler.so" if legalize else "bin/lathe-fuzz")
    first, size = seeds.start, 4
    while first < seeds.stop:
        some = f"{first}:{min(size, seeds.stop - first)}"
        first, size = first + size, min(2 * size, AT_ONCE)
        if legalize:
            command = [sys.executable, os.path.join(ROOT, "test", "fuzz", "against_onnxruntime.py"), build,
                       os.path.join(folder, "models"), some]
        else:
            command = [linked, f"--seeds={some}", "--deadline=20"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LATHE_COMPILER_LIBRARY": linked})
        # A model that takes too long says nothing of a mutant, nor does one that onnxruntime or lathe refuses.
        found = re.search(r"^seed[ -](\d+): (?!- |hang)(.*)$", done.stdout, re.MULTILINE)
        if found:
            return found.group(1), found.group(2)
        assert done.returncode == 0 or " failed" in done.stdout, done.stdout + done.stderr
    return None


def mutant_number(text):
    if not text.isdecimal() or int(text) >= len(MUTANTS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {len(MUTANTS) - 1}")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("numbers", nargs="*", type=mutant_number, metavar="NUMBER")
    parser.add_argument("--seeds", default="1:1000", type=seed_range, metavar="FIRST:COUNT", help="at most these (default: 1:1000)")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    left = []
    chosen = options.numbers or range(len(MUTANTS))
    for number in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found = first_failure(build, folder, number, options.seeds)
        print(f"{number:3} {MUTANTS[number][0]:40} " + (f"seed {found[0]:>4}: {found[1]}" if found else "NOTHING"), flush=True)
        if not found:
            left.append(number)
    print(f"{len(chosen) - len(left)} of {len(chosen)} mutants found", "; left: " + ", ".join(map(str, left)) if left else "")
    return len(left) > 2


if __name__ == "__main__":
    sys.exit(main())
