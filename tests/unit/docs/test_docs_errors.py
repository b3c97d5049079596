"""The messages in docs/errors.md are those of the code: one of the tables of what the code says has
them, but for numbers, or they are produced here, without pids."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

ROOT = Path(__file__).resolve().parents[3]
SECTION = re.compile(r"^### (\d+) .*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```text\n(.+)\n```$", re.MULTILINE)
Said = list[tuple[int, str]]

TABLES = ("tests/refusals/refusals.txt", "tests/messages/expected.txt")
LINE = re.compile(r"^.*?[!:] (?:[a-z]+ )?(\d+) (.+)$", re.MULTILINE)
CALL = re.compile(r"\b(AllGatherV|ReduceScatterV|AllReduce|reduce_scatterv)(?=:)")


def without_pids(text: str) -> str:
    return re.sub(r"pid \d+", "pid N", text)


def examples() -> list[tuple[int, str]]:
    """The messages on the page, with the code of their section."""
    page = (ROOT / "docs/errors.md").read_text()
    return [
        (int(section[1]), text)
        for section in SECTION.finditer(page)
        for text in EXAMPLE.findall(section[0])
    ]


def error_of(call: Callable[[], Any]) -> Said:
    try:
        call()
    except collops.Error as error:
        return [(error.code, without_pids(error.message))]
    return []


def common(text: str) -> str:
    """A message without its call, numbers and processes."""
    return re.sub(r"\d+", "N", CALL.sub("~", re.sub(r"\(pid [^)]+\)", "(pid)", text)))


def without_files() -> Said:
    """First contact of one rank, where no file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 1
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        return error_of(lambda: collops.init(0, 1, comm_domain="files"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


def without_memory(comm: collops.Communicator) -> Said:
    """A window that is larger than the limit of files, which holds for shared memory too."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        return error_of(lambda: comm.empty(1 << 30, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def leave(comm: collops.Communicator) -> None:
    with contextlib.suppress(RuntimeError), comm:
        raise RuntimeError("out of pages")


def messages(comm: collops.Communicator) -> Said:
    """A message that arrives, and one whose sides do not fit together."""
    x = np.zeros(6, np.float16)
    if comm.rank == 0:
        comm.send(x, 1)
        return error_of(lambda: comm.send(x, 1))
    comm.recv(x, 0)
    return error_of(lambda: comm.recv(x[:4], 0))


def domain_of_lccl(rank: int) -> Said:
    os.environ["COLLOPS_BACKEND"] = "lccl=shm"  # of this rank's process
    param = collops.AllReduceParam(rank=rank, rank_size=2, backend="lccl", comm_domain="65536")
    return error_of(lambda: collops.Operation(param).forward([np.zeros((2, 3), np.float32)]))


def all_ranks(rank: int, pipe: tuple[int, int]) -> Said:
    """Both ranks' messages when rank 1 makes another call."""
    odd = rank == 1

    def comm(domain: str, timeout_s: float = 30) -> collops.Communicator:
        return collops.init(comm_domain=domain, timeout_s=timeout_s)

    rows = np.zeros((2, 3), np.float32)
    said = error_of(lambda: comm("refused").all_gatherv(rows, [2, 3 if odd else 2]))
    said += messages(comm("messages"))
    aborted, left, late = comm("aborted"), comm("left"), comm("late")
    if odd:
        aborted.abort("the scheduler wants the cores back")
        leave(left)
        os.read(pipe[0], 1)
    else:
        said += error_of(aborted.barrier) + error_of(left.barrier)
        comm("late", 0.5)
        said += error_of(late.barrier)
        os.write(pipe[1], b"x")
    memory = comm("memory")
    said += domain_of_lccl(rank)
    return said if odd else said + without_files() + without_memory(memory)


def answers_of_hccl() -> Said:
    """The messages that the C++ test of the backend hccl expects."""
    text = (ROOT / "tests/cpp/hccl/hccl_error_test.cpp").read_text()
    codes = {25: "ERROR_HCCL_FAIL", 26: "ERROR_OUT_OF_DEVICE_MEMORY"}
    found = [(code, re.search(rf'{name},\s*"(.+)"', text)) for code, name in codes.items()]
    return [(code, match[1]) for code, match in found if match]


@pytest.fixture(scope="module")
def said() -> Said:
    scratch = (ROOT / "tests/cpp/operators/framework/execute_check_test.cpp").read_text()
    [workspace] = re.findall(r'ERROR_INVALID_WORKSPACE_SIZE,\s*"(.+)"', scratch)
    pipe = os.pipe()
    try:
        together = run_ranks(all_ranks, 2, pipe)
    finally:
        for end in pipe:
            os.close(end)
    return [*(error for rank in together for error in rank), (22, workspace), *answers_of_hccl()]


@pytest.fixture(scope="module")
def tables() -> set[tuple[int, str]]:
    text = "".join((ROOT / table).read_text() for table in TABLES)
    return {(int(code), common(said)) for code, said in LINE.findall(text)}


def test_every_section_has_an_example() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    assert {code for code, _ in examples()} == {int(s[1]) for s in SECTION.finditer(page)}


@pytest.mark.parametrize(("code", "example"), examples())
def test_the_code_says_what_the_page_says(
    said: Said, tables: set[tuple[int, str]], code: int, example: str
) -> None:
    assert (code, without_pids(example)) in said or (code, common(example)) in tables
