"""DistributedDataParallel and ZeroRedundancyOptimizer train on collops as on gloo."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms import Join  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.torch.training.training import (  # noqa: E402
    Compared,
    Unused,
    batches,
    loss_of,
    make_model,
    train,
)

SMALL_BUCKET = 300 / 2**20  # MB: several buckets


def wrapped(module: Any = None, **options: Any) -> Any:
    model = make_model() if module is None else module
    return DistributedDataParallel(model, bucket_cap_mb=SMALL_BUCKET, **options)


def unused() -> list[float]:
    torch.manual_seed(3)
    return train(wrapped(Unused(), find_unused_parameters=True))


def own_hook() -> list[float]:
    """Weighs gradients by rank: a hook that sums alone would give other losses."""
    rank = dist.get_rank()

    def hook(_, bucket):  # type: ignore[no-untyped-def]  # torch reads the types of hooks that have some
        scaled = bucket.buffer() * (rank + 1)
        future = dist.all_reduce(scaled, async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / 3)

    model = wrapped()
    model.register_comm_hook(None, hook)
    return train(model)


def builtin_hook() -> list[float]:
    model = wrapped()
    # Not public in torch 2.13: the hook in C++.
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    return train(model)


def accumulated() -> list[float]:
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for number, x in enumerate(batches(6)):
        if number % 2 == 0:
            with model.no_sync():
                loss_of(model, x).backward()
            continue
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def joined() -> list[float]:
    """Rank r has r batches more than rank 0; all ranks have the same weights at the end."""
    return _joined(wrapped())


def joined_unused() -> list[float]:
    """Here torch calls the group itself, with a tensor and no options."""
    torch.manual_seed(3)
    return _joined(wrapped(Unused(), find_unused_parameters=True))


def _joined(model: Any) -> list[float]:
    with Join([model]):
        losses = train(model, count=3 + dist.get_rank())
    final = sum(weight.detach().double().abs().sum().item() for weight in model.parameters())
    return [*losses[:3], final]


def zero_redundancy() -> list[float]:
    model = wrapped()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.05)
    losses = train(model, optimizer)
    optimizer.consolidate_state_dict(to=1)
    if dist.get_rank() == 1:
        state = optimizer.state_dict()["state"]
        assert sorted(state) == list(range(len(list(model.parameters()))))
    return losses


VARIANTS = {
    "plain": lambda: train(wrapped()),
    "unused": unused,
    "static_graph": lambda: train(wrapped(static_graph=True, gradient_as_bucket_view=True)),
    "own_hook": own_hook,
    "builtin_hook": builtin_hook,
    "accumulated": accumulated,
    "joined": joined,
    "joined_unused": joined_unused,
    "zero_redundancy": zero_redundancy,
}
ON_FOUR = ("plain", "unused", "zero_redundancy")
TWO = Compared(VARIANTS, 2)
FOUR = Compared({name: VARIANTS[name] for name in ON_FOUR}, 4)


@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks(name: str) -> None:
    TWO.check(name)


@pytest.mark.parametrize("name", ON_FOUR)
def test_four_ranks(name: str) -> None:
    FOUR.check(name)
