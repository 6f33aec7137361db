# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic sizes of torch as dimension expressions of lathe (include/lathe/support/DimExpr.h)."""
from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import torch

sympy: Any = importlib.import_module("sympy")  # it has no types


class NoSize(Exception):
    """A size that lathe has no expression for; says which."""


_FUNCTIONS = {"FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "mod", "PythonMod": "mod",
              "Max": "max", "Min": "min", "CeilDiv": "ceildiv"}


class Sizes:
    """Names of symbols, and expressions over them as text.

    `ranges` are an ExportedProgram's range_constraints; `names` are the user's names of dimensions. `equal` says of
    symbols which other symbol they equal, though torch.export did not find it.
    """

    def __init__(self, ranges: Mapping[Any, Any], names: Mapping[Any, str],
                 equal: Mapping[Any, Any] | None = None) -> None:
        self.ranges = dict(ranges)
        self.equal = dict(equal or {})
        self.names: dict[Any, str] = {}
        self.places: dict[str, str] = {}  # where an input has the symbol as a size: "x[0]"
        self.hints: dict[str, int] = {}
        self._given = dict(names)

    def name(self, symbol: Any) -> str:
        symbol = self.equal.get(symbol, symbol)
        if symbol not in self.names:
            base = re.sub(r"[^A-Za-z0-9_]", "_", self._given.get(symbol, str(symbol)))
            base = base if re.match(r"[A-Za-z_]", base) and base not in ("main", "_") else f"d{base}"
            taken, name, number = set(self.names.values()), base, 1
            while name in taken:
                name, number = f"{base}_{number}", number + 1
            self.names[symbol] = name
        return self.names[symbol]

    def text(self, value: Any) -> str:
        """An int, a SymInt or a sympy expression."""
        if isinstance(value, int):
            return str(value)
        if isinstance(value, torch.SymInt):
            value = value.node.expr
        if self.equal:
            value = value.xreplace(self.equal)
        if value.is_Integer:
            return str(int(value))
        if value.is_Symbol:
            if re.fullmatch(r"u\d+", str(value)):
                raise NoSize(f"the size {value} is known only when data are")
            return self.name(value)
        if isinstance(value, sympy.Add):
            return "(" + " + ".join(map(self.text, value.args)) + ")"
        if isinstance(value, sympy.Mul):
            below = [a for a in value.args if a.is_Rational and not a.is_Integer]
            if below:  # a whole number by construction
                return f"floordiv({self.text(value * below[0].q)}, {below[0].q})"
            return "(" + " * ".join(map(self.text, value.args)) + ")"
        if isinstance(value, sympy.Pow) and value.exp.is_Integer and value.exp > 0:
            return "(" + " * ".join([self.text(value.base)] * int(value.exp)) + ")"
        function = _FUNCTIONS.get(type(value).__name__)
        if function:
            return f"{function}({', '.join(map(self.text, value.args))})"
        raise NoSize(f"the size {value} is no formula that lathe has ({type(value).__name__})")

    def bounds(self, symbol: Any) -> tuple[int, int]:
        """Least and greatest size, those of its equals too; -1 for none."""
        low, high = 0, -1
        for one in (symbol, *(s for s, same in self.equal.items() if same == symbol)):
            known = self.ranges.get(one)
            if known is not None and known.lower.is_Integer:
                low = max(low, int(known.lower))
            if known is not None and known.upper.is_Integer and known.upper < 2**62:
                high = int(known.upper) if high < 0 else min(high, int(known.upper))
        return low, high

    def declarations(self) -> list[str]:
        """`lathe.symbol` ops of all symbols that were named."""
        lines = []
        for symbol, name in self.names.items():
            low, high = self.bounds(symbol)
            usual = max(self.hints.get(name, 1), low)
            usual = usual if high < 0 else min(usual, high)
            lines.append(f'lathe.symbol @{name} {{max = {high} : i64, min = {low} : i64, multiple_of = 1 : i64, '
                         f'opt = {usual} : i64, origin = "{self.places.get(name, "")}"}}')
        return lines
