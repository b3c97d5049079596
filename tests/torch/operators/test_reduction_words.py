"""A reduction may be a member of torch.distributed.ReduceOp, at both levels of tensors."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import collops
import collops.torch

WORDS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "prod": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}


@pytest.mark.parametrize("word", WORDS)
def test_members_and_instances_mean_the_word(word: str) -> None:
    def work(rank: int) -> bool:
        x, member = torch.tensor([rank + 2, 7 - rank]), WORDS[word]
        with collops.init() as comm:
            want = comm.all_reduce(x, word)
            mine = want[rank : rank + 1]
            return (
                torch.equal(comm.all_reduce(x, member), want)
                and torch.equal(comm.all_reduce(x, dist.ReduceOp(member)), want)
                and torch.equal(comm.reduce_scatterv(x, [1, 1], op=member), mine)
                and torch.equal(comm.reduce_scatter(x, member), mine)
                and torch.equal(collops.torch.all_reduce(x, member, group=comm), want)
                and torch.equal(collops.torch.reduce_scatterv(x, op=member, group=comm), mine)
            )

    assert collops.testing.run_ranks(work, 2) == [True, True]


def test_products_take_them_too() -> None:
    with collops.init(0, 1) as comm:
        x, weight = torch.ones(3, 2), torch.ones(2, 4)
        total = comm.matmul_reduce_scatter(x, weight, op=dist.ReduceOp.AVG)
        again = collops.torch.matmul_reduce_scatter(x, weight, op=dist.ReduceOp.AVG, group=comm)
        assert torch.equal(total, x @ weight) and torch.equal(again, total)
