"""run_ranks with torch: its parent has computed with OpenMP's threads; its ranks are a group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from tests.torch.groups import TIMEOUT_S  # noqa: E402


def compute() -> None:
    """What OpenMP's threads take part in."""
    x = torch.randn(512, 512, requires_grad=True)
    (x @ x).sum().backward()
    images = torch.randn(4, 8, 32, 32)
    torch.nn.functional.conv2d(images, torch.randn(16, 8, 3, 3))
    torch.sort(torch.randn(500_000))


def total(rank: int, threads: int) -> list[float]:
    assert torch.get_num_threads() == 1
    if threads:
        torch.set_num_threads(threads)
    compute()
    dist.init_process_group("collops")
    x = torch.arange(3.0) + 10**rank
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.tolist()  # type: ignore[no-any-return]


def test_ranks_of_a_parent_that_has_computed() -> None:
    def parent(_: int) -> list[list[float]]:
        torch.set_num_threads(4)
        found = []
        for threads in (0, 3):  # 3: the ranks begin with one, and may choose more
            compute()
            found += run_ranks(total, 2, threads, timeout=TIMEOUT_S)
        compute()
        assert torch.get_num_threads() == 4
        return found

    assert run_ranks(parent, 1, timeout=3 * TIMEOUT_S) == [[[11.0, 13.0, 15.0]] * 4]


def test_the_exception_because_of_which_a_group_is_left() -> None:
    def leave(rank: int, call: Callable[[], None]) -> str:
        dist.init_process_group("collops")
        if rank == 0:
            with pytest.raises((collops.PeerLostError, collops.AbortedError)) as caught:
                dist.all_reduce(torch.ones(3))
            return caught.value.message
        try:
            try:
                raise LookupError("why")
            finally:
                call()
        except LookupError:
            return ""

    for call in (dist.destroy_process_group, dist.distributed_c10d._abort_process_group):
        reason = run_ranks(leave, 2, call)[0]
        assert " while handling LookupError: why" in reason
