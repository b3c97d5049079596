"""What a group refuses on NPU tensors, by name, and what becomes of the group then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from npu_groups import run_npu_group

import collops


def _goes_on() -> float:
    x = torch.ones(1).npu()
    dist.all_reduce(x)
    return float(x.item())


def _refusal(call: Callable[[int], Any], rank: int) -> str:
    try:
        call(rank)
    except collops.Error as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _band(rank: int) -> None:
    dist.all_reduce(torch.ones(2, dtype=torch.int32).npu(), dist.ReduceOp.BAND)


def _uneven_doubles(rank: int) -> None:
    parts = [torch.ones(peer + 1, dtype=torch.float64).npu() for peer in range(2)]
    dist.reduce_scatter(torch.empty_like(parts[rank]), parts)


def _tag(rank: int) -> None:
    x = torch.ones(1).npu()
    dist.send(x, 1, tag=3) if rank == 0 else dist.recv(x, 0, tag=3)


REFUSED = {
    "a reduction that HCCL lacks": (_band, "HCCL has no band"),
    "a type that HCCL does not reduce": (_uneven_doubles, "float64"),
    "a tag": (_tag, "HCCL has no tags: use tag 0, got 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_named_and_the_group_goes_on(name: str) -> None:
    call, words = REFUSED[name]

    def work(rank: int) -> tuple[str, float]:
        assert _goes_on() == 2
        return _refusal(call, rank), _goes_on()

    for message, total in run_npu_group(work, 2):
        assert message.startswith("UnsupportedError") and words in message, message
        assert total == 2


def test_a_message_of_any_rank_is_refused() -> None:
    def work(rank: int) -> tuple[str, float]:
        assert _goes_on() == 2
        message = "" if rank == 0 else _refusal(lambda _: dist.recv(torch.ones(1).npu()), rank)
        return message, _goes_on()

    [(_, first), (message, second)] = run_npu_group(work, 2)
    assert message.startswith("UnsupportedError") and "cannot receive from any rank" in message
    assert (first, second) == (2, 2)


def test_lists_on_two_devices_are_refused() -> None:
    """The error ends the calls on NPU tensors, but not those on CPU tensors."""

    def work(rank: int) -> tuple[str, str, float]:
        assert _goes_on() == 2
        parts = [torch.ones(1).npu(), torch.ones(1)]
        first = _refusal(lambda _: dist.all_gather(parts, torch.ones(1).npu()), rank)
        later = _refusal(lambda _: _goes_on(), rank)
        x = torch.ones(1)
        dist.all_reduce(x)
        return first, later, x.item()

    for first, later, total in run_npu_group(work, 2):
        assert "tensor 1 of the list is on cpu, tensor 0 on npu:" in first
        assert "this communicator has ended" in later
        assert total == 2


def test_a_tensor_on_another_npu_is_refused() -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        x = torch.ones(1).to(f"npu:{1 - rank}")
        return _refusal(lambda _: dist.all_reduce(x), rank)

    for rank, message in enumerate(run_npu_group(work, 2)):
        assert f"npu:{1 - rank}" in message and f"npu:{rank}" in message, message


def test_an_error_of_hccl_has_its_name_and_the_last_calls() -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        return _refusal(lambda _: dist.all_reduce(torch.ones(3).npu()), rank)

    for message in run_npu_group(work, 2, env={"COLLOPS_SIM_FAIL": "HcclAllReduce:2:9"}):
        assert "HcclAllReduce returned 9 (HCCL_E_TIMEOUT)" in message
        assert "the last calls of rank" in message and "all_reduce [3] float32" in message


def test_ranks_that_disagree_are_named() -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        return _refusal(lambda _: dist.all_reduce(torch.ones(rank + 1).npu()), rank)

    for message in run_npu_group(work, 2, env={"COLLOPS_CHECK": "1"}):
        assert message.startswith("RankMismatchError"), message
        assert "elements is 1 on rank 0" in message and "2 on rank 1" in message, message


def test_shared_memory_is_not_for_npu_tensors() -> None:
    def work(rank: int) -> str:
        return _refusal(lambda _: _goes_on(), rank)

    for message in run_npu_group(work, 2, env={"COLLOPS_BACKEND": "shm"}):
        assert "this backend moves CPU tensors" in message, message
