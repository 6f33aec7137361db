# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Settings of Sphinx. `build.py` runs it on a copy of this folder, beside the pages that generate.py makes."""
import os
import re
import sys

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text

sys.path.insert(0, os.environ["LATHE_PYTHON"])
import lathe  # noqa: E402

project, author = "lathe", "the lathe authors"
version = release = lathe.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_*", "README.md"]
html_theme = "furo"
html_title = f"lathe {version}"
html_show_copyright = html_copy_source = html_show_sourcelink = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 2
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"Inputs": "Inputs"}
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 90


class MlirLexer(RegexLexer):
    """Enough of MLIR's text for colours."""

    name, aliases = "MLIR", ["mlir"]
    tokens = {"root": [(r"//.*", Comment), (r'"(?:[^"\\]|\\.)*"', String), (r"%[\w.#:]+", Name.Variable),
                       (r"@[\w.$]+", Name.Function), (r"#[\w.]+", Name.Attribute),
                       (r"\b(?:module|func\.func|return|attributes|loc)\b", Keyword),
                       (r"\b[a-z_]+\.[a-z_.]+\b", Name.Builtin), (r"-?\d[\d.]*(?:e[-+]?\d+)?\b", Number),
                       (r"[-+*=<>:,(){}\[\]|!?]", Operator), (r"\w+|\s+|.", Text)]}


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text: code in them is between backticks, and rows of a name and its meaning are a list."""
    out, listed = [], False
    for line in lines:
        row = re.match(r"^([a-z_]+(?:, [a-z_]+)*) {2,}(\S.*)$", line)
        if row:
            out += ([] if listed else [""]) + [f"- ``{row[1]}``: {row[2]}"]
        elif listed and line.strip():
            out.append("  " + line.strip())
        else:
            out.append(line)
        listed = bool(row) or (listed and bool(line.strip()))
    lines[:] = [re.sub(r"(?<![`:\w])`([^`\n]+)`(?!`)", r"``\1``", line) for line in out]


def setup(app):
    app.add_lexer("mlir", MlirLexer)
    app.connect("autodoc-process-docstring", plain_docstring)
