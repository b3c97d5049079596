"""Mistakes of a caller of collectives, made on purpose: the simulated libhccl finds each."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_rank import (
    BFLOAT16,
    E_INTERNAL,
    E_NOT_SUPPORT,
    E_PARA,
    E_PTR,
    PROD,
    SUM,
    Memory,
    Rank,
    type_of,
)

FLOAT32, INT16, UINT8, FLOAT64 = (type_of(t) for t in ("float32", "int16", "uint8", "float64"))
COUNT = 4
LISTS = np.array([[2, 2], [0, 2]], np.uint64)
TOO_MANY = 0x7FFFFFFFF + 1


def right_calls(x: Any, y: Any, count: Any = COUNT, kind: int = FLOAT32, op: int = SUM) -> Any:
    """Every collective of two ranks, by name; x and y have room for two ranks' elements."""
    lists = LISTS.copy()
    if count != COUNT:
        lists[0, 0] = count
    counts, displs, own = lists[0], lists[1], int(lists[0, 0])
    matrix = np.stack([counts, counts])
    return {
        "HcclAllGather": (x, y, count, kind),
        "HcclAllGatherV": (x, own, y, counts, displs, kind),
        "HcclReduceScatter": (x, y, count, kind, op),
        "HcclReduceScatterV": (x, counts, displs, y, own, kind, op),
        "HcclAllReduce": (x, y, count, kind, op),
        "HcclReduce": (x, y, count, kind, op, 0),
        "HcclBroadcast": (x, count, kind, 1),
        "HcclScatter": (x, y, count, kind, 0),
        "HcclAlltoAll": (x, count, kind, y, count, kind),
        "HcclAlltoAllV": (x, counts, displs, kind, y, counts, displs, kind),
        "HcclAlltoAllVC": (x, matrix, kind, y, kind),
        "HcclBarrier": (),
    }


NAMES = list(right_calls(0, 0))
SUMS = [name for name in NAMES if "Reduce" in name]
WITH_TYPE = [name for name in NAMES if name != "HcclBarrier"]
WITH_OUTPUT = [name for name in WITH_TYPE if name != "HcclBroadcast"]


def both(one: Rank) -> tuple[Memory, Memory]:
    return one.device(np.ones(2 * COUNT, np.float32)), one.empty(2 * COUNT, np.float32)


def answers(on_ranks: Any, names: list[str], call: Callable[..., Any]) -> dict[str, set[Any]]:
    """What each of two ranks answers for the names, with the text of the error."""

    def work(one: Rank) -> list[tuple[int, str]]:
        found = []
        for name in names:
            args, over = call(one, name)
            found.append((one.start(name, *args, **over), one.text().split(f"{name}: ")[-1]))
        assert one.sync() == 0
        return found

    results = on_ranks(work, 2)
    return {name: {found[i] for found in results} for i, name in enumerate(names)}


def test_every_call_is_right_without_a_mistake(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one))[name], {}

    assert answers(on_ranks, NAMES, call) == {name: {(0, "")} for name in NAMES}


@pytest.mark.parametrize("missing", ["comm", "stream"])
def test_without_a_communicator_or_a_stream(on_ranks: Any, missing: str) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one))[name], {missing: ctypes.c_void_p()}

    text = "the communicator or the stream is none of ours"
    assert answers(on_ranks, NAMES, call) == {name: {(E_PTR, text)} for name in NAMES}


def test_a_stream_of_another_device(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        assert one.acl.aclrtSetDevice(5) == 0
        stream = one.new_stream()
        assert one.acl.aclrtSetDevice(one.rank) == 0
        return right_calls(*both(one))[name], {"stream": stream}

    found = answers(on_ranks, NAMES, call)
    assert found == {name: {(E_PARA, "the stream is another device's")} for name in NAMES}


def test_another_device_of_the_thread(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        assert one.acl.aclrtSetDevice(one.rank) == 0
        args = right_calls(*both(one))[name]
        assert one.acl.aclrtSetDevice(7) == 0
        return args, {}

    found = answers(on_ranks, NAMES, call)
    text = "this thread's device is not the communicator's"
    assert found == {name: {(E_INTERNAL, text)} for name in NAMES}


@pytest.mark.parametrize("buffer", ["sendBuf", "recvBuf"])
@pytest.mark.parametrize("where", ["null", "host", "short"])
def test_buffers_that_are_not_device_memory(on_ranks: Any, buffer: str, where: str) -> None:
    host = np.ones(2 * COUNT, np.float32)
    names = WITH_TYPE if buffer == "sendBuf" else WITH_OUTPUT

    def call(one: Rank, name: str) -> Any:
        x, y = both(one)
        wrong = {"null": 0, "host": host, "short": x.address + 2 * COUNT * 4 - 4}[where]
        # Roots take the rank's own buffers, so that it is looked at on both ranks.
        args = right_calls(*((wrong, y) if buffer == "sendBuf" else (x, wrong)))[name]
        if name in ("HcclReduce", "HcclScatter"):
            args = (*args[:-1], one.rank)
        return args, {}

    text = "is null" if where == "null" else ": the elements do not lie in this device's memory"
    space = " " if where == "null" else ""
    want = {(E_PTR if where == "null" else E_PARA, f"{buffer}{space}{text}")}
    assert answers(on_ranks, names, call) == {name: want for name in names}


def test_buffers_that_overlap(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        memory = one.empty(4 * COUNT, np.float32)
        args = right_calls(memory, memory.address + 4)[name]
        if name in ("HcclReduce", "HcclScatter"):
            args = (*args[:-1], one.rank)
        return args, {}

    want = {(E_PARA, "recvBuf overlaps sendBuf")}
    assert answers(on_ranks, WITH_OUTPUT, call) == {name: want for name in WITH_OUTPUT}


def test_only_sums_of_whole_buffers_run_in_place(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        x, _ = both(one)
        args = right_calls(x, x)[name]
        return (*args[:-1], one.rank) if name == "HcclScatter" else args, {}

    in_place = ("HcclAllReduce", "HcclReduce")
    found = answers(on_ranks, WITH_OUTPUT, call)
    want = {n: {(0, "") if n in in_place else (E_PARA, "recvBuf is sendBuf")} for n in WITH_OUTPUT}
    assert found == want


def test_counts_past_the_limit(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one), count=TOO_MANY)[name], {}

    names = [name for name in WITH_TYPE if not name.endswith("ScatterV") and name[-2:] != "rV"]
    want = {(E_PARA, "a count or displacement is too large")}
    assert answers(on_ranks, names, call) == {name: want for name in names}


def test_roots_and_reductions_out_of_range(on_ranks: Any) -> None:
    def rooted(one: Rank, name: str) -> Any:
        return (*right_calls(*both(one))[name][:-1], 2), {}

    names = ["HcclBroadcast", "HcclReduce", "HcclScatter"]
    want = {(E_PARA, "there is no rank 2")}
    assert answers(on_ranks, names, rooted) == {name: want for name in names}

    def reduced(one: Rank, name: str) -> Any:
        return right_calls(*both(one), op=4)[name], {}

    want = {(E_PARA, "there is no such reduction")}
    assert answers(on_ranks, SUMS, reduced) == {name: want for name in SUMS}


@pytest.mark.parametrize(
    ("kind", "op", "names", "text"),
    [
        (FLOAT64, SUM, SUMS, "this data type is not taken by this call"),
        (UINT8, SUM, SUMS, "this data type is not taken by this call"),
        (INT16, PROD, SUMS[:1] + SUMS[2:], "no product of this data type on this device"),
        (BFLOAT16, PROD, SUMS[:1] + SUMS[2:], "no product of this data type on this device"),
        (FLOAT32, PROD, ["HcclReduceScatterV"], "no product on this device"),
        (12, SUM, WITH_TYPE, "this data type is not taken by this call"),
    ],
)
def test_types_that_are_not_documented(
    on_ranks: Any, kind: int, op: int, names: list[str], text: str
) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one), kind=kind, op=op)[name], {}

    want = {(E_NOT_SUPPORT, text)}
    assert answers(on_ranks, names, call) == {name: want for name in names}


@pytest.mark.parametrize("mistake", ["count", "type", "reduction", "root", "operator", "order"])
def test_ranks_that_differ_fail_on_both(on_ranks: Any, mistake: str) -> None:
    def work(one: Rank) -> bool:
        x, y = both(one)
        other = one.rank == 1
        calls = {
            "count": [("HcclAllReduce", x, y, 4 + other, FLOAT32, SUM)],
            "type": [("HcclAllGather", x, y, 2, 2 if other else FLOAT32)],
            "reduction": [("HcclReduceScatter", x, y, 4, FLOAT32, 2 * other)],
            "root": [("HcclBroadcast", x, 4, FLOAT32, one.rank)],
            "operator": [("HcclBarrier",) if other else ("HcclAllReduce", x, y, 4, FLOAT32, SUM)],
            "order": [("HcclBroadcast", x, 4, FLOAT32, r) for r in (one.rank, 1 - one.rank)],
        }[mistake]
        for call in calls:
            assert one.start(*call) == 0
        return one.sync() != 0 and one.async_error() != 0

    assert on_ranks(work, 2) == [True] * 2


@pytest.mark.parametrize("name", ["HcclAlltoAllV", "HcclAlltoAllVC"])
def test_amounts_that_do_not_match_fail_on_both(on_ranks: Any, name: str) -> None:
    def work(one: Rank) -> bool:
        x, y = both(one)
        counts, displs = LISTS.copy()
        if one.rank == 1:
            counts[0] = 1  # what goes to rank 0, which expects 2
        matrix = np.stack([LISTS[0], counts])
        v_call = (x, counts, displs, FLOAT32, y, LISTS[0], displs, FLOAT32)
        args = v_call if name == "HcclAlltoAllV" else (x, matrix, FLOAT32, y, FLOAT32)
        assert one.start(name, *args) == 0
        return one.sync() != 0

    assert on_ranks(work, 2) == [True] * 2


def test_lists_are_read_again_when_the_stream_comes(on_ranks: Any) -> None:
    def work(one: Rank) -> bool:
        x, y = both(one)
        counts, displs = LISTS.copy()
        one.acl.SimHoldStream(one.stream)
        args = (x, counts, displs, FLOAT32, y, counts, displs, FLOAT32)
        assert one.start("HcclAlltoAllV", *args) == 0
        displs[:] = 0
        one.acl.SimReleaseStream(one.stream)
        return one.sync() != 0

    assert on_ranks(work, 2, COLLOPS_SIM_LATE_COUNTS="1") == [True] * 2
    assert on_ranks(work, 2) == [False] * 2


def test_memory_that_is_freed_too_early(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        x, y = both(one)
        one.acl.SimHoldStream(one.stream)
        assert one.start("HcclAllGather", x, y, COUNT, FLOAT32) == 0
        early = [x.free(), y.free()]
        one.acl.SimReleaseStream(one.stream)
        assert one.sync() == 0
        return [*early, x.free(), y.free(), x.free()]

    assert on_ranks(work, 2) == [[100000, 100000, 0, 0, 100000]] * 2


@pytest.mark.parametrize("name", [*NAMES, "HcclSend", "HcclRecv", "HcclBatchSendRecv"])
def test_a_call_can_be_told_to_fail(on_ranks: Any, name: str) -> None:
    def work(one: Rank) -> int:
        memory = both(one)
        args = right_calls(*memory).get(name, (memory[0], 1, FLOAT32, 1 - one.rank))
        return one.start(name, *(args if name != "HcclBatchSendRecv" else (0, 1)))

    assert on_ranks(work, 2, COLLOPS_SIM_FAIL=f"{name}:1:17") == [17] * 2


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        ({"COLLOPS_SIM_WITHOUT": "HcclAllGatherV,HcclBarrier"}, ("HcclAllGatherV", "HcclBarrier")),
        ({"COLLOPS_SIM_SOC": "Ascend910A"}, ("HcclAllGatherV", "HcclReduceScatterV")),
        ({"COLLOPS_SIM_SOC": "Ascend910_9382"}, ()),
    ],
)
def test_functions_that_the_device_lacks(on_ranks: Any, env: dict[str, str], missing: Any) -> None:
    def work(one: Rank) -> tuple[list[str], str]:
        one.acl.aclrtGetSocName.restype = ctypes.c_char_p
        calls = right_calls(*both(one))
        lacking = [name for name in NAMES if one.start(name, *calls[name]) == E_NOT_SUPPORT]
        assert one.sync() == 0
        return lacking, one.acl.aclrtGetSocName().decode()

    soc = env.get("COLLOPS_SIM_SOC", "Ascend910B1")
    assert on_ranks(work, 2, **env) == [(list(missing), soc)] * 2


def test_a_library_without_the_v_calls() -> None:
    library = ctypes.CDLL(str(Path(os.environ["COLLOPS_SIM_CANN"]) / "without-v" / "libhccl.so"))
    for name in NAMES:
        assert hasattr(library, name) == (name not in ("HcclAllGatherV", "HcclReduceScatterV"))
