"""What a group refuses on tensors of devices, by name, and what becomes of the group then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops
from tests.devices.torch.device_groups import BACKENDS, KIND, VENDOR, on, run_device_group


def _goes_on() -> float:
    x = torch.ones(1).to(KIND)
    dist.all_reduce(x)
    return float(x.item())


def _refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except collops.Error as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _tag(rank: int) -> None:
    x = torch.ones(1).to(KIND)
    dist.send(x, 1, tag=3) if rank == 0 else dist.recv(x, 0, tag=3)


def _batch_with_a_tag(rank: int) -> None:
    x, y = torch.ones(1).to(KIND), torch.ones(1).to(KIND)
    ops = [dist.P2POp(dist.isend, x, 1 - rank, tag=5), dist.P2POp(dist.irecv, y, 1 - rank, tag=5)]
    dist.batch_isend_irecv(ops)


def _band(rank: int) -> None:
    dist.all_reduce(torch.ones(2, dtype=torch.int32).to(KIND), dist.ReduceOp.BAND)


def _uneven_doubles(rank: int) -> None:
    parts = [torch.ones(peer + 1, dtype=torch.float64).to(KIND) for peer in range(2)]
    dist.reduce_scatter(torch.empty_like(parts[rank]), parts)


REFUSED: dict[str, tuple[Callable[[int], None], str]] = {
    "a tag": (_tag, f"{VENDOR} has no tags: use tag 0, got 3"),
}
if KIND == "cuda":
    REFUSED["a tag in a batch"] = (_batch_with_a_tag, "NCCL has no tags: use tag 0, got 5")
else:
    REFUSED["a reduction that HCCL lacks"] = (_band, "HCCL has no band")
    REFUSED["a type that HCCL does not reduce"] = (_uneven_doubles, "float64")


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_library_lacks_is_named_and_the_group_goes_on(name: str) -> None:
    call, words = REFUSED[name]

    def work(rank: int) -> tuple[str, float]:
        assert _goes_on() == 2
        return _refusal(lambda: call(rank)), _goes_on()

    for message, total in run_device_group(work, 2):
        assert message.startswith("UnsupportedError") and words in message, message
        assert total == 2


def test_a_message_of_any_rank_is_refused() -> None:
    def work(rank: int) -> tuple[str, float]:
        assert _goes_on() == 2
        x = torch.ones(1).to(KIND)
        return "" if rank == 0 else _refusal(lambda: dist.recv(x)), _goes_on()

    [(_, first), (message, second)] = run_device_group(work, 2)
    assert message.startswith("UnsupportedError") and "cannot receive from any rank" in message
    assert (first, second) == (2, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_on_another_device_is_refused(backend: str) -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        x = torch.ones(1).to(f"{KIND}:{1 - rank}")
        return _refusal(lambda: dist.all_reduce(x))

    for rank, message in enumerate(run_device_group(work, 2, env=on(backend))):
        assert f"{KIND}:{1 - rank}" in message and f"{KIND}:{rank}" in message, message


def test_lists_on_two_devices_are_refused() -> None:
    """The error ends the calls on such tensors, but not those on CPU tensors."""

    def work(rank: int) -> tuple[str, str, float]:
        assert _goes_on() == 2
        parts = [torch.ones(1).to(KIND), torch.ones(1)]
        first = _refusal(lambda: dist.all_gather(parts, torch.ones(1).to(KIND)))
        later = _refusal(_goes_on)
        x = torch.ones(1)
        dist.all_reduce(x)
        return first, later, x.item()

    for first, later, total in run_device_group(work, 2):
        assert f"tensor 1 of the list is on cpu, tensor 0 on {KIND}:" in first
        assert "this communicator has ended" in later
        assert total == 2


def test_ranks_that_disagree_are_named() -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        return _refusal(lambda: dist.all_reduce(torch.ones(rank + 1).to(KIND)))

    for message in run_device_group(work, 2, env={"COLLOPS_CHECK": "1"}):
        assert message.startswith("RankMismatchError"), message
        assert "elements is 1 on rank 0" in message and "2 on rank 1" in message, message
        assert "all_reduce" in message and "the last calls of rank" in message, message


def test_shared_memory_is_not_for_tensors_of_devices() -> None:
    def work(rank: int) -> str:
        return _refusal(_goes_on)

    for message in run_device_group(work, 2, env={"COLLOPS_BACKEND": "shm"}):
        assert "this backend moves CPU tensors" in message, message
