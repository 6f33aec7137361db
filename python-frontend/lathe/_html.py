# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small tables for notebooks: plain HTML with its style inside, nothing from the net."""
from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

_CELL = "padding:2px 10px;border-bottom:1px solid #8884"


def text(value: Any) -> str:
    """A value as text in HTML."""
    return html.escape(str(value))


def line(content: str) -> str:
    """A line; `content` is HTML."""
    return f'<div style="margin:4px 0">{content}</div>'


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]],
          shares: Sequence[float] = ()) -> str:
    """Cells are text, numbers to the right. `shares`, from 0 to 1, are drawn behind the rows' first
    cells as bars."""
    out = [f'<table style="border-collapse:collapse;font-size:90%"><caption style="text-align:left">'
           f'{text(title)}</caption><tr>']
    out += [f'<th style="text-align:left;{_CELL}">{text(head)}</th>' for head in heads]
    out.append("</tr>")
    for number, row in enumerate(rows):
        out.append("<tr>")
        for at, cell in enumerate(row):
            style = _CELL + (";text-align:right" if isinstance(cell, (int, float)) else "")
            if at == 0 and number < len(shares):
                share = 100 * min(1.0, max(0.0, shares[number]))
                style += f";background:linear-gradient(90deg,#48f5 {share:.1f}%,transparent {share:.1f}%)"
            shown = f"{cell:.4g}" if isinstance(cell, float) else cell
            out.append(f'<td style="{style}">{text(shown)}</td>')
        out.append("</tr>")
    return "".join([*out, "</table>"])


def megabytes(count: int) -> str:
    return f"{count / 1e6:.3f} MB"
