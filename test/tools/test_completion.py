# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Completion of the command in shells."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PATH": f"{ROOT / 'build/bin'}:{os.environ['PATH']}"}


def shell(name, program):
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    done = subprocess.run([name, "-c", program], capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def in_bash(*words):
    line = " ".join(f"'{word}'" for word in words)
    return shell("bash", "source tools/completion/lathe.bash; "
                 f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _lathe; printf '%s\\n' \"${{COMPREPLY[@]}}\"")


def verbs():
    text = subprocess.run(["lathe", "--help"], capture_output=True, text=True, env=ENVIRONMENT).stdout
    return re.findall(r"^  lathe (\w+)  ", text, re.M)


def test_bash():
    assert len(verbs()) >= 7
    assert set(in_bash("lathe", "")) == {*verbs(), "--help", "--version"}
    assert in_bash("lathe", "insp") == ["inspect"]
    assert {"--target=", "--dim=", "--remarks="} <= set(in_bash("lathe", "compile", "--"))
    assert in_bash("lathe", "compile", "--rem") == ["--remarks="]
    assert in_bash("lathe", "run", "READ") == ["README.md"]


def test_fish():
    program = "source tools/completion/lathe.fish; complete -C "
    said = shell("fish", program + "'lathe insp'")
    assert said[0] == "inspect"
    assert "--remarks=" in shell("fish", program + "'lathe compile --rem'")


def test_zsh():
    """zsh reads the file, and what it asks help for is there."""
    shell("zsh", "autoload -Uz compinit && compinit -u && source tools/completion/lathe.zsh 2>/dev/null; "
          "whence -w _lathe")
    text = (ROOT / "tools/completion/lathe.zsh").read_text()
    commands = re.findall(r'"\$\((lathe .*?)\)"', text)
    assert len(commands) == 2
    assert set(re.findall(r"^(\w+):", subprocess.run(
        ["bash", "-c", commands[0]], capture_output=True, text=True, env=ENVIRONMENT).stdout, re.M)) == set(verbs())
