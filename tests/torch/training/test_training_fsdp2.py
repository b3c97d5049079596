"""fully_shard() trains on collops as on gloo, with and without windows, alone and as HSDP."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import (  # noqa: E402
    MixedPrecisionPolicy,
    fully_shard,
)

import collops.torch.fsdp  # noqa: E402
from tests.torch.training.training import Compared, batches, each_module, loss_of, make_model, train  # noqa: E402

BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def mesh_of(*sizes: int) -> Any:
    names = ("replicate", "shard")[-len(sizes) :]
    return dist.init_device_mesh("cpu", sizes, mesh_dim_names=names)


def sharded(mesh: Any = None, *, windows: bool = False, **options: Any) -> Any:
    """Each layer is a module of its own, and so is the whole."""
    mesh = mesh_of(dist.get_world_size()) if mesh is None else mesh
    model = make_model()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if windows and dist.get_backend() == "collops":
        collops.torch.fsdp.use(model)
    return model


def from_the_group() -> list[float]:
    if dist.get_backend() != "collops":  # gloo allocates no tensors
        return train(sharded())
    model = each_module(
        sharded(), lambda part: part.set_allocate_memory_from_process_group_for_comm(True)
    )
    return train(model)


def accumulated(windows: bool) -> list[float]:
    """Gradients of two batches; on the first of them without communication."""
    model = sharded(windows=windows)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for number, x in enumerate(batches(6)):
        model.set_requires_gradient_sync(number % 2 == 1)
        loss = loss_of(model, x)
        loss.backward()
        if number % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def full_state() -> list[float]:
    """The whole weights after training, from the shards of all ranks."""
    model = sharded(windows=True)
    losses = train(model)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    assert state["0.weight"].shape == make_model()[0].weight.shape
    return [*losses, *(value.double().abs().sum().item() for value in state.values())]


def prefetched() -> list[float]:
    """Gathers of the next layer, under way while a layer computes."""
    model = sharded(windows=True)
    each_module(model, lambda part: part.set_unshard_in_backward(True))
    model.set_modules_to_forward_prefetch([model[0], model[2]])
    model[2].set_modules_to_backward_prefetch([model[0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for x in batches():
        handles = [part.unshard(async_op=True) for part in (model, model[0], model[2])]
        for handle in handles:
            handle.wait()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


VARIANTS = {
    "plain": lambda: train(sharded()),
    "windows": lambda: train(sharded(windows=True)),
    "kept_after_forward": lambda: train(sharded(windows=True, reshard_after_forward=False)),
    "from_the_group": from_the_group,
    "bf16_windows": lambda: train(sharded(windows=True, mp_policy=BF16)),
    "mixed_windows": lambda: train(sharded(windows=True, mp_policy=MIXED)),
    "accumulated": lambda: accumulated(False),
    "accumulated_windows": lambda: accumulated(True),
    "full_state": full_state,
    "prefetched": prefetched,
}
ON_FOUR = {
    "plain": VARIANTS["plain"],
    "windows": VARIANTS["windows"],
    "partly_sharded": lambda: train(sharded(windows=True, reshard_after_forward=2)),
    "replicas": lambda: train(sharded(mesh_of(2, 2))),
    "replicas_windows": lambda: train(sharded(mesh_of(2, 2), windows=True)),
}
TWO, FOUR = Compared(VARIANTS, 2), Compared(ON_FOUR, 4)


@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks(name: str) -> None:
    TWO.check(name)


@pytest.mark.parametrize("name", ON_FOUR)
def test_four_ranks(name: str) -> None:
    FOUR.check(name)
