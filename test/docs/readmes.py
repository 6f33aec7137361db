# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the commands and code blocks of READMEs and of the documentation's pages."""
import dataclasses
import os
import re
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PAGES = os.path.join(ROOT, "python-frontend", "docs")
# Directives of MyST whose body is no text: what a block is, is their argument.
CODE = ("code-block", "code")


@dataclasses.dataclass
class Block:
    """`kind` is the language of a fence, or "sh" for indented lines; `line` counts from 1; `options` are those of
    a `{code-block}`: `caption` is the file that holds the text, `class` starts with "needs-" where `check` lacks
    what the block needs."""
    file: str
    line: int
    kind: str
    text: str
    options: dict[str, str] = dataclasses.field(default_factory=dict)

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
    """Fenced blocks, and indented ones that stand behind an empty line. Of MyST's directives only those of code
    are blocks."""
    lines, found, i = text.splitlines(), [], 0
    while i < len(lines):
        fence = re.match(r"^```(?:(\w*)|\{([\w-]+)\}(.*))\s*$", lines[i])
        if fence:
            end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith("```")), None)
            assert end is not None, f"{file}:{i + 1}: a fence that does not end"
            body, options = lines[i + 1:end], {}
            while fence[2] and body and (option := re.match(r"^:([\w-]+):\s*(.*)$", body[0])):
                options[option[1]] = option[2]
                body = body[1:]
            kind = fence[3].strip() if fence[2] else fence[1]
            if not fence[2] or fence[2] in CODE:
                found.append(Block(file, i + 1, kind or "text", "\n".join(body).strip("\n") if fence[2]
                                   else "\n".join(body), options))
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


def pages(folder=PAGES):
    """The pages that people write; others are made of the sources."""
    return sorted(name for name in os.listdir(folder) if name.endswith(".md") and name != "README.md")


def all_blocks(root=ROOT):
    found = []
    for name in readmes(root):
        with open(os.path.join(root, name)) as f:
            found += blocks_of(f.read(), name)
    return found


def options_named(text):
    """--options that a text names."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
