# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of Debian packages that need not be installed, and the folder of what is made once: build/accuracy."""
import functools
import glob
import gzip
import os
import re
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
OUT = os.path.join(os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build")), "accuracy")


def package(name):
    """The folder with the files of a package, as apt-get downloads it (as any user, without installing it)."""
    folder = os.path.join(OUT, "packages", name)
    if not os.path.isdir(folder):
        os.makedirs(folder + ".part", exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", name], cwd=os.path.dirname(folder), check=True, capture_output=True)
        archive, = glob.glob(f"{folder}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, folder + ".part"], check=True)
        os.remove(archive)
        os.rename(folder + ".part", folder)
    return folder


def files(name, pattern):
    """Paths in a package by a glob of their names, in the order of their paths."""
    found = glob.glob(os.path.join(package(name), "**", pattern), recursive=True)
    return sorted(p for p in found if os.path.isfile(p) and not os.path.islink(p))


def text_of_manual(path):
    """A manual page without the requests of roff."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    text = []
    for line in lines:
        if re.match(r"^[.'](\\\"|$)", line):
            continue
        words = re.match(r"^\.(SH|SS|B|I|BR|RB|IR|RI|BI|IB|TP|IP)\b *(.*)", line)
        if line.startswith((".", "'")) and not words:
            continue
        line = words.group(2).replace('"', "") if words else line
        text.append(re.sub(r"\\f(\(..|\[[^]]*\]|.)|\\&|\\c$", "", line).replace("\\-", "-").replace("\\e", "\\"))
    return "\n".join(text)


# Documentation as text: the pattern of a package's files, and how they are read.
TEXTS = {"python3.11-doc": "*.rst.txt", "perl-doc": "*.pod", "vim-runtime": "doc/*.txt", "git-doc": "*.txt", "manpages": "*.gz"}


@functools.cache
def texts(name):
    """The documents of a package."""
    found = []
    for path in files(name, TEXTS[name]):
        if path.endswith(".gz"):
            found.append(text_of_manual(path))
        else:
            with open(path, encoding="utf-8", errors="replace") as file:
                found.append(file.read())
    return found
