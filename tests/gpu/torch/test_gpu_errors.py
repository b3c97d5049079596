"""What a group refuses on CUDA tensors, by name, and what becomes of the group then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gpu_groups import BACKENDS, on, run_gpu_group

import collops
from patience import patience


def _goes_on() -> float:
    x = torch.ones(1).cuda()
    dist.all_reduce(x)
    return float(x.item())


def _refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except collops.Error as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _tag(rank: int) -> None:
    x = torch.ones(1).cuda()
    dist.send(x, 1, tag=3) if rank == 0 else dist.recv(x, 0, tag=3)


def _any_rank(rank: int) -> None:
    dist.recv(torch.ones(1).cuda())


def _batch_with_a_tag(rank: int) -> None:
    x, y = torch.ones(1).cuda(), torch.ones(1).cuda()
    ops = [dist.P2POp(dist.isend, x, 1 - rank, tag=5), dist.P2POp(dist.irecv, y, 1 - rank, tag=5)]
    dist.batch_isend_irecv(ops)


REFUSED: dict[str, tuple[Callable[[int], None], str]] = {
    "a tag": (_tag, "NCCL has no tags: use tag 0, got 3"),
    "a tag in a batch": (_batch_with_a_tag, "NCCL has no tags: use tag 0, got 5"),
    "a message of any rank": (_any_rank, "cannot receive from any rank"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nccl_lacks_is_named_and_the_group_goes_on(name: str) -> None:
    call, words = REFUSED[name]

    def work(rank: int) -> tuple[str, float]:
        assert _goes_on() == 2
        return _refusal(lambda: call(rank)), _goes_on()

    for message, total in run_gpu_group(work, 2):
        assert message.startswith("UnsupportedError") and words in message, message
        assert total == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_on_another_gpu_is_refused(backend: str) -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        x = torch.ones(1).to(f"cuda:{1 - rank}")
        return _refusal(lambda: dist.all_reduce(x))

    for rank, message in enumerate(run_gpu_group(work, 2, env=on(backend))):
        assert f"cuda:{1 - rank}" in message and f"cuda:{rank}" in message, message


def test_lists_on_two_devices_are_refused() -> None:
    """The error ends the calls on CUDA tensors, but not those on CPU tensors."""

    def work(rank: int) -> tuple[str, str, float]:
        assert _goes_on() == 2
        parts = [torch.ones(1).cuda(), torch.ones(1)]
        first = _refusal(lambda: dist.all_gather(parts, torch.ones(1).cuda()))
        later = _refusal(_goes_on)
        x = torch.ones(1)
        dist.all_reduce(x)
        return first, later, x.item()

    for first, later, total in run_gpu_group(work, 2):
        assert "tensor 1 of the list is on cpu, tensor 0 on cuda:" in first
        assert "this communicator has ended" in later
        assert total == 2


def test_ranks_that_disagree_are_named() -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        return _refusal(lambda: dist.all_reduce(torch.ones(rank + 1).cuda()))

    for message in run_gpu_group(work, 2, env={"COLLOPS_CHECK": "1"}):
        assert message.startswith("RankMismatchError"), message
        assert "elements is 1 on rank 0" in message and "2 on rank 1" in message, message
        assert "all_reduce" in message and "the last calls of rank" in message, message


def test_a_disagreement_on_the_device_is_named_in_the_next_call() -> None:
    """The backend cuda compares calls in its kernels, after they have returned."""

    def work(rank: int) -> tuple[str, str]:
        assert _goes_on() == 2
        first = _refusal(lambda: dist.all_reduce(torch.ones(rank + 1).cuda()))
        torch.cuda.synchronize()
        return first, _refusal(_goes_on)

    for first, later in run_gpu_group(work, 2, env=on("cuda")):
        assert first == "no error"
        assert later.startswith("RankMismatchError"), later
        assert "elements is 1 on rank 0" in later and "2 on rank 1" in later, later


def test_shared_memory_is_not_for_cuda_tensors() -> None:
    def work(rank: int) -> str:
        return _refusal(_goes_on)

    for message in run_gpu_group(work, 2, env={"COLLOPS_BACKEND": "shm"}):
        assert "this backend moves CPU tensors" in message, message


def _swap(x: torch.Tensor, peer: int) -> None:
    ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, x + 1, peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    torch.cuda.synchronize()
    _goes_on()


def test_a_batch_that_an_exception_ends_ends_the_calls_of_all_ranks() -> None:
    def work(rank: int) -> str:
        assert _goes_on() == 2
        x = torch.ones(1).cuda()
        if rank == 0:
            with pytest.raises(LookupError), dist._coalescing_manager(device=x.device):
                dist.isend(x, 1)
                raise LookupError("no such row")
        return _refusal(lambda: _swap(x, 1 - rank))

    for message in run_gpu_group(work, 2, timeout_s=patience(30)):
        assert "1 message of it will never be sent or received" in message, message
