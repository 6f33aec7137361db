# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the commands and code blocks of READMEs."""
import dataclasses
import os
import re
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


@dataclasses.dataclass
class Block:
    """`kind` is the language of a fence, or "sh" for indented lines; `line` counts from 1."""
    file: str
    line: int
    kind: str
    text: str

    def __str__(self):
        return f"{self.file}:{self.line}"

    def commands(self):
        """Lines of a shell block without their comments; a backslash joins two."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"(^|\s+)# .*$", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def readmes(root=ROOT):
    out = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*README.md"],
                         capture_output=True, text=True, check=True).stdout
    return sorted(name for name in out.split() if os.path.exists(os.path.join(root, name)))


def blocks_of(text, file=""):
    """Fenced blocks, and indented ones that stand behind an empty line."""
    lines, found, i = text.splitlines(), [], 0
    while i < len(lines):
        fence = re.match(r"^```(\w*)\s*$", lines[i])
        if fence:
            end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith("```")), None)
            assert end is not None, f"{file}:{i + 1}: a fence that does not end"
            found.append(Block(file, i + 1, fence[1] or "text", "\n".join(lines[i + 1:end])))
            i = end + 1
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()):
            end = i
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            body = "\n".join(line[4:] for line in lines[i:end]).rstrip()
            found.append(Block(file, i + 1, "sh", body))
            i = end
        else:
            i += 1
    return found


def all_blocks(root=ROOT):
    found = []
    for name in readmes(root):
        with open(os.path.join(root, name)) as f:
            found += blocks_of(f.read(), name)
    return found


def options_named(text):
    """--options that a text names."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
