"""all_reduce_, broadcast_, all_gather_into and reduce_scatter_into beside torch.distributed's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops  # noqa: E402
import collops.torch  # noqa: E402
from collops.torch.collective_calls import all_gather_single, reduce_scatter_single  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402


def numbers(rank: int, rows: int) -> torch.Tensor:
    return torch.arange(rows * 3.0).view(rows, 3) * (rank + 1) + rank


def in_both_ways(rank: int, group: Any) -> list[tuple[list[Any], list[Any]]]:
    """The result of each call here, and of torch.distributed's."""
    size = dist.get_world_size()
    found = []
    for op in ("sum", "max", dist.ReduceOp.AVG):
        word = getattr(dist.ReduceOp, op.upper()) if isinstance(op, str) else op
        x, want = numbers(rank, 2), numbers(rank, 2)
        dist.all_reduce(want, word)
        assert collops.torch.all_reduce_(x, op, group) is x
        found.append((x.tolist(), want.tolist()))
        whole = numbers(rank, 2 * size)
        out, want = torch.full((2, 3), -1.0), torch.full((2, 3), -1.0)
        reduce_scatter_single(want, whole, word)
        assert collops.torch.reduce_scatter_into(out, whole, op, group) is out
        found.append((out.tolist(), want.tolist()))
    for root in range(size):
        x, want = numbers(rank, 2), numbers(root, 2)
        assert collops.torch.broadcast_(x, root, group) is x
        found.append((x.tolist(), want.tolist()))
    out, want = torch.full((2 * size, 3), -1.0), torch.full((2 * size, 3), -1.0)
    all_gather_single(want, numbers(rank, 2))
    assert collops.torch.all_gather_into(out, numbers(rank, 2), group) is out
    found.append((out.tolist(), want.tolist()))
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_results_are_those_of_torch_distributed(size: int) -> None:
    def work(rank: int) -> Any:
        groups = [None, default_group(), default_group().communicator]
        return [pair for group in groups for pair in in_both_ways(rank, group)]

    for pairs in run_group(work, size):
        for found, want in pairs:
            assert found == want


def test_they_follow_the_calls_that_were_started() -> None:
    """Also from a second thread, and once there are callbacks."""

    def work(rank: int) -> Any:
        x = torch.tensor([rank + 1.0])
        first = dist.all_reduce(x, async_op=True)
        collops.torch.all_reduce_(x)
        first.wait()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(collops.torch.all_reduce_, x).result(30)
        dist.all_reduce(x, async_op=True).get_future().wait()
        collops.torch.all_reduce_(x)
        return x.item(), collops.torch.last_calls()[-1]

    assert run_group(work, 2) == [(48.0, "5 collops.torch.all_reduce [1] float32")] * 2


def test_refusals() -> None:
    def work(rank: int) -> list[str]:
        found = []
        for call in (
            lambda: collops.torch.all_reduce_(torch.ones(2, 3).t()),
            lambda: collops.torch.all_reduce_(torch.ones(2 + rank)),
            lambda: collops.torch.all_reduce_(torch.ones(2), group="world"),
        ):
            with pytest.raises(collops.Error) as refused:
                call()
            found.append(str(refused.value))
        return found

    for layout, shapes, group in run_group(work, 2):
        assert "x is not contiguous" in layout
        assert "all_reduce: the ranks disagree" in shapes
        assert "last calls of rank" in shapes
        assert "the group must be one of collops or a communicator, got str" in group
