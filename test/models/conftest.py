# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Engines are compiled once a test session."""
import os

import pytest

import lathe_cli


@pytest.fixture(scope="session")
def engines(tmp_path_factory):
    """engine(model, *options) -> path, compiled on the first call with these arguments."""
    folder = tmp_path_factory.mktemp("engines")
    made = {}

    def engine(model, *options, target=None):
        key = (model, options, target)
        if key not in made:
            name = f"{len(made)}_{os.path.basename(os.path.dirname(model))}.lathe"
            try:
                made[key] = lathe_cli.compile_model(model, folder / name, *options, target=target)
            except AssertionError as problem:
                made[key] = problem
        if isinstance(made[key], AssertionError):
            raise made[key]
        return made[key]

    return engine
