# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the documentation; a warning is an error.

    build.py [OUT]      OUT/html/index.html; OUT is build/docs of the checkout unless it is given

OUT/source is what Sphinx reads: the pages of this folder, and those that generate.py makes of the dialects, the
C headers and the programs.
"""
import os
import pathlib
import shutil
import subprocess
import sys

import generate

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
QUOTED = ("include/lathe/passes/Passes.td", "passes/fuse/NameKernels.cpp")


def main():
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else ROOT / "build" / "docs").resolve()
    source = out / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("*.py", "__pycache__", "README.md"))
    shutil.copy(HERE / "conf.py", source)
    # What pages quote.
    shutil.copy(ROOT / "README.md", source / "_readme.md")
    (source / "_source").mkdir()
    for quoted in QUOTED:
        shutil.copy(ROOT / quoted, source / "_source")
    generate.write(ROOT, source / "reference")
    environment = {**os.environ, "LATHE_PYTHON": str(ROOT / "python-frontend")}
    done = subprocess.run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
                           "-d", out / "doctrees", source, out / "html"], env=environment)
    if done.returncode == 0:
        print(out / "html" / "index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
