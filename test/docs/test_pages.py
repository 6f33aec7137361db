# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every page of the documentation is worked through as a reader would: block by block, in a folder of its own."""
import collections
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from readmes import PAGES, ROOT, Block, blocks_of, pages

BUILD = os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build"))
SECONDS = 300
# Blocks that are not run, by what they need; a page that gets another changes the count.
NOT_RUN = {"needs-gpu": 2, "needs-tool": 1}
# Runs the Python of a page in one process: blocks as JSON in, what they print as JSON out.
PYTHON = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(json.loads(line), "block", "exec"), names)
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps([printed.getvalue(), error]), flush=True)
"""


def blocks(page):
    with open(os.path.join(PAGES, page)) as f:
        return blocks_of(f.read(), f"python-frontend/docs/{page}")


def needs(block):
    return next((c for c in block.options.get("class", "").split() if c.startswith("needs-")), None)


def missing_lines(shown, printed):
    """Lines of a page that a program did not print, in their order; `...` stands for anything."""
    rest, missing = [re.sub(r"\s+", " ", line).strip() for line in printed.splitlines()], []
    for line in shown.splitlines():
        line = re.sub(r"\s+", " ", line).strip()
        if line in ("", "..."):
            continue
        pattern = ".*".join(re.escape(part.strip()) for part in line.split("..."))
        at = next((i for i, have in enumerate(rest) if re.fullmatch(rf"\s*{pattern}\s*", have)), None)
        if at is None:
            missing.append(line)
        else:
            rest = rest[at + 1:]
    return missing


class Reader:
    """Does what blocks say, in a folder; `printed` is the output of the last that printed."""

    def __init__(self, folder):
        self.folder, self.printed = folder, ""
        path = os.pathsep.join([os.path.join(BUILD, "bin"), os.path.join(ROOT, ".venv", "bin"), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": path, "LATHE": ROOT, "BUILD": BUILD, "PYTHONWARNINGS": "ignore",
                            "PYTHONPATH": os.path.join(ROOT, "python-frontend")}
        self.python = None

    def close(self):
        if self.python:
            self.python.stdin.close()
            self.python.wait(SECONDS)

    def work(self, block):
        caption = block.options.get("caption")
        if caption:
            path = os.path.join(self.folder, caption)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(block.text + "\n")
        elif block.kind == "sh":
            # A shell for the whole block, which ends at the first command that fails.
            done = subprocess.run(["bash", "-euc", block.text], cwd=self.folder, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=SECONDS, env=self.environment)
            self.printed = done.stdout + done.stderr
            assert done.returncode == 0, f"{block}: ended with {done.returncode}:\n{self.printed[-3000:]}"
        elif block.kind == "python":
            self.python = self.python or subprocess.Popen(
                [sys.executable, "-c", PYTHON], cwd=self.folder, env=self.environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.python.stdin.write(json.dumps(block.text) + "\n")
            self.python.stdin.flush()
            line = self.python.stdout.readline()
            assert line, f"{block}: ended the process"
            self.printed, error = json.loads(line)
            assert not error, f"{block}: {error}"
        elif block.kind == "text":
            missing = missing_lines(block.text, self.printed)
            assert not missing, f"{block}: not printed: {missing}\nof:\n{self.printed[-3000:]}"
        else:
            pytest.fail(f"{block}: a block of {block.kind} without a caption, which nothing uses")


@pytest.mark.parametrize("page", [p for p in pages() if blocks(p)])
def test_page(page, tmp_path):
    reader = Reader(tmp_path)
    try:
        for block in blocks(page):
            if not needs(block):
                reader.work(block)
    finally:
        reader.close()


def test_what_is_not_run():
    counts = collections.Counter(needs(b) for page in pages() for b in blocks(page) if needs(b))
    assert counts == NOT_RUN


def test_pages_are_built():
    """Sphinx with its warnings as errors; every op and every function of C has its place."""
    out = os.path.join(BUILD, "docs")
    shutil.rmtree(out, ignore_errors=True)
    done = subprocess.run([sys.executable, os.path.join(PAGES, "build.py"), out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    def html(name):
        with open(os.path.join(out, "html", name)) as f:
            return f.read()

    assert 'id="op-lathe-matmul"' in html("reference/ops/contraction.html")
    assert "exec.launch" in html("reference/ops/exec.html") and "tile.load" in html("reference/ops/tile.html")
    assert 'id="c.lathe_engine_open"' in html("reference/c.html")
    assert 'id="lathe.Engine.context"' in html("python.html")
    assert "--max-memory" in html("knobs.html") and "--stop-after" in html("reference/commands.html")


def test_a_wrong_page_is_seen(tmp_path):
    """What the tests above rest on: faults in blocks do not pass."""
    text = "```sh\nfalse\n```\n```python\nprint(1 / 0)\n```\n```sh\necho a b\n```\n```text\na ... c\n```\n```c\nint x;\n```\n"
    reader = Reader(tmp_path)
    fails = []
    for block in blocks_of(text, "page"):
        try:
            reader.work(block)
        except (AssertionError, pytest.fail.Exception):
            fails.append(block.line)
    reader.close()
    assert fails == [1, 4, 10, 13]


def test_directives():
    text = "```{include} README.md\n:start-after: x\n```\n```{code-block} cpp\n:caption: a/app.cpp\n\nint x;\n```\n"
    assert blocks_of(text, "page") == [Block("page", 4, "cpp", "int x;", {"caption": "a/app.cpp"})]
