"""Ranks that differ, memory that goes too early, and what the simulated libhccl can be told."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from tests.npu.simulated.simulated_calls import COUNT, FLOAT32, LISTS, NAMES, both, right_calls
from tests.npu.simulated.simulated_rank import E_NOT_SUPPORT, SUM, Rank


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
            "operator": [
                ("HcclAllGather", x, y, 4, FLOAT32)
                if other
                else ("HcclAllReduce", x, y, 4, FLOAT32, SUM)
            ],
            "order": [("HcclBroadcast", x, 4, FLOAT32, r) for r in (one.rank, 1 - one.rank)],
        }[mistake]
        for call in calls:
            assert one.start(*call) == 0
        return one.sync() != 0 and one.async_error() != 0

    assert on_ranks(work, 2) == [True] * 2


def test_amounts_that_do_not_match_fail_on_both(on_ranks: Any) -> None:
    def work(one: Rank) -> bool:
        x, y = both(one)
        counts, displs = LISTS.copy()
        if one.rank == 1:
            counts[0] = 1  # what goes to rank 0, which expects 2
        args = (x, counts, displs, FLOAT32, y, LISTS[0], displs, FLOAT32)
        assert one.start("HcclAlltoAllV", *args) == 0
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
