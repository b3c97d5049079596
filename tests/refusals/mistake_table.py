"""Reads, runs and writes mistakes.txt, the table of wrong programs and their messages."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import collops
from collops.testing import run_ranks
from patience import patience

HEADER = """\
# Typical mistakes: each a program (indented) and the message that it gets (after "!").
# "comm" is a communicator of one rank, or of two where the section says so; X is [3, 2] and W
# [2, 4] of float32. Lines NAME=value are variables of the environment. "pid N": of any process.
# Written by: COLLOPS_UPDATE_MISTAKES=1 python -m pytest tests/refusals/test_mistakes.py
"""
PATH = Path(__file__).with_name("mistakes.txt")
VARIABLE = re.compile(r"([A-Z][A-Z_]+)=(.*)")
OF_RANK = re.compile(r"rank ([01]): (.*)")


@dataclass
class Mistake:
    """A row: its section and title, the lines of its program, and what it gets."""

    section: str
    title: str
    program: list[str] = field(default_factory=list)
    message: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """How the test calls it."""
        return f"{self.section}: {self.title}"

    @property
    def on_two_ranks(self) -> bool:
        """Whether the lines say which rank makes them."""
        return self.section.endswith("on 2 ranks")


def read() -> list[Mistake]:
    """The rows of the file."""
    rows: list[Mistake] = []
    section = ""
    for line in PATH.read_text().splitlines():
        if line.startswith("== "):
            section = line[3:]
        elif line.startswith("    "):
            rows[-1].program.append(line[4:])
        elif line.startswith("! "):
            rows[-1].message.append(line[2:])
        elif line and not line.startswith("#"):
            rows.append(Mistake(section, line))
    return rows


def write(rows: list[Mistake], heard: dict[str, list[str]]) -> None:
    """Replaces the file; rows that were not run keep their messages."""
    lines, section = [HEADER], ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(f"\n== {section}\n")
        lines.append(f"{row.title}\n")
        lines += [f"    {line}\n" for line in row.program]
        lines += [f"! {line}\n" for line in heard.get(row.name, row.message)]
    PATH.write_text("".join(lines))


def without_variables(text: str) -> str:
    """The text with what differs from run to run replaced."""
    text = re.sub(r"\bpid \d+", "pid N", text)
    text = re.sub(r"\), (sleeping|running), ", "), <sleeping or running>, ", text)
    text = re.sub(r"\d+ bytes are available .*", "<bytes> are available", text)
    return re.sub(r"\bjob [a-z_]+/[0-9a-f-]+", "job <job>", text)


def heard_of(program: str, names: dict[str, Any]) -> str:
    """What the program gets: the class of its error, the code and the message."""
    try:
        exec(program, names)
    except collops.Error as error:
        return without_variables(f"{type(error).__name__} {error.code}: {error.message}")
    except Exception as error:
        return without_variables(f"{type(error).__name__}: {error}")
    return "no error"


def values() -> dict[str, Any]:
    """The names that every program may use."""
    names: dict[str, Any] = {"np": np, "collops": collops, "torch": sys.modules.get("torch")}
    names["X"] = np.arange(6, dtype=np.float32).reshape(3, 2)
    names["W"] = np.ones((2, 4), np.float32)
    names["GATHER"] = collops.AllGatherVParam(rank=0, rank_size=2, backend="shm")
    counts = np.array([6, 6])
    names["INPUTS"] = [names["X"], counts[:1], counts, np.array([0, 6]), np.empty(6, np.float16)]
    return names


def run_alone(row: Mistake) -> list[str]:
    """The message of a program of one rank."""
    variables = dict(m.groups() for m in map(VARIABLE.fullmatch, row.program) if m)
    program = "\n".join(line for line in row.program if not VARIABLE.fullmatch(line))
    with mock.patch.dict(os.environ, variables), contextlib.ExitStack() as stack:
        names = values()
        if not variables:
            names["comm"] = stack.enter_context(collops.init(0, 1, comm_domain=row.name))
        return [heard_of(program, names)]


def while_one_waits(
    gate: threading.Event, first: Callable[[], Any], call: Callable[..., Any], *args: Any
) -> None:
    """Runs `first` in a thread and once it waits `call` here, and then opens the gate."""
    thread = threading.Thread(target=first)
    thread.start()
    try:
        until_asleep(thread)
        call(*args)
    finally:
        gate.set()
        thread.join()


def until_asleep(thread: threading.Thread, looks: int = 5) -> None:
    """Returns once the thread was found asleep that often in a row."""
    asleep = 0
    while asleep < looks:
        time.sleep(0.01)
        state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2]
        asleep = asleep + 1 if state.split()[0] == "S" else 0


def run_on_two(rows: list[Mistake]) -> dict[str, list[str]]:
    """The messages of both ranks, which are threads of this process, per row."""
    gates = {row.name: threading.Event() for row in rows}
    together = threading.Barrier(2, timeout=patience(60))

    def work(rank: int) -> list[str]:
        heard, communicators = [], []
        for row in rows:
            comm = collops.init(comm_domain=row.name, timeout_s=patience(30))
            communicators.append(comm)
            gate = gates[row.name]
            names = {**values(), "comm": comm, "gate": gate, "sum_of": sum_of}
            names["while_one_waits"] = partial(while_one_waits, gate)
            own = [m[2] for m in map(OF_RANK.fullmatch, row.program) if m and m[1] == str(rank)]
            heard.append(f"rank {rank}: {heard_of(''.join(own), names)}")
            together.wait()
        return heard

    both = run_ranks(work, 2, threads=True)
    return {row.name: [both[0][i], both[1][i]] for i, row in enumerate(rows)}


def sum_of(comm: collops.Communicator) -> collops.AllReduceParam:
    """AllReduce on that communicator."""
    return collops.AllReduceParam(rank=comm.rank, hccl_comm=comm, backend="shm")
