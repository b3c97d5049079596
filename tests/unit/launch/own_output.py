"""The output of a program, without lines that this machine adds to every program's.

A machine may have notices of its own (a start-up file of Python, a library that cannot be
preloaded). Tests that know every line of a program's output do not count those.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any


@functools.cache
def notices() -> frozenset[str]:
    """The lines that a Python which does nothing writes here; on most machines there are none."""
    done = subprocess.run(
        [sys.executable, "-c", ""], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return frozenset(filter(None, done.stdout.splitlines()))


def own(text: str, known: frozenset[str] | None = None) -> str:
    """The text without the lines of `known`, by default this machine's notices."""
    known = notices() if known is None else known
    return "".join(line for line in text.splitlines(True) if line.rstrip("\r\n") not in known)


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with text; what was captured is the program's own."""
    done = subprocess.run(command, text=True, **options)
    return subprocess.CompletedProcess(
        done.args,
        done.returncode,
        None if done.stdout is None else own(done.stdout),
        None if done.stderr is None else own(done.stderr),
    )
